//! `ib_acme --json`: whatever is asked and whatever fails, there is one document, and it is as its schema says.

#[path = "util/acme_run.rs"]
mod run;
mod util;

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use run::{Ran, Tool};
use util::{Daemon, Lab, PATIENCE, Program, Shared, wait_for};

/// Two hosts of two ports each.
static SUBNET: Shared = Shared::new(|o| o.hca_ports = 2);

const HOST: &str = "H1";
/// Whoever is dead is so soon, and no peer or subnet administrator of a busy machine is taken for dead.
const OPTIONS: &str = "timeout 1000\nretries 0\n";
const NAMES: &str = "h1 mlx5_0 1 default\nother mlx5_0 2 default\n";
const CHECK: &str = include_str!("util/json_check.py");

/// Documents, and what is to be true of each.
#[derive(Default)]
struct Documents {
    /// The end of each text is a NUL byte.
    input: String,
    names: Vec<String>,
}

impl Documents {
    /// Adds what a command line has written. `check` is in Python and calls the document `d`.
    fn add(&mut self, line: &str, ran: &Ran, check: &str) {
        assert!(!ran.stderr.contains("panicked"), "{line}: {ran:?}");
        let code = ran.code();
        for text in [line, &ran.stdout, &format!("d['status'] == {code} and ({check})")] {
            assert!(!text.contains('\0'), "{text:?}");
            self.input += text;
            self.input.push('\0');
        }
        self.names.push(line.to_owned());
    }

