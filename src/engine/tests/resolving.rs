//! Destinations that resolve.

use super::sim::{MS, Net, S, US, gid, ip, path, status};
use super::{from, to, to_name};
use crate::engine::{Config, RouteProt};
use ibacm_wire::client::{Counter, EP_FLAG_DEST, Entry, FLAG_NODELAY, FLAG_QUERY_SA, Status};
use ibacm_wire::path::mask;
use ibacm_wire::{Gid, PathRecord};

fn counter(net: &Net, host: usize, c: Counter) -> u64 {
    net.hosts[host].engine.counters()[c as usize]
}

#[test]
fn an_address_becomes_the_sas_path_and_is_cached() {
    let mut net = Net::new(3, &Config::default());
    let reply = net.ask(0, &[from(0), to(2)], 5 * MS).unwrap();
    assert_eq!(reply.len(), 16 + 72);
    assert_eq!(reply[1], 0x81);
    let p = path(&reply);
    assert_eq!((p.dgid(), p.sgid(), p.dlid(), p.slid()), (gid(2), gid(0), 12, 10));
    assert_eq!((p.sl(), p.mtu(), p.rate()), (3, 0x84, 0x83));
    assert_eq!(net.multicasts, 1);
    // both sides asked, with these components and no others
    assert_eq!(net.path_queries.len(), 2);
    for q in &net.path_queries {
        assert_eq!(q.component_mask(), mask::DGID | mask::SGID | mask::PKEY);
    }
    assert!(!net.hosts[0].engine.was_known());
    let again = net.ask(0, &[from(0), to(2)], 0).unwrap();
    assert_eq!(path(&again), p);
    assert!(net.hosts[0].engine.was_known());
    assert_eq!((net.multicasts, net.path_queries.len()), (1, 2));
    assert_eq!(counter(&net, 0, Counter::RouteCache), 1);
    assert_eq!(counter(&net, 0, Counter::AddrQuery), 1);
    assert_eq!(counter(&net, 0, Counter::RouteQuery), 1);
    // the answering side knows the asker now
    assert!(net.ask(2, &[from(2), to(0)], 0).is_some());
    assert_eq!(net.multicasts, 1);
}

#[test]
fn without_a_source_the_chosen_one_is_returned_and_remembered() {
    let mut net = Net::new(2, &Config::default());
    for cached in [false, true] {
        let reply = net.ask(0, &[to(1)], if cached { 0 } else { 5 * MS }).unwrap();
        assert_eq!(reply.len(), 16 + 2 * 72);
        assert_eq!(Entry::read(&reply, 1), Some(from(0)));
        assert_eq!(path(&reply).dgid(), gid(1));
    }
    let name = net.ask(0, &[to_name(1)], 5 * MS).unwrap();
    assert_eq!(path(&name).dgid(), gid(1));
    assert_eq!(&Entry::read(&name, 1).unwrap().info[..7], b"node-0\0");
}

#[test]
fn with_route_prot_acm_the_sa_is_not_asked() {
    let config = Config { route_prot: RouteProt::Acm, ..Config::default() };
    let mut net = Net::new(2, &config);
    assert_eq!(net.joins, 4, "the minimum and the port's own rate and MTU");
    let p = path(&net.ask(0, &[from(0), to(1)], MS).unwrap());
    assert!(net.path_queries.is_empty());
    assert_eq!((p.dgid(), p.sgid(), p.dlid(), p.slid()), (gid(1), gid(0), 11, 10));
    assert_eq!((p.mtu(), p.rate(), p.packet_lifetime()), (0x85, 0x87, 0x92), "of the best group that both are in");
    assert_eq!((p.sl(), p.reversible_numpath(), p.pkey()), (1, 0x81, 0xffff));
}

#[test]
fn own_addresses_need_no_fabric() {
    let mut net = Net::new(2, &Config::default());
    let p = path(&net.ask(0, &[from(0), to(0)], 0).unwrap());
    assert_eq!((p.dgid(), p.sgid(), p.dlid(), p.slid()), (gid(0), gid(0), 10, 10));
    assert_eq!((p.reversible_numpath(), p.pkey(), p.mtu(), p.rate(), p.packet_lifetime()), (0x80, 0xffff, 5, 7, 0));
    assert_eq!((net.multicasts, net.path_queries.len()), (0, 0));
    let mut net = Net::new(2, &Config { loopback_local: false, ..Config::default() });
    let p = path(&net.ask(0, &[from(0), to(0)], MS).unwrap());
    assert_eq!((p.dgid(), p.dlid(), p.mtu()), (gid(0), 10, 0x84), "the SA's word");
    assert_eq!(net.multicasts, 0);
}

#[test]
fn a_hundred_who_ask_together_cost_one_multicast_and_one_query() {
    let mut net = Net::new(2, &Config::default());
    let ids: Vec<u64> = (0..100).map(|_| net.start(0, &[from(0), to(1)])).collect();
    net.run(5 * MS);
    assert_eq!(net.multicasts, 1);
    assert_eq!(net.path_queries.iter().filter(|q| q.sgid() == gid(0)).count(), 1);
    for id in ids {
        assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
    }
}

