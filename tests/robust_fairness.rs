//! Clients that ask for much and peers that are made up: what others notice of them.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fabric::PortLine;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA};
use rob::{enter, forge, memory, request};
use util::client::{between, ip, to_gid};
use util::{Client, Lab, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// What one client may have under way.
const MANY: usize = 256;
/// For a machine that does much else: what is measured against it is many times that.
const SLACK: Duration = Duration::from_millis(40);

/// Times of look-ups one after the other; the one in the middle.
fn median(client: &mut Client, question: &[Entry], count: usize) -> Duration {
    let time = |_| {
        let begin = Instant::now();
        client.resolve(question).path();
        begin.elapsed()
    };
    middle((0..count).map(time).collect())
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Ends a flood, whatever becomes of the test.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps requests under way, as many as one client may have, until `end`.
fn flood(lab: &Lab<'_>, end: &AtomicBool, mut next: impl FnMut() -> Vec<Entry>) {
    let mut client = Client::connect(lab, "H1");
    for _ in 0..MANY {
        client.ask(&next());
    }
    while !end.load(Ordering::Relaxed) {
        client.recv().expect("it is answered");
        client.ask(&next());
    }
}

/// Look-ups of a destination that is asked for anew each time, and of one that is known, alone and beside `clients` that
/// flood: medians of both, by turns.
fn beside(lab: &Lab<'_>, clients: usize, next: &(dyn Fn() -> Vec<Entry> + Sync)) -> [[Duration; 2]; 2] {
    let mut client = Client::connect(lab, "H1");
    let (anew, known) = (between("10.77.0.1", "10.77.0.2"), between("10.77.0.1", "fd77::1"));
    let mut times: [[Vec<Duration>; 2]; 2] = Default::default();
    let mut measure = |times: &mut [Vec<Duration>; 2]| {
        times[0].push(median(&mut client, &anew, 15));
        times[1].push(median(&mut client, &known, 30));
    };
    for _ in 0..3 {
        measure(&mut times[0]);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = End(&end);
            (0..clients).for_each(|_| drop(scope.spawn(|| flood(lab, &end, next))));
            std::thread::sleep(Duration::from_millis(300));
            measure(&mut times[1]);
        });
    }
    times.map(|t| t.map(middle))
}

#[track_caller]
fn unharmed([alone, beside]: [[Duration; 2]; 2]) {
    for (alone, beside) in alone.into_iter().zip(beside) {
        assert!(beside <= 2 * alone + SLACK, "{beside:?} beside the flood, {alone:?} alone");
    }
}

/// Nothing is kept: each look-up goes to the peer and to the subnet administrator.
const ANEW: &str = "addr_timeout 0\ntimeout 400\nretries 1\nresolve_depth 1\nsa_depth 1\n";

#[test]
fn dead_destinations_of_others() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let _peer = lab.ours("H2", "");
    let _daemon = lab.ours("H1", ANEW);
    let number = AtomicU32::new(0);
    let dead = || {
        let n = number.fetch_add(1, Ordering::Relaxed);
        between("10.77.0.1", &format!("10.77.{}.{}", 100 + n / 200 % 100, 1 + n % 200)).to_vec()
    };
    unharmed(beside(&lab, 4, &dead));
}

#[test]
fn questions_of_others_to_the_subnet_administrator() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let _daemon = lab.ours("H1", ANEW);
    let gid = lab.port("H3").unwrap().gid;
    unharmed(beside(&lab, 1, &|| vec![to_gid(FLAG_QUERY_SA, gid)]));
}

/// Two thousand peers, each of which seems to be somebody else.
#[test]
fn made_up_peers() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "max_destinations 1024\nsa_depth 64\n");
    let _peer = lab.ours("H2", "");
    let question = between("10.77.0.1", "10.77.0.2");
    Client::connect(&lab, "H1").resolve(&question).path();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let group = one.joined[0].0;
    // it has no path to any of them, and says so at once
    lab.inject("sa status host=H1 attr=0x35 status=0x0300").unwrap();
    let mut used = Vec::new();
    let before = lab.path_queries("H1");
    let begin = Instant::now();
    for n in 0..2000_u32 {
        let mut gid = two.gid;
        gid[8..12].copy_from_slice(&n.to_be_bytes());
        let liar = PortLine { lid: 1000 + n as u16, gid, qpns: vec![n + 1], ..two.clone() };
        let from = ip(EP_FLAG_SOURCE, &format!("10.77.{}.{}", 100 + n / 250, 1 + n % 250));
        forge(&lab, &one, true, &liar, &request(u64::from(n) + 1, &from, &ip(EP_FLAG_DEST, "10.77.0.1"), &[group]), "");
        if n % 1000 == 999 {
            used.push(memory(daemon.pid()));
        }
    }
    let asked = lab.path_queries("H1") - before;
    let most = 1024 + begin.elapsed().as_millis() as u64 / 10 + 1;
    assert!(asked <= most, "{asked} questions, {most} may be");
    assert!(used[1] < used[0] + 512, "memory grows: {used:?} KiB");
    // what is asked about peers still goes on for a while
    let rested = wait_for(PATIENCE, || {
        let before = lab.path_queries("H1");
        std::thread::sleep(Duration::from_millis(300));
        (lab.path_queries("H1") == before).then_some(())
    });
    assert!(rested.is_some(), "no end of questions");
    // what is known is answered, without a question
    let (queries, sent) = (lab.path_queries("H1"), lab.count("mcast.H1.", "sent"));
    Client::connect(&lab, "H1").resolve(&question).path();
    assert_eq!((lab.path_queries("H1"), lab.count("mcast.H1.", "sent")), (queries, sent));
    lab.inject("clear").unwrap();
    // and who is there is found
    let found = wait_for(PATIENCE, || {
        let reply = Client::connect(&lab, "H2").resolve(&between("10.77.0.2", "10.77.0.1"));
        (reply.header.status == 0).then(|| reply.path().dlid())
    });
    assert_eq!(found, Some(one.lid));
}
