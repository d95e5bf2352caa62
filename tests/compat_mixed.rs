//! Our service and the distribution's on one subnet: each asks the other, and both answer alike.

mod util;

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA};
use ibacm_wire::{Gid, PathRecord};
use util::client::{between, ip, name, to_gid, to_lid};
use util::{Client, Daemon, Lab, PATIENCE, Program, Shared, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 4);

const HOSTS: [&str; 4] = ["H1", "H2", "H3", "H4"];
const PROGRAMS: [Program; 4] = [Program::Ours, Program::Stock, Program::Ours, Program::Stock];

fn mixed(lab: &Lab<'_>, options: &str) -> [Daemon; 4] {
    std::array::from_fn(|i| lab.start(PROGRAMS[i], HOSTS[i], options))
}

fn path_between(sgid: [u8; 16], dgid: [u8; 16]) -> Entry {
    let mut p = PathRecord::default();
    p.set_sgid(Gid(sgid));
    p.set_dgid(Gid(dgid));
    Entry::path(0, &p)
}

/// Every kind of question that host number `from` can ask about host number `to`, and its name for messages.
fn questions(lab: &Lab<'_>, from: usize, to: usize) -> Vec<(String, Vec<Entry>)> {
    let [one, two] = lab.hosts([HOSTS[from], HOSTS[to]]);
    let (f, t) = (from + 1, to + 1);
    let with_slid = |dlid| {
        let mut p = PathRecord::default();
        p.set_slid(one.lid);
        p.set_dlid(dlid);
        Entry::path(0, &p)
    };
    let all: Vec<(&str, Vec<Entry>)> = vec![
        ("IPv4", between(&format!("10.77.0.{f}"), &format!("10.77.0.{t}")).into()),
        ("IPv4 without source", vec![ip(EP_FLAG_DEST, &format!("10.77.0.{t}"))]),
        ("IPv6", between(&format!("fd77::{f}"), &format!("fd77::{t}")).into()),
        ("IPv6 without source", vec![ip(EP_FLAG_DEST, &format!("fd77::{t}"))]),
        ("name", vec![name(EP_FLAG_SOURCE, &format!("h{f}")), name(EP_FLAG_DEST, &format!("h{t}"))]),
        ("second name", vec![name(EP_FLAG_SOURCE, &format!("h{f}-1")), name(EP_FLAG_DEST, &format!("h{t}-1"))]),
        ("LID", vec![to_lid(0, two.lid)]),
        ("LID with source", vec![with_slid(two.lid)]),
        ("GID", vec![to_gid(0, two.gid)]),
        ("GID with source", vec![path_between(one.gid, two.gid)]),
    ];
    all.into_iter().map(|(kind, entries)| (format!("H{f} to H{t}, {kind}"), entries)).collect()
}

fn everybody_resolves_everybody(options: &str) {
    let lab = SUBNET.enter();
    let _daemons = mixed(&lab, options);
    for (from, host) in HOSTS.iter().enumerate() {
        let mut client = Client::connect(&lab, host);
        for to in (0..HOSTS.len()).filter(|to| *to != from) {
            let [one, two] = lab.hosts([*host, HOSTS[to]]);
            for (what, question) in questions(&lab, from, to) {
                let path = client.resolve(&question).path();
                assert_eq!((path.slid(), path.dlid()), (one.lid, two.lid), "{what}, {options}");
                assert_eq!((path.sgid(), path.dgid()), (Gid(one.gid), Gid(two.gid)), "{what}, {options}");
                assert_eq!((path.pkey(), path.mtu(), path.rate()), (0xffff, 0x84, 0x83), "{what}, {options}");
            }
        }
    }
}

#[test]
fn everybody_resolves_everybody_with_routes_of_the_sa() {
    everybody_resolves_everybody("route_prot sa\n");
}

#[test]
fn everybody_resolves_everybody_with_routes_of_the_group() {
    everybody_resolves_everybody("route_prot acm\n");
}

/// What a service on H1 answers to every question, its transaction ids left out: status, flags and records.
fn answers(lab: &Lab<'_>, options: &str, program: Program) -> Vec<(String, Vec<u8>)> {
    let _daemon = lab.start(program, "H1", options);
    let mut client = Client::connect(lab, "H1");
    let [two] = lab.hosts(["H2"]);
    let mut asked: Vec<(String, Vec<Entry>)> = (0..3).flat_map(|to| questions(lab, 0, to)).collect();
    let mut query = questions(lab, 0, 1).pop().expect("there are some").1;
    query[0].flags = FLAG_QUERY_SA;
    asked.push(("the SA's own word".into(), query));
    let nowhere = to_lid(0, two.lid + 100);
    asked.push(("a LID that nobody has".into(), vec![nowhere]));
    asked.push(("no destination".into(), vec![ip(EP_FLAG_SOURCE, "10.77.0.1")]));
    asked.push(("a source of somebody else".into(), between("10.77.0.2", "10.77.0.3").into()));
    let answer = |(what, question): (String, Vec<Entry>)| {
        let reply = client.resolve(&question);
        let mut bytes = reply.bytes;
        // The bit of replies, which the other service forgets at times; and the transaction id.
        bytes[1] &= 0x0f;
        bytes[8..16].fill(0);
        (what, bytes)
    };
    asked.into_iter().map(answer).collect()
}

