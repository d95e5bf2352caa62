//! Addresses and paths that files tell beforehand: who then isn't asked any more.

mod util;

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry};
use ibacm_wire::{Gid, PathRecord};
use util::client::{between, ip, name, to_gid, to_lid};
use util::{Client, Lab, Program, Shared, sa};

static SUBNET: Shared = Shared::new(|o| (o.hosts, o.hca_ports) = (2, 2));

/// Lines for the addresses of both ports of H2, under a name each, and of a host that isn't there.
fn write_addresses(lab: &Lab<'_>) {
    let mut text = "# address GID\n".to_owned();
    for port in lab.ports().unwrap().iter().filter(|p| p.host == "H2") {
        let gid = Ipv6Addr::from(port.gid);
        let (net, number) = (76 + port.port, port.port);
        let ip6 = if number == 1 { "fd77::2" } else { "fd77:0:0:1::2" };
        writeln!(text, "target-{number} {gid}\n10.{net}.0.2 {gid}\n{ip6} {gid}").expect("a string takes all");
    }
    text.push_str("nobody fe80::dead:beef\n");
    lab.write("H1", "/etc/rdma/ibacm_hosts.data", &text);
}

/// As the subnet manager dumps them: from each port to each LID, with a service level that it would not choose itself.
fn write_paths(lab: &Lab<'_>) {
    let ports = lab.ports().unwrap();
    let mut text = String::new();
    for from in &ports {
        let (guid, lid, number) = (from.guid, from.lid, from.port);
        let kind = "Channel Adapter";
        writeln!(text, "{kind} {guid:#018x}, base LID {lid}, \"a \\\"node\\\", of many\", port {number}")
            .expect("it fits");
        writeln!(text, "# LID  : SL : MTU : RATE").expect("it fits");
        for to in &ports {
            writeln!(text, "0x{:04X} : {:<2} : {:<3} : {:<4}", to.lid, 5, 3, 6).expect("it fits");
        }
        writeln!(text, "0x0001 : UNREACHABLE\n").expect("it fits");
    }
    lab.write("H1", "/etc/rdma/ibacm_route.data", &text);
}

const ADDRESSES: &str = "addr_preload acm_hosts\naddr_data_file /etc/rdma/ibacm_hosts.data\ntimeout 300\n";
const PATHS: &str = "route_preload opensm_full_v1\nroute_data_file /etc/rdma/ibacm_route.data\n";

fn named(dest: &str) -> [Entry; 2] {
    [name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, dest)]
}

#[test]
fn preloaded_addresses_need_no_peer() {
    let lab = SUBNET.enter();
    write_addresses(&lab);
    let _daemon = lab.ours("H1", ADDRESSES);
    let ports = lab.ports().unwrap();
    let begin = lab.sniff_next().unwrap();
    let mut client = Client::connect(&lab, "H1");
    let second = [name(EP_FLAG_SOURCE, "h1-2"), name(EP_FLAG_DEST, "TARGET-2")];
    for (port, question) in [
        (1, &between("10.77.0.1", "10.77.0.2")[..]),
        (1, &[ip(EP_FLAG_DEST, "10.77.0.2")]),
        (1, &between("fd77::1", "fd77::2")),
        (1, &named("target-1")),
        (2, &between("10.78.0.1", "10.78.0.2")),
        (2, &second),
        (2, &[ip(EP_FLAG_DEST, "fd77:0:0:1::2")]),
    ] {
        let [one, two] =
            ["H1", "H2"].map(|h| ports.iter().find(|p| p.host == h && p.port == port).expect("it is there"));
        let path = client.resolve(question).path();
        // Whoever forgets to say where from gets a path from anywhere.
        assert_eq!((path.sgid(), path.slid()), (Gid(one.gid), one.lid), "{question:?}");
        assert_eq!(path, sa::path(&lab, one.lid, two.lid), "{question:?}");
    }
    assert_ne!(client.resolve(&named("nobody")).header.status, 0);
    assert_eq!(lab.sniffed(None, begin).unwrap(), [], "no peer is asked");
}

/// What a service on H1 answers to questions that its files answer.
fn answers(lab: &Lab<'_>, program: Program) -> Vec<(String, PathRecord)> {
    let _daemon = lab.start(program, "H1", &format!("{ADDRESSES}{PATHS}"));
    let begin = lab.sniff_next().unwrap();
    lab.reset_stats().unwrap();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let mut client = Client::connect(lab, "H1");
    let questions: [(&str, &[Entry]); 7] = [
        ("IPv4", &between("10.77.0.1", "10.77.0.2")),
        ("IPv4 without source", &[ip(EP_FLAG_DEST, "10.77.0.2")]),
        ("IPv6", &between("fd77::1", "fd77::2")),
        ("name", &named("target-1")),
        ("LID", &[to_lid(0, two.lid)]),
        ("GID", &[to_gid(0, two.gid)]),
        ("own LID", &[to_lid(0, one.lid)]),
    ];
    let answers = questions.map(|(what, q)| (format!("{what}, {program:?}"), client.resolve(q).path()));
    assert_eq!(lab.sniffed(None, begin).unwrap(), [], "{program:?} asks no peer");
    assert_eq!(lab.path_queries("H1"), 0, "{program:?} does not ask the SA");
    answers.into()
}

#[test]
fn preloaded_paths_need_nobody() {
    let lab = SUBNET.enter();
    write_addresses(&lab);
    write_paths(&lab);
    let ours = answers(&lab, Program::Ours);
    let [one, two] = lab.hosts(["H1", "H2"]);
    for (what, path) in &ours {
        let target = if what.contains("own") { &one } else { &two };
        assert_eq!((path.dlid(), path.dgid()), (target.lid, Gid(target.gid)), "{what}");
        assert_eq!((path.slid(), path.sgid(), path.pkey()), (one.lid, Gid(one.gid), 0xffff), "{what}");
        assert_eq!((path.sl(), path.mtu() & 0x3f, path.rate() & 0x3f), (5, 3, 6), "{what}");
        assert_eq!((path.reversible_numpath(), path.packet_lifetime() == 0), (0x80, what.contains("own")), "{what}");
    }
    let stock = answers(&lab, Program::Stock);
    for ((what, ours), (_, stock)) in ours.iter().zip(&stock) {
        assert_eq!(ours, stock, "{what}");
    }
}
