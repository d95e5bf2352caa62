//! How the byte stream of a client falls into requests, and what a service makes of them.

use ibacm_wire::client::{OP_EP_QUERY, OP_MASK, OP_RESOLVE, VERSION};

pub use ibacm_wire::client::{HDR_LEN as HEADER, MAX_REQUEST};

/// Names one connection. After the connection is closed its id finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ClientId {
    /// An id from the parts of a token; one that was never given out finds nobody.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> ClientId {
        ClientId { index, generation }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One whole reply was appended to `out`.
    Replied,
    /// The reply comes later, through the server's `reply`; nothing was appended.
    Pending,
    /// The client broke the protocol: close the connection once the earlier replies are out.
    Close,
}

/// Who answers the requests.
pub trait Service {
    /// One whole request, framed and with its header checked, in `msg` (16 to 592 bytes).
    /// A reply that is ready is appended to `out`, which may hold the replies to others.
    fn request(&mut self, client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome;
    /// The connection is gone, and with it whoever waits for replies that are still due.
    fn closed(&mut self, client: ClientId);
}

/// Why a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client is done, or its side is gone.
    Gone,
    /// It sent what is no request.
    Protocol,
    /// It began a message and did not finish it.
    Timeout,
    /// More bytes wait for it than may.
    Overflow,
}

/// How long the message at the beginning of `bytes` is: `None` while that cannot be told.
///
/// # Errors
/// [`Reason::Protocol`], as early as the bytes show it.
#[inline(always)]
pub fn frame(bytes: &[u8]) -> Result<Option<usize>, Reason> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(Reason::Protocol);
    }
    let Some(operation) = bytes.get(1).map(|opcode| opcode & OP_MASK) else {
        return Ok(None);
    };
    if !(OP_RESOLVE..=OP_EP_QUERY).contains(&operation) {
        return Err(Reason::Protocol);
    }
    let Some(&[high, low]) = bytes.get(6..8) else {
        return Ok(None);
    };
    let length =
        if operation == OP_RESOLVE { u16::from_ne_bytes([high, low]) } else { u16::from_be_bytes([high, low]) };
    match usize::from(length) {
        length @ HEADER..=MAX_REQUEST => Ok(Some(length)),
        _ => Err(Reason::Protocol),
    }
}

/// Whether a whole message (or one that is known to be wrong) is at the beginning of `bytes`.
pub(crate) fn has_whole(bytes: &[u8]) -> bool {
    match frame(bytes) {
        Ok(Some(length)) => bytes.len() >= length,
        Ok(None) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(operation: u8, length: [u8; 2]) -> Vec<u8> {
        let mut bytes = vec![1, operation, 0, 0, 0, 0];
        bytes.extend_from_slice(&length);
        bytes.resize(HEADER, 0);
        bytes
    }

    #[test]
    fn only_resolve_has_its_length_in_host_order() {
        // Only the low four bits are the operation.
        for (operation, length) in
            [(1, 88u16.to_ne_bytes()), (0x81, 88u16.to_ne_bytes()), (2, 88u16.to_be_bytes()), (3, 88u16.to_be_bytes())]
        {
            assert_eq!(frame(&header(operation, length)), Ok(Some(88)));
        }
    }

    #[test]
    fn what_is_wrong_shows_as_early_as_it_can() {
        for bad in [&[0][..], &[2], &[1, 0], &[1, 4], &[1, 0x10]] {
            assert_eq!(frame(bad), Err(Reason::Protocol), "{bad:?}");
            assert!(has_whole(bad));
        }
        for length in [0, 15, 593, u16::MAX] {
            assert_eq!(frame(&header(1, length.to_ne_bytes())), Err(Reason::Protocol));
            assert_eq!(frame(&header(2, length.to_be_bytes())), Err(Reason::Protocol));
        }
    }

    #[test]
    fn a_length_is_known_with_its_last_byte() {
        let bytes = header(3, 592u16.to_be_bytes());
        for end in 0..8 {
            assert_eq!(frame(&bytes[..end]), Ok(None));
            assert!(!has_whole(&bytes[..end]));
        }
        assert_eq!(frame(&bytes[..8]), Ok(Some(MAX_REQUEST)));
        assert!(!has_whole(&bytes));
        assert!(has_whole(&header(3, 16u16.to_be_bytes())));
    }
}
