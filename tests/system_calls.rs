//! How many system calls the running service makes for a request. Those of an answer from memory are counted exactly; of
//! those for an answer from the fabric, all but how often it looks whether there is something already.

#[path = "util/rob.rs"]
mod rob;
#[path = "util/traced.rs"]
mod traced;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use ibacm_wire::client::{EP_FLAG_DEST, Entry, More, resolve_request};
use rob::enter;
use traced::Calls;
use util::client::{between, ip, to_gid, to_lid};
use util::{Client, Daemon, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|_| {});

/// Waits until the service has nothing to do that the start has left.
fn rests(daemon: &Daemon, client: &mut Client) {
    let subscribed =
        wait_for(PATIENCE, || (client.more_counters()[More::NoticesSubscribed as usize] == 1).then_some(()));
    assert!(subscribed.is_some(), "{}", daemon.said());
    Calls::rest(daemon.pid());
}

/// How the stand-in's message begins that tells of receives.
const POSTED: &str = r#"iov_base="\22\0"#;

/// How often what is wrong is counted again: now and then the service looks for new devices, and that takes calls of its own.
const TRIES: usize = 3;

/// Fails if what is counted is wrong each time. The number of the time is given.
#[track_caller]
fn at_last(look: impl FnMut(usize) -> Result<(), String>) {
    let wrong: Vec<String> = (0..TRIES).map(look).map_while(Result::err).collect();
    assert!(wrong.len() < TRIES, "{wrong:#?}");
}

/// `turns` times a read of a client, a write to it and a wait, and nothing else at all.
fn three_each(what: &str, mut calls: Calls, turns: usize) -> Result<(), String> {
    println!("{what}: {calls:?}");
    let counted = format!("{what}: {calls:?}");
    let clients = (calls.take("recvfrom", ""), calls.take("sendto", ""));
    // The first one may have begun before strace came. Those that bring nothing are for the time, or end with strace.
    let woken = calls.take("epoll_wait", ") = 1");
    let waits = calls.take("epoll_wait", "") + calls.take("restart_syscall", "");
    let right = clients == (turns, turns) && (turns - 1..=turns).contains(&woken) && waits <= 4 && calls.others() == 0;
    right.then_some(()).ok_or(counted)
}

#[test]
fn an_answer_from_memory_takes_three() {
    const REQUESTS: usize = 100;
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let daemon = lab.ours("H1", "");
    let two = lab.port("H2").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let questions: [(&str, Vec<Entry>); 5] = [
        ("a peer", between("10.77.0.1", "10.77.0.2").to_vec()),
        ("without a source", vec![ip(EP_FLAG_DEST, "10.77.0.2")]),
        ("this host", between("10.77.0.1", "fd77::1").to_vec()),
        ("a GID", vec![to_gid(0, two.gid)]),
        ("a LID", vec![to_lid(0, two.lid)]),
    ];
    for (_, question) in &questions {
        client.resolve(question).path();
    }
    rests(&daemon, &mut client);
    for (what, question) in &questions {
        at_last(|_| {
            let calls = Calls::of(daemon.pid(), || {
                for _ in 0..REQUESTS {
                    client.resolve(question).path();
                }
            });
            three_each(what, calls, REQUESTS)
        });
    }
}

#[test]
fn thirty_two_requests_at_once_take_three() {
    const AT_ONCE: u64 = 32;
    const HEAPS: usize = 50;
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let daemon = lab.ours("H1", "");
    let mut client = Client::connect(&lab, "H1");
    let question = between("10.77.0.1", "10.77.0.2");
    client.resolve(&question).path();
    let bytes = |tid| {
        let (bytes, length) = resolve_request(tid, &question);
        bytes[..length].to_vec()
    };
    let heap: Vec<u8> = (0..AT_ONCE).flat_map(bytes).collect();
    rests(&daemon, &mut client);
    at_last(|_| {
        let calls = Calls::of(daemon.pid(), || {
            for _ in 0..HEAPS {
                client.send(&heap);
                for tid in 0..AT_ONCE {
                    assert_eq!(client.recv().expect("an answer").header.tid, tid.to_ne_bytes());
                }
            }
        });
        three_each("32 at once", calls, HEAPS)
    });
}

