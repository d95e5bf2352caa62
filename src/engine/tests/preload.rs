//! What the preload files say, against what the fabric says.

use ibacm_wire::client::{EP_FLAG_DEST, Entry, More, Status, TYPE_NAME};
use ibacm_wire::datagram::{Datagram, Groups, Request, group_gid};
use ibacm_wire::{Gid, PathRecord};

use super::sim::{MS, Net, S, Sa, counted, gid, ip, ip_kind, path, status};
use super::{from, octets, to};
use crate::addr::Addr;
use crate::engine::{Config, EpId, LocalName, PkeyChoice, PortInfo, RouteProt, Rx};
use crate::preload::{Preload, Wanted, parse_hosts, parse_routes};
use crate::time::Time;

const EP: EpId = EpId(0);
const MINUTE: u64 = 60 * S;

fn guid(host: usize) -> u64 {
    gid(host).interface_id()
}

/// A dump of `n` hosts with paths from the first, whose LID is `lid`, to all.
fn dump(lid: u16, n: usize) -> String {
    let rows: String =
        (0..n).map(|h| format!("0x{:04X} : {} : 4 : 7\n", if h == 0 { lid } else { 10 + h as u16 }, h)).collect();
    let others = (1..n).map(|h| format!("Channel Adapter 0x{:016x}, base LID {}, \"h\", port 1\n", guid(h), 10 + h));
    let first = format!("Channel Adapter 0x{:016x}, base LID {lid}, \"h\", port 1\n{rows}", guid(0));
    first + &others.collect::<String>()
}

fn preload(dump: &str, hosts: &str) -> Preload {
    let (routes, findings) = parse_routes(dump.as_bytes(), "r", Wanted::Ports(&[guid(0)]));
    assert_eq!(findings, []);
    let (hosts, findings) = parse_hosts(hosts.as_bytes(), "h");
    assert_eq!(findings, []);
    Preload { routes, hosts }
}

/// Hosts, of which the first has these files.
fn net(n: usize, config: &Config, dump: &str, hosts: &str) -> Net {
    let mut net = Net::new(n, config);
    net.hosts[0].engine.set_preload(Time(0), preload(dump, hosts));
    net
}

fn to_lid(lid: u16) -> PathRecord {
    let mut q = PathRecord::default();
    q.set_dlid(lid);
    q
}

fn to_gid(gid: Gid) -> PathRecord {
    let mut q = PathRecord::default();
    q.set_dgid(gid);
    q
}

fn wanted(host: usize) -> PathRecord {
    let mut p = PathRecord::default();
    p.set_dgid(gid(host));
    p.set_sgid(gid(0));
    p.set_dlid(10 + host as u16);
    p.set_slid(10);
    p.set_reversible_numpath(0x80);
    p.set_pkey(0xffff);
    p.set_qos_sl(host as u16);
    p.set_mtu(4);
    p.set_rate(7);
    p.set_packet_lifetime(if host == 0 { 0 } else { 18 });
    p
}

fn ask_path(net: &mut Net, question: &PathRecord, time: u64) -> Option<Vec<u8>> {
    net.ask(0, &[Entry::path(0, question)], time)
}

fn to_name(name: &str) -> Entry {
    Entry::address(EP_FLAG_DEST, TYPE_NAME, name.as_bytes())
}

#[test]
fn plain_questions_are_answered_at_once() {
    let mut net = net(4, &Config::default(), &dump(10, 4), "");
    net.sa = Sa::Silent;
    for host in 0..4 {
        let w = wanted(host);
        let mut with_ends = to_lid(w.dlid());
        with_ends.set_sgid(w.sgid());
        with_ends.set_slid(w.slid());
        with_ends.set_pkey(0x7fff);
        let mut both = to_gid(w.dgid());
        both.set_dlid(w.dlid());
        both.set_reversible_numpath(0x81);
        for q in [to_lid(w.dlid()), to_gid(w.dgid()), with_ends, both] {
            assert_eq!(path(&ask_path(&mut net, &q, 0).expect("at once")), w);
        }
    }
    assert_eq!((net.path_queries.len(), net.multicasts), (0, 0));
    assert_eq!(net.hosts[0].engine.counters()[6], 16, "answers from the cache");
}

