//! What the kernel knows of interfaces, addresses and routes, followed over rtnetlink.
//!
//! [`Rtnl::open`] reads everything once; from then on events keep it up to date. When events
//! are lost everything is read again, not more often than each [`REDUMP_US`]. The loop calls
//! [`Rtnl::on_readable`], and [`Rtnl::run_pending`] each turn, of which there is one at
//! [`Rtnl::next_deadline`], and at once while [`Rtnl::has_pending`]; then it looks at
//! [`Rtnl::take_changed`] and [`Rtnl::take_routes_changed`].

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::netlink_sock;
use crate::rtnl_parse::{self, Dump, Message, News};
use crate::rtnl_table::{Sysfs, Table};
pub use crate::rtnl_table::{SystemAddr, parse_hardware, parse_pkey};

/// Where the kernel shows its interfaces.
pub const SYSFS_NET: &str = "/sys/class/net";
/// Datagrams that one call reads.
pub const DATAGRAMS_PER_TURN: usize = 64;
/// Interfaces whose sysfs files one call reads.
const PROBES_PER_TURN: usize = 32;
/// The least time between the beginnings of two full dumps, in microseconds.
pub const REDUMP_US: u64 = 100_000;
/// A dump that has not ended after this time is begun anew, in microseconds.
const DUMP_LASTS_US: u64 = 2_000_000;
/// How often, and how long each time, the first dump may be waited for: two seconds in all.
const OPEN_WAITS: usize = 20;
const OPEN_WAIT_MS: i32 = 100;
/// Datagrams of the first dump: more than the bounded tables can fill.
const OPEN_DATAGRAMS: usize = 20_000;
/// The kernel makes datagrams of at most 32 KiB. From this size on memory comes from the system page by page: what is
/// never used of it is not there.
const BUFFER: usize = 128 * 1024;

/// Why the socket could not be opened.
#[derive(Debug)]
pub enum RtnlError {
    /// A system call failed: what was being done, and the error.
    Io(&'static str, io::Error),
    /// The kernel did not send all interfaces and addresses in time.
    Slow,
}

impl fmt::Display for RtnlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RtnlError::Io(what, error) => write!(f, "rtnetlink: cannot {what}: {error}"),
            RtnlError::Slow => write!(f, "rtnetlink: interfaces and addresses did not come in time"),
        }
    }
}

impl std::error::Error for RtnlError {}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were read.
    pub messages: u64,
    /// Messages that contradicted themselves or were cut.
    pub malformed: u64,
    /// Datagrams that did not come from the kernel.
    pub foreign: u64,
    /// Times that events were lost.
    pub overruns: u64,
    /// Full dumps that were begun.
    pub dumps: u64,
    /// Errors of the socket and of requests.
    pub errors: u64,
}

/// A dump that is under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    what: Dump,
    sequence: u32,
    /// Its first message was read: what comes from now on is not older than what it tells.
    begun: bool,
    interrupted: bool,
    ends_us: u64,
}

/// The socket and what was learned from it.
#[derive(Debug)]
pub struct Rtnl {
    fd: OwnedFd,
    port: u32,
    sysfs: PathBuf,
    table: Table,
    running: Option<Running>,
    sequence: u32,
    /// When a full dump is to begin.
    redump: Option<u64>,
    /// When the last one began.
    dumped_us: Option<u64>,
    more: bool,
    routes_changed: bool,
    counters: Counters,
    buffer: Box<[u8]>,
}

