//! Calls that wait for their answers.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::Status;

use crate::error::{During, Error, Violation};
use crate::message::{Address, Counters, Endpoint, Path, Reply, Request, Scope};
use crate::per_process::PerProcess;
use crate::process;
use crate::session::{Session, Ticket};
use crate::sys::{self, Uncancelled};
use crate::target::Target;

/// How long a thread waits before it looks again: another one may have replaced the connection.
const SLICE: Duration = Duration::from_millis(50);
/// Requests of one call that are submitted at a time.
const BATCH: usize = 256;

/// A client of the service whose calls wait for their answers, each for a limited time.
///
/// It can be shared by threads, and used in a process that was forked, whatever other threads were doing then.
pub struct Client {
    target: Target,
    limit: Duration,
    nodes: PerProcess<Node>,
}

/// What belongs to one process. A lock that another thread held when the process was forked is never released in the
/// child, so that the child has its own.
struct Node {
    process: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    session: Session,
    /// Whether a thread is waiting at the descriptor, for all.
    watched: bool,
    /// How many threads wait for that one.
    others: usize,
}

impl Node {
    fn new(target: &Target) -> Node {
        Node {
            process: process::id(),
            state: Mutex::new(State { session: Session::new(target.clone()), watched: false, others: 0 }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something happens, for `patience` or a moment, whichever is less. One thread does so at the
    /// descriptor, the others until it is back.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, patience: Duration) -> MutexGuard<'a, State> {
        if state.watched {
            state.others += 1;
            state = self.changed.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner).0;
            state.others -= 1;
            return state;
        }
        state.watched = true;
        let (fd, write) = (state.session.fd(), state.session.wants_write());
        drop(state);
        sys::wait(fd, write, patience.min(SLICE));
        state = self.lock();
        state.watched = false;
        self.wake(state.others);
        state
    }

    /// Wakes the threads that wait for another one, where there are any.
    fn wake(&self, others: usize) {
        if others > 0 {
            self.changed.notify_all();
        }
    }
}

impl Default for Client {
    fn default() -> Client {
        Client::new(Target::Published)
    }
}

impl Client {
    /// The time limit of a call where none is set: more than a service with default options takes to give up.
    pub const LIMIT: Duration = Duration::from_secs(20);

    /// A client of the service at `target`. It connects at the first call.
    pub fn new(target: Target) -> Client {
        Client { target, limit: Client::LIMIT, nodes: PerProcess::new() }
    }

    /// The same with another time limit for each call.
    pub fn with_limit(self, limit: Duration) -> Client {
        Client { limit, ..self }
    }

