use super::*;
use crate::addr::Addr;
use crate::cache::{Cache, Origin};
use crate::keyed::SipKey;

const MS: u64 = 1000;
const A: Cause = Cause::client(1);

fn setup(depth: usize) -> (Arp, Rng, Vec<DestId>) {
    let config = ArpConfig { depth, fixed: false, timeout: Duration::from_millis(100), retries: 2 };
    let mut cache = Cache::new(SipKey(1, 2), 100);
    let dests = (0..20).map(|l| cache.insert(&Addr::lid(l), Origin::Learned, false).unwrap()).collect();
    (Arp::new(config), Rng::new(SipKey(7, 7)), dests)
}

fn send(a: &mut Arp, now: u64) -> Option<(u64, DestId)> {
    a.next_to_send(Time(now), &Groups::default())
}

#[test]
fn an_unanswered_request_is_repeated_and_given_up() {
    let (mut a, mut rng, d) = setup(1);
    let tid = a.start(d[0], A, &mut rng).unwrap();
    let mut now = 0;
    for _ in 0..3 {
        assert_eq!(send(&mut a, now), Some((tid, d[0])));
        assert_eq!(send(&mut a, now), None);
        assert_eq!(a.next_deadline(), Time(now + 100 * MS));
        assert_eq!(a.on_time(Time(now + 99 * MS)), None);
        now += 100 * MS;
        if a.get(tid).is_some() && now < 300 * MS {
            assert_eq!(a.on_time(Time(now)), None);
        }
    }
    assert_eq!(a.on_time(Time(now)), Some(GaveUp { dest: d[0] }));
    assert!(a.is_empty());
    assert_eq!(a.next_deadline(), Time::NEVER);
}

#[test]
fn a_silent_destination_holds_the_only_place_for_a_moment() {
    let (mut a, mut rng, d) = setup(1);
    a.start(d[0], A, &mut rng).unwrap();
    let live = a.start(d[1], A, &mut rng).unwrap();
    send(&mut a, 0).unwrap();
    assert_eq!(send(&mut a, 10), None);
    assert_eq!(a.next_deadline(), Time(MS));
    assert_eq!(a.on_time(Time(MS)), None);
    assert_eq!(send(&mut a, MS), Some((live, d[1])));
}

#[test]
fn an_answer_frees_the_place_at_once() {
    let (mut a, mut rng, d) = setup(1);
    let first = a.start(d[0], A, &mut rng).unwrap();
    let second = a.start(d[1], A, &mut rng).unwrap();
    send(&mut a, 0).unwrap();
    assert!(a.get(first).is_some());
    assert!(a.get(second).is_none(), "not sent yet: nobody can know its id");
    a.close(first);
    assert_eq!(send(&mut a, 1), Some((second, d[1])));
}

#[test]
fn a_failed_send_gives_its_place_back_and_is_tried_again() {
    let (mut a, mut rng, d) = setup(1);
    let first = a.start(d[0], A, &mut rng).unwrap();
    let second = a.start(d[1], A, &mut rng).unwrap();
    send(&mut a, 0).unwrap();
    a.send_failed(Time(1), first);
    assert_eq!(send(&mut a, 1), Some((second, d[1])));
    a.close(second);
    assert_eq!(a.on_time(Time(1 + 10 * MS)), None);
    assert_eq!(send(&mut a, 1 + 10 * MS), Some((first, d[0])));
}

#[test]
fn sends_that_fail_are_no_transmissions_but_end_in_time() {
    let (mut a, mut rng, d) = setup(1);
    let tid = a.start(d[0], A, &mut rng).unwrap();
    let (mut now, mut tries) = (0, 0);
    loop {
        assert_eq!(send(&mut a, now), Some((tid, d[0])));
        a.send_failed(Time(now), tid);
        tries += 1;
        now = a.next_deadline().0;
        if a.on_time(Time(now)).is_some() {
            break;
        }
    }
    assert_eq!(now, 300 * MS, "as long as without an answer");
    assert!((5..=8).contains(&tries), "{tries}: less and less often");

    let tid = a.start(d[1], A, &mut rng).unwrap();
    for _ in 0..4 {
        assert_eq!(send(&mut a, now), Some((tid, d[1])));
        a.send_failed(Time(now), tid);
        now = a.next_deadline().0;
        assert_eq!(a.on_time(Time(now)), None, "more failures than retries");
    }
}

