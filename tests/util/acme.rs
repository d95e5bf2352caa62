//! The program `ib_acme` of this package, which cargo does not build for the tests of another one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program's file, up to date with its sources. It is built once in a test program, where that program's own
/// service was built and with the same profile.
pub fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    let service = Path::new(env!("CARGO_BIN_EXE_ibacm"));
    let directory = service.parent().expect("a program is in a directory");
    let target = directory.parent().expect("the directory of a profile is in the target directory");
    let profile = match directory.file_name().and_then(|name| name.to_str()).expect("profiles have plain names") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from(env!("CARGO")));
    // The whole workspace: a package alone would have its libraries built once more, with fewer features.
    let output = Command::new(cargo)
        .args(["build", "--workspace", "--bins", "--locked", "--quiet", "--profile", profile, "--target-dir"])
        .arg(target)
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "ib_acme is not built: {}", super::text(&output));
    directory.join("ib_acme")
}
