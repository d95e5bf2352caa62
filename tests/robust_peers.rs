//! Peers that restart, move, and change their addresses while somebody knows or awaits them.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::{Entry, Status};
use rob::{code, enter, ip, status};
use util::client::between;
use util::{Client, Daemon, Lab, PATIENCE, Program, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// Ports with two LIDs each.
static WIDE: Shared = Shared::new(|o| o.opensm.push("lmc 1".into()));

const BOTH: [Program; 2] = [Program::Ours, Program::Stock];

#[track_caller]
fn resolves(lab: &Lab<'_>, host: &str, question: &[Entry], to: &str) {
    let path = Client::connect(lab, host).resolve(question).path();
    let wanted = lab.port(to).unwrap();
    assert_eq!((path.dlid(), path.dgid().0), (wanted.lid, wanted.gid), "{host} to {to}");
}

fn kill(daemon: Daemon) {
    daemon.signal("KILL");
    assert_eq!(daemon.wait(), None, "a signal ends it");
}

#[test]
fn a_peer_that_was_killed_and_started_again() {
    let lab = enter(&LAB);
    let there = between("10.77.0.1", "10.77.0.2");
    let back = between("10.77.0.2", "10.77.0.1");
    for (one, two) in [(Program::Ours, Program::Ours), (Program::Ours, Program::Stock), (Program::Stock, Program::Ours)]
    {
        // The options keep nothing: every look-up goes over the fabric.
        let options = "addr_timeout 0\ntimeout 500\n";
        let _stays = lab.start(one, "H1", options);
        let mut goes = lab.start(two, "H2", options);
        resolves(&lab, "H1", &there, "H2");
        resolves(&lab, "H2", &back, "H1");
        for ask_first in [true, false] {
            let old = lab.port("H2").unwrap().qpns;
            kill(goes);
            goes = lab.start(two, "H2", options);
            assert_ne!(lab.port("H2").unwrap().qpns, old, "another queue pair");
            if ask_first {
                resolves(&lab, "H1", &there, "H2");
            }
            resolves(&lab, "H2", &back, "H1");
            resolves(&lab, "H1", &there, "H2");
        }
    }
}

#[test]
fn an_address_that_moved_to_another_host() {
    let lab = enter(&LAB);
    for owner in BOTH {
        for n in 1..=3 {
            ip(&lab, "H2", &format!("addr add 10.77.5.{n}/16 dev ib0"));
        }
        let _asks = lab.ours("H1", "timeout 300\nretries 1\n");
        let _old = lab.ours("H2", "");
        // Known, asked for later only, and of nobody in the end.
        resolves(&lab, "H1", &between("10.77.0.1", "10.77.5.1"), "H2");
        for n in 1..=3 {
            ip(&lab, "H2", &format!("addr del 10.77.5.{n}/16 dev ib0"));
        }
        for n in 1..=2 {
            ip(&lab, "H3", &format!("addr add 10.77.5.{n}/16 dev ib0"));
        }
        let _new = lab.start(owner, "H3", "");
        resolves(&lab, "H1", &between("10.77.0.1", "10.77.5.2"), "H3");
        // The new owner is heard of: what was known of the old one is void.
        let mut announces = Client::connect(&lab, "H3");
        announces.ask(&between("10.77.5.1", "10.77.9.9"));
        let wanted = lab.port("H3").unwrap().lid;
        let follows = wait_for(PATIENCE, || {
            let path = Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.5.1")).path();
            (path.dlid() == wanted).then_some(())
        });
        assert!(follows.is_some(), "{owner:?}");
        let mut client = Client::connect(&lab, "H1");
        let gone = status(&mut client, &between("10.77.0.1", "10.77.5.3"));
        assert_eq!(gone, code(Status::Etimedout), "the old owner does not answer for it any more");
        for n in 1..=2 {
            ip(&lab, "H3", &format!("addr del 10.77.5.{n}/16 dev ib0"));
        }
    }
}

#[test]
fn an_old_entry_is_asked_for_again() {
    let lab = enter(&LAB);
    let _asks = lab.ours("H1", "addr_timeout 0\n");
    let _peer = lab.ours("H2", "");
    let question = between("10.77.0.1", "10.77.0.2");
    resolves(&lab, "H1", &question, "H2");
    lab.inject("port H2 gid=fe80::77:1 lid=321").unwrap();
    // The interface follows its port a moment later.
    let moved = wait_for(PATIENCE, || {
        let reply = Client::connect(&lab, "H1").resolve(&question);
        (reply.header.status == 0 && reply.path().dlid() == 321).then(|| reply.path())
    });
    assert_eq!(moved.expect("the new address is found").dgid().0, lab.port("H2").unwrap().gid);
}

#[test]
fn whoever_waits_is_served_when_the_peer_is_heard_of() {
    let lab = enter(&LAB);
    for peer in BOTH {
        let _asks = lab.ours("H1", "");
        let _peer = lab.start(peer, "H2", "");
        lab.inject("datagram drop from=H1 kind=mcast").unwrap();
        let mut waiting = Client::connect(&lab, "H1");
        let begin = Instant::now();
        waiting.ask(&between("10.77.0.1", "10.77.0.2"));
        assert!(waiting.is_silent(Duration::from_millis(100)), "its question is lost");
        // The peer asks for somebody else, in its own name.
        let mut announces = Client::connect(&lab, "H2");
        announces.ask(&between("10.77.0.2", "10.77.9.9"));
        assert_eq!(waiting.recv().expect("an answer").path().dlid(), lab.port("H2").unwrap().lid);
        // No question of its own could have helped.
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        lab.inject("clear").unwrap();
    }
}

#[test]
fn the_reply_waits_for_the_path() {
    let lab = enter(&LAB);
    let _daemons = (lab.ours("H1", ""), lab.ours("H2", ""));
    lab.inject("sa delay host=H1 attr=0x35 ms=700").unwrap();
    let begin = Instant::now();
    let path = Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.2")).path();
    assert!(begin.elapsed() >= Duration::from_millis(690), "{:?}", begin.elapsed());
    assert_eq!((path.mtu(), path.rate(), path.packet_lifetime()), (0x84, 0x83, 0x92));
}

#[test]
fn a_host_whose_lid_changed_answers_a_peer_that_restarted() {
    let lab = enter(&LAB);
    for peer in BOTH {
        lab.inject("port-reset H1").unwrap();
        let _stays = lab.ours("H1", "");
        let restarts = lab.start(peer, "H2", "");
        resolves(&lab, "H2", &between("10.77.0.2", "10.77.0.1"), "H1");
        resolves(&lab, "H1", &between("10.77.0.1", "10.77.0.2"), "H2");
        lab.inject("port H1 lid=777").unwrap();
        kill(restarts);
        let _again = lab.start(peer, "H2", "");
        resolves(&lab, "H2", &between("10.77.0.2", "10.77.0.1"), "H1");
        let path = Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.2")).path();
        assert_eq!((path.slid(), path.dlid()), (777, lab.port("H2").unwrap().lid), "with its own new LID");
    }
}

#[test]
fn ports_with_several_lids() {
    let lab = enter(&WIDE);
    for peer in BOTH {
        let _asks = lab.ours("H1", "addr_timeout 0\n");
        let _peer = lab.start(peer, "H2", "");
        let [one, two] = lab.hosts(["H1", "H2"]);
        let mut client = Client::connect(&lab, "H1");
        let path = client.resolve(&between("10.77.0.1", "10.77.0.2")).path();
        assert_eq!((path.dlid() & !1, path.slid() & !1), (two.lid, one.lid), "{peer:?}");
        // By its second LID, and from our second LID.
        let mut question = PathRecord::default();
        question.set_dlid(two.lid | 1);
        let path = client.resolve(&[Entry::path(0, &question)]).path();
        assert_eq!((path.dlid(), path.dgid().0), (two.lid | 1, two.gid), "{peer:?}");
        question.set_slid(one.lid | 1);
        let path = client.resolve(&[Entry::path(0, &question)]).path();
        assert_eq!((path.dlid(), path.slid()), (two.lid | 1, one.lid | 1), "{peer:?}");
        let back = Client::connect(&lab, "H2").resolve(&between("10.77.0.2", "10.77.0.1")).path();
        assert_eq!(back.dlid() & !1, one.lid, "{peer:?}");
    }
}
