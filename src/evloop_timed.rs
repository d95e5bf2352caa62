//! The engine, and when it is to be woken.
//!
//! Finding the next deadline means looking at every port and endpoint. An answer that is known moves none of them, so what
//! was found holds while there is nothing else: whoever takes the engine to change something has it found again.

use std::ops::{Deref, DerefMut};

use ibacm_wire::client::More;

use crate::engine::{ClientId, Engine, Outcome, RouteLookup};
use crate::time::Time;

/// An engine whose next deadline is remembered.
pub(super) struct TimedEngine {
    engine: Engine,
    due: Option<Time>,
}

impl TimedEngine {
    pub fn new(engine: Engine) -> TimedEngine {
        TimedEngine { engine, due: None }
    }

    /// See [`Engine::next_deadline`].
    pub fn next_deadline(&mut self) -> Time {
        debug_assert!(self.due.is_none_or(|due| due == self.engine.next_deadline()), "a deadline has moved unseen");
        *self.due.get_or_insert_with(|| self.engine.next_deadline())
    }

    /// See [`Engine::request`].
    pub fn request(
        &mut self,
        now: Time,
        client: ClientId,
        msg: &[u8],
        routes: &mut dyn RouteLookup,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let outcome = self.engine.request(now, client, msg, routes, out);
        if !self.engine.was_known() {
            self.due = None;
        }
        outcome
    }

    /// See [`Engine::observe`].
    pub fn observe(&mut self, counter: More, so_far: u64) {
        self.engine.observe(counter, so_far);
    }
}

impl Deref for TimedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for TimedEngine {
    fn deref_mut(&mut self) -> &mut Engine {
        self.due = None;
        &mut self.engine
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ibacm_wire::client::{EP_FLAG_DEST, resolve_request};

    use super::*;
    use crate::engine::{Action, Config};
    use crate::fuzzing::names;

    /// An engine that serves one port with one address.
    fn engine() -> TimedEngine {
        let mut engine = Engine::new(Config::default(), (1, 2));
        engine.set_port(Time(0), names::port(0));
        engine.set_system_addrs(names::system(1));
        while let Some(action) = engine.next_action() {
            if let Action::Open { ep, .. } = action {
                engine.endpoint_opened(Time(0), ep, 7);
            }
        }
        TimedEngine::new(engine)
    }

    /// Asks for the address of a host.
    fn ask(engine: &mut TimedEngine, host: usize) -> Outcome {
        let (message, length) = resolve_request(1, &[names::entry(EP_FLAG_DEST, host, 0)]);
        let mut routes = |_: IpAddr| Ok(names::ip(0, 0));
        engine.request(Time(1), ClientId(1), &message[..length], &mut routes, &mut Vec::new())
    }

    #[test]
    fn the_deadline_is_found_again_after_all_but_known_answers() {
        let mut engine = engine();
        let due = Some(engine.next_deadline());
        assert_eq!((ask(&mut engine, 0), engine.due), (Outcome::Replied, due), "an own address is known");
        engine.observe(More::LogLost, 1);
        assert_eq!(engine.due, due);
        assert_eq!((ask(&mut engine, 1), engine.due), (Outcome::Pending, None));
        engine.next_deadline();
        engine.client_gone(ClientId(1));
        assert_eq!(engine.due, None);
    }
}
