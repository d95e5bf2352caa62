//! Datagrams that are wrong, forged, repeated or lost: none of them harms, and none is believed that should not be.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Status};
use rob::{code, dest, enter, forge, memory, request, response, settles, source, status, steady_descriptors};
use util::client::{between, name};
use util::{Client, PATIENCE, Program, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

#[test]
fn bursts_of_good_bad_repeated_and_cut_ones() {
    let lab = enter(&LAB);
    let mut daemon = lab.ours("H1", "recv_depth 64\nmax_destinations 1024\n");
    let _peer = lab.ours("H2", "");
    let question = between("10.77.0.1", "10.77.0.2");
    Client::connect(&lab, "H1").resolve(&question).path();
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let group = one.joined[0].0;
    let good = |n: u32| {
        let from = format!("10.77.{}.{}", 100 + (n >> 8) % 100, n & 0xff);
        request(u64::from(n) + 1, &source(&from), &dest("10.77.0.1"), &[group])
    };
    let mut used = Vec::new();
    let before = steady_descriptors(daemon.pid());
    // The switch's own dice, so that the same bytes are sent each time.
    let mut dice = 1_u64;
    let mut roll = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % below
    };
    for round in 0..3 {
        for n in 0..500 {
            let mut data = good(round * 500 + n);
            match n % 5 {
                0 => {}
                1 => data.truncate(roll(256)),
                2 => {
                    for _ in 0..8 {
                        let at = roll(256);
                        data[at] = roll(256) as u8;
                    }
                }
                3 => data = (0..roll(300)).map(|_| roll(256) as u8).collect(),
                // More groups than fit, an address type and a length that none has.
                _ => data[16 + [4, 0, 1, 2, 3][roll(5)]] = roll(256) as u8,
            }
            let from = [&two, &three][roll(2)];
            let more = ["", "count=3", "slid=0", "slid=0xc005", "sgid=ff02::1", "grh=no"][roll(6)];
            forge(&lab, &one, roll(2) == 0, from, &data, more);
        }
        for n in 0..50 {
            forge(&lab, &one, false, &two, &response(n, group), "count=2");
        }
        let begin = Instant::now();
        Client::connect(&lab, "H1").resolve(&question).path();
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        used.push(memory(daemon.pid()));
    }
    assert!(daemon.is_alive());
    settles(daemon.pid(), before);
    assert!(used[2] < used[1] + 512, "memory grows: {used:?} KiB");
    // It still asks and answers, over the fabric.
    let mut other = Client::connect(&lab, "H2");
    assert_eq!(other.resolve(&between("fd77::2", "10.77.0.1")).path().dlid(), one.lid);
    assert_eq!(Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "fd77::2")).path().dlid(), two.lid);
}

