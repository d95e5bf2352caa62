//! How a source of events is packed into a [`mio::Token`].
//!
//! Every source has a kind, an index inside its kind, and a generation. An index is used again
//! after its owner is gone; the generation is not, so that an event which was already collected
//! for the old owner finds nobody instead of the new one.

use mio::Token;

/// What a token stands for: the top 8 bits of it.
pub mod kind {
    /// A listening socket of the client service; the index is the listener's.
    pub const LISTENER: u8 = 1;
    /// A client connection; the index and generation are those of its `ClientId`.
    pub const CLIENT: u8 = 2;
    /// A completion channel of a device.
    pub const COMPLETION: u8 = 3;
    /// The asynchronous events of a device.
    pub const ASYNC: u8 = 4;
    /// A management datagram port (umad).
    pub const UMAD: u8 = 5;
    /// The rtnetlink socket: interfaces, addresses, routes.
    pub const NETLINK: u8 = 6;
    /// The signal descriptor.
    pub const SIGNAL: u8 = 7;
    /// The kernel's local service socket (NETLINK_RDMA).
    pub const RDMA_NETLINK: u8 = 8;
    /// A wake-up from another thread.
    pub const WAKER: u8 = 9;
    /// The rtnetlink socket for news of neighbours.
    pub const NEIGHBOURS: u8 = 10;
    /// The first kind that this table leaves free.
    pub const FREE: u8 = 11;
}

/// Generations are counted modulo this: 24 bits of the token hold them.
pub const GENERATIONS: u32 = 1 << 24;

// 8 + 24 + 32 bits have to fit.
const _: () = assert!(usize::BITS >= 64, "tokens need a 64-bit usize");

/// A token taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// One of [`kind`]'s constants, or a number that nobody knows.
    pub kind: u8,
    /// Below [`GENERATIONS`].
    pub generation: u32,
    /// The place in the table of that kind.
    pub index: u32,
}

/// Packs a token: index in the low 32 bits, generation in the next 24 (what does not fit is
/// cut off), kind in the top 8.
#[must_use]
pub const fn pack(kind: u8, generation: u32, index: u32) -> Token {
    let generation = (generation % GENERATIONS) as usize;
    Token((kind as usize) << 56 | generation << 32 | index as usize)
}

/// The reverse of [`pack`].
#[must_use]
#[allow(clippy::cast_possible_truncation)] // cutting off is what takes it apart
pub const fn unpack(token: Token) -> Parts {
    Parts { kind: (token.0 >> 56) as u8, generation: (token.0 >> 32) as u32 % GENERATIONS, index: token.0 as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_at_its_edges() {
        for kind in [0, kind::CLIENT, u8::MAX] {
            for generation in [0, 1, GENERATIONS - 1] {
                for index in [0, 1, u32::MAX] {
                    let parts = unpack(pack(kind, generation, index));
                    assert_eq!(parts, Parts { kind, generation, index });
                }
            }
        }
    }

    #[test]
    fn a_generation_that_is_too_large_does_not_touch_the_kind() {
        let parts = unpack(pack(kind::CLIENT, GENERATIONS + 5, 7));
        assert_eq!(parts, Parts { kind: kind::CLIENT, generation: 5, index: 7 });
    }
}
