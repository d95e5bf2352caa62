//! An allocator that counts, for the thread that asks.
#![allow(unsafe_code)] // an allocator is an unsafe trait

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Calls of the allocator and bytes in use, of this thread.
    static COUNTS: Cell<(usize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize) {
    // Without a value while the thread ends: nobody looks then.
    let _ = COUNTS.try_with(|counts| {
        let (calls, used) = counts.get();
        counts.set((calls + 1, used + bytes));
    });
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the promises, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the promises, which are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the allocator and bytes in use, of this thread.
pub fn counts() -> (usize, isize) {
    COUNTS.get()
}
