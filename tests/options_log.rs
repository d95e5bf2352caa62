//! The log of a service that runs: where it goes, what a line looks like, how much of it there is, and that it is never
//! in the way.

#[path = "util/observe.rs"]
mod observe;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
#[cfg(feature = "syslog")]
use std::os::unix::net::UnixDatagram;
use std::path::Path;
#[cfg(feature = "syslog")]
use std::process::Command;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use observe::{Case, OPTS, prepare};
#[cfg(feature = "syslog")]
use rob::Running;
use rob::{forge, processor};
use util::client::{between, ip, to_lid};
use util::{Client, Daemon, Lab, PATIENCE, Program, Shared, wait_for};

use ibacm_wire::client::{EP_FLAG_DEST, FLAG_NODELAY};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

/// Ours on H1 with these options.
fn start(lab: &Lab<'_>, options: &str) -> Daemon {
    prepare(lab, "H1", &Case::default());
    lab.ours("H1", options)
}

fn log(lab: &Lab<'_>, name: &str) -> String {
    fs::read_to_string(lab.file("H1", &format!("/var/log/{name}"))).unwrap_or_default()
}

/// Waits until the log has this text, and returns all of it.
fn log_with(lab: &Lab<'_>, name: &str, text: &str) -> String {
    wait_for(PATIENCE, || Some(log(lab, name)).filter(|all| all.contains(text)))
        .unwrap_or_else(|| panic!("no {text:?} in {name}: {}", log(lab, name)))
}

