//! What becomes of known paths when the SA has told something.

use super::notices::{PORT, SM, asked, came, gone, know_all, path_to, path_to_lid, subscribed, tell};
use super::sim::{MS, Net, S, Sa, US, gid, path, status};
use super::{from, to};
use crate::engine::{Config, RouteProt};
use ibacm_wire::client::{Entry, Status};
use ibacm_wire::notice::{Notice, TRAP_GID_OUT};
use ibacm_wire::{Gid, PathRecord};

#[test]
fn one_that_went_or_came_is_asked_for_again_and_nobody_else_is() {
    for notice in [gone, came] {
        let mut net = subscribed(20, &Config::default());
        know_all(&mut net);
        let multicasts = net.multicasts;
        tell(&mut net, SM, &notice(7));
        net.run(S);
        assert_eq!(asked(&mut net), [], "nothing is asked for that nobody wants");
        for host in (1..20).filter(|h| *h != 7) {
            for question in [&[from(0), to(host)][..], &[path_to(host)], &[path_to_lid(10 + host as u16)]] {
                assert!(net.ask(0, question, 0).is_some(), "from the cache");
            }
        }
        assert_eq!(asked(&mut net), []);
        let questions = [&[from(0), to(7)][..], &[path_to(7)], &[path_to_lid(17)]];
        for question in questions {
            assert!(net.ask(0, question, 0).is_none(), "it waits for the new answer");
        }
        assert_eq!(asked(&mut net), [gid(7), gid(7), Gid::ZERO]);
        for question in questions {
            assert!(net.ask(0, question, 0).is_some(), "the new answer is known");
        }
        assert_eq!((asked(&mut net), net.multicasts), (vec![], multicasts));
        assert_eq!(net.responded, [0]);
    }
}

#[test]
fn a_port_that_came_back_with_another_lid_is_found_there() {
    let mut net = subscribed(3, &Config::default());
    know_all(&mut net);
    net.hosts[1].port.lid = 99;
    let port = net.hosts[1].port.clone();
    net.hosts[1].engine.set_port(net.now, port);
    tell(&mut net, SM, &gone(1));
    tell(&mut net, SM, &came(1));
    net.run(S);
    for question in [&[from(0), to(1)][..], &[path_to(1)]] {
        assert_eq!(path(&net.ask(0, question, 5 * MS).expect("an answer")).dlid(), 99);
    }
}

#[test]
fn what_was_told_before_the_port_went_down_is_looked_at_in_its_time() {
    let mut net = subscribed(3, &Config { log_level: 1, route_prot: RouteProt::Acm, ..Config::default() });
    know_all(&mut net);
    let looks = |net: &Net| net.log.iter().filter(|(_, text)| text.contains("in doubt after notices")).count();
    tell(&mut net, SM, &gone(1));
    tell(&mut net, SM, &gone(2));
    net.run(0);
    assert_eq!(looks(&net), 1, "the second one is looked at later");
    net.change_port(0, |p| p.active = false);
    net.run(S);
    assert_eq!(looks(&net), 2);
}

#[test]
fn one_that_is_gone_stays_in_doubt_while_the_sa_is_silent() {
    let mut net = subscribed(2, &Config { timeout_ms: 100, retries: 0, ..Config::default() });
    know_all(&mut net);
    tell(&mut net, SM, &gone(1));
    net.sa = Sa::Silent;
    for question in [&[from(0), to(1)][..], &[path_to(1)]] {
        for _ in 0..3 {
            let reply = net.ask(0, question, 2 * S).expect("an error, in time");
            assert_eq!(status(&reply), Status::Etimedout as u8, "not the old path");
        }
    }
    net.sa = Sa::Answers;
    for question in [&[from(0), to(1)][..], &[path_to(1)]] {
        path(&net.ask(0, question, 5 * MS).expect("an answer"));
    }
}

#[test]
fn with_paths_from_groups_the_peer_is_asked() {
    let mut net = subscribed(3, &Config { route_prot: RouteProt::Acm, ..Config::default() });
    net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer");
    let multicasts = net.multicasts;
    net.hosts[1].port.lid = 99;
    tell(&mut net, SM, &came(1));
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer")).dlid(), 99);
    assert_eq!(net.multicasts, multicasts + 1);
}

