//! The asking side of the multicast address protocol, for one endpoint: which requests are open, when each is sent,
//! sent again and given up. Pure: datagrams and times come in as arguments, what to send comes out.
//!
//! `resolve_depth` limits how many requests are *young*: just sent and not yet answered. A request that has not been
//! answered within [`YOUNG`] keeps waiting but no longer keeps others from being sent, so that a destination that does
//! not answer delays nobody. Whose request is the next one is for [`Turns`] to say.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use ibacm_wire::datagram::Groups;

use crate::cache::DestId;
use crate::keyed::Rng;
use crate::map::Map;
use crate::time::Time;
use crate::turns::{Cause, Free, Turns};
use crate::window::Window;

/// How long an unanswered request counts against `resolve_depth`.
pub const YOUNG: Duration = Duration::from_millis(1);
/// When a request whose datagram could not be sent is tried again; twice as late each time that this happens again.
pub const SEND_RETRY: Duration = Duration::from_millis(10);
/// Requests that may be open on an endpoint.
pub const MAX_OPEN: usize = 16_384;

/// Limits of the asking side.
#[derive(Clone, Copy, Debug)]
pub struct ArpConfig {
    /// Young requests at a time.
    pub depth: usize,
    /// The depth holds as it is, without a window: whoever has set it knows the fabric, a slow one too.
    pub fixed: bool,
    /// How long to wait for an answer before sending again.
    pub timeout: Duration,
    /// How often to send again.
    pub retries: u32,
}

struct Open {
    dest: DestId,
    /// For whom it was opened, and for whom it was sent last.
    cause: Cause,
    turn: Cause,
    sent: u32,
    /// Transmissions that failed in a row.
    failures: u32,
    /// When it is given up if its datagram cannot be sent at all.
    limit: Time,
    young: bool,
    queued: bool,
    /// The next transmission is the last one over again, which was perhaps not heard, or did not get out.
    again: bool,
    /// That has happened, so that not only the retries end it.
    extra: bool,
    deadline: Time,
    /// Groups that were offered with the latest transmission.
    offered: Groups,
}

/// What became of time passing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GaveUp {
    /// The destination that did not answer.
    pub dest: DestId,
}

/// Open requests of an endpoint.
pub struct Arp {
    config: ArpConfig,
    open: Map<u64, Open>,
    turns: Turns,
    /// Requests that wait for their turn.
    queued: usize,
    young: usize,
    /// When each transmission stops being young: in order, for all are young equally long.
    aging: VecDeque<(Time, u64)>,
    /// When each transmission's wait for an answer ends.
    waits: BinaryHeap<Reverse<(Time, u64)>>,
    window: Window,
}

impl Arp {
    /// No requests.
    pub fn new(config: ArpConfig) -> Arp {
        Arp {
            config,
            open: Map::new(),
            turns: Turns::default(),
            queued: 0,
            young: 0,
            aging: VecDeque::new(),
            waits: BinaryHeap::new(),
            window: Window::default(),
        }
    }

    /// Changes the limits; what is under way keeps its deadlines.
    pub fn set_config(&mut self, config: ArpConfig) {
        self.config = config;
    }

    /// Number of open requests.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Number of those that were opened for `cause`.
    pub fn opened(&self, cause: Cause) -> usize {
        self.turns.opened(cause)
    }

    /// Opens a request for `dest`: its transaction id. `None` at [`MAX_OPEN`], and if `cause` has more of them than are
    /// left.
    pub fn start(&mut self, dest: DestId, cause: Cause, rng: &mut Rng) -> Option<u64> {
        if !self.turns.open(cause, MAX_OPEN.saturating_sub(self.open.len())) {
            return None;
        }
        let tid = loop {
            // bit 63 tells sends of requests from sends of responses
            let t = rng.next_u64() >> 1;
            if t != 0 && !self.open.contains_key(&t) {
                break t;
            }
        };
        let open = Open {
            dest,
            cause,
            turn: cause,
            sent: 0,
            failures: 0,
            limit: Time::NEVER,
            young: false,
            queued: false,
            again: false,
            extra: false,
            deadline: Time::NEVER,
            offered: Groups::default(),
        };
        self.open.insert(tid, open);
        self.queue(tid);
        Some(tid)
    }

    /// `cause` wants the request `tid` too: if it waits for its turn, it has the first one of both.
    pub fn join(&mut self, cause: Cause, tid: u64) {
        if self.open.get(&tid).is_some_and(|o| o.queued) {
            self.turns.join(cause, tid);
        }
    }

    /// A client has left: what was opened for it has only now and then a turn.
    pub fn abandon(&mut self, cause: Cause) {
        let open = &self.open;
        self.turns.abandon(cause, |tid| open.get(&tid).is_some_and(|o| o.queued));
    }

    /// How many more may be young. The first request of somebody goes out beside those of others that are not answered.
    fn free(&self) -> Free {
        let ArpConfig { depth, fixed, .. } = self.config;
        let width = self.window.width(depth, fixed);
        Free { first: depth.saturating_sub(self.young), more: width.saturating_sub(self.young) }
    }

    /// The next request that is to be sent now, if the depth allows one; it counts as sent, offering these groups.
    pub fn next_to_send(&mut self, now: Time, offered: &Groups) -> Option<(u64, DestId)> {
        while self.young < self.config.depth {
            let free = self.free();
            let open = &self.open;
            let wanted = |tid: u64| open.get(&tid).is_some_and(|o| o.queued);
            let (tid, turn) = self.turns.next(free, wanted)?;
            let Some(o) = self.open.get_mut(&tid) else { continue };
            self.queued -= 1;
            o.turn = turn;
            o.sent += u32::from(!std::mem::take(&mut o.again));
            o.limit = o.limit.min(now.plus(self.config.timeout * (self.config.retries + 1)));
            self.window.begin(now);
            o.young = true;
            o.queued = false;
            o.deadline = now.plus(self.config.timeout);
            o.offered = *offered;
            self.young += 1;
            self.aging.push_back((now.plus(YOUNG), tid));
            self.waits.push(Reverse((o.deadline, tid)));
            return Some((tid, o.dest));
        }
        None
    }

