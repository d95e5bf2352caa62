//! Hosts change while clients resolve all the time: devices, services, interfaces, addresses; and events that never come.

#[path = "util/live.rs"]
mod live;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fmt::Write as _;
use std::time::Duration;

use live::hosts::{COMMON, MOVES, addresses, ip, ip_batch, port_reset, sa_answers, wait_port};
use live::world::Topic;
use live::{Live, Touch};
use util::{Shared, wait_for};

static LAB: Shared = Shared::new(live::build);

const OWN: Touch = Touch::ports(&[("H1", 0)]);
/// Lost devices are looked for every two seconds.
const REOPENED: Touch = Touch { within: Duration::from_secs(8), ..OWN };

#[test]
fn devices_and_services() {
    let mut live = Live::start(&LAB);
    live.change("the own device reports a fatal error", REOPENED, |l| {
        l.lab.inject("event H1 DEVICE_FATAL").unwrap();
    });
    live.change("the own device is pulled out", OWN, |l| {
        l.lab.inject("device-remove H1 dev=mlx5_0").unwrap();
        l.world.silent.push(("H1", 0));
    });
    live.change("it is put back", REOPENED, |l| {
        l.lab.inject("device-restore H1 dev=mlx5_0").unwrap();
        l.world.silent.clear();
    });
    let peer = Touch::ports(&[("H2", 0)]);
    live.change("a peer's device is pulled out", peer, |l| {
        l.lab.inject("device-remove H2 dev=mlx5_0").unwrap();
        l.world.silent.push(("H2", 0));
    });
    live.change("it is put back there", peer, |l| {
        l.lab.inject("device-restore H2 dev=mlx5_0").unwrap();
        let joined = wait_for(util::PATIENCE, || (!l.lab.port("H2").ok()?.joined.is_empty()).then_some(()));
        assert!(joined.is_some() || l.program == util::Program::Stock, "the peer is back");
        l.world.silent.clear();
    });
    live.change("a device comes that no subnet knows", Touch::NOTHING, |l| {
        l.lab.inject("device-add H1 bare9 ports=ib,eth").unwrap();
        ip(&l.lab, "H1", "addr add 10.99.0.1/24 dev ib1");
        ip(&l.lab, "H1", "addr del 10.99.0.1/24 dev ib1");
    });
    live.lab.inject("device-remove H1 dev=bare9").unwrap();
    live.change("a peer's service is killed", Touch::ports(&[("H3", 0), ("H3", 1)]), |l| {
        l.kill(3);
        l.world.silent.extend([("H3", 0), ("H3", 1)]);
    });
    live.change("it is started again", Touch::ports(&[("H3", 0), ("H3", 1)]), |l| {
        l.serve(3);
        l.world.silent.clear();
    });
    // One that the service has never seen: it was not there when it started.
    live.lab.inject("device-remove H1 dev=mlx5_1").unwrap();
    live.world.silent.push(("H1", 1));
    live.restart(1);
    live.change("a new device comes", Touch { within: Duration::from_secs(5), ..Touch::ports(&[("H1", 1)]) }, |l| {
        l.lab.inject("device-restore H1 dev=mlx5_1").unwrap();
        // With it come its interfaces.
        ip(&l.lab, "H1", "link set ib1 down");
        ip(&l.lab, "H1", "link set ib1 up");
        addresses(&l.lab, "H1", "ib1");
        l.world.silent.clear();
    });
    live.finish();
}

#[test]
fn events_that_never_come() {
    let mut live = Live::start(&LAB);
    // What a service looks at soon after its start is over.
    std::thread::sleep(Duration::from_secs(3));
    // Nothing gives a hint of these: every half a minute everything is looked at.
    let (wrong, within) = (Duration::from_secs(33), Duration::from_secs(40));
    live.change("own LID and partitions change unsaid", Touch { wrong, within, ..OWN }, |l| {
        l.lab.inject("port H1 lid=556 pkeys=0xffff,0x8222 quiet=1").unwrap();
    });
    live.change("they change back, and it is said", OWN, |l| port_reset(&l.lab, ("H1", 0)));
    // Changed interfaces are a hint: ports are looked at a second later.
    let wrong = Duration::from_millis(2500);
    let hinted = Touch { wrong, ..Touch::ports(&[("H1", 0), ("H1", 1)]) };
    live.change("own LID and GID change unsaid, as do interfaces", hinted, |l| {
        l.lab.inject("port H1 lid=555 quiet=1").unwrap();
        l.lab.inject("port H1 dev=mlx5_1 gid=fe80::9:9 quiet=1").unwrap();
        ip(&l.lab, "H1", "addr add 10.77.8.9/16 dev ib0");
    });
    ip(&live.lab, "H1", "addr del 10.77.8.9/16 dev ib0");
    live.finish();
}

