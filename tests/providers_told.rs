//! What is said of providers that misbehave: in the log of level 0, which and what it is, and by `ib_acme`.

#[path = "util/plugin.rs"]
mod plugin;
#[path = "util/rob.rs"]
mod rob;
#[path = "util/acme_run.rs"]
mod run;
#[path = "util/trial.rs"]
mod trial;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::client::Status;
use run::Tool;
use trial::{HOSTILE, SUBNET, Trial};
use util::client::between;
use util::{Client, Program, wait_for};

/// What is in the log by the time that it can be.
fn logged(trial: &Trial<'_>, text: &str) {
    let found = wait_for(util::PATIENCE, || trial.daemon.said().contains(text).then_some(()));
    assert!(found.is_some(), "no '{text}': {}", trial.daemon.said());
}

/// There is such a line, with a time between its two parts that is no less than this; a busy machine makes it more.
fn logged_time(trial: &Trial<'_>, before: &str, least: f64, after: &str) {
    let told = wait_for(util::PATIENCE, || {
        let said = trial.daemon.said();
        said.lines().find_map(|l| l.split_once(before)?.1.strip_suffix(after)?.parse::<f64>().ok())
    });
    // The provider is in its call a moment after it was asked, and tenths are cut.
    let said = || trial.daemon.said();
    assert!(told.is_some_and(|s| (least - 0.1..least + 5.0).contains(&s)), "no '{before}{least}{after}': {}", said());
}

fn ask_once(trial: &Trial<'_>) {
    Client::connect(&trial.lab, "H1").resolve(&between("10.77.0.1", "10.77.0.9"));
}

#[test]
fn the_log_says_who_does_not_answer_and_where_it_is() {
    let trial = Trial::start("never", "log_level 0\n");
    trial.all_are("never", Status::Etimedout);
    logged_time(&trial, "provider hostile: no answer to resolve for ", 1.5, " s");
    trial.stop();
    let trial = Trial::start("block 4000", "log_level 0\n");
    ask_once(&trial);
    logged_time(&trial, "provider hostile: in resolve for ", 1.5, " s, and answers nothing meanwhile");
    trial.stop();
}

#[test]
fn the_log_says_what_was_wrong_and_whose_it_was() {
    for (mode, text) in [
        ("error_resolve", "provider hostile: resolve has refused a question with -1\n"),
        ("malformed 1", "provider hostile: malformed answer to resolve: a success of 17 bytes\n"),
        ("malformed 12", "provider hostile: malformed answer to resolve: a success without an entry\n"),
        ("twice", "provider hostile: acm_resolve_response: the request is not open\n"),
        ("mad_twice", "provider hostile: acm_send_sa_mad: the MAD is on its way\n"),
        ("mad_free", "provider hostile: acm_free_sa_mad: this is no MAD that was allocated, or it was freed\n"),
        ("closed", "provider hostile: acm_get_gid: the port is not open\n"),
    ] {
        let trial = Trial::start(mode, "log_level 0\n");
        let wanted = if mode.starts_with("malformed") { Status::Einval as u8 } else { 0 };
        let wanted = if mode == "error_resolve" { Status::Enodata as u8 } else { wanted };
        plugin::until(&trial.lab, "H1", &between("10.77.0.1", "10.77.0.9"), wanted);
        logged(&trial, text);
        let (_, said) = trial.stop();
        assert!(!said.contains("Some(") && !said.contains("None"), "{said}");
    }
}

