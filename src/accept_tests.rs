use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::conn::Conn;
use crate::frame::{ClientId, HEADER};
use crate::listen::PAUSE_US;
use crate::publish::{self, PublishError};
use crate::server::Limits;
use crate::server::tests::{Bench, leave, read_some, request, tids};
use crate::sock;

/// A directory of its own under the system's temporary one.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("srv-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test of this module in a process of its own, for descriptors are numbered (and
/// limited) per process and other tests use them at the same time. True inside that process.
fn alone(test: &str) -> bool {
    if std::env::var_os("TEST_ALONE").is_some() {
        return true;
    }
    let module = module_path!().split_once("::").unwrap().1;
    let result = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--test-threads=1", "--nocapture"])
        .env("TEST_ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success() && text.contains("1 passed"), "{result:?}");
    false
}

#[test]
fn accepting_stops_at_the_reserve_and_goes_on_when_a_client_leaves() {
    if !alone("accepting_stops_at_the_reserve_and_goes_on_when_a_client_leaves") {
        return;
    }
    let dir = Dir::new();
    let (probe, _other) = UnixStream::pair().unwrap();
    let used = u64::try_from(sock::lowest_free(probe.as_fd()).unwrap()).unwrap();
    // 1,500 clients' own ends, a thousand accepted ones, and some for the poll and the listener.
    let limits = Limits { descriptors: Some(used + 2_600), reserve: 100, ..Limits::default() };
    let mut bench = Bench::with(limits);
    bench.server.listen_unix(&dir.0, true).unwrap();
    let mut clients: Vec<UnixStream> =
        (0..1_500).map(|_| UnixStream::connect(dir.0.join(publish::UNIX_LINK)).unwrap()).collect();
    bench.settle();
    let accepted = bench.server.clients();
    assert!((900..=1_000).contains(&accepted), "{accepted}");
    assert_eq!(bench.server.counters().paused, 1);
    let next = sock::lowest_free(probe.as_fd()).unwrap();
    assert_eq!(u64::try_from(next).unwrap(), used + 2_500, "the reserve is free");
    let notice = bench.server.take_notice().expect("one notice");
    assert_eq!(notice.errno, 0);
    for _ in 0..50 {
        bench.now += PAUSE_US;
        bench.settle();
    }
    assert_eq!(bench.server.take_notice(), None, "no flood");
    assert_eq!(bench.server.clients(), accepted);
    // Each one that leaves makes room (its own end and ours) for one or two that wait.
    clients.reverse();
    let mut gone = 0;
    while let Some(mut client) = clients.pop() {
        client.write_all(&request(16, 8, 0)).unwrap();
        drop(client);
        gone += 1;
        bench.settle();
        let waiting = 1_500usize.saturating_sub(accepted + gone * 2);
        let open = usize::try_from(bench.server.counters().accepted).unwrap();
        assert!(open + waiting >= 1_500, "{gone} left, {open} were accepted");
    }
    assert_eq!(bench.server.clients(), 0);
    assert_eq!(bench.server.counters().accepted, 1_500);
}

#[test]
fn no_descriptors_at_all_is_a_pause_too() {
    if !alone("no_descriptors_at_all_is_a_pause_too") {
        return;
    }
    let dir = Dir::new();
    let limits = Limits { descriptors: Some(1_000_000), ..Limits::default() };
    let mut bench = Bench::with(limits);
    bench.server.listen_unix(&dir.0, true).unwrap();
    let path = dir.0.join(publish::UNIX_SOCKET);
    let mut client = UnixStream::connect(&path).unwrap();
    let mut filler = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filler.push(file);
    }
    bench.settle();
    assert_eq!(bench.server.clients(), 0);
    assert_eq!(bench.server.take_notice().unwrap().errno, libc::EMFILE);
    bench.settle();
    assert!(!bench.server.has_pending(), "no busy loop");
    assert_eq!(bench.server.next_deadline(), Some(bench.now + PAUSE_US));
    filler.truncate(10);
    bench.now += PAUSE_US;
    client.write_all(&request(16, 8, 0)).unwrap();
    bench.settle();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), [8]);
    assert_eq!(bench.server.next_deadline(), None);
}

#[test]
fn five_thousand_connections() {
    let dir = Dir::new();
    // The other ends are in this process as well.
    if sock::raise_descriptor_limit().unwrap() < 12_000 {
        return;
    }
    let mut bench = Bench::new();
    bench.server.listen_unix(&dir.0, true).unwrap();
    let mut clients = Vec::new();
    for number in 0..5_000 {
        clients.push(UnixStream::connect(dir.0.join(publish::UNIX_SOCKET)).unwrap());
        if number % 1_000 == 999 {
            bench.settle();
        }
    }
    for client in &mut clients {
        client.write_all(&request(88, 77, 0)).unwrap();
    }
    bench.settle();
    assert_eq!(bench.server.clients(), 5_000);
    for client in &mut clients {
        assert_eq!(tids(&read_some(client)), [77]);
    }
    assert_eq!(bench.server.buffered(), 0);
    assert!(size_of::<Conn>() <= 128);
    clients.into_iter().for_each(leave);
    bench.settle();
    assert_eq!(bench.server.clients(), 0);
}

