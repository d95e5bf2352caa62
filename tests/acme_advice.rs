//! What `ib_acme` says on standard error where something has failed: it is true, and says what to do.

#[path = "util/acme_checked.rs"]
mod checked;
#[path = "util/acme_mock.rs"]
mod mock;
#[path = "util/acme_run.rs"]
mod run;
mod util;

use std::fs;

use checked::check;
use ibacm_wire::client::Status;
use mock::Mock;
use run::{Ran, Tool};
use util::{Lab, PATIENCE, Program, Shared, wait_for};

static SUBNET: Shared = Shared::new(|_| {});

const HOST: &str = "H1";
/// Whoever is dead is so soon, and no peer or subnet administrator of a busy machine is taken for dead.
const OPTIONS: &str = "timeout 1000\nretries 0\n";

/// A subnet where waiting is for the options alone.
fn enter() -> Lab<'static> {
    let lab = SUBNET.enter();
    for host in ["H1", "H2"] {
        lab.inject(&format!("port {host} subnet_timeout=8 quiet=1")).unwrap();
    }
    lab
}

/// What is wrong with what a line says, if anything: these have to be in it, those not.
fn wrong(lab: &Lab<'_>, line: &str, said: &[&str], unsaid: &[&str]) -> Option<String> {
    let ran = Tool::Ours.words(lab, HOST, line);
    let is_said = |part: &&str| ran.stderr.contains(*part);
    let lines = ran.stderr.lines().all(|l| l.starts_with("ib_acme: "));
    let right = lines && said.iter().all(is_said) && !unsaid.iter().any(is_said);
    (!right).then(|| format!("{line}: {ran:?}"))
}

fn until(lab: &Lab<'_>, line: &str, done: impl Fn(&Ran) -> bool) {
    let found = wait_for(PATIENCE, || done(&Tool::Ours.words(lab, HOST, line)).then_some(()));
    assert!(found.is_some(), "{line}: {:?}", Tool::Ours.words(lab, HOST, line));
}

fn ours_is_true(program: Program) {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let daemon = lab.start(program, HOST, OPTIONS);
    until(&lab, "-d 10.77.0.2", |ran| ran.code() == 0);
    let [_, peer] = lab.hosts(["H1", "H2"]);
    let beyond = format!("-f l -d {}", 65_536 + u32::from(peer.lid));
    let unrouted = "no route over an IPoIB interface leads to it";
    let (decimal, name) = ("LIDs are decimal, from 1", "-f n");
    let table: &[(&str, &[&str], &[&str])] = &[
        ("-f l -d 99", &["the subnet administrator knows no path to LID 99"], &["-c"]),
        ("-f g -d fe80::dead", &["the subnet administrator knows no path to GID fe80::dead"], &["-c"]),
        ("-c -f l -d 98", &["no path to LID 98 in its cache; without -c it asks"], &[]),
        ("-c -d 10.77.0.98", &["does not know 10.77.0.98 yet; without -c it looks for it"], &[]),
        ("-f i -d 8.8.8.8", &[unrouted, "ip route get 8.8.8.8"], &["does not answer", "-f l"]),
        ("-d 5", &[unrouted, "with -f l"], &["does not answer"]),
        ("-f l -d 0x5", &["'0x5' is no LID", decimal], &[name]),
        ("-f l -d 0", &["'0' is no LID", decimal], &[name]),
        ("-f l -d 70000", &["'70000' is no LID, and is read as 4464", "no path to LID 4464"], &[]),
        (&beyond, &["is no LID, and is read as "], &["answers"]),
        ("-d nosuch", &["-f n asks the service for a name"], &[]),
        ("-d 10.77.0.2 -s h1", &["of the destination's kind"], &["-f i takes"]),
        ("-f i -d 10.77.0.2 -s h1", &["-f i takes IP addresses"], &[]),
        ("-d 10.77.0.2 -s fd77::1", &["of one family"], &["-f i"]),
        ("-d 10.77.0.2 -C -1", &["give -C a number above 0"], &[]),
        ("-f n -s h1 -d nobody", &["nobody does not answer", "ib_acme check tells"], &["IPoIB"]),
        ("-d 10.77.0.97", &["10.77.0.97 does not answer", "IPoIB", "ib_acme check tells"], &[]),
        ("-f l -s 99 -d 4", &["has the LID 99"], &["called"]),
        ("-d 10.[3-1]", &["it names nothing: correct the list"], &[]),
        ("-e -S [3-1]", &["it names nothing: correct the list"], &[]),
        ("@nothing", &["the options do not say what to do"], &[]),
        ("foo", &["'foo' is no command (there are: check, completions)"], &[]),
        ("-s 10.77.0.1", &["-s needs -d, or -P s"], &[]),
    ];
    let line = |line: &&str| line.replace("@nothing", "");
    let mut failures: Vec<String> =
        table.iter().filter_map(|(l, said, unsaid)| wrong(&lab, &line(l), said, unsaid)).collect();
    // Ours takes its first name for a source.
    let source: &[&str] = if program == Program::Stock { &["give one with -s"] } else { &[] };
    failures.extend(wrong(&lab, "-f n -d nobody", source, &[]));

    lab.inject("sa drop host=H1").unwrap();
    failures.extend(wrong(&lab, "-f n -s h1 -d h2", &["subnet administrator does not: ib_acme check tells"], &[]));
    failures.extend(wrong(&lab, "-f l -d 97", &["the subnet administrator does not answer"], &["LID 97"]));
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n"), daemon.said());
}

#[test]
fn advice_is_true_with_our_service() {
    ours_is_true(Program::Ours);
}

