//! Addresses that nobody answers for over multicast.

use std::net::IpAddr;

use ibacm_wire::client::{
    COUNTERS, EP_FLAG_DEST, Entry, HDR_LEN, Header, MORE, OP_PERF_QUERY, PERF_MORE, Status, TYPE_IP6, VERSION,
};
use ibacm_wire::{Gid, client};

use super::sim::{MS, Net, S, Sa, gid, ip, path, status};
use super::{from, octets, to};
use crate::engine::{Config, Outcome, RouteProt};
use crate::preload::{Preload, parse_hosts};
use crate::time::Time;

/// Timeouts of 300 ms; the subnet's own adds 1024 ms.
const WAIT: u64 = 1324 * MS;

fn config() -> Config {
    Config { timeout_ms: 300, ..Config::default() }
}

/// Hosts of which all but the first run no service, and which the first one's kernel knows.
fn net(n: usize, config: &Config) -> Net {
    let mut net = Net::new(n, config);
    for host in 1..n {
        net.hosts[host].dead = true;
        net.hosts[0].neighbours.insert(ip(host), (MS, gid(host)));
    }
    net
}

/// The counters beside the seven, as a client gets them.
fn more(net: &mut Net) -> Vec<u64> {
    let ask = |net: &mut Net, index: u8, dst: u8| {
        let h = Header {
            version: VERSION,
            opcode: OP_PERF_QUERY,
            data: [0, index, dst],
            length: HDR_LEN as u16,
            ..Header::default()
        };
        let id = 1 << 40 | u64::from(index) << 8 | u64::from(dst);
        assert_eq!(net.raw(0, id, &h.emit()), Outcome::Replied);
        net.hosts[0].replies.remove(&id).unwrap()
    };
    let plain = ask(net, 0, 0);
    assert_eq!((plain[3], plain.len()), (COUNTERS as u8, HDR_LEN + 8 * COUNTERS), "as always");
    let all = ask(net, 0, PERF_MORE);
    assert_eq!((usize::from(all[3]), all.len()), (COUNTERS + MORE, HDR_LEN + 8 * (COUNTERS + MORE)));
    assert_eq!(all[HDR_LEN..][..8 * COUNTERS], plain[HDR_LEN..]);
    let first = ask(net, 1, PERF_MORE);
    assert_eq!(first[HDR_LEN + 8 * COUNTERS..], all[HDR_LEN + 8 * COUNTERS..], "there is one endpoint");
    assert_eq!(ask(net, 0, 2), ask(net, 0, 0), "1 asks for more, nothing else does");
    let numbers = all[HDR_LEN + 8 * COUNTERS..].chunks_exact(8);
    numbers.map(|b| u64::from_be_bytes(b.try_into().unwrap())).collect()
}

/// By neighbour, by link-local address, by preload.
fn ways(net: &mut Net) -> [u64; 3] {
    *more(net).first_chunk().unwrap()
}

fn link_local(host: usize) -> Entry {
    let mut a = gid(host).0;
    a[8] ^= 2;
    Entry::address(EP_FLAG_DEST, TYPE_IP6, &a)
}

#[test]
fn a_peer_without_a_service_resolves_when_the_request_is_repeated() {
    for route_prot in [RouteProt::Sa, RouteProt::Acm] {
        let mut net = net(3, &Config { route_prot, ..config() });
        let id = net.start(0, &[from(0), to(1)]);
        net.run(WAIT - 10);
        assert!(net.hosts[0].replies.is_empty() && net.hosts[0].looked.is_empty(), "not before the timeout");
        net.run(10 * MS);
        let p = path(&net.hosts[0].replies.remove(&id).expect("right after it"));
        assert_eq!((p.dgid(), p.dlid(), p.mtu()), (gid(1), 11, 0x84), "the SA's path");
        assert_eq!((net.multicasts, net.hosts[0].looked.len(), net.path_queries.len()), (2, 1, 1));
        assert_eq!(net.path_queries[0].dgid(), gid(1));
        assert_eq!(ways(&mut net), [1, 0, 0]);
        // it is known from now on, and nothing is repeated
        net.run(10 * S);
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).expect("at once")), p);
        assert_eq!(net.multicasts, 2);
        // and has its end
        net.run(1440 * 60 * S);
        assert!(net.ask(0, &[from(0), to(1)], 10 * MS).is_none());
        assert_eq!(net.multicasts, 3);
    }
}

