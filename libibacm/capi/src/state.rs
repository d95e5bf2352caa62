//! What the calls of one process share, and how results become numbers.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use libibacm::{Client, Error, Path, Target};

type Shared = Mutex<Option<Arc<Client>>>;

/// What one process shares. A forked process has its own, because a thread that is not in it may hold the lock.
struct Process {
    pid: u32,
    client: Shared,
    child: OnceLock<Box<Process>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();

impl Process {
    fn new(client: Option<Arc<Client>>) -> Process {
        Process { pid: std::process::id(), client: Mutex::new(client), child: OnceLock::new() }
    }
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The lock is held for moments only, never while a call waits.
fn lock() -> MutexGuard<'static, Option<Arc<Client>>> {
    let pid = std::process::id();
    let mut process = FIRST.get_or_init(|| Process::new(None));
    while process.pid != pid {
        let parent = process;
        // The client goes on with the parent's settings; it starts anew by itself.
        process = parent.child.get_or_init(|| {
            let client = parent.client.try_lock().ok().and_then(|c| c.clone());
            Box::new(Process::new(client))
        });
    }
    process.client.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client of this process.
pub fn client() -> Arc<Client> {
    lock().get_or_insert_with(Arc::default).clone()
}

/// Later calls go there; those that wait keep their client.
pub fn set_target(target: Target) {
    let mut client = lock();
    let limit = client.as_ref().map_or(Client::LIMIT, |c| c.limit());
    *client = Some(Arc::new(Client::new(target).with_limit(limit)));
}

/// Later calls have this time.
pub fn set_limit(limit: Duration) {
    let mut client = lock();
    let target = client.as_ref().map_or(Target::Published, |c| c.target().clone());
    *client = Some(Arc::new(Client::new(target).with_limit(limit)));
}

/// A failure as one number: a status, or a negative errno.
pub fn number(error: &Error) -> c_int {
    match error {
        Error::Status(status) => c_int::from(*status),
        other => -other.errno().unwrap_or(libc::EIO),
    }
}

/// What a call returns, remembered for its thread: what is negative goes into `errno`.
pub fn result(number: c_int) -> c_int {
    let value = if number < 0 { fail(-number) } else { number };
    // A thread that is ending has nobody left to ask.
    let _ = LAST.try_with(|last| last.set(value));
    value
}

/// Sets `errno`; gives -1.
pub fn fail(errno: c_int) -> c_int {
    crate::boundary::set_errno(errno);
    -1
}

/// What the last call of this thread has returned.
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
