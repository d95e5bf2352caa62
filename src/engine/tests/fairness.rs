//! Clients that ask for much, and what others notice of it.

use std::cell::Cell;

use super::sim::{MS, Net, S, US, gid, ip, nobody, path, status, to_ip};
use super::{from, to};
use crate::engine::Config;
use ibacm_wire::PathRecord;
use ibacm_wire::client::{Entry, Status};

/// The client that asks for much, and the one that asks one thing at a time.
const GREEDY: u64 = 1;
const MODEST: u64 = 2;
/// How exactly waits are measured.
const STEP: u64 = 10 * US;
/// Addresses that host 1 has: of these numbers of `nobody` the first half is for the one client.
const LIVE: u16 = 6000;

/// Host 0 asks, host 1 has many addresses.
fn net(depth: usize) -> Net {
    let config = Config { resolve_depth: depth, sa_depth: depth, send_depth: 64, ..Config::default() };
    let mut net = Net::new(2, &config);
    let mut ips: Vec<_> = (0..LIVE).map(nobody).collect();
    ips.push(ip(1));
    net.set_ips(1, &ips);
    net.ask(0, &[from(0), to(1)], 20 * MS).expect("an answer");
    (net.latency, net.sa_latency) = (50 * US, 200 * US);
    net
}

/// How long one waits for its answer, while `meanwhile` is called again and again.
fn latency(net: &mut Net, entries: &[Entry], meanwhile: &mut dyn FnMut(&mut Net)) -> u64 {
    let begun = net.now;
    let id = net.start_as(0, MODEST, entries);
    while !net.hosts[0].replies.contains_key(&id) {
        net.run(STEP);
        meanwhile(net);
        assert!(net.now.0 < begun.0 + S, "no answer");
    }
    path(&net.hosts[0].replies[&id]);
    net.now.0 - begun.0
}

/// The longest of many waits for unknown addresses, one after the other.
fn longest(net: &mut Net, addresses: std::ops::Range<u16>, meanwhile: &mut dyn FnMut(&mut Net)) -> u64 {
    let mut longest = 0;
    for number in addresses {
        longest = longest.max(latency(net, &[from(0), to_ip(nobody(number))], meanwhile));
        assert!(net.ask(0, &[from(0), to(1)], 0).is_some(), "what is known is answered at once");
        // so that turns of others come in between
        net.run(u64::from(number) * 37 % 400);
        meanwhile(net);
    }
    longest
}

/// Keeps so many requests for what `next` says under way.
fn keep_asking(many: usize, mut next: impl FnMut() -> Vec<Entry>) -> impl FnMut(&mut Net) {
    let mut open: Vec<u64> = Vec::new();
    move |net| {
        open.retain(|id| net.hosts[0].replies.remove(id).is_none());
        while open.len() < many {
            open.push(net.start_as(0, GREEDY, &next()));
        }
    }
}

#[test]
fn one_that_asks_for_many_live_hosts_costs_others_at_most_as_much_again() {
    for depth in [1, 4, 8] {
        let mut net = net(depth);
        let alone = longest(&mut net, 0..20, &mut |_| ());
        let number = Cell::new(LIVE / 2);
        let mut greedy = keep_asking(256, || {
            number.set(number.get() + 1);
            vec![from(0), to_ip(nobody(number.get().min(LIVE - 1)))]
        });
        greedy(&mut net);
        net.run(MS);
        let beside = longest(&mut net, 20..100, &mut greedy);
        assert!(number.get() < LIVE, "it did not run out");
        assert!(beside <= 2 * alone + 2 * STEP, "{beside} us beside it, {alone} us alone, depth {depth}");
    }
}