#[test]
fn without_the_option_nothing_else_is_tried() {
    let mut net = net(2, &Config { addr_fallback: false, ..config() });
    for dest in [to(1), link_local(1)] {
        let reply = net.ask(0, &[from(0), dest], 3 * WAIT + MS).expect("in time");
        assert_eq!(status(&reply), Status::Etimedout as u8);
    }
    assert_eq!((net.hosts[0].looked.len(), net.path_queries.len()), (0, 0));
    assert_eq!(ways(&mut net), [0, 0, 0]);
}

#[test]
fn who_answers_over_multicast_is_never_looked_for_elsewhere() {
    let mut net = net(2, &config());
    net.hosts[1].dead = false;
    net.hosts[0].neighbours.insert(ip(1), (0, gid(5)));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], MS).unwrap()).dgid(), gid(1));
    assert_eq!((net.hosts[0].looked.len(), ways(&mut net)), (0, [0, 0, 0]));
}

#[test]
fn a_multicast_answer_that_is_quicker_or_comes_meanwhile_wins() {
    // to the repeated request, while the kernel still looks; and while the SA is asked about its answer
    for (latency, sa_latency) in [(50 * MS, 0), (0, 50 * MS)] {
        let mut net = net(3, &config());
        net.hosts[0].neighbours.insert(ip(1), (latency, gid(2)));
        net.sa_latency = sa_latency;
        net.latency = MS;
        // who answers at once, without asking the SA
        let quick = Config { route_prot: RouteProt::Acm, ..config() };
        net.hosts[1].engine.set_config(net.now, quick);
        let id = net.start(0, &[from(0), to(1)]);
        net.run(WAIT - 10);
        net.hosts[1].dead = false;
        net.run(200 * MS);
        assert_eq!(path(&net.hosts[0].replies.remove(&id).unwrap()).dgid(), gid(1));
        assert_eq!(ways(&mut net), [0, 0, 0], "{latency}");
    }
}

#[test]
fn a_gid_that_the_sa_does_not_know_is_no_answer() {
    let mut net = net(2, &config());
    net.hosts[0].neighbours.insert(ip(1), (MS, gid(40)));
    let reply = net.ask(0, &[from(0), to(1)], 3 * WAIT + MS).expect("in time");
    assert_eq!(status(&reply), Status::Etimedout as u8);
    assert_eq!((net.multicasts, net.path_queries.len(), net.hosts[0].looked.len()), (3, 1, 1));
    // the peer itself is believed, whatever the table says
    let id = net.start(0, &[from(0), to(1)]);
    net.run(WAIT + 10 * MS);
    assert_eq!(net.path_queries.len(), 2, "asked and refused");
    net.hosts[1].dead = false;
    net.run(WAIT);
    assert_eq!(path(&net.hosts[0].replies.remove(&id).unwrap()).dgid(), gid(1));
    assert_eq!(ways(&mut net), [0, 0, 0]);
}

#[test]
fn useless_gids_are_not_asked_for() {
    for useless in [Gid([0; 16]), Gid([0xff; 16]), gid(0)] {
        let mut net = net(2, &config());
        net.hosts[0].neighbours.insert(ip(1), (MS, useless));
        let reply = net.ask(0, &[from(0), to(1)], 3 * WAIT + MS).expect("in time");
        assert_eq!((status(&reply), net.path_queries.len()), (Status::Etimedout as u8, 0), "{useless}");
    }
}

#[test]
fn the_guid_in_a_link_local_address_is_tried() {
    let mut net = net(2, &config());
    let p = path(&net.ask(0, &[from(0), link_local(1)], WAIT + 10 * MS).unwrap());
    assert_eq!((p.dgid(), p.dlid()), (gid(1), 11));
    assert_eq!((net.hosts[0].looked.len(), ways(&mut net)), (0, [0, 1, 0]));
    // of another subnet's prefix too, which the address does not say
    let elsewhere = |host| {
        let mut g = gid(host);
        g.0[7] = 9;
        g
    };
    for host in 0..2 {
        net.hosts[host].port.gids = vec![elsewhere(host)];
    }
    net.change_port(0, |_| ());
    net.set_ips(0, &[]);
    let own = Entry::address(client::EP_FLAG_SOURCE, client::TYPE_NAME, b"node-0");
    net.run(MS);
    let p = path(&net.ask(0, &[own, link_local(1)], WAIT + 10 * MS).unwrap());
    assert_eq!(p.dgid(), elsewhere(1));
}

