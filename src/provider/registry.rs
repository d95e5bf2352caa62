//! What plug-ins may name: open questions, ports, endpoints. They are looked up by number or address and never trusted:
//! a pointer that a plug-in gives is only compared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibacm_wire::Gid;

use super::abi;
use crate::engine::{AskId, EpId, ProviderId};
use crate::map::Map;

/// Questions that are closed and remembered, so that it can be told whose the answer is that comes then.
const REMEMBERED: usize = 1024;

/// The tables.
#[derive(Default)]
pub(super) struct Registry {
    asks: Mutex<Asks>,
    ports: Mutex<Map<usize, Arc<[Gid]>>>,
    endpoints: Mutex<Map<usize, Owner>>,
}

/// Questions, and whom they were put to.
#[derive(Default)]
struct Asks {
    open: Map<AskId, ProviderId>,
    /// Those that were closed last.
    closed: VecDeque<(AskId, ProviderId)>,
}

/// Which endpoint a structure stands for, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) ep: EpId,
    pub(super) provider: ProviderId,
}

impl Registry {
    pub(super) fn open_ask(&self, id: AskId, provider: ProviderId) {
        lock(&self.asks).open.insert(id, provider);
    }

    pub(super) fn is_open(&self, id: AskId) -> bool {
        lock(&self.asks).open.contains_key(&id)
    }

    /// Whether it was open.
    pub(super) fn close_ask(&self, id: AskId) -> bool {
        let mut asks = lock(&self.asks);
        let Some(provider) = asks.open.remove(&id) else { return false };
        if asks.closed.len() >= REMEMBERED {
            asks.closed.pop_front();
        }
        asks.closed.push_back((id, provider));
        true
    }

    /// Whom a question was put to, if it is open or was lately.
    pub(super) fn asked(&self, id: AskId) -> Option<ProviderId> {
        let asks = lock(&self.asks);
        let closed = || asks.closed.iter().rev().find(|c| c.0 == id).map(|c| c.1);
        asks.open.get(&id).copied().or_else(closed)
    }

    pub(super) fn add_port(&self, port: *const abi::Port, gids: Vec<Gid>) {
        lock(&self.ports).insert(port.addr(), gids.into());
    }

    pub(super) fn remove_port(&self, port: *const abi::Port) {
        lock(&self.ports).remove(&port.addr());
    }

    pub(super) fn gids(&self, port: *const abi::Port) -> Option<Arc<[Gid]>> {
        lock(&self.ports).get(&port.addr()).cloned()
    }

    pub(super) fn add_endpoint(&self, endpoint: *const abi::Endpoint, owner: Owner) {
        lock(&self.endpoints).insert(endpoint.addr(), owner);
    }

    pub(super) fn remove_endpoint(&self, endpoint: *const abi::Endpoint) {
        lock(&self.endpoints).remove(&endpoint.addr());
    }

    pub(super) fn forget_endpoints_of(&self, provider: ProviderId) {
        lock(&self.endpoints).retain(|_, owner| owner.provider != provider);
    }

    pub(super) fn owner(&self, endpoint: usize) -> Option<Owner> {
        lock(&self.endpoints).get(&endpoint).copied()
    }
}

/// No table is left half changed by a thread that panics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
