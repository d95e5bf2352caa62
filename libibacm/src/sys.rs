//! The calls that the standard library has no safe form of: connecting without waiting, sending without a signal,
//! waiting for one descriptor, and not being cancelled.
#![allow(unsafe_code, reason = "the boundary to the C library")]

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn stream(family: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts a connection to a socket file. `WouldBlock` means that the listener's queue is full.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: all-zero bytes are a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    if bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let fd = stream(libc::AF_UNIX)?;
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives during the call and is as long as is said.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd)
}

/// Starts a connection to an address; it is complete when the socket can be written to.
pub fn connect_tcp(to: SocketAddr) -> io::Result<OwnedFd> {
    let fd;
    let result = match to {
        SocketAddr::V4(a) => {
            fd = stream(libc::AF_INET)?;
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                sin_zero: [0; 8],
            };
            let length = mem::size_of_val(&address) as libc::socklen_t;
            // SAFETY: the address lives during the call and is as long as is said.
            check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })
        }
        SocketAddr::V6(a) => {
            fd = stream(libc::AF_INET6)?;
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: a.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                sin6_scope_id: a.scope_id(),
            };
            let length = mem::size_of_val(&address) as libc::socklen_t;
            // SAFETY: the address lives during the call and is as long as is said.
            check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })
        }
    };
    match result {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(fd),
    }
}

/// Sends what fits; a closed connection is an error, never a signal.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of a slice.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives what is there.
pub fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of a slice.
    let n = unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Waits until the descriptor can be read (or written to), for at most so long. A descriptor that is closed meanwhile,
/// by whomever, only ends the wait.
pub fn wait(fd: Option<RawFd>, write: bool, patience: Duration) {
    let events = if write { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let mut poll = libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
    // Rounded up, so that a wait for a moment does not spin towards it.
    let millis = patience.as_micros().div_ceil(1000).min(60_000) as c_int;
    // SAFETY: one pollfd is passed; a negative descriptor is skipped. A signal ends the wait early, which is harmless.
    unsafe { libc::poll(&raw mut poll, 1, millis) };
}

unsafe extern "C" {
    /// As `pthread.h` declares it.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// While this lives, `pthread_cancel` does not end its thread: what others share with it would stay as it is then.
pub struct Uncancelled {
    before: c_int,
    // It is the state of one thread.
    _here: PhantomData<*const ()>,
}

impl Uncancelled {
    /// From now on.
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Uncancelled {
        let mut before = CANCEL_DISABLE;
        // SAFETY: the old state lives during the call.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before, _here: PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = CANCEL_DISABLE;
        // SAFETY: likewise; the state is the one that this thread had.
        unsafe { pthread_setcancelstate(self.before, &raw mut ours) };
    }
}
