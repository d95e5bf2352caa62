//! The client protocol (`infiniband/acm.h`): a 16-byte header, then data; one message, one reply.
//!
//! The header's `length` and `tid` of a [`OP_RESOLVE`] message are in host order, those of the other operations in
//! network order; addresses and path records inside are always in network order.

use crate::PathRecord;
use crate::field::{bytes, put};

/// Protocol version, the header's first byte.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HDR_LEN: usize = 16;
/// Bytes of an address (`ACM_MAX_ADDRESS`).
pub const MAX_ADDRESS: usize = 64;
/// Bytes of an endpoint entry (`struct acm_ep_addr_data`).
pub const ENTRY_LEN: usize = 72;
/// Entries that a request holds at most.
pub const MAX_ENTRIES: usize = 8;
/// Bytes of the largest request.
pub const MAX_REQUEST: usize = HDR_LEN + MAX_ENTRIES * ENTRY_LEN;
/// Bytes of `struct acm_ep_config_data` before its addresses.
pub const EP_CONFIG_LEN: usize = 80;
/// Bytes of a provider's name in it, the terminating zero included.
pub const MAX_PROV_NAME: usize = 64;

/// Mask of the operation in an opcode.
pub const OP_MASK: u8 = 0x0f;
/// Resolve an address or a path.
pub const OP_RESOLVE: u8 = 1;
/// Read the counters.
pub const OP_PERF_QUERY: u8 = 2;
/// Describe an endpoint.
pub const OP_EP_QUERY: u8 = 3;
/// Set in the opcode of every reply.
pub const OP_ACK: u8 = 0x80;

/// Entry flag: the source.
pub const EP_FLAG_SOURCE: u32 = 1;
/// Entry flag: the destination.
pub const EP_FLAG_DEST: u32 = 2;
/// Entry flag: answer from the cache only.
pub const FLAG_NODELAY: u32 = 1 << 30;
/// Entry flag: ask the SA, whatever is cached.
pub const FLAG_QUERY_SA: u32 = 1 << 31;
/// Flags of a path in a reply: `IBV_PATH_FLAG_GMP | PRIMARY | BIDIRECTIONAL` of `infiniband/sa.h`.
pub const PATH_FLAGS: u32 = 0x2b;

/// Entry type: a name of up to 64 bytes, zero padded, compared without case.
pub const TYPE_NAME: u16 = 1;
/// Entry type: an IPv4 address, 4 bytes.
pub const TYPE_IP: u16 = 2;
/// Entry type: an IPv6 address, 16 bytes.
pub const TYPE_IP6: u16 = 3;
/// Entry type: a GID, 16 bytes.
pub const TYPE_GID: u16 = 4;
/// Entry type: a LID, 2 bytes, network order.
pub const TYPE_LID: u16 = 5;
/// Entry type: a path record, 64 bytes.
pub const TYPE_PATH: u16 = 0x10;

/// Outcome of a request (`ACM_STATUS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// Out of room for this request.
    Enomem = 1,
    /// Malformed request.
    Einval = 2,
    /// Nothing known, and no waiting wanted or of use.
    Enodata = 3,
    /// Not connected.
    Enotconn = 5,
    /// No answer in time.
    Etimedout = 6,
    /// The source is not an address of this host, or given twice.
    Esrcaddr = 7,
    /// The source's type is not one that is known.
    Esrctype = 8,
    /// The destination is missing, given twice, or unreachable.
    Edestaddr = 9,
    /// The destination's type is not one that can be resolved so.
    Edesttype = 10,
}

/// A counter's place in the reply to [`OP_PERF_QUERY`] (`ACM_CNTR_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Failures other than "no data".
    Error = 0,
    /// Resolve requests.
    Resolve = 1,
    /// "No data" answers.
    Nodata = 2,
    /// Multicast requests sent.
    AddrQuery = 3,
    /// Requests whose address was known but not the route.
    AddrCache = 4,
    /// Path queries sent to the SA.
    RouteQuery = 5,
    /// Requests answered from the cache.
    RouteCache = 6,
}

/// Number of counters.
pub const COUNTERS: usize = 7;

/// The seven as they are shown, in their order.
pub const ROWS: [Row; COUNTERS] = [
    Row::of_seven("Error Count", "error_count", "Requests that failed, but for those without data"),
    Row::of_seven("Resolve Count", "resolve", "Requests to resolve"),
    Row::of_seven("No Data", "no_data", "Requests that ended without data"),
    Row::of_seven("Addr Query Count", "addr_query", "Multicast requests sent"),
    Row::of_seven("Addr Cache Count", "addr_cache", "Requests whose address was known, but not the path"),
    Row::of_seven("Route Query Count", "route_query", "Questions for paths to the subnet administrator"),
    Row::of_seven("Route Cache Count", "route_cache", "Requests answered from the cache"),
];

