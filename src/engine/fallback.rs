//! What is done for an address that nobody answers for over multicast: its GID may be known otherwise.
//!
//! The peer may run no service, or multicast may not work. When the first request has gone unanswered for its time, and
//! is repeated, the kernel's neighbour table is asked: on IPoIB a hardware address holds the port's GID. An IPv6
//! link-local address that holds a port's GUID (RFC 4391, section 8) needs no asking. The first answer wins, and
//! multicast may still give it. Neither way is believed by itself: nothing is known then but a GID, so that the SA is
//! asked for the path, and where it has none, the GID counts as not found.
//!
//! An address that was found so is recognized by its peer, of whom no LID is known.

use std::net::IpAddr;
use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::{More, Status, TYPE_IP, TYPE_IP6};

use super::Engine;
use super::action::{Action, EpId, NeighbourToken};
use super::endpoint::Pending;
use super::local::same_partition;
use crate::addr::Addr;
use crate::cache::{Dest, DestId, Peer, State};
use crate::sa::SaError;
use crate::time::Time;

/// How long the kernel's neighbour table may take where the request's own time is over before it could be asked:
/// without repeats, or without a group.
pub(super) const LAST_LOOK: Duration = Duration::from_millis(100);
/// The universal/local bit of an EUI-64, which is inverted in an interface identifier.
const LOCAL_BIT: u8 = 0x02;

/// How far one look-up has come with this.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Fallback {
    /// It is not time, or multicast was quicker.
    #[default]
    Unused,
    /// The kernel is asked.
    Asked { number: u64, until: Time },
    /// The SA is asked for the path to what was found, by the way that the counter is of.
    Found { way: More, until: Time },
    /// Nobody else is asked: multicast has until then to confirm what is known.
    Last { until: Time },
    /// The SA is asked for the path to what is known.
    Kept { gid: Gid },
    /// There is no more to be had here.
    Over,
}

/// Whether it was found here and its peer has not been heard of since.
fn is_found_so(d: &Dest) -> bool {
    d.is_learned() && d.peer.lid == 0 && matches!(d.addr().kind(), TYPE_IP | TYPE_IP6)
}

/// The GUID of the port that made itself this address.
fn guid_in(ip: IpAddr) -> Option<[u8; 8]> {
    let IpAddr::V6(ip) = ip else { return None };
    let [0xfe, 0x80, 0, 0, 0, 0, 0, 0, guid @ ..] = ip.octets() else { return None };
    let mut guid = guid;
    guid[0] ^= LOCAL_BIT;
    Some(guid)
}

impl Engine {
    /// The request for `dest` is sent for the second time. Its time ends with the repeats.
    pub(super) fn repeated(&mut self, now: Time, ep: EpId, dest: DestId) {
        let limits = self.config.arp(self.info(ep).subnet_timeout);
        let left = limits.timeout.saturating_mul(limits.retries).max(LAST_LOOK);
        let unused = |p: &Pending| p.fallback == Fallback::Unused;
        if !self.look_elsewhere(now, ep, dest, now.plus(left))
            && self.eps[ep.0 as usize].pending.get(&dest).is_some_and(unused)
        {
            self.fall_back_on_known(now, ep, dest, now.plus(LAST_LOOK));
        }
    }

    /// Looks for `dest` where it may be known without its peer, until the answer is of no use any more. False if there
    /// is no such place, or nothing new to be had from it.
    pub(super) fn look_elsewhere(&mut self, now: Time, ep: EpId, dest: DestId, until: Time) -> bool {
        let e = &self.eps[ep.0 as usize];
        let Some(d) = e.cache.get(dest).filter(|d| self.config.addr_fallback && d.state == State::QueryAddr) else {
            return false;
        };
        let addr = d.addr();
        let Some(p) = e.pending.get(&dest).filter(|p| p.fallback == Fallback::Unused) else { return false };
        if self.local.find(&addr).is_some() {
            return false;
        }
        let known = p.known.is_some();
        // there is something else to be tried after that
        let until = if known { until.min(now.plus(LAST_LOOK)) } else { until };
        let Some(ip) = addr.as_ip().filter(|_| matches!(addr.kind(), TYPE_IP | TYPE_IP6)) else { return false };
        // who was heard is better known than who made the address
        if let Some(guid) = guid_in(ip).filter(|_| !known) {
            let mut gid = self.info(ep).gid();
            gid.0[8..].copy_from_slice(&guid);
            self.found(now, ep, dest, gid, Fallback::Found { way: More::AddrLinkLocal, until });
            return true;
        }
        self.ask_neighbour(ep, dest, ip, until)
    }

