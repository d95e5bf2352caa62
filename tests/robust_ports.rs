//! Ports, partitions and devices that change, vanish and come back, and those that are none of ours.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fs;
use std::path::Path;
use std::time::Duration;

use ibacm_wire::client::{Entry, FLAG_QUERY_SA, Status};
use rob::{code, enter, idle_second, memory, settles, status, steady_descriptors, until};
use util::client::{between, to_gid};
use util::{Client, Lab, PATIENCE, Program, Shared, wait_for};

/// Two hosts, two partitions.
static LAB: Shared = Shared::new(|o| {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("robust-partitions");
    fs::write(&file, "Default=0x7fff,ipoib:ALL=full;\nRed=0x0123:ALL=full;\n").expect("it can be written");
    o.partitions = Some(file);
});
/// Two devices a host.
static PAIR: Shared = Shared::new(|o| o.hcas = 2);
/// One whose devices change.
static BARE: Shared = Shared::new(|_| {});
/// One that is lost.
static LOST: Shared = Shared::new(|o| o.hosts = 1);

fn there() -> [Entry; 2] {
    between("10.77.0.1", "10.77.0.2")
}

#[track_caller]
fn becomes(lab: &Lab<'_>, question: &[Entry], wanted: u8) {
    let found = until(&mut Client::connect(lab, "H1"), question, wanted);
    assert!(found.is_some(), "status {wanted} is expected");
}

/// Waits until the counter stands still, and tells it.
fn settled(lab: &Lab<'_>, counter: &str) -> u64 {
    let mut last = lab.stat(counter).unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(400));
        let now = lab.stat(counter).unwrap();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Both hosts have an interface in the second partition.
fn two_partitions() -> Lab<'static> {
    let lab = enter(&LAB);
    for (host, address) in [("H1", "10.90.0.1/24"), ("H2", "10.90.0.2/24")] {
        let _ = lab.remove_interface(host, "ib0.8123");
        lab.add_interface(host, "ib0.8123", &format!("0x8123 {address}")).unwrap();
    }
    lab
}

#[test]
fn a_partition_that_vanishes() {
    let lab = two_partitions();
    let mut daemon = lab.ours("H1", "timeout 300\nretries 1\n");
    let _peer = lab.ours("H2", "");
    let red = between("10.90.0.1", "10.90.0.2");
    becomes(&lab, &red, 0);
    assert_eq!(Client::connect(&lab, "H1").resolve(&red).path().pkey(), 0x8123);
    becomes(&lab, &there(), 0);
    for round in 0..3 {
        lab.inject("port H1 pkeys=0xffff").unwrap();
        if round > 0 {
            lab.inject("event H1 PKEY_CHANGE").unwrap();
        }
        for _ in 0..round {
            lab.inject("event H1 CLIENT_REREGISTER").unwrap();
        }
        becomes(&lab, &red, code(Status::Esrcaddr));
        becomes(&lab, &there(), 0);
        lab.inject("port-reset H1").unwrap();
        becomes(&lab, &red, 0);
    }
    // Between the two, and while the joins are under way.
    lab.inject("sa delay host=H1 attr=0x38 ms=60").unwrap();
    for round in 0..10 {
        lab.inject("event H1 CLIENT_REREGISTER").unwrap();
        std::thread::sleep(Duration::from_millis(7 * round));
        lab.inject("port H1 pkeys=0xffff").unwrap();
        lab.inject("event H1 CLIENT_REREGISTER").unwrap();
        std::thread::sleep(Duration::from_millis(70 - 7 * round));
        lab.inject("port-reset H1").unwrap();
    }
    becomes(&lab, &red, 0);
    becomes(&lab, &there(), 0);
    assert!(daemon.is_alive());
}

#[test]
fn a_table_in_another_order() {
    let lab = two_partitions();
    let _daemon = lab.ours("H1", "timeout 300\nretries 1\naddr_timeout 0\n");
    let _peer = lab.ours("H2", "timeout 300\naddr_timeout 0\n");
    let red = between("10.90.0.1", "10.90.0.2");
    for table in ["0x8123,0xffff", "0x8001,0xffff,0x8123", "0,0xffff,0,0x8123", "0xffff,0x8123"] {
        lab.inject(&format!("port H1 pkeys={table}")).unwrap();
        becomes(&lab, &red, 0);
        becomes(&lab, &there(), 0);
        // The peer finds it too.
        let back = until(&mut Client::connect(&lab, "H2"), &between("10.90.0.2", "10.90.0.1"), 0);
        assert!(back.is_some(), "{table}");
    }
}

