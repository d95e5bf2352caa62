//! A host: a process that holds network, mount and UTS namespaces, and enters them for others.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};

use crate::paths::{INSIDE, StateDir};
use crate::tun;

const NOTHING: Option<&str> = None;

/// Directories of which every host has its own: place inside, name in the host's part of the state directory.
const PRIVATE: [(&str, &str); 3] = [("/run", "run"), ("/etc/rdma", "rdma"), ("/var/log", "log")];

/// Where a file of a host is outside of it.
pub fn outside(state: &StateDir, host: &str, inside: &str) -> PathBuf {
    for (place, name) in PRIVATE {
        if let Ok(rest) = Path::new(inside).strip_prefix(place) {
            return state.host(host).join(name).join(rest);
        }
    }
    PathBuf::from(inside)
}

fn bind(from: &Path, to: &str) -> io::Result<()> {
    fs::create_dir_all(to)?;
    Ok(mount(Some(from), to, NOTHING, MsFlags::MS_BIND, NOTHING)?)
}

/// Builds the host around this process, then carries out commands from stdin until it ends.
pub fn hold(state: &StateDir, host: &str) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The daemon waits for its signals with them blocked.
    SigSet::all().thread_unblock()?;
    let own = state.host(host);
    for (_, name) in PRIVATE {
        fs::create_dir_all(own.join(name))?;
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
    nix::unistd::sethostname(host.to_lowercase())?;
    // The subnet's directory may lie below one that is about to be covered: hold on to it.
    let outside = File::open(state.path())?;
    let own_handle = File::open(&own)?;
    for (place, name) in PRIVATE.iter().rev() {
        let from = format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&own_handle));
        bind(Path::new(&from), place)?;
    }
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&outside));
    bind(Path::new(&from), INSIDE)?;
    let hosts = format!("{INSIDE}/hosts");
    mount(Some(hosts.as_str()), "/etc/hosts", NOTHING, MsFlags::MS_BIND, NOTHING)?;
    // Shows this network namespace's interfaces.
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NOTHING)?;
    // Room for whole receive queues in the sockets of the stand-in.
    fs::write("/proc/sys/net/unix/max_dgram_qlen", "8192")?;
    ip(&["link", "set", "lo", "up"])?;
    fs::create_dir_all(neighbours(Path::new(INSIDE), host))?;
    fs::write(format!("{INSIDE}/{host}/pid"), std::process::id().to_string())?;
    serve(host)
}

/// Where a host's neighbours are below the state directory: a file for each that answers on its interfaces, named by
/// its IP address, with its hardware address.
pub fn neighbours(state: &Path, host: &str) -> PathBuf {
    state.join(host).join("neighbours")
}

/// Answers `ok` or the reason of a failure to each line.
fn serve(host: &str) -> io::Result<()> {
    let mut interfaces = HashMap::new();
    let mut stdout = io::stdout();
    writeln!(stdout, "ok")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = match words.as_slice() {
            ["add", name, pkey, gid, addresses @ ..] => add_interface(host, name, pkey, gid, addresses)
                .map(|interface| drop(interfaces.insert((*name).to_owned(), interface))),
            ["gid", name, gid] => fs::write(attribute(name, "address"), hardware_address(gid)),
            ["rename", old, new] => rename_interface(old, new).map(|()| {
                if let Some(file) = interfaces.remove(*old) {
                    interfaces.insert((*new).to_owned(), file);
                }
            }),
            ["remove", name] => remove_interface(name).map(|()| drop(interfaces.remove(*name))),
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        };
        match outcome {
            Ok(()) => writeln!(stdout, "ok")?,
            Err(e) => writeln!(stdout, "{line}: {e}")?,
        }
    }
    Ok(())
}

fn ip(args: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())))
}

/// A path in sysfs that is a directory of the interface.
fn attribute(name: &str, file: &str) -> String {
    format!("/sys/devices/virtual/net/{name}/{file}")
}

/// IPoIB's 20 bytes: flags and QP number, then the port's GID.
pub fn hardware_address(gid: &str) -> String {
    let digits = format!("80000048{gid}");
    let bytes: Vec<&str> = (0..digits.len() / 2).map(|i| &digits[2 * i..2 * i + 2]).collect();
    bytes.join(":") + "\n"
}

