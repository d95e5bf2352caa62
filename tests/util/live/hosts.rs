//! The hosts that are changed: how they are at first, what serves them, and what is asked about.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use super::super::util::{Daemon, Lab, PATIENCE, Program, run, wait_for};
use super::world::{Place, Topic, World};
use fabric::PortLine;

/// Partitions without their bit of membership.
pub const COMMON: u16 = 0x7fff;
/// As [`COMMON`].
pub const RED: u16 = 0x123;
/// As [`COMMON`].
pub const BLUE: u16 = 0x222;

/// Short limits, so that a question that nobody answers ends soon, but no shorter than a subnet manager takes that looks
/// at its subnet on a busy machine; many at a time, so that it delays nobody; few destinations, since many that are asked
/// for once are not to fill more and more memory.
const OPTIONS: &str =
    "timeout 1000\nretries 1\nsa_depth 8\nresolve_depth 8\nsend_depth 8\nmax_destinations 512\nwait_for_device yes\n";

/// An address of `H2` that moves.
pub const MOVES: &str = "10.77.5.1";

/// Addresses of a host: on its first device, on its second one, and on the first one in the partition Red.
const ADDRESSES: [[&[&str]; 3]; 3] = [
    [&["10.77.0.1", "fd77::1", "h1"], &["10.78.0.1", "fd77:0:0:1::1", "h1-2"], &["10.90.0.1"]],
    [&["10.77.0.2", "fd77::2", "h2", MOVES], &["10.78.0.2", "fd77:0:0:1::2", "h2-2"], &["10.90.0.2"]],
    [&["10.77.0.3", "fd77::3", "h3"], &["10.78.0.3", "fd77:0:0:1::3", "h3-2"], &["10.90.0.3"]],
];

const HOSTS: [&str; 3] = ["H1", "H2", "H3"];

/// All ports.
pub const PORTS: [Place; 6] = [("H1", 0), ("H1", 1), ("H2", 0), ("H2", 1), ("H3", 0), ("H3", 1)];

/// Runs ip(8) on a host; whether it succeeds.
pub fn try_ip(lab: &Lab<'_>, host: &str, words: &str) -> bool {
    run(lab.exec(host, "ip").args(words.split_whitespace())).status.success()
}

/// Runs ip(8) on a host.
pub fn ip(lab: &Lab<'_>, host: &str, words: &str) {
    assert!(try_ip(lab, host, words), "ip {words} on {host}");
}

/// Takes back what tests have changed about a port, all but its short time limit.
pub fn port_reset(lab: &Lab<'_>, (host, device): Place) {
    let place = format!("{host} dev=mlx5_{device}");
    lab.inject(&format!("port-reset {place}")).expect("it is there");
    lab.inject(&format!("port {place} subnet_timeout=14")).expect("it is there");
}

/// The addresses of an interface, put (back) in place.
pub fn addresses(lab: &Lab<'_>, host: &str, interface: &str) {
    let (n, subnet) = (&host[1..], if interface == "ib0" { "77" } else { "78" });
    let six = if interface == "ib0" { "fd77::" } else { "fd77:0:0:1::" };
    ip(lab, host, &format!("addr flush dev {interface} scope global"));
    ip(lab, host, &format!("addr add 10.{subnet}.0.{n}/16 dev {interface}"));
    ip(lab, host, &format!("addr add {six}{n}/64 dev {interface} nodad"));
}

/// Waits until a port is as is wanted.
pub fn wait_port(lab: &Lab<'_>, (host, device): Place, what: impl Fn(&PortLine) -> bool) {
    let name = format!("mlx5_{device}");
    let found = wait_for(PATIENCE, || {
        let ports = lab.ports().ok()?;
        ports.iter().any(|p| p.host == host && p.device == name && what(p)).then_some(())
    });
    assert!(found.is_some(), "{host} {name}: {:?}", lab.ports());
}