    fn ask_neighbour(&mut self, ep: EpId, dest: DestId, ip: IpAddr, until: Time) -> bool {
        self.asked_neighbours += 1;
        let number = self.asked_neighbours;
        let e = &mut self.eps[ep.0 as usize];
        let Some(p) = e.pending.get_mut(&dest) else { return false };
        p.fallback = Fallback::Asked { number, until };
        if p.tid.is_none() {
            // no request whose end is the look-up's
            e.wait_until(until, dest);
        }
        self.actions.push_back(Action::AskNeighbour { token: NeighbourToken { ep, dest, number }, ip, until });
        true
    }

    /// What the kernel's neighbour table says: the GID in the hardware address, or that there is none.
    pub fn neighbour(&mut self, now: Time, token: NeighbourToken, gid: Option<Gid>) {
        let NeighbourToken { ep, dest, number } = token;
        let Some(e) = self.eps.get_mut(ep.0 as usize) else { return };
        let waits = e.cache.get(dest).is_some_and(|d| d.state == State::QueryAddr);
        let Some(p) = e.pending.get_mut(&dest).filter(|_| waits) else { return };
        let until = match p.fallback {
            Fallback::Asked { number: n, until } if n == number => until,
            _ => return,
        };
        p.fallback = Fallback::Over;
        let known = p.known.as_ref().map(|k| k.gid);
        match gid {
            // the kernel may not have looked lately
            Some(gid) if known == Some(gid) => drop(self.fall_back_on_known(now, ep, dest, until)),
            Some(gid) if !gid.is_zero() && !gid.is_multicast() && !self.info(ep).gids.contains(&gid) => {
                self.found(now, ep, dest, gid, Fallback::Found { way: More::AddrNeighbour, until });
            }
            _ => self.fail_if_alone(now, ep, dest, until),
        }
        self.pump_sa(now, self.eps[ep.0 as usize].port);
    }

    /// A GID for `dest`, of which the SA has the last word.
    fn found(&mut self, now: Time, ep: EpId, dest: DestId, gid: Gid, found: Fallback) {
        let expiry = now.plus_minutes(self.config.addr_timeout);
        let e = &mut self.eps[ep.0 as usize];
        let (Some(d), Some(p)) = (e.cache.get_mut(dest), e.pending.get_mut(&dest)) else { return };
        p.fallback = found;
        d.epoch = d.epoch.wrapping_add(1);
        d.peer = Peer::default();
        d.path = Default::default();
        d.path.set_dgid(gid);
        (d.state, d.addr_expiry, d.route_expiry) = (State::AddrResolved, expiry, Time::NEVER);
        let addr = d.addr();
        self.log(2, || format!("nobody answers for {addr}: it may be {gid}"));
        if let Err(status) = self.route(now, ep, dest) {
            self.fail(now, ep, dest, status, "the route cannot be asked for");
        }
    }

    /// The SA has a path to `dest`.
    pub(super) fn confirmed(&mut self, now: Time, ep: EpId, dest: DestId) {
        let e = &self.eps[ep.0 as usize];
        let found = e.cache.get(dest).is_some_and(is_found_so);
        match e.pending.get(&dest).map(|p| p.fallback) {
            Some(Fallback::Found { way, .. }) if found => self.count_more(ep, way),
            Some(Fallback::Kept { .. }) => self.listen_on(now, ep, dest),
            _ => {}
        }
    }

