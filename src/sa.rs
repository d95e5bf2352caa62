//! The client of the subnet administrator, for one port: what is asked, in what order, how many questions at a time,
//! and what an answer means. Pure: MADs and times come in as arguments, what to send comes out.
//!
//! The kernel repeats an unanswered MAD and gives it back when its time is up. "Busy" is the one answer that is no
//! answer: the question is asked again after a growing, random pause in which nothing else is asked either. Clients have
//! turns ([`turns`](crate::turns)).

use std::collections::VecDeque;
use std::time::Duration;

use ibacm_wire::sa::{self, McMember, SaMad};

use crate::keyed::Rng;
use crate::map::Map;
use crate::pace::Pace;
use crate::sa_answer::check;
pub use crate::sa_answer::{Answer, SaError};
use crate::sa_question::busy_pause;
pub use crate::sa_question::{Ask, SaConfig};
use crate::sa_queue::{Queue, Request};
use crate::time::Time;
use crate::turns::Cause;
use crate::window::Window;

/// Questions that wait for their turn at most.
pub const MAX_QUEUE: usize = 16_384;
/// Questions that only peers wait for, and that wait for their turn.
pub const MAX_PEERS: usize = 256;
/// How much longer than the kernel should need an answer is waited for, in case that the kernel never gives the
/// question back.
const GRACE: Duration = Duration::from_secs(2);
/// Questions on their way that no longer keep others from being asked.
const MAX_LATE: usize = 64;
/// After so many other questions there is a turn for one that nobody waits for, even where there are always others.
const IDLE_TURN: u32 = 32;

/// Whose turn it is.
enum Turn {
    Join,
    /// One of a client's, while so many places are free.
    Other(usize),
    Peers,
    Idle,
}

/// Questions of a port, each on behalf of a `P`.
pub struct SaClient<P> {
    config: SaConfig,
    queue: Queue<P>,
    /// Joins that wait for their turn. They have a turn of their own: an SA that is silent about groups may still know
    /// paths.
    joins: VecDeque<Request<P>>,
    /// What only peers wait for. Anybody on the fabric can make such questions, so they are few, come after those of
    /// clients, and leave clients half of the depth.
    peers: VecDeque<Request<P>>,
    /// What nobody waits for: asked one by one, while nothing else is asked, or after many others.
    idle: VecDeque<Request<P>>,
    /// Other questions that were sent while one of those waited.
    since_idle: u32,
    open: Map<u32, Request<P>>,
    next_tid: u32,
    paused_until: Time,
    /// As `paused_until`, for what nobody waits for.
    idle_until: Time,
    pace: Pace,
    window: Window,
}

impl<P> SaClient<P> {
    /// No questions. Transaction ids start at an unpredictable number.
    pub fn new(config: SaConfig, rng: &mut Rng) -> SaClient<P> {
        SaClient {
            config,
            queue: Queue::new(),
            joins: VecDeque::new(),
            peers: VecDeque::new(),
            idle: VecDeque::new(),
            since_idle: 0,
            open: Map::new(),
            next_tid: rng.next_u64() as u32,
            paused_until: Time(0),
            idle_until: Time(0),
            pace: Pace::default(),
            window: Window::default(),
        }
    }

    /// Changes the limits.
    pub fn set_config(&mut self, config: SaConfig) {
        self.config = config;
    }

