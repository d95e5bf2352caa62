//! A simulated InfiniBand subnet for tests: ibsim and OpenSM are real, hosts are namespaces of this machine, and a
//! preloaded library stands in for libibverbs and libibumad.

pub mod children;
pub mod client;
pub mod daemon;
pub mod host;
pub mod ib;
pub mod ibsim;
pub mod kernel;
pub mod managers;
pub mod options;
pub mod paths;
pub mod programs;
pub mod proto;
pub mod subnet;
pub mod switch;
pub mod topology;
mod tun;

pub use client::Error;
pub use kernel::Kernel;
pub use options::Options;
pub use subnet::{PortLine, Sniffed, Subnet};