/// In the third of a header's `data` bytes (`dst_index`) of an [`OP_PERF_QUERY`]: the counters of [`More`] are wanted
/// behind the seven. The reply's first byte (`src_out`) says how many there are in all. A service that does not know
/// it ignores it and gives seven.
pub const PERF_MORE: u8 = 1;

/// What kind of number a counter is, and whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It grows, and each endpoint has its own.
    Endpoint,
    /// It grows, and is the service's: of an endpoint it is 0.
    Service,
    /// It is how things are at the moment; of an endpoint, its part of that.
    Now,
}

/// A counter, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// To people.
    pub title: &'static str,
    /// In documents, and in names of metrics.
    pub key: &'static str,
    /// What number it is.
    pub kind: Kind,
    /// What it counts: a sentence without its full stop.
    pub help: &'static str,
}

impl Row {
    const fn of_seven(title: &'static str, key: &'static str, help: &'static str) -> Row {
        Row { title, key, kind: Kind::Endpoint, help }
    }
}

/// Makes [`More`], and how its counters are shown, from one table.
macro_rules! more_counters {
    ($($counter:ident, $title:literal, $key:literal, $kind:ident, $help:literal;)+) => {
        /// A counter's place behind the seven, in the reply to an [`OP_PERF_QUERY`] with [`PERF_MORE`]. The order is
        /// fixed: new ones are added at the end, and a client takes those that it knows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum More {
            $(#[doc = concat!($help, ".")] $counter,)+
        }

        /// The counters of [`More`] as they are shown, in their order.
        pub const MORE_ROWS: [Row; MORE] =
            [$(Row { title: $title, key: $key, kind: Kind::$kind, help: $help }),+];

        /// Number of the counters of [`More`].
        pub const MORE: usize = [$($key),+].len();
    };
}

// One line more is all that a new counter needs here. What is dropped, refused or limited in the daemon has one.
more_counters! {
    AddrNeighbour, "Addr Neighbour", "addr_neighbour", Endpoint,
        "Addresses that the kernel's neighbour table answered, because nobody did over multicast";
    AddrLinkLocal, "Addr Link Local", "addr_link_local", Endpoint,
        "IPv6 link-local addresses that were answered by the port GUID in them, for the same reason";
    AddrPreload, "Addr Preload", "addr_preload", Endpoint,
        "Addresses taken from the preload file";
    NoticesSubscribed, "Notices Subscribed", "notices_subscribed", Now,
        "Ports whose subnet administrator tells the service what changes";
    RequestsRefused, "Requests Refused", "requests_refused", Endpoint,
        "Requests of clients and the kernel that were refused since a table or queue was full";
    CacheEvicted, "Cache Evicted", "cache_evicted", Endpoint,
        "Destinations that were forgotten to make room for others";
    DatagramsMalformed, "Datagrams Malformed", "datagrams_malformed", Endpoint,
        "Datagrams dropped for their form: malformed, cut, or without a unicast source";
    DatagramsForeign, "Datagrams Foreign", "datagrams_foreign", Endpoint,
        "Requests of hosts dropped since their addresses or multicast groups are none that this host knows";
    DatagramsUnasked, "Datagrams Unasked", "datagrams_unasked", Endpoint,
        "Responses of hosts dropped since nothing was open that they answer, or not in this way";
    ClaimsRefused, "Claims Refused", "claims_refused", Endpoint,
        "Requests of hosts dropped since they claim an address that is another's: own, preloaded, or just asked for";
    PeersRefused, "Peers Refused", "peers_refused", Endpoint,
        "Requests of hosts dropped since there was no room for what they ask, or to respond";
    SendsFailed, "Sends Failed", "sends_failed", Endpoint,
        "Datagrams that could not be sent";
    MadsDropped, "MADs Dropped", "mads_dropped", Service,
        "Management datagrams dropped: answers to no open question, malformed, or notices that are not the SA's";
    ProvidersDropped, "Providers Dropped", "providers_dropped", Service,
        "Answers of provider plug-ins dropped since their question was not open";
    ProvidersLate, "Providers Late", "providers_late", Service,
        "Questions that a provider plug-in did not answer in time";
    NeighboursRefused, "Neighbours Refused", "neighbours_refused", Service,
        "Addresses that the kernel's neighbour table was not asked for, since too many were";
    ClientsProtocol, "Clients Protocol", "clients_closed_protocol", Service,
        "Connections closed for what they sent";
    ClientsUnfinished, "Clients Unfinished", "clients_closed_unfinished", Service,
        "Connections closed since a message was not finished in time";
    ClientsSlow, "Clients Slow", "clients_closed_slow", Service,
        "Connections closed since too many replies waited for them, or memory for those was short";
    ClientsPaused, "Clients Paused", "clients_accept_paused", Service,
        "Times that no new connections were taken for a while, for want of descriptors or memory";
    KernelLate, "Kernel Late", "kernel_late", Service,
        "Questions of the kernel refused since there was no answer before it gives up";
    KernelCrowded, "Kernel Crowded", "kernel_crowded", Service,
        "Questions of the kernel that were answered from memory or not at all, since too many were open";
    KernelUnsent, "Kernel Unsent", "kernel_unsent", Service,
        "Answers that the kernel did not take";
    NetlinkOverruns, "Netlink Overruns", "netlink_overruns", Service,
        "Times that messages of the kernel were lost for want of room: its questions, and news of interfaces";
    NetlinkDropped, "Netlink Dropped", "netlink_dropped", Service,
        "Netlink messages dropped: not the kernel's, malformed, cut, or of more interfaces than are kept";
    LogSuppressed, "Log Suppressed", "log_suppressed", Service,
        "Lines of the log left out since their cause had written too many";
    LogLost, "Log Lost", "log_lost", Service,
        "Lines that the log's target did not take";
    PeersLimited, "Peers Limited", "peers_limited", Endpoint,
        "Questions to the subnet administrator left out since hosts that ask this one had caused too many";
    ClientsHeld, "Clients Held", "clients_held", Service,
        "Times that a client was not read for a while since clients had many requests under way";
}

