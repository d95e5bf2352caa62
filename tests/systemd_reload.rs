//! SIGHUP: the files are read again, and nothing else is lost.

#[path = "util/manager.rs"]
mod manager;
mod util;

use std::fs;
use std::time::Duration;

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Status};
use manager::{Managed, Notify, start, stream_socket};
use util::client::{ip, name, to_lid};
use util::{Client, Lab, PATIENCE, Shared, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);

const OPTIONS: &str = "/etc/rdma/ibacm_opts.cfg";
const NAMES: &str = "/etc/rdma/ibacm_addr.cfg";
const LOG: &str = "/var/log/ibacm.log";

/// A service on H1 with these options and names.
fn managed(lab: &Lab<'_>, options: &str, names: &str) -> (Managed, Notify) {
    for (file, text) in [(OPTIONS, options), (NAMES, names)] {
        let _ = fs::remove_file(lab.file("H1", file));
        if !text.is_empty() {
            lab.write("H1", file, text);
        }
    }
    lab.inject("leave H1").expect("H1 is there");
    let mut notify = Notify::new(lab, "H1");
    let service = start(lab, "H1", vec![stream_socket(lab, "H1")], &[]);
    notify.wait("READY=1\n");
    notify.wait(" joined");
    lab.wait_joined("H1");
    (service, notify)
}

/// Has the files read again, and waits until they are.
fn reload(service: &Managed, notify: &mut Notify) {
    service.signal("HUP");
    let told = notify.wait("RELOADING=1\n");
    let at = told.lines().find_map(|l| l.strip_prefix("MONOTONIC_USEC=")).expect("it says when");
    assert!(at.parse::<u64>().is_ok_and(|us| us > 0), "{told}");
    notify.wait("READY=1\nSTATUS=");
}