#[test]
fn more_at_once_than_receives_are_posted() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "recv_depth 16\n");
    let _peer = lab.stock("H2", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    for data in [request(1, &source("10.77.0.2"), &dest("10.77.0.1"), &[one.joined[0].0]), vec![0xff; 256]] {
        forge(&lab, &one, true, &two, &data, "count=20000");
    }
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.2")).path();
    assert_eq!(Client::connect(&lab, "H2").resolve(&between("10.77.0.2", "10.77.0.1")).path().dlid(), one.lid);
    assert!(rob::idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
}

/// The device holds some thousand datagrams while the service is busy elsewhere, and those that are read make room.
#[test]
fn a_burst_of_4096_requests_loses_none() {
    const BURST: u64 = 4096;
    const AHEAD: u64 = 900;
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    // Nobody runs on H3: what comes of the answers does not matter.
    let [one, three] = lab.hosts(["H1", "H3"]);
    let data = request(1, &source("10.77.0.3"), &dest("10.77.0.1"), &[one.joined[0].0]);
    forge(&lab, &one, true, &three, &data, "");
    let known = wait_for(PATIENCE, || (lab.count("ucast.H1.", "sent") == 1).then_some(()));
    assert!(known.is_some(), "{:?}", lab.stats());
    lab.reset_stats().unwrap();
    // All that is allowed to be on its way at once, then always as much as has been answered.
    let mut sent = 0;
    let mut seen = 0;
    while sent < BURST {
        let more = (seen + AHEAD - sent).min(BURST - sent);
        forge(&lab, &one, true, &three, &data, &format!("count={more}"));
        sent += more;
        let answers = || Some(lab.count("ucast.H1.", "sent")).filter(|n| *n > seen || *n == BURST);
        seen = wait_for(PATIENCE, answers).unwrap_or_else(|| panic!("{seen} of {sent} answered: {:?}", lab.stats()));
    }
    let all = wait_for(PATIENCE, || (lab.count("ucast.H1.", "sent") == BURST).then_some(()));
    assert!(all.is_some(), "{:?}", lab.stats());
    assert_eq!(lab.count("drop.", "no_receive"), 0, "{:?}", lab.stats());
}

#[test]
fn claims_that_are_not_borne_out() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "timeout 200\nretries 1\n");
    let _peer = lab.ours("H2", "");
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let group = one.joined[0].0;
    let mut client = Client::connect(&lab, "H1");
    client.resolve(&between("10.77.0.1", "10.77.0.2")).path();

    // Somebody else has our address, or our name.
    for own in [source("10.77.0.1"), source("fd77::1"), name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_SOURCE, "H1")] {
        forge(&lab, &one, true, &three, &request(5, &own, &dest("10.77.0.1"), &[group]), "");
        forge(&lab, &one, false, &three, &request(6, &own, &dest("10.77.0.2"), &[group]), "");
    }
    for own in ["10.77.0.1", "fd77::1"] {
        assert_eq!(client.resolve(&between("10.77.0.1", own)).path().dlid(), one.lid, "{own}");
    }

    // Answers to no question, before it, and while it is open: with guessed numbers, a group that was not offered, or
    // sent to all.
    let since = lab.sniff_next().unwrap();
    let absent = between("10.77.0.1", "10.77.9.9");
    for tid in 0..200 {
        forge(&lab, &one, false, &three, &response(tid, group), "");
    }
    client.ask(&absent);
    let asked = wait_for(util::PATIENCE, || lab.sniffed(Some("H1"), since).ok()?.into_iter().next()).expect("it asks");
    let tid = u64::from_be_bytes(asked.data[8..16].try_into().unwrap());
    for guess in (0..200).chain((1..50).flat_map(|d| [tid.wrapping_add(d), tid.wrapping_sub(d), tid ^ (1 << d)])) {
        forge(&lab, &one, false, &three, &response(guess, group), "");
    }
    let mut other = group;
    other[15] ^= 1;
    forge(&lab, &one, false, &three, &response(tid, other), "");
    forge(&lab, &one, true, &three, &response(tid, group), "");
    let mut refusal = response(tid, group);
    refusal[4] = 6;
    forge(&lab, &one, false, &three, &refusal, "");
    let mut empty = response(tid, group);
    empty[20] = 0;
    forge(&lab, &one, false, &three, &empty, "");
    assert_eq!(client.recv().expect("an answer").header.status, code(Status::Etimedout));

    // The same question's right answer is taken: that was no deaf host.
    let since = lab.sniff_next().unwrap();
    client.ask(&absent);
    let asked = wait_for(util::PATIENCE, || lab.sniffed(Some("H1"), since).ok()?.into_iter().next()).expect("it asks");
    let next = u64::from_be_bytes(asked.data[8..16].try_into().unwrap());
    assert!(next.abs_diff(tid) > 1 << 32, "numbers do not count up: {tid:#x} {next:#x}");
    forge(&lab, &one, false, &three, &response(next, group), "");
    assert_eq!(client.recv().expect("an answer").path().dlid(), three.lid);
    // And afterwards it is closed.
    forge(&lab, &one, false, &two, &response(next, group), "");
    assert_eq!(client.resolve(&absent).path().dlid(), three.lid);
    assert!(lab.stat("ucast.H1.received").unwrap() > 300, "they came");
    assert!(daemon.said().lines().count() < 50, "nor do they fill the log");
}

#[test]
fn a_peer_is_not_moved_by_one_that_claims_its_gid() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let _peer = lab.ours("H2", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let mut client = Client::connect(&lab, "H1");
    client.resolve(&between("10.77.0.1", "10.77.0.2")).path();
    // H2's LID and GID with another queue pair: it has restarted, the path stays what the SA says.
    let data = request(9, &source("10.77.0.2"), &dest("10.77.9.9"), &[one.joined[0].0]);
    forge(&lab, &one, true, &two, &data, "sqpn=4711 slid=1");
    let path = client.resolve(&between("10.77.0.1", "10.77.0.2")).path();
    assert_eq!((path.dlid(), path.dgid().0), (two.lid, two.gid));
}

#[test]
fn datagrams_that_are_lost_doubled_and_late() {
    let lab = enter(&LAB);
    // Of the ways there and back half are lost: in which order is not always the same, and of twenty look-ups none is to
    // have all of its transmissions lost.
    let mut daemons = [lab.ours("H1", "timeout 100\nretries 20\nresolve_depth 4\n"), lab.ours("H2", "")];
    for n in 1..=20 {
        rob::ip(&lab, "H2", &format!("addr add 10.77.6.{n}/16 dev ib0"));
    }
    lab.inject("port H1 subnet_timeout=8").unwrap();
    lab.inject("seed value=7").unwrap();
    lab.inject("datagram drop percent=30").unwrap();
    lab.inject("datagram duplicate percent=30").unwrap();
    lab.inject("datagram delay percent=30 ms=70").unwrap();
    let mut client = Client::connect(&lab, "H1");
    for n in 1..=20 {
        client.ask(&between("10.77.0.1", &format!("10.77.6.{n}")));
    }
    let wanted = lab.port("H2").unwrap().lid;
    for _ in 0..20 {
        assert_eq!(client.recv().expect("an answer").path().dlid(), wanted);
    }
    assert!(lab.stat("drop.fault").unwrap() > 0);
    assert!(daemons.iter_mut().all(util::Daemon::is_alive));
}

