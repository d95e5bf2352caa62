//! Reports of the SA: who gets them, and what tests can do to them.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::sync::OnceLock;

use common::{PATIENCE, Running, compile, run, subnet, succeed};
use fabric::Subnet;
use fabric::subnet::wait_for;

fn probe() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("probe", &["-libumad", "-libverbs"]))
}

/// A probe that goes on, and its lines after "ready".
fn watch(subnet: &Subnet, host: &str, args: &[&str]) -> (Running, std::io::Lines<BufReader<ChildStdout>>) {
    let mut command = subnet.exec(host, probe());
    let mut child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let running = Running(child);
    assert_eq!(lines.next().expect("a line").expect("is text"), "ready");
    (running, lines)
}

#[test]
fn one_agent_of_a_port_has_the_reports() {
    let subnet = subnet(2);
    let (first, _lines) = watch(&subnet, "H1", &["hold"]);
    assert_eq!(succeed(subnet.exec("H1", probe()).arg("hold")), "refused\n");
    assert!(!run(subnet.exec("H1", probe()).args(["notices", "1"])).status.success());
    // Another port's are another matter, and they are free again when their agent ends.
    let _other = watch(&subnet, "H2", &["hold"]);
    drop(first);
    let free = wait_for(PATIENCE, || {
        let text = run(subnet.exec("H1", "timeout").arg("2").arg(probe()).arg("hold")).stdout;
        (text == b"ready\n").then_some(())
    });
    assert!(free.is_some());
    assert!(subnet.violations().unwrap().is_empty());
}

#[test]
fn reports_are_forged_and_go_to_nobody_else() {
    let subnet = subnet(2);
    let stat = |key: &str| subnet.stat(key).unwrap();
    subnet.inject("report H1 trap=65 gid=fe80::77").unwrap();
    let lost = wait_for(PATIENCE, || (stat("drop.mad_unwanted") == 1).then_some(()));
    assert!(lost.is_some(), "nobody has subscribed");
    let (_running, lines) = watch(&subnet, "H1", &["notices", "4"]);
    subnet.inject("report H1 trap=64 gid=fe80::77 count=2").unwrap();
    subnet.inject("report H1 trap=128 lid=3 slid=900").unwrap();
    subnet.inject("report H2 trap=65").unwrap();
    subnet.inject("report H1 trap=65 data=83000004004d").unwrap();
    let traps: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(traps, ["64", "64", "128", "77"], "in order, and H2's is H2's");
    let answered = wait_for(PATIENCE, || (stat("sa.H1.Notice.ReportResp") == 4).then_some(()));
    assert!(answered.is_some(), "the answers go out, unwaited for: {:?}", subnet.stats());
    assert_eq!((stat("sa.H1.Notice.given"), stat("sa.H1.expired")), (4, 0));
    assert!(subnet.inject("report H1 trp=1").is_err(), "misspelt");
    assert!(subnet.inject("report H9").is_err());
    assert!(subnet.violations().unwrap().is_empty());
}

#[test]
fn subscriptions_are_refused_and_lost_on_order() {
    let subnet = subnet(2);
    subnet.inject("sa status status=0x0700 attr=0x03 host=H1 count=1").unwrap();
    assert_eq!(run(subnet.exec("H1", probe()).args(["notices", "1"])).status.code(), Some(3));
    assert_eq!(subnet.stat("sa.H1.InformInfo.Set").unwrap(), 1);
    subnet.inject("sa drop attr=0x03 count=2").unwrap();
    let (_running, _lines) = watch(&subnet, "H1", &["notices", "1"]);
    assert_eq!(subnet.stat("sa.H1.repeated").unwrap(), 2);
}
