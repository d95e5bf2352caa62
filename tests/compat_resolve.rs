//! What a client of our service is told: through the distribution's `ib_acme` and byte by byte.

mod util;

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN, PATH_FLAGS, Status, TYPE_IP, TYPE_IP6,
    TYPE_NAME, TYPE_PATH,
};
use ibacm_wire::{Gid, PathRecord, path};
use util::client::{between, ip, name, to_gid, to_lid};
use util::family::{IPV6, here};
use util::{Client, Daemon, Lab, Message, Program, Shared, sa};

static SUBNET: Shared = Shared::new(|o| o.hosts = 4);

fn ours_everywhere(lab: &Lab<'_>, options: &str) -> [Daemon; 4] {
    ["H1", "H2", "H3", "H4"].map(|host| lab.ours(host, options))
}

/// A line of `ib_acme`'s output for each field of a path.
fn printed(p: &PathRecord) -> String {
    let gid = |g: Gid| Ipv6Addr::from(g.0);
    let lines = [
        format!("dgid: {}", gid(p.dgid())),
        format!("sgid: {}", gid(p.sgid())),
        format!("dlid: {}", p.dlid()),
        format!("slid: {}", p.slid()),
        format!("flow label: {:#x}", p.flow_hop() >> 8),
        format!("hop limit: {}", p.flow_hop() & 0xff),
        format!("tclass: {}", p.tclass()),
        format!("reversible: {}", p.reversible_numpath() >> 7),
        format!("pkey: {:#x}", p.pkey()),
        format!("sl: {}", p.sl()),
        format!("mtu: {}", p.mtu() & 0x1f),
        format!("rate: {}", p.rate() & 0x1f),
        format!("packet lifetime: {}", p.packet_lifetime() & 0x1f),
    ];
    lines.map(|l| format!("  {l}\n")).concat()
}

#[test]
fn ib_acme_prints_the_path_of_the_sa() {
    let lab = SUBNET.enter();
    let _daemons = ours_everywhere(&lab, "");
    let [one, three] = lab.hosts(["H1", "H3"]);
    let wanted = printed(&sa::path(&lab, one.lid, three.lid));
    let (slid, dlid) = (one.lid.to_string(), three.lid.to_string());
    let [sgid, dgid] = [one.gid, three.gid].map(|g| Ipv6Addr::from(g).to_string());
    for arguments in [
        &["-f", "i", "-d", "10.77.0.3"][..],
        &["-f", "i", "-d", "fd77::3"],
        &["-f", "i", "-s", "10.77.0.1", "-d", "10.77.0.3"],
        &["-f", "i", "-s", "fd77::1", "-d", "fd77::3"],
        &["-d", "10.77.0.3"],
        &["-f", "n", "-s", "h1", "-d", "h3"],
        &["-f", "n", "-s", "H1-1", "-d", "H3-1"],
        &["-f", "n", "-d", "h3"],
        &["-f", "l", "-d", &dlid],
        &["-f", "l", "-s", &slid, "-d", &dlid],
        &["-f", "g", "-d", &dgid],
        &["-f", "g", "-s", &sgid, "-d", &dgid],
    ] {
        let said = lab.acme("H1", &[arguments, &["-v"]].concat());
        assert!(said.contains(&wanted), "{arguments:?}: {said}instead of\n{wanted}");
        assert!(said.contains("SA verification: success"), "{arguments:?}: {said}");
    }
    // The source that the service has chosen is told.
    for (format, destination, source) in
        [("i", "10.77.0.3", "10.77.0.1"), ("i", "fd77::3", "fd77::1"), ("n", "h3", "h1")]
    {
        let said = lab.acme("H1", &["-f", format, "-d", destination]);
        assert!(said.contains(&format!("Source: {}\n", here(source))), "{said}");
    }
}

/// Checks everything of a successful reply but its path: `source` is the entry that it has to repeat.
fn check_reply(reply: &Message, source: Option<Entry>) -> PathRecord {
    let h = &reply.header;
    assert_eq!((h.version, h.opcode, h.status, h.data), (1, 0x81, 0, [0; 3]));
    let entries = reply.entries();
    assert_eq!(reply.bytes.len(), HDR_LEN + 72 * (1 + usize::from(source.is_some())));
    assert_eq!((entries[0].flags, entries[0].kind), (PATH_FLAGS, TYPE_PATH));
    assert_eq!(entries.get(1).copied(), source);
    PathRecord(entries[0].info)
}

