//! Questions to the subnet administrator: their order, their limits and what counts as an answer.

use super::*;
use crate::keyed::SipKey;
use crate::sa_answer::path_fits;
use ibacm_wire::client::Status;
use ibacm_wire::sa::McMember;
use ibacm_wire::{Gid, PathRecord};

const A: Cause = Cause::client(1);

fn client(depth: usize) -> (SaClient<u32>, Rng) {
    let mut rng = Rng::new(SipKey(1, 2));
    (SaClient::new(SaConfig { depth, fixed: false, timeout_ms: 1000, retries: 1 }, &mut rng), rng)
}

fn question(n: u8) -> Ask {
    let mut p = PathRecord::default();
    p.set_dgid(Gid([n; 16]));
    Ask::Path(p)
}

fn answer(mad: &SaMad, status: u16) -> SaMad {
    let mut a = *mad;
    a.0[3] |= sa::METHOD_RESP;
    a.set_status(status);
    a.0[56 + 40..56 + 42].copy_from_slice(&[0, 9]);
    a
}

#[test]
fn depth_limits_what_is_on_its_way_and_the_queue_moves_on_failure() {
    let (mut c, mut rng) = client(1);
    for i in 1..=3 {
        c.submit(Time(0), A, u32::from(i), question(i)).unwrap();
    }
    let (tid, _) = c.next_to_send(Time(0)).unwrap();
    assert!(c.next_to_send(Time(0)).is_none());
    let a = c.send_failed(tid).unwrap();
    assert_eq!((a.who, a.result.unwrap_err()), (1, SaError::Down));
    let (_, mad) = c.next_to_send(Time(0)).unwrap();
    let a = c.received(Time(1), 110, &mad, &mut rng).unwrap();
    assert_eq!((a.who, a.result.unwrap_err()), (2, SaError::Timeout));
    let (_, mad) = c.next_to_send(Time(0)).unwrap();
    let a = c.received(Time(1), 0, &answer(&mad, 0), &mut rng).unwrap();
    assert_eq!((a.who, a.result.unwrap().path().dlid()), (3, 9));
    assert!(c.is_empty());
}

#[test]
fn every_status_but_zero_is_a_failure() {
    for status in [0x000c, 0x0100, 0x0200, 0x0300, 0x0400, 0x0500, 0x0600, 0x0700, 0x0900, 0x0301] {
        let (mut c, mut rng) = client(1);
        c.submit(Time(0), A, 1, question(1)).unwrap();
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        let e = c.received(Time(1), 0, &answer(&mad, status), &mut rng).unwrap().result.unwrap_err();
        assert_eq!(e, SaError::Status(status));
        assert_ne!(e.client_status(), Status::Success);
    }
}

#[test]
fn busy_is_asked_again_after_growing_pauses_and_ends() {
    let (mut c, mut rng) = client(2);
    c.submit(Time(0), A, 1, question(1)).unwrap();
    let (mut now, mut tries) = (Time(0), 0);
    loop {
        let (_, mad) = c.next_to_send(now).unwrap();
        tries += 1;
        if let Some(a) = c.received(now, 0, &answer(&mad, 1), &mut rng) {
            assert_eq!(a.result.unwrap_err(), SaError::Busy);
            break;
        }
        assert!(c.next_to_send(now).is_none(), "a pause holds everything");
        let next = c.next_deadline();
        assert!(next > now && next < now.plus(Duration::from_secs(4)));
        now = next;
    }
    assert!((3..=12).contains(&tries), "{tries} tries");
    assert!(now < Time(2_000_000));
}

#[test]
fn answers_to_something_else_are_not_answers() {
    let (mut c, mut rng) = client(1);
    c.submit(Time(0), A, 1, question(1)).unwrap();
    let (_, mad) = c.next_to_send(Time(0)).unwrap();
    let mut other = answer(&mad, 0);
    other.0[15] ^= 1;
    assert!(c.received(Time(1), 0, &other, &mut rng).is_none());
    assert!(c.received(Time(1), 0, &mad, &mut rng).is_none(), "not even a response");
    let mut wrong = answer(&mad, 0);
    wrong.0[56 + 8] ^= 1;
    let e = c.received(Time(1), 0, &wrong, &mut rng).unwrap().result.unwrap_err();
    assert_eq!(e, SaError::Malformed);
}

