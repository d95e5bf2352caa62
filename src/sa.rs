//! The client of the subnet administrator, for one port: what is asked, in what order, how many questions at a time,
//! and what an answer means. Pure: MADs and times come in as arguments, what to send comes out.
//!
//! The kernel repeats an unanswered MAD and gives it back when its time is up. "Busy" is the one answer that is no
//! answer: the question is asked again after a growing, random pause in which nothing else is asked either.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ibacm_wire::PathRecord;
use ibacm_wire::notice::InformInfo;
use ibacm_wire::sa::{self, McMember, SaMad};

use crate::keyed::Rng;
use crate::pace::Pace;
pub use crate::sa_answer::SaError;
use crate::sa_answer::check;
use crate::time::Time;

/// Questions that wait for their turn at most.
pub const MAX_QUEUE: usize = 16_384;
/// Questions that only peers wait for, and that wait for their turn.
pub const MAX_PEERS: usize = 256;
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How much longer than the kernel should need an answer is waited for, in case that the kernel never gives the
/// question back.
const GRACE: Duration = Duration::from_secs(2);
/// Questions on their way that no longer keep others from being asked.
const MAX_LATE: usize = 64;

/// Limits of the client.
#[derive(Clone, Copy, Debug)]
pub struct SaConfig {
    /// Questions on their way at a time.
    pub depth: usize,
    /// How long the kernel waits for an answer, in milliseconds.
    pub timeout_ms: u32,
    /// How often the kernel asks again.
    pub retries: u32,
}

impl SaConfig {
    /// The time in which a question is answered or fails, once it is on its way.
    pub fn total(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms) * (u64::from(self.retries) + 1))
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// SubnAdmGet(PathRecord) by every component that is not zero.
    Path(PathRecord),
    /// Join a multicast group.
    Join(McMember),
    /// Subscribe to notices.
    Inform(InformInfo),
    /// A provider's, as it is but for its transaction id. Every answer of the SA is one to it.
    Mad(Box<SaMad>),
}

/// The answer to a question that was asked on behalf of `who`.
pub struct Answer<P> {
    /// As given to [`SaClient::submit`].
    pub who: P,
    /// The answer's MAD.
    pub result: Result<SaMad, SaError>,
}

struct Request<P> {
    who: P,
    ask: Ask,
    /// Nobody waits for the answer.
    idle: bool,
    /// Only peers do.
    peers: bool,
    /// Since when it waits for its turn or, once sent, for an answer.
    since: Time,
    /// Since when it is a question, however often it had to be asked.
    first: Time,
    /// When the first "busy" came.
    busy_since: Option<Time>,
    busy: u32,
    /// It has been on its way for so long that it no longer counts against the depth.
    late: bool,
}

impl<P> Request<P> {
    fn new(now: Time, who: P, ask: Ask) -> Request<P> {
        let (idle, peers, busy_since, busy, late) = Default::default();
        Request { who, ask, idle, peers, since: now, first: now, busy_since, busy, late }
    }

    /// When its time is up: this long after it was last sent or queued, but twice that after it was first asked, however
    /// often the subnet administrator has moved since.
    fn end(&self, limit: Duration) -> Time {
        let longest = if self.idle { Time::NEVER } else { self.first.plus(limit.saturating_mul(2)) };
        self.since.plus(limit).min(longest)
    }
}

/// Whose turn it is.
enum Turn {
    Join,
    Other,
    Peers,
    Idle,
}

/// Questions of a port, each on behalf of a `P`.
pub struct SaClient<P> {
    config: SaConfig,
    queue: VecDeque<Request<P>>,
    /// Joins that wait for their turn. They have a turn of their own: an SA that is silent about groups may still know
    /// paths.
    joins: VecDeque<Request<P>>,
    /// What only peers wait for. Anybody on the fabric can make such questions, so they are few, come after those of
    /// clients, and leave clients half of the depth.
    peers: VecDeque<Request<P>>,
    /// What nobody waits for: asked one by one, while nothing else is asked.
    idle: VecDeque<Request<P>>,
    open: HashMap<u32, Request<P>>,
    next_tid: u32,
    paused_until: Time,
    /// As `paused_until`, for what nobody waits for.
    idle_until: Time,
    pace: Pace,
}

