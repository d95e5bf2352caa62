//! The path record (IBA 15.2.5.16, `struct ibv_path_record` of `infiniband/sa.h`).

use crate::Gid;
use crate::field::{be16, be32, be64, bytes, put};

/// Bytes of a path record.
pub const LEN: usize = 64;
/// Bit 7 of the reversible/numb_path byte: the path works in both directions.
pub const REVERSIBLE: u8 = 0x80;

/// A path record: 64 bytes in network order, as the SA and the clients exchange them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathRecord(pub [u8; LEN]);

impl Default for PathRecord {
    fn default() -> Self {
        PathRecord([0; LEN])
    }
}

macro_rules! field {
    ($(#[$doc:meta])* $get:ident, $set:ident: u8 at $at:literal) => {
        $(#[$doc])*
        pub fn $get(&self) -> u8 { self.0[$at] }
        #[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, v: u8) { self.0[$at] = v; }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: u16 at $at:literal) => {
        $(#[$doc])*
        pub fn $get(&self) -> u16 { be16(&self.0, $at) }
        #[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, v: u16) { put(&mut self.0, $at, &v.to_be_bytes()); }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: u32 at $at:literal) => {
        $(#[$doc])*
        pub fn $get(&self) -> u32 { be32(&self.0, $at) }
        #[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, v: u32) { put(&mut self.0, $at, &v.to_be_bytes()); }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: u64 at $at:literal) => {
        $(#[$doc])*
        pub fn $get(&self) -> u64 { be64(&self.0, $at) }
        #[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, v: u64) { put(&mut self.0, $at, &v.to_be_bytes()); }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: Gid at $at:literal) => {
        $(#[$doc])*
        pub fn $get(&self) -> Gid { Gid(bytes(&self.0, $at)) }
        #[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, v: Gid) { put(&mut self.0, $at, &v.0); }
    };
}

impl PathRecord {
    field!(/** ServiceID, host order. */ service_id, set_service_id: u64 at 0);
    field!(/** Destination GID. */ dgid, set_dgid: Gid at 8);
    field!(/** Source GID. */ sgid, set_sgid: Gid at 24);
    field!(/** Destination LID, host order. */ dlid, set_dlid: u16 at 40);
    field!(/** Source LID, host order. */ slid, set_slid: u16 at 42);
    field!(/** Flow label (20 bits) << 8 | hop limit (8 bits), host order; the top 4 bits are raw traffic. */
        flow_hop, set_flow_hop: u32 at 44);
    field!(/** Traffic class. */ tclass, set_tclass: u8 at 48);
    field!(/** [`REVERSIBLE`] | number of paths (7 bits). */ reversible_numpath, set_reversible_numpath: u8 at 49);
    field!(/** P_Key, host order, bit 15 the full-membership bit. */ pkey, set_pkey: u16 at 50);
    field!(/** QoS class (12 bits) << 4 | SL (4 bits), host order. */ qos_sl, set_qos_sl: u16 at 52);
    field!(/** MTU selector (2 bits) << 6 | MTU (IB enum). */ mtu, set_mtu: u8 at 54);
    field!(/** Rate selector (2 bits) << 6 | rate (IB enum). */ rate, set_rate: u8 at 55);
    field!(/** Lifetime selector (2 bits) << 6 | packet lifetime (4.096 us * 2^n). */
        packet_lifetime, set_packet_lifetime: u8 at 56);
    field!(/** Preference among several paths. */ preference, set_preference: u8 at 57);

    /// The record in the first 64 bytes of `buf`; `None` if there are fewer.
    pub fn read(buf: &[u8]) -> Option<PathRecord> {
        buf.first_chunk().map(|b| PathRecord(*b))
    }

    /// Service level.
    pub fn sl(&self) -> u8 {
        (self.qos_sl() & 0xf) as u8
    }

    /// The SA component mask that asks for exactly the components of this record that are not zero
    /// (IBA table 202). Preference is never asked for.
    pub fn component_mask(&self) -> u64 {
        use mask::*;
        let mut m = 0;
        let mut set = |bit: u64, on: bool| m |= if on { bit } else { 0 };
        set(SERVICE_ID, self.service_id() != 0);
        set(DGID, !self.dgid().is_zero());
        set(SGID, !self.sgid().is_zero());
        set(DLID, self.dlid() != 0);
        set(SLID, self.slid() != 0);
        set(FLOW_LABEL, (self.flow_hop() >> 8) & 0xf_ffff != 0);
        set(HOP_LIMIT, self.flow_hop() & 0xff != 0);
        set(TCLASS, self.tclass() != 0);
        set(REVERSIBLE_BIT, self.reversible_numpath() & REVERSIBLE != 0);
        set(PKEY, self.pkey() != 0);
        set(QOS_CLASS, self.qos_sl() >> 4 != 0);
        set(SL, self.qos_sl() & 0xf != 0);
        set(MTU_SELECTOR, self.mtu() >> 6 != 0);
        set(MTU, self.mtu() & 0x3f != 0);
        set(RATE_SELECTOR, self.rate() >> 6 != 0);
        set(RATE, self.rate() & 0x3f != 0);
        set(LIFETIME_SELECTOR, self.packet_lifetime() >> 6 != 0);
        set(LIFETIME, self.packet_lifetime() & 0x3f != 0);
        m
    }
}

/// Bits of the PathRecord component mask (IBA 15.2.5.16, table "PathRecord components").
pub mod mask {
    /// ServiceID, both halves.
    pub const SERVICE_ID: u64 = 3;
    /// Destination GID.
    pub const DGID: u64 = 1 << 2;
    /// Source GID.
    pub const SGID: u64 = 1 << 3;
    /// Destination LID.
    pub const DLID: u64 = 1 << 4;
    /// Source LID.
    pub const SLID: u64 = 1 << 5;
    /// Flow label.
    pub const FLOW_LABEL: u64 = 1 << 8;
    /// Hop limit.
    pub const HOP_LIMIT: u64 = 1 << 9;
    /// Traffic class.
    pub const TCLASS: u64 = 1 << 10;
    /// Reversible.
    pub const REVERSIBLE_BIT: u64 = 1 << 11;
    /// Number of paths.
    pub const NUMB_PATH: u64 = 1 << 12;
    /// P_Key.
    pub const PKEY: u64 = 1 << 13;
    /// QoS class.
    pub const QOS_CLASS: u64 = 1 << 14;
    /// Service level.
    pub const SL: u64 = 1 << 15;
    /// MTU selector.
    pub const MTU_SELECTOR: u64 = 1 << 16;
    /// MTU.
    pub const MTU: u64 = 1 << 17;
    /// Rate selector.
    pub const RATE_SELECTOR: u64 = 1 << 18;
    /// Rate.
    pub const RATE: u64 = 1 << 19;
    /// Packet lifetime selector.
    pub const LIFETIME_SELECTOR: u64 = 1 << 20;
    /// Packet lifetime.
    pub const LIFETIME: u64 = 1 << 21;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap_and_round_trip() {
        let mut p = PathRecord::default();
        p.set_service_id(0x0102_0304_0506_0708);
        p.set_dgid(Gid([1; 16]));
        p.set_sgid(Gid([2; 16]));
        p.set_dlid(0x1234);
        p.set_slid(0x5678);
        p.set_flow_hop(0x00ab_cdef);
        p.set_tclass(9);
        p.set_reversible_numpath(0x81);
        p.set_pkey(0xffff);
        p.set_qos_sl(0x1235);
        p.set_mtu(0x84);
        p.set_rate(0x83);
        p.set_packet_lifetime(0x92);
        p.set_preference(7);
        assert_eq!(
            (p.service_id(), p.dgid(), p.sgid(), p.dlid(), p.slid()),
            (0x0102_0304_0506_0708, Gid([1; 16]), Gid([2; 16]), 0x1234, 0x5678)
        );
        assert_eq!((p.flow_hop(), p.tclass(), p.reversible_numpath()), (0x00ab_cdef, 9, 0x81));
        assert_eq!((p.pkey(), p.qos_sl(), p.sl()), (0xffff, 0x1235, 5));
        assert_eq!((p.mtu(), p.rate(), p.packet_lifetime(), p.preference()), (0x84, 0x83, 0x92, 7));
        assert_eq!(&p.0[40..42], &[0x12, 0x34]);
        assert_eq!(&p.0[58..], &[0; 6]);
    }

    #[test]
    fn mask_names_what_is_not_zero() {
        let mut p = PathRecord::default();
        assert_eq!(p.component_mask(), 0);
        p.set_dgid(Gid([1; 16]));
        p.set_sgid(Gid([2; 16]));
        p.set_pkey(0xffff);
        assert_eq!(p.component_mask(), mask::DGID | mask::SGID | mask::PKEY);
        // numb_path alone asks for nothing, a selector without a value asks for the selector
        p.set_reversible_numpath(1);
        p.set_mtu(0x80);
        assert_eq!(p.component_mask(), mask::DGID | mask::SGID | mask::PKEY | mask::MTU_SELECTOR);
    }
}
