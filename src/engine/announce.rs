//! What has moved says so. No peer can know that a port has another LID or GID, or that an address is somewhere else
//! now: it would use what it has learned for as long as that is good, a day by default.
//!
//! So an endpoint that has been heard of before, and is somewhere else now, was out of reach or has a new address, asks
//! its group for its own addresses. Nobody answers such a request, but whoever hears it learns, as from every other request, where it came
//! from, and what contradicts that is in doubt. It is sent twice, since nobody confirms it, a few addresses at a time.
//! An endpoint that opens for the first time says nothing: nobody knows anything of it that could be wrong.
//!
//! Who hears that a peer has another LID or GID has more than the one address in doubt: everything that leads to that
//! GID at another LID, or to that LID with another GID, is asked for again when it is next used. Destinations are gone
//! through for that at most ten times a second.

use std::collections::VecDeque;
use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::datagram::{Datagram, MULTICAST_QPN, Request};

use super::Engine;
use super::action::{Action, Av, EpId, PortId};
use super::config::RouteProt;
use super::doubt::doubt;
use crate::addr::Addr;
use crate::cache::State;
use crate::map::Map;
use crate::time::Time;

/// Addresses that are announced at a time, and the pause until the next ones.
const SHARE: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);
/// Hosts that move together, because a subnet manager gave out other LIDs, take this long to say so.
const SPREAD: Duration = Duration::from_millis(100);
/// When it is said again.
const AGAIN: Duration = Duration::from_secs(1);
/// Addresses that wait to be announced; what is more is left for peers to find out.
const MAX: usize = 256;
/// Destinations are gone through once in this time.
const WALK: Duration = Duration::from_millis(100);
/// GIDs that wait for that. What is more has everything in doubt.
const MAX_MOVED: usize = 1024;

/// What an endpoint has to say.
#[derive(Default)]
pub(super) struct Announcement {
    /// The GID and LID under which peers have heard of the endpoint.
    known_as: Option<(Gid, u16)>,
    /// It was closed since then: nobody could hear how it was.
    missed: bool,
    /// Addresses to be said, and whether they will be said again.
    queue: VecDeque<(Addr, bool)>,
    at: Option<Time>,
}

impl Announcement {
    /// When there is something to say.
    pub fn deadline(&self) -> Time {
        self.at.unwrap_or(Time::NEVER)
    }

    fn add(&mut self, addr: Addr) {
        self.queue.retain(|(a, _)| *a != addr);
        if self.queue.len() < MAX {
            self.queue.push_front((addr, true));
        }
    }
}

/// GIDs of peers that have moved.
#[derive(Default)]
pub(super) struct Moved {
    /// With the LID that they have now, and the port that heard of it, since LIDs are of its subnet alone; LID 0 if
    /// nobody has the GID, as far as is known.
    gids: Map<Gid, (PortId, u16)>,
    walk_at: Time,
}

impl Moved {
    /// When destinations are to be gone through.
    pub fn deadline(&self) -> Time {
        if self.gids.is_empty() { Time::NEVER } else { self.walk_at }
    }

    /// Panics if it is too much.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) {
        assert!(self.gids.len() <= MAX_MOVED);
    }
}

/// GIDs that are at one LID now.
struct Residents {
    one: Gid,
    more: bool,
}

impl Engine {
    /// The endpoint has a QP again, or for the first time: from then on it may be known.
    pub(super) fn announce_opened(&mut self, ep: EpId) {
        let here = (self.info(ep).gid(), self.info(ep).lid);
        let news = &mut self.eps[ep.0 as usize].announcement;
        news.missed |= news.known_as.is_some();
        news.known_as.get_or_insert(here);
    }

    /// The endpoint's first group is joined: if peers have heard of it as somebody else, they are told.
    pub(super) fn announce_moved(&mut self, now: Time, ep: EpId) {
        let info = self.info(ep);
        let here = (info.gid(), info.lid);
        let wait = Duration::from_micros(self.rng.below(SPREAD.as_micros() as u64));
        let e = &mut self.eps[ep.0 as usize];
        let news = &mut e.announcement;
        let moved = news.known_as.replace(here).is_some_and(|before| before != here);
        if std::mem::take(&mut news.missed) || moved {
            e.addrs.iter().flatten().for_each(|a| news.add(a.addr));
        }
        if !news.queue.is_empty() {
            news.at = Some(now.plus(wait));
        }
    }

