//! What is always true of the table, for the fuzzer.

use super::{Cache, NONE};

impl Cache {
    /// Learned entries.
    pub(crate) fn learned(&self) -> usize {
        self.learned
    }

    /// Panics if the table and its list contradict each other.
    pub(crate) fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        assert_eq!(self.dests.len(), self.len() + self.free.len());
        assert_eq!(self.iter().filter(|(_, d)| d.is_learned()).count(), self.learned);
        for (id, d) in self.iter() {
            assert_eq!(self.find(&d.addr()), Some(id));
            assert!(d.is_learned() || d.pinned);
        }
        let (mut at, mut newer, mut listed) = (self.newest, NONE, 0);
        while at != NONE {
            let d = &self.dests[at as usize];
            assert!(d.newer == newer && !d.pinned, "the list of entries that may go is broken");
            (newer, at, listed) = (at, d.older, listed + 1);
        }
        assert_eq!(newer, self.oldest);
        assert_eq!(listed, self.iter().filter(|(_, d)| !d.pinned).count());
    }
}
