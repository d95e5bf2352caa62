//! How a look-up ends: whoever waits for it, and what they are told.

use ibacm_wire::client::{More, Status, TYPE_PATH};
use ibacm_wire::reply::resolve_reply;

use super::Engine;
use super::action::{Action, ClientId, EpId};
use super::endpoint::{MAX_PEER_WAITERS, Pending, Waiter};
use super::resolve::{SaWho, append_path_reply};
use crate::addr::Addr;
use crate::cache::{DestId, State};
use crate::time::Time;

impl Engine {
    /// Answers whoever waits for `dest`, with its path or a failure.
    pub(super) fn finish(&mut self, ep: EpId, dest: DestId, result: Result<(), Status>) {
        if let Some(pending) = self.take_pending(ep, dest) {
            self.answer_waiters(ep, dest, pending, result);
        }
    }

    /// Ends what is under way for `dest`: nobody waits for it any more.
    pub(super) fn take_pending(&mut self, ep: EpId, dest: DestId) -> Option<Pending> {
        let e = &mut self.eps[ep.0 as usize];
        let pending = e.pending.remove(&dest)?;
        if let Some(tid) = pending.tid {
            e.arp.close(tid);
        }
        e.cache.pin(dest, false);
        Some(pending)
    }

    pub(super) fn answer_waiters(&mut self, ep: EpId, dest: DestId, pending: Pending, result: Result<(), Status>) {
        let path = self.eps[ep.0 as usize].cache.get(dest).map(|d| d.path).unwrap_or_default();
        for w in pending.waiters {
            match w {
                Waiter::Client { client, .. } if !self.waiters.end(client) => {}
                Waiter::Client { client, tid, source } => {
                    let mut reply = Vec::new();
                    match result {
                        Ok(()) => append_path_reply(&mut reply, tid, &path, source.as_deref()),
                        Err(status) => reply.extend_from_slice(&resolve_reply(tid, status, 0)),
                    };
                    self.count_status(Some(ep), result.err().unwrap_or(Status::Success));
                    self.actions.push_back(Action::Reply { client, reply: reply.into() });
                }
                // the peer's own address is known whatever the SA said, so it gets its response
                Waiter::Peer { tid } => self.respond(ep, dest, tid),
            }
        }
    }

    /// `dest` cannot be resolved now.
    pub(super) fn fail(&mut self, now: Time, ep: EpId, dest: DestId, status: Status, why: &str) {
        if let Some(addr) = self.eps[ep.0 as usize].cache.get(dest).map(|d| d.addr()) {
            self.log(1, || format!("cannot resolve {addr}: {why}"));
        }
        self.finish_failed(now, ep, dest, status, false);
    }

    /// `dest` waited for the group, unless it has been resolved otherwise meanwhile.
    pub(super) fn fail_unasked(&mut self, now: Time, ep: EpId, dest: DestId, status: Status, why: &str) {
        let e = &self.eps[ep.0 as usize];
        let unasked = e.pending.get(&dest).is_some_and(|p| p.tid.is_none());
        if unasked && e.cache.get(dest).is_some_and(|d| d.state == State::QueryAddr) {
            self.unanswered(now, ep, dest, status, why);
        }
    }

    pub(super) fn finish_failed(&mut self, now: Time, ep: EpId, dest: DestId, status: Status, peer_known: bool) {
        self.finish(ep, dest, Err(status));
        let negative = std::time::Duration::from_millis(u64::from(self.config.negative_cache_ms));
        let cache = &mut self.eps[ep.0 as usize].cache;
        let Some(d) = cache.get_mut(dest) else { return };
        if peer_known {
            d.state = State::AddrResolved;
        } else if !negative.is_zero() {
            (d.state, d.addr_expiry) = (State::Failed(status as u8), now.plus(negative));
        } else if d.is_learned() {
            // a destination that is nobody's must not take the place of one that is somebody's
            cache.remove(dest);
        } else {
            d.state = State::Init;
        }
    }

