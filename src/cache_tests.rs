use super::*;

fn cache(n: usize) -> Cache {
    Cache::new(SipKey(1, 2), n)
}

fn learn(c: &mut Cache, lid: u16) -> DestId {
    c.insert(&Addr::lid(lid), Origin::Learned, false).unwrap()
}

#[test]
fn an_entry_is_small() {
    assert_eq!(size_of::<Dest>(), 144);
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut c = cache(3);
    let ids: Vec<_> = (1..=3).map(|l| learn(&mut c, l)).collect();
    c.touch(ids[0]);
    assert_eq!(c.evicted(), 0);
    learn(&mut c, 4);
    assert_eq!((c.find(&Addr::lid(2)), c.evicted()), (None, 1));
    assert!(c.get(ids[1]).is_none());
    assert_eq!(c.find(&Addr::lid(1)), Some(ids[0]));
    assert_eq!(c.len(), 3);
}

#[test]
fn what_nobody_asked_for_goes_before_what_is_in_use() {
    let mut c = cache(2);
    let used = learn(&mut c, 1);
    for l in 2..50 {
        c.insert(&Addr::lid(l), Origin::Learned, true).unwrap();
    }
    assert_eq!(c.find(&Addr::lid(1)), Some(used));
    assert_eq!(c.len(), 2);
}

#[test]
fn what_was_waited_for_by_nobody_here_is_still_the_first_to_go() {
    let mut c = cache(3);
    let used = learn(&mut c, 1);
    let (heard, wanted) =
        (c.insert(&Addr::lid(2), Origin::Learned, true), c.insert(&Addr::lid(3), Origin::Learned, true));
    for id in [heard, wanted].into_iter().flatten() {
        c.pin(id, true);
    }
    c.touch(wanted.unwrap());
    for id in [heard, wanted].into_iter().flatten() {
        c.pin(id, false);
    }
    learn(&mut c, 4);
    assert!(c.get(heard.unwrap()).is_none());
    assert!(c.get(used).is_some() && c.get(wanted.unwrap()).is_some());
}

#[test]
fn pinned_local_and_preloaded_entries_stay() {
    let mut c = cache(2);
    c.insert(&Addr::lid(100), Origin::Local, false).unwrap();
    c.insert(&Addr::lid(101), Origin::Preloaded, false).unwrap();
    let (a, b) = (learn(&mut c, 1), learn(&mut c, 2));
    c.pin(a, true);
    c.pin(b, true);
    assert_eq!(c.insert(&Addr::lid(3), Origin::Learned, false), None);
    c.pin(a, false);
    assert!(c.insert(&Addr::lid(3), Origin::Learned, false).is_some());
    assert_eq!(c.find(&Addr::lid(1)), None);
    assert_eq!(c.len(), 4);
    assert!(c.find(&Addr::lid(100)).is_some() && c.find(&Addr::lid(101)).is_some());
}

#[test]
fn what_was_preloaded_can_become_like_any_other() {
    let mut c = cache(2);
    let given = c.insert(&Addr::lid(101), Origin::Preloaded, false).unwrap();
    learn(&mut c, 1);
    learn(&mut c, 2);
    c.demote(given, true);
    assert_eq!(c.find(&Addr::lid(1)), None);
    learn(&mut c, 3);
    assert_eq!((c.find(&Addr::lid(2)), c.len()), (None, 2));
    c.pin(given, false);
    c.demote(given, false);
    learn(&mut c, 4);
    learn(&mut c, 5);
    assert!(c.get(given).is_none());
    assert_eq!(c.len(), 2);
}

#[test]
fn an_old_id_finds_nobody_in_a_reused_place() {
    let mut c = cache(5);
    let a = learn(&mut c, 1);
    c.remove(a);
    let b = learn(&mut c, 1);
    assert_ne!(a, b);
    assert!(c.get(a).is_none());
    assert!(c.get_for(b, &Addr::lid(1)).is_some());
    assert!(c.get_for(b, &Addr::lid(2)).is_none());
    c.remove(a);
    assert_eq!(c.iter().count(), 1);
}
