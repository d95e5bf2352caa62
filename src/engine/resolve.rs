//! How a destination becomes a path: the steps of one resolution.

use ibacm_wire::PathRecord;
use ibacm_wire::client::{Counter, More, Status, TYPE_PATH};
use ibacm_wire::datagram::{Datagram, Groups, Request};
use ibacm_wire::reply::path_reply;
use ibacm_wire::sa::SaMad;

use super::Engine;
use super::action::{Action, Av, EpId, PortId};
use super::config::RouteProt;
use super::plugged::MadToken;
use super::query::Query;
use crate::addr::Addr;
use crate::cache::{DestId, State};
use crate::sa::{Ask, SaError};
use crate::time::Time;

/// Changes of what is asked for that a look-up follows.
const MAX_CHANGES: u8 = 16;

/// On whose behalf the SA is asked.
pub(super) enum SaWho {
    /// A destination; the epoch tells whether the question is still the right one.
    Route { ep: EpId, dest: DestId, epoch: u16 },
    /// A client that wants the SA's own word.
    Query(Box<Query>),
    /// A group.
    Join { ep: EpId, group: usize, life: u32 },
    /// A port's subscription.
    Inform { port: PortId, life: u32 },
    /// A path that was given out, for whoever wants it next.
    Check { ep: EpId, dest: DestId, epoch: u16, asked: Time, refresh: bool },
    /// A provider, with the transaction id that it chose.
    Provider { token: MadToken, tid: u64 },
}

/// The multicast request for `dest`, of whoever has the address `source`.
pub(super) fn asks_for(tid: u64, dest: &Addr, source: &Addr, groups: Groups) -> Request {
    Request {
        tid,
        dest_type: dest.kind() as u8,
        dest: *dest.wire(),
        src_type: source.kind() as u8,
        src: *source.wire(),
        groups,
    }
}

/// Appends a successful reply.
#[inline(always)]
pub(super) fn append_path_reply(out: &mut Vec<u8>, tid: [u8; 8], path: &PathRecord, source: Option<&Addr>) {
    let (reply, length) = path_reply(tid, path, source.map(|s| (s.kind(), s.wire())));
    out.extend_from_slice(reply.get(..length).unwrap_or_default());
}

impl Engine {
    /// Takes the first step of resolving `dest`, whose state is Init: asks its peer, or the SA, or nobody.
    pub(super) fn start(&mut self, now: Time, ep: EpId, dest: DestId, source: Option<&Addr>) -> Result<(), Status> {
        let Some(d) = self.eps[ep.0 as usize].cache.get(dest) else { return Err(Status::Enomem) };
        let addr = d.addr();
        if addr.kind() == TYPE_PATH {
            return self.ask_route(now, ep, dest);
        }
        let e = &self.eps[ep.0 as usize];
        let groupless = e.first_group().is_none() && e.groups.first().is_none_or(|g| !g.refused);
        if e.has_addr(&addr) && !(groupless && self.config.route_prot == RouteProt::Acm) {
            // an own address that is not to be looped back: the SA or the group still says what the path is
            let info = self.info(ep);
            let (gid, lid) = (info.gid(), info.lid);
            let qpn = self.eps[ep.0 as usize].qpn.unwrap_or(0);
            let e = &mut self.eps[ep.0 as usize];
            let group = e.own_group();
            if let Some(d) = e.cache.get_mut(dest) {
                d.path = PathRecord::default();
                d.path.set_dgid(gid);
                d.peer = crate::cache::Peer { qpn, lid, path_bits: 0, group };
                d.era = e.era;
                d.state = State::AddrResolved;
            }
            return self.route(now, ep, dest);
        }
        let subnet_timeout = self.info(ep).subnet_timeout;
        let e = &mut self.eps[ep.0 as usize];
        let limits = self.config.arp(subnet_timeout);
        let refused = e.first_group().is_none() && e.groups.first().is_some_and(|g| g.refused);
        if refused {
            // there is nobody to ask
        } else if e.first_group().is_none() {
            e.await_group.push_back((now.plus(limits.timeout * (limits.retries + 1)), dest));
            e.wait_until(now.plus(limits.timeout), dest);
        } else {
            let cause = self.waiters.cause(e.pending.get(&dest));
            let tid = e.arp.start(dest, cause, &mut self.rng).ok_or(Status::Enomem)?;
            e.pending.or_default(dest).tid = Some(tid);
        }
        let e = &mut self.eps[ep.0 as usize];
        e.pending.or_default(dest).source = source.copied().map(Box::new);
        e.cache.pin(dest, true);
        if let Some(d) = e.cache.get_mut(dest) {
            d.state = State::QueryAddr;
        }
        if refused && !self.look_elsewhere(now, ep, dest, now.plus(limits.timeout)) {
            return Err(Status::Enodata);
        }
        Ok(())
    }

