//! Hosts with several devices, ports, partitions and LIDs: everything goes out of the endpoint that owns its source.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fmt::Write as _;

use fabric::PortLine;
use fabric::subnet::Sniffed;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, Status, TYPE_LID};
use ibacm_wire::datagram::Datagram;
use ibacm_wire::{Gid, PathRecord};
use rob::{code, enter, status};
use util::client::{between, ip, name, to_gid, to_lid};
use util::{Client, Daemon, Lab, Program, Shared, partitions};

/// Two hosts with two devices of two ports, which the subnet manager puts into 16 partitions.
static MANY: Shared = Shared::new(|o| {
    (o.hosts, o.hcas, o.hca_ports) = (2, 2, 2);
    let mut text = "Default=0x7fff,ipoib:ALL=full;\n".to_owned();
    for pkey in 1..16 {
        let _ = writeln!(text, "P{pkey}={pkey:#06x}:ALL=full;");
    }
    o.partitions = Some(partitions("ports", &text));
});

/// The same hosts with four LIDs to a port.
static WIDE: Shared = Shared::new(|o| {
    (o.hosts, o.hcas, o.hca_ports) = (2, 2, 2);
    o.opensm.push("lmc 2".into());
});

/// Partitions as they stand in the tables of full members.
fn pkeys() -> impl Iterator<Item = u16> {
    (1..16).map(|p| p | 0x8000).chain([0xffff])
}

/// Ports of a host, in the order of its interfaces.
fn ports(lab: &Lab<'_>, host: &str) -> Vec<PortLine> {
    let mut ports: Vec<PortLine> = lab.ports().unwrap().into_iter().filter(|p| p.host == host).collect();
    ports.sort_by_key(|p| (p.device.clone(), p.port));
    ports
}

/// A service with a name for each port and each of these partitions.
fn named(lab: &Lab<'_>, host: &str, pkeys: &[u16], options: &str) -> Daemon {
    let mut names = String::new();
    for (i, port) in ports(lab, host).iter().enumerate() {
        for pkey in pkeys {
            let _ = writeln!(names, "{host}-{i}-{pkey:04x} {} {} {pkey:#06x}", port.device, port.port);
        }
    }
    let daemon = lab.start_named(Program::Ours, host, options, &names);
    let wanted = 4 * pkeys.len();
    let all = util::wait_for(util::PATIENCE, || {
        let groups = ports(lab, host).into_iter().flat_map(|p| p.joined);
        (groups.filter(|(g, _)| g[..4] == util::ADDRESS_GROUP).count() >= wanted).then_some(())
    });
    assert!(all.is_some(), "{host} is not in {wanted} groups: {}", daemon.said());
    lab.wait_joined(host);
    daemon
}

/// The name of port `i` in a partition.
fn at(flags: u32, host: &str, i: usize, pkey: u16) -> Entry {
    name(flags, &format!("{host}-{i}-{pkey:04x}"))
}

/// Questions of a host for this destination, as they went over the wire.
fn questions(lab: &Lab<'_>, host: &str, since: u64, dest: &Entry) -> Vec<Sniffed> {
    let (kind, wanted) = rob::wire(dest);
    let asks = |s: &Sniffed| {
        matches!(Datagram::parse(&s.data),
            Ok(Datagram::Request(r)) if r.dest_type == kind && r.dest.eq_ignore_ascii_case(&wanted))
    };
    lab.sniffed(Some(host), since).unwrap().into_iter().filter(asks).collect()
}

#[track_caller]
fn from_port(sent: &[Sniffed], port: &PortLine, pkey: u16) {
    assert!(!sent.is_empty());
    for s in sent {
        assert_eq!((s.slid, s.gids.map(|g| g.0), s.pkey), (port.lid, Some(port.gid), pkey));
    }
}

