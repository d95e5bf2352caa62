//! Writing to standard output and standard error. Nobody may be reading any more: then the program ends, quietly.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

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
        if writeln!(self.to, "{text}").is_err() {
            end();
        }
    }

    /// Writes a line of advice to standard error, where no script looks for results.
    pub fn advise(&mut self, text: fmt::Arguments<'_>) {
        // What it is about comes first.
        self.flush();
        if let Some(line) = &self.line {
            line.erase();
        }
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
        if self.to.write_fmt(text).is_err() {
            end();
        }
    }

    /// Makes visible what was written. Called before anything that can take long.
    pub fn flush(&mut self) {
        if self.to.flush().is_err() {
            end();
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

/// What a signal for a closed pipe would have done: the exit status is the shell's for SIGPIPE.
fn end() -> ! {
    std::process::exit(128 + libc::SIGPIPE)
}
