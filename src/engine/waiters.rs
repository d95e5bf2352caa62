//! How many look-ups clients wait for, and which clients wait no longer because they have left.
//!
//! What a client that left waited for is taken out when enough of it has come together to be worth the search, so that
//! asking and leaving costs the service little time and little memory.

use super::action::ClientId;
use super::endpoint::{Pending, Waiter};
use crate::map::Map;
use crate::turns::Cause;

/// Look-ups that clients wait for at most, all together.
const MAX: usize = 1 << 18;
/// Look-ups of clients that have left which are not searched for.
const FEW: usize = 1024;

#[derive(Default)]
pub(super) struct Waiters {
    counts: Map<ClientId, u32>,
    gone: Map<ClientId, ()>,
    total: usize,
    dead: usize,
}

impl Waiters {
    /// Whether one more may wait.
    pub fn has_room(&self) -> bool {
        self.total < MAX
    }

    /// `client` waits for one more.
    pub fn add(&mut self, client: ClientId) {
        *self.counts.or_default(client) += 1;
        self.total += 1;
    }

    /// One wait of `client` has ended; whether the client is still there to be told.
    pub fn end(&mut self, client: ClientId) -> bool {
        self.total = self.total.saturating_sub(1);
        if self.gone.contains_key(&client) {
            self.dead = self.dead.saturating_sub(1);
            if self.dead == 0 {
                self.gone.clear();
            }
            return false;
        }
        if let Some(n) = self.counts.get_mut(&client) {
            *n -= 1;
            if *n == 0 {
                self.counts.remove(&client);
            }
        }
        true
    }

    /// `client` has left; whether it is time to search for what nobody waits for any more.
    pub fn leave(&mut self, client: ClientId) -> bool {
        let Some(n) = self.counts.remove(&client) else { return false };
        self.dead += n as usize;
        self.gone.insert(client, ());
        self.dead > FEW.max(self.total / 4)
    }

    /// Whether `client` has left.
    pub fn is_gone(&self, client: ClientId) -> bool {
        self.gone.contains_key(&client)
    }

    /// For whom a destination is asked: a client that is still there, if any.
    pub fn cause(&self, pending: Option<&Pending>) -> Cause {
        let Some(pending) = pending else { return Cause::NOBODY };
        let clients = pending.asker.into_iter().chain(pending.waiters.iter().filter_map(Waiter::client));
        match clients.into_iter().find(|c| !self.is_gone(*c)) {
            Some(client) => client.cause(),
            None if pending.is_for_peers() => Cause::PEERS,
            None => Cause::NOBODY,
        }
    }

    /// Look-ups that are waited for.
    #[cfg(any(test, fuzzing))]
    pub fn total(&self) -> usize {
        self.total
    }
}
