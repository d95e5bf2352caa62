//! Running `ib_acme` on a host: the one of this package and the distribution's, under one name.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::util::{Lab, acme, run, wait_for};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The one of this package.
    Ours,
    /// The distribution's.
    Stock,
}

/// What has come of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The exit status as a shell has it: a signal is 128 and more.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// Whether it printed its usage.
    pub fn is_usage(&self) -> bool {
        self.stdout.starts_with("usage 1:")
    }

    /// Whether the memory was not its own.
    pub fn has_crashed(&self) -> bool {
        // SIGABRT, SIGBUS, SIGSEGV
        [6, 7, 11].contains(&self.status.signal().unwrap_or_default())
    }
}

impl Tool {
    /// The program's file.
    pub fn path(self) -> &'static OsStr {
        match self {
            // Taken for ours in its place, the distribution's shows that the table holds of itself.
            Tool::Ours if std::env::var_os("STOCK_TWICE").is_some() => OsStr::new("/usr/bin/ib_acme"),
            Tool::Ours => acme::ours().as_os_str(),
            Tool::Stock => OsStr::new("/usr/bin/ib_acme"),
        }
    }

    /// The program on a host, with `ib_acme` for its own name whatever its file is called.
    pub fn command(self, lab: &Lab<'_>, host: &str) -> Command {
        self.script(lab, host, r#"exec -a ib_acme "$IB_ACME" "$@""#)
    }

    /// The program on this machine, where no host is needed.
    pub fn here(self) -> Command {
        let mut command = Command::new(self.path());
        command.arg0("ib_acme").env_remove("POSIXLY_CORRECT");
        command
    }

    /// A script for bash on a host; the program is `$IB_ACME`.
    pub fn script(self, lab: &Lab<'_>, host: &str, text: &str) -> Command {
        let mut command = lab.exec(host, "/bin/bash");
        command.args(["-c", text, "bash"]).env("IB_ACME", self.path()).env_remove("POSIXLY_CORRECT");
        command
    }

    /// Runs it to its end.
    pub fn ask(self, lab: &Lab<'_>, host: &str, arguments: &[String]) -> Ran {
        finish(self.command(lab, host).args(arguments))
    }

    /// As [`Tool::ask`], for words without spaces.
    pub fn words(self, lab: &Lab<'_>, host: &str, line: &str) -> Ran {
        self.ask(lab, host, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Ran {
    let output = run(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Whether a command is still busy after this time. It is ended then.
pub fn is_endless(command: &mut Command, time: Duration) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().expect("it starts");
    let ended = wait_for(time, || child.try_wait().expect("it is a child"));
    let _ = child.kill();
    let _ = child.wait();
    ended.is_none()
}

/// What of ours is not as the distribution's, if anything.
pub fn difference(ours: &Ran, stock: &Ran) -> Result<(), String> {
    if ours.stdout != stock.stdout || ours.status != stock.status {
        return Err(format!("ours: {}\n{}stock: {}\n{}", ours.status, ours.stdout, stock.status, stock.stdout));
    }
    // Ours gives advice beside; what getopt(3) says is said by both.
    let missing = stock.stderr.lines().find(|line| stock.is_usage() && !ours.stderr.lines().any(|l| l == *line));
    match missing {
        Some(line) => Err(format!("ours does not say {line:?} but {:?}", ours.stderr)),
        None if ours.stderr.contains("panicked") => Err(ours.stderr.clone()),
        None => Ok(()),
    }
}

/// Whether `docs/differences.md` has a section with this heading.
pub fn is_documented(heading: &str) -> bool {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/differences.md");
    let text = std::fs::read_to_string(path).expect("the list of differences");
    text.lines().any(|l| l.starts_with('#') && l.trim_start_matches('#').trim() == heading)
}
