use super::*;
use std::collections::HashMap;

const MS: u64 = 1000;
const S: u64 = 1_000_000;
const HW: [u8; HARDWARE] = [7; HARDWARE];
const KNOWN: Entry = Entry::Known { hardware: HW, old: false };

/// A kernel that is told what to have, and when.
#[derive(Default)]
struct Kernel {
    entries: HashMap<(u32, IpAddr), Entry>,
    probes: Vec<(u32, IpAddr, Entry)>,
    looks: usize,
    refuses: bool,
}

impl Table for Kernel {
    fn look(&mut self, link: u32, ip: IpAddr) -> Entry {
        self.looks += 1;
        self.entries.get(&(link, ip)).copied().unwrap_or(Entry::Absent)
    }

    fn probe(&mut self, link: u32, ip: IpAddr, entry: Entry) -> bool {
        self.probes.push((link, ip, entry));
        !self.refuses
    }
}

fn ip(n: u32) -> IpAddr {
    IpAddr::V4((0x0a4d_0000 + n).into())
}

const NEAR: Place = Place { index: 3, near: true };
const FAR: Place = Place { index: 3, near: false };

/// Asks for an address under its own number.
fn ask(q: &mut Neighbours<u32>, kernel: &mut Kernel, now: u64, n: u32, links: &[Place]) -> Option<(u32, Option<Gid>)> {
    q.ask(Time(now), kernel, n, (ip(n), links.to_vec()), Time(now + 5 * S))
}

fn next(q: &mut Neighbours<u32>, kernel: &mut Kernel, now: u64) -> Option<(u32, Option<Gid>)> {
    q.on_time(Time(now), kernel)
}

#[test]
fn what_the_kernel_knows_is_answered_at_once() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    for (n, entry, probes) in [(1, KNOWN, 0), (2, Entry::Known { hardware: HW, old: true }, 1)] {
        kernel.entries.insert((3, ip(n)), entry);
        for links in [&[NEAR], &[FAR]] {
            kernel.probes.clear();
            assert_eq!(ask(&mut q, &mut kernel, 0, n, links), Some((n, Some(Gid([7; 16])))));
            assert_eq!(kernel.probes.len(), probes, "what is old is confirmed, for the next time");
        }
    }
    assert_eq!(q.next_deadline(), Time::NEVER);
}

#[test]
fn nobody_is_looked_for_where_he_cannot_be() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    kernel.entries.insert((3, ip(2)), Entry::Useless);
    for (n, links) in [(1, vec![FAR]), (1, vec![]), (2, vec![NEAR])] {
        assert_eq!(ask(&mut q, &mut kernel, 0, n, &links), Some((n, None)));
    }
    assert!(kernel.probes.is_empty());
    // nor is it of any use if the kernel does not do it
    kernel.refuses = true;
    assert_eq!(ask(&mut q, &mut kernel, 0, 1, &[NEAR]), Some((1, None)));
}

#[test]
fn a_neighbour_that_answers_late_is_found_when_it_has() {
    for before in [Entry::Absent, Entry::Failed, Entry::Looking] {
        let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
        kernel.entries.insert((3, ip(1)), before);
        assert_eq!(ask(&mut q, &mut kernel, 0, 1, &[NEAR]), None);
        assert_eq!(kernel.probes, [(3, ip(1), before)]);
        kernel.entries.insert((3, ip(1)), Entry::Looking);
        let mut now = 0;
        while now < 300 * MS {
            now = q.next_deadline().0;
            assert_eq!(next(&mut q, &mut kernel, now), None);
        }
        assert!(kernel.looks < 12, "{} looks", kernel.looks);
        kernel.entries.insert((3, ip(1)), KNOWN);
        let later = q.next_deadline().0;
        assert!(later <= now + 160 * MS);
        assert_eq!(next(&mut q, &mut kernel, later), Some((1, Some(Gid([7; 16])))));
        assert_eq!((next(&mut q, &mut kernel, later), q.next_deadline()), (None, Time::NEVER));
    }
}

