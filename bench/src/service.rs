//! The three that are compared, as processes.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fabric::subnet::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::client::{Client, request};
use crate::lab::{Lab, address};
use crate::place::{Place, pinned};
use crate::{Outcome, machine};

/// No step of a measurement takes longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The server in C that looks nothing up.
    Floor,
    /// This package's.
    Ours,
    /// The distribution's.
    Stock,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 3] = [Program::Floor, Program::Ours, Program::Stock];
    /// Those that look things up.
    pub const SERVICES: [Program; 2] = [Program::Ours, Program::Stock];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Program::Floor => "floor",
            Program::Ours => "ours",
            Program::Stock => "stock",
        }
    }

    /// The file that is run.
    pub fn path(self, lab: &Lab) -> PathBuf {
        match self {
            Program::Floor => env!("FLOOR").into(),
            Program::Ours => lab.ours.clone(),
            Program::Stock => "/usr/sbin/ibacm".into(),
        }
    }
}

/// Programs in an order that is another one each time.
pub fn in_turn<const N: usize>(programs: [Program; N], turn: usize) -> [Program; N] {
    let mut programs = programs;
    programs.rotate_left(turn % N);
    programs
}

/// A process that serves. It ends with this value.
pub struct Service {
    child: Child,
    /// Where it listens.
    pub socket: PathBuf,
}

/// What a service before this one has left, and its options.
pub fn prepare(lab: &Lab, program: Program, host: &str, options: &str) -> Outcome<()> {
    for stale in ["/run/ibacm-unix.sock", "/run/ibacm.sock", "/etc/rdma/ibacm_addr.cfg"] {
        let _ = fs::remove_file(lab.subnet.file(host, stale));
    }
    let more = if program == Program::Ours { lab.options.as_str() } else { "" };
    fs::write(lab.subnet.file(host, "/etc/rdma/ibacm_opts.cfg"), format!("{options}{more}"))?;
    Ok(lab.subnet.inject(&format!("leave {host}"))?)
}

/// Where a host's service listens.
pub fn socket(lab: &Lab, host: &str) -> PathBuf {
    lab.subnet.file(host, "/run/ibacm-unix.sock")
}

impl Service {
    /// Starts one on a host, with these options, on the services' processor; back when it has found a peer.
    pub fn start(lab: &Lab, program: Program, host: &str, options: &str) -> Outcome<Service> {
        let output = File::create(lab.subnet.state().file(&format!("{}.out", program.name())))?;
        let (mut command, socket) = if program == Program::Floor {
            let socket = lab.subnet.state().file("floor.sock");
            let mut command = Command::new(program.path(lab));
            command.arg(&socket);
            (command, socket)
        } else {
            prepare(lab, program, host, options)?;
            let mut command = lab.subnet.exec(host, program.path(lab));
            command.arg("-P");
            (command, socket(lab, host))
        };
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = pinned(Place::Service, || Ok(command.spawn()?))?;
        let service = Service { child, socket };
        let question = request(None, address(0));
        let serves = wait_for(PATIENCE, || Client::connect(&service.socket).ok()?.must(&question).ok());
        serves.map(|_| service).ok_or_else(|| format!("{} does not serve", program.name()).into())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// How it ended.
    pub fn how_it_ended(&mut self) -> String {
        match wait_for(Duration::from_secs(2), || self.child.try_wait().ok()?) {
            Some(status) => format!("aborts ({status})"),
            None => "closes the connection".into(),
        }
    }

    /// Memory that it has in use, KiB.
    pub fn memory(&self) -> Outcome<f64> {
        Ok(machine::status(self.pid(), "VmRSS")? as f64)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process, by force if it takes too long.
pub fn end(child: &mut Child) {
    let pid = Pid::from_raw(child.id().cast_signed());
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill(pid, Signal::SIGTERM);
        if wait_for(Duration::from_secs(3), || child.try_wait().ok()?).is_none() {
            let _ = child.kill();
        }
    }
    let _ = child.wait();
}
