//! The kernel's local service: its questions for paths and GIDs, and until when each has to be answered. Pure: what
//! was received and the time are arguments, answers come back as values.
//!
//! A question goes to the engine as a client's request would, under a [`ClientId`] that no client has. The kernel
//! waits only so long before it asks the subnet administrator by itself, so a question that is still open shortly
//! before is refused: the kernel then goes on at once.

use std::collections::BTreeSet;
use std::time::Duration;

#[path = "local_service_message.rs"]
pub mod message;

use crate::engine::{ClientId, Outcome};
use crate::time::Time;
use message::{Answer, Context, Question, Request};

/// Questions that may wait for an answer; further ones get what is cached or are refused.
pub const MAX_OPEN: usize = 4096;
/// Those and questions that were refused while the engine still works on them.
const MAX_KEPT: usize = 4 * MAX_OPEN;
/// How long the kernel waits unless somebody sets another time.
const WAIT: Duration = Duration::from_secs(2);
/// Set in the ids of the kernel's questions and in no other [`ClientId`].
const KERNEL: u64 = 1 << 63;
/// The generation of a place has 31 bits in an id.
const GENERATIONS: u32 = 1 << 31;

/// Whether a reply is for the kernel.
#[must_use]
pub fn is_kernel(id: ClientId) -> bool {
    id.0 & KERNEL != 0
}

/// Hands questions to the engine.
pub trait Resolver {
    /// Asks. A reply that is known at once is appended to `reply`; with `Pending` it comes later, under `id`. `Close`
    /// says that the question makes no sense. Without `wait` the outcome is not `Pending`.
    fn ask(&mut self, id: ClientId, question: &Question, wait: bool, reply: &mut Vec<u8>) -> Outcome;
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Questions that were understood.
    pub questions: u64,
    /// Questions that were answered.
    pub answered: u64,
    /// Questions that were refused, for whatever reason.
    pub refused: u64,
    /// Of those: for want of an answer in time.
    pub late: u64,
    /// Questions beyond [`MAX_OPEN`].
    pub crowded: u64,
    /// Messages whose lengths contradict each other, and requests that cannot be understood.
    pub malformed: u64,
    /// Messages that are none of the local service: errors and acknowledgements among them.
    pub ignored: u64,
}

/// A question that the engine works on.
#[derive(Clone, Copy, Debug)]
struct Open {
    context: Context,
    /// `None` when it has been refused.
    deadline: Option<Time>,
}

/// A place for a question; used again under another generation, so that an old id finds nobody.
#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    open: Option<Open>,
}

/// The kernel's open questions.
#[derive(Debug)]
pub struct LocalService {
    port: u32,
    wait: Duration,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Deadlines of open questions and their places. A pair of numbers, so that there is one kind of such sets.
    deadlines: BTreeSet<(u64, u64)>,
    counters: Counters,
    reply: Vec<u8>,
}

impl LocalService {
    /// Without questions. `port` is the port id of the socket that is used.
    #[must_use]
    pub fn new(port: u32) -> LocalService {
        LocalService {
            port,
            wait: WAIT,
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: BTreeSet::new(),
            counters: Counters::default(),
            reply: Vec::new(),
        }
    }

    /// A datagram of the kernel's: what can be answered at once goes to `answer`.
    pub fn received(
        &mut self,
        now: Time,
        datagram: &[u8],
        resolver: &mut dyn Resolver,
        answer: &mut dyn FnMut(Answer),
    ) {
        for message in message::messages(datagram) {
            match message.map_or(Request::Malformed, |m| m.request()) {
                Request::Ask(context, question) => {
                    if let Some(known) = self.ask(now, context, &question, resolver) {
                        answer(known);
                    }
                }
                Request::Refuse(context) => {
                    self.counters.malformed += 1;
                    self.counters.refused += 1;
                    answer(Answer::refusal(self.port, context));
                }
                Request::Wait(wait) => self.wait = wait,
                Request::Nothing => self.counters.ignored += 1,
                Request::Malformed => self.counters.malformed += 1,
            }
        }
    }

    fn ask(&mut self, now: Time, context: Context, question: &Question, resolver: &mut dyn Resolver) -> Option<Answer> {
        self.counters.questions += 1;
        let place = self.place();
        let id = match place {
            Some(index) => self.id(index),
            None => ClientId(u64::MAX),
        };
        if place.is_none() {
            self.counters.crowded += 1;
        }
        self.reply.clear();
        match (resolver.ask(id, question, place.is_some(), &mut self.reply), place) {
            (Outcome::Pending, Some(index)) => {
                self.keep(index, now, context);
                None
            }
            (Outcome::Replied, _) => Some(self.judge(context, None)),
            _ => Some(self.refuse(context)),
        }
    }

    /// The place that the next question is to have.
    fn place(&self) -> Option<u32> {
        if self.deadlines.len() >= MAX_OPEN {
            return None;
        }
        let new = (self.slots.len() < MAX_KEPT).then_some(self.slots.len() as u32);
        self.free.last().copied().or(new)
    }

    fn id(&self, index: u32) -> ClientId {
        let generation = self.slots.get(index as usize).map_or(0, |s| s.generation);
        ClientId(KERNEL | u64::from(generation) << 32 | u64::from(index))
    }

    /// Puts a question into the place that [`LocalService::place`] gave.
    fn keep(&mut self, index: u32, now: Time, context: Context) {
        let deadline = now.plus(self.wait / 10 * 9);
        let open = Some(Open { context, deadline: Some(deadline) });
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                slot.open = open;
                self.free.pop();
            }
            None => self.slots.push(Slot { generation: 0, open }),
        }
        self.deadlines.insert((deadline.0, u64::from(index)));
    }

    /// The reply to a client's request under `id`, for the kernel; `None` if it waits no longer.
    pub fn answered(&mut self, id: ClientId, reply: &[u8]) -> Option<Answer> {
        let (index, generation) = (id.0 as u32, (id.0 >> 32) as u32 & (GENERATIONS - 1));
        let slot = self.slots.get_mut(index as usize).filter(|s| s.generation == generation)?;
        let open = slot.open.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(index);
        let deadline = open.deadline?;
        self.deadlines.remove(&(deadline.0, u64::from(index)));
        Some(self.judge(open.context, Some(reply)))
    }

    /// The kernel's form of a reply: this one, or that which the resolver gave.
    fn judge(&mut self, context: Context, reply: Option<&[u8]>) -> Answer {
        let answer = Answer::from_reply(self.port, context, reply.unwrap_or(&self.reply));
        if answer == Answer::refusal(self.port, context) {
            self.counters.refused += 1;
        } else {
            self.counters.answered += 1;
        }
        answer
    }

    fn refuse(&mut self, context: Context) -> Answer {
        self.counters.refused += 1;
        Answer::refusal(self.port, context)
    }

    /// When [`LocalService::on_time`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |(at, _)| Time(*at))
    }

    /// Refuses a question whose time is up; to be called until there is none.
    pub fn on_time(&mut self, now: Time) -> Option<Answer> {
        let (at, index) = self.deadlines.first().copied()?;
        if at > now.0 {
            return None;
        }
        self.deadlines.pop_first();
        // the place stays taken until the engine is done with it: its work is bounded that way
        let open = self.slots.get_mut(index as usize)?.open.as_mut()?;
        open.deadline = None;
        let context = open.context;
        self.counters.late += 1;
        Some(self.refuse(context))
    }

    /// Questions that wait for an answer.
    #[must_use]
    pub fn open(&self) -> usize {
        self.deadlines.len()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
#[path = "local_service_tests.rs"]
mod tests;
