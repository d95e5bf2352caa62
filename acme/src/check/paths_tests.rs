//! What is said of paths.

use super::*;
use crate::check::report::Level;
use libibacm::Address;

fn gid(n: u8) -> Gid {
    Gid([n; 16])
}

fn record() -> PathRecord {
    let mut p = PathRecord::default();
    p.set_dgid(gid(2));
    p.set_sgid(gid(1));
    p.set_dlid(6);
    p.set_slid(3);
    p.set_pkey(0xffff);
    p.set_mtu(0x84);
    p.set_rate(0x83);
    p
}

fn found(record: PathRecord) -> Result<Path, Error> {
    Ok(Path { record, flags: 0, source: None })
}

#[test]
fn each_stale_field_is_told() {
    let change = |change: fn(&mut PathRecord)| {
        let mut cached = record();
        change(&mut cached);
        agreement("x", &cached, &found(record()), 0)
    };
    assert_eq!(change(|_| {}).level, Level::Ok);
    for (what, finding) in [
        ("DLID 9 cached, 6 by the SA", change(|p| p.set_dlid(9))),
        ("SLID 9 cached, 3 by the SA", change(|p| p.set_slid(9))),
        ("DGID 909:", change(|p| p.set_dgid(gid(9)))),
        ("SGID 909:", change(|p| p.set_sgid(gid(9)))),
        ("pkey 0x8001 cached, 0xffff by the SA", change(|p| p.set_pkey(0x8001))),
        ("SL 5 cached, 0 by the SA", change(|p| p.set_qos_sl(5))),
        ("MTU 4096 cached, 2048 by the SA", change(|p| p.set_mtu(5))),
        ("rate 14 Gb/s cached, 10 Gb/s by the SA", change(|p| p.set_rate(11))),
    ] {
        assert_eq!(finding.level, Level::Failed, "{what}");
        assert!(finding.found.starts_with("stale cached path: ") && finding.found.contains(what), "{finding:?}");
        assert!(finding.remedy.unwrap().contains("restart the service"));
    }
    let two = change(|p| (p.set_dlid(9), p.set_slid(8)).0);
    assert!(two.found.contains("DLID 9 cached, 6 by the SA, SLID 8 cached"), "{two:?}");
}

#[test]
fn what_is_no_fault() {
    let mut less = record();
    less.set_pkey(0x7fff);
    less.set_mtu(3);
    less.set_rate(2);
    less.set_packet_lifetime(9);
    assert_eq!(agreement("x", &less, &found(record()), 0).level, Level::Ok);
    // The other LIDs of the same port, and no others.
    let mut other = record();
    other.set_dlid(7);
    assert_eq!(agreement("x", &other, &found(record()), 1).level, Level::Ok);
    other.set_dlid(8);
    assert_eq!(agreement("x", &other, &found(record()), 1).level, Level::Failed);
    let mut own = record();
    own.set_dgid(gid(1));
    let mut with_sl = own;
    with_sl.set_qos_sl(4);
    assert_eq!(agreement("x", &own, &found(with_sl), 0).level, Level::Ok);
}

#[test]
fn no_path_and_no_answer_differ() {
    let say = |e| agreement("x", &record(), &Err(e), 0);
    assert!(say(Error::Status(3)).found.contains("the SA has none"));
    assert_eq!((say(Error::Status(3)).level, say(Error::Status(6)).level), (Level::Failed, Level::Warning));
    assert_eq!(say(Error::TimedOut).level, Level::Warning);
}

#[test]
fn the_question_is_what_tells_the_path_apart() {
    let Request::Path { record: asked, query_sa: true, cached_only: false } = question(&record()) else { panic!() };
    assert_eq!((asked.dgid(), asked.sgid(), asked.pkey(), asked.dlid()), (gid(2), gid(1), 0xffff, 0));
    assert_eq!((asked.sl(), asked.mtu(), asked.rate()), (0, 0, 0));
}

#[test]
fn own_addresses_lead_to_the_own_port() {
    let port = Port { gids: vec![gid(2)], ..Port::default() };
    assert_eq!(own("x", Some(&port), &found(record()), true).level, Level::Ok);
    let other = Port { gids: vec![gid(1)], ..Port::default() };
    assert!(own("x", Some(&other), &found(record()), false).found.contains("not to"));
    for error in [6, 3] {
        let say = |sa| own("x", Some(&port), &Err(Error::Status(error)), sa);
        assert!(say(true).level == Level::Failed && say(true).remedy.unwrap().contains("log"));
        assert!(say(false).level == Level::Warning && say(false).found.contains("as the SA does not answer"));
    }
    let refused = own("x", Some(&port), &Err(Error::Status(7)), false);
    assert_eq!(refused.level, Level::Failed, "the SA has nothing to do with it");
}

#[test]
fn peers_that_are_not_found() {
    let limit = Duration::from_secs(1);
    let name = Destination::Address(Address::Name("there".into()));
    let say = |d: &Destination, e, sa| peer("x", d, &Err(e), sa, limit);
    assert_eq!(peer("x", &name, &found(record()), true, limit).level, Level::Ok);
    for (finding, words, remedy) in [
        (say(&name, Error::Status(6), true), "peer does not answer", "ib_acme check there"),
        (say(&name, Error::Status(3), true), "peer does not answer", "min_mtu"),
        (say(&name, Error::Status(9), true), "cannot be asked for", "ip route get"),
        (say(&Destination::Lid(7), Error::Status(3), true), "no path", "ibstat"),
        (say(&Destination::Gid(gid(3)), Error::Status(9), true), "no path", "ibstat"),
        (say(&name, Error::TimedOut, true), "peer does not answer", "more than 1 s (--timeout)"),
        (say(&Destination::Lid(7), Error::TimedOut, true), "no path in time", "more than 1 s (--timeout)"),
        (say(&Destination::Lid(7), Error::Status(6), true), "no path in time", "more than 1 s (--timeout)"),
        (say(&name, Error::Status(1), true), "out of resources", "ask for less"),
    ] {
        assert!(finding.level == Level::Failed && finding.found.contains(words), "{finding:?}");
        assert!(finding.remedy.unwrap().contains(remedy), "{words}");
    }
    assert_eq!(say(&name, Error::TimedOut, true), say(&name, Error::Status(6), true), "whoever gave up");
    // The one fault is the administrator's, whoever ran out of time first, and whatever is asked for.
    for destination in [&name, &Destination::Lid(7), &Destination::Gid(gid(3))] {
        let silent = say(destination, Error::TimedOut, false);
        assert!(silent.level == Level::Warning && silent.found.ends_with("as the SA does not answer"), "{silent:?}");
        for status in [3, 5, 6] {
            assert_eq!(say(destination, Error::Status(status), false), silent);
        }
    }
    assert_eq!(say(&name, Error::Status(9), false).level, Level::Failed, "it cannot be asked for all the same");
}
