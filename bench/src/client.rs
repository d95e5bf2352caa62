//! Clients: one that waits for each answer, and many at once.

use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, HDR_LEN, Header, OP_PERF_QUERY, TYPE_IP, VERSION,
    resolve_request,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::Outcome;

/// Nobody takes longer to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request for the path to an address, perhaps from another.
pub fn request(source: Option<Ipv4Addr>, to: Ipv4Addr) -> Vec<u8> {
    let mut entries = Vec::new();
    if let Some(source) = source {
        entries.push(Entry::address(EP_FLAG_SOURCE, TYPE_IP, &source.octets()));
    }
    entries.push(Entry::address(EP_FLAG_DEST, TYPE_IP, &to.octets()));
    let (bytes, length) = resolve_request(0x0102_0304_0506_0708, &entries);
    bytes[..length].to_vec()
}

/// A request for the path from one LID to another if it is known.
pub fn request_lid(source: u16, lid: u16) -> Vec<u8> {
    let mut path = PathRecord::default();
    path.set_slid(source);
    path.set_dlid(lid);
    let (bytes, length) = resolve_request(1, &[Entry::path(EP_FLAG_DEST | FLAG_NODELAY, &path)]);
    bytes[..length].to_vec()
}

/// A request for the counters.
pub fn request_counters() -> Vec<u8> {
    let header = Header { version: VERSION, opcode: OP_PERF_QUERY, length: HDR_LEN as u16, ..Header::default() };
    header.emit().to_vec()
}

/// A connection.
pub struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(socket: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, buffer: vec![0; 1 << 16] })
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads what there is: how many bytes. The service has closed the connection where there are none.
    pub fn read(&mut self) -> io::Result<usize> {
        match self.stream.read(&mut self.buffer)? {
            0 => Err(io::ErrorKind::ConnectionAborted.into()),
            n => Ok(n),
        }
    }

    /// Asks and waits for the reply: its status and its length.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<(u8, usize)> {
        self.send(request)?;
        // A reply is written at once, and waits for no other here.
        let n = self.read()?;
        let header = Header::read(&self.buffer[..n]).ok_or(io::ErrorKind::InvalidData)?;
        Ok((header.status, n))
    }

    /// Asks for something that must be known or found.
    pub fn must(&mut self, request: &[u8]) -> Outcome<usize> {
        match self.ask(request)? {
            (0, n) => Ok(n),
            (status, _) => Err(format!("the answer is status {status}").into()),
        }
    }
}

/// Many connections that are waited for together.
pub struct Fleet {
    streams: Vec<UnixStream>,
    epoll: Epoll,
}

impl Fleet {
    /// Nobody yet.
    pub fn new() -> Outcome<Fleet> {
        Ok(Fleet { streams: Vec::new(), epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    /// Connects so many.
    pub fn connect(socket: &Path, count: usize) -> Outcome<Fleet> {
        let mut fleet = Fleet::new()?;
        for _ in 0..count {
            fleet.add(socket)?;
        }
        Ok(fleet)
    }

    /// Connects one more.
    pub fn add(&mut self, socket: &Path) -> Outcome<()> {
        let stream = UnixStream::connect(socket)?;
        stream.set_nonblocking(true)?;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, self.streams.len() as u64))?;
        self.streams.push(stream);
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Sends a request on one.
    pub fn send(&mut self, number: usize, request: &[u8]) -> io::Result<()> {
        self.streams[number].write_all(request)
    }

    /// Waits for what is to be read.
    pub fn wait(&mut self, events: &mut [EpollEvent]) -> Outcome<usize> {
        match self.epoll.wait(events, EpollTimeout::try_from(PATIENCE)?)? {
            0 => Err("the service does not answer".into()),
            n => Ok(n),
        }
    }

    /// Each asks the same again and again: how many replies there were in this time, after a quarter of it to warm up.
    pub fn flood(&mut self, request: &[u8], span: Duration, mut begin: impl FnMut()) -> Outcome<(u64, Duration)> {
        let mut events = vec![EpollEvent::empty(); 256];
        let mut buffer = [0; 4096];
        for number in 0..self.streams.len() {
            self.send(number, request)?;
        }
        let mut under_way = self.streams.len();
        let start = Instant::now();
        let (mut begun, mut count): (Option<Instant>, u64) = (None, 0);
        let mut over = None;
        while under_way > 0 {
            let n = self.wait(&mut events)?;
            let now = Instant::now();
            match begun {
                None if now - start >= span / 4 => {
                    begin();
                    (begun, count) = (Some(now), 0);
                }
                Some(at) if over.is_none() && now - at >= span => over = Some((count, now - at)),
                _ => {}
            }
            for event in &events[..n] {
                let stream = &mut self.streams[event.data() as usize];
                if stream.read(&mut buffer)? == 0 {
                    return Err("the service closes the connection".into());
                }
                count += 1;
                match over {
                    None => stream.write_all(request)?,
                    Some(_) => under_way -= 1,
                }
            }
        }
        Ok(over.unwrap_or((count, start.elapsed())))
    }

    /// Asks on the last one, and waits for an answer.
    pub fn ask_last(&mut self, request: &[u8]) -> Outcome<()> {
        let stream = self.streams.last_mut().ok_or("nobody is connected")?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request)?;
        let read = stream.read(&mut [0; 4096])?;
        stream.set_nonblocking(true)?;
        if read > 0 { Ok(()) } else { Err("the service closes the connection".into()) }
    }

    /// Each asks its own requests one after another, all beginning at once: when each reply came.
    pub fn burst(&mut self, requests: &[Vec<Vec<u8>>]) -> Outcome<Vec<Duration>> {
        let mut events = vec![EpollEvent::empty(); 256];
        let mut buffer = [0; 4096];
        let begin = Instant::now();
        let mut asked = vec![0; self.streams.len()];
        let mut replies = Vec::new();
        let total: usize = requests.iter().map(Vec::len).sum();
        for (number, list) in requests.iter().enumerate() {
            if let Some(first) = list.first() {
                self.send(number, first)?;
            }
        }
        while replies.len() < total {
            let n = self.wait(&mut events)?;
            for event in &events[..n] {
                let number = event.data() as usize;
                let read = self.streams[number].read(&mut buffer)?;
                let header = Header::read(&buffer[..read]).ok_or("the service closes the connection")?;
                if header.status != 0 {
                    return Err(format!("the answer is status {}", header.status).into());
                }
                replies.push(begin.elapsed());
                asked[number] += 1;
                if let Some(next) = requests.get(number).and_then(|list| list.get(asked[number])) {
                    self.send(number, next)?;
                }
            }
        }
        Ok(replies)
    }
}