/// `2026-01-31T12:00:00.123: source: text`
fn is_line(line: &str) -> bool {
    let shape: String = line.chars().take(23).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let rest = line.get(23..).and_then(|rest| rest.strip_prefix(": "));
    let source = rest.and_then(|rest| rest.split_once(": ")).map_or("", |(source, _)| source);
    shape == "0000-00-00T00:00:00.000"
        && !source.is_empty()
        && source.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

#[test]
fn lines_and_levels() {
    let lab = SUBNET.enter();
    let mut lengths = Vec::new();
    for level in 0..=2 {
        let daemon = start(&lab, &format!("log_level {level}\n"));
        let mut client = Client::connect(&lab, "H1");
        client.resolve(&between("10.77.0.1", "fd77::1")).path();
        assert_eq!(daemon.stop(), Some(0));
        let all = log(&lab, "ibacm.log");
        assert!(all.lines().all(is_line), "{all}");
        assert!(all.contains(": serving\n") && all.contains(": stopping\n"), "{all}");
        assert_eq!(all.contains("service: log_level "), level > 0, "{all}");
        assert_eq!(all.contains("operation 0x1 answered at once, status 0"), level > 1, "{all}");
        assert_eq!(log(&lab, "ibacm.stderr"), "");
        lengths.push(all.lines().count());
    }
    assert!(lengths[0] == 2 && lengths[0] < lengths[1] && lengths[1] < lengths[2], "{lengths:?}");
}

#[test]
fn standard_outputs() {
    let lab = SUBNET.enter();
    for target in ["stdout", "stderr"] {
        let daemon = start(&lab, &format!("log_file {target}\nlog_level 1\n"));
        drop(daemon);
        let all = log(&lab, "ibacm.stderr");
        assert!(all.lines().count() > 10 && all.lines().all(is_line), "{all}");
        assert!(!lab.file("H1", "/var/log/ibacm.log").exists());
    }
}

/// A program of ours on H1 whose outputs are this file, which systemd's variable names as the journal.
fn start_for_journal(lab: &Lab<'_>, path: &Path, named: bool) -> Child {
    let file = File::create(path).unwrap();
    let status = file.metadata().unwrap();
    let inode = status.ino() + u64::from(!named);
    lab.exec("H1", Program::Ours.path())
        .arg("-P")
        .env("JOURNAL_STREAM", format!("{}:{inode}", status.dev()))
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap()
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    lab.write("H1", OPTS, "log_file stderr\nlog_level 1\nretries many\n");
    let path = lab.file("H1", "/var/log/journal");
    for named in [true, false] {
        let mut child = start_for_journal(&lab, &path, named);
        let all = log_with(&lab, "journal", "serving\n");
        child.kill().unwrap();
        child.wait().unwrap();
        if named {
            assert!(all.lines().all(|line| line.starts_with('<')), "{all}");
            for start in
                ["<5>ibacm: serving", "<6>service: log_level 1", "<4>service: /etc/rdma/ibacm_opts.cfg:3: warning"]
            {
                assert!(all.lines().any(|line| line.starts_with(start)), "{start}: {all}");
            }
        } else {
            assert!(all.lines().all(is_line), "{all}");
        }
    }
}

#[test]
fn a_log_that_was_moved_away_is_begun_again() {
    let lab = SUBNET.enter();
    let daemon = start(&lab, "");
    let path = lab.file("H1", "/var/log/ibacm.log");
    for (round, before) in [("a", "serving"), ("b", "read again")] {
        let moved = lab.file("H1", &format!("/var/log/ibacm.log.{round}"));
        fs::rename(&path, &moved).unwrap();
        daemon.signal("HUP");
        assert_eq!(log_with(&lab, "ibacm.log", "read again").lines().count(), 1);
        let old = fs::read_to_string(&moved).unwrap();
        assert!(old.lines().count() == 1 && old.contains(before), "{old}");
    }
    assert_eq!(daemon.stop(), Some(0));
    assert!(log(&lab, "ibacm.log").contains("stopping"));
}

#[test]
fn a_full_disk_disturbs_nobody() {
    let lab = SUBNET.enter();
    let daemon = start(&lab, "log_file /dev/full\nlog_level 2\nretries 0\ntimeout 50\n");
    let mut client = Client::connect(&lab, "H1");
    let (begin, before) = (Instant::now(), processor(daemon.pid()));
    for lid in 0..3000 {
        client.resolve(&between("10.77.0.1", "fd77::1")).path();
        assert_ne!(client.resolve(&[to_lid(FLAG_NODELAY, 4000 + lid % 50)]).header.status, 0);
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    std::thread::sleep(Duration::from_millis(1500));
    let quiet = processor(daemon.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = processor(daemon.pid()) - quiet;
    assert!(used < Duration::from_millis(200), "{used:?} of a second in which nothing happens; before: {before:?}");
    // As soon as there is room, it is said how much is missing.
    lab.write("H1", OPTS, "log_file /var/log/other.log\nlog_level 2\n");
    daemon.signal("HUP");
    let all = log_with(&lab, "other.log", "lines were lost");
    let count = all.split(": log: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(count.is_some_and(|lines| lines > 6000), "{all}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_pipe_that_nobody_reads_disturbs_nobody() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    lab.write("H1", OPTS, "log_file stderr\nlog_level 2\n");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = lab.exec("H1", Program::Ours.path());
    let mut child = command.arg("-P").stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    drop(command);
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    lab.wait_joined("H1");
    let mut client = Client::connect(&lab, "H1");
    // Far more than a pipe holds.
    for _ in 0..3000 {
        client.resolve(&between("10.77.0.1", "fd77::1")).path();
    }
    // And when its reader goes away.
    drop(reader);
    client.resolve(&between("10.77.0.1", "fd77::1")).path();
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn strangers_cannot_fill_the_log() {
    let lab = SUBNET.enter();
    let daemon = start(&lab, "log_level 2\n");
    let [one, two] = lab.hosts(["H1", "H2"]);
    for _ in 0..20 {
        forge(&lab, &one, true, &two, &[0x55; 256], "count=50");
    }
    let all = log_with(&lab, "ibacm.log", "suppressed");
    let dropped = all.lines().filter(|line| line.contains("dropped a datagram")).count();
    assert!((1..=60).contains(&dropped), "{dropped} lines for 1000 datagrams");
    assert!(all.contains(" lines like 'dropped a datagram from "), "{all}");
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "fd77::1")).path();
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn what_clients_make_up_cannot_forge_lines() {
    let lab = SUBNET.enter();
    let daemon = start(&lab, "log_level 2\nretries 0\ntimeout 50\n");
    let mut client = Client::connect(&lab, "H1");
    let forged = "x\n2026-01-31 12:00:00.123: ibacm: all is well\x1b[2J\r";
    client.resolve(&[ip(1, "10.77.0.1"), util::client::name(EP_FLAG_DEST, forged)]);
    assert_eq!(daemon.stop(), Some(0));
    let all = log(&lab, "ibacm.log");
    assert!(all.lines().all(is_line), "{all}");
    assert!(all.contains("\\n2026-01-31") && !all.contains('\x1b') && !all.contains('\r'), "{all}");
}

/// Has H1's program see another /dev, in which `log` leads to `/run/system-log`.
#[cfg(feature = "syslog")]
const OWN_DEV: &str = "set -e; mount -t tmpfs none /mnt; cd /mnt; \
    for n in null zero full urandom random; do touch $n; mount --bind /dev/$n $n; done; \
    ln -s /run/system-log log; cd /; mount --rbind /mnt /dev; exec \"$0\" -P";

/// What the log gets until this text comes.
#[cfg(feature = "syslog")]
fn until(server: &UnixDatagram, text: &str) -> Vec<String> {
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all: Vec<String> = Vec::new();
    while !all.last().is_some_and(|line| line.contains(text)) {
        let mut buffer = [0; 4096];
        let length = server.recv(&mut buffer).unwrap_or_else(|e| panic!("no {text:?} in {all:#?}: {e}"));
        all.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    all
}

#[test]
#[cfg(feature = "syslog")]
fn the_system_log_is_found_again() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    lab.write("H1", OPTS, "log_file syslog\nlog_level 1\n");
    let path = lab.file("H1", "/run/system-log");
    let server = UnixDatagram::bind(&path).unwrap();
    let mut command = lab.exec("H1", "unshare");
    command.args(["-m", "/bin/sh", "-c", OWN_DEV, Program::Ours.path()]).stdin(Stdio::null());
    let child = Running(command.spawn().unwrap());
    // It takes few lines at a time, and these are read late: none is lost.
    std::thread::sleep(Duration::from_millis(300));
    let all = until(&server, "serving");
    let mark = format!(" ibacm[{}]: ", child.pid());
    let wellformed = |line: &String| (line.starts_with("<29>") || line.starts_with("<30>")) && line.contains(&mark);
    assert!(all.iter().all(wellformed), "{all:#?}");
    assert!(all.iter().all(|line| !line.contains('\n') && !line.contains("lost")), "{all:#?}");
    assert!(all.iter().any(|line| line.starts_with("<30>") && line.ends_with(": service: log_level 1")), "{all:#?}");
    until(&server, "joined");
    // It restarts; what is said meanwhile comes when it is back.
    drop(server);
    fs::remove_file(&path).unwrap();
    rob::ip(&lab, "H1", "addr add 10.77.1.1/16 dev ib0");
    rob::ip(&lab, "H1", "addr del 10.77.1.1/16 dev ib0");
    std::thread::sleep(Duration::from_millis(500));
    let server = UnixDatagram::bind(&path).unwrap();
    let all = until(&server, "10.77.1.1 is gone");
    assert!(all.iter().any(|line| line.contains("10.77.1.1 is served")), "{all:#?}");
    let sent = Command::new("kill").arg(child.pid().to_string()).status().unwrap();
    assert!(sent.success());
    until(&server, "stopping");
}
