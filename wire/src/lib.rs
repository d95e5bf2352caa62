//! Message layouts that an InfiniBand communication manager assistant speaks, over plain byte arrays:
//!
//! * [`client`]: the client protocol of `infiniband/acm.h` (resolve, performance and endpoint queries);
//! * [`datagram`]: the multicast address protocol between the services of a subnet;
//! * [`sa`]: management datagrams to and from the subnet administrator (IBA chapter 15.2);
//! * [`notice`]: subscriptions to what the subnet administrator tells, and what it tells (IBA 13.4.8);
//! * [`path`]: the path record that all of them carry (IBA 15.2.5.16).
//!
//! Nothing here does I/O, allocates or can panic on any input. A field's byte order is said where it is read.
#![forbid(unsafe_code)]

pub mod client;
pub mod datagram;
mod field;
mod gid;
pub mod notice;
pub mod path;
pub mod reply;
pub mod sa;

pub use gid::Gid;
pub use path::PathRecord;
