//! The source address that the kernel's routing would use for a destination.
//!
//! A UDP socket is connected, which sends nothing, and asked for its own address. Connecting to
//! no family dissolves that again: without it the kernel would keep the first source address
//! for all later destinations. One socket per family is kept for that, and dissolved when there
//! is time: whoever asked waits for the answer, not for that.
#![allow(unsafe_code)] // system calls; one call per block

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sock::{retry, socklen};

/// The discard port; nothing is sent to it.
const PORT: u16 = 9;

/// Asks the kernel for source addresses.
#[derive(Debug, Default)]
pub struct Sources {
    v4: Kept,
    v6: Kept,
}

/// A socket that is used again.
#[derive(Debug, Default)]
struct Kept {
    fd: Option<OwnedFd>,
    /// It may be connected.
    connected: bool,
}

impl Kept {
    /// Dissolves what there is of a connection; a socket for which that fails is not used again.
    fn settle(&mut self) {
        if std::mem::take(&mut self.connected) && self.fd.as_ref().is_some_and(|fd| dissolve(fd).is_err()) {
            self.fd = None;
        }
    }
}

impl Sources {
    /// A fresh one, without sockets.
    #[must_use]
    pub fn new() -> Sources {
        Sources::default()
    }

    /// The source address for `dest`. `scope` is the interface's number for a link-local IPv6
    /// destination. An IPv6 address that holds an IPv4 one is treated as that.
    ///
    /// # Errors
    /// The kernel's: ENETUNREACH, EHOSTUNREACH without a route, EACCES for a broadcast address,
    /// EINVAL for a link-local address without an interface; InvalidInput for an unspecified
    /// address; EMFILE and the like when there is no socket to be had.
    pub fn source_for(&mut self, dest: IpAddr, scope: Option<u32>) -> io::Result<IpAddr> {
        let dest = dest.to_canonical();
        if dest.is_unspecified() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "unspecified address"));
        }
        let kept = if dest.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        kept.settle();
        let fd = match &mut kept.fd {
            Some(fd) => &*fd,
            none => &*none.insert(open(dest)?),
        };
        // Even a failure may leave something behind.
        kept.connected = true;
        let source = connect(fd, dest, scope).and_then(|()| local(fd, dest));
        source.and_then(|source| match source {
            source if source.is_unspecified() => Err(io::ErrorKind::AddrNotAvailable.into()),
            source => Ok(source),
        })
    }

    /// Gets ready for the next question, for when there is time.
    pub fn settle(&mut self) {
        self.v4.settle();
        self.v6.settle();
    }
}

/// Turns a -1 into the error that the system left behind.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn open(dest: IpAddr) -> io::Result<OwnedFd> {
    let family = if dest.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let raw = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn connect(fd: &OwnedFd, dest: IpAddr, scope: Option<u32>) -> io::Result<()> {
    match dest {
        IpAddr::V4(ip) => {
            // SAFETY: all-zero bytes are a valid sockaddr_in.
            let mut addr: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            addr.sin_family = libc::AF_INET as libc::sa_family_t;
            addr.sin_port = PORT.to_be();
            addr.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
            connect_to(fd, &addr)
        }
        IpAddr::V6(ip) => {
            // SAFETY: all-zero bytes are a valid sockaddr_in6.
            let mut addr: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            addr.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            addr.sin6_port = PORT.to_be();
            addr.sin6_addr.s6_addr = ip.octets();
            addr.sin6_scope_id = scope.unwrap_or(0);
            connect_to(fd, &addr)
        }
    }
}

fn dissolve(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr; family 0 is AF_UNSPEC.
    let addr: libc::sockaddr = unsafe { std::mem::zeroed() };
    connect_to(fd, &addr)
}

/// `T` is one of the socket address structures.
fn connect_to<T>(fd: &OwnedFd, addr: &T) -> io::Result<()> {
    retry(|| {
        // SAFETY: the pointer is to a live T and the length is T's.
        check(unsafe { libc::connect(fd.as_raw_fd(), std::ptr::from_ref(addr).cast(), socklen::<T>()) }).map(drop)
    })
}

fn local(fd: &OwnedFd, dest: IpAddr) -> io::Result<IpAddr> {
    if dest.is_ipv4() {
        // SAFETY: all-zero bytes are a valid sockaddr_in.
        let mut addr: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        name(fd, &mut addr)?;
        Ok(Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes()).into())
    } else {
        // SAFETY: all-zero bytes are a valid sockaddr_in6.
        let mut addr: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        name(fd, &mut addr)?;
        Ok(Ipv6Addr::from(addr.sin6_addr.s6_addr).into())
    }
}

/// `T` is the socket's own address structure.
fn name<T>(fd: &OwnedFd, addr: &mut T) -> io::Result<()> {
    let mut size = socklen::<T>();
    // SAFETY: addr and size are live; the kernel writes at most size bytes, which is T's size,
    // and any bytes are valid in these structures of integers.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(addr).cast(), &raw mut size) }).map(drop)
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
