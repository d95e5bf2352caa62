//! Telling the service manager how the service is: datagrams of `NAME=value` lines.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::sys;
use crate::time::Time;

/// How long a manager that does not read may hold the loop up when it must be told something.
const PATIENCE: Duration = Duration::from_millis(500);
/// The status is looked at again after so long at the earliest.
const LOOK: Duration = Duration::from_secs(1);
/// Longest text of a reason that is passed on, in bytes.
const MAX_REASON: usize = 512;

/// What an operator wants to see of the service in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Devices that are open.
    pub devices: usize,
    /// Endpoints that are up.
    pub endpoints: usize,
    /// Multicast groups that are to be joined.
    pub groups: usize,
    /// Those of them that are.
    pub joined: usize,
    /// Clients that are connected.
    pub clients: usize,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let Status { devices, endpoints, groups, joined, clients } = *self;
        if devices == 0 {
            f.write_str("waiting for an InfiniBand device, ")?;
        } else {
            write!(f, "{devices} device{}, {endpoints} endpoint{}, ", s(devices), s(endpoints))?;
            write!(f, "{joined} of {groups} group{} joined, ", s(groups))?;
        }
        write!(f, "{clients} client{}", s(clients))
    }
}

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants a sign of life.
    beat: Option<Duration>,
    next_beat: Time,
    /// The status that it was told last.
    told: Option<Status>,
    next_look: Time,
    /// Something happened since the last look.
    look: bool,
    /// That it cannot be told anything has been said.
    complained: bool,
}

impl Manager {
    /// Nobody.
    pub fn none() -> Manager {
        Manager::new(None, None)
    }

    /// The one who listens at this address (a path, or `@` and a name), and takes the service for dead when it hears no
    /// sign of life for `watchdog`.
    pub(super) fn new(address: Option<&OsStr>, watchdog: Option<Duration>) -> Manager {
        let socket = address.and_then(|a| match open(a.as_bytes()) {
            Ok(socket) => Some(socket),
            Err(e) => {
                crate::log!(0, "the service manager at '{}' is out of reach: {e}", a.to_string_lossy().escape_debug());
                None
            }
        });
        // At half of the time, as sd_watchdog_enabled(3) advises.
        let beat = watchdog.filter(|_| socket.is_some()).map(|w| w / 2);
        let (next_beat, next_look) = (if beat.is_some() { Time(0) } else { Time::NEVER }, Time(0));
        Manager { socket, beat, next_beat, told: None, next_look, look: false, complained: false }
    }

    /// The service serves (again).
    pub fn ready(&mut self, status: Status) {
        self.tell(&format!("READY=1\nSTATUS={status}\n"));
        self.told = Some(status);
    }

    /// The service reads its files again; [`Manager::ready`] is to follow.
    pub fn reloading(&mut self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reading the files again\n", sys::monotonic_us()));
        self.told = None;
    }

    /// The service ends as soon as what it has begun is done.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1\nSTATUS=answering the last requests\n");
        self.next_look = Time::NEVER;
        self.look = false;
    }

    /// The service cannot run.
    pub fn failed(&mut self, why: &str) {
        let line: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cut = (0..=MAX_REASON.min(line.len())).rev().find(|n| line.is_char_boundary(*n)).unwrap_or(0);
        self.tell(&format!("STATUS=cannot serve: {}\n", &line[..cut]));
    }

    /// Once a turn of the loop: gives the sign of life that is due, and the status when it has changed.
    pub fn turn(&mut self, now: Time, status: impl FnOnce() -> Status) {
        if self.socket.is_none() {
            return;
        }
        if let Some(beat) = self.beat
            && self.next_beat <= now
        {
            self.tell("WATCHDOG=1\n");
            self.next_beat = now.plus(beat);
        }
        if now < self.next_look {
            self.look = self.next_look != Time::NEVER;
            return;
        }
        (self.look, self.next_look) = (false, now.plus(LOOK));
        let status = status();
        // Nobody waits for this one: where it is lost, the next look sends it.
        if self.told != Some(status) && self.send(&format!("STATUS={status}\n"), false).is_ok() {
            self.told = Some(status);
        }
    }

    /// When [`Manager::turn`] has something to do next.
    pub fn next_deadline(&self) -> Time {
        self.next_beat.min(if self.look { self.next_look } else { Time::NEVER })
    }

    fn tell(&mut self, text: &str) {
        if let Err(e) = self.send(text, true)
            && !std::mem::replace(&mut self.complained, true)
        {
            crate::log!(0, "the service manager does not listen: {e}");
        }
    }

    fn send(&self, text: &str, wait: bool) -> io::Result<()> {
        let Some((socket, address)) = &self.socket else { return Ok(()) };
        socket.set_nonblocking(!wait)?;
        socket.send_to_addr(text.as_bytes(), address).map(drop)
    }
}

