//! Where lines go: a descriptor, a file, or the system's log. None of them is ever waited for.
//!
//! A descriptor that leads to systemd's journal gets the priority in front of a line and no time, for the journal keeps
//! both by itself.
#![allow(unsafe_code)] // write(2) without the standard library's buffers, and poll(2), which it doesn't have.

use super::line::Line;
#[cfg(feature = "syslog")]
use super::syslog::Syslog;
use crate::options::LogTarget;
use std::env;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The mode of a new log file, less what the umask takes; what others could write is taken from an old one too.
const MODE: u32 = 0o644;
const WRITABLE_BY_OTHERS: u32 = 0o022;

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
    /// Standard output or error, by number: what stands behind it may change when the process becomes a daemon. And
    /// whether it was the journal when it was opened.
    Fd { fd: RawFd, journal: bool },
    /// A file, and whether its last line was cut short.
    File { path: PathBuf, file: File, cut: bool },
    /// The system's log.
    #[cfg(feature = "syslog")]
    Syslog(Syslog),
}

impl Sink {
    pub(super) fn open(target: &LogTarget) -> Result<Self, LogError> {
        let standard = |fd| {
            let stream = env::var("JOURNAL_STREAM").ok();
            Sink::Fd { fd, journal: is_journal(fd, stream.as_deref()) }
        };
        Ok(match target {
            LogTarget::Stdout => standard(1),
            LogTarget::Stderr => standard(2),
            #[cfg(feature = "syslog")]
            LogTarget::Syslog => Sink::Syslog(Syslog::new()),
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
            _ => None,
        }
    }

    /// Sends lines that wait, where lines can: when to do so again, if any are left.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<Instant> {
        match self {
            #[cfg(feature = "syslog")]
            Sink::Syslog(syslog) => syslog.on_time(now),
            _ => {
                let _ = now;
                None
            }
        }
    }

    /// Writes a line whole; an error means that it is lost, or was cut.
    pub(super) fn write(&mut self, level: u8, line: Line) -> io::Result<()> {
        match self {
            Sink::Fd { fd, journal } => {
                let text = match journal {
                    true => format!("<{}>{}\n", line.severity(level), line.text),
                    false => format!("{}: {}\n", line.stamp, line.text),
                };
                write_fd(*fd, text.as_bytes()).map(drop)
            }
            Sink::File { file, cut, .. } => {
                // A newline first, where a full disk left half a line behind.
                let start = if *cut { "\n" } else { "" };
                let text = format!("{start}{}: {}\n", line.stamp, line.text);
                let written = write_fd(file.as_raw_fd(), text.as_bytes())?;
                *cut = written < text.len();
                if *cut { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
            }
            #[cfg(feature = "syslog")]
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

/// Whether a descriptor leads to systemd's journal, which `stream` (`device:inode`, from `$JOURNAL_STREAM`) names.
fn is_journal(fd: RawFd, stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|text| text.split_once(':')) else { return false };
    let behind = fs::metadata(format!("/proc/self/fd/{fd}"));
    behind.is_ok_and(|there| Ok(there.dev()) == device.parse() && Ok(there.ino()) == inode.parse())
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
