//! `ib_acme check`: a healthy host is healthy, and each fault has its own finding, with its remedy, and no other.

#[path = "util/acme_checked.rs"]
mod checked;
mod util;

use std::process::Command;
use std::time::Duration;

use checked::{ALL, Undo, check, validate, wait_healthy};
use util::{Daemon, PATIENCE, Program, Shared, acme, partitions, run, wait_for};

/// For what is put back at the end.
static SUBNET: Shared = Shared::new(|_| {});

/// Soon gives a peer up, but later than a check with a limit of a second, which is enough for all that does answer.
const HASTY: &str = "timeout 1000\nretries 1\n";

#[test]
fn healthy_hosts_are_healthy() {
    let lab = SUBNET.enter();
    for program in [Program::Ours, Program::Stock] {
        let _daemons: [Daemon; 2] = ["H1", "H2"].map(|host| lab.start(program, host, ""));
        let [two] = lab.hosts(["H2"]);
        check(&lab, "H1", &[]).healthy(&ALL);
        let gid = std::net::Ipv6Addr::from(two.gid).to_string();
        let all = check(&lab, "H1", &["-d", "h[2]", "-d", &format!("10.77.0.2,fd77::2,{gid},{}", two.lid)]);
        all.healthy(&ALL);
        for subject in ["h2", "10.77.0.2", "fd77::2", &gid, &two.lid.to_string()] {
            for what in ["peer", "path"] {
                assert!(all.of("ok").contains(&(what, subject)), "{program:?}: {what} {subject} in {}", all.text);
            }
        }
        let quiet = check(&lab, "H1", &["-q", "-d", "h2"]);
        assert_eq!((quiet.text.as_str(), quiet.status), ("", Some(0)));
    }
}

#[test]
fn both_ports_and_other_sockets() {
    static TWO: Shared = Shared::new(|o| o.hca_ports = 2);
    let lab = TWO.enter();
    for program in [Program::Ours, Program::Stock] {
        lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "server_mode loop\n");
        let _daemon = lab.spawn(program, "H1", &["-P"]);
        wait_healthy(&lab, "H1");
        let all = check(&lab, "H1", &[]);
        all.healthy(&ALL);
        for what in ["port", "partition", "sa"] {
            for subject in ["mlx5_0/1", "mlx5_0/2"] {
                assert!(all.of("ok").contains(&(what, subject)), "{what} {subject} in {}", all.text);
            }
        }
        for subject in ["mlx5_0/1 0xffff", "mlx5_0/2 0xffff"] {
            assert!(all.of("ok").contains(&("group", subject)), "{program:?}: {}", all.text);
        }
        check(&lab, "H1", &["-S", "127.0.0.1"]).healthy(&ALL);
    }
    let _daemon = lab.ours("H1", "");
    check(&lab, "H1", &["-S", "/run/ibacm.sock"]).healthy(&ALL);
    // Where another port is active, one that is down is worth a warning.
    lab.inject("port H1 port=2 state=1").unwrap();
    let half = check(&lab, "H1", &[]);
    half.not_ok("warning", Some(1), &[("port mlx5_0/2", &["no link", "remedy: plug in the cable"])]);
}

#[test]
fn no_device() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    let daemon = lab.ours("H1", "");
    lab.inject("device-remove H1").unwrap();
    let device: (&str, &[&str]) = ("device this host", &["no RDMA device", "remedy: load the adapter's driver"]);
    check(&lab, "H1", &["-d", "h2"]).failed(&[device]);
    drop(daemon);
    let service: (&str, &[&str]) = ("service /run/ibacm-unix.sock", &["does not run"]);
    check(&lab, "H1", &["-d", "h2"]).failed(&[device, service]);
}

#[test]
fn ports_that_are_not_active() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    for (state, found, remedy) in [
        (1, "down: there is no link", "remedy: plug in the cable"),
        (2, "no subnet manager (SM) has configured the port", "remedy: start a subnet manager"),
        (3, "armed", "remedy: wait a moment"),
    ] {
        let _undo = Undo(&lab, "port-reset H1");
        lab.inject(&format!("port H1 state={state}")).unwrap();
        check(&lab, "H1", &["-d", "h2"]).failed(&[("port mlx5_0/1", &[found, remedy])]);
    }
    wait_healthy(&lab, "H1");
}

