//! Compiles the stand-in library; the binary carries it along and writes it into each subnet's directory.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join("libfabric_standin.so");
    let sources = Path::new("standin");
    let mut files: Vec<PathBuf> = std::fs::read_dir(sources)
        .expect("standin/ is part of the package")
        .map(|entry| entry.expect("readable directory").path())
        .collect();
    files.sort();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    println!("cargo::rerun-if-changed=standin");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-o"])
        .arg(&library)
        .args(files.iter().filter(|file| file.extension().is_some_and(|e| e == "c")))
        .args(["-ldl", "-lpthread"])
        .status()
        .unwrap_or_else(|e| panic!("cannot run {compiler}: {e}"));
    assert!(status.success(), "the stand-in does not compile");
    println!("cargo::rustc-env=FABRIC_STANDIN={}", library.display());
}