#[test]
fn other_questions_are_asked() {
    let mut net = net(4, &Config::default(), &dump(10, 3), "");
    let mut questions = vec![to_lid(13), to_gid(gid(3))];
    let changes: [fn(&mut PathRecord); 6] = [
        |q| q.set_service_id(1),
        |q| q.set_qos_sl(0x10),
        |q| q.set_qos_sl(3),
        |q| q.set_mtu(0x84),
        |q| q.set_tclass(1),
        |q| q.set_dgid(gid(3)),
    ];
    questions.extend(changes.iter().map(|change| {
        let mut q = to_lid(11);
        change(&mut q);
        q
    }));
    for (i, q) in questions.iter().enumerate() {
        assert_eq!(ask_path(&mut net, q, 0), None, "{q:?}");
        net.run(MS);
        assert_eq!(net.path_queries.len(), i + 1, "{q:?}");
    }
    // another subnet's port is not the one with that GUID here
    let mut elsewhere = gid(1);
    elsewhere.0[7] = 1;
    let mut q = to_gid(elsewhere);
    q.set_slid(10);
    ask_path(&mut net, &q, MS).unwrap();
    assert_eq!(net.path_queries.len(), questions.len() + 1);
}

#[test]
fn nothing_is_preloaded_for_ever_but_the_way_to_itself() {
    let hosts = format!("{} {}\n", ip(1), gid(1));
    for (address, route) in [(Some(10), None), (None, Some(10)), (Some(10), Some(20)), (Some(20), Some(10))] {
        let config = Config { addr_timeout: address, route_timeout: route, ..Config::default() };
        let mut net = net(2, &config, &dump(10, 2), &hosts);
        net.run(10 * MINUTE - S);
        for q in [to_lid(11), to_lid(10)] {
            assert!(ask_path(&mut net, &q, 0).is_some());
        }
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()), wanted(1));
        net.run(S);
        assert_eq!(path(&ask_path(&mut net, &to_lid(10), 0).unwrap()), wanted(0));
        assert!(ask_path(&mut net, &to_lid(11), 0).is_none());
        net.run(MS);
        assert_eq!((net.path_queries.len(), net.multicasts), (1, 0));
        // the address counts as long as addresses do
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], MS).unwrap()).mtu(), 0x84);
        assert_eq!(net.multicasts, usize::from(address == Some(10)), "{address:?} {route:?}");
    }
    let config = Config { addr_timeout: None, ..Config::default() };
    let mut net = net(2, &config, &dump(10, 2), &hosts);
    net.run(365 * 24 * 60 * MINUTE);
    assert_eq!(path(&ask_path(&mut net, &to_lid(11), 0).unwrap()), wanted(1));
}

#[test]
fn addresses_with_a_path_are_ready_and_others_ask_for_theirs() {
    let hosts = format!("{2} {0}\nnode-one {0}\nfd77::1 {0}\n{3} {1}\n", gid(1), gid(2), ip(1), ip(2));
    let mut net = net(3, &Config::default(), &dump(10, 2), &hosts);
    let six = Entry::address(EP_FLAG_DEST, 3, &octets("fd77::1".parse().unwrap()));
    for dest in [to(1), to_name("NODE-One"), six] {
        assert_eq!(path(&net.ask(0, &[from(0), dest], 0).expect("at once")), wanted(1));
    }
    // without a source too, again and again
    for _ in 0..2 {
        assert_eq!(path(&net.ask(0, &[to(1)], 0).expect("at once")), wanted(1));
        assert_eq!(path(&net.ask(0, &[to_name("node-one")], 0).expect("at once")), wanted(1));
    }
    assert_eq!(net.path_queries, []);
    net.sa = Sa::Status(0x0700);
    let refused = net.ask(0, &[from(0), to(2)], MS).unwrap();
    assert_ne!(status(&refused), Status::Success as u8);
    net.sa = Sa::Answers;
    for _ in 0..2 {
        assert_eq!(path(&net.ask(0, &[from(0), to(2)], MS).unwrap()).dgid(), gid(2));
    }
    assert_eq!((net.path_queries.len(), net.multicasts), (2, 0));
    for q in &net.path_queries {
        assert_eq!((q.dgid(), q.sgid(), q.dlid(), q.pkey()), (gid(2), gid(0), 0, 0xffff));
    }
}

