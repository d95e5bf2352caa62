//! A client that is not bound by what libraries would send.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ibacm_wire::client::{
    COUNTERS, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, HDR_LEN, Header, MORE, OP_EP_QUERY, OP_PERF_QUERY, PERF_MORE,
    TYPE_IP, TYPE_IP6, TYPE_NAME, TYPE_PATH, VERSION, resolve_request,
};
use ibacm_wire::{Gid, PathRecord};

use super::{Lab, PATIENCE, family};

/// A connection to the service of a host.
pub struct Client {
    stream: UnixStream,
    next_tid: u64,
}

/// A message from the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub header: Header,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Message {
    /// The entries of a resolve reply.
    pub fn entries(&self) -> Vec<Entry> {
        (0..).map_while(|i| Entry::read(&self.bytes, i)).collect()
    }

    /// The path of a reply that must be a success.
    pub fn path(&self) -> PathRecord {
        assert_eq!(self.header.status, 0, "{self:?}");
        let first = Entry::read(&self.bytes, 0).expect("a success has a path");
        assert_eq!(first.kind, TYPE_PATH, "{self:?}");
        PathRecord(first.info)
    }

    /// The counters of a reply.
    pub fn counters(&self) -> [u64; COUNTERS] {
        assert_eq!((self.header.status, self.bytes.len()), (0, HDR_LEN + 8 * COUNTERS), "{self:?}");
        std::array::from_fn(|i| {
            let value = self.bytes[HDR_LEN + 8 * i..].first_chunk().expect("the length is checked");
            u64::from_be_bytes(*value)
        })
    }
}

/// An entry for an IP address, or for the one that stands for it in this program.
pub fn ip(flags: u32, address: &str) -> Entry {
    match family::address(address) {
        IpAddr::V4(a) => Entry::address(flags, TYPE_IP, &a.octets()),
        IpAddr::V6(a) => Entry::address(flags, TYPE_IP6, &a.octets()),
    }
}

/// An entry for a name.
pub fn name(flags: u32, name: &str) -> Entry {
    Entry::address(flags, TYPE_NAME, name.as_bytes())
}

/// The source and destination entries of a question between two IP addresses.
pub fn between(source: &str, destination: &str) -> [Entry; 2] {
    [ip(EP_FLAG_SOURCE, source), ip(EP_FLAG_DEST, destination)]
}

/// The entry that asks for the path to a LID.
pub fn to_lid(flags: u32, lid: u16) -> Entry {
    let mut path = PathRecord::default();
    path.set_dlid(lid);
    Entry::path(flags, &path)
}

/// The entry that asks for the path to a GID.
pub fn to_gid(flags: u32, gid: [u8; 16]) -> Entry {
    let mut path = PathRecord::default();
    path.set_dgid(Gid(gid));
    Entry::path(flags, &path)
}

impl Client {
    /// Connects to a host's service, if there is one.
    pub fn try_connect(lab: &Lab<'_>, host: &str) -> io::Result<Client> {
        let stream = UnixStream::connect(lab.file(host, "/run/ibacm-unix.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, next_tid: 0x1122_3344_0000_0001 })
    }

    /// Connects to a host's service.
    pub fn connect(lab: &Lab<'_>, host: &str) -> Client {
        Client::try_connect(lab, host).unwrap_or_else(|e| panic!("no service on {host}: {e}"))
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the service reads");
    }

    /// The next message; `None` when the service has closed the connection.
    pub fn recv(&mut self) -> Option<Message> {
        let mut bytes = vec![0; HDR_LEN];
        if let Err(e) = self.stream.read_exact(&mut bytes) {
            let closed = matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            assert!(closed, "the service does not answer: {e}");
            return None;
        }
        let header = Header::read(&bytes).expect("these are enough");
        assert!(header.length as usize >= HDR_LEN, "{header:?}");
        bytes.resize(header.length as usize, 0);
        self.stream.read_exact(&mut bytes[HDR_LEN..]).expect("a reply is whole");
        Some(Message { header, bytes })
    }

    /// Whether nothing comes within this time.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("not zero");
        let silent = match self.stream.read(&mut [0]) {
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => false,
        };
        self.stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        silent
    }

    /// Sends a resolve request: its transaction id.
    pub fn ask(&mut self, entries: &[Entry]) -> u64 {
        let tid = self.next_tid;
        self.next_tid += 1;
        let (bytes, length) = resolve_request(tid, entries);
        self.send(&bytes[..length]);
        tid
    }

    /// Sends a resolve request and waits for the reply, which must be to it.
    pub fn resolve(&mut self, entries: &[Entry]) -> Message {
        let tid = self.ask(entries);
        let reply = self.recv().expect("an answer");
        assert_eq!(reply.header.tid, tid.to_ne_bytes());
        reply
    }

    fn query(&mut self, opcode: u8, data: [u8; 3], entries: &[Entry]) -> Message {
        let length = (HDR_LEN + entries.len() * ibacm_wire::client::ENTRY_LEN) as u16;
        let tid = self.next_tid.to_ne_bytes();
        self.next_tid += 1;
        let mut bytes = Header { version: VERSION, opcode, data, length, tid, status: 0 }.emit().to_vec();
        entries.iter().for_each(|e| bytes.extend_from_slice(&e.emit()));
        self.send(&bytes);
        let reply = self.recv().expect("an answer");
        assert_eq!(reply.header.tid, tid);
        reply
    }

    /// Asks for counters: those of this endpoint, or with 0 of all or of the one that has the entry's address.
    pub fn performance(&mut self, endpoint: u8, entries: &[Entry]) -> Message {
        self.query(OP_PERF_QUERY, [0, endpoint, 0], entries)
    }

    /// The totals of all counters, in the order of [`ibacm_wire::client::Counter`].
    pub fn counters(&mut self) -> [u64; COUNTERS] {
        self.performance(0, &[]).counters()
    }

    /// The totals of the counters beside those, in the order of [`ibacm_wire::client::More`].
    pub fn more_counters(&mut self) -> [u64; MORE] {
        let reply = self.query(OP_PERF_QUERY, [0, 0, PERF_MORE], &[]);
        assert_eq!((reply.header.status, usize::from(reply.header.data[0])), (0, COUNTERS + MORE), "{reply:?}");
        assert_eq!(reply.bytes.len(), HDR_LEN + 8 * (COUNTERS + MORE), "{reply:?}");
        let mut values = reply.bytes[HDR_LEN + 8 * COUNTERS..].chunks_exact(8);
        std::array::from_fn(|_| {
            let value = values.next().and_then(|v| v.first_chunk()).expect("the length is checked");
            u64::from_be_bytes(*value)
        })
    }

    /// Asks for endpoint number `number` of a port, or with 0 of any port.
    pub fn endpoint(&mut self, number: u8, port: u8) -> Message {
        self.query(OP_EP_QUERY, [number, port, 0], &[])
    }
}
