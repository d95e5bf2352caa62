//! `ib_acme check`: a healthy host is healthy, and each fault has its own finding, with its remedy, and no other.

mod util;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use util::{Daemon, Lab, PATIENCE, Program, Shared, acme, partitions, run, wait_for};

/// For what is put back at the end.
static SUBNET: Shared = Shared::new(|_| {});

/// Soon gives a peer up.
const HASTY: &str = "timeout 200\nretries 1\n";

/// What a check said.
struct Checked {
    status: Option<i32>,
    text: String,
    took: Duration,
}

fn check(lab: &Lab<'_>, host: &str, arguments: &[&str]) -> Checked {
    let began = Instant::now();
    let output = run(lab.exec(host, acme::ours()).arg("check").args(arguments));
    Checked { status: output.status.code(), text: util::text(&output), took: began.elapsed() }
}

impl Checked {
    /// Kinds and subjects of the findings with this level.
    fn of(&self, level: &str) -> Vec<(&str, &str)> {
        let words = self.text.lines().filter_map(|line| line.strip_prefix(level)?.trim_start().split_once(": "));
        words.filter_map(|(words, _)| words.split_once(' ')).collect()
    }

    /// All is well, and all of this has been looked at.
    #[track_caller]
    fn healthy(&self, kinds: &[&str]) {
        assert_eq!(self.status, Some(0), "{}", self.text);
        assert!(self.text.ends_with("\nhealthy\n"), "{}", self.text);
        assert_eq!((self.of("failed"), self.of("warning")), (Vec::new(), Vec::new()), "{}", self.text);
        let ok = self.of("ok");
        assert!(kinds.iter().all(|k| ok.iter().any(|(what, _)| what == k)), "{kinds:?} in {}", self.text);
    }

    /// Exactly these lines failed: how each starts, and what else is in it, the remedy among it.
    #[track_caller]
    fn failed(&self, wanted: &[(&str, &[&str])]) {
        self.not_ok("failed", Some(2), wanted);
    }

    #[track_caller]
    fn not_ok(&self, level: &str, status: Option<i32>, wanted: &[(&str, &[&str])]) {
        let lines: Vec<&str> = self.text.lines().collect();
        let (last, lines) = lines.split_last().expect("a summary");
        let bad: Vec<&&str> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
        assert_eq!(bad.len(), wanted.len(), "{}", self.text);
        for (line, (start, pieces)) in bad.iter().zip(wanted) {
            assert!(line.starts_with(&format!("{level:<8} {start}: ")), "{start} in {}", self.text);
            assert!(pieces.iter().all(|piece| line.contains(piece)), "{pieces:?} in {line}");
            assert!(line.contains("; remedy: "), "{line}");
        }
        let (failed, warnings) = if level == "failed" { (bad.len(), 0) } else { (0, bad.len()) };
        assert_eq!(*last, format!("{failed} failed, {warnings} warnings"));
        assert_eq!(self.status, status, "{}", self.text);
    }
}

/// A fault that is taken back, whatever becomes of the test.
struct Undo<'a>(&'a Lab<'a>, &'a str);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let _ = self.0.inject(self.1);
    }
}

/// Waits until a check says that all is well again.
#[track_caller]
fn wait_healthy(lab: &Lab<'_>, host: &str) {
    let healthy = wait_for(PATIENCE, || (check(lab, host, &[]).status == Some(0)).then_some(()));
    assert!(healthy.is_some(), "{}", check(lab, host, &[]).text);
}

/// Everything that is looked at.
const ALL: [&str; 10] =
    ["device", "port", "partition", "address", "sa", "service", "endpoint", "group", "local", "path"];

#[test]
fn healthy_hosts_are_healthy() {
    let lab = SUBNET.enter();
    for program in [Program::Ours, Program::Stock] {
        let _daemons: [Daemon; 2] = ["H1", "H2"].map(|host| lab.start(program, host, ""));
        let [two] = lab.hosts(["H2"]);
        check(&lab, "H1", &[]).healthy(&ALL);
        let gid = std::net::Ipv6Addr::from(two.gid).to_string();
        let all = check(&lab, "H1", &["-d", "h[2]", "-d", &format!("10.77.0.2,fd77::2,{gid},{}", two.lid)]);
        all.healthy(&ALL);
        for subject in ["h2", "10.77.0.2", "fd77::2", &gid, &two.lid.to_string()] {
            for what in ["peer", "path"] {
                assert!(all.of("ok").contains(&(what, subject)), "{program:?}: {what} {subject} in {}", all.text);
            }
        }
        let quiet = check(&lab, "H1", &["-q", "-d", "h2"]);
        assert_eq!((quiet.text.as_str(), quiet.status), ("", Some(0)));
    }
}

