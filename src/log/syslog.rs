//! The system's log: the crate `syslog` for what its messages are made of, and here what that leaves to its user: a
//! connection that is never waited for and is found again after the log was restarted, and local time, as the log
//! expects it (the crate's own stamps are UTC, which an hour's offset away is a wrong time).

use super::line::{Line, Stamp};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use syslog::{Error, Facility, LogFormat, Logger, LoggerBackend, Severity};

/// Where the system's log listens.
const DEV_LOG: &str = "/dev/log";

type Connection = Logger<LoggerBackend, Format>;

/// A connection to the system's log.
pub(super) struct Syslog {
    path: PathBuf,
    connection: Option<Connection>,
}

impl Syslog {
    /// The one of this system. Not there yet is no error: every line tries again.
    pub(super) fn new() -> Self {
        Syslog::at(DEV_LOG)
    }

    fn at(path: impl Into<PathBuf>) -> Self {
        let mut syslog = Syslog { path: path.into(), connection: None };
        syslog.connection = syslog.connect().ok();
        syslog
    }

    /// The crate would make a socket that waits.
    fn connect(&self) -> io::Result<Connection> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.path)?;
        Ok(Logger::new(LoggerBackend::Unix(socket), Format { pid: std::process::id() }))
    }

    /// Sends a line; an error means that it is lost.
    pub(super) fn write(&mut self, level: u8, line: &Line) -> io::Result<()> {
        if let Some(connection) = &mut self.connection {
            match send(connection, level, line) {
                // It lives and is busy: connecting again would not help.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => return Err(error),
                Err(_) => self.connection = None,
                sent => return sent,
            }
        }
        let mut connection = self.connect()?;
        send(&mut connection, level, line)?;
        self.connection = Some(connection);
        Ok(())
    }
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

    #[test]
    fn it_is_found_again() {
        let path = socket("again");
        let mut syslog = Syslog::at(&path);
        assert!(syslog.write(0, &line("nobody is there")).is_err());
        for round in 0..2 {
            let server = UnixDatagram::bind(&path).unwrap();
            syslog.write(1, &line("hello")).unwrap();
            let mut buffer = [0; 256];
            let length = server.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            assert!(text.starts_with("<30>") && text.ends_with("]: test: hello"), "{round}: {text}");
            drop(server);
            fs::remove_file(&path).unwrap();
            assert!(syslog.write(0, &line("it went away")).is_err());
        }
    }

    #[test]
    fn a_busy_one_is_not_waited_for() {
        let path = socket("busy");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::at(&path);
        let mut sent = 0;
        while syslog.write(0, &line("x")).is_ok() {
            sent += 1;
            assert!(sent < 1_000_000, "the queue never fills");
        }
        let mut buffer = [0; 256];
        server.recv(&mut buffer).unwrap();
        syslog.write(0, &line("there is room again")).unwrap();
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
