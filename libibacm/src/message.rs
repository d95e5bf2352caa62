//! Requests as bytes, and replies checked against them.

use std::fmt;
use std::net::IpAddr;

use ibacm_wire::client::{
    COUNTERS, ENTRY_LEN, EP_CONFIG_LEN, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN,
    Header, MAX_ADDRESS, MAX_PROV_NAME, MORE, MORE_ROWS, More, OP_ACK, OP_EP_QUERY, OP_MASK, OP_PERF_QUERY, OP_RESOLVE,
    PERF_MORE, ROWS, Row, TYPE_IP, TYPE_IP6, TYPE_NAME, TYPE_PATH, VERSION,
};
use ibacm_wire::{Gid, PathRecord};

use crate::error::{Error, Violation};
use crate::name::Name;

/// A name or an address of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A name, of at most 63 bytes, compared without case.
    Name(Name),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

impl Address {
    /// An IP address if the text is one, else a name.
    pub fn parse(text: impl AsRef<[u8]>) -> Address {
        let bytes = text.as_ref();
        let ip = str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        ip.map_or_else(|| Address::Name(bytes.into()), Address::Ip)
    }

    fn entry(&self, flags: u32) -> Result<Entry, Error> {
        Ok(match self {
            Address::Name(n) => match n.as_bytes() {
                [] => return Err(Error::Request("an empty name")),
                n if n.len() >= MAX_ADDRESS => return Err(Error::Request("a name of 64 bytes or more")),
                n if n.contains(&0) => return Err(Error::Request("a name with a zero byte")),
                n => Entry::address(flags, TYPE_NAME, n),
            },
            Address::Ip(IpAddr::V4(a)) => Entry::address(flags, TYPE_IP, &a.octets()),
            Address::Ip(IpAddr::V6(a)) => Entry::address(flags, TYPE_IP6, &a.octets()),
        })
    }

    fn of_entry(entry: &Entry) -> Option<Address> {
        match entry.kind {
            TYPE_NAME => Some(Address::Name(text(&entry.info))),
            TYPE_IP => entry.info.first_chunk::<4>().map(|b| Address::Ip(IpAddr::from(*b))),
            TYPE_IP6 => entry.info.first_chunk::<16>().map(|b| Address::Ip(IpAddr::from(*b))),
            _ => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Name(name) => name.fmt(f),
            Address::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        Address::Ip(ip)
    }
}

/// What the service can be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The path to an address.
    Resolve {
        /// From here, an address of this host; if not given the service chooses.
        source: Option<Address>,
        /// To there.
        destination: Address,
        /// Only if it is known already: otherwise the answer is "no data" at once, and the look-up begins.
        cached_only: bool,
    },
    /// The path that completes a record, of which at least DLID or DGID are given.
    Path {
        /// What is known of it.
        record: PathRecord,
        /// Ask the subnet administrator, whatever is cached.
        query_sa: bool,
        /// Only if it is known already.
        cached_only: bool,
    },
    /// Counters.
    Counters(Scope),
    /// An endpoint of the service.
    Endpoint {
        /// Its number from 1.
        number: u8,
        /// Counts endpoints of ports with this number only; 0 is any.
        port: u8,
    },
}

/// Whose counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The whole service's.
    Totals,
    /// Those of an endpoint, by its number from 1.
    Endpoint(u8),
    /// Those of the endpoint that has this address.
    Address(Address),
}

/// A path that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The record.
    pub record: PathRecord,
    /// `IBV_PATH_FLAG_*`.
    pub flags: u32,
    /// The source that the service has chosen, where none was given.
    pub source: Option<Address>,
}

/// What the service counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Failures other than "no data".
    pub error: u64,
    /// Requests to resolve.
    pub resolve: u64,
    /// Answers of "no data".
    pub nodata: u64,
    /// Multicast requests for addresses.
    pub addr_query: u64,
    /// Addresses that were known, without the route.
    pub addr_cache: u64,
    /// Requests for routes to the subnet administrator.
    pub route_query: u64,
    /// Requests answered from the cache.
    pub route_cache: u64,
    /// In the order of [`More`]; what the service does not count is missing at the end.
    more: Vec<u64>,
}

impl Counters {
    /// One of those that not every service has; `None` from one that does not count it. Of an endpoint those are 0 that
    /// are the service's ([`Kind::Service`](crate::Kind)).
    pub fn more(&self, counter: More) -> Option<u64> {
        self.more.get(counter as usize).copied()
    }

