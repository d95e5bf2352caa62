//! Addresses of this host: which endpoint has which, from the interfaces and the address file.

use std::collections::VecDeque;
use std::net::IpAddr;

use ibacm_wire::{Gid, PathRecord, path};

use super::Engine;
use super::action::EpId;
use super::endpoint::LocalAddr;
use super::ports::PortInfo;
use crate::addr::Addr;
use crate::cache::{Origin, State};
use crate::keyed::SipKey;
use crate::map::Map;
use crate::table::Table;
use crate::time::Time;

/// An address of an IPoIB interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemAddr {
    /// The address.
    pub ip: IpAddr,
    /// Bits of its prefix.
    pub prefix_len: u8,
    /// The interface's port GID.
    pub gid: Gid,
    /// The interface's partition.
    pub pkey: u16,
}

/// Which partition a line of the address file means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PkeyChoice {
    /// The first of the port's table.
    Default,
    /// This one.
    Pkey(u16),
}

/// A line of the address file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalName {
    /// The name or address.
    pub addr: Addr,
    /// As it is shown.
    pub text: Vec<u8>,
    /// Device name, compared without case.
    pub device: String,
    /// Port number.
    pub port: u8,
    /// Partition.
    pub pkey: PkeyChoice,
}

/// Whether two P_Keys name one partition: they differ at most in the membership bit.
pub(super) fn same_partition(a: u16, b: u16) -> bool {
    (a ^ b) & 0x7fff == 0
}

/// Finds the endpoint of an own address.
pub(super) struct LocalIndex {
    key: SipKey,
    table: Table,
    list: Vec<(Addr, EpId)>,
}

impl LocalIndex {
    pub fn new(key: SipKey) -> LocalIndex {
        LocalIndex { key, table: Table::new(), list: Vec::new() }
    }

    /// The address's number in the index and its endpoint; the number holds until addresses or ports change.
    pub fn find(&self, addr: &Addr) -> Option<(u32, EpId)> {
        let i = self.table.find(addr.hash(&self.key), |i| self.list[i as usize].0 == *addr)?;
        Some((i, self.list[i as usize].1))
    }

    pub fn get(&self, i: u32) -> Option<&Addr> {
        self.list.get(i as usize).map(|(a, _)| a)
    }

    fn clear(&mut self) {
        self.table.clear();
        self.list.clear();
    }

    fn add(&mut self, addr: Addr, ep: EpId) {
        if self.find(&addr).is_none() {
            self.table.insert(addr.hash(&self.key), self.list.len() as u32);
            self.list.push((addr, ep));
        }
    }
}

impl Engine {
    /// Tells all addresses of all IPoIB interfaces, as they are now.
    pub fn set_system_addrs(&mut self, addrs: Vec<SystemAddr>) {
        if addrs != self.system {
            self.system = addrs;
            self.refresh();
        }
    }

    /// Tells the lines of the address file.
    pub fn set_names(&mut self, names: Vec<LocalName>) {
        self.names = names;
        self.refresh();
    }

    pub(super) fn addrs_for(&self, port: &PortInfo, pkey: u16) -> Vec<LocalAddr> {
        let system = self.system.iter().filter(|s| port.gids.contains(&s.gid) && same_partition(s.pkey, pkey));
        let system =
            system.map(|s| LocalAddr { addr: Addr::ip(s.ip), text: format!("{}/{}", s.ip, s.prefix_len).into_bytes() });
        let names = self.names.iter().filter(|n| {
            let named = match n.pkey {
                PkeyChoice::Default => port.default_pkey(),
                PkeyChoice::Pkey(p) => p,
            };
            n.device.eq_ignore_ascii_case(&port.device) && n.port == port.port && same_partition(named, pkey)
        });
        let names = names.map(|n| LocalAddr { addr: n.addr, text: n.text.clone() });
        let mut seen = Map::new();
        system.chain(names).filter(|a| seen.insert(a.addr, ()).is_none()).collect()
    }

    /// Makes `wanted` the endpoint's addresses; those that stay keep their place in the list.
    pub(super) fn set_endpoint_addrs(&mut self, ep: EpId, wanted: Vec<LocalAddr>) {
        let e = &mut self.eps[ep.0 as usize];
        let mut wanted_addrs = Map::new();
        for w in &wanted {
            wanted_addrs.insert(w.addr, ());
        }
        let mut gone = Vec::new();
        let mut stay = Map::new();
        let mut free = VecDeque::new();
        for (number, place) in e.addrs.iter_mut().enumerate() {
            match place {
                Some(a) if wanted_addrs.remove(&a.addr).is_some() => drop(stay.insert(a.addr, number)),
                _ => {
                    gone.extend(place.take().map(|a| a.addr));
                    free.push_back(number);
                }
            }
        }
        let mut come = Vec::new();
        for w in wanted {
            if let Some(a) = stay.get(&w.addr).and_then(|number| e.addrs.get_mut(*number)?.as_mut()) {
                a.text = w.text;
                continue;
            }
            come.push(w.addr);
            match free.pop_front().and_then(|number| e.addrs.get_mut(number)) {
                Some(place) => *place = Some(w),
                None => e.addrs.push(Some(w)),
            }
        }
        let name = self.name_of(ep);
        for addr in &gone {
            self.forget_local(ep, addr);
            self.log_own(1, || format!("address {addr} is gone from {name}"));
        }
        for addr in &come {
            self.disown(ep, addr);
            if self.eps[ep.0 as usize].provider.is_none() {
                self.announce_address(ep, addr);
            }
            self.log_own(1, || format!("address {addr} is served on {name}"));
        }
        self.write_loopbacks(ep);
    }

