//! The client of the subnet administrator, for one port: what is asked, in what order, how many questions at a time,
//! and what an answer means. Pure: MADs and times come in as arguments, what to send comes out.
//!
//! The kernel repeats an unanswered MAD and gives it back when its time is up. "Busy" is the one answer that is no
//! answer: the question is asked again after a growing, random pause in which nothing else is asked either.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ibacm_wire::sa::{self, McMember, SaMad};
use ibacm_wire::{PathRecord, client::Status, path::mask};

use crate::keyed::Rng;
use crate::time::Time;

/// Questions that wait for their turn at most.
pub const MAX_QUEUE: usize = 16_384;
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How much longer than the kernel should need an answer is waited for, in case that the kernel never gives the
/// question back.
const GRACE: Duration = Duration::from_secs(2);

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// SubnAdmGet(PathRecord) by every component that is not zero.
    Path(PathRecord),
    /// Join a multicast group.
    Join(McMember),
}

/// Why there is no usable answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaError {
    /// None came in time.
    Timeout,
    /// Busy, and again busy, until the time was up.
    Busy,
    /// The MAD's status.
    Status(u16),
    /// The answer is not one to this question.
    Malformed,
    /// The port is gone, or the MAD could not be sent.
    Down,
}

impl SaError {
    /// What a client is told.
    pub fn client_status(self) -> Status {
        match self {
            SaError::Timeout | SaError::Busy => Status::Etimedout,
            SaError::Malformed => Status::Enodata,
            SaError::Down => Status::Enotconn,
            // the SA's class-specific codes (IBA 15.2.2) are in the high byte
            SaError::Status(s) => match s >> 8 {
                1 => Status::Enomem,
                3 => Status::Enodata,
                5 => Status::Edestaddr,
                2 | 4 | 6 | 7 => Status::Einval,
                _ => Status::Enodata,
            },
        }
    }
}

impl std::fmt::Display for SaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SaError::Timeout => f.write_str("the SA did not answer in time"),
            SaError::Busy => f.write_str("the SA stayed busy"),
            SaError::Malformed => f.write_str("the SA's answer does not fit the question"),
            SaError::Down => f.write_str("the port is not usable"),
            SaError::Status(s) => {
                let what = match s >> 8 {
                    1 => "no resources",
                    2 => "request invalid",
                    3 => "no records",
                    4 => "too many records",
                    5 => "invalid GID",
                    6 => "insufficient components",
                    7 => "request denied",
                    _ => "failure",
                };
                write!(f, "the SA answered status {s:#06x} ({what})")
            }
        }
    }
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
    /// Since when it waits for its turn or, once sent, for an answer.
    since: Time,
    /// When the first "busy" came.
    busy_since: Option<Time>,
    busy: u32,
}

/// Questions of a port, each on behalf of a `P`.
pub struct SaClient<P> {
    config: SaConfig,
    queue: VecDeque<Request<P>>,
    open: HashMap<u32, Request<P>>,
    next_tid: u32,
    paused_until: Time,
}

impl<P> SaClient<P> {
    /// No questions. Transaction ids start at an unpredictable number.
    pub fn new(config: SaConfig, rng: &mut Rng) -> SaClient<P> {
        SaClient {
            config,
            queue: VecDeque::new(),
            open: HashMap::new(),
            next_tid: rng.next_u64() as u32,
            paused_until: Time(0),
        }
    }

    /// Changes the limits.
    pub fn set_config(&mut self, config: SaConfig) {
        self.config = config;
    }

