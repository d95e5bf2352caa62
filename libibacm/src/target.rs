//! Where the service is.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::sys;

/// The file with the number of the service's TCP port.
pub const PORT_FILE: &str = "/run/ibacm.port";
/// The service's socket file.
pub const SOCKET_FILE: &str = "/run/ibacm.sock";
/// The port of a host that is named without one.
pub const DEFAULT_PORT: u16 = 6125;

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
}

impl Target {
    /// What a text names: a path (anything with a `/`), or `host`, `host:port`, `[address]:port`. Names of hosts are
    /// looked up here, which may take as long as the system's resolver does.
    pub fn parse(text: &str) -> io::Result<Target> {
        if text.is_empty() {
            return Ok(Target::Published);
        }
        if text.contains('/') {
            return Ok(Target::Unix(PathBuf::from(text)));
        }
        let found = match text.parse::<std::net::IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, DEFAULT_PORT)),
            Err(_) if text.contains(':') => text.to_socket_addrs()?.next(),
            Err(_) => (text, DEFAULT_PORT).to_socket_addrs()?.next(),
        };
        found.map(Target::Tcp).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Starts a connection, which over TCP is complete when something can be sent.
    pub(crate) fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Target::Published => match published_port() {
                Some(port) => sys::connect_tcp((Ipv4Addr::LOCALHOST, port).into()),
                None => sys::connect_unix(SOCKET_FILE.as_ref()),
            },
            Target::Unix(path) => sys::connect_unix(path),
            Target::Tcp(to) => sys::connect_tcp(*to),
        }
    }
}

fn published_port() -> Option<u16> {
    let text = fs::read_to_string(PORT_FILE).ok()?;
    text.trim().parse().ok().filter(|p| *p != 0)
}
