//! Providers that break the rules (`tests/c/hostile_provider.c`): whatever one does, each client gets one answer or learns
//! in time that there is none, and what the provider does not serve goes on.

#[path = "util/plugin.rs"]
mod plugin;
#[path = "util/rob.rs"]
mod rob;
#[path = "util/trial.rs"]
mod trial;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::{Counter, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, HDR_LEN, Status};
use plugin::lay_down;
use trial::{CLIENTS, HOSTILE, LIMIT, SOON, SUBNET, Trial};
use util::client::{between, ip, name};
use util::{Client, sa, wait_for};

#[test]
fn answers_are_given_once_whoever_gives_them() {
    for mode in ["good", "thread", "twice", "both", "unknown", "threads", "answer_and_error", "closed", "cancel"] {
        let trial = Trial::start(mode, "");
        trial.open();
        trial.all_are(mode, Status::Success);
        let said = trial.daemon.said();
        // What the provider itself found wrong.
        for found in ["a MAD for", "a GID of no port", "it was not cancelled"] {
            assert!(!said.contains(&format!("hostile: {found}")), "{mode}: {said}");
        }
        let refused = ["twice", "both", "unknown", "threads"].contains(&mode);
        assert_eq!(said.contains("hostile: an answer was refused"), refused, "{mode}: {said}");
        assert!(said.len() < 200_000, "{mode}: the log is flooded: {} bytes", said.len());
        let (_, said) = trial.stop();
        for found in ["a MAD for", "a GID of no port"] {
            assert!(!said.contains(&format!("hostile: {found}")), "{mode}: {said}");
        }
    }
}

#[test]
fn answers_for_each_other_are_still_one_for_each() {
    let trial = Trial::start("other", "");
    let mut first = trial.client();
    let tid = first.ask(&between("10.77.0.1", "10.77.0.9"));
    let statuses = trial.everybody_is_answered("other");
    assert!(statuses.iter().all(|s| [0, Status::Etimedout as u8].contains(s)), "{statuses:?}");
    let reply = first.recv().unwrap();
    assert_eq!(reply.header.tid, tid.to_ne_bytes());
    trial.others_are_well("other");
    trial.stop();
}

#[test]
fn errors_of_calls_are_no_data_for_clients() {
    for call in ["all", "open_device", "open_port", "open_endpoint", "add_address", "resolve"] {
        let mode = format!("error_{call}");
        let trial = Trial::start(&mode, "");
        trial.all_are(&mode, Status::Enodata);
        let counters = trial.client().counters();
        assert_eq!(counters[Counter::Nodata as usize], 60, "{mode}: {counters:?}");
        let said = trial.daemon.said();
        if !["all", "resolve"].contains(&call) {
            assert!(said.contains(call) && said.contains("failed with -1"), "{mode}: {said}");
        }
        // Somebody looks for the reason and has it tried again.
        trial.daemon.signal("HUP");
        trial.all_are(&mode, Status::Enodata);
        trial.stop();
    }
    let trial = Trial::start("error_one_address", "");
    trial.open();
    assert_eq!(trial.client().resolve(&between("fd77::1", "fd77::9")).header.status, Status::Enodata as u8);
    trial.all_are("error_one_address", Status::Success);
    trial.stop();
}

#[test]
fn who_never_answers_costs_his_own_clients_time() {
    let trial = Trial::start("never", "");
    trial.all_are("never", Status::Etimedout);
    // Clients that leave before that are no trouble.
    for _ in 0..50 {
        trial.client().ask(&between("10.77.0.1", "10.77.0.9"));
    }
    // A port that goes answers at once.
    let mut client = trial.client();
    client.ask(&between("10.77.0.1", "10.77.0.9"));
    assert!(client.is_silent(Duration::from_millis(200)));
    let begin = Instant::now();
    trial.lab.inject("port H1 state=1").unwrap();
    let reply = client.recv().unwrap();
    assert_eq!(reply.header.status, Status::Enotconn as u8);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    trial.stop();
}

