//! What is in use is asked for again before it expires: nobody waits for it, and it costs little.

use ibacm_wire::PathRecord;
use ibacm_wire::client::Entry;

use super::sim::{MS, Net, S, Sa, gid, path};
use super::{from, to, to_name};
use crate::engine::{Config, RouteProt};

fn minute(route_prot: RouteProt) -> Config {
    Config { route_prot, addr_timeout: Some(1), ..Config::default() }
}

/// Asks every second for so many seconds, and is answered each time at once.
fn ask_all_the_time(net: &mut Net, question: &[Entry], seconds: u64) {
    for second in 0..seconds {
        assert!(net.ask(0, question, 0).is_some(), "a client waits after {second} seconds");
        net.run(S);
    }
}

/// Questions of host 0: to all, and for paths.
fn asked(net: &Net) -> [usize; 2] {
    let requests = net.sent.iter().filter(|(from, payload)| *from == 0 && payload[3] == 1).count();
    [requests, net.path_queries.iter().filter(|q| q.sgid() == gid(0)).count()]
}

/// Asks for the first so many peers, and is answered each time at once.
fn ask_each(net: &mut Net, peers: usize) {
    for peer in 1..=peers {
        let id = net.start(0, &[from(0), to(peer)]);
        assert!(net.hosts[0].replies.remove(&id).is_some(), "a client waits for {peer}");
    }
}

fn to_gid(host: usize) -> Entry {
    let mut question = PathRecord::default();
    question.set_dgid(gid(host));
    Entry::path(0, &question)
}

#[test]
fn who_asks_all_the_time_never_waits() {
    let by_address = vec![from(0), to(1)];
    for (what, config, question, [multicasts, paths]) in [
        ("address, SA", minute(RouteProt::Sa), by_address.clone(), [true, true]),
        ("name, SA", minute(RouteProt::Sa), vec![to_name(1)], [true, true]),
        ("address, group", minute(RouteProt::Acm), by_address.clone(), [true, false]),
        ("path", minute(RouteProt::Sa), vec![to_gid(1)], [false, true]),
        ("path, group", minute(RouteProt::Acm), vec![to_gid(1)], [false, true]),
        ("route alone", Config { route_timeout: Some(1), ..Config::default() }, by_address.clone(), [false, true]),
        (
            "both",
            Config { route_timeout: Some(1), addr_timeout: Some(2), ..Config::default() },
            by_address.clone(),
            [true, true],
        ),
    ] {
        let mut net = Net::new(2, &config);
        net.ask(0, &question, 5 * MS).expect("an answer");
        let before = asked(&net);
        ask_all_the_time(&mut net, &question, 3600);
        let now = asked(&net);
        for (i, expected) in [multicasts, paths].into_iter().enumerate() {
            let n = now[i] - before[i];
            let right = if expected { (29..=105).contains(&n) } else { n == 0 };
            assert!(right, "{what}: {n} questions in an hour");
        }
    }
}

#[test]
fn what_nobody_uses_expires() {
    let mut net = Net::new(2, &minute(RouteProt::Sa));
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    ask_all_the_time(&mut net, &[from(0), to(1)], 40);
    let before = (net.multicasts, net.path_queries.len());
    net.run(3600 * S);
    assert_eq!((net.multicasts, net.path_queries.len()), before);
    assert!(net.ask(0, &[from(0), to(1)], 0).is_none(), "it is asked for, and waited for");
}

#[test]
fn a_day_is_refreshed_in_its_last_hours() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    let before = asked(&net);
    let mut hours = Vec::new();
    for half in 0..(2 * 24 * 7) {
        assert!(net.ask(0, &[from(0), to(1)], 0).is_some());
        net.run(1800 * S);
        if asked(&net) != before.map(|n| n + hours.len()) {
            hours.push(half / 2);
        }
    }
    assert!((7..=8).contains(&hours.len()), "{hours:?}");
    assert!((20..=22).contains(&hours[0]), "{hours:?}");
}

#[test]
fn what_was_learned_together_is_not_asked_for_together() {
    let peers = 200;
    let mut net = Net::new(peers + 1, &minute(RouteProt::Sa));
    for peer in 1..=peers {
        net.start(0, &[from(0), to(peer)]);
    }
    net.run(S);
    let mut each = Vec::new();
    for _ in 0..59 * 2 {
        let before = net.multicasts;
        ask_each(&mut net, peers);
        net.run(500 * MS);
        each.push(net.multicasts - before);
    }
    let busy = each.iter().filter(|n| **n > 0).count();
    assert!(busy >= 8 && each.iter().all(|n| *n < peers / 4), "{each:?}");
    assert!((peers..peers + 10).contains(&each.iter().sum()), "{each:?}");
}