#[test]
fn an_answer_that_may_be_older_than_the_news_is_asked_for_again() {
    let mut net = subscribed(3, &Config::default());
    net.sa_latency = 10 * MS;
    for question in [&[path_to(1)][..], &[path_to_lid(11)], &[from(0), to(1)]] {
        net.path_queries.clear();
        let (wanted, other) = (net.start(0, question), net.start(0, &[path_to(2)]));
        net.run(5 * MS);
        tell(&mut net, SM, &gone(1));
        net.run(5 * MS + US);
        assert!(!net.hosts[0].replies.contains_key(&wanted), "the answer that was under way is not given");
        net.run(50 * MS);
        for id in [wanted, other] {
            path(&net.hosts[0].replies[&id]);
        }
        let to_one = net.path_queries.iter().filter(|q| q.dgid() != gid(2)).count();
        assert_eq!(to_one, 2, "once more, and the other one not at all");
        tell(&mut net, SM, &gone(1));
        tell(&mut net, SM, &gone(2));
        net.run(S);
    }
}

#[test]
fn one_that_comes_and_goes_all_the_time_is_answered_in_bounded_time() {
    let mut net = subscribed(2, &Config::default());
    net.sa_latency = 10 * MS;
    net.path_queries.clear();
    let id = net.start(0, &[path_to(1)]);
    for _ in 0..100 {
        net.run(MS);
        tell(&mut net, SM, &gone(1));
        tell(&mut net, SM, &came(1));
    }
    path(&net.hosts[0].replies[&id]);
    assert_eq!(net.path_queries.len(), 3);
    // And what was given in the end is not taken for known.
    assert!(net.ask(0, &[path_to(1)], 0).is_none());
}

#[test]
fn a_remembered_failure_ends_when_the_gid_comes() {
    let mut net = subscribed(2, &Config { negative_cache_ms: 60_000, ..Config::default() });
    net.sa = Sa::Status(0x0300);
    net.ask(0, &[path_to(1)], 5 * MS).expect("an error");
    net.sa = Sa::Answers;
    assert_eq!(status(&net.ask(0, &[path_to(1)], 5 * MS).expect("at once")), Status::Enodata as u8);
    tell(&mut net, SM, &came(1));
    path(&net.ask(0, &[path_to(1)], 5 * MS).expect("an answer"));
}

/// Counts what the SA is asked in each second while every host is asked for again and again.
fn busiest_second(net: &mut Net, seconds: u64) -> usize {
    (0..seconds)
        .map(|_| {
            net.path_queries.clear();
            for host in 1..net.hosts.len() {
                assert!(net.ask(0, &[path_to(host)], 0).is_some(), "nobody waits");
            }
            net.run(S);
            net.path_queries.len()
        })
        .max()
        .unwrap_or(0)
}

#[test]
fn changed_routes_are_checked_once_when_used_and_never_together() {
    let mut net = subscribed(60, &Config::default());
    for host in 1..60 {
        path(&net.ask(0, &[path_to(host)], 5 * MS).expect("an answer"));
    }
    for _ in 0..100 {
        tell(&mut net, SM, &Notice::about_links(3));
    }
    net.path_queries.clear();
    net.run(700 * S);
    assert!(net.path_queries.is_empty(), "what nobody uses is not asked for");
    // Every path is due; they are looked at one after another.
    net.hosts[5].port.lid = 999;
    let most = busiest_second(&mut net, 1);
    assert!((1..=16).contains(&most), "{most} questions at once");
    busiest_second(&mut net, 200);
    assert_eq!(path(&net.ask(0, &[path_to(5)], 0).expect("known")).dlid(), 999);
    assert_eq!(busiest_second(&mut net, 100), 0, "all are checked");
    // While they are in use.
    tell(&mut net, SM, &Notice::about_links(3));
    net.ask(0, &[path_to(1)], 700 * MS).expect("known");
    assert!(net.path_queries.is_empty(), "the subnet manager has not decided yet");
    let (mut all, mut most) = (0, 0);
    for _ in 0..15 {
        let n = busiest_second(&mut net, 1);
        (all, most) = (all + n, most.max(n));
    }
    assert_eq!(all, 59, "each once, none twice");
    assert!(most <= 20, "{most} in one second");
    assert_eq!(busiest_second(&mut net, 700), 0, "all are checked");
}

