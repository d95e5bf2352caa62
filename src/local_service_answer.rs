//! Answers to the kernel's questions, byte by byte.

use ibacm_wire::client::{Entry, Header, TYPE_PATH};
use ibacm_wire::{PathRecord, path};

use super::{ATTRIBUTE_HEADER, Context, DGID, HEADER, OP_IP_RESOLVE, OPERATION, PATH_RECORD};

/// Message flag: there is no answer to the question (`RDMA_NL_LS_F_ERR`).
const FLAG_ERROR: u16 = 0x0100;
/// `IB_PATH_PRIMARY | IB_PATH_GMP | IB_PATH_BIDIRECTIONAL` of `rdma/ib_user_sa.h`: good for every use.
const EVERY_USE: u32 = 0x2b;
/// `IB_PATH_PRIMARY | IB_PATH_OUTBOUND`.
const ONE_WAY: u32 = 0x0a;
/// Bytes of `struct ib_path_rec_data`: flags, a reserved word, the record.
const PATH_DATA: usize = 8 + path::LEN;

/// A message for the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    length: u8,
    bytes: [u8; HEADER + ATTRIBUTE_HEADER + PATH_DATA],
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({:02x?})", self.as_bytes())
    }
}

impl Answer {
    /// There is no answer. `port` is the socket's own port id.
    #[must_use]
    pub fn refusal(port: u32, context: Context) -> Answer {
        Answer::new(port, context, FLAG_ERROR)
    }

    /// What the reply to a client who asked the same question means for the kernel.
    #[must_use]
    pub fn from_reply(port: u32, context: Context, reply: &[u8]) -> Answer {
        let success = Header::read(reply).is_some_and(|h| h.status == 0);
        let path = Entry::read(reply, 0).filter(|e| success && e.kind == TYPE_PATH).map(|e| PathRecord(e.info));
        let by_address = context.kind & OPERATION == OP_IP_RESOLVE;
        let path = path.filter(|p| !by_address || !p.dgid().is_zero());
        let Some(path) = path else { return Answer::refusal(port, context) };
        let mut answer = Answer::new(port, context, 0);
        if by_address {
            answer.attribute(DGID, &[&path.dgid().0]);
        } else {
            let flags = if context.one_way { ONE_WAY } else { EVERY_USE };
            answer.attribute(PATH_RECORD, &[&flags.to_ne_bytes(), &[0; 4], &path.0]);
        }
        answer
    }

    fn new(port: u32, context: Context, flags: u16) -> Answer {
        let mut answer = Answer { length: 0, bytes: [0; HEADER + ATTRIBUTE_HEADER + PATH_DATA] };
        answer.push(&[0; 4]); // the length comes last
        answer.push(&context.kind.to_ne_bytes());
        answer.push(&flags.to_ne_bytes());
        answer.push(&context.sequence.to_ne_bytes());
        answer.push(&port.to_ne_bytes());
        answer.seal();
        answer
    }

    fn attribute(&mut self, kind: u16, parts: &[&[u8]]) {
        let length = ATTRIBUTE_HEADER + parts.iter().map(|p| p.len()).sum::<usize>();
        self.push(&(length as u16).to_ne_bytes());
        self.push(&kind.to_ne_bytes());
        parts.iter().for_each(|part| self.push(part));
        self.seal();
    }

    fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.length);
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len() as u8;
        }
    }

    fn seal(&mut self) {
        self.bytes[..4].copy_from_slice(&u32::from(self.length).to_ne_bytes());
    }

    /// The message's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}
