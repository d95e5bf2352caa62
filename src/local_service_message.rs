//! Messages of the kernel's local service (`rdma/rdma_netlink.h`) as plain values: pure functions over bytes.
//!
//! Numbers are in host byte order, GIDs, addresses and path records in network order. Every length is checked before
//! it is used.

use crate::netlink::{self, ATTRIBUTE_HEADER, Frame, HEADER, bytes, frames, padded, u32_at};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, TYPE_IP, TYPE_IP6};
use ibacm_wire::{Gid, PathRecord, path};

#[path = "local_service_answer.rs"]
mod answer;

pub use answer::Answer;

/// Types below this one are netlink's own: errors, acknowledgements, ends of dumps (`NLMSG_MIN_TYPE`).
const FIRST_TYPE: u16 = 0x10;
/// Messages of the local service have this above the ten bits of the operation (`RDMA_NL_LS`).
const LOCAL_SERVICE: u16 = 4;
const OPERATION_BITS: u32 = 10;
const OPERATION: u16 = (1 << OPERATION_BITS) - 1;
const OP_RESOLVE: u16 = 0;
const OP_SET_TIMEOUT: u16 = 1;
const OP_IP_RESOLVE: u16 = 2;

/// Bytes of a device's name in `struct rdma_ls_resolve_header`; port and path use follow.
const DEVICE_NAME: usize = 64;
const RESOLVE_HEADER: usize = DEVICE_NAME + 2;
/// Bytes of `struct rdma_ls_ip_resolve_header`.
const IP_RESOLVE_HEADER: usize = 4;
const USE_ALL: u8 = 0;
const USE_UNIDIRECTIONAL: u8 = 1;
const USE_GMP: u8 = 2;

/// Who does not know an attribute with this bit must refuse the question (`RDMA_NLA_F_MANDATORY`).
const MANDATORY: u16 = 1 << 13;
/// The type without that bit and netlink's own two.
const ATTRIBUTE_TYPE: u16 = MANDATORY - 1;
const PATH_RECORD: u16 = 1;
const TIMEOUT: u16 = 2;
const SERVICE_ID: u16 = 3;
const DGID: u16 = 4;
const SGID: u16 = 5;
const TCLASS: u16 = 6;
const PKEY: u16 = 7;
const QOS_CLASS: u16 = 8;
const IPV4: u16 = 9;
const IPV6: u16 = 10;
/// The QoS class has twelve bits, above the four of the service level.
const QOS_MASK: u16 = 0x0fff;
const QOS_SHIFT: u32 = 4;

/// What the kernel waits for an answer at least and at most, whatever it is told.
const WAIT: std::ops::RangeInclusive<u64> = 100..=200_000;

/// A message whose lengths contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

/// The messages of one datagram, in order. After a header that contradicts itself nothing more can be found: one
/// malformed message ends the iteration.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    frames(datagram).map(|frame| {
        let Frame { kind, sequence, payload, .. } = frame.ok_or(Malformed)?;
        Ok(Message { kind, sequence, payload })
    })
}

/// One attribute: its type, whether it must be understood, and its value.
struct Attribute<'a> {
    kind: u16,
    mandatory: bool,
    value: &'a [u8],
}

/// The attributes after a family header of this many bytes; one that is cut off ends the iteration as [`Malformed`].
fn attributes(payload: &[u8], header: usize) -> impl Iterator<Item = Result<Attribute<'_>, Malformed>> {
    netlink::attributes(payload.get(padded(header)..).unwrap_or_default()).map(|attribute| {
        let (kind, value) = attribute.ok_or(Malformed)?;
        Ok(Attribute { kind: kind & ATTRIBUTE_TYPE, mandatory: kind & MANDATORY != 0, value })
    })
}

/// The value of an attribute that has exactly this many bytes.
fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

/// What an answer needs of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    kind: u16,
    sequence: u32,
    one_way: bool,
}

/// A path that the kernel wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathQuestion {
    /// The device that is to be used; empty where the kernel names none.
    pub device: Vec<u8>,
    /// Its port.
    pub port: u8,
    /// What is known of the path.
    pub path: PathRecord,
}

/// What the kernel asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// For a path.
    Path(PathQuestion),
    /// For the GID that has an IP address.
    Ip {
        /// The address.
        dest: IpAddr,
        /// The interface that the asking socket is bound to, or 0.
        interface: u32,
    },
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::Path(PathQuestion { device, port, path }) => {
                let name = String::from_utf8_lossy(device);
                write!(f, "for a path from {} ({name} port {port}) to {}", path.sgid(), path.dgid())
            }
            Question::Ip { dest, interface: 0 } => write!(f, "who has {dest}"),
            Question::Ip { dest, interface } => write!(f, "who has {dest} on interface {interface}"),
        }
    }
}

/// What a message wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// An answer.
    Ask(Context, Question),
    /// An answer to something that nobody understands: it has to be refused.
    Refuse(Context),
    /// Nothing; the kernel waits so long for answers from now on.
    Wait(Duration),
    /// Nothing: not a message of the local service.
    Nothing,
    /// Nobody knows what.
    Malformed,
}