#[test]
fn a_request_goes_out_of_the_endpoint_that_owns_its_source() {
    let lab = enter(&MANY);
    let all: Vec<u16> = pkeys().collect();
    let _daemons = ["H1", "H2"].map(|host| named(&lab, host, &all, ""));
    let (here, there) = (ports(&lab, "H1"), ports(&lab, "H2"));
    assert_eq!(here.len(), 4);
    let mut client = Client::connect(&lab, "H1");
    for (i, port) in here.iter().enumerate() {
        for &pkey in &all {
            // A port of the other host that is not its counterpart.
            let target = (i + 1) % there.len();
            let begin = lab.sniff_next().unwrap();
            let question = [at(EP_FLAG_SOURCE, "H1", i, pkey), at(EP_FLAG_DEST, "H2", target, pkey)];
            let path = client.resolve(&question).path();
            assert_eq!((path.sgid(), path.slid(), path.pkey()), (Gid(port.gid), port.lid, pkey));
            assert_eq!((path.dgid(), path.dlid()), (Gid(there[target].gid), there[target].lid));
            let sent = questions(&lab, "H1", begin, &question[1]);
            from_port(&sent, port, pkey);
            let group = sent[0].gids.expect("a multicast has them").1;
            assert_eq!(group[4..6], pkey.to_be_bytes(), "the partition's own group");
            let answers = lab.sniffed(Some("H2"), begin).unwrap();
            let answered = answers.iter().find(|s| matches!(Datagram::parse(&s.data), Ok(Datagram::Response(_))));
            from_port(std::slice::from_ref(answered.expect("an answer")), &there[target], pkey);
            // By path: of equal ports the one that is named, in the partition that is named.
            let mut record = PathRecord::default();
            record.set_sgid(Gid(port.gid));
            record.set_dlid(there[target].lid);
            record.set_pkey(pkey);
            let path = client.resolve(&[Entry::path(0, &record)]).path();
            assert_eq!((path.sgid(), path.slid(), path.pkey()), (Gid(port.gid), port.lid, pkey));
        }
        // Addresses of interfaces.
        for (k, target) in there.iter().enumerate() {
            let begin = lab.sniff_next().unwrap();
            let question = between(&format!("10.{}.0.1", 77 + i), &format!("10.{}.0.2", 77 + k));
            let path = client.resolve(&question).path();
            assert_eq!((path.sgid(), path.dgid(), path.pkey()), (Gid(port.gid), Gid(target.gid), 0xffff));
            from_port(&questions(&lab, "H1", begin, &question[1]), port, 0xffff);
        }
        let reply = client.resolve(&[ip(EP_FLAG_DEST, &format!("10.{}.0.2", 77 + i))]);
        assert_eq!(reply.path().sgid(), Gid(port.gid), "the kernel's choice");
        assert_eq!(reply.entries()[1], ip(EP_FLAG_SOURCE, &format!("10.{}.0.1", 77 + i)));
    }
    // 64 endpoints, each with its number.
    let mut seen = std::collections::BTreeSet::new();
    for number in 1..=64 {
        let reply = client.endpoint(number, 0);
        assert_eq!(reply.header.status, 0, "endpoint {number}");
        assert!(seen.insert(reply.bytes), "endpoint {number} is another one too");
    }
    assert_eq!(client.endpoint(65, 0).header.status, code(Status::Einval));
}

#[test]
fn limited_and_full_members_of_one_partition() {
    let lab = enter(&MANY);
    for (host, table) in [("H1", "0xffff,0x0005,0x8005,0x8006,0x0007"), ("H2", "0xffff,0x0005,0x0006,0x0007,0x8007")] {
        for port in ports(&lab, host) {
            let table = if host == "H2" && port.port == 2 { "0xffff,0x0005,0x0006,0x0007" } else { table };
            lab.inject(&format!("port {host} dev={} port={} pkeys={table}", port.device, port.port)).unwrap();
        }
    }
    let used = [0x8005, 0x0006, 0x0007];
    let _daemons = ["H1", "H2"].map(|host| named(&lab, host, &used, "timeout 1000\nretries 0\n"));
    let (here, there) = (ports(&lab, "H1"), ports(&lab, "H2"));
    let mut client = Client::connect(&lab, "H1");
    // With both in the table the port is a full member, whatever comes first and whatever the address file says.
    for (pkey, target, wire) in [(0x8005, 0, 0x8005), (0x0006, 1, 0x8006), (0x0007, 0, 0x0007)] {
        let begin = lab.sniff_next().unwrap();
        let question = [at(EP_FLAG_SOURCE, "H1", 0, pkey), at(EP_FLAG_DEST, "H2", target, pkey)];
        let path = client.resolve(&question).path();
        assert_eq!((path.dgid(), path.pkey() & 0x7fff), (Gid(there[target].gid), wire & 0x7fff));
        let sent = questions(&lab, "H1", begin, &question[1]);
        from_port(&sent, &here[0], wire);
        assert_eq!(sent[0].gids.expect("a GRH").1[4..6], (wire | 0x8000).to_be_bytes(), "as full members name it");
    }
    // Two limited members do not hear each other.
    let question = [at(EP_FLAG_SOURCE, "H1", 0, 0x0007), at(EP_FLAG_DEST, "H2", 1, 0x0007)];
    assert_eq!(status(&mut client, &question), code(Status::Etimedout));
}