#[test]
fn a_send_that_fails() {
    let lab = enter(&LAB);
    let daemons = [lab.ours("H1", "resolve_depth 1\nsend_depth 1\n"), lab.ours("H2", "send_depth 1\n")];
    // A request, a response, several in a row; each time with the reason that the queue pair is flushed too.
    for (round, host) in ["H1", "H2", "H1", "H2"].into_iter().enumerate() {
        // A response that does not go out is a transmission that was in vain, of which the asker has three.
        for nth in 1..=if host == "H1" { 4 + round } else { 1 + round / 2 } {
            lab.inject(&format!("send-error {host} nth={nth} status=12")).unwrap();
        }
        let address = format!("10.77.7.{round}");
        rob::ip(&lab, "H2", &format!("addr add {address}/16 dev ib0"));
        let begin = Instant::now();
        let mut client = Client::connect(&lab, "H1");
        let reply = client.resolve(&between("10.77.0.1", &address));
        assert_eq!(reply.header.status, 0, "round {round}: {}", daemons[0].said());
        let took = begin.elapsed();
        // Of a lost response nobody knows: the peer asks again after its time.
        let most = if host == "H1" { 2_000 } else { 9_100 };
        assert!(took < Duration::from_millis(most), "{host}: {took:?}");
        lab.inject("clear").unwrap();
    }
    assert!(!daemons[0].said().contains("panicked"));
}

#[test]
fn own_addresses_need_no_fabric() {
    let lab = enter(&LAB);
    lab.inject("loopback H1 off").unwrap();
    let _daemon = lab.ours("H1", "");
    lab.reset_stats().unwrap();
    let one = lab.port("H1").unwrap();
    let mut client = Client::connect(&lab, "H1");
    for own in [dest("10.77.0.1"), dest("fd77::1"), name(EP_FLAG_DEST, "h1"), name(EP_FLAG_DEST, "H1")] {
        let path = client.resolve(&[source("10.77.0.1"), own]).path();
        assert_eq!((path.dlid(), path.slid(), path.dgid().0, path.sgid().0), (one.lid, one.lid, one.gid, one.gid));
    }
    let stats = lab.stats().unwrap();
    let sent = stats.iter().fold(String::new(), |mut out, (k, n)| {
        // It subscribes to what the fabric tells whatever is asked.
        let asked = k.starts_with("sa.H1") && !k.starts_with("sa.H1.InformInfo");
        if k.starts_with("mcast.H1") || asked {
            let _ = write!(out, "{k}={n} ");
        }
        out
    });
    assert_eq!(sent, "");
}

#[test]
fn own_addresses_as_any_other() {
    let lab = enter(&LAB);
    // With and without a fabric that brings multicast back to its sender.
    for loopback in ["on", "off"] {
        lab.inject(&format!("loopback H1 {loopback}")).unwrap();
        let _daemon = lab.ours("H1", "loopback_prot none\n");
        let one = lab.port("H1").unwrap();
        let begin = Instant::now();
        let path = Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "fd77::1")).path();
        assert_eq!((path.dlid(), path.dgid().0), (one.lid, one.gid));
        // That is before it would ask again.
        assert!(begin.elapsed() < Duration::from_millis(2900), "{:?}", begin.elapsed());
    }
}

#[test]
fn an_answer_to_a_stranger_costs_nobody_else() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "send_depth 1\nsa_depth 1\ntimeout 500\nretries 0\n");
    let _peer = lab.start(Program::Stock, "H2", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    // Askers whose GID no SA knows: each costs a question that fails.
    for n in 0..50_u32 {
        let data = request(u64::from(n) + 1, &source(&format!("10.77.50.{n}")), &dest("10.77.0.1"), &[one.joined[0].0]);
        forge(&lab, &one, true, &two, &data, &format!("sgid=fe80::99:{n:x} slid={}", 300 + n));
    }
    let begin = Instant::now();
    let mut client = Client::connect(&lab, "H2");
    assert_eq!(status(&mut client, &between("10.77.0.2", "10.77.0.1")), 0);
    // All of them one after another would take half a minute.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    assert!(daemon.said().lines().count() < 50, "{}", daemon.said());
}
