//! A subnet administrator that refuses, is busy, is silent, or is somewhere else.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::client::{Entry, FLAG_QUERY_SA, Status};
use rob::{code, enter, until};
use util::client::{between, to_gid};
use util::{Client, Lab, PATIENCE, Program, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

fn there() -> [Entry; 2] {
    between("10.77.0.1", "10.77.0.2")
}

/// The status of an answer, and how long it took.
fn timed(lab: &Lab<'_>, question: &[Entry]) -> (u8, Duration) {
    let mut client = Client::connect(lab, "H1");
    let begin = Instant::now();
    (client.resolve(question).header.status, begin.elapsed())
}

#[test]
fn a_join_that_is_refused_or_lost_is_tried_again() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let two = lab.port("H2").unwrap();
    for fault in ["status status=0x0200", "status status=0x0700", "drop", "drop-request"] {
        lab.inject(&format!("sa {fault} host=H1 attr=0x38")).unwrap();
        let daemon = lab.start_configured(Program::Ours, "H1", "timeout 200\nretries 1\n");
        // What needs no group is served meanwhile.
        let (found, took) = timed(&lab, &[to_gid(0, two.gid)]);
        assert_eq!(found, 0, "{fault}");
        assert!(took < Duration::from_secs(3), "{fault}: {took:?}");
        assert_eq!(timed(&lab, &between("10.77.0.1", "fd77::1")).0, 0, "{fault}");
        let (refused, took) = timed(&lab, &there());
        let wanted = if fault.starts_with("status") { Status::Enodata } else { Status::Etimedout };
        assert_eq!(refused, code(wanted), "{fault}");
        assert!(took < Duration::from_secs(3), "{fault}: {took:?}");
        if fault.starts_with("status") {
            let said = daemon.said();
            assert!(said.contains("cannot join") && said.contains(&fault[14..]), "it is said: {said}");
        }
        lab.inject("clear").unwrap();
        let found = until(&mut Client::connect(&lab, "H1"), &there(), 0);
        assert!(found.is_some_and(|t| t < Duration::from_secs(8)), "{fault}: {found:?}");
    }
}

#[test]
fn silence_at_the_start_costs_its_time_only() {
    let lab = enter(&LAB);
    let _peer = lab.stock("H2", "");
    lab.inject("sa drop host=H1").unwrap();
    let _daemon = lab.start_configured(Program::Ours, "H1", "");
    let mut waits = Client::connect(&lab, "H1");
    let asked = Instant::now();
    waits.ask(&there());
    assert_eq!(timed(&lab, &between("10.77.0.1", "fd77::1")).0, 0, "an own address needs nobody");
    // Not for longer: it joins once more soon, and the question ends after nine seconds.
    let rest = Duration::from_millis(6_300).saturating_sub(asked.elapsed()).max(Duration::from_millis(1));
    assert!(waits.is_silent(rest), "the kernel gives up after six seconds");
    lab.inject("clear").unwrap();
    let begin = Instant::now();
    waits.recv().expect("an answer").path();
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn every_status_is_what_it_means() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let _daemon = lab.ours("H1", "timeout 300\nretries 1\n");
    let gid = lab.port("H2").unwrap().gid;
    let questions: [&[Entry]; 3] = [&there(), &[to_gid(0, gid)], &[to_gid(FLAG_QUERY_SA, gid)]];
    for question in questions {
        for (status, wanted) in [
            (0x000c_u16, Status::Enodata),
            (0x0100, Status::Enomem),
            (0x0300, Status::Enodata),
            (0x0500, Status::Edestaddr),
            (0x0600, Status::Einval),
            (0x0700, Status::Einval),
            (0x0001, Status::Etimedout),
        ] {
            lab.inject(&format!("sa status host=H1 attr=0x35 status={status}")).unwrap();
            let (found, took) = timed(&lab, question);
            assert_eq!(found, code(wanted), "{status:#06x}");
            assert!(took < Duration::from_secs(5), "{status:#06x}: {took:?}");
            lab.inject("clear").unwrap();
        }
        // Busy is no answer: it is asked again.
        lab.inject("sa status host=H1 attr=0x35 status=1 count=2").unwrap();
        let (found, took) = timed(&lab, question);
        assert_eq!(found, 0, "{took:?}");
        // And no failure is remembered.
        assert_eq!(timed(&lab, question).0, 0);
    }
}