#[test]
fn where_hosts_know_many_others_routes_are_checked_slowly() {
    let mut net = subscribed(2, &Config { max_destinations: 65_536, ..Config::default() });
    let question = |service: u64| {
        let mut question = PathRecord::default();
        question.set_dgid(gid(1));
        question.set_service_id(service);
        Entry::path(0, &question)
    };
    for service in 1..=600 {
        path(&net.ask(0, &[question(service)], 5 * MS).expect("an answer"));
    }
    tell(&mut net, SM, &Notice::about_links(3));
    net.path_queries.clear();
    let mut each = Vec::new();
    for _ in 0..700 {
        let before = net.path_queries.len();
        for service in 1..=600 {
            net.ask(0, &[question(service)], 0).expect("nobody waits");
        }
        net.run(S);
        each.push(net.path_queries.len() - before);
    }
    assert_eq!(each[..58].iter().sum::<usize>(), 0, "the subnet manager has not decided yet");
    assert_eq!(each.iter().sum::<usize>(), 600, "each once, none twice");
    assert!(each.iter().all(|n| *n <= 8), "{each:?}");
}

#[test]
fn a_check_without_an_answer_changes_nothing_and_a_refusal_puts_in_doubt() {
    let mut net = subscribed(2, &Config::default());
    know_all(&mut net);
    net.sa = Sa::Silent;
    tell(&mut net, SM, &Notice::about_links(3));
    assert!(busiest_second(&mut net, 900) <= 1);
    net.sa = Sa::Status(0x0300);
    for _ in 0..700 {
        net.ask(0, &[path_to(1)], S).expect("an answer");
    }
    net.sa = Sa::Silent;
    assert!(net.ask(0, &[path_to(1)], 0).is_none(), "the SA says that there is no path");
}

#[test]
fn news_that_was_missed_is_made_up_for() {
    let mut net = subscribed(20, &Config::default());
    know_all(&mut net);
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(10 * S);
    net.path_queries.clear();
    net.hosts[3].port.lid = 555;
    assert!(busiest_second(&mut net, 15) <= 16, "one after another");
    assert_eq!(path(&net.ask(0, &[path_to(3)], 0).expect("known")).dlid(), 555);
}

#[test]
fn a_flood_costs_little_and_what_it_told_is_not_lost() {
    let mut net = subscribed(3, &Config { max_destinations: 65_536, timeout_ms: 100, retries: 0, ..Config::default() });
    know_all(&mut net);
    // A full table: names of hosts that are not there fail and go, so paths to LIDs of one port fill it.
    let mut question = PathRecord::default();
    question.set_dgid(gid(2));
    for service in 1..=20_000u64 {
        question.set_service_id(service);
        net.start(0, &[Entry::path(0, &question)]);
        if service % 64 == 0 {
            net.run(5 * MS);
        }
    }
    net.run(5 * S);
    net.path_queries.clear();
    let begin = std::time::Instant::now();
    let mut other = gid(1);
    for n in 0..100_000u64 {
        other.0[..8].copy_from_slice(&n.to_be_bytes());
        tell(&mut net, SM, &Notice::about_gid(TRAP_GID_OUT, SM, other));
        if n % 1000 == 999 {
            net.run(S / 100);
        }
        if n == 50_000 {
            tell(&mut net, SM, &gone(1));
        }
    }
    let took = begin.elapsed();
    net.run(S);
    assert_eq!(net.responded.len(), 100_001);
    assert!(took.as_secs() < 20, "{took:?}");
    assert!(net.path_queries.is_empty());
    assert!(net.ask(0, &[path_to(1)], 0).is_none());
    let queries = asked(&mut net).len();
    assert_eq!(queries, 1);
}
