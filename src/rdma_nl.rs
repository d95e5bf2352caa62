//! The socket to the kernel's local service: NETLINK_RDMA, group RDMA_NL_GROUP_LS.
//!
//! The kernel asks the group and takes its answers from it. Only messages of the kernel itself are looked at: any
//! process may send to a netlink group that has the privilege for it.
#![allow(unsafe_code)] // system calls; one call per block

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::engine::ClientId;
use crate::local_service::message::Answer;
use crate::local_service::{self, LocalService, Resolver};
use crate::netlink_sock;
use crate::sock;
use crate::time::Time;

/// The kernel's `NETLINK_RDMA`.
const PROTOCOL: libc::c_int = 20;
/// `RDMA_NL_GROUP_LS`: who answers the kernel.
const GROUP: libc::c_int = 3;
/// Its bit.
const LISTENERS: u32 = 1 << (GROUP - 1);
/// Room for a burst of questions while the loop is busy: as many as may be open.
const RECEIVE_BUFFER: i32 = 4 * 1024 * 1024;
/// Datagrams that one call reads.
pub const DATAGRAMS_PER_TURN: usize = 64;
/// The kernel's questions have less than 200 bytes.
const BUFFER: usize = 16 * 1024;
/// Answers that may wait for the socket; the kernel does without those beyond.
const MAX_QUEUED: usize = local_service::MAX_OPEN;
/// Want of memory has no event that tells of its end.
const RETRY: Duration = Duration::from_millis(10);

/// What happened to the socket so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that did not come from the kernel.
    pub foreign: u64,
    /// Datagrams that did not fit into the buffer.
    pub truncated: u64,
    /// Times that questions were lost for want of room.
    pub overruns: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
}

/// The socket, and the questions that came through it.
#[derive(Debug)]
pub struct RdmaNl {
    fd: OwnedFd,
    service: LocalService,
    outbox: Outbox,
    /// The socket may have more to read.
    more: bool,
    counters: Counters,
    buffer: Box<[u8]>,
}

impl RdmaNl {
    /// Opens the socket.
    ///
    /// # Errors
    /// The system's; EPROTONOSUPPORT where the kernel has no RDMA.
    pub fn open() -> io::Result<RdmaNl> {
        RdmaNl::new(netlink_sock::open(PROTOCOL, LISTENERS)?)
    }

