//! Management datagrams of the subnet administrator class (IBA 13.4, 15.2): 256 bytes, network order.

use crate::field::{be16, be32, be64, bytes, put};
use crate::{Gid, PathRecord};

/// Bytes of a MAD.
pub const LEN: usize = 256;
/// Management class SubnAdm.
pub const CLASS: u8 = 3;
/// Its version.
pub const CLASS_VERSION: u8 = 2;
/// The SA's QP number.
pub const QPN: u32 = 1;
/// Queue key of QP1 (IBA 10.2.5).
pub const QKEY: u32 = 0x8001_0000;

/// SubnAdmGet.
pub const METHOD_GET: u8 = 1;
/// SubnAdmSet.
pub const METHOD_SET: u8 = 2;
/// SubnAdmDelete.
pub const METHOD_DELETE: u8 = 0x15;
/// Set in the method of a response.
pub const METHOD_RESP: u8 = 0x80;

/// Attribute PathRecord.
pub const ATTR_PATH: u16 = 0x35;
/// Attribute MCMemberRecord.
pub const ATTR_MCMEMBER: u16 = 0x38;

/// MAD status (low byte) bit 0: busy, ask again later (IBA 13.4.7).
pub const STATUS_BUSY: u16 = 1;

pub(crate) const DATA: usize = 56;

/// A subnet administrator MAD. Accessors give numbers in host order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SaMad(pub [u8; LEN]);

impl SaMad {
    /// A request with an empty attribute.
    pub fn request(method: u8, attribute: u16, tid: u64) -> SaMad {
        let mut m = SaMad([0; LEN]);
        m.0[0] = 1;
        m.0[1] = CLASS;
        m.0[2] = CLASS_VERSION;
        m.0[3] = method;
        put(&mut m.0, 8, &tid.to_be_bytes());
        put(&mut m.0, 16, &attribute.to_be_bytes());
        m
    }

    /// SubnAdmGet(PathRecord) that asks with every component of `path` that is not zero.
    pub fn path_query(tid: u64, path: &PathRecord) -> SaMad {
        let mut m = Self::request(METHOD_GET, ATTR_PATH, tid);
        m.set_component_mask(path.component_mask());
        put(&mut m.0, DATA, &path.0);
        m
    }

    /// SubnAdmSet (join) or SubnAdmDelete (leave) of a group membership.
    pub fn membership(method: u8, tid: u64, rec: &McMember, component_mask: u64) -> SaMad {
        let mut m = Self::request(method, ATTR_MCMEMBER, tid);
        m.set_component_mask(component_mask);
        put(&mut m.0, DATA, &rec.emit());
        m
    }

    /// Whether version, class and class version are those of the SA.
    pub fn is_sa(&self) -> bool {
        self.0[..3] == [1, CLASS, CLASS_VERSION]
    }

    /// Method, [`METHOD_RESP`] set in responses.
    pub fn method(&self) -> u8 {
        self.0[3]
    }

    /// The 16-bit status: class-specific code in the high byte.
    pub fn status(&self) -> u16 {
        be16(&self.0, 4)
    }

    /// Sets the status.
    pub fn set_status(&mut self, v: u16) {
        put(&mut self.0, 4, &v.to_be_bytes());
    }

    /// Transaction id. The kernel owns its upper 32 bits.
    pub fn tid(&self) -> u64 {
        be64(&self.0, 8)
    }

    /// Sets the transaction id.
    pub fn set_tid(&mut self, v: u64) {
        put(&mut self.0, 8, &v.to_be_bytes());
    }

    /// Attribute id.
    pub fn attribute(&self) -> u16 {
        be16(&self.0, 16)
    }

    /// Component mask.
    pub fn component_mask(&self) -> u64 {
        be64(&self.0, 48)
    }

    /// Sets the component mask.
    pub fn set_component_mask(&mut self, v: u64) {
        put(&mut self.0, 48, &v.to_be_bytes());
    }

    /// The attribute read as a path record.
    pub fn path(&self) -> PathRecord {
        PathRecord(bytes(&self.0, DATA))
    }

    /// The attribute read as a group membership.
    pub fn mcmember(&self) -> McMember {
        McMember::read(&bytes(&self.0, DATA))
    }
}

impl core::fmt::Debug for SaMad {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SaMad")
            .field("method", &self.method())
            .field("attribute", &self.attribute())
            .field("status", &self.status())
            .field("tid", &self.tid())
            .field("component_mask", &self.component_mask())
            .finish_non_exhaustive()
    }
}

