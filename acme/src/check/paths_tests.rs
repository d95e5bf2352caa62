//! What is said of paths.

use super::*;
use crate::check::report::Level;
use crate::verdict::tests::{found, gid, record};
use libibacm::Address;

#[test]
fn a_verdict_is_a_finding() {
    let say = |result: Result<Path, Error>| agreement("x", &record(), &result, 0);
    let changed = |change: fn(&mut PathRecord)| {
        let mut sa = record();
        change(&mut sa);
        say(found(sa))
    };
    assert_eq!(changed(|_| {}), Finding::ok("path", "x", "the SA says the same"));
    let less = changed(|p| p.set_rate(0x90));
    assert!(less.level == Level::Ok && less.found.contains("multicast_groups"), "{less:?}");
    let more = changed(|p| p.set_rate(0x82));
    assert!(more.level == Level::Failed && more.remedy.unwrap().contains("route_prot sa"));
    let stale = changed(|p| p.set_dlid(9));
    assert!(stale.level == Level::Failed && stale.remedy.unwrap().contains("restart the service"));
    assert_eq!((say(Err(Error::Status(3))).level, say(Err(Error::Status(6))).level), (Level::Failed, Level::Warning));
    assert_eq!(say(Err(Error::TimedOut)).level, Level::Warning);
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
