//! Ports and what becomes of their endpoints when they change.

use ibacm_wire::Gid;

use super::Engine;
use super::action::{Action, EpId, PortId};
use super::doubt::News;
use super::doubt::doubt;
use super::endpoint::{Endpoint, GroupState, PEER_QUESTIONS};
use super::local::same_partition;
use super::notices::Notices;
use super::plugged::{ProviderId, Shown, is_another};
use super::refresh::Refreshes;
use super::resolve::SaWho;
use super::standing::Told;
use crate::arp::Arp;
use crate::cache::{Cache, State};
use crate::map::Map;
use crate::sa::SaClient;
use crate::sorted::sort_by_key;
use crate::time::Time;
use ibacm_wire::client::{COUNTERS, MORE, Status};
use std::collections::VecDeque;

/// Everything about a port that matters, as queried from its device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortInfo {
    /// Device name.
    pub device: String,
    /// Node GUID, host order.
    pub guid: u64,
    /// Number of the device in the order of opening.
    pub device_order: u32,
    /// Ports of the device.
    pub phys_port_cnt: u8,
    /// Port number, from 1.
    pub port: u8,
    /// It is an InfiniBand port in state ACTIVE.
    pub active: bool,
    /// Base LID, host order.
    pub lid: u16,
    /// LID mask control: the port has 2^lmc LIDs.
    pub lmc: u8,
    /// The subnet manager's LID, host order.
    pub sm_lid: u16,
    /// Service level to it.
    pub sm_sl: u8,
    /// Active MTU (IB enum).
    pub mtu: u8,
    /// Rate of active width and speed (IB enum).
    pub rate: u8,
    /// Exponent of the subnet timeout.
    pub subnet_timeout: u8,
    /// GID table up to its first empty entry.
    pub gids: Vec<Gid>,
    /// P_Key table, host order; unused entries are 0.
    pub pkeys: Vec<u16>,
}

impl PortInfo {
    /// The port's own GID.
    pub fn gid(&self) -> Gid {
        self.gids.first().copied().unwrap_or_default()
    }

    /// Whether `lid` is one of the port's.
    pub fn has_lid(&self, lid: u16) -> bool {
        lid != 0 && self.lid != 0 && (lid ^ self.lid) >> self.lmc.min(7) == 0
    }

    /// Index of the P_Key to ask the SA with: that of 0xffff, else 0x7fff, else 0.
    pub fn sa_pkey_index(&self) -> u16 {
        let find = |key: u16| self.pkeys.iter().position(|p| *p == key);
        find(0xffff).or_else(|| find(0x7fff)).unwrap_or(0) as u16
    }

    /// The P_Key that `default` stands for in the address file: the table's first.
    pub fn default_pkey(&self) -> u16 {
        self.pkeys.first().copied().unwrap_or(0)
    }

    /// Partitions of the port with the index of their P_Key: each once, as full member if it is one.
    fn partitions(&self) -> Vec<(u16, u16)> {
        let mut out: Vec<(u16, u16)> = Vec::new();
        for (i, &pkey) in self.pkeys.iter().enumerate().filter(|(_, p)| **p & 0x7fff != 0) {
            match out.iter_mut().find(|(_, p)| same_partition(*p, pkey)) {
                Some(known) if pkey > known.1 => *known = (i as u16, pkey),
                Some(_) => {}
                None => out.push((i as u16, pkey)),
            }
        }
        out
    }
}

pub(super) struct Port {
    pub info: PortInfo,
    /// When it was first active after the preload files were read, or when they were.
    pub preloaded_since: Option<Time>,
    pub sa: SaClient<SaWho>,
    pub notices: Notices,
    pub news: News,
    /// Who serves it while it is active, if not the built-in provider.
    pub provider: Option<ProviderId>,
    pub shown: Shown,
    pub told: Told,
}

