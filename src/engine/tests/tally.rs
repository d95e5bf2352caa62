//! What is dropped, refused or forgotten is counted, once, and where it happened.

use super::sim::{MS, Net, S, Sa, counted, gid, ip, ip_kind, nobody, octets, path, status};
use super::{from, to};
use crate::engine::{Config, EpId, PortId, Rx};
use ibacm_wire::client::{Entry, Kind, MORE_ROWS, More, Status};
use ibacm_wire::datagram::{Datagram, Groups, Request, group_gid};
use ibacm_wire::sa::{METHOD_RESP, SaMad};
use ibacm_wire::{Gid, PathRecord};

const EP: EpId = EpId(0);

fn to_gid(gid: Gid) -> [Entry; 1] {
    let mut question = PathRecord::default();
    question.set_dgid(gid);
    [Entry::path(0, &question)]
}

/// What has changed since `before`, with names; the service's numbers are the endpoint's, as there is one.
#[track_caller]
fn news(net: &Net, before: &mut [u64; ibacm_wire::client::MORE]) -> Vec<(&'static str, u64)> {
    let engine = &net.hosts[0].engine;
    let all = engine.more();
    let of = engine.tallies().next().expect("an endpoint").more;
    for ((row, all), of) in MORE_ROWS.iter().zip(all).zip(of) {
        assert_eq!(of, if row.kind == Kind::Service { 0 } else { all }, "{}", row.key);
    }
    let old = std::mem::replace(before, all);
    let changed = MORE_ROWS.iter().zip(all).zip(old).filter(|((_, new), old)| new != old);
    changed.map(|((row, new), old)| (row.key, new - old)).collect()
}

#[test]
fn each_kind_of_bad_datagram_has_its_counter() {
    let mut net = Net::new(3, &Config::default());
    let mut before = net.hosts[0].engine.more();
    let group = group_gid(0xffff, 3, 4);
    let wire = |octets: &[u8]| {
        let mut bytes = [0; 64];
        bytes[..octets.len()].copy_from_slice(octets);
        bytes
    };
    let kind = ip_kind() as u8;
    let good = Request {
        tid: 1,
        dest_type: kind,
        dest: wire(&octets(ip(0))),
        src_type: kind,
        src: wire(&octets(nobody(1))),
        groups: Groups::new([group]),
    };
    let rx = Rx { sgid: gid(2), dgid: group, slid: 12, src_qp: 0x666, dlid_path_bits: 0 };
    let mut send = |net: &mut Net, rx: &Rx, payload: &[u8]| {
        net.hosts[0].engine.datagram(net.now, EP, rx, payload);
        news(net, &mut before)
    };
    let emit = |r: Request| Datagram::Request(r).emit();
    assert_eq!(send(&mut net, &rx, &[1, 2, 3]), [("datagrams_malformed", 1)]);
    assert_eq!(send(&mut net, &Rx { slid: 0, ..rx }, &emit(good)), [("datagrams_malformed", 1)]);
    assert_eq!(send(&mut net, &rx, &emit(Request { src_type: 77, ..good })), [("datagrams_malformed", 1)]);
    let elsewhere = Groups::new([group_gid(0x8001, 3, 4)]);
    assert_eq!(send(&mut net, &rx, &emit(Request { groups: elsewhere, ..good })), [("datagrams_foreign", 1)]);
    assert_eq!(send(&mut net, &rx, &emit(Request { src: good.dest, ..good })), [("claims_refused", 1)]);
    // More than wait for one destination; one that asks again is the one who waits.
    net.sa = Sa::Silent;
    for tid in [1, 1, 2, 3, 4] {
        assert_eq!(send(&mut net, &rx, &emit(Request { tid, ..good })), []);
    }
    assert_eq!(send(&mut net, &rx, &emit(Request { tid: 5, ..good })), [("peers_refused", 1)]);
    net.hosts[0].engine.datagram_lost(EP);
    net.hosts[0].engine.sent(net.now, EP, 1 << 63, false);
    assert_eq!(news(&net, &mut before), [("datagrams_malformed", 1), ("sends_failed", 1)]);
}

#[test]
fn a_full_table_forgets_or_refuses() {
    let mut net = Net::new(6, &Config { max_destinations: 2, ..Config::default() });
    let mut before = net.hosts[0].engine.more();
    for host in 1..=2 {
        path(&net.ask(0, &to_gid(gid(host)), 5 * MS).unwrap());
    }
    assert_eq!(news(&net, &mut before), []);
    path(&net.ask(0, &to_gid(gid(3)), 5 * MS).unwrap());
    assert_eq!(news(&net, &mut before), [("cache_evicted", 1)]);
    // Those that somebody waits for stay.
    net.sa = Sa::Silent;
    for host in 4..=5 {
        assert!(net.ask(0, &to_gid(gid(host)), 0).is_none());
    }
    assert_eq!(status(&net.ask(0, &to_gid(gid(1)), 0).unwrap()), Status::Enomem as u8);
    assert_eq!(news(&net, &mut before), [("requests_refused", 1), ("cache_evicted", 2)]);
    // The limit is lowered: what has to go has gone to make room.
    net.run(60 * S);
    net.sa = Sa::Answers;
    for host in 1..=2 {
        path(&net.ask(0, &to_gid(gid(host)), 5 * MS).unwrap());
    }
    news(&net, &mut before);
    net.hosts[0].engine.set_config(net.now, Config { max_destinations: 1, ..Config::default() });
    assert_eq!(news(&net, &mut before), [("cache_evicted", 1)]);
}

#[test]
fn answers_that_nobody_asked_for_are_counted_and_questions_that_come_back_are_not() {
    let mut net = Net::new(2, &Config::default());
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 10 * MS).unwrap()).dgid(), gid(1));
    net.run(S);
    let before = counted(&net, More::MadsDropped);
    let mut stray = SaMad::path_query(0x1_0000_0077, &PathRecord::default());
    let mut come = |status: u32, mad: &[u8]| {
        net.hosts[0].engine.mad_received(net.now, PortId(0), status, mad);
        counted(&net, More::MadsDropped) - before
    };
    assert_eq!(come(110, &stray.0), 0);
    assert_eq!(come(0, &stray.0), 1, "a question");
    stray.0[3] |= METHOD_RESP;
    assert_eq!(come(0, &stray.0), 2);
    assert_eq!(come(0, &stray.0[..100]), 3);
}

#[test]
fn what_an_edge_has_counted_never_goes_back() {
    let mut net = Net::new(1, &Config::default());
    for (so_far, counted_then) in [(3, 3), (5, 5), (0, 5), (6, 6)] {
        net.hosts[0].engine.observe(More::ClientsSlow, so_far);
        assert_eq!(counted(&net, More::ClientsSlow), counted_then);
    }
}
