//! Tests are written for the built-in provider. In the program `providers_suite` our service has the distribution's
//! provider in place of it.

use super::Program;

/// Whether that is so.
pub const STOCK: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"providers_suite");

/// What that provider does that hardware would not forgive.
pub const EXCUSED: &str = "ibv_ack_cq_events";

/// Options that have a service of ours use the distribution's provider alone.
pub const OPTIONS: &str = "builtin_provider no\nprovider_lib_path /usr/lib/x86_64-linux-gnu/ibacm\n";

/// The options that a service is started with.
pub fn options(program: Program, options: &str) -> String {
    if STOCK && program == Program::Ours { format!("{options}{OPTIONS}") } else { options.to_owned() }
}