#[test]
fn a_link_local_address_without_a_guid_may_be_a_neighbour_s() {
    let mut net = net(2, &config());
    let odd: IpAddr = "fe80::1234".parse().unwrap();
    net.hosts[0].neighbours.insert(odd, (MS, gid(1)));
    let dest = Entry::address(EP_FLAG_DEST, TYPE_IP6, &octets(odd));
    assert_eq!(path(&net.ask(0, &[from(0), dest], WAIT + 10 * MS).unwrap()).dgid(), gid(1));
    assert_eq!((net.path_queries.len(), ways(&mut net)), (2, [1, 0, 0]));
}

#[test]
fn what_is_preloaded_is_counted_when_it_is_taken_from_the_file() {
    let mut net = net(2, &config());
    let (hosts, findings) = parse_hosts(format!("10.0.0.1 {}\n", gid(1)).as_bytes(), "h");
    assert_eq!(findings, []);
    net.hosts[0].engine.set_preload(net.now, Preload { hosts, ..Preload::default() });
    for _ in 0..3 {
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], MS).unwrap()).dgid(), gid(1));
    }
    assert_eq!((net.multicasts, ways(&mut net)), (0, [0, 0, 1]));
}

#[test]
fn names_and_own_addresses_are_not_looked_for() {
    let mut net = net(2, &Config { loopback_local: false, ..config() });
    let name = Entry::address(EP_FLAG_DEST, client::TYPE_NAME, b"node-1");
    let reply = net.ask(0, &[from(0), name], 3 * WAIT + MS).expect("in time");
    assert_eq!(status(&reply), Status::Etimedout as u8);
    assert_eq!(path(&net.ask(0, &[from(0), to(0)], 3 * WAIT).unwrap()).dgid(), gid(0));
    assert_eq!(net.hosts[0].looked, []);
}

#[test]
fn without_repeats_there_is_a_last_look() {
    let mut net = net(3, &Config { retries: 0, ..config() });
    net.hosts[0].neighbours.remove(&ip(2));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], WAIT + 10 * MS).unwrap()).dgid(), gid(1));
    let reply = net.ask(0, &[from(0), to(2)], WAIT + 10 * MS).expect("no later than without");
    assert_eq!(status(&reply), Status::Etimedout as u8);
    // one that the kernel is slow to find out about
    net.hosts[0].neighbours.insert(ip(2), (10 * S, gid(2)));
    let reply = net.ask(0, &[from(0), to(2)], WAIT + 110 * MS).expect("hardly later");
    assert_eq!(status(&reply), Status::Etimedout as u8);
}

#[test]
fn a_slow_kernel_costs_nothing_beyond_the_repeats() {
    let mut net = net(2, &config());
    net.hosts[0].neighbours.insert(ip(1), (100 * S, gid(1)));
    let reply = net.ask(0, &[from(0), to(1)], 3 * WAIT + MS).expect("in time");
    assert_eq!((status(&reply), net.multicasts), (Status::Etimedout as u8, 3));
    // its answer to an old question is none to a new one
    net.hosts[0].neighbours.clear();
    net.start(0, &[from(0), to(1)]);
    net.run(100 * S);
    assert_eq!(ways(&mut net), [0, 0, 0]);
}

#[test]
fn where_there_is_no_multicast_at_all_neighbours_are_found() {
    // the SA is silent about the group, then refuses it; it knows paths
    for refused in [false, true] {
        let mut net = Net::quiet(2, &config());
        net.hosts[1].dead = true;
        net.hosts[0].neighbours.insert(ip(1), (MS, gid(1)));
        net.sa = if refused { Sa::Status(0x0200) } else { Sa::Silent };
        net.run(10 * MS);
        // who is no neighbour
        let nobody = net.start(0, &[from(0), to(9)]);
        if refused {
            net.run(MS);
            assert_eq!(status(&net.hosts[0].replies.remove(&nobody).unwrap()), Status::Enodata as u8);
            let reply = net.ask(0, &[from(0), to(1)], 10 * MS).expect("at once");
            assert_eq!(status(&reply), Status::Einval as u8, "the SA's word");
        }
        net.sa = Sa::Answers;
        let id = net.start(0, &[from(0), to(1)]);
        net.run(if refused { 10 * MS } else { WAIT + 10 * MS });
        assert_eq!(net.multicasts, 0, "nothing can be asked");
        assert_eq!(path(&net.hosts[0].replies.remove(&id).expect("by its neighbour")).dgid(), gid(1));
        assert_eq!(ways(&mut net), [1, 0, 0]);
        if !refused {
            net.sa = Sa::Silent;
            net.run(3 * WAIT);
            assert_eq!(status(&net.hosts[0].replies.remove(&nobody).unwrap()), Status::Etimedout as u8);
        }
    }
}