fn open(address: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        Some((b'/', _)) => SocketAddr::from_pathname(OsStr::from_bytes(address))?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(name: &str) -> (UnixDatagram, String) {
        let name = format!("ibacm-notify-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (socket, format!("@{name}"))
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    const ONE: Status = Status { devices: 1, endpoints: 2, groups: 2, joined: 1, clients: 1 };

    #[test]
    fn the_words_in_their_order() {
        let (socket, address) = listener("words");
        let mut m = Manager::new(Some(OsStr::new(&address)), None);
        m.ready(ONE);
        assert_eq!(heard(&socket), "READY=1\nSTATUS=1 device, 2 endpoints, 1 of 2 groups joined, 1 client\n");
        let before = sys::monotonic_us();
        m.reloading();
        let text = heard(&socket);
        let lines: Vec<&str> = text.lines().collect();
        let at: u64 = lines[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert_eq!((lines[0], lines.len()), ("RELOADING=1", 3));
        assert!((before..=sys::monotonic_us()).contains(&at) && at > 0);
        m.stopping();
        assert!(heard(&socket).starts_with("STOPPING=1\n"));
        m.failed("no\nREADY=1 port");
        assert_eq!(heard(&socket), "STATUS=cannot serve: no READY=1 port\n");
        m.failed(&"é".repeat(5000));
        assert!(heard(&socket).len() < 600);
    }

    #[test]
    fn a_changed_status_is_told_once_and_a_second_later() {
        let (socket, address) = listener("status");
        let mut m = Manager::new(Some(OsStr::new(&address)), None);
        m.ready(ONE);
        heard(&socket);
        m.turn(Time(1), || ONE);
        assert_eq!(m.next_deadline(), Time::NEVER, "nothing happened: nothing to wake up for");
        let two = Status { clients: 2, ..ONE };
        m.turn(Time(2), || two);
        let due = Time(1).plus(LOOK);
        assert_eq!(m.next_deadline(), due);
        m.turn(due, || two);
        assert!(heard(&socket).ends_with(", 2 clients\n"));
        assert_eq!(m.next_deadline(), Time::NEVER);
        socket.set_nonblocking(true).unwrap();
        m.turn(due.plus(LOOK), || two);
        assert!(socket.recv(&mut [0; 100]).is_err(), "told twice");
        let gone = Status { clients: 0, ..Status::default() };
        m.turn(due.plus(LOOK).plus(LOOK), || gone);
        assert_eq!(heard(&socket), "STATUS=waiting for an InfiniBand device, 0 clients\n");
    }

    #[test]
    fn a_sign_of_life_at_half_of_the_time() {
        let (socket, address) = listener("watchdog");
        let mut m = Manager::new(Some(OsStr::new(&address)), Some(Duration::from_secs(10)));
        m.ready(ONE);
        heard(&socket);
        m.turn(Time(0), || ONE);
        assert_eq!(heard(&socket), "WATCHDOG=1\n");
        assert_eq!(m.next_deadline(), Time(5_000_000));
        m.turn(Time(5_000_000), || ONE);
        assert_eq!(heard(&socket), "WATCHDOG=1\n");
        m.stopping();
        assert_eq!(m.next_deadline(), Time(10_000_000), "a service that hangs while it stops is dead too");
    }

    #[test]
    fn nobody_and_nonsense() {
        for address in [None, Some(""), Some("relative"), Some("/nonexistent/notify"), Some("vsock:2:1234")] {
            let mut m = Manager::new(address.map(OsStr::new), Some(Duration::from_secs(1)));
            m.ready(ONE);
            m.turn(Time(0), || ONE);
            m.stopping();
        }
        let long = format!("/{}", "x".repeat(200));
        assert!(Manager::new(Some(OsStr::new(&long)), None).socket.is_none());
        let mut none = Manager::none();
        none.turn(Time(5), || unreachable!("nobody asked"));
        assert_eq!(none.next_deadline(), Time::NEVER);
    }

    #[test]
    fn a_manager_that_does_not_read_holds_up_little() {
        let (socket, address) = listener("full");
        let mut m = Manager::new(Some(OsStr::new(&address)), None);
        let begin = std::time::Instant::now();
        // Until the queue is full: then each waits its time.
        while m.send("STATUS=x\n", false).is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        let begin = std::time::Instant::now();
        m.ready(ONE);
        assert!(begin.elapsed() < 3 * PATIENCE);
        m.turn(Time(0), || Status { clients: 9, ..ONE });
        assert_eq!(m.told, Some(ONE), "what was not sent is not told");
        drop(socket);
    }
}
