//! Floods of requests with made-up senders: what they cost, and that clients do not pay for it.

use std::time::{Duration, Instant};

use super::sim::{MS, Net, S, US, counted, gid, ip, ip_kind, nobody, octets, path, status, to_ip};
use super::{from, to};
use crate::engine::{Config, EpId, PortInfo, Rx};
use ibacm_wire::client::{Entry, FLAG_NODELAY, More, Status};
use ibacm_wire::datagram::{Datagram, Groups, Request, group_gid};
use ibacm_wire::{Gid, PathRecord};
use std::net::IpAddr;

const EP: EpId = EpId(0);

/// A request for `wanted` that claims to be from `source`, as host 2 might send it.
fn request(net: &mut Net, source: IpAddr, wanted: IpAddr) {
    send(net, EP, 2, source, wanted);
}

fn send(net: &mut Net, ep: EpId, sender: usize, source: IpAddr, wanted: IpAddr) {
    let wire = |ip| {
        let (mut bytes, octets) = ([0; 64], octets(ip));
        bytes[..octets.len()].copy_from_slice(&octets);
        bytes
    };
    let group = group_gid(0xffff, 3, 4);
    let (kind, groups) = (ip_kind() as u8, Groups::new([group]));
    let request = Request { tid: 1, dest_type: kind, dest: wire(wanted), src_type: kind, src: wire(source), groups };
    let rx = Rx { sgid: gid(sender), dgid: group, slid: 10 + sender as u16, src_qp: 0x666, dlid_path_bits: 0 };
    net.hosts[0].engine.datagram(net.now, ep, &rx, &Datagram::Request(request).emit());
}

fn to_gid(gid: Gid) -> [Entry; 1] {
    let mut question = PathRecord::default();
    question.set_dgid(gid);
    [Entry::path(0, &question)]
}

#[test]
fn questions_for_made_up_peers_come_after_those_of_clients() {
    let mut net = Net::new(4, &Config::default());
    net.sa_latency = MS;
    net.path_queries.clear();
    let begun = net.now;
    for number in 0..20_000 {
        request(&mut net, nobody(number), ip(0));
        net.run(100 * US);
        if number == 10_000 {
            let asked = net.now;
            let id = net.start(0, &to_gid(gid(3)));
            while !net.hosts[0].replies.contains_key(&id) {
                net.run(100 * US);
                assert!(net.now.0 < asked.0 + 3 * MS, "a client waits for one other question");
            }
            assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(3));
        }
    }
    // one at a time, and the client's
    assert!(net.path_queries.len() as u64 <= (net.now.0 - begun.0) / MS + 3, "{}", net.path_queries.len());
    let responses = net.sent.iter().filter(|s| s.0 == 0).count();
    assert!(responses >= 19_000, "{responses} of 20,000 have a response");
    net.run(S);
    assert!(net.hosts[0].engine.eps[0].pending.is_empty());
}

#[test]
fn a_client_that_wants_what_a_peer_waits_for_has_a_client_s_turn() {
    let mut net = Net::new(4, &Config::default());
    net.sa_latency = 10 * MS;
    for number in 0..200 {
        request(&mut net, nobody(number), ip(0));
    }
    send(&mut net, EP, 3, ip(3), ip(0));
    let reply = net.ask(0, &[from(0), to(3)], 25 * MS).expect("after the one question that is on its way");
    assert_eq!(path(&reply).dgid(), gid(3));
}