#[test]
fn replies_over_tcp_leave_at_once() {
    let dir = Dir::new();
    let mut bench = Bench::new();
    bench.server.listen_tcp(&dir.0, "127.0.0.1:0".parse().unwrap(), true).unwrap();
    let port = std::fs::read_to_string(dir.0.join(publish::TCP_LINK)).unwrap();
    let addr = format!("127.0.0.1:{}", port.trim());
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    client.write_all(&request(88, 6, 0)).unwrap();
    for _ in 0..100 {
        bench.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut reply = [0; 64];
    assert_eq!(client.read(&mut reply).unwrap(), HEADER);
    let accepted = bench.server.slots.get_mut(ClientId::new(0, 0)).unwrap();
    let nodelay = sock::get_int(accepted.fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap();
    assert_ne!(nodelay, 0, "inherited from the listener");
}

fn inode(path: &std::path::Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(path).unwrap())
}

fn names(dir: &Dir) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The socket of a service that died.
fn dead_socket(dir: &Dir) {
    let path = dir.0.join(publish::UNIX_SOCKET);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    // Another test's child may hold a copy of the descriptor until it has become its program.
    let refused = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        UnixStream::connect(&path).is_err()
    });
    assert!(refused, "the socket lives on");
}

#[test]
fn each_mode_removes_the_other_ones_names_and_its_own_at_the_end() {
    let dir = Dir::new();
    let any = "127.0.0.1:0".parse().unwrap();
    // Stale files of either mode, a dead socket among them.
    dead_socket(&dir);
    std::fs::write(dir.0.join(publish::TCP_PORT), "1").unwrap();
    std::os::unix::fs::symlink("nowhere", dir.0.join(publish::UNIX_LINK)).unwrap();
    let mut unix = Bench::new();
    unix.server.listen_unix(&dir.0, true).unwrap();
    assert_eq!(names(&dir), [publish::UNIX_SOCKET, publish::UNIX_LINK]);
    let mode = std::fs::metadata(dir.0.join(publish::UNIX_SOCKET)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7777, 0o777);
    unix.server.stop_accepting();
    assert_eq!(names(&dir), [""; 0]);

    dead_socket(&dir);
    let mut tcp = Bench::new();
    tcp.server.listen_tcp(&dir.0, any, false).unwrap();
    assert_eq!(names(&dir), [publish::TCP_PORT]);
    drop(tcp);
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_live_service_is_not_disturbed() {
    let dir = Dir::new();
    let mut first = Bench::new();
    first.server.listen_unix(&dir.0, true).unwrap();
    let before = inode(&dir.0.join(publish::UNIX_SOCKET));
    let mut second = Bench::new();
    let error = second.server.listen_unix(&dir.0, true).unwrap_err();
    assert!(matches!(error, PublishError::Live(_)), "{error}");
    let error = second.server.listen_tcp(&dir.0, "127.0.0.1:0".parse().unwrap(), true).unwrap_err();
    assert!(matches!(error, PublishError::Live(_)), "{error}");
    assert_eq!(names(&dir), [publish::UNIX_SOCKET, publish::UNIX_LINK]);
    assert_eq!(inode(&dir.0.join(publish::UNIX_SOCKET)), before);
    // A plain file in the way is somebody else's.
    drop(first);
    std::fs::write(dir.0.join(publish::UNIX_SOCKET), "x").unwrap();
    let error = second.server.listen_unix(&dir.0, true).unwrap_err();
    assert!(matches!(error, PublishError::NotASocket(_)), "{error}");
    // An address in use is named.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::remove_file(dir.0.join(publish::UNIX_SOCKET)).unwrap();
    let error = second.server.listen_tcp(&dir.0, taken.local_addr().unwrap(), true).unwrap_err();
    assert!(matches!(error, PublishError::InUse(_)), "{error}");
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_name_that_is_no_longer_ours_stays() {
    let dir = Dir::new();
    let mut bench = Bench::new();
    bench.server.listen_unix(&dir.0, true).unwrap();
    let path = dir.0.join(publish::UNIX_SOCKET);
    let theirs = dir.0.join("theirs");
    let _heir = std::os::unix::net::UnixListener::bind(&theirs).unwrap();
    std::fs::rename(&theirs, &path).unwrap();
    bench.server.drain();
    assert_eq!(names(&dir), [publish::UNIX_SOCKET]);
}

#[test]
fn a_path_that_is_too_long_is_an_error_that_names_it() {
    let dir = Dir::new();
    let deep = dir.0.join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let error = Bench::new().server.listen_unix(&deep, true).unwrap_err().to_string();
    assert!(error.contains("ibacm-unix.sock"), "{error}");
    let missing = dir.0.join("missing");
    let error = Bench::new().server.listen_unix(&missing, true).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn inherited_listeners_are_served_and_others_refused() {
    let dir = Dir::new();
    let path = dir.0.join("inherited");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut bench = Bench::new();
    bench.server.adopt(listener.into()).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(&request(16, 2, 0)).unwrap();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), [2]);
    drop(bench);
    assert_eq!(names(&dir), ["inherited"], "its maker removes it");
    let mut bench = Bench::new();
    assert!(bench.server.adopt(UnixStream::pair().unwrap().0.into()).is_err());
    assert!(bench.server.adopt(std::fs::File::open("/dev/null").unwrap().into()).is_err());
}