#[test]
fn ports_can_be_asked_for_with_the_default_prefix() {
    let gid = |prefix: u64, interface: u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&prefix.to_be_bytes());
        bytes[8..].copy_from_slice(&interface.to_be_bytes());
        Gid(bytes)
    };
    let path = |dgid, sgid| {
        let mut p = PathRecord::default();
        p.set_dgid(dgid);
        p.set_sgid(sgid);
        p.set_dlid(7);
        p
    };
    let (own, default) = (0xfec0_0000_0000_0077, Gid::DEFAULT_PREFIX);
    let answer = path(gid(own, 1), gid(own, 2));
    assert!(path_fits(&path(gid(own, 1), gid(own, 2)), &answer));
    assert!(path_fits(&path(gid(default, 1), gid(default, 2)), &answer));
    for (dgid, sgid) in [(gid(default, 3), gid(own, 2)), (gid(own, 1), gid(default, 3)), (gid(own + 1, 1), gid(own, 2))]
    {
        assert!(!path_fits(&path(dgid, sgid), &answer), "{dgid} {sgid}");
    }
}

#[test]
fn nothing_waits_for_ever() {
    let (mut c, _) = client(1);
    c.submit(Time(0), A, 1, question(1)).unwrap();
    c.submit(Time(0), A, 2, question(2)).unwrap();
    c.next_to_send(Time(0)).unwrap();
    assert!(c.on_time(Time(1_999_999)).is_none());
    assert_eq!(c.on_time(Time(2_000_000)).unwrap().who, 2);
    assert!(c.on_time(Time(2_000_000)).is_none());
    assert_eq!(c.on_time(c.next_deadline()).unwrap().who, 1);
    assert!(c.is_empty());
    assert_eq!(c.next_deadline(), Time::NEVER);
}

#[test]
fn joins_go_first_and_a_new_sa_is_asked_again() {
    let (mut c, mut rng) = client(1);
    c.submit(Time(0), A, 1, question(1)).unwrap();
    let m = McMember { mgid: Gid([0xff; 16]), ..McMember::default() };
    c.submit_join(Time(0), 2, m).unwrap();
    let (_, mad) = c.next_to_send(Time(0)).unwrap();
    assert_eq!(mad.attribute(), sa::ATTR_MCMEMBER);
    c.resend_all(Time(1));
    let (_, again) = c.next_to_send(Time(1)).unwrap();
    assert_eq!(again.attribute(), sa::ATTR_MCMEMBER);
    assert_ne!(again.tid(), mad.tid());
    let mut bad = answer(&again, 0);
    bad.0[56 + 36..56 + 38].copy_from_slice(&[0, 1]);
    let a = c.received(Time(2), 0, &bad, &mut rng).unwrap();
    assert_eq!((a.who, a.result.unwrap_err()), (2, SaError::Malformed), "a unicast LID is no group's");
    assert_eq!(c.drain(), vec![1]);
}

#[test]
fn a_join_without_an_answer_holds_no_question_up() {
    let (mut c, mut rng) = client(1);
    for i in [1, 2] {
        c.submit_join(Time(0), i, McMember::default()).unwrap();
    }
    let (_, join) = c.next_to_send(Time(0)).unwrap();
    assert_eq!(join.attribute(), sa::ATTR_MCMEMBER);
    assert!(c.next_to_send(Time(0)).is_none(), "one join at a time");
    c.submit(Time(0), A, 3, question(3)).unwrap();
    c.submit(Time(0), A, 4, question(4)).unwrap();
    for who in [3, 4] {
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        assert_eq!(mad.attribute(), sa::ATTR_PATH);
        assert!(c.next_to_send(Time(0)).is_none(), "one question at a time");
        assert_eq!(c.received(Time(1), 0, &answer(&mad, 0), &mut rng).unwrap().who, who);
    }
    // the second join has not had its turn: its time is up like that of any question
    assert_eq!(c.on_time(Time(2_000_000)).unwrap().who, 1);
    assert_eq!(c.received(Time(2), 110, &join, &mut rng).unwrap().who, 2);
    assert!(c.is_empty());
}

