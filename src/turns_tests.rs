use super::*;

const A: Cause = Cause::client(1);
const B: Cause = Cause::client(2);

/// Takes turns until nobody has one, each of which ends at once: for whom they were.
fn all(t: &mut Turns, free: usize) -> Vec<(u64, Cause)> {
    let mut taken = Vec::new();
    while let Some((number, cause)) = t.next(Free::all(free), |n| taken.iter().all(|(seen, _)| *seen != n)) {
        t.leave_place(cause);
        taken.push((number, cause));
    }
    assert!(t.shares.is_empty() && t.ring.is_empty() && t.fresh.is_empty() && t.len == 0);
    taken
}

fn numbers(taken: &[(u64, Cause)]) -> Vec<u64> {
    taken.iter().map(|t| t.0).collect()
}

#[test]
fn turns_go_round_and_each_has_its_own_order() {
    let mut t = Turns::default();
    (10..14).for_each(|n| t.push(A, n));
    (20..22).for_each(|n| t.push(B, n));
    t.push_front(A, 9);
    assert_eq!(numbers(&all(&mut t, 1)), [9, 20, 10, 21, 11, 12, 13]);
}

#[test]
fn who_asks_one_thing_at_a_time_waits_for_one_other() {
    let mut t = Turns::default();
    (0..1000).for_each(|n| t.push(A, n));
    let mut since = 0;
    for number in 2000..2100 {
        let (mut last, cause) = t.next(Free::all(1), |_| true).unwrap();
        t.leave_place(cause);
        t.push(B, number);
        while last != number {
            let (n, cause) = t.next(Free::all(1), |_| true).unwrap();
            t.leave_place(cause);
            (last, since) = (n, since + 1);
            assert!(since <= 2, "{since} before {number}");
        }
        since = 0;
    }
}

#[test]
fn new_ones_do_not_keep_others_waiting_for_ever() {
    let mut t = Turns::default();
    (0..10).for_each(|n| t.push(A, n));
    t.next(Free::all(1), |_| true).unwrap();
    t.leave_place(A);
    let mut served = 0;
    for n in 100..120 {
        t.push(Cause::client(n), n);
        let (_, cause) = t.next(Free::all(1), |_| true).unwrap();
        t.leave_place(cause);
        served += usize::from(cause == A);
    }
    assert!(served >= 9, "{served} of 20");
}

#[test]
fn a_cause_leaves_places_for_others() {
    let taken = |depth: usize, causes: u64| {
        let mut t = Turns::default();
        (0..causes).for_each(|c| (0..100).for_each(|n| t.push(Cause::client(c), 100 * c + n)));
        let mut used = 0;
        while used < depth && t.next(Free::all(depth - used), |_| true).is_some() {
            used += 1;
        }
        // one more has a place at once
        t.push(Cause::client(99), 9999);
        assert_eq!(t.has_next(Free::all(depth - used), |_| true), used < depth);
        used
    };
    let one = [1, 2, 3, 8, 32, 64].map(|depth| taken(depth, 1));
    assert_eq!(one, [1, 1, 2, 7, 29, 57]);
    assert!(taken(64, 6) < 64, "nor do several take all");
}

#[test]
fn nobody_and_peers_have_a_turn_now_and_then() {
    let mut t = Turns::default();
    for n in 0..100 {
        t.push(A, n);
        t.push(if n % 2 == 0 { Cause::PEERS } else { Cause::NOBODY }, 1000 + n);
    }
    let taken = all(&mut t, 1);
    let low = taken[..90].iter().filter(|t| t.1.is_low()).count();
    assert_eq!(low, 10);
    assert_eq!(taken.len(), 200);
}

#[test]
fn what_several_want_has_the_first_of_their_turns() {
    let mut t = Turns::default();
    (0..50).for_each(|n| t.push(A, n));
    t.join(B, 49);
    t.join(B, 49);
    assert_eq!(t.len, 51);
    let taken = all(&mut t, 1);
    assert!(taken.iter().position(|t| *t == (49, B)).unwrap() <= 1);
    assert_eq!(taken.len(), 50, "once");
}

#[test]
fn who_has_left_has_no_turns_of_his_own() {
    let mut t = Turns::default();
    assert!(t.open(A, 10));
    (0..5).for_each(|n| t.push(A, n));
    t.abandon(A, |n| n != 3);
    t.push(A, 5);
    assert_eq!(t.opened(A), 1);
    let wanted = |n: u64| n != 1;
    let mut taken = Vec::new();
    while let Some((n, cause)) = t.next(Free::all(1), wanted) {
        assert_eq!(cause, Cause::NOBODY);
        t.leave_place(cause);
        taken.push(n);
    }
    assert_eq!(taken, [0, 2, 4, 5]);
    t.close(A);
    assert!(t.shares.is_empty());
}

#[test]
fn who_has_most_is_refused_first() {
    let mut t = Turns::default();
    let (mut total, most) = (0, 1000);
    let mut open = |cause, t: &mut Turns| {
        let may = t.open(cause, most - total);
        total += usize::from(may);
        may
    };
    while open(A, &mut t) {}
    assert_eq!(t.opened(A), 500);
    for c in 10..17 {
        while open(Cause::client(c), &mut t) {}
    }
    assert!(open(B, &mut t), "there is room for one who has nothing");
    assert!(!open(A, &mut t));
}

#[test]
fn what_is_passed_over_does_not_pile_up() {
    let mut t = Turns::default();
    for n in 0..100_000 {
        t.push(Cause::client(n % 1000), n);
        t.tidy(|m| m + 5 > n);
    }
    assert!(t.len < 3 * FEW && t.shares.len() <= t.len && t.ring.len() + t.fresh.len() <= t.len);
}
