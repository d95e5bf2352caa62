//! The log of the process: lines of `2026-01-31T12:00:00.123: source: text`, in local time.
//!
//! ```text
//! log!(0, "port {port} of {device} is up");          // always worth a line
//! log_limited!(0, "group join refused: {status}");   // at most a few a second from this place
//! log_keyed!(0, address, "no answer from {address}");// at most a few a second for each address
//! ```
//!
//! Levels are those of the option `log_level`: 0 what an operator has to know, 1 what happens, 2 everything. Nothing is
//! formatted when the level is off. A line is one `write` and at most [`MAX_LINE`] bytes; control characters in its
//! text, which may come from the network, are escaped. A full or broken target loses lines, is never waited for and
//! never fails the caller; how many lines were lost is said as soon as it takes lines again. The loop has to call
//! [`on_time`] before it waits.

mod limit;
mod line;
mod sink;
#[cfg(feature = "syslog")]
mod syslog;

pub use sink::LogError;

use crate::options::LogTarget;
use limit::{Limiter, Suppressed, Verdict};
use line::Line;
use sink::Sink;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest line that is written, in bytes and with its newline: less than a pipe takes in one piece.
pub const MAX_LINE: usize = 2048;
/// Bytes of a line that stand for those that were left out.
const SAMPLE: usize = 80;
/// Lines a second that the limited macros let through for one cause.
pub const LIMIT: u32 = 10;

/// Levels below this one are written. Apart from the rest, since it is asked for far more often than anything is written.
static LEVELS: AtomicU8 = AtomicU8::new(1);
/// Whether [`on_time`] may have something to do.
static OWES: AtomicBool = AtomicBool::new(false);
/// Lines left out because their cause had written too many, since the start.
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);
/// Lines that the target did not take, since the start.
static LOST: AtomicU64 = AtomicU64::new(0);
static LOGGER: Mutex<Logger> = Mutex::new(Logger::new());
/// Keys the hash of the causes: their text may be of a stranger's choosing.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

struct Logger {
    sink: Sink,
    limiter: Limiter,
    /// Lines that the target did not take since the last that it took.
    lost: u64,
}

impl Logger {
    const fn new() -> Self {
        Logger { sink: Sink::Fd { fd: 2, journal: false }, limiter: Limiter::new(), lost: 0 }
    }

    fn put(&mut self, level: u8, source: &str, text: fmt::Arguments<'_>) {
        if self.lost > 0 {
            let note = Line::new("log", format_args!("{} lines were lost: the log did not take them", self.lost));
            if self.sink.write(0, note).is_ok() {
                self.lost = 0;
            }
        }
        if self.sink.write(level, Line::new(source, text)).is_err() {
            self.lost = self.lost.saturating_add(1);
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        OWES.store(true, Ordering::Relaxed);
    }

    fn on_time(&mut self, now: Instant) -> Option<Instant> {
        while let Some(suppressed) = self.limiter.take_due(now) {
            say_suppressed(self, &suppressed);
        }
        let limits = self.limiter.next_deadline();
        self.sink.on_time(now).into_iter().chain(limits).min()
    }
}

fn logger() -> MutexGuard<'static, Logger> {
    // What a panicking thread left behind is still a log.
    LOGGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says where the log goes and how much of it; until then it is standard error and level 0.
///
/// # Errors
/// The file cannot be opened for appending; what held before then still holds. A system log that isn't there is no
/// error: it may come later.
pub fn configure(target: &LogTarget, level: u8) -> Result<(), LogError> {
    let sink = Sink::open(target)?;
    logger().sink = sink;
    set_level(level);
    Ok(())
}

/// Opens the log file again, after somebody moved it away. Other targets need nothing.
///
/// # Errors
/// The file cannot be opened; the old one stays in use.
pub fn reopen() -> Result<(), LogError> {
    let mut logger = logger();
    let Some(target) = logger.sink.target() else { return Ok(()) };
    logger.sink = Sink::open(&target)?;
    Ok(())
}

/// Sets the level, 0 to 2.
pub fn set_level(level: u8) {
    LEVELS.store(level.saturating_add(1), Ordering::Relaxed);
}

/// Has nothing written at all, as in a process that has the log of another one. Takes no lock.
pub fn silence() {
    LEVELS.store(0, Ordering::Relaxed);
}

/// Whether lines of `level` are written.
#[inline]
pub fn enabled(level: u8) -> bool {
    level < LEVELS.load(Ordering::Relaxed)
}

/// Writes a line whatever the level in force; the macros ask for that first. `source` is a module's path, of which the
/// last part is shown.
pub fn write(level: u8, source: &str, text: fmt::Arguments<'_>) {
    logger().put(level, short(source), text);
}

/// Writes text that somebody else made up, such as a plug-in: it names its source itself and may end in a newline.
/// What is not UTF-8 is replaced. Does nothing when the level is off.
pub fn write_foreign(level: u8, text: &[u8]) {
    if !enabled(level) {
        return;
    }
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    // Cut before the conversion, so that a huge text costs no more than a line.
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_LINE)]);
    logger().put(level, "", format_args!("{text}"));
}

