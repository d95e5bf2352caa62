//! Everything at once for a while: whatever has happened, when it ends all is well again.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibacm_wire::client::{Entry, FLAG_QUERY_SA};
use rob::{enter, forge, idle_second, memory, request, settles, steady_descriptors, until};
use util::client::{between, to_gid};
use util::{Client, Lab, Shared};

static LAB: Shared = Shared::new(|o| o.hosts = 4);

/// How long it goes on.
const LONG: Duration = Duration::from_secs(15);

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn one_fault(lab: &Lab<'_>, dice: &mut Dice) {
    let host = ["H1", "H2"][dice.roll(2) as usize];
    let n = dice.roll(1000);
    let line = match dice.roll(16) {
        0 => format!("event {host} CLIENT_REREGISTER"),
        1 => format!("port {host} gid=fe80::{n:x}"),
        2 => format!("port {host} lid={}", 100 + n),
        3 => format!("port {host} sm_lid={}", 1100 + n),
        4 => format!("port {host} pkeys={}", ["0xffff", "0x8001,0xffff", "0x8001", "0x7fff"][n as usize % 4]),
        5 => format!("port {host} state={}", 1 + n % 4),
        6 | 7 => format!("port-reset {host}"),
        8 => format!("send-error {host} nth={} status=12", 1 + n % 3),
        9 => format!("sa delay host={host} ms={} count=2", n / 4),
        10 => format!("sa drop host={host} count=1"),
        11 => format!("sa status host={host} status={} count=2", [1, 12, 0x300, 0x700][n as usize % 4]),
        12 => format!("datagram drop percent=40 count={}", 1 + n % 5),
        13 => format!("datagram delay ms={} count=3", n / 10),
        14 => format!("datagram duplicate count={}", 1 + n % 5),
        _ => {
            let ports = lab.hosts(["H1", "H2", "H3"]);
            let (to, from) = (&ports[n as usize % 2], &ports[2]);
            if let Some((group, _)) = to.joined.first() {
                let [source, dest] = between(&format!("10.77.200.{}", n % 50), "10.77.0.1");
                forge(lab, to, n.is_multiple_of(3), from, &request(n + 1, &source, &dest, &[*group]), "");
            }
            return;
        }
    };
    lab.inject(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
}

/// Ends all faults.
fn mend(lab: &Lab<'_>) {
    lab.inject("clear").unwrap();
    for host in ["H1", "H2"] {
        lab.inject(&format!("port-reset {host}")).unwrap();
    }
}

/// Asks all the time; counts answers, and what took too long.
fn asks(lab: &Lab<'_>, host: &str, questions: &[[Entry; 2]], stop: &AtomicBool) -> (u64, u64) {
    let (mut good, mut bad) = (0, 0);
    let mut client = Client::connect(lab, host);
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let begin = Instant::now();
        let reply = match n % 7 {
            0 => client.resolve(&[to_gid(FLAG_QUERY_SA, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])]),
            1 => client.resolve(&[to_gid(0, lab.port("H3").unwrap().gid)]),
            _ => client.resolve(&questions[n % questions.len()]),
        };
        assert!(begin.elapsed() < Duration::from_secs(9), "an answer within a bounded time: {:?}", begin.elapsed());
        if reply.header.status == 0 {
            good += 1
        } else {
            bad += 1
        }
        // Not to be answered from the cache only.
        std::thread::sleep(Duration::from_millis(5));
    }
    (good, bad)
}

#[test]
fn all_kinds_of_trouble_for_a_while() {
    let lab = enter(&LAB);
    let options = "timeout 100\nretries 2\naddr_timeout 0\n";
    let mut one = lab.ours("H1", options);
    let mut two = lab.ours("H2", options);
    let _three = lab.ours("H3", "");
    let there = [between("10.77.0.1", "10.77.0.2"), between("10.77.0.1", "10.77.0.3"), between("fd77::1", "fd77::2")];
    let back = [between("10.77.0.2", "10.77.0.1"), between("10.77.0.2", "fd77::3"), between("10.77.0.2", "10.77.9.9")];
    let mut dice = Dice(4711);
    let mut used = Vec::new();
    let before = steady_descriptors(one.pid());
    for _ in 0..2 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let askers = [("H1", &there), ("H2", &back)].into_iter().cycle().take(16);
            let askers: Vec<_> = askers
                .map(|(host, list)| {
                    let (lab, stop) = (&lab, &stop);
                    scope.spawn(move || asks(lab, host, list, stop))
                })
                .collect();
            let end = Instant::now() + LONG / 2;
            while Instant::now() < end {
                for _ in 0..dice.roll(12) {
                    one_fault(&lab, &mut dice);
                    std::thread::sleep(Duration::from_millis(dice.roll(30)));
                }
                mend(&lab);
                std::thread::sleep(Duration::from_millis(dice.roll(800)));
            }
            stop.store(true, Ordering::Relaxed);
            let (mut good, mut bad) = (0, 0);
            for asker in askers {
                let counts = asker.join().expect("it has had its answers");
                good += counts.0;
                bad += counts.1;
            }
            assert!(good > 50 && bad > 20, "{good} answers, {bad} failures");
        });
        assert!(one.is_alive() && two.is_alive());
        for (host, questions) in [("H1", &there[..]), ("H2", &back[..2])] {
            for question in questions {
                let well = until(&mut Client::connect(&lab, host), question, 0);
                assert!(well.is_some(), "{host}: {question:?}: {}{}", one.said(), two.said());
            }
        }
        used.push(memory(one.pid()));
    }
    settles(one.pid(), before);
    assert!(used[1] < used[0] + 1024, "memory grows: {used:?} KiB");
    for daemon in [&one, &two] {
        let cpu = idle_second(daemon.pid());
        assert!(cpu <= Duration::from_millis(30), "{cpu:?} of processor time");
    }
}
