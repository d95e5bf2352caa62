//! What the engine asks its surroundings to do, and the names that both use.

use std::net::IpAddr;
use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::{ENTRY_LEN, HDR_LEN};
use ibacm_wire::datagram;
use ibacm_wire::sa::SaMad;

use super::plugged::{AskId, Call, MadToken, ProviderId};
use crate::cache::DestId;
use crate::local_service::is_kernel;
use crate::time::Time;
use crate::turns::Cause;

/// A client connection, as its server names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(pub u64);

impl ClientId {
    /// For whom it asks. The kernel's questions have a number each.
    pub(super) fn cause(self) -> Cause {
        if is_kernel(self) { Cause::KERNEL } else { Cause::client(self.0) }
    }
}

/// A port of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

/// An endpoint: a partition of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpId(pub u32);

/// Names a question to the kernel's neighbour table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighbourToken {
    /// The endpoint whose interface is meant.
    pub ep: EpId,
    pub(super) dest: DestId,
    pub(super) number: u64,
}

/// Where a datagram goes: an address vector (IBA 11.2.2.1), always with a global route header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Av {
    /// Destination LID, host order.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Path bits of the own LID.
    pub src_path_bits: u8,
    /// Rate (IB enum) of the path, 0 for the port's.
    pub static_rate: u8,
    /// Destination GID.
    pub dgid: Gid,
    /// Index of the source GID in the port's table.
    pub sgid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// What a received datagram came with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rx {
    /// Source GID of the global route header.
    pub sgid: Gid,
    /// Destination GID of the global route header.
    pub dgid: Gid,
    /// Source LID, host order.
    pub slid: u16,
    /// Source QP number.
    pub src_qp: u32,
    /// Path bits of the own LID that it was sent to.
    pub dlid_path_bits: u8,
}

/// A reply to a resolve request: at most a header and two entries.
#[derive(Clone, Copy)]
pub struct Reply {
    len: u8,
    bytes: [u8; HDR_LEN + 2 * ENTRY_LEN],
}

impl Reply {
    /// A reply that is `header` alone.
    pub fn new(header: [u8; HDR_LEN]) -> Reply {
        let mut r = Reply { len: HDR_LEN as u8, bytes: [0; HDR_LEN + 2 * ENTRY_LEN] };
        r.bytes[..HDR_LEN].copy_from_slice(&header);
        r
    }

    /// Adds an entry; a third one is left out.
    pub fn push(&mut self, entry: &[u8; ENTRY_LEN]) {
        let at = usize::from(self.len);
        if let Some(place) = self.bytes.get_mut(at..at + ENTRY_LEN) {
            place.copy_from_slice(entry);
            self.len += ENTRY_LEN as u8;
        }
    }

    /// The reply's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({:02x?})", self.as_bytes())
    }
}

/// Something to do.
#[derive(Debug)]
pub enum Action {
    /// Create the endpoint's QP, then call `endpoint_opened` or `endpoint_failed`.
    Open {
        /// The endpoint.
        ep: EpId,
        /// Its port.
        port: PortId,
        /// Index of its P_Key in the port's table.
        pkey_index: u16,
    },
    /// Destroy the endpoint's QP, if there is one.
    Close {
        /// The endpoint.
        ep: EpId,
    },
    /// Attach the endpoint's QP to a group.
    Attach {
        /// The endpoint.
        ep: EpId,
        /// The group.
        mgid: Gid,
        /// Its LID, host order.
        mlid: u16,
    },
    /// Detach it.
    Detach {
        /// The endpoint.
        ep: EpId,
        /// The group.
        mgid: Gid,
        /// Its LID, host order.
        mlid: u16,
    },
    /// Send a datagram, then call `sent` with the token.
    Send {
        /// The endpoint.
        ep: EpId,
        /// Comes back with `sent`.
        token: u64,
        /// Where to.
        av: Av,
        /// QP number there.
        qpn: u32,
        /// The payload.
        payload: Box<[u8; datagram::LEN]>,
    },
    /// Send a MAD to the SA; the answer, or the MAD itself with a status, comes back through `mad_received`, a failure
    /// to send through `mad_failed`.
    Mad {
        /// The port.
        port: PortId,
        /// The transaction id that is in it.
        tid: u32,
        /// The SA's LID, host order.
        lid: u16,
        /// Service level to it.
        sl: u8,
        /// Index of the P_Key to send with.
        pkey_index: u16,
        /// How long the kernel waits for an answer.
        timeout_ms: u32,
        /// How often it asks again.
        retries: u32,
        /// The MAD.
        mad: Box<SaMad>,
    },
    /// Look for an address in the kernel's neighbour table, on an interface of the endpoint's port and partition, and
    /// have the kernel look for it if it is not there; then call `neighbour`, at the latest at `until`.
    AskNeighbour {
        /// Comes back with `neighbour`.
        token: NeighbourToken,
        /// The address.
        ip: IpAddr,
        /// When the answer is of no use any more.
        until: Time,
    },
    /// Send a MAD that answers one, and for which no answer comes.
    Respond {
        /// The port.
        port: PortId,
        /// Where to, host order.
        lid: u16,
        /// Service level to it.
        sl: u8,
        /// Index of the P_Key to send with.
        pkey_index: u16,
        /// The MAD.
        mad: Box<SaMad>,
    },
    /// Answer a client.
    Reply {
        /// The client.
        client: ClientId,
        /// The answer.
        reply: Box<[u8]>,
    },
    /// What is to be open at providers for this port has changed: see `Engine::plugged`.
    Plugged {
        /// The port.
        port: PortId,
    },
    /// Ask a provider; then call `provider_answered`, `provider_counters` or `provider_refused` with the id, once.
    Ask {
        /// The provider.
        provider: ProviderId,
        /// The endpoint's port.
        port: PortId,
        /// The endpoint.
        ep: EpId,
        /// Comes back with the answer.
        id: AskId,
        /// What is asked.
        call: Call,
    },
    /// Nobody waits for the answer to this any more.
    Forget {
        /// As in `Ask`.
        id: AskId,
    },
    /// A provider has not answered in time: say so in the log.
    Late {
        /// The provider.
        provider: ProviderId,
        /// The function that was to be called.
        function: &'static str,
        /// How long ago.
        waited: Duration,
    },
    /// Tell the port's provider that the subnet manager wants all registrations once more.
    Reregister {
        /// The provider.
        provider: ProviderId,
        /// The port.
        port: PortId,
    },
    /// The end of a MAD that a provider sent: the answer with the transaction id of the provider's, or an errno.
    MadDone {
        /// As given to `provider_mad`.
        token: MadToken,
        /// The answer.
        result: Result<Box<SaMad>, i32>,
    },
    /// Write a line to the log.
    Log {
        /// 0 to 2.
        level: u8,
        /// Strangers or clients can cause it as often as they like.
        limited: bool,
        /// The line.
        text: String,
    },
}
