//! rtnetlink messages as plain values: pure functions over bytes.
//!
//! Everything is in host byte order except addresses. Every length is checked before it is
//! used; what does not fit is [`Malformed`], what is not known is skipped. The layouts are those
//! of `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if_link.h`, `linux/if_addr.h` and `linux/neighbour.h`.

use crate::netlink::{self, HEADER, bytes, frames, u16_at, u32_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Hardware type of an InfiniBand interface (`ARPHRD_INFINIBAND`).
pub const INFINIBAND: u16 = 32;
/// Bytes of an IPoIB hardware address: flags, QPN, and the port's GID.
pub const HARDWARE: usize = 20;
/// The longest interface name, without its end (`IFNAMSIZ` - 1).
const MAX_NAME: usize = 15;

/// Bytes of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// Bytes of `struct ifaddrmsg`.
const ADDR_HEADER: usize = 8;
/// Bytes of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;
/// Bytes of `struct ndmsg`.
const NEIGHBOUR_HEADER: usize = 12;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;

/// A dump was made while the thing dumped changed.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_ACK: u16 = 0x04;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// Attribute types carry flags in their top two bits.
const ATTRIBUTE_TYPE: u16 = 0x3FFF;
const IFLA_ADDRESS: u16 = 1;
const IFLA_BROADCAST: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
/// Statistics are not wanted.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Duplicate address detection found another owner.
const IFA_F_DADFAILED: u32 = 0x08;
/// The kernel's note about one destination, no route that somebody set.
const RTM_F_CLONED: u32 = 0x200;
/// An interface that has been set up.
const IFF_UP: u32 = 1;

/// What a dump is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// All interfaces.
    Links,
    /// All addresses of both families.
    Addresses,
}

