//! Deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::route::Datagram;
use crate::ibsim::Packet;

/// What becomes due.
#[derive(Debug)]
pub enum Timer {
    /// A MAD that nobody has answered.
    Mad(u64),
    /// An answer that was held back, and the client of ibsim that it came to.
    Answer(usize, Box<Packet>),
    /// A datagram that was held back.
    Deliver(Box<Datagram>),
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    order: u64,
    timer: Timer,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Deadlines in order; those of one moment in the order in which they were set.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Timers {
    /// Sets one.
    pub fn set(&mut self, at: Instant, timer: Timer) {
        self.order += 1;
        self.heap.push(Reverse(Entry { at, order: self.order, timer }));
    }

    /// The next deadline.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// One that is due.
    pub fn pop(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.timer)
    }
}
