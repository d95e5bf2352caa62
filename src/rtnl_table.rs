//! The InfiniBand interfaces of this host and their addresses: pure, fed with parsed messages.
//!
//! A full dump is a round: what it does not mention is gone at its end. The port GID and the
//! partition come from sysfs where netlink does not have them; those files may appear a little
//! after the interface, so that reading them is repeated for some seconds.

use std::net::IpAddr;

use ibacm_wire::Gid;

use crate::few::Few;
use crate::map::Map;
use crate::neighbours::Place;
use crate::rtnl_parse::{Addr, HARDWARE, INFINIBAND, Link};
use crate::sorted::sort_by_key;

/// Interfaces that are kept; more are counted and left out.
pub const MAX_INTERFACES: usize = 4096;
/// Addresses that are kept; more are counted and left out.
pub const MAX_ADDRESSES: usize = 65_536;
/// The first wait before sysfs is read again, in microseconds; it doubles each time.
const RETRY_US: u64 = 20_000;
/// After the wait that is longer than this nothing is tried until the interface changes again.
const LAST_RETRY_US: u64 = 10_000_000;

/// One address of this host that has a place on an InfiniBand port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SystemAddr {
    /// The interface's number.
    pub ifindex: u32,
    /// The interface's name, for people.
    pub ifname: String,
    /// The GID of the port, network order.
    pub gid: [u8; 16],
    /// The partition, always with the full-member bit.
    pub pkey: u16,
    /// The address.
    pub ip: IpAddr,
    /// Bits of its network's prefix.
    pub prefix_len: u8,
}

/// What sysfs says of an interface; `None` for what it does not (yet) say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sysfs {
    /// The hardware address.
    pub hardware: Option<[u8; HARDWARE]>,
    /// The partition.
    pub pkey: Option<u16>,
}

#[derive(Clone, Debug)]
struct Interface {
    name: Vec<u8>,
    /// As netlink last told.
    hardware: Option<[u8; HARDWARE]>,
    is_up: bool,
    broadcast_pkey: Option<u16>,
    sysfs: Sysfs,
    /// Addresses with the round that last told of them.
    addrs: Map<(IpAddr, u8), u32>,
    round: u32,
    /// When sysfs is to be read.
    due: Option<u64>,
    /// The wait after that.
    wait: u64,
    /// What sysfs says may be about to change.
    doubted: bool,
}

impl Interface {
    fn gid(&self) -> Option<[u8; 16]> {
        let hardware = self.hardware.or(self.sysfs.hardware)?;
        hardware.last_chunk().copied()
    }

    fn pkey(&self) -> Option<u16> {
        self.sysfs.pkey.or(self.broadcast_pkey).map(|pkey| pkey | 0x8000)
    }

    fn is_complete(&self) -> bool {
        self.sysfs.pkey.is_some() && self.gid().is_some()
    }

    fn probe(&mut self, now_us: u64) {
        self.due = Some(now_us);
        self.wait = RETRY_US;
        self.doubted = false;
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    interfaces: Few<u32, Interface>,
    addresses: usize,
    round: u32,
    changed: bool,
    /// Interfaces and addresses that did not fit.
    pub left_out: u64,
}

impl Table {
    /// A full dump begins.
    pub fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Interfaces that the dump did not tell of are gone.
    pub fn sweep_links(&mut self) {
        let round = self.round;
        let gone: Vec<u32> =
            self.interfaces.iter().filter(|(_, interface)| interface.round != round).map(|(index, _)| index).collect();
        for index in gone {
            self.link_gone(index);
        }
    }

    /// Addresses that the dump did not tell of are gone.
    pub fn sweep_addrs(&mut self) {
        let round = self.round;
        let mut gone = 0;
        for interface in self.interfaces.values_mut() {
            let before = interface.addrs.len();
            interface.addrs.retain(|_, told| *told == round);
            gone += before - interface.addrs.len();
        }
        self.addresses = self.addresses.saturating_sub(gone);
        self.changed |= gone > 0;
    }

