//! What the calls of one process share, and how results become numbers.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use libibacm::{Client, Error, Path, PerProcess, Target, inherited};

use crate::fork;

/// The client of a process, once there is one.
pub type Shared = Mutex<Option<Arc<Client>>>;

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

fn shared() -> &'static Shared {
    static SHARED: PerProcess<Shared> = PerProcess::new();
    // The client goes on with the parent's settings; it starts anew by itself.
    SHARED.get(|parent| Mutex::new(parent.and_then(|p| inherited(p)?.clone())))
}

/// The lock is held for moments only, never while a call waits.
fn lock() -> MutexGuard<'static, Option<Arc<Client>>> {
    fork::prepare();
    shared().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, if nobody has it. Whoever forks takes it, so that the child finds the settings.
pub fn try_lock() -> Option<MutexGuard<'static, Option<Arc<Client>>>> {
    match shared().try_lock() {
        Ok(client) => Some(client),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The client of this process.
pub fn client() -> Arc<Client> {
    lock().get_or_insert_with(Arc::default).clone()
}

/// Replaces the client by one that differs from it as `change` says; calls that wait keep theirs.
fn replace(change: impl FnOnce(&Client) -> Client) {
    let mut shared = lock();
    let new = change(shared.get_or_insert_with(Arc::default));
    let old = shared.replace(Arc::new(new));
    drop(shared);
    // Its connection is closed without the lock.
    drop(old);
}

/// Later calls go there.
pub fn set_target(target: Target) {
    replace(|client| Client::new(target).with_limit(client.limit()));
}

/// Later calls have this time.
pub fn set_limit(limit: Duration) {
    replace(|client| Client::new(client.target().clone()).with_limit(limit));
}

/// A failure as one number: a status, or a negative errno.
pub fn number(error: &Error) -> c_int {
    match error {
        Error::Status(status) => c_int::from(*status),
        other => -other.errno().unwrap_or(libc::EIO),
    }
}

/// What a call returns: what is negative goes into `errno`.
pub fn plain(number: c_int) -> c_int {
    if number < 0 { fail(-number) } else { number }
}

/// The same for a call that asks the service, remembered for its thread.
pub fn result(number: c_int) -> c_int {
    let value = plain(number);
    // A thread that is ending has nobody left to ask.
    let _ = LAST.try_with(|last| last.set(value));
    value
}

/// Sets `errno`; gives -1.
pub fn fail(errno: c_int) -> c_int {
    crate::boundary::set_errno(errno);
    -1
}

/// What the last call of this thread that asks the service has returned.
pub fn last() -> c_int {
    LAST.try_with(Cell::get).unwrap_or(0)
}

/// A call's answer as a number, with what is done with a success.
pub fn answer<T>(answer: Result<T, Error>, take: impl FnOnce(T) -> c_int) -> c_int {
    match answer {
        Ok(found) => take(found),
        Err(e) => number(&e),
    }
}

/// The same for a path, as the result of the call.
pub fn finish(found: Result<Path, Error>, take: impl FnOnce(Path) -> c_int) -> c_int {
    result(answer(found, take))
}
