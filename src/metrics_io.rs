//! The file of numbers, written again and again: whoever reads it finds a whole one, the old or the new.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::log;
use crate::time::Time;

/// Everybody may read it.
const MODE: u32 = 0o644;

/// The file, if one is wanted, and when it is to be written next.
#[derive(Debug)]
pub struct MetricsFile {
    path: Option<PathBuf>,
    interval: Duration,
    next: Time,
    /// The last attempt failed, which has been said.
    failing: bool,
}

impl Default for MetricsFile {
    fn default() -> MetricsFile {
        MetricsFile { path: None, interval: Duration::ZERO, next: Time::NEVER, failing: false }
    }
}

impl MetricsFile {
    /// Says where the file is to be, if anywhere, and how often it is written, in seconds. A new one is written at once.
    pub fn set(&mut self, now: Time, path: Option<&Path>, interval: u32) {
        let interval = Duration::from_secs(u64::from(interval));
        if self.path.as_deref() == path && self.interval == interval {
            return;
        }
        *self = MetricsFile { path: path.map(Path::to_owned), interval, next: Time::NEVER, failing: false };
        if self.path.is_some() {
            self.next = now;
        }
    }

    /// Where it is, if anywhere.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// When [`MetricsFile::write`] is to be called next; never, where no file is wanted.
    pub fn next_deadline(&self) -> Time {
        self.next
    }

    /// Writes the file. Where that cannot be done the old one stays; that is said once, and that it is over.
    pub fn write(&mut self, now: Time, bytes: &[u8]) {
        let Some(path) = &self.path else { return };
        self.next = now.plus(self.interval);
        let written = replace(path, bytes);
        match &written {
            Ok(()) if self.failing => log!(0, "metrics_file {} is written again", path.display()),
            Err(e) if !self.failing => log!(0, "cannot write metrics_file {}: {e}", path.display()),
            _ => {}
        }
        self.failing = written.is_err();
    }
}

/// How every file begins.
const OWN: &[u8; 13] = b"# HELP ibacm_";

/// Puts a file with these bytes in the place of `path`: of the one that is there, or of nothing. What is no file stays.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("what is there is no file"));
    }
    if !is_own(path) {
        return Err(io::Error::other("what is there is something else's"));
    }
    let temp = temp_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let made = write_new(&temp, bytes).and_then(|()| fs::rename(&temp, path));
    if made.is_err() {
        // where it is not even there that is no second error
        let _ = fs::remove_file(&temp);
    }
    made
}

/// Whether what is there, if anything is, is a file of such numbers, and not one that the path names by mistake.
fn is_own(path: &Path) -> bool {
    let mut begin = [0; OWN.len()];
    match fs::File::open(path).and_then(|mut file| file.read(&mut begin)) {
        Ok(0) | Err(_) => true,
        Ok(_) => begin == *OWN,
    }
}

/// The name under which the file comes to be, in the same directory: none that collectors look at, which end in `.prom`.
fn temp_name(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}", std::process::id()));
    Some(path.with_file_name(name))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(MODE).custom_flags(libc::O_NOFOLLOW).open(path);
    let mut file = open().or_else(|e| match e.kind() {
        // of one that was killed and had the same number: a link goes, not what it leads to
        io::ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| open()),
        _ => Err(e),
    })?;
    // whatever the umask
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(bytes)
}

#[cfg(test)]
#[path = "metrics_io_tests.rs"]
mod tests;
