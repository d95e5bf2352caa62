//! Which groups hosts are in, and which of them two hosts find: for every pair of ports there can be.

use super::*;
use crate::engine::RouteProt;
use ibacm_wire::datagram::PEER_MAX_GIDS;

/// What hosts with `multicast_groups` may be in a subnet with the others.
const COUNTS: [usize; 4] = [1, 2, 6, 16];

fn config(min: Class, groups: usize) -> Config {
    Config {
        route_prot: RouteProt::Acm,
        min_rate: min.rate,
        min_mtu: min.mtu,
        multicast_groups: groups,
        ..Config::default()
    }
}

const DEFAULT: Class = Class { rate: 3, mtu: 4 };
const LEAST: Class = Class { rate: 2, mtu: 1 };

fn class(gbps: u32, mtu: u8) -> Class {
    Class { rate: rates::rate_code(gbps).unwrap(), mtu }
}

/// Every class that a port can have which can be in the first group.
fn ports(min: Class) -> Vec<Class> {
    standing().filter(|c| c.can(min)).collect()
}

/// A host's groups, the worst first, and those of them that its requests name.
#[derive(Debug)]
struct Host {
    own: Class,
    joined: Vec<Class>,
    named: Vec<Class>,
}

fn host(min: Class, own: Class, groups: usize) -> Host {
    let rungs = ladder(&config(min, groups), own);
    let named = rungs.iter().filter(|r| usize::from(r.standing) < PEER_MAX_GIDS).map(|r| r.class).collect();
    Host { own, joined: rungs.iter().map(|r| r.class).collect(), named }
}

/// What a responder answers: the last of the request's list that it is in.
fn found(asker: &Host, responder: &Host) -> Class {
    *asker.named.iter().rfind(|c| responder.joined.contains(c)).expect("all are in the first group")
}

/// The best group that both are in.
fn best(a: &Host, b: &Host) -> Class {
    *a.joined.iter().filter(|c| b.joined.contains(c)).max_by(|x, y| x.order(y)).expect("all are in the first group")
}

/// What both ports can do.
fn limit(a: &Host, b: &Host) -> Class {
    let slower = if a.own.order(&b.own).is_lt() { a.own.rate } else { b.own.rate };
    Class { rate: slower, mtu: a.own.mtu.min(b.own.mtu) }
}

/// All pairs of hosts with all ports and all these numbers of groups.
fn pairs(counts: &[usize], min: Class, mut check: impl FnMut((usize, &Host), (usize, &Host))) {
    let all = |n: usize| ports(min).into_iter().map(move |own| (n, host(min, own, n)));
    let hosts: Vec<(usize, Host)> = counts.iter().flat_map(|n| all(*n)).collect();
    for (n, a) in &hosts {
        hosts.iter().for_each(|(m, b)| check((*n, a), (*m, b)));
    }
}

#[test]
fn every_class_there_is_stands_once() {
    let all: Vec<Class> = standing().collect();
    assert_eq!(all.len(), 23 * 5);
    let mut codes: Vec<u8> = all.iter().map(|c| c.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), all.len());
}

#[test]
fn two_groups_are_the_first_and_the_own_one_whatever_the_port() {
    for own in standing() {
        let classes = |n| ladder(&config(DEFAULT, n), own).iter().map(|r| (r.class, r.standing)).collect::<Vec<_>>();
        let two = if own == DEFAULT { vec![(DEFAULT, 0)] } else { vec![(DEFAULT, 0), (own, 1)] };
        assert_eq!(classes(2), two);
        assert_eq!(classes(1), two[..1]);
        if !own.can(DEFAULT) {
            assert_eq!(classes(16), two, "nothing between them");
        }
        let sa = Config { route_prot: RouteProt::Sa, ..config(DEFAULT, 16) };
        assert_eq!(ladder(&sa, own).len(), 1);
    }
    let unknown = Class { rate: 0, mtu: 0 };
    assert_eq!(ladder(&config(DEFAULT, 16), unknown).len(), 2);
}

