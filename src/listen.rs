//! Listening sockets, and when accepting has to pause.
//!
//! Each client costs a descriptor, and so do devices, their completion channels and netlink.
//! The clients may have all but a reserve; then connections wait in the kernel's backlog, where
//! they cost nothing, until a client leaves.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::publish::{self, Published};
use crate::sock;

/// How long accepting pauses unless a client leaves before, in microseconds.
pub const PAUSE_US: u64 = 100_000;
/// At most one notice is given in this time, in microseconds.
const NOTICE_US: u64 = 60_000_000;

/// A socket that clients connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    /// Taken away from the run directory with the listener.
    _names: Published,
    /// Connections may wait: no accept has said "no more" since the last event.
    pub more: bool,
}

impl Listener {
    /// Takes a socket that listens already, and the names under which it is found. One that was
    /// inherited has whatever flags and options the one who made it chose: they are set here.
    pub fn new(fd: OwnedFd, names: Published) -> io::Result<Listener> {
        let listens = sock::get_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ACCEPTCONN)?;
        let kind = sock::get_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TYPE)?;
        if listens == 0 || kind != libc::SOCK_STREAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening stream socket"));
        }
        let domain = sock::get_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)?;
        if domain == libc::AF_INET || domain == libc::AF_INET6 {
            publish::prepare_tcp(&fd)?;
        }
        // The standard library's way to the flag; the socket's real family does not matter.
        let as_unix = std::os::unix::net::UnixListener::from(fd);
        as_unix.set_nonblocking(true)?;
        Ok(Listener { fd: as_unix.into(), _names: names, more: true })
    }

    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE)
    }

    pub fn deregister(&self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut SourceFd(&self.fd.as_raw_fd()))
    }

    pub fn accept(&self) -> Accepted {
        match sock::accept(self.fd.as_fd()) {
            Ok(fd) => Accepted::Client(fd),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::NoMore,
            Err(error) => match error.raw_os_error() {
                // These belong to the one connection that would have been accepted.
                Some(
                    libc::ECONNABORTED
                    | libc::EPROTO
                    | libc::EPERM
                    | libc::ETIMEDOUT
                    | libc::ENETDOWN
                    | libc::ENETUNREACH
                    | libc::EHOSTDOWN
                    | libc::EHOSTUNREACH
                    | libc::ENONET
                    | libc::ENOPROTOOPT
                    | libc::EOPNOTSUPP,
                ) => Accepted::Lost,
                _ => Accepted::Failed(error),
            },
        }
    }

    /// Whether a new descriptor would be one of the first `threshold`.
    pub fn has_room(&self, threshold: u64) -> bool {
        sock::lowest_free(self.fd.as_fd())
            .is_ok_and(|number| u64::try_from(number).is_ok_and(|number| number < threshold))
    }
}

/// What an accept brought.
pub(crate) enum Accepted {
    /// A connection.
    Client(OwnedFd),
    /// Nobody waits.
    NoMore,
    /// A connection that ended before it was accepted.
    Lost,
    /// The system cannot give us one: no descriptors, no memory.
    Failed(io::Error),
}

/// Why accepting paused: for the log, at most one a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The system's error number; 0 when only the reserve is left.
    pub errno: i32,
    /// Clients that are connected.
    pub clients: usize,
    /// The descriptors that clients and everything else may use together.
    pub threshold: u64,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "new clients wait: {} are connected and ", self.clients)?;
        match self.errno {
            0 => write!(f, "{} descriptors are all that may be used", self.threshold),
            errno => write!(f, "accept says: {}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Whether accepting goes on.
#[derive(Debug)]
pub(crate) struct Gate {
    /// A descriptor with this number or a higher one is in the reserve.
    pub threshold: u64,
    /// Accepting pauses until then.
    until: Option<u64>,
    /// It paused for want of descriptors: look before the next accept.
    pub tight: bool,
    /// When the last notice was given.
    noticed: Option<u64>,
    notice: Option<Notice>,
}

impl Gate {
    pub fn new(limit: u64, reserve: u64) -> Gate {
        // Where the limit is tiny the reserve gives way: somebody has to be served.
        let threshold = limit.saturating_sub(reserve).max(limit / 2);
        Gate { threshold, until: None, tight: false, noticed: None, notice: None }
    }

    pub fn is_open(&self) -> bool {
        self.until.is_none()
    }

    pub fn pause(&mut self, now_us: u64, errno: i32, clients: usize) {
        self.until = Some(now_us.saturating_add(PAUSE_US));
        self.tight = true;
        let due = self.noticed.is_none_or(|last| now_us.saturating_sub(last) >= NOTICE_US);
        if due {
            self.noticed = Some(now_us);
            self.notice = Some(Notice { errno, clients, threshold: self.threshold });
        }
    }

    /// Looking shows that there still is no room.
    pub fn extend(&mut self, now_us: u64) {
        self.until = Some(now_us.saturating_add(PAUSE_US));
    }

    pub fn open(&mut self) {
        self.until = None;
    }

    pub fn deadline(&self) -> Option<u64> {
        self.until
    }

    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }
}
