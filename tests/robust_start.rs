//! Starting where that is impossible: said on standard error and in the log, with an exit code, and nothing of others is
//! touched. And ending: nothing of one's own is left.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rob::{Running, enter};
use util::client::between;
use util::{Client, Lab, PATIENCE, Program, Shared, run, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 1);
/// One whose devices change.
static BARE: Shared = Shared::new(|o| o.hosts = 1);

/// Names, targets of links and contents of what is in a host's /run.
fn run_directory(lab: &Lab<'_>) -> Vec<(PathBuf, String)> {
    let mut all: Vec<_> = fs::read_dir(lab.file("H1", "/run/."))
        .expect("the host is there")
        .map(|e| e.expect("it can be listed").path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().contains("ibacm")))
        .map(|p| {
            let what = match fs::read_link(&p) {
                Ok(target) => target.display().to_string(),
                Err(_) => fs::read_to_string(&p).unwrap_or_default(),
            };
            (p, what)
        })
        .collect();
    all.sort();
    all
}

/// What a start that must fail says on standard error and adds to the log, with `-P` and with `-D`.
fn refused(lab: &Lab<'_>, more: &[&str], wanted: &[&str]) {
    let log = lab.file("H1", "/var/log/ibacm.log");
    for mode in ["-P", "-D"] {
        let before = (run_directory(lab), fs::read_to_string(&log).unwrap_or_default());
        let output = run(lab.exec("H1", Program::Ours.path()).arg(mode).args(more));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|c| c != 0), "{mode} {more:?}: {}", output.status);
        let logged = fs::read_to_string(&log).unwrap_or_default();
        let logged = logged.strip_prefix(&before.1).expect("what was there stays");
        for text in wanted {
            assert!(stderr.contains(text), "{mode} {more:?}: no {text:?} in {stderr}");
            assert!(logged.contains(text), "{mode} {more:?}: no {text:?} in the log: {logged}");
        }
        assert!(stderr.starts_with("ibacm: ") && stderr.lines().count() == 1, "one line: {stderr}");
        assert_eq!(run_directory(lab), before.0, "{mode} {more:?}");
    }
}

fn options(lab: &Lab<'_>, text: &str) {
    for old in ["ibacm_opts.cfg", "ibacm_addr.cfg"] {
        let path = lab.file("H1", &format!("/etc/rdma/{old}"));
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    }
    let _ = fs::remove_file(lab.file("H1", "/var/log/ibacm.log"));
    for (path, _) in run_directory(lab) {
        fs::remove_file(path).expect("it can be removed");
    }
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", text);
}

#[test]
fn without_a_device() {
    let lab = enter(&BARE);
    options(&lab, "");
    lab.inject("device-remove H1").unwrap();
    refused(&lab, &[], &["no InfiniBand device"]);
    // An Ethernet card is none.
    lab.inject("device-add H1 rocep1 ports=eth,eth").unwrap();
    refused(&lab, &[], &["no InfiniBand device"]);
    lab.inject("device-remove H1 dev=rocep1").unwrap();
    lab.inject("device-restore H1 dev=mlx5_0").unwrap();
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn files_that_cannot_be_read() {
    let lab = enter(&LAB);
    options(&lab, "");
    let opts = lab.file("H1", "/etc/rdma/ibacm_opts.cfg");
    fs::remove_file(&opts).unwrap();
    fs::create_dir(&opts).unwrap();
    refused(&lab, &[], &["/etc/rdma/ibacm_opts.cfg", "directory"]);
    fs::remove_dir(&opts).unwrap();
    symlink("ibacm_opts.cfg", &opts).unwrap();
    refused(&lab, &[], &["/etc/rdma/ibacm_opts.cfg", "symbolic links"]);
    fs::remove_file(&opts).unwrap();
    refused(&lab, &["-A", "/etc"], &["/etc: ", "directory"]);
    let pipe = lab.file("H1", "/etc/rdma/pipe");
    let _ = fs::remove_file(&pipe);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&lab, &["-O", "/etc/rdma/pipe"], &["/etc/rdma/pipe", "a pipe"]);
    refused(&lab, &["-O", "/dev/null/opts"], &["/dev/null/opts", "ot a directory"]);
    fs::write(&opts, "lock_file /proc/none/pid\n").unwrap();
    refused(&lab, &[], &["/proc/none/pid"]);
    // A link that leads nowhere is a file that is not there: the defaults hold.
    fs::remove_file(&opts).unwrap();
    symlink("/etc/rdma/nothing", &opts).unwrap();
    let daemon = lab.spawn(Program::Ours, "H1", &["-P"]);
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    drop(daemon);
    fs::remove_file(&opts).unwrap();
}

