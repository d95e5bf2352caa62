//! Addresses of hosts that nobody answers for over multicast, on a whole subnet: found by the kernel's neighbour table,
//! or by the GUID in a link-local address, and never wrongly.

#[path = "util/rob.rs"]
mod rob;
mod util;

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, More, Status};

use rob::{code, ip};
use util::client::{between, ip as entry};
use util::{Client, Daemon, Lab, PATIENCE, Program, Shared, run, succeed, text, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);

/// One wait for an answer, and what may pass beside it on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(1000);
const SLACK: Duration = Duration::from_millis(900);
const OPTIONS: &str = "timeout 1000\nretries 4\nlog_level 1\n";

/// The subnet, with hosts that know no neighbours, and no time of the subnet's own beside the timeout.
fn enter() -> Lab<'static> {
    let lab = rob::enter(&SUBNET);
    for host in ["H1", "H2", "H3"] {
        lab.inject(&format!("port {host} subnet_timeout=8 quiet=1")).expect("it is there");
        for other in ["10.77.0.1", "10.77.0.2", "10.77.0.3", "10.99.0.5", "fd77::2", "fd77::3"] {
            let _ = lab.set_neighbour(host, other, None);
        }
        ip(&lab, host, "neigh flush all nud all");
    }
    lab
}

fn gid(lab: &Lab<'_>, host: &str) -> [u8; 16] {
    lab.port(host).expect("the host is there").gid
}

/// Asks, and tells the answer's status and how long it took.
fn ask(client: &mut Client, to: &str) -> (u8, Duration, Option<PathRecord>) {
    let begin = Instant::now();
    let from = if to.contains(':') { "fd77::1" } else { "10.77.0.1" };
    let reply = client.resolve(&between(from, to));
    let path = (reply.header.status == 0).then(|| reply.path());
    (reply.header.status, begin.elapsed(), path)
}

/// Asks for an address that must be found when the request is repeated, and be this host's.
#[track_caller]
fn found_late(lab: &Lab<'_>, client: &mut Client, to: &str, host: &str) {
    let (status, time, path) = ask(client, to);
    assert_eq!(status, 0, "{to}");
    assert!(time >= TIMEOUT && time < TIMEOUT + SLACK, "{to} after {time:?}");
    is_to(lab, path, host);
}

/// Asks for an address that must be known, and be this host's.
#[track_caller]
fn known(lab: &Lab<'_>, client: &mut Client, to: &str, host: &str) {
    let before = lab.stat("mcast.H1.sent").unwrap();
    let (status, time, path) = ask(client, to);
    assert_eq!(status, 0, "{to}");
    assert!(time < TIMEOUT, "{to} after {time:?}");
    is_to(lab, path, host);
    assert_eq!(lab.stat("mcast.H1.sent").unwrap(), before, "nobody is asked");
}

#[track_caller]
fn is_to(lab: &Lab<'_>, path: Option<PathRecord>, host: &str) {
    let (path, [own, port]) = (path.expect("a path"), lab.hosts(["H1", host]));
    assert_eq!((path.dgid().0, path.dlid()), (port.gid, port.lid));
    assert_eq!((path.sgid().0, path.slid(), path.mtu() & 0x3f), (own.gid, own.lid, 4), "as the SA says");
}

/// How addresses were found: by neighbour, by link-local address, by preload.
fn ways(client: &mut Client) -> [u64; 3] {
    let all = client.more_counters();
    [More::AddrNeighbour, More::AddrLinkLocal, More::AddrPreload].map(|way| all[way as usize])
}