impl<P> SaClient<P> {
    /// No questions. Transaction ids start at an unpredictable number.
    pub fn new(config: SaConfig, rng: &mut Rng) -> SaClient<P> {
        SaClient {
            config,
            queue: VecDeque::new(),
            joins: VecDeque::new(),
            peers: VecDeque::new(),
            idle: VecDeque::new(),
            open: HashMap::new(),
            next_tid: rng.next_u64() as u32,
            paused_until: Time(0),
            idle_until: Time(0),
            pace: Pace::default(),
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

    /// Adds a question. Joins go first, the last one of them foremost: without its group an endpoint is deaf. Gives `who`
    /// back if the queue is full.
    pub fn submit(&mut self, now: Time, who: P, ask: Ask) -> Result<(), P> {
        if self.queue.len() + self.joins.len() >= MAX_QUEUE {
            return Err(who);
        }
        let request = Request::new(now, who, ask);
        match request.ask {
            Ask::Join(_) => self.joins.push_front(request),
            Ask::Path(_) | Ask::Inform(_) | Ask::Mad(_) => self.queue.push_back(request),
        }
        Ok(())
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

    /// A client has begun to wait for what only peers waited for: the question gets a client's turn.
    pub fn promote(&mut self, now: Time, is_it: impl Fn(&P) -> bool) {
        self.open.values_mut().filter(|r| r.peers && is_it(&r.who)).for_each(|r| r.peers = false);
        if self.queue.len() + self.joins.len() >= MAX_QUEUE {
            return;
        }
        if let Some(i) = self.peers.iter().position(|r| is_it(&r.who))
            && let Some(request) = self.peers.remove(i)
        {
            self.queue.push_back(Request { peers: false, since: now, first: now, ..request });
        }
    }

    /// Takes out what has not been sent and is `unwanted`.
    pub fn withdraw(&mut self, unwanted: impl Fn(&P) -> bool) {
        for queue in [&mut self.joins, &mut self.queue, &mut self.peers, &mut self.idle] {
            queue.retain(|r| !unwanted(&r.who));
        }
    }

    /// Puts a question that has been sent before its kind.
    fn push_front(&mut self, request: Request<P>) {
        match request.ask {
            _ if request.idle => self.idle.push_front(request),
            _ if request.peers => self.peers.push_front(request),
            Ask::Join(_) => self.joins.push_front(request),
            Ask::Path(_) | Ask::Inform(_) | Ask::Mad(_) => self.queue.push_front(request),
        }
    }

    /// The queue whose turn it is, as far as the depth goes: joins and other questions have it each for itself.
    fn turn(&self) -> Option<Turn> {
        if self.joins.is_empty() && self.queue.is_empty() && self.peers.is_empty() {
            return (!self.idle.is_empty() && self.open.is_empty()).then_some(Turn::Idle);
        }
        let counted = self.open.values().filter(|r| !r.idle && !r.late);
        let joins = counted.clone().filter(|r| matches!(r.ask, Ask::Join(_))).count();
        if !self.joins.is_empty() && joins < self.config.depth {
            return Some(Turn::Join);
        }
        if counted.count() - joins >= self.config.depth {
            return None;
        }
        if !self.queue.is_empty() {
            return Some(Turn::Other);
        }
        // also those that are late: what peers can make does not use up what clients have for that
        let peers = self.open.values().filter(|r| r.peers).count();
        (!self.peers.is_empty() && peers < (self.config.depth / 2).max(1)).then_some(Turn::Peers)
    }

    /// When the oldest question that keeps others waiting becomes late.
    fn late_at(&self) -> Time {
        let waiting = !(self.joins.is_empty() && self.queue.is_empty());
        let late = self.open.values().filter(|r| r.late).count();
        if waiting && self.turn().is_none() && late < MAX_LATE { self.pace.late_at() } else { Time::NEVER }
    }

    fn find_late(&mut self, now: Time) {
        if self.late_at() > now {
            return;
        }
        let (joins, others) = (!self.joins.is_empty(), !self.queue.is_empty());
        let in_the_way = |r: &Request<P>| if matches!(r.ask, Ask::Join(_)) { joins } else { others };
        let blocks = |r: &&mut Request<P>| !r.idle && !r.late && in_the_way(r);
        if let Some(oldest) = self.open.values_mut().filter(blocks).min_by_key(|r| r.since) {
            oldest.late = true;
        }
        self.pace.stalled(now);
    }

    /// The next MAD that is to be sent now, and the transaction id in it (32 bits: the kernel owns the rest).
    pub fn next_to_send(&mut self, now: Time) -> Option<(u32, SaMad)> {
        if now < self.paused_until {
            return None;
        }
        self.find_late(now);
        let mut request = match self.turn()? {
            Turn::Join => self.joins.pop_front()?,
            Turn::Other => self.queue.pop_front()?,
            Turn::Peers => self.peers.pop_front()?,
            Turn::Idle if now < self.idle_until => return None,
            Turn::Idle => self.idle.pop_front()?,
        };
        (request.since, request.late) = (now, false);
        if self.open.values().all(|r| r.late || r.idle) {
            self.pace.begin(now);
        }
        loop {
            self.next_tid = self.next_tid.wrapping_add(1);
            if self.next_tid != 0 && !self.open.contains_key(&self.next_tid) {
                break;
            }
        }
        let tid = self.next_tid;
        let mad = match &request.ask {
            Ask::Path(p) => SaMad::path_query(u64::from(tid), p),
            Ask::Join(m) => SaMad::membership(sa::METHOD_SET, u64::from(tid), m, sa::JOIN_MASK),
            Ask::Inform(i) => SaMad::subscription(u64::from(tid), i),
            Ask::Mad(m) => {
                let mut mad = **m;
                mad.set_tid(u64::from(tid));
                mad
            }
        };
        self.open.insert(tid, request);
        Some((tid, mad))
    }

    /// A MAD came back: `umad_status` 0 with an answer, else why the kernel gave the question back (an errno).
    /// `None`: it belongs to no open question, or is asked again by itself.
    pub fn received(&mut self, now: Time, umad_status: u32, mad: &SaMad, rng: &mut Rng) -> Option<Answer<P>> {
        let tid = mad.tid() as u32;
        let open = self.open.get(&tid)?;
        if umad_status != 0 {
            let who = self.open.remove(&tid)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        if !mad.is_sa() || mad.method() & sa::METHOD_RESP == 0 {
            return None;
        }
        let result = check(&open.ask, mad);
        let mut request = self.open.remove(&tid)?;
        self.pace.answered(now, (!request.late).then(|| request.since.until(now)));
        let busy = result == Err(SaError::Status(sa::STATUS_BUSY));
        if busy && matches!(request.ask, Ask::Inform(_)) {
            // whoever subscribes has time: no other question is to wait for that
            return Some(Answer { who: request.who, result: Err(SaError::Busy) });
        }
        if busy {
            let since = *request.busy_since.get_or_insert(now);
            let base = BUSY_PAUSE.saturating_mul(1 << request.busy.min(6)).min(BUSY_PAUSE_MAX);
            let pause = base / 2 + Duration::from_micros(rng.below(base.as_micros() as u64));
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

    /// The MAD of `tid` could not be sent.
    pub fn send_failed(&mut self, tid: u32) -> Option<Answer<P>> {
        let who = self.open.remove(&tid)?.who;
        Some(Answer { who, result: Err(SaError::Down) })
    }

    /// Asks everything again that is on its way, because it went to an SA that is there no more.
    pub fn resend_all(&mut self, now: Time) {
        for (_, mut request) in std::mem::take(&mut self.open) {
            request.since = now;
            self.push_front(request);
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
        // the queue is in order of time but for repeated questions in front, which are few
        if let Some(i) = self.queue.iter().take(64).position(|r| r.end(limit) <= now) {
            let who = self.queue.remove(i)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        if let Some(i) = self.peers.iter().position(|r| r.end(limit) <= now) {
            let who = self.peers.remove(i)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        let lost = |r: &Request<P>| r.end(limit + GRACE) <= now;
        let tid = *self.open.iter().find(|(_, r)| lost(r))?.0;
        let who = self.open.remove(&tid)?.who;
        Some(Answer { who, result: Err(SaError::Timeout) })
    }

    /// When [`SaClient::on_time`] or [`SaClient::next_to_send`] has something to do next without anything else
    /// happening.
    pub fn next_deadline(&self) -> Time {
        let limit = self.config.total();
        let queued = self.joins.iter().chain(&self.peers).chain(self.queue.iter().take(64)).map(|r| r.end(limit)).min();
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
        let open = self.open.drain().map(|(_, r)| r.who);
        let all: Vec<P> = self
            .joins
            .drain(..)
            .chain(self.queue.drain(..))
            .chain(self.peers.drain(..))
            .chain(self.idle.drain(..))
            .map(|r| r.who)
            .chain(open)
            .collect();
        all
    }
}

#[cfg(any(test, fuzzing))]
#[path = "sa_check.rs"]
mod check;

#[cfg(test)]
#[path = "sa_tests.rs"]
mod tests;