    /// An interface is there or has changed. True if it was not known as an InfiniBand one: it
    /// may have addresses that were not noted.
    pub fn link(&mut self, link: Link, now_us: u64) -> bool {
        if link.kind != INFINIBAND {
            self.link_gone(link.index);
            return false;
        }
        let full = self.interfaces.len() >= MAX_INTERFACES;
        let Some(known) = self.interfaces.get_mut(link.index) else {
            if full {
                self.left_out += 1;
                return false;
            }
            self.interfaces.get_or_insert_with(link.index, || Interface {
                name: link.name,
                hardware: link.hardware,
                is_up: link.is_up,
                broadcast_pkey: link.broadcast_pkey,
                sysfs: Sysfs::default(),
                addrs: Map::new(),
                round: self.round,
                due: Some(now_us),
                wait: RETRY_US,
                doubted: false,
            });
            return true;
        };
        known.round = self.round;
        let before = (known.gid(), known.pkey());
        let renamed = !link.name.is_empty() && link.name != known.name;
        if renamed {
            known.name = link.name;
        }
        let moved = link.hardware != known.hardware || link.broadcast_pkey != known.broadcast_pkey;
        known.hardware = link.hardware;
        known.is_up = link.is_up;
        known.broadcast_pkey = link.broadcast_pkey;
        if renamed || moved || !known.is_complete() {
            known.probe(now_us);
        }
        self.changed |= !known.addrs.is_empty() && (renamed || before != (known.gid(), known.pkey()));
        false
    }

    /// An interface is gone, or is no InfiniBand one any more.
    pub fn link_gone(&mut self, index: u32) {
        if let Some(interface) = self.interfaces.remove(index) {
            self.addresses = self.addresses.saturating_sub(interface.addrs.len());
            self.changed |= !interface.addrs.is_empty();
        }
    }

    /// An address is there.
    pub fn addr(&mut self, addr: Addr) {
        let Some(interface) = self.interfaces.get_mut(addr.index) else { return };
        let key = (addr.ip, addr.prefix_len);
        if let Some(told) = interface.addrs.get_mut(&key) {
            *told = self.round;
        } else if self.addresses >= MAX_ADDRESSES {
            self.left_out += 1;
        } else {
            interface.addrs.insert(key, self.round);
            self.addresses += 1;
            self.changed = true;
        }
    }

    /// An address is gone.
    pub fn addr_gone(&mut self, addr: Addr) {
        let Some(interface) = self.interfaces.get_mut(addr.index) else { return };
        if interface.addrs.remove(&(addr.ip, addr.prefix_len)).is_some() {
            self.addresses = self.addresses.saturating_sub(1);
            self.changed = true;
        }
    }

    /// Sysfs is to be read for all interfaces again, and not once only: an interface follows its port a little later,
    /// and the kernel does not tell when.
    pub fn probe_all(&mut self, now_us: u64) {
        for interface in self.interfaces.values_mut() {
            interface.probe(now_us);
            interface.doubted = true;
        }
    }

    /// When sysfs is to be read next.
    #[must_use]
    pub fn next_probe(&self) -> Option<u64> {
        self.interfaces.values().filter_map(|interface| interface.due).min()
    }

    /// Interfaces (number and name) whose sysfs files are to be read now, at most `limit`.
    #[must_use]
    pub fn due(&self, now_us: u64, limit: usize) -> Vec<(u32, Vec<u8>)> {
        self.interfaces
            .iter()
            .filter(|(_, interface)| interface.due.is_some_and(|due| due <= now_us))
            .map(|(index, interface)| (index, interface.name.clone()))
            .take(limit)
            .collect()
    }

    /// What sysfs says. What it does not say stays as it was, and is asked again later.
    pub fn probed(&mut self, index: u32, found: Sysfs, now_us: u64) {
        let Some(interface) = self.interfaces.get_mut(index) else { return };
        let before = (interface.gid(), interface.pkey());
        interface.sysfs.hardware = found.hardware.or(interface.sysfs.hardware);
        interface.sysfs.pkey = found.pkey.or(interface.sysfs.pkey);
        if interface.hardware.is_some() && found.hardware.is_some() {
            // the same address that netlink told, read later
            interface.hardware = found.hardware;
        }
        let whole = found.pkey.is_some() && (found.hardware.or(interface.hardware)).is_some();
        interface.due = None;
        if (!whole || interface.doubted) && interface.wait <= LAST_RETRY_US {
            interface.due = Some(now_us.saturating_add(interface.wait));
            interface.wait = interface.wait.saturating_mul(2);
        }
        self.changed |= !interface.addrs.is_empty() && before != (interface.gid(), interface.pkey());
    }

