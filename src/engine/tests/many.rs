//! Hosts with much of everything.

use std::time::{Duration, Instant};

use super::sim::{MS, Net, ip, nobody, status};
use super::{from, to};
use crate::engine::Config;

#[test]
fn tens_of_thousands_of_own_addresses_cost_little_each() {
    let mut net = Net::new(2, &Config::default());
    let mut all: Vec<_> = (0..40_000).map(nobody).collect();
    all.push(ip(0));
    let begin = Instant::now();
    net.set_ips(0, &all);
    // One goes, and everything else stays.
    all.remove(7);
    net.set_ips(0, &all);
    // Compared each with each, a minute would not do.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(status(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer")), 0);
}

#[test]
fn a_port_as_it_was_changes_nothing() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer");
    let (joins, queries) = (net.joins, net.path_queries.len());
    for _ in 0..10 {
        net.change_port(0, |_| ());
        net.run(MS);
    }
    assert_eq!(status(&net.ask(0, &[from(0), to(1)], 0).expect("it is known")), 0);
    assert_eq!((net.joins, net.path_queries.len()), (joins, queries));
}
