//! Clients that are slow, broken, hostile or many: everybody else is served, and nothing is left of them.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, FLAG_NODELAY, Status, resolve_request};
use rob::{Running, code, descriptors, enter, idle_second, memory, settles, status, steady_descriptors};
use util::client::{between, ip};
use util::{Client, Lab, PATIENCE, Program, Shared, wait_for};

static LAB: Shared = Shared::new(|_| {});

/// A question whose answer needs nobody else.
fn own() -> [ibacm_wire::client::Entry; 2] {
    between("10.77.0.1", "fd77::1")
}

/// The bytes of the question.
fn own_bytes(tid: u64) -> Vec<u8> {
    let (bytes, length) = resolve_request(tid, &own());
    bytes[..length].to_vec()
}

/// Somebody else asks, and is answered soon.
fn others_are_served(lab: &Lab<'_>) {
    let begin = Instant::now();
    Client::connect(lab, "H1").resolve(&own()).path();
    // Who waits for a bad client waits for seconds.
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn requests_in_pieces_and_in_heaps() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "");
    let before = steady_descriptors(daemon.pid());
    let mut client = Client::connect(&lab, "H1");
    for byte in own_bytes(7) {
        client.send(&[byte]);
        std::thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(client.recv().expect("an answer").header.tid, 7_u64.to_ne_bytes());
    let heap: Vec<u8> = (100..150).flat_map(own_bytes).collect();
    client.send(&heap);
    for tid in 100..150_u64 {
        let reply = client.recv().expect("an answer");
        assert_eq!(reply.header.tid, tid.to_ne_bytes());
        reply.path();
    }
    // One and a half, the other half and one.
    let two: Vec<u8> = (1..=3).flat_map(own_bytes).collect();
    client.send(&two[..two.len() / 2]);
    std::thread::sleep(Duration::from_millis(20));
    client.send(&two[two.len() / 2..]);
    for tid in 1..=3_u64 {
        assert_eq!(client.recv().expect("an answer").header.tid, tid.to_ne_bytes());
    }
    drop(client);
    settles(daemon.pid(), before);
}

#[test]
fn a_client_that_never_reads() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "");
    others_are_served(&lab);
    let before = (steady_descriptors(daemon.pid()), memory(daemon.pid()));
    let request = own_bytes(1);
    let mut lazy: Vec<Client> = (0..20).map(|_| Client::connect(&lab, "H1")).collect();
    for client in &mut lazy {
        client.stream().set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let heap = request.repeat(64);
        let mut sent = 0;
        while client.stream().write_all(&heap).is_ok() {
            sent += heap.len();
            assert!(sent < 64 << 20, "nobody reads that much for nothing");
        }
        others_are_served(&lab);
    }
    let used = memory(daemon.pid());
    assert!(used < before.1 + 20 * 1024, "{used} KiB, {} before", before.1);
    assert!(idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
    drop(lazy);
    settles(daemon.pid(), before.0);
}

#[test]
fn clients_that_leave_in_the_middle() {
    let lab = enter(&LAB);
    let mut daemon = lab.ours("H1", "timeout 100\nretries 0\n");
    let request = own_bytes(1);
    let mut used = Vec::new();
    let before = steady_descriptors(daemon.pid());
    for _ in 0..4 {
        for n in 0..2_500_usize {
            let mut client = Client::connect(&lab, "H1");
            // Parts of a request, a whole one whose reply meets a closed socket, and one that is never answered.
            client.send(&request[..n % request.len()]);
            if n % 3 == 0 {
                client.send(&request[n % request.len()..]);
                client.send(&request);
            }
            if n % 5 == 0 {
                let mut absent = Client::connect(&lab, "H1");
                absent.ask(&between("10.77.0.1", &format!("10.77.200.{}", n % 250)));
            }
        }
        others_are_served(&lab);
        settles(daemon.pid(), before);
        used.push(memory(daemon.pid()));
    }
    assert!(daemon.is_alive());
    assert!(used[3] < used[1] + 512, "memory grows: {used:?} KiB");
}

#[test]
fn lengths_that_lie_and_time_that_runs_out() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "");
    let before = steady_descriptors(daemon.pid());
    let request = own_bytes(1);
    // Closed at once, after the replies to what came before.
    for (at, bytes) in [
        (6, 15_u16.to_ne_bytes()),
        (6, 0_u16.to_ne_bytes()),
        (6, 593_u16.to_ne_bytes()),
        (6, 0xffff_u16.to_ne_bytes()),
        (0, [2, 1]),
        (0, [1, 0]),
        (0, [1, 9]),
    ] {
        let mut wrong = request.clone();
        wrong[at..at + 2].copy_from_slice(&bytes);
        let mut client = Client::connect(&lab, "H1");
        client.send(&[request.clone(), wrong].concat());
        client.recv().expect("the first is answered").path();
        let begin = Instant::now();
        assert_eq!(client.recv(), None, "{bytes:?} at {at}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    // Half a message, a header that promises more than comes, single bytes: they have ten seconds from the first.
    let begin = Instant::now();
    let mut idle = Client::connect(&lab, "H1");
    let mut promises: Vec<Client> = [1, 15, 16, 88, request.len() - 1]
        .into_iter()
        .map(|n| {
            let mut client = Client::connect(&lab, "H1");
            client.send(&request[..n]);
            client
        })
        .collect();
    let mut drips = Client::connect(&lab, "H1");
    for byte in &request[..80] {
        if drips.stream().write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        others_are_served(&lab);
    }
    promises.push(drips);
    for client in &mut promises {
        assert_eq!(client.recv(), None);
    }
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(9_500) && took < Duration::from_secs(16), "{took:?}");
    // Who owes nothing is left in peace.
    idle.resolve(&own()).path();
    drop((promises, idle));
    settles(daemon.pid(), before);
}