/// Membership of a multicast group (MCMemberRecord, IBA 15.2.5.17), numbers in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct McMember {
    /// Group GID.
    pub mgid: Gid,
    /// The member port's GID.
    pub port_gid: Gid,
    /// Queue key.
    pub qkey: u32,
    /// Group LID.
    pub mlid: u16,
    /// Selector << 6 | MTU (IB enum).
    pub mtu: u8,
    /// Traffic class.
    pub tclass: u8,
    /// P_Key.
    pub pkey: u16,
    /// Selector << 6 | rate (IB enum).
    pub rate: u8,
    /// Selector << 6 | packet lifetime.
    pub packet_lifetime: u8,
    /// SL << 28 | flow label << 8 | hop limit.
    pub sl_flow_hop: u32,
    /// Scope << 4 | join state.
    pub scope_state: u8,
}

/// Bytes of an MCMemberRecord.
pub const MCMEMBER_LEN: usize = 52;

impl McMember {
    fn read(b: &[u8; MCMEMBER_LEN]) -> McMember {
        McMember {
            mgid: Gid(bytes(b, 0)),
            port_gid: Gid(bytes(b, 16)),
            qkey: be32(b, 32),
            mlid: be16(b, 36),
            mtu: b[38],
            tclass: b[39],
            pkey: be16(b, 40),
            rate: b[42],
            packet_lifetime: b[43],
            sl_flow_hop: be32(b, 44),
            scope_state: b[48],
        }
    }

    fn emit(&self) -> [u8; MCMEMBER_LEN] {
        let mut b = [0; MCMEMBER_LEN];
        put(&mut b, 0, &self.mgid.0);
        put(&mut b, 16, &self.port_gid.0);
        put(&mut b, 32, &self.qkey.to_be_bytes());
        put(&mut b, 36, &self.mlid.to_be_bytes());
        b[38] = self.mtu;
        b[39] = self.tclass;
        put(&mut b, 40, &self.pkey.to_be_bytes());
        b[42] = self.rate;
        b[43] = self.packet_lifetime;
        put(&mut b, 44, &self.sl_flow_hop.to_be_bytes());
        b[48] = self.scope_state;
        b
    }
}

/// Components of a full-member join that fixes MTU and rate exactly: MGID, PortGID, Q_Key, MTU and its selector,
/// TClass, P_Key, rate and its selector, SL, FlowLabel, Scope, JoinState (IBA table 211).
pub const JOIN_MASK: u64 =
    1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15 | 1 << 16;
/// Components of a leave: MGID, PortGID, JoinState.
pub const LEAVE_MASK: u64 = 1 | 1 << 1 | 1 << 16;
/// Scope site-local, full member.
pub const SCOPE_SITE_FULL: u8 = 0x51;
/// Selector "exactly", in the place that MTU, rate and lifetime bytes have for it.
pub const EXACTLY: u8 = 2 << 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_query_layout() {
        let mut p = PathRecord::default();
        p.set_dlid(7);
        p.set_pkey(0xffff);
        let m = SaMad::path_query(0x1_0000_0002, &p);
        assert!(m.is_sa());
        assert_eq!((m.method(), m.attribute(), m.tid(), m.status()), (1, 0x35, 0x1_0000_0002, 0));
        assert_eq!(m.component_mask(), 1 << 4 | 1 << 13);
        assert_eq!(m.path(), p);
        assert_eq!(m.0[56 + 40..56 + 42], [0, 7]);
    }

    #[test]
    fn membership_round_trip() {
        let rec = McMember {
            mgid: Gid([3; 16]),
            port_gid: Gid([4; 16]),
            qkey: QKEY,
            mlid: 0xc001,
            mtu: 0x84,
            tclass: 1,
            pkey: 0x8123,
            rate: 0x83,
            packet_lifetime: 0x92,
            sl_flow_hop: 0x3000_0140,
            scope_state: SCOPE_SITE_FULL,
        };
        let m = SaMad::membership(METHOD_SET, 9, &rec, JOIN_MASK);
        assert_eq!(m.mcmember(), rec);
        assert_eq!(m.component_mask(), 0x1_b3f7);
        assert_eq!(m.0[56 + 44..56 + 49], [0x30, 0, 1, 0x40, 0x51]);
    }
}
