//! What a process has once, and code that somebody else wrote may change for all: signals, the file mode mask, the
//! directory.
#![allow(unsafe_code)] // Calls that the standard library doesn't have.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr;

/// Signals that the service reads from a descriptor, or ignores.
const SIGNALS: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE];

/// As it was; comes back when this is dropped, on the same thread.
pub struct Kept {
    mask: libc::sigset_t,
    actions: [Option<libc::sigaction>; 4],
    umask: libc::mode_t,
    directory: Option<PathBuf>,
}

impl Kept {
    /// As it is now. To be called while there is one thread.
    pub fn new() -> Kept {
        let mut mask = MaybeUninit::zeroed();
        // SAFETY: no new set, and a place for the present one; all zeroes is a valid one if that fails.
        let mask = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        let actions = SIGNALS.map(|signal| {
            let mut action = MaybeUninit::zeroed();
            // SAFETY: no new action, and a place for the present one, which is filled in when it gives 0.
            unsafe { (libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0).then(|| action.assume_init()) }
        });
        // SAFETY: no pointers. Nothing but setting the mask tells what it is.
        let umask = unsafe {
            let umask = libc::umask(0o077);
            libc::umask(umask);
            umask
        };
        Kept { mask, actions, umask, directory: std::env::current_dir().ok() }
    }
}

impl Default for Kept {
    fn default() -> Self {
        Kept::new()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (signal, action) in SIGNALS.into_iter().zip(&self.actions) {
            if let Some(action) = action {
                // SAFETY: what sigaction itself filled in.
                unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
            }
        }
        // SAFETY: what pthread_sigmask itself filled in; and a number.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
            libc::umask(self.umask);
        }
        if let Some(directory) = &self.directory {
            let _ = std::env::set_current_dir(directory);
        }
    }
}