#[test]
fn advice_is_true_with_the_distributions_service() {
    ours_is_true(Program::Stock);
}

#[test]
fn an_interface_that_is_down_leads_nowhere() {
    let lab = enter();
    let _daemon = lab.ours(HOST, OPTIONS);
    let link = |state: &str| util::succeed(lab.exec(HOST, "ip").args(["link", "set", "ib0", state]));
    link("down");
    let said = wrong(&lab, "-d 10.77.0.2", &["no route over an IPoIB interface"], &["does not answer"]);
    link("up");
    assert_eq!(said, None);
}

#[test]
fn a_path_that_is_out_of_date_is_told() {
    let lab = enter();
    let _peer = lab.ours("H2", "");
    let _daemon = lab.ours(HOST, OPTIONS);
    until(&lab, "-d 10.77.0.2 -v", |ran| ran.code() == 0);
    lab.inject("port H2 lid=77 quiet=1").unwrap();
    // The subnet manager's view is what counts, which has to change too.
    let told = wait_for(PATIENCE, || {
        let ran = Tool::Ours.words(&lab, HOST, "-d 10.77.0.2 -v");
        (ran.code() != 0).then_some(ran)
    });
    lab.inject("port-reset H2").unwrap();
    let told = told.expect("the path is no longer confirmed");
    assert!(told.stdout.contains("SA verification: failed"), "{told:?}");
    for part in ["is not the subnet's any more", "systemctl restart ibacm", "ib_acme check"] {
        assert!(told.stderr.contains(part), "{told:?}");
    }
}

#[test]
fn a_path_of_the_group_of_both_hosts_is_not_out_of_date() {
    let lab = enter();
    let slow = format!("{OPTIONS}route_prot acm\nmin_rate 2.5\nmin_mtu 1024\nmulticast_groups 1\n");
    let _daemons = [lab.ours("H2", &slow), lab.ours(HOST, &slow)];
    for line in ["-d 10.77.0.2 -v", "-f i -d 10.77.0.[1-2] -v", "-d 10.77.0.2 --json -v"] {
        let ran = Tool::Ours.words(&lab, HOST, line);
        assert_eq!(ran.code(), 0, "{line}: {ran:?}");
        let confirmed = ["SA verification: success", "\"verified\": true"].iter().any(|w| ran.stdout.contains(w));
        assert!(confirmed && !ran.stdout.contains("failed"), "{line}: {ran:?}");
        for part in [
            "MTU 1024 cached, 2048 by the SA",
            "rate 2.5 Gb/s cached, 10 Gb/s by the SA",
            "multicast_groups",
            "min_rate",
        ] {
            assert!(ran.stderr.contains(part), "{line}: {part} in {ran:?}");
        }
        assert!(!ran.stderr.contains("restart"), "{line}: {ran:?}");
    }
    // The check has the same opinion.
    let all = check(&lab, HOST, &["-d", "10.77.0.2"]);
    assert_eq!((all.status, all.of("failed"), all.of("warning")), (Some(0), vec![], vec![]), "{}", all.text);
    let line = all.text.lines().find(|l| l.starts_with("ok       path 10.77.0.2: ")).expect("it is compared");
    assert!(line.contains("rate 2.5 Gb/s cached, 10 Gb/s by the SA") && line.contains("multicast_groups"), "{line}");
}

#[test]
fn a_group_that_promises_more_than_the_path_has_is_told() {
    let mock = Mock::new(|r, s| match r.is_verification() {
        // At exactly that rate there is no path, but a slower one.
        true if r.path().rate() != 0 => mock::send(s, &r.reply(Status::Enodata as u8, [0; 3], &[])),
        true => mock::send(s, &r.reply(0, [0; 3], &mock::path_at(4, 0x83))),
        false => mock::send(s, &r.reply(0, [0; 3], &mock::path_at(4, 0x90))),
    });
    let ask = |tool: Tool| run::finish(tool.here().args(["-S", &mock.name(), "-f", "i", "-d", "10.77.0.2", "-v"]));
    let (ours, stock) = (ask(Tool::Ours), ask(Tool::Stock));
    assert_eq!((&ours.stdout, ours.code()), (&stock.stdout, stock.code()));
    assert!(ours.stdout.contains("SA verification: failed No data available"), "{ours:?}");
    for part in ["more speed than the SA has for this path: rate 100 Gb/s cached, 10 Gb/s by the SA", "route_prot sa"] {
        assert!(ours.stderr.contains(part), "{ours:?}");
    }
    assert!(!ours.stderr.contains("stale") && !ours.stderr.contains("any more"), "{ours:?}");
}

#[test]
fn files_that_are_not_written_have_advice_in_either_form() {
    let lab = enter();
    fs::write(lab.file(HOST, "/etc/rdma/plain"), "").expect("it can be written");
    for (line, part) in [
        ("-A -D /proc/nope", "/proc/nope: No such file or directory: name another directory with -D"),
        ("-O -D /proc/nope", "/proc/nope: No such file or directory: name another directory with -D"),
        ("-O -D /etc/rdma/a/b", "/etc/rdma/a/b: No such file or directory: make the directories above it first"),
        ("-A no/such -D /etc/rdma", "/etc/rdma/no/such: No such file or directory: make the directories above"),
        ("-A -D /etc/rdma/plain", "/etc/rdma/plain: Not a directory: name another directory with -D"),
    ] {
        for form in ["", "--json "] {
            assert_eq!(wrong(&lab, &format!("{form}{line}"), &[part], &[]), None, "{form}");
        }
    }
}