#[test]
fn a_silent_sa_ends_it_like_any_other() {
    let mut net = net(2, &config());
    let id = net.start(0, &[from(0), to(1)]);
    net.run(WAIT - 10);
    net.sa = Sa::Silent;
    net.run(4 * WAIT);
    assert_eq!(status(&net.hosts[0].replies.remove(&id).unwrap()), Status::Etimedout as u8);
    net.sa = Sa::Answers;
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], WAIT + 10 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn a_peer_that_starts_its_service_replaces_what_was_found() {
    let mut net = net(3, &config());
    net.hosts[0].neighbours.insert(ip(1), (MS, gid(2)));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], WAIT + 10 * MS).unwrap()).dgid(), gid(2));
    net.hosts[1].dead = false;
    net.run(10 * MS);
    // it asks for us: it says where it is, and gets its answer
    let p = path(&net.ask(1, &[from(1), to(0)], 10 * MS).expect("an answer"));
    assert_eq!(p.dgid(), gid(0));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).expect("known")).dgid(), gid(1));
}

#[test]
fn a_neighbour_that_changes_is_in_doubt() {
    let mut net = net(4, &config());
    let (port, key) = (gid(0), 0x7fff);
    for host in 1..4 {
        path(&net.ask(0, &[from(0), to(host)], WAIT + 10 * MS).unwrap());
    }
    let known = |net: &mut Net, host: usize| {
        let now = net.ask(0, &[from(0), to(host)], 0).is_some();
        net.run(WAIT + 10 * MS);
        now
    };
    let engine = |net: &mut Net, ip, gid| net.hosts[0].engine.neighbour_changed(port, key, ip, gid);
    engine(&mut net, ip(1), Some(gid(1)));
    net.hosts[0].engine.neighbour_changed(gid(9), key, ip(1), None);
    net.hosts[0].engine.neighbour_changed(port, 0x8001, ip(1), None);
    assert!(known(&mut net, 1), "the same; another port's; another partition's");
    engine(&mut net, ip(1), None);
    engine(&mut net, ip(2), Some(gid(3)));
    assert!(!known(&mut net, 1) && !known(&mut net, 2) && known(&mut net, 3));
    assert!(known(&mut net, 1) && known(&mut net, 2), "found again");
    // one who answers himself is not a matter of the kernel's
    net.hosts[3].dead = false;
    net.run(MS);
    path(&net.ask(3, &[from(3), to(0)], 10 * MS).unwrap());
    engine(&mut net, ip(3), None);
    assert!(known(&mut net, 3));
}

#[test]
fn a_port_that_goes_down_meanwhile_ends_everything() {
    let mut net = net(2, &config());
    net.hosts[0].neighbours.insert(ip(1), (S, gid(1)));
    let id = net.start(0, &[from(0), to(1)]);
    net.run(WAIT + 10 * MS);
    assert_eq!(net.hosts[0].looked.len(), 1);
    net.change_port(0, |p| p.active = false);
    net.run(10 * MS);
    assert_eq!(status(&net.hosts[0].replies.remove(&id).unwrap()), Status::Enotconn as u8);
    net.change_port(0, |p| p.active = true);
    net.run(5 * S);
    assert_eq!(ways(&mut net), [0, 0, 0], "an answer that comes too late");
    net.hosts[0].neighbours.insert(ip(1), (MS, gid(1)));
    assert!(net.ask(0, &[from(0), to(1)], WAIT + 10 * MS).is_some());
}

#[test]
fn thousands_that_are_nobody_s_end_in_time_and_leave_nothing() {
    let mut net = net(2, &Config { resolve_depth: 64, ..config() });
    let begin: Time = net.now;
    let ids: Vec<u64> = (0..3000).map(|i| net.start(0, &[from(0), to(1000 + i)])).collect();
    // nobody answers, so one goes out in a millisecond
    net.run(3 * WAIT + 10 * S);
    assert!(ids.iter().all(|id| net.hosts[0].replies.contains_key(id)));
    assert_eq!(net.hosts[0].looked.len(), 3000);
    assert!(net.hosts[0].looked.iter().all(|(at, _)| at.0 >= begin.0 + WAIT));
}