    /// All of them with the names under which they are shown, in the service's order.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Row, Option<u64>)> {
        let c = self;
        let seven = [c.error, c.resolve, c.nodata, c.addr_query, c.addr_cache, c.route_query, c.route_cache];
        ROWS.iter().chain(&MORE_ROWS).zip(seven.map(Some).into_iter().chain((0..MORE).map(|i| c.more.get(i).copied())))
    }
}

/// An endpoint of the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// GUID of the device, host order.
    pub device_guid: u64,
    /// Number of the port.
    pub port: u8,
    /// How many ports the device has.
    pub ports: u8,
    /// The partition's key, host order.
    pub pkey: u16,
    /// Who serves it.
    pub provider: Name,
    /// Its addresses: names as they are, IP addresses as text with the length of their prefix.
    pub addresses: Vec<Name>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To [`Request::Resolve`] and [`Request::Path`].
    Path(Path),
    /// To [`Request::Counters`].
    Counters(Counters),
    /// To [`Request::Endpoint`].
    Endpoint(Endpoint),
}

impl Reply {
    /// The path, where the request was for one.
    pub fn into_path(self) -> Result<Path, Error> {
        match self {
            Reply::Path(path) => Ok(path),
            _ => Err(Error::Protocol(Violation::Contents("an answer to another question"))),
        }
    }
}

impl Request {
    fn operation(&self) -> u8 {
        match self {
            Request::Resolve { .. } | Request::Path { .. } => OP_RESOLVE,
            Request::Counters(_) => OP_PERF_QUERY,
            Request::Endpoint { .. } => OP_EP_QUERY,
        }
    }

    /// The request's bytes.
    pub(crate) fn emit(&self, tid: [u8; 8]) -> Result<Vec<u8>, Error> {
        let mut entries = Vec::new();
        let mut data = [0; 3];
        if matches!(self, Request::Counters(_)) {
            // A service that does not know it gives what it has.
            data[2] = PERF_MORE;
        }
        match self {
            Request::Resolve { source, destination, cached_only } => {
                let flag = if *cached_only { FLAG_NODELAY } else { 0 };
                if let Some(source) = source {
                    entries.push(source.entry(EP_FLAG_SOURCE)?);
                }
                entries.push(destination.entry(EP_FLAG_DEST | flag)?);
            }
            Request::Path { record, query_sa, cached_only } => {
                if record.dlid() == 0 && record.dgid().is_zero() {
                    return Err(Error::Request("a path without a destination"));
                }
                let asked = if *query_sa { FLAG_QUERY_SA } else { 0 };
                entries.push(Entry::path(asked | if *cached_only { FLAG_NODELAY } else { 0 }, record));
            }
            Request::Counters(Scope::Totals) => {}
            Request::Counters(Scope::Endpoint(0)) | Request::Endpoint { number: 0, .. } => {
                return Err(Error::Request("endpoints are numbered from 1"));
            }
            Request::Counters(Scope::Endpoint(n)) => data[1] = *n,
            Request::Counters(Scope::Address(a)) => entries.push(a.entry(EP_FLAG_SOURCE)?),
            Request::Endpoint { number, port } => (data[0], data[1]) = (*number, *port),
        }
        let length = (HDR_LEN + entries.len() * ENTRY_LEN) as u16;
        let header = Header { version: VERSION, opcode: self.operation(), status: 0, data, length, tid };
        let mut bytes = header.emit().to_vec();
        entries.iter().for_each(|e| bytes.extend_from_slice(&e.emit()));
        Ok(bytes)
    }

    /// What a complete reply says. The outer error is one of the service's, the inner an answer to this request.
    pub(crate) fn read(&self, reply: &[u8]) -> Result<Result<Reply, Error>, Violation> {
        let header = Header::read(reply).ok_or(Violation::Length(reply.len()))?;
        if header.opcode & OP_MASK != self.operation() {
            return Err(Violation::Opcode(header.opcode));
        }
        if header.status != 0 {
            // Some services give the request back with the refusal of a path query.
            let refused =
                [HDR_LEN, HDR_LEN + ENTRY_LEN].contains(&reply.len()) || header.opcode & OP_MASK != OP_RESOLVE;
            return if refused { Ok(Err(Error::Status(header.status))) } else { Err(Violation::Length(reply.len())) };
        }
        let answer = match self {
            Request::Resolve { .. } => Reply::Path(path(reply)?),
            Request::Path { record, query_sa, .. } => {
                let found = path(reply)?;
                compare(record, *query_sa, &found.record)?;
                Reply::Path(found)
            }
            Request::Counters(_) => Reply::Counters(counters(&header, reply)?),
            Request::Endpoint { .. } => Reply::Endpoint(endpoint(reply)?),
        };
        Ok(Ok(answer))
    }
}