#[test]
fn replies_have_every_field_of_the_sa() {
    let lab = SUBNET.enter();
    let _daemons = ours_everywhere(&lab, "");
    let [one, four] = lab.hosts(["H1", "H4"]);
    let wanted = sa::path(&lab, one.lid, four.lid);
    // Selector bits included.
    assert_eq!((wanted.mtu() >> 6, wanted.rate() >> 6, wanted.packet_lifetime() >> 6), (2, 2, 2));
    let mut client = Client::connect(&lab, "H1");
    // From the fabric first, then from the cache.
    for turn in ["asked", "cached"] {
        for (source, dest) in [("10.77.0.1", "10.77.0.4"), ("fd77::1", "fd77::4")] {
            let reply = client.resolve(&[ip(EP_FLAG_DEST, dest)]);
            assert_eq!(check_reply(&reply, Some(ip(EP_FLAG_SOURCE, source))), wanted, "{turn} {dest}");
            let reply = client.resolve(&between(source, dest));
            assert_eq!(check_reply(&reply, None), wanted, "{turn} {dest}");
            let [source, dest] = between(source, dest);
            assert_eq!(check_reply(&client.resolve(&[dest, source]), None), wanted, "{turn}: the other way round");
        }
        let reply = client.resolve(&[name(EP_FLAG_DEST, "H4")]);
        assert_eq!(check_reply(&reply, Some(name(EP_FLAG_SOURCE, "h1"))), wanted, "{turn}");
        for question in [to_lid(0, four.lid), to_gid(0, four.gid)] {
            assert_eq!(check_reply(&client.resolve(&[question]), None), wanted, "{turn}");
        }
    }
    // The SA's own word repeats the question's flags.
    let reply = client.resolve(&[to_lid(FLAG_QUERY_SA, four.lid)]);
    assert_eq!((reply.header.opcode, reply.header.status, reply.bytes.len()), (0x81, 0, 88));
    let entry = reply.entries()[0];
    assert_eq!((entry.flags, entry.kind), (FLAG_QUERY_SA, TYPE_PATH));
    assert_eq!(PathRecord(entry.info), wanted);
}

#[test]
fn failures_are_a_header_alone() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "timeout 100\nretries 0\n");
    let mut client = Client::connect(&lab, "H1");
    let dest = ip(EP_FLAG_DEST, "10.77.0.99");
    let kind = |kind| Entry::address(EP_FLAG_DEST, kind, &[10, 77, 0, 99]);
    let source = |kind| Entry::address(EP_FLAG_SOURCE, kind, &[10, 77, 0, 1]);
    let cases: &[(&[Entry], Status)] = &[
        (&[], Status::Edesttype),
        (&[ip(EP_FLAG_SOURCE, "10.77.0.1")], Status::Edesttype),
        (&[dest, dest], Status::Edestaddr),
        (&[ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_SOURCE, "10.77.0.1"), dest], Status::Esrcaddr),
        (&[kind(0)], Status::Edesttype),
        (&[kind(6)], Status::Edesttype),
        (&[source(0), dest], Status::Esrctype),
        (&[source(6), dest], Status::Esrctype),
        (&[ip(EP_FLAG_SOURCE, "10.77.0.2"), dest], Status::Esrcaddr),
        (&[name(EP_FLAG_SOURCE, "nobody"), name(EP_FLAG_DEST, "h1")], Status::Esrcaddr),
        (&[Entry::path(0, &PathRecord::default())], Status::Edestaddr),
        (&[to_lid(FLAG_QUERY_SA, 1), to_lid(0, 1)], Status::Einval),
        (&between("10.77.0.1", "10.77.0.99"), Status::Etimedout),
        (&[ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.99")], Status::Enodata),
    ];
    for (entries, status) in cases {
        let reply = client.resolve(entries);
        assert_eq!(reply.header.status, *status as u8, "{entries:?}");
        assert_eq!((reply.header.version, reply.header.opcode, reply.header.data), (1, 0x81, [0; 3]));
        assert_eq!(reply.bytes.len(), HDR_LEN, "{entries:?}");
    }
}

#[test]
fn own_addresses_need_no_fabric() {
    let lab = SUBNET.enter();
    // What a host sends to a group doesn't always come back to it.
    lab.inject("loopback H1 off").unwrap();
    let _daemon = lab.ours("H1", "");
    let [one] = lab.hosts(["H1"]);
    let begin = lab.sniff_next().unwrap();
    let mut wanted = PathRecord::default();
    wanted.set_dgid(Gid(one.gid));
    wanted.set_sgid(Gid(one.gid));
    wanted.set_dlid(one.lid);
    wanted.set_slid(one.lid);
    wanted.set_reversible_numpath(path::REVERSIBLE);
    wanted.set_pkey(0xffff);
    // 2048 bytes and 10 Gb/s, without selectors.
    wanted.set_mtu(4);
    wanted.set_rate(3);
    let mut client = Client::connect(&lab, "H1");
    for (own, kind) in [("10.77.0.1", TYPE_IP), ("fd77::1", TYPE_IP6)] {
        let reply = client.resolve(&[ip(EP_FLAG_DEST, own)]);
        assert_eq!(check_reply(&reply, Some(ip(EP_FLAG_SOURCE, own))), wanted);
        assert_eq!(reply.entries()[1].kind == kind, !IPV6, "{own}");
        assert_eq!(check_reply(&client.resolve(&between(own, own)), None), wanted);
    }
    let reply = client.resolve(&[name(EP_FLAG_DEST, "H1-1")]);
    assert_eq!(check_reply(&reply, Some(name(EP_FLAG_SOURCE, "h1"))), wanted);
    assert_eq!(reply.entries()[1].kind, TYPE_NAME);
    assert_eq!(lab.sniffed(Some("H1"), begin).unwrap(), []);
    assert_eq!(lab.path_queries("H1"), 0);
    // Such a record is right in the SA's eyes, too, and so is what the SA says itself of such a path.
    let lid = one.lid.to_string();
    for arguments in [["-f", "i", "-d", "10.77.0.1", "-v"], ["-f", "l", "-d", &lid, "-v"]] {
        let said = lab.acme("H1", &arguments);
        assert!(said.contains("SA verification: success"), "{said}");
    }
}

