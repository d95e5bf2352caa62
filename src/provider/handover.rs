//! Queues from many threads to one. Nothing else is here, so that `tests/handover` can go through all orders in which
//! threads may meet in them.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// A queue whose receiver waits for something else, and is woken once for all that is in it.
pub struct Handover<T> {
    queue: Mutex<VecDeque<T>>,
}

impl<T> Handover<T> {
    /// An empty queue.
    pub fn new() -> Handover<T> {
        Handover { queue: Mutex::new(VecDeque::new()) }
    }

    /// Adds an item. Whether the queue was empty: then the receiver is to be woken.
    pub fn push(&self, item: T) -> bool {
        let mut queue = lock(&self.queue);
        queue.push_back(item);
        queue.len() == 1
    }

    /// Moves all that is there behind what is in `out`.
    pub fn take(&self, out: &mut VecDeque<T>) {
        let mut queue = lock(&self.queue);
        if out.is_empty() {
            std::mem::swap(&mut *queue, out);
        } else {
            out.append(&mut queue);
        }
    }
}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Handover::new()
    }
}

struct State<T> {
    queue: VecDeque<T>,
    closed: bool,
    /// The receiver is at an item that it took.
    busy: bool,
    /// With so many items, those that nobody wants any more are looked for.
    sweep_at: usize,
}

/// So many items may wait whether somebody wants them or not.
const SWEEP: usize = 1024;

/// A queue that one receiver, a thread of its own, waits for.
pub struct Jobs<T> {
    state: Mutex<State<T>>,
    /// There is an item, or the queue is closed.
    work: Condvar,
    /// There is nothing to do.
    idle: Condvar,
}

impl<T> Jobs<T> {
    /// An empty queue.
    pub fn new() -> Jobs<T> {
        let state = State { queue: VecDeque::new(), closed: false, busy: false, sweep_at: SWEEP };
        Jobs { state: Mutex::new(state), work: Condvar::new(), idle: Condvar::new() }
    }

    /// Adds an item; after [`Jobs::close`] it is dropped.
    pub fn push(&self, item: T) {
        let mut state = lock(&self.state);
        if state.closed {
            // What an item does when it goes is not to be done under the lock.
            drop(state);
            drop(item);
            return;
        }
        state.queue.push_back(item);
        drop(state);
        self.work.notify_one();
    }

    /// As [`Jobs::push`]; before that, takes out what is `stale` if there are twice as many items as the last time that was
    /// looked for. So a receiver that takes nothing has no more waiting for it than twice what is wanted.
    pub fn push_sweeping(&self, item: T, is_stale: impl Fn(&T) -> bool) {
        let mut stale = VecDeque::new();
        {
            let mut state = lock(&self.state);
            if state.queue.len() >= state.sweep_at {
                let all = std::mem::take(&mut state.queue);
                (stale, state.queue) = all.into_iter().partition(|item| is_stale(item));
                state.sweep_at = state.queue.len().saturating_mul(2).max(SWEEP);
            }
        }
        drop(stale);
        self.push(item);
    }

    /// The next item, as soon as there is one; the one before is done then. None once the queue is closed and empty.
    pub fn next(&self) -> Option<T> {
        let mut state = lock(&self.state);
        state.busy = false;
        loop {
            if let Some(item) = state.queue.pop_front() {
                state.busy = true;
                return Some(item);
            }
            self.idle.notify_all();
            if state.closed {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more items: the receiver ends after those that are there.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_all();
    }

    /// Waits until every item is done, but no longer than `most`. Whether they are.
    pub fn wait_idle(&self, most: Duration) -> bool {
        let end = Instant::now().checked_add(most);
        let mut state = lock(&self.state);
        while state.busy || !state.queue.is_empty() {
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            state = self.idle.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Jobs::new()
    }
}

/// A queue stays usable when a thread that had it has panicked: it is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
