//! What the tests of the subnet share.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[allow(unused_imports, reason = "likewise")]
pub use fabric::programs::{PATIENCE, run, succeed, text};
use fabric::subnet::{unique_state, wait_for};
use fabric::{Options, Subnet};

/// A subnet of this many hosts.
pub fn subnet(hosts: usize) -> Subnet {
    with(|_| {}, hosts)
}

/// A subnet with options of its own.
pub fn with(change: impl FnOnce(&mut Options), hosts: usize) -> Subnet {
    let mut options = Options::new(unique_state(), hosts);
    change(&mut options);
    Subnet::up_with(Path::new(env!("CARGO_BIN_EXE_fabric")), options).expect("the subnet comes up")
}

/// Compiles one of the C programs beside the tests.
pub fn compile(name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let test = std::env::current_exe().expect("a test is a file");
    let test = test.file_stem().expect("with a name").to_string_lossy();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{test}"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&target).arg(source).args(libraries);
    assert!(cc.status().expect("cc runs").success(), "{name}.c compiles");
    target
}

/// A program that ends with this value.
pub struct Running(pub Child);

impl Running {
    /// Starts it, without output.
    pub fn start(command: &mut Command) -> Self {
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a host gets what is sent to the groups that it has joined: until it does, questions to them are lost.
pub fn hears(subnet: &Subnet, host: &str) -> bool {
    let ports = subnet.ports().expect("the subnet answers");
    let groups: BTreeSet<_> = ports.iter().filter(|p| p.host == host).flat_map(|p| &p.joined).map(|g| g.0).collect();
    let received = || subnet.stat(&format!("mcast.{host}.received")).expect("the subnet counts");
    let before = received();
    for mgid in &groups {
        let (mgid, pkey) = (Ipv6Addr::from(*mgid), u16::from_be_bytes([mgid[4], mgid[5]]));
        subnet.inject(&format!("raw mgid={mgid} pkey={pkey} data=00")).expect("there is such a group");
    }
    received() - before >= groups.len() as u64
}

/// Starts the stock daemon on a host and waits until it serves, has joined its groups, and hears what is sent to them.
pub fn stock_ibacm(subnet: &Subnet, host: &str) -> Running {
    let running = Running::start(subnet.exec(host, "ibacm").arg("-P"));
    let socket = subnet.file(host, "/run/ibacm.sock");
    let up = wait_for(PATIENCE, || {
        let ports = subnet.ports().ok()?;
        let joined = ports.iter().filter(|p| p.host == host).all(|p| !p.joined.is_empty());
        (joined && socket.exists() && hears(subnet, host)).then_some(())
    });
    assert!(up.is_some(), "ibacm on {host} does not come up");
    running
}
