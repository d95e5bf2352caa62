//! Link-local IPv6 addresses. They hold on one link only, which here is a partition of a port's subnet, and the protocol
//! has no room for the link: an interface and its child interface usually have the same such address. So a link has to
//! be chosen, where the caller does not know it.

use std::net::IpAddr;

use ibacm_wire::Gid;

use super::Engine;
use super::action::EpId;
use super::local::same_partition;
use crate::addr::Addr;
use crate::cache::State;

/// A link: the GID of an interface's port, and its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The port's GID.
    pub gid: Gid,
    /// The partition.
    pub pkey: u16,
}

/// Whether the address holds on one link only.
pub(super) fn is_link_local(addr: &Addr) -> bool {
    matches!(addr.as_ip(), Some(IpAddr::V6(ip)) if ip.is_unicast_link_local())
}

impl Engine {
    /// The own address to reach a link-local `dest` from, and its endpoint: `source` if that is given, else any
    /// link-local one. Of several endpoints that one which knows the destination, else one on the first partition of
    /// its port, else the first.
    pub(super) fn link_local_source(
        &self,
        source: Option<&Addr>,
        dest: &Addr,
        link: Option<Link>,
    ) -> Option<(Addr, EpId)> {
        let on_link = |ep: &EpId| {
            link.is_none_or(|l| {
                self.info(*ep).gids.contains(&l.gid) && same_partition(l.pkey, self.eps[ep.0 as usize].pkey)
            })
        };
        let wanted = |a: &Addr| source.map_or_else(|| is_link_local(a), |s| s == a);
        let own = self.order.iter().filter(|ep| on_link(ep)).filter_map(|&ep| {
            let mut addrs = self.eps[ep.0 as usize].addrs.iter().flatten().map(|a| a.addr);
            Some((addrs.find(wanted)?, ep))
        });
        // the first of those that are equally good
        own.min_by_key(|(_, ep)| {
            let first_partition = same_partition(self.info(*ep).default_pkey(), self.eps[ep.0 as usize].pkey);
            (!self.knows(*ep, dest), !first_partition)
        })
    }

    /// Whether the endpoint has the address itself or has heard of who has it.
    fn knows(&self, ep: EpId, dest: &Addr) -> bool {
        let e = &self.eps[ep.0 as usize];
        let known = |id| match e.cache.get(id).map(|d| d.state) {
            Some(State::AddrResolved | State::QueryRoute | State::Ready) => true,
            Some(State::QueryAddr) => e.pending.get(&id).is_some_and(|p| p.known.is_some()),
            _ => false,
        };
        e.cache.find(dest).is_some_and(known) || e.has_addr(dest)
    }
}
