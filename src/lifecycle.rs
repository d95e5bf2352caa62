//! The life of the process: one instance only, in the background or not, signals, limits.
//!
//! The order at start: [`daemon::daemonise`] where wanted (it changes the process id), [`LockFile::acquire`] before the
//! log or any socket is touched, [`Signals::new`] before any thread is started, so that threads inherit the mask.

mod daemon;
mod lock;
mod pages;
mod signals;
mod state;

pub use daemon::{DaemonError, Ready, daemonise};
pub use lock::{LockError, LockFile};
pub use pages::give_back;
pub use signals::{Signal, Signals};
pub use state::Kept;

use std::io;

/// Takes from the file mode mask what would let group or others write to files that are created from now on; keeps
/// what it takes away already. Sockets that must be open to all need their mode set by name.
pub fn tighten_umask() {
    sys::tighten_umask(0o022);
}

/// Ends the process without what shared objects do at its end: threads of plug-ins may still run, and what a plug-in's
/// destructor waits for nobody knows. With rdma-core's service none runs either: a signal ends it.
pub fn end_now(code: u8) -> ! {
    sys::end_now(code)
}

/// Raises the limit of open descriptors as far as it goes, and says how far that is.
///
/// # Errors
/// The system refuses; the limit is what it was.
pub fn raise_open_files() -> io::Result<u64> {
    crate::sock::raise_descriptor_limit()
}

/// The host's name as the kernel has it: bytes, not cut at a dot, possibly empty.
///
/// # Errors
/// The system refuses.
pub fn hostname() -> io::Result<Vec<u8>> {
    sys::hostname()
}

#[allow(unsafe_code)] // Calls that the standard library doesn't have.
mod sys {
    use std::io;

    pub(super) fn tighten_umask(bits: libc::mode_t) {
        // SAFETY: no pointers. Nothing but setting the mask tells what it was.
        unsafe { libc::umask(libc::umask(0o777) | bits) };
    }

    pub(super) fn end_now(code: u8) -> ! {
        // SAFETY: takes a number.
        unsafe { libc::_exit(code.into()) }
    }

    pub(super) fn hostname() -> io::Result<Vec<u8>> {
        // The kernel's names have 64 bytes at most.
        let mut name = [0_u8; 256];
        // SAFETY: the pointer and the length are those of the array.
        if unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(name.split(|&b| b == 0).next().unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests;
