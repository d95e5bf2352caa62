//! Services that do what a test wants.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ibacm_wire::client::{
    COUNTERS, EP_CONFIG_LEN, Entry, HDR_LEN, Header, MAX_ADDRESS, OP_ACK, OP_EP_QUERY, OP_PERF_QUERY, PATH_FLAGS,
    TYPE_PATH,
};
use libibacm::{Address, Client, Error, PathRecord, Status, Target};

pub const LIMIT: Duration = Duration::from_secs(5);

/// A socket file of one test.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Place(std::env::temp_dir().join(format!("libibacm-{}-{n}.sock", std::process::id())))
    }

    pub fn target(&self) -> Target {
        Target::Unix(self.0.clone())
    }

    pub fn client(&self) -> Client {
        Client::new(self.target()).with_limit(LIMIT)
    }

    /// Serves each connection with a thread until the process ends.
    pub fn serve(&self, each: impl Fn(UnixStream) -> io::Result<()> + Send + Sync + 'static) -> Arc<AtomicUsize> {
        let listener = UnixListener::bind(&self.0).expect("a directory for temporary files");
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, each) = (connections.clone(), Arc::new(each));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                let each = each.clone();
                thread::spawn(move || each(stream));
            }
        });
        connections
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The next request, whatever the segments of the stream are.
pub fn request(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16];
    stream.read_exact(&mut bytes)?;
    let length = Header::read(&bytes).expect("16 bytes").length;
    bytes.resize(usize::from(length), 0);
    stream.read_exact(&mut bytes[16..])?;
    Ok(bytes)
}

/// A record that names what was asked for.
pub fn record(request: &[u8]) -> PathRecord {
    let mut record = PathRecord::default();
    let last = (0..).map_while(|i| Entry::read(request, i)).last().expect("an entry");
    if last.kind == TYPE_PATH {
        record = PathRecord(last.info);
    } else {
        record.set_dlid(u16::from_be_bytes([last.info[2], last.info[3]]));
    }
    record.set_slid(1);
    record
}

pub fn answer(request: &[u8]) -> Vec<u8> {
    let header = Header::read(request).expect("a request");
    let header = Header { opcode: header.opcode | OP_ACK, length: 88, ..header };
    let mut reply = header.emit().to_vec();
    reply.extend_from_slice(&Entry::path(PATH_FLAGS, &record(request)).emit());
    reply
}

/// The answer to any request. There is one endpoint.
pub fn any_answer(request: &[u8]) -> Vec<u8> {
    let header = Header::read(request).expect("a request");
    let (data, body) = match header.opcode {
        OP_PERF_QUERY => ([COUNTERS as u8, 0, 0], vec![0; 8 * COUNTERS]),
        OP_EP_QUERY if header.data[0] == 1 => {
            let mut body = vec![0; EP_CONFIG_LEN + 2 * MAX_ADDRESS];
            (body[8], body[9], body[15]) = (1, 1, 2);
            body[EP_CONFIG_LEN..EP_CONFIG_LEN + 4].copy_from_slice(b"here");
            ([1, 0, 0], body)
        }
        OP_EP_QUERY => return refusal(request, Status::Einval),
        _ => return answer(request),
    };
    let length = (HDR_LEN + body.len()) as u16;
    let reply = Header { opcode: header.opcode | OP_ACK, data, length, ..header };
    [reply.emit().to_vec(), body].concat()
}

pub fn refusal(request: &[u8], status: Status) -> Vec<u8> {
    let header = Header::read(request).expect("a request");
    Header { opcode: header.opcode | OP_ACK, length: 16, status: status as u8, ..header }.emit().to_vec()
}

pub fn good(mut stream: UnixStream) -> io::Result<()> {
    loop {
        let request = request(&mut stream)?;
        stream.write_all(&answer(&request))?;
    }
}

/// One read is one request, or the end of the connection.
pub fn one_by_one(mut stream: UnixStream) -> io::Result<()> {
    let mut bytes = [0; 592];
    loop {
        let n = stream.read(&mut bytes)?;
        let whole = Header::read(&bytes[..n]).is_some_and(|h| usize::from(h.length) == n);
        if !whole {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
        stream.write_all(&answer(&bytes[..n]))?;
    }
}

pub fn ip(n: u16) -> Address {
    let [a, b] = n.to_be_bytes();
    Address::Ip([10, 77, a, b].into())
}

pub fn ask(client: &Client, n: u16) -> Result<u16, Error> {
    client.resolve(None, ip(n)).map(|p| p.record.dlid())
}
