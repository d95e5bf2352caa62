//! Addresses that nobody confirms after an outage.

use std::net::IpAddr;

use ibacm_wire::client::Status;

use super::outage::{KEPT, PROTS, WAIT, config, deaf, down, know, known, move_over, reregister};
use super::sim::{MS, Net, S, Sa, gid, ip, path, status};
use super::{from, to, to_name};
use crate::engine::{Config, RouteProt};

#[test]
fn the_gid_of_a_silent_peer_is_kept_if_the_sa_knows_it() {
    for (route_prot, addr_fallback) in PROTS.into_iter().flat_map(|p| [(p, true), (p, false)]) {
        let mut net = Net::new(2, &Config { addr_fallback, ..config(route_prot) });
        know(&mut net, 1..2);
        net.hosts[1].dead = true;
        // as often as it happens
        for _ in 0..3 {
            down(&mut net, |_| ());
            net.run(3 * S);
            for question in [[from(0), to(1)], [from(0), to_name(1)]] {
                let (multicasts, queries) = (net.multicasts, net.path_queries.len());
                let id = net.start(0, &question);
                net.run(WAIT);
                assert!(!net.hosts[0].replies.contains_key(&id), "not before the repetition");
                net.run(KEPT - WAIT);
                assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
                assert_eq!((net.multicasts, net.path_queries.len()), (multicasts + 2, queries + 1));
                net.run(10 * S);
                assert_eq!(known(&mut net, &question).dgid(), gid(1));
            }
        }
        // and is where it says when it says something again
        net.hosts[1].dead = false;
        net.change_port(1, |p| p.lid = 99);
        net.run(3 * S);
        assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer")).dlid(), 99);
    }
}

#[test]
fn without_repeats_silence_is_enough() {
    let mut net = Net::new(2, &Config { retries: 0, ..config(RouteProt::Sa) });
    know(&mut net, 1..2);
    net.hosts[1].dead = true;
    down(&mut net, |_| ());
    for question in [[from(0), to(1)], [from(0), to_name(1)]] {
        assert_eq!(path(&net.ask(0, &question, KEPT).expect("in time")).dgid(), gid(1));
    }
}

#[test]
fn without_a_group_what_is_known_has_to_do() {
    for refused in [true, false] {
        let mut net = Net::new(2, &config(RouteProt::Sa));
        know(&mut net, 1..2);
        net.change_port(0, |p| p.active = false);
        net.sa = if refused { Sa::Status(0x0200) } else { Sa::Silent };
        net.change_port(0, |p| p.active = true);
        net.run(10 * MS);
        net.sa = Sa::Answers;
        for question in [[from(0), to(1)], [from(0), to_name(1)]] {
            let reply = net.ask(0, &question, if refused { 5 * MS } else { KEPT }).expect("in time");
            assert_eq!(path(&reply).dgid(), gid(1));
        }
    }
}

#[test]
fn who_is_nowhere_ends_in_an_error_in_time() {
    for route_prot in PROTS {
        let mut net = Net::new(2, &config(route_prot));
        know(&mut net, 1..2);
        net.hosts[1].dead = true;
        net.hosts[1].port.gids = vec![gid(40)];
        net.hosts[1].port.lid = 40;
        down(&mut net, |_| ());
        for question in [[from(0), to(1)], [from(0), to_name(1)]] {
            let reply = net.ask(0, &question, 3 * WAIT + 10 * MS).expect("in time");
            assert_eq!(status(&reply), Status::Etimedout as u8);
        }
        // nothing is left of it
        let queries = net.path_queries.len();
        let reply = net.ask(0, &[from(0), to(1)], 3 * WAIT + 10 * MS).expect("in time");
        assert_eq!((status(&reply), net.path_queries.len()), (Status::Etimedout as u8, queries));
    }
}

#[test]
fn a_silent_sa_does_not_lose_what_is_known() {
    let mut net = Net::new(2, &config(RouteProt::Sa));
    know(&mut net, 1..2);
    net.hosts[1].dead = true;
    down(&mut net, |_| ());
    net.sa = Sa::Silent;
    let reply = net.ask(0, &[from(0), to_name(1)], KEPT + 3 * WAIT).expect("in time");
    assert_eq!(status(&reply), Status::Etimedout as u8);
    net.sa = Sa::Answers;
    assert_eq!(known(&mut net, &[from(0), to_name(1)]).dgid(), gid(1));
}

