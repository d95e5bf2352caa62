//! Forking while other threads are in the middle of something that a child could not go on with: whoever forks waits
//! for them, a little.
#![allow(unsafe_code, reason = "calls the C library")]

use std::cell::RefCell;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libibacm::Client;

use crate::{devices, state};

/// How long a fork waits. What takes longer, as a device that hangs, the child has to do without; and so it has where
/// a signal has interrupted this very thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a thread holds while it forks.
struct Held {
    _shared: Option<MutexGuard<'static, Option<std::sync::Arc<Client>>>>,
    _asking: Option<MutexGuard<'static, bool>>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Forks of this process wait from now on.
pub fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    if !PREPARED.load(Ordering::Acquire) {
        // Two threads may do so; the second pair of calls at a fork finds everything done.
        // SAFETY: the functions take nothing and are there as long as this library. Without memory for them forks do
        // not wait.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        PREPARED.store(true, Ordering::Release);
    }
}

extern "C" fn before() {
    let until = Instant::now() + PATIENCE;
    // A thread that is ending holds nothing.
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut()
            && held.is_none()
        {
            // The one that can take long comes first.
            let asking = wait(until, devices::try_lock);
            *held = Some(Held { _shared: wait(until, state::try_lock), _asking: asking });
        }
    });
}

/// In the parent and in the child.
extern "C" fn after() {
    let _ = HELD.try_with(|held| held.try_borrow_mut().map(|mut held| held.take()));
}

fn wait<T>(until: Instant, lock: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        match lock() {
            None if Instant::now() < until => thread::sleep(Duration::from_micros(100)),
            locked => return locked,
        }
    }
}