/// Puts hosts and fabric in order.
pub fn restore(lab: &Lab<'_>) -> World {
    let mut world = World::default();
    for (host, device) in PORTS {
        let _ = lab.inject(&format!("device-restore {host} dev=mlx5_{device}"));
        port_reset(lab, (host, device));
    }
    // A manager that was started while links changed, or has waited behind another, does not always see all of them.
    let active = || lab.ports().ok()?.iter().all(|p| p.gone || p.state == 4).then_some(());
    for _ in 0..3 {
        if wait_for(Duration::from_secs(10), active).is_some() {
            break;
        }
        lab.manager("restart").expect("the subnet answers");
    }
    for (n, host) in HOSTS.into_iter().enumerate() {
        for device in 0..2 {
            wait_port(lab, (host, device), |p| p.state == 4);
            let interface = format!("ib{device}");
            let _ = lab.rename_interface(host, "ibx", "ib0");
            ip(lab, host, &format!("link set {interface} up"));
            addresses(lab, host, &interface);
        }
        for child in ["ib0.8123", "ib0.8222"] {
            let _ = lab.remove_interface(host, child);
        }
        lab.add_interface(host, "ib0.8123", &format!("0x8123 10.90.0.{}/24", &host[1..])).expect("the name is free");
        for (kind, list) in ADDRESSES[n].iter().enumerate() {
            let (device, partition) = [(0, COMMON), (1, COMMON), (0, RED)][kind];
            for address in *list {
                world.own(address, (host, device), partition);
            }
        }
    }
    ip(lab, "H2", &format!("addr add {MOVES}/16 dev ib0"));
    world.look(lab);
    world
}

fn names(n: usize) -> String {
    format!("h{n} mlx5_0 1 0xffff\nh{n}-2 mlx5_1 1 0xffff\n")
}

/// Starts the service of a host.
pub fn serve(lab: &Lab<'_>, program: Program, n: usize) -> Daemon {
    lab.start_named(program, HOSTS[n - 1], OPTIONS, &names(n))
}

/// The same, without waiting for its groups: there may be none just now.
pub fn serve_at_once(lab: &Lab<'_>, program: Program, n: usize) -> Daemon {
    lab.write(HOSTS[n - 1], "/etc/rdma/ibacm_addr.cfg", &names(n));
    lab.start_configured(program, HOSTS[n - 1], OPTIONS)
}

/// What is asked about.
pub fn topics() -> Vec<Topic> {
    use Topic::{Address, Fresh, Gid, Lid, Sa};
    let mut topics = vec![
        Address(Some("10.77.0.1"), "10.77.0.1"),
        Address(Some("fd77::1"), "h1"),
        Address(Some("10.77.0.1"), MOVES),
        Address(Some("10.78.0.1"), "10.78.0.1"),
    ];
    for (four, six, name, second, red) in [
        ("10.77.0.2", "fd77::2", "h2", "10.78.0.2", "10.90.0.2"),
        ("10.77.0.3", "fd77::3", "h3", "fd77:0:0:1::3", "10.90.0.3"),
    ] {
        let from = if second.contains(':') { "fd77:0:0:1::1" } else { "10.78.0.1" };
        topics.extend([
            Address(Some("10.77.0.1"), four),
            Address(None, four),
            Address(Some("fd77::1"), six),
            Address(Some("h1"), name),
            Address(Some(from), second),
            Address(Some("10.90.0.1"), red),
        ]);
    }
    for host in ["H2", "H3"] {
        topics.extend([Lid((host, 0)), Gid(Some(0), (host, 0)), Gid(Some(1), (host, 1)), Gid(None, (host, 1))]);
        topics.extend([Fresh((host, 0)), Sa((host, 0))]);
    }
    topics
}

/// How long a host may take to join its groups again.
const SOON: Duration = Duration::from_secs(4);

