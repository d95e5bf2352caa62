//! Errors of calls into the libraries: which call, on what, and the system's number.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{error, fmt, io};

static DROP_FAILURES: AtomicU64 = AtomicU64::new(0);

/// How many destroy calls have failed in this process; the objects concerned are leaked.
pub fn drop_failures() -> u64 {
    DROP_FAILURES.load(Ordering::Relaxed)
}

/// Takes the result of a destroy call; false (and counted) if it failed.
pub(super) fn destroyed(result: i32) -> bool {
    if result != 0 {
        DROP_FAILURES.fetch_add(1, Ordering::Relaxed);
    }
    result == 0
}

/// A call that failed: which one, on what, and the system's reason.
#[derive(Debug)]
struct CallError {
    what: String,
    errno: i32,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, io::Error::from_raw_os_error(self.errno))
    }
}

impl error::Error for CallError {}

/// An error of the call `what`.
pub(crate) fn failed(what: impl Into<String>, errno: i32) -> io::Error {
    io::Error::new(io::Error::from_raw_os_error(errno).kind(), CallError { what: what.into(), errno })
}

/// The system's error number behind an error of this module, [`crate::ud`] or [`crate::umad`].
pub fn errno_of(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<CallError>());
    inner.map(|e| e.errno).or_else(|| error.raw_os_error())
}

/// The error number that the last call left; EIO where it left none, or one that would be taken
/// for "try again".
pub(super) fn last_errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        None | Some(0 | libc::EAGAIN | libc::EINTR) => libc::EIO,
        Some(errno) => errno,
    }
}

/// The error number of a call's result: verbs return it as it is, negated, or as -1 with errno.
pub(super) fn errno_from(result: i32) -> i32 {
    match result {
        -1 => last_errno(),
        r => r.checked_abs().unwrap_or(libc::EIO),
    }
}

/// Makes the result of a verbs call an error unless it is 0.
pub(super) fn check(result: i32, what: impl FnOnce() -> String) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(failed(what(), errno_from(result))) }
}

/// Makes a null pointer the error that errno tells.
pub(super) fn non_null<T>(pointer: *mut T, what: impl FnOnce() -> String) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| failed(what(), last_errno()))
}

/// Has reads of `fd` fail with EAGAIN instead of waiting.
pub(crate) fn set_nonblocking(fd: RawFd, what: &str) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and give integers; a bad descriptor is an error.
    let result = unsafe {
        match libc::fcntl(fd, libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if result == -1 { Err(failed(format!("O_NONBLOCK on {what}"), last_errno())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_call_kind_and_number() {
        let e = failed("ibv_query_port of mlx5_0:1", libc::ENODEV);
        assert_eq!(errno_of(&e), Some(libc::ENODEV));
        assert!(e.to_string().starts_with("ibv_query_port of mlx5_0:1: No such device"), "{e}");
        assert_eq!(failed("x", libc::ENOENT).kind(), io::ErrorKind::NotFound);
        assert_eq!(errno_of(&io::Error::from_raw_os_error(5)), Some(5));
        assert_eq!(errno_of(&io::Error::other("none")), None);
    }

    #[test]
    fn results_of_every_style_become_errors() {
        assert!(check(0, || "x".into()).is_ok());
        for result in [libc::EINVAL, -libc::EINVAL] {
            let e = check(result, || "x".into()).expect_err("a result that isn't 0");
            assert_eq!(errno_of(&e), Some(libc::EINVAL));
        }
        assert_eq!(errno_from(i32::MIN), libc::EIO);
    }

    #[test]
    fn failed_destroys_are_counted() {
        let before = drop_failures();
        assert!(destroyed(0));
        assert!(!destroyed(libc::EBUSY));
        assert!(drop_failures() > before);
    }

    #[test]
    fn a_bad_descriptor_is_an_error() {
        let e = set_nonblocking(-1, "nothing").expect_err("descriptor -1");
        assert_eq!(errno_of(&e), Some(libc::EBADF));
    }
}
