//! The kernel's messages and what it expects of the answers.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::IpAddr;
use std::time::Duration;

use fabric::Kernel;
use ibacm_wire::{Gid, PathRecord};

use super::util::PATIENCE;

pub const RESOLVE: u16 = 0x1000;
pub const SET_TIMEOUT: u16 = 0x1001;
pub const IP_RESOLVE: u16 = 0x1002;

pub const ALL: u8 = 0;
pub const UNIDIRECTIONAL: u8 = 1;
pub const GMP: u8 = 2;

pub const TIMEOUT: u16 = 2;
pub const SERVICE_ID: u16 = 3;
pub const DGID: u16 = 4;
pub const SGID: u16 = 5;
pub const TCLASS: u16 = 6;
pub const PKEY: u16 = 7;
pub const QOS_CLASS: u16 = 8;
pub const IPV4: u16 = 9;
pub const IPV6: u16 = 10;
pub const MANDATORY: u16 = 1 << 13;

/// A message with these bytes after its header.
pub fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (16 + payload.len() as u32).to_ne_bytes().to_vec();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&1_u16.to_ne_bytes()); // NLM_F_REQUEST
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&0_u32.to_ne_bytes());
    out.extend_from_slice(payload);
    out
}

/// An attribute with its padding.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = (4 + value.len() as u16).to_ne_bytes().to_vec();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The payload of a question for a path.
pub fn path(device: &str, port: u8, path_use: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut out = device.as_bytes().to_vec();
    out.resize(64, 0);
    out.extend_from_slice(&[port, path_use, 0, 0]);
    out.extend(attributes.iter().flatten());
    out
}

/// The question for a path between two GIDs, as the kernel asks it.
pub fn between(sequence: u32, sgid: &[u8; 16], dgid: &[u8; 16]) -> Vec<u8> {
    let attributes = [
        attribute(DGID | MANDATORY, dgid),
        attribute(SGID | MANDATORY, sgid),
        attribute(PKEY | MANDATORY, &0xffff_u16.to_ne_bytes()),
    ];
    message(RESOLVE, sequence, &path("mlx5_0", 1, GMP, &attributes))
}

/// The question for the GID that has an address.
pub fn by_address(sequence: u32, address: &str) -> Vec<u8> {
    let attribute = match address.parse().expect("an address") {
        IpAddr::V4(ip) => attribute(IPV4 | MANDATORY, &ip.octets()),
        IpAddr::V6(ip) => attribute(IPV6 | MANDATORY, &ip.octets()),
    };
    message(IP_RESOLVE, sequence, &[&[0; 4][..], &attribute].concat())
}

/// A message of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub kind: u16,
    pub sequence: u32,
    /// The port id in it.
    pub port: u32,
    /// Who sent it.
    pub sender: u32,
    /// Type and value of its only attribute; `None` for a refusal.
    pub attribute: Option<(u16, Vec<u8>)>,
    pub bytes: Vec<u8>,
}

impl Answer {
    fn read((bytes, sender): (Vec<u8>, u32)) -> Answer {
        let u16_at = |at| u16::from_ne_bytes(*bytes[at..].first_chunk().expect("long enough"));
        let u32_at = |at| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("long enough"));
        assert_eq!(u32_at(0) as usize, bytes.len(), "{bytes:02x?}");
        let attribute = match u16_at(6) {
            0 => {
                assert_eq!(usize::from(u16_at(16)), bytes.len() - 16, "one attribute: {bytes:02x?}");
                Some((u16_at(18), bytes[20..].to_vec()))
            }
            flags => {
                assert_eq!((flags, bytes.len()), (0x100, 16), "a refusal has nothing else: {bytes:02x?}");
                None
            }
        };
        Answer { kind: u16_at(4), sequence: u32_at(8), port: u32_at(12), sender, attribute, bytes }
    }

    /// Flags and record of an answer with a path.
    pub fn path(&self) -> (u32, PathRecord) {
        let (kind, value) = self.attribute.as_ref().unwrap_or_else(|| panic!("a refusal: {self:?}"));
        assert_eq!((self.kind, *kind, value.len()), (RESOLVE, 1, 72), "{self:?}");
        assert_eq!(value[4..8], [0; 4], "{self:?}");
        let flags = u32::from_ne_bytes(*value.first_chunk().expect("long enough"));
        (flags, PathRecord::read(&value[8..]).expect("long enough"))
    }

    /// The GID of an answer with one.
    pub fn gid(&self) -> Gid {
        let (kind, value) = self.attribute.as_ref().unwrap_or_else(|| panic!("a refusal: {self:?}"));
        assert_eq!((self.kind, *kind), (IP_RESOLVE, DGID), "{self:?}");
        Gid(value.as_slice().try_into().expect("a GID has 16 bytes"))
    }

    pub fn is_refusal(&self) -> bool {
        self.attribute.is_none()
    }
}

/// The next answer, if one comes in time.
pub fn recv_within(kernel: &Kernel, patience: Duration) -> Option<Answer> {
    kernel.recv(patience).expect("the socket works").map(Answer::read)
}

/// The next answer.
pub fn recv(kernel: &Kernel) -> Answer {
    recv_within(kernel, PATIENCE).expect("an answer")
}

/// Asks, and waits for the answer, which must be to this.
pub fn ask(kernel: &Kernel, question: &[u8]) -> Answer {
    kernel.send(question).expect("the socket works");
    let answer = recv(kernel);
    assert_eq!(answer.kind.to_ne_bytes(), question[4..6]);
    assert_eq!(answer.sequence.to_ne_bytes(), question[8..12], "{answer:?}");
    answer
}
