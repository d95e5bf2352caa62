//! Connecting without waiting, to one place after another until one accepts.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::sys;
use crate::target::{PORT_FILE, SOCKET_FILE, Target, published_port_in};

/// How long an address that says nothing keeps the next one from being tried.
const TURN: Duration = Duration::from_secs(1);

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connection that is being made.
pub struct Attempt {
    left: VecDeque<Place>,
    /// What has been started, over TCP, and when it gives way to the next.
    begun: Option<(TcpStream, Option<Instant>)>,
    /// Why the last place was none.
    failure: io::Error,
}

impl Attempt {
    pub fn new(target: &Target) -> Attempt {
        let left = match target {
            Target::Published => match published_port_in(PORT_FILE) {
                Some(port) => [Place::Tcp((Ipv4Addr::LOCALHOST, port).into())].into(),
                None => [Place::Unix(PathBuf::from(SOCKET_FILE))].into(),
            },
            Target::Unix(path) => [Place::Unix(path.clone())].into(),
            Target::Tcp(address) => [Place::Tcp(*address)].into(),
            Target::AnyOf(addresses) => addresses.iter().map(|a| Place::Tcp(*a)).collect(),
        };
        // What is said where there is no place at all.
        Attempt { left, begun: None, failure: io::Error::from_raw_os_error(libc::EDESTADDRREQ) }
    }

    /// The descriptor to watch for writing.
    pub fn fd(&self) -> Option<RawFd> {
        self.begun.as_ref().map(|(stream, _)| stream.as_raw_fd())
    }

    /// When to go on even if nothing happens at the descriptor.
    pub fn deadline(&self) -> Option<Instant> {
        self.begun.as_ref().and_then(|(_, until)| *until)
    }

    /// Goes on: the connection, nothing yet, or the failure of the last place. The time until `deadline` is shared out
    /// among the places.
    pub fn step(&mut self, now: Instant, deadline: Instant) -> io::Result<Option<OwnedFd>> {
        loop {
            if let Some((stream, until)) = self.begun.take() {
                match established(&stream) {
                    Ok(true) => return Ok(Some(stream.into())),
                    Ok(false) if until.is_none_or(|at| now < at) => {
                        self.begun = Some((stream, until));
                        return Ok(None);
                    }
                    Ok(false) => self.failure = io::Error::from_raw_os_error(libc::ETIMEDOUT),
                    Err(e) => self.failure = e,
                }
            }
            match self.left.pop_front() {
                None => {
                    let none = io::Error::from_raw_os_error(libc::EDESTADDRREQ);
                    return Err(std::mem::replace(&mut self.failure, none));
                }
                Some(Place::Unix(path)) => match sys::connect_unix(&path) {
                    Ok(fd) => return Ok(Some(fd)),
                    Err(e) => self.failure = e,
                },
                Some(Place::Tcp(address)) => match sys::connect_tcp(address) {
                    Ok(fd) => {
                        let others = self.left.len() as u32;
                        let share = deadline.saturating_duration_since(now) / others.saturating_add(1);
                        self.begun = Some((fd.into(), (others > 0).then(|| now + share.min(TURN))));
                    }
                    Err(e) => self.failure = e,
                },
            }
        }
    }
}

/// Whether a TCP connection is complete.
fn established(stream: &TcpStream) -> io::Result<bool> {
    if let Some(e) = stream.take_error()? {
        return Err(e);
    }
    match stream.peer_addr() {
        // Where nobody listens at a port that the system gives out, a socket can find itself.
        Ok(peer) if stream.local_addr().is_ok_and(|own| own == peer) => {
            Err(io::Error::from_raw_os_error(libc::ECONNREFUSED))
        }
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}
