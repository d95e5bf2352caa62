//! More multicast groups than the classic two: what is joined when, what is found, and what changes do.

use ibacm_wire::Gid;
use ibacm_wire::client::Entry;
use ibacm_wire::datagram::{Datagram, group_gid};
use ibacm_wire::{PathRecord, sa::EXACTLY};

use super::sim::{MS, Net, S, Sa, gid, path};
use super::{from, to};
use crate::engine::{Config, PortId, RouteProt};

/// QDR, EDR and HDR.
const RATES: [u8; 3] = [7, 16, 17];

fn acm(groups: usize) -> Config {
    Config { route_prot: RouteProt::Acm, multicast_groups: groups, ..Config::default() }
}

/// Hosts with ports of [`RATES`] and an MTU of 4096, with so many groups each.
fn mixed(groups: [usize; 3]) -> Net {
    let mut net = Net::quiet(3, &acm(2));
    for (host, (rate, groups)) in RATES.into_iter().zip(groups).enumerate() {
        net.change_port(host, |p| p.rate = rate);
        net.hosts[host].engine.set_config(net.now, acm(groups));
    }
    net.run(100 * MS);
    net
}

/// Rate and MTU of the path that a host finds to another.
fn found(net: &mut Net, asker: usize, other: usize) -> (u8, u8) {
    let p = path(&net.ask(asker, &[from(asker), to(other)], 5 * MS).expect("an answer"));
    assert_eq!(p.dgid(), gid(other));
    (p.rate() & 0x3f, p.mtu() & 0x3f)
}

fn last_request(net: &Net) -> Vec<Gid> {
    let groups = net.sent.iter().rev().find_map(|(_, payload)| match Datagram::parse(payload) {
        Ok(Datagram::Request(r)) => Some(r.groups),
        _ => None,
    });
    groups.expect("a request was sent").as_slice().to_vec()
}

#[test]
fn any_two_hosts_find_what_both_ports_can_do() {
    for groups in [[6; 3], [16; 3], [2, 6, 16], [2, 16, 16], [6, 16, 6]] {
        for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)] {
            // nobody has heard of anybody
            let mut net = mixed(groups);
            assert_eq!(found(&mut net, a, b), (RATES[a.min(b)], 5), "{groups:?}, {a} asks {b}");
        }
    }
    // with the classic two, a host is only found at its own speed by one that has it too
    let mut net = mixed([2; 3]);
    assert_eq!(found(&mut net, 2, 1), (3, 4));
}

#[test]
fn sixteen_groups_are_joined_the_first_two_first_and_six_are_named() {
    let mut net = Net::quiet(1, &acm(16));
    net.change_port(0, |p| p.rate = 21);
    net.run(100 * MS);
    assert_eq!((net.hosts[0].engine.summary(), net.joins), ((1, 16, 16), 16));
    let joined: Vec<Gid> = net.join_log.iter().map(|j| j.1).collect();
    assert_eq!(joined[..2], [group_gid(0xffff, 3, 4), group_gid(0xffff, 21, 5)]);
    net.start(0, &[from(0), to(1)]);
    net.run(MS);
    let named = last_request(&net);
    let expected = [(3, 4), (7, 5), (12, 5), (16, 5), (17, 5), (21, 5)];
    assert_eq!(named, expected.map(|(rate, mtu)| group_gid(0xffff, rate, mtu)));
}

#[test]
fn the_classic_two_are_what_they_were() {
    for groups in [2, 16] {
        let config = Config { multicast_groups: groups, ..Config::default() };
        assert_eq!(Net::new(1, &config).joins, 1, "the SA says what paths can do");
    }
    let mut net = Net::new(1, &acm(2));
    net.start(0, &[from(0), to(1)]);
    net.run(MS);
    assert_eq!(last_request(&net), [group_gid(0xffff, 3, 4), group_gid(0xffff, 7, 5)]);
}

