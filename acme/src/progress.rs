//! How far a long list of destinations has come, for somebody who waits at a terminal.
//!
//! The line is written by a thread of its own, so that a destination that takes long shows even if it is the only one.
//! Whoever writes something else to the terminal takes it away first: [`Out`] does.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::out::Out;

/// Shorter lists need none.
const LONG: usize = 17;
/// What is done sooner needs none.
const SOON: Duration = Duration::from_secs(1);
/// How often the line is written.
const PERIOD: Duration = Duration::from_millis(250);
/// The longest line. Terminals have 80 columns, and wrap what reaches the last.
const WIDTH: usize = 79;

/// A line on standard error that is written again and again.
pub struct Progress {
    line: Option<Line>,
    /// Its end is the thread's.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The line, which the thread writes and everybody can take away.
#[derive(Clone, Default)]
pub struct Line(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    number: usize,
    count: usize,
    destination: String,
    failures: u64,
    /// Whether it may be written: an answer is awaited.
    wanted: bool,
    /// Columns that are taken on the terminal.
    drawn: usize,
}

impl Progress {
    /// For so many destinations; nothing is shown where nobody waits, or the list is short.
    pub fn new(out: &mut Out, count: usize) -> Progress {
        let mut progress = Progress { line: None, end: None, thread: None };
        // A pipe's reader may write to the same terminal.
        if count < LONG || !io::stderr().is_terminal() || !(out.is_terminal() || is_file()) {
            return progress;
        }
        let line = Line::default();
        line.lock().count = count;
        let (end, ended) = channel();
        let writer = line.clone();
        if let Ok(thread) = thread::Builder::new().spawn(move || writer.keep(&ended)) {
            out.keep_clear(Some(line.clone()));
            progress = Progress { line: Some(line), end: Some(end), thread: Some(thread) };
        }
        progress
    }

    /// Called for each destination, with its number from 0.
    pub fn at(&mut self, number: usize, destination: &str) {
        if let Some(line) = &self.line {
            let mut state = line.lock();
            state.number = number;
            destination.clone_into(&mut state.destination);
        }
    }

    /// Called before anything that may take long. The line may be there until something else is written.
    pub fn wait(&mut self, out: &mut Out) {
        if let Some(line) = &self.line {
            out.flush();
            line.lock().wanted = true;
        }
    }

    /// Counts a failure.
    pub fn failed(&mut self) {
        if let Some(line) = &self.line {
            line.lock().failures += 1;
        }
    }

    /// Takes the line away.
    pub fn end(mut self, out: &mut Out) {
        out.keep_clear(None);
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(line) = self.line.take() {
            line.erase();
        }
    }
}

/// Whether standard output is a file on a disk.
fn is_file() -> bool {
    let copy = io::stdout().as_fd().try_clone_to_owned();
    copy.and_then(|fd| File::from(fd).metadata()).is_ok_and(|m| m.is_file())
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the line away until [`Progress::wait`] says that it may be written again.
    pub fn erase(&self) {
        let mut state = self.lock();
        state.wanted = false;
        if state.drawn > 0 {
            // Every terminal knows spaces.
            let _ = write!(io::stderr(), "\r{:1$}\r", "", state.drawn);
            state.drawn = 0;
        }
    }

    /// Writes the line until there is no sender any more.
    fn keep(&self, ended: &Receiver<()>) {
        let begin = Instant::now();
        let mut pause = SOON;
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = PERIOD;
            let mut state = self.lock();
            if state.wanted {
                let text = state.text(begin.elapsed());
                let _ = write!(io::stderr(), "\r{text:0$}", state.drawn);
                state.drawn = state.drawn.max(text.chars().count());
            }
        }
    }
}

impl State {
    fn text(&self, elapsed: Duration) -> String {
        let State { number, count, failures, .. } = self;
        let mut text = format!("{} of {count}, {failures} failed", number + 1);
        if *number > 0 && *number < *count {
            let rest = elapsed.as_secs_f64() / *number as f64 * (count - number) as f64;
            text += &format!(", about {} left", rest_text(rest));
        }
        text += ": ";
        // Names come from the command line, and are not to move the cursor.
        let shown = self.destination.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
        text.chars().chain(shown).take(WIDTH).collect()
    }
}

/// Seconds in a form that does not pretend to know more than it does.
fn rest_text(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{:.0} s", s.ceil()),
        s if s < 6000.0 => format!("{:.0} min", (s / 60.0).ceil()),
        s => format!("{:.0} h", (s / 3600.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: usize, count: usize, destination: &str) -> String {
        let state = State { number, count, destination: destination.to_owned(), ..State::default() };
        state.text(Duration::from_secs(10))
    }

    #[test]
    fn a_line_says_how_far_it_is() {
        assert_eq!(text(0, 20, "10.0.0.1"), "1 of 20, 0 failed: 10.0.0.1");
        assert_eq!(text(10, 20, "10.0.0.11"), "11 of 20, 0 failed, about 10 s left: 10.0.0.11");
        assert_eq!(text(10, 1010, "x"), "11 of 1010, 0 failed, about 17 min left: x");
        assert_eq!(text(1, 10_001, "x"), "2 of 10001, 0 failed, about 28 h left: x");
    }

    #[test]
    fn a_line_never_wraps_nor_moves_the_cursor() {
        let line = text(5, 20, &"\x1b[2J\n\u{e9}".repeat(30));
        assert_eq!(line.chars().count(), WIDTH);
        assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line:?}");
    }
}
