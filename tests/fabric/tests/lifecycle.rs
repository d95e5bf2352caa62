//! Coming up and going down: side by side, and without a trace.

mod common;

use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use common::{PATIENCE, Running, run, subnet, succeed, text};
use fabric::subnet::wait_for;

/// Process ids of this machine and the network namespaces that they are in.
fn namespaces() -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| std::fs::read_link(e.path().join("ns/net")).ok())
        .map(|l| l.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Whether a process ends in time.
fn ends(pid: impl Display) -> bool {
    let file = format!("/proc/{pid}/exe");
    wait_for(PATIENCE, || (!Path::new(&file).exists()).then_some(())).is_some()
}

#[test]
fn nothing_is_left() {
    let subnet = subnet(2);
    let directory = subnet.state().path().to_owned();
    let holder = subnet.state().holder("H1").unwrap();
    let netns = std::fs::read_link(format!("/proc/{holder}/ns/net")).unwrap();
    // Keeps the number of the namespace from being used again while this test looks for it.
    let handle = std::fs::File::open(format!("/proc/{holder}/ns/net")).unwrap();
    let netns = netns.to_string_lossy().into_owned();
    assert!(namespaces().contains(&netns));
    // One that ends when told to, one that has to be killed.
    let mut polite = Running::start(subnet.exec("H1", "sleep").arg("1000"));
    let mut deaf = subnet.exec("H2", "bash");
    let mut deaf = Running(
        deaf.args(["-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]).stdout(Stdio::piped()).spawn().unwrap(),
    );
    // Who is not there yet cannot be told to end.
    deaf.0.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let comm = format!("/proc/{}/comm", polite.0.id());
    let there = wait_for(PATIENCE, || (std::fs::read_to_string(&comm).ok()? == "sleep\n").then_some(()));
    assert!(there.is_some(), "it runs in the host");
    let daemon = subnet.switch_pid().unwrap();
    let children: Vec<String> = std::fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children"))
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(children.len(), 4, "ibsim, OpenSM and two hosts");
    drop(subnet);
    for child in [&mut polite, &mut deaf] {
        assert!(wait_for(PATIENCE, || child.0.try_wait().unwrap()).is_some(), "what ran in a host has ended");
    }
    assert!(!directory.exists());
    assert!(!namespaces().contains(&netns));
    drop(handle);
    for pid in children {
        assert!(ends(&pid), "process {pid} has ended");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()), "{mounts}");
    // A process gives its memory back before its descriptors.
    let sockets = || std::fs::read_to_string("/proc/net/unix").unwrap();
    let gone = wait_for(PATIENCE, || (!sockets().contains(&format!("fabric{daemon}:"))).then_some(()));
    assert!(gone.is_some(), "{}", sockets());
}

#[test]
fn a_host_that_ends_ends_the_subnet() {
    let subnet = subnet(2);
    let daemon = subnet.switch_pid().unwrap();
    let holder = subnet.state().holder("H2").unwrap();
    signal::kill(Pid::from_raw(holder), Signal::SIGKILL).unwrap();
    assert!(ends(daemon));
    let log = std::fs::read_to_string(subnet.state().file("fabric.log")).unwrap();
    assert!(log.contains("H2 ended: signal: 9"), "{log}");
}

#[test]
fn two_side_by_side() {
    let [a, b] = [subnet(1), subnet(3)];
    assert_eq!(a.ports().unwrap().len(), 1);
    assert_eq!(b.ports().unwrap().len(), 3);
    a.inject("event H1 PORT_ERR").unwrap();
    assert!(a.inject("event H2 PORT_ERR").is_err());
    drop(a);
    assert_eq!(succeed(b.exec("H3", "hostname").stdin(Stdio::null())), "h3\n");
}

#[test]
fn commands_run_in_hosts() {
    let subnet = subnet(2);
    assert_eq!(run(subnet.exec("H2", "sh").args(["-c", "exit 7"])).status.code(), Some(7));
    let said = succeed(subnet.exec("H2", "ip").args(["-br", "addr", "show", "dev", "ib0"]));
    assert!(said.contains("10.77.0.2/16 fd77::2/64"), "{said}");
    succeed(subnet.exec("H2", "ip").args(["addr", "add", "10.77.5.5/16", "dev", "ib0"]));
    assert_eq!(succeed(subnet.exec("H1", "cat").arg("/sys/class/net/ib0/pkey")), "0xffff\n");
    succeed(subnet.exec("H1", "sh").args(["-c", "echo here > /etc/rdma/file"]));
    assert_eq!(std::fs::read_to_string(subnet.file("H1", "/etc/rdma/file")).unwrap(), "here\n");
    assert!(!subnet.file("H2", "/etc/rdma/file").exists());
    assert!(!run(&mut subnet.exec("H9", "true")).status.success());
}

#[test]
fn a_second_one_in_the_same_place_is_refused() {
    let subnet = subnet(1);
    let output = run(Command::new(env!("CARGO_BIN_EXE_fabric"))
        .args(["up", "--hosts", "1", "--state"])
        .arg(subnet.state().path()));
    assert!(!output.status.success());
    assert!(text(&output).contains("a subnet is up there"), "{}", text(&output));
    assert_eq!(subnet.ports().unwrap().len(), 1);
}
