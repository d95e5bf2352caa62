//! The lock file: keeps a second instance out and holds the process id.
#![allow(unsafe_code)] // fcntl(2) locks, which the standard library doesn't have.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How often the file may vanish between opening and locking it: others are starting and ending at the same time.
const MAX_TRIES: u32 = 16;

/// Why the lock could not be had.
#[derive(Debug)]
pub enum LockError {
    /// Another instance has it.
    Held {
        /// The lock file.
        path: PathBuf,
        /// The other's process id, where it can be found out.
        pid: Option<u32>,
    },
    /// The file cannot be opened, locked or written.
    Io {
        /// The lock file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { path, pid: Some(pid) } => {
                write!(f, "lock file {}: already running, as process {pid}", path.display())
            }
            LockError::Held { path, pid: None } => write!(f, "lock file {}: already running", path.display()),
            LockError::Io { path, what, error } => write!(f, "lock file {}: cannot be {what}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LockError {}

/// The lock, held until this is dropped; the file goes with it.
///
/// It is a lock of the open file (`F_OFD_SETLK`) over the whole of it: it excludes the `lockf` locks of the C service
/// and is excluded by them, yet doesn't vanish when some library opens and closes the same file.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// Takes the lock and writes this process's id into the file. Never waits.
    ///
    /// # Errors
    /// Another instance has it, or the file cannot be used. A file that another holds is not changed.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |what, error| LockError::Io { path: path.to_owned(), what, error };
        for _ in 0..MAX_TRIES {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(path)
                .map_err(|error| failed("opened", error))?;
            let status = file.metadata().map_err(|error| failed("examined", error))?;
            if !status.is_file() {
                return Err(failed("used", io::Error::other("not a regular file")));
            }
            match set_lock(&file) {
                Ok(()) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                    return Err(LockError::Held { path: path.to_owned(), pid: holder(&file) });
                }
                Err(error) => return Err(failed("locked", error)),
            }
            // The one that had it may have removed the file meanwhile: then this lock is on a file without a name.
            if !is_at(&status, path) {
                continue;
            }
            let pid = format!("{}\n", std::process::id());
            file.write_all_at(pid.as_bytes(), 0)
                .and_then(|()| file.set_len(pid.len() as u64))
                .map_err(|error| failed("written", error))?;
            return Ok(LockFile { path: path.to_owned(), file });
        }
        Err(failed("locked", io::Error::other("it keeps vanishing")))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While it is still locked, and only if it is still this file. Nothing to be done if it fails: the lock goes
        // with the descriptor in any case.
        if self.file.metadata().is_ok_and(|status| is_at(&status, &self.path)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(status: &fs::Metadata, path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (status.dev(), status.ino()))
}

fn whole_file() -> libc::flock {
    // SAFETY: a C structure of numbers, for which all zeroes is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn set_lock(file: &File) -> io::Result<()> {
    let lock = whole_file();
    // SAFETY: the descriptor is open, the structure valid and only read.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Who holds the lock: the kernel knows for the C service's kind of lock; else what stands in the file.
fn holder(file: &File) -> Option<u32> {
    let mut lock = whole_file();
    // SAFETY: the descriptor is open, the structure valid and filled in by the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short && lock.l_pid > 0 {
        return u32::try_from(lock.l_pid).ok();
    }
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.lines().next()?.trim().parse().ok()
}