#[test]
fn one_that_asks_for_many_dead_hosts_does_not_hold_up_others() {
    for depth in [1, 2, 8, 64] {
        let mut net = net(depth);
        let alone = longest(&mut net, 0..20, &mut |_| ());
        for number in 0..8000 {
            net.start_as(0, GREEDY, &[from(0), to_ip(nobody(20_000 + number))]);
        }
        let beside = longest(&mut net, 20..100, &mut |_| ());
        // with one place there is none to leave free
        let youth = if depth == 1 { 1100 * US } else { 0 };
        assert!(beside <= 2 * (alone + STEP) + youth, "{beside} us beside it, {alone} us alone, depth {depth}");
    }
}

#[test]
fn one_that_asks_for_many_paths_costs_others_at_most_as_much_again() {
    for depth in [1, 4, 32] {
        let mut net = net(depth);
        let question = |client: u64, number: u64| {
            let mut question = PathRecord::default();
            question.set_dgid(gid(1));
            question.set_service_id(client << 32 | number);
            vec![Entry::path(0, &question)]
        };
        let mut number = 0;
        let mut modest = |net: &mut Net, meanwhile: &mut dyn FnMut(&mut Net)| {
            let times = (0..50).map(|i| {
                number += 1;
                net.run(i * 37 % 200);
                latency(net, &question(MODEST, number), meanwhile)
            });
            times.max().unwrap_or_default()
        };
        let alone = modest(&mut net, &mut |_| ());
        let asked = Cell::new(0);
        let mut greedy = keep_asking(4000, || {
            asked.set(asked.get() + 1);
            question(GREEDY, asked.get())
        });
        greedy(&mut net);
        let beside = modest(&mut net, &mut greedy);
        assert!(asked.get() > 4000);
        assert!(beside <= 2 * alone + 2 * STEP, "{beside} us beside it, {alone} us alone, depth {depth}");
    }
}

#[test]
fn who_wants_what_a_greedy_one_waits_for_has_a_turn_of_its_own() {
    let mut net = net(1);
    for number in 0..3000 {
        net.start_as(0, GREEDY, &[from(0), to_ip(nobody(number))]);
    }
    let took = latency(&mut net, &[from(0), to_ip(nobody(2999))], &mut |_| ());
    assert!(took < 2 * MS, "{took} us");
}

#[test]
fn one_that_has_thousands_open_is_refused_and_others_are_not() {
    let mut net = net(8);
    let asked: Vec<u64> = (0..20_000).map(|n| net.start_as(0, GREEDY, &[from(0), to_ip(nobody(20_000 + n))])).collect();
    let refused = |net: &Net, id: &u64| net.hosts[0].replies.get(id).is_some_and(|r| status(r) == Status::Enomem as u8);
    let many = asked.iter().filter(|id| refused(&net, id)).count();
    assert_eq!(many, 20_000 - crate::arp::MAX_OPEN / 2);
    longest(&mut net, 0..10, &mut |_| ());
}

#[test]
fn those_who_ask_and_leave_do_not_add_up() {
    let mut net = net(1);
    for client in 0..40_000 {
        net.start_as(0, 1000 + client, &[from(0), to_ip(nobody(20_000 + client as u16))]);
        net.leave(0, 1000 + client);
    }
    let pending = net.hosts[0].engine.eps[0].pending.len();
    assert!(pending < 2000, "{pending} look-ups that nobody waits for");
    let took = longest(&mut net, 0..20, &mut |_| ());
    // one place, which what is dead holds for a moment
    assert!(took < 2500, "{took} us");
    net.run(60 * S);
    assert!(net.hosts[0].engine.eps[0].pending.is_empty() && net.hosts[0].engine.eps[0].arp.is_empty());
}

#[test]
fn questions_that_a_client_leaves_behind_are_not_asked() {
    let mut net = net(1);
    let before = net.path_queries.len();
    for _ in 0..100 {
        let mut question = PathRecord::default();
        question.set_dgid(gid(1));
        net.start_as(0, GREEDY, &[Entry::path(ibacm_wire::client::FLAG_QUERY_SA, &question)]);
    }
    net.leave(0, GREEDY);
    net.run(S);
    assert_eq!(net.path_queries.len() - before, 1, "the one that was on its way");
}