    /// The SA has no path to `dest`. Whether that only means that what was found here was wrong: then there may be
    /// another way, and multicast goes on where its time is not over.
    pub(super) fn refuted(&mut self, now: Time, ep: EpId, dest: DestId, error: SaError) -> bool {
        let e = &mut self.eps[ep.0 as usize];
        let (Some(d), Some(p)) = (e.cache.get_mut(dest), e.pending.get_mut(&dest)) else { return false };
        let (stays, way, until) = match p.fallback {
            Fallback::Found { way, until } => (is_found_so(d), Some(way), until),
            Fallback::Kept { gid } => (d.path.dgid() == gid, None, now),
            _ => return false,
        };
        p.fallback = Fallback::Over;
        if !matches!(error, SaError::Status(_) | SaError::Malformed) || !stays {
            return false;
        }
        let (addr, ip, gid) = (d.addr(), d.addr().as_ip(), d.path.dgid());
        d.state = State::QueryAddr;
        self.log(1, || format!("{addr} is not {gid}: {error}"));
        if way == Some(More::AddrLinkLocal)
            && let Some(ip) = ip
            && self.ask_neighbour(ep, dest, ip, until.max(now.plus(LAST_LOOK)))
        {
            return true;
        }
        self.keep_known(now, ep, dest) || self.eps[ep.0 as usize].is_asking(dest)
    }

    /// Multicast has ended for `dest` without an answer.
    pub(super) fn unanswered(&mut self, now: Time, ep: EpId, dest: DestId, status: Status, why: &str) {
        let e = &mut self.eps[ep.0 as usize];
        let Some(p) = e.pending.get_mut(&dest) else { return };
        p.tid = None;
        if e.cache.get(dest).is_some_and(|d| d.state == State::QueryRoute) {
            // the SA's answer ends it
            return;
        }
        if let Fallback::Asked { until, .. } = p.fallback
            && now < until
        {
            return e.wait_until(until, dest);
        }
        let looking = p.fallback == Fallback::Unused && self.look_elsewhere(now, ep, dest, now.plus(LAST_LOOK));
        if !looking && !self.keep_known(now, ep, dest) {
            self.fail(now, ep, dest, status, why);
        }
    }

    /// `dest` fails unless multicast may still answer for it, until then alone if something was known.
    fn fail_if_alone(&mut self, now: Time, ep: EpId, dest: DestId, until: Time) {
        if self.fall_back_on_known(now, ep, dest, until) {
            return;
        }
        let e = &self.eps[ep.0 as usize];
        if !e.is_asking(dest) {
            let refused = e.groups.first().is_some_and(|g| g.refused);
            let status = if refused { Status::Enodata } else { Status::Etimedout };
            self.fail(now, ep, dest, status, "no peer answers for it, and no neighbour is known");
        }
    }

    /// A look-up without a multicast request has waited long enough: for the group, or for the kernel.
    pub(super) fn waited(&mut self, now: Time, ep: EpId, dest: DestId) {
        let e = &self.eps[ep.0 as usize];
        let Some(p) = e.pending.get(&dest) else { return };
        let last = matches!(p.fallback, Fallback::Last { until } if until <= now);
        if (p.tid.is_some() && !last) || e.cache.get(dest).is_none_or(|d| d.state != State::QueryAddr) {
            return;
        }
        match p.fallback {
            Fallback::Unused => self.repeated(now, ep, dest),
            Fallback::Asked { until, .. } if until <= now => self.fail_if_alone(now, ep, dest, until),
            Fallback::Last { .. } if last => drop(self.keep_known(now, ep, dest)),
            _ => {}
        }
    }

    /// The kernel has other news of a neighbour of an interface, which is that of a port's GID and partition: another
    /// GID, or that it is gone. An address that was found by it is looked for again when it is next used.
    pub fn neighbour_changed(&mut self, port: Gid, pkey: u16, ip: IpAddr, gid: Option<Gid>) {
        let addr = Addr::ip(ip);
        for i in 0..self.order.len() {
            let ep = self.order[i];
            if !self.info(ep).gids.contains(&port) || !same_partition(self.eps[ep.0 as usize].pkey, pkey) {
                continue;
            }
            let e = &mut self.eps[ep.0 as usize];
            let Some(id) = e.cache.find(&addr).filter(|id| !e.pending.contains_key(id)) else { continue };
            let Some(d) = e.cache.get_mut(id).filter(|d| is_found_so(d)) else { continue };
            if matches!(d.state, State::Ready | State::AddrResolved) && gid != Some(d.path.dgid()) {
                d.state = State::Init;
                d.epoch = d.epoch.wrapping_add(1);
                self.log(1, || format!("{addr} is in doubt: its neighbour entry has changed"));
            }
        }
    }
}
