//! Options that change while the service runs.

use super::sim::{MS, Net, S, Sa, US, gid, path, status};
use super::{from, to};
use crate::engine::{Config, RouteProt};
use ibacm_wire::PathRecord;
use ibacm_wire::client::{Entry, Status};

fn change(net: &mut Net, host: usize, config: &Config) {
    net.hosts[host].engine.set_config(net.now, config.clone());
    net.run(10 * MS);
}

#[test]
fn what_is_known_stays_where_the_change_has_nothing_to_do_with_it() {
    let mut net = Net::new(3, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let before = (net.multicasts, net.path_queries.len(), net.joins);
    let limits =
        Config { timeout_ms: 7, retries: 0, resolve_depth: 9, sa_depth: 9, send_depth: 9, ..Config::default() };
    change(&mut net, 0, &limits);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()).dgid(), gid(1));
    assert_eq!((net.multicasts, net.path_queries.len(), net.joins), before);
    // The new limits hold for what is asked from now on: 7 ms and the subnet's 1024.
    let id = net.start(0, &[from(0), to(7)]);
    net.run(1031 * MS - 1);
    assert!(!net.hosts[0].replies.contains_key(&id));
    net.run(2);
    assert_eq!(status(&net.hosts[0].replies[&id]), Status::Etimedout as u8);
}

#[test]
fn a_request_that_is_under_way_is_still_answered() {
    let mut net = Net::new(2, &Config::default());
    net.latency = 100 * MS;
    let id = net.start(0, &[from(0), to(1)]);
    net.run(MS);
    change(&mut net, 0, &Config { timeout_ms: 1, retries: 0, route_prot: RouteProt::Acm, ..Config::default() });
    net.run(S);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
}

