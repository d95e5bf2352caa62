//! What is always true of the engine, for the fuzzer and whoever else wants to know.

use super::Engine;
use super::action::EpId;
use super::endpoint::{Endpoint, MAX_PEER_WAITERS, MAX_RESPONSES, Waiter};
use super::resolve::SaWho;
use crate::cache::State;

/// Questions that one port may have on their way beside `sa_depth` for joins and as many for others: late ones, and one
/// that nobody waits for.
const MORE_ON_WAY: usize = 65;

/// The highest limits that were ever set.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub max_destinations: usize,
    pub sa_depth: usize,
    pub send_depth: usize,
}

impl Endpoint {
    fn check(&self, most: &Limits) {
        self.cache.check();
        self.arp.check();
        let asking = self.pending.values().filter_map(|p| p.tid);
        assert_eq!(asking.clone().count(), self.arp.len(), "a request that nobody knows of");
        assert!(asking.clone().all(|tid| self.arp.has(tid)), "a look-up waits for a request that is over");
        assert!(self.up || (self.arp.is_empty() && self.await_group.is_empty()), "asking on an endpoint that is down");
        for (dest, p) in self.pending.iter() {
            let state = self.cache.get(*dest).map(|d| d.state);
            assert!(matches!(state, Some(State::QueryAddr | State::QueryRoute)), "a look-up of nothing: {state:?}");
            let peers = p.waiters.iter().filter(|w| matches!(w, Waiter::Peer { .. })).count();
            assert!(peers <= MAX_PEER_WAITERS);
        }
        for (_, d) in self.cache.iter() {
            // own and preloaded entries are no look-ups' own, and stay when one ends
            let busy = matches!(d.state, State::QueryAddr | State::QueryRoute);
            let known = self.cache.find(&d.addr()).is_some_and(|id| self.pending.contains_key(&id));
            assert!(!busy || known, "{} is being looked up for ever", d.addr());
        }
        let waited_for = self.pending.len();
        assert!(self.cache.learned() <= most.max_destinations + waited_for + self.addrs.len());
        assert!(self.responses.len() <= MAX_RESPONSES && self.responses_sent <= most.send_depth);
        assert!(self.overdue.len() <= 4 * self.pending.len() + 66, "{} overdue", self.overdue.len());
    }
}

impl Engine {
    /// Panics if the engine contradicts itself or has outgrown its limits.
    pub(crate) fn check_all(&self, most: &Limits) {
        let mut waiting = 0;
        for e in &self.eps {
            e.check(most);
            let waiters = e.pending.values().flat_map(|p| &p.waiters);
            waiting += waiters.filter(|w| w.client().is_some()).count();
        }
        assert_eq!(self.waiters.total(), waiting, "clients that wait");
        for p in &self.ports {
            p.sa.check(2 * most.sa_depth + MORE_ON_WAY);
            p.news.check(p.sa.askers().filter(|who| matches!(who, SaWho::Check { .. })).count());
        }
        self.asks.check();
        self.moved.check();
        self.routes.check();
    }

    /// Panics if somebody still waits or something is still under way, after everything has had its time. `works` says which
    /// endpoints have a QP.
    pub(crate) fn check_idle(&self, works: impl Fn(EpId) -> bool) {
        assert_eq!(self.waiters.total(), 0);
        for (i, e) in self.eps.iter().enumerate() {
            let sent = e.responses.is_empty() && e.responses_sent == 0;
            assert!(sent || !works(EpId(i as u32)), "responses that are not sent");
            assert!(e.pending.is_empty() && e.arp.is_empty() && e.await_group.is_empty());
        }
        let asks = |who: &SaWho| matches!(who, SaWho::Route { .. } | SaWho::Query(_) | SaWho::Provider { .. });
        assert!(!self.ports.iter().flat_map(|p| p.sa.askers()).any(asks), "the SA is still asked");
    }
}