    /// Questions waiting and on their way.
    pub fn len(&self) -> usize {
        self.queue.len() + self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a question. Joins go first: without its group an endpoint is deaf. Gives `who` back if the queue is full.
    pub fn submit(&mut self, now: Time, who: P, ask: Ask) -> Result<(), P> {
        if self.queue.len() >= MAX_QUEUE {
            return Err(who);
        }
        let request = Request { who, ask, since: now, busy_since: None, busy: 0 };
        match ask {
            Ask::Join(_) => self.queue.push_front(request),
            Ask::Path(_) => self.queue.push_back(request),
        }
        Ok(())
    }

    /// The next MAD that is to be sent now, and the transaction id in it (32 bits: the kernel owns the rest).
    pub fn next_to_send(&mut self, now: Time) -> Option<(u32, SaMad)> {
        if self.open.len() >= self.config.depth || now < self.paused_until {
            return None;
        }
        let mut request = self.queue.pop_front()?;
        request.since = now;
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
        if result == Err(SaError::Status(sa::STATUS_BUSY)) {
            let since = *request.busy_since.get_or_insert(now);
            let base = BUSY_PAUSE.saturating_mul(1 << request.busy.min(6)).min(BUSY_PAUSE_MAX);
            let pause = base / 2 + Duration::from_micros(rng.below(base.as_micros() as u64));
            if now.plus(pause) >= since.plus(self.config.total()) {
                return Some(Answer { who: request.who, result: Err(SaError::Busy) });
            }
            request.busy += 1;
            request.since = now;
            self.paused_until = self.paused_until.max(now.plus(pause));
            self.queue.push_front(request);
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
        for (_, mut request) in self.open.drain() {
            request.since = now;
            self.queue.push_front(request);
        }
        self.paused_until = Time(0);
    }

    /// Lets time pass: one question whose time is up, or `None` when all that is due has happened.
    pub fn on_time(&mut self, now: Time) -> Option<Answer<P>> {
        let limit = self.config.total();
        // the queue is in order of time but for joins and repeated questions in front, which are few
        if let Some(i) = self.queue.iter().take(64).position(|r| r.since.plus(limit) <= now) {
            let who = self.queue.remove(i)?.who;
            return Some(Answer { who, result: Err(SaError::Timeout) });
        }
        let lost = |r: &Request<P>| r.since.plus(limit + GRACE) <= now;
        let tid = *self.open.iter().find(|(_, r)| lost(r))?.0;
        let who = self.open.remove(&tid)?.who;
        Some(Answer { who, result: Err(SaError::Timeout) })
    }

    /// When [`SaClient::on_time`] or [`SaClient::next_to_send`] has something to do next without anything else
    /// happening.
    pub fn next_deadline(&self) -> Time {
        let limit = self.config.total();
        let queued = self.queue.iter().take(64).map(|r| r.since.plus(limit)).min().unwrap_or(Time::NEVER);
        let open = self.open.values().map(|r| r.since.plus(limit + GRACE)).min().unwrap_or(Time::NEVER);
        let resume =
            if self.queue.is_empty() || self.open.len() >= self.config.depth { Time::NEVER } else { self.paused_until };
        queued.min(open).min(resume)
    }

    /// Takes everything out, because the port is gone.
    pub fn drain(&mut self) -> Vec<P> {
        self.paused_until = Time(0);
        let open = self.open.drain().map(|(_, r)| r.who);
        let all: Vec<P> = self.queue.drain(..).map(|r| r.who).chain(open).collect();
        all
    }
}

/// Whether `mad` answers `ask`, and how.
fn check(ask: &Ask, mad: &SaMad) -> Result<(), SaError> {
    let status = mad.status();
    let attribute = match ask {
        Ask::Path(_) => sa::ATTR_PATH,
        Ask::Join(_) => sa::ATTR_MCMEMBER,
    };
    if mad.method() != sa::METHOD_GET | sa::METHOD_RESP || mad.attribute() != attribute {
        return Err(SaError::Malformed);
    }
    if status & 0xff == sa::STATUS_BUSY && status >> 8 == 0 {
        return Err(SaError::Status(sa::STATUS_BUSY));
    }
    if status != 0 {
        return Err(SaError::Status(status));
    }
    let fits = match ask {
        Ask::Path(q) => path_fits(q, &mad.path()),
        Ask::Join(m) => {
            let r = mad.mcmember();
            r.mgid == m.mgid && (0xc000..0xffff).contains(&r.mlid)
        }
    };
    if fits { Ok(()) } else { Err(SaError::Malformed) }
}

/// Whether the path is between the ports that were asked for, and one that packets can be sent along.
fn path_fits(q: &PathRecord, p: &PathRecord) -> bool {
    let asked = q.component_mask();
    let dgid = asked & mask::DGID == 0 || p.dgid() == q.dgid();
    let sgid = asked & mask::SGID == 0 || p.sgid() == q.sgid();
    let dlid = asked & mask::DLID == 0 || p.dlid() == q.dlid();
    dgid && sgid && dlid && p.dlid() != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::SipKey;
    use ibacm_wire::Gid;

    fn client(depth: usize) -> (SaClient<u32>, Rng) {
        let mut rng = Rng::new(SipKey(1, 2));
        (SaClient::new(SaConfig { depth, timeout_ms: 1000, retries: 1 }, &mut rng), rng)
    }

    fn question(n: u8) -> Ask {
        let mut p = PathRecord::default();
        p.set_dgid(Gid([n; 16]));
        Ask::Path(p)
    }

    fn answer(mad: &SaMad, status: u16) -> SaMad {
        let mut a = *mad;
        a.0[3] |= sa::METHOD_RESP;
        a.set_status(status);
        a.0[56 + 40..56 + 42].copy_from_slice(&[0, 9]);
        a
    }

    #[test]
    fn depth_limits_what_is_on_its_way_and_the_queue_moves_on_failure() {
        let (mut c, mut rng) = client(1);
        for i in 1..=3 {
            c.submit(Time(0), u32::from(i), question(i)).unwrap();
        }
        let (tid, _) = c.next_to_send(Time(0)).unwrap();
        assert!(c.next_to_send(Time(0)).is_none());
        let a = c.send_failed(tid).unwrap();
        assert_eq!((a.who, a.result.unwrap_err()), (1, SaError::Down));
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        let a = c.received(Time(1), 110, &mad, &mut rng).unwrap();
        assert_eq!((a.who, a.result.unwrap_err()), (2, SaError::Timeout));
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        let a = c.received(Time(1), 0, &answer(&mad, 0), &mut rng).unwrap();
        assert_eq!((a.who, a.result.unwrap().path().dlid()), (3, 9));
        assert!(c.is_empty());
    }

    #[test]
    fn every_status_but_zero_is_a_failure() {
        for status in [0x000c, 0x0100, 0x0200, 0x0300, 0x0400, 0x0500, 0x0600, 0x0700, 0x0900, 0x0301] {
            let (mut c, mut rng) = client(1);
            c.submit(Time(0), 1, question(1)).unwrap();
            let (_, mad) = c.next_to_send(Time(0)).unwrap();
            let e = c.received(Time(1), 0, &answer(&mad, status), &mut rng).unwrap().result.unwrap_err();
            assert_eq!(e, SaError::Status(status));
            assert_ne!(e.client_status(), Status::Success);
        }
    }

    #[test]
    fn busy_is_asked_again_after_growing_pauses_and_ends() {
        let (mut c, mut rng) = client(2);
        c.submit(Time(0), 1, question(1)).unwrap();
        let (mut now, mut tries) = (Time(0), 0);
        loop {
            let (_, mad) = c.next_to_send(now).unwrap();
            tries += 1;
            if let Some(a) = c.received(now, 0, &answer(&mad, 1), &mut rng) {
                assert_eq!(a.result.unwrap_err(), SaError::Busy);
                break;
            }
            assert!(c.next_to_send(now).is_none(), "a pause holds everything");
            let next = c.next_deadline();
            assert!(next > now && next < now.plus(Duration::from_secs(4)));
            now = next;
        }
        assert!((3..=12).contains(&tries), "{tries} tries");
        assert!(now < Time(2_000_000));
    }

    #[test]
    fn answers_to_something_else_are_not_answers() {
        let (mut c, mut rng) = client(1);
        c.submit(Time(0), 1, question(1)).unwrap();
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        let mut other = answer(&mad, 0);
        other.0[15] ^= 1;
        assert!(c.received(Time(1), 0, &other, &mut rng).is_none());
        assert!(c.received(Time(1), 0, &mad, &mut rng).is_none(), "not even a response");
        let mut wrong = answer(&mad, 0);
        wrong.0[56 + 8] ^= 1;
        let e = c.received(Time(1), 0, &wrong, &mut rng).unwrap().result.unwrap_err();
        assert_eq!(e, SaError::Malformed);
    }

    #[test]
    fn nothing_waits_for_ever() {
        let (mut c, _) = client(1);
        c.submit(Time(0), 1, question(1)).unwrap();
        c.submit(Time(0), 2, question(2)).unwrap();
        c.next_to_send(Time(0)).unwrap();
        assert_eq!(c.next_deadline(), Time(2_000_000));
        assert!(c.on_time(Time(1_999_999)).is_none());
        assert_eq!(c.on_time(Time(2_000_000)).unwrap().who, 2);
        assert!(c.on_time(Time(2_000_000)).is_none());
        assert_eq!(c.on_time(c.next_deadline()).unwrap().who, 1);
        assert!(c.is_empty());
        assert_eq!(c.next_deadline(), Time::NEVER);
    }

    #[test]
    fn joins_go_first_and_a_new_sa_is_asked_again() {
        let (mut c, mut rng) = client(1);
        c.submit(Time(0), 1, question(1)).unwrap();
        let m = McMember { mgid: Gid([0xff; 16]), ..McMember::default() };
        c.submit(Time(0), 2, Ask::Join(m)).unwrap();
        let (_, mad) = c.next_to_send(Time(0)).unwrap();
        assert_eq!(mad.attribute(), sa::ATTR_MCMEMBER);
        c.resend_all(Time(1));
        let (_, again) = c.next_to_send(Time(1)).unwrap();
        assert_eq!(again.attribute(), sa::ATTR_MCMEMBER);
        assert_ne!(again.tid(), mad.tid());
        let mut bad = answer(&again, 0);
        bad.0[56 + 36..56 + 38].copy_from_slice(&[0, 1]);
        let a = c.received(Time(2), 0, &bad, &mut rng).unwrap();
        assert_eq!((a.who, a.result.unwrap_err()), (2, SaError::Malformed), "a unicast LID is no group's");
        assert_eq!(c.drain(), vec![1]);
    }
}
