//! Hosts and addresses that move, and what those who knew them make of it.

use super::sim::{MS, Net, S, Sa, gid, ip, path};
use super::{from, to};
use crate::engine::{Config, RouteProt, SystemAddr};
use ibacm_wire::client::Entry;
use ibacm_wire::{Gid, PathRecord};

/// Long enough to be heard of, too short to be heard of twice.
const HEARD: u64 = 300 * MS;

fn to_gid(gid: Gid) -> [Entry; 1] {
    let mut question = PathRecord::default();
    question.set_dgid(gid);
    [Entry::path(0, &question)]
}

#[test]
fn who_knew_a_host_hears_of_its_new_lid() {
    let mut net = Net::new(3, &Config::default());
    for question in [&[from(0), to(1)][..], &to_gid(gid(1)), &to_gid(gid(2))] {
        net.ask(0, question, 5 * MS).unwrap();
    }
    net.change_port(1, |p| p.lid = 99);
    net.run(HEARD);
    let asked = net.path_queries.len();
    for question in [&[from(0), to(1)][..], &to_gid(gid(1))] {
        assert_eq!(path(&net.ask(0, question, 5 * MS).unwrap()).dlid(), 99);
    }
    assert_eq!(net.path_queries.len(), asked + 2);
    net.ask(0, &to_gid(gid(2)), 0).expect("others are not in doubt");
    // Its address and its name, and again a second later; the question at the beginning.
    assert_eq!(net.multicasts, 1 + 2);
    net.run(10 * S);
    assert_eq!(net.multicasts, 1 + 4);
    net.ask(0, &[from(0), to(1)], 0).expect("it was asked for once");
}

#[test]
fn what_is_lost_is_said_again() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.change_port(1, |p| p.lid = 99);
    net.run(MS);
    net.fail_sends = 2;
    net.run(2 * S);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dlid(), 99);
}

#[test]
fn an_address_that_is_somewhere_else_now() {
    let mut net = Net::new(3, &Config::default());
    net.set_ips(1, &[ip(1), ip(9)]);
    net.run(2 * S);
    assert_eq!(path(&net.ask(0, &[from(0), to(9)], 5 * MS).unwrap()).dgid(), gid(1));
    net.set_ips(1, &[ip(1)]);
    net.set_ips(2, &[ip(2), ip(9)]);
    net.run(HEARD);
    assert_eq!(path(&net.ask(0, &[from(0), to(9)], 5 * MS).unwrap()).dgid(), gid(2));
}

#[test]
fn nothing_is_said_that_is_not_new() {
    let mut net = Net::new(3, &Config::default());
    net.run(2 * S);
    net.change_port(0, |p| p.sm_lid = 7);
    net.hosts[0].engine.reregister(net.now, crate::engine::PortId(0));
    net.run(2 * S);
    assert_eq!(net.multicasts, 0);
    // It was another host for a while, as far as anybody knows.
    net.change_port(1, |p| p.active = false);
    net.run(S);
    net.change_port(1, |p| p.active = true);
    net.run(2 * S);
    assert_eq!(net.multicasts, 4);
}

#[test]
fn who_was_opened_before_it_moved_was_known() {
    let mut net = Net::quiet(2, &Config::default());
    net.sa = Sa::Silent;
    net.run(MS);
    net.change_port(1, |p| p.lid = 99);
    net.sa = Sa::Answers;
    net.run(20 * S);
    assert_eq!(net.multicasts, 4);
}

#[test]
fn many_addresses_are_said_a_few_at_a_time_and_not_without_end() {
    let mut net = Net::new(2, &Config::default());
    let many: Vec<_> = (1..1000).map(ip).collect();
    net.set_ips(1, &many);
    net.run(MS);
    assert!(net.multicasts <= 8, "{}", net.multicasts);
    net.run(10 * S);
    assert_eq!(net.multicasts, 2 * 256);
}

#[test]
fn an_endpoint_without_addresses_is_none() {
    let mut net = Net::new(2, &Config::default());
    net.hosts[1].engine.set_names(Vec::new());
    net.set_ips(1, &[]);
    net.run(10 * MS);
    assert_eq!((net.hosts[1].engine.summary(), net.hosts[1].qps.len()), ((0, 0, 0), 0));
    net.set_ips(1, &[ip(1)]);
    net.run(10 * MS);
    assert_eq!((net.hosts[1].engine.summary(), net.hosts[1].qps.len()), ((1, 1, 1), 1));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn a_peer_s_new_gid_is_followed_where_paths_are_made_from_the_group_too() {
    for route_prot in [RouteProt::Sa, RouteProt::Acm] {
        let mut net = Net::new(3, &Config { route_prot, ..Config::default() });
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
        let mut other = gid(1);
        other.0[..2].copy_from_slice(&[0xfe, 0xc0]);
        net.change_port(1, |p| p.gids = vec![other]);
        let there = SystemAddr { ip: ip(1), prefix_len: 16, gid: other, pkey: 0xffff };
        net.hosts[1].engine.set_system_addrs(vec![there]);
        net.run(HEARD);
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), other, "{route_prot:?}");
    }
}
