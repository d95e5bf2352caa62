//! Client of the InfiniBand communication management assistant (`ibacm`): paths by name, by address or by a part of
//! their record, and the service's counters and endpoints.
//!
//! [`Client`] is for callers that wait: every call has a time limit, and any number of threads may share one.
//! [`Session`] is for callers that have an event loop: requests are submitted, a descriptor is watched, results come.
//!
//! Both connect at the first request, find the service again after it has been restarted, and start anew in a process
//! that has been forked. A request is sent again when the connection is lost before its answer; all requests of the
//! protocol are questions, so that one more does no harm.
//!
//! # More than one request at a time
//!
//! Some services take what one read returns for one request, and close the connection when it holds two. Which kind
//! one is cannot be asked. So one request is outstanding at a time until there are two to send: these go in one write.
//! If both are answered, the service reads requests one by one whatever the stream's segments are, and up to
//! [`Session::WINDOW`] may be outstanding on that connection. If it closes the connection instead, nothing was
//! answered and nothing is lost: both are sent again, one after the other, and the trial is not repeated for a while.
#![deny(unsafe_code)]

mod client;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod link;
mod message;
mod name;
mod per_process;
mod process;
mod session;
mod sys;
mod target;

pub use client::Client;
pub use error::{During, Error, Violation, status_text};
pub use ibacm_wire::client::{Kind, More, Row, Status};
pub use ibacm_wire::{Gid, PathRecord};
pub use message::{Address, Counters, Endpoint, Path, Reply, Request, Scope};
pub use name::Name;
#[doc(hidden)]
pub use per_process::{PerProcess, inherited};
pub use session::{Session, Ticket};
#[doc(hidden)]
pub use sys::Uncancelled;
#[doc(hidden)]
pub use target::look_up;
pub use target::{ACME_PORT_FILE, ACME_SOCKET_FILE, DEFAULT_PORT, PORT_FILE, SOCKET_FILE, Target, published_port_in};
