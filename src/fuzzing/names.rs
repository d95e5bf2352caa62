//! Who there is on the fabric: a few hosts, of which the first is the one whose service is looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ibacm_wire::Gid;
use ibacm_wire::client::{Entry, TYPE_GID, TYPE_IP, TYPE_IP6, TYPE_LID, TYPE_NAME};

use crate::addr::Addr;
use crate::engine::{LocalName, PkeyChoice, PortInfo, SystemAddr};

/// Hosts.
pub const HOSTS: usize = 8;
/// P_Keys that ports may have.
pub const PKEYS: [u16; 4] = [0xffff, 0x8001, 0x0001, 0x7fff];

/// The subnet prefix of the second port.
const OTHER_PREFIX: [u8; 8] = [0xfe, 0xc0, 0, 0, 0, 0, 0, 2];

/// The GID of a host's port; from 128 on they are those of the second port's subnet.
pub fn gid(host: usize) -> Gid {
    let mut g = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 0];
    if host >= 128 {
        g[..8].copy_from_slice(&OTHER_PREFIX);
    }
    g[14..].copy_from_slice(&(host as u16 + 1).to_be_bytes());
    Gid(g)
}

pub fn lid(host: usize) -> u16 {
    10 + host as u16
}

/// A host's addresses: IPv4, IPv6, and the link-local one that has its GUID.
pub fn ip(host: usize, which: usize) -> IpAddr {
    match which % 3 {
        0 => Ipv4Addr::new(10, 0, 0, host as u8 + 1).into(),
        1 => Ipv6Addr::new(0xfd10, 0, 0, 0, 0, 0, 0, host as u16 + 1).into(),
        _ => {
            let mut octets = gid(host).0;
            octets[8] ^= 2;
            octets[..8].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
            Ipv6Addr::from(octets).into()
        }
    }
}

pub fn name(host: usize) -> String {
    format!("node-{host}")
}

/// One of a host's addresses as bytes of a message, with their type. There are 6 kinds.
pub fn address(host: usize, kind: usize) -> (u16, Vec<u8>) {
    match kind % 6 {
        k @ 0..3 => match ip(host, k) {
            IpAddr::V4(a) => (TYPE_IP, a.octets().to_vec()),
            IpAddr::V6(a) => (TYPE_IP6, a.octets().to_vec()),
        },
        3 => (TYPE_NAME, name(host).into_bytes()),
        4 => (TYPE_GID, gid(host).0.to_vec()),
        _ => (TYPE_LID, lid(host).to_be_bytes().to_vec()),
    }
}

pub fn entry(flags: u32, host: usize, kind: usize) -> Entry {
    let (kind, bytes) = address(host, kind);
    Entry::address(flags, kind, &bytes)
}

/// The ports of the host, both on the same device.
pub fn port(number: usize) -> PortInfo {
    PortInfo {
        device: "mlx5_0".into(),
        guid: 0x1000,
        device_order: 0,
        phys_port_cnt: 2,
        port: number as u8 + 1,
        active: true,
        lid: lid(128 * number),
        lmc: 0,
        sm_lid: 1,
        sm_sl: 0,
        mtu: 5,
        rate: 7,
        subnet_timeout: 14,
        gids: vec![gid(128 * number)],
        pkeys: vec![0xffff, 0x8001],
    }
}

/// The host's addresses on its interfaces, of which `mask` says which there are.
pub fn system(mask: u8) -> Vec<SystemAddr> {
    let addr = |which: usize, number: usize, pkey| SystemAddr {
        ip: ip(128 * number, which),
        prefix_len: 16,
        gid: gid(128 * number),
        pkey,
    };
    let all = [
        addr(0, 0, 0xffff),
        addr(1, 0, 0xffff),
        addr(2, 0, 0xffff),
        addr(2, 0, 0x8001),
        addr(0, 1, 0xffff),
        addr(1, 1, 0xffff),
        addr(2, 1, 0xffff),
        // another host's
        SystemAddr { ip: ip(1, 0), ..addr(0, 0, 0x8001) },
    ];
    all.into_iter().enumerate().filter(|(i, _)| mask >> i & 1 != 0).map(|(_, a)| a).collect()
}

/// The host's names.
pub fn names(mask: u8) -> Vec<LocalName> {
    let name = |text: String, port, pkey| LocalName {
        addr: Addr::name(text.as_bytes()),
        text: text.into_bytes(),
        device: "MLX5_0".into(),
        port,
        pkey,
    };
    let all = [
        name(name_of_own(1), 1, PkeyChoice::Default),
        name(name_of_own(2), 2, PkeyChoice::Default),
        name("partition".into(), 1, PkeyChoice::Pkey(1)),
        name(name_of_own(3), 1, PkeyChoice::Pkey(0xffff)),
    ];
    all.into_iter().enumerate().filter(|(i, _)| mask >> i & 1 != 0).map(|(_, n)| n).collect()
}

fn name_of_own(number: usize) -> String {
    if number == 1 { name(0) } else { format!("{}-{number}", name(0)) }
}