/// What keeps an interface there.
struct Interface {
    _responder: tun::Responder,
    _file: File,
}

fn add_interface(host: &str, name: &str, pkey: &str, gid: &str, addresses: &[&str]) -> io::Result<Interface> {
    let file = tun::create(name)?;
    cover_sysfs(name, &hardware_address(gid), &format!("{pkey}\n"))?;
    // Addresses are there at once, without a search for others that have them.
    fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0")?;
    ip(&["link", "set", name, "mtu", "2044"])?;
    ip(&["link", "set", name, "up"])?;
    for address in addresses {
        if address.contains(':') {
            ip(&["addr", "add", address, "dev", name, "nodad"])?;
        } else {
            ip(&["addr", "add", address, "dev", name])?;
        }
    }
    let there = neighbours(Path::new(INSIDE), host);
    let responder = tun::Responder::new(&file, move |ip| there.join(ip.to_string()).exists())?;
    Ok(Interface { _responder: responder, _file: file })
}

/// The real directory has no 20-byte address; covers it with one that has.
fn cover_sysfs(name: &str, address: &str, pkey: &str) -> io::Result<()> {
    let directory = attribute(name, "");
    let index = fs::read_to_string(attribute(name, "ifindex"))?;
    mount(Some("ipoib"), directory.as_str(), Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    for (attr, value) in [
        ("address", address),
        ("pkey", pkey),
        ("type", "32\n"),
        ("dev_id", "0x0\n"),
        ("dev_port", "0\n"),
        ("mtu", "2044\n"),
        ("operstate", "up\n"),
        ("ifindex", &index),
    ] {
        fs::write(attribute(name, attr), value)?;
    }
    Ok(())
}

/// The cover does not move with the directory, so that it is made anew.
fn rename_interface(old: &str, new: &str) -> io::Result<()> {
    let [address, pkey] = ["address", "pkey"].map(|file| fs::read_to_string(attribute(old, file)));
    let (address, pkey) = (address?, pkey?);
    ip(&["link", "set", old, "down"])?;
    remove_interface(old)?;
    ip(&["link", "set", old, "name", new])?;
    cover_sysfs(new, &address, &pkey)?;
    ip(&["link", "set", new, "up"])
}

fn remove_interface(name: &str) -> io::Result<()> {
    Ok(nix::mount::umount(attribute(name, "").as_str())?)
}

/// A handle on a namespace of a host.
pub fn namespace(state: &StateDir, host: &str, kind: &str) -> io::Result<File> {
    let pid = state
        .holder(host)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host}: no such host is up")))?;
    File::open(format!("/proc/{pid}/ns/{kind}"))
}

/// Enters a host's namespaces. The process must have one thread only.
pub fn enter(state: &StateDir, host: &str) -> io::Result<()> {
    let handles = [
        (namespace(state, host, "net")?, CloneFlags::CLONE_NEWNET),
        (namespace(state, host, "uts")?, CloneFlags::CLONE_NEWUTS),
        (namespace(state, host, "mnt")?, CloneFlags::CLONE_NEWNS),
    ];
    let directory = std::env::current_dir();
    for (handle, kind) in handles {
        setns(handle, kind)?;
    }
    // Entering a mount namespace leads to its root; go back to where the caller was, if that is there.
    if let Ok(directory) = directory {
        let _ = std::env::set_current_dir(directory);
    }
    Ok(())
}

/// Turns this process, which is in the host, into a command. Comes back only with an error.
pub fn exec(host: &str, command: &[String]) -> io::Error {
    let mut preload = format!("{INSIDE}/{}", crate::daemon::STANDIN);
    if let Ok(more) = std::env::var("LD_PRELOAD") {
        preload = format!("{preload}:{more}");
    }
    Command::new(&command[0])
        .args(&command[1..])
        .env("LD_PRELOAD", preload)
        .env("FABRIC_HOST", host)
        .env("FABRIC_DIR", INSIDE)
        .exec()
}
