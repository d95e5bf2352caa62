//! One line of the log: time, source, escaped text, bounded.
#![allow(unsafe_code)] // The standard library knows no local time.

use super::MAX_LINE;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a text that was cut ends in.
const CUT: &str = "...";

/// The local time of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u32,
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    pub(super) second: u32,
    pub(super) millisecond: u32,
}

impl Stamp {
    /// The time now. A clock before 1970 counts as 1970.
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or_default();
        let mut parts = MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: both pointers are valid for the call, and all zeroes is a valid `tm` should it fail and fill in nothing.
        let parts = unsafe {
            libc::localtime_r(&raw const seconds, parts.as_mut_ptr());
            parts.assume_init()
        };
        let part = |value: libc::c_int| u32::try_from(value).unwrap_or_default();
        Stamp {
            year: i64::from(parts.tm_year) + 1900,
            month: part(parts.tm_mon) + 1,
            day: part(parts.tm_mday),
            hour: part(parts.tm_hour),
            minute: part(parts.tm_min),
            second: part(parts.tm_sec),
            millisecond: since.subsec_millis(),
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp { year, month, day, hour, minute, second, millisecond } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}")
    }
}

/// A line: the time apart, since the system's log has its own way of writing it.
pub(super) struct Line {
    pub(super) stamp: Stamp,
    /// `source: text`, printable, without a newline.
    pub(super) text: String,
}

impl Line {
    /// A line of now. An empty source is left away.
    pub(super) fn new(source: &str, text: fmt::Arguments<'_>) -> Self {
        // 64 bytes are for whatever a target puts before or behind the text.
        let mut escaped = Escaped { out: String::with_capacity(128), most: MAX_LINE - 64 };
        let separator = if source.is_empty() { "" } else { ": " };
        if write!(escaped, "{source}{separator}{text}").is_err() {
            escaped.out.push_str(CUT);
        }
        Line { stamp: Stamp::now(), text: escaped.out }
    }

    /// How much it matters, in the system's numbers: 3 error, 4 warning, 5 notice, 6 information, 7 debugging.
    pub(super) fn severity(&self, level: u8) -> u8 {
        // A line names its source, and a finding its place, before it says what it is.
        let said = |word: &str| {
            self.text
                .split(": ")
                .any(|part| part.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
        };
        match level {
            0 if said("error") => 3,
            0 if said("warn") => 4,
            0 => 5,
            1 => 6,
            _ => 7,
        }
    }
}

/// Escapes control characters, and refuses to grow beyond its bound.
struct Escaped {
    out: String,
    most: usize,
}

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            // Four bytes for a character, ten for an escape: room for either, and for the mark of a cut.
            if self.out.len() + 10 + CUT.len() > self.most {
                return Err(fmt::Error);
            }
            match c {
                c if c.is_ascii_control() => write!(self.out, "\\x{:02x}", u32::from(c))?,
                // What turns the direction of writing can make a terminal show something else than is there.
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    write!(self.out, "{}", c.escape_unicode())?;
                }
                c if c.is_control() => write!(self.out, "{}", c.escape_unicode())?,
                c => self.out.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_as_it_always_was() {
        let stamp = Stamp { year: 2026, month: 1, day: 2, hour: 3, minute: 4, second: 5, millisecond: 6 };
        assert_eq!(stamp.to_string(), "2026-01-02T03:04:05.006");
        let now = Stamp::now();
        assert!(now.year > 2020 && (1..=12).contains(&now.month) && (1..=31).contains(&now.day), "{now}");
    }

    #[test]
    fn text_is_escaped() {
        let line = Line::new("arp", format_args!("{}", "a\nb\t\x1b[2J\0\u{9b}\u{202e}é\\"));
        assert_eq!(line.text, r"arp: a\x0ab\x09\x1b[2J\x00\u{9b}\u{202e}é\");
        assert_eq!(Line::new("", format_args!("x: y")).text, "x: y");
    }

    #[test]
    fn severities() {
        let shown = |level, text: &str| Line::new("sa", format_args!("{text}")).severity(level);
        assert_eq!(shown(0, "Error - no"), 3);
        assert_eq!(shown(0, "o.cfg:3: error: a NUL byte"), 3);
        assert_eq!(shown(0, "o.cfg:3: warning: unknown option"), 4);
        assert_eq!(shown(0, "the port is in error"), 5);
        assert_eq!(shown(0, "\u{e9}\u{e9}\u{e9}"), 5);
        assert_eq!((shown(1, "error"), shown(2, "error"), shown(9, "")), (6, 7, 7));
    }

    #[test]
    fn text_is_bounded() {
        for text in ["x".repeat(100_000), "\u{202e}".repeat(100_000), "é".repeat(100_000), "\n".repeat(100_000)] {
            let line = Line::new("s", format_args!("{text}"));
            assert!(line.text.len() <= MAX_LINE - 64 && line.text.len() > MAX_LINE - 100, "{}", line.text.len());
            assert!(line.text.ends_with(CUT));
        }
        let most = "x".repeat(1_500);
        assert!(Line::new("s", format_args!("{most}")).text.ends_with('x'));
    }
}