#[test]
fn no_delay_means_none_but_starts_the_look_up() {
    let mut net = Net::new(2, &Config::default());
    let mut dest = to(1);
    dest.flags |= FLAG_NODELAY;
    let reply = net.ask(0, &[from(0), dest], 0).unwrap();
    assert_eq!((status(&reply), reply.len()), (Status::Enodata as u8, 16));
    net.run(5 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), dest], 0).unwrap()).dgid(), gid(1));
    assert_eq!(counter(&net, 0, Counter::Nodata), 1);
}

#[test]
fn entries_expire() {
    let config = Config { addr_timeout: Some(2), route_timeout: Some(1), ..Config::default() };
    let mut net = Net::new(2, &config);
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let before = net.path_queries.len();
    net.run(61 * S);
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    assert_eq!((net.multicasts, net.path_queries.len()), (1, before + 1), "the route only");
    assert_eq!(counter(&net, 0, Counter::AddrCache), 1);
    net.run(121 * S);
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    assert_eq!(net.multicasts, 2);
}

fn path_entry(flags: u32, change: impl FnOnce(&mut PathRecord)) -> Entry {
    let mut p = PathRecord::default();
    change(&mut p);
    Entry::path(flags, &p)
}

#[test]
fn a_path_is_asked_for_with_all_that_the_client_says_and_cached_by_it() {
    let mut net = Net::new(2, &Config::default());
    let plain = path_entry(0, |p| p.set_dgid(gid(1)));
    let qos = path_entry(0, |p| {
        p.set_dgid(gid(1));
        p.set_service_id(7);
        p.set_qos_sl(0x0120);
        p.set_tclass(5);
        p.set_mtu(0x82);
    });
    for _ in 0..2 {
        assert_eq!(path(&net.ask(0, &[plain], MS).unwrap()).dlid(), 11);
        assert_eq!(path(&net.ask(0, &[qos], MS).unwrap()).dlid(), 11);
    }
    assert_eq!(net.multicasts, 0);
    assert_eq!(net.path_queries.len(), 2);
    let base = mask::DGID | mask::SGID | mask::SLID | mask::PKEY;
    assert_eq!(net.path_queries[0].component_mask(), base);
    assert_eq!(
        net.path_queries[1].component_mask(),
        base | mask::SERVICE_ID | mask::QOS_CLASS | mask::TCLASS | mask::MTU | mask::MTU_SELECTOR
    );
    let by_lid = path_entry(0, |p| p.set_dlid(11));
    assert_eq!(path(&net.ask(0, &[by_lid], MS).unwrap()).dgid(), gid(1));
    assert_eq!(net.path_queries[2].component_mask(), mask::DLID | mask::SGID | mask::SLID | mask::PKEY);
}

#[test]
fn query_sa_goes_past_the_cache_with_what_was_asked() {
    let mut net = Net::new(2, &Config::default());
    for _ in 0..2 {
        let e = path_entry(FLAG_QUERY_SA, |p| p.set_dlid(11));
        let reply = net.ask(0, &[e], MS).unwrap();
        assert_eq!((path(&reply).dgid(), reply.len()), (gid(1), 88));
    }
    assert_eq!(net.path_queries.len(), 2);
    assert_eq!(net.path_queries[0].component_mask(), mask::DLID | mask::SGID);
    let nobody = path_entry(FLAG_QUERY_SA, |p| p.set_dgid(Gid([0xfe; 16])));
    let reply = net.ask(0, &[nobody], MS).unwrap();
    assert_eq!((status(&reply), reply.len()), (Status::Esrcaddr as u8, 16), "no port has that prefix");
}

#[test]
fn a_moved_or_restarted_peer_is_learned_from_its_own_request() {
    let mut net = Net::new(3, &Config::default());
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
    net.set_ips(1, &[]);
    net.set_ips(2, &[ip(2), ip(1)]);
    // the new owner asks for something, by that address
    net.start(2, &[from(1), to(99)]);
    net.run(5 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(2));
}

#[test]
fn names_compare_without_case_and_the_source_name_is_told() {
    let mut net = Net::new(2, &Config::default());
    let source = Entry::address(1, 1, b"NODE-0");
    let dest = Entry::address(EP_FLAG_DEST, 1, b"nOdE-1");
    assert_eq!(path(&net.ask(0, &[source, dest], 5 * MS).unwrap()).dgid(), gid(1));
    let back = Entry::address(EP_FLAG_DEST, 1, b"node-0");
    net.ask(1, &[Entry::address(1, 1, b"node-1"), back], 0).expect("learned from the request");
}

#[test]
fn a_burst_takes_a_fraction_of_one_after_another() {
    let time = |depth| {
        let mut net = Net::new(257, &Config { resolve_depth: depth, sa_depth: depth, ..Config::default() });
        (net.latency, net.sa_latency) = (500 * US, 100 * US);
        let begin = net.now;
        let ids: Vec<u64> = (1..257).map(|host| net.start(0, &[from(0), to(host)])).collect();
        while !ids.iter().all(|id| net.hosts[0].replies.contains_key(id)) {
            net.run(100 * US);
            assert!(net.now.0 < begin.0 + S, "it ends");
        }
        net.now.0 - begin.0
    };
    let (burst, one_by_one) = (time(64), time(1));
    assert!(one_by_one > 200 * MS && burst * 10 < one_by_one, "{burst} us, {one_by_one} us");
}
