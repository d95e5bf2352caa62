//! What [`super::handover`] waits with. Its models in `tests/handover` put their own types in this place.

pub use std::sync::{Condvar, Mutex, MutexGuard};
