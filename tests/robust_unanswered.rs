//! Addresses that nobody answers for: who asks is told in time, and nobody else waits for it.

#[path = "util/rob.rs"]
mod rob;
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::client::Status;
use rob::{code, enter, idle_second, memory, processor, status, steady_descriptors};
use util::client::between;
use util::{Client, Lab, Shared};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// What the simulated subnet's timeout of 4.096 us * 2^18 counts for.
const SUBNET_MS: u64 = 1024;

/// Asks for an absent address and tells how long the refusal took.
fn refused(lab: &Lab<'_>, host: &str, own: &str, absent: &str) -> Duration {
    let mut client = Client::connect(lab, host);
    let begin = Instant::now();
    assert_eq!(status(&mut client, &between(own, absent)), code(Status::Etimedout));
    begin.elapsed()
}

fn assert_near(took: Duration, wanted_ms: u64) {
    let wanted = Duration::from_millis(wanted_ms);
    // Less than a subnet's timeout or a repetition more would be.
    let late = wanted + wanted / 10 + Duration::from_millis(800);
    assert!(took + Duration::from_millis(2) >= wanted && took <= late, "{took:?} instead of {wanted:?}");
}

#[test]
fn the_refusal_comes_in_time_and_others_are_served_meanwhile() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let small = lab.ours("H1", "timeout 300\nretries 1\n");
    let _usual = lab.ours("H3", "");
    let question = between("10.77.0.1", "10.77.0.2");
    Client::connect(&lab, "H1").resolve(&question).path();
    let before = (steady_descriptors(small.pid()), lab.path_queries("H1"));
    std::thread::scope(|scope| {
        let short = scope.spawn(|| refused(&lab, "H1", "10.77.0.1", "10.77.9.9"));
        let long = scope.spawn(|| refused(&lab, "H3", "10.77.0.3", "10.77.9.9"));
        let mut client = Client::connect(&lab, "H1");
        let (mut served, mut slowest) = (0, Duration::ZERO);
        while !short.is_finished() {
            let begin = Instant::now();
            client.resolve(&question).path();
            slowest = slowest.max(begin.elapsed());
            served += 1;
        }
        assert!(served > 100 && slowest < Duration::from_secs(1), "{served} answers, the slowest in {slowest:?}");
        assert_near(short.join().unwrap(), (300 + SUBNET_MS) * 2);
        assert_near(long.join().unwrap(), (2000 + SUBNET_MS) * 3);
    });
    assert_eq!((steady_descriptors(small.pid()), lab.path_queries("H1")), before);
}

#[test]
fn a_silent_destination_delays_nobody() {
    let lab = enter(&LAB);
    for n in 1..=8 {
        rob::ip(&lab, "H2", &format!("addr add 10.77.2.{n}/16 dev ib0"));
    }
    rob::ip(&lab, "H3", "addr add 10.77.3.1/16 dev ib0");
    let _peers = (lab.ours("H2", ""), lab.stock("H3", ""));
    let _daemon = lab.ours("H1", "resolve_depth 1\nsa_depth 1\n");
    let mut silent = Client::connect(&lab, "H1");
    for n in 1..=3 {
        silent.ask(&between("10.77.0.1", &format!("10.77.9.{n}")));
    }
    let mut client = Client::connect(&lab, "H1");
    let begin = Instant::now();
    for n in 1..=8 {
        client.ask(&between("10.77.0.1", &format!("10.77.2.{n}")));
    }
    for address in ["10.77.3.1", "10.77.0.3"] {
        client.ask(&between("10.77.0.1", address));
    }
    for _ in 0..10 {
        client.recv().expect("an answer").path();
    }
    let took = begin.elapsed();
    // one silent destination alone would hold them up for 9 s; a datagram lost on a busy machine is repeated after 3 s
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(silent.is_silent(Duration::from_millis(10)), "nobody is there");
}

#[test]
fn a_thousand_absent_destinations_cost_little() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let daemon = lab.ours("H1", "timeout 200\nretries 1\n");
    // The first time the tables grow.
    let mut used = Vec::new();
    for round in 0..3 {
        let cpu = processor(daemon.pid());
        let begin = Instant::now();
        let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&lab, "H1")).collect();
        for (c, client) in clients.iter_mut().enumerate() {
            for n in 0..250 {
                client.ask(&between("10.77.0.1", &format!("10.77.{}.{n}", 100 + 4 * round + c)));
            }
        }
        for client in &mut clients {
            for _ in 0..250 {
                assert_eq!(client.recv().expect("an answer").header.status, code(Status::Etimedout));
            }
        }
        let (took, cpu) = (begin.elapsed(), processor(daemon.pid()) - cpu);
        // one after the other they would take minutes
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert!(cpu < Duration::from_millis(1500), "{cpu:?} of processor time");
        used.push(memory(daemon.pid()));
    }
    assert!(used[2] < used[1] + 512, "memory grows: {used:?} KiB");
    let idle = idle_second(daemon.pid());
    assert!(idle <= Duration::from_millis(20), "{idle:?} of processor time in a second without work");
}

#[test]
fn a_failure_is_remembered_where_the_option_asks_for_it() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let daemon = lab.ours("H1", "timeout 300\nretries 0\nnegative_cache 1500\naddr_prot sa\n");
    assert!(daemon.said().contains("addr_prot"), "a value without effect is warned of: {}", daemon.said());
    let ask = || refused(&lab, "H1", "10.77.0.1", "10.77.9.9");
    assert_near(ask(), 301);
    let again = ask();
    assert!(again < Duration::from_millis(300), "{again:?}");
    std::thread::sleep(Duration::from_millis(1600));
    assert_near(ask(), 301);
}

#[test]
fn every_subnet_timeout_is_a_time() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    for (exponent, wanted) in [(0, Some(100)), (7, Some(100)), (8, Some(101)), (31, None)] {
        lab.inject(&format!("port H1 subnet_timeout={exponent}")).unwrap();
        let _daemon = lab.ours("H1", "timeout 100\nretries 0\n");
        // A tenth of a second may be too short on a busy machine.
        let found = rob::until(&mut Client::connect(&lab, "H1"), &between("10.77.0.1", "10.77.0.2"), 0);
        assert!(found.is_some(), "{exponent}");
        match wanted {
            Some(ms) => assert_near(refused(&lab, "H1", "10.77.0.1", "10.77.9.9"), ms),
            None => {
                let mut client = Client::connect(&lab, "H1");
                client.ask(&between("10.77.0.1", "10.77.9.9"));
                assert!(client.is_silent(Duration::from_millis(500)), "that is hours");
            }
        }
    }
}