#[test]
fn answers_that_come_late_go_to_nobody() {
    let mode = format!("late {}", LIMIT + 1500);
    let trial = Trial::start(&mode, "");
    trial.all_are(&mode, Status::Etimedout);
    // The same client asks while the answers to what it asked before come in.
    let mut client = trial.client();
    for n in 0..3 {
        let reply = client.resolve(&between("10.77.0.1", &format!("10.77.9.{n}")));
        assert_eq!(reply.header.status, Status::Etimedout as u8);
    }
    let refused =
        wait_for(util::PATIENCE, || trial.daemon.said().contains("hostile: an answer was refused").then_some(()));
    assert!(refused.is_some(), "{}", trial.daemon.said());
    assert!(client.is_silent(Duration::from_millis(300)));
    trial.stop();
}

#[test]
fn answers_that_are_none_are_told_as_such() {
    for (kind, wanted) in [
        (0, Status::Einval),
        (1, Status::Einval),
        (2, Status::Einval),
        (3, Status::Einval),
        (4, Status::Einval),
        (5, Status::Einval),
        // As long as can be; the header's other fields are the request's whatever the provider says.
        (6, Status::Success),
        (7, Status::Success),
        (8, Status::Success),
        (9, Status::Success),
        (10, Status::Success),
    ] {
        // 0 would be a different kind for each call.
        let mode = if kind == 0 { "malformed 0".to_owned() } else { format!("malformed {kind}") };
        let trial = Trial::start(&mode, "");
        if kind == 0 {
            let statuses = trial.everybody_is_answered(&mode);
            assert!(statuses.contains(&(Status::Einval as u8)) && statuses.contains(&0), "{statuses:?}");
            trial.others_are_well(&mode);
        } else {
            plugin::until(&trial.lab, "H1", &between("10.77.0.1", "10.77.0.9"), wanted as u8);
            trial.all_are(&mode, wanted);
        }
        trial.stop();
    }
}

#[test]
fn who_blocks_holds_up_only_his_own_clients() {
    let trial = Trial::start("block 5000", "");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| trial.client()).collect();
    let begin = Instant::now();
    for client in &mut clients {
        client.ask(&between("10.77.0.1", "10.77.0.9"));
    }
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..5 {
        trial.others_are_well("block");
    }
    for client in &mut clients {
        assert_eq!(client.recv().unwrap().header.status, Status::Etimedout as u8);
    }
    assert!(begin.elapsed() < Duration::from_millis(LIMIT) + SOON, "{:?}", begin.elapsed());
    // Its port goes and comes back, while it is blocked; addresses come and go; a new manager is told of.
    trial.lab.inject("port H1 state=1").unwrap();
    plugin::until(&trial.lab, "H1", &between("10.77.0.1", "10.77.0.9"), Status::Esrcaddr as u8);
    trial.lab.inject("port-reset H1").unwrap();
    trial.lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    for n in 0..20 {
        rob::ip(&trial.lab, "H1", &format!("addr add 10.77.5.{n}/32 dev ib0"));
    }
    trial.others_are_well("block");
    // Questions that nobody waits for any more are not asked: the first one ends, and the rest comes to its turn.
    let told = wait_for(util::PATIENCE, || trial.daemon.said().contains("hostile: event ").then_some(()));
    assert!(told.is_some(), "{}", trial.daemon.said());
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    // It ends while it is in a call.
    clients[0].ask(&between("10.77.5.7", "10.77.0.9"));
    assert!(clients[0].is_silent(Duration::from_millis(1000)));
    let (took, said) = trial.stop();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(said.contains("provider hostile does not end"), "{said}");
}

#[test]
fn who_has_left_takes_no_room_at_a_provider_that_blocks() {
    let trial = Trial::start("block 600000", "");
    let mut first = trial.client();
    first.ask(&between("10.77.0.1", "10.77.0.9"));
    assert!(first.is_silent(Duration::from_millis(200)));
    let before = rob::memory(trial.daemon.pid());
    for _ in 0..500 {
        let mut client = trial.client();
        for _ in 0..200 {
            client.ask(&between("10.77.0.1", "10.77.0.9"));
        }
        // until they are taken
        client.is_silent(Duration::from_millis(1));
    }
    trial.others_are_well("block");
    let memory = rob::memory(trial.daemon.pid());
    assert!(memory < before + 16_000, "{before} KiB, then {memory} KiB");
    trial.stop();
}

