//! Goes through the orders in which threads may meet in the queues of `src/provider/handover.rs`: the file itself, with
//! loom's types in place of the standard library's. A thread that would wait for ever, because a wake-up was lost, is
//! found as a deadlock.

#[path = "../../../src/provider/handover.rs"]
pub mod handover;

/// What the queues wait with here.
pub mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
}

#[cfg(test)]
mod models;
