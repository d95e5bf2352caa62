//! Peers, SA and ports that do not do what they should.

use super::sim::{MS, Net, S, Sa, US, counted, gid, ip, ip_kind, nobody, path, status, to_ip};
use super::{from, octets, to};
use crate::engine::{Config, EpId, RouteProt, Rx};
use ibacm_wire::client::{Entry, FLAG_NODELAY, More, Status};
use ibacm_wire::datagram::{Datagram, Groups, Request, Response, group_gid};
use ibacm_wire::{Gid, PathRecord};

const EP: EpId = EpId(0);

#[test]
fn nobody_answers_within_the_time_that_the_options_give() {
    let mut net = Net::new(2, &Config::default());
    let id = net.start(0, &[from(0), to(7)]);
    net.run(3 * 3024 * MS - 1);
    assert!(net.hosts[0].replies.is_empty());
    net.run(2);
    assert_eq!(status(&net.hosts[0].replies[&id]), Status::Etimedout as u8);
    assert_eq!(net.multicasts, 3);
}

#[test]
fn a_dead_destination_delays_nobody() {
    let mut net = Net::new(9, &Config::default());
    let dead = net.start(0, &[from(0), to(200)]);
    let live: Vec<u64> = (1..9).map(|h| net.start(0, &[from(0), to(h)])).collect();
    net.run(10 * MS);
    assert!(live.iter().all(|id| net.hosts[0].replies.contains_key(id)));
    assert!(!net.hosts[0].replies.contains_key(&dead));
}

#[test]
fn failures_are_remembered_only_where_the_option_asks_for_it() {
    let mut net = Net::new(1, &Config { timeout_ms: 10, retries: 0, negative_cache_ms: 5000, ..Config::default() });
    net.ask(0, &[from(0), to(7)], 2 * S).unwrap();
    let quick = net.ask(0, &[from(0), to(7)], 0).expect("at once");
    assert_eq!(status(&quick), Status::Etimedout as u8);
    assert_eq!(net.multicasts, 1);
    net.run(5 * S);
    assert!(net.ask(0, &[from(0), to(7)], 0).is_none());
    assert_eq!(net.multicasts, 2);
}

#[test]
fn every_failure_of_the_sa_is_one_for_the_client_and_is_not_cached() {
    for (code, want) in [
        (0x000c, Status::Enodata),
        (0x0100, Status::Enomem),
        (0x0200, Status::Einval),
        (0x0300, Status::Enodata),
        (0x0500, Status::Edestaddr),
        (0x0600, Status::Einval),
        (0x0001, Status::Etimedout),
    ] {
        let mut net = Net::new(2, &Config::default());
        net.sa = Sa::Status(code);
        let reply = net.ask(0, &[from(0), to(1)], 10 * S).unwrap();
        assert_eq!(status(&reply), want as u8, "{code:#06x}");
        net.sa = Sa::Answers;
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1), "{code:#06x}");
    }
}

#[test]
fn look_ups_wait_for_the_join_and_paths_do_not() {
    let mut net = Net::quiet(2, &Config::default());
    net.sa = Sa::Silent;
    net.run(MS);
    let waiting = net.start(0, &[from(0), to(1)]);
    net.sa = Sa::Answers;
    let mut p = PathRecord::default();
    p.set_dlid(11);
    let asked = net.start(0, &[Entry::path(0, &p)]);
    net.run(9 * S);
    assert_eq!(status(&net.hosts[0].replies[&asked]), 0);
    assert_eq!(path(&net.hosts[0].replies[&waiting]).dgid(), gid(1), "the join was tried again");
}

