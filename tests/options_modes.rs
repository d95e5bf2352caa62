//! How clients come to the service: over a unix socket, over TCP from this host, over TCP from anywhere.

#[path = "util/observe.rs"]
mod observe;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use observe::{Case, OPTS, list, prepare, published};
use rob::Running;
use util::{Client, Lab, PATIENCE, Program, Shared, compile, succeed, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

static CLIENTS: LazyLock<PathBuf> = LazyLock::new(|| compile("tcp_clients", &[]));
static RESOLVE: LazyLock<PathBuf> = LazyLock::new(|| compile("rdma_resolve", &["-lrdmacm", "-libverbs"]));

/// Starts ours without clearing away what an earlier one has left, and waits until it says that it serves.
fn start(lab: &Lab<'_>, options: &str) -> Running {
    lab.write("H1", OPTS, options);
    let log = lab.file("H1", "/var/log/ibacm.log");
    let before = fs::read_to_string(&log).unwrap_or_default().len();
    let service = Running::start(lab.exec("H1", Program::Ours.path()).arg("-P"));
    let serves = || fs::read_to_string(&log).ok()?.get(before..)?.contains("serving").then_some(());
    wait_for(PATIENCE, serves).unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap_or_default()));
    service
}

fn signal(service: &Running, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &service.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Ends it as an operator would: its exit code.
fn stop(mut service: Running) -> Option<i32> {
    signal(&service, "TERM");
    wait_for(PATIENCE, || service.0.try_wait().unwrap()).expect("it ends").code()
}

/// As many connections over TCP, and what they say first.
struct Clients(Child, BufReader<std::process::ChildStdout>);

impl Clients {
    fn start(lab: &Lab<'_>, address: &str, port: u16, count: usize) -> (Clients, String) {
        let mut command = lab.exec("H1", &*CLIENTS);
        command.args([address, &port.to_string(), &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut clients = Clients(child, output);
        let first = clients.line();
        (clients, first)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn loop_is_for_this_host_and_open_for_others() {
    let lab = SUBNET.enter();
    for (mode, own, reachable) in [("loop", 6125, false), ("open", 7001, true)] {
        prepare(&lab, "H1", &Case::default());
        let service = start(&lab, &format!("server_mode {mode}\nserver_port {own}\n"));
        lab.wait_joined("H1");
        let files = published(&lab, "H1", service.pid());
        let wanted = format!("ibacm-tcp.port \"{own}\\n\", ibacm.pid (its process), ibacm.port -> ibacm-tcp.port");
        assert_eq!(files, wanted, "{mode}");
        assert!(list(&lab, "H1", "127.0.0.1").contains("10.77.0.1/16"), "{mode}");
        // An address of another interface, as another host would use.
        assert_eq!(list(&lab, "H1", "10.77.0.1").contains("10.77.0.1/16"), reachable, "{mode}");
        let (_clients, said) = Clients::start(&lab, "10.77.0.1", own, 1);
        assert_eq!(said, if reachable { "served 1" } else { "refused" }, "{mode}");
        let said = succeed(lab.exec("H1", &*RESOLVE).args(["4", "10.77.0.1", "10.77.0.1"]));
        assert!(said.starts_with("path 0000") && said.ends_with("source 10.77.0.1\n"), "{mode}: {said}");
        assert_eq!(stop(service), Some(0), "{mode}");
        assert_eq!(published(&lab, "H1", 0), "", "{mode}");
    }
}

#[test]
fn nothing_of_another_mode_is_left_to_be_found() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    let unix = "ibacm-unix.sock, ibacm.pid (its process), ibacm.sock -> ibacm-unix.sock";
    let tcp = "ibacm-tcp.port \"6125\\n\", ibacm.pid (its process), ibacm.port -> ibacm-tcp.port";
    // Killed, it leaves everything behind.
    for (options, wanted) in [
        ("", unix),
        ("server_mode loop\n", tcp),
        ("server_mode unix\nacme_plus_kernel_only yes\n", "ibacm-unix.sock, ibacm.pid (its process)"),
        ("server_mode open\n", tcp),
        ("server_mode loop\nacme_plus_kernel_only yes\n", "ibacm-tcp.port \"6125\\n\", ibacm.pid (its process)"),
        ("", unix),
    ] {
        let mut service = start(&lab, options);
        assert_eq!(published(&lab, "H1", service.pid()), wanted, "{options}");
        signal(&service, "KILL");
        service.0.wait().unwrap();
    }
    // And so does the distribution's.
    let mut stock = Running::start(lab.exec("H1", Program::Stock.path()).args(["-P", "-A", "/etc/rdma/none"]));
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    signal(&stock, "KILL");
    stock.0.wait().unwrap();
    let service = start(&lab, "server_mode loop\n");
    assert_eq!(published(&lab, "H1", service.pid()), tcp);
    assert_eq!(stop(service), Some(0));
}

#[test]
fn files_are_for_the_owner_to_write_whatever_the_umask() {
    let lab = SUBNET.enter();
    for (mode, sockets) in [("unix", vec!["/run/ibacm-unix.sock"]), ("loop", vec![])] {
        prepare(&lab, "H1", &Case::default());
        lab.write("H1", OPTS, &format!("server_mode {mode}\n"));
        // An older service has left its log open to all.
        let log = lab.file("H1", "/var/log/ibacm.log");
        fs::write(&log, "old\n").unwrap();
        fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
        let script = format!("umask 0; exec {} -P", Program::Ours.path());
        let mut service = Running::start(lab.exec("H1", "/bin/sh").args(["-c", &script]));
        let serves = || fs::read_to_string(&log).ok()?.contains("serving").then_some(());
        wait_for(PATIENCE, serves).expect("it serves");
        let mut files = vec!["/var/log/ibacm.log", "/run/ibacm.pid"];
        if mode == "loop" {
            files.push("/run/ibacm-tcp.port");
        }
        for file in files {
            let bits = fs::metadata(lab.file("H1", file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(bits & 0o133, 0, "{mode}: {file} {bits:o}");
        }
        for socket in sockets {
            let bits = fs::metadata(lab.file("H1", socket)).unwrap().permissions().mode() & 0o777;
            assert_eq!(bits, 0o777, "{socket} is for everybody");
        }
        assert!(service.0.try_wait().unwrap().is_none());
        assert_eq!(stop(service), Some(0));
    }
}

#[test]
fn it_starts_again_at_once() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    for mode in ["loop", "open"] {
        let options = format!("server_mode {mode}\nserver_port 7002\n");
        for round in 0..3 {
            let service = start(&lab, &options);
            // Its own end closes these, and their port lingers.
            let (mut clients, said) = Clients::start(&lab, "127.0.0.1", 7002, 20);
            assert_eq!(said, "served 20", "{mode} {round}");
            assert_eq!(stop(service), Some(0), "{mode} {round}");
            assert_eq!(clients.line(), "closed", "{mode} {round}");
        }
        // Nor do clients that don't leave keep it out.
        let mut killed = start(&lab, &options);
        let (_clients, said) = Clients::start(&lab, "127.0.0.1", 7002, 5);
        assert_eq!(said, "served 5", "{mode}");
        signal(&killed, "KILL");
        killed.0.wait().unwrap();
        assert_eq!(stop(start(&lab, &options)), Some(0), "{mode}");
    }
}

#[test]
fn more_clients_than_select_could_hold() {
    let lab = SUBNET.enter();
    prepare(&lab, "H1", &Case::default());
    let service = start(&lab, "server_mode open\n");
    let (mut clients, said) = Clients::start(&lab, "127.0.0.1", 6125, 1200);
    assert_eq!(said, "served 1200");
    let (more, said) = Clients::start(&lab, "10.77.0.1", 6125, 100);
    assert_eq!(said, "served 100", "and there is room for others");
    drop(more);
    assert!(list(&lab, "H1", "127.0.0.1").contains("10.77.0.1/16"));
    assert_eq!(stop(service), Some(0));
    assert_eq!(clients.line(), "closed");
}