#[test]
fn both_ports_and_other_sockets() {
    static TWO: Shared = Shared::new(|o| o.hca_ports = 2);
    let lab = TWO.enter();
    for program in [Program::Ours, Program::Stock] {
        lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "server_mode loop\n");
        let _daemon = lab.spawn(program, "H1", &["-P"]);
        wait_healthy(&lab, "H1");
        let all = check(&lab, "H1", &[]);
        all.healthy(&ALL);
        for what in ["port", "partition", "sa"] {
            for subject in ["mlx5_0/1", "mlx5_0/2"] {
                assert!(all.of("ok").contains(&(what, subject)), "{what} {subject} in {}", all.text);
            }
        }
        for subject in ["mlx5_0/1 0xffff", "mlx5_0/2 0xffff"] {
            assert!(all.of("ok").contains(&("group", subject)), "{program:?}: {}", all.text);
        }
        check(&lab, "H1", &["-S", "127.0.0.1"]).healthy(&ALL);
    }
    let _daemon = lab.ours("H1", "");
    check(&lab, "H1", &["-S", "/run/ibacm.sock"]).healthy(&ALL);
    // Where another port is active, one that is down is worth a warning.
    lab.inject("port H1 port=2 state=1").unwrap();
    let half = check(&lab, "H1", &[]);
    half.not_ok("warning", Some(1), &[("port mlx5_0/2", &["no link", "remedy: plug in the cable"])]);
}

#[test]
fn no_device() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    let daemon = lab.ours("H1", "");
    lab.inject("device-remove H1").unwrap();
    let device: (&str, &[&str]) = ("device this host", &["no RDMA device", "remedy: load the adapter's driver"]);
    check(&lab, "H1", &["-d", "h2"]).failed(&[device]);
    drop(daemon);
    let service: (&str, &[&str]) = ("service /run/ibacm-unix.sock", &["does not run"]);
    check(&lab, "H1", &["-d", "h2"]).failed(&[device, service]);
}

#[test]
fn ports_that_are_not_active() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    for (state, found, remedy) in [
        (1, "down: there is no link", "remedy: plug in the cable"),
        (2, "no subnet manager (SM) has configured the port", "remedy: start a subnet manager"),
        (3, "armed", "remedy: wait a moment"),
    ] {
        let _undo = Undo(&lab, "port-reset H1");
        lab.inject(&format!("port H1 state={state}")).unwrap();
        check(&lab, "H1", &["-d", "h2"]).failed(&[("port mlx5_0/1", &[found, remedy])]);
    }
    wait_healthy(&lab, "H1");
}

#[test]
fn no_subnet_manager() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    let _daemon = lab.ours("H1", "");
    {
        let _undo = Undo(&lab, "port-reset H1");
        lab.inject("port H1 sm_lid=0").unwrap();
        let checked = check(&lab, "H1", &[]);
        checked.failed(&[("port mlx5_0/1", &["no subnet manager (SM LID 0)", "remedy: start a subnet manager"])]);
    }
    wait_healthy(&lab, "H1");
    lab.manager("stop").unwrap();
    let checked = check(&lab, "H1", &["--timeout", "1"]);
    checked.failed(&[("sa mlx5_0/1", &["does not answer within 1 s", "remedy: look whether the subnet manager"])]);
    lab.manager("start").unwrap();
    // It knows of nobody's memberships, and asks for them.
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    wait_healthy(&lab, "H1");
}

#[test]
fn administrator_that_does_not_answer() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, ""));
    lab.inject("sa drop host=H1").unwrap();
    let silent: (&str, &[&str]) = ("sa mlx5_0/1", &["at LID 1 does not answer within 1 s", "smpquery nodedesc 1"]);
    check(&lab, "H1", &["--timeout", "1"]).failed(&[silent]);
    // A question of ours that is lost is asked again.
    lab.inject("clear").unwrap();
    lab.inject("sa drop host=H1 count=1").unwrap();
    check(&lab, "H1", &["--timeout", "3"]).healthy(&ALL);
    lab.inject("sa status status=0x0700 host=H1 attr=0x35").unwrap();
    let refused: (&str, &[&str]) = ("sa mlx5_0/1", &["0x0700 (request denied)", "remedy: look into the subnet"]);
    check(&lab, "H1", &[]).failed(&[refused]);
    // Busy for a moment is no fault, busy for long is one.
    lab.inject("clear").unwrap();
    lab.inject("sa status status=0x0001 host=H1 attr=0x35 count=2").unwrap();
    check(&lab, "H1", &[]).healthy(&ALL);
    lab.inject("sa status status=0x0001 host=H1 attr=0x35").unwrap();
    check(&lab, "H1", &["--timeout", "1"]).failed(&[("sa mlx5_0/1", &["is busy", "remedy: look what keeps"])]);
}

