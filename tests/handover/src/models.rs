use std::collections::VecDeque;
use std::time::Duration;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::handover::{Handover, Jobs};
use crate::sync::{Condvar, Mutex};

/// Runs every order in which a thread is interrupted at most this often where it need not wait.
const PREEMPTIONS: usize = 3;
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

/// What wakes the loop: it stays set until the loop sees it, as an eventfd does.
#[derive(Default)]
struct Waker {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    fn wake(&self) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut set = self.set.lock().unwrap();
        while !*set {
            set = self.changed.wait(set).unwrap();
        }
        *set = false;
    }
}

/// An item: its sender and its number there.
type Item = (usize, usize);

/// Each sender's items are all there, once and in order.
fn assert_complete(got: impl IntoIterator<Item = Item>, senders: usize, each: usize) {
    let mut next = vec![0; senders];
    for (sender, number) in got {
        assert_eq!(number, next[sender], "of sender {sender}");
        next[sender] += 1;
    }
    assert!(next.iter().all(|&n| n == each), "{next:?}");
}

fn send(senders: usize, each: usize, push: impl Fn(Item) + Clone + Send + 'static) -> Vec<thread::JoinHandle<()>> {
    (0..senders)
        .map(|sender| {
            let push = push.clone();
            thread::spawn(move || (0..each).for_each(|number| push((sender, number))))
        })
        .collect()
}

fn handed_over(senders: usize, each: usize) {
    model(move || {
        let shared = Arc::new((Handover::new(), Waker::default()));
        let push = {
            let shared = Arc::clone(&shared);
            move |item| {
                if shared.0.push(item) {
                    shared.1.wake();
                }
            }
        };
        let threads = send(senders, each, push);
        let (mut got, mut out) = (Vec::new(), VecDeque::new());
        while got.len() < senders * each {
            shared.1.wait();
            shared.0.take(&mut out);
            got.extend(out.drain(..));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        shared.0.take(&mut out);
        assert!(out.is_empty(), "more than was sent: {out:?}");
        assert_complete(got, senders, each);
    });
}

#[test]
fn one_sender_hands_over() {
    handed_over(1, 3);
}

#[test]
fn two_senders_hand_over() {
    handed_over(2, 2);
}

#[test]
fn what_is_taken_goes_behind_what_is_there() {
    model(|| {
        let queue = Arc::new(Handover::new());
        let push = {
            let queue = Arc::clone(&queue);
            move |item| {
                queue.push(item);
            }
        };
        let threads = send(2, 2, push);
        // Not emptied in between, as by a loop that has had enough for this turn.
        let mut out = VecDeque::new();
        queue.take(&mut out);
        queue.take(&mut out);
        threads.into_iter().for_each(|t| t.join().unwrap());
        queue.take(&mut out);
        assert_complete(out, 2, 2);
    });
}

fn worked_off(senders: usize, each: usize) {
    model(move || {
        let jobs = Arc::new(Jobs::new());
        let push = {
            let jobs = Arc::clone(&jobs);
            move |item| jobs.push(item)
        };
        let threads = send(senders, each, push);
        let receiver = {
            let jobs = Arc::clone(&jobs);
            thread::spawn(move || {
                let mut got = Vec::new();
                while let Some(item) = jobs.next() {
                    got.push(item);
                }
                got
            })
        };
        threads.into_iter().for_each(|t| t.join().unwrap());
        jobs.close();
        assert_complete(receiver.join().unwrap(), senders, each);
    });
}

#[test]
fn one_senders_jobs_are_done_before_the_end() {
    worked_off(1, 2);
}

#[test]
fn two_senders_jobs_are_done_before_the_end() {
    worked_off(2, 1);
}

#[test]
fn closing_ends_who_waits() {
    model(|| {
        let jobs = Arc::new(Jobs::new());
        let receiver = {
            let jobs = Arc::clone(&jobs);
            thread::spawn(move || std::iter::from_fn(|| jobs.next()).count())
        };
        let sender = {
            let jobs = Arc::clone(&jobs);
            thread::spawn(move || jobs.push(()))
        };
        jobs.close();
        sender.join().unwrap();
        // In time or too late: there is no other way.
        assert!(receiver.join().unwrap() <= 1);
        jobs.push(());
        assert_eq!(jobs.next(), None, "pushed after the end");
    });
}

#[test]
fn idle_is_when_all_is_done() {
    model(|| {
        let jobs = Arc::new(Jobs::new());
        let done = Arc::new(AtomicUsize::new(0));
        let receiver = {
            let (jobs, done) = (Arc::clone(&jobs), Arc::clone(&done));
            thread::spawn(move || {
                while jobs.next().is_some() {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        jobs.push(());
        jobs.push(());
        assert!(jobs.wait_idle(LONG));
        assert_eq!(done.load(Ordering::Relaxed), 2);
        jobs.close();
        receiver.join().unwrap();
        assert!(jobs.wait_idle(LONG), "also after the end");
    });
}

#[test]
fn several_wait_until_all_is_done() {
    model(|| {
        let jobs = Arc::new(Jobs::new());
        let done = Arc::new(AtomicBool::new(false));
        jobs.push(());
        let receiver = {
            let (jobs, done) = (Arc::clone(&jobs), Arc::clone(&done));
            thread::spawn(move || {
                while jobs.next().is_some() {
                    done.store(true, Ordering::Relaxed);
                }
            })
        };
        let waiter = {
            let (jobs, done) = (Arc::clone(&jobs), Arc::clone(&done));
            thread::spawn(move || {
                assert!(jobs.wait_idle(LONG));
                assert!(done.load(Ordering::Relaxed));
            })
        };
        assert!(jobs.wait_idle(LONG));
        assert!(done.load(Ordering::Relaxed));
        waiter.join().unwrap();
        jobs.close();
        receiver.join().unwrap();
    });
}

#[test]
fn what_nobody_wants_is_swept_out() {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.check(|| {
        let jobs = Jobs::new();
        for n in 0..5000 {
            jobs.push_sweeping(n, |&n| n % 2 == 1 || n < 4000);
        }
        jobs.close();
        let mut got = Vec::new();
        while let Some(n) = jobs.next() {
            got.push(n);
        }
        assert!(got.is_sorted() && got.len() < 2048, "{}", got.len());
        assert!((4000..5000).step_by(2).all(|n| got.contains(&n)));
    });
}
