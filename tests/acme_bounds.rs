//! `ib_acme` has an end and needs little, whatever a service lists, names or refuses, and however long a list is.

#[path = "util/acme_mock.rs"]
mod mock;
#[path = "util/acme_run.rs"]
mod run;
#[path = "util/terminal.rs"]
mod terminal;
mod util;

use std::process::Command;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ibacm_wire::client::Status;
use mock::{Mock, endpoint, path, send, source};
use run::{Ran, Tool, difference, finish, is_documented};

/// Headings of docs/differences.md.
const DIFFERENCES: [&str; 4] = [
    "Services without end",
    "Endpoints and counters that are not there",
    "Lists that are empty",
    "On a terminal, names do nothing",
];

/// The status of the service that refuses to list anything.
static STATUS: AtomicU8 = AtomicU8::new(0);

fn ask(tool: Tool, mock: &Mock, line: &str) -> Ran {
    finish(tool.here().args(["-S", &mock.name()]).args(line.split_whitespace()))
}

#[test]
fn every_difference_is_documented() {
    for why in DIFFERENCES {
        assert!(is_documented(why), "no section {why:?}");
    }
}

#[test]
fn a_refusal_is_told_beside_what_is_printed() {
    let mock = Mock::new(|r, s| send(s, &r.reply(STATUS.load(Relaxed), [0; 3], &[])));
    for status in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 110, 255] {
        STATUS.store(status, Relaxed);
        for line in ["-e", "-e 1", "-P all"] {
            let (ours, stock) = (ask(Tool::Ours, &mock, line), ask(Tool::Stock, &mock, line));
            let failed = ours.stdout.replace("return status 0xffffffff\n", "return status 0x0\n");
            assert_eq!((failed, stock.code()), (stock.stdout, 0), "{line}, {status}: {ours:?}");
            assert_eq!(ours.code() != 0, ours.stdout.contains("0xffffffff"), "{line}, {status}: {ours:?}");
            assert_eq!(ours.code() != 0, !ours.stderr.is_empty(), "{line}, {status}: {ours:?}");
            // That there are no more is no failure, and that there is no memory is one.
            assert!(status != 2 || line == "-e 1" || ours.code() == 0, "{line}: {ours:?}");
            assert!(status != 1 || ours.code() == 255, "{line}: {ours:?}");
        }
    }
}

#[test]
fn endpoints_that_never_end_take_little_memory() {
    // 255 ports with 255 endpoints each, of as many addresses as fit: 4 GB.
    let mock = Mock::new(|r, s| match r.endpoint() {
        Some((_, port)) => {
            let mut body = endpoint(255, &["x"; 1018]);
            body[8] = port.max(1);
            send(s, &r.reply(0, [1, 1, 0], &body))
        }
        None => send(s, &r.honest()),
    });
    for (line, longest) in [("-e", 16 << 20), ("--json -e", 32 << 20)] {
        // In KiB; a process needs some of its own. What is printed is more than a pipe holds.
        let script = format!(
            "{{ ulimit -v 300000; exec -a ib_acme \"$IB_ACME\" -S {} {line}; }} | wc -c; exit ${{PIPESTATUS[0]}}",
            mock.name()
        );
        let mut command = Command::new("/bin/bash");
        let begin = Instant::now();
        let ours = finish(command.args(["-c", &script]).env("IB_ACME", Tool::Ours.path()));
        assert!(begin.elapsed() < Duration::from_secs(50), "{line}: {:?}", begin.elapsed());
        assert!(ours.code() == 255 && ours.stderr.contains("is cut: it is longer than 16 MiB"), "{line}: {ours:?}");
        let length: usize = ours.stdout.trim().parse().expect("a number");
        assert!((100_000..longest).contains(&length), "{line}: {length}");
    }
}