#[test]
fn groups_are_joined_anew_when_they_are_others() {
    let mut net = Net::new(2, &Config::default());
    assert_eq!((net.hosts[0].engine.summary(), net.joins), ((1, 1, 1), 2));
    let acm = Config { route_prot: RouteProt::Acm, ..Config::default() };
    for host in 0..2 {
        change(&mut net, host, &acm);
        assert_eq!(net.hosts[host].engine.summary(), (1, 2, 2));
    }
    assert_eq!(net.joins, 6);
    let p = path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap());
    assert_eq!((p.mtu(), p.rate(), net.path_queries.len()), (0x85, 0x87, 0), "from the group");
    // The first group is another one: who stays in the old one is not heard.
    let smaller = Config { min_mtu: 3, ..Config::default() };
    change(&mut net, 0, &smaller);
    assert_eq!(net.hosts[0].engine.summary(), (1, 1, 1));
    let mut apart = Net::new(2, &Config::default());
    change(&mut apart, 0, &smaller);
    assert!(apart.ask(0, &[from(0), to(1)], 100 * MS).is_none());
    change(&mut apart, 1, &smaller);
    apart.run(10 * S);
    assert_eq!(path(&apart.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn a_second_group_becomes_the_first() {
    let mut net = Net::new(2, &Config { route_prot: RouteProt::Acm, ..Config::default() });
    // The port's own rate and MTU: the group is joined already, but not attached to.
    let own = Config { min_mtu: 5, min_rate: 7, ..Config::default() };
    for host in 0..2 {
        change(&mut net, host, &own);
        assert_eq!(net.hosts[host].engine.summary(), (1, 1, 1));
    }
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn paths_that_come_from_elsewhere_now_are_asked_for_again() {
    let mut net = Net::new(2, &Config { route_prot: RouteProt::Acm, ..Config::default() });
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    assert!(net.path_queries.is_empty());
    let multicasts = net.multicasts;
    change(&mut net, 0, &Config::default());
    let p = path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap());
    assert_eq!((p.dgid(), net.path_queries.len()), (gid(1), 1), "the SA's word");
    assert_eq!(net.multicasts, multicasts, "the address was known");
}

#[test]
fn own_addresses_follow_loopback_prot() {
    let mut net = Net::new(1, &Config::default());
    change(&mut net, 0, &Config { loopback_local: false, ..Config::default() });
    net.ask(0, &[from(0), to(0)], 5 * MS).unwrap();
    assert_eq!(net.path_queries.len(), 1);
    change(&mut net, 0, &Config::default());
    let p = path(&net.ask(0, &[from(0), to(0)], 0).unwrap());
    assert_eq!((p.dgid(), p.mtu(), net.path_queries.len()), (gid(0), 5, 1));
}

#[test]
fn fewer_destinations_are_remembered() {
    let mut net = Net::new(40, &Config::default());
    for host in 1..40 {
        net.ask(0, &[from(0), to(host)], 5 * MS).unwrap();
    }
    change(&mut net, 0, &Config { max_destinations: 16, ..Config::default() });
    let before = net.multicasts;
    for host in 24..40 {
        assert!(net.ask(0, &[from(0), to(host)], 0).is_some(), "the latest stay");
    }
    assert_eq!(net.multicasts, before);
    assert!(net.ask(0, &[from(0), to(1)], 0).is_none());
}

#[test]
fn what_waits_to_be_asked_in_a_group_that_is_left_ends_in_time() {
    let config = Config { timeout_ms: 50, retries: 1, ..Config::default() };
    let mut net = Net::new(2, &config);
    // the second waits for the first one's turn to be over
    let ids = [net.start(0, &[from(0), to(8)]), net.start(0, &[from(0), to(9)])];
    net.sa = Sa::Silent;
    net.hosts[0].engine.set_config(net.now, Config { min_mtu: 3, ..config });
    net.run(5 * S);
    for id in ids {
        let reply = net.hosts[0].replies.get(&id).expect("an answer, although no group was joined again");
        assert_eq!(status(reply), Status::Etimedout as u8);
    }
}

#[test]
fn what_waits_to_be_asked_goes_out_in_the_new_group() {
    let config = Config { min_mtu: 3, ..Config::default() };
    let mut net = Net::new(2, &Config::default());
    change(&mut net, 1, &config);
    net.hosts[1].dead = true;
    let early = net.start(0, &[from(0), to(1)]);
    net.hosts[0].engine.set_config(net.now, config);
    net.run(US);
    net.hosts[1].dead = false;
    net.run(10 * MS);
    assert_eq!(path(&net.hosts[0].replies[&early]).dgid(), gid(1));
}

#[test]
fn fewer_questions_at_a_time_than_are_on_their_way_is_no_busy_loop() {
    let config = Config { sa_depth: 8, ..Config::default() };
    let mut net = Net::new(100, &config);
    net.sa_latency = MS;
    let joins = net.joins;
    for host in 1..100 {
        let mut question = PathRecord::default();
        question.set_dgid(gid(host));
        net.start(0, &[Entry::path(0, &question)]);
    }
    // 1, 2, 4 and 8 are asked, and the next 8 have no answer
    net.run(3500 * US);
    net.sa = Sa::Silent;
    net.run(2 * MS);
    assert_eq!((net.path_queries.len(), net.hosts[0].replies.len()), (23, 15));
    net.hosts[0].engine.set_config(net.now, Config { sa_depth: 1, ..config });
    net.hosts[0].engine.reregister(net.now, crate::engine::PortId(0));
    // `run` checks that no deadline stays in the past
    net.run(MS);
    assert_eq!(net.joins, joins + 1, "joins do not wait for paths");
}

#[test]
fn a_path_by_gid_is_found_although_the_endpoint_loses_its_last_address() {
    let mut net = Net::new(2, &Config::default());
    let mut question = PathRecord::default();
    question.set_dgid(gid(1));
    let by_gid = net.start(0, &[Entry::path(0, &question)]);
    let by_address = net.start(0, &[from(0), to(1)]);
    net.hosts[0].engine.set_names(Vec::new());
    net.set_ips(0, &[]);
    net.run(5 * MS);
    assert_eq!(path(&net.hosts[0].replies.remove(&by_gid).expect("an answer")).dgid(), gid(1));
    let refused = net.hosts[0].replies.remove(&by_address).expect("an answer");
    assert_eq!(status(&refused), Status::Enotconn as u8);
}

#[test]
fn a_path_by_gid_that_is_asked_for_without_an_endpoint_ends_with_the_port() {
    let mut net = Net::new(2, &Config::default());
    net.sa = Sa::Silent;
    let mut question = PathRecord::default();
    question.set_dgid(gid(1));
    let by_gid = net.start(0, &[Entry::path(0, &question)]);
    net.hosts[0].engine.set_names(Vec::new());
    net.set_ips(0, &[]);
    net.run(5 * MS);
    assert!(!net.hosts[0].replies.contains_key(&by_gid), "the SA may still answer");
    net.change_port(0, |p| p.active = false);
    net.run(MS);
    let reply = net.hosts[0].replies.remove(&by_gid).expect("nobody is left to answer it");
    assert_eq!(status(&reply), Status::Enotconn as u8);
}

#[test]
fn a_port_that_changes_all_the_time_keeps_nobody_waiting_beyond_the_limits() {
    let config = Config { timeout_ms: 300, retries: 1, ..Config::default() };
    let mut net = Net::new(2, &config);
    net.latency = 250 * MS;
    let mut question = PathRecord::default();
    question.set_dgid(gid(1));
    let id = net.start(0, &[Entry::path(0, &question)]);
    for n in 0..7 {
        // the answer comes, and is each time one to a question of another LID
        net.change_port(0, |p| p.lid = 100 + n);
        net.run(250 * MS);
    }
    assert!(net.hosts[0].replies.contains_key(&id), "twice 600 ms are over");
}
