//! Requests that ordinary clients don't make, and what they must not do to the service or anybody else.

mod util;

use std::time::{Duration, Instant};

use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA, HDR_LEN, Header, MAX_ENTRIES, OP_PERF_QUERY, Status, TYPE_GID,
    TYPE_LID, TYPE_NAME, VERSION, resolve_request,
};
use ibacm_wire::{Gid, PathRecord};
use util::client::{between, ip, name, to_gid, to_lid};
use util::{Client, Shared};

/// Two ports on each host, so that there is something to choose from.
static SUBNET: Shared = Shared::new(|o| (o.hosts, o.hca_ports) = (2, 2));

#[test]
fn paths_without_a_source_are_asked_for_from_here() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let ports = lab.ports().unwrap();
    let (here, there): (Vec<_>, Vec<_>) = ports.iter().partition(|p| p.host == "H1");
    let mut client = Client::connect(&lab, "H1");
    for target in there {
        for flags in [0, FLAG_QUERY_SA] {
            for question in [to_lid(flags, target.lid), to_gid(flags, target.gid)] {
                let path = client.resolve(&[question]).path();
                assert_eq!((path.dlid(), path.dgid()), (target.lid, Gid(target.gid)));
                let source = here.iter().find(|p| p.lid == path.slid()).expect("a path from one of its own ports");
                assert_eq!(path.sgid(), Gid(source.gid));
            }
        }
    }
    // From each of its ports, by either name of it.
    for source in here {
        let mut record = PathRecord::default();
        record.set_dlid(ports.iter().find(|p| p.host == "H2").expect("it is there").lid);
        let mut by_lid = record;
        by_lid.set_slid(source.lid);
        record.set_sgid(Gid(source.gid));
        for question in [record, by_lid] {
            let path = client.resolve(&[Entry::path(0, &question)]).path();
            assert_eq!((path.slid(), path.sgid()), (source.lid, Gid(source.gid)));
        }
    }
    // From a port of somebody else there is none.
    let mut foreign = PathRecord::default();
    foreign.set_dlid(here_lid(&lab));
    foreign.set_slid(0x7777);
    for flags in [0, FLAG_QUERY_SA] {
        let reply = client.resolve(&[Entry::path(flags, &foreign)]);
        assert_eq!(reply.header.status, Status::Esrcaddr as u8);
    }
}

fn here_lid(lab: &util::Lab<'_>) -> u16 {
    lab.port("H1").unwrap().lid
}

#[test]
fn a_full_request_has_no_room_for_a_source() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let mut client = Client::connect(&lab, "H1");
    let nothing = Entry::address(0, TYPE_NAME, b"");
    let mut full = [nothing; MAX_ENTRIES];
    full[7] = ip(EP_FLAG_DEST, "10.77.0.1");
    let reply = client.resolve(&full);
    assert_eq!((reply.header.status, reply.bytes.len()), (Status::Einval as u8, HDR_LEN));
    // One that names its source needs none, and one with room gets it.
    full[0] = ip(EP_FLAG_SOURCE, "10.77.0.1");
    assert_eq!(client.resolve(&full).entries().len(), 1);
    let reply = client.resolve(&full[1..]);
    assert_eq!((reply.header.status, reply.entries().len()), (0, 2));
    // A ninth entry is not a request any more.
    let (mut bytes, length) = resolve_request(1, &full);
    assert_eq!(length, 592);
    bytes[6..8].copy_from_slice(&664_u16.to_ne_bytes());
    client.send(&bytes);
    assert_eq!(client.recv(), None, "the connection ends");
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.1")).path();
}

#[test]
fn routing_errors_are_statuses_of_the_protocol() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "timeout 100\nretries 0\n");
    let mut client = Client::connect(&lab, "H1");
    for (what, address, status) in [
        ("unroutable", "192.0.2.1", Status::Edestaddr),
        ("unroutable", "2001:db8::1", Status::Edestaddr),
        ("broadcast", "10.77.255.255", Status::Edestaddr),
        ("limited broadcast", "255.255.255.255", Status::Edestaddr),
        ("without its scope", "fe80::1", Status::Edestaddr),
        ("this host, but no address of the fabric", "127.0.0.1", Status::Esrcaddr),
    ] {
        let begin = Instant::now();
        let reply = client.resolve(&[ip(EP_FLAG_DEST, address)]);
        assert_eq!((reply.header.status, reply.bytes.len()), (status as u8, HDR_LEN), "{address}, {what}");
        // Who asks a peer that is not there waits for it for longer.
        assert!(begin.elapsed() < Duration::from_secs(1), "{address}, {what}: {:?}", begin.elapsed());
    }
    for odd in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "240.0.0.1", "::ffff:10.77.0.2"] {
        let status = client.resolve(&[ip(EP_FLAG_DEST, odd)]).header.status;
        assert!((1..=10).contains(&status), "{odd}: {status}");
    }
    client.resolve(&[ip(EP_FLAG_DEST, "10.77.0.1")]).path();
}

