//! Services that do not do what they ought to, for `ib_acme` to talk to.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use ibacm_wire::client::{
    EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA, HDR_LEN, Header, OP_ACK, OP_EP_QUERY, OP_MASK, OP_PERF_QUERY, OP_RESOLVE,
    PATH_FLAGS, Status, TYPE_NAME, request_len,
};
use ibacm_wire::{Gid, PathRecord};

/// A request.
pub struct Request {
    pub header: Header,
    bytes: Vec<u8>,
}

/// What comes of a request. An error closes the connection.
pub type Answer = fn(&Request, &mut UnixStream) -> io::Result<()>;

/// A service on a socket of its own. It ends with this value.
pub struct Mock {
    path: PathBuf,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    pub fn new(answer: Answer) -> Mock {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ib_acme-{}-{number}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("there is room for a socket");
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let serve = move || {
            while let Ok((stream, _)) = listener.accept() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // It ends when the tool does.
                thread::spawn(move || drop(converse(stream, answer)));
            }
        };
        Mock { path, over, thread: Some(thread::spawn(serve)) }
    }

    /// For `-S`.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn converse(mut stream: UnixStream, answer: Answer) -> io::Result<()> {
    loop {
        let mut bytes = vec![0; HDR_LEN];
        stream.read_exact(&mut bytes)?;
        let length = request_len(&bytes).ok().flatten().unwrap_or(HDR_LEN);
        bytes.resize(length, 0);
        stream.read_exact(&mut bytes[HDR_LEN..])?;
        let header = Header::read(&bytes).expect("these are enough");
        answer(&Request { header, bytes }, &mut stream)?;
    }
}

/// The end of a connection.
pub fn close() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

impl Request {
    /// A reply with a status and a body, true in its form.
    pub fn reply(&self, status: u8, data: [u8; 3], body: &[u8]) -> Vec<u8> {
        let length = (HDR_LEN + body.len()) as u16;
        let header = Header { opcode: self.header.opcode | OP_ACK, status, data, length, ..self.header };
        [header.emit().as_slice(), body].concat()
    }

    /// Whether the subnet administrator is to be asked.
    pub fn is_verification(&self) -> bool {
        let resolve = self.header.opcode & OP_MASK == OP_RESOLVE;
        resolve && Entry::read(&self.bytes, 0).is_some_and(|entry| entry.flags & FLAG_QUERY_SA != 0)
    }

    /// The path that is asked about.
    pub fn path(&self) -> PathRecord {
        PathRecord(Entry::read(&self.bytes, 0).expect("it is a whole request").info)
    }

    pub fn is_perf(&self) -> bool {
        self.header.opcode & OP_MASK == OP_PERF_QUERY
    }

    /// The numbers of the endpoint and of the port that are asked for.
    pub fn endpoint(&self) -> Option<(u8, u8)> {
        let is = self.header.opcode & OP_MASK == OP_EP_QUERY;
        is.then_some((self.header.data[0], self.header.data[1]))
    }

    /// What a good service with one endpoint says.
    pub fn honest(&self) -> Vec<u8> {
        match self.endpoint() {
            Some((1, 0 | 1)) => self.reply(0, [1, 1, 0], &endpoint(1, &["10.77.0.1/16", "h1"])),
            Some(_) => self.reply(Status::Einval as u8, [0; 3], &[]),
            None if self.is_perf() && self.header.data[1] > 1 => self.reply(Status::Esrcaddr as u8, [0; 3], &[]),
            None if self.is_perf() => self.reply(0, [7, 0, 0], &counters(7)),
            None => self.reply(0, [0; 3], &path(4)),
        }
    }
}

/// An entry with a path to this LID.
pub fn path(dlid: u16) -> Vec<u8> {
    path_at(dlid, 0)
}

/// The same, of this rate.
pub fn path_at(dlid: u16, rate: u8) -> Vec<u8> {
    let mut record = PathRecord::default();
    record.set_rate(rate);
    let gid = |last: u8| Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, last]);
    record.set_dgid(gid(5));
    record.set_sgid(gid(3));
    record.set_dlid(dlid);
    record.set_slid(3);
    record.set_pkey(0xffff);
    Entry::path(PATH_FLAGS, &record).emit().to_vec()
}

/// An entry for the source that was chosen: a name of these bytes.
pub fn source(name: &[u8]) -> Vec<u8> {
    Entry::address(EP_FLAG_SOURCE, TYPE_NAME, name).emit().to_vec()
}

/// So many counters.
pub fn counters(count: u64) -> Vec<u8> {
    (1..=count).flat_map(u64::to_be_bytes).collect()
}

/// The endpoint of a device with so many ports.
pub fn endpoint(ports: u8, addresses: &[&str]) -> Vec<u8> {
    let mut body = vec![0; 80 + 64 * addresses.len()];
    body[..8].copy_from_slice(&0x1234_u64.to_be_bytes());
    (body[8], body[9]) = (1, ports);
    body[12..14].copy_from_slice(&0xffff_u16.to_be_bytes());
    body[14..16].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    body[16..22].copy_from_slice(b"ibacmp");
    for (i, address) in addresses.iter().enumerate() {
        body[80 + 64 * i..][..address.len()].copy_from_slice(address.as_bytes());
    }
    body
}

/// Sends it all.
pub fn send(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}
