//! Whose turn it is, where many want what few can have at a time. Pure.
//!
//! What waits for its turn does so for a *cause*: a client, other hosts, nobody. Turns go round among causes, so that
//! whoever asks for much waits for himself. One who comes with nothing under way is next but one at the latest, so that
//! a client that asks one thing at a time hardly notices others. Of places that few have at a time a cause leaves some
//! free, so that such a client finds one. Where the total runs short those are refused who have most.

use std::collections::VecDeque;

use crate::map::Map;

/// For whom something is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cause(u64);

impl Cause {
    /// Other hosts, all together: there is no end to the senders that one of them can make up.
    pub const PEERS: Cause = Cause(u64::MAX);
    /// Nobody: who wanted it has left.
    pub const NOBODY: Cause = Cause(u64::MAX - 1);
    /// The kernel, whoever has it ask.
    pub const KERNEL: Cause = Cause(u64::MAX - 2);
    /// Providers of plug-ins.
    pub const PROVIDERS: Cause = Cause(u64::MAX - 3);

    /// The client of this number.
    pub const fn client(number: u64) -> Cause {
        Cause(number)
    }

    /// Whether it has a turn only now and then.
    fn is_low(self) -> bool {
        matches!(self, Cause::PEERS | Cause::NOBODY)
    }
}

/// Of this many turns one is for what has low rank and waits.
const LOW: u32 = 8;
/// A cause has at most so many places for each that is free.
const PLACES: usize = 8;

/// How many places are free.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// For a client that has none.
    pub first: usize,
    /// For others.
    pub more: usize,
}

impl Free {
    /// So many for everybody.
    pub const fn all(places: usize) -> Free {
        Free { first: places, more: places }
    }
}

/// Places in queues that are not worth a search.
const FEW: usize = 128;

#[derive(Default)]
struct Share {
    waiting: VecDeque<u64>,
    /// What was opened for it and is not closed.
    open: usize,
    /// Places that it has.
    places: usize,
    /// It is in one of the rings.
    ringed: bool,
    /// Nobody is there any more for whom it could have turns.
    gone: bool,
}

impl Share {
    fn is_unused(&self) -> bool {
        self.open == 0 && self.places == 0 && !self.ringed
    }

    /// Whether it, of `cause`, may have one more place.
    fn may_take(&self, cause: Cause, free: Free) -> bool {
        match self.places {
            0 if cause.is_low() => free.more > 0,
            0 => free.first > 0,
            _ => free.more > 1 && self.places < PLACES.saturating_mul(free.more),
        }
    }
}

/// Those who wait, by number, and for whom. A number may wait for several causes, whose first turn is its own; where it
/// has had that, or is not wanted any more, it is passed over.
#[derive(Default)]
pub struct Turns {
    shares: Map<Cause, Share>,
    /// Causes that something waits for, in the order of their turns.
    ring: VecDeque<Cause>,
    /// Those that came with nothing under way, which have every second turn.
    fresh: VecDeque<Cause>,
    was_fresh: bool,
    since_low: u32,
    /// Places in queues, of which some may be passed over.
    len: usize,
    tidy_at: usize,
}

impl Turns {
    /// Counts one more that is opened for `cause`, of which `free` more are possible in all. False, and not counted, if
    /// that one has more than are free.
    pub fn open(&mut self, cause: Cause, free: usize) -> bool {
        let open = self.opened(cause);
        let may = free > 0 && open < free;
        if may {
            self.shares.or_default(cause).open += 1;
        }
        may
    }

    /// How much is open for `cause`.
    pub fn opened(&self, cause: Cause) -> usize {
        self.shares.get(&cause).map_or(0, |s| s.open)
    }

    /// One that was opened for `cause` has ended.
    pub fn close(&mut self, cause: Cause) {
        self.change(cause, |s| s.open = s.open.saturating_sub(1));
    }

    /// `cause` gives a place back.
    pub fn leave_place(&mut self, cause: Cause) {
        self.change(cause, |s| s.places = s.places.saturating_sub(1));
    }

    fn change(&mut self, cause: Cause, change: impl FnOnce(&mut Share)) {
        let Some(share) = self.shares.get_mut(&cause) else { return };
        change(share);
        if share.is_unused() {
            self.shares.remove(&cause);
        }
    }

    /// Has `number` wait for a turn of `cause`.
    pub fn push(&mut self, cause: Cause, number: u64) {
        self.add(cause, |waiting| waiting.push_back(number));
    }

    /// The same, before what waits already.
    pub fn push_front(&mut self, cause: Cause, number: u64) {
        self.add(cause, |waiting| waiting.push_front(number));
    }

