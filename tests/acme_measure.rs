//! `ib_acme -C`: what it measures, what it prints where, and the line that says how far a list is.

#[path = "util/acme_run.rs"]
mod run;
#[path = "util/terminal.rs"]
mod terminal;
mod util;

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ibacm_wire::client::Counter;
use run::{Ran, Tool};
use terminal::{on_terminal, seen};
use util::{Client, Lab, PATIENCE, Program, Shared, wait_for};

static SUBNET: Shared = Shared::new(|_| {});

const HOST: &str = "H1";
/// Whoever is dead is so soon.
const OPTIONS: &str = "timeout 100\nretries 0\n";
const DESTINATION: &str = "10.77.0.2";

/// The subnet, where waiting is for the options alone.
fn enter() -> Lab<'static> {
    let lab = SUBNET.enter();
    for host in ["H1", "H2"] {
        lab.inject(&format!("port {host} subnet_timeout=8 quiet=1")).unwrap();
    }
    lab
}

/// Lets the service find the destination.
fn warm(lab: &Lab<'_>) {
    let found = wait_for(PATIENCE, || (Tool::Stock.words(lab, HOST, "-d 10.77.0.2").code() == 0).then_some(()));
    assert!(found.is_some(), "{}", Tool::Stock.words(lab, HOST, "-d 10.77.0.2").stdout);
}

fn resolved(lab: &Lab<'_>) -> u64 {
    Client::connect(lab, HOST).counters()[Counter::Resolve as usize]
}

/// What a report says.
struct Report<'a>(&'a str);