/// What others ask is answered, and then there is nothing to be awake for.
#[test]
fn a_request_of_another_host_keeps_nobody_awake() {
    const REQUESTS: usize = 20;
    let lab = enter(&LAB);
    for n in 1..=REQUESTS {
        rob::ip(&lab, "H1", &format!("addr add 10.77.7.{n}/16 dev ib0"));
    }
    let _peer = lab.ours("H2", "route_prot acm\n");
    let daemon = lab.ours("H1", "route_prot acm\n");
    let mut peers = Client::connect(&lab, "H2");
    peers.resolve(&between("10.77.0.2", "10.77.0.1")).path();
    rests(&daemon, &mut Client::connect(&lab, "H1"));
    let mut calls = Calls::of(daemon.pid(), || {
        for n in 1..=REQUESTS {
            peers.resolve(&between("10.77.0.2", &format!("10.77.7.{n}"))).path();
        }
    });
    println!("{calls:?}");
    let yields = calls.take("sched_yield", "");
    assert_eq!(yields, 0, "{calls:?}");
    assert!(calls.take("sendmsg", "") >= REQUESTS, "{calls:?}");
}

/// Each destination costs a multicast and its answer, and with `route_prot sa` a question to the SA and its answer. The
/// library that stands in for the device's has a system call for a datagram or MAD that goes out or has come, and one for
/// the completion of a send, where a real one looks at memory; a datagram that is multicast comes back to its sender.
#[test]
fn an_answer_from_the_fabric_takes_what_goes_out_and_comes_in() {
    const HOSTS: usize = 20;
    let lab = enter(&LAB);
    for n in 0..HOSTS * TRIES {
        rob::ip(&lab, "H2", &format!("addr add 10.77.6.{n}/16 dev ib0"));
    }
    // Out: the multicast, the question. In: that it is sent, itself, the peer's response; the SA's answer.
    for (prot, out, back) in [("sa", 2, 4), ("acm", 1, 3)] {
        let options = format!("route_prot {prot}\n");
        let _peer = lab.ours("H2", &options);
        let daemon = lab.ours("H1", &options);
        let mut client = Client::connect(&lab, "H1");
        client.resolve(&between("10.77.0.1", "10.77.0.2")).path();
        rests(&daemon, &mut client);
        at_last(|time| {
            let mut calls = Calls::of(daemon.pid(), || {
                for n in time * HOSTS..(time + 1) * HOSTS {
                    client.resolve(&between("10.77.0.1", &format!("10.77.6.{n}"))).path();
                }
            });
            println!("{prot}: {calls:?}");
            let counted = format!("{prot}: {calls:?}");
            let clients = (calls.take("recvfrom", ""), calls.take("sendto", ""));
            // The library tells of receives that are posted again by the dozen, and looks again when there is nothing more.
            let receives = calls.take("sendmsg", POSTED);
            let empty = calls.take("recvmsg", " EAGAIN ");
            let fabric = (calls.take("sendmsg", ""), calls.take("recvmsg", ""));
            // What comes may come at once or one after another, and is looked for without sleeping while there is time.
            let waits = ["epoll_wait", "restart_syscall", "sched_yield"].map(|name| calls.take(name, ""));
            // Queues of events armed and asked, the library's own events; the heap of the process may grow.
            let events = ["epoll_ctl", "fcntl", "read", "write"].map(|name| calls.take(name, ""));
            let right = clients == (HOSTS, HOSTS)
                && receives <= HOSTS / 2
                && fabric == (out * HOSTS, back * HOSTS)
                && waits[0] >= 2 * HOSTS
                && empty + events.iter().sum::<usize>() <= 20 * HOSTS
                && calls.take("brk", "") <= 1
                && calls.others() == 0;
            right.then_some(()).ok_or(counted)
        });
    }
}