#[test]
fn no_subnet_manager() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    let _daemon = lab.ours("H1", "");
    {
        let _undo = Undo(&lab, "port-reset H1");
        lab.inject("port H1 sm_lid=0").unwrap();
        let checked = check(&lab, "H1", &[]);
        checked.failed(&[("port mlx5_0/1", &["no subnet manager (SM LID 0)", "remedy: start a subnet manager"])]);
    }
    wait_healthy(&lab, "H1");
    lab.manager("stop").unwrap();
    let checked = check(&lab, "H1", &["--timeout", "1"]);
    checked.failed(&[("sa mlx5_0/1", &["does not answer within 1 s", "remedy: look whether the subnet manager"])]);
    lab.manager("start").unwrap();
    // It knows of nobody's memberships, and asks for them.
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    wait_healthy(&lab, "H1");
}

#[test]
fn administrator_that_does_not_answer() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, ""));
    lab.inject("sa drop host=H1").unwrap();
    let silent: (&str, &[&str]) = ("sa mlx5_0/1", &["at LID 1 does not answer within 1 s", "smpquery nodedesc 1"]);
    check(&lab, "H1", &["--timeout", "1"]).failed(&[silent]);
    // A question of ours that is lost is asked again.
    lab.inject("clear").unwrap();
    lab.inject("sa drop host=H1 count=1").unwrap();
    check(&lab, "H1", &["--timeout", "3"]).healthy(&ALL);
    lab.inject("sa status status=0x0700 host=H1 attr=0x35").unwrap();
    let refused: (&str, &[&str]) = ("sa mlx5_0/1", &["0x0700 (request denied)", "remedy: look into the subnet"]);
    check(&lab, "H1", &[]).failed(&[refused]);
    // Busy for a moment is no fault, busy for long is one.
    lab.inject("clear").unwrap();
    lab.inject("sa status status=0x0001 host=H1 attr=0x35 count=2").unwrap();
    check(&lab, "H1", &[]).healthy(&ALL);
    lab.inject("sa status status=0x0001 host=H1 attr=0x35").unwrap();
    check(&lab, "H1", &["--timeout", "1"]).failed(&[("sa mlx5_0/1", &["is busy", "remedy: look what keeps"])]);
}

#[test]
fn one_fault_of_the_administrator_is_no_failure_of_peers() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, HASTY));
    let peers = ["h2", "nobody", "10.77.0.2", "3000", "fe80::99"];
    let warned: Vec<_> = peers.iter().map(|peer| ("peer", *peer)).collect();
    // Whether the service gives up before the check or after it makes no difference.
    lab.inject("sa drop host=H1").unwrap();
    for time in ["1", "8"] {
        let checked = check(&lab, "H1", &["-q", "--timeout", time, "-d", &peers.join(",")]);
        assert_eq!(checked.of("failed"), [("sa", "mlx5_0/1")], "{}", checked.text);
        let mut warnings = checked.of("warning");
        warnings.sort_by_key(|w| warned.iter().position(|p| p == w));
        assert_eq!(warnings, warned, "{time}: {}", checked.text);
        assert_eq!(checked.text.matches(": not resolved, as the SA does not answer; remedy: ").count(), 5);
    }
    lab.inject("clear").unwrap();
    // Who is not in the default partition cannot ask it.
    let undo = Undo(&lab, "port-reset H1");
    lab.inject("port H1 pkeys=0x8001").unwrap();
    let checked = check(&lab, "H1", &["-q", "--timeout", "2", "-d", "h2"]);
    assert_eq!(checked.of("failed"), [("partition", "mlx5_0/1")], "{}", checked.text);
    assert_eq!(checked.of("warning"), [("peer", "h2")], "{}", checked.text);
    drop(undo);
    wait_healthy(&lab, "H1");
}

#[test]
fn limited_members() {
    static LIMITED: Shared = Shared::new(|o| {
        o.partitions = Some(partitions("limited", "Default=0x7fff,ipoib:ALL=limited,SELF=full;\n"));
    });
    let found: &[&str] = &["only a limited member (0x7fff)", "remedy: ", "Default=0x7fff,ipoib:ALL=full"];
    let lab = LIMITED.enter();
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    check(&lab, "H1", &[]).failed(&[("partition mlx5_0/1", found)]);
    drop((daemon, lab));

    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let _undo = Undo(&lab, "port-reset H1");
    lab.inject("port H1 pkeys=0x7fff").unwrap();
    check(&lab, "H1", &[]).failed(&[("partition mlx5_0/1", found)]);
}

