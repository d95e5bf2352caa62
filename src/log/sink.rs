//! Where lines go: a descriptor, a file, or the system's log. None of them is ever waited for.
#![allow(unsafe_code)] // write(2) without the standard library's buffers, and poll(2), which it doesn't have.

use super::line::{Line, Stamp};
use crate::options::LogTarget;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The mode of a new log file, less what the umask takes; what others could write is taken from an old one too.
const MODE: u32 = 0o644;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Where the system's log listens.
const DEV_LOG: &str = "/dev/log";

/// Why a log file could not be opened.
#[derive(Debug)]
pub struct LogError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogError { path, error } = self;
        write!(f, "log file {}: cannot be opened: {error}", path.display())?;
        match path.parent() {
            Some(parent) if error.kind() == io::ErrorKind::NotFound && !parent.as_os_str().is_empty() => {
                write!(f, " (is there a directory {}?)", parent.display())
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

pub(super) enum Sink {
    /// Standard output or error, by number: what stands behind it may change when the process becomes a daemon.
    Fd(RawFd),
    /// A file, and whether its last line was cut short.
    File { path: PathBuf, file: File, cut: bool },
    /// The system's log.
    Syslog(Syslog),
}

impl Sink {
    pub(super) fn open(target: &LogTarget) -> Result<Self, LogError> {
        Ok(match target {
            LogTarget::Stdout => Sink::Fd(1),
            LogTarget::Stderr => Sink::Fd(2),
            LogTarget::Syslog => Sink::Syslog(Syslog::new(DEV_LOG)),
            LogTarget::File(path) => match open_file(path) {
                Ok(file) => Sink::File { path: path.clone(), file, cut: false },
                Err(error) => return Err(LogError { path: path.clone(), error }),
            },
        })
    }

    /// What to open again, where that makes a difference.
    pub(super) fn target(&self) -> Option<LogTarget> {
        match self {
            Sink::File { path, .. } => Some(LogTarget::File(path.clone())),
            Sink::Fd(_) | Sink::Syslog(_) => None,
        }
    }

    /// Writes a line whole; an error means that it is lost, or was cut.
    pub(super) fn write(&mut self, level: u8, line: &Line) -> io::Result<()> {
        match self {
            Sink::Fd(fd) => write_fd(*fd, format!("{}: {}\n", line.stamp, line.text).as_bytes()).map(drop),
            Sink::File { file, cut, .. } => {
                // A newline first, where a full disk left half a line behind.
                let start = if *cut { "\n" } else { "" };
                let text = format!("{start}{}: {}\n", line.stamp, line.text);
                let written = write_fd(file.as_raw_fd(), text.as_bytes())?;
                *cut = written < text.len();
                if *cut { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
            }
            Sink::Syslog(syslog) => syslog.write(level, line),
        }
    }
}

/// Opens a log file for appending, so that nobody else can write to it or make us write elsewhere.
fn open_file(path: &Path) -> io::Result<File> {
    // Not to hang in a FIFO that nobody reads, nor get a terminal that would then send its signals to us.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    let file = match options.custom_flags(flags | libc::O_NOFOLLOW).open(path) {
        // A link that only the owner of its directory can have put there is meant (/dev/stdout, another disk).
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) && is_private(path.parent())? => {
            options.custom_flags(flags).open(path)?
        }
        other => other?,
    };
    let status = file.metadata()?;
    let mode = status.permissions().mode();
    if status.is_file() && mode & WRITABLE_BY_OTHERS != 0 {
        // Left so by an older program. Not ours to change if it fails: the file is another user's.
        let _ = file.set_permissions(Permissions::from_mode(mode & 0o7777 & !WRITABLE_BY_OTHERS));
    }
    Ok(file)
}

/// Whether a directory is written by its owner alone, and that owner is root or this process.
fn is_private(directory: Option<&Path>) -> io::Result<bool> {
    let directory = directory.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let status = fs::metadata(directory)?;
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    Ok(status.mode() & WRITABLE_BY_OTHERS == 0 && (status.uid() == 0 || status.uid() == own))
}

/// One write, unless it would wait. A pipe that says it can be written takes a whole line, which is shorter than
/// `PIPE_BUF`; a file always says so.
fn write_fd(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid structure, and the call doesn't wait.
    match unsafe { libc::poll(&raw mut poll, 1, 0) } {
        1 if poll.revents & libc::POLLOUT != 0 => {}
        0 => return Err(io::ErrorKind::WouldBlock.into()),
        1 => return Err(io::ErrorKind::BrokenPipe.into()),
        _ => return Err(io::Error::last_os_error()),
    }
    // SAFETY: the pointer and the length are those of a slice.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// A connection to the system's log that finds it again after it was restarted.
pub(super) struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        let mut syslog = Syslog { path: path.into(), socket: None };
        // Not there yet is no error: every line tries again.
        syslog.socket = syslog.connect().ok();
        syslog
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.path)?;
        Ok(socket)
    }

    fn write(&mut self, level: u8, line: &Line) -> io::Result<()> {
        let message = message(level, line, std::process::id());
        if let Some(socket) = &self.socket {
            match socket.send(message.as_bytes()) {
                Ok(_) => return Ok(()),
                // It lives and is busy: connecting again would not help.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => return Err(error),
                Err(_) => {}
            }
        }
        self.socket = None;
        let socket = self.connect()?;
        socket.send(message.as_bytes())?;
        self.socket = Some(socket);
        Ok(())
    }
}

/// A line as the system's log takes it: `<priority>Jan  2 03:04:05 ibacm[pid]: source: text`.
fn message(level: u8, line: &Line, pid: u32) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Facility 3 is that of daemons; severities: 3 error, 4 warning, 5 notice, 6 information, 7 debugging.
    let text = line.text.split_once(": ").map_or(line.text.as_str(), |(_, text)| text);
    let starts = |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let severity = match level {
        0 if starts("error") => 3,
        0 if starts("warn") => 4,
        0 => 5,
        1 => 6,
        _ => 7,
    };
    let Stamp { month, day, hour, minute, second, .. } = line.stamp;
    let month = MONTHS.get(month.saturating_sub(1) as usize).unwrap_or(&"Jan");
    format!("<{}>{month} {day:2} {hour:02}:{minute:02}:{second:02} ibacm[{pid}]: {}", 3 << 3 | severity, line.text)
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
