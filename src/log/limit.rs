//! How many lines one cause may write: pure, bounded, the time is an argument.

use std::time::{Duration, Instant};

/// Causes that are remembered at once.
const MAX_CAUSES: usize = 128;
/// The time in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write it, after saying which lines were left out.
    Write { suppressed: Option<Suppressed> },
    /// Leave it out.
    Drop,
}

/// Lines of one cause that were left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suppressed {
    /// How many.
    pub(super) lines: u64,
    /// What the first of them said.
    pub(super) first: String,
}

struct Cause {
    key: u64,
    since: Instant,
    written: u32,
    suppressed: Option<Suppressed>,
}

impl Cause {
    fn suppress(&mut self, text: impl FnOnce() -> String) {
        let suppressed = self.suppressed.get_or_insert_with(|| Suppressed { lines: 0, first: text() });
        suppressed.lines = suppressed.lines.saturating_add(1);
    }
}

/// Counts lines by cause.
pub(super) struct Limiter {
    causes: Vec<Cause>,
}

impl Limiter {
    pub(super) const fn new() -> Self {
        Limiter { causes: Vec::new() }
    }

    /// Decides on one line of the cause `key`, which says `text`; `most` lines pass in a window.
    pub(super) fn check(&mut self, key: u64, most: u32, now: Instant, text: impl FnOnce() -> String) -> Verdict {
        if let Some(cause) = self.causes.iter_mut().find(|cause| cause.key == key) {
            if now.saturating_duration_since(cause.since) >= WINDOW {
                let suppressed = cause.suppressed.take();
                (cause.since, cause.written) = (now, 1);
                return Verdict::Write { suppressed };
            }
            if cause.written < most {
                cause.written += 1;
                return Verdict::Write { suppressed: None };
            }
            cause.suppress(text);
            return Verdict::Drop;
        }
        if self.causes.len() == MAX_CAUSES && !self.make_room(now) {
            // More causes in one window than can be told apart: they share what the fullest table lets through.
            if let Some(cause) = self.causes.first_mut() {
                cause.suppress(text);
            }
            return Verdict::Drop;
        }
        self.causes.push(Cause { key, since: now, written: 1, suppressed: None });
        Verdict::Write { suppressed: None }
    }

    /// Forgets the causes that have been quiet and owe nothing.
    fn make_room(&mut self, now: Instant) -> bool {
        self.causes.retain(|cause| cause.suppressed.is_some() || now.saturating_duration_since(cause.since) < WINDOW);
        self.causes.len() < MAX_CAUSES
    }

    /// A cause whose window is over and that left lines out, and which; each is given once.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Suppressed> {
        let due =
            |cause: &&mut Cause| cause.suppressed.is_some() && now.saturating_duration_since(cause.since) >= WINDOW;
        self.causes.iter_mut().find(due)?.suppressed.take()
    }

    /// When [`take_due`](Self::take_due) has something next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.causes.iter().filter(|cause| cause.suppressed.is_some()).map(|cause| cause.since + WINDOW).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Verdict = Verdict::Write { suppressed: None };

    fn text() -> String {
        "a".to_owned()
    }

    fn left_out(lines: u64) -> Option<Suppressed> {
        Some(Suppressed { lines, first: text() })
    }

    #[test]
    fn lines_over_the_limit_are_counted_and_told() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        for _ in 0..3 {
            assert_eq!(limiter.check(1, 3, start, text), PASS);
        }
        for more in ["", " second", " third", "", ""] {
            assert_eq!(limiter.check(1, 3, start + WINDOW / 2, || text() + more), Verdict::Drop);
        }
        assert_eq!(limiter.check(2, 3, start, text), PASS, "another cause");
        assert_eq!(limiter.check(1, 3, start + WINDOW, text), Verdict::Write { suppressed: left_out(5) });
        assert_eq!(limiter.check(1, 3, start + WINDOW, text), PASS, "a new window");
    }

    #[test]
    fn what_was_left_out_is_told_without_another_line() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        assert_eq!(limiter.next_deadline(), None);
        limiter.check(1, 1, start, text);
        assert_eq!(limiter.next_deadline(), None);
        limiter.check(1, 1, start, text);
        assert_eq!(limiter.next_deadline(), Some(start + WINDOW));
        assert_eq!(limiter.take_due(start), None, "too early");
        assert_eq!(limiter.take_due(start + WINDOW), left_out(1));
        assert_eq!(limiter.take_due(start + WINDOW), None);
        assert_eq!(limiter.next_deadline(), None);
    }

    #[test]
    fn many_causes_stay_bounded() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        let passed = (0..10_000).filter(|&key| limiter.check(key, 1, start, text) == PASS).count();
        assert_eq!(passed, MAX_CAUSES);
        assert_eq!(limiter.take_due(start + WINDOW), left_out(10_000 - MAX_CAUSES as u64));
        assert_eq!(limiter.check(99_999, 1, start + WINDOW, text), PASS, "quiet causes make room");
        assert_eq!(limiter.causes.len(), 1);
    }
}
