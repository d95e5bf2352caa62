//! A subnet for tests of other packages.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::{self, Error};
use crate::kernel::Kernel;
use crate::options::Options;
use crate::paths::StateDir;
use crate::switch::command::parse;
use crate::switch::sniff::{hex, unhex};

/// A subnet that ends with this value.
#[derive(Debug)]
pub struct Subnet {
    state: StateDir,
    program: PathBuf,
}

/// A datagram that a host has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture")]
pub struct Sniffed {
    pub number: u64,
    pub from: String,
    pub slid: u16,
    pub dlid: u16,
    pub sqpn: u32,
    pub dqpn: u32,
    pub pkey: u16,
    pub qkey: u32,
    /// Source and destination of the GRH, where there is one.
    pub gids: Option<([u8; 16], [u8; 16])>,
    pub data: Vec<u8>,
}

/// A port as its host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PortLine {
    pub host: String,
    pub device: String,
    pub port: u32,
    pub state: u8,
    pub lid: u16,
    pub sm_lid: u16,
    pub guid: u64,
    pub gid: [u8; 16],
    pub pkeys: Vec<u16>,
    /// Queue pairs on it.
    pub qpns: Vec<u32>,
    /// Multicast groups that it has joined: GID and LID.
    pub joined: Vec<([u8; 16], u16)>,
    /// Multicast groups whose datagrams its queue pairs get.
    pub attached: Vec<[u8; 16]>,
    /// Its device is unplugged.
    pub gone: bool,
}

/// A directory that no other subnet has.
pub fn unique_state() -> StateDir {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    StateDir::new(format!("/run/ibfabric-{}-{number}", std::process::id()))
}

/// The program `fabric`: `$FABRIC_BIN`, or built by the script beside this package.
pub fn program() -> Result<&'static Path, Error> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("FABRIC_BIN") {
            return Ok(path.into());
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fabric");
        let output = Command::new(&script).arg("--path").output().map_err(|e| format!("{}: {e}", script.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    });
    found.as_deref().map_err(|e| Error(e.clone()))
}

/// Looks every few milliseconds until there is something, at most so long.
pub fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The `name=value` words of a line.
fn words(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}

fn number<T: TryFrom<u64> + Default>(words: &BTreeMap<&str, &str>, name: &str) -> T {
    words.get(name).and_then(|text| parse(text)).unwrap_or_default()
}

fn gid(text: &str) -> Option<[u8; 16]> {
    unhex(text)?.try_into().ok()
}

fn list<T>(words: &BTreeMap<&str, &str>, name: &str, one: impl Fn(&str) -> Option<T>) -> Vec<T> {
    words.get(name).map(|text| text.split(',').filter_map(one).collect()).unwrap_or_default()
}

impl Subnet {
    /// A subnet of `hosts` hosts in a directory of its own.
    pub fn new(hosts: usize) -> Result<Self, Error> {
        Subnet::up(Options::new(unique_state(), hosts))
    }

    /// A subnet with these options. Comes back when it is up.
    pub fn up(options: Options) -> Result<Self, Error> {
        Subnet::up_with(program()?, options)
    }

    /// As [`Subnet::up`], with this program `fabric`.
    pub fn up_with(program: &Path, options: Options) -> Result<Self, Error> {
        client::up(program, &options)?;
        Ok(Subnet { state: options.state, program: program.to_owned() })
    }

    /// The subnet's directory.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// A command that runs in a host. Its child is the program itself: signals reach it, its status is passed on.
    pub fn exec(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("exec").arg("--state").arg(self.state.path()).arg(host).arg("--").arg(program);
        command
    }

    /// A program that asks the subnet itself, such as `saquery`: its answers come from OpenSM.
    pub fn query(&self, tool: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("FABRIC_STATE", self.state.path()).arg(tool);
        command
    }

    /// Where a file of a host is outside of it: below `/run`, `/etc/rdma` or `/var/log`.
    pub fn file(&self, host: &str, inside: &str) -> PathBuf {
        crate::host::outside(&self.state, host, inside)
    }

    fn command(&self, line: &str) -> Result<String, Error> {
        client::command(&self.state, line)
    }

    /// Sets a fault: the words after `fabric inject`.
    pub fn inject(&self, fault: &str) -> Result<(), Error> {
        self.command(&format!("inject {fault}")).map(drop)
    }

    /// A command for ibsim's console, such as `Unlink "H1"[1]`.
    pub fn console(&self, line: &str) -> Result<(), Error> {
        self.command(&format!("console {line}")).map(drop)
    }

    /// OpenSM: `stop`, `start`, `restart` or `sweep`; `second` and `second-stop` for the second one.
    pub fn manager(&self, what: &str) -> Result<(), Error> {
        self.command(&format!("sm {what}")).map(drop)
    }

    /// Adds an IPoIB interface: `rest` is its partition, perhaps `dev=DEVICE:PORT`, and its addresses.
    pub fn add_interface(&self, host: &str, name: &str, rest: &str) -> Result<(), Error> {
        self.command(&format!("interface {host} add {name} {rest}")).map(drop)
    }

