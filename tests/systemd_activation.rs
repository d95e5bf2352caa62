//! Started by systemd: sockets that are handed over, and what the service tells.

#[path = "util/manager.rs"]
mod manager;
#[path = "util/netlink.rs"]
mod netlink;
mod util;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ibacm_wire::client::EP_FLAG_DEST;
use manager::{Managed, Notify, kernel_socket, start, stream_socket};
use util::client::{between, ip, name};
use util::{Client, Lab, PATIENCE, Shared, compile, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

/// A host without files, sockets and services.
fn enter() -> Lab<'static> {
    let lab = SUBNET.enter();
    for file in ["/etc/rdma/ibacm_addr.cfg", "/etc/rdma/ibacm_opts.cfg", "/run/ibacm-unix.sock", "/run/ibacm.sock"] {
        let _ = fs::remove_file(lab.file("H1", file));
    }
    lab.inject("leave H1").expect("H1 is there");
    lab
}

fn own_path(lab: &Lab<'_>) -> u8 {
    Client::connect(lab, "H1").resolve(&between("10.77.0.1", "10.77.0.1")).header.status
}

#[test]
fn both_sockets_in_either_order() {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    for stream_first in [true, false] {
        let mut notify = Notify::new(&lab, "H1");
        let mut sockets = vec![stream_socket(&lab, "H1"), kernel_socket(&lab, "H1")];
        if !stream_first {
            sockets.reverse();
        }
        // What came before the service did waits in the sockets.
        let kernel = lab.kernel("H1", true).unwrap();
        kernel.send(&netlink::between(7, &one.gid, &two.gid)).unwrap();
        let mut early = Client::connect(&lab, "H1");
        early.ask(&between("10.77.0.1", "10.77.0.1"));
        let mut service = start(&lab, "H1", sockets, &[]);
        assert_eq!(early.recv().expect("an answer").header.status, 0);
        let ready = notify.wait("READY=1\n");
        assert!(ready.contains("\nSTATUS=1 device, 1 endpoint, "), "{ready}");
        notify.wait("1 of 1 group joined");
        // The one that came early may have been refused, for want of an endpoint, but it is answered.
        let first = netlink::recv(&kernel);
        assert_eq!(first.sequence, 7, "{first:?}");
        let asked = netlink::ask(&kernel, &netlink::between(8, &one.gid, &two.gid));
        assert_eq!((asked.path().1.dlid(), asked.sender == service.pid()), (two.lid, false), "through our own socket");
        let mut second = Client::connect(&lab, "H1");
        assert_eq!(second.resolve(&[ip(EP_FLAG_DEST, "10.77.0.2")]).path().dlid(), two.lid);
        notify.wait("1 of 1 group joined, 2 clients\n");
        assert_eq!(service.stop(), Some(0), "{}", service.said());
        notify.wait("STOPPING=1\n");
        // They are the unit's.
        for name in ["/run/ibacm-unix.sock", "/run/ibacm.sock"] {
            assert!(fs::symlink_metadata(lab.file("H1", name)).is_ok(), "{name} is gone");
        }
        assert!(!lab.file("H1", "/run/ibacm.pid").exists());
    }
}