/// A message's header, its numbers in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Protocol version.
    pub version: u8,
    /// Operation, [`OP_ACK`] set in replies.
    pub opcode: u8,
    /// [`Status`] as a number.
    pub status: u8,
    /// `src_out`, `src_index`, `dst_index`.
    pub data: [u8; 3],
    /// Bytes of the whole message.
    pub length: u16,
    /// Transaction id as it stands in memory: returned unchanged.
    pub tid: [u8; 8],
}

impl Header {
    /// The header in the first bytes of `buf`; `None` if there are fewer than 16.
    pub fn read(buf: &[u8]) -> Option<Header> {
        let b: &[u8; HDR_LEN] = buf.first_chunk()?;
        let length = [b[6], b[7]];
        Some(Header {
            version: b[0],
            opcode: b[1],
            status: b[2],
            data: [b[3], b[4], b[5]],
            length: if b[1] & OP_MASK == OP_RESOLVE { u16::from_ne_bytes(length) } else { u16::from_be_bytes(length) },
            tid: bytes(b, 8),
        })
    }

    /// The header's bytes; `length` in the order that the operation asks for.
    pub fn emit(&self) -> [u8; HDR_LEN] {
        let length =
            if self.opcode & OP_MASK == OP_RESOLVE { self.length.to_ne_bytes() } else { self.length.to_be_bytes() };
        let mut b = [0; HDR_LEN];
        b[0] = self.version;
        b[1] = self.opcode;
        b[2] = self.status;
        b[3..6].copy_from_slice(&self.data);
        b[6..8].copy_from_slice(&length);
        b[8..].copy_from_slice(&self.tid);
        b
    }
}

/// Why bytes cannot be the start of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The version is not [`VERSION`].
    Version(u8),
    /// The operation is none of the three.
    Opcode(u8),
    /// The length is below a header's or above [`MAX_REQUEST`].
    Length(u16),
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FrameError::Version(v) => write!(f, "protocol version {v} instead of {VERSION}"),
            FrameError::Opcode(o) => write!(f, "unknown operation {o:#04x}"),
            FrameError::Length(l) => write!(f, "length {l} is not between {HDR_LEN} and {MAX_REQUEST}"),
        }
    }
}

/// Length of the request that `buf` starts with: `None` while there are fewer bytes than a header.
pub fn request_len(buf: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(h) = Header::read(buf) else { return Ok(None) };
    if h.version != VERSION {
        return Err(FrameError::Version(h.version));
    }
    if !matches!(h.opcode & OP_MASK, OP_RESOLVE | OP_PERF_QUERY | OP_EP_QUERY) {
        return Err(FrameError::Opcode(h.opcode));
    }
    match h.length as usize {
        n @ HDR_LEN..=MAX_REQUEST => Ok(Some(n)),
        _ => Err(FrameError::Length(h.length)),
    }
}