    /// The endpoint has a new address.
    pub(super) fn announce_address(&mut self, ep: EpId, addr: &Addr) {
        let news = &mut self.eps[ep.0 as usize].announcement;
        if news.known_as.is_some() {
            news.add(*addr);
            // at once, if there is a group
            news.at = Some(Time(0));
        }
    }

    /// Says what is due.
    pub(super) fn announce_due(&mut self, now: Time) {
        for i in 0..self.eps.len() {
            if self.eps[i].announcement.deadline() <= now {
                self.announce(now, EpId(i as u32));
            }
        }
    }

    fn announce(&mut self, now: Time, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        e.announcement.at = None;
        // without a group: when it is joined
        let Some(first) = e.first_group().filter(|_| e.up).copied() else { return };
        let offered = e.offered();
        let Some(round) = e.announcement.queue.front().map(|(_, again)| *again) else { return };
        for _ in 0..SHARE {
            let e = &mut self.eps[ep.0 as usize];
            let Some((addr, again)) = e.announcement.queue.pop_front_if(|(_, again)| *again == round) else { break };
            if !e.has_addr(&addr) {
                continue;
            }
            if again {
                e.announcement.queue.push_back((addr, false));
            }
            let (kind, bytes) = (addr.kind() as u8, *addr.wire());
            let tid = self.rng.next_u64() >> 1;
            let request = Request { tid, dest_type: kind, dest: bytes, src_type: kind, src: bytes, groups: offered };
            let payload = Box::new(Datagram::Request(request).emit());
            self.actions.push_back(Action::Send { ep, token: tid, av: Av::group(&first), qpn: MULTICAST_QPN, payload });
        }
        let news = &mut self.eps[ep.0 as usize].announcement;
        news.at = news.queue.front().map(|(_, again)| now.plus(if *again == round { PAUSE } else { AGAIN }));
    }

    /// A peer was heard of under another GID than this one, or (`lid`) at this LID: other paths are in doubt.
    pub(super) fn peer_moved(&mut self, ep: EpId, gid: Gid, lid: u16) {
        if !gid.is_zero() && self.moved.gids.len() < MAX_MOVED {
            self.moved.gids.insert(gid, (self.eps[ep.0 as usize].port, lid));
        }
    }

    /// Goes through the destinations if it is time to.
    pub(super) fn moved_due(&mut self, now: Time) {
        if self.moved.deadline() > now {
            return;
        }
        let gids = std::mem::take(&mut self.moved.gids);
        self.moved.walk_at = now.plus(WALK);
        let all = gids.len() >= MAX_MOVED;
        // there the path would be made again from the same GID and LID, with nobody to say that they are wrong
        let acm = self.config.route_prot == RouteProt::Acm;
        let lmc = |port: PortId| self.ports.get(port.0 as usize).map_or(0, |p| p.info.lmc.min(7));
        let mut lids: Map<(PortId, u16), Residents> = Map::new();
        for (gid, (port, lid)) in gids.iter().filter(|(_, (_, lid))| *lid != 0) {
            let place = lids.get_or_insert_with((*port, lid >> lmc(*port)), || Residents { one: *gid, more: false });
            place.more |= place.one != *gid;
        }
        let mut doubted = 0;
        for e in &mut self.eps {
            let (port, lmc) = (e.port, lmc(e.port));
            for d in e.cache.iter_mut().filter(|d| d.is_learned()) {
                let lid = match d.state {
                    State::Ready => d.path.dlid(),
                    State::AddrResolved if acm => d.peer.lid,
                    State::QueryAddr => {
                        // if it has a path that is being confirmed, it is asked for anew
                        d.epoch = d.epoch.wrapping_add(1);
                        continue;
                    }
                    _ => continue,
                };
                let gid = d.path.dgid();
                // one of the two is another's now
                let left = gids.get(&gid).is_some_and(|(_, now_at)| *now_at == 0 || (now_at ^ lid) >> lmc != 0);
                let taken = || lids.get(&(port, lid >> lmc)).is_some_and(|r| r.more || r.one != gid);
                if all || left || taken() {
                    doubt(d, acm);
                    doubted += 1;
                }
            }
        }
        if doubted != 0 {
            self.log(1, || format!("{doubted} paths are in doubt: {} peers have moved", gids.len()));
        }
    }
}
