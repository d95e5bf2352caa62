//! The few InfiniBand structures that the switch has to read: PortInfo, NodeInfo, MADs of the SA.

/// A 128-bit address as it stands on the wire.
pub type Gid = [u8; 16];

/// The subnet prefix of ports that have not been given another.
pub const DEFAULT_PREFIX: u64 = 0xfe80 << 48;

/// Port states.
pub mod state {
    /// No link.
    pub const DOWN: u8 = 1;
    /// A link, not yet configured.
    pub const INIT: u8 = 2;
    /// In service.
    pub const ACTIVE: u8 = 4;
}

/// First multicast LID.
pub const FIRST_MLID: u16 = 0xc000;
/// The destination QP of multicast datagrams.
pub const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// The Q_Key of QP1.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Two entries are of one partition, and at least one is a full member.
pub fn pkeys_match(a: u16, b: u16) -> bool {
    a & 0x7fff == b & 0x7fff && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What the switch needs of a PortInfo attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture's PortInfo")]
pub struct PortInfo {
    pub gid_prefix: u64,
    pub lid: u16,
    pub sm_lid: u16,
    pub capabilities: u32,
    pub width_active: u8,
    pub state: u8,
    pub phys_state: u8,
    pub lmc: u8,
    pub speed_active: u8,
    pub mtu_active: u8,
    pub sm_sl: u8,
    pub vl_cap: u8,
    pub init_type_reply: u8,
    pub mtu_cap: u8,
    pub guid_cap: u8,
}

impl PortInfo {
    /// Reads the 64 bytes of the attribute.
    pub fn parse(a: &[u8; 64]) -> Self {
        PortInfo {
            // Until the SM sets one, a port has the default prefix.
            gid_prefix: match be64(a, 8) {
                0 => DEFAULT_PREFIX,
                prefix => prefix,
            },
            lid: be16(a, 16),
            sm_lid: be16(a, 18),
            capabilities: be32(a, 20),
            width_active: a[31],
            state: a[32] & 0x0f,
            phys_state: a[33] >> 4,
            lmc: a[34] & 0x07,
            // The extended speeds count from 16 (FDR) in verbs.
            speed_active: match a[62] >> 4 {
                0 => a[35] >> 4,
                extended => extended.saturating_mul(16),
            },
            mtu_active: a[36] >> 4,
            sm_sl: a[36] & 0x0f,
            vl_cap: a[37] >> 4,
            init_type_reply: a[41] >> 4,
            mtu_cap: a[41] & 0x0f,
            guid_cap: a[50],
        }
    }
}

/// The node's GUID and its number of ports and partition table entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture's NodeInfo")]
pub struct NodeInfo {
    pub ports: u8,
    pub node_guid: u64,
    pub partition_cap: u16,
}

impl NodeInfo {
    /// Reads the attribute.
    pub fn parse(a: &[u8; 64]) -> Self {
        NodeInfo { ports: a[3], node_guid: be64(a, 12), partition_cap: be16(a, 28) }
    }
}

/// Offsets in a MAD and in the SA's attributes (which start at byte 56).
pub mod mad {
    /// Class of the SA.
    pub const CLASS_SA: u8 = 3;
    /// Attribute ids.
    pub const ATTR_PATH_RECORD: u16 = 0x35;
    /// Multicast membership.
    pub const ATTR_MC_MEMBER: u16 = 0x38;
    /// A notice.
    pub const ATTR_NOTICE: u16 = 0x02;
    /// Methods.
    pub const GET: u8 = 0x01;
    /// Join.
    pub const SET: u8 = 0x02;
    /// A notice that somebody has subscribed to.
    pub const REPORT: u8 = 0x06;
    /// Leave.
    pub const DELETE: u8 = 0x15;
    /// The bit that makes a response of a method.
    pub const RESPONSE: u8 = 0x80;
    /// Size of every MAD.
    pub const SIZE: usize = 256;
    /// Where the SA's attribute starts.
    pub const SA_DATA: usize = 56;

    /// Management class.
    pub fn class(m: &[u8]) -> u8 {
        m[1]
    }

    /// Method with its response bit.
    pub fn method(m: &[u8]) -> u8 {
        m[3]
    }

    /// Status.
    pub fn status(m: &[u8]) -> u16 {
        super::be16(m, 4)
    }

    /// Transaction id.
    pub fn tid(m: &[u8]) -> u64 {
        super::be64(m, 8)
    }

    /// Attribute id.
    pub fn attribute(m: &[u8]) -> u16 {
        super::be16(m, 16)
    }

    /// Replaces the transaction id.
    pub fn set_tid(m: &mut [u8], tid: u64) {
        m[8..16].copy_from_slice(&tid.to_be_bytes());
    }

    /// Replaces the status.
    pub fn set_status(m: &mut [u8], status: u16) {
        m[4..6].copy_from_slice(&status.to_be_bytes());
    }

    /// A name for statistics.
    pub fn attribute_name(attribute: u16) -> String {
        match attribute {
            0x01 => "ClassPortInfo".into(),
            ATTR_NOTICE => "Notice".into(),
            0x03 => "InformInfo".into(),
            0x11 => "NodeRecord".into(),
            0x12 => "PortInfoRecord".into(),
            0x31 => "ServiceRecord".into(),
            ATTR_PATH_RECORD => "PathRecord".into(),
            ATTR_MC_MEMBER => "MCMemberRecord".into(),
            other => format!("0x{other:04x}"),
        }
    }

    /// A name for statistics.
    pub fn method_name(method: u8) -> String {
        match method & !RESPONSE {
            GET => "Get".into(),
            SET => "Set".into(),
            REPORT => "Report".into(),
            0x12 => "GetTable".into(),
            DELETE => "Delete".into(),
            other => format!("0x{other:02x}"),
        }
    }
}

/// A multicast membership as the SA writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture's MCMemberRecord")]
pub struct McMember {
    pub mgid: Gid,
    pub port_gid: Gid,
    pub mlid: u16,
    pub pkey: u16,
    pub join_state: u8,
}

impl McMember {
    /// Reads the record of an SA MAD.
    pub fn parse(m: &[u8]) -> Option<Self> {
        let a = m.get(mad::SA_DATA..mad::SA_DATA + 52)?;
        Some(McMember {
            mgid: a[0..16].try_into().ok()?,
            port_gid: a[16..32].try_into().ok()?,
            mlid: be16(a, 36),
            pkey: be16(a, 40),
            join_state: a[48] & 0x0f,
        })
    }
}

/// GID from its two halves.
pub fn gid(prefix: u64, guid: u64) -> Gid {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&prefix.to_be_bytes());
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    gid
}
