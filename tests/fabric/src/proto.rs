//! The messages between the stand-in library and the switch process; `standin/proto.h` is the other side.

/// Version of the messages; both sides come out of one build, so a difference means two subnets were mixed up.
pub const VERSION: u32 = 1;
/// Bytes of the fixed part.
pub const FIXED: usize = 96;
/// Largest payload.
pub const MAX_PAYLOAD: usize = 4352;

/// What a connection is for (the flags of its hello).
pub mod conn {
    /// Requests of one device context.
    pub const CONTROL: u32 = 1;
    /// Completions of one CQ.
    pub const CQ: u32 = 2;
    /// Asynchronous events of one context.
    pub const ASYNC: u32 = 3;
    /// MADs of one open port.
    pub const UMAD: u32 = 4;
}

/// Operations; `proto.h` says what each carries.
#[allow(missing_docs, reason = "the names are explained once, in proto.h")]
pub mod op {
    pub const HELLO: u32 = 1;
    pub const LIST: u32 = 2;
    pub const OPEN: u32 = 3;
    pub const PORT: u32 = 5;
    pub const GID: u32 = 6;
    pub const PKEY: u32 = 7;
    pub const CREATE_CQ: u32 = 10;
    pub const DESTROY_CQ: u32 = 11;
    pub const CREATE_QP: u32 = 12;
    pub const MODIFY_QP: u32 = 13;
    pub const QUERY_QP: u32 = 14;
    pub const DESTROY_QP: u32 = 15;
    pub const ATTACH: u32 = 16;
    pub const DETACH: u32 = 17;
    pub const POST_RECV: u32 = 18;
    pub const SEND: u32 = 19;
    pub const RAISE: u32 = 20;
    pub const CQE: u32 = 30;
    pub const EVENT: u32 = 31;
    pub const UMAD_REGISTER: u32 = 40;
    pub const UMAD_UNREGISTER: u32 = 41;
    pub const UMAD_SEND: u32 = 42;
    pub const UMAD_RECV: u32 = 43;
}

/// Flags of sends and completions.
#[allow(missing_docs, reason = "the names are explained once, in proto.h")]
pub mod flag {
    pub const SIGNALED: u32 = 1;
    pub const IMM: u32 = 2;
    pub const GRH: u32 = 4;
    pub const RECV: u32 = 8;
    pub const SOLICITED: u32 = 16;
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields mean what each operation says, see proto.h")]
pub struct Msg {
    pub op: u32,
    pub err: i32,
    pub obj: u32,
    pub port: u32,
    pub index: u32,
    pub flags: u32,
    pub v: [u32; 10],
    pub id: u64,
    pub gid: [u8; 16],
    pub payload: Vec<u8>,
}

impl Msg {
    /// A message of this operation, all else zero.
    pub fn new(op: u32) -> Self {
        Msg { op, ..Msg::default() }
    }

    /// Reads a packet; `None` if its lengths don't fit.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> { Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
        let mut v = [0; 10];
        for (i, value) in v.iter_mut().enumerate() {
            *value = word(24 + 4 * i)?;
        }
        let len = word(88)? as usize;
        let payload = bytes.get(FIXED..)?;
        if payload.len() != len {
            return None;
        }
        Some(Msg {
            op: word(0)?,
            err: word(4)? as i32,
            obj: word(8)?,
            port: word(12)?,
            index: word(16)?,
            flags: word(20)?,
            v,
            id: u64::from_ne_bytes(bytes.get(64..72)?.try_into().ok()?),
            gid: bytes.get(72..88)?.try_into().ok()?,
            payload: payload.to_vec(),
        })
    }

    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + self.payload.len());
        for word in [self.op, self.err as u32, self.obj, self.port, self.index, self.flags].iter().chain(&self.v) {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&self.id.to_ne_bytes());
        out.extend_from_slice(&self.gid);
        out.extend_from_slice(&(self.payload.len() as u32).to_ne_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let msg = Msg {
            op: op::SEND,
            err: -5,
            obj: 1,
            port: 2,
            index: 3,
            flags: 4,
            v: [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
            id: u64::MAX - 1,
            gid: *b"0123456789abcdef",
            payload: vec![1, 2, 3],
        };
        let bytes = msg.encode();
        assert_eq!(bytes.len(), FIXED + 3);
        assert_eq!(Msg::decode(&bytes), Some(msg));
        assert_eq!(Msg::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Msg::decode(&bytes[..10]), None);
    }
}