    /// Takes a socket that somebody else has opened and bound to the group; questions may wait in it.
    ///
    /// # Errors
    /// The system's; InvalidInput for something that is no netlink socket.
    pub fn adopt(fd: OwnedFd) -> io::Result<RdmaNl> {
        if sock::get_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)? != libc::AF_NETLINK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a netlink socket"));
        }
        for (get, set, flag) in
            [(libc::F_GETFL, libc::F_SETFL, libc::O_NONBLOCK), (libc::F_GETFD, libc::F_SETFD, libc::FD_CLOEXEC)]
        {
            // SAFETY: no memory is passed.
            let flags = unsafe { libc::fcntl(fd.as_raw_fd(), get) };
            // SAFETY: no memory is passed.
            if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), set, flags | flag) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        RdmaNl::new(fd)
    }

    fn new(fd: OwnedFd) -> io::Result<RdmaNl> {
        netlink_sock::make_room(&fd, RECEIVE_BUFFER)?;
        // Of an inherited socket: whoever made it may have left that to us.
        sock::set_int(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, GROUP)?;
        // A kernel whose question finds no room is told so, and asks the subnet administrator without waiting for us.
        sock::set_int(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_BROADCAST_ERROR, 1)?;
        let service = LocalService::new(netlink_sock::port(&fd)?);
        Ok(RdmaNl {
            fd,
            service,
            outbox: Outbox::new(),
            more: true,
            counters: Counters::default(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
        })
    }

    /// Registers the socket.
    ///
    /// # Errors
    /// Those of the poll.
    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// The socket has something to read, or takes something again.
    pub fn on_ready(&mut self, now: Time, resolver: &mut dyn Resolver) {
        self.more = true;
        self.flush(now);
        self.run_pending(now, resolver);
    }

    /// Whether [`RdmaNl::run_pending`] has work: the loop must not sleep then.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.more
    }

    /// Reads the next share of what is there.
    pub fn run_pending(&mut self, now: Time, resolver: &mut dyn Resolver) {
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.more {
                return;
            }
            self.more = self.read_one(now, resolver);
        }
    }

    /// Reads one datagram; false if there was none.
    fn read_one(&mut self, now: Time, resolver: &mut dyn Resolver) -> bool {
        let received = match netlink_sock::receive(&self.fd, &mut self.buffer) {
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                self.counters.overruns += 1;
                crate::log_limited!(1, "more questions of the kernel than can be kept");
                return true;
            }
            Err(e) => {
                crate::log_limited!(0, "cannot hear the kernel's questions: {e}");
                return false;
            }
        };
        if !received.from_kernel {
            self.counters.foreign += 1;
            return true;
        }
        if received.truncated {
            self.counters.truncated += 1;
            return true;
        }
        // moved out and back, so that answers can be sent while it is read
        let buffer = std::mem::take(&mut self.buffer);
        let datagram = buffer.get(..received.length).unwrap_or_default();
        let RdmaNl { fd, service, outbox, .. } = self;
        let before = service.counters().malformed;
        service.received(now, datagram, resolver, &mut |answer| {
            outbox.push(now, answer, &mut |bytes| netlink_sock::send(fd, LISTENERS, bytes));
        });
        let malformed = service.counters().malformed - before;
        self.buffer = buffer;
        if malformed > 0 {
            crate::log_limited!(1, "a question of the kernel that nobody understands");
        }
        true
    }

    /// A reply of the engine's.
    pub fn reply(&mut self, now: Time, id: ClientId, reply: &[u8]) {
        if let Some(answer) = self.service.answered(id, reply) {
            self.send(now, answer);
        }
    }

    /// When [`RdmaNl::on_time`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.service.next_deadline().min(self.outbox.retry)
    }

    /// Does what is due: refuses questions whose time is up, sends what the socket did not take.
    pub fn on_time(&mut self, now: Time) {
        if self.outbox.retry <= now {
            self.flush(now);
        }
        while let Some(answer) = self.service.on_time(now) {
            self.send(now, answer);
        }
    }

    /// Refuses everything that is open, so that the kernel need not wait for answers that do not come.
    pub fn close(mut self) {
        self.on_time(Time::NEVER);
    }

    /// What happened to the socket so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { unsent: self.outbox.unsent, ..self.counters }
    }

    /// The questions.
    #[must_use]
    pub fn service(&self) -> &LocalService {
        &self.service
    }

    fn send(&mut self, now: Time, answer: Answer) {
        let fd = &self.fd;
        self.outbox.push(now, answer, &mut |bytes| netlink_sock::send(fd, LISTENERS, bytes));
    }

    fn flush(&mut self, now: Time) {
        let fd = &self.fd;
        self.outbox.flush(now, &mut |bytes| netlink_sock::send(fd, LISTENERS, bytes));
    }
}

/// Sends a message.
type Send<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Answers that the socket did not take yet.
#[derive(Debug)]
struct Outbox {
    queue: VecDeque<Answer>,
    /// When they are tried again, whether or not the socket says that it is writable.
    retry: Time,
    /// Answers that could not be sent.
    unsent: u64,
}

impl Outbox {
    fn new() -> Outbox {
        Outbox { queue: VecDeque::new(), retry: Time::NEVER, unsent: 0 }
    }

    /// Sends an answer, after those that wait.
    fn push(&mut self, now: Time, answer: Answer, send: Send<'_>) {
        if self.queue.is_empty() && self.try_send(now, &answer, send) {
            return;
        }
        if self.queue.len() < MAX_QUEUED {
            self.queue.push_back(answer);
        } else {
            self.unsent += 1;
            crate::log_limited!(1, "the kernel takes no answers");
        }
    }

    /// Sends what waits.
    fn flush(&mut self, now: Time, send: Send<'_>) {
        while let Some(answer) = self.queue.front().copied() {
            if !self.try_send(now, &answer, send) {
                return;
            }
            self.queue.pop_front();
        }
        self.retry = Time::NEVER;
    }

    /// Whether nothing more can be done for the answer: it is sent, or never will be.
    fn try_send(&mut self, now: Time, answer: &Answer, send: Send<'_>) -> bool {
        let Err(e) = send(answer.as_bytes()) else { return true };
        if e.kind() == io::ErrorKind::WouldBlock || matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) {
            self.retry = now.plus(RETRY);
            return false;
        }
        self.unsent += 1;
        crate::log_limited!(0, "the kernel does not take an answer: {e}");
        true
    }
}

#[cfg(test)]
#[path = "rdma_nl_tests.rs"]
mod tests;
