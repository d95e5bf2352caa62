//! Tries an object in a process of its own: what crashes, ends the process or never returns while it is loaded costs that
//! process, and the service goes on without it.
#![allow(unsafe_code)] // fork(2) and what belongs to it.

use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::object;
use crate::log;

/// Says that constructors have run.
const QUERY: u8 = b'Q';
/// Length and the name follow.
const GOOD: u8 = b'G';
/// Length and the reason follow.
const BAD: u8 = b'B';
/// Longest name or reason, in bytes.
const MAX_TEXT: usize = 1024;
/// How long the system may take to end a process that was killed.
const KILLED: Duration = Duration::from_secs(1);

/// An object that is being tried.
#[derive(Debug)]
pub struct Probe {
    child: libc::pid_t,
    pipe: PipeReader,
}

impl Probe {
    /// Begins to try an object. To be called while this process has one thread.
    ///
    /// # Errors
    /// The system makes no process or pipe.
    pub fn start(file: &Path) -> io::Result<Probe> {
        let (pipe, out) = io::pipe()?;
        // Who ignores the end of children could not be told how they ended.
        // SAFETY: no function of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: the caller sees to it that nobody holds a lock that the child may need.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => try_it(file, out),
            child => Ok(Probe { child, pipe }),
        }
    }

    /// The object's name, or what is wrong with it; waits for that until `until`.
    pub fn finish(mut self, until: Instant) -> Result<String, String> {
        let mut bytes = Vec::new();
        let in_time = self.listen(&mut bytes, until);
        let said = understand(&bytes);
        let status = match (in_time, &said) {
            // it ends by itself
            (true, Said { verdict: None, .. }) => self.await_end(until),
            _ => None,
        };
        if status.is_none() {
            self.kill();
        }
        let when = if said.queried { "in provider_query" } else { "while it is loaded" };
        said.verdict.unwrap_or_else(|| {
            Err(match status {
                Some(s) if libc::WIFSIGNALED(s) => format!("it crashes {when} ({})", signal_name(libc::WTERMSIG(s))),
                Some(s) => format!("it ends the process {when} (exit code {})", libc::WEXITSTATUS(s)),
                None => format!("it does not return in time {when}"),
            })
        })
    }

    /// Takes what the child says, up to its verdict or end; whether that came in time.
    fn listen(&mut self, bytes: &mut Vec<u8>, until: Instant) -> bool {
        let mut piece = [0; MAX_TEXT];
        while understand(bytes).verdict.is_none() {
            // rounded up, so as not to turn in circles for the last millisecond
            let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
            let mut wanted = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, and its number.
            match unsafe { libc::poll(&raw mut wanted, 1, left) } {
                0 => return false,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
                -1 => return false,
                _ => {}
            }
            match self.pipe.read(&mut piece) {
                Ok(0) => return true,
                Ok(n) => bytes.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if bytes.len() > 2 * MAX_TEXT {
                return false;
            }
        }
        true
    }

    /// How the child ended.
    fn await_end(&mut self, until: Instant) -> Option<libc::c_int> {
        loop {
            let mut status = 0;
            // SAFETY: a place for the status of a child of this process.
            match unsafe { libc::waitpid(self.child, &raw mut status, libc::WNOHANG) } {
                0 if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                0 => return None,
                child => {
                    let reaped = child == self.child;
                    self.child = 0;
                    return reaped.then_some(status);
                }
            }
        }
    }

    fn kill(&mut self) {
        if self.child > 0 {
            // SAFETY: a child that nobody has waited for, so that the number is still its own.
            unsafe { libc::kill(self.child, libc::SIGKILL) };
            self.await_end(Instant::now() + KILLED);
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the child does.
fn try_it(file: &Path, mut out: PipeWriter) -> ! {
    be_quiet(&out);
    let (kind, text) = match object::open(file, || drop((&out).write_all(&[QUERY]))) {
        Ok(loaded) => (GOOD, loaded.name),
        Err(reason) => (BAD, reason),
    };
    let text = &text.as_bytes()[..text.len().min(MAX_TEXT)];
    let _ = out.write_all(&[&[kind], &(text.len() as u16).to_be_bytes()[..], text].concat());
    // SAFETY: ends this process, without what it would do at an end of its own: that is for the parent.
    unsafe { libc::_exit(0) }
}

/// Takes from the child what it has of the service: log, terminal, lock file and sockets.
fn be_quiet(out: &PipeWriter) {
    log::silence();
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..=2 {
            // SAFETY: descriptors of this process; nothing owns 0 to 2.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
    let keep = out.as_raw_fd() as libc::c_uint;
    for (from, to) in [(3, keep.saturating_sub(1)), (keep.saturating_add(1), libc::c_uint::MAX)] {
        // What refuses to be closed does no harm.
        // SAFETY: nothing in this process uses them any more; where there are none between, it is an error.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    }
    // Not to outlive the service, and no core dump: the crash is told.
    // SAFETY: two settings of this process, without pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// What a child has said so far.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    queried: bool,
    verdict: Option<Result<String, String>>,
}

fn understand(bytes: &[u8]) -> Said {
    let (queried, rest) = match bytes {
        [QUERY, rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let verdict = match rest {
        [kind @ (GOOD | BAD), high, low, text @ ..] => {
            let text = text.get(..usize::from(u16::from_be_bytes([*high, *low])));
            let text = text.map(|t| String::from_utf8_lossy(t).into_owned());
            text.map(|t| if *kind == GOOD { Ok(t) } else { Err(t) })
        }
        _ => None,
    };
    Said { queried, verdict }
}

fn signal_name(number: libc::c_int) -> String {
    let names = [
        (libc::SIGSEGV, "segmentation fault"),
        (libc::SIGBUS, "bus error"),
        (libc::SIGABRT, "abort"),
        (libc::SIGILL, "illegal instruction"),
        (libc::SIGFPE, "arithmetic error"),
        (libc::SIGSYS, "forbidden system call"),
    ];
    let known = names.iter().find(|(n, _)| *n == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}
