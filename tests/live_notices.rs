//! What the subnet administrator tells while the service runs: on a real subnet, with a real subnet manager.

#[path = "util/acme_checked.rs"]
mod checked;
#[path = "util/rob.rs"]
mod rob;
#[path = "util/acme_run.rs"]
mod run;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use checked::check;
use ibacm_wire::client::{Entry, FLAG_NODELAY};
use rob::{enter, hex, until};
use run::Tool;
use util::client::{between, to_gid, to_lid};
use util::{Client, Daemon, Lab, PATIENCE, Shared, compile, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// A subnet manager that starts or looks at its subnet takes its time on a busy machine, and who finds it silent asks
/// it again after a pause that doubles.
const LONG: Duration = Duration::from_secs(60);

/// How often the service on H1 may have been granted something.
fn granted(lab: &Lab<'_>) -> u64 {
    lab.stat("sa.H1.InformInfo.status.0x0000").expect("the subnet counts")
}

/// The service on H1, once it hears what changes.
fn hearing(lab: &Lab<'_>, options: &str) -> Daemon {
    let before = granted(lab);
    let daemon = lab.ours("H1", options);
    let subscribed = wait_for(LONG, || (granted(lab) >= before + 3).then_some(()));
    assert!(subscribed.is_some(), "no subscription: {}", daemon.said());
    // What a test before this one has changed may still be told.
    all_is_told(lab);
    daemon
}

/// Waits until the service on H1 is told nothing more.
#[track_caller]
fn all_is_told(lab: &Lab<'_>) {
    let given = || lab.stat("sa.H1.Notice.given").expect("the subnet counts");
    let told = wait_for(LONG, || {
        let before = given();
        std::thread::sleep(Duration::from_secs(1));
        (given() == before).then_some(())
    });
    assert!(told.is_some(), "there is no end of notices");
}

/// Every question for a path to a host that there is.
fn ways(lab: &Lab<'_>, host: &str) -> Vec<Vec<Entry>> {
    let port = lab.port(host).expect("the host is there");
    let address = format!("10.77.0.{}", &host[1..]);
    vec![between("10.77.0.1", &address).to_vec(), vec![to_gid(0, port.gid)], vec![to_lid(0, port.lid)]]
}

/// Asks them all; each must have this answer, and the SA must have been asked so often.
#[track_caller]
fn ask(lab: &Lab<'_>, questions: &[Vec<Entry>], queries: u64) {
    let mut client = Client::connect(lab, "H1");
    let before = lab.path_queries("H1");
    for question in questions {
        client.resolve(question).path();
    }
    assert_eq!(lab.path_queries("H1") - before, queries);
}

/// Each must be known and in no doubt. It may be asked for behind the scenes all the same: routes may have changed.
#[track_caller]
fn known(lab: &Lab<'_>, questions: &[Vec<Entry>]) {
    let mut client = Client::connect(lab, "H1");
    for question in questions {
        let at_once: Vec<Entry> = question.iter().map(|e| Entry { flags: e.flags | FLAG_NODELAY, ..*e }).collect();
        client.resolve(&at_once).path();
    }
}

/// A program on H1 that has the reports.
fn holder(lab: &Lab<'_>) -> rob::Running {
    let program = compile("report_agent", &["-libumad"]);
    let mut child: Child =
        lab.exec("H1", program).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("it says something");
    assert_eq!(line, "ready\n");
    rob::Running(child)
}

#[test]
fn a_host_that_goes_and_comes_is_asked_for_again_and_no_other() {
    let lab = enter(&LAB);
    let _peers = (lab.ours("H2", ""), lab.ours("H3", ""));
    let _daemon = hearing(&lab, "timeout 300\nretries 1\n");
    let (stays, goes) = (ways(&lab, "H2"), ways(&lab, "H3"));
    let by_gid = &goes[1];
    ask(&lab, &stays, 3);
    ask(&lab, &goes, 3);
    ask(&lab, &goes, 0);
    lab.reset_stats().unwrap();
    lab.console("Unlink \"H3\"[1]").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let noticed = wait_for(LONG, || (client.resolve(by_gid).header.status != 0).then_some(()));
    assert!(noticed.is_some(), "the old path is given out for ever");
    assert!(lab.path_queries("H1") >= 1, "the SA was asked");
    known(&lab, &stays);
    lab.console("ReLink \"H3\"[1]").unwrap();
    assert!(until(&mut client, by_gid, 0).is_some(), "it is back");
    all_is_told(&lab);
    client.resolve(by_gid).path();
    known(&lab, &stays);
    known(&lab, std::slice::from_ref(by_gid));
    lab.wait_joined("H3");
    assert!(until(&mut client, &goes[0], 0).is_some());
    let answered = wait_for(PATIENCE, || {
        let (given, answered) = (lab.stat("sa.H1.Notice.given").ok()?, lab.stat("sa.H1.Notice.ReportResp").ok()?);
        (given == answered).then_some(())
    });
    assert!(answered.is_some(), "each report is answered: {:?}", lab.stats());
}

#[test]
fn a_notice_takes_effect_within_a_second_and_a_forged_one_never() {
    let lab = enter(&LAB);
    let _peers = (lab.ours("H2", ""), lab.ours("H3", ""));
    let daemon = hearing(&lab, "");
    let (two, three) = (ways(&lab, "H2"), ways(&lab, "H3"));
    ask(&lab, &two, 3);
    ask(&lab, &three, 3);
    let gid = hex(&lab.port("H3").unwrap().gid);
    lab.reset_stats().unwrap();
    for trap in [64, 65] {
        lab.inject(&format!("report H1 trap={trap} gid={gid} slid=77")).unwrap();
        lab.inject(&format!("report H1 trap={trap} gid={gid} attr=0x35")).unwrap();
    }
    lab.inject("report H1 data=00 count=50").unwrap();
    let heard = wait_for(PATIENCE, || (lab.stat("sa.H1.Notice.ReportResp").ok()? >= 52).then_some(()));
    assert!(heard.is_some(), "{:?}", lab.stats());
    assert_eq!(lab.stat("sa.H1.Notice.ReportResp").unwrap(), 52, "who forges is not answered");
    ask(&lab, &three, 0);
    for trap in [64, 65] {
        lab.inject(&format!("report H1 trap={trap} gid={gid}")).unwrap();
        let begin = Instant::now();
        let mut client = Client::connect(&lab, "H1");
        let again = wait_for(PATIENCE, || {
            client.resolve(&three[1]).path();
            (lab.path_queries("H1") > 0).then_some(())
        });
        // Twice more than that for a busy machine.
        assert!(again.is_some() && begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        ask(&lab, &[three[0].clone(), three[2].clone()], 2);
        ask(&lab, &three, 0);
        ask(&lab, &two, 0);
        lab.reset_stats().unwrap();
    }
    // Of routes that may have changed: each of the six paths is asked for once while it is used, in seconds on a subnet of this size.
    lab.inject("report H1 trap=128 lid=1").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let checked = wait_for(PATIENCE, || {
        for way in two.iter().chain(&three) {
            client.resolve(way).path();
        }
        (lab.path_queries("H1") >= 6).then_some(())
    });
    assert!(checked.is_some(), "{} questions", lab.path_queries("H1"));
    lab.reset_stats().unwrap();
    let used = rob::processor(daemon.pid());
    lab.inject(&format!("report H1 trap=65 gid={gid} count=20000")).unwrap();
    let over = wait_for(PATIENCE, || (rob::idle_second(daemon.pid()) <= Duration::from_millis(20)).then_some(()));
    assert!(over.is_some() && lab.stat("sa.H1.Notice.given").unwrap() >= 20_000, "{:?}", lab.stats());
    ask(&lab, &two, 0);
    ask(&lab, &three, 3);
    let used = rob::processor(daemon.pid()) - used;
    assert!(used < Duration::from_secs(5), "{used:?} for a flood");
    assert!(!daemon.said().contains("ERR"), "{}", daemon.said());
}

#[test]
fn a_manager_that_starts_anew_is_subscribed_to_again() {
    let lab = enter(&LAB);
    let _daemon = hearing(&lab, "timeout 300\nretries 1\n");
    let goes = &ways(&lab, "H3")[1..2];
    ask(&lab, goes, 1);
    let before = granted(&lab);
    lab.manager("restart").unwrap();
    let again = wait_for(LONG, || (granted(&lab) >= before + 3).then_some(()));
    assert!(again.is_some(), "{:?}", lab.stats());
    lab.console("Unlink \"H3\"[1]").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let noticed = wait_for(LONG, || (client.resolve(&goes[0]).header.status != 0).then_some(()));
    lab.console("ReLink \"H3\"[1]").unwrap();
    assert!(noticed.is_some(), "nothing was told: {:?}", lab.stats());
    assert!(until(&mut client, &goes[0], 0).is_some());
}

#[test]
fn where_the_administrator_refuses_the_service_works_as_before_and_says_so() {
    let lab = enter(&LAB);
    lab.inject("sa status host=H1 attr=0x03 status=0x0700").unwrap();
    let daemon = lab.ours("H1", "sa_depth 1\n");
    let said = wait_for(PATIENCE, || daemon.said().contains("nobody tells what changes").then_some(()));
    assert!(said.is_some() && daemon.said().contains("0x0700"), "{}", daemon.said());
    let two = ways(&lab, "H2");
    ask(&lab, &two[1..], 2);
    ask(&lab, &two[1..], 0);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(lab.stat("sa.H1.InformInfo.Set").unwrap(), 1, "it does not insist");
    assert_eq!(daemon.said().matches("nobody tells").count(), 1, "{}", daemon.said());
}

#[test]
fn whether_somebody_tells_is_counted_and_checked() {
    let lab = enter(&LAB);
    let column = || {
        let ran = Tool::Ours.words(&lab, "H1", "-P col --all-counters");
        ran.stdout.lines().find_map(|l| l.strip_prefix("Notices Subscribed : ").map(str::to_owned))
    };
    let finding = || {
        let checked = check(&lab, "H1", &[]);
        assert_eq!(checked.status, Some(0), "it is healthy either way: {}", checked.text);
        let line = checked.text.lines().find(|l| l.starts_with("ok       notices mlx5_0/1: "));
        line.unwrap_or_else(|| panic!("{}", checked.text)).to_owned()
    };
    let daemon = hearing(&lab, "");
    let counted = wait_for(PATIENCE, || (column().as_deref() == Some("1")).then_some(()));
    assert!(counted.is_some(), "{:?}", column());
    assert!(finding().contains(": subscribed to the SA's notices"), "{}", finding());
    let json = Tool::Ours.words(&lab, "H1", "-P 1 --json").stdout;
    assert!(json.contains("\"notices_subscribed\": 1"), "{json}");
    drop(daemon);
    lab.inject("sa status host=H1 attr=0x03 status=0x0700").unwrap();
    let daemon = lab.ours("H1", "");
    let said = wait_for(PATIENCE, || daemon.said().contains("InformInfo").then_some(()));
    assert!(said.is_some(), "{}", daemon.said());
    assert_eq!(column().as_deref(), Some("0"));
    assert!(finding().contains("not subscribed to the SA's notices"), "{}", finding());
    drop(daemon);
    let _other = lab.stock("H1", "");
    assert!(!check(&lab, "H1", &[]).text.contains("notices"), "the other service cannot say");
    assert_eq!(column(), None);
}

#[test]
fn a_subscription_without_an_answer_delays_nobody() {
    let lab = enter(&LAB);
    lab.inject("sa drop host=H1 attr=0x03").unwrap();
    let daemon = lab.ours("H1", "sa_depth 1\n");
    let asked = wait_for(PATIENCE, || (lab.stat("sa.H1.InformInfo.Set").ok()? > 0).then_some(()));
    assert!(asked.is_some());
    let begin = Instant::now();
    ask(&lab, &ways(&lab, "H2")[1..], 2);
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    ask(&lab, &ways(&lab, "H3")[1..], 2);
    // The subscription has six seconds for itself.
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(!daemon.said().contains("nobody tells"), "{}", daemon.said());
}

#[test]
fn where_another_program_has_the_reports_the_service_works_as_before_and_says_so() {
    let lab = enter(&LAB);
    let other = holder(&lab);
    let daemon = lab.ours("H1", "");
    assert!(daemon.said().contains("another program has the SA's notices"), "{}", daemon.said());
    let two = ways(&lab, "H2");
    ask(&lab, &two[1..], 2);
    ask(&lab, &two[1..], 0);
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(lab.stat("sa.H1.InformInfo.Set").unwrap(), 0, "nobody would answer the reports");
    drop(other);
    let free = wait_for(2 * LONG, || (granted(&lab) >= 3).then_some(()));
    assert!(free.is_some(), "it takes them when they are free: {}", daemon.said());
}