#[test]
fn lids_and_gids_are_no_addresses_to_ask_peers_for() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let mut client = Client::connect(&lab, "H1");
    let begin = (lab.sniff_next().unwrap(), Instant::now());
    let sources = [
        Some(ip(EP_FLAG_SOURCE, "10.77.0.1")),
        Some(name(EP_FLAG_SOURCE, "h1")),
        Some(Entry::address(EP_FLAG_SOURCE, TYPE_LID, &one.lid.to_be_bytes())),
        Some(Entry::address(EP_FLAG_SOURCE, TYPE_GID, &one.gid)),
        None,
    ];
    let destinations = [
        Entry::address(EP_FLAG_DEST, TYPE_LID, &two.lid.to_be_bytes()),
        Entry::address(EP_FLAG_DEST, TYPE_GID, &two.gid),
    ];
    for source in sources {
        for destination in destinations {
            let question: Vec<Entry> = source.into_iter().chain([destination]).collect();
            assert_eq!(client.resolve(&question).header.status, Status::Edesttype as u8, "{question:?}");
        }
    }
    assert!(begin.1.elapsed() < Duration::from_secs(5), "{:?}", begin.1.elapsed());
    assert_eq!(lab.sniffed(None, begin.0).unwrap(), []);
    // As sources they select the endpoint.
    for source in &sources[2..4] {
        let source = source.expect("the list has it there");
        client.resolve(&[source, ip(EP_FLAG_DEST, "10.77.0.1")]).path();
    }
    let stranger = Entry::address(EP_FLAG_SOURCE, TYPE_LID, &two.lid.to_be_bytes());
    let reply = client.resolve(&[stranger, ip(EP_FLAG_DEST, "10.77.0.1")]);
    assert_eq!(reply.header.status, Status::Esrcaddr as u8);
}

#[test]
fn names_may_fill_their_field() {
    let lab = SUBNET.enter();
    let daemon = lab.ours("H1", "log_level 2\ntimeout 100\nretries 0\nresolve_depth 8\n");
    let mut client = Client::connect(&lab, "H1");
    let full = "n".repeat(64);
    let reply = client.resolve(&[name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, &full)]);
    assert_eq!(reply.header.status, Status::Etimedout as u8);
    let reply = client.resolve(&[name(EP_FLAG_SOURCE, &full), name(EP_FLAG_DEST, "h1")]);
    assert_eq!(reply.header.status, Status::Esrcaddr as u8);
    assert_eq!(client.performance(0, &[name(EP_FLAG_SOURCE, &full)]).header.status, Status::Esrcaddr as u8);
    // Whatever is in a name, it stays within its line of the log.
    let odd: [&[u8]; 5] = [b"a\nFORGED line", b"\xff\xfe\x1b[31m", b"", b"%s%n%s", &[b'\r'; 64]];
    for odd in odd {
        client.ask(&[name(EP_FLAG_SOURCE, "h1"), Entry::address(EP_FLAG_DEST, TYPE_NAME, odd)]);
    }
    for _ in odd {
        let status = client.recv().expect("an answer").header.status;
        assert!((1..=10).contains(&status), "{status}");
    }
    let said = daemon.said();
    assert!(said.contains(&full), "{said}");
    assert!(!said.contains(&"n".repeat(65)), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("20") && !line.contains(['\x1b', '\r', '\u{fffd}']), "{line:?}");
    }
}

#[test]
fn queries_with_odd_lengths_are_answered_or_end_their_connection() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    // Entries that are cut off, and some that are there but not needed.
    for extra in [1, 71, 73, 144, 575, 576] {
        let mut client = Client::connect(&lab, "H1");
        let length = (HDR_LEN + extra) as u16;
        let header = Header { version: VERSION, opcode: OP_PERF_QUERY, length, ..Header::default() };
        client.send(&[&header.emit()[..], &vec![0; extra]].concat());
        if let Some(reply) = client.recv() {
            assert_eq!(reply.header.opcode, OP_PERF_QUERY | 0x80);
        }
        let mut client = Client::connect(&lab, "H1");
        let header = Header { opcode: 1, ..header };
        client.send(&[&header.emit()[..], &vec![0xff; extra]].concat());
        if let Some(reply) = client.recv() {
            assert_ne!(reply.header.status, 0);
            assert_eq!(reply.header.opcode, 0x81);
        }
    }
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.1")).path();
}
