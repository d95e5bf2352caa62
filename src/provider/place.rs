//! In which call a plug-in is, and since when: what is to be said of one that does not answer.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::registry::lock;

/// Where one thread of a plug-in's is.
#[derive(Default)]
pub struct Place(Mutex<Option<(&'static str, Instant)>>);

/// While there is one, the thread is in the call.
pub struct Inside<'a>(&'a Place);

impl Place {
    /// The thread makes a call.
    pub fn enter(&self, call: &'static str) -> Inside<'_> {
        *lock(&self.0) = Some((call, Instant::now()));
        Inside(self)
    }

    /// The call that the thread is in, and for how long it has been.
    pub fn look(&self) -> Option<(&'static str, Duration)> {
        let (call, since) = (*lock(&self.0))?;
        Some((call, since.elapsed()))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_a_call_until_that_returns() {
        let place = Place::default();
        assert_eq!(place.look(), None);
        let inside = place.enter("resolve");
        std::thread::sleep(Duration::from_millis(2));
        let (call, time) = place.look().expect("it is in a call");
        assert!(call == "resolve" && time >= Duration::from_millis(2), "{call} {time:?}");
        drop(inside);
        assert_eq!(place.look(), None);
    }
}
