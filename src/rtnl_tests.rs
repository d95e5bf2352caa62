#![allow(unsafe_code)] // a network namespace and interfaces of the right type need system calls

use std::fs;
use std::os::fd::{AsFd, FromRawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;

/// Runs a test in a network namespace of its own (only its thread is in it). Where that is not
/// allowed the test says so and does nothing.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let inside = move || {
        // SAFETY: no memory is passed; only this thread changes its namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            eprintln!("skipped: no network namespace: {}", io::Error::last_os_error());
            return;
        }
        test();
    };
    if let Err(panic) = std::thread::spawn(inside).join() {
        std::panic::resume_unwind(panic);
    }
}

/// A TUN interface of the InfiniBand type; it lives as long as this.
pub(crate) struct Tun(#[allow(dead_code)] OwnedFd);

pub(crate) fn tun(name: &str) -> Tun {
    // SAFETY: the path ends with a zero byte.
    let raw = unsafe { libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    assert!(raw >= 0, "/dev/net/tun: {}", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor for us.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap();
    // SAFETY: request is a live ifreq, which this call takes.
    let made = unsafe { libc::ioctl(raw, libc::TUNSETIFF, &raw const request) };
    assert!(made >= 0, "TUNSETIFF: {}", io::Error::last_os_error());
    // SAFETY: this call takes a number.
    let typed = unsafe { libc::ioctl(raw, libc::TUNSETLINK, libc::c_ulong::from(32u8)) };
    assert!(typed >= 0, "TUNSETLINK: {}", io::Error::last_os_error());
    Tun(fd)
}

pub(crate) fn ip(command: &str) {
    let result = Command::new("ip").args(command.split_whitespace()).output().unwrap();
    assert!(result.status.success(), "ip {command}: {result:?}");
}

/// A directory that looks like sysfs.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Files {
        let path = std::env::temp_dir().join(format!("rtnl-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Files(path)
    }

    fn add(&self, name: &str, last: u8, pkey: &str) {
        let dir = self.0.join(name);
        fs::create_dir_all(&dir).unwrap();
        let address = ["80"; 19].join(":");
        fs::write(dir.join("address"), format!("{address}:{last:02x}\n")).unwrap();
        fs::write(dir.join("pkey"), pkey).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lets it run, with the real clock, until the snapshot is as wanted.
fn until(rtnl: &mut Rtnl, what: &str, wanted: impl Fn(&[SystemAddr]) -> bool) {
    let start = Instant::now();
    loop {
        let now_us = 1 + u64::try_from(start.elapsed().as_micros()).unwrap();
        rtnl.on_readable(now_us);
        let all = rtnl.snapshot();
        if wanted(&all) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {all:?}");
        netlink_sock::wait(&rtnl.fd, 10).unwrap();
    }
}

/// "name/last byte of the GID/pkey/address/prefix" of the addresses that are not link-local.
fn texts(all: &[SystemAddr]) -> Vec<String> {
    all.iter()
        .filter(|addr| !addr.ip.to_string().starts_with("fe80"))
        .map(|a| format!("{} {:02x} {:x} {}/{}", a.ifname, a.gid[15], a.pkey, a.ip, a.prefix_len))
        .collect()
}

#[test]
fn addresses_are_there_at_the_start_and_followed() {
    in_namespace(|| {
        let files = Files::new("follow");
        files.add("ib0", 1, "0xffff\n");
        files.add("ib0.8001", 1, "0x0001\n");
        let _ib0 = tun("ib0");
        ip("addr add 10.1.0.1/16 dev ib0");
        let mut rtnl = Rtnl::open(&files.0, 0).unwrap();
        assert_eq!(texts(&rtnl.snapshot()), ["ib0 01 ffff 10.1.0.1/16"]);
        assert!(!rtnl.take_changed() && !rtnl.take_routes_changed());

        // The interface is down all the time: that makes no difference.
        ip("addr add 10.2.0.1/24 dev ib0");
        until(&mut rtnl, "second address", |all| texts(all) == ["ib0 01 ffff 10.1.0.1/16", "ib0 01 ffff 10.2.0.1/24"]);
        assert!(rtnl.take_changed() && rtnl.take_routes_changed());

        // A child that is created later, with the same address as well.
        let child = tun("ib0.8001");
        ip("addr add 10.1.0.1/16 dev ib0.8001");
        ip("addr del 10.2.0.1/24 dev ib0");
        until(&mut rtnl, "child", |all| texts(all) == ["ib0 01 ffff 10.1.0.1/16", "ib0.8001 01 8001 10.1.0.1/16"]);
        ip("addr del 10.1.0.1/16 dev ib0");
        until(&mut rtnl, "one left", |all| texts(all) == ["ib0.8001 01 8001 10.1.0.1/16"]);
        assert!(rtnl.take_changed());
        drop(child);
        until(&mut rtnl, "child gone", |all| all.is_empty());
        assert!(rtnl.take_changed());
        assert_eq!(rtnl.counters().malformed, 0);
    });
}

#[test]
fn ipv6_renaming_and_files_that_come_late() {
    in_namespace(|| {
        let files = Files::new("late");
        let _ib0 = tun("ib0");
        let mut rtnl = Rtnl::open(&files.0, 0).unwrap();
        ip("link set ib0 up");
        ip("-6 addr add fd00::1/64 dev ib0");
        until(&mut rtnl, "nothing yet", |_| true);
        assert_eq!(texts(&rtnl.snapshot()), [""; 0]);
        assert!(rtnl.next_deadline().is_some(), "the files are waited for");
        files.add("ib0", 5, "0x8002\n");
        until(&mut rtnl, "late files", |all| texts(all) == ["ib0 05 8002 fd00::1/64"]);

        ip("link set ib0 down");
        files.add("ibx", 6, "0x8003\n");
        ip("link set ib0 name ibx");
        ip("-6 addr replace fd00::2/64 dev ibx");
        until(&mut rtnl, "renamed", |all| texts(all).last().is_some_and(|last| last == "ibx 06 8003 fd00::2/64"));
        assert_eq!(rtnl.next_deadline(), None, "nothing is waited for any more");
    });
}

#[test]
fn other_interfaces_do_not_count_and_routes_are_noticed() {
    in_namespace(|| {
        let files = Files::new("routes");
        ip("link set lo up");
        let mut rtnl = Rtnl::open(&files.0, 0).unwrap();
        ip("addr add 10.9.0.1/16 dev lo");
        until(&mut rtnl, "events", |_| true);
        assert!(!rtnl.take_changed() && rtnl.snapshot().is_empty());
        rtnl.take_routes_changed();
        ip("route add 10.10.0.0/16 dev lo");
        until(&mut rtnl, "events", |_| true);
        assert!(rtnl.take_routes_changed());
        assert!(!rtnl.take_routes_changed());
        ip("rule add from 10.9.0.1 lookup main");
        until(&mut rtnl, "events", |_| true);
        assert!(rtnl.take_routes_changed());
    });
}

#[test]
fn lost_events_are_made_good_by_a_dump() {
    in_namespace(|| {
        let files = Files::new("lost");
        files.add("ib0", 1, "0xffff");
        let _ib0 = tun("ib0");
        ip("addr add 10.1.0.1/16 dev ib0");
        let mut rtnl = Rtnl::open(&files.0, 0).unwrap();
        crate::sock::set_int(rtnl.fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1).unwrap();
        let batch = files.0.join("batch");
        let mut lines: String =
            (0..400).map(|n| format!("addr add 10.2.{}.{}/32 dev ib0\n", n / 200, n % 200)).collect();
        lines.push_str("addr del 10.1.0.1/16 dev ib0\n");
        fs::write(&batch, lines).unwrap();
        ip(&format!("-batch {}", batch.display()));
        until(&mut rtnl, "400 addresses", |all| all.len() == 400);
        assert!(rtnl.counters().overruns >= 1, "{:?}", rtnl.counters());
        assert!(rtnl.counters().dumps >= 2);
        assert!(rtnl.take_changed());
    });
}

#[test]
fn a_resync_reads_sysfs_again() {
    in_namespace(|| {
        let files = Files::new("resync");
        files.add("ib0", 1, "0xffff");
        let _ib0 = tun("ib0");
        ip("addr add 10.1.0.1/16 dev ib0");
        let mut rtnl = Rtnl::open(&files.0, 0).unwrap();
        files.add("ib0", 2, "0x8001");
        until(&mut rtnl, "no event", |all| texts(all) == ["ib0 01 ffff 10.1.0.1/16"]);
        rtnl.resync(1);
        until(&mut rtnl, "resync", |all| texts(all) == ["ib0 02 8001 10.1.0.1/16"]);
        assert!(rtnl.take_changed());
        assert!(!rtnl.take_routes_changed());
    });
}