#[test]
fn paths_do_not_wait_for_groups_between_the_first_and_the_own_one() {
    let mut net = Net::quiet(1, &acm(16));
    net.sa_latency = 10 * MS;
    for n in 0..20 {
        let mut question = PathRecord::default();
        question.set_dgid(gid(1));
        question.set_service_id(n);
        net.start(0, &[Entry::path(0, &question)]);
    }
    net.run(S);
    let before: Vec<usize> = net.join_log.iter().map(|j| j.2).collect();
    assert!(before[0] <= 1 && before[1] <= 2, "{before:?}: the two that are urgent have a turn of their own");
    assert!(before.len() > 6 && before[2..].iter().all(|paths| *paths == 20), "{before:?}");
}

#[test]
fn a_group_that_is_refused_hurts_no_other_and_is_asked_for_now_and_then() {
    let mut net = Net::quiet(2, &acm(16));
    net.refused = |mgid| mgid.0[7] == 6;
    net.run(S);
    let (up, wanted, joined) = net.hosts[0].engine.summary();
    assert_eq!((up, wanted), (1, joined + 2), "20 Gb/s with two MTUs");
    assert_eq!(found(&mut net, 0, 1), (7, 5));
    net.run(3600 * S);
    let tries = net.join_log.iter().filter(|j| j.0 == 0 && j.1 == group_gid(0xffff, 6, 5)).count();
    assert!((10..=22).contains(&tries), "{tries} in an hour");
    assert!(!net.log.iter().any(|(level, text)| *level == 0 && text.contains("cannot join")), "{:?}", net.log);
    net.refused = |_| false;
    net.run(1800 * S);
    assert_eq!(net.hosts[0].engine.summary(), (1, wanted, wanted));
}

#[test]
fn the_own_group_that_is_refused_leaves_the_others() {
    let mut net = Net::quiet(3, &acm(6));
    (0..3).for_each(|host| net.change_port(host, |p| p.rate = 16));
    net.refused = |mgid| mgid.0[7] == 16;
    net.run(S);
    assert_eq!(found(&mut net, 0, 1), (12, 5), "the next best: FDR");
}

#[test]
fn the_option_changes_the_set_and_what_is_known_stays() {
    let mut net = mixed([16, 2, 2]);
    assert_eq!(found(&mut net, 2, 1), (3, 4));
    let multicasts = net.multicasts;
    for host in [1, 2] {
        net.hosts[host].engine.set_config(net.now, acm(16));
    }
    net.run(100 * MS);
    assert_eq!(net.hosts[2].engine.summary(), (1, 16, 16));
    assert_eq!((found(&mut net, 2, 1), net.multicasts), ((3, 4), multicasts), "for the moment");
    for _ in 0..3 {
        net.run(S);
        net.ask(2, &[from(2), to(1)], 0).expect("an answer at once");
    }
    assert_eq!((found(&mut net, 2, 1), net.multicasts), ((16, 5), multicasts + 1), "it was asked for once");
    assert_eq!(found(&mut net, 0, 1), (7, 5));
    // and back
    net.hosts[2].engine.set_config(net.now, acm(2));
    net.run(100 * MS);
    assert_eq!(net.hosts[2].engine.summary(), (1, 2, 2));
    assert_eq!(found(&mut net, 2, 1), (16, 5), "still true");
    net.hosts[2].engine.set_config(net.now, acm(1));
    net.run(100 * MS);
    assert_eq!((net.hosts[2].engine.summary(), found(&mut net, 2, 0)), ((1, 1, 1), (3, 4)));
}