#[test]
fn what_nobody_waits_for_is_asked_alone_and_delays_nobody() {
    let (mut c, mut rng) = client(1);
    c.submit_idle(Time(0), 10, question(10)).unwrap();
    c.submit_idle(Time(0), 11, question(11)).unwrap();
    c.submit(Time(0), A, 1, question(1)).unwrap();
    let (_, first) = c.next_to_send(Time(0)).unwrap();
    assert_eq!(first.path().dgid(), Gid([1; 16]));
    assert!(c.next_to_send(Time(0)).is_none() && c.len() == 1);
    // as long as that takes: it is no question that fails for waiting
    assert_eq!(c.next_deadline(), Time(4_000_000), "the one that is on its way");
    c.received(Time(1), 0, &answer(&first, 0), &mut rng).unwrap();
    let (_, idle) = c.next_to_send(Time(3_000_000)).unwrap();
    assert_eq!(idle.path().dgid(), Gid([10; 16]));
    assert!(c.next_to_send(Time(3_000_000)).is_none(), "one by one");
    c.submit(Time(3_000_000), A, 2, question(2)).unwrap();
    let (_, second) = c.next_to_send(Time(3_000_000)).expect("the depth is for others");
    assert_eq!(second.path().dgid(), Gid([2; 16]));
    // its "busy" is a pause for its kind alone
    assert!(c.received(Time(3_000_001), 0, &answer(&idle, sa::STATUS_BUSY), &mut rng).is_none());
    c.received(Time(3_000_002), 0, &answer(&second, 0), &mut rng).unwrap();
    assert!(c.next_to_send(Time(3_000_002)).is_none());
    c.submit(Time(3_000_003), A, 3, question(3)).unwrap();
    let (_, third) = c.next_to_send(Time(3_000_003)).unwrap();
    c.received(Time(3_000_004), 0, &answer(&third, 0), &mut rng).unwrap();
    let resume = c.next_deadline();
    assert!(resume > Time(3_000_004) && resume < Time(3_200_000), "{resume:?}");
    let (_, again) = c.next_to_send(resume).unwrap();
    assert_eq!(again.path().dgid(), Gid([10; 16]));
    c.withdraw(|who| *who == 11);
    assert_eq!(c.drain(), [10]);
}

#[test]
fn a_question_that_was_lost_holds_others_up_for_a_moment() {
    let (mut c, mut rng) = client(1);
    for i in 1..=20u8 {
        c.submit(Time(0), A, u32::from(i), question(i)).unwrap();
    }
    let (_, lost) = c.next_to_send(Time(0)).unwrap();
    let mut now = Time(0);
    for who in 2..=20 {
        // The first of them has to be missed before the next is asked; the others follow as answers come.
        if who == 2 {
            assert!(c.next_to_send(now).is_none());
            now = c.next_deadline();
            assert!((1_000..=100_000).contains(&now.0), "{now:?}");
        }
        let (_, mad) = c.next_to_send(now).unwrap();
        assert!(c.next_to_send(now).is_none(), "one question at a time");
        assert_eq!(c.received(now, 0, &answer(&mad, 0), &mut rng).unwrap().who, who);
    }
    // The kernel has repeated it.
    assert_eq!(c.received(Time(2_000_000), 0, &answer(&lost, 0), &mut rng).unwrap().who, 1);
    assert!(c.is_empty());
}

#[test]
fn an_sa_that_answers_nothing_is_asked_ever_more_rarely() {
    let (mut c, _) = client(1);
    for i in 1..=100u8 {
        c.submit(Time(0), A, u32::from(i), question(i)).unwrap();
    }
    let (mut now, mut sent) = (Time(0), Vec::new());
    while now < Time(2_000_000) {
        while c.next_to_send(now).is_some() {
            sent.push(now.0 / 1000);
        }
        now = c.next_deadline();
    }
    assert_eq!(sent, [0, 20, 60, 140, 300, 620, 1260], "milliseconds");
}

#[test]
fn an_sa_that_moves_all_the_time_does_not_make_a_question_endless() {
    let (mut c, _) = client(1);
    c.submit(Time(0), A, 1, question(1)).unwrap();
    let mut now = Time(0);
    while c.on_time(now).is_none() {
        c.resend_all(now);
        c.next_to_send(now);
        now = Time(now.0 + 500_000);
        assert!(now < Time(20_000_000), "it ends");
    }
    assert!(now >= Time(2_000_000));
}

#[test]
fn clients_have_turns_and_leave_places_for_others() {
    let (mut c, mut rng) = client(8);
    let (_, begin) = most_on_their_way(&mut c, &mut rng, S, 200, 100);
    for i in 1..=100u8 {
        c.submit(Time(begin), A, u32::from(i), question(i)).unwrap();
    }
    let mut mads: Vec<SaMad> = std::iter::from_fn(|| c.next_to_send(Time(begin)).map(|m| m.1)).collect();
    assert_eq!(mads.len(), 7, "one place is for somebody else");
    assert!(c.next_deadline() > Time(begin));
    let other = Cause::client(2);
    c.submit(Time(begin), other, 200, question(200)).unwrap();
    let (_, mad) = c.next_to_send(Time(begin)).expect("the place that was left");
    assert_eq!(c.received(Time(begin + 1), 0, &answer(&mad, 0), &mut rng).unwrap().who, 200);
    // what is asked already waits for whoever wants it first
    let last = c.submit(Time(begin + 1), A, 201, question(201)).unwrap();
    c.join(other, last);
    let (_, mad) = c.next_to_send(Time(begin + 1)).unwrap();
    assert_eq!(mad.path().dgid(), Gid([201; 16]));
    assert!(c.received(Time(begin + 1), 0, &answer(&mads.remove(0), sa::STATUS_BUSY), &mut rng).is_none());
    assert_eq!(c.len(), 101);
    c.resend_all(Time(begin + 2));
    assert_eq!(c.len(), 101);
    c.abandon(A, |who| who % 2 == 0);
    let mut asked = Vec::new();
    while let Some((_, mad)) = c.next_to_send(Time(begin + 3)) {
        asked.push(c.received(Time(begin + 3), 0, &answer(&mad, 0), &mut rng).unwrap().who);
    }
    asked.sort_unstable();
    assert_eq!(asked, (1..=99).step_by(2).chain([201]).collect::<Vec<_>>(), "what is wanted by others too");
    assert!(c.is_empty() && c.asked(A) == 0 && c.asked(other) == 0);
}

