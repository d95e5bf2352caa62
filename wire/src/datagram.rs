//! Datagrams of the multicast address protocol: 256 bytes of UD payload, numbers in network order.
//!
//! A request (method Get) goes to an endpoint's first multicast group, a response (Get | 0x80) to whoever asked.

use crate::Gid;
use crate::client::MAX_ADDRESS;
use crate::field::{be16, be64, bytes, put};

/// Bytes of a datagram.
pub const LEN: usize = 256;
/// Queue key of every endpoint's QP and group.
pub const QKEY: u32 = 0x8001_0000;
/// The destination QP number of multicast packets (IBA 10.5).
pub const MULTICAST_QPN: u32 = 0xff_ffff;
/// GIDs that the layout of deployed peers has room for; a larger count is hostile.
pub const PEER_MAX_GIDS: usize = 6;

const BASE_VERSION: u8 = 1;
const MGMT_CLASS: u8 = 0x2c;
const CLASS_VERSION: u8 = 1;
const METHOD_GET: u8 = 1;
const METHOD_RESP: u8 = 0x80;
const CTRL_RESOLVE: u16 = 1;

const DEST_TYPE: usize = 16;
const GIDS: usize = 152;

/// What a datagram asks or answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram {
    /// Who has `dest`? Asked by `src`.
    Request(Request),
    /// The answer to one's own request.
    Response(Response),
}

/// A request for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Chosen by the asker, returned in the response; network order as it stands.
    pub tid: u64,
    /// Type of the wanted address (`client::TYPE_*`).
    pub dest_type: u8,
    /// The wanted address, zero padded.
    pub dest: [u8; MAX_ADDRESS],
    /// Type of the asker's address.
    pub src_type: u8,
    /// The asker's address, zero padded.
    pub src: [u8; MAX_ADDRESS],
    /// The asker's groups, lowest preference first.
    pub groups: Groups,
}

/// A response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The request's.
    pub tid: u64,
    /// Class status: 0, or a client status.
    pub status: u8,
    /// The group that both are in, the best one.
    pub groups: Groups,
}

/// A list of at most [`PEER_MAX_GIDS`] multicast GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    count: u8,
    gids: [Gid; PEER_MAX_GIDS],
}

impl Groups {
    /// The first [`PEER_MAX_GIDS`] of `gids`.
    pub fn new(gids: impl IntoIterator<Item = Gid>) -> Groups {
        let mut g = Groups::default();
        for gid in gids.into_iter().take(PEER_MAX_GIDS) {
            g.gids[g.count as usize] = gid;
            g.count += 1;
        }
        g
    }

    /// The list.
    pub fn as_slice(&self) -> &[Gid] {
        &self.gids[..self.count as usize]
    }
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// Fewer bytes than [`LEN`].
    Truncated,
    /// Base or class version.
    Version,
    /// Another management class.
    Class,
    /// Neither Get nor its response.
    Method,
    /// Neither kind of control word.
    Control,
    /// More groups than fit.
    GidCount,
    /// A source or destination type that no address has.
    AddressType,
}

impl Datagram {
    /// Reads a payload. Bytes after the first 256 are not looked at.
    pub fn parse(payload: &[u8]) -> Result<Datagram, DatagramError> {
        let b: &[u8; LEN] = payload.first_chunk().ok_or(DatagramError::Truncated)?;
        if b[0] != BASE_VERSION || b[2] != CLASS_VERSION {
            return Err(DatagramError::Version);
        }
        if b[1] != MGMT_CLASS {
            return Err(DatagramError::Class);
        }
        if be16(b, 6) != CTRL_RESOLVE {
            return Err(DatagramError::Control);
        }
        let count = b[DEST_TYPE + 4];
        if count as usize > PEER_MAX_GIDS {
            return Err(DatagramError::GidCount);
        }
        let groups = Groups::new((0..count as usize).map(|i| Gid(bytes(b, GIDS + 16 * i))));
        let tid = be64(b, 8);
        match b[3] {
            METHOD_GET => {
                let (dest_type, src_type) = (b[DEST_TYPE], b[DEST_TYPE + 2]);
                if !(1..=5).contains(&src_type) || !(1..=5).contains(&dest_type) {
                    return Err(DatagramError::AddressType);
                }
                let (dest, src) = (bytes(b, 24), bytes(b, 88));
                Ok(Datagram::Request(Request { tid, dest_type, dest, src_type, src, groups }))
            }
            m if m == METHOD_GET | METHOD_RESP => {
                Ok(Datagram::Response(Response { tid, status: (be16(b, 4) >> 8) as u8, groups }))
            }
            _ => Err(DatagramError::Method),
        }
    }

