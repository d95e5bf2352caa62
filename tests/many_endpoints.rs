//! One host with 64 devices in 16 partitions each, as a host with virtual functions may have them.
//!
//! The devices are imitated: each stands for an HCA of the subnet that no host has, so that it has a LID and a GID that
//! the subnet administrator knows; its MADs reach the subnet by way of the host's own HCA.

#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE};
use util::client::name;
use util::{Client, Lab, Program, Shared, partitions, succeed, wait_for};

/// Devices of H1, its real one among them.
const DEVICES: usize = 64;
/// Partitions of each port.
const PARTITIONS: u16 = 16;

static LAB: Shared = Shared::new(|o| {
    o.extra_hcas = DEVICES - 1;
    let mut text = "Default=0x7fff,ipoib:ALL=full;\n".to_owned();
    for pkey in 1..PARTITIONS {
        let _ = writeln!(text, "P{pkey}={pkey:#06x}:ALL=full;");
    }
    o.partitions = Some(partitions("many", &text));
});

/// The partitions as they stand in the tables of full members.
fn pkeys() -> impl Iterator<Item = u16> {
    (1..PARTITIONS).map(|p| p | 0x8000).chain([0xffff])
}

/// The LID of a port of the subnet.
fn lid_of(lab: &Lab<'_>, from: &[u8; 16], guid: u64) -> u16 {
    let [sgid, dgid] =
        [u128::from_be_bytes(*from), 0xfe80 << 112 | u128::from(guid)].map(|g| Ipv6Addr::from(g).to_string());
    let said = succeed(lab.query("saquery").args(["PR", "--sgid", &sgid, "--dgid", &dgid]));
    let line = said.lines().find_map(|l| l.trim().strip_prefix("dlid")).unwrap_or_else(|| panic!("no LID: {said}"));
    line.trim_start_matches('.').parse().expect("a number")
}

/// Has H1 find 63 devices beside its own.
fn add_devices(lab: &Lab<'_>, table: &str) {
    let [one, two] = lab.hosts(["H1", "H2"]);
    for number in 1..DEVICES {
        // The topology numbers nodes one after another: a GUID for the node, one for its port.
        let node = two.guid + 1 + 2 * (number as u64 - 1);
        let lid = lid_of(lab, &one.gid, node + 1);
        let made = format!("ports=ib guid={node:#x} lid={lid} sm_lid={}", one.sm_lid);
        lab.inject(&format!("device-add H1 {} {made}", device(number))).unwrap();
        lab.inject(&format!("port H1 dev={} pkeys={table} quiet=1", device(number))).unwrap();
    }
}

fn device(number: usize) -> String {
    if number == 0 { "mlx5_0".to_owned() } else { format!("vf{number}") }
}

/// How many of these groups H1 is in, all ports together.
fn memberships(lab: &Lab<'_>) -> usize {
    let ports = lab.ports().expect("the subnet answers");
    let groups = ports.iter().filter(|p| p.host == "H1").flat_map(|p| &p.joined);
    groups.filter(|(g, _)| g[..4] == util::ADDRESS_GROUP).count()
}

#[test]
fn a_thousand_endpoints_are_served_at_once_and_in_little_memory() {
    let lab = rob::enter(&LAB);
    let table: Vec<String> = pkeys().map(|p| format!("{p:#06x}")).collect();
    let table = table.join(",");
    add_devices(&lab, &table);
    for host in ["H1", "H2"] {
        lab.inject(&format!("port {host} pkeys={table} quiet=1")).unwrap();
    }
    let [mut here, mut there] = [String::new(), String::new()];
    for pkey in pkeys() {
        let _ = writeln!(there, "there-{pkey:04x} mlx5_0 1 {pkey:#06x}");
        for d in 0..DEVICES {
            let _ = writeln!(here, "here-{d}-{pkey:04x} {} 1 {pkey:#06x}", device(d));
        }
    }
    let _peer = lab.start_named(Program::Ours, "H2", "", &there);
    let begin = Instant::now();
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", &here);
    let daemon = lab.start_configured(Program::Ours, "H1", "");
    let all = DEVICES * usize::from(PARTITIONS);
    let joined = wait_for(Duration::from_secs(180), || (memberships(&lab) == all).then(|| begin.elapsed()));
    let processor = rob::processor(daemon.pid());
    assert!(joined.is_some(), "{} of {all}: {}", memberships(&lab), daemon.said());
    let memory = rob::memory(daemon.pid());
    println!("{all} endpoints: joined after {joined:?}, {processor:?} of processor time, {memory} KiB");
    // 680 MiB where each has all the receives that an endpoint usually has.
    assert!(memory < 300 * 1024, "{memory} KiB");
    assert!(processor < Duration::from_secs(20), "{processor:?}");
    assert!(rob::idle_second(daemon.pid()) <= Duration::from_millis(30), "no turning in place");
    let before = rob::steady_descriptors(daemon.pid());
    let [two] = lab.hosts(["H2"]);
    let ports = lab.ports().unwrap();
    let mut client = Client::connect(&lab, "H1");
    for d in 0..DEVICES {
        let port = ports.iter().find(|p| p.host == "H1" && p.device == device(d)).expect("it is there");
        for pkey in pkeys().skip(d % 5).step_by(5) {
            let begin = lab.sniff_next().unwrap();
            let source = name(EP_FLAG_SOURCE, &format!("here-{d}-{pkey:04x}"));
            let question = [source, name(EP_FLAG_DEST, &format!("there-{pkey:04x}"))];
            // On a busy machine OpenSM may look at so many nodes for longer than a question to the SA may take.
            let found = rob::until(&mut client, &question, 0);
            assert!(found.is_some(), "{} {pkey:#06x}: {}", device(d), daemon.said());
            let path = client.resolve(&question).path();
            assert_eq!((path.sgid(), path.slid(), path.pkey()), (Gid(port.gid), port.lid, pkey));
            assert_eq!((path.dgid(), path.dlid()), (Gid(two.gid), two.lid));
            let sent = lab.sniffed(Some("H1"), begin).unwrap();
            let ours = |s: &fabric::subnet::Sniffed| (s.pkey, s.slid, s.gids.map(|g| g.0));
            assert!(sent.iter().any(|s| ours(s) == (pkey, port.lid, Some(port.gid))), "{} {pkey:#06x}", device(d));
        }
    }
    drop(client);
    rob::settles(daemon.pid(), before);
}
