//! What the fuzzer runs (`scripts/fuzz`): for each target a function that takes any bytes and panics if something is
//! true that must never be. Not in the programs: compiled for `cargo fuzz`, and for the test that runs every target on the
//! corpus that is committed (`fuzz/corpus`).

mod client;
mod datagram;
mod decode;
mod engine;
mod files;
mod input;
pub(crate) mod names;
mod netlink;
mod sa;
mod seeds;
#[cfg(test)]
mod tests;
mod world;

pub use client::client;
pub use datagram::datagram;
pub use engine::engine;
pub use files::files;
pub use netlink::netlink;
pub use sa::sa;
pub use seeds::seeds;

/// A target: it is given any bytes.
pub type Target = fn(&[u8]);

/// The targets and their names, but for `reply`, which is the client library's.
pub const TARGETS: &[(&str, Target)] = &[
    ("client", client),
    ("datagram", datagram),
    ("engine", engine),
    ("files", files),
    ("netlink", netlink),
    ("sa", sa),
];