    /// The port GID and the partition of an interface.
    #[must_use]
    pub fn place(&self, index: u32) -> Option<([u8; 16], u16)> {
        let interface = self.interfaces.get(index)?;
        Some((interface.gid()?, interface.pkey()?))
    }

    /// The interfaces of a port with these GIDs, in a partition, where an address may be a neighbour's.
    #[must_use]
    pub fn links(&self, gids: &[Gid], pkey: u16, ip: IpAddr) -> Vec<Place> {
        let here = self.interfaces.iter().filter(|(_, i)| {
            let gid = i.gid().is_some_and(|gid| gids.contains(&Gid(gid)));
            gid && i.pkey().is_some_and(|own| (own ^ pkey) & 0x7fff == 0)
        });
        here.map(|(index, i)| Place { index, near: i.addrs.keys().any(|a| is_near(a, ip)) }).collect()
    }

    /// Whether an interface is that of one of these GIDs, but with another subnet prefix: an outdated one, if the port's
    /// has changed.
    #[must_use]
    pub fn has_other_prefix(&self, gids: &[Gid]) -> bool {
        let guid = |gid: &Gid| gid.0.last_chunk::<8>().copied();
        let here = self.interfaces.values().filter_map(|i| i.gid()).map(Gid);
        here.filter(|gid| !gids.contains(gid)).any(|gid| gids.iter().any(|g| guid(g) == guid(&gid)))
    }

    /// Whether the snapshot may differ from the last time that this was asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The port GID and the partition of an interface that has both.
    #[must_use]
    pub fn link_of(&self, index: u32) -> Option<([u8; 16], u16)> {
        let interface = self.interfaces.get(index)?;
        Some((interface.gid()?, interface.pkey()?))
    }

    /// Whether an interface has been set up, if it is known.
    #[must_use]
    pub fn is_up(&self, name: &str) -> Option<bool> {
        self.interfaces.values().find(|interface| interface.name == name.as_bytes()).map(|interface| interface.is_up)
    }

    /// All addresses that have a port and a partition, in a fixed order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<SystemAddr> {
        let mut all = Vec::with_capacity(self.addresses);
        for (index, interface) in self.interfaces.iter() {
            let (Some(gid), Some(pkey)) = (interface.gid(), interface.pkey()) else { continue };
            let first = all.len();
            all.extend(interface.addrs.keys().map(|(ip, prefix_len)| SystemAddr {
                ifindex: index,
                ifname: String::from_utf8_lossy(&interface.name).into_owned(),
                gid,
                pkey,
                ip: *ip,
                prefix_len: *prefix_len,
            }));
            sort_by_key(&mut all[first..], |a| (a.ip, a.prefix_len));
        }
        all
    }
}

/// Whether an address is in the network of an own one. Link-local ones are on every link.
fn is_near(own: &(IpAddr, u8), ip: IpAddr) -> bool {
    match (own.0, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= u32::from(own.1),
        (IpAddr::V6(_), IpAddr::V6(b)) if b.is_unicast_link_local() => true,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= u32::from(own.1),
        _ => false,
    }
}

/// The hardware address in a sysfs `address` file: 20 bytes in hex, with colons between.
#[must_use]
pub fn parse_hardware(text: &str) -> Option<[u8; HARDWARE]> {
    let mut bytes = [0; HARDWARE];
    let mut parts = text.trim().split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// The partition in a sysfs `pkey` file: hex, with or without `0x`.
#[must_use]
pub fn parse_pkey(text: &str) -> Option<u16> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    if digits.starts_with('+') {
        return None;
    }
    u16::from_str_radix(digits, 16).ok().map(|pkey| pkey | 0x8000)
}

#[cfg(test)]
#[path = "rtnl_table_tests.rs"]
mod tests;