#[test]
fn the_manager_moves_to_another_lid() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let gid = lab.port("H2").unwrap().gid;
    let question = [to_gid(FLAG_QUERY_SA, gid)];
    assert_eq!(timed(&lab, &question).0, 0);
    // What is under way goes to the new one.
    lab.inject("sa drop-request host=H1 attr=0x35 count=1").unwrap();
    let mut waits = Client::connect(&lab, "H1");
    waits.ask(&question);
    assert!(waits.is_silent(Duration::from_millis(100)));
    lab.inject("port H1 sm_lid=77").unwrap();
    let begin = Instant::now();
    waits.recv().expect("an answer").path();
    // That is before the kernel repeats a question.
    assert!(begin.elapsed() < Duration::from_millis(1800), "{:?}", begin.elapsed());
    // Told only by the wish for new registrations.
    lab.inject("port H1 sm_lid=78 quiet=1").unwrap();
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    let found = wait_for(PATIENCE, || {
        let (status, took) = timed(&lab, &question);
        (status == 0 && took < Duration::from_secs(1)).then_some(())
    });
    assert!(found.is_some());
    let begin = Instant::now();
    lab.manager("restart").unwrap();
    let joined = wait_for(PATIENCE, || (lab.stat("sa.H1.MCMemberRecord.Set").ok()? >= 2).then_some(()));
    assert!(joined.is_some(), "it joins again: {:?}", begin.elapsed());
    assert!(until(&mut Client::connect(&lab, "H1"), &question, 0).is_some());
}

#[test]
fn questions_in_a_queue_are_all_answered() {
    let lab = enter(&LAB);
    let _daemon = lab.ours("H1", "sa_depth 1\ntimeout 1000\nretries 0\n");
    let [two, three] = lab.hosts(["H2", "H3"]);
    let five = [
        to_gid(FLAG_QUERY_SA, two.gid),
        to_gid(0, two.gid),
        to_gid(0, three.gid),
        to_gid(FLAG_QUERY_SA, three.gid),
        to_gid(FLAG_QUERY_SA, two.gid),
    ];
    // The first is answered late, the next two never.
    lab.inject("sa delay host=H1 attr=0x35 ms=100 count=1").unwrap();
    let mut clients: Vec<Client> = five.iter().map(|_| Client::connect(&lab, "H1")).collect();
    clients[0].ask(&five[..1]);
    let asked = wait_for(PATIENCE, || (lab.path_queries("H1") == 1).then_some(()));
    assert!(asked.is_some(), "the first is on its way");
    lab.inject("sa drop-request host=H1 attr=0x35 count=2").unwrap();
    for (client, question) in clients.iter_mut().zip(&five).skip(1) {
        client.ask(std::slice::from_ref(question));
    }
    let all: Vec<u8> = clients.iter_mut().map(|c| c.recv().expect("an answer").header.status).collect();
    let late = code(Status::Etimedout);
    // Who waits in line for longer than a question may take is told the same.
    assert_eq!(all[..3], [0, late, late]);
    assert!(all[3..].iter().all(|s| [0, late].contains(s)), "{all:?}");
    lab.inject("clear").unwrap();
    assert_eq!(timed(&lab, &five[1..2]).0, 0, "the only place is free again");
}

#[test]
fn a_port_that_goes_down_ends_its_questions() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let daemon = lab.ours("H1", "sa_depth 1\n");
    let [two, three] = lab.hosts(["H2", "H3"]);
    lab.inject("sa drop host=H1").unwrap();
    let questions: [&[Entry]; 5] = [
        &[to_gid(FLAG_QUERY_SA, two.gid)],
        &[to_gid(0, two.gid)],
        &[to_gid(0, three.gid)],
        &there(),
        &between("10.77.0.1", "10.77.9.9"),
    ];
    let mut clients: Vec<Client> = Vec::new();
    for question in questions {
        let mut client = Client::connect(&lab, "H1");
        client.ask(question);
        clients.push(client);
    }
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    lab.console("Unlink \"H1\"[1]").unwrap();
    for client in &mut clients {
        assert_eq!(client.recv().expect("an answer").header.status, code(Status::Enotconn));
    }
    // The SA's silence would take six seconds.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(timed(&lab, &there()).0, code(Status::Esrcaddr), "nobody is there to ask from");
    assert!(rob::idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
    lab.inject("clear").unwrap();
    lab.console("ReLink \"H1\"[1]").unwrap();
    let found = until(&mut Client::connect(&lab, "H1"), &there(), 0);
    assert!(found.is_some(), "it serves again");
}

#[test]
fn many_clients_and_one_cold_destination() {
    let lab = enter(&LAB);
    let _daemons = (lab.ours("H1", ""), lab.ours("H2", ""));
    lab.inject("sa delay host=H1 attr=0x35 ms=300").unwrap();
    lab.reset_stats().unwrap();
    let mut clients: Vec<Client> = (0..500).map(|_| Client::connect(&lab, "H1")).collect();
    for client in &mut clients {
        client.ask(&there());
    }
    for client in &mut clients {
        client.recv().expect("an answer").path();
    }
    assert_eq!((lab.path_queries("H1"), lab.stat("mcast.H1.sent").unwrap()), (1, 1));
}