fn both_answer_alike(options: &str) {
    let lab = SUBNET.enter();
    let _peers = [lab.stock("H2", options), lab.ours("H3", options)];
    let ours = answers(&lab, options, Program::Ours);
    let stock = answers(&lab, options, Program::Stock);
    let differ = ours.iter().zip(&stock).filter(|(ours, stock)| ours != stock);
    let differ: Vec<String> =
        differ.map(|((what, a), (_, b))| format!("{what}:\nours  {a:02x?}\nstock {b:02x?}")).collect();
    assert!(differ.is_empty(), "{options}{}", differ.join("\n"));
}

#[test]
fn both_answer_alike_with_routes_of_the_sa() {
    both_answer_alike("route_prot sa\ntimeout 300\n");
}

#[test]
fn both_answer_alike_with_routes_of_the_group() {
    both_answer_alike("route_prot acm\ntimeout 300\n");
}

#[test]
fn both_answer_alike_without_loopback() {
    both_answer_alike("route_prot sa\nloopback_prot none\ntimeout 300\n");
    both_answer_alike("route_prot acm\nloopback_prot none\ntimeout 300\n");
}

/// Options with which a port joins a slow group that everybody is in, and one of its own speed.
const TWO_GROUPS: &str = "route_prot acm\nmin_mtu 1024\nmin_rate 2.5\ntimeout 300\n";

#[test]
fn both_answer_alike_with_two_groups() {
    both_answer_alike(TWO_GROUPS);
}

#[test]
fn the_best_group_of_both_sides_is_chosen() {
    let lab = SUBNET.enter();
    // A port of half the packet size, and one of a quarter of the speed.
    lab.inject("port H3 mtu=3").unwrap();
    lab.inject("port H4 width=1").unwrap();
    let mut compared = Vec::new();
    for programs in [PROGRAMS, [Program::Stock, Program::Ours, Program::Stock, Program::Ours]] {
        let _daemons: [Daemon; 4] = std::array::from_fn(|i| lab.start(programs[i], HOSTS[i], TWO_GROUPS));
        for host in HOSTS {
            let joined = wait_for(PATIENCE, || (lab.port(host).ok()?.joined.len() >= 2).then_some(()));
            assert!(joined.is_some(), "{host} joins {:x?}", lab.port(host).unwrap().joined);
            // What the SA answers next comes to the service after its answers about groups.
            Client::connect(&lab, host).resolve(&[to_lid(FLAG_QUERY_SA, lab.port(host).unwrap().lid)]).path();
        }
        let mut client = Client::connect(&lab, "H1");
        let mut back: Vec<Client> = HOSTS.iter().map(|h| Client::connect(&lab, h)).collect();
        // The slow group is (1024 bytes, 2.5 Gb/s); the ports' own are (2048, 10), (1024, 10) and (2048, 2.5).
        for (number, mtu, rate) in [(2, 4, 3), (3, 3, 2), (4, 3, 2)] {
            let (here, there) = ("10.77.0.1", format!("10.77.0.{number}"));
            let path = client.resolve(&between(here, &there)).path();
            assert_eq!((path.mtu() & 0x3f, path.rate() & 0x3f), (mtu, rate), "H1 to H{number}, {programs:?}");
            let other = back[number - 1].resolve(&between(&there, here)).path();
            assert_eq!((other.mtu(), other.rate()), (path.mtu(), path.rate()), "H{number} to H1, {programs:?}");
            compared.push(path);
        }
    }
    assert_eq!(compared[..3], compared[3..], "ours and then the other");
    for host in ["H3", "H4"] {
        lab.inject(&format!("port-reset {host}")).unwrap();
    }
}

#[test]
fn routes_of_the_group_cost_the_sa_nothing() {
    let lab = SUBNET.enter();
    let _daemons = mixed(&lab, "route_prot acm\n");
    let [_, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let mut client = Client::connect(&lab, "H1");
    for (what, question) in [1, 2, 3].iter().flat_map(|to| questions(&lab, 0, *to)) {
        if !what.contains("ID") {
            client.resolve(&question).path();
        }
    }
    assert_eq!(lab.count("sa.", "PathRecord.Get"), 0, "{:?}", lab.stats().unwrap());
    assert_eq!(lab.count("mcast.H1", "sent"), 12, "one for each IPv4 and IPv6 address and both names of three hosts");
    client.resolve(&[to_lid(0, two.lid)]).path();
    assert_eq!(lab.path_queries("H1"), 1);
    client.resolve(&[to_gid(0, three.gid)]).path();
    assert_eq!(lab.path_queries("H1"), 2);
    let said = lab.acme("H1", &["-f", "i", "-d", "10.77.0.2", "-v"]);
    assert!(said.contains("SA verification: success"), "{said}");
    assert_eq!(lab.path_queries("H1"), 3);
}
