//! Where a subnet keeps what it has: one directory, the same layout seen from outside and (mounted) inside of hosts.

use std::path::{Path, PathBuf};

/// Where hosts see their subnet's directory.
pub const INSIDE: &str = "/run/fabric";

/// The directory of one subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// This directory; it need not exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        StateDir(dir.into())
    }

    /// `$FABRIC_STATE`, or the usual one.
    pub fn from_env() -> Self {
        StateDir(std::env::var_os("FABRIC_STATE").map_or_else(|| "/run/ibfabric".into(), PathBuf::from))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What a host has of its own: `run`, `rdma`, `log`, `pid`.
    pub fn host(&self, host: &str) -> PathBuf {
        self.0.join(host)
    }

    /// The stand-in's way in.
    pub fn switch_socket(&self) -> PathBuf {
        self.file("switch.sock")
    }

    /// The commands' way in.
    pub fn control_socket(&self) -> PathBuf {
        self.file("control.sock")
    }

    /// The daemon's process id.
    pub fn pid_file(&self) -> PathBuf {
        self.file("pid")
    }

    /// Exists once the subnet is up.
    pub fn ready_file(&self) -> PathBuf {
        self.file("ready")
    }

    /// One line for each violation.
    pub fn violations(&self) -> PathBuf {
        self.file("violations")
    }

    /// The daemon's process id, if it lives.
    pub fn daemon(&self) -> Option<i32> {
        self.live(&self.pid_file(), "serve")
    }

    /// The process id of what keeps a host's namespaces, if it lives.
    pub fn holder(&self, host: &str) -> Option<i32> {
        self.live(&self.host(host).join("pid"), "hold")
    }

    /// A number in a file may be another process's by now: it has to be this part of this subnet.
    fn live(&self, file: &Path, part: &str) -> Option<i32> {
        let pid: i32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split(|&b| b == 0).skip(1);
        let ours = words.next() == Some(part.as_bytes()) && words.any(|w| w == self.0.as_os_str().as_encoded_bytes());
        ours.then_some(pid)
    }
}
