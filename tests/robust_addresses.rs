//! Addresses of interfaces that come, go and move while the service runs.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use ibacm_wire::client::{EP_CONFIG_LEN, HDR_LEN, Status};
use rob::{code, enter, ip, until};
use util::client::between;
use util::family::{IPV6, here, ip_command};
use util::{Client, Lab, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hca_ports = 2);

/// The addresses that a service shows on a port.
fn shown(lab: &Lab<'_>, port: u8) -> BTreeSet<String> {
    let reply = Client::connect(lab, "H1").endpoint(1, port);
    if reply.header.status != 0 {
        return BTreeSet::new();
    }
    let texts = reply.bytes[HDR_LEN + EP_CONFIG_LEN..].chunks(64);
    texts.map(|t| String::from_utf8_lossy(t).trim_end_matches('\0').to_owned()).collect()
}

#[track_caller]
fn shows(lab: &Lab<'_>, port: u8, address: &str, there: bool) {
    let address = here(address);
    let found = wait_for(PATIENCE, || (shown(lab, port).contains(&address) == there).then_some(()));
    assert!(found.is_some(), "{address} on port {port}: {:?}", shown(lab, port));
}

/// The GID that H2 finds for an address.
fn found_by_peer(lab: &Lab<'_>, address: &str) -> Result<[u8; 16], u8> {
    let reply = Client::connect(lab, "H2").resolve(&between("10.77.0.2", address));
    if reply.header.status == 0 { Ok(reply.path().dgid().0) } else { Err(reply.header.status) }
}

/// The GIDs of H1's ports.
fn gids(lab: &Lab<'_>) -> Vec<[u8; 16]> {
    lab.ports().unwrap().into_iter().filter(|p| p.host == "H1").map(|p| p.gid).collect()
}

#[test]
fn removed_and_moved() {
    let lab = enter(&LAB);
    for n in 1..=3 {
        ip(&lab, "H1", &format!("addr add 10.77.8.{n}/16 dev ib0"));
    }
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "timeout 300\nretries 0\n");
    let gids = gids(&lab);
    assert_eq!(found_by_peer(&lab, "10.77.8.1"), Ok(gids[0]));
    ip(&lab, "H1", "addr del 10.77.8.2/16 dev ib0");
    shows(&lab, 1, "10.77.8.2/16", false);
    assert_eq!(found_by_peer(&lab, "10.77.8.2"), Err(code(Status::Etimedout)));
    let mut client = Client::connect(&lab, "H1");
    let own = rob::status(&mut client, &between("10.77.8.2", "10.77.0.2"));
    assert_eq!(own, code(Status::Esrcaddr));
    let gone = rob::status(&mut client, &between("10.77.0.1", "10.77.8.3"));
    assert_eq!(gone, 0);
    // To the other port.
    ip(&lab, "H1", "addr del 10.77.8.3/16 dev ib0");
    ip(&lab, "H1", "addr add 10.77.8.3/16 dev ib1");
    shows(&lab, 2, "10.77.8.3/16", true);
    assert_eq!(found_by_peer(&lab, "10.77.8.3"), Ok(gids[1]));
    let path = client.resolve(&between("10.77.8.3", "10.78.0.1")).path();
    assert_eq!((path.sgid().0, path.dgid().0), (gids[1], gids[1]));
    ip(&lab, "H1", "addr del 10.77.8.3/16 dev ib1");
}

#[test]
fn on_two_interfaces_at_a_time() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "timeout 300\nretries 0\n");
    let gids = gids(&lab);
    ip(&lab, "H1", "addr add 10.77.8.9/16 dev ib0");
    shows(&lab, 1, "10.77.8.9/16", true);
    ip(&lab, "H1", "addr add 10.77.8.9/16 dev ib1");
    shows(&lab, 2, "10.77.8.9/16", true);
    ip(&lab, "H1", "addr del 10.77.8.9/16 dev ib0");
    shows(&lab, 1, "10.77.8.9/16", false);
    shows(&lab, 2, "10.77.8.9/16", true);
    assert_eq!(found_by_peer(&lab, "10.77.8.9"), Ok(gids[1]));
    ip(&lab, "H1", "addr del 10.77.8.9/16 dev ib1");
}