#[test]
fn what_nobody_waits_for_has_a_turn_now_and_then() {
    let (mut c, mut rng) = client(1);
    c.submit_idle(Time(0), 1000, question(250)).unwrap();
    for i in 0..200 {
        c.submit(Time(100), A, i, question(1)).unwrap();
    }
    let order: Vec<u32> = std::iter::from_fn(|| {
        let (_, mad) = c.next_to_send(Time(101))?;
        Some(c.received(Time(101), 0, &answer(&mad, 0), &mut rng)?.who)
    })
    .collect();
    assert_eq!(order.iter().position(|who| *who == 1000), Some(32));
}

#[test]
fn what_nobody_waits_for_and_is_taken_back_has_no_turn() {
    for taken_back in [|c: &mut SaClient<u32>| drop(c.drain()), |c: &mut SaClient<u32>| c.withdraw(|who| *who == 1001)]
    {
        let (mut c, mut rng) = client(1);
        c.submit_idle(Time(0), 1000, question(250)).unwrap();
        c.next_to_send(Time(0)).unwrap();
        // waits for the first one's answer, while many others are asked
        c.submit_idle(Time(0), 1001, question(251)).unwrap();
        for n in 0..2 * u64::from(IDLE_TURN) {
            c.submit(Time(n), A, 1, question(1)).unwrap();
            let (_, mad) = c.next_to_send(Time(n)).unwrap();
            assert_eq!(c.received(Time(n), 0, &answer(&mad, 0), &mut rng).unwrap().who, 1);
        }
        taken_back(&mut c);
        let first: Vec<u32> = c.open.keys().copied().collect();
        first.into_iter().for_each(|tid| assert!(c.send_failed(tid).is_some()));
        c.submit(Time(S), A, 2, question(2)).unwrap();
        let (_, mad) = c.next_to_send(Time(S)).expect("its turn");
        assert_eq!(c.received(Time(S), 0, &answer(&mad, 0), &mut rng).unwrap().who, 2);
    }
}

#[test]
fn a_question_of_peers_that_a_client_wants_too_stays_one() {
    let (mut c, mut rng) = client(1);
    c.submit_for_peers(Time(0), 1, question(1), 10).unwrap();
    let (_, mad) = c.next_to_send(Time(0)).unwrap();
    assert_eq!(c.promote(Time(0), A, |who| *who == 1), None, "it is on its way");
    assert_eq!(c.asked(A), 1);
    assert!(c.received(Time(1), 0, &answer(&mad, sa::STATUS_BUSY), &mut rng).is_none());
    let (_, mad) = c.next_to_send(c.next_deadline()).expect("it is asked again");
    assert_eq!(c.received(Time(1), 0, &answer(&mad, 0), &mut rng).unwrap().who, 1);
    assert_eq!((c.asked(A), c.is_empty()), (0, true));
}
/// Asks `n` questions of an SA that answers each after `took`, and gives how many were on their way at most.
fn most_on_their_way(c: &mut SaClient<u32>, rng: &mut Rng, begin: u64, n: u32, took: u64) -> (usize, u64) {
    for i in 0..n {
        c.submit(Time(begin), Cause::client(i.into()), i, question(1 + i as u8)).unwrap();
    }
    let (mut now, mut most, mut sent) = (begin, 0, VecDeque::new());
    for _ in 0..n {
        while let Some((_, mad)) = c.next_to_send(Time(now)) {
            sent.push_back((now + took, mad));
        }
        most = most.max(sent.len());
        let (at, mad) = sent.pop_front().unwrap();
        now = at.max(now);
        c.received(Time(now), 0, &answer(&mad, 0), rng).unwrap();
    }
    (most, now)
}

