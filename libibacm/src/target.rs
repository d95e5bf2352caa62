//! Where the service is.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::per_process::PerProcess;

/// The file with the number of the service's TCP port, for applications.
pub const PORT_FILE: &str = "/run/ibacm.port";
/// The service's socket file, for applications.
pub const SOCKET_FILE: &str = "/run/ibacm.sock";
/// The file with the number of the service's TCP port, for `ib_acme`: it is there too where applications are not served.
pub const ACME_PORT_FILE: &str = "/run/ibacm-tcp.port";
/// The service's socket file, for `ib_acme`, likewise.
pub const ACME_SOCKET_FILE: &str = "/run/ibacm-unix.sock";
/// The port of a host that is named without one.
pub const DEFAULT_PORT: u16 = 6125;

/// Addresses of one host that are tried.
const MAX_ADDRESSES: usize = 16;
/// Names that are looked up at a time. The system's resolver cannot be interrupted, so that each keeps a thread as long
/// as it takes.
const MAX_LOOKUPS: usize = 64;

/// Where the service is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Where this host's service says: the port in [`PORT_FILE`] if there is one other than 0, else [`SOCKET_FILE`].
    /// It is looked for again at every connection.
    #[default]
    Published,
    /// A socket file.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
    /// The first of these that accepts. A host's name can have several addresses, and the service need not listen on
    /// all of them.
    AnyOf(Vec<SocketAddr>),
}

impl Target {
    /// What a text names: a path (anything with a `/`), or `host`, `host:port`, `[address]:port`, where a host without
    /// a port has [`DEFAULT_PORT`]. Names of hosts are looked up here, which takes [`Client::LIMIT`] at most.
    pub fn parse(text: &str) -> io::Result<Target> {
        Target::parse_within(text, DEFAULT_PORT, Client::LIMIT)
    }

    /// The same with another port for a host that is named without one, and another time limit for looking it up, after
    /// which the error is [`io::ErrorKind::TimedOut`].
    pub fn parse_within(text: &str, default_port: u16, limit: Duration) -> io::Result<Target> {
        if text.is_empty() {
            return Ok(Target::Published);
        }
        if text.contains('/') {
            return Ok(Target::Unix(PathBuf::from(text)));
        }
        let (host, port) = split(text, default_port).ok_or(io::ErrorKind::InvalidInput)?;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Target::Tcp(SocketAddr::new(ip, port)));
        }
        let mut found = look_up(host, port, limit)?;
        match found.len() {
            0 => Err(io::ErrorKind::NotFound.into()),
            1 => Ok(Target::Tcp(found.remove(0))),
            _ => Ok(Target::AnyOf(found)),
        }
    }
}

/// The host and the port of a text.
fn split(text: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, rest)| (host, Some(rest).filter(|r| !r.is_empty())))?,
        // More than one colon: an address as it is, perhaps with the name of an interface.
        None if text.matches(':').count() == 1 => {
            text.find(':').map(|at| text.split_at(at)).map(|(h, p)| (h, Some(p)))?
        }
        None => (text, None),
    };
    let port = match port {
        Some(port) => port.strip_prefix(':').filter(|p| !p.starts_with('+'))?.parse().ok()?,
        None => default_port,
    };
    (!host.is_empty() && port != 0).then_some((host, port))
}

/// The addresses of a host by the system's resolver, each once. After `limit` the error is [`io::ErrorKind::TimedOut`].
pub fn look_up(host: &str, port: u16, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    // The threads are those of this process only.
    static LOOKUPS: PerProcess<AtomicUsize> = PerProcess::new();
    let lookups = LOOKUPS.get(|_| AtomicUsize::new(0));
    if limit.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    if lookups.fetch_add(1, Ordering::Relaxed) >= MAX_LOOKUPS {
        lookups.fetch_sub(1, Ordering::Relaxed);
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (answer, answered) = mpsc::sync_channel(1);
    let host = host.to_owned();
    let asking = thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(|all| {
            let mut once = Vec::new();
            for address in all {
                if once.len() < MAX_ADDRESSES && !once.contains(&address) {
                    once.push(address);
                }
            }
            once
        });
        lookups.fetch_sub(1, Ordering::Relaxed);
        // Nobody waits for what is late.
        let _ = answer.send(found);
    });
    if let Err(e) = asking {
        lookups.fetch_sub(1, Ordering::Relaxed);
        return Err(e);
    }
    answered.recv_timeout(limit).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The number of a TCP port in a file, where a service has written one other than 0.
pub fn published_port_in(path: impl AsRef<Path>) -> Option<u16> {
    let mut text = String::new();
    // A port is five digits and the end of a line.
    File::open(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|p| *p != 0)
}
