//! How often something may be done: so many times at once, and then at a rate. Pure.

use std::time::Duration;

use crate::time::Time;

/// What is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    most: u32,
    each: Duration,
    left: u32,
    /// Since when time counts for the next one.
    since: Time,
}

impl Bucket {
    /// A full one: `most` at once, and one more for each `each`.
    pub const fn new(most: u32, each: Duration) -> Bucket {
        Bucket { most, each, left: most, since: Time(0) }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Time) -> bool {
        let passed = self.since.until(now).as_micros();
        let more = passed / self.each.as_micros().max(1);
        if more >= u128::from(self.most - self.left) {
            (self.left, self.since) = (self.most, now);
        } else {
            // what is left of the time counts for the next one
            self.left += more as u32;
            self.since = self.since.plus(self.each * more as u32);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_rate() {
        let mut b = Bucket::new(5, Duration::from_millis(10));
        let taken = |b: &mut Bucket, from: u64, to: u64| (from..to).filter(|us| b.take(Time(*us))).count();
        assert_eq!(taken(&mut b, 1_000_000, 1_001_000), 5);
        assert_eq!(taken(&mut b, 1_001_000, 2_000_000), 99, "a hundredth each");
        assert_eq!(taken(&mut b, 9_000_000, 9_000_100), 5, "it fills up, and no more");
        assert!(!b.take(Time(0)), "time that goes back gives nothing");
    }
}