#[test]
fn limited_members_that_are_full_ones_elsewhere() {
    static MIXED: Shared = Shared::new(|o| {
        let text = "Default=0x7fff,ipoib:ALL=limited,SELF=full;\nP1=0x0001,ipoib:ALL=full;\n";
        o.partitions = Some(partitions("mixed", text));
    });
    let lab = MIXED.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.start_configured(Program::Ours, host, HASTY));
    let limited: (&str, &[&str]) =
        ("partition mlx5_0/1", &["limited member of the default partition", "ibacm_addr.cfg"]);
    // It has no path to itself there, and no group has to take it, of which it is the only consequence.
    for host in ["H1", "H2"] {
        check(&lab, host, &[]).not_ok("warning", Some(1), &[limited]);
        let number = &host[1..];
        lab.add_interface(host, "ib0.8001", &format!("0x8001 10.99.0.{number}/24")).unwrap();
    }
    let found = wait_for(PATIENCE, || {
        let checked = check(&lab, "H1", &["-d", "10.99.0.2"]);
        (checked.status == Some(1)).then_some(checked)
    });
    let found = found.unwrap_or_else(|| panic!("{}", check(&lab, "H1", &["-d", "10.99.0.2"]).text));
    found.not_ok("warning", Some(1), &[limited]);
    let ok = found.of("ok");
    for (what, subject) in [("path", "10.99.0.1"), ("path", "10.99.0.2"), ("group", "mlx5_0/1 0x8001")] {
        assert!(ok.contains(&(what, subject)), "{what} {subject} in {}", found.text);
    }
}

#[test]
fn interfaces_that_are_down() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let set = |state| util::succeed(lab.exec("H1", "ip").args(["link", "set", "ib0", state]));
    set("down");
    let checked = check(&lab, "H1", &[]);
    set("up");
    // The kernel has taken it away.
    util::succeed(lab.exec("H1", "ip").args(["addr", "add", "fd77::1/64", "dev", "ib0", "nodad"]));
    let remedy = "remedy: set it up (ip link set ib0 up)";
    checked.failed(&[("address ib0", &["the interface is down; it has 10.77.0.1/16", remedy])]);
    wait_healthy(&lab, "H1");
}

#[test]
fn no_ipoib_address() {
    static ALONE: Shared = Shared::new(|_| {});
    static BARE: Shared = Shared::new(|o| o.no_ipoib = true);
    let lab = ALONE.enter();
    let _daemon = lab.ours("H1", "");
    util::succeed(lab.exec("H1", "ip").args(["addr", "flush", "dev", "ib0"]));
    let checked = check(&lab, "H1", &[]);
    checked.failed(&[("address ib0", &["no IPoIB address", "remedy: give it one (ip addr add"])]);

    let lab = BARE.enter();
    let _daemon = lab.ours("H1", "");
    let checked = check(&lab, "H1", &[]);
    checked.failed(&[("address mlx5_0/1", &["no IPoIB address", "remedy: load IPoIB (modprobe ib_ipoib)"])]);
}

#[test]
fn not_a_member_of_the_group() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    lab.inject("sa status status=0x0200 attr=0x38 method=2 host=H1").unwrap();
    // The group is there, with another member.
    let _daemons = [lab.ours("H2", ""), lab.start_configured(Program::Ours, "H1", "")];
    let absent: (&str, &[&str]) = (
        "group mlx5_0/1 0xffff",
        &["not a member of ff15:4001:ffff:3:400::", "within about a minute", "min_mtu (2048)"],
    );
    check(&lab, "H1", &[]).failed(&[absent]);
    check(&lab, "H2", &[]).healthy(&ALL);
    lab.inject("clear").unwrap();
    wait_healthy(&lab, "H1");
}

