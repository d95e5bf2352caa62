//! Writing to standard output and standard error. Nobody may be reading any more: then the program ends, quietly.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use libibacm::Name;

use crate::fault::{Fault, strerror};
use crate::progress::Line;

/// Standard output, buffered until [`Out::flush`] or the end.
pub struct Out {
    to: BufWriter<Stdout>,
    terminal: bool,
    /// Whether text is left out, for a document to follow.
    muted: bool,
    /// A line on the terminal that gives way to what is written here.
    line: Option<Line>,
}

impl Default for Out {
    fn default() -> Out {
        let to = io::stdout();
        Out { terminal: to.is_terminal(), to: BufWriter::new(to), muted: false, line: None }
    }
}

impl Out {
    /// Whether somebody reads along.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// From now on nothing is written but [`Out::document`].
    pub fn mute(&mut self) {
        self.muted = true;
    }

    /// Takes this line away before anything is written where it is.
    pub fn keep_clear(&mut self, line: Option<Line>) {
        self.line = line;
    }

    /// Writes a document, whether muted or not.
    pub fn document(&mut self, text: &dyn fmt::Display) {
        if let Err(e) = writeln!(self.to, "{text}") {
            end(&e);
        }
    }

    /// Writes what failed and what to do about it to standard error.
    pub fn explain(&mut self, fault: &Fault) {
        self.advise(format_args!("{}: {}", fault.text, fault.advice));
    }

    /// Writes a line of advice to standard error, where no script looks for results.
    pub fn advise(&mut self, text: fmt::Arguments<'_>) {
        // What it is about comes first.
        self.flush();
        if let Some(line) = &self.line {
            line.erase();
        }
        let text = text.to_string();
        let text = if io::stderr().is_terminal() { printable(&text) } else { text.into() };
        let _ = writeln!(io::stderr(), "ib_acme: {text}");
    }

    /// Writes one piece of text; used by `write!` and [`say!`](crate::say).
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        if self.muted {
            return;
        }
        if let Some(line) = self.line.as_ref().filter(|_| self.terminal) {
            line.erase();
        }
        if let Err(e) = self.to.write_fmt(text) {
            end(&e);
        }
    }

    /// Writes a name that a service has told: the bytes as they are, but on a terminal such that they do nothing.
    pub fn name(&mut self, name: &Name) {
        if self.terminal {
            return self.write_fmt(format_args!("{}", printable(&name.to_string_lossy())));
        }
        if self.muted {
            return;
        }
        if let Err(e) = self.to.write_all(name.as_bytes()) {
            end(&e);
        }
    }

    /// Makes visible what was written. Called before anything that can take long.
    pub fn flush(&mut self) {
        if let Err(e) = self.to.flush() {
            end(&e);
        }
    }
}

/// Writes a line to standard output.
#[macro_export]
macro_rules! say {
    ($out:expr, $($text:tt)*) => {
        $out.write_fmt(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Ends the program whose output is lost. Where nobody reads any more, that is what a signal for a closed pipe would have
/// done: the exit status is the shell's for SIGPIPE.
fn end(e: &io::Error) -> ! {
    if e.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(128 + libc::SIGPIPE);
    }
    let why = e.raw_os_error().map_or_else(|| e.to_string(), strerror);
    let _ = writeln!(io::stderr(), "ib_acme: standard output: {why}");
    std::process::exit(255)
}

/// What others have named cannot do anything to the terminal, nor look like another line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(harms) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harms(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown.into()
}

/// Whether a terminal would do something else than show it.
pub fn harms(c: char) -> bool {
    // The last ones would turn the order of letters around.
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