#[test]
fn a_burst_is_asked_side_by_side_and_a_slow_sa_one_by_one() {
    let (mut c, mut rng) = client(32);
    let (most, now) = most_on_their_way(&mut c, &mut rng, S, 200, 100);
    assert_eq!((most, now), (32, S + 1100), "six round trips until the window is open, and five");
    let (most, now) = most_on_their_way(&mut c, &mut rng, 2 * S, 200, 100);
    assert_eq!((most, now), (32, 2 * S + 1100), "each burst");
    assert_eq!(most_on_their_way(&mut c, &mut rng, 3 * S, 20, 10_000), (1, 3 * S + 200_000));
    assert!(now < 3 * S && c.is_empty());
}

#[test]
fn a_depth_that_was_set_holds_from_the_first_question_on() {
    let (mut c, mut rng) = client(32);
    c.set_config(SaConfig { fixed: true, ..c.config });
    assert_eq!(most_on_their_way(&mut c, &mut rng, S, 64, 700_000), (32, S + 1_400_000));
}

#[test]
fn busy_halves_what_is_on_its_way() {
    let (mut c, mut rng) = client(32);
    for i in 0..200u8 {
        c.submit(Time(S), Cause::client(i.into()), u32::from(i), question(i)).unwrap();
    }
    let (mut now, mut sent) = (S, Vec::new());
    while sent.len() < 16 {
        for mad in std::mem::take(&mut sent) {
            c.received(Time(now), 0, &answer(&mad, 0), &mut rng).unwrap();
        }
        sent.extend(std::iter::from_fn(|| c.next_to_send(Time(now))).map(|(_, mad)| mad));
        now += 100;
    }
    for mad in sent {
        assert!(c.received(Time(now), 0, &answer(&mad, sa::STATUS_BUSY), &mut rng).is_none());
    }
    assert_eq!(c.width(), 8, "once, for all are of one round trip");
    assert!(c.next_to_send(Time(now)).is_none(), "and the pause is as ever");
    let resume = c.next_deadline();
    assert!(resume > Time(now) && c.next_to_send(resume).is_some());
    assert!(c.next_to_send(resume).is_none(), "after it one is asked first");
}

#[test]
fn a_lost_question_among_others_keeps_its_place_for_a_moment() {
    let (mut c, mut rng) = client(2);
    for i in 0..200u8 {
        c.submit(Time(S), Cause::client(i.into()), u32::from(i), question(i)).unwrap();
    }
    let (_, first) = c.next_to_send(Time(S)).unwrap();
    c.received(Time(S + 100), 0, &answer(&first, 0), &mut rng).unwrap();
    let (lost, _) = c.next_to_send(Time(S + 100)).unwrap();
    let mut now = S + 101;
    // answers that come do not make it less lost
    while c.open.get(&lost).is_some_and(|r| !r.late) {
        let (_, mad) = c.next_to_send(Time(now)).unwrap();
        now += 1000;
        c.find_late(Time(now));
        c.received(Time(now), 0, &answer(&mad, 0), &mut rng).unwrap();
    }
    assert!((20_000..23_000).contains(&(now - S)), "{now}");
    assert!(c.next_to_send(Time(now)).is_some());
}

#[test]
fn a_silent_sa_makes_all_late_and_is_asked_one_by_one() {
    let (mut c, mut rng) = client(32);
    most_on_their_way(&mut c, &mut rng, S, 200, 100);
    let mut now = S + 1100;
    for i in 0..200u8 {
        c.submit(Time(now), Cause::client(i.into()), u32::from(i), question(i)).unwrap();
    }
    let mut sent = Vec::new();
    while now < 3 * S {
        sent.extend(std::iter::from_fn(|| c.next_to_send(Time(now))).map(|_| (now - S) / 1000));
        now = c.next_deadline().0;
    }
    assert_eq!(sent[..32], [1; 32]);
    assert_eq!(sent[32..], [21, 61, 141, 301, 621, 1261], "milliseconds");
}

const S: u64 = 1_000_000;

#[test]
fn questions_that_were_answered_leave_nothing_behind() {
    let (mut c, mut rng) = client(1);
    // one more always waits, so that the queue is never empty
    c.submit(Time(0), A, 0, question(1)).unwrap();
    for i in 1..2000 {
        let now = Time(1000 * i);
        c.submit(now, A, i as u32, question(1)).unwrap();
        let (_, mad) = c.next_to_send(now).unwrap();
        c.received(now, 0, &answer(&mad, 0), &mut rng).unwrap();
        c.check(1);
    }
    assert_eq!(c.len(), 1);
}
