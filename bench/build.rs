//! Compiles the floor: a server that does nothing but answer.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let program = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("floor");
    println!("cargo::rerun-if-changed=floor.c");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg("floor.c")
        .status()
        .unwrap_or_else(|e| panic!("cannot run {compiler}: {e}"));
    assert!(status.success(), "the floor does not compile");
    println!("cargo::rustc-env=FLOOR={}", program.display());
}
