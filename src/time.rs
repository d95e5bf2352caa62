//! Points in time as the pure modules take them: an argument, never read from a clock.

use std::time::Duration;

/// Microseconds since a start that only the caller knows; monotonic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than every other time.
    pub const NEVER: Time = Time(u64::MAX);

    /// This time plus `d`, at most [`Time::NEVER`].
    pub fn plus(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }

    /// This time plus `minutes`; never for `None`.
    pub fn plus_minutes(self, minutes: Option<u32>) -> Time {
        minutes.map_or(Time::NEVER, |m| self.plus(Duration::from_secs(u64::from(m) * 60)))
    }

    /// How long until `later`; zero if that has passed.
    pub fn until(self, later: Time) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

/// A [`Time`] in half the room: to within 65 ms, and none that is later than nine years.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coarse(u32);

impl Coarse {
    const SHIFT: u32 = 16;

    /// Never.
    pub const NEVER: Coarse = Coarse(u32::MAX);

    /// The time, at most 65 ms early; what is too late for it is never.
    pub fn of(time: Time) -> Coarse {
        u32::try_from(time.0 >> Coarse::SHIFT).map_or(Coarse::NEVER, Coarse)
    }

    /// The time.
    pub fn time(self) -> Time {
        if self == Coarse::NEVER { Time::NEVER } else { Time(u64::from(self.0) << Coarse::SHIFT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stop_at_never() {
        assert_eq!(Time::NEVER.plus(Duration::from_secs(1)), Time::NEVER);
        assert_eq!(Time(5).plus(Duration::MAX), Time::NEVER);
        assert_eq!(Time(5).plus_minutes(None), Time::NEVER);
        assert_eq!(Time(5).plus_minutes(Some(2)), Time(120_000_005));
        assert_eq!(Time(7).until(Time(5)), Duration::ZERO);
        assert_eq!(Time(5).until(Time(7)), Duration::from_micros(2));
    }

    #[test]
    fn coarse_times_are_early_and_never_is_never() {
        for t in [0, 1, 65_535, 65_536, 1 << 40, (1 << 48) - 65_537] {
            let early = Coarse::of(Time(t)).time();
            assert!(early <= Time(t) && early.until(Time(t)) < Duration::from_millis(66), "{t}");
        }
        for t in [(1 << 48) - 65_536, 1 << 48, 1 << 60, u64::MAX] {
            assert_eq!(Coarse::of(Time(t)).time(), Time::NEVER);
        }
    }
}