#[test]
fn links_go_down_and_up() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "timeout 300\nretries 0\naddr_timeout 0\n");
    let question = between("10.77.0.1", "10.77.0.2");
    let mut client = Client::connect(&lab, "H1");
    client.resolve(&question).path();
    // Of an interface: its IPv4 addresses stay, its IPv6 addresses go.
    ip(&lab, "H1", "link set ib0 down");
    if IPV6 {
        assert!(until(&mut client, &question, code(Status::Esrcaddr)).is_some(), "the address is gone");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(rob::status(&mut client, &question) == 0, !IPV6);
    ip(&lab, "H1", "link set ib0 up");
    if IPV6 {
        ip(&lab, "H1", "addr add 10.77.0.1/16 dev ib0");
        assert!(until(&mut client, &question, 0).is_some(), "the address is served");
    }
    client.resolve(&question).path();
    // Of a port, whose addresses come later than it does.
    lab.console("Unlink \"H1\"[1]").unwrap();
    assert!(until(&mut client, &question, code(Status::Esrcaddr)).is_some(), "the port is down");
    ip(&lab, "H1", "addr flush dev ib0 scope global");
    lab.console("ReLink \"H1\"[1]").unwrap();
    wait_for(PATIENCE, || (lab.port("H1").ok()?.state == 4).then_some(())).expect("the port comes up");
    std::thread::sleep(Duration::from_millis(700));
    ip(&lab, "H1", "addr add 10.77.0.1/16 dev ib0");
    assert!(until(&mut client, &question, 0).is_some(), "the address is served");
    assert_eq!(found_by_peer(&lab, "10.77.0.1"), Ok(gids(&lab)[0]));
}

#[test]
fn both_families_and_interfaces_that_come_later() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "timeout 300\nretries 0\n");
    let gids = gids(&lab);
    for address in ["10.77.8.20/16", "fd77::8:20/64"] {
        let plain = address.split('/').next().unwrap();
        ip(&lab, "H1", &format!("addr add {address} dev ib0"));
        shows(&lab, 1, address, true);
        assert_eq!(found_by_peer(&lab, plain), Ok(gids[0]));
        ip(&lab, "H1", &format!("addr del {address} dev ib0"));
        shows(&lab, 1, address, false);
    }
    lab.add_interface("H1", "ib9", "0xffff dev=mlx5_0:2 10.77.8.30/16 fd77::8:30/64").unwrap();
    shows(&lab, 2, "10.77.8.30/16", true);
    shows(&lab, 2, "fd77::8:30/64", true);
    assert_eq!(found_by_peer(&lab, "10.77.8.30"), Ok(gids[1]));
    lab.remove_interface("H1", "ib9").unwrap();
    shows(&lab, 2, "10.77.8.30/16", false);
    shows(&lab, 2, "fd77::8:30/64", false);
}

#[test]
fn more_news_than_the_kernel_keeps() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "");
    let before = rob::memory(daemon.pid());
    let batch = |lines: &str| {
        let mut child = Command::new("timeout")
            .args(["60"])
            .arg(lab.exec("H1", "ip").get_program())
            .args(lab.exec("H1", "ip").args(["-force", "-batch", "-"]).get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines: String = lines.lines().map(|l| ip_command(l) + "\n").collect();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    let mut lines = String::new();
    for round in 0..20 {
        for n in 0..250 {
            let _ = writeln!(lines, "addr add 10.77.{}.{n}/32 dev ib0", 20 + round % 4);
        }
        for n in 0..250 {
            let _ = writeln!(lines, "addr del 10.77.{}.{n}/32 dev ib0", 20 + round % 4);
        }
    }
    // It sleeps through all of them.
    daemon.signal("STOP");
    batch(&lines);
    batch("addr del 10.77.0.1/16 dev ib0\naddr add 10.77.30.1/16 dev ib0\n");
    daemon.signal("CONT");
    shows(&lab, 1, "10.77.30.1/16", true);
    let wanted: BTreeSet<String> = ["10.77.30.1/16", "fd77::1/64", "h1"].map(here).into();
    let seen = shown(&lab, 1);
    assert!(seen.is_superset(&wanted) && seen.len() <= wanted.len() + 1, "{seen:?}");
    // And awake.
    batch(&lines);
    let settled = wait_for(PATIENCE, || (shown(&lab, 1) == seen).then_some(()));
    assert!(settled.is_some(), "{:?}", shown(&lab, 1));
    assert!(rob::memory(daemon.pid()) < before + 4096, "{} KiB, {before} before", rob::memory(daemon.pid()));
    assert!(rob::idle_second(daemon.pid()) <= Duration::from_millis(30), "no turning in place");
}
