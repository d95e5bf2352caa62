//! One request again and again over several connections, with one outstanding on each, in one thread.

use std::io;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use libibacm::{During, Error, Reply, Request, Scope, Session, Target};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};

/// How often a connection is looked at that says nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// Events that are taken at a time.
const EVENTS: usize = 1024;

/// Connections to one service.
pub struct Connections {
    poll: Poll,
    lanes: Vec<Lane>,
    limit: Duration,
}

/// One connection, and the request that is outstanding on it.
struct Lane {
    session: Session,
    /// What is watched: the descriptor, and whether for writing too.
    watched: Option<(RawFd, bool)>,
    begun: Option<Instant>,
    /// Whether it asks again.
    willing: bool,
}

/// What is asked: the request, how often it is still to be sent, and how long each answer may take.
struct Work<'a> {
    request: &'a Request,
    left: u64,
    limit: Duration,
}

impl Connections {
    /// Connects up to `count` times, and waits for that: it is no part of what is measured. The error is the one of a
    /// connection that could not be made; there may be others.
    pub fn open(target: &Target, count: u32, limit: Duration) -> Result<(Connections, Option<Error>), Error> {
        let poll = Poll::new().map_err(|source| Error::Transport { during: During::Connect, source })?;
        let lanes = (0..count).map(|_| Lane::new(target.clone())).collect();
        let mut connections = Connections { poll, lanes, limit };
        let (mut reached, mut failure) = (vec![true; count as usize], None);
        // A session connects when there is something to ask, and this is no look-up.
        connections.run(&Request::Counters(Scope::Totals), count.into(), |lane, _, answer| {
            if let (Err(e), Some(reached)) = (answer, reached.get_mut(lane)) {
                *reached = is_answer(&e);
                failure = Some(e).filter(|e| !is_answer(e)).or(failure.take());
            }
            false
        });
        let mut reached = reached.into_iter();
        connections.lanes.retain(|_| reached.next().unwrap_or(false));
        // Others have their numbers now.
        connections.lanes.iter_mut().for_each(|lane| lane.watched = None);
        match failure {
            Some(e) if connections.lanes.is_empty() => Err(e),
            failure => Ok((connections, failure)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Sends `request` so often. `each` gets the number of the connection, the time that the answer took, and the
    /// answer; it says whether that connection goes on.
    pub fn run(
        &mut self,
        request: &Request,
        count: u64,
        mut each: impl FnMut(usize, Duration, Result<Reply, Error>) -> bool,
    ) {
        let mut work = Work { request, left: count, limit: self.limit };
        let registry = self.poll.registry();
        let mut busy = 0;
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            lane.willing = true;
            busy += usize::from(lane.go_on(&mut work, &mut |took, answer| each(i, took, answer)));
            lane.watch(registry, i, false);
        }
        let mut events = Events::with_capacity(EVENTS);
        // A limit of less than the pause is to be noticed in time.
        let pause = PAUSE.min(self.limit / 4).max(Duration::from_millis(1));
        let mut swept = Instant::now();
        while busy > 0 {
            match self.poll.poll(&mut events, Some(pause)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Without events there is the pause.
                Err(_) => thread::sleep(pause),
            }
            let registry = self.poll.registry();
            let mut step = |i: usize, lane: &mut Lane, renew| {
                let was = lane.begun.is_some();
                let is = lane.go_on(&mut work, &mut |took, answer| each(i, took, answer));
                lane.watch(registry, i, renew);
                busy -= usize::from(was && !is);
            };
            for event in &events {
                let Token(i) = event.token();
                let closed = event.is_read_closed() || event.is_error();
                if let Some(lane) = self.lanes.get_mut(i) {
                    step(i, lane, closed);
                }
            }
            let now = Instant::now();
            if now.duration_since(swept) >= pause {
                swept = now;
                // Those with a time limit that has passed, or with another descriptor under the old number.
                let quiet = |lane: &Lane| lane.begun.is_some_and(|at| now.duration_since(at) >= pause);
                for (i, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| quiet(lane)) {
                    step(i, lane, true);
                }
            }
        }
    }
}

/// Whether the service has answered, if only that it cannot.
pub fn is_answer(e: &Error) -> bool {
    matches!(e, Error::Status(_))
}

impl Lane {
    fn new(target: Target) -> Lane {
        Lane { session: Session::new(target), watched: None, begun: None, willing: true }
    }

    /// Takes an answer if there is one and asks again: whether something is outstanding.
    fn go_on(&mut self, work: &mut Work<'_>, each: &mut dyn FnMut(Duration, Result<Reply, Error>) -> bool) -> bool {
        loop {
            let begun = match self.begun {
                Some(begun) => begun,
                None if !self.willing || work.left == 0 => return false,
                None => {
                    work.left -= 1;
                    let request = work.request.clone();
                    let now = Instant::now();
                    if let Err(e) = self.session.submit(request, now + work.limit) {
                        self.willing = each(Duration::ZERO, Err(e));
                        continue;
                    }
                    *self.begun.insert(now)
                }
            };
            self.session.on_ready();
            let Some((_, answer)) = self.session.next_result() else { return true };
            let took = begun.elapsed();
            self.begun = None;
            if matches!(&answer, Err(e) if !is_answer(e)) {
                // The connection may be gone.
                self.watched = None;
            }
            self.willing = each(took, answer);
        }
    }

    /// Has events reported for what the session waits for. Descriptors that are closed need no word: a number that is
    /// there is always this session's.
    fn watch(&mut self, registry: &Registry, number: usize, renew: bool) {
        let wanted = self.session.fd().map(|fd| (fd, self.session.wants_write()));
        if self.watched == wanted && !renew {
            return;
        }
        self.watched = wanted.filter(|(fd, write)| {
            let interest = if *write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let (mut source, token) = (SourceFd(fd), Token(number));
            let known = registry.reregister(&mut source, token, interest);
            known.or_else(|_| registry.register(&mut source, token, interest)).is_ok()
        });
    }
}