    /// The first group is joined: what waited for it goes out.
    pub(super) fn group_joined(&mut self, now: Time, ep: EpId) {
        let waiting = std::mem::take(&mut self.eps[ep.0 as usize].await_group);
        for (_, dest) in waiting {
            let e = &mut self.eps[ep.0 as usize];
            let Some(addr) = e.cache.get(dest).filter(|d| d.state == State::QueryAddr).map(|d| d.addr()) else {
                continue;
            };
            if e.has_addr(&addr) {
                // no peer needs to be asked, as in `start`
                if let Err(status) = self.start(now, ep, dest, None) {
                    self.fail(now, ep, dest, status, "the look-up cannot be started");
                }
                continue;
            }
            let cause = self.waiters.cause(e.pending.get(&dest));
            match e.arp.start(dest, cause, &mut self.rng) {
                Some(tid) => e.pending.or_default(dest).tid = Some(tid),
                None => self.fail(now, ep, dest, Status::Enomem, "too many requests are open"),
            }
        }
        self.pump_arp(now, ep);
    }

    /// Sends the multicast requests whose turn it is.
    pub(super) fn pump_arp(&mut self, now: Time, ep: EpId) {
        loop {
            let e = &mut self.eps[ep.0 as usize];
            let Some(first) = e.first_group().copied() else { return self.await_group_again(now, ep) };
            let offered = e.offered();
            let Some((tid, dest)) = e.arp.next_to_send(now, &offered) else { return };
            let Some(addr) = e.cache.get(dest).map(|d| d.addr()) else {
                e.arp.close(tid);
                continue;
            };
            let Some(source) = e.request_source(dest, &addr) else {
                self.fail(now, ep, dest, Status::Esrcaddr, "the endpoint has no address left");
                continue;
            };
            let request = asks_for(tid, &addr, &source, offered);
            let av = Av::group(&first);
            let payload = Box::new(Datagram::Request(request).emit());
            let qpn = ibacm_wire::datagram::MULTICAST_QPN;
            self.actions.push_back(Action::Send { ep, token: tid, av, qpn, payload });
            self.count(Some(ep), Counter::AddrQuery);
            if self.eps[ep.0 as usize].arp.is_first_repeat(tid) {
                self.repeated(now, ep, dest);
            }
        }
    }

    /// The peer of `dest` is known: takes the step from there to the path.
    pub(super) fn route(&mut self, now: Time, ep: EpId, dest: DestId) -> Result<(), Status> {
        // of a preloaded address nothing but the GID is known until its peer is heard of
        let heard = self.eps[ep.0 as usize].cache.get(dest).is_some_and(|d| d.peer.lid != 0);
        match self.config.route_prot {
            RouteProt::Acm if !heard => self.ask_route(now, ep, dest),
            RouteProt::Sa => self.ask_route(now, ep, dest),
            RouteProt::Acm => {
                let info = self.info(ep);
                let (lid, addr_expiry, route_expiry) =
                    (info.lid, now.plus_minutes(self.config.addr_timeout), now.plus_minutes(self.config.route_timeout));
                let e = &mut self.eps[ep.0 as usize];
                let class = e.cache.get(dest).map_or(0, |d| d.peer.group);
                let Some(rec) = e.group(class).map(|g| *g.1) else { return self.ask_anew(now, ep, dest) };
                let Some(d) = e.cache.get_mut(dest) else { return Err(Status::Enomem) };
                let mut p = PathRecord::default();
                p.set_dgid(d.path.dgid());
                p.set_sgid(rec.port_gid);
                p.set_dlid(d.peer.lid);
                p.set_slid(lid | u16::from(d.peer.path_bits));
                p.set_flow_hop(rec.sl_flow_hop & 0x0fff_ffff);
                p.set_tclass(rec.tclass);
                p.set_reversible_numpath(ibacm_wire::path::REVERSIBLE | 1);
                p.set_pkey(rec.pkey);
                p.set_qos_sl((rec.sl_flow_hop >> 28) as u16);
                p.set_mtu(rec.mtu);
                p.set_rate(rec.rate);
                p.set_packet_lifetime(rec.packet_lifetime);
                (d.path, d.state) = (p, State::Ready);
                (d.addr_expiry, d.route_expiry) = (addr_expiry, route_expiry);
                self.settled(ep, dest, now);
                self.finish(ep, dest, Ok(()));
                Ok(())
            }
        }
    }

