//! The calls for which the standard library offers nothing safe: descriptors by number, the environment, a clock.
#![allow(unsafe_code)] // that is what this module is for

use std::os::fd::{FromRawFd, OwnedFd};

/// Takes a descriptor by its number, to be closed in programs that are run; `None` if there is none. The caller must
/// have been told that the descriptor is its own, and ask once.
pub(super) fn claim(number: i32) -> Option<OwnedFd> {
    // SAFETY: takes no memory; a number that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and by the protocol it was made for this process alone, before the process began to run.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes variables out of the environment, unless there is a second thread that might be reading it.
pub(super) fn remove_variables(names: &[&str]) {
    let single = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if single {
        for name in names {
            // SAFETY: this thread is the only one, and can make no other meanwhile.
            unsafe { std::env::remove_var(name) };
        }
    }
}

/// The monotonic clock in microseconds, as systemd reads it too.
pub(super) fn monotonic_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure, filled in by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}