    /// A response to the request `tid` came: that says how many more may be sent at a time.
    pub fn answered(&mut self, now: Time, tid: u64) {
        // one that was repeated may have been answered the first time
        if let Some(o) = self.open.get(&tid).filter(|o| o.sent == 1 && !o.queued && !o.again) {
            let sent = Time(o.deadline.0.saturating_sub(self.config.timeout.as_micros() as u64));
            let wanted = self.queued != 0;
            self.window.answered(now, sent, wanted, self.config.depth);
        }
    }

    /// The destination and offered groups of the open request `tid`.
    pub fn get(&self, tid: u64) -> Option<(DestId, &Groups)> {
        self.open.get(&tid).filter(|o| o.sent > 0).map(|o| (o.dest, &o.offered))
    }

    /// Whether what was sent last of the request `tid` was its first repetition: its time has passed once.
    pub fn is_first_repeat(&self, tid: u64) -> bool {
        self.open.get(&tid).is_some_and(|o| o.sent == 2)
    }

    /// Whether requests wait for their turn.
    pub fn is_behind(&self) -> bool {
        self.queued != 0
    }

    /// Ends the request `tid`, answered or no longer wanted.
    pub fn close(&mut self, tid: u64) {
        self.age(tid);
        if let Some(o) = self.open.remove(&tid) {
            self.queued -= usize::from(o.queued);
            self.turns.close(o.cause);
        }
        // a closed request leaves its timers and perhaps a place in the queue behind; they are skipped when their turn
        // comes, but must not outgrow what is open
        let open = &self.open;
        let most = 4 * open.len() + 64;
        if self.waits.len() > most {
            self.waits.retain(|Reverse((_, tid))| open.contains_key(tid));
        }
        if self.aging.len() > most {
            self.aging.retain(|(_, tid)| open.contains_key(tid));
        }
        self.turns.tidy(|tid| open.get(&tid).is_some_and(|o| o.queued));
    }

    /// The datagram of `tid` did not get out: it is sent again soon, and holds nobody up meanwhile.
    pub fn send_failed(&mut self, now: Time, tid: u64) {
        self.age(tid);
        let Some(o) = self.open.get_mut(&tid) else { return };
        if !o.queued {
            // no peer has been asked, so it does not count among the retries
            o.again = true;
            o.deadline = now.plus(SEND_RETRY * (1 << o.failures.min(6))).min(o.limit);
            o.failures += 1;
            self.waits.push(Reverse((o.deadline, tid)));
        }
    }

    /// Whatever was sent may not have been heard: it is sent again in its turn, without counting among the retries, as
    /// long as these would take.
    pub fn send_again(&mut self, now: Time) {
        let sent = self.open.iter().filter(|(_, o)| !o.queued && now < o.limit);
        for tid in sent.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.age(tid);
            let Some(o) = self.open.get_mut(&tid) else { continue };
            (o.again, o.extra) = (true, true);
            self.queue(tid);
        }
    }

    /// Has the request `tid` wait for another turn of those who had the last one.
    fn queue(&mut self, tid: u64) {
        let Some(o) = self.open.get_mut(&tid) else { return };
        o.queued = true;
        self.queued += 1;
        self.turns.push(o.turn, tid);
    }

    /// Lets time pass: one destination that is given up, or `None` when all that is due has happened.
    pub fn on_time(&mut self, now: Time) -> Option<GaveUp> {
        while let Some(&(at, tid)) = self.aging.front()
            && at <= now
        {
            self.aging.pop_front();
            // an older transmission's end may end a newer one's youth: that only lets the next go sooner
            self.age(tid);
        }
        while let Some(&Reverse((at, tid))) = self.waits.peek()
            && at <= now
        {
            self.waits.pop();
            self.age(tid);
            let Some(o) = self.open.get_mut(&tid) else { continue };
            if o.queued || at != o.deadline {
                continue;
            }
            if (o.sent > self.config.retries && !o.again) || ((o.extra || o.failures > 0) && at >= o.limit) {
                let dest = o.dest;
                self.close(tid);
                return Some(GaveUp { dest });
            }
            self.queue(tid);
        }
        None
    }

    fn age(&mut self, tid: u64) {
        if let Some(o) = self.open.get_mut(&tid)
            && std::mem::take(&mut o.young)
        {
            self.young -= 1;
            let turn = o.turn;
            self.turns.leave_place(turn);
        }
    }

    /// When [`Arp::on_time`] has something to do next. The end of a youth matters only while somebody waits for it.
    pub fn next_deadline(&mut self) -> Time {
        while let Some(Reverse((at, tid))) = self.waits.peek() {
            if self.open.get(tid).is_some_and(|o| !o.queued && o.deadline == *at) {
                break;
            }
            self.waits.pop();
        }
        // a place may have become free by something else than what is done here
        let wanted = |tid: u64| self.open.get(&tid).is_some_and(|o| o.queued);
        if self.queued != 0 && self.turns.has_next(self.free(), wanted) {
            return Time(0);
        }
        let wait = self.waits.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        let aged = match self.aging.front() {
            Some((at, _)) if self.queued != 0 => *at,
            _ => Time::NEVER,
        };
        wait.min(aged)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "arp_check.rs"]
mod check;

#[cfg(test)]
#[path = "arp_tests.rs"]
mod tests;
