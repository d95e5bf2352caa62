//! What plug-ins may name: open questions, ports, endpoints. They are looked up by number or address and never trusted:
//! a pointer that a plug-in gives is only compared.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibacm_wire::Gid;

use super::abi;
use crate::engine::{AskId, EpId, ProviderId};

/// The tables.
#[derive(Default)]
pub(super) struct Registry {
    asks: Mutex<HashSet<AskId>>,
    ports: Mutex<HashMap<usize, Arc<[Gid]>>>,
    endpoints: Mutex<HashMap<usize, Owner>>,
}

/// Which endpoint a structure stands for, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) ep: EpId,
    pub(super) provider: ProviderId,
}

impl Registry {
    pub(super) fn open_ask(&self, id: AskId) {
        lock(&self.asks).insert(id);
    }

    pub(super) fn is_open(&self, id: AskId) -> bool {
        lock(&self.asks).contains(&id)
    }

    /// Whether it was open.
    pub(super) fn close_ask(&self, id: AskId) -> bool {
        lock(&self.asks).remove(&id)
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
