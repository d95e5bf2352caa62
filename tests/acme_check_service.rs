//! `ib_acme check` and the service: where it is looked for, and what is said of one that is down, hangs or talks nonsense.

#[path = "util/acme_checked.rs"]
mod checked;
#[path = "util/acme_mock.rs"]
mod mock;
mod util;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use checked::{ALL, check, wait_healthy};
use mock::Mock;
use util::{PATIENCE, Program, Shared, wait_for};

static SUBNET: Shared = Shared::new(|_| {});

#[test]
fn services_that_are_down_or_hang() {
    let lab = SUBNET.enter();
    let service = "service /run/ibacm-unix.sock";
    let daemon = lab.ours("H1", "");
    daemon.signal("STOP");
    let hung = check(&lab, "H1", &["--timeout", "1", "-d", "h[2-99]"]);
    daemon.signal("CONT");
    hung.failed(&[(service, &["it hangs: connected, but no answer within 1 s", "remedy: look into its log"])]);
    assert!(hung.took < Duration::from_secs(10), "one time limit for all: {:?}", hung.took);
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
fn services_that_are_not_where_the_options_have_them() {
    let lab = SUBNET.enter();
    let at = |place: &str| {
        let checked = check(&lab, "H1", &[]);
        checked.healthy(&ALL);
        assert!(checked.of("ok").contains(&("service", place)), "{place} in {}", checked.text);
    };
    let options = |text: &str| lab.write("H1", "/etc/rdma/ibacm_opts.cfg", text);
    let daemon = lab.ours("H1", "");
    // Edited, and not started anew.
    options("server_mode loop\n");
    at("/run/ibacm-unix.sock");
    let by_tcp = check(&lab, "H1", &["-S", "localhost"]);
    by_tcp.failed(&[("service localhost", &["nobody listens there", "refused", "server_mode open", "server_port"])]);
    assert_eq!(daemon.stop(), Some(0));
    let nowhere = check(&lab, "H1", &[]);
    let found: &[&str] = &["it does not run there, nor at /run/ibacm-unix.sock: ", "remedy: start it", "server_mode"];
    nowhere.failed(&[("service 127.0.0.1", found)]);

    let daemon = lab.spawn(Program::Ours, "H1", &["-P"]);
    wait_healthy(&lab, "H1");
    options("");
    at("127.0.0.1");
    assert_eq!(daemon.stop(), Some(0));

    // Under systemd the socket is the unit's. The check is the first client, for which the service starts.
    options("server_mode open\n");
    let mut activate = lab.exec("H1", "systemd-socket-activate");
    activate.args(["-l", "/run/ibacm-unix.sock", "-E", "LD_PRELOAD", "-E", "FABRIC_HOST", "-E", "FABRIC_DIR"]);
    activate.args([env!("CARGO_BIN_EXE_ibacm"), "--systemd"]).stdin(Stdio::null());
    let mut service = activate.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let listens = wait_for(PATIENCE, || lab.file("H1", "/run/ibacm-unix.sock").exists().then_some(()));
    let healthy = wait_for(PATIENCE, || (check(&lab, "H1", &[]).status == Some(0)).then_some(()));
    let checked = check(&lab, "H1", &[]);
    service.kill().unwrap();
    service.wait().unwrap();
    let _ = fs::remove_file(lab.file("H1", "/run/ibacm-unix.sock"));
    assert!(listens.is_some() && healthy.is_some(), "{}", checked.text);
    assert!(checked.of("ok").contains(&("service", "/run/ibacm-unix.sock")), "{}", checked.text);
}

#[test]
fn wrong_answers() {
    let lab = SUBNET.enter();
    let echo = Mock::new(|_, stream| mock::send(stream, &[9; 64]));
    let service = format!("service {}", echo.name());
    let checked = check(&lab, "H1", &["-S", &echo.name()]);
    checked.failed(&[(&service, &["wrong answers: ", "version 9", "remedy: look which program"])]);
    // What somebody else has named does nothing to the terminal, and is no line of its own.
    let names = Mock::new(|request, stream| match request.endpoint() {
        Some((1, _)) => {
            let body = mock::endpoint(1, &["h1\u{1b}[2J", "h2\nok       device", "h3\u{9b}\u{202e}"]);
            mock::send(stream, &request.reply(0, [1, 1, 0], &body))
        }
        _ => mock::send(stream, &request.honest()),
    });
    let checked = check(&lab, "H1", &["-S", &names.name(), "-d", "h\u{7f}"]);
    let shown = ": h1\\u{1b}[2J, h2\\u{a}ok       device, h3\\u{9b}\\u{202e}\n";
    assert!(checked.text.contains(shown) && checked.text.contains("peer h\\u{7f}: "), "{}", checked.text);
    let raw = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    assert!(!checked.text.contains(raw), "{:?}", checked.text);
}
