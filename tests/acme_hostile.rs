//! `ib_acme` and services that close, lie, hang or never end; beside it the distribution's, which believes them.

#[path = "util/acme_mock.rs"]
mod mock;
#[path = "util/acme_run.rs"]
mod run;
mod util;

use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mock::{Answer, Mock, close, counters, endpoint, path, send, source};
use run::{Ran, Tool, difference, finish, is_documented, is_endless};

/// Headings of docs/differences.md.
mod why {
    pub const REPLIES: &str = "Replies that are none";
    pub const PIECES: &str = "Replies in pieces";
    pub const TEXT: &str = "Arguments that are no text";
    pub const ENDLESS: &str = "Services without end";
    pub const PORTS: &str = "Devices with different numbers of ports";
    pub const UNWRITTEN: &str = "Output that cannot be written";
}

enum Expect {
    Same,
    /// Ours does what is right, and the other one does not.
    Differs(&'static str, fn(&Ran) -> bool, fn(&Ran) -> bool),
}

use Expect::{Differs, Same};

struct Row {
    name: &'static str,
    answer: Answer,
    line: &'static str,
    expect: Expect,
}

/// Success for nothing, memory that is not its own, or the end by a signal.
fn wrong(stock: &Ran) -> bool {
    stock.code() == 0 || stock.code() >= 128 + 6 && stock.status.code().is_none()
}

/// A failure, but no honest status: whatever number of bytes has come.
fn odd(stock: &Ran) -> bool {
    ![0, 255].contains(&stock.code())
}

/// It is said that something failed, and nothing is made up.
fn fails(ours: &Ran) -> bool {
    let figures = ["Path information", "Error Count", ",0x"];
    ours.code() == 255
        && ours.stdout.contains("ailed")
        && ours.stdout.ends_with("return status 0xffffffff\n")
        && !figures.iter().any(|f| ours.stdout.contains(f))
        && !ours.stderr.contains("panicked")
}

fn good(ours: &Ran) -> bool {
    ours.code() == 0
}

const PATH: &str = "-d 10.77.0.2";
const LID: &str = "-f l -d 4";

fn table() -> Vec<Row> {
    let row = |name, answer, line, expect| Row { name, answer, line, expect };
    let bad = |name, answer, line| row(name, answer, line, Differs(why::REPLIES, fails, wrong));
    let status: Answer = |r, s| send(s, &r.reply(STATUS.load(Relaxed), [0; 3], &[]));
    let mut rows = vec![
        row("honest", |r, s| send(s, &r.honest()), "-d 10.77.0.2 -v -P -e", Same),
        row("honest", |r, s| send(s, &r.honest()), "-d 10.77.0.2 -P col -e 1 -C 3", Same),
        row("honest", |r, s| send(s, &r.honest()), "-f l -d 4 -P all", Same),
        row("an address that is none", |r, s| send(s, &r.honest()), "-f i -d x -C 1001", Same),
        row(
            "devices of one port and of two",
            |r, s| {
                // Device 1 has port 1, device 2 has ports 1 and 2.
                let known = [(1, 1, 1), (2, 1, 2), (2, 2, 2)];
                let of_port = |wanted| move |(_, port, _): &(u8, u8, u8)| [0, *port].contains(&wanted);
                let Some((number @ 1.., port)) = r.endpoint() else { return send(s, &r.honest()) };
                match known.into_iter().filter(of_port(port)).nth(usize::from(number) - 1) {
                    Some((device, port, ports)) => {
                        let mut body = endpoint(ports, &["h1"]);
                        (body[7], body[8]) = (device, port);
                        send(s, &r.reply(0, [1, 1, 0], &body))
                    }
                    None => send(s, &r.reply(2, [0; 3], &[])),
                }
            },
            "-e",
            Differs(
                why::PORTS,
                |o| o.code() == 0 && o.stdout.lines().filter(|l| l.contains(",ibacmp,")).count() == 3,
                |s| s.code() == 0 && s.stdout.lines().filter(|l| l.contains(",ibacmp,")).count() == 2,
            ),
        ),
        row(
            "a source that was chosen",
            |r, s| send(s, &r.reply(0, [0; 3], &[path(4), source(b"h1")].concat())),
            PATH,
            Same,
        ),
        bad("closes", |_, _| close(), PATH),
        bad("closes", |_, _| close(), LID),
        bad("closes", |_, _| close(), "-P"),
        bad("closes", |_, _| close(), "-P all"),
        bad("closes", |_, _| close(), "-P s -s 10.77.0.1"),
        bad("closes", |_, _| close(), "-e"),
        bad("closes", |_, _| close(), "-e 1"),
        row(
            "closes before the path is verified",
            |r, s| if r.is_verification() { close() } else { send(s, &r.honest()) },
            "-d 10.77.0.2 -v",
            Differs(
                why::REPLIES,
                |o| o.code() == 255 && o.stdout.contains("SA verification: failed"),
                |s| s.stdout.contains("SA verification: success"),
            ),
        ),
        bad("success without a path", |r, s| send(s, &r.reply(0, [0; 3], &[])), PATH),
        bad("success without a path", |r, s| send(s, &r.reply(0, [0; 3], &[])), LID),
        bad("a source in place of a path", |r, s| send(s, &r.reply(0, [0; 3], &source(b"h1"))), PATH),
        bad("a path behind its source", |r, s| send(s, &r.reply(0, [0; 3], &[source(b"h1"), path(4)].concat())), PATH),
        bad("more paths than one", |r, s| send(s, &r.reply(0, [0; 3], &path(4).repeat(2))), PATH),
        row(
            "half a path",
            |r, s| send(s, &r.reply(0, [0; 3], &path(4))[..50]).and_then(|()| close()),
            PATH,
            Differs(why::REPLIES, fails, odd),
        ),
        row("longer than it says", |r, s| send(s, &lying(r.honest(), 16)), LID, Differs(why::REPLIES, fails, odd)),
        row("shorter than a header", |r, s| send(s, &lying(r.honest(), 7)), LID, Differs(why::REPLIES, fails, odd)),
        bad("more counters than come", |r, s| send(s, &r.reply(0, [255, 0, 0], &counters(7))), "-P"),
        bad("no counters", |r, s| send(s, &r.reply(0, [0, 0, 0], &[])), "-P"),
        bad("fewer counters than come", |r, s| send(s, &r.reply(0, [2, 0, 0], &counters(7))), "-P col"),
        bad("counters without an end", |r, s| send(s, &r.reply(0, [7, 0, 0], &counters(6))), "-P s -s 10.77.0.1"),
        bad(
            "half an endpoint",
            |r, s| send(s, &r.reply(0, [1, 1, 0], &endpoint(1, &[])[..40])).and_then(|()| close()),
            "-e",
        ),
        bad(
            "more addresses than come",
            |r, s| {
                let mut body = endpoint(1, &["h1"]);
                body[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
                send(s, &r.reply(0, [1, 1, 0], &body))
            },
            "-e",
        ),
        bad(
            "an endpoint of no length",
            |r, s| send(s, &lying(r.reply(0, [1, 1, 0], &[]), 3)).and_then(|()| close()),
            "-e",
        ),
        row("noise", |_, s| send(s, &[0xa5; 600]), LID, Differs(why::REPLIES, fails, odd)),
        bad("noise", |_, s| send(s, &[0xa5; 600]), "-P"),
        row(
            "piece by piece",
            |r, s| {
                r.honest().chunks(5).try_for_each(|piece| {
                    send(s, piece)?;
                    s.flush()?;
                    // A program that is not run for so long would read several pieces as one.
                    std::thread::sleep(Duration::from_millis(20));
                    Ok(())
                })
            },
            "-f l -d 4 -P -e",
            Differs(why::PIECES, good, |s| !s.stdout.contains("Path information") || !s.stdout.contains("Error Count")),
        ),
    ];
    rows.extend(
        [PATH, LID, "-f n -s a -d b", "-d 10.77.0.[2-3] -C 2 -c"].map(|line| row("status", status, line, Same)),
    );
    rows
}

/// The status that rows of that name answer with.
static STATUS: AtomicU8 = AtomicU8::new(0);

/// The same bytes with another length in the header, in whichever order that is.
fn lying(mut reply: Vec<u8>, length: u16) -> Vec<u8> {
    let length = if reply[1] & 0x0f == 1 { length.to_ne_bytes() } else { length.to_be_bytes() };
    reply[6..8].copy_from_slice(&length);
    reply
}

fn ask(tool: Tool, mock: &Mock, line: &str) -> Ran {
    finish(tool.here().args(["-S", &mock.name()]).args(line.split_whitespace()))
}

/// What is wrong with a row, if anything.
fn compare(row: &Row) -> Result<(), String> {
    let mock = Mock::new(row.answer);
    let stock = ask(Tool::Stock, &mock, row.line);
    let begin = Instant::now();
    let ours = ask(Tool::Ours, &mock, row.line);
    if begin.elapsed() > Duration::from_secs(10) {
        return Err(format!("it takes {:?}: {ours:?}", begin.elapsed()));
    }
    match row.expect {
        Same => difference(&ours, &stock),
        Differs(_, right, wrong) if right(&ours) && wrong(&stock) => Ok(()),
        Differs(..) => Err(format!("ours: {ours:?}\nstock: {stock:?}")),
    }
}

#[test]
fn what_is_no_answer_is_a_failure() {
    Tool::Ours.path();
    let mut failures = Vec::new();
    for row in table() {
        let statuses: &[u8] = if row.name == "status" { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 110, 255] } else { &[0] };
        for status in statuses {
            STATUS.store(*status, Relaxed);
            if let Err(why) = compare(&row) {
                failures.push(format!("== {} {status}: {}\n{why}", row.name, row.line));
            }
        }
    }
    assert!(failures.is_empty(), "{} rows\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_difference_is_documented() {
    for row in table() {
        if let Differs(why, ..) = row.expect {
            assert!(is_documented(why), "{}: no section {why:?}", row.name);
        }
    }
    for why in [why::ENDLESS, why::TEXT, why::UNWRITTEN] {
        assert!(is_documented(why), "no section {why:?}");
    }
}

#[test]
fn a_service_that_hangs_costs_the_time_limit() {
    let mock = Mock::new(|_, _| Ok(()));
    for line in ["-d 10.77.0.2", "-f l -d 4 -v", "-P", "-P all", "-e", "-e 1"] {
        let mut stock = Tool::Stock.here();
        stock.args(["-S", &mock.name()]).args(line.split_whitespace());
        assert!(is_endless(&mut stock, Duration::from_millis(300)), "{line}: the distribution's ends");
        let begin = Instant::now();
        let ours = ask(Tool::Ours, &mock, &format!("--timeout 0.3 {line}"));
        let lasted = begin.elapsed();
        assert!((250..8000).contains(&lasted.as_millis()), "{line}: {lasted:?}");
        assert!(fails(&ours) && ours.stdout.contains("timed out"), "{line}: {ours:?}");
    }
}

#[test]
fn endpoints_end() {
    // Each is there, whatever its number.
    let mock = Mock::new(|r, s| match r.endpoint() {
        Some(_) => send(s, &r.reply(0, [1, 1, 0], &endpoint(1, &["h1"]))),
        None => send(s, &r.reply(0, [7, 0, 0], &counters(7))),
    });
    for (line, mark) in [("-e", ",ibacmp,"), ("-P all", "sock,1,2,")] {
        let mut stock = Tool::Stock.here();
        stock.args(["-S", &mock.name()]).args(line.split_whitespace());
        assert!(is_endless(&mut stock, Duration::from_secs(1)), "{line}: the distribution's ends");
        let begin = Instant::now();
        let ours = ask(Tool::Ours, &mock, line);
        assert!(begin.elapsed() < Duration::from_secs(10), "{line}: {:?}", begin.elapsed());
        let count = ours.stdout.lines().filter(|l| l.contains(mark)).count();
        assert!((1..=255).contains(&count), "{line}: {count}: {}", ours.stdout);
    }
}

#[test]
fn a_name_without_an_end_is_as_long_as_its_field() {
    let mock = Mock::new(|r, s| send(s, &r.reply(0, [0; 3], &[path(4), source(&[b'x'; 64])].concat())));
    let ours = ask(Tool::Ours, &mock, PATH);
    assert!(ours.stdout.contains(&format!("Source: {}\n", "x".repeat(64))), "{ours:?}");
    let mock = Mock::new(|r, s| match r.endpoint() {
        Some((1, 0 | 1)) => send(s, &r.reply(0, [1, 1, 0], &endpoint(1, &[&"x".repeat(64), "h1"]))),
        _ => send(s, &r.honest()),
    });
    let ours = ask(Tool::Ours, &mock, "-e");
    assert!(ours.stdout.contains(&format!(",{},h1\n", "x".repeat(64))), "{ours:?}");
}

#[test]
fn nobody_reads_what_is_printed() {
    let mock = Mock::new(|r, s| send(s, &r.honest()));
    for line in ["-e", "-P", "-d 10.77.0.2", "-x", "-d 10.77.0.[2-9] -e -P"] {
        // The reader is gone before the first line, or standard output is closed, or full.
        for (to, codes) in [("> >(:); wait $!", [141, 141]), (">&-", [0, 141]), (">/dev/full", [255, 255])] {
            let script = format!("exec {to}; (exec -a ib_acme \"$IB_ACME\" -S {} {line})", mock.name());
            let [ours, stock] = [Tool::Ours, Tool::Stock].map(|tool| {
                let mut command = Command::new("/bin/bash");
                finish(command.args(["-c", &script]).env("IB_ACME", tool.path()))
            });
            assert!(!ours.stderr.contains("panicked"), "{line} {to}: {ours:?}");
            if to.contains("wait") {
                assert_eq!(ours.code(), stock.code(), "{line} {to}: {ours:?} {stock:?}");
            }
            assert!(codes.contains(&ours.code()) || (line, ours.code()) == ("-x", 1), "{line} {to}: {ours:?}");
            let said = ours.stderr.contains("ib_acme: standard output: No space left on device\n");
            assert_eq!(said, to == ">/dev/full", "{line} {to}: {ours:?}");
        }
    }
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    let mock = Mock::new(|r, s| send(s, &r.honest()));
    let bytes = "$'\\xff\\xfe'";
    for line in ["-d @", "-S @ -e", "-s @ -d 10.77.0.2", "-f @", "-e@", "-P@", "-C@ -d 10.77.0.2", "@ -e", "-@", "--@"]
    {
        let words = line.replace('@', bytes);
        let script = format!("exec -a ib_acme \"$IB_ACME\" -S {} {words}", mock.name());
        let mut command = Command::new("/bin/bash");
        let ours = finish(command.args(["-c", &script]).env("IB_ACME", Tool::Ours.path()));
        assert!(ours.is_usage() && ours.code() == 1 && ours.stderr.starts_with("ib_acme: "), "{line}: {ours:?}");
    }
}