    /// Where the service is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The time limit of each call.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Connects now rather than at the next call, unless there is a connection already. The calls that follow use it.
    ///
    /// A failure is [`Error::Transport`] with what the system said, or [`Error::TimedOut`].
    pub fn connect(&self) -> Result<(), Error> {
        let _whole = Uncancelled::new();
        let deadline = self.deadline();
        let node = self.node();
        let mut state = node.lock();
        loop {
            if let Some(result) = state.session.reach(deadline) {
                // It may be others' connection too.
                node.wake(state.others);
                return result;
            }
            state = node.wait(state, deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// The path to a name.
    pub fn resolve_name(&self, source: Option<&str>, destination: &str) -> Result<Path, Error> {
        let name = |n: &str| Address::Name(n.into());
        self.resolve(source.map(name), name(destination))
    }

    /// The path to an IP address.
    pub fn resolve_ip(&self, source: Option<IpAddr>, destination: IpAddr) -> Result<Path, Error> {
        self.resolve(source.map(Address::Ip), Address::Ip(destination))
    }

    /// The path to a name or an IP address.
    pub fn resolve(&self, source: Option<Address>, destination: Address) -> Result<Path, Error> {
        self.path(Request::Resolve { source, destination, cached_only: false })
    }

    /// The path to a name or an IP address if the service knows it already; if not, it begins to look for it.
    pub fn resolve_cached(&self, source: Option<Address>, destination: Address) -> Result<Path, Error> {
        self.path(Request::Resolve { source, destination, cached_only: true })
    }

    /// The path that completes a record with at least a destination LID or GID.
    pub fn resolve_path(&self, record: &PathRecord) -> Result<Path, Error> {
        self.path(Request::Path { record: *record, query_sa: false, cached_only: false })
    }

    /// The same, always from the subnet administrator.
    pub fn query_path(&self, record: &PathRecord) -> Result<Path, Error> {
        self.path(Request::Path { record: *record, query_sa: true, cached_only: false })
    }

    /// Counters of the service, or of one of its endpoints.
    pub fn counters(&self, scope: Scope) -> Result<Counters, Error> {
        match self.ask(Request::Counters(scope))? {
            Reply::Counters(counters) => Ok(counters),
            _ => Err(Error::Protocol(Violation::Contents("an answer to another question"))),
        }
    }

    /// An endpoint of the service, by its number from 1.
    pub fn endpoint(&self, number: u8) -> Result<Endpoint, Error> {
        self.endpoint_of_port(number, 0)
    }

    /// An endpoint of the ports with this number, by its number among them from 1; 0 stands for any port.
    pub fn endpoint_of_port(&self, number: u8, port: u8) -> Result<Endpoint, Error> {
        match self.ask(Request::Endpoint { number, port })? {
            Reply::Endpoint(endpoint) => Ok(endpoint),
            _ => Err(Error::Protocol(Violation::Contents("an answer to another question"))),
        }
    }

    /// The endpoints of the service, of which it can number 255.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let mut endpoints = Vec::new();
        for number in 1..=u8::MAX {
            match self.endpoint(number) {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(e) if e.status() == Some(Status::Einval) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(endpoints)
    }

    /// The paths to many destinations, each given to `each` with its place in the list, in the order in which they
    /// come. The time limit is that of the whole call.
    pub fn resolve_many(
        &self,
        source: Option<&Address>,
        destinations: &[Address],
        mut each: impl FnMut(usize, Result<Path, Error>),
    ) {
        let request =
            |d: &Address| Request::Resolve { source: source.cloned(), destination: d.clone(), cached_only: false };
        self.many(destinations.iter().map(request), |i, result| each(i, result.and_then(Reply::into_path)));
    }

    /// Any requests, likewise.
    ///
    /// `each` may fork. In the child, what the parent has asked has no answer: it fails with `ECANCELED`.
    pub fn many(&self, requests: impl IntoIterator<Item = Request>, mut each: impl FnMut(usize, Result<Reply, Error>)) {
        let _whole = Uncancelled::new();
        let deadline = self.deadline();
        // Whatever happens to requests, nobody waits longer than this.
        let end = deadline.checked_add(SLICE);
        let mut node = self.node();
        let mut requests = requests.into_iter().fuse().enumerate();
        let mut next = Vec::new();
        let mut open: HashMap<Ticket, usize> = HashMap::new();
        loop {
            // The caller's code runs without the lock.
            next.extend(requests.by_ref().take(BATCH.saturating_sub(open.len() + next.len())));
            if next.is_empty() && open.is_empty() {
                return;
            }
            if node.process != process::id() {
                node = self.node();
                open.drain().for_each(|(_, i)| each(i, Err(forked())));
                continue;
            }
            let mut state = node.lock();
            let mut results = Vec::new();
            for (i, request) in next.drain(..) {
                match state.session.submit(request, deadline) {
                    Ok(ticket) => drop(open.insert(ticket, i)),
                    Err(e) => results.push((i, Err(e))),
                }
            }
            state.session.on_ready();
            let mine = state.session.results(|t| open.contains_key(&t));
            results.extend(mine.into_iter().filter_map(|(t, result)| Some((open.remove(&t)?, result))));
            if results.is_empty() && end.is_some_and(|at| at <= Instant::now()) {
                results.extend(open.drain().map(|(_, i)| (i, Err(Error::TimedOut))));
            }
            if results.is_empty() {
                let until = state.session.deadline().map(|at| at.saturating_duration_since(Instant::now()));
                drop(node.wait(state, until.unwrap_or(SLICE)));
                continue;
            }
            // What came may be for others too.
            node.wake(state.others);
            drop(state);
            results.into_iter().for_each(|(i, result)| each(i, result));
        }
    }

    /// When a call that begins now has to end.
    fn deadline(&self) -> Instant {
        let now = Instant::now();
        // A limit beyond what a clock can count is none.
        now.checked_add(self.limit).unwrap_or_else(|| now + Duration::from_secs(1 << 31))
    }

    /// The answer to any request.
    pub fn ask(&self, request: Request) -> Result<Reply, Error> {
        let mut answer = Err(Error::TimedOut);
        self.many([request], |_, result| answer = result);
        answer
    }

    fn path(&self, request: Request) -> Result<Path, Error> {
        self.ask(request).and_then(Reply::into_path)
    }

    /// What belongs to this process.
    fn node(&self) -> &Node {
        self.nodes.get(|parent| {
            // The parent's connection is closed here, where nobody was using it at that moment.
            if let Some(mut state) = parent.and_then(|p| p.state.try_lock().ok()) {
                state.session.next_result();
            }
            Node::new(&self.target)
        })
    }
}

/// Why a request has no answer that another process has submitted.
fn forked() -> Error {
    Error::Transport { during: During::Receive, source: io::Error::from_raw_os_error(libc::ECANCELED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_request_that_is_lost_costs_the_time_limit() {
        let path = std::env::temp_dir().join(format!("libibacm-lost-{}.sock", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("the name is free");
        let client = Client::new(Target::Unix(path.clone())).with_limit(Duration::from_millis(300));
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| ended.send(client.counters(Scope::Totals)));
            let _asked = listener.accept();
            client.node().lock().session = Session::new(client.target().clone());
            let result = end.recv_timeout(Duration::from_secs(20));
            if result.is_err() {
                // The thread would be waited for.
                std::process::abort();
            }
            assert!(matches!(result, Ok(Err(Error::TimedOut))), "{result:?}");
        });
        let _ = std::fs::remove_file(path);
    }
}
