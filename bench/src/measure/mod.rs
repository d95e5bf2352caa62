//! What is measured, in groups that share services.

mod artefact;
mod cached;
mod cold;
mod many;
mod process;

use crate::Outcome;
use crate::args::Args;
use crate::lab::Lab;
use crate::report::Report;

/// A group of measurements.
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub what: &'static str,
    /// Does it.
    pub run: fn(&Lab, &Args, &mut Report) -> Outcome<()>,
}

/// All groups, in the order in which they are made.
pub const GROUPS: &[Group] = &[
    Group { name: "latency", what: "cached answers, one connection", run: cached::latency },
    Group { name: "throughput", what: "cached answers, 1 to 1000 connections", run: cached::throughput },
    Group { name: "pipeline", what: "cached answers, one connection, 1 to 64 outstanding", run: cached::pipeline },
    Group { name: "connected", what: "20,000 connections, 64 of them active", run: many::connected },
    Group { name: "cold", what: "destinations that are not known, one after another", run: cold::one_by_one },
    Group { name: "burst", what: "256 destinations at once, peers answer after 1 ms", run: cold::burst },
    Group { name: "dead", what: "8 destinations behind one that nobody answers for", run: cold::behind_dead },
    Group { name: "start", what: "start to first answer, and memory and threads then", run: process::start },
    Group { name: "idle", what: "wake-ups of a service that has nothing to do", run: process::idle },
    Group { name: "memory", what: "memory of cached destinations", run: process::memory },
    Group { name: "preload", what: "10,000 and 48,000 LIDs from OpenSM's dump", run: process::preload },
    Group { name: "program", what: "size, libraries and crates of the program", run: artefact::program },
];