#[test]
fn an_answer_counts_whatever_else_was_sent_or_could_not_be() {
    let (mut a, mut rng, d) = setup(1);
    let tid = a.start(d[0], A, &mut rng).unwrap();
    // what did not get out goes out again when the group is joined
    send(&mut a, 0).unwrap();
    a.send_failed(Time(0), tid);
    a.send_again(Time(1));
    assert_eq!(send(&mut a, 1), Some((tid, d[0])));
    assert!(a.get(tid).is_some(), "its answer is no stranger's");
    // what has got out may be answered, though it could not be sent again
    a.send_again(Time(2));
    assert_eq!(send(&mut a, 2), Some((tid, d[0])));
    a.send_failed(Time(2), tid);
    assert!(a.get(tid).is_some());
    let (mut sent, mut now) = (1, 2);
    while a.on_time(Time(now)).is_none() {
        sent += usize::from(send(&mut a, now).is_some());
        now = a.next_deadline().0;
    }
    assert_eq!(sent, 4, "the one that failed, and as often as any other");
    assert!(now < 400 * MS, "{now}");
}

#[test]
fn ids_differ_and_leftovers_of_closed_requests_do_not_pile_up() {
    let (mut a, mut rng, d) = setup(4);
    let mut seen = std::collections::HashSet::new();
    for i in 0..10_000u64 {
        let tid = a.start(d[0], A, &mut rng).unwrap();
        assert!(seen.insert(tid) && tid >> 63 == 0);
        send(&mut a, i).unwrap();
        a.close(tid);
    }
    assert!(a.waits.len() + a.aging.len() < 300);
}

#[test]
fn the_number_of_open_requests_is_bounded() {
    let (mut a, mut rng, d) = setup(1);
    for client in 0..MAX_OPEN {
        a.start(d[0], Cause::client(client as u64), &mut rng).unwrap();
    }
    assert_eq!(a.start(d[0], A, &mut rng), None);
}

#[test]
fn one_client_leaves_room_for_others() {
    let (mut a, mut rng, d) = setup(1);
    let opened = (0..MAX_OPEN).filter(|_| a.start(d[0], A, &mut rng).is_some()).count();
    assert_eq!((opened, a.opened(A)), (MAX_OPEN / 2, MAX_OPEN / 2));
    assert!(a.start(d[1], Cause::client(2), &mut rng).is_some());
}

#[test]
fn silent_destinations_of_one_client_leave_places_for_another() {
    let (mut a, mut rng, d) = setup(8);
    let other = Cause::client(2);
    for _ in 0..1000 {
        a.start(d[0], A, &mut rng).unwrap();
    }
    let mut now = 0;
    for _ in 0..20 {
        while send(&mut a, now).is_some() {}
        let tid = a.start(d[1], other, &mut rng).unwrap();
        assert_eq!(send(&mut a, now), Some((tid, d[1])), "at once, at {now}");
        a.close(tid);
        now = a.next_deadline().0;
        assert_eq!(a.on_time(Time(now)), None);
    }
    assert!(now >= 19 * MS && a.is_behind());
}

#[test]
fn what_a_client_waits_for_is_not_held_up_by_who_asked_first() {
    let (mut a, mut rng, d) = setup(1);
    let tids: Vec<u64> = (0..100).map(|_| a.start(d[0], A, &mut rng).unwrap()).collect();
    send(&mut a, 0).unwrap();
    a.join(Cause::client(2), tids[99]);
    a.abandon(A);
    a.close(tids[0]);
    assert_eq!(send(&mut a, 1).map(|s| s.0), Some(tids[99]));
    a.close(tids[99]);
    assert_eq!(send(&mut a, 1).map(|s| s.0), Some(tids[1]), "what nobody waits for is still asked");
}