#[test]
fn what_is_missing_is_made() {
    let lab = enter();
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "server_mode open\nserver_port 7777\n");
    let mut notify = Notify::new(&lab, "H1");
    let mut service = start(&lab, "H1", Vec::new(), &[]);
    notify.wait("READY=1\n");
    service.wait_said("server_mode is unix under systemd");
    assert_eq!(own_path(&lab), 0);
    assert_eq!(fs::read_link(lab.file("H1", "/run/ibacm.sock")).unwrap(), Path::new("ibacm-unix.sock"));
    let mode = fs::metadata(lab.file("H1", "/run/ibacm-unix.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o777);
    assert!(!lab.file("H1", "/run/ibacm-tcp.port").exists());
    let [one] = lab.hosts(["H1"]);
    let kernel = lab.kernel("H1", true).unwrap();
    let answer = netlink::ask(&kernel, &netlink::between(1, &one.gid, &one.gid));
    assert_eq!(answer.sender, service.pid(), "through a socket that it has opened itself");
    assert_eq!(service.stop(), Some(0));
    assert!(!lab.file("H1", "/run/ibacm-unix.sock").exists(), "its own socket goes with it");
    // One of the two.
    for (which, sockets) in [("stream", vec![stream_socket(&lab, "H1")]), ("netlink", vec![kernel_socket(&lab, "H1")])]
    {
        if which == "netlink" {
            fs::remove_file(lab.file("H1", "/run/ibacm-unix.sock")).unwrap();
        }
        let mut service = start(&lab, "H1", sockets, &[]);
        notify.wait("READY=1\n");
        assert_eq!(own_path(&lab), 0, "{which}");
        netlink::ask(&kernel, &netlink::between(2, &one.gid, &one.gid));
        assert_eq!(service.stop(), Some(0), "{which}");
    }
}

#[test]
fn the_names_of_an_inherited_socket_are_the_units() {
    let lab = enter();
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "acme_plus_kernel_only yes\n");
    // Clients would believe these first.
    lab.write("H1", "/run/ibacm-tcp.port", "6125\n");
    lab.write("H1", "/run/ibacm.port", "6125\n");
    let mut notify = Notify::new(&lab, "H1");
    let mut service = start(&lab, "H1", vec![stream_socket(&lab, "H1")], &[]);
    notify.wait("READY=1\n");
    service.wait_said("acme_plus_kernel_only does not hold");
    assert!(lab.file("H1", "/run/ibacm.sock").exists());
    assert!(!lab.file("H1", "/run/ibacm.port").exists() && !lab.file("H1", "/run/ibacm-tcp.port").exists());
    assert_eq!(service.stop(), Some(0));
    // Without an inherited socket it holds.
    fs::remove_file(lab.file("H1", "/run/ibacm-unix.sock")).unwrap();
    let mut service = start(&lab, "H1", Vec::new(), &[]);
    notify.wait("READY=1\n");
    assert!(fs::symlink_metadata(lab.file("H1", "/run/ibacm.sock")).is_err());
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn sockets_of_another_kind_are_an_error() {
    let lab = enter();
    let stream = || stream_socket(&lab, "H1");
    let datagram = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    let connected = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        OwnedFd::from(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    };
    let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let cases: [(Vec<OwnedFd>, &str); 7] = [
        (vec![datagram()], "descriptor 3 (one) is a socket, but not a stream"),
        (vec![stream(), connected()], "descriptor 4 (two) is a stream socket that does not listen"),
        (vec![kernel_socket(&lab, "H1"), null()], "descriptor 4 (two) is no socket"),
        (vec![stream(), TcpListener::bind("127.0.0.1:0").unwrap().into()], "descriptor 4 (two) is a second stream"),
        (vec![kernel_socket(&lab, "H1"), kernel_socket(&lab, "H1")], "descriptor 4 (two) is a second NETLINK_RDMA"),
        (vec![UnixStream::pair().unwrap().0.into()], "descriptor 3 (one) is a stream socket that does not listen"),
        (vec![stream(), kernel_socket(&lab, "H1"), null()], "3 descriptors, expected at most 2"),
    ];
    for (sockets, reason) in cases {
        let mut notify = Notify::new(&lab, "H1");
        let mut service = start(&lab, "H1", sockets, &[]);
        assert_eq!(service.wait(), Some(1), "{reason}");
        let said = service.said();
        assert_eq!(said.matches(reason).count(), 2, "in the log and on standard error: {said}");
        let told = notify.wait("STATUS=");
        assert!(told.starts_with("STATUS=cannot serve: ") && told.contains(reason), "{told}");
        assert!(!notify.heard.concat().contains("READY"), "{:?}", notify.heard);
    }
}

#[test]
fn variables_for_somebody_else_are_ignored() {
    let lab = enter();
    let mut notify = Notify::new(&lab, "H1");
    // The shell of `start` says whom it means; this one comes after it.
    let around = ["env", "LISTEN_PID=1", "LISTEN_FDS=77", "WATCHDOG_PID=1", "WATCHDOG_USEC=1000"];
    let mut service = manager::start_around(&lab, "H1", &around, env!("CARGO_BIN_EXE_ibacm"), Vec::new(), &[]);
    notify.wait("READY=1\n");
    assert_eq!(own_path(&lab), 0);
    let heard = notify.during(Duration::from_millis(500)).concat();
    assert!(!heard.contains("WATCHDOG"), "{heard}");
    assert_eq!(service.stop(), Some(0));
    let around = ["env", "LISTEN_FDS=many"];
    let mut service = manager::start_around(&lab, "H1", &around, env!("CARGO_BIN_EXE_ibacm"), Vec::new(), &[]);
    assert_eq!(service.wait(), Some(1));
    assert!(service.said().contains("LISTEN_FDS is 'many', expected a number"), "{}", service.said());
}

#[test]
fn no_other_program_is_to_believe_that_it_is_meant() {
    let lab = enter();
    let mut notify = Notify::new(&lab, "H1");
    let library = compile("environment", &["-shared", "-fPIC"]);
    let preload = library.to_str().unwrap();
    let variables = [("WATCHDOG_USEC", "1000000"), ("LD_PRELOAD", preload)];
    let mut service = start(&lab, "H1", vec![stream_socket(&lab, "H1")], &variables);
    notify.wait("READY=1\n");
    notify.wait("WATCHDOG=1\n");
    assert_eq!(service.stop(), Some(0));
    fs::remove_file(&library).unwrap();
    let said = service.said();
    assert!(said.contains("environment: FABRIC_HOST=H1\n"), "{said}");
    for name in ["LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_"] {
        assert!(!said.contains(&format!("environment: {name}")), "{said}");
    }
}

#[test]
fn signs_of_life_come_at_half_of_the_time() {
    let lab = enter();
    let mut notify = Notify::new(&lab, "H1");
    let mut service = start(&lab, "H1", Vec::new(), &[("WATCHDOG_USEC", "400000")]);
    let ready = notify.wait("READY=1\n");
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    let begin = std::time::Instant::now();
    let beats = notify.during(Duration::from_secs(2)).iter().filter(|m| *m == "WATCHDOG=1\n").count();
    // One may have come before, and another with the last moment.
    let most = begin.elapsed().as_millis() / 200 + 2;
    assert!((5..=most).contains(&(beats as u128)), "{beats} in two seconds");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn socket_activation_by_systemd_itself() {
    let lab = enter();
    let mut notify = Notify::new(&lab, "H1");
    let mut activate = lab.exec("H1", "systemd-socket-activate");
    activate.args(["-l", "/run/ibacm-unix.sock", "-E", "LD_PRELOAD", "-E", "FABRIC_HOST", "-E", "FABRIC_DIR"]);
    activate.args(["-E", "NOTIFY_SOCKET=/run/notify", env!("CARGO_BIN_EXE_ibacm"), "--systemd"]);
    let child = activate.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut service = Managed::adopt(&lab, "H1", child);
    // The first client starts the service, and is served.
    let client = wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok());
    let status = client.expect("it listens").resolve(&between("10.77.0.1", "10.77.0.1")).header.status;
    assert_eq!(status, 0, "{}", service.said());
    notify.wait("READY=1\n");
    assert_eq!(service.stop(), Some(0), "{}", service.said());
}

#[test]
fn hardware_that_comes_late() {
    let lab = enter();
    let gone = |lab: &Lab<'_>| lab.inject("device-remove H1").unwrap();
    let back = |lab: &Lab<'_>| lab.inject("device-restore H1").unwrap();
    gone(&lab);
    // By itself it says so and ends.
    let service = lab.spawn(util::Program::Ours, "H1", &["-P"]);
    let code = service.wait();
    assert_eq!(code, Some(1));
    let log = fs::read_to_string(lab.file("H1", "/var/log/ibacm.log")).unwrap();
    assert!(log.contains("no InfiniBand device"), "{log}");

    let mut notify = Notify::new(&lab, "H1");
    for option in ["", "wait_for_device yes\n"] {
        lab.write("H1", "/etc/rdma/ibacm_opts.cfg", option);
        let managed = option.is_empty();
        let (mut under, mut alone) = (None, None);
        if managed {
            under = Some(start(&lab, "H1", Vec::new(), &[]));
            notify.wait("STATUS=waiting for an InfiniBand device");
        } else {
            alone = Some(lab.spawn(util::Program::Ours, "H1", &["-P"]));
        }
        let client = wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok());
        let mut client = client.expect("it serves without a device");
        let question = between("10.77.0.1", "10.77.0.1");
        assert_ne!(client.resolve(&question).header.status, 0, "{option}: there is nothing to resolve with");
        back(&lab);
        let found = wait_for(Duration::from_secs(15), || (client.resolve(&question).header.status == 0).then_some(()));
        assert!(found.is_some(), "{option}: the device is not found");
        // Names are made from the host's for the ports that there are now.
        for own in ["h1", "H1-1"] {
            let reply = client.resolve(&[name(EP_FLAG_DEST, own)]);
            assert_eq!(reply.header.status, 0, "{option}: {own}");
        }
        if managed {
            notify.wait("1 device, 1 endpoint, 1 of 1 group joined");
        }
        // And again, while it runs.
        gone(&lab);
        if managed {
            notify.wait("STATUS=waiting for an InfiniBand device");
        } else {
            let lost = wait_for(PATIENCE, || (client.resolve(&question).header.status != 0).then_some(()));
            assert!(lost.is_some(), "the device is not missed");
        }
        back(&lab);
        let found = wait_for(Duration::from_secs(15), || (client.resolve(&question).header.status == 0).then_some(()));
        assert!(found.is_some(), "{option}: the device is not found again");
        if let Some(mut service) = under {
            assert_eq!(service.stop(), Some(0));
            gone(&lab);
        }
        if let Some(service) = alone {
            assert_eq!(service.stop(), Some(0));
        }
    }
}