#[test]
fn a_peer_that_is_silent_is_asked_less_and_less_and_known_until_the_end() {
    for seconds in [60, 24 * 3600] {
        let config = Config { addr_timeout: Some(seconds as u32 / 60), ..Config::default() };
        let mut net = Net::new(2, &config);
        net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
        net.hosts[1].dead = true;
        let before = (net.multicasts, net.path_queries.len());
        for _ in 0..5999 {
            assert!(net.ask(0, &[from(0), to(1)], 0).is_some());
            net.run(seconds * S / 6000);
        }
        let asked = net.multicasts - before.0;
        assert!((2..=20).contains(&asked), "{asked} in {seconds} s");
        assert_eq!(net.path_queries.len(), before.1);
        net.run(seconds * S / 3000);
        assert!(net.ask(0, &[from(0), to(1)], 0).is_none(), "now it has expired");
    }
}

#[test]
fn few_questions_are_open_whoever_is_silent() {
    let peers = 200;
    let mut net = Net::new(peers + 1, &minute(RouteProt::Sa));
    for peer in 1..=peers {
        net.start(0, &[from(0), to(peer)]);
    }
    net.run(S);
    net.hosts[1..].iter_mut().for_each(|h| h.dead = true);
    let before = net.multicasts;
    for _ in 0..57 {
        ask_each(&mut net, peers);
        net.run(S);
    }
    // the last part is 10 s, a question is open for 3
    let asked = net.multicasts - before;
    assert!((8..=40).contains(&asked), "{asked}");
}

#[test]
fn a_peer_that_has_moved_is_found_where_it_is() {
    let mut net = Net::new(3, &minute(RouteProt::Sa));
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    // its address is another host's now, and it says nothing of that
    net.set_ips(1, &[]);
    net.set_ips(2, &[super::sim::ip(2), super::sim::ip(1)]);
    let mut last = gid(1);
    for _ in 0..62 {
        if let Some(reply) = net.ask(0, &[from(0), to(1)], 5 * MS) {
            last = path(&reply).dgid();
        }
        net.run(S);
    }
    assert_eq!(last, gid(2));
    assert!(net.ask(0, &[from(0), to(1)], 0).is_some());
}

#[test]
fn an_answer_of_the_sa_that_is_no_path_changes_nothing() {
    for sa in [Sa::Status(0x0300), Sa::Status(1), Sa::Silent] {
        let mut net = Net::new(2, &Config { route_timeout: Some(1), timeout_ms: 500, ..Config::default() });
        net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
        let before = net.path_queries.len();
        net.sa = sa;
        ask_all_the_time(&mut net, &[from(0), to(1)], 59);
        assert!(net.path_queries.len() > before, "it was asked");
        net.run(2 * S);
        assert!(net.ask(0, &[from(0), to(1)], 0).is_none(), "now it has expired");
    }
}

#[test]
fn nobody_who_waits_waits_for_a_refresh() {
    let mut net = Net::new(2, &Config { route_timeout: Some(1), ..Config::default() });
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.sa = Sa::Silent;
    let before = net.path_queries.len();
    while net.path_queries.len() == before {
        net.ask(0, &[from(0), to(1)], 0).expect("an answer");
        net.run(100 * MS);
    }
    // the question is on its way and stays there for seconds; there is one place for those of clients
    net.sa = Sa::Answers;
    assert!(net.ask(0, &[to_gid(1)], MS).is_some());
    // the same for addresses, of which none may be sent while others wait for their turn
    let mut net = Net::new(2, &Config { resolve_depth: 1, ..minute(RouteProt::Sa) });
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.run(51 * S);
    for stranger in 100..400 {
        net.start(0, &[from(0), to(stranger)]);
    }
    let before = net.sent.len();
    for _ in 0..80 {
        assert!(net.ask(0, &[from(0), to(1)], 0).is_some());
        net.run(MS);
    }
    let wanted: Vec<&[u8]> = net.sent[before..].iter().map(|(_, payload)| &payload[24..28]).collect();
    assert!((70..=90).contains(&wanted.len()), "one of the strangers in each millisecond");
    assert!(!wanted.contains(&[10, 0, 0, 1].as_slice()));
}

#[test]
fn a_port_that_goes_down_takes_its_questions_with_it() {
    let mut net = Net::new(2, &minute(RouteProt::Sa));
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.hosts[1].dead = true;
    ask_all_the_time(&mut net, &[from(0), to(1)], 54);
    net.change_port(0, |p| p.active = false);
    net.run(S);
    net.change_port(0, |p| p.active = true);
    net.hosts[1].dead = false;
    net.run(S);
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).unwrap()).dgid(), gid(1));
}

#[test]
fn own_addresses_that_are_asked_for_like_others_are_refreshed_too() {
    for route_prot in [RouteProt::Sa, RouteProt::Acm] {
        let mut net = Net::new(1, &Config { loopback_local: false, ..minute(route_prot) });
        net.ask(0, &[from(0), to(0)], 5 * MS).expect("an answer");
        ask_all_the_time(&mut net, &[from(0), to(0)], 300);
        assert_eq!(net.multicasts, 0);
    }
}