#[test]
fn limited_members() {
    static LIMITED: Shared = Shared::new(|o| {
        o.partitions = Some(partitions("limited", "Default=0x7fff,ipoib:ALL=limited,SELF=full;\n"));
    });
    let found: &[&str] = &["only a limited member (0x7fff)", "remedy: ", "Default=0x7fff,ipoib:ALL=full"];
    let lab = LIMITED.enter();
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    check(&lab, "H1", &[]).failed(&[("partition mlx5_0/1", found)]);
    drop((daemon, lab));

    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let _undo = Undo(&lab, "port-reset H1");
    lab.inject("port H1 pkeys=0x7fff").unwrap();
    check(&lab, "H1", &[]).failed(&[("partition mlx5_0/1", found)]);
}

#[test]
fn no_ipoib_address() {
    static ALONE: Shared = Shared::new(|_| {});
    static BARE: Shared = Shared::new(|o| o.no_ipoib = true);
    let lab = ALONE.enter();
    let _daemon = lab.ours("H1", "");
    util::succeed(lab.exec("H1", "ip").args(["addr", "flush", "dev", "ib0"]));
    let checked = check(&lab, "H1", &[]);
    checked.failed(&[("address ib0", &["no IPoIB address", "remedy: give it one (ip addr add"])]);

    let lab = BARE.enter();
    let _daemon = lab.ours("H1", "");
    let checked = check(&lab, "H1", &[]);
    checked.failed(&[("address mlx5_0/1", &["no IPoIB address", "remedy: load IPoIB (modprobe ib_ipoib)"])]);
}

#[test]
fn services_that_are_down_or_hang() {
    let lab = SUBNET.enter();
    let service = "service /run/ibacm-unix.sock";
    let daemon = lab.ours("H1", "");
    daemon.signal("STOP");
    let hung = check(&lab, "H1", &["--timeout", "1", "-d", "h[2-99]"]);
    daemon.signal("CONT");
    hung.failed(&[(service, &["it hangs: connected, but no answer within 1 s", "remedy: look into its log"])]);
    assert!(hung.took < Duration::from_secs(4), "one time limit for all: {:?}", hung.took);
    daemon.signal("KILL");
    assert_eq!(daemon.wait(), None, "it was killed");
    // Its socket file is still there.
    let down: (&str, &[&str]) =
        (service, &["it does not run: ", "refused", "remedy: start it (systemctl start ibacm.socket"]);
    check(&lab, "H1", &["-d", "h2"]).failed(&[down]);
    let absent = check(&lab, "H1", &["-S", "/run/nothing"]);
    absent.failed(&[("service /run/nothing", &["No such file", "remedy: start it (systemctl start ibacm.socket"])]);
}

#[test]
fn wrong_answers() {
    let lab = SUBNET.enter();
    let file = lab.file("H1", "/run/echo.sock");
    let listener = UnixListener::bind(&file).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&done);
    let answers = std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok).take_while(|_| !ends.load(Ordering::Relaxed)) {
            let _ = (&client).read(&mut [0; 64]);
            let _ = (&client).write_all(&[9; 64]);
        }
    });
    let checked = check(&lab, "H1", &["-S", "/run/echo.sock"]);
    done.store(true, Ordering::Relaxed);
    drop(UnixStream::connect(&file));
    answers.join().unwrap();
    std::fs::remove_file(file).unwrap();
    checked.failed(&[("service /run/echo.sock", &["wrong answers: ", "version 9", "remedy: look which program"])]);
}

#[test]
fn not_a_member_of_the_group() {
    static ALONE: Shared = Shared::new(|_| {});
    let lab = ALONE.enter();
    lab.inject("sa status status=0x0200 attr=0x38 method=2 host=H1").unwrap();
    // The group is there, with another member.
    let _daemons = [lab.ours("H2", ""), lab.start_configured(Program::Ours, "H1", "")];
    let absent: (&str, &[&str]) =
        ("group mlx5_0/1 0xffff", &["not a member of ff15:4001:ffff:3:400::", "min_mtu (2048)"]);
    check(&lab, "H1", &[]).failed(&[absent]);
    check(&lab, "H2", &[]).healthy(&ALL);
    lab.inject("clear").unwrap();
    wait_healthy(&lab, "H1");
}

