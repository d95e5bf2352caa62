//! What tests of the whole service share: a simulated subnet, services on its hosts, and clients of theirs.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod acme;
pub mod client;
pub mod family;
pub mod plugged;
pub mod sa;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "likewise")]
pub use fabric::programs::{PATIENCE, run, succeed, text};
use fabric::subnet::unique_state;
#[allow(unused_imports, reason = "likewise")]
pub use fabric::subnet::wait_for;
use fabric::{Options, PortLine, Subnet};

#[allow(unused_imports, reason = "likewise")]
pub use client::{Client, Message};

/// How the names of groups for addresses start.
pub const ADDRESS_GROUP: [u8; 4] = [0xff, 0x15, 0x40, 0x01];

/// A subnet that the tests of one program share. They have it one after another, and it ends with the last of them.
pub struct Shared {
    build: fn(&mut Options),
    places: [Place; PLACES],
}

/// Subnets of a kind that there may be at a time. The programs that repeat many tests do two at once.
const PLACES: usize = if family::IPV6 { 2 } else { 1 };

/// A subnet while anybody needs it, and whose turn it is.
struct Place {
    current: Mutex<Weak<Subnet>>,
    turn: Mutex<()>,
}

impl Shared {
    /// A subnet of two hosts that `build` may change. It comes up when it is first needed.
    pub const fn new(build: fn(&mut Options)) -> Shared {
        Shared { build, places: [const { Place { current: Mutex::new(Weak::new()), turn: Mutex::new(()) } }; PLACES] }
    }

    /// Waits until no other test has the subnet, and takes it, free of faults and with its counters at zero.
    pub fn enter(&self) -> Lab<'_> {
        let free = self.places.iter().find_map(|place| match place.turn.try_lock() {
            Ok(turn) => Some((place, turn)),
            Err(TryLockError::Poisoned(turn)) => Some((place, turn.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        });
        let first = &self.places[0];
        // Whoever waits has a part in the subnet meanwhile, so that it stays up.
        let (place, turn) = match free {
            Some((place, turn)) => (place, Some(turn)),
            None => (first, None),
        };
        let subnet = {
            let mut current = place.current.lock().unwrap_or_else(PoisonError::into_inner);
            match current.upgrade() {
                Some(subnet) => subnet,
                None => {
                    let mut options = Options::new(unique_state(), 2);
                    (self.build)(&mut options);
                    let subnet = Arc::new(Subnet::up(options).expect("the subnet comes up"));
                    *current = Arc::downgrade(&subnet);
                    subnet
                }
            }
        };
        let turn = turn.unwrap_or_else(|| place.turn.lock().unwrap_or_else(PoisonError::into_inner));
        subnet.inject("clear").expect("the subnet answers");
        subnet.reset_stats().expect("the subnet answers");
        let violations = subnet.violations().expect("they can be read").len();
        Lab { subnet, violations, excused: Mutex::default(), _turn: turn }
    }
}

/// A subnet for the time of one test. When it ends, nothing of ours may have done what hardware would not forgive.
pub struct Lab<'a> {
    subnet: Arc<Subnet>,
    /// Those of tests before this one.
    violations: usize,
    /// What programs and providers of the distribution do: process, and text of violations that are their own.
    excused: Mutex<Vec<(u32, &'static str)>>,
    _turn: MutexGuard<'a, ()>,
}

impl std::ops::Deref for Lab<'_> {
    type Target = Subnet;

    fn deref(&self) -> &Subnet {
        &self.subnet
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let mut violations = self.subnet.violations().expect("they can be read");
            violations.drain(..self.violations);
            let excused = self.excused.lock().unwrap_or_else(PoisonError::into_inner);
            let is_excused = |line: &String| {
                excused.iter().any(|(pid, text)| line.contains(&format!("ibacm[{pid}]")) && line.contains(text))
            };
            violations.retain(|line| !is_excused(line));
            assert!(violations.is_empty(), "{violations:#?}");
        }
    }
}

/// Which program serves a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The one of this package.
    Ours,
    /// The distribution's.
    Stock,
}

impl Program {
    /// The file that is run.
    pub fn path(self) -> &'static str {
        match self {
            Program::Ours => env!("CARGO_BIN_EXE_ibacm"),
            Program::Stock => "/usr/sbin/ibacm",
        }
    }
}

