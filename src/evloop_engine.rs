//! The engine, and when it is to be woken.
//!
//! Finding the next deadline means looking at every port and endpoint. An answer that is known moves none of them, so what
//! was found holds while there is nothing else: whoever takes the engine to change something has it found again.

use std::ops::{Deref, DerefMut};

use ibacm_wire::client::More;

use crate::engine::{Action, ClientId, Engine, Outcome, RouteLookup};
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

    /// See [`Engine::next_action`].
    pub fn next_action(&mut self) -> Option<Action> {
        let action = self.engine.next_action();
        if action.is_some() {
            self.due = None;
        }
        action
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