#[test]
fn names_that_are_added_resolve_and_others_no_longer() {
    let lab = SUBNET.enter();
    let _peer = lab.ours("H2", "timeout 100\nretries 1\n");
    let (mut service, mut notify) = managed(&lab, "", "old mlx5_0 1 default\n");
    let [one] = lab.hosts(["H1"]);
    let mut own = Client::connect(&lab, "H1");
    let mut peer = Client::connect(&lab, "H2");
    let ask = |client: &mut Client, wanted: &str| client.resolve(&[name(EP_FLAG_DEST, wanted)]);
    assert_eq!(ask(&mut peer, "old").path().dlid(), one.lid);
    assert_ne!(ask(&mut peer, "added").header.status, 0);

    lab.write("H1", NAMES, "added mlx5_0 1 default\nADDED-2 mlx5_0 1 default\n");
    reload(&service, &mut notify);
    for wanted in ["added", "added-2"] {
        assert_eq!(ask(&mut peer, wanted).path().dlid(), one.lid, "{wanted}, from another host");
        assert_eq!(ask(&mut own, wanted).path().dlid(), one.lid, "{wanted}, on the connection from before");
    }
    let from_old = own.resolve(&[name(EP_FLAG_SOURCE, "old"), name(EP_FLAG_DEST, "added")]);
    assert_eq!(from_old.header.status, Status::Esrcaddr as u8);

    // Without the file they are made from the host's name; with an unreadable one they stay.
    fs::remove_file(lab.file("H1", NAMES)).unwrap();
    reload(&service, &mut notify);
    assert_eq!(ask(&mut own, "h1-1").path().dlid(), one.lid);
    fs::create_dir(lab.file("H1", NAMES)).unwrap();
    reload(&service, &mut notify);
    service.wait_said("the names stay as they are: /etc/rdma/ibacm_addr.cfg: cannot be read");
    assert_eq!(ask(&mut own, "h1-1").path().dlid(), one.lid);
    fs::remove_dir(lab.file("H1", NAMES)).unwrap();
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn the_log_is_opened_again_and_levels_change() {
    let lab = SUBNET.enter();
    let (mut service, mut notify) = managed(&lab, "", "");
    let (log, old) = (lab.file("H1", LOG), lab.file("H1", "/var/log/ibacm.log.1"));
    fs::rename(&log, &old).unwrap();
    let before = fs::read_to_string(&old).unwrap();
    lab.write("H1", OPTIONS, "log_level 1\nbogus 5\n");
    reload(&service, &mut notify);
    let new = fs::read_to_string(&log).unwrap();
    assert!(new.contains("the files were read again") && new.contains(": timeout 2000"), "{new}");
    assert!(new.contains("changed: log_level 1") && !new.contains("changed: timeout"), "{new}");
    assert!(new.contains("/etc/rdma/ibacm_opts.cfg:2: warning: unknown option 'bogus'"), "{new}");
    assert_eq!(fs::read_to_string(&old).unwrap(), before, "the old one is left alone");
    // To another file, and to one that cannot be: the log stays where it was.
    lab.write("H1", OPTIONS, "log_file /var/log/other.log\n");
    reload(&service, &mut notify);
    let other = lab.file("H1", "/var/log/other.log");
    assert!(fs::read_to_string(&other).unwrap().contains("read again"));
    lab.write("H1", OPTIONS, "log_file /nonexistent/other.log\nlog_level 2\n");
    reload(&service, &mut notify);
    let text = fs::read_to_string(&other).unwrap();
    assert!(text.contains("the log stays where it is: log file /nonexistent/other.log"), "{text}");
    assert_eq!(service.stop(), Some(0));
    assert!(fs::read_to_string(&other).unwrap().contains("stopping"));
    fs::remove_file(other).unwrap();
    fs::remove_file(old).unwrap();
}

#[test]
fn connections_and_caches_stay() {
    let lab = SUBNET.enter();
    let _peer = lab.ours("H2", "");
    let (mut service, mut notify) = managed(&lab, "", "");
    let [two, three] = lab.hosts(["H2", "H3"]);
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(&lab, "H1")).collect();
    let known = [ip(EP_FLAG_DEST, "10.77.0.2")];
    assert_eq!(clients[0].resolve(&known).path().dlid(), two.lid);
    let asked = lab.path_queries("H1");
    // A request that is under way when the files are read.
    lab.inject("sa delay host=H1 attr=0x35 ms=700").unwrap();
    clients[1].ask(&[to_lid(0, three.lid)]);
    lab.write("H1", OPTIONS, "timeout 1000\nretries 0\nsa_depth 8\nresolve_depth 8\nmax_destinations 100\n");
    let joins = lab.count("sa.H1.", "MCMemberRecord.Set");
    reload(&service, &mut notify);
    assert_eq!(clients[1].recv().expect("an answer").path().dlid(), three.lid);
    lab.inject("clear").unwrap();
    for client in &mut clients {
        assert_eq!(client.resolve(&known).path().dlid(), two.lid);
    }
    assert_eq!(lab.path_queries("H1"), asked + 1, "what was known is still known");
    assert_eq!(lab.count("sa.H1.", "MCMemberRecord.Set"), joins, "the groups are the same ones");
    // Now it gives up after a second and the subnet's timeout.
    let begin = std::time::Instant::now();
    assert_eq!(clients[2].resolve(&[ip(EP_FLAG_DEST, "10.77.0.99")]).header.status, Status::Etimedout as u8);
    assert!(begin.elapsed() < Duration::from_secs(7), "{:?}", begin.elapsed());
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn what_cannot_change_is_said() {
    let lab = SUBNET.enter();
    let (mut service, mut notify) = managed(&lab, "", "");
    lab.write(
        "H1",
        OPTIONS,
        "server_mode loop\nserver_port 7000\nlock_file /run/other.pid\nrecv_depth 9\nprovider x 0xfe80000000000000\n\
         acme_plus_kernel_only yes\nresolve_depth 5000\nretries 1\n",
    );
    reload(&service, &mut notify);
    let said = service.said();
    for (new, old) in [
        ("server_mode loop", "server_mode unix"),
        ("server_port 7000", "server_port 6125"),
        ("lock_file /run/other.pid", "lock_file /run/ibacm.pid"),
        ("recv_depth 9", "recv_depth 1024"),
        ("acme_plus_kernel_only yes", "acme_plus_kernel_only no"),
    ] {
        let line = format!("'{new}' takes effect when the service is started again: '{old}' stays");
        assert!(said.contains(&line), "{line}: {said}");
    }
    assert!(said.contains("provider x 0xfe80000000000000' takes effect"), "{said}");
    assert!(said.contains("resolve_depth and send_depth of that size"), "{said}");
    assert!(!said.contains("retries 1'"), "{said}");
    // An unreadable file changes nothing, and is said.
    fs::remove_file(lab.file("H1", OPTIONS)).unwrap();
    fs::create_dir(lab.file("H1", OPTIONS)).unwrap();
    reload(&service, &mut notify);
    service.wait_said("the options stay as they are: /etc/rdma/ibacm_opts.cfg: cannot be read");
    fs::remove_dir(lab.file("H1", OPTIONS)).unwrap();
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn groups_are_joined_anew_when_they_are_others() {
    let lab = SUBNET.enter();
    let (mut service, mut notify) = managed(&lab, "", "");
    let peer = lab.ours("H2", "");
    lab.write("H1", OPTIONS, "min_rate 2.5\n");
    let before = lab.port("H1").unwrap().joined;
    reload(&service, &mut notify);
    let joined = wait_for(PATIENCE, || lab.port("H1").ok().map(|p| p.joined).filter(|j| j.len() > before.len()));
    assert!(joined.is_some(), "{}", service.said());
    lab.write("H2", OPTIONS, "min_rate 2.5\n");
    peer.signal("HUP");
    let mut client = Client::connect(&lab, "H1");
    let [two] = lab.hosts(["H2"]);
    let question = [ip(EP_FLAG_DEST, "10.77.0.2")];
    let path = wait_for(PATIENCE, || {
        let reply = client.resolve(&question);
        (reply.header.status == 0).then(|| reply.path())
    });
    assert_eq!(path.expect("both are in the other group").dlid(), two.lid);
    assert_eq!(service.stop(), Some(0));
}