impl Lab<'_> {
    /// Our service on a host with these lines of options; back when it serves and has joined its groups.
    pub fn ours(&self, host: &str, options: &str) -> Daemon {
        self.start(Program::Ours, host, options)
    }

    /// The distribution's service, likewise.
    pub fn stock(&self, host: &str, options: &str) -> Daemon {
        self.start(Program::Stock, host, options)
    }

    /// A service on a host with these lines of options and names made from the host's.
    pub fn start(&self, program: Program, host: &str, options: &str) -> Daemon {
        let addr = self.file(host, "/etc/rdma/ibacm_addr.cfg");
        let _ = fs::remove_file(&addr);
        self.start_joined(program, host, options)
    }

    /// A service with this address file too.
    pub fn start_named(&self, program: Program, host: &str, options: &str, names: &str) -> Daemon {
        self.write(host, "/etc/rdma/ibacm_addr.cfg", names);
        self.start_joined(program, host, options)
    }

    /// A service with the address file that is there, that has joined its groups. The distribution's asks for that once,
    /// with the time that its options leave for any answer: where the SA was busy for as long, it is started again.
    fn start_joined(&self, program: Program, host: &str, options: &str) -> Daemon {
        for _ in 0..4 {
            let daemon = self.start_configured(program, host, options);
            if self.joins(host, || daemon.said().contains("send join failed 0x6e")) {
                return daemon;
            }
        }
        let daemon = self.start_configured(program, host, options);
        self.wait_joined(host);
        daemon
    }

    /// A service with these options and the address file that is there, if any; back when its socket answers.
    pub fn start_configured(&self, program: Program, host: &str, options: &str) -> Daemon {
        self.write(host, "/etc/rdma/ibacm_opts.cfg", &plugged::options(program, options));
        for port in self.ports().expect("the subnet answers").iter().filter(|p| p.host == host) {
            // What a service before this one has joined does not count.
            self.inject(&format!("leave {host} dev={} port={}", port.device, port.port)).expect("it is there");
        }
        let daemon = self.spawn(program, host, &["-P"]);
        let up = wait_for(PATIENCE, || Client::try_connect(self, host).ok());
        assert!(up.is_some(), "{program:?} on {host} does not serve: {}", daemon.said());
        daemon
    }

    /// Starts a service with these arguments; back at once.
    pub fn spawn(&self, program: Program, host: &str, arguments: &[&str]) -> Daemon {
        for stale in ["/run/ibacm-unix.sock", "/run/ibacm.sock", "/run/ibacm-tcp.port", "/run/ibacm.port"] {
            let _ = fs::remove_file(self.file(host, stale));
        }
        let log = self.file(host, "/var/log/ibacm.log");
        let _ = fs::remove_file(&log);
        let stderr = self.file(host, "/var/log/ibacm.stderr");
        let output = File::create(&stderr).expect("a file of the host can be written");
        let child = self
            .exec(host, program.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("descriptors are not rare"))
            .stderr(output)
            .spawn()
            .expect("it starts");
        if program == Program::Stock {
            self.excuse(child.id(), "");
        } else if plugged::STOCK {
            self.excuse(child.id(), plugged::EXCUSED);
        }
        Daemon { child, program, files: [log, stderr], ended: false }
    }

    /// From now on violations of this process that have this text in them are somebody else's.
    pub fn excuse(&self, pid: u32, text: &'static str) {
        self.excused.lock().unwrap_or_else(PoisonError::into_inner).push((pid, text));
    }

    /// An interface more, as `Subnet` makes it, with addresses as this program means them.
    pub fn add_interface(&self, host: &str, name: &str, words: &str) -> Result<(), fabric::Error> {
        self.subnet.add_interface(host, name, &family::here(words))
    }

    /// Writes a file of a host.
    pub fn write(&self, host: &str, inside: &str, text: &str) {
        let path = self.file(host, inside);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Waits until every port of the host that is active has joined a group, and hears what is sent to it: between the
    /// two is a moment in which questions are lost.
    pub fn wait_joined(&self, host: &str) {
        self.joins(host, || false);
    }

    /// The same, or false as soon as it is `hopeless`.
    fn joins(&self, host: &str, hopeless: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        let joined = wait_for(PATIENCE, || {
            let ports = self.ports().ok()?;
            let mut active = ports.iter().filter(|p| p.host == host && p.state == 4 && !p.gone);
            let groups: usize = active.clone().map(|p| p.joined.len()).sum();
            // The distribution's provider answers nothing at all for an endpoint that has no group yet. Some get none.
            let all = !plugged::STOCK
                || begin.elapsed() > Duration::from_secs(2)
                || groups >= self.acme(host, &["-e"]).matches(",ibacmp,").count();
            let joined = all && active.all(|p| !p.joined.is_empty());
            (joined || hopeless()).then_some(joined)
        });
        if !joined.unwrap_or_else(|| panic!("{host} joins no group")) {
            return false;
        }
        let heard = wait_for(PATIENCE, || Some(self.hears_its_groups(host)).filter(|heard| *heard || hopeless()));
        heard.unwrap_or_else(|| panic!("{host} is not attached to its groups"))
    }

    /// Whether each partition of each port gets what is sent to one of its groups.
    fn hears_its_groups(&self, host: &str) -> bool {
        let ports = self.ports().expect("the subnet answers");
        ports.iter().filter(|p| p.host == host && p.state == 4 && !p.gone).all(|port| {
            let hears = |pkey: &[u8]| port.attached.iter().any(|g| g[..4] == ADDRESS_GROUP && g[4..6] == *pkey);
            port.joined.iter().filter(|(g, _)| g[..4] == ADDRESS_GROUP).all(|(g, _)| hears(&g[4..6]))
        })
    }

    /// The first ports of hosts.
    pub fn hosts<const N: usize>(&self, names: [&str; N]) -> [PortLine; N] {
        names.map(|h| self.port(h).expect("the host is there"))
    }

    /// The sum of all counters whose name starts and ends so.
    pub fn count(&self, start: &str, end: &str) -> u64 {
        let stats = self.stats().expect("the subnet counts");
        stats.iter().filter(|(k, _)| k.starts_with(start) && k.ends_with(end)).map(|(_, n)| n).sum()
    }

    /// Requests for path records that a host has made to the SA, without repeats.
    pub fn path_queries(&self, host: &str) -> u64 {
        self.stat(&format!("sa.{host}.PathRecord.Get")).expect("the subnet counts")
    }

    /// `ib_acme` on a host; its output, whatever its exit status.
    pub fn acme(&self, host: &str, arguments: &[&str]) -> String {
        text(&run(self.exec(host, "/usr/bin/ib_acme").args(arguments.iter().map(|a| family::here(a)))))
    }
}

