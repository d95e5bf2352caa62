//! How many lines one cause may write: pure, bounded, the time is an argument.

use std::time::{Duration, Instant};

/// Causes that are remembered at once.
const MAX_CAUSES: usize = 128;
/// The time in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write it, after saying that `suppressed` lines were left out.
    Write { suppressed: u64 },
    /// Leave it out.
    Drop,
}

struct Cause {
    key: u64,
    site: &'static str,
    since: Instant,
    written: u32,
    suppressed: u64,
}

/// Counts lines by cause.
pub(super) struct Limiter {
    causes: Vec<Cause>,
}

impl Limiter {
    pub(super) const fn new() -> Self {
        Limiter { causes: Vec::new() }
    }

    /// Decides on one line of the cause `key`; `most` lines pass in a window.
    pub(super) fn check(&mut self, key: u64, site: &'static str, most: u32, now: Instant) -> Verdict {
        if let Some(cause) = self.causes.iter_mut().find(|cause| cause.key == key) {
            if now.saturating_duration_since(cause.since) >= WINDOW {
                let suppressed = std::mem::take(&mut cause.suppressed);
                (cause.since, cause.written) = (now, 1);
                return Verdict::Write { suppressed };
            }
            if cause.written < most {
                cause.written += 1;
                return Verdict::Write { suppressed: 0 };
            }
            cause.suppressed = cause.suppressed.saturating_add(1);
            return Verdict::Drop;
        }
        if self.causes.len() == MAX_CAUSES && !self.make_room(now) {
            // More causes in one window than can be told apart: they share what the fullest table lets through.
            if let Some(cause) = self.causes.first_mut() {
                cause.suppressed = cause.suppressed.saturating_add(1);
            }
            return Verdict::Drop;
        }
        self.causes.push(Cause { key, site, since: now, written: 1, suppressed: 0 });
        Verdict::Write { suppressed: 0 }
    }

    /// Forgets the causes that have been quiet and owe nothing.
    fn make_room(&mut self, now: Instant) -> bool {
        self.causes.retain(|cause| cause.suppressed > 0 || now.saturating_duration_since(cause.since) < WINDOW);
        self.causes.len() < MAX_CAUSES
    }

    /// A cause whose window is over and that left lines out, and how many; each is given once.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(&'static str, u64)> {
        let due = |cause: &&mut Cause| cause.suppressed > 0 && now.saturating_duration_since(cause.since) >= WINDOW;
        self.causes.iter_mut().find(due).map(|cause| (cause.site, std::mem::take(&mut cause.suppressed)))
    }

    /// When [`take_due`](Self::take_due) has something next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.causes.iter().filter(|cause| cause.suppressed > 0).map(|cause| cause.since + WINDOW).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Verdict = Verdict::Write { suppressed: 0 };

    #[test]
    fn lines_over_the_limit_are_counted_and_told() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        for _ in 0..3 {
            assert_eq!(limiter.check(1, "a", 3, start), PASS);
        }
        for _ in 0..5 {
            assert_eq!(limiter.check(1, "a", 3, start + WINDOW / 2), Verdict::Drop);
        }
        assert_eq!(limiter.check(2, "b", 3, start), PASS, "another cause");
        assert_eq!(limiter.check(1, "a", 3, start + WINDOW), Verdict::Write { suppressed: 5 });
        assert_eq!(limiter.check(1, "a", 3, start + WINDOW), PASS, "a new window");
    }

    #[test]
    fn what_was_left_out_is_told_without_another_line() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        assert_eq!(limiter.next_deadline(), None);
        limiter.check(1, "a", 1, start);
        assert_eq!(limiter.next_deadline(), None);
        limiter.check(1, "a", 1, start);
        assert_eq!(limiter.next_deadline(), Some(start + WINDOW));
        assert_eq!(limiter.take_due(start), None, "too early");
        assert_eq!(limiter.take_due(start + WINDOW), Some(("a", 1)));
        assert_eq!(limiter.take_due(start + WINDOW), None);
        assert_eq!(limiter.next_deadline(), None);
    }

    #[test]
    fn many_causes_stay_bounded() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        let passed = (0..10_000).filter(|&key| limiter.check(key, "a", 1, start) == PASS).count();
        assert_eq!(passed, MAX_CAUSES);
        assert_eq!(limiter.take_due(start + WINDOW), Some(("a", 10_000 - MAX_CAUSES as u64)));
        assert_eq!(limiter.check(99_999, "a", 1, start + WINDOW), PASS, "quiet causes make room");
        assert_eq!(limiter.causes.len(), 1);
    }
}