#[test]
fn addresses_come_go_and_move() {
    let mut live = Live::start(&LAB);
    for (host, address, names) in [
        ("H1", "10.77.8.1", ["an own IPv4 address is added", "it is deleted"]),
        ("H1", "fd77::8:1", ["an own IPv6 address is added", "it is deleted"]),
        ("H2", "10.77.8.2", ["a peer gets an IPv4 address", "it loses it"]),
        ("H2", "fd77::8:2", ["a peer gets an IPv6 address", "it loses it"]),
    ] {
        let six = address.contains(':');
        let (length, other) = if six { ("64", ["fd77::1", "fd77::2"]) } else { ("16", ["10.77.0.1", "10.77.0.2"]) };
        let topic = match host {
            "H1" => Topic::Address(Some(address), other[1]),
            _ => Topic::Address(Some(other[0]), address),
        };
        let nodad = if six { " nodad" } else { "" };
        live.change(names[0], Touch::NOTHING, |l| {
            ip(&l.lab, host, &format!("addr add {address}/{length} dev ib0{nodad}"));
            l.world.own(address, (host, 0), COMMON);
            l.also(topic);
        });
        live.change(names[1], Touch::NOTHING, |l| {
            ip(&l.lab, host, &format!("addr del {address}/{length} dev ib0"));
            if host == "H1" { l.world.disown(address) } else { l.world.leave(address) }
        });
        live.no_longer(topic);
    }
    live.change("the own address is deleted", Touch::NOTHING, |l| {
        ip(&l.lab, "H1", "addr del 10.77.0.1/16 dev ib0");
        l.world.disown("10.77.0.1");
    });
    live.change("it is added again", Touch::NOTHING, |l| {
        ip(&l.lab, "H1", "addr add 10.77.0.1/16 dev ib0");
        l.world.own("10.77.0.1", ("H1", 0), COMMON);
    });
    let from = Topic::Address(Some("10.77.8.1"), "10.77.0.2");
    ip(&live.lab, "H1", "addr add 10.77.8.1/32 dev ib0");
    live.world.own("10.77.8.1", ("H1", 0), COMMON);
    live.also(from);
    live.change("an own address moves to another interface", Touch::NOTHING, |l| {
        ip(&l.lab, "H1", "addr add 10.77.8.1/32 dev ib1");
        ip(&l.lab, "H1", "addr del 10.77.8.1/32 dev ib0");
        l.world.own("10.77.8.1", ("H1", 1), COMMON);
    });
    live.no_longer(from);
    live.change("a peer's address moves to its other interface", Touch::NOTHING, |l| {
        ip(&l.lab, "H2", &format!("addr del {MOVES}/16 dev ib0"));
        ip(&l.lab, "H2", &format!("addr add {MOVES}/32 dev ib1"));
        l.world.own(MOVES, ("H2", 1), COMMON);
    });
    live.change("a peer's address moves to another host", Touch::NOTHING, |l| {
        ip(&l.lab, "H2", &format!("addr del {MOVES}/32 dev ib1"));
        ip(&l.lab, "H3", &format!("addr add {MOVES}/32 dev ib0"));
        l.world.own(MOVES, ("H3", 0), COMMON);
    });
    live.change("a peer's address moves to this host", Touch::NOTHING, |l| {
        ip(&l.lab, "H3", &format!("addr del {MOVES}/32 dev ib0"));
        ip(&l.lab, "H1", &format!("addr add {MOVES}/32 dev ib1"));
        l.world.own(MOVES, ("H1", 1), COMMON);
    });
    live.change("an own address moves to another host", Touch::NOTHING, |l| {
        ip(&l.lab, "H1", &format!("addr del {MOVES}/32 dev ib1"));
        ip(&l.lab, "H2", &format!("addr add {MOVES}/32 dev ib0"));
        l.world.own(MOVES, ("H2", 0), COMMON);
    });
    live.finish();
}

/// An address of each kind of which one host hands over to another.
const HANDED: [&str; 2] = [MOVES, "fd77::5:1"];
/// Who has a new address says so twice within this time.
const SAID: Duration = Duration::from_millis(2500);

/// The addresses are another host's from now on, and all that is said of that has been said.
fn hand_over(live: &mut Live<'_>, from: &str, to: &'static str) {
    for (address, length) in HANDED.into_iter().zip([32, 64]) {
        ip(&live.lab, from, &format!("addr del {address}/{length} dev ib0"));
        let nodad = if length == 64 { " nodad" } else { "" };
        ip(&live.lab, to, &format!("addr add {address}/{length} dev ib0{nodad}"));
        live.world.own(address, (to, 0), COMMON);
    }
    std::thread::sleep(SAID);
}

