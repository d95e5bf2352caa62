//! The client service: accepts connections, reads requests, writes replies.
//!
//! Single-threaded and driven from outside: the loop gives events, the time (microseconds of a
//! monotonic clock) and a [`Service`] that knows the answers. No client can delay another: no
//! call here waits, and the work of one call is bounded ([`ACCEPTS_PER_TURN`],
//! [`CLIENTS_PER_TURN`], and for each client one read and [`MAX_PER_TURN`] requests). What a
//! bound leaves over is remembered: while [`Server::has_pending`] is true the loop must not
//! sleep, and calls [`Server::run_pending`] each turn.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry};

pub use crate::accept::ACCEPTS_PER_TURN;
use crate::conn::{Conn, Timer};
pub use crate::conn::{MAX_IN_FLIGHT, MAX_OUTPUT, MAX_PER_TURN};
pub use crate::frame::{ClientId, HEADER, MAX_REQUEST, Outcome, Reason, Service};
use crate::listen::{Gate, Listener};
pub use crate::listen::{Notice, PAUSE_US};
use crate::slots::Slots;
use crate::{sock, token};

/// Clients that one call of [`Server::run_pending`] serves.
pub const CLIENTS_PER_TURN: usize = 256;
/// Requests that clients may have under way together, and one each beside. Of those that are still free each client may have
/// one in [`SHARES`]: who has more is not read until there are fewer, so that there is always room for others.
const MAX_ACTIVE: usize = 12_288;
const SHARES: usize = 16;
/// Clocks that one call of [`Server::on_time`] lets run out.
const TIMERS_PER_TURN: usize = 1024;
/// How long a client may take from the first byte of a message to its last, in microseconds.
pub const MESSAGE_US: u64 = 10_000_000;
/// Clients that are read from before they are all written to. A client that sleeps is woken by the first of its replies,
/// and awake for the others: to wake it takes longer than to write.
const TOGETHER: usize = 32;
/// The buffer that all reads share. From this size on memory comes from the system page by page: what is never used of it
/// is not there.
const READ_BUFFER: usize = 128 * 1024;

/// What the server may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Descriptors of the process; `None` asks the system for the soft limit.
    pub descriptors: Option<u64>,
    /// Descriptors that clients leave free for devices and netlink.
    pub reserve: u64,
    /// Bytes in the buffers of all connections together; who would exceed it is closed.
    pub buffered: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { descriptors: None, reserve: 32, buffered: 64 * 1024 * 1024 }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed for what they sent.
    pub closed_protocol: u64,
    /// Connections closed because a message was not finished in time.
    pub closed_timeout: u64,
    /// Connections closed because too many bytes waited for them.
    pub closed_overflow: u64,
    /// Times that accepting paused.
    pub paused: u64,
    /// Times that a client was not read because others had many requests under way.
    pub held: u64,
}

/// What an event says about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Bytes, or the end of the stream, can be read.
    pub readable: bool,
    /// Bytes can be written again.
    pub writable: bool,
    /// The client has ended its side.
    pub read_closed: bool,
    /// Nothing can reach the client any more.
    pub gone: bool,
}

impl From<&Event> for Ready {
    fn from(event: &Event) -> Ready {
        Ready {
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_closed: event.is_read_closed(),
            gone: event.is_write_closed() || event.is_error(),
        }
    }
}

/// The listeners and connections.
#[derive(Debug)]
pub struct Server {
    pub(crate) registry: Registry,
    limits: Limits,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) gate: Gate,
    pub(crate) slots: Slots,
    /// Connections to be called again; each is in it at most once.
    again: VecDeque<ClientId>,
    /// Requests that the service has and has not answered.
    active: usize,
    /// Sum of the connections' `accounted`.
    buffered: usize,
    /// Connections with replies that their sockets did not take yet.
    unwritten: usize,
    pub(crate) counters: Counters,
    buf: Box<[u8]>,
    /// Replies of the connections in `taken`.
    out: Vec<u8>,
    /// Connections that were read and not written to yet, and where their replies end in `out`.
    taken: Vec<Taken>,
}

/// A connection between the halves of its turn.
#[derive(Debug)]
struct Taken {
    id: ClientId,
    /// Where its replies end in the buffer of all.
    end: usize,
    result: Result<usize, Reason>,
}