#[test]
fn without_the_group_s_peer_even_route_prot_acm_asks() {
    let config = Config { route_prot: RouteProt::Acm, ..Config::default() };
    let mut net = net(2, &config, "", &format!("{} {}\n", ip(1), gid(1)));
    let p = path(&net.ask(0, &[from(0), to(1)], MS).unwrap());
    assert_eq!((p.dlid(), p.mtu(), net.path_queries.len(), net.multicasts), (11, 0x84, 1, 0));
}

#[test]
fn own_addresses_come_first() {
    for loopback_local in [true, false] {
        let config = Config { loopback_local, ..Config::default() };
        let hosts = format!("{1} {0}\nnode-0 {0}\n{2} {0}\n", gid(1), ip(0), ip(9));
        let mut net = net(2, &config, &dump(10, 2), &hosts);
        let own = |net: &mut Net, dest| path(&net.ask(0, &[from(0), dest], MS).unwrap()).dgid();
        for dest in [to(0), to_name("node-0")] {
            assert_eq!(own(&mut net, dest), gid(0), "{loopback_local}");
        }
        // it becomes an own one, and stops being that
        assert_eq!(own(&mut net, to(9)), gid(1));
        net.set_ips(0, &[ip(0), ip(9)]);
        assert_eq!(own(&mut net, to(9)), gid(0), "{loopback_local}");
        net.set_ips(0, &[ip(0)]);
        let after = net.ask(0, &[from(0), to(9)], MS).map(|r| path(&r).dgid());
        assert!(after == Some(gid(1)) || !loopback_local, "{after:?}");
    }
}

#[test]
fn nobody_takes_a_preloaded_address() {
    let config = Config { max_destinations: 2, ..Config::default() };
    let mut net = net(3, &config, &dump(10, 2), &format!("{} {}\n{} {}\n", ip(1), gid(1), ip(7), gid(2)));
    let claim = |net: &mut Net, host: usize, claimed: usize| {
        let (kind, src, dest) = (ip_kind() as u8, to(claimed).info, to(0).info);
        let group = group_gid(0xffff, 3, 4);
        let r = Request { tid: 5, src_type: kind, src, dest_type: kind, dest, groups: Groups::new([group]) };
        let rx = Rx { sgid: gid(host), dgid: group, slid: 10 + host as u16, src_qp: 9, dlid_path_bits: 0 };
        let payload = Datagram::Request(r).emit();
        let now = net.now;
        net.hosts[0].engine.datagram(now, EP, &rx, &payload);
        net.run(MS);
        counted(net, More::ClaimsRefused)
    };
    // before it was ever asked for, and after; with and without a path
    assert_eq!(claim(&mut net, 2, 1), 1);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()), wanted(1));
    assert_eq!(claim(&mut net, 2, 1), 2);
    assert_eq!(claim(&mut net, 1, 7), 3);
    // who has it may ask
    assert_eq!(claim(&mut net, 1, 1), 3);
    for other in 20..40 {
        claim(&mut net, 1, other);
    }
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()), wanted(1));
    // once the files count no longer it is an address like any other
    net.run(1440 * MINUTE);
    assert_eq!(claim(&mut net, 2, 1), 3);
}

