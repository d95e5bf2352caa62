//! What a subnet administrator tells of itself: subscriptions (InformInfo, IBA 13.4.8.3) and notices (IBA 13.4.8.2),
//! which come as a Report and are answered with a ReportResp.

use crate::Gid;
use crate::field::{be16, be32, bytes, put};
use crate::sa::{DATA, METHOD_RESP, METHOD_SET, SaMad};

/// Report of a notice.
pub const METHOD_REPORT: u8 = 6;
/// Attribute Notice.
pub const ATTR_NOTICE: u16 = 2;
/// Attribute InformInfo.
pub const ATTR_INFORM: u16 = 3;

/// A GID is in service (again).
pub const TRAP_GID_IN: u16 = 64;
/// A GID is out of service.
pub const TRAP_GID_OUT: u16 = 65;
/// A path does not exist any more.
pub const TRAP_UNPATH: u16 = 68;
/// A path is another one now.
pub const TRAP_REPATH: u16 = 69;
/// The state of one of a switch's links has changed, so that routes may.
pub const TRAP_LINK_STATE: u16 = 128;

/// Every LID, type or trap.
pub const ALL: u16 = 0xffff;
/// Every producer of notices.
pub const ALL_PRODUCERS: u32 = 0xff_ffff;

/// Bytes of an InformInfo.
const INFORM_LEN: usize = 36;
/// Bytes of a Notice up to its details.
const DETAILS: usize = 10;

/// Components of a subscription: LIDRangeBegin, IsGeneric, Subscribe, Type, TrapNumber, ProducerType.
const INFORM_MASK: u64 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 12;

/// A subscription to generic notices, numbers in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InformInfo {
    /// Whose notices; zero for all of the LID range.
    pub gid: Gid,
    /// First LID of those whose notices are meant, or [`ALL`].
    pub lid_begin: u16,
    /// Last one.
    pub lid_end: u16,
    /// Notices of the architecture rather than a vendor's.
    pub generic: bool,
    /// To subscribe rather than to end it.
    pub subscribe: bool,
    /// Type of notice, or [`ALL`].
    pub kind: u16,
    /// Number of the trap, or [`ALL`].
    pub trap: u16,
    /// QP number of the subscriber, 24 bits.
    pub qpn: u32,
    /// Exponent of the time in which the subscriber answers.
    pub response_time: u8,
    /// Type of node that produces the notice, 24 bits, or [`ALL_PRODUCERS`].
    pub producer: u32,
}

impl InformInfo {
    /// A subscription to one trap, whoever it is about.
    pub fn to_trap(trap: u16) -> InformInfo {
        InformInfo {
            lid_begin: ALL,
            generic: true,
            subscribe: true,
            kind: ALL,
            trap,
            qpn: crate::sa::QPN,
            producer: ALL_PRODUCERS,
            ..InformInfo::default()
        }
    }

    fn read(b: &[u8; INFORM_LEN]) -> InformInfo {
        let qpn = be32(b, 28);
        InformInfo {
            gid: Gid(bytes(b, 0)),
            lid_begin: be16(b, 16),
            lid_end: be16(b, 18),
            generic: b[22] != 0,
            subscribe: b[23] != 0,
            kind: be16(b, 24),
            trap: be16(b, 26),
            qpn: qpn >> 8,
            response_time: qpn as u8 & 0x1f,
            producer: be32(b, 32) & 0xff_ffff,
        }
    }

    fn emit(&self) -> [u8; INFORM_LEN] {
        let mut b = [0; INFORM_LEN];
        put(&mut b, 0, &self.gid.0);
        put(&mut b, 16, &self.lid_begin.to_be_bytes());
        put(&mut b, 18, &self.lid_end.to_be_bytes());
        (b[22], b[23]) = (u8::from(self.generic), u8::from(self.subscribe));
        put(&mut b, 24, &self.kind.to_be_bytes());
        put(&mut b, 26, &self.trap.to_be_bytes());
        put(&mut b, 28, &(self.qpn << 8 | u32::from(self.response_time & 0x1f)).to_be_bytes());
        put(&mut b, 32, &(self.producer & 0xff_ffff).to_be_bytes());
        b
    }
}

/// A notice, numbers in host order. What it is about is in its details, whose form depends on the trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// It is one of the architecture rather than a vendor's.
    pub generic: bool,
    /// 0 fatal, 1 urgent, 2 security, 3 subnet management, 4 informational.
    pub kind: u8,
    /// Type of node that produced it, 24 bits.
    pub producer: u32,
    /// Number of the trap.
    pub trap: u16,
    /// LID of whoever produced it.
    pub issuer_lid: u16,
    /// Details.
    pub details: [u8; 54],
}

impl Notice {
    /// A notice about a GID, as the traps 64 to 67 are.
    pub fn about_gid(trap: u16, issuer_lid: u16, gid: Gid) -> Notice {
        let mut details = [0; 54];
        put(&mut details, 6, &gid.0);
        // a class manager produces it
        Notice { generic: true, kind: 3, producer: 4, trap, issuer_lid, details }
    }