/// The kernel's entries for addresses that begin so.
fn entries(lab: &Lab<'_>, start: &str) -> Vec<String> {
    let table = text(&run(lab.exec("H1", "ip").args(["neigh", "show", "dev", "ib0"])));
    table.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn start(lab: &Lab<'_>, options: &str) -> (Daemon, Client) {
    let daemon = lab.ours("H1", options);
    (daemon, Client::connect(lab, "H1"))
}

/// The link-local address that an interface of this port makes itself.
fn link_local(gid: [u8; 16]) -> String {
    let mut address = gid;
    address[..8].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    address[8] ^= 2;
    Ipv6Addr::from(address).to_string()
}

#[test]
fn a_peer_without_a_service_is_found_by_the_kernel_when_the_request_is_repeated() {
    let lab = enter();
    let (daemon, mut client) = start(&lab, OPTIONS);
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    assert_eq!(entries(&lab, "10.77.0.2"), [""; 0], "the kernel has to look for it");
    found_late(&lab, &mut client, "10.77.0.2", "H2");
    assert_eq!(lab.path_queries("H1"), 1);
    known(&lab, &mut client, "10.77.0.2", "H2");
    // an entry that somebody has made
    lab.set_neighbour("H1", "fd77::3", Some(gid(&lab, "H3"))).unwrap();
    ip(&lab, "H1", "neigh replace fd77::3 dev ib0 nud permanent");
    found_late(&lab, &mut client, "fd77::3", "H3");
    assert_eq!(ways(&mut client), [2, 0, 0]);
    assert!(entries(&lab, "fd77::3")[0].contains("PERMANENT"), "it stays his");
    assert_eq!(lab.acme("H1", &["-P"]).matches(',').count(), 14, "seven counters and their names, as always");
    drop(daemon);
}

#[test]
fn an_entry_that_comes_while_it_is_looked_for_will_do() {
    let lab = enter();
    // The kernel looks for longer than its three seconds: time enough to put the entry there, on a busy machine too.
    let patient = "echo 12 > /proc/sys/net/ipv4/neigh/ib0/mcast_solicit";
    succeed(lab.exec("H1", "sh").args(["-c", patient]));
    let (_daemon, mut client) = start(&lab, &format!("{OPTIONS}retries 8\n"));
    client.ask(&between("10.77.0.1", "10.77.0.2"));
    let looking = wait_for(PATIENCE, || entries(&lab, "10.77.0.2").first().cloned());
    assert!(looking.as_ref().is_some_and(|line| line.contains("INCOMPLETE")), "{looking:?}");
    assert!(client.is_silent(Duration::from_millis(100)));
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    ip(&lab, "H1", "neigh replace 10.77.0.2 dev ib0 nud permanent");
    let reply = client.recv().expect("an answer");
    is_to(&lab, Some(reply.path()), "H2");
    assert_eq!(ways(&mut client), [1, 0, 0]);
}

#[test]
fn a_link_local_address_holds_its_port() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, OPTIONS);
    let (there, mut nowhere) = (link_local(gid(&lab, "H2")), gid(&lab, "H2"));
    found_late(&lab, &mut client, &there, "H2");
    known(&lab, &mut client, &there, "H2");
    nowhere[15] ^= 0x55;
    let (status, ..) = ask(&mut client, &link_local(nowhere));
    assert_eq!(status, code(Status::Etimedout), "a port that there isn't");
    assert_eq!(ways(&mut client), [0, 1, 0]);
}

#[test]
fn without_the_option_an_address_without_an_answer_stays_so() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, "timeout 1000\nretries 2\naddr_fallback none\n");
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    for to in ["10.77.0.2", &link_local(gid(&lab, "H2"))] {
        let (status, time, _) = ask(&mut client, to);
        assert_eq!(status, code(Status::Etimedout), "{to}");
        assert!(time >= 3 * TIMEOUT && time < 3 * TIMEOUT + SLACK, "{to} after {time:?}");
    }
    assert_eq!((entries(&lab, "10.77.0.2").len(), ways(&mut client)), (0, [0, 0, 0]));
}

#[test]
fn a_service_that_answers_is_believed_before_the_kernel() {
    let lab = enter();
    for program in [Program::Ours, Program::Stock] {
        let peer = lab.start(program, "H2", "");
        let (daemon, mut client) = start(&lab, OPTIONS);
        // the kernel has somebody else
        lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H3"))).unwrap();
        ip(&lab, "H1", "neigh replace 10.77.0.2 dev ib0 nud permanent");
        let (status, time, path) = ask(&mut client, "10.77.0.2");
        assert!(status == 0 && time < TIMEOUT, "{program:?}: {status} after {time:?}");
        is_to(&lab, path, "H2");
        // and the other way round
        let mut there = Client::connect(&lab, "H2");
        assert_eq!(there.resolve(&between("10.77.0.2", "10.77.0.1")).path().dgid().0, gid(&lab, "H1"));
        assert_eq!(ways(&mut client), [0, 0, 0], "{program:?}");
        drop((peer, daemon));
    }
}

#[test]
fn a_service_that_is_started_later_replaces_what_the_kernel_said() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, OPTIONS);
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H3"))).unwrap();
    found_late(&lab, &mut client, "10.77.0.2", "H3");
    for program in [Program::Stock, Program::Ours] {
        let peer = lab.start(program, "H2", "");
        // it asks for this host, and so says where it is
        let mut there = Client::connect(&lab, "H2");
        assert_eq!(there.resolve(&between("10.77.0.2", "10.77.0.1")).path().dgid().0, gid(&lab, "H1"));
        known(&lab, &mut client, "10.77.0.2", "H2");
        drop(peer);
    }
}