    /// Has them all checked: what is wrong, and how many documents were changed, which the schema has found out.
    fn verdict(&self) -> (Vec<String>, u32) {
        let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ib_acme.schema.json");
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", CHECK])
            .arg(schema)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(self.input.as_bytes()).expect("it reads all");
        drop(stdin);
        let output = child.wait_with_output().expect("it is a child");
        assert!(output.status.success(), "python3-jsonschema: see scripts/setup");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<&str> = said.lines().collect();
        let of_schema = lines.pop().unwrap_or_default();
        let refused = of_schema.strip_prefix("ok ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        assert_eq!(lines.len(), self.names.len(), "{said}");
        let pairs = self.names.iter().zip(lines).filter(|(_, line)| *line != "ok");
        (pairs.map(|(name, line)| format!("{name}: {line}")).collect(), refused)
    }

    fn check(&self) {
        let (wrong, refused) = self.verdict();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // Every key of every kind of object that there was.
        assert!(refused > 50, "{refused}");
    }
}

/// What the fields of the text's path are in the document.
fn path_check(text: &str) -> String {
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix("  ")?.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    let texts = ["dgid", "sgid"].map(|name| format!("'{name}': '{}'", field(name)));
    let numbers = [
        ("dlid", "dlid"),
        ("slid", "slid"),
        ("flow label", "flow_label"),
        ("hop limit", "hop_limit"),
        ("tclass", "tclass"),
        ("reversible", "reversible"),
        ("pkey", "pkey"),
        ("sl", "sl"),
        ("mtu", "mtu"),
        ("rate", "rate"),
        ("packet lifetime", "packet_lifetime"),
    ]
    .map(|(name, key)| format!("'{key}': {}", field(name)));
    let fields = [texts.join(", "), numbers.join(", ")].join(", ");
    format!("{{**d['services'][0]['lookups'][0]['path'], {fields}}} == d['services'][0]['lookups'][0]['path']")
}

/// The rows of a table, heading left out, as Python has lists.
fn table(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip(1).filter(|l| l.starts_with('/'));
    rows.map(|l| l.split(',').map(str::to_owned).collect()).collect()
}

fn endpoints_check(text: &str) -> String {
    let rows: Vec<String> = table(text)
        .iter()
        .map(|row| format!("('{}', {}, {}, {}, '{}', {:?})", row[1], row[2], row[3], row[4], row[5], &row[6..]))
        .collect();
    assert!(!rows.is_empty(), "{text}");
    format!(
        "[(e['device_guid'], e['port'], e['pkey'], e['number'], e['provider'], e['addresses']) for e in \
         d['services'][0]['endpoints']] == [{}]",
        rows.join(", ")
    )
}

fn counters_check(text: &str) -> String {
    let rows: Vec<String> = table(text).iter().map(|row| format!("[{}]", row[1..].join(", "))).collect();
    assert!(!rows.is_empty(), "{text}");
    format!("[list(c.values())[1:8] for c in d['services'][0]['counters']] == [{}]", rows.join(", "))
}

/// A failure of one of the lists of the only service.
fn failed(about: &str, errno: i32) -> String {
    format!(
        "[(e['about'], e['error']['errno']) for e in d['services'][0]['errors']] == [('{about}', {errno})] and \
         d['status'] != 0"
    )
}

/// Lookups of the only service, whose failures have these numbers, 0 for a path.
fn lookups(errnos: &[i32]) -> String {
    format!(
        "d['services'][0]['errors'] == [] and [(l['error'] or {{'errno': 0}})['errno'] for l in \
         d['services'][0]['lookups']] == {errnos:?}"
    )
}

fn serve(lab: &Lab<'_>, program: Program) -> Daemon {
    let daemon = lab.start_named(program, HOST, OPTIONS, NAMES);
    for line in ["-d 10.77.0.2", "-d fd77::2", "-f n -s h1 -d h2"] {
        let found = wait_for(PATIENCE, || (Tool::Stock.words(lab, HOST, line).code() == 0).then_some(()));
        assert!(found.is_some(), "{line}: {}", daemon.said());
    }
    daemon
}

fn queries(program: Program) {
    let lab = SUBNET.enter();
    for host in ["H1", "H2"] {
        for port in 1..=2 {
            lab.inject(&format!("port {host} port={port} subnet_timeout=8 quiet=1")).unwrap();
        }
    }
    let _peer = lab.start_named(Program::Ours, "H2", "", "h2 mlx5_0 1 default\n");
    let daemon = serve(&lab, program);
    let [_, peer] = lab.hosts(["H1", "H2"]);
    let (lid, gid) = (peer.lid, Ipv6Addr::from(peer.gid));
    let mut documents = Documents::default();
    let mut ask = |line: &str, check: &str| {
        let ran = Tool::Ours.words(&lab, HOST, &format!("--json {line}"));
        documents.add(line, &ran, check);
    };
    let text = |line: &str| Tool::Stock.words(&lab, HOST, line).stdout;

    // Paths, with all that is in the text.
    for line in [
        "-d 10.77.0.2".to_owned(),
        "-d 10.77.0.2 -s 10.77.0.1 -v".to_owned(),
        "-d fd77::2".to_owned(),
        "-f n -s h1 -d h2".to_owned(),
        format!("-d {lid} -f l"),
        format!("-d {gid} -f g -v"),
        "-c -d 10.77.0.2".to_owned(),
    ] {
        let verified = "d['services'][0]['lookups'][0]['sa']['verified']";
        let check = format!("{} and {}", lookups(&[0]), path_check(&text(&line)));
        ask(&line, &format!("{check} and {}", if line.contains(" -v") { verified } else { "True" }));
    }
    ask("-d 10.77.0.2 -s 10.77.0.1", "d['services'][0]['lookups'][0]['source'] == '10.77.0.1'");
    ask("-d 10.77.0.2", "d['services'][0]['lookups'][0]['source'] == '10.77.0.1'");
    ask("-f n -s h1 -d h2", "d['services'][0]['lookups'][0]['format'] == 'name'");

    // Those that are not there.
    let unavailable = libc::EADDRNOTAVAIL;
    ask("-c -d 10.77.0.98", &lookups(&[libc::ENODATA]));
    ask("-d 10.77.0.[2,99]", &format!("{} and d['status'] == 255", lookups(&[0, libc::ETIMEDOUT])));
    ask("-d 10.77.0.2 -s 10.77.0.[1,9]", &lookups(&[0, unavailable]));
    ask("-f i -d x", &lookups(&[libc::EINVAL]));
    ask("-f i -d x -C 3", &lookups(&[libc::EINVAL]));
    ask("-d 10.77.0.2 -s fd77::1", &lookups(&[libc::EINVAL]));
    ask("-f g -d 5 -v", &format!("{} and d['services'][0]['lookups'][0]['sa'] is None", lookups(&[libc::EINVAL])));
    ask("-d 10.77.0.2 -C -1", &lookups(&[libc::EINVAL]));
    ask("-d 10.[3-1]", &failed("lookups", libc::EINVAL));
    ask("-d 10.77.0.2 -s 10.[3-1]", &failed("lookups", libc::EINVAL));

    // What the service says of itself.
    for line in ["-P", "-P col", "-P all", "-P 1", "-P s -s 10.77.0.1", "-P s -f n -s h1"] {
        let rows = if line == "-P col" { "-P" } else { line };
        ask(line, &counters_check(&text(rows)));
    }
    ask(
        "-P all",
        "[c['endpoint'] for c in d['services'][0]['counters']] == [*range(1, len(d['services'][0]['counters']) + 1)]",
    );
    ask("-P 77", &failed("counters", unavailable));
    ask("-P 999", &failed("counters", unavailable));
    ask("-P s -s 10.9.9.9", &failed("counters", unavailable));
    ask("-P s -f l -s 5", &failed("counters", libc::EINVAL));
    ask("-e", &endpoints_check(&text("-e")));
    ask("-e 1", &endpoints_check(&text("-e 1")));
    ask("-e 77", &failed("endpoints", unavailable));
    ask("-d 10.77.0.2 -P -e -v", "[*d['services'][0]] == ['service', 'errors', 'lookups', 'counters', 'endpoints']");
    ask(
        "-d [3-1] -P 999 -e 77",
        "[e['about'] for e in d['services'][0]['errors']] == ['lookups', 'counters', 'endpoints']",
    );

    // Measurements.
    let m = "d['services'][0]['lookups'][0]['measurement']";
    let whole = |n: u32| {
        format!(
            "{m}['lookups'] == {n} and {m}['failures'] == 0 and not {m}['stopped'] and \
             sum(r['count'] for r in {m}['histogram']) == {n} and {m}['latency_us']['min'] > 0 and \
             abs({m}['per_second'] * {m}['seconds'] / {n} - 1) < 0.001"
        )
    };
    let ordered = format!("[{m}['latency_us'][k] for k in ('min', 'p50', 'p90', 'p99', 'p99_9', 'max')]");
    ask("-d 10.77.0.2 -C 3", &whole(3));
    ask(
        "-d 10.77.0.2 -C 200 --parallel 4 --warmup 3",
        &format!(
            "{} and {m}['connections'] == 4 and {m}['warmup'] == 3 and {ordered} == sorted({ordered})",
            whole(200)
        ),
    );
    ask(
        "-d 10.77.0.99 -C 3 --stats",
        &format!(
            "{} and {m}['failures'] == 3 and {m}['latency_us'] is None and {m}['errors'][0]['count'] == 3",
            lookups(&[libc::ETIMEDOUT])
        ),
    );

    // Several services, one of which is none.
    let _ = symlink("ibacm-unix.sock", lab.file(HOST, "/run/svc1"));
    ask(
        "-e -P -S /run/svc[1-2]",
        "[(s['service'], len(s['errors']), 'endpoints' in s) for s in d['services']] == \
         [('/run/svc1', 0, True), ('/run/svc2', 1, False)] and d['status'] == 2",
    );

    if program == Program::Stock {
        // While it hangs, others cannot even connect.
        return documents.check();
    }
    daemon.signal("STOP");
    let begin = Instant::now();
    ask("-d 10.77.0.2 --timeout 0.2", &lookups(&[libc::ETIMEDOUT]));
    ask("-d 10.77.0.2 --timeout 0.2 -C 9", &format!("{} and {m}['stopped']", lookups(&[libc::ETIMEDOUT])));
    ask("-P --timeout 0.2", &failed("counters", libc::ETIMEDOUT));
    ask("-e --timeout 0.2", &failed("endpoints", libc::ETIMEDOUT));
    assert!(begin.elapsed() < Duration::from_secs(15));
    daemon.signal("CONT");
    documents.check();
}

#[test]
fn queries_of_our_service_are_documents() {
    queries(Program::Ours);
}

#[test]
fn queries_of_the_distributions_service_are_documents() {
    queries(Program::Stock);
}

#[test]
fn what_needs_no_service_is_a_document() {
    let lab = SUBNET.enter();
    let mut documents = Documents::default();
    let mut ask = |line: &str, check: &str| {
        let ran = Tool::Ours.words(&lab, HOST, line);
        documents.add(line, &ran, check);
    };
    // Nobody serves.
    ask("--json -d 10.77.0.2 -S /run/none", &format!("{} and d['status'] == 2", failed("service", libc::ENOENT)));
    ask("--json -P -e -S no.such.host.invalid", "d['services'][0]['errors'][0]['about'] == 'service'");
    ask("--json -e -S [3-1]", "d['error']['errno'] == 22 and d['status'] == 255");
    // No command line.
    for (line, why) in [
        ("--json", "the options do not say what to do"),
        ("--json foo", "'foo' is no command (there are: check, completions)"),
        ("--json -x -e", "invalid option -- 'x'"),
        ("-e --json --timeout x", "--timeout is 0.001 to 86400 seconds, not 'x'"),
        ("-d x --parallel 5000 --json", "--parallel is a number from 1 to 4096, not '5000'"),
        ("-d x --parallel 0 --json", "--parallel is a number from 1 to 4096, not '0'"),
        ("-P --parallel 4 --json", "--stats, --parallel and --warmup need -d, which has what to resolve"),
        ("-s 5 --json", "-s needs -d, or -P s"),
        ("-f x --json", "-f is one of i, n, l, g and u"),
    ] {
        let text = format!("d['error']['text'] == {why:?} and 'ib_acme --help' in d['error']['advice']");
        ask(line, &format!("d['error']['errno'] == 22 and d['status'] == 1 and {text}"));
    }
    // Files.
    ask(
        "--json -A -O -D /run/made",
        "[(f['kind'], f['path'], f['error']) for f in d['files']] == [('addresses', '/run/made/ibacm_addr.cfg', None), \
         ('options', '/run/made/ibacm_opts.cfg', None)]",
    );
    assert!(lab.file(HOST, "/run/made/ibacm_opts.cfg").exists());
    ask("--json -O some.cfg -D /run/made", "d['files'][0]['path'] == '/run/made/some.cfg'");
    ask("--json -A -O -D /nonexistent/x", "[f['error']['errno'] for f in d['files']] == [2]");
    ask("--json -O -D /proc/1/status", "[f['error']['errno'] for f in d['files']] == [20]");
    documents.check();
    let usage = Tool::Ours.words(&lab, HOST, "-x -- --json");
    assert!(usage.is_usage(), "{usage:?}");
}

#[test]
fn a_check_can_fail() {
    let lab = SUBNET.enter();
    let ran = Tool::Ours.words(&lab, HOST, "--json -e -S /run/none");
    let mut documents = Documents::default();
    for (text, check) in [
        (ran.stdout.clone(), "True"),
        (ran.stdout.clone(), "d['services'] == []"),
        (ran.stdout.replace("\"files\": [],", ""), "True"),
        (ran.stdout.replace("\"files\": []", "\"files\": [], \"more\": 1"), "True"),
        (ran.stdout.replace("\"files\": []", "\"files\": [], \"files\": []"), "True"),
        (ran.stdout.repeat(2), "True"),
        (String::new(), "True"),
    ] {
        documents.add("x", &Ran { stdout: text, ..ran.clone() }, check);
    }
    let (wrong, _) = documents.verdict();
    assert_eq!(wrong.len(), documents.names.len() - 1, "{wrong:?}");
}
