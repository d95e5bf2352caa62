//! Tests of the life of the process. What changes or splits the process is done by a child: this test program again,
//! with [`child`] as its only test.
#![allow(unsafe_code)] // The C service's kind of lock, and signals to oneself.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Tells [`child`] what to be.
const ROLE: &str = "IBACM_TEST_ROLE";

fn temp(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ibacm-life-{name}-{}", std::process::id()))
}

/// A child in a role, to be started.
fn command(role: &str, argument: &Path) -> Command {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("{module}::child"), "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("IBACM_TEST_ARGUMENT", argument)
        .stdin(Stdio::null());
    command
}

fn run(role: &str, argument: &Path) -> Output {
    command(role, argument).output().unwrap()
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the other tests run in a process of its own; without a role there is nothing to do.
#[test]
fn child() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let argument = PathBuf::from(std::env::var_os("IBACM_TEST_ARGUMENT").unwrap_or_default());
    let code = match role.as_str() {
        "daemon" => {
            let ready = daemonise().unwrap();
            // Long enough to tell a parent that waits from one that doesn't.
            std::thread::sleep(std::time::Duration::from_millis(200));
            // SAFETY: no pointers.
            let leader = unsafe { libc::getsid(0) } == libc::pid_t::try_from(std::process::id()).unwrap();
            let directory = std::env::current_dir().unwrap();
            fs::write(&argument, format!("{leader} {}", directory.display())).unwrap();
            ready.ready().unwrap();
            0
        }
        "failing daemon" => {
            let ready = daemonise().unwrap();
            ready.fail(9, "no such port");
            0
        }
        "dying daemon" => {
            let _ready = daemonise().unwrap();
            std::process::abort();
        }
        "silent daemon" => {
            let _ready = daemonise().unwrap();
            std::process::exit(4);
        }
        "umask" => {
            // SAFETY: no pointers.
            unsafe { libc::umask(0o100) };
            tighten_umask();
            // SAFETY: no pointers.
            let umask = unsafe { libc::umask(0) };
            i32::from(umask != 0o122)
        }
        "files" => i32::from(raise_open_files().unwrap() != raise_open_files().unwrap()),
        "c lock" => {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&argument).unwrap();
            // SAFETY: the descriptor is open.
            let locked = unsafe { libc::lockf(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_TLOCK, 0) } == 0;
            eprintln!("locked {locked}");
            if locked {
                // Until the other side closes its end.
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            }
            i32::from(!locked)
        }
        "" => return,
        unknown => panic!("no role {unknown}"),
    };
    std::process::exit(code);
}

#[test]
fn parent_waits_until_the_daemon_serves() {
    let mark = temp("mark");
    let output = run("daemon", &mark);
    // The parent has ended: so the daemon must have written it by now.
    let text = fs::read_to_string(&mark).unwrap();
    fs::remove_file(&mark).unwrap();
    assert_eq!(text, "true /");
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
}

#[test]
fn parent_passes_the_reason_on() {
    let output = run("failing daemon", Path::new(""));
    assert_eq!((output.status.code(), error_text(&output).as_str()), (Some(9), "ibacm: no such port\n"));
}

#[test]
fn parent_notices_a_daemon_that_ends() {
    let output = run("dying daemon", Path::new(""));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("ended before it was ready: signal 6"), "{}", error_text(&output));
    let output = run("silent daemon", Path::new(""));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("ended before it was ready: exit code 4"), "{}", error_text(&output));
}

#[test]
fn mask_and_limit() {
    assert_eq!(run("umask", Path::new("")).status.code(), Some(0));
    assert_eq!(run("files", Path::new("")).status.code(), Some(0));
}

#[test]
fn lock_holds_the_id_and_goes_with_its_file() {
    let path = temp("lock");
    fs::write(&path, "123456789 and what an older one left behind\n").unwrap();
    let own = std::process::id();
    let lock = LockFile::acquire(&path).unwrap();
    assert_eq!(lock.path(), path);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{own}\n"));
    let error = LockFile::acquire(&path).unwrap_err();
    assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == own), "{error}");
    assert_eq!(error.to_string(), format!("lock file {}: already running, as process {own}", path.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{own}\n"), "the second one changed it");
    // Closing another descriptor of the file must not lose the lock.
    drop(fs::File::open(&path).unwrap());
    assert!(LockFile::acquire(&path).is_err());
    drop(lock);
    assert!(!path.exists());
    drop(LockFile::acquire(&path).unwrap());
}

#[test]
fn lock_leaves_a_file_alone_that_is_another_one() {
    let path = temp("other");
    let lock = LockFile::acquire(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = LockFile::acquire(&path).unwrap();
    drop(lock);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

#[test]
fn lock_and_lockf_exclude_each_other() {
    let path = temp("lockf");
    let lock = LockFile::acquire(&path).unwrap();
    let output = run("c lock", &path);
    assert_eq!(output.status.code(), Some(1), "lockf got a lock that is held");
    drop(lock);

    let mut other = command("c lock", &path).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let stderr = other.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut said).unwrap();
    assert_eq!(said, "locked true\n");
    let error = LockFile::acquire(&path).unwrap_err();
    let id = other.id();
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == id), "{error}");
    drop(LockFile::acquire(&path).unwrap());
}

#[test]
fn lock_needs_a_plain_file() {
    let link = temp("link");
    std::os::unix::fs::symlink(temp("target"), &link).unwrap();
    assert!(matches!(LockFile::acquire(&link), Err(LockError::Io { what: "opened", .. })));
    fs::remove_file(&link).unwrap();
    assert!(!temp("target").exists());
    assert!(matches!(LockFile::acquire(Path::new("/dev/null")), Err(LockError::Io { .. })));
    assert!(LockFile::acquire(&std::env::temp_dir()).is_err());
    let error = LockFile::acquire(Path::new("/nonexistent/x/pid")).unwrap_err().to_string();
    assert!(error.starts_with("lock file /nonexistent/x/pid: cannot be opened: "), "{error}");
}

#[test]
fn signals_come_by_descriptor_and_the_mask_comes_back() {
    let mut signals = Signals::new().unwrap();
    assert_eq!(signals.next_signal().unwrap(), None);
    // To this thread alone: the mask is this thread's.
    let raise = |number| {
        // SAFETY: the thread is this one, and the signal is blocked.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), number) }, 0);
    };
    for number in [libc::SIGHUP, libc::SIGHUP, libc::SIGTERM, libc::SIGINT] {
        raise(number);
    }
    let mut seen = Vec::new();
    while let Some(signal) = signals.next_signal().unwrap() {
        seen.push(signal);
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    for signal in [Signal::Hangup, Signal::Terminate, Signal::Interrupt] {
        assert!(seen.contains(&signal), "{signal:?}");
    }
    let inner = Signals::new().unwrap();
    drop(inner);
    raise(libc::SIGHUP);
    assert_eq!(signals.next_signal().unwrap(), Some(Signal::Hangup), "the inner one restored what held before it");
    drop(signals);
    let mut mask = std::mem::MaybeUninit::uninit();
    // SAFETY: no new set; the old one is filled in.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), libc::SIGHUP)
    };
    assert_eq!(blocked, 0);
}

#[test]
fn host_has_a_name() {
    let name = hostname().unwrap();
    assert_eq!(name, fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end().as_bytes());
}
