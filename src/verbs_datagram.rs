//! What a datagram endpoint takes and gives: plain data, free of the library's types.

// The parent's allowance isn't for here.
#![deny(unsafe_code)]

use std::{error, fmt, io};

/// Longest payload of a datagram, bytes: that of a management datagram (IBA 13.4.2).
pub const PAYLOAD: usize = 256;

/// Length of the global route header that a UD receive buffer starts with (IBA 11.4.1.2).
pub(super) const GRH: usize = 40;

/// The part of an address that is needed between subnets, and always for multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AvGrh {
    /// Destination GID, as on the wire.
    pub dgid: [u8; 16],
    /// Index of the source GID in the port's table.
    pub sgid_index: u8,
    /// Flow label, 20 bits, host byte order.
    pub flow_label: u32,
    /// Routers that may be passed.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// Where a datagram goes: what an address handle is made of, the port apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Av {
    /// Destination LID, host byte order.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the source LID (with an LMC other than 0).
    pub src_path_bits: u8,
    /// Static rate, IBA encoding (0: as fast as the port).
    pub static_rate: u8,
    /// Global route; none within a subnet.
    pub grh: Option<AvGrh>,
}

/// Why a datagram was not sent. Nothing is in flight for it then.
#[derive(Debug)]
pub enum SendError {
    /// All send slots (or address handles) are in use: try again after a completion.
    Full,
    /// The payload is longer than [`PAYLOAD`].
    TooLong,
    /// The device refused, or the endpoint is broken.
    Io(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Full => write!(f, "all send slots are in use"),
            SendError::TooLong => write!(f, "the payload is longer than {PAYLOAD} bytes"),
            SendError::Io(e) => write!(f, "{e}"),
        }
    }
}

impl error::Error for SendError {}

/// The global route header of a received datagram.
#[derive(Debug, Clone, Copy)]
pub struct RecvGrh<'a>(pub(super) &'a [u8; GRH]);

impl RecvGrh<'_> {
    fn gid(&self, start: usize) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.copy_from_slice(&self.0[start..start + 16]);
        gid
    }

    /// The sender's GID, as on the wire.
    pub fn sgid(&self) -> [u8; 16] {
        self.gid(8)
    }

    /// The GID it was sent to (a group's for multicast), as on the wire.
    pub fn dgid(&self) -> [u8; 16] {
        self.gid(24)
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        (self.0[0] << 4) | (self.0[1] >> 4)
    }

    /// Flow label, host byte order.
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.0[1] & 0x0f, self.0[2], self.0[3]])
    }

    /// Hops left.
    pub fn hop_limit(&self) -> u8 {
        self.0[7]
    }
}

/// A received datagram, integers in host byte order.
#[derive(Debug, Clone, Copy)]
pub struct Recv<'a> {
    /// The sender's LID.
    pub slid: u16,
    /// The sender's QP.
    pub src_qp: u32,
    /// Service level it came with.
    pub sl: u8,
    /// Low bits of the LID it was sent to.
    pub dlid_path_bits: u8,
    /// Index of the partition key; devices may leave it 0 for UD.
    pub pkey_index: u16,
    /// The global route header, if the datagram had one.
    pub grh: Option<RecvGrh<'a>>,
    /// What was sent, at most [`PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// One thing that has ended.
#[derive(Debug, Clone, Copy)]
pub enum Completion<'a> {
    /// A datagram came.
    Recv(Recv<'a>),
    /// A send has ended, well or not; its slot is free again.
    Sent {
        /// As given to [`super::UdEndpoint::send`].
        token: u64,
        /// Whether it went out.
        ok: bool,
        /// The status (`enum ibv_wc_status`), 0 if ok.
        status: u32,
    },
    /// A receive failed. See [`super::UdEndpoint::is_broken`].
    RecvError {
        /// The status (`enum ibv_wc_status`), 0 if it claims to be well but has an impossible length.
        status: u32,
    },
}

/// What [`super::UdEndpoint::poll`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Completions handled.
    pub completions: usize,
    /// The budget ended it: call again, don't wait for an event. Otherwise the queue was empty
    /// and armed.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::failed;

    #[test]
    fn the_route_header_is_read_by_its_layout() {
        let mut bytes = [0; GRH];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0x01, 0x00, 0x1b, 0x3f]);
        bytes[8..24].fill(0x11);
        bytes[24..].fill(0x22);
        let grh = RecvGrh(&bytes);
        assert_eq!(grh.traffic_class(), 0xab);
        assert_eq!(grh.flow_label(), 0x1_2345);
        assert_eq!(grh.hop_limit(), 0x3f);
        assert_eq!(grh.sgid(), [0x11; 16]);
        assert_eq!(grh.dgid(), [0x22; 16]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(SendError::TooLong.to_string(), "the payload is longer than 256 bytes");
        let e = SendError::Io(failed("ibv_post_send on mlx5_0:1 to QP 0x1", libc::EINVAL));
        assert!(e.to_string().contains("mlx5_0:1"), "{e}");
    }
}