/// An endpoint entry of a resolve message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// [`EP_FLAG_SOURCE`] and the other flags.
    pub flags: u32,
    /// `TYPE_*`.
    pub kind: u16,
    /// The address, zero padded, or the path record.
    pub info: [u8; MAX_ADDRESS],
}

impl Entry {
    /// Entry number `i` of a resolve message; `None` if the message ends before it does.
    pub fn read(msg: &[u8], i: usize) -> Option<Entry> {
        let at = HDR_LEN + i.checked_mul(ENTRY_LEN)?;
        let b: &[u8; ENTRY_LEN] = msg.get(at..)?.first_chunk()?;
        Some(Entry { flags: u32::from_ne_bytes(bytes(b, 0)), kind: u16::from_ne_bytes(bytes(b, 4)), info: bytes(b, 8) })
    }

    /// A destination or source with the address in `addr`, at most 64 bytes of it.
    pub fn address(flags: u32, kind: u16, addr: &[u8]) -> Entry {
        let mut info = [0; MAX_ADDRESS];
        let n = addr.len().min(MAX_ADDRESS);
        info[..n].copy_from_slice(&addr[..n]);
        Entry { flags, kind, info }
    }

    /// A path.
    pub fn path(flags: u32, path: &PathRecord) -> Entry {
        Entry { flags, kind: TYPE_PATH, info: path.0 }
    }

    /// The entry's bytes.
    pub fn emit(&self) -> [u8; ENTRY_LEN] {
        let mut b = [0; ENTRY_LEN];
        put(&mut b, 0, &self.flags.to_ne_bytes());
        put(&mut b, 4, &self.kind.to_ne_bytes());
        put(&mut b, 8, &self.info);
        b
    }
}

/// Appends a resolve message with these entries to nothing else: the bytes and how many of them count.
pub fn resolve_request(tid: u64, entries: &[Entry]) -> ([u8; MAX_REQUEST], usize) {
    let mut b = [0; MAX_REQUEST];
    let n = entries.len().min(MAX_ENTRIES);
    let len = HDR_LEN + n * ENTRY_LEN;
    let h = Header {
        version: VERSION,
        opcode: OP_RESOLVE,
        length: len as u16,
        tid: tid.to_ne_bytes(),
        ..Header::default()
    };
    put(&mut b, 0, &h.emit());
    for (i, e) in entries.iter().take(n).enumerate() {
        put(&mut b, HDR_LEN + i * ENTRY_LEN, &e.emit());
    }
    (b, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_the_order_of_their_operation() {
        for (op, want) in [(OP_RESOLVE, 0x0058u16.to_ne_bytes()), (OP_PERF_QUERY, [0, 0x58]), (OP_EP_QUERY, [0, 0x58])]
        {
            let h = Header { version: 1, opcode: op, length: 0x58, tid: *b"12345678", ..Header::default() };
            assert_eq!(h.emit()[6..8], want);
            assert_eq!(Header::read(&h.emit()), Some(h));
        }
    }

    #[test]
    fn framing_says_what_is_wrong() {
        let ok = Header { version: 1, opcode: OP_RESOLVE, length: 592, ..Header::default() };
        assert_eq!(request_len(&ok.emit()), Ok(Some(592)));
        assert_eq!(request_len(&ok.emit()[..15]), Ok(None));
        assert_eq!(request_len(&Header { version: 2, ..ok }.emit()), Err(FrameError::Version(2)));
        assert_eq!(request_len(&Header { opcode: 7, ..ok }.emit()), Err(FrameError::Opcode(7)));
        assert_eq!(request_len(&Header { length: 593, ..ok }.emit()), Err(FrameError::Length(593)));
        assert_eq!(request_len(&Header { length: 15, ..ok }.emit()), Err(FrameError::Length(15)));
    }

    #[test]
    fn entries_end_with_the_message() {
        let e = Entry::address(EP_FLAG_DEST, TYPE_IP, &[10, 0, 0, 1]);
        let (b, n) = resolve_request(5, &[e, e]);
        assert_eq!(n, 16 + 144);
        assert_eq!(Entry::read(&b[..n], 1), Some(e));
        assert_eq!(Entry::read(&b[..n], 2), None);
        assert_eq!(Entry::read(&b[..n - 1], 1), None);
        assert_eq!(Entry::read(&b[..n], usize::MAX), None);
    }
}