    /// Questions waiting and on their way, but for those that wait for an idle moment.
    pub fn len(&self) -> usize {
        self.queue.len() + self.joins.len() + self.peers.len() + self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of questions for `cause`.
    pub fn asked(&self, cause: Cause) -> usize {
        self.queue.asked(cause)
    }

    /// Adds a question for `cause`: its number. Gives `who` back if the queue is full, or `cause` has more questions than
    /// there is room left for.
    pub fn submit(&mut self, now: Time, cause: Cause, who: P, ask: Ask) -> Result<u64, P> {
        if !self.queue.has_room(cause) {
            return Err(who);
        }
        Ok(self.queue.add(cause, Request::new(now, who, ask)))
    }

    /// Adds a join. Joins go first, the last one of them foremost: without its group an endpoint is deaf. Gives `who` back
    /// if there are too many.
    pub fn submit_join(&mut self, now: Time, who: P, group: McMember) -> Result<(), P> {
        if self.joins.len() >= MAX_QUEUE {
            return Err(who);
        }
        self.joins.push_front(Request::new(now, who, Ask::Join(group)));
        Ok(())
    }

    /// `cause` wants the answer to the question of this number too: if it waits for its turn, it has the first one of
    /// both.
    pub fn join(&mut self, cause: Cause, number: u64) {
        self.queue.join(cause, number);
    }

    /// A client has left: of its questions that wait for their turn those are taken out that are `unwanted`, and the
    /// others have one only now and then.
    pub fn abandon(&mut self, cause: Cause, unwanted: impl Fn(&P) -> bool) {
        self.queue.abandon(cause, unwanted);
    }

    /// Takes out the question of this number, if it waits for its turn.
    pub fn cancel(&mut self, number: u64) -> Option<P> {
        self.queue.take(number).map(|request| request.who)
    }

    /// Takes out a question that is on its way.
    fn take_open(&mut self, tid: u32) -> Option<Request<P>> {
        let mut request = self.open.remove(&tid)?;
        self.queue.leave_place(&mut request);
        self.queue.ended(&request);
        Some(request)
    }

    /// Adds a question that nobody waits for: it is asked in its turn when nothing else is, however long that takes.
    /// Gives `who` back if the queue is full.
    pub fn submit_idle(&mut self, now: Time, who: P, ask: Ask) -> Result<(), P> {
        if self.idle.len() >= MAX_QUEUE {
            return Err(who);
        }
        self.idle.push_back(Request { idle: true, ..Request::new(now, who, ask) });
        Ok(())
    }

    /// Adds a question that only peers wait for, unless `most` of them wait for their turn. Gives `who` back then.
    pub fn submit_for_peers(&mut self, now: Time, who: P, ask: Ask, most: usize) -> Result<(), P> {
        if self.peers.len() >= most.min(MAX_PEERS) {
            return Err(who);
        }
        self.peers.push_back(Request { peers: true, ..Request::new(now, who, ask) });
        Ok(())
    }

    /// A client has begun to wait for what only peers waited for: the question gets a client's turn, and its number is
    /// given back.
    pub fn promote(&mut self, now: Time, cause: Cause, is_it: impl Fn(&P) -> bool) -> Option<u64> {
        for request in self.open.values_mut().filter(|r| r.peers && is_it(&r.who)) {
            request.peers = false;
            self.queue.adopt(cause, request);
        }
        let i = self.peers.iter().position(|r| is_it(&r.who)).filter(|_| self.queue.has_room(cause))?;
        let request = self.peers.remove(i)?;
        Some(self.queue.add(cause, Request { peers: false, since: now, first: now, ..request }))
    }

    /// Takes out what has not been sent and is `unwanted`, of joins and of what no client waits for.
    pub fn withdraw(&mut self, unwanted: impl Fn(&P) -> bool) {
        for queue in [&mut self.joins, &mut self.peers, &mut self.idle] {
            queue.retain(|r| !unwanted(&r.who));
        }
    }

    /// Puts a question that has been sent before its kind.
    fn push_front(&mut self, request: Request<P>) {
        match () {
            () if request.is_client_s() => self.queue.again(request),
            () if request.idle => self.idle.push_front(request),
            () if request.peers => self.peers.push_front(request),
            () => self.joins.push_front(request),
        }
    }

    fn width(&self) -> usize {
        let SaConfig { depth, fixed, .. } = self.config;
        self.window.width(depth, fixed)
    }

    /// The queue whose turn it is, as far as the window goes: joins and other questions have it each for itself.
    fn turn(&self) -> Option<Turn> {
        if self.joins.is_empty() && self.queue.is_empty() && self.peers.is_empty() {
            return (!self.idle.is_empty() && self.open.is_empty()).then_some(Turn::Idle);
        }
        let width = self.width();
        let counted = self.open.values().filter(|r| !r.idle && !r.late);
        let joins = counted.clone().filter(|r| matches!(r.ask, Ask::Join(_))).count();
        if !self.joins.is_empty() && joins < width {
            return Some(Turn::Join);
        }
        let free = width.saturating_sub(counted.count() - joins);
        if free == 0 {
            return None;
        }
        if self.queue.has_next(free) {
            return Some(Turn::Other(free));
        }
        // also those that are late: what peers can make does not use up what clients have for that
        let peers = self.open.values().filter(|r| r.peers).count();
        (!self.peers.is_empty() && peers < (width / 2).max(1)).then_some(Turn::Peers)
    }

    /// Whether it is time for a question that nobody waits for, though there are others.
    fn is_idle_due(&self, now: Time) -> bool {
        let due = self.since_idle >= IDLE_TURN && now >= self.idle_until && !self.idle.is_empty();
        due && !self.open.values().any(|r| r.idle)
    }

    /// The oldest question that keeps others waiting: since when, and its transaction id.
    fn oldest(&self) -> Option<(Time, u32)> {
        let (joins, others) = (!self.joins.is_empty(), !self.queue.is_empty());
        let in_the_way = |r: &Request<P>| if matches!(r.ask, Ask::Join(_)) { joins } else { others };
        let blocks = self.open.iter().filter(|(_, r)| !r.idle && !r.late && in_the_way(r));
        blocks.map(|(tid, r)| (r.since, *tid)).min()
    }

    /// When it becomes late.
    fn late_at(&self) -> Time {
        let late = self.open.values().filter(|r| r.late).count();
        if self.turn().is_some() || late >= MAX_LATE + self.config.depth {
            return Time::NEVER;
        }
        self.oldest().map_or(Time::NEVER, |(since, _)| self.pace.late_at(since))
    }

    /// A question that others have overtaken is lost; if none is answered any more all are late.
    fn find_late(&mut self, now: Time) {
        if self.late_at() > now {
            return;
        }
        let Some((since, tid)) = self.oldest() else { return };
        if self.pace.is_overtaken(since) {
            self.window.halve(now, since);
            if let Some(oldest) = self.open.get_mut(&tid) {
                oldest.late = true;
                self.queue.leave_place(oldest);
            }
            return;
        }
        self.window.silent(now);
        self.pace.stalled(now);
        for request in self.open.values_mut().filter(|r| !r.idle) {
            request.late = true;
            self.queue.leave_place(request);
        }
    }

    /// The next MAD that is to be sent now, and the transaction id in it (32 bits: the kernel owns the rest).
    pub fn next_to_send(&mut self, now: Time) -> Option<(u32, SaMad)> {
        if now < self.paused_until {
            return None;
        }
        self.find_late(now);
        let mut request = match self.turn()? {
            Turn::Idle if now < self.idle_until => return None,
            Turn::Idle => self.idle.pop_front()?,
            _ if self.is_idle_due(now) => self.idle.pop_front()?,
            Turn::Join => self.joins.pop_front()?,
            Turn::Other(free) => self.queue.next(free)?,
            Turn::Peers => self.peers.pop_front()?,
        };
        self.since_idle = if request.idle || self.idle.is_empty() { 0 } else { self.since_idle.saturating_add(1) };
        (request.since, request.late) = (now, false);
        if self.open.values().all(|r| r.late || r.idle) {
            self.pace.begin(now);
            self.window.begin(now);
        }
        loop {
            self.next_tid = self.next_tid.wrapping_add(1);
            if self.next_tid != 0 && !self.open.contains_key(&self.next_tid) {
                break;
            }
        }
        let tid = self.next_tid;
        let mad = request.ask.mad(tid);
        self.open.insert(tid, request);
        Some((tid, mad))
    }

    /// Whether a MAD from the fabric answers an open question, for better or worse.
    pub fn is_answer(&self, mad: &SaMad) -> bool {
        mad.is_sa() && mad.method() & sa::METHOD_RESP != 0 && self.open.contains_key(&(mad.tid() as u32))
    }

    /// A MAD came back: `umad_status` 0 with an answer, else why the kernel gave the question back (an errno).
    /// `None`: it belongs to no open question, or is asked again by itself.
    pub fn received(&mut self, now: Time, umad_status: u32, mad: &SaMad, rng: &mut Rng) -> Option<Answer<P>> {
        let tid = mad.tid() as u32;
        if umad_status != 0 {
            let request = self.take_open(tid)?;
            if !request.late {
                self.window.halve(now, request.since);
            }
            return Some(Answer { who: request.who, result: Err(SaError::Timeout) });
        }
        if !self.is_answer(mad) {
            return None;
        }
        let result = check(&self.open.get(&tid)?.ask, mad);
        let mut request = self.take_open(tid)?;
        let busy = result == Err(SaError::Status(sa::STATUS_BUSY));
        self.answered(now, &request, busy);
        if busy && matches!(request.ask, Ask::Inform(_)) {
            // whoever subscribes has time: no other question is to wait for that
            return Some(Answer { who: request.who, result: Err(SaError::Busy) });
        }
        if busy {
            let since = *request.busy_since.get_or_insert(now);
            let pause = busy_pause(request.busy, rng);
            if now.plus(pause) >= since.plus(self.config.total()) {
                return Some(Answer { who: request.who, result: Err(SaError::Busy) });
            }
            request.busy += 1;
            request.since = now;
            // the pause after a question that nobody waits for is nobody else's
            let until = if request.idle { &mut self.idle_until } else { &mut self.paused_until };
            *until = now.plus(pause).max(*until);
            self.push_front(request);
            return None;
        }
        Some(Answer { who: request.who, result: result.map(|()| *mad) })
    }

    /// What an answer says of how much may be asked. One to a late question may be that to its repetition.
    fn answered(&mut self, now: Time, request: &Request<P>, busy: bool) {
        self.pace.answered(now, (!request.late).then_some(request.since));
        if busy {
            self.window.halve(now, request.since);
        } else if !request.late {
            // what peers make asked is no reason to ask more
            let wanted = !(self.joins.is_empty() && self.queue.is_empty());
            self.window.answered(now, request.since, wanted, self.config.depth);
        }
    }

    /// The MAD of `tid` could not be sent.
    pub fn send_failed(&mut self, tid: u32) -> Option<Answer<P>> {
        let who = self.take_open(tid)?.who;
        Some(Answer { who, result: Err(SaError::Down) })
    }

    /// Asks everything again that is on its way, because it went to an SA that is there no more.
    pub fn resend_all(&mut self, now: Time) {
        let open: Vec<u32> = self.open.keys().copied().collect();
        for tid in open {
            let Some(request) = self.take_open(tid) else { continue };
            self.push_front(Request { since: now, ..request });
        }
        (self.paused_until, self.idle_until) = (Time(0), Time(0));
    }

    /// Lets time pass: one question whose time is up, or `None` when all that is due has happened.
    pub fn on_time(&mut self, now: Time) -> Option<Answer<P>> {
        let limit = self.config.total();
        if let Some(i) = self.joins.iter().position(|r| r.end(limit) <= now) {
            let who = self.joins.remove(i)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        let over = self.queue.first().find(|(_, r)| r.end(limit) <= now);
        if let Some(number) = over.map(|o| o.0) {
            let who = self.queue.take(number)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        if let Some(i) = self.peers.iter().position(|r| r.end(limit) <= now) {
            let who = self.peers.remove(i)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        let lost = |r: &Request<P>| r.end(limit + GRACE) <= now;
        let tid = *self.open.iter().find(|(_, r)| lost(r))?.0;
        let who = self.take_open(tid)?.who;
        Some(Answer { who, result: Err(SaError::Timeout) })
    }

    /// When [`SaClient::on_time`] or [`SaClient::next_to_send`] has something to do next without anything else
    /// happening.
    pub fn next_deadline(&self) -> Time {
        let limit = self.config.total();
        let queued = self.joins.iter().chain(&self.peers).chain(self.queue.first().map(|f| f.1));
        let queued = queued.map(|r| r.end(limit)).min();
        let open = self.open.values().map(|r| r.end(limit + GRACE)).min().unwrap_or(Time::NEVER);
        let resume = match self.turn() {
            None => self.late_at().max(self.paused_until),
            Some(Turn::Idle) => self.paused_until.max(self.idle_until),
            Some(_) => self.paused_until,
        };
        queued.unwrap_or(Time::NEVER).min(open).min(resume)
    }

    /// Takes everything out, because the port is gone.
    pub fn drain(&mut self) -> Vec<P> {
        (self.paused_until, self.idle_until) = (Time(0), Time(0));
        let mut all: Vec<P> = self.joins.drain(..).map(|r| r.who).collect();
        all.extend(self.queue.drain());
        all.extend(self.peers.drain(..).chain(self.idle.drain(..)).map(|r| r.who));
        all.extend(self.open.drain().map(|(_, r)| r.who));
        all
    }
}

#[cfg(any(test, fuzzing))]
#[path = "sa_check.rs"]
mod check;

#[cfg(test)]
#[path = "sa_tests.rs"]
mod tests;
