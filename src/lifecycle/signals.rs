//! Signals as a descriptor for the loop.
#![allow(unsafe_code)] // signalfd(2) and signal masks, which the standard library doesn't have.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A signal that the service acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end.
    Terminate,
    /// SIGINT: end.
    Interrupt,
    /// SIGHUP: open the log again, read the options again.
    Hangup,
}

const WANTED: [(libc::c_int, Signal); 3] =
    [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt), (libc::SIGHUP, Signal::Hangup)];

/// The signals of [`Signal`], blocked and to be read from a descriptor.
///
/// The mask belongs to the thread that made it, and to the threads and programs that it starts later (the standard
/// library's `Command` clears it for a program). Dropping it restores the mask, on the thread that drops it. SIGPIPE is
/// ignored from then on: a peer that went away is an error of `write`.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals and opens a descriptor for them: it doesn't block, and is closed in programs that are run.
    ///
    /// # Errors
    /// The system refuses (too many descriptors).
    pub fn new() -> io::Result<Self> {
        let wanted = set(&WANTED.map(|(number, _)| number));
        // SAFETY: a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const wanted, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: both point to sets; the call fills in the second when it gives 0.
        let before = match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, before.as_mut_ptr()) } {
            // SAFETY: filled in.
            0 => unsafe { before.assume_init() },
            error => return Err(io::Error::from_raw_os_error(error)),
        };
        // SAFETY: SIG_IGN is no function of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(Signals { fd, before })
    }

    /// The next signal that came; `None`: none until the descriptor is readable again. Several of one kind may have
    /// become one.
    ///
    /// # Errors
    /// Reading fails, which it doesn't.
    pub fn next_signal(&mut self) -> io::Result<Option<Signal>> {
        loop {
            let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            // SAFETY: the pointer and the length are those of the structure.
            let length = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            if length < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            // SAFETY: numbers only, all zeroes before the call: valid whatever was read.
            let number = unsafe { info.assume_init() }.ssi_signo;
            if let Some(&(_, signal)) = WANTED.iter().find(|(wanted, _)| u32::try_from(*wanted) == Ok(number)) {
                return Ok(Some(signal));
            }
            if length == 0 {
                return Ok(None);
            }
        }
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: a set that pthread_sigmask itself filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn set(numbers: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset makes it valid before anything else is done with it; the numbers are signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}