#[test]
fn a_port_that_becomes_slower_or_faster_is_in_other_groups() {
    let mut net = mixed([16; 3]);
    assert_eq!(found(&mut net, 2, 1), (16, 5));
    assert_eq!(found(&mut net, 0, 1), (7, 5));
    // a cable of which half works
    net.change_port(2, |p| p.rate = 12);
    net.run(100 * MS);
    assert_eq!(found(&mut net, 2, 1), (12, 5), "it was 100 Gb/s");
    net.change_port(2, |p| (p.rate, p.mtu) = (16, 4));
    net.run(100 * MS);
    assert_eq!(found(&mut net, 2, 1), (16, 4));
    net.change_port(2, |p| (p.rate, p.mtu) = (17, 5));
    net.run(100 * MS);
    assert_eq!(found(&mut net, 2, 1), (16, 5));
    assert_eq!(found(&mut net, 2, 0), (7, 5));
}

#[test]
fn what_was_found_before_all_groups_were_joined_gets_better() {
    let mut net = Net::quiet(3, &acm(2));
    for (host, rate) in RATES.into_iter().enumerate() {
        net.change_port(host, |p| p.rate = rate);
        net.hosts[host].engine.set_config(net.now, acm(6));
    }
    net.refused = |mgid| mgid.0[7] != 3;
    net.run(S);
    assert_eq!((found(&mut net, 2, 1), found(&mut net, 1, 0)), ((3, 4), (3, 4)));
    net.refused = |_| false;
    net.run(1000 * S);
    for _ in 0..3 {
        net.ask(2, &[from(2), to(1)], 0).expect("an answer at once");
        net.run(2 * S);
    }
    assert_eq!(found(&mut net, 2, 1), (16, 5));
    // the question that host 2 asked for that told host 1 too
    assert_eq!(found(&mut net, 1, 2), (16, 5));
    assert_eq!(net.hosts[1].engine.summary(), (1, 6, 6));
}

#[test]
fn a_slower_port_has_other_paths_from_the_sa_too() {
    let mut net = Net::new(2, &Config::default());
    found(&mut net, 0, 1);
    let before = (net.path_queries.len(), net.multicasts, net.joins);
    net.change_port(0, |p| p.rate = 3);
    found(&mut net, 0, 1);
    assert_eq!((net.path_queries.len(), net.multicasts, net.joins), (before.0 + 1, before.1, before.2));
    // and from the host to itself
    let p = path(&net.ask(0, &[from(0), to(0)], 0).unwrap());
    assert_eq!(p.rate(), 3);
}

#[test]
fn a_port_that_was_down_asks_for_the_group_when_it_is_joined_again() {
    let mut net = mixed([16; 3]);
    assert_eq!(found(&mut net, 2, 1), (16, 5));
    net.change_port(2, |p| p.active = false);
    net.run(MS);
    net.sa_latency = 10 * MS;
    net.change_port(2, |p| (p.active, p.rate) = (true, 12));
    let id = net.start(2, &[from(2), to(1)]);
    net.run(S);
    let p = path(&net.hosts[2].replies[&id]);
    assert!([3, 12].contains(&(p.rate() & 0x3f)), "what is joined by then: {p:?}");
}

#[test]
fn a_path_from_a_group_has_what_the_sa_says_of_it() {
    let mut net = mixed([6; 3]);
    let p = path(&net.ask(2, &[from(2), to(1)], 5 * MS).unwrap());
    assert_eq!((p.rate(), p.mtu(), p.sl(), p.packet_lifetime()), (EXACTLY | 16, EXACTLY | 5, 1, 0x92));
    assert!(net.path_queries.is_empty());
}

#[test]
fn joins_that_nobody_answers_do_not_pile_up() {
    let mut net = Net::new(1, &acm(16));
    net.sa = Sa::Silent;
    let wanted = net.hosts[0].engine.summary().1;
    for _ in 0..1000 {
        net.hosts[0].engine.reregister(net.now, PortId(0));
    }
    net.sa = Sa::Answers;
    let before = net.joins;
    net.run(30 * S);
    assert!(net.joins - before <= 2 * wanted, "{} joins of {wanted} groups", net.joins - before);
    assert_eq!(net.hosts[0].engine.summary().2, wanted);
}
