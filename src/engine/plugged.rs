//! Ports that a plug-in serves in place of the built-in provider: the engine knows their endpoints and addresses, hands
//! requests over and answers clients, once each; all else is the provider's.

use ibacm_wire::Gid;
use ibacm_wire::client::MAX_REQUEST;

use super::action::EpId;
use crate::addr::Addr;

/// Bytes of a message as providers know it (`struct acm_msg` of `infiniband/acm.h`).
pub const MESSAGE: usize = MAX_REQUEST;

/// A provider other than the built-in one: its place in [`Providers::names`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProviderId(pub u16);

/// The providers beside the built-in one, and which subnets they serve. `None` stands for the built-in one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Providers {
    /// Their own names, as clients are shown them.
    pub names: Vec<String>,
    /// Subnet prefixes (host order) and who serves them; the first that fits holds.
    pub subnets: Vec<(u64, Option<ProviderId>)>,
    /// Who serves all other subnets.
    pub default: Option<ProviderId>,
    /// How long a provider may take for an answer, in milliseconds.
    pub timeout_ms: u32,
}

/// Names a question to a provider: unpredictable, and never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AskId(pub u64);

/// Names a MAD that a provider has the SA asked with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MadToken(pub u64);

/// What a provider is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// `resolve` for the address at `place` of the endpoint.
    Resolve {
        /// As in [`PluggedAddr`].
        place: u32,
        /// The client's message; where it names no source, the chosen one is behind its entries, and the header says so.
        message: Box<[u8; MESSAGE]>,
    },
    /// `query` likewise.
    Query {
        /// As in [`PluggedAddr`].
        place: u32,
        /// The client's message.
        message: Box<[u8; MESSAGE]>,
    },
    /// `query_perf` of the endpoint.
    Counters,
}

/// What is to be open at a provider for one port, in the order of opening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plugged {
    /// The port's provider.
    pub provider: ProviderId,
    /// Differs from that of before where the port is to be closed and opened again.
    pub generation: u32,
    /// Name of the port's device.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// The port's GIDs.
    pub gids: Vec<Gid>,
    /// Endpoints that have an address.
    pub endpoints: Vec<PluggedEndpoint>,
}

/// An endpoint of a [`Plugged`] port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluggedEndpoint {
    /// The endpoint.
    pub ep: EpId,
    /// Its P_Key, host order.
    pub pkey: u16,
    /// Its addresses.
    pub addrs: Vec<PluggedAddr>,
}

/// An address of a [`PluggedEndpoint`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluggedAddr {
    /// Its place among the endpoint's. A place may get another address.
    pub place: u32,
    /// The address.
    pub addr: Addr,
    /// As it is shown.
    pub text: Vec<u8>,
}