    /// The question for the path to `dest`.
    pub(super) fn path_question(&self, ep: EpId, dest: DestId) -> Option<PathRecord> {
        let e = &self.eps[ep.0 as usize];
        let d = e.cache.get(dest)?;
        let addr = d.addr();
        if addr.kind() == TYPE_PATH {
            return Some(PathRecord(*addr.wire()));
        }
        let group = e.group(d.peer.group).map(|g| g.1).or(e.first_group());
        let mut q = PathRecord::default();
        q.set_dgid(d.path.dgid());
        q.set_sgid(self.info(ep).gid());
        q.set_pkey(group.map_or(e.pkey, |g| g.pkey));
        q.set_tclass(group.map_or(0, |g| g.tclass));
        Some(q)
    }

    /// Asks the SA for the path to `dest`.
    pub(super) fn ask_route(&mut self, now: Time, ep: EpId, dest: DestId) -> Result<(), Status> {
        let question = self.path_question(ep, dest).ok_or(Status::Enomem)?;
        let e = &mut self.eps[ep.0 as usize];
        let Some(d) = e.cache.get_mut(dest) else { return Err(Status::Enomem) };
        d.state = State::QueryRoute;
        let who = SaWho::Route { ep, dest, epoch: d.epoch };
        let port = e.port;
        let pending = e.pending.or_default(dest);
        pending.asked = now;
        pending.first_asked.get_or_insert(now);
        let for_peers = pending.is_for_peers();
        let cause = self.waiters.cause(Some(pending));
        e.cache.pin(dest, true);
        let (sa, ask) = (&mut self.ports[port.0 as usize].sa, Ask::Path(question));
        let limited = for_peers && !e.peer_questions.take(now);
        let submitted = if limited {
            Err(who)
        } else if for_peers {
            // they are not to hold so many entries that there are none for clients
            sa.submit_for_peers(now, who, ask, self.config.max_destinations / 4).map(|()| None)
        } else {
            sa.submit(now, cause, who, ask).map(Some)
        };
        if let Ok(question) = submitted {
            e.pending.or_default(dest).question = question;
        }
        match limited {
            true => self.count_more(ep, More::PeersLimited),
            false => self.count(Some(ep), Counter::RouteQuery),
        }
        submitted.map(drop).map_err(|_| Status::Enomem)
    }

    /// Sends the SA what it is to be asked now.
    pub(super) fn pump_sa(&mut self, now: Time, port: PortId) {
        let Some(p) = self.ports.get_mut(port.0 as usize).filter(|p| p.info.active) else { return };
        while let Some((tid, mad)) = p.sa.next_to_send(now) {
            self.actions.push_back(Action::Mad {
                port,
                tid,
                lid: p.info.sm_lid,
                sl: p.info.sm_sl,
                pkey_index: p.info.sa_pkey_index(),
                timeout_ms: self.config.timeout_ms,
                retries: self.config.retries,
                mad: Box::new(mad),
            });
        }
    }