    /// The payload's bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[0] = BASE_VERSION;
        b[1] = MGMT_CLASS;
        b[2] = CLASS_VERSION;
        put(&mut b, 6, &CTRL_RESOLVE.to_be_bytes());
        let groups = match self {
            Datagram::Request(r) => {
                b[3] = METHOD_GET;
                put(&mut b, 8, &r.tid.to_be_bytes());
                b[DEST_TYPE] = r.dest_type;
                b[DEST_TYPE + 1] = MAX_ADDRESS as u8;
                b[DEST_TYPE + 2] = r.src_type;
                b[DEST_TYPE + 3] = MAX_ADDRESS as u8;
                put(&mut b, 24, &r.dest);
                put(&mut b, 88, &r.src);
                &r.groups
            }
            Datagram::Response(r) => {
                b[3] = METHOD_GET | METHOD_RESP;
                put(&mut b, 4, &(u16::from(r.status) << 8).to_be_bytes());
                put(&mut b, 8, &r.tid.to_be_bytes());
                &r.groups
            }
        };
        b[DEST_TYPE + 4] = groups.count;
        for (i, g) in groups.as_slice().iter().enumerate() {
            put(&mut b, GIDS + 16 * i, &g.0);
        }
        b
    }
}

/// The group GID of a partition, rate and MTU (IB enums): `ff15:4001:<pkey>:00<rate>:<mtu>00:0:0:0`.
pub fn group_gid(pkey: u16, rate: u8, mtu: u8) -> Gid {
    let p = (pkey | 0x8000).to_be_bytes();
    Gid([0xff, 0x15, 0x40, 0x01, p[0], p[1], 0, rate, mtu, 0, 0, 0, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            tid: 0x0102_0304_0506_0708,
            dest_type: 2,
            dest: [7; 64],
            src_type: 1,
            src: [9; 64],
            groups: Groups::new([group_gid(0x7fff, 3, 4), group_gid(0xffff, 7, 5)]),
        }
    }

    #[test]
    fn round_trip_and_positions() {
        let d = Datagram::Request(request());
        let b = d.emit();
        assert_eq!(Datagram::parse(&b), Ok(d));
        assert_eq!(b[..8], [1, 0x2c, 1, 1, 0, 0, 0, 1]);
        assert_eq!(b[16..24], [2, 64, 1, 64, 2, 0, 0, 0]);
        assert_eq!(b[152..161], [0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4]);
        let r = Datagram::Response(Response { tid: 5, status: 6, groups: Groups::new([Gid([1; 16])]) });
        assert_eq!(Datagram::parse(&r.emit()), Ok(r));
        assert_eq!(r.emit()[3..6], [0x81, 6, 0]);
    }

    #[test]
    fn every_fault_is_named() {
        let good = Datagram::Request(request()).emit();
        assert_eq!(Datagram::parse(&good[..255]), Err(DatagramError::Truncated));
        for (at, value, want) in [
            (0, 2, DatagramError::Version),
            (2, 2, DatagramError::Version),
            (1, 3, DatagramError::Class),
            (3, 2, DatagramError::Method),
            (6, 0x80, DatagramError::Control),
            (20, 7, DatagramError::GidCount),
            (20, 255, DatagramError::GidCount),
            (18, 0, DatagramError::AddressType),
            (18, 6, DatagramError::AddressType),
        ] {
            let mut b = good;
            b[at] = value;
            assert_eq!(Datagram::parse(&b), Err(want), "byte {at} = {value}");
        }
    }
}
