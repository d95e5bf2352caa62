//! The system's log: the crate `syslog` for what its messages are made of, and here what that leaves to its user: a
//! connection that is never waited for and is found again after the log was restarted, a few lines kept meanwhile, and
//! local time, as the log expects it (the crate's own stamps are UTC).

use super::line::{Line, Stamp};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use syslog::{Error, Facility, LogFormat, Logger, LoggerBackend, Severity};

/// Where the system's log listens.
const DEV_LOG: &str = "/dev/log";

/// Lines that are kept for a log that is busy or away.
const KEPT: usize = 256;
/// When it is tried again, at first and at last.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(10));

type Connection = Logger<LoggerBackend, Format>;

/// A connection to the system's log.
pub(super) struct Syslog {
    path: PathBuf,
    connection: Option<Connection>,
    waiting: VecDeque<(u8, Line)>,
    pause: Duration,
    retry_at: Option<Instant>,
}

impl Syslog {
    /// The one of this system. Not there yet is no error: lines wait for it.
    pub(super) fn new() -> Self {
        Syslog::at(DEV_LOG)
    }

    fn at(path: impl Into<PathBuf>) -> Self {
        Syslog { path: path.into(), connection: None, waiting: VecDeque::new(), pause: RETRY.0, retry_at: None }
    }

    /// Sends a line, or keeps it for later; an error means that it is lost.
    pub(super) fn write(&mut self, level: u8, line: Line) -> io::Result<()> {
        if self.waiting.len() == KEPT {
            self.send_waiting();
        }
        if self.waiting.len() == KEPT {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.waiting.push_back((level, line));
        self.send_waiting();
        Ok(())
    }

    /// Sends what waits, if it is time: when it is time again.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<Instant> {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.send_waiting();
            self.pause = (self.pause * 2).min(RETRY.1);
            self.retry_at = (!self.waiting.is_empty()).then(|| now + self.pause);
        }
        self.retry_at
    }

    fn send_waiting(&mut self) {
        while let Some((level, line)) = self.waiting.front() {
            let (level, line) = (*level, line);
            let sent = match &mut self.connection {
                Some(connection) => send(connection, level, line),
                None => connect(&self.path).and_then(|new| send(self.connection.insert(new), level, line)),
            };
            match sent {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.pause = RETRY.0;
                }
                Err(error) => {
                    // One that is busy lives: connecting again would not help.
                    let busy = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS));
                    if !busy && self.connection.take().is_some() && connect(&self.path).is_ok() {
                        continue;
                    }
                    self.retry_at.get_or_insert_with(|| Instant::now() + self.pause);
                    return;
                }
            }
        }
        self.retry_at = None;
    }
}

/// The crate would make a socket that waits.
fn connect(path: &Path) -> io::Result<Connection> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    Ok(Logger::new(LoggerBackend::Unix(socket), Format { pid: std::process::id() }))
}

fn send(connection: &mut Connection, level: u8, line: &Line) -> io::Result<()> {
    let sent = match line.severity(level) {
        0..=3 => connection.err(line),
        4 => connection.warning(line),
        5 => connection.notice(line),
        6 => connection.info(line),
        _ => connection.debug(line),
    };
    sent.map_err(|error| match error {
        Error::Io(error) | Error::Write(error) => error,
        Error::Initialization(error) => io::Error::other(error),
    })
}

/// How a line looks there: `<priority>Jan  2 03:04:05 ibacm[pid]: source: text`.
struct Format {
    pid: u32,
}

impl LogFormat<&Line> for Format {
    fn format<W: Write>(&self, to: &mut W, severity: Severity, line: &Line) -> syslog::Result<()> {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Stamp { month, day, hour, minute, second, .. } = line.stamp;
        let month = MONTHS.get(month.saturating_sub(1) as usize).unwrap_or(&"Jan");
        let priority = Facility::LOG_DAEMON as u8 | severity as u8;
        // One call, which the crate makes one datagram of.
        write!(to, "<{priority}>{month} {day:2} {hour:02}:{minute:02}:{second:02} ibacm[{}]: {}", self.pid, line.text)
            .map_err(Error::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn line(text: &str) -> Line {
        Line::new("test", format_args!("{text}"))
    }

    fn socket(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ibacm-syslog-{name}-{}", std::process::id()))
    }

    fn received(server: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = server.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn it_is_found_again_and_lines_wait_for_it() {
        let path = socket("again");
        let mut syslog = Syslog::at(&path);
        syslog.write(0, line("nobody is there")).unwrap();
        for round in 0..2 {
            let server = UnixDatagram::bind(&path).unwrap();
            syslog.write(1, line("hello")).unwrap();
            assert_eq!(syslog.on_time(Instant::now()), None);
            assert!(received(&server).ends_with("]: test: nobody is there"), "{round}");
            let text = received(&server);
            assert!(text.starts_with("<30>") && text.ends_with("]: test: hello"), "{round}: {text}");
            drop(server);
            fs::remove_file(&path).unwrap();
            syslog.write(0, line("nobody is there")).unwrap();
        }
        let server = UnixDatagram::bind(&path).unwrap();
        let due = syslog.on_time(Instant::now()).expect("a line waits");
        assert_eq!(syslog.on_time(due), None);
        assert!(received(&server).ends_with("nobody is there"));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_busy_one_is_not_waited_for() {
        let path = socket("busy");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::at(&path);
        let mut sent = 0;
        while syslog.write(0, line("x")).is_ok() {
            sent += 1;
            assert!(sent < 1_000_000, "the queue never fills");
        }
        assert_eq!(syslog.waiting.len(), KEPT);
        let mut due = syslog.on_time(Instant::now()).expect("lines wait");
        for _ in 0..20 {
            let next = syslog.on_time(due).expect("lines wait");
            assert!(next >= due + RETRY.0 && next <= due + RETRY.1);
            due = next;
        }
        let received_all = (0..sent).take_while(|_| {
            received(&server);
            syslog.write(0, line("there is room again")).is_ok()
        });
        assert_eq!(received_all.count(), sent);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn messages() {
        let stamp = Stamp { month: 12, day: 5, hour: 1, minute: 2, second: 3, ..Stamp::default() };
        let shown = |severity, stamp| {
            let mut out = Vec::new();
            Format { pid: 7 }.format(&mut out, severity, &Line { stamp, text: String::from("sa: no") }).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(Severity::LOG_ERR, stamp), "<27>Dec  5 01:02:03 ibacm[7]: sa: no");
        assert!(shown(Severity::LOG_DEBUG, stamp).starts_with("<31>"));
        assert!(shown(Severity::LOG_INFO, Stamp { month: 0, ..stamp }).contains("Jan"));
    }
}