impl Server {
    /// A server without listeners, whose sockets are registered with `registry`'s poll.
    ///
    /// # Errors
    /// The registry cannot be cloned, or the descriptor limit cannot be read.
    pub fn new(registry: &Registry, limits: Limits) -> io::Result<Server> {
        let descriptors = match limits.descriptors {
            Some(descriptors) => descriptors,
            None => sock::descriptor_limit()?,
        };
        Ok(Server {
            registry: registry.try_clone()?,
            limits,
            listeners: Vec::new(),
            gate: Gate::new(descriptors, limits.reserve),
            slots: Slots::default(),
            again: VecDeque::new(),
            active: 0,
            buffered: 0,
            unwritten: 0,
            counters: Counters::default(),
            buf: vec![0; READ_BUFFER].into_boxed_slice(),
            out: Vec::with_capacity(READ_BUFFER),
            taken: Vec::with_capacity(TOGETHER),
        })
    }

    /// Takes a connected stream socket (non-blocking or not) as a client.
    ///
    /// # Errors
    /// It cannot be registered; it is closed then.
    pub fn insert(&mut self, fd: OwnedFd) -> io::Result<ClientId> {
        let raw = fd.as_raw_fd();
        let id = self.slots.insert(Conn::new(fd));
        let token = token::pack(token::kind::CLIENT, id.generation, id.index);
        // Write events are asked for only while something waits: else each reply that a client
        // takes would wake the loop.
        if let Err(error) = self.registry.register(&mut SourceFd(&raw), token, Interest::READABLE) {
            drop(self.slots.remove(id));
            return Err(error);
        }
        self.counters.accepted += 1;
        Ok(id)
    }

    /// An event of a connection, of which there is one until [`Server::answer_all`] is called: what it is answered may wait
    /// for that.
    pub fn on_client(&mut self, id: ClientId, ready: Ready, now_us: u64, svc: &mut impl Service) {
        let Some(conn) = self.slots.get_mut(id) else { return };
        if ready.gone {
            self.close(id, Reason::Gone, svc);
            return;
        }
        conn.note(ready.readable, ready.read_closed);
        self.take(id, now_us, svc);
    }

    /// The first half of a turn of one connection.
    fn take(&mut self, id: ClientId, now_us: u64, svc: &mut impl Service) {
        let share = self.share();
        let Some(conn) = self.slots.get_mut(id) else { return };
        let before = usize::from(conn.in_flight);
        conn.share = share;
        let result = conn.take(id, &mut self.buf, &mut self.out, svc);
        self.active = (self.active + usize::from(conn.in_flight)).saturating_sub(before);
        self.taken.push(Taken { id, end: self.out.len(), result });
        if self.taken.len() >= TOGETHER || self.out.len() >= READ_BUFFER / 2 {
            self.answer_all(now_us, svc);
        }
    }

    /// Writes what was answered since the last call. To be called when there are no more events of clients, and before
    /// anything else is done.
    pub fn answer_all(&mut self, now_us: u64, svc: &mut impl Service) {
        let mut start = 0;
        let mut index = 0;
        while let Some(&Taken { id, end, result }) = self.taken.get(index) {
            self.answer(id, result, start..end, now_us, svc);
            start = end;
            index += 1;
        }
        self.taken.clear();
        self.out.clear();
    }

    /// The second half of a turn of one connection.
    fn answer(
        &mut self,
        id: ClientId,
        taken: Result<usize, Reason>,
        replies: Range<usize>,
        now_us: u64,
        svc: &mut impl Service,
    ) {
        let Some(conn) = self.slots.get_mut(id) else { return };
        let after = conn.answer(taken, self.out.get(replies).unwrap_or_default());
        self.counters.held += u64::from(conn.is_held());
        let again = after.again && !conn.queued;
        conn.queued |= again;
        if let Some(reason) = after.close {
            self.close(id, reason, svc);
            return;
        }
        if again {
            self.again.push_back(id);
        }
        match after.timer {
            Timer::Off => self.slots.stop_clock(id),
            Timer::On => self.slots.start_clock(id, now_us.saturating_add(MESSAGE_US)),
            Timer::Restart => {
                self.slots.stop_clock(id);
                self.slots.start_clock(id, now_us.saturating_add(MESSAGE_US));
            }
        }
        if let Err(reason) = self.keep_books(id) {
            self.close(id, reason, svc);
        }
    }

    /// How many requests each client may have under way.
    fn share(&self) -> u16 {
        let share = MAX_ACTIVE.saturating_sub(self.active) / SHARES;
        u16::try_from(share).unwrap_or(u16::MAX).clamp(1, MAX_IN_FLIGHT)
    }

