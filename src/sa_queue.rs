//! Questions to the subnet administrator for clients that wait for their turn, and whose turn it is. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::map::Map;
use crate::sa::{Ask, MAX_QUEUE};
use crate::time::Time;
use crate::turns::{Cause, Free, Turns};

/// Questions of which the first whose time is up is among the first so many: they are in order of time but for repeated
/// ones in front, which are few.
const REPEATED: usize = 64;

/// A question on behalf of `who`.
pub(crate) struct Request<P> {
    pub who: P,
    pub ask: Ask,
    /// Nobody waits for the answer.
    pub idle: bool,
    /// Only peers do.
    pub peers: bool,
    /// Since when it waits for its turn or, once sent, for an answer.
    pub since: Time,
    /// Since when it is a question, however often it had to be asked.
    pub first: Time,
    /// When the first "busy" came.
    pub busy_since: Option<Time>,
    pub busy: u32,
    /// It has been on its way for so long that it no longer counts against the depth.
    pub late: bool,
    /// For whom it is asked, if it is a client's.
    pub cause: Option<Cause>,
    /// Whose place among those on their way it has.
    pub place: Option<Cause>,
}

impl<P> Request<P> {
    pub fn new(now: Time, who: P, ask: Ask) -> Request<P> {
        let (idle, peers, busy_since, busy, late) = Default::default();
        let (cause, place) = (None, None);
        Request { who, ask, idle, peers, since: now, first: now, busy_since, busy, late, cause, place }
    }

    /// Whether it has waited for a client's turn.
    pub fn is_client_s(&self) -> bool {
        self.cause.is_some()
    }

    /// When its time is up: this long after it was last sent or queued, but twice that after it was first asked, however
    /// often the subnet administrator has moved since.
    pub fn end(&self, limit: Duration) -> Time {
        let longest = if self.idle { Time::NEVER } else { self.first.plus(limit.saturating_mul(2)) };
        self.since.plus(limit).min(longest)
    }
}

/// Questions of clients that wait, each with a number.
pub(crate) struct Queue<P> {
    waiting: Map<u64, Request<P>>,
    /// Numbers in the order in which their time is up; some wait no longer.
    order: VecDeque<u64>,
    turns: Turns,
    last_number: u64,
}

impl<P> Queue<P> {
    pub fn new() -> Queue<P> {
        Queue { waiting: Map::new(), order: VecDeque::new(), turns: Turns::default(), last_number: 0 }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Questions for `cause`, those on their way too.
    pub fn asked(&self, cause: Cause) -> usize {
        self.turns.opened(cause)
    }

    /// Whether there is room for one more of `cause`, which may have no more questions than there is room left for.
    pub fn has_room(&self, cause: Cause) -> bool {
        self.asked(cause) < MAX_QUEUE.saturating_sub(self.waiting.len())
    }

    /// Has a question wait for a turn of `cause`: its number.
    pub fn add(&mut self, cause: Cause, request: Request<P>) -> u64 {
        self.turns.open(cause, usize::MAX);
        self.last_number += 1;
        self.turns.push(cause, self.last_number);
        self.order.push_back(self.last_number);
        self.waiting.insert(self.last_number, Request { cause: Some(cause), ..request });
        self.last_number
    }

    /// A question that is on its way is one for `cause` from now on.
    pub fn adopt(&mut self, cause: Cause, request: &mut Request<P>) {
        self.turns.open(cause, usize::MAX);
        request.cause = Some(cause);
    }

    /// Has a question that was on its way wait again, before others for which it was asked. There is always room.
    pub fn again(&mut self, request: Request<P>) {
        let Some(cause) = request.cause else { return };
        self.turns.open(cause, usize::MAX);
        self.last_number += 1;
        self.turns.push_front(cause, self.last_number);
        self.order.push_front(self.last_number);
        self.waiting.insert(self.last_number, request);
    }

    /// `cause` wants the answer to a question too: if that waits for its turn, it has the first one of both.
    pub fn join(&mut self, cause: Cause, number: u64) {
        if self.waiting.contains_key(&number) {
            self.turns.join(cause, number);
        }
    }

    /// A client has left: of its questions that wait those are taken out that are `unwanted`, and the others have a turn
    /// only now and then.
    pub fn abandon(&mut self, cause: Cause, unwanted: impl Fn(&P) -> bool) {
        let (waiting, mut out) = (&self.waiting, Vec::new());
        self.turns.abandon(cause, |number| {
            let Some(request) = waiting.get(&number) else { return false };
            let keep = request.cause != Some(cause) || !unwanted(&request.who);
            if !keep {
                out.push(number);
            }
            keep
        });
        out.into_iter().for_each(|number| drop(self.take(number)));
    }

    /// Takes out a question that waits.
    pub fn take(&mut self, number: u64) -> Option<Request<P>> {
        let request = self.waiting.remove(&number)?;
        self.ended(&request);
        self.tidy();
        Some(request)
    }

    /// Forgets the numbers of those that wait no longer, where it is worth the search.
    fn tidy(&mut self) {
        let waiting = &self.waiting;
        self.turns.tidy(|n| waiting.contains_key(&n));
        if self.order.len() > 2 * waiting.len() + REPEATED {
            self.order.retain(|n| waiting.contains_key(n));
        }
    }

    /// Whether one has its turn where so many places are free.
    pub fn has_next(&self, free: usize) -> bool {
        self.turns.has_next(Free::all(free), |n| self.waiting.contains_key(&n))
    }

    /// The one that has its turn, and a place from now on.
    pub fn next(&mut self, free: usize) -> Option<Request<P>> {
        let waiting = &self.waiting;
        let (number, place) = self.turns.next(Free::all(free), |n| waiting.contains_key(&n))?;
        let request = Request { place: Some(place), ..self.waiting.remove(&number)? };
        self.tidy();
        Some(request)
    }

    /// A question on its way keeps nobody waiting any more.
    pub fn leave_place(&mut self, request: &mut Request<P>) {
        request.place.take().into_iter().for_each(|cause| self.turns.leave_place(cause));
    }

    /// A question is no longer one.
    pub fn ended(&mut self, request: &Request<P>) {
        request.cause.into_iter().for_each(|cause| self.turns.close(cause));
    }

    /// Those whose time may be up next, with their numbers.
    pub fn first(&self) -> impl Iterator<Item = (u64, &Request<P>)> {
        self.order.iter().filter_map(|n| Some((*n, self.waiting.get(n)?))).take(REPEATED)
    }

    /// Takes out all that wait, and forgets what is on its way.
    pub fn drain(&mut self) -> impl Iterator<Item = P> {
        self.turns = Turns::default();
        let order = std::mem::take(&mut self.order);
        order.into_iter().filter_map(|n| self.waiting.remove(&n)).map(|request| request.who)
    }
}

#[cfg(any(test, fuzzing))]
impl<P> Queue<P> {
    /// Those that wait.
    pub fn values(&self) -> impl Iterator<Item = &Request<P>> {
        self.waiting.values()
    }

    /// Panics if it contradicts itself; `sent` are on their way.
    pub fn check<'a>(&'a self, sent: impl Iterator<Item = &'a Request<P>> + Clone) {
        assert!(
            self.waiting.keys().all(|n| self.turns.has(*n) && self.order.contains(n)),
            "a question has lost its turn"
        );
        assert!(self.order.len() <= 2 * self.waiting.len() + 2 * REPEATED, "numbers of questions that wait no longer");
        let opened = self.values().chain(sent.clone()).filter(|r| r.is_client_s()).count();
        self.turns.check(opened, sent.filter(|r| r.place.is_some()).count());
    }
}
