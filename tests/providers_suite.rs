//! The distribution's provider in our service: tests of compatibility once more, in a program with this name.
//!
//! `util/plugged.rs` gives our service the options for that. Files are left out in which a test expects of the built-in
//! provider what the other one does not do in its own service either.
#![allow(clippy::duplicate_mod, reason = "each file brings its own `util`, as it does as a program")]

#[path = "compat_librdmacm.rs"]
mod compat_librdmacm;
#[path = "compat_mixed.rs"]
mod compat_mixed;
#[path = "compat_partitions.rs"]
mod compat_partitions;
#[path = "compat_tools.rs"]
mod compat_tools;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

/// What is asked in these tests is answered by the plug-in.
#[test]
fn the_built_in_provider_is_left_out() {
    use util::{Program, Shared};
    static SUBNET: Shared = Shared::new(|o| o.hosts = 1);
    let lab = SUBNET.enter();
    let daemon = lab.start(Program::Ours, "H1", "log_level 1\n");
    let said = daemon.said();
    assert!(said.contains("libibacmp.so: provider ibacmp, loaded\n"), "{said}");
    assert!(said.contains("acmp_log_options: "), "its own lines are in the log: {said}");
    // Its threads are not to take signals that are for the service.
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        let [hangup, terminate] = [1, 15].map(|signal| blocked & 1 << (signal - 1) != 0);
        assert!(hangup && terminate, "{}: {blocked:x}", field("Name:"));
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
    assert!(maps.contains("/ibacm/libibacmp.so\n"), "{maps}");
}