/// Writes a line unless there were already [`LIMIT`] in this second for the same `site` and `key`; for the macros.
///
/// The first line after a pause is preceded by one that says how many were left out, and what the first of them was.
pub fn write_limited(level: u8, source: &str, site: &'static str, key: impl Hash, text: fmt::Arguments<'_>) {
    let mut logger = logger();
    match logger.limiter.check(HASHER.hash_one((site, key)), LIMIT, Instant::now(), || cut(text)) {
        Verdict::Drop => {
            SUPPRESSED.fetch_add(1, Ordering::Relaxed);
            OWES.store(true, Ordering::Relaxed);
        }
        Verdict::Write { suppressed } => {
            if let Some(suppressed) = suppressed {
                say_suppressed(&mut logger, &suppressed);
            }
            logger.put(level, short(source), text);
        }
    }
}

/// Lines that were left out because their cause had written too many, and that the target did not take.
pub fn left_out() -> (u64, u64) {
    (SUPPRESSED.load(Ordering::Relaxed), LOST.load(Ordering::Relaxed))
}

/// Does what is due: says how many lines were left out, for causes that have been quiet since, and sends lines that wait
/// for the system's log. Gives the time at which there is something to do again, if there is. To be called before every
/// wait; costs next to nothing if no line was written.
pub fn on_time(now: Instant) -> Option<Instant> {
    if !OWES.load(Ordering::Relaxed) {
        return None;
    }
    let next = logger().on_time(now);
    OWES.store(next.is_some(), Ordering::Relaxed);
    next
}

/// Gives lines that wait for the system's log a moment; to be called at the end of the process.
pub fn finish() {
    for _ in 0..20 {
        let Some(due) = logger().sink.on_time(Instant::now()) else { return };
        std::thread::sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(10)));
    }
}

fn say_suppressed(logger: &mut Logger, suppressed: &Suppressed) {
    let Suppressed { lines, first } = suppressed;
    logger.put(0, "log", format_args!("suppressed {lines} lines like '{first}'"));
}

/// As much of a line's text as shows what kind of line it is.
fn cut(text: fmt::Arguments<'_>) -> String {
    let mut text = text.to_string();
    if text.len() > SAMPLE {
        text.truncate(text.floor_char_boundary(SAMPLE));
        text.push_str("...");
    }
    text
}

fn short(source: &str) -> &str {
    source.rsplit("::").next().unwrap_or(source)
}

/// Writes a line to the log: level, then as `format!`.
#[macro_export]
macro_rules! log {
    ($level:expr, $($text:tt)+) => {{
        let level: u8 = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, ::core::module_path!(), ::core::format_args!($($text)+));
        }
    }};
}

/// As [`log!`], but at most [`LIMIT`](crate::log::LIMIT) lines a second from this place in the source.
#[macro_export]
macro_rules! log_limited {
    ($level:expr, $($text:tt)+) => { $crate::log_keyed!($level, (), $($text)+) };
}

/// As [`log!`], but at most [`LIMIT`](crate::log::LIMIT) lines a second from this place for one key: anything that can
/// be hashed.
#[macro_export]
macro_rules! log_keyed {
    ($level:expr, $key:expr, $($text:tt)+) => {{
        let level: u8 = $level;
        if $crate::log::enabled(level) {
            $crate::log::write_limited(
                level,
                ::core::module_path!(),
                ::core::concat!(::core::file!(), ":", ::core::line!()),
                $key,
                ::core::format_args!($($text)+),
            );
        }
    }};
}

#[cfg(test)]
mod tests;
