use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::provider::handover::Jobs;

const SENDERS: u64 = 8;
const EACH: u64 = 20_000;
/// Far longer than it takes.
const LONG: Duration = Duration::from_secs(60);

fn refused(n: u64) -> Notice {
    Notice::Refused { id: AskId(n) }
}

fn number(notice: &Notice) -> u64 {
    let Notice::Refused { id } = notice else { panic!("{notice:?}") };
    id.0
}

/// A loop that waits for nothing but the core.
struct Loop {
    poll: mio::Poll,
    events: mio::Events,
}

impl Loop {
    fn new(core: &Core) -> Loop {
        let poll = mio::Poll::new().unwrap();
        core.set_waker(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        Loop { poll, events: mio::Events::with_capacity(4) }
    }

    /// Whether it is woken.
    fn wait(&mut self, most: Duration) -> bool {
        self.poll.poll(&mut self.events, Some(most)).unwrap();
        !self.events.is_empty()
    }
}

#[test]
fn the_loop_is_woken_once_for_all_that_is_there() {
    let core = Core::new();
    core.notify(refused(1));
    let mut out = VecDeque::new();
    let mut waiting = Loop::new(&core);
    assert!(waiting.wait(LONG), "for what came before it could be woken");
    core.notify(refused(2));
    assert!(!waiting.wait(Duration::from_millis(20)), "it was woken for the first one");
    core.take_notices(&mut out);
    core.notify(refused(3));
    assert!(waiting.wait(LONG));
    core.take_notices(&mut out);
    assert_eq!(out.iter().map(number).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Every sender's numbers are there, once and in order.
fn assert_in_order(numbers: impl Iterator<Item = u64>) {
    let mut next = [0; SENDERS as usize];
    for n in numbers {
        let next = &mut next[(n / EACH) as usize];
        assert_eq!(n % EACH, *next);
        *next += 1;
    }
    assert_eq!(next, [EACH; SENDERS as usize]);
}

#[test]
fn many_threads_notify_one_loop() {
    let core = Core::new();
    let mut waiting = Loop::new(&core);
    let start = Instant::now();
    thread::scope(|threads| {
        for sender in 0..SENDERS {
            let core = &core;
            threads.spawn(move || (0..EACH).for_each(|n| core.notify(refused(sender * EACH + n))));
        }
        let (mut got, mut out) = (Vec::new(), VecDeque::new());
        while (got.len() as u64) < SENDERS * EACH {
            assert!(start.elapsed() < LONG && waiting.wait(LONG), "a wake-up is missing after {}", got.len());
            core.take_notices(&mut out);
            got.extend(out.drain(..));
        }
        assert_in_order(got.iter().map(number));
    });
}

#[test]
fn many_threads_give_jobs_to_one() {
    let jobs = Jobs::new();
    thread::scope(|threads| {
        let receiver = threads.spawn(|| assert_in_order(std::iter::from_fn(|| jobs.next())));
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let jobs = &jobs;
                threads.spawn(move || (0..EACH).for_each(|n| jobs.push(sender * EACH + n)))
            })
            .collect();
        senders.into_iter().for_each(|t| t.join().unwrap());
        assert!(jobs.wait_idle(LONG));
        jobs.close();
        receiver.join().unwrap();
    });
}

#[test]
fn waiting_for_a_slow_receiver_ends() {
    let jobs = Jobs::new();
    assert!(jobs.wait_idle(Duration::ZERO), "nothing was to be done");
    jobs.push(());
    assert!(!jobs.wait_idle(Duration::from_millis(10)), "nobody does it");
    assert_eq!(jobs.next(), Some(()));
    assert!(!jobs.wait_idle(Duration::ZERO), "it is being done");
    jobs.close();
    assert_eq!(jobs.next(), None);
    assert!(jobs.wait_idle(Duration::MAX));
}

#[test]
fn a_question_is_answered_once() {
    let core = Core::new();
    let message = || Box::new(abi::Message([0; crate::engine::MESSAGE]));
    core.open_ask(AskId(1), ProviderId(1));
    core.open_ask(AskId(2), ProviderId(2));
    assert!(core.is_open(AskId(1)) && core.close_ask(AskId(1)));
    assert_eq!(core.answer(AskId(1), message()), Err(Refusal::NotOpen));
    thread::scope(|threads| {
        let answer = || core.answer(AskId(2), message()).is_ok();
        let answers: Vec<_> = (0..SENDERS).map(|_| threads.spawn(answer)).collect();
        let taken = answers.into_iter().map(|t| t.join().unwrap()).filter(|taken| *taken);
        assert_eq!(taken.count(), 1);
    });
    assert!(!core.close_ask(AskId(2)));
    let mut out = VecDeque::new();
    core.take_notices(&mut out);
    assert!(matches!(out.make_contiguous(), [Notice::Answer { id: AskId(2), .. }]), "{out:?}");
}

#[test]
fn endpoints_go_with_their_provider() {
    let core = Core::new();
    let endpoint = |n: usize| ptr::without_provenance::<abi::Endpoint>(n * 64);
    for n in 1..=4 {
        core.add_endpoint(endpoint(n), EpId(n as u32), ProviderId((n % 2) as u16));
    }
    core.forget_endpoints_of(ProviderId(1));
    let left = |n: usize| core.registry.owner(endpoint(n).addr()).map(|owner| owner.ep);
    assert_eq!([1, 2, 3, 4].map(left), [None, Some(EpId(2)), None, Some(EpId(4))]);
}
