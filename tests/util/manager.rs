//! A service manager: hands sockets over, hears what it is told, and ends the service.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::util::{Lab, PATIENCE, wait_for};

const NOTIFY: &str = "/run/notify";
const SOCKET: &str = "/run/ibacm-unix.sock";

/// The socket on which a host's service tells how it is.
pub struct Notify {
    socket: UnixDatagram,
    /// All that was heard.
    pub heard: Vec<String>,
}

impl Notify {
    /// Listens on a host.
    pub fn new(lab: &Lab<'_>, host: &str) -> Notify {
        let path = lab.file(host, NOTIFY);
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(path).expect("a socket can be made in a host's directory");
        Notify { socket, heard: Vec::new() }
    }

    /// Waits for a message with this in it, and returns it.
    pub fn wait(&mut self, what: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut bytes = [0; 4096];
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            self.socket.set_read_timeout(Some(left)).expect("not zero");
            let Ok(length) = self.socket.recv(&mut bytes) else { break };
            let text = String::from_utf8(bytes[..length].to_vec()).expect("messages are text");
            self.heard.push(text.clone());
            if text.contains(what) {
                return text;
            }
        }
        panic!("'{what}' is not said: {:#?}", self.heard);
    }

    /// What comes within this time.
    pub fn during(&mut self, time: Duration) -> Vec<String> {
        let (end, first) = (Instant::now() + time, self.heard.len());
        let mut bytes = [0; 4096];
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            self.socket.set_read_timeout(Some(left)).expect("not zero");
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.heard.push(String::from_utf8(bytes[..length].to_vec()).expect("messages are text"));
            }
        }
        self.heard[first..].to_vec()
    }
}

/// The listening socket of a host, as the socket unit makes it.
pub fn stream_socket(lab: &Lab<'_>, host: &str) -> OwnedFd {
    let path = lab.file(host, SOCKET);
    for name in [SOCKET, "/run/ibacm.sock"] {
        let _ = fs::remove_file(lab.file(host, name));
    }
    let listener = UnixListener::bind(&path).expect("a socket can be made in a host's directory");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
    std::os::unix::fs::symlink("ibacm-unix.sock", lab.file(host, "/run/ibacm.sock")).expect("the name is free");
    listener.into()
}

/// The socket for the kernel, likewise.
pub fn kernel_socket(lab: &Lab<'_>, host: &str) -> OwnedFd {
    let groups = fabric::kernel::LOCAL_SERVICES;
    fabric::kernel::netlink_socket(lab.state(), host, groups).expect("a host has netlink")
}

/// A service that is managed. It ends with this value.
pub struct Managed {
    child: Child,
    log: PathBuf,
    stderr: PathBuf,
    ended: bool,
}

/// Starts `program` in a host with `--systemd` and with these sockets as descriptors 3 and on; the environment is
/// what systemd would set, and `more`. `around` is put before the program.
pub fn start_around(
    lab: &Lab<'_>,
    host: &str,
    around: &[&str],
    program: &str,
    sockets: Vec<OwnedFd>,
    more: &[(&str, &str)],
) -> Managed {
    let log = lab.file(host, "/var/log/ibacm.log");
    let _ = fs::remove_file(&log);
    let stderr = lab.file(host, "/var/log/ibacm.stderr");
    // The shell is there to know its own process id, and to move descriptors to their numbers. It can be handed two.
    let count = sockets.len();
    let moves = ["", "exec 3<&0", "exec 3<&0 4<&1", "exec 3<&0 4<&1 5<&1"][count];
    let script = format!(
        "{moves}\nexec </dev/null >&2\nexport LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES=one:two\nexec \"$@\""
    );
    let mut words = around.iter().copied().chain([program, "--systemd"]);
    let mut inner = lab.exec(host, words.next().expect("a program"));
    inner.args(words);
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    sh.env("NOTIFY_SOCKET", NOTIFY).envs(more.iter().copied());
    let mut sockets = sockets.into_iter().map(Stdio::from);
    sh.stdin(sockets.next().unwrap_or_else(Stdio::null)).stdout(sockets.next().unwrap_or_else(Stdio::null));
    sh.stderr(File::create(&stderr).expect("a file of the host can be written"));
    let child = sh.spawn().expect("there is a shell");
    Managed { child, log, stderr, ended: false }
}

/// Starts our service in a host.
pub fn start(lab: &Lab<'_>, host: &str, sockets: Vec<OwnedFd>, more: &[(&str, &str)]) -> Managed {
    start_around(lab, host, &[], env!("CARGO_BIN_EXE_ibacm"), sockets, more)
}

impl Managed {
    /// One that was started otherwise, in a host.
    pub fn adopt(lab: &Lab<'_>, host: &str, child: Child) -> Managed {
        let [log, stderr] = ["/var/log/ibacm.log", "/var/log/ibacm.stderr"].map(|f| lab.file(host, f));
        Managed { child, log, stderr, ended: false }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log and what it wrote on standard error.
    pub fn said(&self) -> String {
        [&self.log, &self.stderr]
            .map(|f| String::from_utf8_lossy(&fs::read(f).unwrap_or_default()).into_owned())
            .concat()
    }

    /// Waits until it has said this.
    pub fn wait_said(&self, what: &str) {
        let said = wait_for(PATIENCE, || self.said().contains(what).then_some(()));
        assert!(said.is_some(), "'{what}' is not said: {}", self.said());
    }

    /// Sends it a signal, named as kill(1) does.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "{pid} has ended: {}", self.said());
    }

    /// Waits until it has ended: its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let status = wait_for(PATIENCE, || self.child.try_wait().expect("it is a child"));
        self.ended = status.is_some();
        status.unwrap_or_else(|| panic!("it does not end: {}", self.said())).code()
    }

    /// Asks it to end, and waits until it has: its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the service said:\n{}", self.said());
        }
    }
}