#[test]
fn the_lid_chooses_what_counts() {
    let hosts = format!("{} {}\n", ip(1), gid(1));
    let config = Config::default();
    let mut net = net(2, &config, &(dump(10, 2) + &dump(30, 1).replace(" : 0 : 4 : 7", " : 5 : 4 : 3")), &hosts);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()), wanted(1));
    net.change_port(0, |p| p.lid = 77);
    assert!(ask_path(&mut net, &to_lid(11), 0).is_none());
    net.run(MS);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], MS).unwrap()).mtu(), 0x84, "the SA's");
    assert_eq!((net.path_queries.len(), net.multicasts), (2, 0));
    net.change_port(0, |p| p.lid = 30);
    let p = path(&ask_path(&mut net, &to_lid(30), 0).unwrap());
    assert_eq!((p.slid(), p.sl(), p.dgid()), (30, 5, gid(0)));
    net.change_port(0, |p| p.lid = 10);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()), wanted(1));
    net.change_port(0, |p| {
        p.subnet_timeout = 14;
        p.active = false;
    });
    net.run(S);
    net.change_port(0, |p| p.active = true);
    net.run(S);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()).packet_lifetime(), 14);
    assert_eq!(net.path_queries.len(), 2);
    assert!(net.multicasts <= 4, "nothing but that the LID has changed");
}

#[test]
fn a_port_that_comes_up_late_has_its_files() {
    let mut net = Net::new(1, &Config::default());
    let mut late = PortInfo { port: 2, lid: 12, gids: vec![gid(2)], active: false, ..net.hosts[0].port.clone() };
    net.hosts[0].engine.set_port(net.now, late.clone());
    assert_eq!(net.hosts[0].engine.port_guids(), [guid(0), guid(2)]);
    let text = dump(10, 2) + &format!("Switch 0x{:x}, base LID 12\n0x000B : 1 : 4 : 7\n", guid(2));
    let (routes, _) = parse_routes(text.as_bytes(), "r", Wanted::Ports(&[guid(0), guid(2)]));
    net.hosts[0].engine.set_preload(Time(0), Preload { routes, ..Preload::default() });
    net.hosts[0].engine.set_names(vec![LocalName {
        addr: Addr::name(b"late"),
        text: b"late".to_vec(),
        device: "mlx5_0".into(),
        port: 2,
        pkey: PkeyChoice::Default,
    }]);
    // what is preloaded is good for a day from when the port comes up
    net.run(3000 * MINUTE);
    late.active = true;
    net.hosts[0].engine.set_port(net.now, late.clone());
    net.run(1440 * MINUTE - S);
    let mut q = to_lid(11);
    q.set_sgid(gid(2));
    let p = path(&ask_path(&mut net, &q, 0).expect("at once"));
    assert_eq!((p.sgid(), p.slid(), p.dgid(), p.sl()), (gid(2), 12, gid(1), 1));
    net.run(S);
    assert!(ask_path(&mut net, &q, 0).is_none());
}

#[test]
fn files_can_be_replaced() {
    let mut net = net(4, &Config::default(), &dump(10, 3), &format!("a {0}\nb {0}\n", gid(1)));
    assert_eq!(path(&net.ask(0, &[from(0), to_name("a")], 0).unwrap()), wanted(1));
    assert_eq!(path(&net.ask(0, &[from(0), to_name("b")], 0).unwrap()), wanted(1));
    for learned in [1, 3] {
        net.ask(0, &[from(0), to(learned)], MS).expect("it is there");
    }
    net.run(1440 * MINUTE - 10 * S);
    let (now, asked) = (net.now, net.multicasts);
    net.hosts[0].engine.set_preload(now, preload(&dump(10, 3), &format!("a {0}\n{1} {0}\n", gid(2), ip(1))));
    // their time begins anew
    net.run(MINUTE);
    for dest in [to(1), to_name("a")] {
        assert_eq!(path(&net.ask(0, &[from(0), dest], 0).expect("at once")), wanted(2));
    }
    assert_eq!(net.multicasts, asked);
    assert!(net.ask(0, &[from(0), to_name("b")], MS).is_none(), "it is asked for over multicast");
    assert_eq!(net.multicasts, asked + 1);
}
