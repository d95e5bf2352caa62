//! The processes behind a subnet: ibsim, OpenSM, and one for each host.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::paths::{INSIDE, StateDir};

/// libumad2sim, as Debian installs it.
const UMAD2SIM: &str = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so";

/// This program, to be run as a part of the subnet: the one that runs, even if its file has been built anew since.
fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

/// A program that dies with this one, its output in a file of the state directory.
fn tethered(state: &StateDir, log: &str, program: &str, args: &[&str]) -> io::Result<Command> {
    let log = File::options().create(true).append(true).open(state.file(log))?;
    let mut command = this_program();
    command.arg("tether").arg(program).args(args);
    command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
    Ok(command)
}

/// Becomes another program that is killed when its parent ends.
pub fn tether(command: &[String]) -> io::Error {
    use std::os::unix::process::CommandExt as _;
    if let Err(e) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).and_then(|()| SigSet::all().thread_unblock()) {
        return e.into();
    }
    let e = Command::new(&command[0]).args(&command[1..]).exec();
    io::Error::new(e.kind(), format!("{}: {e}", command[0]))
}

/// The name of this subnet's ibsim sockets.
pub fn socket_base() -> String {
    format!("fabric{}", std::process::id())
}

/// Starts ibsim. Its console is its standard input.
pub fn ibsim(state: &StateDir) -> io::Result<Child> {
    let topology = state.file("topology");
    let file = topology.to_string_lossy();
    tethered(state, "ibsim.log", "ibsim", &["-s", &file])?
        .env("IBSIM_SOCKNAME", socket_base())
        .stdin(Stdio::piped())
        .spawn()
}

/// The environment of a program that uses libumad2sim to talk to this subnet.
pub fn umad2sim(command: &mut Command, base: &str, node: &str) {
    command.env("IBSIM_SOCKNAME", base).env("SIM_HOST", node).env("LD_PRELOAD", UMAD2SIM);
}

/// Starts OpenSM on a node: `SM`, or `SM2`, which has its files in a directory of that name.
pub fn opensm(state: &StateDir, node: &str, partitions: Option<&Path>) -> io::Result<Child> {
    let place = if node == "SM" { String::new() } else { format!("{node}/") };
    let [directory, log, conf] =
        ["", "opensm.log", "opensm.conf"].map(|f| state.file(&format!("{place}{f}")).display().to_string());
    let mut args = vec!["-e", "-f", &log, "-g", "0", "-F", &conf];
    let partitions = partitions.map(|p| p.display().to_string());
    if let Some(partitions) = &partitions {
        args.extend(["-P", partitions]);
    }
    let mut command = tethered(state, &format!("{place}opensm.out"), "opensm", &args)?;
    command.env("OSM_TMP_DIR", &directory).env("OSM_CACHE_DIR", &directory);
    umad2sim(&mut command, &socket_base(), node);
    command.spawn()
}

/// The process that keeps a host's namespaces.
#[derive(Debug)]
pub struct Holder {
    /// Name of the host.
    pub host: String,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Holder {
    /// Builds a host.
    pub fn start(state: &StateDir, host: &str) -> io::Result<Self> {
        let mut child = this_program()
            .arg("hold")
            .arg(state.path())
            .arg(host)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        let mut holder = Holder { host: host.to_owned(), child, stdin, stdout: BufReader::new(stdout) };
        holder.answer()?;
        Ok(holder)
    }

    /// What came of the line before.
    pub fn answer(&mut self) -> io::Result<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.trim_end() {
            "ok" => Ok(()),
            reason => Err(io::Error::other(format!("{}: {reason}", self.host))),
        }
    }

    /// Has the host do something; [`Holder::answer`] is to follow.
    pub fn ask(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.stdin, "{line}")
    }

    /// What can be read when there is an answer.
    pub fn answers(&self) -> BorrowedFd<'_> {
        self.stdout.get_ref().as_fd()
    }

    /// Whether there is one.
    pub fn has_answered(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.answers(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
    }

    /// An error if the host has ended by itself.
    pub fn check(&mut self) -> io::Result<()> {
        check(&mut self.child, &self.host)
    }

    /// Ends the host.
    pub fn stop(mut self) {
        drop(self.stdin);
        stop(&mut self.child, Duration::from_secs(2));
    }
}

/// An error if a child that the subnet cannot do without has ended.
pub fn check(child: &mut Child, name: &str) -> io::Result<()> {
    match child.try_wait()? {
        Some(status) => Err(io::Error::other(format!("{name} ended: {status}"))),
        None => Ok(()),
    }
}

/// Ends a child: asks, waits, kills, and takes its exit status.
pub fn stop(child: &mut Child, patience: Duration) {
    let pid = Pid::from_raw(child.id() as i32);
    let end = Instant::now() + patience;
    let mut asked = false;
    loop {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return,
            Ok(None) if Instant::now() >= end => break,
            Ok(None) => {
                if !asked {
                    let _ = kill(pid, Signal::SIGTERM);
                    asked = true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Which directory a process sees at this place, by device and inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Processes that live in the hosts of this subnet: in another mount namespace than ours, with the subnet's directory
/// where hosts have it. (Numbers of namespaces are used again soon, by another subnet perhaps; the directory is there
/// for as long as we look.)
fn inhabitants(state: &StateDir) -> Vec<i32> {
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let (Some(directory), Some(own)) = (identity(state.path()), space("self")) else { return Vec::new() };
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let place = format!("/proc/{pid}/root{INSIDE}");
            space(&pid.to_string()).is_some_and(|s| s != own) && identity(Path::new(&place)) == Some(directory)
        })
        .collect()
}

/// Ends whatever runs in the hosts.
pub fn clear_hosts(state: &StateDir) {
    for (signal, patience) in [(Signal::SIGTERM, 2000), (Signal::SIGKILL, 2000)] {
        let end = Instant::now() + Duration::from_millis(patience);
        let mut told = Vec::new();
        loop {
            let pids = inhabitants(state);
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                if !told.contains(&pid) {
                    let _ = kill(Pid::from_raw(pid), signal);
                    told.push(pid);
                }
            }
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