#[test]
fn a_refused_join_answers_no_data_and_is_tried_again_ever_more_slowly() {
    let mut net = Net::quiet(2, &Config::default());
    net.sa = Sa::Status(0x0200);
    net.run(100 * MS);
    assert_eq!(status(&net.ask(0, &[from(0), to(1)], 0).unwrap()), Status::Enodata as u8);
    net.run(600 * S);
    assert!((2 * 8..2 * 25).contains(&net.joins), "{} joins in ten minutes", net.joins);
    net.sa = Sa::Answers;
    net.run(100 * S);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn a_failed_send_is_made_up_for() {
    let mut net = Net::new(3, &Config::default());
    net.fail_sends = 1;
    assert!(net.ask(0, &[from(0), to(1)], 20 * MS).is_some());
    assert!(net.ask(0, &[from(0), to(2)], 5 * MS).is_some());
}

#[test]
fn a_response_that_went_with_its_qp_does_not_hold_up_the_next() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 20 * MS).unwrap();
    let src_qp = net.hosts[0].qps[&EP];
    let asker = Rx { sgid: gid(0), dgid: group_gid(0xffff, 3, 4), slid: 10, src_qp, dlid_path_bits: 0 };
    let mut question = claim(&super::octets(ip(0)));
    question[24..88].fill(0);
    let wanted = super::octets(ip(1));
    question[24..][..wanted.len()].copy_from_slice(&wanted);
    // a host that is dead does not say what became of its sends
    net.hosts[1].dead = true;
    net.hosts[1].engine.datagram(net.now, EP, &asker, &question);
    net.run(MS);
    net.hosts[1].dead = false;
    net.hosts[1].qps.insert(EP, 0x999);
    net.hosts[1].engine.endpoint_opened(net.now, EP, 0x999);
    net.run(10 * MS);
    net.sent.clear();
    net.hosts[1].engine.datagram(net.now, EP, &asker, &question);
    net.run(MS);
    assert_eq!(net.sent.iter().map(|s| s.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn whoever_waits_for_a_host_is_served_when_that_host_asks_for_something() {
    let mut net = Net::new(3, &Config::default());
    net.hosts[1].dead = true;
    let id = net.start(0, &[from(0), to(1)]);
    net.run(10 * MS);
    net.hosts[1].dead = false;
    net.start(1, &[from(1), to(99)]);
    net.run(5 * MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
}

#[test]
fn look_ups_that_nobody_waits_for_do_not_crowd_out_those_that_somebody_does() {
    let mut net = Net::new(2, &Config::default());
    for number in 0..20_000 {
        let mut made_up = to_ip(nobody(number));
        made_up.flags |= FLAG_NODELAY;
        assert_eq!(status(&net.ask(0, &[from(0), made_up], 0).unwrap()), Status::Enodata as u8);
    }
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 2 * S).expect("its turn")).dgid(), gid(1));
}

fn rx(sgid: Gid, dgid: Gid) -> Rx {
    Rx { sgid, dgid, slid: 66, src_qp: 0x666, dlid_path_bits: 0 }
}

fn claim(addr: &[u8]) -> Vec<u8> {
    let mut src = [0; 64];
    src[..addr.len()].copy_from_slice(addr);
    let groups = Groups::new([group_gid(0xffff, 3, 4)]);
    let kind = ip_kind() as u8;
    Datagram::Request(Request { tid: 1, dest_type: kind, dest: [9; 64], src_type: kind, src, groups }).emit().to_vec()
}

#[test]
fn nobody_takes_an_own_address_away() {
    let mut net = Net::new(2, &Config { log_level: 1, ..Config::default() });
    let liar = rx(gid(5), group_gid(0xffff, 3, 4));
    let own = super::octets(ip(0));
    net.hosts[0].engine.datagram(net.now, EP, &liar, &claim(&own));
    assert_eq!(counted(&net, More::ClaimsRefused), 1);
    assert_eq!(path(&net.ask(0, &[from(0), to(0)], 0).unwrap()).dgid(), gid(0));
    net.run(MS);
    let said =
        |net: &Net| net.log.iter().filter(|(level, text)| *level == 1 && text.contains("says that it has")).count();
    assert_eq!(said(&net), 1, "{:?}", net.log);
    // who has another port of this host is no liar
    net.hosts[0].engine.datagram(net.now, EP, &rx(gid(0), group_gid(0xffff, 3, 4)), &claim(&own));
    net.run(MS);
    assert_eq!((said(&net), counted(&net, More::ClaimsRefused)), (1, 2));
}