#[test]
fn peers_that_do_not_answer() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, HASTY));
    // Nobody has the last of the LIDs, which the administrator knows.
    let checked = check(&lab, "H1", &["-d", "10.77.0.[2,97-99],nobody,3000"]);
    let silent = ["10.77.0.97", "10.77.0.98", "10.77.0.99", "nobody"];
    let found = "the peer does not answer; remedy: ";
    let remedy = [found, "look whether it is up", "min_mtu and min_rate"];
    let failed = checked.of("failed");
    assert_eq!((failed.len(), checked.status), (5, Some(2)), "{}", checked.text);
    let lines: Vec<&str> = checked.text.lines().filter(|line| line.contains(found)).collect();
    assert!(lines.len() == 4 && silent.iter().all(|s| failed.contains(&("peer", s))), "{}", checked.text);
    // What is to be done is said once, and from then on where.
    let (_, first) = failed.iter().find(|(_, subject)| silent.contains(subject)).unwrap();
    assert!(remedy.iter().all(|piece| lines[0].contains(piece)), "{}", lines[0]);
    assert!(lines[1..].iter().all(|line| line.ends_with(&format!("{found}as for peer {first}"))), "{}", checked.text);
    assert!(checked.text.contains("peer 3000: there is no path to it: "), "{}", checked.text);
    assert!(checked.of("ok").contains(&("peer", "10.77.0.2")) && checked.of("warning").is_empty(), "{}", checked.text);
    // One after the other they would take four times as long as one.
    let one = check(&lab, "H1", &["-d", "10.77.0.96"]);
    one.failed(&[("peer 10.77.0.96", &remedy)]);
    assert!(checked.took < 2 * one.took + Duration::from_secs(1), "{:?} for one, {:?}", one.took, checked.took);
    // A time limit that is shorter than the service's is told from its answer.
    let short = check(&lab, "H1", &["-d", "10.77.0.95", "--timeout", "1"]);
    short.failed(&[("peer 10.77.0.95", &["the peer does not answer; remedy: ", "more than 1 s (--timeout)"])]);
}

#[test]
fn stale_paths() {
    let lab = SUBNET.enter();
    for program in [Program::Ours, Program::Stock] {
        let [_daemon, peer] = ["H1", "H2"].map(|host| lab.start(program, host, ""));
        check(&lab, "H1", &["-d", "10.77.0.2,h2"]).healthy(&ALL);
        // It would say where it is now.
        drop(peer);
        let [two] = lab.hosts(["H2"]);
        let _undo = Undo(&lab, "port-reset H2");
        lab.inject("port H2 lid=77").unwrap();
        let found = format!("stale cached path: DLID {} cached, 77 by the SA; remedy: restart the service", two.lid);
        let checked = check(&lab, "H1", &["-d", "10.77.0.2"]);
        checked.failed(&[("path 10.77.0.2", &[&found])]);
    }
}

#[test]
fn documents() {
    let lab = SUBNET.enter();
    let daemon = lab.ours("H1", HASTY);
    let good = check(&lab, "H1", &["--json"]);
    validate(&good.text);
    assert_eq!(good.status, Some(0), "{}", good.text);
    let end = "\"result\": \"ok\",\n  \"failed\": 0,\n  \"warnings\": 0,\n  \"error\": null,\n  \"status\": 0\n}\n";
    assert!(good.text.ends_with(end), "{}", good.text);
    let bad = check(&lab, "H1", &["--json", "-d", "no\u{7f}\"body\\", "-d", "nobody"]);
    validate(&bad.text);
    assert_eq!(bad.status, Some(2), "{}", bad.text);
    assert!(bad.text.contains("\"subject\": \"no\\u007f\\\"body\\\\\",\n      \"result\": \"failed\""), "{}", bad.text);
    assert_eq!(bad.text.matches("\"remedy\": \"look whether it is up").count(), 2, "each has its own: {}", bad.text);
    drop(daemon);
    let down = check(&lab, "H1", &["--json", "--quiet"]);
    validate(&down.text);
    assert_eq!((down.text.matches("\"remedy\"").count(), down.status), (1, Some(2)), "{}", down.text);
}

#[test]
fn command_lines() {
    for (arguments, status, words) in [
        (&["-h"][..], 0, "usage: ib_acme check"),
        (&["--nonsense"], 64, "see ib_acme check --help"),
        (&["--timeout", "x"], 64, "--timeout 'x'"),
        (&["-d", "a[3-1]"], 64, "-d 'a[3-1]'"),
        (&["more"], 64, "unexpected 'more'"),
    ] {
        let output = run(Command::new(acme::ours()).arg("check").args(arguments));
        let text = util::text(&output);
        assert!(output.status.code() == Some(status) && text.contains(words), "{arguments:?}: {text}");
    }
    // Whoever wants a document gets one, of what is not understood too.
    for arguments in [&["--json", "-z"][..], &["--json", "-d", ""], &["--timeout", "0", "--json"]] {
        let output = run(Command::new(acme::ours()).arg("check").args(arguments));
        let document = String::from_utf8_lossy(&output.stdout);
        validate(&document);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(document.contains("\"result\": \"failed\"") && document.contains("\"status\": 64"), "{document}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("see ib_acme check --help"), "{arguments:?}");
    }
}
