//! What the log says while the cluster changes: at level 0 each outage once and that it is over, at level 1 every
//! change of what the host has.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::Duration;

use ibacm_wire::client::FLAG_QUERY_SA;
use rob::{enter, ip};
use util::client::to_gid;
use util::{Client, Daemon, PATIENCE, Program, Shared, succeed, text, wait_for};

static LAB: Shared = Shared::new(|_| {});

/// Soon gives the SA up, but not while a busy machine lets it look at the subnet.
const HASTY: &str = "timeout 1000\nretries 1\n";

/// The lines with this text, without their time and source.
fn lines(daemon: &Daemon, part: &str) -> Vec<String> {
    let said = daemon.said();
    let own = said.lines().filter(|l| l.contains(part)).filter_map(|l| l.splitn(3, ": ").nth(2));
    own.map(str::to_owned).collect()
}

#[track_caller]
fn wait_said(daemon: &Daemon, part: &str, times: usize) {
    let said = wait_for(PATIENCE, || (lines(daemon, part).len() >= times).then_some(()));
    assert!(said.is_some(), "no {part:?} in {}", daemon.said());
}

#[test]
fn an_operator_hears_of_each_outage_once_and_that_it_is_over() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", HASTY);
    for round in 1..=2 {
        lab.console("Unlink \"H1\"[1]").unwrap();
        wait_said(&daemon, "mlx5_0 port 1 is down", round);
        std::thread::sleep(Duration::from_millis(1100));
        lab.console("ReLink \"H1\"[1]").unwrap();
        wait_said(&daemon, "mlx5_0 port 1 is up and serves", round);
        std::thread::sleep(Duration::from_millis(1100));
    }
    lab.wait_joined("H1");
    // The last address and name.
    ip(&lab, "H1", "addr flush dev ib0");
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", "");
    daemon.signal("HUP");
    wait_said(&daemon, "mlx5_0 port 1 is up and serves nobody", 1);
    std::thread::sleep(Duration::from_millis(1100));
    ip(&lab, "H1", "addr add 10.77.0.1/16 dev ib0");
    wait_said(&daemon, "mlx5_0 port 1 is up and serves; endpoints: 1", 3);
    lab.wait_joined("H1");
    // The SA.
    let two = lab.port("H2").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let mut ask = || client.resolve(&[to_gid(FLAG_QUERY_SA, two.gid)]).header.status;
    assert_eq!(ask(), 0);
    lab.inject("sa drop host=H1").unwrap();
    for _ in 0..3 {
        assert_ne!(ask(), 0);
    }
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    lab.inject("clear").unwrap();
    let answered = wait_for(PATIENCE, || (ask() == 0).then_some(()));
    assert!(answered.is_some());
    wait_said(&daemon, "answers again", 1);
    assert_eq!(lines(&daemon, "the subnet administrator (SA) at LID ").len(), 2, "{}", daemon.said());
    assert_eq!(lines(&daemon, "cannot join"), [""; 0], "that the SA is silent has been said");
    // The device.
    lab.inject("device-remove H1").unwrap();
    wait_said(&daemon, "mlx5_0 is lost", 1);
    wait_said(&daemon, "mlx5_0 port 1 is down", 3);
    lab.inject("device-restore H1").unwrap();
    wait_said(&daemon, "mlx5_0 is back", 1);
    wait_said(&daemon, "mlx5_0 port 1 is up and serves", 4);
    lab.wait_joined("H1");
    for (line, times) in [("is down", 3), ("serves nobody", 1), ("and serves; ", 4), ("is lost", 1), ("is back", 1)] {
        assert_eq!(lines(&daemon, line).len(), times, "{line}: {}", daemon.said());
    }
}

#[test]
fn every_own_address_has_its_line() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "log_level 1\n");
    let many = |word: &str| {
        let commands: String = (1..=200).map(|n| format!("addr {word} 10.77.7.{n}/16 dev ib0\n")).collect();
        lab.write("H1", "/run/batch", &commands);
        succeed(lab.exec("H1", "ip").args(["-batch", "/run/batch"]));
    };
    let place = "mlx5_0 port 1 pkey 0xffff";
    many("add");
    wait_said(&daemon, "10.77.7.200 is served", 1);
    many("del");
    wait_said(&daemon, "10.77.7.200 is gone", 1);
    for n in 1..=200 {
        for what in ["is served on", "is gone from"] {
            let line = format!("address 10.77.7.{n} {what} {place}");
            assert_eq!(lines(&daemon, &line), [line.as_str()], "{}", daemon.said());
        }
    }
    assert!(!daemon.said().contains("suppressed"), "{}", daemon.said());
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    wait_said(&daemon, "mlx5_0: event CLIENT_REREGISTER on port 1", 1);
    wait_said(&daemon, "joined ff15:4001:ffff:3:400:: on mlx5_0 port 1 pkey 0xffff: LID 0xc", 2);
    wait_said(&daemon, "subscribed to its notices (InformInfo)", 1);
}

#[test]
fn a_reload_says_what_has_changed_and_what_is_not_here() {
    let lab = enter(&LAB);
    let names = "h1 mlx5_0 1 default\nh1-b mlx5_7 1 default\nh1-c mlx5_0 9 default\nh1-d mlx5_7 1 0x8001\n";
    let daemon = lab.start_named(Program::Ours, "H1", "log_level 1\nretries 1\nprovider x 0x1\n", names);
    assert_eq!(lines(&daemon, "log_level 1").len(), 1, "all at the start: {}", daemon.said());
    assert!(lines(&daemon, "").iter().any(|l| l == "sa_depth 32"), "{}", daemon.said());
    let hints = [
        "/etc/rdma/ibacm_addr.cfg:2: no device 'mlx5_7' here now: served when it comes (2 lines name it)",
        "/etc/rdma/ibacm_addr.cfg:3: no InfiniBand port 9 on 'mlx5_0' here now: served when it comes",
    ];
    assert_eq!(lines(&daemon, "here now").len(), 2, "{}", daemon.said());
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "log_level 1\nretries 2\nsa_depth 4\nprovider x 0x1\n");
    daemon.signal("HUP");
    wait_said(&daemon, "the files were read again", 1);
    assert_eq!(lines(&daemon, "changed: "), ["changed: retries 2", "changed: sa_depth 4"], "{}", daemon.said());
    assert_eq!(lines(&daemon, "log_level 1").len(), 1, "{}", daemon.said());
    let said = daemon.said();
    for hint in hints {
        assert_eq!(said.matches(hint).count(), 2, "once for each reading: {hint} in {said}");
    }
    // A hint is no finding; a line for a provider that is not there is one.
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "log_level 1\n");
    let checked = util::run(lab.exec("H1", Program::Ours.path()).arg("--check-config"));
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(hints.iter().all(|hint| text(&checked).contains(hint)), "{}", text(&checked));
    // At level 0 too.
    drop(daemon);
    let daemon = lab.start_named(Program::Ours, "H1", "", names);
    assert_eq!(lines(&daemon, "here now").len(), 2, "{}", daemon.said());
}
