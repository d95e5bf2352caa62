//! Multicast groups of endpoints: joined when the endpoint opens, again when the subnet manager asks, and again after
//! a growing, random pause when it did not work, each for itself.
//!
//! An endpoint is deaf without its first group, and says with its own group what its port can do: they are asked for
//! before anything else. Those between them make some paths better; they are asked for when the SA is asked nothing else.

use std::time::Duration;

use ibacm_wire::client::Status;
use ibacm_wire::datagram::{self, group_gid};
use ibacm_wire::sa::{EXACTLY, McMember, SCOPE_SITE_FULL};

use super::Engine;
use super::action::{Action, EpId};
use super::config::RouteProt;
use super::endpoint::{Endpoint, Group, GroupState};
use super::ladder::{Class, ladder};
use super::resolve::SaWho;
use crate::cache::{DestId, State};
use crate::rates::{self, Gbps};
use crate::sa::{Ask, SaError};
use crate::sorted::sort_by_key;
use crate::time::Time;

const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// As [`RETRY_MAX`], for groups between the first and the own one: an SA that refuses them may do so for ever.
const RETRY_MAX_BETWEEN: Duration = Duration::from_secs(15 * 60);
/// How often a look-up begins again because its group is lost.
const MAX_ROUNDS: u8 = 8;

impl Engine {
    /// Decides on the endpoint's groups and joins them all.
    pub(super) fn join_all(&mut self, now: Time, ep: EpId) {
        let groups = self.wanted_groups(ep);
        let e = &mut self.eps[ep.0 as usize];
        if e.first_group().is_some() {
            // its QP broke, and nobody could hear
            e.missed();
        }
        e.groups = groups;
        self.rejoin(now, ep);
    }

    /// Decides on the groups anew; memberships that are still wanted are used until the new joins are answered.
    pub(super) fn join_others(&mut self, now: Time, ep: EpId) {
        let mut groups = self.wanted_groups(ep);
        let old = std::mem::take(&mut self.eps[ep.0 as usize].groups);
        if groups.iter().map(|g| g.mgid).eq(old.iter().map(|g| g.mgid)) {
            self.eps[ep.0 as usize].groups = old;
            return;
        }
        for g in &mut groups {
            g.joined = old.iter().find(|o| o.mgid == g.mgid).and_then(|o| o.joined);
        }
        // only the first group is attached to
        let first = |groups: &[Group]| groups.first().and_then(|g| g.joined.map(|j| (g.mgid, j.mlid)));
        let (left, taken) = (first(&old), first(&groups));
        if left != taken {
            if let Some((mgid, mlid)) = left {
                self.actions.push_back(Action::Detach { ep, mgid, mlid });
            }
            if let Some((mgid, mlid)) = taken {
                self.actions.push_back(Action::Attach { ep, mgid, mlid });
            }
        }
        self.eps[ep.0 as usize].groups = groups;
        self.rejoin(now, ep);
    }

    fn wanted_groups(&self, ep: EpId) -> Vec<Group> {
        let (info, pkey) = (self.info(ep), self.eps[ep.0 as usize].pkey);
        let rungs = ladder(&self.config, Class { rate: info.rate, mtu: info.mtu });
        let groups = rungs.iter().map(|r| Group {
            mgid: group_gid(pkey, r.class.rate, r.class.mtu),
            class: r.class,
            standing: r.standing,
            state: GroupState::Idle,
            joined: None,
            failures: 0,
            refused: false,
        });
        groups.collect()
    }

    /// The port's rate or MTU has changed: so have the paths from it, and perhaps the groups.
    pub(super) fn speed_changed(&mut self, now: Time, ep: EpId) {
        self.doubt_paths(ep);
        let acm = self.config.route_prot == RouteProt::Acm;
        let e = &mut self.eps[ep.0 as usize];
        for d in e.cache.iter_mut().filter(|d| acm && d.is_learned() && d.state == State::AddrResolved) {
            // which group is the best of both is for the peer to say
            d.state = State::Init;
        }
        if e.up && e.qpn.is_some() {
            self.join_others(now, ep);
        }
    }