/// How long the reply is that starts with these bytes; `None` while there is no whole header.
pub(crate) fn reply_len(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(header) = Header::read(bytes) else { return Ok(None) };
    if header.version != VERSION {
        return Err(Violation::Version(header.version));
    }
    // The bit that marks replies is missing from some that resolve.
    let operation = header.opcode & !OP_ACK;
    if !matches!(operation, OP_RESOLVE | OP_PERF_QUERY | OP_EP_QUERY) {
        return Err(Violation::Opcode(header.opcode));
    }
    let length = usize::from(header.length);
    let longest = if operation == OP_EP_QUERY { usize::from(u16::MAX) } else { ibacm_wire::client::MAX_REQUEST };
    if (HDR_LEN..=longest).contains(&length) { Ok(Some(length)) } else { Err(Violation::Length(length)) }
}

fn path(reply: &[u8]) -> Result<Path, Violation> {
    let first = Entry::read(reply, 0).ok_or(Violation::Length(reply.len()))?;
    if first.kind != TYPE_PATH {
        return Err(Violation::Contents("a success without a path"));
    }
    let source = match reply.len() {
        n if n == HDR_LEN + ENTRY_LEN => None,
        n if n == HDR_LEN + 2 * ENTRY_LEN => {
            let second = Entry::read(reply, 1).filter(|e| e.flags & EP_FLAG_SOURCE != 0);
            let second = second.ok_or(Violation::Contents("a second entry that is no source"))?;
            Some(Address::of_entry(&second).ok_or(Violation::Contents("a source of no known type"))?)
        }
        n => return Err(Violation::Length(n)),
    };
    Ok(Path { record: PathRecord(first.info), flags: first.flags, source })
}

/// Whether a path can be the answer to a question about `asked`.
///
/// A service that looks into its cache does so by the destination only, and by its LID if that is given: what else it
/// knows of the path is that of whoever asked first. The subnet administrator keeps to all that is given.
fn compare(asked: &PathRecord, by_sa: bool, found: &PathRecord) -> Result<(), Violation> {
    let other_lid = |asked: u16, found: u16| asked != 0 && asked != found;
    let other_gid = |asked: Gid, found| !asked.is_zero() && !asked.names(found);
    if other_lid(asked.dlid(), found.dlid()) {
        return Err(Violation::Contents("a path to another LID"));
    }
    if (by_sa || asked.dlid() == 0) && other_gid(asked.dgid(), found.dgid()) {
        return Err(Violation::Contents("a path to another GID"));
    }
    if by_sa && (other_lid(asked.slid(), found.slid()) || other_gid(asked.sgid(), found.sgid())) {
        return Err(Violation::Contents("a path from another port"));
    }
    Ok(())
}

fn counters(header: &Header, reply: &[u8]) -> Result<Counters, Violation> {
    let count = usize::from(header.data[0]);
    // A later service may count more; what is here are the first of them.
    if count < COUNTERS || reply.len() != HDR_LEN + 8 * count {
        return Err(Violation::Length(reply.len()));
    }
    let known = |i: usize| {
        let bytes = reply.get(HDR_LEN + 8 * i..).and_then(|b| b.first_chunk());
        bytes.map(|b| u64::from_be_bytes(*b))
    };
    let at = |i: usize| known(i).unwrap_or_default();
    Ok(Counters {
        error: at(0),
        resolve: at(1),
        nodata: at(2),
        addr_query: at(3),
        addr_cache: at(4),
        route_query: at(5),
        route_cache: at(6),
        more: (COUNTERS..count.min(COUNTERS + MORE)).map_while(known).collect(),
    })
}

fn endpoint(reply: &[u8]) -> Result<Endpoint, Violation> {
    let (data, addresses) =
        reply.get(HDR_LEN..).and_then(|d| d.split_at_checked(EP_CONFIG_LEN)).ok_or(Violation::Length(reply.len()))?;
    let be16 = |i: usize| u16::from_be_bytes([data[i], data[i + 1]]);
    let count = usize::from(be16(14));
    if addresses.len() != count * MAX_ADDRESS {
        return Err(Violation::Length(reply.len()));
    }
    Ok(Endpoint {
        device_guid: data.first_chunk().map(|b| u64::from_be_bytes(*b)).unwrap_or_default(),
        port: data[8],
        ports: data[9],
        pkey: be16(12),
        provider: text(&data[16..16 + MAX_PROV_NAME]),
        addresses: addresses.chunks_exact(MAX_ADDRESS).map(text).collect(),
    })
}

/// The text before the first zero.
fn text(bytes: &[u8]) -> Name {
    bytes.split(|b| *b == 0).next().unwrap_or_default().into()
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