#[test]
fn who_blocks_keeps_no_devices_that_are_gone() {
    let trial = Trial::start("block 600000", "");
    let mut client = trial.client();
    client.ask(&between("10.77.0.1", "10.77.0.9"));
    assert!(client.is_silent(Duration::from_millis(200)));
    let open = || std::fs::read_dir(format!("/proc/{}/fd", trial.daemon.pid())).unwrap().count();
    let before = open();
    for _ in 0..5 {
        trial.lab.inject("device-remove H1").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        trial.lab.inject("device-restore H1").unwrap();
        std::thread::sleep(Duration::from_millis(2500));
    }
    // the one that it has open, which is gone, and the one that it may have when it comes back
    let few = wait_for(util::PATIENCE, || (open() <= before + 4).then_some(()));
    assert!(few.is_some(), "{before} descriptors, then {}", open());
    trial.stop();
}

#[test]
fn the_end_waits_for_no_destructor() {
    let trial = Trial::start("destructor", "");
    trial.open();
    let (took, _) = trial.stop();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn signals_are_the_services_whatever_a_constructor_does() {
    let trial = Trial::start("state", "");
    trial.open();
    trial.daemon.signal("HUP");
    trial.all_are("state", Status::Success);
    let directory = std::fs::read_link(format!("/proc/{}/cwd", trial.daemon.pid())).unwrap();
    assert_ne!(directory, std::path::Path::new("/usr"));
    trial.stop();
}

#[test]
fn who_waits_for_the_sa_in_a_call_gets_its_answer() {
    // The clients' questions wait for the SA one after another.
    let trial = Trial::start("wait_sa", "provider_timeout 20000\n");
    let ports = trial.lab.ports().unwrap();
    let port = |host: &str| ports.iter().find(|p| p.host == host && p.device == "mlx5_0").unwrap();
    let mut wanted = PathRecord::default();
    wanted.set_slid(port("H1").lid);
    wanted.set_dlid(port("H2").lid);
    let question = [Entry::path(0, &wanted)];
    plugin::until(&trial.lab, "H1", &question, 0);
    let path = sa::path(&trial.lab, wanted.slid(), wanted.dlid());
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| trial.client()).collect();
    for client in &mut clients {
        client.ask(&question);
    }
    for client in &mut clients {
        assert_eq!(client.recv().unwrap().path(), path);
    }
    // A slow SA has the call take longer, and nobody else.
    trial.lab.inject("sa delay ms=600 host=H1 attr=0x35 count=1").unwrap();
    let mut client = trial.client();
    client.ask(&question);
    std::thread::sleep(Duration::from_millis(100));
    let mut other = trial.client();
    let own = other.resolve(&[name(EP_FLAG_SOURCE, "two"), name(EP_FLAG_DEST, "two")]);
    assert_eq!(own.header.status, 0);
    assert_eq!(client.recv().unwrap().path(), path);
    // The port goes while it waits: it is told, and closes.
    trial.lab.inject("sa drop host=H1 attr=0x35").unwrap();
    client.ask(&question);
    std::thread::sleep(Duration::from_millis(100));
    trial.lab.inject("port H1 state=1").unwrap();
    assert_eq!(client.recv().unwrap().header.status, Status::Enotconn as u8);
    trial.lab.inject("clear").unwrap();
    trial.lab.inject("port-reset H1").unwrap();
    plugin::until(&trial.lab, "H1", &question, 0);
    trial.others_are_well("wait_sa");
    let (took, said) = trial.stop();
    assert!(took < Duration::from_secs(10) && !said.contains("does not end"), "{took:?} {said}");
}

