//! Everything at once for a long time: links, LIDs, GIDs, partitions, managers, devices, services, interfaces, addresses
//! and messages change and fail in random order, while clients resolve. Whatever has happened, when it is taken back
//! all is right again, and nothing has grown.
//!
//! `SOAK_SECONDS=` says for how long, `SOAK_SEED=` repeats what a seed makes happen.

#[path = "util/live.rs"]
mod live;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ibacm_wire::client::{EP_CONFIG_LEN, HDR_LEN};
use live::Live;
use live::chaos::Dice;
use rob::{idle_second, memory, settles, steady_descriptors};
use util::{Client, Lab, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(live::build);

/// How long it goes on unless `SOAK_SECONDS=` says otherwise.
const LONG: u64 = 300;
/// A stretch of trouble, after which all is taken back.
const ROUND: Duration = Duration::from_secs(8);
/// Stretches after which memory is as much as it will be: tables and buffers have had their largest size.
const WARM: usize = 3;
/// What memory may still grow by, KiB: pages that are not given back because something small is on them.
const MARGIN: u64 = 2048;
/// All is right again so soon: a lost device is found within two seconds, a lost join repeated within a few.
const RECOVERY: Duration = Duration::from_secs(30);

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

/// What the services of hosts show of themselves: endpoints and their addresses, queue pairs, and whether there is a
/// group for each of them.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    endpoints: BTreeSet<String>,
    ports: Vec<(String, String, usize, bool)>,
}

fn shape(lab: &Lab<'_>) -> Shape {
    let mut client = Client::connect(lab, "H1");
    let mut endpoints = BTreeSet::new();
    for port in 1..=2 {
        for number in 1..=16 {
            let reply = client.endpoint(number, port);
            let Some(list) = reply.bytes.get(HDR_LEN + EP_CONFIG_LEN..).filter(|_| reply.header.status == 0) else {
                break;
            };
            let mut texts: Vec<_> = list.chunks(64).map(|t| String::from_utf8_lossy(t).into_owned()).collect();
            texts.sort();
            endpoints.insert(format!("{port}: {}", texts.join(" ").replace('\0', "")));
        }
    }
    let ports = lab.ports().expect("the subnet answers").into_iter().filter(|p| !p.gone);
    let ports = ports.map(|p| (p.host, p.device, p.qpns.len(), p.joined.len() >= p.qpns.len())).collect();
    Shape { endpoints, ports }
}

#[test]
fn all_kinds_of_changes_in_random_order() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let seed = number("SOAK_SEED").unwrap_or(clock);
    let long = Duration::from_secs(number("SOAK_SECONDS").unwrap_or(LONG));
    eprintln!("SOAK_SEED={seed} SOAK_SECONDS={}", long.as_secs());
    let mut live = Live::start(&LAB);
    let mut dice = Dice(seed);
    let (begin, pid) = (Instant::now(), live.daemon(1).pid());
    let (before, descriptors) = (shape(&live.lab), steady_descriptors(pid));
    let mut used = Vec::new();
    let mut changes = 0;
    while begin.elapsed() < long || used.len() <= WARM {
        let mut happened = Vec::new();
        let end = Instant::now() + ROUND;
        while Instant::now() < end {
            happened.push(live.disturb(&mut dice));
            live.look();
            std::thread::sleep(Duration::from_millis(dice.roll(250)));
        }
        changes += happened.len();
        let story = |live: &mut Live<'_>| {
            let addresses = ["H1", "H2", "H3"].map(|h| util::succeed(live.lab.exec(h, "ip").args(["-br", "addr"])));
            format!(
                "SOAK_SEED={seed}: {happened:#?}\n{}\n{}",
                addresses.join("\n"),
                live.daemon(1).said() + "=====\n" + &live.daemon(3).said()
            )
        };
        live.mend();
        let lost = live.recovers(RECOVERY).unwrap_or_else(|e| panic!("{e}\n{}", story(&mut live)));
        assert!(lost.is_empty(), "no answer: {lost:?}\n{}", story(&mut live));
        assert!(live.daemon(1).is_alive(), "{}", story(&mut live));
        let same = wait_for(PATIENCE, || (shape(&live.lab) == before).then_some(()));
        assert!(same.is_some(), "{:#?} is not {before:#?}\n{}", shape(&live.lab), story(&mut live));
        used.push(memory(pid));
    }
    eprintln!("{changes} changes, memory {used:?} KiB");
    settles(pid, descriptors);
    let most = *used.iter().take(WARM).max().expect("it was warm");
    let last = *used.last().expect("it went on");
    assert!(last <= most + MARGIN, "SOAK_SEED={seed}: memory grows: {used:?} KiB");
    live.quiet();
    let cpu = idle_second(pid);
    assert!(cpu <= Duration::from_millis(50), "{cpu:?} of processor time");
}