#[test]
fn counters_of_others_are_shown_while_a_provider_keeps_its_own() {
    // A provider may take its time for paths, and may not for counters.
    let trial = Trial::start("never_counts", "provider_timeout 30000\n");
    trial.open();
    let list = Tool::Ours.words(&trial.lab, "H1", "-e");
    let numbers = |provider: &str| {
        let rows = list.stdout.lines().filter(|l| l.contains(&format!(",{provider},")));
        rows.count()
    };
    assert_eq!((numbers("hostile"), numbers("ibacmp")), (1, 1), "{list:?}");
    for line in ["-P all", "-e -P all", "-P all --timeout 1", "-P all --json"] {
        let begin = Instant::now();
        let ran = Tool::Ours.words(&trial.lab, "H1", line);
        assert!(begin.elapsed() < Duration::from_secs(15), "{line}: {:?}", begin.elapsed());
        assert_ne!(ran.code(), 0, "{line}: {ran:?}");
        assert!(ran.stderr.contains("ib_acme: endpoint "), "{line}: {ran:?}");
        if line.ends_with("--json") {
            assert_eq!(ran.stdout.matches("\"route_cache\"").count(), 1, "{ran:?}");
            assert!(
                ran.stdout.contains("\"about\": \"counters\"") || ran.stdout.contains("\"about\":\"counters\""),
                "{ran:?}"
            );
            continue;
        }
        let figures = |l: &&str| l.starts_with('/') && l.split(',').skip(1).all(|n| n.parse::<u64>().is_ok());
        assert_eq!(ran.stdout.lines().filter(figures).count(), 1, "{line}: {ran:?}");
        assert_eq!(ran.stdout.matches(",hostile,").count(), usize::from(line.starts_with("-e")), "{line}: {ran:?}");
    }
    logged_time(&trial, "provider hostile: in query_perf for ", 2.0, " s, and answers nothing meanwhile");
    trial.stop();
}

#[test]
fn advice_names_the_provider_that_was_asked() {
    let trial = Trial::start("never", "");
    let say = |line: &str| Tool::Ours.words(&trial.lab, "H1", line).stderr;
    let said = say("-f i -d 10.77.0.9 -s 10.77.0.1");
    assert!(said.contains("paths are found by the provider hostile, a plug-in: look into the service's log"), "{said}");
    let said = say("-f i -d 10.77.0.9");
    assert!(said.contains("Where the provider is a plug-in (hostile; ib_acme -e shows it)"), "{said}");
    let said = say("-f n -s two -d nobody");
    assert!(!said.is_empty() && !said.contains("plug-in"), "{said}");
    let ran = Tool::Ours.words(&trial.lab, "H1", "check");
    assert!(ran.stdout.contains("paths are found by the provider hostile, a plug-in"), "{ran:?}");
    // Nor is the plug-in's port to be a member of the built-in provider's groups.
    let member = |l: &&str| l.split_whitespace().nth(1) == Some("group") && l.contains("mlx5_0");
    assert_eq!(ran.stdout.lines().find(member), None, "{ran:?}");
    trial.stop();
}

#[test]
fn who_serves_nothing_is_told_and_lines_have_numbers() {
    let lab = rob::enter(&SUBNET);
    let check = |options: &str| {
        lab.write("H1", "/etc/rdma/ibacm_opts.cfg", options);
        let output = util::run(lab.exec("H1", Program::Ours.path()).arg("--check-config"));
        (util::text(&output), output.status.success())
    };
    let directory = plugin::lay_down(&lab, "H1", &[&HOSTILE]);
    let idle = "provider hostile is loaded, but no 'provider' line names it: it serves no port";
    let daemon = lab.ours("H1", &directory);
    assert!(daemon.said().contains(idle), "{}", daemon.said());
    drop(daemon);
    let (said, good) = check(&directory);
    assert!(said.contains(&format!("\n/etc/rdma/ibacm_opts.cfg: {idle}\n")) && !good, "{said}");
    // Where somebody has chosen, it may be meant so.
    let (said, good) = check(&format!("{directory}provider ibacmp default\n"));
    assert!(said.contains(&format!("\n# /etc/rdma/ibacm_opts.cfg: {idle}\n")) && good, "{said}");
    let (said, good) = check(&format!("{directory}provider hostile default\nprovider x 0x12\n"));
    let finding = "/etc/rdma/ibacm_opts.cfg:3: warning: 'provider x 0x0000000000000012' has no effect: ";
    assert!(said.contains(finding) && !good, "{said}");
    // A plain host with the distribution's package has nothing to be told of.
    let (said, good) = check("");
    assert!(good && !said.contains("no 'provider' line"), "{said}");
    let daemon = lab.ours("H1", "");
    assert!(!daemon.said().contains("provider"), "{}", daemon.said());
    assert_eq!(daemon.stop(), Some(0));
}