    pub(super) fn sa_answered(&mut self, now: Time, who: SaWho, result: Result<SaMad, SaError>) {
        match who {
            SaWho::Route { ep, dest, epoch } => self.route_answered(now, ep, dest, epoch, result.map(|m| m.path())),
            SaWho::Query(q) => self.query_answered(*q, result.map(|m| m.path())),
            SaWho::Provider { token, tid } => self.provider_mad_done(token, tid, result),
            SaWho::Inform { port, life } => self.inform_answered(now, port, life, result.map(drop)),
            SaWho::Check { ep, dest, epoch, asked, refresh } => {
                self.checked(now, (ep, dest), epoch, (asked, refresh), result.map(|m| m.path()));
            }
            SaWho::Join { ep, group, life } => {
                self.join_answered(now, ep, group, life, result.map(|m| m.mcmember()));
            }
        }
    }

    /// A question that went down with its port. Who waits for a destination of an endpoint that was up has been told already.
    pub(super) fn sa_lost(&mut self, now: Time, who: SaWho) {
        match who {
            SaWho::Query(q) => self.query_answered(*q, Err(SaError::Down)),
            SaWho::Provider { token, tid } => self.provider_mad_done(token, tid, Err(SaError::Down)),
            SaWho::Check { ep, .. } => self.check_lost(ep),
            SaWho::Route { ep, dest, .. } => {
                let e = &self.eps[ep.0 as usize];
                let asks = e.cache.get(dest).is_some_and(|d| d.state == State::QueryRoute);
                if asks && e.pending.contains_key(&dest) {
                    // a question by GID or LID, of an endpoint that was closed before the port went
                    self.fail(now, ep, dest, Status::Enotconn, "the port is down");
                }
            }
            SaWho::Join { .. } | SaWho::Inform { .. } => {}
        }
    }

    fn route_answered(&mut self, now: Time, ep: EpId, dest: DestId, epoch: u16, result: Result<PathRecord, SaError>) {
        let (addr_expiry, route_expiry) =
            (now.plus_minutes(self.config.addr_timeout), now.plus_minutes(self.config.route_timeout));
        let Some(d) = self.eps[ep.0 as usize].cache.get_mut(dest) else { return };
        if d.state != State::QueryRoute {
            return;
        }
        let d_kind = d.addr().kind();
        if d.epoch != epoch {
            // what was asked for is no longer what is wanted: the peer has moved, or this host has
            let e = &self.eps[ep.0 as usize];
            let by_path = d_kind == TYPE_PATH && self.ports[e.port.0 as usize].info.active;
            // a port or a peer that changes all the time makes no look-up endless
            let limit = self.config.sa().total() * 2;
            let patient = e.pending.get(&dest).filter(|p| p.first_asked.is_none_or(|t| now < t.plus(limit)));
            let again = patient.map_or(MAX_CHANGES, |p| p.again);
            if (e.up || by_path) && again < MAX_CHANGES && self.ask_route(now, ep, dest).is_ok() {
                if let Some(p) = self.eps[ep.0 as usize].pending.get_mut(&dest) {
                    p.again = again + 1;
                }
                return;
            }
            return self.fail(now, ep, dest, Status::Enotconn, "the port changed");
        }
        if self.asked_again(now, ep, dest, &result) {
            return;
        }
        let e = &mut self.eps[ep.0 as usize];
        let asked = e.pending.get(&dest).map_or(now, |p| p.asked);
        let Some(d) = e.cache.get_mut(dest) else { return };
        match result {
            Ok(path) => {
                (d.path, d.state) = (path, State::Ready);
                (d.addr_expiry, d.route_expiry) = (addr_expiry, route_expiry);
                self.confirmed(now, ep, dest);
                self.settled(ep, dest, asked);
                self.finish(ep, dest, Ok(()));
                self.doubt_if_outdated(now, ep, dest, asked);
            }
            Err(error) if self.refuted(now, ep, dest, error) => {}
            Err(error) => {
                let Some(d) = self.eps[ep.0 as usize].cache.get(dest) else { return };
                let peer_known = d.peer.qpn != 0 && matches!(error, SaError::Timeout | SaError::Busy);
                let addr = d.addr();
                self.log(1, || format!("no path to {addr}: {error}"));
                self.finish_failed(now, ep, dest, error.client_status(), peer_known);
            }
        }
    }
}