impl Engine {
    /// Tells how a port is now: a new one, or one that is told apart from others by device name and number. Only what
    /// the change makes false is thrown away.
    pub fn set_port(&mut self, now: Time, info: PortInfo) -> PortId {
        let known = self.ports.iter().position(|p| p.info.device == info.device && p.info.port == info.port);
        let Some(i) = known else {
            let sa = SaClient::new(self.config.sa(), &mut self.rng);
            let id = PortId(self.ports.len() as u32);
            let preloaded_since = info.active.then_some(now);
            let (notices, news, shown, told) = Default::default();
            let provider = self.providers.of(&info);
            self.ports.push(Port { info, preloaded_since, sa, notices, news, provider, shown, told });
            self.say_provider(id);
            self.refresh();
            self.say_preloaded(id);
            return id;
        };
        let id = PortId(i as u32);
        if self.ports[i].info == info {
            // ports are looked at every now and then, and a host may have hundreds
            return id;
        }
        let old = std::mem::replace(&mut self.ports[i].info, info);
        if self.ports[i].info.active {
            self.ports[i].preloaded_since.get_or_insert(now);
        }
        let new = &self.ports[i].info;
        let stays = old.active && new.active;
        let moved = stays && (old.lid != new.lid || old.lmc != new.lmc || old.gid() != new.gid());
        let speed = stays && (old.rate, old.mtu) != (new.rate, new.mtu);
        let limits = old.subnet_timeout != new.subnet_timeout;
        let new_sm = stays && (old.sm_lid, old.sm_sl) != (new.sm_lid, new.sm_sl);
        // the kernel repeats a question with the index that it was sent with, which is another partition's now
        let new_index = stays && old.sa_pkey_index() != new.sa_pkey_index();
        let provider = self.providers.of(new);
        // for those who have it and for those who get it, a port that changes hands goes down and comes up
        let passed = stays && provider != self.ports[i].provider;
        let down = old.active && !new.active || passed;
        let up = !old.active && new.active || passed;
        if up || stays && is_another(&old, new) {
            let shown = &mut self.ports[i].shown;
            shown.generation = shown.generation.wrapping_add(1);
        }
        if new_sm || new_index {
            self.ports[i].sa.resend_all(now);
        }
        if down {
            self.port_down(now, id);
        }
        self.ports[i].provider = provider;
        if up {
            self.say_provider(id);
        }
        if up || new_sm {
            self.subscribe_again(now, id);
        }
        if limits {
            let config = self.config.arp(self.ports[i].info.subnet_timeout);
            self.eps.iter_mut().filter(|e| e.port == id).for_each(|e| e.arp.set_config(config));
        }
        self.refresh();
        if up {
            self.pay_reregister(now, id);
        }
        if moved || !stays {
            self.say_preloaded(id);
        }
        if speed {
            for ep in self.port_eps(id) {
                self.speed_changed(now, ep);
            }
        }
        if moved {
            for ep in self.port_eps(id) {
                self.doubt_paths(ep);
                self.rejoin(now, ep);
            }
        }
        for ep in self.port_eps(id) {
            // an endpoint whose P_Key has moved has lost its group
            self.pump_arp(now, ep);
        }
        self.pump_sa(now, id);
        id
    }

    /// The port's device is gone.
    pub fn port_gone(&mut self, now: Time, port: PortId) {
        let Some(p) = self.ports.get(port.0 as usize) else { return };
        let info = PortInfo { active: false, ..p.info.clone() };
        self.set_port(now, info);
    }

    /// The subnet manager wants every group to be joined again.
    pub fn reregister(&mut self, now: Time, port: PortId) {
        if self.reregister_plugged(now, port) {
            return;
        }
        for ep in self.port_eps(port) {
            self.rejoin_lost(now, ep);
        }
        self.subscribe_again(now, port);
        self.pump_sa(now, port);
    }

    /// Ports as they were last told.
    pub fn port(&self, port: PortId) -> Option<&PortInfo> {
        self.ports.get(port.0 as usize).map(|p| &p.info)
    }

    pub(super) fn info(&self, ep: EpId) -> &PortInfo {
        &self.ports[self.eps[ep.0 as usize].port.0 as usize].info
    }

