//! Multicast groups of endpoints: joined when the endpoint opens, again when the subnet manager asks, and again after
//! a growing, random pause when it did not work.

use std::time::Duration;

use ibacm_wire::client::Status;
use ibacm_wire::datagram::{self, group_gid};
use ibacm_wire::sa::{EXACTLY, McMember, SCOPE_SITE_FULL};

use super::Engine;
use super::action::{Action, EpId};
use super::config::RouteProt;
use super::endpoint::{Endpoint, Group, GroupState};
use super::resolve::SaWho;
use crate::sa::{Ask, SaError};
use crate::time::Time;

const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Engine {
    /// Decides on the endpoint's groups and joins them all.
    pub(super) fn join_all(&mut self, now: Time, ep: EpId) {
        self.eps[ep.0 as usize].groups = self.wanted_groups(ep);
        self.rejoin(now, ep);
    }

    /// Decides on the groups anew; memberships that are still wanted are used until the new joins are answered.
    pub(super) fn join_others(&mut self, now: Time, ep: EpId) {
        let mut groups = self.wanted_groups(ep);
        let old = std::mem::take(&mut self.eps[ep.0 as usize].groups);
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
        let mut classes = vec![(self.config.min_rate, self.config.min_mtu)];
        let own = (info.rate, info.mtu);
        // further groups only say what a path can do, which the SA says otherwise
        if self.config.route_prot == RouteProt::Acm && own != classes[0] {
            classes.push(own);
        }
        let groups = classes.iter().map(|&(rate, mtu)| Group {
            mgid: group_gid(pkey, rate, mtu),
            rate,
            mtu,
            state: GroupState::Idle,
            joined: None,
            failures: 0,
            refused: false,
        });
        groups.collect()
    }

    /// Joins the endpoint's groups (again); until the answers come the old memberships are used.
    pub(super) fn rejoin(&mut self, now: Time, ep: EpId) {
        self.eps[ep.0 as usize].life += 1;
        // a join is put in front of the queue, so the last one goes first
        for g in (0..self.eps[ep.0 as usize].groups.len()).rev() {
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
            mtu: EXACTLY | g.mtu,
            pkey,
            rate: EXACTLY | g.rate,
            scope_state: SCOPE_SITE_FULL,
            ..McMember::default()
        };
        g.state = GroupState::Joining;
        let mgid = g.mgid;
        let who = SaWho::Join { ep, group, life };
        if self.ports[port.0 as usize].sa.submit(now, who, Ask::Join(rec)).is_err() {
            self.join_failed(now, ep, group, SaError::Down);
        }
        self.log(1, || format!("joining {mgid}"));
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
            if attached != Some(rec.mlid) {
                if let Some(mlid) = attached {
                    self.actions.push_back(Action::Detach { ep, mgid, mlid });
                }
                self.actions.push_back(Action::Attach { ep, mgid, mlid: rec.mlid });
            }
            self.group_joined(now, ep);
            self.announce_moved(now, ep);
        }
        self.log(1, || format!("joined {mgid}, LID {:#06x}", rec.mlid));
    }

    fn join_failed(&mut self, now: Time, ep: EpId, group: usize, error: SaError) {
        let jitter = self.rng.below(1000);
        let Some(g) = self.eps[ep.0 as usize].groups.get_mut(group) else { return };
        let pause = RETRY.saturating_mul(1 << g.failures.min(6)).min(RETRY_MAX);
        let pause = pause / 2 + pause.mul_f64(jitter as f64 / 1000.0);
        g.failures += 1;
        g.state = GroupState::Failed(now.plus(pause));
        g.refused = matches!(error, SaError::Status(_));
        let (mgid, failures) = (g.mgid, g.failures);
        if group == 0 && g.refused && g.joined.is_none() {
            let waiting = std::mem::take(&mut self.eps[ep.0 as usize].await_group);
            for (_, dest) in waiting {
                self.fail_unasked(now, ep, dest, Status::Enodata, "the multicast group cannot be joined");
            }
        }
        // the same failure again and again is no news
        let level = if failures.is_power_of_two() { 0 } else { 1 };
        self.log(level, || format!("cannot join {mgid}: {error}; trying again in {} ms", pause.as_millis()));
    }

    /// There is no first group any more: what was asked in it, or was to be asked, waits for the next one. A request that
    /// waits for its turn has no deadline of its own, and without a group no turn ever comes.
    pub(super) fn await_group_again(&mut self, now: Time, ep: EpId) {
        if self.eps[ep.0 as usize].arp.is_empty() {
            return;
        }
        let limit = self.config.arp(self.info(ep).subnet_timeout).timeout * (self.config.retries + 1);
        let Endpoint { pending, arp, await_group, .. } = &mut self.eps[ep.0 as usize];
        for (dest, p) in pending {
            if let Some(tid) = p.tid.take() {
                arp.close(tid);
                await_group.push_back((now.plus(limit), *dest));
            }
        }
    }

    /// Forgets memberships, because the QP that was attached is gone. Joins on their way are dropped when they come.
    pub(super) fn reset_groups(&mut self, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        e.life += 1;
        e.groups.clear();
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