    /// The group that the path to `dest` was to be made from is left, or not joined again yet: its peer is asked which
    /// one it is now.
    pub(super) fn ask_anew(&mut self, now: Time, ep: EpId, dest: DestId) -> Result<(), Status> {
        let e = &mut self.eps[ep.0 as usize];
        let addr = e.cache.get(dest).map(|d| d.addr()).ok_or(Status::Enomem)?;
        if e.has_addr(&addr) {
            return Err(Status::Enodata);
        }
        if let Some(d) = e.cache.get_mut(dest) {
            d.state = State::Init;
        }
        self.start(now, ep, dest, None)
    }

    /// Joins the endpoint's groups (again); until the answers come the old memberships are used.
    pub(super) fn rejoin(&mut self, now: Time, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        e.life += 1;
        e.rejoining.get_or_insert((now, false));
        let mut order: Vec<usize> = (0..e.groups.len()).collect();
        sort_by_key(&mut order, |g| e.groups.get(*g).map(|g| g.standing));
        // a join is put in front of the queue, so of the two that are urgent the last one goes first
        let urgent = order.len().min(2);
        order[..urgent].reverse();
        let of_ep = |who: &SaWho| matches!(who, SaWho::Join { ep: of, .. } if *of == ep);
        self.ports[e.port.0 as usize].sa.withdraw(of_ep);
        for g in order {
            self.join(now, ep, g);
        }
    }

    fn join(&mut self, now: Time, ep: EpId, group: usize) {
        let port_gid = self.info(ep).gid();
        let e = &mut self.eps[ep.0 as usize];
        let (port, pkey, life) = (e.port, e.pkey, e.life);
        let Some(g) = e.groups.get_mut(group) else { return };
        let rec = McMember {
            mgid: g.mgid,
            port_gid,
            qkey: datagram::QKEY,
            mtu: EXACTLY | g.class.mtu,
            pkey,
            rate: EXACTLY | g.class.rate,
            scope_state: SCOPE_SITE_FULL,
            ..McMember::default()
        };
        g.state = GroupState::Joining;
        let (mgid, urgent) = (g.mgid, g.is_urgent());
        let who = SaWho::Join { ep, group, life };
        let sa = &mut self.ports[port.0 as usize].sa;
        let submitted = match urgent {
            true => sa.submit_join(now, who, rec),
            false => sa.submit_idle(now, who, Ask::Join(rec)),
        };
        if submitted.is_err() {
            self.join_failed(now, ep, group, SaError::Down);
        }
        let name = self.name_of(ep);
        self.log_own(1, || format!("joining {mgid} on {name}"));
    }

    /// The SA's word on a join; of an endpoint's earlier life it is dropped.
    pub(super) fn join_answered(
        &mut self,
        now: Time,
        ep: EpId,
        group: usize,
        life: u32,
        result: Result<McMember, SaError>,
    ) {
        let e = &mut self.eps[ep.0 as usize];
        if !e.up || e.qpn.is_none() || e.life != life {
            return;
        }
        let rec = match result {
            Ok(rec) => rec,
            Err(error) => return self.join_failed(now, ep, group, error),
        };
        let Some(g) = e.groups.get_mut(group) else { return };
        let (old, mgid) = (g.joined.replace(rec), g.mgid);
        (g.state, g.failures, g.refused) = (GroupState::Joined, 0, false);
        // requests come to the first group only; the others just say which rate and MTU peers share
        if group == 0 {
            let attached = old.map(|o| o.mlid);
            e.rejoined(now, attached == Some(rec.mlid));
            if attached != Some(rec.mlid) {
                if let Some(mlid) = attached {
                    self.actions.push_back(Action::Detach { ep, mgid, mlid });
                }
                self.actions.push_back(Action::Attach { ep, mgid, mlid: rec.mlid });
            }
            self.group_joined(now, ep);
            self.announce_moved(now, ep);
        }
        self.eps[ep.0 as usize].refreshes.better_group |= old.is_none();
        self.look_for_better(now, ep);
        let name = self.name_of(ep);
        self.log_own(1, || {
            let (mtu, rate) = (rates::mtu_bytes(rec.mtu & 0x3f), rates::rate_mbps(rec.rate & 0x3f));
            let (mtu, gbps) = (mtu.unwrap_or(0), Gbps(rate.unwrap_or(0)));
            format!("joined {mgid} on {name}: LID {:#06x}, {gbps} Gb/s, MTU {mtu}", rec.mlid)
        });
    }