#[test]
fn a_flood_of_claims_asks_the_group_once_a_second() {
    let mut net = Net::new(3, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let (multicasts, queries) = (net.multicasts, net.path_queries.len());
    for _ in 0..5000 {
        request(&mut net, ip(1), ip(0));
        net.run(MS);
    }
    assert!((1..=6).contains(&(net.multicasts - multicasts)), "{} multicasts in 5 s", net.multicasts - multicasts);
    assert!(net.path_queries.len() - queries <= 6);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn made_up_peers_that_were_asked_about_push_nobody_out() {
    let mut net = Net::new(3, &Config { max_destinations: 100, ..Config::default() });
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let multicasts = net.multicasts;
    for number in 0..1000 {
        request(&mut net, nobody(number), ip(0));
        net.run(200 * US);
    }
    net.run(S);
    net.ask(0, &[from(0), to(1)], 0).expect("what a client uses stays");
    assert_eq!(net.multicasts, multicasts);
}

#[test]
fn look_ups_that_nobody_waits_for_push_nobody_out() {
    let mut net = Net::new(3, &Config { max_destinations: 100, ..Config::default() });
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    for number in 0..1000 {
        let mut made_up = to_ip(nobody(number));
        made_up.flags |= FLAG_NODELAY;
        assert_eq!(status(&net.ask(0, &[from(0), made_up], 0).unwrap()), Status::Enodata as u8, "{number}");
    }
    net.ask(0, &[from(0), to(1)], 0).expect("what is in use stays");
    assert_eq!(path(&net.ask(0, &[from(0), to(2)], 2 * S).expect("there is room for more")).dgid(), gid(2));
}

#[test]
fn a_lid_is_one_of_its_port_s_subnet() {
    let mut net = Net::new(3, &Config::default());
    // a second port, on a subnet of its own
    let mut prefixed = gid(60);
    prefixed.0[1] = 0xc0;
    let second = PortInfo { port: 2, guid: 0x2000, lid: 70, gids: vec![prefixed], ..net.hosts[0].port.clone() };
    net.hosts[0].engine.set_port(net.now, second);
    net.hosts[0].engine.set_names(vec![crate::engine::LocalName {
        addr: crate::addr::Addr::name(b"second"),
        text: b"second".to_vec(),
        device: "MLX5_0".into(),
        port: 2,
        pkey: crate::engine::PkeyChoice::Default,
    }]);
    net.run(20 * MS);
    let other = (0..net.hosts[0].engine.eps.len())
        .find(|i| net.hosts[0].engine.eps[*i].port.0 == 1 && net.hosts[0].engine.eps[*i].up);
    let other = EpId(other.expect("an endpoint of the second port") as u32);
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    // somebody on the other subnet says that it has the LID of host 1
    let announce = |net: &mut Net, ep| {
        let group = group_gid(0xffff, 3, 4);
        let (kind, addr) = (ip_kind() as u8, [7; 64]);
        let groups = Groups::new([group]);
        let said = Request { tid: 1, dest_type: kind, dest: addr, src_type: kind, src: addr, groups };
        let rx = Rx { sgid: gid(77), dgid: group, slid: 11, src_qp: 0x666, dlid_path_bits: 0 };
        net.hosts[0].engine.datagram(net.now, ep, &rx, &Datagram::Request(said).emit());
        net.run(200 * MS);
    };
    announce(&mut net, other);
    assert!(net.ask(0, &[from(0), to(1)], 0).is_some(), "nothing is in doubt");
    announce(&mut net, EP);
    assert!(net.ask(0, &[from(0), to(1)], 0).is_none(), "the same on its own subnet");
}

#[test]
fn many_that_move_are_looked_up_and_not_searched_for() {
    let mut net = Net::new(2, &Config::default());
    for number in 0..20_000u64 {
        let mut question = PathRecord::default();
        question.set_dgid(gid(1));
        question.set_service_id(number + 1);
        net.start(0, &[Entry::path(0, &question)]);
        if number % 64 == 0 {
            net.run(20 * MS);
        }
    }
    net.run(S);
    let mut walk = |moved: usize| {
        // the quickest of a few, whatever else the machine does
        let times = (0..10).map(|_| {
            let engine = &mut net.hosts[0].engine;
            for number in 0..moved {
                engine.peer_moved(EP, gid(1000 + number), 1000 + number as u16);
            }
            net.now = net.now.plus(Duration::from_secs(1));
            let begun = Instant::now();
            engine.moved_due(net.now);
            begun.elapsed()
        });
        times.min().unwrap_or_default()
    };
    let (few, many) = (walk(1), walk(1000));
    assert!(many < 20 * few + Duration::from_millis(5), "{few:?} for one, {many:?} for many");
    net.ask(0, &to_gid(gid(1)), 5 * MS).unwrap();
}

#[test]
fn ten_thousand_made_up_peers_cost_the_sa_little_and_clients_nothing() {
    const KNOWN: u16 = 500;
    let config = Config { max_destinations: 1000, sa_depth: 32, send_depth: 64, ..Config::default() };
    let mut net = Net::new(3, &config);
    let mut ips: Vec<_> = (20_000..20_000 + KNOWN).map(nobody).collect();
    ips.push(ip(1));
    net.set_ips(1, &ips);
    for number in 20_000..20_000 + KNOWN {
        net.ask(0, &[from(0), super::sim::to_ip(nobody(number))], 2 * MS).expect("an answer");
    }
    let (begun, queries) = (net.now, net.path_queries.len());
    let mut unknown = 0;
    for number in 0..10_000 {
        // other addresses, other GIDs and LIDs
        send(&mut net, EP, 100 + usize::from(number), nobody(number), ip(0));
        net.run(200 * US);
        if number % 1000 == 500 {
            unknown += 1;
            let mut question = PathRecord::default();
            question.set_dgid(gid(2));
            question.set_service_id(unknown);
            net.ask(0, &[Entry::path(0, &question)], MS).expect("a client's question is asked at once");
        }
    }
    net.run(S);
    let seconds = (net.now.0 - begun.0) as f64 / S as f64;
    let asked = (net.path_queries.len() - queries) as f64 - unknown as f64;
    assert!(asked <= 1024.0 + 100.0 * seconds + 1.0, "{asked} questions in {seconds} s");
    assert!(counted(&net, More::PeersLimited) as f64 >= 10_000.0 - 1025.0 - 100.0 * seconds);
    assert!(net.hosts[0].engine.eps[0].cache.len() <= 1010);
    for number in 20_000..20_000 + KNOWN {
        net.ask(0, &[from(0), super::sim::to_ip(nobody(number))], 0).expect("what a client uses stays");
    }
    assert!(net.hosts[0].engine.eps[0].pending.is_empty());
}

#[test]
fn a_peer_without_a_question_left_has_its_response_and_its_turn_later() {
    let mut net = Net::new(4, &Config { sa_depth: 32, send_depth: 64, ..Config::default() });
    // not when the next one may be asked
    for number in 0..2950 {
        request(&mut net, nobody(number), ip(0));
        net.run(100 * US);
    }
    let (sent, queries) = (net.sent.len(), net.path_queries.len());
    send(&mut net, EP, 3, ip(3), ip(0));
    net.run(100 * US);
    assert_eq!((net.sent.len() - sent, net.path_queries.len() - queries), (1, 0));
    net.run(S);
    send(&mut net, EP, 3, ip(3), ip(0));
    net.run(MS);
    assert_eq!((net.sent.len() - sent, net.path_queries.len() - queries), (2, 1));
}

#[test]
fn datagrams_that_mean_nothing_are_dropped_and_counted() {
    let mut net = Net::new(3, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let (response, sent) =
        (net.sent.iter().rev().find(|s| s.0 == 1).expect("host 1 responded").1.clone(), net.sent.len());
    let rx = |host: usize, dgid| Rx { sgid: gid(host), dgid, slid: 10 + host as u16, src_qp: 0x666, dlid_path_bits: 0 };
    let group = group_gid(0xffff, 3, 4);
    let kind = ip_kind() as u8;
    let wanted = |ip| {
        let mut bytes = [0; 64];
        let octets = octets(ip);
        bytes[..octets.len()].copy_from_slice(&octets);
        bytes
    };
    let ask = Request {
        tid: 9,
        dest_type: kind,
        dest: wanted(ip(0)),
        src_type: kind,
        src: wanted(nobody(1)),
        groups: Groups::new([group]),
    };
    let good = Datagram::Request(ask).emit();
    let mut many = good;
    many[20] = 255;
    let mut foreign = response.clone();
    foreign[8..16].copy_from_slice(&77_u64.to_be_bytes());
    let cases: [(&str, Rx, Vec<u8>); 6] = [
        ("more groups than fit", rx(2, group), many.to_vec()),
        ("an answer once more", rx(1, gid(0)), response.clone()),
        ("an answer from somebody else", rx(2, gid(0)), response),
        ("an answer to what was never asked", rx(1, gid(0)), foreign),
        ("half a datagram", rx(2, group), good[..100].to_vec()),
        ("from a group", Rx { sgid: group, ..rx(2, group) }, good.to_vec()),
    ];
    for (number, (what, rx, payload)) in cases.into_iter().enumerate() {
        for time in 1..=2 {
            net.hosts[0].engine.datagram(net.now, EP, &rx, &payload);
            let dropped = [More::DatagramsMalformed, More::DatagramsUnasked].map(|c| counted(&net, c));
            assert_eq!(dropped[0] + dropped[1], 2 * number as u64 + time, "{what}");
        }
        net.run(MS);
    }
    assert_eq!(net.sent.len(), sent);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()).dgid(), gid(1));
}
