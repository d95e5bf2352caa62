//! What clients see of a service that was started with certain files: text that can be compared.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, FLAG_NODELAY};

use super::util::client::{between, ip, name};
use super::util::{ADDRESS_GROUP, Client, Daemon, Lab, Program, run, wait_for};

/// Where the files are in a host.
pub const OPTS: &str = "/etc/rdma/ibacm_opts.cfg";
/// As [`OPTS`].
pub const ADDR: &str = "/etc/rdma/ibacm_addr.cfg";

/// A service that does not answer by then does not do it at all.
const ANSWERS: Duration = Duration::from_secs(10);

/// A question, and how its answer is told.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// For a host that doesn't exist: roughly how long it takes until that is said.
    Dead,
    /// Whether this name is known at once; `@` stands for the host's own.
    Name(&'static str),
    /// Whether this address is known at once, and what is said of it.
    Ip(&'static str),
    /// As [`Ask::Ip`], with time to find the path.
    Path(&'static str),
    /// The path to an own address.
    Own,
    /// How the log begins, where that shows how much is logged.
    Chatter,
}

/// Files to start with, and what to ask.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The options file; `None`: there is none.
    pub opts: Option<Vec<u8>>,
    /// The address file; `None`: there is none.
    pub addr: Option<Vec<u8>>,
    /// More files below `/etc/rdma`.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// Questions beside the usual ones.
    pub ask: Vec<Ask>,
    /// It can have no group, or not the one of all others: nobody waits for that.
    pub alone: bool,
}

/// Puts a host's files in place, with nothing of an earlier service left.
pub fn prepare(lab: &Lab<'_>, host: &str, case: &Case) {
    for directory in ["/run/.", "/etc/rdma/.", "/var/log/."] {
        for entry in fs::read_dir(lab.file(host, directory)).expect("the host is there").flatten() {
            // Directories are of the host, not of a service.
            if !entry.file_type().expect("it is there").is_dir() {
                fs::remove_file(entry.path()).expect("a file");
            }
        }
    }
    // The subnet remembers the groups of an earlier service.
    lab.inject(&format!("leave {host}")).expect("the subnet answers");
    let named = [(OPTS, &case.opts), (ADDR, &case.addr)];
    let named = named.into_iter().filter_map(|(path, text)| text.as_ref().map(|text| (path, text)));
    let more = case.files.iter().map(|(path, text)| (*path, text));
    for (path, text) in named.chain(more) {
        fs::write(lab.file(host, path), text).expect("it can be written");
    }
}

/// Starts a service with these files, looks at it as its clients do, and ends it.
pub fn observe(lab: &Lab<'_>, program: Program, host: &str, peer: &str, case: &Case) -> String {
    prepare(lab, host, case);
    let mut daemon = lab.spawn(program, host, &["-P"]);
    let mut seen = String::new();
    match wait_for(ANSWERS, || reachable(lab, host, &mut daemon)) {
        None => seen.push_str("does not answer\n"),
        Some(false) => {
            seen.push_str("ends\n");
            daemon.wait();
            let _ = write!(seen, "logs to: {}", logs(lab, host));
            return seen;
        }
        Some(true) => look(lab, host, peer, case, &daemon, &mut seen),
    }
    let _ = write!(seen, "logs to: {}", logs(lab, host));
    drop(daemon);
    seen
}

/// Whether it serves (`true`) or has ended.
fn reachable(lab: &Lab<'_>, host: &str, daemon: &mut Daemon) -> Option<bool> {
    if Client::try_connect(lab, host).is_ok() {
        return Some(true);
    }
    if lab.file(host, "/run/ibacm-tcp.port").exists() && list(lab, host, "127.0.0.1").contains("return status 0x0") {
        return Some(true);
    }
    (!daemon.is_alive()).then_some(false)
}

fn look(lab: &Lab<'_>, host: &str, peer: &str, case: &Case, daemon: &Daemon, seen: &mut String) {
    if case.alone {
        std::thread::sleep(Duration::from_millis(700));
    } else {
        lab.wait_joined(host);
    }
    let _ = writeln!(seen, "published: {}", published(lab, host, daemon.pid()));
    let _ = writeln!(seen, "groups: {}", groups(lab, host));
    let own = own_address(host);
    match Client::try_connect(lab, host) {
        Ok(mut client) => {
            let _ = writeln!(seen, "endpoints: {}", list(lab, host, "/run/ibacm-unix.sock"));
            let _ = writeln!(seen, "{peer}: {}", path(&mut client, &own, peer, case.alone));
            for ask in &case.ask {
                let _ = writeln!(seen, "{ask:?}: {}", answer(lab, host, &own, *ask, daemon));
            }
        }
        Err(_) => {
            let _ = writeln!(seen, "endpoints: {}", list(lab, host, "127.0.0.1"));
            let _ =
                writeln!(seen, "{peer}: {}", acme(lab, host, &["-S", "127.0.0.1", "-f", "i", "-s", &own, "-d", peer]));
        }
    }
}

/// The first IPoIB address of a host.
pub fn own_address(host: &str) -> String {
    format!("10.77.0.{}", &host[1..])
}

/// The path to an address as digits, or the status. What is not known for want of a group is asked again for a while.
fn path(client: &mut Client, own: &str, dest: &str, alone: bool) -> String {
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let reply = client.resolve(&between(own, dest));
        if reply.header.status == 0 {
            return hex(&reply.path().0);
        }
        if alone || Instant::now() > end {
            return format!("status {}", reply.header.status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answer(lab: &Lab<'_>, host: &str, own: &str, ask: Ask, daemon: &Daemon) -> String {
    let source = ip(EP_FLAG_SOURCE, own);
    let mut client = Client::connect(lab, host);
    match ask {
        Ask::Dead => {
            let begin = Instant::now();
            client.ask(&[source, ip(EP_FLAG_DEST, "10.77.9.9")]);
            let silent = client.is_silent(Duration::from_millis(2600));
            let class = match begin.elapsed().as_millis() {
                _ if silent => "very long",
                0..350 => "soon",
                350..1150 => "a while",
                _ => "long",
            };
            class.into()
        }
        Ask::Name(n) => {
            let status =
                client.resolve(&[source, name(EP_FLAG_DEST | FLAG_NODELAY, &n.replace('@', &host.to_lowercase()))]);
            status.header.status.to_string()
        }
        Ask::Ip(address) => {
            let reply = client.resolve(&[source, ip(EP_FLAG_DEST | FLAG_NODELAY, address)]);
            match reply.header.status {
                0 => hex(&reply.path().0),
                status => status.to_string(),
            }
        }
        Ask::Path(address) => path(&mut client, own, address, false),
        Ask::Own => path(&mut client, own, own, false),
        Ask::Chatter => {
            let lines = daemon.said().lines().count();
            String::from(if lines == 0 {
                "nothing"
            } else if lines < 60 {
                "little"
            } else {
                "much"
            })
        }
    }
}

/// Names in /run, where links lead and what is in the files.
pub fn published(lab: &Lab<'_>, host: &str, pid: u32) -> String {
    let directory = fs::read_dir(lab.file(host, "/run/.")).expect("the host is there");
    let mut all: Vec<String> = directory
        .flatten()
        .filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = format!("{pid}\n");
            match (fs::read_link(entry.path()), fs::read_to_string(entry.path())) {
                (Ok(target), _) => format!("{name} -> {}", target.display()),
                (_, Ok(text)) if text == pid => format!("{name} (its process)"),
                (_, Ok(text)) => format!("{name} {text:?}"),
                (_, Err(_)) => name,
            }
        })
        .collect();
    all.sort();
    all.join(", ")
}

/// Files below /var/log in which there is something, but for what the subnet itself has to say.
fn logs(lab: &Lab<'_>, host: &str) -> String {
    let directory = fs::read_dir(lab.file(host, "/var/log/.")).expect("the host is there").flatten();
    let filled = directory.filter(|entry| {
        let text = fs::read(entry.path()).unwrap_or_default();
        text.split(|b| *b == b'\n').any(|line| !line.is_empty() && !line.starts_with(b"FABRIC VIOLATION"))
    });
    let mut names: Vec<_> = filled.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.join(" ")
}

/// Groups for addresses that the host has joined.
fn groups(lab: &Lab<'_>, host: &str) -> String {
    let ports = lab.ports().expect("the subnet answers").into_iter().filter(|p| p.host == host);
    let mut groups: Vec<String> = ports
        .flat_map(|p| p.joined)
        .filter(|(mgid, _)| mgid[..4] == ADDRESS_GROUP)
        .map(|(mgid, _)| hex(&mgid[..9]))
        .collect();
    groups.sort();
    groups.join(" ")
}

/// The list of endpoints as `ib_acme` has it from this service.
pub fn list(lab: &Lab<'_>, host: &str, service: &str) -> String {
    acme(lab, host, &["-S", service, "-e"])
}

/// What `ib_acme` says; bytes that are no ASCII are shown as numbers.
fn acme(lab: &Lab<'_>, host: &str, arguments: &[&str]) -> String {
    let output = run(lab.exec(host, "/usr/bin/ib_acme").args(arguments));
    [output.stdout, output.stderr].concat().escape_ascii().to_string()
}

/// What `--check-config` says of the files that are there, and its exit code.
pub fn check(lab: &Lab<'_>, host: &str) -> (Vec<String>, Option<i32>) {
    let output = run(lab.exec(host, Program::Ours.path()).arg("--check-config"));
    let said = String::from_utf8(output.stdout).expect("printable");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    // A device that is not there is a hint, and no finding.
    let finding = |line: &&str| line.starts_with('/') && line.contains(": ") && !line.contains(" here now: ");
    (said.lines().filter(finding).map(str::to_owned).collect(), output.status.code())
}

/// Runs ip(8) or the like on a host, quietly.
pub fn on(lab: &Lab<'_>, host: &str, program: &str, words: &str) -> Command {
    let mut command = lab.exec(host, program);
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}
