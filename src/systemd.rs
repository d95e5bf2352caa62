//! systemd's side of the service: sockets that it hands over, and what it wants to hear.
//!
//! [`Environment::take`] reads what systemd left in the environment, [`Environment::sockets`] takes over the descriptors,
//! and a [`Manager`] tells that the service is ready, reloading, stopping and alive. Without systemd all of it does
//! nothing. The protocols are those of sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3).

use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::sock;

pub use notify::{Manager, Status};

#[path = "systemd_notify.rs"]
mod notify;
#[path = "systemd_sys.rs"]
mod sys;

/// The first descriptor that is handed over.
const FIRST: i32 = 3;
/// Descriptors that the service has a use for: clients, and the kernel.
const MOST: usize = 2;
/// Everything that systemd says in the environment.
const VARIABLES: [&str; 7] =
    ["LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// What systemd said in the environment.
#[derive(Debug, Default)]
pub struct Environment {
    listen_pid: Option<OsString>,
    listen_fds: Option<OsString>,
    listen_names: Option<OsString>,
    notify_socket: Option<OsString>,
    watchdog_pid: Option<OsString>,
    watchdog_usec: Option<OsString>,
}

/// Sockets that were handed over.
#[derive(Debug, Default)]
pub struct Sockets {
    /// A listening stream socket, for clients.
    pub stream: Option<OwnedFd>,
    /// A NETLINK_RDMA socket, for the kernel.
    pub netlink: Option<OwnedFd>,
}

/// What is wrong with the descriptors that were handed over.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketError {
    /// A variable holds no number.
    Variable(&'static str, String),
    /// So many are too many.
    Surplus(usize),
    /// This one, with its name, is of no use; what it is.
    Useless(String, String),
    /// This one, with its name, is the second of its kind.
    Second(String, &'static str),
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("inherited sockets: ")?;
        match self {
            SocketError::Variable(name, value) => write!(f, "{name} is '{}', expected a number", value.escape_debug()),
            SocketError::Surplus(n) => {
                write!(f, "{n} descriptors, expected at most {MOST}: a stream socket and a NETLINK_RDMA socket")
            }
            SocketError::Useless(which, what) => write!(
                f,
                "{which} is {what}, expected a listening stream socket (unix or TCP) or a NETLINK_RDMA socket"
            ),
            SocketError::Second(which, kind) => write!(f, "{which} is a second {kind}, expected one"),
        }
    }
}

impl std::error::Error for SocketError {}

impl Environment {
    /// Reads the variables and takes them away, so that no program that is run later believes that it is meant. To be
    /// called before there is a second thread: with one the variables stay, for taking them away is not safe then.
    pub fn take() -> Environment {
        let environment = Environment::read(|name| std::env::var_os(name));
        sys::remove_variables(&VARIABLES);
        environment
    }

    fn read(get: impl Fn(&str) -> Option<OsString>) -> Environment {
        Environment {
            listen_pid: get("LISTEN_PID"),
            listen_fds: get("LISTEN_FDS"),
            listen_names: get("LISTEN_FDNAMES"),
            notify_socket: get("NOTIFY_SOCKET"),
            watchdog_pid: get("WATCHDOG_PID"),
            watchdog_usec: get("WATCHDOG_USEC"),
        }
    }

    /// Takes over the descriptors that were handed to this process, in whatever order they are; later calls give none.
    ///
    /// # Errors
    /// There is one that the service has no use for: a unit file is wrong, and not to notice would be worse.
    pub fn sockets(&mut self) -> Result<Sockets, SocketError> {
        let count = self.count(std::process::id())?;
        self.listen_fds = None;
        let names = self.listen_names.take().unwrap_or_default().to_string_lossy().into_owned();
        let mut names = names.split(':');
        let mut sockets = Sockets::default();
        for number in (FIRST..).take(count) {
            let which = match names.next().filter(|n| !n.is_empty()) {
                Some(name) => format!("descriptor {number} ({})", name.escape_debug()),
                None => format!("descriptor {number}"),
            };
            let Some(fd) = sys::claim(number) else {
                return Err(SocketError::Useless(which, "not open".to_owned()));
            };
            let (place, kind) = match look(fd.as_fd()) {
                Kind::Stream => (&mut sockets.stream, "stream socket"),
                Kind::Netlink => (&mut sockets.netlink, "NETLINK_RDMA socket"),
                Kind::Other(what) => return Err(SocketError::Useless(which, what)),
            };
            if place.is_some() {
                return Err(SocketError::Second(which, kind));
            }
            *place = Some(fd);
        }
        Ok(sockets)
    }

    /// How many descriptors are meant for the process with this id.
    fn count(&self, pid: u32) -> Result<usize, SocketError> {
        let (Some(meant), Some(count)) = (&self.listen_pid, &self.listen_fds) else { return Ok(0) };
        // A child of the one that was meant has inherited the variables, but the descriptors are not its own.
        if number::<u32>("LISTEN_PID", meant)? != pid {
            return Ok(0);
        }
        match number::<usize>("LISTEN_FDS", count)? {
            n if n > MOST => Err(SocketError::Surplus(n)),
            n => Ok(n),
        }
    }

    /// The one who wants to hear how the service is, if there is one.
    pub fn manager(&self) -> Manager {
        let meant = self.watchdog_pid.as_ref().is_none_or(|p| *p == *std::process::id().to_string());
        let watchdog = self.watchdog_usec.as_ref().filter(|_| meant);
        let watchdog = watchdog.and_then(|t| t.to_str()?.parse().ok()).filter(|us| *us > 0);
        Manager::new(self.notify_socket.as_deref(), watchdog.map(Duration::from_micros))
    }
}

fn number<T: std::str::FromStr>(name: &'static str, value: &OsString) -> Result<T, SocketError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| SocketError::Variable(name, value.to_string_lossy().into_owned()))
}

/// What a descriptor is to the service.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    Netlink,
    Other(String),
}

fn look(fd: BorrowedFd<'_>) -> Kind {
    let option = |name| sock::get_int(fd, libc::SOL_SOCKET, name);
    let (Ok(domain), Ok(kind)) = (option(libc::SO_DOMAIN), option(libc::SO_TYPE)) else {
        return Kind::Other("no socket".to_owned());
    };
    match domain {
        libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 if kind != libc::SOCK_STREAM => {
            Kind::Other("a socket, but not a stream".to_owned())
        }
        libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 => match option(libc::SO_ACCEPTCONN) {
            Ok(1) => Kind::Stream,
            _ => Kind::Other("a stream socket that does not listen".to_owned()),
        },
        libc::AF_NETLINK => match option(libc::SO_PROTOCOL) {
            Ok(libc::NETLINK_RDMA) => Kind::Netlink,
            Ok(other) => Kind::Other(format!("a netlink socket of protocol {other}")),
            Err(error) => Kind::Other(format!("a netlink socket whose protocol is not known: {error}")),
        },
        other => Kind::Other(format!("a socket of address family {other}")),
    }
}

#[cfg(test)]
#[path = "systemd_tests.rs"]
mod tests;
