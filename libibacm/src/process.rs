//! Which process this is, without asking the system each time.
#![allow(unsafe_code, reason = "memory that the system clears in a child")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Where the number is kept: a page that is clear again in a forked child. 0 is a number that was not given yet.
static KNOWN: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// A number for this process that none of those has which it descends from. The system's own number can be that of an
/// ancestor again, at once if it is the first of a PID namespace.
pub fn id() -> u64 {
    /// The last number that was given, here or in an ancestor.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let Some(known) = page() else { return u64::from(std::process::id()) };
    match known.load(Ordering::Relaxed) {
        0 => {
            let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            known.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|others| others, |_| id)
        }
        id => id,
    }
}

/// The page, if there can be one. No lock is taken: its holder might not be in a child.
fn page() -> Option<&'static AtomicU64> {
    let mut page = KNOWN.load(Ordering::Acquire);
    if page.is_null() {
        let made = make()?;
        page = match KNOWN.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(others) => {
                // SAFETY: the page was mapped just now, and nobody has learned of it.
                unsafe { libc::munmap(made.cast(), size_of::<AtomicU64>()) };
                others
            }
        };
    }
    // SAFETY: the page stays once it is known; all zero bytes are a valid number, and it is only used atomically.
    Some(unsafe { &*page })
}

fn make() -> Option<*mut AtomicU64> {
    // The system rounds it up to a page.
    let length = size_of::<AtomicU64>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which takes nobody's place.
    let page = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // Linux before 4.14 cannot.
    // SAFETY: the range is that of the mapping.
    if unsafe { libc::madvise(page, length, libc::MADV_WIPEONFORK) } == 0 {
        return Some(page.cast());
    }
    // SAFETY: the mapping was made here, and nobody has learned of it.
    unsafe { libc::munmap(page, length) };
    None
}

#[cfg(test)]
mod tests {
    use super::id;

    /// What a child says of itself, by its exit status.
    fn in_child(what: fn() -> u8) -> i32 {
        // SAFETY: the child calls nothing that takes a lock, and ends without running what its parent has registered.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers are passed.
            unsafe { libc::_exit(what().into()) };
        }
        let mut status = -1;
        // SAFETY: the status lives during the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_child_has_a_number_that_no_ancestor_has() {
        let own = id();
        assert_eq!(id(), own);
        let child = in_child(|| if id() == id() { id() as u8 } else { 0 });
        assert!(child > own as i32, "{child}");
        let grandchild = in_child(|| {
            id();
            in_child(|| id() as u8) as u8
        });
        assert_eq!(grandchild, child + 1);
        assert_eq!(id(), own);
    }
}
