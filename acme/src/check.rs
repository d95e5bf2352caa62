//! `ib_acme check`: whether this host is healthy.

/// The command.
pub fn main(_: &[std::ffi::OsString]) -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
