//! Requests and results over one connection, without ever waiting.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::error::{During, Error, Violation, copy};
use crate::link::Attempt;
use crate::message::{Reply, Request, reply_len};
use crate::process;
use crate::sys;
use crate::target::Target;

/// How long a service that was lost may take to come back before its requests fail.
const GRACE: Duration = Duration::from_secs(1);
/// Between attempts to connect in that time.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a request is sent before the loss of its connection is its result.
const TRIES: u8 = 3;
/// How long a service that closed on two requests is not tried again.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// Requests that have ended by their time limit while their connection lives on.
const MAX_ABANDONED: usize = 256;
/// Bytes received at a time: many usual replies, and little enough to be cleared for each reception.
const CHUNK: usize = 4096;

/// Which request a result is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// Whether the service reads requests one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pipelining {
    Unknown,
    /// Two requests have gone in one write; so many answers are awaited.
    Trial(u8),
    Safe,
}

struct Job {
    ticket: Ticket,
    request: Request,
    bytes: Vec<u8>,
    tid: [u8; 8],
    deadline: Instant,
    tries: u8,
}

/// A connection to the service for callers that have an event loop.
///
/// [`Session::submit`] requests, watch [`Session::fd`] for reading (and for writing, if [`Session::wants_write`]) until
/// [`Session::deadline`], then call [`Session::on_ready`] and take [`Session::next_result`] until there is none. The
/// descriptor can be another one after any call that takes `&mut self`.
pub struct Session {
    target: Target,
    process: u64,
    link: Option<OwnedFd>,
    /// The connection that is being made, while there is none.
    attempt: Option<Attempt>,
    /// When to connect next, while there is no connection.
    retry_at: Option<Instant>,
    /// Until when failures to connect are taken for a restart.
    grace_until: Option<Instant>,
    pipelining: Pipelining,
    /// Whether something was submitted that no [`Session::on_ready`] has seen.
    fresh: bool,
    refused_until: Option<Instant>,
    waiting: VecDeque<Job>,
    open: VecDeque<Job>,
    abandoned: Vec<[u8; 8]>,
    output: Vec<u8>,
    input: Vec<u8>,
    done: VecDeque<(Ticket, Result<Reply, Error>)>,
    next_ticket: u64,
    next_tid: u64,
}

impl Session {
    /// Requests that are outstanding at a time, where the service has proved to take more than one.
    pub const WINDOW: usize = 64;
    /// Requests that can be submitted before results are taken.
    pub const MAX_REQUESTS: usize = 16_384;

    /// A session with the service at `target`. It connects when there is something to send.
    pub fn new(target: Target) -> Session {
        Session {
            target,
            process: process::id(),
            link: None,
            attempt: None,
            retry_at: None,
            grace_until: None,
            pipelining: Pipelining::Unknown,
            fresh: false,
            refused_until: None,
            waiting: VecDeque::new(),
            open: VecDeque::new(),
            abandoned: Vec::new(),
            output: Vec::new(),
            input: Vec::new(),
            done: VecDeque::new(),
            next_ticket: 0,
            // Nobody who cannot read the connection knows what the next answer has to carry.
            next_tid: RandomState::new().hash_one(process::id()),
        }
    }

    /// Accepts a request that must be answered before `deadline`. It is sent by [`Session::on_ready`].
    pub fn submit(&mut self, request: Request, deadline: Instant) -> Result<Ticket, Error> {
        self.leave_parent();
        if self.waiting.len() + self.open.len() + self.done.len() >= Session::MAX_REQUESTS {
            return Err(Error::Request("too many requests at a time"));
        }
        let tid = self.next_tid.to_ne_bytes();
        let bytes = request.emit(tid)?;
        self.next_tid = self.next_tid.wrapping_add(1);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.fresh = true;
        self.waiting.push_back(Job { ticket, request, bytes, tid, deadline, tries: 0 });
        Ok(ticket)
    }

    /// The descriptor to watch, if there is a connection or one is being made.
    pub fn fd(&self) -> Option<RawFd> {
        self.link.as_ref().map(AsRawFd::as_raw_fd).or_else(|| self.attempt.as_ref()?.fd())
    }

    /// Whether the descriptor is to be watched for writing too.
    pub fn wants_write(&self) -> bool {
        if self.link.is_some() { !self.output.is_empty() } else { self.attempt.is_some() }
    }

    /// When to call [`Session::on_ready`] even if nothing happens at the descriptor.
    pub fn deadline(&self) -> Option<Instant> {
        let jobs = self.waiting.iter().chain(&self.open).map(|j| j.deadline).min()?;
        if self.fresh {
            return Some(Instant::now());
        }
        let connecting = self.retry_at.or_else(|| self.attempt.as_ref()?.deadline());
        Some(connecting.filter(|_| self.link.is_none()).map_or(jobs, |at| at.min(jobs)))
    }