#[test]
fn a_thousand_registrations() {
    let lab = enter(&LAB);
    let _ = lab.remove_interface("H1", "ib0.8123");
    let daemon = lab.ours("H1", "timeout 300\nretries 1\naddr_timeout 0\n");
    let _peer = lab.ours("H2", "");
    becomes(&lab, &there(), 0);
    let one = |lab: &Lab<'_>| {
        let port = lab.port("H1").unwrap();
        (port.qpns.len() == 1 && port.joined.len() == 1).then_some(())
    };
    let before = steady_descriptors(daemon.pid());
    let mut used = Vec::new();
    for round in 0..2 {
        for n in 0..500 {
            lab.inject("event H1 CLIENT_REREGISTER").unwrap();
            if n % 5 == 0 {
                lab.inject(&format!("port H1 gid=fe80::{:x}", 1 + (n + round) % 7)).unwrap();
            }
        }
        lab.inject("port-reset H1").unwrap();
        settled(&lab, "sa.H1.MCMemberRecord.Set");
        becomes(&lab, &there(), 0);
        used.push(memory(daemon.pid()));
    }
    settles(daemon.pid(), before);
    assert!(used[1] < used[0] + 512, "memory grows: {used:?} KiB");
    assert!(wait_for(PATIENCE, || one(&lab)).is_some(), "{:?}", lab.port("H1"));
}

#[test]
fn asked_to_register_before_the_port_is_up() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "");
    lab.console("Unlink \"H1\"[1]").unwrap();
    becomes(&lab, &there(), code(Status::Esrcaddr));
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    lab.reset_stats().unwrap();
    lab.console("ReLink \"H1\"[1]").unwrap();
    becomes(&lab, &there(), 0);
    assert_eq!(settled(&lab, "sa.H1.MCMemberRecord.Set"), 1, "joined once");
    // While it is up, each wish is a new join.
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    let again = wait_for(PATIENCE, || (lab.stat("sa.H1.MCMemberRecord.Set").unwrap() >= 2).then_some(()));
    assert!(again.is_some(), "it joins again");
    assert_eq!(settled(&lab, "sa.H1.MCMemberRecord.Set"), 2);
    becomes(&lab, &there(), 0);
}

#[test]
fn paths_follow_the_ports_own_addresses() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "");
    let gid = lab.port("H2").unwrap().gid;
    let by_path = [to_gid(0, gid)];
    let read = |question: &[Entry]| {
        let path = Client::connect(&lab, "H1").resolve(question).path();
        (path.slid(), path.sgid().0)
    };
    becomes(&lab, &there(), 0);
    becomes(&lab, &by_path, 0);
    lab.inject("port H1 lid=555").unwrap();
    let follows = wait_for(PATIENCE, || (read(&there()).0 == 555 && read(&by_path).0 == 555).then_some(()));
    assert!(follows.is_some(), "{:?} {:?}", read(&there()), read(&by_path));
    assert_eq!(read(&between("10.77.0.1", "fd77::1")).0, 555, "its own too");
    lab.inject("port H1 gid=fe80::4:4").unwrap();
    let new = lab.port("H1").unwrap().gid;
    // The interface takes the new one a moment later.
    let follows = wait_for(PATIENCE, || {
        let reply = Client::connect(&lab, "H1").resolve(&there());
        (reply.header.status == 0 && reply.path().sgid().0 == new).then_some(())
    });
    assert!(follows.is_some());
    assert_eq!(read(&by_path), (555, new));
}

