//! The few socket calls that the standard library does not offer in the form needed here.
//!
//! All of them work on borrowed descriptors, repeat themselves after EINTR, and give back the
//! system's error as it is.
#![allow(unsafe_code)] // system calls; one call per block

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Turns a -1 into the error that the system left behind.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that give back a size.
fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Repeats a call while a signal interrupts it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// One recv without waiting; 0 is the end of the stream.
pub fn recv(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: `into` is writable for its whole length, which is what is passed.
        check_size(unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
    })
}

/// One send without waiting and without SIGPIPE; gives back how much the kernel took.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: `bytes` is readable for its whole length, which is what is passed.
        check_size(unsafe {
            libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        })
    })
}

/// Adds a descriptor to an epoll set for as long as it is readable, not only when it becomes so: mio has edges only.
pub fn watch_level(epoll: RawFd, fd: RawFd, data: usize) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: data as u64 };
    // SAFETY: the event is alive and only read.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Ends what comes in on a stream: the other side cannot send any more, what it has sent stays.
pub fn end_input(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RD) }).map(drop)
}

/// Accepts one connection; it is non-blocking and closed on exec.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = retry(|| {
        // SAFETY: null pointers say that the peer's address is not wanted.
        check(unsafe {
            libc::accept4(
                fd.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        })
    })?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Connects to a unix stream socket without waiting; the connection is dropped again.
///
/// # Errors
/// The system's: WouldBlock where the other side's backlog is full; InvalidInput for a path
/// that is too long for a socket address.
pub fn try_connect(path: &Path) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr_un.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte of the address stays zero.
    if bytes.len() >= addr.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "path too long for a socket"));
    }
    for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let raw = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else has its number.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let size = socklen::<libc::sockaddr_un>();
    // SAFETY: the pointer is to a live sockaddr_un and the length says so.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), size) }).map(drop)
}

/// (Again) makes the socket listen, with this backlog; the kernel caps it at `somaxconn`.
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Sets an integer socket option.
pub fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = socklen::<libc::c_int>();
    // SAFETY: the pointer is to a live c_int and the length says so.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) }).map(drop)
}

/// Reads an integer socket option.
pub fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut size = socklen::<libc::c_int>();
    // SAFETY: value and size are live, and size says how large value is.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut size) })?;
    Ok(value)
}

/// The size of a type as the socket calls want it.
#[allow(clippy::cast_possible_truncation)] // socket structures have tens of bytes
pub(crate) const fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// The number that the next new descriptor would get. When it is N, all of 0..N are in use.
///
/// # Errors
/// EMFILE where no descriptor is left.
pub fn lowest_free(fd: BorrowedFd<'_>) -> io::Result<RawFd> {
    // SAFETY: no memory is passed.
    let copy = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the copy was made one line above and nobody else knows it; dropped at once.
    drop(unsafe { OwnedFd::from_raw_fd(copy) });
    Ok(copy)
}

/// The soft limit of open descriptors (RLIMIT_NOFILE).
pub fn descriptor_limit() -> io::Result<u64> {
    Ok(limits()?.rlim_cur)
}

/// Raises the soft limit of open descriptors to the hard one; gives back what holds now.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut both = limits()?;
    both.rlim_cur = both.rlim_max;
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const both) })?;
    Ok(both.rlim_cur)
}

fn limits() -> io::Result<libc::rlimit> {
    let mut both = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut both) })?;
    Ok(both)
}