impl Rtnl {
    /// Opens the socket and reads all interfaces and addresses, in at most about two seconds.
    /// `sysfs` is [`SYSFS_NET`], or a directory that looks like it.
    ///
    /// # Errors
    /// The socket cannot be opened or used, or the kernel is too slow.
    pub fn open(sysfs: &Path, now_us: u64) -> Result<Rtnl, RtnlError> {
        let fd = netlink_sock::open_route().map_err(|error| RtnlError::Io("open a socket", error))?;
        let port = netlink_sock::port(&fd).map_err(|error| RtnlError::Io("name a socket", error))?;
        let mut rtnl = Rtnl {
            fd,
            port,
            sysfs: sysfs.to_path_buf(),
            table: Table::default(),
            running: None,
            sequence: 0,
            redump: None,
            dumped_us: None,
            more: false,
            routes_changed: false,
            counters: Counters::default(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
        };
        rtnl.begin_dump(now_us);
        let mut waits = 0;
        for _ in 0..OPEN_DATAGRAMS {
            if rtnl.redump.is_some() {
                // It changed while it was read, or events were lost: at once, here.
                waits += 1;
                rtnl.begin_dump(now_us);
            }
            if rtnl.running.is_none() && rtnl.redump.is_none() {
                rtnl.probe(now_us, usize::MAX);
                rtnl.more = true;
                rtnl.table.take_changed();
                rtnl.routes_changed = false;
                return Ok(rtnl);
            }
            if !rtnl.read_one(now_us) {
                waits += 1;
                netlink_sock::wait(&rtnl.fd, OPEN_WAIT_MS)
                    .map_err(|error| RtnlError::Io("wait for an answer", error))?;
            }
            if waits > OPEN_WAITS {
                break;
            }
        }
        Err(RtnlError::Slow)
    }

    /// Registers the socket.
    ///
    /// # Errors
    /// Those of the poll.
    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE)
    }

    /// The socket has something to read.
    pub fn on_readable(&mut self, now_us: u64) {
        self.more = true;
        self.run_pending(now_us);
    }

    /// Whether [`Rtnl::run_pending`] has work: the loop must not sleep then.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.more
    }

    /// Goes on with what the bounds left over, and does what is due.
    pub fn run_pending(&mut self, now_us: u64) {
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.more {
                break;
            }
            self.more = self.read_one(now_us);
        }
        self.on_time(now_us);
    }

    /// When something is due next, in microseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let dump = self.running.map(|running| running.ends_us);
        [self.redump, dump, self.table.next_probe()].into_iter().flatten().min()
    }

    /// Does what is due: a full dump (which makes work for [`Rtnl::run_pending`]), or reading
    /// the sysfs files of new interfaces.
    fn on_time(&mut self, now_us: u64) {
        if self.running.is_some_and(|running| running.ends_us <= now_us) {
            self.counters.errors += 1;
            self.running = None;
            self.ask_dump(now_us);
        }
        if self.redump.is_some_and(|due| due <= now_us) {
            self.begin_dump(now_us);
        }
        self.probe(now_us, PROBES_PER_TURN);
    }

    /// Reads everything again, sysfs included: for news of a port (another GID or partition)
    /// that the network side is not told of.
    pub fn resync(&mut self, now_us: u64) {
        self.table.probe_all(now_us);
        self.ask_dump(now_us);
    }

    /// Whether [`Rtnl::snapshot`] may differ from what it was when this was last asked.
    pub fn take_changed(&mut self) -> bool {
        self.table.take_changed()
    }

    /// Whether something happened that can change the choice of a source address.
    pub fn take_routes_changed(&mut self) -> bool {
        std::mem::take(&mut self.routes_changed)
    }

    /// Whether an InfiniBand interface has been set up, if it is known.
    #[must_use]
    pub fn is_up(&self, name: &str) -> Option<bool> {
        self.table.is_up(name)
    }

    /// The addresses of this host on InfiniBand ports, in a fixed order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<SystemAddr> {
        self.table.snapshot()
    }

    /// The interfaces.
    #[must_use]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The port GID and the partition of an InfiniBand interface.
    #[must_use]
    pub fn link(&self, ifindex: u32) -> Option<([u8; 16], u16)> {
        self.table.link_of(ifindex)
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Interfaces and addresses that did not fit into the bounded table.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.table.left_out
    }

    /// A full dump is needed, as soon as the last one is old enough.
    fn ask_dump(&mut self, now_us: u64) {
        let earliest = self.dumped_us.map_or(now_us, |last| last.saturating_add(REDUMP_US));
        let due = earliest.max(now_us);
        self.redump = Some(self.redump.map_or(due, |other| other.min(due)));
    }

    fn begin_dump(&mut self, now_us: u64) {
        self.redump = None;
        self.dumped_us = Some(now_us);
        self.counters.dumps += 1;
        self.request(Dump::Links, now_us);
    }

    fn request(&mut self, what: Dump, now_us: u64) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        self.running = None;
        match netlink_sock::send(&self.fd, 0, &rtnl_parse::dump_request(what, sequence)) {
            Ok(()) => {
                let ends_us = now_us.saturating_add(DUMP_LASTS_US);
                self.running = Some(Running { what, sequence, begun: false, interrupted: false, ends_us });
                // The first part of the answer is there already.
                self.more = true;
            }
            Err(_) => {
                // EBUSY while an older dump runs, or no memory: later.
                self.counters.errors += 1;
                self.ask_dump(now_us);
            }
        }
    }

    /// Reads one datagram; false if there was none.
    fn read_one(&mut self, now_us: u64) -> bool {
        let received = match netlink_sock::receive(&self.fd, &mut self.buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.lost(now_us);
                return true;
            }
            Err(_) => {
                self.counters.errors += 1;
                self.ask_dump(now_us);
                return false;
            }
        };
        if !received.from_kernel {
            self.counters.foreign += 1;
            return true;
        }
        if received.truncated {
            self.counters.malformed += 1;
            self.lost(now_us);
            return true;
        }
        // Moved out and back, so that the messages can be applied while they are read.
        let buffer = std::mem::take(&mut self.buffer);
        let datagram = buffer.get(..received.length).unwrap_or_default();
        for message in rtnl_parse::messages(datagram) {
            self.counters.messages += 1;
            self.apply(message, now_us);
        }
        self.buffer = buffer;
        true
    }

    /// Events were lost: nothing that is known can be relied on.
    fn lost(&mut self, now_us: u64) {
        self.counters.overruns += 1;
        self.routes_changed = true;
        self.ask_dump(now_us);
    }

    fn apply(&mut self, message: Message, now_us: u64) {
        // Events carry the number and port of the request, whoever's, that caused them.
        let answer = message.port == self.port;
        let of_dump = answer && self.running.is_some_and(|running| running.sequence == message.sequence);
        if of_dump && let Some(running) = &mut self.running {
            running.interrupted |= message.interrupted;
            // Not when it was asked for: events that waited in the socket before its answer may be long untrue, and
            // must not pass for what it tells.
            if !std::mem::replace(&mut running.begun, true) && running.what == Dump::Links {
                self.table.begin_round();
            }
        }
        let Ok(news) = message.news else {
            self.counters.malformed += 1;
            return;
        };
        // What a dump repeats is no event.
        self.routes_changed |= !answer && !matches!(news, News::Done | News::Failed(_) | News::Other);
        match news {
            News::Link(link) => {
                if self.table.link(link, now_us) && !of_dump {
                    // It may have had addresses before it became an InfiniBand interface.
                    self.ask_dump(now_us);
                }
            }
            News::LinkGone(index) => self.table.link_gone(index),
            News::Addr(addr) => self.table.addr(addr),
            News::AddrGone(addr) => self.table.addr_gone(addr),
            News::Overrun => self.lost(now_us),
            News::Done if of_dump => self.dump_done(now_us),
            News::Failed(errno) if of_dump && errno != 0 => {
                self.counters.errors += 1;
                self.running = None;
                self.ask_dump(now_us);
            }
            News::Done | News::Failed(_) | News::Routes | News::Other => {}
            // groups that this socket does not hear
            News::Neighbour(_) | News::NeighbourGone(_) => {}
        }
    }

    /// A part of the dump is complete.
    fn dump_done(&mut self, now_us: u64) {
        let Some(running) = self.running.take() else { return };
        if running.interrupted {
            self.ask_dump(now_us);
            return;
        }
        match running.what {
            Dump::Links => {
                self.table.sweep_links();
                self.request(Dump::Addresses, now_us);
            }
            Dump::Addresses => self.table.sweep_addrs(),
        }
    }

    /// Reads the sysfs files of interfaces that need it.
    fn probe(&mut self, now_us: u64, limit: usize) {
        for (index, name) in self.table.due(now_us, limit) {
            let found = if name.is_empty() {
                Sysfs::default()
            } else {
                let dir = self.sysfs.join(OsStr::from_bytes(&name));
                Sysfs {
                    hardware: read_text(&dir.join("address")).as_deref().and_then(parse_hardware),
                    pkey: read_text(&dir.join("pkey")).as_deref().and_then(parse_pkey),
                }
            };
            self.table.probed(index, found, now_us);
        }
    }
}

/// The text of a small file; `None` if it cannot be read.
fn read_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(256).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
#[path = "rtnl_tests.rs"]
pub(crate) mod tests;
