//! What a port that was down could not hear. Who has an address says so when that changes, to whoever can hear it then;
//! nobody says it again to a port that comes up.
//!
//! So an endpoint counts the times that it was out of its group, and an address that its peer told of before the last
//! one is *confirmed* when it is next wanted: the group is asked for it, as for one that is not known, and whoever has
//! it now answers. Until somebody wants them nothing is done for such addresses, however many there are.
//!
//! A peer may be silent, because its service has ended for instance. That does not make its address somebody else's: if
//! nobody has answered soon after the first repetition, and the kernel's neighbour table knows nobody else, the SA is
//! asked for the path to the GID that was known. If it has one, that counts as confirmed, until the next time.
//!
//! When the subnet manager wants groups to be joined again it may have forgotten the membership, and for how long nobody
//! knows. Mostly nothing was missed then, and a whole subnet is told so at once: an address is confirmed all the same,
//! but its path is kept if the peer is where it was, or silent for a moment.
//!
//! What the peer itself says meanwhile confirms its address at once. Own addresses, preloaded ones, and those that were
//! not learned from a peer need none of this.

use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::Status;

use super::Engine;
use super::action::{EpId, PortId};
use super::endpoint::Endpoint;
use super::fallback::{Fallback, LAST_LOOK};
use crate::addr::Addr;
use crate::cache::{DestId, Peer, State};
use crate::time::Time;

/// How long a new join may take before it is certain that there was no membership meanwhile. Who has moved says so
/// twice, with a second in between.
const DEAF: Duration = Duration::from_secs(1);

/// What is known of the peer of an address that is being confirmed.
pub(super) struct Known {
    pub gid: Gid,
    peer: Peer,
    /// The path is known too, and still in the entry as long as that has this epoch.
    path: Option<u16>,
    /// It is certain that there was an outage.
    sure: bool,
    /// When it was begun: silence tells nothing of an outage that was noticed since.
    era: u8,
}

impl Endpoint {
    /// What was said to the group did not come here.
    pub fn missed(&mut self) {
        self.may_have_missed();
        self.outage = self.era;
    }

    /// Perhaps it did not: the subnet manager may have forgotten the membership.
    fn may_have_missed(&mut self) {
        self.era = self.era.checked_add(1).unwrap_or_else(|| {
            // once in a long while, so that no entry is taken for one of the new eras
            self.cache.iter_mut().for_each(|d| d.era = 0);
            self.pending.values_mut().filter_map(|p| p.known.as_mut()).for_each(|k| k.era = 0);
            self.outage = 1;
            1
        });
    }

    /// The first group is joined (again), as the same one that it was or not.
    pub fn rejoined(&mut self, now: Time, same: bool) {
        let (since, lost) = self.rejoining.take().unwrap_or((now, false));
        if !same || now > since.plus(DEAF) {
            self.missed();
        } else if lost {
            self.may_have_missed();
        } else {
            return;
        }
        // a port that is no member may not reach the others either
        self.arp.send_again(now);
    }
}

impl Known {
    /// Whether the path in an entry of this epoch is good, if the peer is where it was.
    pub fn has_path(&self, epoch: u16) -> bool {
        self.path == Some(epoch)
    }
}

impl Engine {
    /// The port was down for too short to be seen so. It has lost its groups all the same, and what was said in them.
    pub fn port_bounced(&mut self, now: Time, port: PortId) {
        for ep in self.port_eps(port) {
            self.eps[ep.0 as usize].missed();
        }
        self.reregister(now, port);
    }

    /// Joins the endpoint's groups again, of which the subnet manager may know nothing.
    pub(super) fn rejoin_lost(&mut self, now: Time, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        e.may_have_missed();
        e.rejoining.get_or_insert((now, true)).1 = true;
        self.rejoin(now, ep);
    }