#[test]
fn peers_that_do_not_answer() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|host| lab.ours(host, HASTY));
    // Nobody has the last of the LIDs, which the administrator knows.
    let checked = check(&lab, "H1", &["-d", "10.77.0.[2,97-99],nobody,3000"]);
    let silent = ["10.77.0.97", "10.77.0.98", "10.77.0.99", "nobody"];
    let remedy = ["the peer does not answer", "remedy: look whether it is up", "min_mtu and min_rate"];
    let failed = checked.of("failed");
    assert_eq!((failed.len(), checked.status), (5, Some(2)), "{}", checked.text);
    for subject in silent {
        assert!(failed.contains(&("peer", subject)), "{subject} in {}", checked.text);
        let line = checked.text.lines().find(|l| l.contains(&format!("peer {subject}: "))).unwrap();
        assert!(remedy.iter().all(|piece| line.contains(piece)), "{line}");
    }
    assert!(checked.text.contains("peer 3000: there is no path to it: "), "{}", checked.text);
    assert!(checked.of("ok").contains(&("peer", "10.77.0.2")) && checked.of("warning").is_empty(), "{}", checked.text);
    // One after the other they would take four times as long as one.
    let one = check(&lab, "H1", &["-d", "10.77.0.96"]);
    one.failed(&[("peer 10.77.0.96", &remedy)]);
    assert!(checked.took < 2 * one.took + Duration::from_secs(1), "{:?} for one, {:?}", one.took, checked.took);
    // A time limit that is shorter than the service's is told from its answer.
    let short = check(&lab, "H1", &["-d", "10.77.0.95", "--timeout", "0.1"]);
    short.failed(&[("peer 10.77.0.95", &["does not answer: nothing within 0.1 s", "--timeout"])]);
}

#[test]
fn stale_paths() {
    let lab = SUBNET.enter();
    for program in [Program::Ours, Program::Stock] {
        let _daemons = ["H1", "H2"].map(|host| lab.start(program, host, ""));
        check(&lab, "H1", &["-d", "10.77.0.2,h2"]).healthy(&ALL);
        let [two] = lab.hosts(["H2"]);
        let _undo = Undo(&lab, "port-reset H2");
        lab.inject("port H2 lid=77").unwrap();
        let found = format!("stale cached path: DLID {} cached, 77 by the SA; remedy: restart the service", two.lid);
        let checked = check(&lab, "H1", &["-d", "10.77.0.2"]);
        checked.failed(&[("path 10.77.0.2", &[&found])]);
    }
}

/// Validates a document, with Python's jsonschema.
fn validate(document: &str) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ib_acme-check.schema.json");
    let program = "import json, sys, jsonschema\n\
        schema = json.load(open(sys.argv[1]))\n\
        jsonschema.Draft202012Validator.check_schema(schema)\n\
        jsonschema.Draft202012Validator(schema).validate(json.loads(sys.argv[2]))";
    util::succeed(Command::new("python3").args(["-c", program]).arg(schema).arg(document));
}

#[test]
fn documents() {
    let lab = SUBNET.enter();
    let daemon = lab.ours("H1", HASTY);
    let good = check(&lab, "H1", &["--json"]);
    validate(&good.text);
    assert_eq!(good.status, Some(0), "{}", good.text);
    assert!(good.text.contains("\"result\": \"ok\",\n  \"failed\": 0,\n  \"warnings\": 0\n}\n"), "{}", good.text);
    let bad = check(&lab, "H1", &["--json", "-d", "no\u{7f}\"body\\"]);
    validate(&bad.text);
    assert_eq!(bad.status, Some(2), "{}", bad.text);
    assert!(bad.text.contains("\"subject\": \"no\\u007f\\\"body\\\\\",\n      \"result\": \"failed\""), "{}", bad.text);
    drop(daemon);
    let down = check(&lab, "H1", &["--json", "--quiet"]);
    validate(&down.text);
    assert_eq!((down.text.matches("\"remedy\"").count(), down.status), (1, Some(2)), "{}", down.text);
}

#[test]
fn command_lines() {
    for (arguments, status, words) in [
        (&["-h"][..], 0, "usage: ib_acme check"),
        (&["--nonsense"], 64, "see ib_acme check --help"),
        (&["--timeout", "x"], 64, "--timeout 'x'"),
        (&["-d", "a[3-1]"], 64, "-d 'a[3-1]'"),
        (&["more"], 64, "unexpected 'more'"),
    ] {
        let output = run(Command::new(acme::ours()).arg("check").args(arguments));
        let text = util::text(&output);
        assert!(output.status.code() == Some(status) && text.contains(words), "{arguments:?}: {text}");
    }
}
