//! More multicast groups than the classic two, on a subnet with OpenSM and the distribution's service.

mod util;

use ibacm_wire::client::FLAG_QUERY_SA;
use util::client::{between, to_lid};
use util::{ADDRESS_GROUP, Client, Daemon, Lab, PATIENCE, Program, Shared, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 4);

const HOSTS: [&str; 4] = ["H1", "H2", "H3", "H4"];

/// A first group that any port can be in: between it and (2048 bytes, 10 Gb/s) are ten more.
const WIDE: &str = "route_prot acm\nmin_mtu 256\nmin_rate 2.5\ntimeout 300\n";
const FIRST: (u8, u8) = (1, 2);
const ALL: usize = 12;

fn wide(groups: usize) -> String {
    format!("{WIDE}multicast_groups {groups}\n")
}

/// The groups of a host: MTU and rate of each.
fn joined(lab: &Lab<'_>, host: &str) -> Vec<(u8, u8)> {
    let port = lab.port(host).expect("the host is there");
    port.joined.iter().map(|(g, _)| g).filter(|g| g[..4] == ADDRESS_GROUP).map(|g| (g[8], g[7])).collect()
}

fn wait_for_groups(lab: &Lab<'_>, host: &str, count: usize) {
    let all = wait_for(PATIENCE, || (joined(lab, host).len() == count).then_some(()));
    assert!(all.is_some(), "{host} is in {:?}, not in {count} groups", joined(lab, host));
    // what the SA answers next comes to the service after its answers about groups
    let lid = lab.port(host).expect("the host is there").lid;
    Client::connect(lab, host).resolve(&[to_lid(FLAG_QUERY_SA, lid)]);
}

/// MTU and rate of the path that host number `from` finds to number `to`.
fn found(lab: &Lab<'_>, from: usize, to: usize) -> (u8, u8) {
    let mut client = Client::connect(lab, HOSTS[from - 1]);
    let path = client.resolve(&between(&format!("10.77.0.{from}"), &format!("10.77.0.{to}"))).path();
    (path.mtu() & 0x3f, path.rate() & 0x3f)
}

/// Ports of half the packet size (H3) and of a quarter of the speed (H4).
fn make_slow(lab: &Lab<'_>) {
    lab.inject("port H3 mtu=3").unwrap();
    lab.inject("port H4 width=1").unwrap();
}

fn enter() -> Lab<'static> {
    let lab = SUBNET.enter();
    // a test that failed may have left something
    reset(&lab);
    lab
}

fn reset(lab: &Lab<'_>) {
    for host in HOSTS {
        lab.inject(&format!("port-reset {host}")).unwrap();
    }
}

/// What each of H2, H3, H4 can do.
const OWN: [(usize, (u8, u8)); 3] = [(2, (4, 3)), (3, (3, 3)), (4, (4, 2))];

fn against(program: Program, groups: usize) {
    let lab = enter();
    make_slow(&lab);
    let options = if program == Program::Ours { wide(groups) } else { WIDE.to_owned() };
    for here_first in [true, false] {
        let peers: Vec<Daemon> = HOSTS[1..].iter().map(|h| lab.start(program, h, &options)).collect();
        for (host, most) in HOSTS[1..].iter().zip([ALL, 9, 4]) {
            // (1024, 10) is over 3 MTUs of 3 rates, (2048, 2.5) over 4 of one
            wait_for_groups(&lab, host, most.min(groups));
        }
        // who is asked first knows the other from that question
        let ours = lab.ours("H1", &wide(16));
        wait_for_groups(&lab, "H1", ALL);
        let begin = lab.sniff_next().unwrap();
        for (number, own) in OWN {
            let ways = if here_first { [(1, number), (number, 1)] } else { [(number, 1), (1, number)] };
            for (from, to) in ways {
                assert_eq!(found(&lab, from, to), own, "{program:?}, {groups} groups, H{from} asks H{to}");
            }
        }
        let asked = lab.sniffed(Some("H1"), begin).unwrap();
        let asked: Vec<u8> = asked.iter().filter(|d| d.dqpn == 0xff_ffff).map(|d| d.data[20]).collect();
        assert_eq!(asked, if here_first { vec![6; 3] } else { Vec::new() }, "six are named, of {ALL}");
        drop((ours, peers));
    }
    reset(&lab);
}

#[test]
fn peers_with_the_other_service_are_found_at_their_own_speed() {
    against(Program::Stock, 2);
}

#[test]
fn peers_of_ours_are_found_at_their_own_speed_however_many_groups_they_are_in() {
    against(Program::Ours, 2);
    against(Program::Ours, 6);
    against(Program::Ours, 16);
}

#[test]
fn with_two_groups_they_are_not() {
    let lab = enter();
    make_slow(&lab);
    let _daemons = HOSTS.map(|h| lab.ours(h, WIDE));
    HOSTS.iter().for_each(|h| wait_for_groups(&lab, h, 2));
    assert_eq!((found(&lab, 1, 2), found(&lab, 1, 3), found(&lab, 4, 1)), ((4, 3), FIRST, FIRST));
    reset(&lab);
}

#[test]
fn the_option_and_the_port_change_the_groups_of_a_service_that_runs() {
    let lab = enter();
    let one = lab.ours("H1", &wide(16));
    let two = lab.ours("H2", &wide(2));
    wait_for_groups(&lab, "H1", ALL);
    wait_for_groups(&lab, "H2", 2);
    lab.write("H2", "/etc/rdma/ibacm_opts.cfg", &wide(6));
    two.signal("HUP");
    wait_for_groups(&lab, "H2", 6);
    assert_eq!(found(&lab, 1, 2), (4, 3));
    // a cable of which one lane works: the path that was known is one no longer
    lab.inject("port H2 width=1 quiet=1").unwrap();
    lab.inject("event H2 PORT_ACTIVE").unwrap();
    let narrow = wait_for(PATIENCE, || (found(&lab, 2, 1) == (4, 2)).then_some(()));
    assert!(narrow.is_some(), "{:?}", found(&lab, 2, 1));
    reset(&lab);
    lab.inject("event H2 PORT_ACTIVE").unwrap();
    let whole = wait_for(PATIENCE, || (found(&lab, 2, 1) == (4, 3)).then_some(()));
    assert!(whole.is_some(), "{:?}", found(&lab, 2, 1));
    drop((one, two));
}

#[test]
fn groups_that_the_subnet_manager_refuses_are_done_without() {
    let lab = enter();
    // forty, says the port, and OpenSM knows of ten
    lab.inject("port H1 speed=4").unwrap();
    let options = "route_prot acm\nmulticast_groups 16\nlog_level 1\ntimeout 300\n";
    let one = lab.ours("H1", options);
    let _two = lab.stock("H2", "route_prot acm\ntimeout 300\n");
    let refused = wait_for(PATIENCE, || one.said().contains("cannot join").then_some(()));
    assert!(refused.is_some(), "{}", one.said());
    assert_eq!((found(&lab, 1, 2), found(&lab, 2, 1)), ((4, 3), (4, 3)));
    assert_eq!(joined(&lab, "H1"), [(4, 3)]);
    // the own group is tried again, and the others are no news
    let again = || (one.said().lines().filter(|l| l.contains("cannot join")).count() >= 7).then_some(());
    assert!(wait_for(PATIENCE, again).is_some(), "{}", one.said());
    reset(&lab);
}