    /// Removes an IPoIB interface.
    pub fn remove_interface(&self, host: &str, name: &str) -> Result<(), Error> {
        self.command(&format!("interface {host} remove {name}")).map(drop)
    }

    /// Gives an IPoIB interface another name, for which it goes down and up.
    pub fn rename_interface(&self, host: &str, old: &str, new: &str) -> Result<(), Error> {
        self.command(&format!("interface {host} rename {old} {new}")).map(drop)
    }

    /// All counters.
    pub fn stats(&self) -> Result<BTreeMap<String, u64>, Error> {
        let text = self.command("stats")?;
        Ok(text.lines().filter_map(|l| l.split_once('=')).map(|(k, n)| (k.into(), n.parse().unwrap_or(0))).collect())
    }

    /// One counter; 0 if it has not counted.
    pub fn stat(&self, key: &str) -> Result<u64, Error> {
        Ok(self.stats()?.get(key).copied().unwrap_or(0))
    }

    /// All counters start again.
    pub fn reset_stats(&self) -> Result<(), Error> {
        self.command("stats-reset").map(drop)
    }

    /// All ports of hosts.
    pub fn ports(&self) -> Result<Vec<PortLine>, Error> {
        let text = self.command("ports")?;
        let line = |line: &str| {
            let w = words(line);
            PortLine {
                host: w.get("host").copied().unwrap_or_default().into(),
                device: w.get("dev").copied().unwrap_or_default().into(),
                port: number(&w, "port"),
                state: number(&w, "state"),
                lid: number(&w, "lid"),
                sm_lid: number(&w, "smlid"),
                guid: number(&w, "guid"),
                gid: w.get("gid").and_then(|t| gid(t)).unwrap_or_default(),
                pkeys: list(&w, "pkeys", parse),
                qpns: list(&w, "qpns", parse),
                joined: list(&w, "joined", |t| {
                    let (g, lid) = t.split_once('@')?;
                    Some((gid(g)?, parse(lid)?))
                }),
                attached: list(&w, "attached", gid),
                gone: w.contains_key("gone"),
            }
        };
        Ok(text.lines().map(line).collect())
    }

    /// The first port of a host.
    pub fn port(&self, host: &str) -> Result<PortLine, Error> {
        let found = self.ports()?.into_iter().find(|p| p.host == host);
        found.ok_or_else(|| Error(format!("{host}: no such host")))
    }

    /// Datagrams that a host (or anybody) has sent, from this number on.
    pub fn sniffed(&self, host: Option<&str>, since: u64) -> Result<Vec<Sniffed>, Error> {
        let text = self.command(&format!("sniff {} since={since}", host.unwrap_or_default()))?;
        let line = |line: &str| {
            let w = words(line);
            Sniffed {
                number: number(&w, "n"),
                from: w.get("from").copied().unwrap_or_default().into(),
                slid: number(&w, "slid"),
                dlid: number(&w, "dlid"),
                sqpn: number(&w, "sqpn"),
                dqpn: number(&w, "dqpn"),
                pkey: number(&w, "pkey"),
                qkey: number(&w, "qkey"),
                gids: w.get("sgid").and_then(|t| gid(t)).zip(w.get("dgid").and_then(|t| gid(t))),
                data: w.get("data").and_then(|t| unhex(t)).unwrap_or_default(),
            }
        };
        Ok(text.lines().map(line).collect())
    }

    /// The number of the next datagram, for [`Subnet::sniffed`].
    pub fn sniff_next(&self) -> Result<u64, Error> {
        Ok(self.command("sniff-next")?.trim().parse().unwrap_or(0))
    }

    /// From now on a host finds a neighbour of this IP address on its interfaces, with this GID in its hardware address;
    /// with `None` there is none. What its kernel has learned of it stays in its table, as on real interfaces.
    pub fn set_neighbour(&self, host: &str, ip: &str, gid: Option<[u8; 16]>) -> Result<(), Error> {
        let file = crate::host::neighbours(self.state.path(), host).join(ip);
        let Some(gid) = gid else { return Ok(std::fs::remove_file(file)?) };
        let new = file.with_extension("new");
        std::fs::write(&new, crate::host::hardware_address(&hex(&gid)))?;
        Ok(std::fs::rename(new, file)?)
    }

    /// What programs have done that hardware would not forgive.
    pub fn violations(&self) -> Result<Vec<String>, Error> {
        Ok(std::fs::read_to_string(self.state.violations())?.lines().map(str::to_owned).collect())
    }

    /// Plays the kernel of a host over netlink.
    pub fn kernel(&self, host: &str, believed: bool) -> Result<Kernel, Error> {
        Ok(Kernel::new(&self.state, host, believed)?)
    }

    /// The process id of the switch: killing it is unplugging everything.
    pub fn switch_pid(&self) -> Option<i32> {
        self.state.daemon()
    }
}

impl Drop for Subnet {
    fn drop(&mut self) {
        if let Err(e) = client::down(&self.state) {
            eprintln!("{}: {e}", self.state.path().display());
        }
    }
}