#[test]
fn an_answer_to_the_repetition_is_waited_for() {
    let mut net = Net::new(3, &config(RouteProt::Sa));
    know(&mut net, 1..2);
    down(&mut net, move_over);
    net.run(3 * S);
    // the first question is lost; who has the address has to ask for the way to the asker
    net.sa_latency = 20 * MS;
    for question in [[from(0), to(1)], [from(0), to_name(1)]] {
        net.hosts[2].dead = true;
        let id = net.start(0, &question);
        net.run(WAIT - MS);
        net.hosts[2].dead = false;
        net.run(KEPT - WAIT + MS);
        assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(2));
    }
}

#[test]
fn who_answers_late_is_believed_all_the_same() {
    // after an outage, and where there may have been one
    for (sure, begin, slow) in [(true, WAIT, 150 * MS), (false, 0, 150 * MS)] {
        let mut net = Net::new(3, &config(RouteProt::Sa));
        know(&mut net, 1..2);
        if sure {
            down(&mut net, move_over);
            net.run(3 * S);
        } else {
            deaf(&mut net, move_over);
            reregister(&mut net);
        }
        net.hosts[2].dead = sure;
        net.latency = slow / 2;
        let id = net.start(0, &[from(0), to_name(1)]);
        net.run(begin.saturating_sub(MS));
        net.hosts[2].dead = false;
        net.run(110 * MS);
        assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1), "nobody has answered yet");
        net.run(100 * MS);
        assert_eq!(known(&mut net, &[from(0), to_name(1)]).dgid(), gid(2));
    }
}

#[test]
fn a_neighbour_that_is_somebody_else_is_believed() {
    let mut net = Net::new(4, &config(RouteProt::Sa));
    know(&mut net, 1..3);
    net.hosts[1].dead = true;
    net.hosts[2].dead = true;
    let neighbours: [(IpAddr, _); 2] = [(ip(1), (MS, gid(3))), (ip(2), (MS, gid(40)))];
    net.hosts[0].neighbours.extend(neighbours);
    down(&mut net, |_| ());
    for (host, there) in [(1, gid(3)), (2, gid(2))] {
        let reply = net.ask(0, &[from(0), to(host)], KEPT).expect("in time");
        assert_eq!(path(&reply).dgid(), there, "the SA knows no other");
    }
    // a kernel that has not looked lately says what was known
    know(&mut net, 3..4);
    net.hosts[0].neighbours.insert(ip(3), (0, gid(3)));
    down(&mut net, |n| {
        n.set_ips(3, &[]);
        n.set_ips(1, &[ip(3)]);
    });
    let id = net.start(0, &[from(0), to(3)]);
    net.run(WAIT - MS);
    net.hosts[1].dead = false;
    net.run(KEPT - WAIT + MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(1));
}

#[test]
fn a_thousand_silent_ones_hold_up_nobody() {
    let (silent, all) = (1000, 1010);
    let mut net = Net::new(all + 1, &config(RouteProt::Sa));
    for host in 1..=all {
        net.ask(0, &[from(0), to(host)], MS).expect("an answer");
    }
    net.hosts[1..=silent].iter_mut().for_each(|h| h.dead = true);
    down(&mut net, |_| ());
    let ids: Vec<u64> = (1..=all).map(|host| net.start(0, &[from(0), to(host)])).collect();
    let answered = |net: &Net, ids: &[u64]| ids.iter().filter(|id| net.hosts[0].replies.contains_key(id)).count();
    net.run(1100 * MS);
    assert_eq!(answered(&net, &ids[silent..]), all - silent, "a millisecond of each");
    net.run(WAIT + S);
    assert_eq!(answered(&net, &ids), all);
    assert!(ids.iter().enumerate().all(|(i, id)| path(&net.hosts[0].replies[id]).dgid() == gid(i + 1)));
}
