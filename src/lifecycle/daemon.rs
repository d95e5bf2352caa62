//! Going into the background: the parent ends only when the daemon serves, or says why it doesn't.
#![allow(unsafe_code)] // fork(2) and what belongs to it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

/// Longest reason that is passed on, in bytes.
const MAX_REASON: usize = 4096;
const READY: u8 = b'R';
const FAILED: u8 = b'F';

/// Why the process could not go into the background.
#[derive(Debug)]
pub struct DaemonError {
    what: &'static str,
    error: io::Error,
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot become a daemon: {}: {}", self.what, self.error)
    }
}

impl std::error::Error for DaemonError {}

/// The duty of a daemon to its parent, who still waits: to say that it serves, or why it doesn't. If it is dropped, or
/// the process ends, without either, the parent says that.
#[derive(Debug)]
#[must_use = "the parent waits for it"]
pub struct Ready(Option<PipeWriter>);

impl Ready {
    /// For a process that has no such parent: saying that it is ready does nothing, reasons go to standard error.
    pub const fn foreground() -> Self {
        Ready(None)
    }

    /// The service runs: closes standard input, output and error (until now they were the parent's, for whatever a
    /// library might print) and lets the parent end with success.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened. That the parent is gone is none.
    pub fn ready(self) -> io::Result<()> {
        let Some(mut writer) = self.0 else { return Ok(()) };
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        for fd in 0..=2 {
            // SAFETY: both are descriptors of this process; nothing owns 0 to 2.
            if unsafe { libc::dup2(null.as_raw_fd(), fd) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let _ = writer.write_all(&[READY]);
        Ok(())
    }

    /// The service cannot run: the parent prints the reason and exits with `code`; the caller is to end too.
    pub fn fail(self, code: u8, reason: &str) {
        match self.0 {
            None => {
                let _ = writeln!(io::stderr(), "ibacm: {reason}");
            }
            Some(mut writer) => {
                let reason = &reason.as_bytes()[..reason.len().min(MAX_REASON)];
                let _ = writer.write_all(&[&[FAILED, code], reason].concat());
            }
        }
    }
}

/// Splits the process in two. The child, in a session of its own with `/` as its directory, returns; the parent waits
/// for what the child says by [`Ready`] and never returns.
///
/// To be called while there is a single thread and nothing is locked, bound or buffered.
///
/// # Errors
/// The system refuses; there is one process still, or it is the child that says so to its caller.
pub fn daemonise() -> Result<Ready, DaemonError> {
    let failed = |what, error| DaemonError { what, error };
    let (reader, writer) = io::pipe().map_err(|error| failed("pipe", error))?;
    // SAFETY: the caller sees to it that there is a single thread, so that the child can go on as the parent would.
    match unsafe { libc::fork() } {
        -1 => Err(failed("fork", io::Error::last_os_error())),
        0 => {
            drop(reader);
            let ready = Ready(Some(writer));
            match detach() {
                Ok(()) => Ok(ready),
                // The caller's message would go to standard error only, and the parent would wonder.
                Err(error) => {
                    ready.fail(1, &error.to_string());
                    Err(error)
                }
            }
        }
        child => {
            drop(writer);
            std::process::exit(i32::from(await_child(reader, child)));
        }
    }
}

fn detach() -> Result<(), DaemonError> {
    // SAFETY: takes nothing; fails only for leaders of a group, which a new child is not.
    if unsafe { libc::setsid() } < 0 {
        return Err(DaemonError { what: "setsid", error: io::Error::last_os_error() });
    }
    // Not to hold a file system that somebody wants to unmount.
    std::env::set_current_dir("/").map_err(|error| DaemonError { what: "chdir /", error })
}

/// What a child said, by all the bytes of its pipe.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    Ready,
    Failed(u8, String),
    Nothing,
}

fn understand(bytes: &[u8]) -> Message {
    match bytes {
        [READY, ..] => Message::Ready,
        // A failure that would look like success is none.
        [FAILED, code, reason @ ..] => Message::Failed((*code).max(1), String::from_utf8_lossy(reason).into_owned()),
        _ => Message::Nothing,
    }
}

/// Waits for the child's word and gives the code to exit with.
fn await_child(reader: PipeReader, child: libc::pid_t) -> u8 {
    let mut bytes = Vec::new();
    let _ = reader.take(MAX_REASON as u64 + 2).read_to_end(&mut bytes);
    match understand(&bytes) {
        Message::Ready => 0,
        Message::Failed(code, reason) => {
            let _ = writeln!(io::stderr(), "ibacm: {reason}");
            code
        }
        Message::Nothing => {
            let mut status = 0;
            // SAFETY: a valid place for the status of a child of this process.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
            let how = match status {
                status if ended && libc::WIFSIGNALED(status) => format!(": signal {}", libc::WTERMSIG(status)),
                status if ended && libc::WIFEXITED(status) => format!(": exit code {}", libc::WEXITSTATUS(status)),
                _ => String::new(),
            };
            let _ = writeln!(io::stderr(), "ibacm: the daemon ended before it was ready{how}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_child() {
        assert_eq!(understand(b"R"), Message::Ready);
        assert_eq!(understand(b""), Message::Nothing);
        assert_eq!(understand(b"F"), Message::Nothing);
        assert_eq!(understand(b"F\x03no port\xff"), Message::Failed(3, String::from("no port\u{fffd}")));
        assert_eq!(understand(b"F\0x"), Message::Failed(1, String::from("x")));
    }

    #[test]
    fn long_reasons_are_cut_and_whole_ones_arrive() {
        let (mut reader, writer) = io::pipe().unwrap();
        Ready(Some(writer)).fail(7, &"é".repeat(MAX_REASON));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), MAX_REASON + 2);
        assert!(matches!(understand(&bytes), Message::Failed(7, _)));
    }
}