#[test]
fn a_gid_that_is_nobody_s_makes_no_path() {
    let lab = enter();
    let (daemon, mut client) = start(&lab, "timeout 1000\nretries 2\nlog_level 1\n");
    let mut nobody = gid(&lab, "H2");
    nobody[14] ^= 0x77;
    lab.set_neighbour("H1", "10.77.0.2", Some(nobody)).unwrap();
    let (status, time, _) = ask(&mut client, "10.77.0.2");
    assert_eq!(status, code(Status::Etimedout));
    assert!(time < 3 * TIMEOUT + SLACK, "no later than without: {time:?}");
    assert_eq!(lab.path_queries("H1"), 1, "the SA was asked");
    let why = format!("10.77.0.2 is not {}", Ipv6Addr::from(nobody));
    assert!(daemon.said().contains(&why), "{}", daemon.said());
    assert_eq!(ways(&mut client), [0, 0, 0]);
}

#[test]
fn an_entry_that_changes_is_looked_at_again() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, OPTIONS);
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    found_late(&lab, &mut client, "10.77.0.2", "H2");
    known(&lab, &mut client, "10.77.0.2", "H2");
    // the address has moved, and the kernel has noticed
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H3"))).unwrap();
    ip(&lab, "H1", "neigh replace 10.77.0.2 dev ib0 nud stale");
    let moved = wait_for(PATIENCE, || {
        let (status, _, path) = ask(&mut client, "10.77.0.2");
        (status == 0 && path?.dgid().0 == gid(&lab, "H3")).then_some(())
    });
    assert!(moved.is_some(), "still where it was");
    known(&lab, &mut client, "10.77.0.2", "H3");
}

#[test]
fn what_is_behind_a_gateway_is_no_neighbour() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, "timeout 1000\nretries 1\n");
    ip(&lab, "H1", "route add 10.99.0.0/16 via 10.77.0.2 dev ib0");
    for neighbour in ["10.77.0.2", "10.99.0.5"] {
        lab.set_neighbour("H1", neighbour, Some(gid(&lab, "H2"))).unwrap();
    }
    let (status, ..) = ask(&mut client, "10.99.0.5");
    assert_eq!(status, code(Status::Etimedout));
    assert_eq!(entries(&lab, "10.99.0.5"), [""; 0], "nobody was looked for");
    ip(&lab, "H1", "route del 10.99.0.0/16");
}

#[test]
fn without_a_group_neighbours_are_found_all_the_same() {
    let lab = enter();
    lab.inject("sa drop host=H1 attr=0x38").unwrap();
    let _daemon = lab.start_configured(Program::Ours, "H1", OPTIONS);
    let mut client = Client::connect(&lab, "H1");
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    let first = wait_for(PATIENCE, || {
        // its addresses may come a moment after its socket
        let answer = ask(&mut client, "10.77.0.2");
        (answer.0 != code(Status::Esrcaddr)).then_some(answer)
    });
    let (status, time, path) = first.expect("the address is served");
    assert_eq!(status, 0);
    assert!(time < TIMEOUT + SLACK, "{time:?}");
    is_to(&lab, path, "H2");
    assert_eq!((lab.stat("mcast.H1.sent").unwrap(), ways(&mut client)), (0, [1, 0, 0]));
}

#[test]
fn made_up_addresses_do_not_fill_the_kernel_s_table() {
    let lab = enter();
    let (_daemon, mut client) = start(&lab, "timeout 300\nretries 2\nresolve_depth 1000\n");
    let source = entry(EP_FLAG_SOURCE, "10.77.0.1");
    let asked = 600;
    for n in 0..asked {
        let dest = Entry {
            flags: EP_FLAG_DEST | FLAG_NODELAY,
            ..entry(EP_FLAG_DEST, &format!("10.77.4{}.{}", n / 250, n % 250))
        };
        assert_eq!(client.resolve(&[source, dest]).header.status, code(Status::Enodata));
    }
    let some = wait_for(PATIENCE, || (!entries(&lab, "10.77.4").is_empty()).then_some(()));
    assert!(some.is_some(), "the kernel looks for nobody");
    let end = Instant::now() + Duration::from_millis(1500);
    let mut most = 0;
    while Instant::now() < end {
        // Those that it has given up stay in its table for a while.
        most = most.max(entries(&lab, "10.77.4").iter().filter(|line| !line.contains("FAILED")).count());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..=64).contains(&most), "{most} entries of {asked}");
    // who is there is found when the kernel has given some of them up
    lab.set_neighbour("H1", "10.77.0.2", Some(gid(&lab, "H2"))).unwrap();
    let found = wait_for(PATIENCE, || ask(&mut client, "10.77.0.2").2);
    is_to(&lab, found, "H2");
}
