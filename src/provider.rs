//! Providers that are loaded: shared objects with the interface of `infiniband/acm_prov.h` (ibacm_prov(7)).
//!
//! A plug-in runs on threads of its own, as it does in rdma-core's service: one makes the calls into it, one tells it
//! what the SA answered, and it may have more. The loop never waits for any of them: what it wants of a plug-in goes
//! through a queue to the plug-in's thread, and what a plug-in wants of the service, from whatever thread, comes through
//! a queue and a wake-up to the loop.

pub mod abi;
pub mod calls;
pub mod cancel;
pub mod core;
pub mod handover;
pub mod load;
pub mod mads;
pub mod netdev;
mod object;
pub mod place;
mod probe;
mod registry;
mod sync;
pub mod tree;
pub mod worker;

use crate::engine::{AskId, EpId, MadToken};
use ibacm_wire::sa::SaMad;

/// What comes from the threads of plug-ins to the loop.
#[derive(Debug)]
pub enum Notice {
    /// `acm_resolve_response` or `acm_query_response`: the answer to an open question.
    Answer {
        /// The question.
        id: AskId,
        /// The answer.
        message: Box<abi::Message>,
    },
    /// What `query_perf` reports, host order.
    Counters {
        /// The question.
        id: AskId,
        /// The counters, 0 to 255 of them.
        values: Vec<u64>,
    },
    /// The call returned an error, or could not be made since nothing is open at the plug-in.
    Refused {
        /// The question.
        id: AskId,
    },
    /// `acm_send_sa_mad`: a question to the SA of the endpoint's port.
    Mad {
        /// Comes back with the end of it.
        token: MadToken,
        /// The endpoint.
        ep: EpId,
        /// The question, with a transaction id of the plug-in's choice.
        mad: Box<SaMad>,
    },
    /// The plug-in has closed what it had open of devices that are wanted no more.
    Closed,
}