    fn forget_local(&mut self, ep: EpId, addr: &Addr) {
        let cache = &mut self.eps[ep.0 as usize].cache;
        if let Some(id) = cache.find(addr)
            && cache.get(id).is_some_and(|d| d.origin == Origin::Local)
        {
            cache.remove(id);
        }
    }

    /// What was known of an address as somebody else's is void once it is an own one.
    fn disown(&mut self, ep: EpId, addr: &Addr) {
        let e = &mut self.eps[ep.0 as usize];
        let Some(id) = e.cache.find(addr) else { return };
        e.cache.demote(id, e.pending.contains_key(&id));
        if let Some(d) = e.cache.get_mut(id)
            && d.is_learned()
            && matches!(d.state, State::Ready | State::AddrResolved)
        {
            d.state = State::Init;
        }
    }

    /// Puts the endpoint's own addresses into its cache, so that they resolve without the fabric.
    pub(super) fn write_loopbacks(&mut self, ep: EpId) {
        if !self.config.loopback_local || self.eps[ep.0 as usize].provider.is_some() {
            return;
        }
        let path = self.loopback_path(ep);
        let addrs: Vec<Addr> = self.eps[ep.0 as usize].addrs.iter().flatten().map(|a| a.addr).collect();
        for addr in addrs {
            let known = self.eps[ep.0 as usize].cache.find(&addr);
            let foreign =
                |e: &Engine, id| e.eps[ep.0 as usize].cache.get(id).is_some_and(|d| d.origin != Origin::Local);
            let id = match known {
                Some(id) if foreign(self, id) => {
                    // it was somebody else's; whoever waits for it gets the own one
                    let pending = self.take_pending(ep, id);
                    let cache = &mut self.eps[ep.0 as usize].cache;
                    cache.remove(id);
                    let new = cache.insert(&addr, Origin::Local, false);
                    if let (Some(new), Some(pending)) = (new, pending) {
                        self.set_ready(ep, new, &path);
                        self.answer_waiters(ep, new, pending, Ok(()));
                    }
                    new
                }
                Some(id) => Some(id),
                None => self.eps[ep.0 as usize].cache.insert(&addr, Origin::Local, false),
            };
            if let Some(id) = id {
                self.set_ready(ep, id, &path);
            }
        }
    }

    /// Own addresses resolve from what is known locally from now on, or they do no longer.
    pub(super) fn loopback_changed(&mut self, ep: EpId) {
        if self.config.loopback_local {
            return self.write_loopbacks(ep);
        }
        let addrs: Vec<Addr> = self.eps[ep.0 as usize].addrs.iter().flatten().map(|a| a.addr).collect();
        for addr in addrs {
            self.forget_local(ep, &addr);
        }
    }

    fn set_ready(&mut self, ep: EpId, id: crate::cache::DestId, path: &PathRecord) {
        if let Some(d) = self.eps[ep.0 as usize].cache.get_mut(id)
            && d.origin == Origin::Local
        {
            (d.state, d.path) = (State::Ready, *path);
            (d.addr_expiry, d.route_expiry) = (Time::NEVER, Time::NEVER);
        }
    }

    /// The path from the endpoint to itself: the port's own GID, LID, MTU and rate, and nothing else.
    fn loopback_path(&self, ep: EpId) -> PathRecord {
        let info = self.info(ep);
        let mut p = PathRecord::default();
        p.set_dgid(info.gid());
        p.set_sgid(info.gid());
        p.set_dlid(info.lid);
        p.set_slid(info.lid);
        p.set_reversible_numpath(path::REVERSIBLE);
        p.set_pkey(self.eps[ep.0 as usize].pkey);
        p.set_mtu(info.mtu);
        p.set_rate(info.rate);
        p
    }

    pub(super) fn index_local(&mut self) {
        self.local.clear();
        for &ep in &self.order {
            for a in self.eps[ep.0 as usize].addrs.iter().flatten() {
                self.local.add(a.addr, ep);
            }
        }
    }
}