#[test]
fn ports_that_are_none_of_ours() {
    let lab = enter(&BARE);
    for device in ["rocep1 ports=eth,eth", "mixed2 ports=ib,eth", "bare3 ports=ib"] {
        let _ = lab.inject(&format!("device-add H1 {device}"));
    }
    lab.inject("port H1 dev=mixed2 port=1 gid_tbl_len=0").unwrap();
    lab.inject("port H1 dev=bare3 port=1 gid_tbl_len=0 pkey_tbl_len=0").unwrap();
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    let _peer = lab.ours("H2", "");
    becomes(&lab, &there(), 0);
    let events =
        ["PORT_ERR", "PORT_ACTIVE", "LID_CHANGE", "PKEY_CHANGE", "GID_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER"];
    for event in events {
        for place in ["dev=rocep1 port=1", "dev=rocep1 port=2", "dev=mixed2 port=2", "dev=mixed2 port=1", "dev=bare3"] {
            lab.inject(&format!("event H1 {event} {place}")).unwrap();
        }
        // A port that there isn't.
        lab.inject(&format!("event H1 {event} dev=rocep1 port=9")).unwrap();
    }
    becomes(&lab, &there(), 0);
    let shown = lab.acme("H1", &["-e"]);
    let own = format!("{:#018x}", lab.port("H1").unwrap().guid - 1);
    let lines: Vec<&str> = shown.lines().filter(|l| l.contains("ibacmp")).collect();
    assert_eq!(lines.len(), 1, "{own} only: {shown}");
    for device in ["rocep1", "mixed2", "bare3"] {
        lab.inject(&format!("device-remove H1 dev={device}")).unwrap();
    }
    becomes(&lab, &there(), 0);
    assert!(idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
    // They come back, and later the Ethernet port says something again.
    for device in ["rocep1", "mixed2", "bare3"] {
        lab.inject(&format!("device-restore H1 dev={device}")).unwrap();
    }
}

#[test]
fn two_devices_with_one_guid() {
    let lab = enter(&PAIR);
    let guid = lab.port("H1").unwrap().guid - 1;
    lab.inject(&format!("node-guid H1 dev=mlx5_1 guid={guid:#x}")).unwrap();
    let daemon = lab.ours("H1", "timeout 300\nretries 1\n");
    let _peer = lab.ours("H2", "");
    let second = between("10.78.0.1", "10.78.0.2");
    let gone = code(Status::Esrcaddr);
    for (down, up) in [([1, 2], [1, 2]), ([2, 1], [1, 2])] {
        becomes(&lab, &there(), 0);
        becomes(&lab, &second, 0);
        let name = |n| if n == 1 { "\"H1\"[1]" } else { "\"H1-2\"[1]" };
        let question = |n: i32| if n == 1 { there() } else { second };
        for n in down {
            lab.console(&format!("Unlink {}", name(n))).unwrap();
            becomes(&lab, &question(n), gone);
            if n == down[0] {
                assert_eq!(status(&mut Client::connect(&lab, "H1"), &question(down[1])), 0, "the other one stays");
            }
        }
        assert!(idle_second(daemon.pid()) <= Duration::from_millis(30), "no turning in place");
        for n in up {
            lab.console(&format!("ReLink {}", name(n))).unwrap();
            becomes(&lab, &question(n), 0);
        }
    }
}

#[test]
fn a_device_is_pulled_out_and_put_back() {
    let lab = enter(&PAIR);
    let mut daemon = lab.ours("H1", "timeout 300\nretries 1\n");
    let _peer = lab.ours("H2", "");
    let second = between("10.78.0.1", "10.78.0.2");
    becomes(&lab, &second, 0);
    lab.inject("sa drop host=H1").unwrap();
    let gid = lab.port("H2").unwrap().gid;
    let mut waits = Client::connect(&lab, "H1");
    waits.ask(&[to_gid(FLAG_QUERY_SA, gid)]);
    let before = steady_descriptors(daemon.pid());
    lab.inject("device-remove H1 dev=mlx5_0").unwrap();
    waits.recv().expect("an answer, whatever it is");
    lab.inject("clear").unwrap();
    becomes(&lab, &there(), code(Status::Esrcaddr));
    becomes(&lab, &second, 0);
    settles(daemon.pid(), before - 4);
    assert!(idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
    lab.inject("device-restore H1 dev=mlx5_0").unwrap();
    // New devices are looked for every half a minute.
    let back = wait_for(Duration::from_secs(30) + PATIENCE, || {
        let reply = status(&mut Client::connect(&lab, "H1"), &there());
        std::thread::sleep(Duration::from_millis(100));
        (reply == 0).then_some(())
    });
    assert!(back.is_some() && daemon.is_alive(), "{}", daemon.said());
    becomes(&lab, &second, 0);
}

#[test]
fn everything_is_pulled_out() {
    let lab = enter(&LOST);
    let mut daemon = lab.ours("H1", "");
    let mut client = Client::connect(&lab, "H1");
    client.resolve(&between("10.77.0.1", "fd77::1")).path();
    client.ask(&between("10.77.0.1", "10.77.9.9"));
    std::thread::sleep(Duration::from_millis(50));
    let pid = lab.switch_pid().expect("there is a switch").to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    assert_ne!(client.recv().expect("an answer").header.status, 0);
    for _ in 0..2 {
        let cpu = idle_second(daemon.pid());
        assert!(cpu <= Duration::from_millis(20), "{cpu:?} of processor time: {}", daemon.said());
    }
    assert_eq!(status(&mut client, &between("10.77.0.1", "10.77.0.2")), code(Status::Esrcaddr));
    assert!(daemon.is_alive());
    assert!(daemon.said().lines().count() < 30, "{}", daemon.said());
    assert_eq!(daemon.stop(), Some(0));
}
