//! The switch: it is the HCAs' hardware, the kernel's MAD layer and the wires between the hosts.

pub mod command;
pub mod conn;
pub mod fault;
pub mod mad;
pub mod peers;
pub mod port;
pub mod report;
pub mod route;
pub mod sim;
pub mod sniff;
pub mod timer;
pub mod verbs;

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use conn::{Conn, Kind};
use port::Device;
use timer::{Timer, Timers};

/// Tokens below are the daemon's own and ibsim's clients'; connections of hosts start here.
pub const FIRST_CONN: u64 = 1000;
/// ibsim's clients have two tokens each from here on.
pub const FIRST_CLIENT: u64 = 100;
/// How often ports are looked at.
pub const POLL: Duration = Duration::from_millis(100);

/// State of a queue pair, as verbs numbers them.
pub mod qps {
    #![allow(missing_docs, reason = "named as in verbs.h")]
    pub const RESET: u32 = 0;
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
    pub const SQD: u32 = 4;
    pub const SQE: u32 = 5;
    pub const ERR: u32 = 6;
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    ctx: u64,
    send_cq: u32,
    recv_cq: u32,
    state: u32,
    pkey_index: u32,
    port: u32,
    qkey: u32,
    /// Receives that are posted and not used.
    posted: u32,
    epoch: u32,
    attached: Vec<(crate::ib::Gid, u16)>,
}

/// Everything between the hosts.
#[derive(Debug)]
pub struct Switch {
    /// All hosts' devices; an index into this names a device for good.
    pub devices: Vec<Device>,
    /// Clients of ibsim.
    pub clients: Vec<sim::SimClient>,
    /// Where violations are written down.
    pub violations: PathBuf,
    conns: HashMap<u64, Conn>,
    next_token: u64,
    qps: HashMap<(usize, u32), Qp>,
    timers: Timers,
    faults: fault::Faults,
    stats: BTreeMap<String, u64>,
    sniffer: sniff::Sniffer,
    pending: HashMap<u64, mad::Pending>,
    next_agent: u32,
    /// The moment of this turn of the loop.
    now: Instant,
    epoll: Epoll,
}

impl Switch {
    /// A switch without ports.
    pub fn new(violations: PathBuf) -> std::io::Result<Self> {
        Ok(Switch {
            devices: Vec::new(),
            clients: Vec::new(),
            violations,
            conns: HashMap::new(),
            next_token: FIRST_CONN,
            qps: HashMap::new(),
            timers: Timers::default(),
            faults: fault::Faults::default(),
            stats: BTreeMap::new(),
            sniffer: sniff::Sniffer::default(),
            pending: HashMap::new(),
            next_agent: 1,
            now: Instant::now(),
            epoll: Epoll::new(nix::sys::epoll::EpollCreateFlags::EPOLL_CLOEXEC)?,
        })
    }

    /// Watches a descriptor for reading.
    pub fn watch<F: std::os::fd::AsFd>(&self, fd: F, token: u64) -> std::io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    /// Waits for something to happen, at most until the next deadline. Returns the tokens that are ready.
    pub fn wait(&mut self) -> std::io::Result<Vec<u64>> {
        let now = Instant::now();
        let sleep = self.timers.next().map_or(POLL, |at| at.saturating_duration_since(now).min(POLL));
        // Rounded up: a sleep that ends just before its deadline would spin.
        let timeout = u16::try_from(sleep.as_micros().div_ceil(1000)).unwrap_or(100);
        let mut events = [EpollEvent::empty(); 64];
        let ready = match self.epoll.wait(&mut events, timeout) {
            Ok(n) => n,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        self.now = Instant::now();
        Ok(events[..ready].iter().map(EpollEvent::data).collect())
    }

    /// Does what is due.
    pub fn run_timers(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Mad(tid) => self.mad_expired(tid),
                Timer::Answer(client, packet) => self.answer_arrived(client, *packet),
                Timer::Deliver(datagram) => self.deliver(&datagram),
            }
        }
    }

    /// Accepts whoever waits at the switch's socket.
    pub fn accept(&mut self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            let token = self.next_token;
            self.next_token += 1;
            if stream.set_nonblocking(true).is_ok() && self.watch(&stream, token).is_ok() {
                self.conns.insert(token, Conn::new(token, stream));
            }
        }
    }

    /// Reads a host's connection: a bounded number of messages, the rest in the next turn.
    pub fn readable(&mut self, token: u64) {
        for _ in 0..64 {
            let Some(conn) = self.conns.get_mut(&token) else { return };
            match conn.recv() {
                Ok(Some(msg)) => self.dispatch(token, msg),
                Ok(None) => return self.close(token),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    eprintln!("connection {token}: {e}");
                    return self.close(token);
                }
            }
        }
    }

    /// A connection ends, and with it what it stood for.
    fn close(&mut self, token: u64) {
        let Some(conn) = self.conns.remove(&token) else { return };
        match conn.kind {
            Kind::Control(control) => {
                if let Some(dev) = control.dev {
                    self.qps.retain(|&(d, _), qp| d != dev || qp.ctx != token);
                }
                // Its other connections: the program is gone, or closes them itself.
            }
            Kind::Umad(_) => self.pending.retain(|_, p| p.conn != token),
            Kind::New | Kind::Cq { .. } | Kind::Async { .. } => {}
        }
    }

    fn count(&mut self, key: impl Into<String>) {
        *self.stats.entry(key.into()).or_default() += 1;
    }

    /// Writes a violation down, as the stand-in does with those that it sees itself.
    fn violation(&self, host: &str, pid: u32, text: &str) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let line = format!("FABRIC VIOLATION: {host}: {}[{pid}]: {text}\n", name.trim());
        eprint!("{line}");
        let written =
            OpenOptions::new().append(true).open(&self.violations).and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(e) = written {
            eprintln!("cannot write {}: {e}", self.violations.display());
        }
    }

    /// The device of this host and name; the first one if no name is given.
    pub fn find_device(&self, host: &str, name: Option<&str>) -> Option<usize> {
        self.devices.iter().position(|d| d.host == host && name.is_none_or(|n| d.name == n))
    }

    /// Every linked port of a topology node is in service.
    pub fn all_active(&self) -> bool {
        let mut ports = self.devices.iter().filter(|d| d.node.is_some()).flat_map(|d| &d.ports);
        ports.all(|p| p.info.state == crate::ib::state::ACTIVE)
    }
}