    fn join_failed(&mut self, now: Time, ep: EpId, group: usize, error: SaError) {
        let jitter = self.rng.below(1000);
        let Some(g) = self.eps[ep.0 as usize].groups.get_mut(group) else { return };
        let most = if g.is_urgent() { RETRY_MAX } else { RETRY_MAX_BETWEEN };
        let pause = RETRY.saturating_mul(1 << g.failures.min(10)).min(most);
        let pause = pause / 2 + pause.mul_f64(jitter as f64 / 1000.0);
        g.failures += 1;
        g.state = GroupState::Failed(now.plus(pause));
        g.refused = matches!(error, SaError::Status(_));
        let (mgid, failures, urgent) = (g.mgid, g.failures, g.is_urgent());
        if group == 0 && g.refused && g.joined.is_none() {
            let waiting = std::mem::take(&mut self.eps[ep.0 as usize].await_group);
            for (_, dest) in waiting {
                self.fail_unasked(now, ep, dest, Status::Enodata, "the multicast group cannot be joined");
            }
        }
        self.look_for_better(now, ep);
        // the same failure again and again is no news, nor is a group that only makes paths better, nor is a silent SA
        let silent =
            error == SaError::Timeout && self.ports[self.eps[ep.0 as usize].port.0 as usize].told.is_sa_silent();
        let level = if failures.is_power_of_two() && urgent && !silent { 0 } else { 1 };
        let name = self.name_of(ep);
        self.log(level, || format!("cannot join {mgid} on {name}: {error}; trying again in {} ms", pause.as_millis()));
    }

    /// There is no first group any more: what was asked in it, or was to be asked, waits for the next one. A request that
    /// waits for its turn has no deadline of its own, and without a group no turn ever comes.
    pub(super) fn await_group_again(&mut self, now: Time, ep: EpId) {
        if self.eps[ep.0 as usize].arp.is_empty() {
            return;
        }
        let limit = self.config.arp(self.info(ep).subnet_timeout).timeout * (self.config.retries + 1);
        let Endpoint { pending, arp, await_group, .. } = &mut self.eps[ep.0 as usize];
        let mut over = Vec::new();
        for (dest, p) in pending.iter_mut() {
            let Some(tid) = p.tid.take() else { continue };
            arp.close(tid);
            p.rounds += 1;
            // a group that comes and goes all the time makes no look-up endless
            match p.rounds < MAX_ROUNDS {
                true => await_group.push_back((now.plus(limit), *dest)),
                false => over.push(*dest),
            }
        }
        for dest in over {
            self.unanswered(now, ep, dest, Status::Etimedout, "its group is lost again and again");
        }
    }

    /// Forgets memberships, because the QP that was attached is gone. Joins on their way are dropped when they come.
    pub(super) fn reset_groups(&mut self, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        e.life += 1;
        e.groups.clear();
        e.missed();
    }

    pub(super) fn retry_joins(&mut self, now: Time) {
        for i in 0..self.eps.len() {
            let ep = EpId(i as u32);
            for g in 0..self.eps[i].groups.len() {
                if matches!(self.eps[i].groups[g].state, GroupState::Failed(at) if at <= now) {
                    self.join(now, ep, g);
                }
            }
        }
    }
}
