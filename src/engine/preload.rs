//! What the preload files say, where it is asked for: paths from a port, and addresses as entries of a cache.
//!
//! Paths stay in the files' own compact form and are put together for each answer. An address becomes an entry of an
//! endpoint's cache when it is first asked for; such an entry never makes room for others, nobody on the fabric can
//! change it, and own addresses come before it.
//!
//! As with what was learned, an address is good for `addr_timeout` and its path for `route_timeout` too, both counted
//! from when the files were read, or the port came up first after that. Then the files count no longer and the fabric
//! is asked.

use ibacm_wire::client::More;
use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};

use super::Engine;
use super::action::{EpId, PortId};
use crate::addr::Addr;
use crate::cache::{DestId, Origin, State};
use crate::preload::Preload;
use crate::time::Time;

/// How a destination is named in a question.
enum To {
    Lid(u16),
    Gid(Gid),
}

impl Engine {
    /// Tells what the preload files say, in the place of what they said before, and of what was learned.
    pub fn set_preload(&mut self, now: Time, preload: Preload) {
        self.preload = preload;
        for p in &mut self.ports {
            p.preloaded_since = p.info.active.then_some(now);
        }
        for i in 0..self.eps.len() as u32 {
            self.doubt_preloaded(EpId(i));
            self.forget_learned(EpId(i));
        }
        for i in 0..self.ports.len() as u32 {
            self.say_preloaded(PortId(i));
        }
    }

    /// GUIDs of all ports that there ever were, which is whose paths are of interest.
    pub fn port_guids(&self) -> Vec<u64> {
        self.ports.iter().map(|p| p.info.gid().interface_id()).filter(|guid| *guid != 0).collect()
    }

    /// Logs what is preloaded for a port.
    pub(super) fn say_preloaded(&mut self, port: PortId) {
        let served = self.ports.get(port.0 as usize).filter(|p| p.info.active && p.provider.is_none());
        let Some(info) = served.map(|p| &p.info) else { return };
        if self.preload.routes.is_empty() {
            return;
        }
        let (device, number, guid, lid) = (info.device.clone(), info.port, info.gid().interface_id(), info.lid);
        match self.preload.routes.from(guid, lid).map(|r| r.len()) {
            Some(n) => self.log(1, || format!("{device} port {number}: {n} paths are preloaded")),
            None => self.log(0, || {
                format!("{device} port {number}: no paths are preloaded from port {guid:#018x} with LID {lid}")
            }),
        }
    }

    /// Until when the files count for the endpoint: addresses, and paths.
    fn preloaded_until(&self, ep: EpId) -> (Time, Time) {
        let since = self.ports[self.eps[ep.0 as usize].port.0 as usize].preloaded_since.unwrap_or_default();
        let address = since.plus_minutes(self.config.addr_timeout);
        (address, address.min(since.plus_minutes(self.config.route_timeout)))
    }

    fn preloaded_path(&self, now: Time, ep: EpId, to: To) -> Option<PathRecord> {
        let info = self.info(ep);
        let own = info.gid();
        let from = self.preload.routes.from(own.interface_id(), info.lid)?;
        let (route, guid) = match to {
            To::Lid(lid) => from.to_lid(lid)?,
            To::Gid(gid) if gid.subnet_prefix() == own.subnet_prefix() => {
                (from.to_guid(gid.interface_id())?, gid.interface_id())
            }
            To::Gid(_) => return None,
        };
        let itself = route.lid == info.lid;
        if !itself && now >= self.preloaded_until(ep).1 {
            return None;
        }
        let mut gid = own;
        gid.0[8..].copy_from_slice(&guid.to_be_bytes());
        let mut p = PathRecord::default();
        p.set_dgid(gid);
        p.set_sgid(own);
        p.set_dlid(route.lid);
        p.set_slid(info.lid);
        p.set_reversible_numpath(REVERSIBLE);
        p.set_pkey(self.eps[ep.0 as usize].pkey);
        p.set_qos_sl(u16::from(route.sl));
        p.set_mtu(route.mtu);
        p.set_rate(route.rate);
        p.set_packet_lifetime(if itself { 0 } else { info.subnet_timeout });
        Some(p)
    }