    /// A switch's notice that a link has changed.
    pub fn about_links(switch_lid: u16) -> Notice {
        let mut details = [0; 54];
        put(&mut details, 0, &switch_lid.to_be_bytes());
        Notice { generic: true, kind: 1, producer: 2, trap: TRAP_LINK_STATE, issuer_lid: switch_lid, details }
    }

    /// The GID that a notice with trap 64 to 67 is about.
    pub fn gid(&self) -> Gid {
        Gid(bytes(&self.details, 6))
    }

    fn read(b: &[u8; 64]) -> Notice {
        Notice {
            generic: b[0] & 0x80 != 0,
            kind: b[0] & 0x7f,
            producer: be32(b, 0) & 0xff_ffff,
            trap: be16(b, 4),
            issuer_lid: be16(b, 6),
            details: bytes(b, DETAILS),
        }
    }

    fn emit(&self) -> [u8; 64] {
        let mut b = [0; 64];
        put(&mut b, 0, &(self.producer & 0xff_ffff).to_be_bytes());
        b[0] = u8::from(self.generic) << 7 | self.kind & 0x7f;
        put(&mut b, 4, &self.trap.to_be_bytes());
        put(&mut b, 6, &self.issuer_lid.to_be_bytes());
        put(&mut b, DETAILS, &self.details);
        b
    }
}

impl SaMad {
    /// SubnAdmSet(InformInfo).
    pub fn subscription(tid: u64, inform: &InformInfo) -> SaMad {
        let mut m = SaMad::request(METHOD_SET, ATTR_INFORM, tid);
        m.set_component_mask(INFORM_MASK);
        put(&mut m.0, DATA, &inform.emit());
        m
    }

    /// SubnAdmReport(Notice).
    pub fn report(tid: u64, notice: &Notice) -> SaMad {
        let mut m = SaMad::request(METHOD_REPORT, ATTR_NOTICE, tid);
        put(&mut m.0, DATA, &notice.emit());
        m
    }

    /// The answer to this report: itself, as a response without a failure.
    pub fn report_response(&self) -> SaMad {
        let mut m = *self;
        m.0[3] = METHOD_REPORT | METHOD_RESP;
        m.set_status(0);
        m
    }

    /// Whether it is a report, of whatever.
    pub fn is_report(&self) -> bool {
        self.is_sa() && self.method() == METHOD_REPORT
    }

    /// The attribute read as a subscription.
    pub fn inform(&self) -> InformInfo {
        InformInfo::read(&bytes(&self.0, DATA))
    }

    /// The attribute read as a notice.
    pub fn notice(&self) -> Notice {
        Notice::read(&bytes(&self.0, DATA))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscription_layout_and_round_trip() {
        let m = SaMad::subscription(7, &InformInfo::to_trap(TRAP_GID_OUT));
        assert!(m.is_sa() && !m.is_report());
        assert_eq!((m.method(), m.attribute(), m.component_mask()), (2, 3, 0x10f2));
        let a = &m.0[56..92];
        assert_eq!(a[..16], [0; 16]);
        assert_eq!(a[16..24], [0xff, 0xff, 0, 0, 0, 0, 1, 1]);
        assert_eq!(a[24..36], [0xff, 0xff, 0, 65, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff]);
        let full = InformInfo {
            gid: Gid([5; 16]),
            lid_begin: 0x102,
            lid_end: 0x304,
            generic: false,
            subscribe: false,
            kind: 3,
            trap: 0x506,
            qpn: 0x7_0809,
            response_time: 18,
            producer: 0xa_0b0c,
        };
        assert_eq!(SaMad::subscription(1, &full).inform(), full);
    }

    #[test]
    fn notice_layout_and_round_trip() {
        let gid = Gid([9; 16]);
        let m = SaMad::report(0x1_0000_0001, &Notice::about_gid(TRAP_GID_IN, 0x1234, gid));
        assert!(m.is_report());
        assert_eq!((m.attribute(), m.notice().trap, m.notice().gid()), (2, 64, gid));
        assert_eq!(m.0[56..72], [0x83, 0, 0, 4, 0, 64, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(m.0[72..88], [9; 16]);
        let n = Notice { generic: false, kind: 4, producer: 0x1_0203, trap: 7, issuer_lid: 8, details: [3; 54] };
        assert_eq!(SaMad::report(1, &n).notice(), n);
        let n = Notice::about_links(0x203);
        assert_eq!(SaMad::report(1, &n).0[56..68], [0x81, 0, 0, 2, 0, 128, 2, 3, 0, 0, 2, 3]);
    }

    #[test]
    fn a_response_is_the_report_again() {
        let mut m = SaMad::report(3, &Notice::about_links(5));
        m.set_status(0x0300);
        let r = m.report_response();
        assert_eq!((r.method(), r.status(), r.tid(), r.attribute()), (0x86, 0, 3, 2));
        assert_eq!(r.0[56..], m.0[56..]);
        assert!(!r.is_report(), "no report, so that two of us cannot answer each other for ever");
    }
}