#[test]
fn a_request_alone_does_not_take_a_known_address_away() {
    let mut net = Net::new(3, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let before = net.multicasts;
    let liar = rx(gid(2), group_gid(0xffff, 3, 4));
    let known = super::octets(ip(1));
    net.hosts[0].engine.datagram(net.now, EP, &liar, &claim(&known));
    net.run(5 * MS);
    assert_eq!(net.multicasts, before, "nobody wants the address now");
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
    assert_eq!(net.multicasts, before + 1, "the group is asked who has it");
}

#[test]
fn an_address_that_has_moved_is_followed() {
    let mut net = Net::new(3, &Config::default());
    net.hosts[2].dead = true;
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.hosts[2].dead = false;
    net.set_ips(1, &[ip(50)]);
    net.set_ips(2, &[ip(2), ip(1)]);
    assert_eq!(path(&net.ask(2, &[from(1), to(0)], 10 * MS).expect("a response to who has it now")).dgid(), gid(0));
    let before = net.multicasts;
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 0).unwrap()).dgid(), gid(2));
    assert_eq!(net.multicasts, before);
}

#[test]
fn responses_count_only_for_open_requests_offered_groups_and_unicast() {
    let mut net = Net::new(3, &Config { route_prot: RouteProt::Acm, ..Config::default() });
    net.hosts[1].dead = true;
    let id = net.start(0, &[from(0), to(1)]);
    net.run(10);
    let tid = net.sent.iter().rev().find_map(|(h, b)| match Datagram::parse(b) {
        Ok(Datagram::Request(r)) if *h == 0 => Some(r.tid),
        _ => None,
    });
    let tid = tid.unwrap();
    let group = group_gid(0xffff, 3, 4);
    let response = |tid, status, gids: &[Gid]| {
        Datagram::Response(Response { tid, status, groups: Groups::new(gids.iter().copied()) }).emit()
    };
    let now = net.now;
    let e = &mut net.hosts[0].engine;
    let unicast = rx(gid(2), gid(0));
    e.datagram(now, EP, &unicast, &response(tid ^ 1, 0, &[group]));
    e.datagram(now, EP, &unicast, &response(tid, 0, &[group_gid(0x8001, 3, 4)]));
    e.datagram(now, EP, &unicast, &response(tid, 0, &[]));
    e.datagram(now, EP, &unicast, &response(tid, 0, &[group, group]));
    e.datagram(now, EP, &unicast, &response(tid, 6, &[group]));
    e.datagram(now, EP, &rx(gid(2), group), &response(tid, 0, &[group]));
    e.datagram(now, EP, &rx(Gid::ZERO, gid(0)), &response(tid, 0, &[group]));
    e.datagram(now, EP, &Rx { slid: 0xc001, ..unicast }, &response(tid, 0, &[group]));
    assert_eq!((e.more()[More::DatagramsUnasked as usize], e.more()[More::DatagramsMalformed as usize]), (6, 2));
    net.run(MS);
    assert!(net.hosts[0].replies.is_empty());
    net.hosts[0].engine.datagram(net.now, EP, &unicast, &response(tid, 0, &[group]));
    net.run(MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(2));
    // the same answer once more is an answer to nothing
    net.hosts[0].engine.datagram(net.now, EP, &unicast, &response(tid, 0, &[group]));
    assert_eq!(counted(&net, More::DatagramsUnasked), 7);
}

