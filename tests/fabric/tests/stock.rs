//! The stock programs on the simulated subnet: what works on hardware has to work here.

mod common;

use std::process::Command;

use common::{PATIENCE, compile, run, stock_ibacm, subnet, succeed, text, with};
use fabric::Subnet;
use fabric::subnet::wait_for;

fn asks(subnet: &Subnet, format: &str, source: &str, destination: &str) -> Command {
    let mut command = subnet.exec("H1", "ib_acme");
    command.args(["-f", format, "-s", source, "-d", destination, "-v"]);
    command
}

fn acme(subnet: &Subnet, format: &str, source: &str, destination: &str) -> String {
    succeed(&mut asks(subnet, format, source, destination))
}

#[test]
fn daemons_resolve_each_other() {
    let subnet = subnet(2);
    let _daemons = [stock_ibacm(&subnet, "H1"), stock_ibacm(&subnet, "H2")];
    let [one, two] = ["H1", "H2"].map(|h| subnet.port(h).unwrap());
    let begin = subnet.sniff_next().unwrap();

    let said = acme(&subnet, "i", "10.77.0.1", "10.77.0.2");
    assert!(said.contains("SA verification: success"), "{said}");
    assert!(said.contains(&format!("dlid: {}\n", two.lid)), "{said}");
    assert!(acme(&subnet, "i", "fd77::1", "fd77::2").contains("SA verification: success"));
    assert!(acme(&subnet, "n", "h1", "h2").contains("SA verification: success"));

    // The wire: a multicast request to the group and the answer to who asked.
    let sent = subnet.sniffed(None, begin).unwrap();
    let (request, answer) = (&sent[0], &sent[1]);
    assert_eq!(
        (request.from.as_str(), request.dqpn, request.qkey, request.pkey),
        ("H1", 0xff_ffff, 0x8001_0000, 0xffff)
    );
    assert_eq!(request.data[..4], [1, 0x2c, 1, 1]);
    assert_eq!(request.gids.unwrap().1[..8], [0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0x00, 0x03]);
    assert_eq!((answer.from.as_str(), answer.dlid, answer.dqpn), ("H2", one.lid, request.sqpn));
    assert_eq!(answer.data[3], 0x81);

    let stats = subnet.stats().unwrap();
    assert_eq!(stats["sa.H1.MCMemberRecord.Set"], 1);
    assert_eq!(stats["sa.H2.MCMemberRecord.status.0x0000"], 1);
    // The multicast comes back to the sender's own queue pair.
    assert_eq!(stats["mcast.H1.sent"], stats["mcast.H1.received"]);

    let said = succeed(subnet.exec("H1", "ib_acme").args(["-e", "-P"]));
    assert!(said.contains("10.77.0.1/16,fd77::1/64,h1"), "{said}");
}

#[test]
fn both_ports_serve_and_one_goes_down() {
    let subnet = with(|o| o.hca_ports = 2, 2);
    let _daemons = [stock_ibacm(&subnet, "H1"), stock_ibacm(&subnet, "H2")];
    assert!(acme(&subnet, "i", "10.78.0.1", "10.78.0.2").contains("SA verification: success"));
    subnet.console("Unlink \"H1\"[1]").unwrap();
    let state = |wanted: u8| {
        wait_for(PATIENCE, || (subnet.port("H1").ok()?.state == wanted).then_some(())).expect("the port changes")
    };
    state(1);
    assert!(subnet.port("H1").unwrap().joined.is_empty());
    assert!(acme(&subnet, "i", "fd77:0:0:1::1", "fd77:0:0:1::2").contains("SA verification: success"));
    subnet.console("ReLink \"H1\"[1]").unwrap();
    state(4);
    let joined = wait_for(PATIENCE, || (!subnet.port("H1").ok()?.joined.is_empty()).then_some(()));
    assert!(joined.is_some(), "the daemon joins again");
    // It hears a moment later than the SA says it that it has joined.
    let said = wait_for(PATIENCE, || {
        let output = run(&mut asks(&subnet, "i", "10.77.0.1", "10.77.0.2"));
        output.status.success().then(|| text(&output))
    });
    assert!(said.expect("the first port serves again").contains("SA verification: success"));
}