#[test]
fn mads_cannot_be_misused() {
    for (mode, logged) in [
        ("mad_twice", Some("hostile: 1 calls of the handler")),
        ("mad_free", None),
        ("mad_fly", None),
        ("mad_leak", Some("hostile: 65536 MADs, and then no more")),
    ] {
        // Each question waits for the SA, or for all the memory that there is.
        let trial = Trial::start(mode, "provider_timeout 20000\n");
        trial.open();
        trial.lab.reset_stats().unwrap();
        let mut client = trial.client();
        for n in 0..20 {
            let reply = client.resolve(&between("10.77.0.1", &format!("10.77.0.{}", 100 + n)));
            assert_eq!(reply.header.status, 0, "{mode}");
        }
        trial.others_are_well(mode);
        let said = trial.daemon.said();
        if let Some(logged) = logged {
            assert!(said.contains(logged), "{mode}: {said}");
        }
        for found in ["a freed MAD was sent", "what is no MAD was sent", "a MAD was sent twice"] {
            assert!(!said.contains(found), "{mode}: {said}");
        }
        assert!(said.len() < 200_000, "{mode}: the log is flooded: {} bytes", said.len());
        let memory = rob::memory(trial.daemon.pid());
        assert!(memory < 120_000, "{mode}: {memory} KiB");
        // The port can go, with MADs open, and come back.
        trial.lab.inject("port H1 state=1").unwrap();
        plugin::until(&trial.lab, "H1", &between("10.77.0.1", "10.77.0.9"), Status::Esrcaddr as u8);
        trial.lab.inject("port-reset H1").unwrap();
        trial.open();
        let (took, _) = trial.stop();
        assert!(took < Duration::from_secs(10), "{mode}: {took:?}");
    }
}

#[test]
fn counters_may_be_many_or_never_come() {
    let trial = Trial::start("counters", "");
    trial.open();
    let mut client = trial.client();
    let number = |client: &mut Client| {
        (1..=2).find(|n| String::from_utf8_lossy(&client.endpoint(*n, 0).bytes).contains("hostile")).unwrap()
    };
    let at = number(&mut client);
    let reply = client.performance(at, &[]);
    assert_eq!((reply.header.status, reply.header.data[0], reply.bytes.len()), (0, 72, HDR_LEN + 72 * 8));
    let values: Vec<u64> =
        reply.bytes[HDR_LEN..].chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().unwrap())).collect();
    assert_eq!(values, (0..72).collect::<Vec<u64>>());
    trial.stop();
    let trial = Trial::start("never_counts", "");
    trial.open();
    let mut client = trial.client();
    let at = number(&mut client);
    let begin = Instant::now();
    let reply = client.performance(at, &[]);
    assert_eq!((reply.header.status, reply.bytes.len()), (Status::Etimedout as u8, HDR_LEN));
    assert!(begin.elapsed() < Duration::from_millis(LIMIT) + SOON);
    assert_eq!(client.counters().len(), 7, "those of the service");
    trial.others_are_well("never_counts");
    trial.stop();
}

#[test]
fn what_is_no_provider_is_left_out() {
    let lab = rob::enter(&SUBNET);
    for (mode, reason) in [
        ("error_query", "provider_query failed"),
        ("version", "version 2"),
        ("size", "8 bytes"),
        ("no_functions", "lacks the function"),
        ("no_name", "no name"),
        ("no_info", "no structure"),
    ] {
        let options = lay_down(&lab, "H1", &[&HOSTILE]) + &format!("provider hostile default\nhostile {mode}\n");
        let daemon = lab.ours("H1", &options);
        let said = daemon.said();
        assert!(said.contains("hostile_provider") && said.contains(reason), "{mode}: {said}");
        let said = lab.acme("H1", &["-e"]);
        assert!(said.contains(",ibacmp,") && !said.contains("hostile"), "{mode}: {said}");
        let reply = Client::connect(&lab, "H1").resolve(&[ip(EP_FLAG_DEST, "10.77.0.1")]);
        assert_eq!(reply.header.status, 0, "{mode}");
        assert_eq!(daemon.stop(), Some(0), "{mode}");
    }
}