#[test]
fn ports_that_are_limited_members_of_the_default_partition_alone() {
    let lab = enter(&MANY);
    for port in ports(&lab, "H1") {
        lab.inject(&format!("port H1 dev={} port={} pkeys=0x7fff", port.device, port.port)).unwrap();
    }
    let options = "timeout 1000\nretries 0\n";
    let _full = lab.ours("H2", options);
    let limited = lab.ours("H1", options);
    let (here, there) = (ports(&lab, "H1"), ports(&lab, "H2"));
    let mut client = Client::connect(&lab, "H1");
    let begin = lab.sniff_next().unwrap();
    for (i, target) in there.iter().enumerate() {
        let question = between(&format!("10.{}.0.1", 77 + i), &format!("10.{}.0.2", 77 + i));
        assert_eq!(client.resolve(&question).path().dgid(), Gid(target.gid));
        from_port(&questions(&lab, "H1", begin, &question[1]), &here[i], 0x7fff);
    }
    let back = Client::connect(&lab, "H2").resolve(&between("10.77.0.2", "10.77.0.1")).path();
    assert_eq!(back.dgid(), Gid(here[0].gid));
    assert_eq!(lab.count("drop.mad_pkey", ""), 0, "the SA is asked as the member that the port is");
    assert!(!limited.said().contains("cannot"), "{}", limited.said());
    // Its own addresses need nobody; another port of its own is as limited.
    assert_eq!(client.resolve(&between("10.77.0.1", "10.77.0.1")).path().dgid(), Gid(here[0].gid));
    assert_eq!(status(&mut client, &between("10.77.0.1", "10.78.0.1")), code(Status::Etimedout));
}

/// One subnet manager serves both here, and their groups are the same; GIDs, routes and interfaces are those of two.
#[test]
fn two_subnets_with_prefixes_of_their_own() {
    let lab = enter(&MANY);
    for host in ["H1", "H2"] {
        for port in ports(&lab, host).iter().filter(|p| p.device == "mlx5_1") {
            let mut gid = port.gid;
            gid[..8].copy_from_slice(&[0xfe, 0xc0, 0, 0, 0, 0, 0, 7]);
            let line = format!("port {host} dev={} port={} gid={}", port.device, port.port, rob::hex(&gid));
            lab.inject(&line).unwrap();
            // Its interface follows a moment later: the first device has two.
            let interface = format!("/sys/class/net/ib{}/address", port.port + 1);
            let digits =
                rob::hex(&gid[..8]).as_bytes().chunks(2).map(String::from_utf8_lossy).collect::<Vec<_>>().join(":");
            let follows = util::wait_for(util::PATIENCE, || {
                util::succeed(lab.exec(host, "cat").arg(&interface)).contains(&digits).then_some(())
            });
            assert!(follows.is_some(), "{host} {interface}");
        }
    }
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, "timeout 1000\nretries 1\n"));
    let (here, there) = (ports(&lab, "H1"), ports(&lab, "H2"));
    assert_eq!(here[2].gid[..8], [0xfe, 0xc0, 0, 0, 0, 0, 0, 7]);
    let mut client = Client::connect(&lab, "H1");
    for (i, target) in there.iter().enumerate() {
        // Whoever asks for a GID without saying from where, asks from the subnet that it is in.
        let path = client.resolve(&[to_gid(0, target.gid)]).path();
        assert_eq!((path.dgid(), path.sgid().subnet_prefix()), (Gid(target.gid), Gid(target.gid).subnet_prefix()));
        let source = here.iter().find(|p| p.gid == path.sgid().0).expect("a port of its own");
        assert_eq!(source.lid, path.slid());
        let begin = lab.sniff_next().unwrap();
        let dest = ip(EP_FLAG_DEST, &format!("10.{}.0.2", 77 + i));
        let reply = client.resolve(&[dest]);
        assert_eq!((reply.path().sgid(), reply.path().dgid()), (Gid(here[i].gid), Gid(target.gid)));
        from_port(&questions(&lab, "H1", begin, &dest), &here[i], 0xffff);
    }
    let mut elsewhere = there[2].gid;
    elsewhere[7] = 8;
    assert_eq!(status(&mut client, &[to_gid(0, elsewhere)]), code(Status::Esrcaddr), "a subnet that it is not in");
}

#[test]
fn each_of_a_port_s_lids_is_the_port() {
    let lab = enter(&WIDE);
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, ""));
    let (here, there) = (ports(&lab, "H1"), ports(&lab, "H2"));
    let mut client = Client::connect(&lab, "H1");
    for (port, target) in here.iter().zip(&there) {
        assert_eq!((port.lid % 4, target.lid % 4), (0, 0), "four LIDs each");
        for bits in 0..4 {
            let mut question = to_lid(0, target.lid + bits);
            let mut record = PathRecord(question.info);
            record.set_slid(port.lid + bits);
            question.info = record.0;
            let path = client.resolve(&[question]).path();
            assert_eq!((path.slid(), path.dlid()), (port.lid + bits, target.lid + bits));
            assert_eq!((path.sgid(), path.dgid()), (Gid(port.gid), Gid(target.gid)));
            // As a source it selects the port.
            let source = Entry::address(EP_FLAG_SOURCE, TYPE_LID, &(port.lid + bits).to_be_bytes());
            let path = client.resolve(&[source, ip(EP_FLAG_DEST, "10.77.0.2")]).path();
            assert_eq!((path.sgid(), path.dgid()), (Gid(port.gid), Gid(there[0].gid)));
        }
    }
}