#[test]
fn addresses_move_while_nothing_is_heard() {
    let mut live = Live::start(&LAB);
    ip(&live.lab, "H2", &format!("addr del {MOVES}/16 dev ib0"));
    ip(&live.lab, "H2", &format!("addr add {MOVES}/32 dev ib0"));
    ip(&live.lab, "H2", &format!("addr add {}/64 dev ib0 nodad", HANDED[1]));
    live.world.own(HANDED[1], ("H2", 0), COMMON);
    let six = Topic::Address(Some("fd77::1"), HANDED[1]);
    live.also(six);
    live.restart(1);
    // While the own port is down no path from it is right, so that not even the first one afterwards may be the old.
    live.change("addresses move while the own link is down", OWN, |l| {
        l.lab.console("Unlink \"H1\"[1]").unwrap();
        wait_port(&l.lab, ("H1", 0), |p| p.state != 4);
        hand_over(l, "H2", "H3");
    });
    live.change("it comes up again", OWN, |l| {
        l.lab.console("ReLink \"H1\"[1]").unwrap();
        wait_port(&l.lab, ("H1", 0), |p| p.state == 4);
        sa_answers(&l.lab);
    });
    live.change("they move back while the own device is away", OWN, |l| {
        l.lab.inject("device-remove H1 dev=mlx5_0").unwrap();
        l.world.silent.push(("H1", 0));
        hand_over(l, "H3", "H2");
    });
    live.change("it is put back again", REOPENED, |l| {
        l.lab.inject("device-restore H1 dev=mlx5_0").unwrap();
        l.world.silent.clear();
    });
    for (event, name, from, to) in [
        ("CLIENT_REREGISTER", "they move while the manager has forgotten the group", "H2", "H3"),
        ("PORT_ERR", "they move back while the port is down unseen", "H3", "H2"),
    ] {
        live.change(name, OWN, |l| {
            l.lab.inject("leave H1").unwrap();
            hand_over(l, from, to);
            l.lab.inject(&format!("event H1 {event}")).unwrap();
        });
    }
    ip(&live.lab, "H2", &format!("addr del {}/64 dev ib0", HANDED[1]));
    live.no_longer(six);
    live.finish();
}

#[test]
fn interfaces() {
    let mut live = Live::start(&LAB);
    live.change("an own interface goes down", OWN, |l| {
        ip(&l.lab, "H1", "link set ib0 down");
        // The kernel takes its IPv6 addresses, and its routes.
        l.world.disown("fd77::1");
        l.world.unrouted.push(("H1", 0));
    });
    live.change("it comes up", OWN, |l| {
        ip(&l.lab, "H1", "link set ib0 up");
        addresses(&l.lab, "H1", "ib0");
        l.world.own("fd77::1", ("H1", 0), COMMON);
        l.world.unrouted.clear();
    });
    live.change("an own interface gets another name", OWN, |l| {
        l.lab.rename_interface("H1", "ib0", "ibx").unwrap();
        l.world.disown("fd77::1");
    });
    live.change("and the old one", OWN, |l| {
        l.lab.rename_interface("H1", "ibx", "ib0").unwrap();
        addresses(&l.lab, "H1", "ib0");
        l.world.own("fd77::1", ("H1", 0), COMMON);
    });
    let (four, six) = ("10.78.0.1", "fd77:0:0:1::1");
    live.change("an own interface is deleted", Touch::NOTHING, |l| {
        l.lab.remove_interface("H1", "ib1").unwrap();
        l.world.disown(four);
        l.world.disown(six);
    });
    live.change("it is made again", Touch::NOTHING, |l| {
        l.lab.add_interface("H1", "ib1", &format!("0xffff dev=mlx5_1:1 {four}/16 {six}/64")).unwrap();
        l.world.own(four, ("H1", 1), COMMON);
        l.world.own(six, ("H1", 1), COMMON);
    });
    let last = Topic::Address(Some("10.77.20.1"), "10.77.0.2");
    // What the SA answers while the service is stopped may come too late for it.
    live.change("more news than the kernel keeps", Touch::SA, |l| {
        let mut lines = String::new();
        for _ in 0..10 {
            for verb in ["add", "del"] {
                for n in 1..250 {
                    let _ = writeln!(lines, "addr {verb} 10.77.21.{n}/32 dev ib0");
                }
            }
        }
        lines.push_str("addr add 10.77.20.1/32 dev ib0\n");
        l.daemon(1).signal("STOP");
        ip_batch(&l.lab, "H1", &lines);
        l.daemon(1).signal("CONT");
        l.world.own("10.77.20.1", ("H1", 0), COMMON);
        l.also(last);
    });
    live.no_longer(last);
    ip(&live.lab, "H1", "addr del 10.77.20.1/32 dev ib0");
    wait_port(&live.lab, ("H1", 0), |p| p.state == 4);
    sa_answers(&live.lab);
    live.finish();
}
