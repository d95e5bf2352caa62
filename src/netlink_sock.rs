//! Netlink sockets: system calls only.
#![allow(unsafe_code)] // system calls; one call per block

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::sock::{self, retry, socklen};

/// The kernel's groups that tell of links, addresses, routes and rules of both families.
const GROUPS: [libc::c_int; 7] = [
    1,  // RTNLGRP_LINK
    5,  // RTNLGRP_IPV4_IFADDR
    7,  // RTNLGRP_IPV4_ROUTE
    8,  // RTNLGRP_IPV4_RULE
    9,  // RTNLGRP_IPV6_IFADDR
    11, // RTNLGRP_IPV6_ROUTE
    19, // RTNLGRP_IPV6_RULE
];
/// Room for events while the loop is busy.
const RECEIVE_BUFFER: i32 = 1024 * 1024;

/// One datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Its bytes in the buffer.
    pub length: usize,
    /// It was longer than the buffer.
    pub truncated: bool,
    /// It comes from the kernel and not from some process.
    pub from_kernel: bool,
}

/// Opens a non-blocking socket of a protocol, bound to these groups, one bit each.
pub(crate) fn open(protocol: libc::c_int, groups: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us and nobody else has its number.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let addr = address(groups);
    let size = socklen::<libc::sockaddr_nl>();
    // SAFETY: the pointer is to a live sockaddr_nl and the length says so.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Opens a non-blocking socket of NETLINK_ROUTE that hears all the groups of [`GROUPS`].
pub(crate) fn open_route() -> io::Result<OwnedFd> {
    open_route_for(&GROUPS)
}

/// Opens a non-blocking socket of NETLINK_ROUTE that hears these groups.
pub(crate) fn open_route_for(groups: &[libc::c_int]) -> io::Result<OwnedFd> {
    let fd = open(libc::NETLINK_ROUTE, 0)?;
    make_room(&fd, RECEIVE_BUFFER)?;
    for &group in groups {
        let name = libc::NETLINK_ADD_MEMBERSHIP;
        match sock::set_int(fd.as_fd(), libc::SOL_NETLINK, name, group) {
            Ok(()) => {}
            // A kernel without IPv6 has no such groups; links and IPv4 addresses must be there.
            Err(error) if matches!(group, 1 | 5) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(fd)
}

/// Makes room for so many bytes of messages: above the system's limit where that is allowed, else up to it.
pub(crate) fn make_room(fd: &OwnedFd, bytes: i32) -> io::Result<()> {
    let set = |name| sock::set_int(fd.as_fd(), libc::SOL_SOCKET, name, bytes);
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))
}

/// The address of who hears these groups, one bit each; without any the kernel's, and in a bind "choose one".
pub(crate) fn address(groups: u32) -> libc::sockaddr_nl {
    // SAFETY: all-zero bytes are a valid sockaddr_nl.
    let mut addr: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    addr.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    addr.nl_groups = groups;
    addr
}

/// The socket's port, by which answers to its requests are known.
pub(crate) fn port(fd: &OwnedFd) -> io::Result<u32> {
    let mut addr = address(0);
    let mut size = socklen::<libc::sockaddr_nl>();
    // SAFETY: addr and size are live and size says how large addr is.
    if unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut addr).cast(), &raw mut size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(addr.nl_pid)
}

/// Sends a message to these groups, one bit each, or without any to the kernel; does not wait for room.
pub(crate) fn send(fd: &OwnedFd, groups: u32, message: &[u8]) -> io::Result<()> {
    let addr = address(groups);
    let size = socklen::<libc::sockaddr_nl>();
    retry(|| {
        // SAFETY: message is readable for its length, addr is a live sockaddr_nl of that size.
        let sent = unsafe {
            libc::sendto(
                fd.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                (&raw const addr).cast(),
                size,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}

/// Receives one datagram without waiting.
pub(crate) fn receive(fd: &OwnedFd, into: &mut [u8]) -> io::Result<Received> {
    let mut addr = address(0);
    let mut size = socklen::<libc::sockaddr_nl>();
    let length = retry(|| {
        // SAFETY: into is writable for its length; addr and size are live and size says how
        // large addr is.
        let got = unsafe {
            libc::recvfrom(
                fd.as_raw_fd(),
                into.as_mut_ptr().cast(),
                into.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                (&raw mut addr).cast(),
                &raw mut size,
            )
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    })?;
    Ok(Received {
        length: length.min(into.len()),
        // With MSG_TRUNC the real length is given back.
        truncated: length > into.len(),
        from_kernel: size == socklen::<libc::sockaddr_nl>() && addr.nl_pid == 0,
    })
}

/// Waits until something can be received, for some milliseconds at most.
pub(crate) fn wait(fd: &OwnedFd, milliseconds: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    retry(|| {
        // SAFETY: one live pollfd is passed, and its count is one.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(ready > 0) }
    })
}