    /// Asks the group who has the address of `dest`, whose peer has not been heard of since the last outage.
    pub(super) fn confirm(&mut self, now: Time, ep: EpId, dest: DestId, source: Option<&Addr>) -> Result<(), Status> {
        let e = &mut self.eps[ep.0 as usize];
        let Some(d) = e.cache.get_mut(dest) else { return Err(Status::Enomem) };
        let ready = d.state == State::Ready && now < d.route_expiry;
        let sure = d.era < e.outage;
        d.state = State::Init;
        let p = e.pending.or_default(dest);
        let path = ready.then_some(d.epoch);
        p.known = Some(Box::new(Known { gid: d.path.dgid(), peer: d.peer, path, sure, era: e.era }));
        if !sure {
            let until = now.plus(LAST_LOOK);
            p.fallback = Fallback::Last { until };
            e.wait_until(until, dest);
        }
        // where nobody can be asked what is known has to do
        self.start(now, ep, dest, source).or_else(|status| self.ask_known(now, ep, dest).unwrap_or(Err(status)))
    }

    /// Who has the address of `dest` is known nowhere else. If it is to be confirmed, multicast has until then to tell;
    /// then what was known is taken. False if nothing was.
    pub(super) fn fall_back_on_known(&mut self, now: Time, ep: EpId, dest: DestId, until: Time) -> bool {
        let e = &mut self.eps[ep.0 as usize];
        let asking = e.is_asking(dest);
        let Some(p) = e.pending.get_mut(&dest).filter(|p| p.known.is_some()) else { return false };
        if asking && now < until {
            p.fallback = Fallback::Last { until };
            e.wait_until(until, dest);
            return true;
        }
        self.keep_known(now, ep, dest)
    }

    /// Takes what was known of `dest` before the outage, if the SA has a path there. False if nothing was, or that has
    /// been tried.
    pub(super) fn keep_known(&mut self, now: Time, ep: EpId, dest: DestId) -> bool {
        let Some(asked) = self.ask_known(now, ep, dest) else { return false };
        if let Err(status) = asked {
            self.fail(now, ep, dest, status, "the route cannot be asked for");
        }
        true
    }

    /// The same, for a caller that sees to failures.
    fn ask_known(&mut self, now: Time, ep: EpId, dest: DestId) -> Option<Result<(), Status>> {
        let e = &mut self.eps[ep.0 as usize];
        let (d, p) = (e.cache.get_mut(dest)?, e.pending.get_mut(&dest)?);
        if !matches!(d.state, State::Init | State::QueryAddr) {
            return None;
        }
        let known = p.known.take()?;
        let Known { gid, peer, era, .. } = *known;
        if known.has_path(d.epoch) && !known.sure {
            (d.state, d.era) = (State::Ready, era);
            self.listen_on(now, ep, dest);
            self.finish(ep, dest, Ok(()));
            return Some(Ok(()));
        }
        p.fallback = Fallback::Kept { gid };
        d.epoch = d.epoch.wrapping_add(1);
        d.peer = peer;
        d.path = Default::default();
        d.path.set_dgid(gid);
        // silence is all that there is to be had, so it is not waited for again
        d.era = era;
        let addr = d.addr();
        self.log(2, || format!("nobody answers for {addr}: it may still be {gid}"));
        // the SA knows whether that is there, which a path that is made from a group does not say
        Some(self.ask_route(now, ep, dest))
    }

    /// What was known of `dest` is answered, and its multicast request ends with that. Whoever answers late is believed
    /// all the same.
    pub(super) fn listen_on(&mut self, now: Time, ep: EpId, dest: DestId) {
        let until = now.plus(self.config.arp(self.info(ep).subnet_timeout).timeout);
        let e = &mut self.eps[ep.0 as usize];
        let open = e.pending.get(&dest).and_then(|p| p.tid);
        if let Some((tid, (_, offered))) = open.and_then(|tid| Some((tid, e.arp.get(tid)?))) {
            e.refreshes.listen(dest, tid, *offered, until);
        }
    }
}
