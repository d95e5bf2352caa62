//! A thousand hosts in one process, in virtual time: the start of a job whose processes all connect to all others,
//! undisturbed, with datagrams lost, and with the subnet manager restarting in the middle.
//!
//! The figures are printed (`cargo test --test thousand_hosts -- --nocapture`), and explained in docs/scale.md.

#[path = "util/counting.rs"]
mod counting;
#[path = "thousand/net.rs"]
mod net;
#[path = "thousand/sa.rs"]
mod sa;

use counting::counts;
use ibacm::engine::Config;
use ibacm::time::Time;
use net::{MS, Net, S};

const HOSTS: usize = 1000;
const PAIRS: usize = HOSTS * (HOSTS - 1);
const SEED: u64 = 20_261_129;

struct Outcome {
    seconds: f64,
    multicasts: u64,
    paths: u64,
    failures: u64,
    longest_queue: usize,
    busiest: u64,
    slowest: f64,
    bytes_per_destination: f64,
}

/// Runs a job to its end. With `restart`, the SM ends when a third of the look-ups are done, for three seconds.
fn job(what: &str, loss: u64, restart: bool) -> Outcome {
    let mut net = Net::new(HOSTS, &Config::default(), loss, SEED);
    // Joins are over, those that were lost included.
    net.run(Time(30 * S), |_| false);
    let before = counts().1;
    let (joins, begin) = (net.sa.joins, net.now);
    net.start_job(50 * MS);
    let done = |net: &Net| net.hosts.iter().map(|h| h.job.done).sum::<usize>();
    if restart {
        assert!(net.run(Time(begin.0 + 600 * S), |net| done(net) >= PAIRS / 3), "a third of the look-ups end");
        net.restart_sm(3 * S);
    }
    assert!(net.run(Time(begin.0 + 600 * S), |net| done(net) == PAIRS), "{what}: {} of {PAIRS} done", done(&net));
    let ended = net.now;
    // What is under way for nobody ends too.
    net.run(Time(ended.0 + 20 * S), |_| false);
    let failures: u64 = net.hosts.iter().map(|h| h.job.failures).sum();
    let slowest = net.hosts.iter().map(|h| h.job.slowest).max().unwrap_or(0);
    let used = counts().1 - before;
    let outcome = Outcome {
        seconds: (ended.0 - begin.0) as f64 / 1e6,
        multicasts: net.counts.multicasts,
        paths: net.sa.paths,
        failures,
        longest_queue: net.sa.longest_queue,
        busiest: net.counts.busiest,
        slowest: slowest as f64 / 1e6,
        bytes_per_destination: used as f64 / PAIRS as f64,
    };
    println!("{what}: {HOSTS} hosts, {PAIRS} look-ups, {} processes a host", net.processes);
    println!("  time to completion   {:8.3} s, the slowest look-up {:.3} s", outcome.seconds, outcome.slowest);
    println!(
        "  multicasts           {:8} ({:.2} a host), {} in the busiest millisecond",
        outcome.multicasts,
        outcome.multicasts as f64 / HOSTS as f64,
        net.counts.busiest
    );
    println!("  responses            {:8}", net.counts.unicasts);
    println!("  SA path queries      {:8} ({:.4} a look-up)", outcome.paths, outcome.paths as f64 / PAIRS as f64);
    println!(
        "  SA repeats, dropped  {:8} {}, longest queue {}",
        net.counts.repeats, net.sa.dropped, net.sa.longest_queue
    );
    println!("  joins                {:8} (before the job {joins})", net.sa.joins);
    println!("  lost on the way      {:8}", net.counts.lost);
    println!("  failed and repeated  {:8}", outcome.failures);
    println!(
        "  memory               {:8.0} bytes a host, {:.0} a destination",
        used as f64 / HOSTS as f64,
        outcome.bytes_per_destination
    );
    outcome
}

#[test]
fn an_undisturbed_job() {
    let outcome = job("undisturbed", 0, false);
    assert_eq!(outcome.failures, 0);
    assert_eq!(outcome.paths, PAIRS as u64, "one query a pair, neither more nor less");
    // Whoever has asked for one is known to all: far from one multicast for each pair.
    assert!(outcome.multicasts < 40 * HOSTS as u64, "{}", outcome.multicasts);
    // Nor do many of a host's questions wait at the SA, or its multicasts come all at once.
    assert!(outcome.longest_queue < HOSTS * 3 / 2, "{}", outcome.longest_queue);
    assert!(outcome.busiest < HOSTS as u64, "{}", outcome.busiest);
    assert!(outcome.bytes_per_destination < 400.0, "{}", outcome.bytes_per_destination);
}

#[test]
fn a_job_that_loses_every_tenth_datagram() {
    let outcome = job("one in ten lost", 10, false);
    // Three transmissions, each there and back.
    assert!(outcome.failures < PAIRS as u64 / 50, "{}", outcome.failures);
    assert!(outcome.paths < PAIRS as u64 * 13 / 10, "{}", outcome.paths);
    assert!(outcome.seconds < 600.0);
}

#[test]
fn a_job_during_which_the_sm_restarts() {
    let outcome = job("the SM restarts", 0, true);
    assert_eq!(outcome.failures, 0, "three seconds are less than questions are repeated");
    assert!(outcome.paths < PAIRS as u64 * 11 / 10, "{}", outcome.paths);
    // Three seconds down, and the wait of those whose question was lost.
    assert!(outcome.slowest < 15.0, "{}", outcome.slowest);
}
