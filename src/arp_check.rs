//! What is always true of open requests, for the fuzzer.

use super::{Arp, MAX_OPEN};

impl Arp {
    /// Whether the request `tid` is open, sent or not.
    pub(crate) fn has(&self, tid: u64) -> bool {
        self.open.contains_key(&tid)
    }

    /// Panics if the counts are not what they count, or a queue has outgrown what is open.
    pub(crate) fn check(&self) {
        assert_eq!(self.open.values().filter(|o| o.young).count(), self.young);
        let queued = || self.open.iter().filter(|(_, o)| o.queued);
        assert!(queued().all(|(tid, _)| self.turns.has(*tid)), "a request has lost its turn");
        assert_eq!(queued().count(), self.queued);
        self.turns.check(self.open.len(), self.young);
        let most = 8 * self.open.len() + 256;
        assert!(self.open.len() <= MAX_OPEN);
        assert!(self.waits.len() <= most && self.aging.len() <= most);
    }
}