impl<'a> Report<'a> {
    fn of(ran: &'a Ran) -> Report<'a> {
        let (_, report) = ran.stdout.split_once("\nMeasurement\n").unwrap_or_else(|| panic!("no report: {ran:?}"));
        Report(report)
    }

    /// The same, where there is no path before it.
    fn of_failed(ran: &'a Ran) -> Report<'a> {
        assert!(ran.stdout.contains("ib_acm_resolve_ip failed: "), "{ran:?}");
        Report::of(ran)
    }

    fn line(&self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|l| l.trim_start().strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn number(&self, name: &str) -> u64 {
        let line = self.line(name).unwrap_or_else(|| panic!("no {name} in {}", self.0));
        line.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// In seconds.
    fn time(&self, name: &str) -> f64 {
        time(self.line(name).unwrap_or_else(|| panic!("no {name} in {}", self.0)))
    }
}

fn time(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{text}"));
    let unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        other => panic!("unit {other}"),
    };
    number.parse::<f64>().expect("a number") * unit
}

/// A report of lookups that have all been answered.
fn check_figures(ran: &Ran, lookups: u64, connections: u64) {
    assert_eq!(ran.code(), 0, "{ran:?}");
    let report = Report::of(ran);
    assert_eq!((report.number("lookups"), report.number("failures")), (lookups, 0), "{ran:?}");
    assert_eq!(report.number("connections"), connections);
    let figures = ["min", "p50", "p90", "p99", "p99.9", "max"].map(|name| report.time(name));
    assert!(figures[0] > 0.0 && figures.is_sorted(), "{ran:?}");
    let mean = report.time("mean");
    assert!((figures[0]..=figures[5]).contains(&mean), "{ran:?}");
    // "2000 in 24.6 ms, 81300 a second", in three digits.
    let line = report.line("lookups").unwrap();
    let (_, rest) = line.split_once(" in ").unwrap();
    let (seconds, rate) = rest.split_once(", ").unwrap();
    let (seconds, rate) = (time(seconds), rate.split(' ').next().unwrap().parse::<f64>().unwrap());
    assert!((rate * seconds / lookups as f64 - 1.0).abs() < 0.02, "{line}");
    // No connection ever does two at a time, and little time is lost between them.
    let busy = mean * lookups as f64 / connections as f64;
    assert!(busy <= seconds * 1.01 && busy >= seconds * 0.5, "{ran:?}");
}

fn measures(program: Program) {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let _daemon = lab.start(program, HOST, OPTIONS);
    warm(&lab);

    let before = resolved(&lab);
    let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.2 -C 2000 --stats");
    assert_eq!(resolved(&lab) - before, 2000);
    check_figures(&ran, 2000, 1);
    assert_eq!(Report::of(&ran).line("warm-up"), None);
    // The path is there, and no bars for a program that reads it.
    assert!(ran.stdout.contains("\nPath information\n") && !ran.stdout.contains('#'), "{ran:?}");

    let before = resolved(&lab);
    let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.2 -C 2000 --parallel 16 --warmup 100");
    // A connection that had been closed would have made it more.
    assert_eq!(resolved(&lab) - before, 2100);
    check_figures(&ran, 2000, 16);
    assert_eq!(Report::of(&ran).number("warm-up"), 100);

    // Never more connections than lookups.
    let before = resolved(&lab);
    let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.2 -C 3 --parallel 16");
    assert_eq!(resolved(&lab) - before, 3);
    assert_eq!((Report::of(&ran).number("lookups"), Report::of(&ran).number("connections")), (3, 3));

    let line = "-d 10.77.0.2 -C 50";
    let before = resolved(&lab);
    let (ours, stock) = (Tool::Ours.words(&lab, HOST, line), Tool::Stock.words(&lab, HOST, line));
    assert_eq!(resolved(&lab) - before, 100);
    assert_eq!((ours.stdout, ours.status), (stock.stdout, stock.status));

    let ran = on_terminal(&lab, HOST, &["-d", DESTINATION, "-C", "500"], None);
    let ran = Ran { stdout: seen(&ran.stdout).join("\n"), ..ran };
    check_figures(&ran, 500, 1);
    let rows: Vec<&str> = ran.stdout.lines().filter(|l| l.contains(" - ")).collect();
    assert!((1..=16).contains(&rows.len()), "{ran:?}");
    let counts = rows.iter().map(|row| row.rsplit(' ').next().unwrap().parse::<u64>().expect("a row ends so"));
    assert_eq!(counts.clone().sum::<u64>(), 500, "{ran:?}");
    let bars = rows.iter().map(|row| row.matches('#').count());
    assert_eq!(bars.clone().max(), Some(40), "{ran:?}");
    assert!(counts.zip(bars).all(|(count, bar)| (count == 0) == (bar == 0)), "{ran:?}");
}

#[test]
fn repetitions_of_our_service_are_measured() {
    measures(Program::Ours);
}

#[test]
fn repetitions_of_the_distributions_service_are_measured() {
    measures(Program::Stock);
}

#[test]
fn lookups_without_a_path_are_failures() {
    let lab = enter();
    let _daemon = lab.ours(HOST, OPTIONS);
    let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.99 -C 8 --parallel 4");
    let report = Report::of_failed(&ran);
    assert_eq!((report.number("lookups"), report.number("failures")), (8, 8), "{ran:?}");
    assert!(report.0.contains("\n    8: ") && report.line("p50").is_none(), "{ran:?}");
    assert!(report.line("stopped").is_none(), "it was answered: {ran:?}");
    assert_ne!(ran.code(), 0);
    assert!(!ran.stdout.contains("Path information"));
    // Advice of its own, beside.
    assert!(ran.stderr.contains("10.77.0.99 does not answer"), "{ran:?}");
}

/// A measurement that has begun.
fn begin(lab: &Lab<'_>, line: &str) -> Child {
    let before = resolved(lab);
    let child = Tool::Ours
        .command(lab, HOST)
        .args(line.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begun = wait_for(PATIENCE, || (resolved(lab) - before > 100).then_some(()));
    assert!(begun.is_some(), "it does not begin");
    child
}

fn end(mut child: Child) -> Ran {
    let ended = wait_for(PATIENCE, || child.try_wait().expect("it is a child"));
    if ended.is_none() {
        let _ = child.kill();
    }
    let output = child.wait_with_output().expect("it is a child");
    assert!(ended.is_some(), "it does not end: {output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

#[test]
fn a_service_that_hangs_ends_a_measurement() {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let daemon = lab.ours(HOST, OPTIONS);
    warm(&lab);
    // Of several connections, the two that notice first ask once more.
    for (parallel, unanswered) in [(1, 3..=3), (5, 5..=7)] {
        let child = begin(&lab, &format!("-d 10.77.0.2 -C 100000000 --parallel {parallel} --timeout 1"));
        daemon.signal("STOP");
        let ran = end(child);
        let report = Report::of_failed(&ran);
        assert!(unanswered.contains(&report.number("failures")), "{ran:?}");
        assert!(report.number("lookups") > 100 && report.line("stopped").is_some(), "{ran:?}");
        assert_ne!(ran.code(), 0);

        // One that hangs from the beginning.
        let begin = Instant::now();
        let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.2 -C 1000 --stats --timeout 0.3");
        assert!(begin.elapsed() < Duration::from_secs(10) && ran.code() != 0, "{ran:?}");
        let report = Report::of_failed(&ran);
        assert!(report.number("lookups") == 0 && report.line("stopped").is_some(), "{ran:?}");
        daemon.signal("CONT");
    }
}

#[test]
fn a_measurement_outlives_the_service() {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let mut daemon = lab.ours(HOST, OPTIONS);
    warm(&lab);
    for _ in 0..5 {
        let child = begin(&lab, "-d 10.77.0.2 -C 40000 --parallel 4 --timeout 5");
        let gone = Instant::now();
        daemon.stop();
        daemon = lab.ours(HOST, OPTIONS);
        let quick = gone.elapsed() < Duration::from_millis(800);
        let ran = end(child);
        // A loaded machine may need more than the second for which a service may be away.
        if quick {
            let report = Report::of(&ran);
            assert_eq!((report.number("lookups"), report.number("connections")), (40_000, 4), "{ran:?}");
            assert!(report.line("stopped").is_none(), "{ran:?}");
            assert!(resolved(&lab) > 100, "it was restarted in time: {ran:?}");
            return;
        }
    }
    panic!("no restart takes less than a second");
}

#[test]
fn a_service_on_tcp_is_measured() {
    let lab = enter();
    lab.write(HOST, "/etc/rdma/ibacm_opts.cfg", &format!("{OPTIONS}server_mode loop\n"));
    let _peer = lab.ours("H2", "");
    let _daemon = lab.spawn(Program::Ours, HOST, &["-P"]);
    for service in ["127.0.0.1", "localhost"] {
        let line = format!("-S {service} -d {DESTINATION}");
        let found = wait_for(PATIENCE, || (Tool::Ours.words(&lab, HOST, &line).code() == 0).then_some(()));
        assert!(found.is_some(), "{:?}", Tool::Ours.words(&lab, HOST, &line));
        let ran = Tool::Ours.words(&lab, HOST, &format!("{line} -C 500 --parallel 5"));
        check_figures(&ran, 500, 5);
    }
}

/// Seventeen that are dead, one more than needs no line.
const LONG: &str = "10.77.0.[100-116]";

#[test]
fn a_line_says_how_far_a_long_list_is() {
    let lab = enter();
    let _daemon = lab.ours(HOST, OPTIONS);
    let piped = Tool::Ours.words(&lab, HOST, &format!("-d {LONG}"));
    assert!(!piped.stderr.contains(" of 17") && !piped.stderr.contains('\r'), "{piped:?}");
    let is_advice = |line: &String| line.starts_with("ib_acme: 10.77.0.1");

    let ran = on_terminal(&lab, HOST, &["-d", LONG], None);
    assert!(ran.stdout.contains(" of 17, ") && ran.stdout.contains(" failed"), "{ran:?}");
    let mut lines = seen(&ran.stdout);
    lines.retain(|line| !is_advice(line));
    assert_eq!(lines, seen(&piped.stdout), "{ran:?}");

    // Into a file, of which the terminal sees nothing but advice and the line.
    let ran = on_terminal(&lab, HOST, &["-d", LONG], Some("/run/paths"));
    let written = fs::read_to_string(lab.file(HOST, "/run/paths")).expect("it was written");
    assert_eq!(written, piped.stdout);
    assert!(ran.stdout.contains(" of 17, "), "{ran:?}");
    assert!(seen(&ran.stdout).iter().all(|line| line.is_empty() || is_advice(line)), "{ran:?}");

    // In place of a document, until it comes.
    let ran = on_terminal(&lab, HOST, &["--json", "-d", LONG], None);
    assert!(ran.stdout.contains(" of 17, "), "{ran:?}");
    let mut lines = seen(&ran.stdout);
    lines.retain(|line| !is_advice(line));
    assert_eq!((lines[0].as_str(), lines[1].as_str()), ("{", "  \"error\": null,"), "{ran:?}");

    let ran = on_terminal(&lab, HOST, &["-d", "10.77.0.[100-115]"], None);
    assert!(!ran.stdout.contains(" of 16"), "{ran:?}");
}

#[test]
fn quick_lists_show_no_line() {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let _daemon = lab.ours(HOST, OPTIONS);
    warm(&lab);
    let list = format!("10.77.0.[{}]", ["2"; 40].join(","));
    let ran = on_terminal(&lab, HOST, &["-d", &list], None);
    assert!(ran.code() == 0 && !ran.stdout.contains(" of 40"), "{ran:?}");
}
