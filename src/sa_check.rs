//! What is always true of questions, for the fuzzer.

use super::{MAX_PEERS, MAX_QUEUE, SaClient};

impl<P> SaClient<P> {
    /// On whose behalf there are questions.
    pub(crate) fn askers(&self) -> impl Iterator<Item = &P> {
        let queues = [&self.joins, &self.peers, &self.idle];
        queues.into_iter().flatten().chain(self.queue.values()).chain(self.open.values()).map(|r| &r.who)
    }

    /// Panics if a queue has outgrown its limit. Questions on their way may have been put back, beyond that.
    pub(crate) fn check(&self, on_way: usize) {
        self.queue.check(self.open.values());
        assert!(self.open.len() <= on_way, "{} questions on their way", self.open.len());
        assert!(self.queue.len() + self.joins.len() <= MAX_QUEUE + on_way);
        assert!(self.peers.len() <= MAX_PEERS + on_way && self.idle.len() <= MAX_QUEUE + on_way);
    }
}