#[test]
fn five_thousand_clients() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", "");
    others_are_served(&lab);
    let before = steady_descriptors(daemon.pid());
    let mut used = Vec::new();
    for _ in 0..3 {
        let mut clients: Vec<Client> = (0..5_000).map(|_| Client::connect(&lab, "H1")).collect();
        let served = wait_for(PATIENCE, || (descriptors(daemon.pid()) >= before + 5_000).then_some(()));
        assert!(served.is_some(), "{} descriptors", descriptors(daemon.pid()));
        for client in clients.iter_mut().step_by(100).chain(std::iter::empty()) {
            client.resolve(&own()).path();
        }
        let begin = Instant::now();
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(&own_bytes(n as u64));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.recv().expect("an answer").header.tid, (n as u64).to_ne_bytes());
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
        used.push(memory(daemon.pid()));
        drop(clients);
        settles(daemon.pid(), before);
    }
    assert!(used[2] < used[1] + 512, "memory grows: {used:?} KiB");
    assert!(idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
}

#[test]
fn more_clients_than_descriptors() {
    let lab = enter(&LAB);
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "");
    let script = format!("ulimit -n 256; exec {} -P", Program::Ours.path());
    let daemon = Running::start(lab.exec("H1", "sh").args(["-c", &script]));
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    let before = steady_descriptors(daemon.pid());
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(&lab, "H1")).collect();
    clients[0].resolve(&own()).path();
    wait_for(PATIENCE, || (descriptors(daemon.pid()) >= 200).then_some(()));
    let open = steady_descriptors(daemon.pid());
    assert!((200..256).contains(&open), "{open} descriptors");
    let cpu = idle_second(daemon.pid());
    assert!(cpu <= Duration::from_millis(50), "{cpu:?} of processor time while clients wait");
    // Those who wait in line are served as others leave.
    clients.drain(..100);
    for client in &mut clients {
        client.resolve(&own()).path();
    }
    drop(clients);
    settles(daemon.pid(), before);
    let log = std::fs::read_to_string(lab.file("H1", "/var/log/ibacm.log")).unwrap();
    let lines = log.lines().filter(|l| l.contains("clients wait")).count();
    assert_eq!(lines, 1, "said once: {log}");
}

#[test]
fn made_up_destinations_use_bounded_memory() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let daemon = lab.ours("H1", "timeout 200\nretries 0\nmax_destinations 4096\n");
    let mut client = Client::connect(&lab, "H1");
    let mut used = Vec::new();
    for round in 0..3_u32 {
        for n in 0..40_000_u32 {
            let n = n + round * 40_000;
            let absent = format!("10.77.{}.{}", 2 + (n >> 8) % 250, n & 0xff);
            let entries = match n % 2 {
                0 => [ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, &absent)],
                _ => [
                    ip(EP_FLAG_SOURCE, "10.77.0.1"),
                    ip(EP_FLAG_DEST | FLAG_NODELAY, &format!("fd77::{:x}:{:x}:9", n >> 16, n & 0xffff)),
                ],
            };
            let got = status(&mut client, &entries);
            assert!(got == code(Status::Enodata) || got == code(Status::Enomem), "{got}");
        }
        used.push(memory(daemon.pid()));
    }
    assert!(used[2] < used[0] + 4096, "memory grows: {used:?} KiB");
    // When they have been given up, others have their place.
    let free = rob::until(&mut client, &[ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST, "10.77.1.1")], 6);
    assert!(free.is_some());
    others_are_served(&lab);
}

#[test]
fn one_of_two_who_wait_leaves() {
    let lab = enter(&LAB);
    let _daemons = (lab.ours("H1", ""), lab.ours("H2", ""));
    lab.inject("sa delay host=H1 attr=0x35 ms=500").unwrap();
    let question = between("10.77.0.1", "10.77.0.2");
    let mut stays = Client::connect(&lab, "H1");
    let before = lab.path_queries("H1");
    for first in [true, false] {
        let mut leaves = Client::connect(&lab, "H1");
        if first {
            leaves.ask(&question);
            stays.ask(&question);
        } else {
            stays.ask(&question);
            leaves.ask(&question);
        }
        std::thread::sleep(Duration::from_millis(50));
        drop(leaves);
        stays.recv().expect("an answer").path();
    }
    assert_eq!(lab.path_queries("H1"), before + 1, "one question for all");
}

#[test]
fn no_delay_is_no_delay() {
    let lab = enter(&LAB);
    let _daemons = (lab.ours("H1", ""), lab.ours("H2", ""));
    let question = [ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.2")];
    let mut client = Client::connect(&lab, "H1");
    let begin = Instant::now();
    assert_eq!(status(&mut client, &question), code(Status::Enodata));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let found = rob::until(&mut client, &question, 0);
    assert!(found.is_some_and(|t| t < Duration::from_secs(5)), "the look-up was started: {found:?}");
}

#[test]
fn a_client_whose_answer_is_late_gets_it_after_it_has_ended_its_side() {
    let lab = enter(&LAB);
    let _daemons = (lab.ours("H1", ""), lab.ours("H2", ""));
    lab.inject("sa delay host=H1 attr=0x35 ms=300").unwrap();
    let mut client = Client::connect(&lab, "H1");
    client.ask(&between("10.77.0.1", "10.77.0.2"));
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    client.recv().expect("an answer").path();
    assert_eq!(client.stream().read(&mut [0]).unwrap(), 0, "then it is closed");
}