#[test]
fn bursts_of_bad_datagrams_change_nothing() {
    let mut net = Net::new(2, &Config { max_destinations: 100, ..Config::default() });
    let good = claim(&[10, 9, 9, 9]);
    let stranger = rx(gid(9), group_gid(0xffff, 3, 4));
    for at in 0..256 {
        for value in [0, 0x7f, 0xff] {
            let mut b = good.clone();
            b[at] = value;
            net.hosts[0].engine.datagram(net.now, EP, &stranger, &b);
            net.hosts[0].engine.datagram(net.now, EP, &stranger, &b[..at]);
        }
    }
    for i in 0..10_000u32 {
        net.hosts[0].engine.datagram(net.now, EP, &stranger, &claim(&i.to_be_bytes()));
    }
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
    for _ in 0..1000 {
        net.hosts[0].engine.datagram(net.now, EP, &stranger, &claim(&[1, 2, 3, 4]));
    }
    let queries = net.path_queries.len();
    assert!(net.ask(0, &[from(0), to(1)], 0).is_some(), "what is in use stays");
    assert_eq!(net.path_queries.len(), queries);
}

#[test]
fn a_port_that_goes_down_answers_everybody_and_comes_back() {
    let mut net = Net::new(3, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.sa = Sa::Silent;
    let mut p = PathRecord::default();
    p.set_dlid(12);
    let mut ids: Vec<u64> = (0..5).map(|_| net.start(0, &[from(0), to(2)])).collect();
    ids.push(net.start(0, &[Entry::path(0, &p)]));
    ids.push(net.start(0, &[Entry::path(1 << 31, &p)]));
    net.run(MS);
    net.change_port(0, |p| p.active = false);
    net.run(0);
    for id in ids {
        assert_eq!(status(&net.hosts[0].replies[&id]), Status::Enotconn as u8);
    }
    assert_eq!(status(&net.ask(0, &[from(0), to(1)], 0).unwrap()), Status::Esrcaddr as u8);
    net.sa = Sa::Answers;
    net.change_port(0, |p| p.active = true);
    net.run(10 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
    assert_eq!(path(&net.ask(1, &[from(1), to(0)], 5 * MS).unwrap()).dgid(), gid(0));
}

#[test]
fn a_changed_lid_is_in_paths_asked_for_after_it() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.change_port(0, |p| p.lid = 99);
    net.run(10 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).slid(), 99);
    assert_eq!(path(&net.ask(0, &[from(0), to(0)], 0).unwrap()).dlid(), 99);
    assert_eq!(net.multicasts, 1, "the peer is where it was");
}

#[test]
fn partitions_that_go_or_move_take_only_their_own_with_them() {
    let mut net = Net::new(2, &Config::default());
    net.change_port(0, |p| p.pkeys = vec![0x8001, 0xffff]);
    net.run(10 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1), "the index has changed");
    net.change_port(0, |p| p.pkeys = vec![0x8001, 0]);
    net.run(10 * MS);
    assert_eq!(status(&net.ask(0, &[from(0), to(1)], 0).unwrap()), Status::Esrcaddr as u8);
    let port = crate::engine::PortId(0);
    net.hosts[0].engine.reregister(net.now, port);
    net.change_port(0, |p| p.pkeys = vec![0x8001, 0x7fff]);
    net.run(10 * MS);
    assert_eq!(net.hosts[0].engine.counters().len(), 7);
    assert_eq!(status(&net.ask(0, &[from(0), to(0)], 0).unwrap()), 0, "served as a limited member");
}

#[test]
fn a_new_subnet_manager_is_asked_again_and_groups_stay_usable() {
    let mut net = Net::new(2, &Config::default());
    net.sa = Sa::Silent;
    let id = net.start(0, &[from(0), to(1)]);
    net.run(MS);
    net.sa = Sa::Answers;
    net.change_port(0, |p| p.sm_lid = 77);
    net.change_port(1, |p| p.sm_lid = 77);
    net.run(5 * MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
    let joins = net.joins;
    net.hosts[0].engine.reregister(net.now, crate::engine::PortId(0));
    net.run(5 * MS);
    assert_eq!(net.joins, joins + 1);
    assert_eq!(net.multicasts, 1);
}

#[test]
fn questions_to_the_sa_follow_its_partition_in_the_table() {
    let mut net = Net::new(2, &Config::default());
    net.sa = Sa::Silent;
    let mut question = PathRecord::default();
    question.set_dgid(gid(1));
    let id = net.start(0, &[Entry::path(0, &question)]);
    net.run(MS);
    net.sa = Sa::Answers;
    net.change_port(0, |p| p.pkeys = vec![0x8001, 0xffff]);
    net.run(5 * MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1), "asked again, at once");
}