    /// How many requests have no result yet.
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.open.len()
    }

    /// Whether the service has proved to take more than one request at a time on this connection.
    pub fn pipelines(&self) -> bool {
        self.pipelining == Pipelining::Safe
    }

    /// The next result, in the order in which they came.
    pub fn next_result(&mut self) -> Option<(Ticket, Result<Reply, Error>)> {
        self.leave_parent();
        self.done.pop_front()
    }

    /// The results that `mine` knows.
    pub(crate) fn results(&mut self, mine: impl Fn(Ticket) -> bool) -> Vec<(Ticket, Result<Reply, Error>)> {
        let (taken, left) = self.done.drain(..).partition(|(t, _)| mine(*t));
        self.done = left;
        Vec::from(taken)
    }

    /// Does what can be done without waiting: connects, sends, receives, and ends what is late.
    pub fn on_ready(&mut self) {
        self.leave_parent();
        let now = Instant::now();
        self.fresh = false;
        self.expire(now);
        // Each round but the last has lost a connection, which costs every request that was open on it a try.
        for _ in 0..=2 * TRIES {
            if self.link.is_none() && !self.connect(now) {
                return;
            }
            // A connection that owes nothing has nothing to say; one that has ended refuses the request.
            let silent = self.owes_nothing() && self.waiting.len() == 1;
            let done = if silent { self.send(now) } else { self.receive(now).and_then(|()| self.send(now)) };
            match done {
                Ok(()) => return,
                Err(Lost::Closed(during, e)) => {
                    if silent && let Some(job) = self.open.pop_back() {
                        // It never left.
                        self.waiting.push_front(job);
                    }
                    self.lost(now, during, e);
                }
                Err(Lost::Broken(v)) => self.broken(v),
            }
        }
        self.retry_at = Some(now + PAUSE);
    }

    /// In a process that has been forked, the connection and what was asked over it are the parent's.
    fn leave_parent(&mut self) {
        if self.process != process::id() {
            let next_ticket = self.next_ticket;
            *self = Session { next_ticket, ..Session::new(std::mem::take(&mut self.target)) };
        }
    }

    fn expire(&mut self, now: Instant) {
        let late = |j: &Job| j.deadline <= now;
        if !self.waiting.iter().chain(&self.open).any(late) {
            return;
        }
        let mut cut = false;
        for _ in 0..self.open.len() {
            let Some(job) = self.open.pop_front() else { break };
            if !late(&job) {
                self.open.push_back(job);
                continue;
            }
            if self.pipelining == Pipelining::Safe && self.abandoned.len() < MAX_ABANDONED {
                self.abandoned.push(job.tid);
            } else {
                // Its answer would be in the way of the next one's.
                cut = true;
            }
            self.done.push_back((job.ticket, Err(Error::TimedOut)));
        }
        for _ in 0..self.waiting.len() {
            let Some(job) = self.waiting.pop_front() else { break };
            if late(&job) {
                self.done.push_back((job.ticket, Err(Error::TimedOut)));
            } else {
                self.waiting.push_back(job);
            }
        }
        if cut {
            self.close();
            while let Some(job) = self.open.pop_back() {
                self.waiting.push_front(job);
            }
        }
        self.leave_attempt();
    }

    /// Whether there is a connection to go on with.
    fn connect(&mut self, now: Instant) -> bool {
        let Some(deadline) = self.waiting.iter().map(|j| j.deadline).min() else { return false };
        match self.go_on(now, deadline) {
            Ok(connected) => connected,
            Err(e) => {
                let error = Error::Transport { during: During::Connect, source: e };
                while let Some(job) = self.open.pop_front().or_else(|| self.waiting.pop_front()) {
                    self.done.push_back((job.ticket, Err(error.again())));
                }
                false
            }
        }
    }

    /// Goes on with connecting: whether there is a connection. What may pass in a moment is no error.
    fn go_on(&mut self, now: Instant, deadline: Instant) -> io::Result<bool> {
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(false);
        }
        self.retry_at = None;
        let target = &self.target;
        let failure = match self.attempt.get_or_insert_with(|| Attempt::new(target)).step(now, deadline) {
            Ok(None) => return Ok(false),
            Ok(fd) => {
                (self.link, self.attempt) = (fd, None);
                return Ok(true);
            }
            Err(e) => e,
        };
        self.attempt = None;
        // A listener whose queue is full is there, and may have room in a moment.
        if failure.kind() == io::ErrorKind::WouldBlock || self.grace_until.is_some_and(|until| now < until) {
            self.retry_at = Some(now + PAUSE);
            return Ok(false);
        }
        self.grace_until = None;
        Err(failure)
    }

    /// Goes on with connecting until `deadline`, even if there is nothing to send: the result, once there is one.
    pub(crate) fn reach(&mut self, deadline: Instant) -> Option<Result<(), Error>> {
        // A connection that has ended is found out here.
        self.on_ready();
        let now = Instant::now();
        if self.link.is_some() {
            return Some(Ok(()));
        }
        match self.go_on(now, deadline) {
            Ok(true) => Some(Ok(())),
            Ok(false) if now < deadline => None,
            Ok(false) => {
                self.leave_attempt();
                Some(Err(Error::TimedOut))
            }
            Err(e) => Some(Err(Error::Transport { during: During::Connect, source: e })),
        }
    }

    /// Ends an attempt that nobody waits for any more, so that the next request does not have its result.
    fn leave_attempt(&mut self) {
        if self.pending() == 0 {
            (self.attempt, self.retry_at) = (None, None);
        }
    }

    /// Whether no answer is outstanding on the connection, nor half a message in either direction.
    fn owes_nothing(&self) -> bool {
        self.open.is_empty() && self.abandoned.is_empty() && self.input.is_empty() && self.output.is_empty()
    }

    fn receive(&mut self, now: Instant) -> Result<(), Lost> {
        let mut chunk = [0; CHUNK];
        loop {
            let Some(fd) = &self.link else { return Ok(()) };
            let n = match sys::receive(fd.as_fd(), &mut chunk) {
                Ok(0) => return Err(Lost::Closed(During::Receive, io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(Lost::Closed(During::Receive, e)),
            };
            self.input.extend_from_slice(chunk.get(..n).unwrap_or_default());
            self.take_replies()?;
            self.send(now)?;
            if n < chunk.len() {
                return Ok(());
            }
        }
    }

    fn take_replies(&mut self) -> Result<(), Lost> {
        let mut at = 0;
        while let Some(length) = reply_len(&self.input[at..]).map_err(Lost::Broken)? {
            let Some(reply) = self.input[at..].get(..length) else { break };
            at += length;
            let Some(place) = self.open.iter().position(|j| reply[8..16] == j.tid) else {
                match self.abandoned.iter().position(|t| reply[8..16] == *t) {
                    Some(i) => drop(self.abandoned.swap_remove(i)),
                    None => return Err(Lost::Broken(Violation::Transaction)),
                }
                continue;
            };
            let result = self.open[place].request.read(reply).map_err(Lost::Broken)?;
            if let Some(job) = self.open.remove(place) {
                self.done.push_back((job.ticket, result));
            }
            self.grace_until = None;
            self.pipelining = match self.pipelining {
                Pipelining::Trial(1) => Pipelining::Safe,
                Pipelining::Trial(n) => Pipelining::Trial(n - 1),
                other => other,
            };
        }
        self.input.drain(..at);
        Ok(())
    }

    fn send(&mut self, now: Instant) -> Result<(), Lost> {
        let trial = self.open.is_empty() && self.waiting.len() > 1 && self.refused_until.is_none_or(|at| at <= now);
        let room = match self.pipelining {
            Pipelining::Safe => Session::WINDOW.saturating_sub(self.open.len()),
            Pipelining::Trial(_) => 0,
            Pipelining::Unknown if trial => {
                self.pipelining = Pipelining::Trial(2);
                2
            }
            Pipelining::Unknown => usize::from(self.open.is_empty()),
        };
        for _ in 0..room {
            let Some(job) = self.waiting.pop_front() else { break };
            self.output.extend_from_slice(&job.bytes);
            self.open.push_back(job);
        }
        while let Some(fd) = self.link.as_ref().filter(|_| !self.output.is_empty()) {
            match sys::send(fd.as_fd(), &self.output) {
                Ok(n) => drop(self.output.drain(..n.min(self.output.len()))),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(Lost::Closed(During::Send, e)),
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.link = None;
        self.attempt = None;
        self.retry_at = None;
        self.pipelining = Pipelining::Unknown;
        self.abandoned.clear();
        self.output.clear();
        self.input.clear();
    }

    /// The connection has ended: what was asked over it is asked again.
    fn lost(&mut self, now: Instant, during: During, e: io::Error) {
        let trial = matches!(self.pipelining, Pipelining::Trial(_));
        self.close();
        if trial {
            self.refused_until = Some(now + REFUSED_FOR);
        }
        self.grace_until.get_or_insert(now + GRACE);
        while let Some(mut job) = self.open.pop_back() {
            job.tries += u8::from(!trial);
            if job.tries < TRIES {
                self.waiting.push_front(job);
            } else {
                self.done.push_back((job.ticket, Err(Error::Transport { during, source: copy(&e) })));
            }
        }
    }

    /// Whoever is there does not keep to the protocol: what was asked has that for a result.
    fn broken(&mut self, violation: Violation) {
        self.close();
        while let Some(job) = self.open.pop_front() {
            self.done.push_back((job.ticket, Err(Error::Protocol(violation))));
        }
    }
}

/// Why a connection cannot be used any more.
enum Lost {
    Closed(During, io::Error),
    Broken(Violation),
}