    /// Has `number`, which waits for another cause, wait for `cause` as well.
    pub fn join(&mut self, cause: Cause, number: u64) {
        if self.shares.get(&cause).is_none_or(|s| !s.waiting.contains(&number)) {
            self.push(cause, number);
        }
    }

    fn add(&mut self, cause: Cause, add: impl FnOnce(&mut VecDeque<u64>)) {
        let cause = if self.shares.get(&cause).is_some_and(|s| s.gone) { Cause::NOBODY } else { cause };
        let share = self.shares.or_default(cause);
        add(&mut share.waiting);
        self.len += 1;
        if !std::mem::replace(&mut share.ringed, true) {
            let fresh = share.places == 0 && !cause.is_low();
            if fresh { self.fresh.push_back(cause) } else { self.ring.push_back(cause) }
        }
    }

    /// What has the next turn of those that are `wanted`, where so many places are free: its number, and the cause that
    /// has a place from now on.
    pub fn next(&mut self, free: Free, wanted: impl Fn(u64) -> bool) -> Option<(u64, Cause)> {
        let due = self.since_low >= LOW;
        let order = if self.was_fresh {
            [(false, due), (true, false), (false, true)]
        } else {
            [(true, false), (false, due), (false, true)]
        };
        let next = order.into_iter().find_map(|(fresh, low)| self.next_of(fresh, low, free, &wanted))?;
        self.since_low = if next.1.is_low() { 0 } else { self.since_low.saturating_add(1) };
        Some(next)
    }

    fn next_of(&mut self, fresh: bool, low: bool, free: Free, wanted: &impl Fn(u64) -> bool) -> Option<(u64, Cause)> {
        // nobody else was passed over for it
        let alone = self.ring.is_empty();
        let ring = if fresh { &mut self.fresh } else { &mut self.ring };
        for _ in 0..ring.len() {
            let cause = ring.pop_front()?;
            let Some(share) = self.shares.get_mut(&cause) else { continue };
            while share.waiting.front().is_some_and(|n| !wanted(*n)) {
                share.waiting.pop_front();
                self.len = self.len.saturating_sub(1);
            }
            let may = share.may_take(cause, free) && (low || !cause.is_low());
            let next = if may { share.waiting.pop_front() } else { None };
            share.places += usize::from(next.is_some());
            share.ringed = !share.waiting.is_empty();
            if let Some(number) = next {
                if share.ringed {
                    self.ring.push_back(cause);
                }
                self.len = self.len.saturating_sub(1);
                self.was_fresh = fresh && !alone;
                return Some((number, cause));
            }
            if share.ringed {
                ring.push_back(cause);
            } else if share.is_unused() {
                self.shares.remove(&cause);
            }
        }
        None
    }

    /// Whether [`Turns::next`] would give one.
    pub fn has_next(&self, free: Free, wanted: impl Fn(u64) -> bool) -> bool {
        let may = |cause: &Cause| {
            self.shares.get(cause).is_some_and(|s| s.may_take(*cause, free) && s.waiting.iter().any(|n| wanted(*n)))
        };
        self.fresh.iter().chain(&self.ring).any(may)
    }

    /// A client has left: what waits for `cause` waits for nobody, but for that which is not to be `kept`.
    pub fn abandon(&mut self, cause: Cause, mut kept: impl FnMut(u64) -> bool) {
        let Some(share) = self.shares.get_mut(&cause) else { return };
        share.gone = true;
        for number in std::mem::take(&mut share.waiting) {
            self.len = self.len.saturating_sub(1);
            if kept(number) {
                self.push(Cause::NOBODY, number);
            }
        }
    }

    /// Forgets what is not `wanted` any more, where it is worth the search.
    pub fn tidy(&mut self, wanted: impl Fn(u64) -> bool) {
        if self.len.max(self.ring.len() + self.fresh.len()) <= self.tidy_at.max(FEW) {
            return;
        }
        self.len = 0;
        self.shares.retain(|_, s| {
            s.waiting.retain(|n| wanted(*n));
            self.len += s.waiting.len();
            s.ringed = !s.waiting.is_empty();
            !s.is_unused()
        });
        let shares = &self.shares;
        for ring in [&mut self.ring, &mut self.fresh] {
            ring.retain(|cause| shares.get(cause).is_some_and(|s| s.ringed));
        }
        self.tidy_at = 2 * self.len;
    }
}

#[cfg(any(test, fuzzing))]
#[path = "turns_check.rs"]
mod check;

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