    pub(super) fn port_eps(&self, port: PortId) -> Vec<EpId> {
        let ids = (0..self.eps.len() as u32).map(EpId);
        ids.filter(|e| self.eps[e.0 as usize].port == port && self.eps[e.0 as usize].up).collect()
    }

    fn port_down(&mut self, now: Time, port: PortId) {
        for ep in self.port_eps(port) {
            self.endpoint_down(ep);
        }
        self.ports[port.0 as usize].notices.forget();
        let asked = self.ports[port.0 as usize].sa.drain();
        for who in asked {
            self.sa_lost(now, who);
        }
    }

    /// Brings endpoints and their addresses in line with ports, P_Keys, interfaces and names.
    pub(super) fn refresh(&mut self) {
        self.routes.clear();
        for i in 0..self.ports.len() {
            let port = PortId(i as u32);
            let parts = if self.ports[i].info.active { self.ports[i].info.partitions() } else { Vec::new() };
            for ep in self.port_eps(port) {
                if !parts.iter().any(|(_, p)| same_partition(*p, self.eps[ep.0 as usize].pkey)) {
                    self.endpoint_down(ep);
                }
            }
            for (index, pkey) in parts {
                self.refresh_partition(port, index, pkey);
            }
        }
        self.order = (0..self.eps.len() as u32).map(EpId).filter(|e| self.eps[e.0 as usize].up).collect();
        let mut order = std::mem::take(&mut self.order);
        // the last opened device first, its ports in turn, the newest endpoint of a port first
        sort_by_key(&mut order, |e| {
            let (info, serial) = (self.info(*e), self.eps[e.0 as usize].serial);
            (std::cmp::Reverse(info.device_order), info.port, std::cmp::Reverse(serial))
        });
        self.order = order;
        self.index_local();
        self.tell_plugged();
        self.tell_at = Time(0);
    }

    fn refresh_partition(&mut self, port: PortId, pkey_index: u16, pkey: u16) {
        let wanted = self.addrs_for(&self.ports[port.0 as usize].info, pkey);
        let known = self.eps.iter().position(|e| e.port == port && same_partition(e.pkey, pkey));
        let i = match known {
            Some(i) => i,
            None if wanted.is_empty() => return,
            None => {
                self.eps.push(self.new_endpoint(port, pkey, pkey_index));
                self.eps.len() - 1
            }
        };
        let (ep, e) = (EpId(i as u32), &mut self.eps[i]);
        if !e.up {
            if wanted.is_empty() {
                return;
            }
            (e.up, e.pkey, e.pkey_index) = (true, pkey, pkey_index);
            e.provider = self.ports[port.0 as usize].provider;
            if e.provider.is_none() {
                self.actions.push_back(Action::Open { ep, port, pkey_index });
            }
        } else if wanted.is_empty() {
            // as if the service had been started now
            self.endpoint_closed(ep, true);
        } else if e.pkey_index != pkey_index || e.pkey != pkey {
            // the QP names its P_Key by index; what is known of others stays true
            (e.pkey, e.pkey_index, e.qpn) = (pkey, pkey_index, None);
            if e.provider.is_none() {
                self.reset_groups(ep);
                self.actions.push_back(Action::Close { ep });
                self.actions.push_back(Action::Open { ep, port, pkey_index });
            }
        }
        self.set_endpoint_addrs(ep, wanted);
    }

    fn new_endpoint(&self, port: PortId, pkey: u16, pkey_index: u16) -> Endpoint {
        let subnet_timeout = self.ports[port.0 as usize].info.subnet_timeout;
        Endpoint {
            port,
            pkey,
            pkey_index,
            up: false,
            provider: None,
            qpn: None,
            serial: self.eps.len() as u64,
            addrs: Vec::new(),
            groups: Vec::new(),
            life: 0,
            era: 1,
            outage: 1,
            rejoining: None,
            cache: Cache::new(self.key, self.config.max_destinations),
            pending: Map::new(),
            await_group: VecDeque::new(),
            overdue: VecDeque::new(),
            arp: Arp::new(self.config.arp(subnet_timeout)),
            refreshes: Refreshes::new(),
            verified: Default::default(),
            peer_questions: PEER_QUESTIONS,
            responses: VecDeque::new(),
            responses_sent: 0,
            announcement: Default::default(),
            counters: [0; COUNTERS],
            more: [0; MORE],
        }
    }