    /// The preloaded path that answers a question, all of whose own ends are filled in. Only one that names nothing but
    /// the ends is answered: the files do not say what the SA makes of a service id or a QoS class.
    pub(super) fn preloaded_answer(&self, now: Time, ep: EpId, question: &PathRecord) -> Option<PathRecord> {
        let to = match question.dlid() {
            0 => To::Gid(question.dgid()),
            lid => To::Lid(lid),
        };
        let p = self.preloaded_path(now, ep, to)?;
        let mut plain = PathRecord::default();
        plain.set_sgid(p.sgid());
        plain.set_slid(p.slid());
        plain.set_pkey(p.pkey());
        plain.set_reversible_numpath(question.reversible_numpath() & p.reversible_numpath());
        if question.dlid() != 0 {
            plain.set_dlid(p.dlid());
        }
        if !question.dgid().is_zero() {
            plain.set_dgid(p.dgid());
        }
        (plain == *question).then_some(p)
    }

    /// The entry for `addr`, which is `known` if there is one already: one that the files can fill is filled, one that
    /// they no longer fill becomes like any other.
    pub(super) fn preloaded_dest(&mut self, now: Time, ep: EpId, known: Option<DestId>, addr: &Addr) -> Option<DestId> {
        if let Some(d) = known.and_then(|id| self.eps[ep.0 as usize].cache.get(id)) {
            let stays = match d.state {
                State::QueryAddr | State::QueryRoute => true,
                State::Ready | State::AddrResolved | State::Failed(_) => now < d.addr_expiry,
                State::Init => false,
            };
            if d.origin != Origin::Preloaded || stays {
                return known;
            }
        }
        let gid = self.preloaded_gid(now, ep, addr);
        let path = gid.and_then(|g| self.preloaded_path(now, ep, To::Gid(g)));
        let (addr_expiry, route_expiry) = self.preloaded_until(ep);
        let cache = &mut self.eps[ep.0 as usize].cache;
        let Some(gid) = gid else {
            if let Some(id) = known {
                cache.demote(id, false);
                if let Some(d) = cache.get_mut(id) {
                    d.state = State::Init;
                }
            }
            return known;
        };
        let id = known.or_else(|| cache.insert(addr, Origin::Preloaded, false))?;
        let d = cache.get_mut(id)?;
        d.addr_expiry = addr_expiry;
        match path {
            Some(p) => (d.path, d.state, d.route_expiry) = (p, State::Ready, route_expiry),
            None => {
                d.path = PathRecord::default();
                d.path.set_dgid(gid);
                (d.state, d.route_expiry) = (State::AddrResolved, Time::NEVER);
            }
        }
        self.count_more(ep, More::AddrPreload);
        Some(id)
    }

    /// The GID that the files give an address, if that can be.
    fn preloaded_gid(&self, now: Time, ep: EpId, addr: &Addr) -> Option<Gid> {
        let gid = self.preload.hosts.find(addr)?;
        let contradicts = self.eps[ep.0 as usize].has_addr(addr) && !self.info(ep).gids.contains(&gid);
        (now < self.preloaded_until(ep).0 && !contradicts).then_some(gid)
    }

    /// Takes entries out that the files could fill and that nobody waits for.
    fn forget_learned(&mut self, ep: EpId) {
        if self.preload.hosts.is_empty() {
            return;
        }
        let (hosts, e) = (&self.preload.hosts, &mut self.eps[ep.0 as usize]);
        let learned = e.cache.iter().filter(|(id, d)| d.is_learned() && !e.pending.contains_key(id));
        let given: Vec<DestId> = learned.filter(|(_, d)| hosts.find(&d.addr()).is_some()).map(|(id, _)| id).collect();
        given.into_iter().for_each(|id| e.cache.remove(id));
    }

    /// Preloaded entries of the endpoint are filled again when they are next asked for: its port has changed, or the
    /// files have.
    pub(super) fn doubt_preloaded(&mut self, ep: EpId) {
        let entries = self.eps[ep.0 as usize].cache.iter_mut().filter(|d| d.origin == Origin::Preloaded);
        for d in entries {
            d.epoch = d.epoch.wrapping_add(1);
            if !matches!(d.state, State::QueryAddr | State::QueryRoute) {
                d.state = State::Init;
            }
        }
    }
}