#[test]
fn a_ladder_goes_from_the_first_group_to_the_own_one() {
    for min in [DEFAULT, LEAST] {
        for own in ports(min) {
            for n in 2..=16 {
                let rungs = ladder(&config(min, n), own);
                let classes: Vec<Class> = rungs.iter().map(|r| r.class).collect();
                assert!(rungs.len() <= n && classes.first() == Some(&min) && classes.last() == Some(&own));
                assert!(rungs.is_sorted_by(|a, b| a.class.order(&b.class).is_lt()), "{rungs:?}");
                assert!(classes.iter().all(|c| own.can(*c) && c.can(min)), "{rungs:?}");
                let more = ladder(&config(min, n + 1), own);
                assert!(rungs.iter().all(|r| more.contains(r)), "who is in more is in these too");
            }
        }
    }
}

#[test]
fn with_up_to_six_groups_each_finds_the_best_that_both_are_in() {
    for min in [DEFAULT, LEAST] {
        pairs(&[1, 2, 3, 6], min, |(n, a), (m, b)| {
            assert_eq!(found(a, b), best(a, b), "{n} {:?}, {m} {:?}", a.own, b.own);
            assert_eq!(found(b, a), best(a, b), "{n} {:?}, {m} {:?}", a.own, b.own);
        });
    }
}

#[test]
fn with_more_it_is_never_less_and_what_an_asker_names_is_found() {
    for min in [DEFAULT, LEAST] {
        let hosts: Vec<_> = ports(min).into_iter().map(|own| COUNTS.map(|n| host(min, own, n))).collect();
        for (one, two) in hosts.iter().flat_map(|a| hosts.iter().map(move |b| (a, b))) {
            let all = one.each_ref().map(|a| two.each_ref().map(|b| check(a, b)));
            let never_less = |of: &[Class]| of.is_sorted_by(|x, y| x.order(y).is_le());
            for i in 0..COUNTS.len() {
                assert!(never_less(&all[i]) && never_less(&all.map(|row| row[i])), "{:?} {:?}", one[i], two[i]);
            }
        }
    }
}

fn check(asker: &Host, responder: &Host) -> Class {
    let (found, best) = (found(asker, responder), best(asker, responder));
    assert!(!found.order(&best).is_gt());
    if asker.named.contains(&best) {
        assert_eq!(found, best);
    }
    if asker.joined.contains(&asker.own) && responder.joined.contains(&asker.own) {
        assert_eq!(found, limit(asker, responder), "the own class is always named");
    }
    found
}

#[test]
fn ports_that_fabrics_are_made_of_find_what_both_can_do() {
    for mtu in USUAL_MTUS {
        let rates = [40, 56, 100, 200, 400];
        let min = Class { mtu, ..DEFAULT };
        for (first, groups) in [(DEFAULT, 6), (min, 6), (DEFAULT, 16), (min, 16)] {
            for (a, b) in rates.iter().flat_map(|a| rates.map(|b| (*a, b))) {
                let (one, two) = (host(first, class(a, mtu), groups), host(first, class(b, mtu), groups));
                assert_eq!(found(&one, &two), class(a.min(b), mtu), "{a} asks {b}");
                // and a slower one that is in no more groups than it always was
                let classic = host(first, class(b, mtu), 2);
                if b <= a {
                    assert_eq!((found(&one, &classic), found(&classic, &one)), (class(b, mtu), class(b, mtu)));
                } else {
                    assert_eq!(found(&one, &classic), best(&one, &classic));
                }
            }
        }
    }
}

/// How many pairs, of all there are with ports of these MTUs, find what both ports can do.
fn share(groups: usize, mtus: &[u8]) -> usize {
    let (mut all, mut good) = (0, 0);
    pairs(&[groups], DEFAULT, |(_, a), (_, b)| {
        if mtus.contains(&a.own.mtu) && mtus.contains(&b.own.mtu) {
            all += 1;
            good += usize::from(found(a, b) == limit(a, b));
        }
    });
    100 * good / all
}

#[test]
fn more_groups_find_more() {
    let one_mtu: Vec<usize> = [2, 6, 16].into_iter().map(|n| share(n, &[5])).collect();
    let two: Vec<usize> = [2, 6, 16].into_iter().map(|n| share(n, &[4, 5])).collect();
    println!("one MTU {one_mtu:?} %, two {two:?} %");
    for shares in [one_mtu, two] {
        assert!(shares.is_sorted_by(|a, b| a + 10 <= *b), "{shares:?}");
    }
}
