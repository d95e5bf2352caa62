//! What is thought of paths.

use super::*;

pub(crate) fn gid(n: u8) -> Gid {
    Gid([n; 16])
}

pub(crate) fn record() -> PathRecord {
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

pub(crate) fn found(record: PathRecord) -> Result<Path, Error> {
    Ok(Path { record, flags: 0, source: None })
}

fn changed(change: impl Fn(&mut PathRecord)) -> Verdict {
    let mut cached = record();
    change(&mut cached);
    judge(&cached, &found(record()), 0)
}

#[test]
fn each_stale_field_is_told() {
    assert_eq!(changed(|_| {}), Verdict::Same);
    for (what, verdict) in [
        ("DLID 9 cached, 6 by the SA", changed(|p| p.set_dlid(9))),
        ("SLID 9 cached, 3 by the SA", changed(|p| p.set_slid(9))),
        ("DGID 909:", changed(|p| p.set_dgid(gid(9)))),
        ("SGID 909:", changed(|p| p.set_sgid(gid(9)))),
        ("pkey 0x8001 cached, 0xffff by the SA", changed(|p| p.set_pkey(0x8001))),
        ("SL 5 cached, 0 by the SA", changed(|p| p.set_qos_sl(5))),
        // Where a path leads comes before how fast it is.
        ("DLID 9 cached, 6 by the SA", changed(|p| (p.set_dlid(9), p.set_rate(2)).0)),
    ] {
        assert!(matches!(verdict, Verdict::Stale(_)) && verdict.is_good() == Some(false), "{what}: {verdict:?}");
        assert!(verdict.found().starts_with("stale cached path: ") && verdict.found().contains(what), "{verdict:?}");
        assert!(verdict.remedy().unwrap().contains("restart the service"));
    }
    let two = changed(|p| (p.set_dlid(9), p.set_slid(8)).0);
    assert!(two.found().contains("DLID 9 cached, 6 by the SA, SLID 8 cached"), "{two:?}");
}

#[test]
fn speed_is_no_staleness() {
    let less = changed(|p| (p.set_rate(2), p.set_mtu(3)).0);
    assert_eq!(
        less,
        Verdict::Less("MTU 1024 cached, 2048 by the SA, rate 2.5 Gb/s cached, 10 Gb/s by the SA".to_owned())
    );
    assert_eq!((less.is_good(), less.remedy()), (Some(true), None));
    for option in ["route_prot acm", "multicast_groups", "min_rate"] {
        assert!(less.found().contains(option), "{option}");
    }
    for (what, more) in [
        ("MTU 4096 cached, 2048 by the SA", changed(|p| p.set_mtu(5))),
        ("rate 14 Gb/s cached, 10 Gb/s by the SA", changed(|p| p.set_rate(11))),
        ("rate 14 Gb/s cached, 10 Gb/s by the SA", changed(|p| (p.set_rate(11), p.set_mtu(3)).0)),
    ] {
        assert!(matches!(more, Verdict::More(_)) && more.is_good() == Some(false), "{more:?}");
        assert!(more.found().contains(what) && !more.found().contains("stale"), "{more:?}");
        assert!(more.remedy().unwrap().contains("route_prot acm"));
    }
}

#[test]
fn what_is_no_fault() {
    let other_membership = changed(|p| (p.set_pkey(0x7fff), p.set_packet_lifetime(9)).0);
    assert_eq!(other_membership, Verdict::Same);
    // The other LIDs of the same port, and no others.
    let mut other = record();
    other.set_dlid(7);
    assert_eq!(judge(&other, &found(record()), 1), Verdict::Same);
    other.set_dlid(8);
    assert!(matches!(judge(&other, &found(record()), 1), Verdict::Stale(_)));
    let mut own = record();
    own.set_dgid(gid(1));
    let mut with_sl = own;
    with_sl.set_qos_sl(4);
    assert_eq!(judge(&own, &found(with_sl), 0), Verdict::Same);
    for rate in [2, 11] {
        let mut with_rate = own;
        with_rate.set_rate(rate);
        assert_eq!(judge(&own, &found(with_rate), 0), Verdict::Same, "no link is in the way");
    }
}

#[test]
fn no_path_and_no_answer_differ() {
    let say = |e| judge(&record(), &Err(e), 0);
    assert!(say(Error::Status(3)).found().contains("the SA has none"));
    assert_eq!(say(Error::Status(3)).is_good(), Some(false));
    assert_eq!((say(Error::Status(6)).is_good(), say(Error::TimedOut).is_good()), (None, None));
}

#[test]
fn the_question_is_what_tells_the_path_apart() {
    let Request::Path { record: asked, query_sa: true, cached_only: false } = question(&record()) else { panic!() };
    assert_eq!((asked.dgid(), asked.sgid(), asked.pkey(), asked.dlid()), (gid(2), gid(1), 0xffff, 0));
    assert_eq!((asked.sl(), asked.mtu(), asked.rate()), (0, 0, 0));
    let Request::Path { record: asked, query_sa: true, .. } = question_at_any_speed(&record()) else { panic!() };
    assert_eq!((asked.dlid(), asked.slid(), asked.mtu(), asked.rate()), (6, 3, 0, 0));
}
