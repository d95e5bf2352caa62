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
        let queued = |tid: &u64| self.queue.contains(tid);
        assert!(self.open.iter().all(|(tid, o)| !o.queued || queued(tid)), "a request has lost its turn");
        let most = 8 * self.open.len() + 256;
        assert!(self.open.len() <= MAX_OPEN);
        assert!(self.queue.len() <= most && self.waits.len() <= most && self.aging.len() <= most);
    }
}