impl Message<'_> {
    /// Understands the message.
    #[must_use]
    pub fn request(&self) -> Request {
        if self.kind < FIRST_TYPE || self.kind >> OPERATION_BITS != LOCAL_SERVICE {
            return Request::Nothing;
        }
        let mut context = Context { kind: self.kind, sequence: self.sequence, one_way: false };
        let question = match self.kind & OPERATION {
            OP_RESOLVE => self.path_question(&mut context),
            OP_IP_RESOLVE => self.ip_question(),
            // nobody waits for an answer to this one
            OP_SET_TIMEOUT => return self.timeout().map_or(Request::Malformed, Request::Wait),
            _ => Err(Malformed),
        };
        match question {
            Ok(question) => Request::Ask(context, question),
            Err(Malformed) => Request::Refuse(context),
        }
    }

    fn path_question(&self, context: &mut Context) -> Result<Question, Malformed> {
        let header: [u8; RESOLVE_HEADER] = bytes(self.payload, 0).ok_or(Malformed)?;
        let [name @ .., port, path_use] = header;
        let mut path = PathRecord::default();
        match path_use {
            USE_ALL | USE_GMP => path.set_reversible_numpath(path::REVERSIBLE | 1),
            USE_UNIDIRECTIONAL => {
                path.set_reversible_numpath(1);
                context.one_way = true;
            }
            _ => return Err(Malformed),
        }
        for attribute in attributes(self.payload, RESOLVE_HEADER) {
            let Attribute { kind, mandatory, value } = attribute?;
            match kind {
                SERVICE_ID => path.set_service_id(u64::from_ne_bytes(exactly(value)?)),
                DGID => path.set_dgid(Gid(exactly(value)?)),
                SGID => path.set_sgid(Gid(exactly(value)?)),
                TCLASS => path.set_tclass(exactly::<1>(value)?[0]),
                PKEY => path.set_pkey(u16::from_ne_bytes(exactly(value)?)),
                QOS_CLASS => path.set_qos_sl((u16::from_ne_bytes(exactly(value)?) & QOS_MASK) << QOS_SHIFT),
                _ if mandatory => return Err(Malformed),
                _ => {}
            }
        }
        // what follows the first zero is whatever lay behind the name in the kernel's memory
        let device = name.split(|b| *b == 0).next().unwrap_or_default().to_vec();
        Ok(Question::Path(PathQuestion { device, port, path }))
    }

    fn ip_question(&self) -> Result<Question, Malformed> {
        let interface = u32_at(self.payload, 0).ok_or(Malformed)?;
        let mut dest = None;
        for attribute in attributes(self.payload, IP_RESOLVE_HEADER) {
            let Attribute { kind, mandatory, value } = attribute?;
            match kind {
                IPV4 => dest = Some(Ipv4Addr::from(exactly::<4>(value)?).into()),
                IPV6 => dest = Some(Ipv6Addr::from(exactly::<16>(value)?).into()),
                _ if mandatory => return Err(Malformed),
                _ => {}
            }
        }
        dest.map(|dest| Question::Ip { dest, interface }).ok_or(Malformed)
    }

    fn timeout(&self) -> Option<Duration> {
        let mut wait = None;
        for attribute in attributes(self.payload, 0) {
            let attribute = attribute.ok()?;
            if attribute.kind == TIMEOUT {
                let ms = u32::from_ne_bytes(exactly(attribute.value).ok()?);
                wait = Some(Duration::from_millis(u64::from(ms).clamp(*WAIT.start(), *WAIT.end())));
            }
        }
        wait
    }
}

impl PathQuestion {
    /// The question as a client would ask it. `port_gid` is the GID of the port that the kernel names. Without
    /// `wait` only what is known already is wanted.
    #[must_use]
    pub fn entry(&self, port_gid: Option<Gid>, wait: bool) -> Entry {
        let mut path = self.path;
        if path.sgid().is_zero()
            && let Some(gid) = port_gid
        {
            path.set_sgid(gid);
        }
        Entry::path(nodelay(wait), &path)
    }
}

/// The entries with which a client would ask for an address: the destination's, and the source's if there is one.
#[must_use]
pub fn ip_entries(dest: IpAddr, source: Option<IpAddr>, wait: bool) -> Vec<Entry> {
    let entry = |flags, ip| match ip {
        IpAddr::V4(ip) => Entry::address(flags, TYPE_IP, &ip.octets()),
        IpAddr::V6(ip) => Entry::address(flags, TYPE_IP6, &ip.octets()),
    };
    let dest = entry(EP_FLAG_DEST | nodelay(wait), dest);
    std::iter::once(dest).chain(source.map(|ip| entry(EP_FLAG_SOURCE, ip))).collect()
}

fn nodelay(wait: bool) -> u32 {
    if wait { 0 } else { FLAG_NODELAY }
}

#[cfg(test)]
#[path = "local_service_message_tests.rs"]
pub(crate) mod tests;