    /// Everything that is under way on an endpoint fails.
    pub(super) fn fail_all(&mut self, ep: EpId, status: Status, but_paths: bool) {
        let e = &mut self.eps[ep.0 as usize];
        e.await_group.clear();
        e.overdue.clear();
        let asks_sa = |dest: &DestId| {
            e.cache.get(*dest).is_some_and(|d| d.state == State::QueryRoute && d.addr().kind() == TYPE_PATH)
        };
        let dests: Vec<DestId> = e.pending.keys().copied().filter(|d| !(but_paths && asks_sa(d))).collect();
        for dest in dests {
            let Some(mut pending) = self.take_pending(ep, dest) else { continue };
            pending.waiters.retain(|w| matches!(w, Waiter::Client { .. }));
            self.answer_waiters(ep, dest, pending, Err(status));
            if let Some(d) = self.eps[ep.0 as usize].cache.get_mut(dest) {
                d.epoch = d.epoch.wrapping_add(1);
                d.state = if d.peer.qpn != 0 { State::AddrResolved } else { State::Init };
            }
        }
    }

    /// Adds somebody who waits for `dest`. Peers that ask again count once.
    pub(super) fn wait(&mut self, ep: EpId, dest: DestId, waiter: Waiter) {
        let waiters = &mut self.eps[ep.0 as usize].pending.or_default(dest).waiters;
        if let Waiter::Peer { tid } = waiter {
            let peers = waiters.iter().filter_map(|w| match w {
                Waiter::Peer { tid } => Some(*tid),
                Waiter::Client { .. } => None,
            });
            if peers.clone().any(|t| t == tid) {
                return;
            }
            if peers.count() >= MAX_PEER_WAITERS {
                return self.count_more(ep, More::PeersRefused);
            }
        }
        waiters.push(waiter);
    }

    /// Adds a client that waits for `dest`.
    pub(super) fn wait_client(
        &mut self,
        now: Time,
        ep: EpId,
        dest: DestId,
        client: ClientId,
        request: [u8; 8],
        source: Option<Addr>,
    ) {
        self.waiters.add(client);
        let cause = client.cause();
        let e = &mut self.eps[ep.0 as usize];
        let (tid, question, for_peers) =
            e.pending.get(&dest).map(|p| (p.tid, p.question, p.is_for_peers())).unwrap_or_default();
        tid.into_iter().for_each(|tid| e.arp.join(cause, tid));
        let sa = &mut self.ports[e.port.0 as usize].sa;
        question.into_iter().for_each(|number| sa.join(cause, number));
        if for_peers {
            let is_it = |who: &SaWho| matches!(who, SaWho::Route { ep: e, dest: d, .. } if (*e, *d) == (ep, dest));
            let question = sa.promote(now, cause, is_it);
            e.pending.or_default(dest).question = question;
        }
        self.wait(ep, dest, Waiter::Client { client, tid: request, source: source.map(Box::new) });
    }

    /// Nobody waits for `dest` any more: what is not under way for it is not begun.
    pub(super) fn give_up(&mut self, ep: EpId, dest: DestId) {
        let e = &mut self.eps[ep.0 as usize];
        let asks_sa = e.cache.get(dest).is_some_and(|d| d.state == State::QueryRoute);
        let question = e.pending.get(&dest).and_then(|p| p.question);
        let waits = question.and_then(|number| self.ports[e.port.0 as usize].sa.cancel(number)).is_some();
        if asks_sa && !waits {
            // the answer comes soon, and somebody may want it later
            return;
        }
        drop(self.take_pending(ep, dest));
        let cache = &mut self.eps[ep.0 as usize].cache;
        let Some(d) = cache.get_mut(dest) else { return };
        d.epoch = d.epoch.wrapping_add(1);
        if d.peer.qpn != 0 {
            d.state = State::AddrResolved;
        } else if d.is_learned() {
            cache.remove(dest);
        } else {
            d.state = State::Init;
        }
    }
}