/// A message that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One interface, as a link message tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's number.
    pub index: u32,
    /// The hardware type, [`INFINIBAND`] for IPoIB.
    pub kind: u16,
    /// Its name; empty where the message has none.
    pub name: Vec<u8>,
    /// The hardware address, where it has 20 bytes.
    pub hardware: Option<[u8; HARDWARE]>,
    /// Whether it has been set up (`IFF_UP`).
    pub is_up: bool,
    /// The partition key in the IPoIB broadcast address, where there is one.
    pub broadcast_pkey: Option<u16>,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Addr {
    /// The interface's number.
    pub index: u32,
    /// The address itself (of a point-to-point link: this side's).
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`: 0 universe, 253 link, 254 host.
    pub scope: u8,
}

/// One entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface's number.
    pub index: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// `NUD_*`.
    pub state: u16,
    /// Its hardware address, where that has 20 bytes.
    pub hardware: Option<[u8; HARDWARE]>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An interface appeared or changed.
    Link(Link),
    /// An interface is gone.
    LinkGone(u32),
    /// An address appeared or changed.
    Addr(Addr),
    /// An address is gone.
    AddrGone(Addr),
    /// An entry of the neighbour table.
    Neighbour(Neighbour),
    /// An entry that has left the neighbour table, as it was last.
    NeighbourGone(Neighbour),
    /// Routes or rules changed.
    Routes,
    /// A dump is complete.
    Done,
    /// A request failed, with this error number (0 is an acknowledgement).
    Failed(i32),
    /// Messages were lost.
    Overrun,
    /// Nothing that matters here.
    Other,
}

/// One message of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sequence number of the request that it answers, or that caused it.
    pub sequence: u32,
    /// The port of the socket whose request it answers, or whose request caused it.
    pub port: u32,
    /// The dump that it belongs to is not consistent.
    pub interrupted: bool,
    /// What it says.
    pub news: Result<News, Malformed>,
}

/// The messages of one datagram, in order. After a header that contradicts itself nothing more can be found: one
/// malformed message ends the iteration.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Message> {
    frames(datagram).map(|frame| match frame {
        Some(frame) => Message {
            sequence: frame.sequence,
            port: frame.port,
            interrupted: frame.flags & NLM_F_DUMP_INTR != 0,
            news: parse(frame.kind, frame.payload).ok_or(Malformed),
        },
        None => Message { sequence: 0, port: 0, interrupted: false, news: Err(Malformed) },
    })
}

/// What a message of this type says; `None` when its body contradicts itself.
fn parse(kind: u16, body: &[u8]) -> Option<News> {
    match kind {
        NLMSG_NOOP => Some(News::Other),
        NLMSG_DONE => Some(News::Done),
        NLMSG_OVERRUN => Some(News::Overrun),
        NLMSG_ERROR => {
            let errno = bytes(body, 0).map(i32::from_ne_bytes)?;
            Some(News::Failed(errno.checked_neg()?))
        }
        libc::RTM_NEWLINK | libc::RTM_DELLINK => link(kind == libc::RTM_DELLINK, body),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => addr(kind == libc::RTM_DELADDR, body),
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => neighbour(kind == libc::RTM_DELNEIGH, body),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            body.get(..ROUTE_HEADER)?;
            let cloned = u32_at(body, 8)? & RTM_F_CLONED != 0;
            Some(if cloned { News::Other } else { News::Routes })
        }
        libc::RTM_NEWRULE | libc::RTM_DELRULE => Some(News::Routes),
        _ => Some(News::Other),
    }
}

/// Calls `each` with every attribute's type and content; `None` when one does not fit.
fn attributes<'a>(rest: &'a [u8], mut each: impl FnMut(u16, &'a [u8])) -> Option<()> {
    for attribute in netlink::attributes(rest) {
        let (kind, value) = attribute?;
        each(kind & ATTRIBUTE_TYPE, value);
    }
    Some(())
}

fn link(gone: bool, body: &[u8]) -> Option<News> {
    let family = *body.first()?;
    let kind = u16_at(body, 2)?;
    let index = u32_at(body, 4)?;
    let is_up = u32_at(body, 8)? & IFF_UP != 0;
    let rest = body.get(LINK_HEADER..)?;
    if i32::from(family) != libc::AF_UNSPEC {
        // A bridge tells of its ports in the same words: "gone" is from the bridge only.
        return Some(News::Other);
    }
    if gone {
        return Some(News::LinkGone(index));
    }
    let mut link = Link { index, kind, name: Vec::new(), hardware: None, is_up, broadcast_pkey: None };
    attributes(rest, |attribute, content| match attribute {
        IFLA_IFNAME => link.name = name(content),
        IFLA_ADDRESS => link.hardware = content.try_into().ok(),
        IFLA_BROADCAST => link.broadcast_pkey = broadcast_pkey(content),
        _ => {}
    })?;
    Some(News::Link(link))
}

/// A name up to its end; empty if it could be no file name of sysfs.
fn name(content: &[u8]) -> Vec<u8> {
    let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
    let name = content.get(..end).unwrap_or_default();
    if name.len() > MAX_NAME || name.contains(&b'/') || name == b"." || name == b".." {
        return Vec::new();
    }
    name.to_vec()
}

/// The partition in an IPoIB broadcast address (RFC 4391): a multicast GID after four bytes,
/// with the IPv4 signature and then the key.
fn broadcast_pkey(content: &[u8]) -> Option<u16> {
    let address: &[u8; HARDWARE] = content.try_into().ok()?;
    if address[4] != 0xFF || address[6..8] != [0x40, 0x1B] {
        return None;
    }
    Some(u16::from_be_bytes([address[8], address[9]]) | 0x8000)
}

/// The address of a family, of which another one has none; outside, `None` if it is missing or does not fit.
fn ip(family: u8, content: Option<&[u8]>) -> Option<Option<IpAddr>> {
    Some(match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(bytes::<4>(content?, 0)?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(bytes::<16>(content?, 0)?).into()),
        _ => None,
    })
}

fn addr(gone: bool, body: &[u8]) -> Option<News> {
    let &[family, prefix_len, flags, scope] = body.get(..4)?.first_chunk()?;
    let index = u32_at(body, 4)?;
    let rest = body.get(ADDR_HEADER..)?;
    let (mut near, mut far, mut flags) = (None, None, u32::from(flags));
    attributes(rest, |attribute, content| match attribute {
        IFA_LOCAL => near = Some(content),
        IFA_ADDRESS => far = Some(content),
        IFA_FLAGS => flags = u32_at(content, 0).unwrap_or(flags),
        _ => {}
    })?;
    let Some(ip) = ip(family, near.or(far))? else { return Some(News::Other) };
    if prefix_len > if ip.is_ipv4() { 32 } else { 128 } {
        return None;
    }
    let addr = Addr { index, ip, prefix_len, scope };
    // An address that belongs to another host is not ours, whatever the interface says.
    let gone = gone || flags & IFA_F_DADFAILED != 0;
    Some(if gone { News::AddrGone(addr) } else { News::Addr(addr) })
}

fn neighbour(gone: bool, body: &[u8]) -> Option<News> {
    let family = *body.first()?;
    let (index, state) = (u32_at(body, 4)?, u16_at(body, 8)?);
    let rest = body.get(NEIGHBOUR_HEADER..)?;
    let (mut address, mut hardware) = (None, None);
    attributes(rest, |attribute, content| match attribute {
        libc::NDA_DST => address = Some(content),
        libc::NDA_LLADDR => hardware = content.try_into().ok(),
        _ => {}
    })?;
    let Some(ip) = ip(family, address)? else { return Some(News::Other) };
    let neighbour = Neighbour { index, ip, state, hardware };
    Some(if gone { News::NeighbourGone(neighbour) } else { News::Neighbour(neighbour) })
}

/// The request for one entry of the neighbour table.
#[must_use]
pub fn get_neighbour(index: u32, ip: IpAddr, sequence: u32) -> Vec<u8> {
    request(libc::RTM_GETNEIGH, NLM_F_REQUEST, sequence, &neighbour_body(index, ip, 0))
}

/// The request to look for a neighbour, for whom an entry is to be made with `create`, and else is there.
#[must_use]
pub fn use_neighbour(index: u32, ip: IpAddr, create: bool, sequence: u32) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_ACK | if create { NLM_F_CREATE | NLM_F_EXCL } else { 0 };
    request(libc::RTM_NEWNEIGH, flags, sequence, &neighbour_body(index, ip, libc::NTF_USE))
}

fn neighbour_body(index: u32, ip: IpAddr, flags: u8) -> Vec<u8> {
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut body = vec![family as u8, 0, 0, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    // no state; flags; no type
    body.extend_from_slice(&[0, 0, flags, 0]);
    body.extend_from_slice(&(4 + octets.len() as u16).to_ne_bytes());
    body.extend_from_slice(&libc::NDA_DST.to_ne_bytes());
    body.extend_from_slice(&octets);
    body
}

/// The request for a dump.
#[must_use]
pub fn dump_request(what: Dump, sequence: u32) -> Vec<u8> {
    let kind = match what {
        Dump::Links => libc::RTM_GETLINK,
        Dump::Addresses => libc::RTM_GETADDR,
    };
    // A header of zeros, family included, asks for everything.
    let mut body = match what {
        Dump::Links => vec![0; LINK_HEADER],
        Dump::Addresses => vec![0; ADDR_HEADER],
    };
    if what == Dump::Links {
        body.extend_from_slice(&8u16.to_ne_bytes());
        body.extend_from_slice(&IFLA_EXT_MASK.to_ne_bytes());
        body.extend_from_slice(&RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    }
    request(kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, &body)
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend_from_slice(&length.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(&sequence.to_ne_bytes());
    request.extend_from_slice(&0u32.to_ne_bytes());
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
#[path = "rtnl_parse_tests.rs"]
pub(crate) mod tests;
