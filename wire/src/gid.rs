//! The 128-bit global identifier.

use core::fmt;
use core::net::Ipv6Addr;

/// A GID (IBA 4.1.1): a 64-bit subnet prefix and a 64-bit interface id, both in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The all-zero GID, which stands for "none".
    pub const ZERO: Gid = Gid([0; 16]);
    /// The prefix of subnets that have none of their own.
    pub const DEFAULT_PREFIX: u64 = 0xfe80 << 48;

    /// Whether this is the all-zero GID.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The upper 64 bits, in host order.
    pub fn subnet_prefix(&self) -> u64 {
        crate::field::be64(&self.0, 0)
    }

    /// The lower 64 bits (the port GUID for a unicast GID), in host order.
    pub fn interface_id(&self) -> u64 {
        crate::field::be64(&self.0, 8)
    }

    /// Whether who asks for this GID may be told of a port with the GID `other`. Every port can be named with the default
    /// prefix, whatever that of its subnet is (IBA 4.1.1).
    pub fn names(&self, other: Gid) -> bool {
        let by_default = self.subnet_prefix() == Self::DEFAULT_PREFIX && self.interface_id() == other.interface_id();
        *self == other || by_default
    }

    /// Whether the GID names a multicast group (first byte 0xff, IBA 4.1.1).
    pub fn is_multicast(&self) -> bool {
        self.0[0] == 0xff
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
