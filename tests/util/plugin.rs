//! Providers that a service loads: built from C, and laid down in a host.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::util::{Client, Daemon, Lab, PATIENCE, Program, succeed, wait_for};

/// The distribution's provider, which its own service loads.
pub const LIBIBACMP: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

/// Where hosts have the providers of a test.
pub const DIRECTORY: &str = "/run/providers";

/// Which headers a provider is built with.
#[derive(Clone, Copy, Debug)]
pub enum Headers {
    /// Those of this project.
    Ours,
    /// The distribution's.
    System,
}

/// The project's directory.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A compiler with warnings and one of the headers, for a file of the project.
pub fn compiler(command: &[&str], headers: Headers, source: &str) -> Command {
    let mut cc = Command::new(command[0]);
    cc.args(&command[1..]).args(["-O2", "-Wall", "-Wextra", "-Werror"]);
    if let Headers::Ours = headers {
        cc.arg("-I").arg(root().join("pkg/include"));
    }
    cc.arg(root().join(source));
    cc
}

/// A provider that is built from a file of the project, for this test program alone.
pub fn build(source: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a test is a file");
    let name = format!(
        "{}-{}.so",
        Path::new(source).file_stem().expect("a file").to_string_lossy(),
        program.file_stem().expect("a file").to_string_lossy()
    );
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = compiler(&["cc", "-shared", "-fPIC", "-g"], Headers::Ours, source);
    succeed(cc.args(["-pthread", "-o"]).arg(&target).arg("-libverbs"));
    target
}

/// Lays providers down in a host, and no others: the options that name their directory.
pub fn lay_down(lab: &Lab<'_>, host: &str, providers: &[&Path]) -> String {
    let directory = lab.file(host, DIRECTORY);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("the host's /run can be written");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    for provider in providers {
        let name = provider.file_name().expect("a file");
        fs::copy(provider, directory.join(name)).unwrap_or_else(|e| panic!("{}: {e}", provider.display()));
    }
    format!("provider_lib_path {DIRECTORY}\n")
}

/// A service whose ports may have providers that join no groups; back when it shows an endpoint of this provider.
pub fn serve(lab: &Lab<'_>, program: Program, host: &str, options: &str, provider: &str) -> Daemon {
    let daemon = lab.start_configured(program, host, options);
    let wanted = format!(",{provider},");
    let up = wait_for(PATIENCE, || lab.acme(host, &["-e"]).contains(&wanted).then_some(()));
    assert!(up.is_some(), "no endpoint of {provider}: {}\n{}", lab.acme(host, &["-e"]), daemon.said());
    daemon
}

/// Waits until a question is answered with this status: providers are opened on a thread of theirs.
pub fn until(lab: &Lab<'_>, host: &str, entries: &[ibacm_wire::client::Entry], wanted: u8) {
    let mut client = Client::connect(lab, host);
    let mut last = 0;
    let found = wait_for(PATIENCE, || {
        last = client.resolve(entries).header.status;
        (last == wanted).then_some(())
    });
    assert!(found.is_some(), "status {last}, not {wanted}");
}
