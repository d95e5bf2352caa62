//! Threads of plug-ins may be cancelled (pthread_cancel(3)). Cancelled in the middle of a call into the service, where it
//! writes a line or wakes the loop, one would leave with a lock of the service: whoever wants that next, such as the loop,
//! would wait for ever.
#![allow(unsafe_code)] // pthread_setcancelstate(3), which the libc crate doesn't have.

use std::ffi::c_int;

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// As long as this lives, its thread is not cancelled. What was asked for meanwhile happens at the thread's next
/// cancellation point.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// From now on.
    pub fn new() -> Uncancelled {
        let mut before = DISABLE;
        // SAFETY: a state that there is, and a place for the one before.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Uncancelled::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that it was; nobody wants to know what it is.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