#[test]
fn partitions_and_child_interfaces() {
    let conf = std::env::temp_dir().join(format!("fabric-partitions-{}", std::process::id()));
    std::fs::write(&conf, "Default=0x7fff,ipoib:ALL=full;\nRed=0x0123:ALL=full;\n").unwrap();
    let subnet = with(|o| o.partitions = Some(conf.clone()), 2);
    std::fs::remove_file(&conf).unwrap();
    for (host, address) in [("H1", "10.90.0.1/24"), ("H2", "10.90.0.2/24")] {
        assert_eq!(subnet.port(host).unwrap().pkeys, [0xffff, 0x8123]);
        subnet.add_interface(host, "ib0.8123", &format!("0x8123 {address}")).unwrap();
    }
    let _daemons = [stock_ibacm(&subnet, "H1"), stock_ibacm(&subnet, "H2")];
    for host in ["H1", "H2"] {
        wait_for(PATIENCE, || (subnet.port(host).ok()?.attached.len() == 2).then_some(())).expect("two groups");
    }
    let said = acme(&subnet, "i", "10.90.0.1", "10.90.0.2");
    assert!(said.contains("pkey: 0x8123") && said.contains("SA verification: success"), "{said}");
}

#[test]
fn librdmacm_asks_the_daemon() {
    let program = compile("getaddrinfo", &["-lrdmacm", "-libverbs"]);
    let subnet = subnet(2);
    let _daemons = [stock_ibacm(&subnet, "H1"), stock_ibacm(&subnet, "H2")];
    let said = succeed(subnet.exec("H1", &program).args(["10.77.0.1", "10.77.0.2"]));
    let [one, two] = ["H1", "H2"].map(|h| subnet.port(h).unwrap().lid);
    assert_eq!(said, format!("slid={one} dlid={two}\n"));
}

/// The kernel's request for a path: device mlx5_0, port 1, between two GIDs, in the default partition.
fn resolve(sequence: u32, sgid: &[u8; 16], dgid: &[u8; 16]) -> Vec<u8> {
    const MANDATORY: u16 = 1 << 13;
    let mut body = vec![0; 68];
    body[..6].copy_from_slice(b"mlx5_0");
    body[64] = 1;
    for (kind, value) in [(4, &dgid[..]), (5, &sgid[..]), (7, &0xffff_u16.to_ne_bytes()[..])] {
        body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        body.extend_from_slice(&(kind | MANDATORY).to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&0x1000_u16.to_ne_bytes());
    message.extend_from_slice(&1_u16.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(&body);
    message
}

#[test]
fn kernel_asks_over_netlink() {
    let subnet = subnet(2);
    let _daemon = stock_ibacm(&subnet, "H1");
    let [one, two] = ["H1", "H2"].map(|h| subnet.port(h).unwrap());
    let kernel = subnet.kernel("H1", true).unwrap();
    kernel.send(&resolve(77, &one.gid, &two.gid)).unwrap();
    let (answer, sender) = kernel.recv(PATIENCE).unwrap().expect("an answer");
    assert_ne!(sender, kernel.port_id());
    assert_eq!(answer[8..12], 77_u32.to_ne_bytes());
    // Header, attribute header, flags; then the record with its DLID at 40.
    let record = &answer[16 + 4 + 8..];
    assert_eq!(record[8..24], two.gid);
    assert_eq!(record[40..42], two.lid.to_be_bytes());
}

#[test]
fn diagnostics_ask_opensm() {
    let subnet = with(|o| o.extra_hcas = 150, 2);
    let said = succeed(subnet.query("sminfo").args::<_, &str>([]));
    assert!(said.contains("SMINFO_MASTER"), "{said}");
    let lid = subnet.port("H1").unwrap().lid.to_string();
    let said = succeed(subnet.query("saquery").args(["PR", "--slid", &lid, "--dlid", "100"]));
    assert!(said.contains("dlid....................100"), "{said}");
    let output = run(subnet.exec("H2", "ibv_devices").env("LC_ALL", "C"));
    assert!(text(&output).contains("mlx5_0"), "{}", text(&output));
}