#[test]
fn a_search_ends_when_the_kernel_gives_up_or_the_time_is_over() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    for n in [1, 2] {
        assert_eq!(ask(&mut q, &mut kernel, 0, n, &[NEAR]), None);
        kernel.entries.insert((3, ip(n)), Entry::Looking);
    }
    assert_eq!(q.ask(Time(0), &mut kernel, 3, (ip(3), vec![NEAR]), Time(70 * MS)), None);
    kernel.entries.insert((3, ip(1)), Entry::Failed);
    kernel.entries.insert((3, ip(3)), Entry::Looking);
    assert_eq!(next(&mut q, &mut kernel, 5 * MS), Some((1, None)));
    let mut now = 5 * MS;
    let mut ends = Vec::new();
    while now < 10 * S {
        match next(&mut q, &mut kernel, now) {
            Some((n, gid)) => ends.push((n, now, gid)),
            None => now = q.next_deadline().0,
        }
    }
    assert_eq!(ends, [(3, 70 * MS, None), (2, 5 * S, None)]);
}

#[test]
fn few_are_looked_for_at_a_time_and_the_others_have_their_turn_or_their_end() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    let most = PROBES + MAX_WAITING;
    for n in 0..most as u32 {
        assert_eq!(ask(&mut q, &mut kernel, 0, n, &[NEAR]), None);
    }
    let too_many = most as u32;
    assert_eq!(ask(&mut q, &mut kernel, 0, too_many, &[NEAR]), Some((too_many, None)));
    assert_eq!(kernel.probes.len(), PROBES);
    let (mut now, mut answers) = (0, 0);
    loop {
        match next(&mut q, &mut kernel, now) {
            Some(_) => answers += 1,
            None if q.next_deadline() == Time::NEVER => break,
            None => now = q.next_deadline().0,
        }
    }
    assert_eq!((answers, now), (most, 5 * S), "each is answered, in time");
    assert_eq!(kernel.probes.len(), PROBES, "those that came first had it all");
}

#[test]
fn what_nobody_waits_for_any_more_counts_until_the_kernel_gives_it_up() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    let short = |q: &mut Neighbours<u32>, kernel: &mut Kernel, now: u64, n: u32| {
        q.ask(Time(now), kernel, n, (ip(n), vec![NEAR]), Time(now + S))
    };
    for n in 0..PROBES as u32 {
        assert_eq!(short(&mut q, &mut kernel, 0, n), None);
    }
    let mut answers = 0;
    while q.next_deadline() != Time::NEVER {
        let now = q.next_deadline().0;
        answers += std::iter::from_fn(|| next(&mut q, &mut kernel, now)).count();
        assert!(now <= S);
    }
    assert_eq!(answers, PROBES);
    assert_eq!(ask(&mut q, &mut kernel, S, 100, &[NEAR]), None);
    assert_eq!(kernel.probes.len(), PROBES, "it waits");
    kernel.entries.insert((3, ip(101)), KNOWN);
    assert!(ask(&mut q, &mut kernel, S, 101, &[NEAR]).is_some(), "what is known does not");
    assert_eq!(q.next_deadline(), Time(3 * S));
    assert_eq!(next(&mut q, &mut kernel, 3 * S), None);
    assert_eq!(kernel.probes.len(), PROBES + 1);
}

#[test]
fn one_who_is_there_frees_the_place_of_the_next() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    let count = 10 * PROBES as u32;
    for n in 0..count {
        assert_eq!(ask(&mut q, &mut kernel, 0, n, &[NEAR]), None);
        kernel.entries.insert((3, ip(n)), KNOWN);
    }
    let found: Vec<u32> = std::iter::from_fn(|| next(&mut q, &mut kernel, 5 * MS).map(|a| a.0)).collect();
    assert_eq!(found.len(), count as usize, "those who waited are there by now");
}

#[test]
fn one_of_several_interfaces_is_enough() {
    let (mut q, mut kernel) = (Neighbours::default(), Kernel::default());
    let places = |n: u32| (0..n).map(|index| Place { index, near: true }).collect::<Vec<_>>();
    kernel.entries.insert((2, ip(1)), KNOWN);
    assert_eq!(ask(&mut q, &mut kernel, 0, 1, &places(3)), Some((1, Some(Gid([7; 16])))));
    assert_eq!(ask(&mut q, &mut kernel, 0, 2, &places(9)), None);
    assert_eq!(kernel.probes.len(), MAX_LINKS);
}