#[test]
fn made_up_destinations_do_not_grow_the_service() {
    let config = Config { max_destinations: 64, timeout_ms: 1, retries: 0, ..Config::default() };
    let mut net = Net::new(2, &config);
    let mut refused = 0;
    for i in 0..1000 {
        let id = net.start(0, &[from(0), to_ip(nobody(i))]);
        refused += usize::from(net.hosts[0].replies.get(&id).is_some_and(|r| r[2] == Status::Enomem as u8));
    }
    assert_eq!(refused, 1000 - 64);
    net.run(5 * S);
    assert_eq!(net.hosts[0].replies.len(), 1000);
    assert!(net.ask(0, &[from(0), to(1)], 5 * MS).is_some());
}

#[test]
fn what_clients_that_left_had_asked_for_is_not_kept() {
    let mut net = Net::new(2, &Config::default());
    net.hosts[1].dead = true;
    let stays = net.start(0, &[from(0), to(1)]);
    let mut most = 0;
    for _ in 0..20_000 {
        let id = net.start(0, &[from(0), to(1)]);
        let engine = &mut net.hosts[0].engine;
        engine.client_gone(crate::engine::ClientId(id));
        engine.client_gone(crate::engine::ClientId(id));
        most = most.max(engine.waiters.total());
    }
    assert!(most < 2000, "{most} waits are kept");
    net.run(10 * S);
    assert_eq!(net.hosts[0].replies.keys().collect::<Vec<_>>(), [&stays], "only who is still there is told");
    assert_eq!(net.hosts[0].engine.waiters.total(), 0);
}

#[test]
fn many_that_fail_together_are_told_in_shares() {
    let mut net = Net::new(1, &Config { timeout_ms: 100, retries: 0, ..Config::default() });
    net.sa = Sa::Silent;
    for i in 0..5000 {
        let mut question = PathRecord::default();
        question.set_dgid(gid(i));
        net.start(0, &[Entry::path(0, &question)]);
    }
    net.run(100 * MS - US);
    let engine = &mut net.hosts[0].engine;
    let due = engine.next_deadline();
    engine.on_time(due);
    assert_eq!(engine.next_deadline(), due, "there is more to do");
    net.run(5 * S);
    assert_eq!(net.hosts[0].replies.len(), 5000);
}

#[test]
fn a_claim_that_is_repeated_does_not_take_a_known_address_away_either() {
    for route_prot in [RouteProt::Sa, RouteProt::Acm] {
        let mut net = Net::new(3, &Config { route_prot, ..Config::default() });
        net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
        let ep = *net.hosts[0].qps.keys().next().unwrap();
        for _ in 0..5 {
            // host 2 says that it is host 1
            let claim = claim(&octets(ip(1)));
            let (now, from) = (net.now, rx(gid(2), gid(0)));
            net.hosts[0].engine.datagram(now, ep, &from, &claim);
            net.run(MS);
        }
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 10 * MS).unwrap()).dgid(), gid(1), "{route_prot:?}");
    }
}

#[test]
fn a_peer_that_changes_all_the_time_does_not_make_a_look_up_endless() {
    let mut net = Net::new(2, &Config::default());
    net.sa_latency = 500 * US;
    let id = net.start(0, &[from(0), to(1)]);
    let ep = *net.hosts[0].qps.keys().next().unwrap();
    for i in 0..2000 {
        net.run(100 * US);
        let (now, mut from) = (net.now, rx(gid(1), gid(0)));
        (from.src_qp, from.slid) = (0x900 + i % 2, 700 + (i % 3) as u16);
        net.hosts[0].engine.datagram(now, ep, &from, &claim(&octets(ip(1))));
    }
    assert!(net.hosts[0].replies.contains_key(&id), "an answer");
    assert!(net.path_queries.len() < 100, "{}", net.path_queries.len());
}