/// A service on a host. It ends with this value; ours must have lived until then.
pub struct Daemon {
    child: Child,
    program: Program,
    files: [PathBuf; 2],
    ended: bool,
}

impl Daemon {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Which program it is.
    pub fn program(&self) -> Program {
        self.program
    }

    /// Its log and whatever it wrote on its standard outputs.
    pub fn said(&self) -> String {
        let texts = self.files.iter().map(|f| fs::read(f).unwrap_or_default());
        texts.map(|b| String::from_utf8_lossy(&b).into_owned()).collect()
    }

    /// Asks it to end, and waits until it has: its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.terminate()
    }

    /// Waits until it ends of itself: its exit code.
    pub fn wait(mut self) -> Option<i32> {
        let status = wait_for(PATIENCE, || self.child.try_wait().expect("it is a child"));
        self.ended = status.is_some();
        status.expect("it ends").code()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal, named as kill(1) does.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "{pid} has ended");
    }

    fn terminate(&mut self) -> Option<i32> {
        self.ended = true;
        let _ = Command::new("kill").arg(self.pid().to_string()).stderr(Stdio::null()).status();
        // It may wait two seconds for answers, and as long for plug-ins.
        let status = wait_for(PATIENCE, || self.child.try_wait().ok().flatten());
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        status.and_then(|s| s.code())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let lived = self.is_alive();
        let code = self.terminate();
        if std::thread::panicking() {
            eprintln!("{:?} said:\n{}", self.program, self.said());
        } else if self.program == Program::Ours {
            assert!(lived, "the service ended by itself: {}", self.said());
            assert_eq!(code, Some(0), "the service does not end well: {}", self.said());
            assert!(!self.said().contains("panicked"), "{}", self.said());
        }
    }
}

/// A file for this test program alone.
fn scratch(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a test is a file");
    let program = program.file_stem().expect("with a name").to_string_lossy();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{program}"))
}

/// Compiles one of the C programs beside the tests.
pub fn compile(name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let target = scratch(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&target).arg(source).args(libraries);
    assert!(cc.status().expect("cc runs").success(), "{name}.c compiles");
    target
}

/// A file of partitions for the subnet manager.
pub fn partitions(name: &str, text: &str) -> PathBuf {
    let path = scratch(&format!("partitions-{name}"));
    fs::write(&path, text).expect("the directory for tests can be written");
    path
}