#[test]
fn without_loopback_own_addresses_are_asked_for() {
    let lab = SUBNET.enter();
    lab.inject("loopback H1 off").unwrap();
    let [one] = lab.hosts(["H1"]);
    for route in ["sa", "acm"] {
        let _daemon = lab.ours("H1", &format!("loopback_prot none\nroute_prot {route}\n"));
        let begin = lab.sniff_next().unwrap();
        let path = Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.1")).path();
        assert_eq!((path.dlid(), path.slid(), path.dgid()), (one.lid, one.lid, Gid(one.gid)), "route_prot {route}");
        // The SA or the group says how fast; and nobody needs to be asked for the address.
        assert_eq!((path.mtu() >> 6, path.rate() >> 6), (2, 2), "route_prot {route}");
        assert_eq!(lab.sniffed(Some("H1"), begin).unwrap(), []);
    }
}

#[test]
fn routes_of_the_group_have_its_parameters() {
    let lab = SUBNET.enter();
    let _daemons = ours_everywhere(&lab, "route_prot acm\n");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let mgid = one.joined.iter().find(|(g, _)| g[..4] == util::ADDRESS_GROUP).expect("it is in its group").0;
    let group = sa::group(&lab, &mgid);
    let mut wanted = PathRecord::default();
    wanted.set_dgid(Gid(two.gid));
    wanted.set_sgid(Gid(one.gid));
    wanted.set_dlid(two.lid);
    wanted.set_slid(one.lid);
    wanted.set_tclass(group.tclass);
    wanted.set_reversible_numpath(path::REVERSIBLE | 1);
    wanted.set_pkey(group.pkey);
    wanted.set_qos_sl(u16::from(group.sl));
    wanted.set_mtu(group.mtu);
    wanted.set_rate(group.rate);
    wanted.set_packet_lifetime(group.lifetime);
    let mut client = Client::connect(&lab, "H1");
    for entries in [&between("10.77.0.1", "10.77.0.2"), &between("fd77::1", "fd77::2")] {
        let path = check_reply(&client.resolve(entries), None);
        assert_eq!(path, wanted, "{group:?}");
        assert_eq!((path.mtu(), path.rate()), (0x84, 0x83));
    }
    let path = check_reply(&client.resolve(&[name(EP_FLAG_DEST, "h2")]), Some(name(EP_FLAG_SOURCE, "h1")));
    assert_eq!(path, wanted, "{group:?}");
    // A question by path goes to the SA all the same.
    assert_eq!(client.resolve(&[to_lid(0, two.lid)]).path(), sa::path(&lab, one.lid, two.lid));
}

#[test]
fn before_the_group_is_joined_only_what_needs_it_waits() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let _peer = lab.ours("H2", "route_prot acm\n");
    let slow = Duration::from_secs(3);
    lab.inject(&format!("sa delay ms={} host=H1 attr=0x38", slow.as_millis())).unwrap();
    let started = Instant::now();
    let _daemon = lab.start_configured(Program::Ours, "H1", "route_prot acm\nloopback_prot none\n");
    let mut waiting = ["10.77.0.1", "10.77.0.2"].map(|dest| {
        let mut client = Client::connect(&lab, "H1");
        client.ask(&between("10.77.0.1", dest));
        client
    });
    let mut client = Client::connect(&lab, "H1");
    assert_eq!(client.resolve(&[to_lid(0, two.lid)]).path(), sa::path(&lab, one.lid, two.lid));
    assert_eq!(client.resolve(&[to_gid(FLAG_QUERY_SA, two.gid)]).path().dlid(), two.lid);
    for client in &mut waiting {
        assert!(client.is_silent(Duration::from_millis(20)), "there is no group to ask or to take the path from");
    }
    assert!(started.elapsed() < slow, "{:?}", started.elapsed());
    for (client, target) in waiting.iter_mut().zip([&one, &two]) {
        let path = client.recv().expect("an answer").path();
        assert_eq!((path.dlid(), path.dgid()), (target.lid, Gid(target.gid)));
    }
    assert!(started.elapsed() >= slow, "{:?}", started.elapsed());
}