#[test]
fn a_slow_list_ends() {
    let mock = Mock::new(|r, s| {
        std::thread::sleep(Duration::from_millis(150));
        match r.endpoint() {
            Some(_) => send(s, &r.reply(0, [1, 1, 0], &endpoint(1, &["h1"]))),
            None => send(s, &r.honest()),
        }
    });
    let begin = Instant::now();
    let ours = ask(Tool::Ours, &mock, "--timeout 1 -e");
    assert!((9..25).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert!(ours.code() == 255 && ours.stderr.contains("does not end within 10 s"), "{ours:?}");
    assert!(ours.stdout.contains("Failed to query endpoints: Connection timed out"), "{ours:?}");
}

#[test]
fn advice_costs_little() {
    let mock = Mock::new(|r, s| match r.endpoint() {
        Some(_) => {
            std::thread::sleep(Duration::from_millis(300));
            send(s, &r.reply(0, [1, 1, 0], &endpoint(1, &["h1"])))
        }
        None => send(s, &r.reply(Status::Enodata as u8, [0; 3], &[])),
    });
    let begin = Instant::now();
    let ours = ask(Tool::Ours, &mock, "-c -d 10.77.0.2 -C 50");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(ours.stdout, ask(Tool::Stock, &mock, "-c -d 10.77.0.2 -C 50").stdout);
    assert_eq!(ours.stderr.matches("does not know 10.77.0.2 yet").count(), 1, "{ours:?}");
}

#[test]
fn an_address_that_is_none_is_told_once_in_a_document() {
    let mock = Mock::new(|r, s| send(s, &r.honest()));
    let begin = Instant::now();
    let ours = ask(Tool::Ours, &mock, "--json -f i -d x -C 2147483647");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(ours.code() == 255 && ours.stdout.starts_with("{\n"), "{ours:?}");
}

#[test]
fn items_are_cut_where_the_distributions_are() {
    let mock = Mock::new(|r, s| send(s, &r.honest()));
    let zeros = "0".repeat(70_000);
    for list in [format!("x[{zeros}1-2]"), format!("{}[1-2]", "x".repeat(300)), format!("{}[1-12]", "x".repeat(254))] {
        let line = format!("-f i -d {list}");
        let (ours, stock) = (ask(Tool::Ours, &mock, &line), ask(Tool::Stock, &mock, &line));
        assert_eq!(difference(&ours, &stock), Ok(()));
        assert!(ours.stdout.contains("Destination: xxx") || ours.stdout.contains("Destination: x000"), "{ours:?}");
    }
}

#[test]
fn names_are_bytes_and_do_nothing_to_a_terminal() {
    const NAME: &[u8] = b"\x1b]0;n\xe4me\x07";
    let mock = Mock::new(|r, s| match r.endpoint() {
        Some((1, 0 | 1)) => {
            let mut body = endpoint(1, &["x", "h2"]);
            body[80..80 + NAME.len()].copy_from_slice(NAME);
            send(s, &r.reply(0, [1, 1, 0], &body))
        }
        Some(_) => send(s, &r.honest()),
        None => send(s, &r.reply(0, [0; 3], &[path(4), source(NAME)].concat())),
    });
    let words = ["-S", &mock.name(), "-d", "10.77.0.2", "-e"];
    let [ours, stock] = [Tool::Ours, Tool::Stock].map(|tool| tool.here().args(words).output().expect("it runs").stdout);
    assert_eq!(ours, stock);
    assert_eq!(ours.windows(NAME.len()).filter(|bytes| *bytes == NAME).count(), 2);

    let ran = terminal::here(&words);
    assert!(!ran.stdout.contains(['\x1b', '\x07']) && ran.stdout.contains("h2"), "{ran:?}");
    assert_eq!(ran.stdout.matches("\\u{1b}]0;n\u{fffd}me\\u{7}").count(), 2, "{ran:?}");
    let document = ask(Tool::Ours, &mock, "--json -e").stdout;
    assert!(document.contains("\"\\u001b]0;n\u{fffd}me\\u0007\""), "{document}");
}

/// Has a resolver that never answers run a command. The name server is in namespaces that end with it.
const SILENT: &str = "
import socket, subprocess, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 53))
sys.exit(subprocess.run(sys.argv[1:]).returncode)
";

#[test]
fn looking_up_a_name_costs_the_time_limit() {
    let mock = Mock::new(|r, s| send(s, &r.honest()));
    let file = std::env::temp_dir().join(format!("ib_acme-{}-resolv.conf", std::process::id()));
    std::fs::write(&file, "nameserver 127.0.0.1\noptions timeout:20 attempts:2\n").expect("it can be written");
    let within = |line: &str| {
        let script = format!(
            "ip link set lo up && mount --bind {} /etc/resolv.conf && exec python3 -c \"$SILENT\" \"$IB_ACME\" -S {} {line}",
            file.display(),
            mock.name()
        );
        let mut command = Command::new("unshare");
        command.args(["-mn", "bash", "-c", &script]).env("SILENT", SILENT).env("IB_ACME", Tool::Ours.path());
        let begin = Instant::now();
        (finish(&mut command), begin.elapsed())
    };
    let (ours, lasted) = within("--timeout 0.5 -d some.name.example");
    let (by_address, _) = within("--timeout 10 -d 10.77.0.2");
    let _ = std::fs::remove_file(&file);
    assert!((500..15_000).contains(&lasted.as_millis()), "{lasted:?}: {ours:?}");
    assert!(ours.code() == 255 && ours.stdout.contains("ib_acm_resolve_path failed"), "{ours:?}");
    assert_eq!(by_address.code(), 0, "{by_address:?}");
}