#[test]
fn a_second_instance() {
    let lab = enter(&LAB);
    options(&lab, "");
    let first = lab.start_configured(Program::Ours, "H1", "");
    lab.wait_joined("H1");
    let own = between("10.77.0.1", "fd77::1");
    // The same lock; another lock and the same socket; another lock and a mode that would take the socket away.
    let pid = first.pid().to_string();
    refused(&lab, &[], &["/run/ibacm.pid", "already running", &pid]);
    for mode in ["", "server_mode loop\n", "server_mode open\n"] {
        let other = lab.file("H1", "/etc/rdma/other.cfg");
        fs::write(&other, format!("lock_file /run/other.pid\n{mode}")).unwrap();
        refused(&lab, &["-O", "/etc/rdma/other.cfg"], &["another service", "/run/ibacm-unix.sock"]);
        assert!(!lab.file("H1", "/run/other.pid").exists(), "its own lock goes with it");
        Client::connect(&lab, "H1").resolve(&own).path();
    }
    assert_eq!(fs::read_to_string(lab.file("H1", "/run/ibacm.pid")).unwrap().trim(), pid);
    let lines = first.said();
    assert!(lines.contains("serving"), "the first one's log is whole: {lines}");
    assert_eq!(first.stop(), Some(0));
    // The port of another TCP service.
    fs::write(lab.file("H1", "/etc/rdma/first.cfg"), "server_mode loop\n").unwrap();
    let first = lab.spawn(Program::Ours, "H1", &["-P", "-O", "/etc/rdma/first.cfg"]);
    let port = lab.file("H1", "/run/ibacm.port");
    wait_for(PATIENCE, || port.exists().then_some(())).expect("it serves");
    fs::write(lab.file("H1", "/etc/rdma/other.cfg"), "lock_file /run/other.pid\nserver_mode loop\n").unwrap();
    refused(&lab, &["-O", "/etc/rdma/other.cfg"], &["another service", "127.0.0.1:6125"]);
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn nothing_is_left_after_the_end() {
    let lab = enter(&LAB);
    for (mode, signal) in [("", "TERM"), ("server_mode loop\n", "INT"), ("acme_plus_kernel_only yes\n", "TERM")] {
        options(&lab, mode);
        let daemon = lab.spawn(Program::Ours, "H1", &["-P"]);
        let pid = lab.file("H1", "/run/ibacm.pid");
        let up = wait_for(PATIENCE, || daemon.said().contains("serving").then_some(()));
        assert!(up.is_some() && pid.exists(), "{mode}: {}", daemon.said());
        assert!(run_directory(&lab).len() >= 2, "{mode}: {:?}", run_directory(&lab));
        daemon.signal(signal);
        assert_eq!(daemon.wait(), Some(0), "{mode}");
        assert_eq!(run_directory(&lab), [], "{mode}");
    }
    // Killed, it leaves them; the next one takes them over.
    options(&lab, "");
    let killed = lab.ours("H1", "");
    killed.signal("KILL");
    assert_eq!(killed.wait(), None);
    let left = run_directory(&lab);
    assert!(left.len() >= 3, "{left:?}");
    let next = Running::start(lab.exec("H1", Program::Ours.path()).arg("-P"));
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    lab.wait_joined("H1");
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "fd77::1")).path();
    drop(next);
}

#[test]
fn clients_that_wait_do_not_keep_it() {
    let lab = enter(&LAB);
    options(&lab, "");
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    lab.wait_joined("H1");
    let mut waits = Client::connect(&lab, "H1");
    waits.ask(&between("10.77.0.1", "10.77.9.9"));
    let mut idle = Client::connect(&lab, "H1");
    // It has more to say to this one than fits.
    let mut lazy = Client::connect(&lab, "H1");
    lazy.stream().set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let (own, length) = ibacm_wire::client::resolve_request(1, &between("10.77.0.1", "fd77::1"));
    while lazy.stream().write_all(&own[..length].repeat(64)).is_ok() {}
    let begin = Instant::now();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), Some(0));
    // It waits two seconds for them; the look-up alone would take nine.
    assert!(begin.elapsed() < Duration::from_secs(7), "{:?}", begin.elapsed());
    assert_eq!(run_directory(&lab), []);
    assert!(waits.recv().is_none_or(|m| m.header.status != 0));
    assert_eq!(idle.recv(), None);
}

#[test]
fn a_wish_to_reload_loses_no_client() {
    let lab = enter(&LAB);
    options(&lab, "");
    let mut daemon = lab.start_configured(Program::Ours, "H1", "timeout 300\nretries 1\n");
    lab.wait_joined("H1");
    let mut idle = Client::connect(&lab, "H1");
    let mut half = Client::connect(&lab, "H1");
    let (own, length) = ibacm_wire::client::resolve_request(1, &between("10.77.0.1", "fd77::1"));
    half.send(&own[..50]);
    let mut waits = Client::connect(&lab, "H1");
    waits.ask(&between("10.77.0.1", "10.77.9.9"));
    for _ in 0..20 {
        daemon.signal("HUP");
        std::thread::sleep(Duration::from_millis(20));
    }
    // With a file that is wrong, and one that is not there any more.
    for text in ["timeout never\nnonsense", ""] {
        lab.write("H1", "/etc/rdma/ibacm_opts.cfg", text);
        daemon.signal("HUP");
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(lab.file("H1", "/etc/rdma/ibacm_opts.cfg")).unwrap();
    daemon.signal("HUP");
    idle.resolve(&between("10.77.0.1", "fd77::1")).path();
    half.send(&own[50..length]);
    half.recv().expect("an answer").path();
    assert_ne!(waits.recv().expect("an answer").header.status, 0);
    assert!(daemon.is_alive());
}

#[test]
fn in_the_background() {
    let lab = enter(&LAB);
    options(&lab, "");
    let output = run(lab.exec("H1", Program::Ours.path()).arg("-D"));
    assert!(output.status.success() && util::text(&output).is_empty(), "{}", util::text(&output));
    // When the parent has ended, it serves.
    Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "fd77::1"));
    let pid = fs::read_to_string(lab.file("H1", "/run/ibacm.pid")).unwrap();
    let pid = pid.trim();
    let killed = std::process::Command::new("kill").arg(pid).status().unwrap();
    assert!(killed.success());
    wait_for(PATIENCE, || run_directory(&lab).is_empty().then_some(())).expect("it ends");
}
