//! How long an answer may take before its question counts as late: it is still awaited, but no longer keeps others from
//! being asked. Pure.
//!
//! A question that was lost is repeated by the kernel only after seconds, which others need not wait for. While answers
//! come, patience is a small multiple of the time that they usually take, from when a question was sent if a later one
//! is answered already, else from the last answer. Each time that it ends with no answer since doubles it, so that a
//! subnet administrator that is down, or has more to do than it can, is asked ever more rarely.

use std::time::Duration;

use crate::time::Time;

/// Patience, in usual times.
const FACTOR: u32 = 8;
/// The least of it.
const LEAST: Duration = Duration::from_millis(20);
/// The most of it, while answers come.
const MOST: Duration = Duration::from_millis(500);
/// Doublings.
const DOUBLINGS: u32 = 6;

/// The pace at which answers come.
#[derive(Debug, Default)]
pub struct Pace {
    /// How long answers take, smoothed, in microseconds.
    usual: u64,
    /// The last answer, or the last time that a question was found late.
    progress: Time,
    /// When the latest question was sent that has been answered.
    passed: Time,
    /// Questions found late since the last answer.
    stalls: u32,
}

impl Pace {
    /// A question goes out while no other is awaited.
    pub fn begin(&mut self, now: Time) {
        self.progress = self.progress.max(now);
    }

    /// An answer came to the question that was sent at `sent`, known where it was not late, so that nobody has repeated it.
    pub fn answered(&mut self, now: Time, sent: Option<Time>) {
        (self.progress, self.stalls) = (now, 0);
        if let Some(sent) = sent {
            let took = now.0.saturating_sub(sent.0) / 8;
            self.usual = (self.usual - self.usual / 8).saturating_add(took);
            self.passed = self.passed.max(sent);
        }
    }

    /// Whether a question that was sent after `sent` has been answered.
    pub fn is_overtaken(&self, sent: Time) -> bool {
        sent < self.passed
    }

    /// When the oldest question that keeps others waiting, sent at `sent`, becomes late, if no answer comes.
    pub fn late_at(&self, sent: Time) -> Time {
        let patience = Duration::from_micros(self.usual).saturating_mul(FACTOR).clamp(LEAST, MOST);
        if self.is_overtaken(sent) {
            return sent.plus(patience);
        }
        self.progress.plus(patience * (1 << self.stalls.min(DOUBLINGS)))
    }

    /// All were found late.
    pub fn stalled(&mut self, now: Time) {
        self.progress = now;
        self.stalls = self.stalls.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    #[test]
    fn patience_follows_the_usual_time_within_bounds() {
        let mut pace = Pace::default();
        assert_eq!(pace.late_at(Time(0)), Time(20 * MS));
        for i in 1..100 {
            pace.answered(Time((i + 10) * MS), Some(Time(i * MS)));
        }
        let wait = pace.late_at(Time(200 * MS)).0 - 109 * MS;
        assert!((79 * MS..=80 * MS).contains(&wait), "{wait}");
        pace.answered(Time(1000 * MS), Some(Time(0)));
        assert_eq!(pace.late_at(Time(200 * MS)), Time(1500 * MS));
    }

    #[test]
    fn silence_doubles_it_and_an_answer_ends_that() {
        let mut pace = Pace::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let at = pace.late_at(Time(0));
            waits.push((at.0 - pace.progress.0) / MS);
            pace.stalled(at);
        }
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1280, 1280, 1280]);
        pace.answered(Time(S), None);
        assert_eq!(pace.late_at(Time(0)), Time(S + 20 * MS));
    }

    #[test]
    fn an_answer_that_overtakes_a_question_says_that_it_was_lost() {
        let mut pace = Pace::default();
        pace.answered(Time(4 * MS), Some(Time(3 * MS)));
        assert_eq!(pace.late_at(Time(2 * MS)), Time(22 * MS), "however many answers come");
        assert_eq!(pace.late_at(Time(3 * MS)), Time(24 * MS), "unless none do");
        assert!(pace.is_overtaken(Time(2 * MS)) && !pace.is_overtaken(Time(3 * MS)));
    }

    const S: u64 = 1_000_000;
}