    /// The endpoint's QP goes; whoever waits is told, what is known of others is kept but doubted.
    fn endpoint_down(&mut self, ep: EpId) {
        self.endpoint_closed(ep, false);
    }

    /// The same; with `port_stays`, questions for paths by GID or LID are answered all the same, for which the SA is all
    /// that is needed.
    fn endpoint_closed(&mut self, ep: EpId, port_stays: bool) {
        let e = &mut self.eps[ep.0 as usize];
        e.up = false;
        e.qpn = None;
        e.responses.clear();
        e.refreshes.clear();
        e.responses_sent = 0;
        if e.provider.is_none() {
            self.actions.push_back(Action::Close { ep });
        }
        self.reset_groups(ep);
        self.fail_all(ep, Status::Enotconn, port_stays);
        self.doubt_paths(ep);
        let name = self.name_of(ep);
        self.log_own(1, || format!("endpoint {name} is down"));
    }

    /// Cached paths are asked for again when they are next used; own addresses are written anew.
    pub(super) fn doubt_paths(&mut self, ep: EpId) {
        for d in self.eps[ep.0 as usize].cache.iter_mut().filter(|d| d.is_learned()) {
            match d.state {
                State::Ready => doubt(d, false),
                _ => d.epoch = d.epoch.wrapping_add(1),
            }
        }
        self.doubt_preloaded(ep);
        self.write_loopbacks(ep);
    }

    /// The endpoint's QP exists.
    pub fn endpoint_opened(&mut self, now: Time, ep: EpId, qpn: u32) {
        let Some(e) = self.eps.get_mut(ep.0 as usize).filter(|e| e.up && e.provider.is_none()) else { return };
        e.qpn = Some(qpn);
        self.announce_opened(ep);
        let e = &mut self.eps[ep.0 as usize];
        // what an earlier QP had still to send is gone with it, and nobody will tell of its end
        e.responses_sent = 0;
        self.pump_responses(ep);
        self.join_all(now, ep);
        self.pump_sa(now, self.eps[ep.0 as usize].port);
    }

    /// The endpoint's QP could not be made: it serves what needs no group; the caller may try again and call
    /// [`Engine::endpoint_opened`] later.
    pub fn endpoint_failed(&mut self, ep: EpId, why: &str) {
        if self.eps.get(ep.0 as usize).is_none() {
            return;
        }
        let name = self.name_of(ep);
        self.log(0, || format!("cannot open endpoint {name}: {why}"));
    }

    /// How an endpoint is called where people read it.
    pub(super) fn name_of(&self, ep: EpId) -> String {
        let e = &self.eps[ep.0 as usize];
        format!("{} pkey {:#06x}", self.ports[e.port.0 as usize].name(), e.pkey)
    }

    /// Whether a port of this device was ever told of.
    pub fn knows_device(&self, device: &str) -> bool {
        self.ports.iter().any(|p| p.info.device == device)
    }

    /// How many endpoints are to have a QP.
    pub fn endpoint_count(&self) -> usize {
        let plugged = |ep: &&EpId| self.eps[ep.0 as usize].provider.is_some();
        let plugged = if self.providers.names.is_empty() { 0 } else { self.order.iter().filter(plugged).count() };
        self.order.len() - plugged
    }

    /// Whether the endpoint is to have a QP.
    pub fn endpoint_wanted(&self, ep: EpId) -> Option<(PortId, u16)> {
        let e = self.eps.get(ep.0 as usize).filter(|e| e.up && e.provider.is_none())?;
        Some((e.port, e.pkey_index))
    }

    /// Whether the endpoint can ask and answer: its first group is joined.
    pub fn is_joined(&self, ep: EpId) -> bool {
        let first = self.eps.get(ep.0 as usize).and_then(|e| e.groups.first());
        first.is_some_and(|g| g.state == GroupState::Joined)
    }
}
