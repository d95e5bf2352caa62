//! What is always true of turns, for the fuzzer.

use super::Turns;

impl Turns {
    /// Whether `number` waits for a turn of anybody.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.shares.values().any(|s| s.waiting.contains(&number))
    }

    /// Panics if the counts are not what they count: so many were opened and not closed, of which so many have a place.
    pub(crate) fn check(&self, open: usize, places: usize) {
        assert_eq!(self.shares.values().map(|s| s.open).sum::<usize>(), open, "opened");
        assert_eq!(self.shares.values().map(|s| s.places).sum::<usize>(), places, "places");
        assert_eq!(self.shares.values().map(|s| s.waiting.len()).sum::<usize>(), self.len, "waiting");
        let rings = || self.ring.iter().chain(&self.fresh);
        assert_eq!(rings().count(), self.shares.values().filter(|s| s.ringed).count());
        assert!(rings().all(|cause| self.shares.get(cause).is_some_and(|s| s.ringed)), "a cause without a turn");
        assert!(self.shares.values().all(|s| s.ringed || s.waiting.is_empty()), "it never has a turn");
        assert!(self.shares.values().all(|s| !s.is_unused()), "a cause that wants nothing is remembered");
        let most = 4 * open + 4 * super::FEW;
        assert!(self.len <= most && self.shares.len() <= most, "{} places in queues for {open}", self.len);
    }
}
