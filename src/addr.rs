//! Addresses in the one form that is compared and hashed: IP addresses and GIDs without padding, names in lower case
//! without what follows their end, path questions as their 64 bytes.

use std::fmt;
use std::net::IpAddr;

use ibacm_wire::client::{MAX_ADDRESS, TYPE_GID, TYPE_IP, TYPE_IP6, TYPE_LID, TYPE_NAME, TYPE_PATH};
use ibacm_wire::{Gid, PathRecord};

use crate::keyed::SipKey;

/// A canonical address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Addr {
    kind: u8,
    len: u8,
    bytes: [u8; MAX_ADDRESS],
}

impl Addr {
    fn new(kind: u16, bytes: &[u8]) -> Addr {
        let mut b = [0; MAX_ADDRESS];
        b[..bytes.len()].copy_from_slice(bytes);
        Addr { kind: kind as u8, len: bytes.len() as u8, bytes: b }
    }

    /// The address of type `kind` in an entry's or datagram's 64 bytes; `None` if there is no such type of address
    /// (a path is none).
    pub fn from_wire(kind: u16, info: &[u8; MAX_ADDRESS]) -> Option<Addr> {
        let len = match kind {
            TYPE_NAME => {
                let mut a = Addr::new(kind, &info[..memchr::memchr(0, info).unwrap_or(MAX_ADDRESS)]);
                a.bytes.make_ascii_lowercase();
                return Some(a);
            }
            TYPE_IP => 4,
            TYPE_IP6 | TYPE_GID => 16,
            TYPE_LID => 2,
            _ => return None,
        };
        Some(Addr::new(kind, &info[..len]))
    }

    /// A name of at most 64 bytes; what is longer is cut.
    pub fn name(name: &[u8]) -> Addr {
        let mut a = Addr::new(TYPE_NAME, &name[..name.len().min(MAX_ADDRESS)]);
        a.bytes.make_ascii_lowercase();
        a
    }

    /// An IPv4 or IPv6 address.
    pub fn ip(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(a) => Addr::new(TYPE_IP, &a.octets()),
            IpAddr::V6(a) => Addr::new(TYPE_IP6, &a.octets()),
        }
    }

    /// A GID.
    pub fn gid(gid: &Gid) -> Addr {
        Addr::new(TYPE_GID, &gid.0)
    }

    /// A LID in host order.
    pub fn lid(lid: u16) -> Addr {
        Addr::new(TYPE_LID, &lid.to_be_bytes())
    }

    /// A question for a path.
    pub fn path(question: &PathRecord) -> Addr {
        Addr::new(TYPE_PATH, &question.0)
    }

    /// The type, one of `ibacm_wire::client::TYPE_*`.
    pub fn kind(&self) -> u16 {
        u16::from(self.kind)
    }

    /// The bytes that count.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(MAX_ADDRESS)]
    }

    /// The 64 bytes of an entry or datagram, zero padded.
    pub fn wire(&self) -> &[u8; MAX_ADDRESS] {
        &self.bytes
    }

    /// The IP address, if it is one.
    pub fn as_ip(&self) -> Option<IpAddr> {
        match self.kind() {
            TYPE_IP => self.bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
            TYPE_IP6 => self.bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
            _ => None,
        }
    }

    /// The hash under `key`.
    #[inline(always)]
    pub fn hash(&self, key: &SipKey) -> u64 {
        key.hash(self.kind, self.as_bytes())
    }
}

impl std::hash::Hash for Addr {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.kind, self.as_bytes()).hash(state);
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ip) = self.as_ip() {
            return ip.fmt(f);
        }
        match self.kind() {
            TYPE_NAME => write!(f, "{}", self.as_bytes().escape_ascii()),
            TYPE_GID => Gid(*self.bytes.first_chunk().unwrap_or(&[0; 16])).fmt(f),
            TYPE_LID => write!(f, "LID {}", u16::from_be_bytes([self.bytes[0], self.bytes[1]])),
            _ => {
                // its end, by what is known of it: a LID or a GID does
                let p = PathRecord(self.bytes);
                match (p.dgid(), p.dlid()) {
                    (gid, lid) if gid.is_zero() => write!(f, "LID {lid}"),
                    (gid, 0) => gid.fmt(f),
                    (gid, lid) => write!(f, "{gid}, LID {lid}"),
                }
            }
        }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address as tables keep it: short ones inline, names and path questions on the heap.
#[derive(Debug)]
pub enum Key {
    /// Up to 16 bytes.
    Short(u8, u8, [u8; 16]),
    /// Longer.
    Long(u8, Box<[u8]>),
}

impl Key {
    /// A copy of `addr`.
    pub fn new(addr: &Addr) -> Key {
        let b = addr.as_bytes();
        let mut short = [0; 16];
        match short.get_mut(..b.len()) {
            Some(s) => {
                s.copy_from_slice(b);
                Key::Short(addr.kind, addr.len, short)
            }
            None => Key::Long(addr.kind, b.into()),
        }
    }

    /// Whether this is `addr`.
    #[inline(always)]
    pub fn is(&self, addr: &Addr) -> bool {
        match self {
            Key::Short(kind, len, bytes) => {
                *kind == addr.kind && *len == addr.len && Some(bytes) == addr.bytes.first_chunk()
            }
            Key::Long(kind, bytes) => *kind == addr.kind && **bytes == *addr.as_bytes(),
        }
    }

    /// The address.
    pub fn addr(&self) -> Addr {
        match self {
            Key::Short(kind, len, bytes) => Addr::new(u16::from(*kind), &bytes[..usize::from(*len).min(16)]),
            Key::Long(kind, bytes) => Addr::new(u16::from(*kind), bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(b: &[u8]) -> [u8; 64] {
        let mut p = [0; 64];
        p[..b.len()].copy_from_slice(b);
        p
    }

    #[test]
    fn names_compare_without_case_and_end_at_their_zero() {
        let a = Addr::from_wire(TYPE_NAME, &padded(b"Node-1\0junk")).unwrap();
        assert_eq!(a, Addr::name(b"nODE-1"));
        assert_eq!(a.wire()[..8], *b"node-1\0\0");
        let long = Addr::from_wire(TYPE_NAME, &[b'X'; 64]).unwrap();
        assert_eq!(long.as_bytes(), [b'x'; 64]);
    }

    #[test]
    fn padding_does_not_count_and_types_differ() {
        let a = Addr::from_wire(TYPE_IP, &padded(&[10, 0, 0, 1, 9])).unwrap();
        assert_eq!(a, Addr::ip("10.0.0.1".parse().unwrap()));
        assert_ne!(a, Addr::from_wire(TYPE_LID, &padded(&[10, 0])).unwrap());
        assert_eq!(Addr::from_wire(6, &[0; 64]), None);
        assert_eq!(Addr::from_wire(0, &[0; 64]), None);
        assert_eq!(Addr::from_wire(TYPE_PATH, &[0; 64]), None);
    }

    #[test]
    fn keys_are_their_address() {
        let mut all =
            vec![Addr::name(b"a"), Addr::name(b"a-name-of-seventeen"), Addr::lid(7), Addr::gid(&Gid([1; 16]))];
        all.push(Addr::path(&PathRecord([3; 64])));
        all.push(Addr::name(&[b'y'; 64]));
        for a in &all {
            let k = Key::new(a);
            assert_eq!(k.addr(), *a);
            assert_eq!(all.iter().filter(|b| k.is(b)).count(), 1, "{a}");
        }
    }
}