    /// Brings the sum of buffered bytes and the interest in write events up to date.
    fn keep_books(&mut self, id: ClientId) -> Result<(), Reason> {
        let Some(conn) = self.slots.get_mut(id) else { return Ok(()) };
        let bytes = conn.buffered();
        self.buffered = (self.buffered + bytes).saturating_sub(conn.accounted as usize);
        conn.accounted = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes > 0 && self.buffered > self.limits.buffered {
            return Err(Reason::Overflow);
        }
        if conn.wants_write() != conn.writing {
            conn.writing = conn.wants_write();
            let interest = if conn.writing {
                self.unwritten += 1;
                Interest::READABLE | Interest::WRITABLE
            } else {
                self.unwritten = self.unwritten.saturating_sub(1);
                Interest::READABLE
            };
            let token = token::pack(token::kind::CLIENT, id.generation, id.index);
            self.registry.reregister(&mut SourceFd(&conn.raw_fd()), token, interest).map_err(|_| Reason::Overflow)?;
        }
        Ok(())
    }

    /// A late reply: one whole message. A client that is gone is ignored.
    pub fn reply(&mut self, id: ClientId, bytes: &[u8]) {
        let share = self.share();
        let Some(conn) = self.slots.get_mut(id) else { return };
        if conn.in_flight > 0 {
            self.active = self.active.saturating_sub(1);
        }
        conn.share = share;
        let mut turn = conn.reply(bytes);
        if let Err(reason) = self.keep_books(id)
            && let Some(conn) = self.slots.get_mut(id)
        {
            conn.doom(reason);
            turn = true;
        }
        if turn
            && let Some(conn) = self.slots.get_mut(id)
            && !conn.queued
        {
            conn.queued = true;
            self.again.push_back(id);
        }
    }

    /// Whether [`Server::run_pending`] has work: the loop must not sleep then.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.again.is_empty()
            || !self.taken.is_empty()
            || (self.gate.is_open() && self.listeners.iter().any(|listener| listener.more))
    }

    /// Goes on with what the bounds left over. To be called each turn of the loop.
    pub fn run_pending(&mut self, now_us: u64, svc: &mut impl Service) {
        self.answer_all(now_us, svc);
        for index in 0..self.listeners.len() {
            if self.listeners.get(index).is_some_and(|listener| listener.more) {
                self.accept_some(index, now_us);
            }
        }
        for _ in 0..self.again.len().min(CLIENTS_PER_TURN) {
            let Some(id) = self.again.pop_front() else { break };
            if let Some(conn) = self.slots.get_mut(id) {
                conn.queued = false;
                self.take(id, now_us, svc);
            }
        }
        self.answer_all(now_us, svc);
    }

    /// When [`Server::on_time`] has to be called next, in microseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        match (self.slots.first_deadline(), self.gate.deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Closes those whose time is over, and lets accepting go on.
    pub fn on_time(&mut self, now_us: u64, svc: &mut impl Service) {
        if self.gate.deadline().is_some_and(|due| due <= now_us) {
            self.gate.open();
        }
        for _ in 0..TIMERS_PER_TURN {
            match self.slots.first() {
                Some((id, due)) if due <= now_us => {
                    let reason = self.slots.get_mut(id).and_then(|conn| conn.closing()).unwrap_or(Reason::Timeout);
                    self.close(id, reason, svc);
                }
                _ => break,
            }
        }
    }

    fn close(&mut self, id: ClientId, reason: Reason, svc: &mut impl Service) {
        let Some(conn) = self.slots.remove(id) else { return };
        self.active = self.active.saturating_sub(usize::from(conn.in_flight));
        self.buffered = self.buffered.saturating_sub(conn.accounted as usize);
        match reason {
            Reason::Gone => {}
            Reason::Protocol => self.counters.closed_protocol += 1,
            Reason::Timeout => self.counters.closed_timeout += 1,
            Reason::Overflow => self.counters.closed_overflow += 1,
        }
        self.unwritten = self.unwritten.saturating_sub(usize::from(conn.writing));
        drop(conn);
        // A descriptor is free: whoever waits may come.
        self.gate.open();
        svc.closed(id);
    }

    /// Stops accepting, and ends the clients' side of every connection: what they have sent by now is still read and
    /// answered, then the connection is closed. Who sends later gets an error from the system, so that no request is
    /// taken from a client without an answer.
    pub fn drain(&mut self) {
        self.stop_accepting();
        for id in self.slots.ids() {
            let Some(conn) = self.slots.get_mut(id) else { continue };
            conn.end_input();
            if !std::mem::replace(&mut conn.queued, true) {
                self.again.push_back(id);
            }
        }
    }

    /// Requests that the service has taken and not answered.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Whether everything that was taken is answered, and every reply written.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.active == 0 && self.unwritten == 0 && self.again.is_empty() && self.taken.is_empty()
    }

    /// Connections that are open.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that the buffers of all connections hold.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "server_together_tests.rs"]
mod together_tests;

#[cfg(test)]
#[path = "server_random_tests.rs"]
mod random_tests;