/// Whether the subnet administrator answers, or begins to within this time.
pub fn sa_is_there(lab: &Lab<'_>, patience: Duration) -> bool {
    let own = lab.port("H1").expect("it is there").lid.to_string();
    let answers = wait_for(patience, || {
        let asked = run(lab.query("saquery").args(["-t", "400", "PR", "--slid", &own, "--dlid", &own]));
        asked.status.success().then_some(())
    });
    answers.is_some()
}

/// Waits until the subnet administrator answers.
pub fn sa_answers(lab: &Lab<'_>) {
    assert!(sa_is_there(lab, PATIENCE), "the subnet administrator does not answer");
}

/// Whether the subnet manager of all ports comes to be at such a LID. Managers that miss each other's messages find each
/// other when they look at the subnet again: so often.
fn comes_to_be(lab: &Lab<'_>, looks: usize, wanted: impl Fn(u16) -> bool) -> bool {
    let there = || {
        let ports = lab.ports().ok()?;
        ports.iter().filter(|p| !p.gone && p.lid != 0).all(|p| wanted(p.sm_lid)).then_some(())
    };
    (0..looks).any(|_| {
        let found = wait_for(SOON, there).is_some();
        if !found {
            lab.manager("sweep").expect("the subnet answers");
        }
        found
    })
}

/// Waits until the subnet manager of all ports is at this LID.
pub fn manager_is(lab: &Lab<'_>, lid: u16) {
    assert!(comes_to_be(lab, 8, |at| at == lid), "no other manager takes over: {:?}", lab.ports());
}

/// Starts a second subnet manager, and waits until it is that of all ports, which now have the one at `first`. On a busy
/// machine it takes over without ever looking at the subnet, every few times, and is started once more.
pub fn second_manager_takes_over(lab: &Lab<'_>, first: u16) {
    for _ in 0..10 {
        lab.manager("second").expect("it starts");
        if comes_to_be(lab, 2, |at| at != first) {
            return;
        }
        lab.manager("second-stop").expect("it ends");
    }
    panic!("no other manager takes over: {:?}", lab.ports());
}

/// Has a subnet manager that starts anew give these ports other LIDs than it did.
pub fn other_lids(lab: &Lab<'_>, places: &[Place]) {
    let port = |(host, device): Place| {
        let name = format!("mlx5_{device}");
        let ports = lab.ports().expect("the subnet answers");
        ports.into_iter().find(|p| p.host == host && p.device == name).expect("it is there")
    };
    let groups: Vec<usize> = places.iter().map(|p| port(*p).joined.len()).collect();
    lab.manager("stop").expect("it stops");
    let path = lab.state().file("guid2lid");
    let mut text = fs::read_to_string(&path).expect("a manager has written it");
    let wanted: Vec<u16> = places.iter().map(|p| port(*p).lid ^ 0x40).collect();
    for (place, lid) in places.iter().zip(&wanted) {
        let guid = format!("{:#018x}", port(*place).guid);
        let line = text.lines().find(|l| l.starts_with(&guid)).expect("it has a LID").to_owned();
        text = text.replace(&line, &format!("{guid} {lid:#06x} {lid:#06x}"));
    }
    fs::write(&path, text).expect("it can be written");
    lab.manager("start").expect("it starts");
    for (place, lid) in places.iter().zip(&wanted) {
        wait_port(lab, *place, |p| p.lid == *lid && p.state == 4);
    }
    sa_answers(lab);
    // The manager has forgotten all groups: until hosts have joined them again there are none.
    for (place, groups) in places.iter().zip(groups) {
        let _ = wait_for(SOON, || (port(*place).joined.len() >= groups).then_some(()));
    }
}

/// Runs lines of ip(8) on a host; those that fail are passed over.
pub fn ip_batch(lab: &Lab<'_>, host: &str, lines: &str) {
    let mut command = lab.exec(host, "timeout");
    command.args(["60", "ip", "-force", "-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it is a child").code().is_some());
}
