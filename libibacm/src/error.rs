//! Why a request has no answer.

use std::fmt;
use std::io;

use ibacm_wire::client::Status;

/// Why a request has no answer.
#[derive(Debug)]
pub enum Error {
    /// The service could not be reached, or was lost.
    Transport {
        /// What was being done.
        during: During,
        /// What the system said.
        source: io::Error,
    },
    /// The time limit of the request has passed.
    TimedOut,
    /// The service has answered that it cannot: an `ACM_STATUS_*` number other than 0.
    Status(u8),
    /// The service sent what it may not send; the connection has been given up.
    Protocol(Violation),
    /// The request itself cannot be sent.
    Request(&'static str),
}

/// A step of reaching the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum During {
    /// Connecting.
    Connect,
    /// Sending a request.
    Send,
    /// Waiting for a reply.
    Receive,
}

/// What a service did wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Protocol version other than 1.
    Version(u8),
    /// An operation that is not the one that was asked for.
    Opcode(u8),
    /// A length that no such reply has.
    Length(usize),
    /// A transaction id that belongs to no request.
    Transaction,
    /// A reply whose contents contradict each other.
    Contents(&'static str),
}

impl Error {
    /// The status, where the service has answered with one that is known.
    pub fn status(&self) -> Option<Status> {
        let Error::Status(number) = self else { return None };
        [
            Status::Enomem,
            Status::Einval,
            Status::Enodata,
            Status::Enotconn,
            Status::Etimedout,
            Status::Esrcaddr,
            Status::Esrctype,
            Status::Edestaddr,
            Status::Edesttype,
        ]
        .into_iter()
        .find(|s| *s as u8 == *number)
    }

    /// The `errno` that says it best; `None` for a status, which is an answer.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Transport { source, .. } => Some(source.raw_os_error().unwrap_or(match source.kind() {
                // The end of the stream before the answer.
                io::ErrorKind::UnexpectedEof => libc::ECONNRESET,
                _ => libc::EIO,
            })),
            Error::TimedOut => Some(libc::ETIMEDOUT),
            Error::Status(_) => None,
            Error::Protocol(_) => Some(libc::EPROTO),
            Error::Request(_) => Some(libc::EINVAL),
        }
    }

    /// What can be done about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Error::Transport { during: During::Connect, source } => match source.kind() {
                io::ErrorKind::PermissionDenied => "look at the permissions of the service's socket",
                _ => "start the ibacm service, or look whether it listens where this connects to",
            },
            Error::Transport { .. } => "ask again; if that fails too, look into the log of the ibacm service",
            Error::TimedOut => {
                "give it more time than the service's own timeout and retries take, or look why it hangs"
            }
            Error::Status(_) => match self.status() {
                Some(Status::Enodata) => "look whether the address exists, or ask again a little later",
                Some(Status::Etimedout) => "look whether the destination is up and runs the service",
                Some(Status::Esrcaddr | Status::Esrctype) => "name a source that `ib_acme -e` lists on this host",
                Some(Status::Edestaddr | Status::Edesttype) => {
                    "name exactly one destination of a kind that can be found"
                }
                Some(Status::Enomem) => "ask for less at a time",
                _ => "look into the log of the ibacm service",
            },
            Error::Protocol(_) => "look what it is that listens on the service's socket",
            Error::Request(_) => "correct the request",
        }
    }

    /// The same error once more, for another request that ends by it.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Transport { during, source } => Error::Transport { during: *during, source: copy(source) },
            Error::TimedOut => Error::TimedOut,
            Error::Status(n) => Error::Status(*n),
            Error::Protocol(v) => Error::Protocol(*v),
            Error::Request(why) => Error::Request(why),
        }
    }
}

/// An error of the system once more.
pub(crate) fn copy(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error)
}

/// The words for an `ACM_STATUS_*` number.
pub const fn status_text(status: u8) -> &'static str {
    match status {
        0 => "success",
        1 => "out of resources",
        2 => "invalid request",
        3 => "no data",
        5 => "not connected",
        6 => "no answer in time",
        7 => "invalid source address",
        8 => "invalid source type",
        9 => "invalid or unreachable destination address",
        10 => "invalid destination type",
        _ => "unknown status",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Transport { during, source } => {
                let what = match during {
                    During::Connect => "connecting to the ibacm service",
                    During::Send => "sending to the ibacm service",
                    During::Receive => "waiting for the ibacm service",
                };
                write!(f, "{what}: {source}")?;
            }
            Error::TimedOut => f.write_str("the ibacm service has not answered in time")?,
            Error::Status(n) => write!(f, "the ibacm service answers: {} ({n})", status_text(*n))?,
            Error::Protocol(v) => write!(f, "not a valid reply of an ibacm service: {v}")?,
            Error::Request(why) => write!(f, "invalid request: {why}")?,
        }
        write!(f, " ({})", self.advice())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Version(v) => write!(f, "protocol version {v}"),
            Violation::Opcode(o) => write!(f, "operation {o:#04x}"),
            Violation::Length(n) => write!(f, "length {n}"),
            Violation::Transaction => f.write_str("a transaction that was not asked for"),
            Violation::Contents(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Transport { source, .. } => Some(source),
            _ => None,
        }
    }
}
