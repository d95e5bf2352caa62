//! Partitions: which is whose, and how they are compared.

mod util;

use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE};
use util::client::{between, name, to_lid};
use util::family::IPV6;
use util::{Client, Lab, Program, Shared, partitions};

/// H1 is a limited member of 0x0123, H2 and H3 full ones; all are full members of 0x0001.
static SUBNET: Shared = Shared::new(|o| {
    o.hosts = 3;
    // Port GUIDs as the topology numbers them, checked below.
    let text = "Default=0x7fff,ipoib:ALL=full;\nOne=0x0001:ALL=full;\n\
        Red=0x0123:0x100003=limited,0x100005=full,0x100007=full;\n";
    o.partitions = Some(partitions("compat", text));
});

/// The group of a partition that a host has joined for addresses.
fn groups(lab: &Lab<'_>, host: &str, pkey: u16) -> Vec<[u8; 16]> {
    let [high, low] = pkey.to_be_bytes();
    let joined = lab.port(host).unwrap().joined;
    joined
        .into_iter()
        .map(|(mgid, _)| mgid)
        .filter(|g| g[..4] == util::ADDRESS_GROUP && g[4..6] == [high, low])
        .collect()
}

#[test]
fn limited_and_full_forms_name_one_partition() {
    let lab = SUBNET.enter();
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    assert_eq!([one.guid, two.guid, three.guid], [0x10_0003, 0x10_0005, 0x10_0007]);
    assert!(one.pkeys.contains(&0x0123) && two.pkeys.contains(&0x8123), "{:x?} {:x?}", one.pkeys, two.pkeys);
    for (host, address) in [("H1", "10.90.0.1"), ("H2", "10.90.0.2"), ("H3", "10.90.0.3")] {
        lab.add_interface(host, "ib0.8123", &format!("0x8123 {address}/24")).unwrap();
    }
    // The address file has either form, too.
    let (ours, stock) = (Program::Ours, Program::Stock);
    let _daemons =
        [("H2", "0x0123", ours), ("H1", "0x8123", ours), ("H3", "0x8123", stock)].map(|(host, pkey, program)| {
            let names = format!("red-{host} mlx5_0 1 {pkey}\n{host} mlx5_0 1 default\n");
            let daemon = lab.start_named(program, host, "", &names);
            let joined = util::wait_for(util::PATIENCE, || (!groups(&lab, host, 0x8123).is_empty()).then_some(()));
            assert!(joined.is_some(), "{host} does not join the partition's group: {}", daemon.said());
            daemon
        });
    let subnet = if IPV6 { "fd77:0:0:13::" } else { "10.90.0." };
    for host in ["H1", "H2", "H3"] {
        let said = lab.acme(host, &["-e"]);
        assert_eq!(said.matches(",ibacmp,").count(), 2, "one endpoint a partition: {said}");
        let red = said.lines().find(|l| l.contains(subnet)).expect("the partition's endpoint");
        assert!(red.ends_with(&format!(",red-{host}")), "{red}");
        assert!(red.contains(if host == "H1" { ",0x0123," } else { ",0x8123," }), "{red}");
        // The name of a group has the bit of full members, whatever its member is.
        assert_eq!(groups(&lab, host, 0x0123), [[0; 16]; 0]);
        assert!(!groups(&lab, host, 0xffff).is_empty());
    }
    for (from, to, source, dest) in [
        ("H1", "H2", "10.90.0.1", "10.90.0.2"),
        ("H2", "H1", "10.90.0.2", "10.90.0.1"),
        ("H1", "H3", "10.90.0.1", "10.90.0.3"),
        ("H3", "H1", "10.90.0.3", "10.90.0.1"),
        ("H2", "H3", "10.90.0.2", "10.90.0.3"),
    ] {
        let mut client = Client::connect(&lab, from);
        let [target] = lab.hosts([to]);
        for question in [
            between(source, dest),
            [name(EP_FLAG_SOURCE, &format!("red-{from}")), name(EP_FLAG_DEST, &format!("red-{to}"))],
        ] {
            let path = client.resolve(&question).path();
            assert_eq!((path.pkey() & 0x7fff, path.dlid(), path.dgid()), (0x0123, target.lid, Gid(target.gid)));
        }
        // The pkey of a question by path chooses the partition.
        let mut question = to_lid(0, target.lid);
        question.info[50..52].copy_from_slice(&0x8123_u16.to_be_bytes());
        assert_eq!(client.resolve(&[question]).path().pkey() & 0x7fff, 0x0123);
    }
    drop(_daemons);
    for host in ["H1", "H2", "H3"] {
        lab.remove_interface(host, "ib0.8123").unwrap();
    }
}

#[test]
fn the_default_partition_is_the_first_of_the_table() {
    let lab = SUBNET.enter();
    for host in ["H1", "H2"] {
        lab.inject(&format!("port {host} pkeys=0x8001,0x7fff")).unwrap();
    }
    let daemons = ["H1", "H2"].map(|h| lab.start_named(Program::Ours, h, "", &format!("{h} mlx5_0 1 default\n")));
    for host in ["H1", "H2"] {
        let joined = util::wait_for(util::PATIENCE, || (!groups(&lab, host, 0x8001).is_empty()).then_some(()));
        assert!(joined.is_some(), "{host} joins {:x?}", lab.port(host).unwrap().joined);
        lab.wait_joined(host);
        let said = lab.acme(host, &["-e"]);
        let line = said.lines().find(|l| l.ends_with(&format!(",ibacmp,{host}"))).expect("an endpoint with the name");
        assert!(line.contains(",0x8001,"), "{line}");
    }
    let mut client = Client::connect(&lab, "H1");
    let path = client.resolve(&[name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "h2")]).path();
    let [two] = lab.hosts(["H2"]);
    assert_eq!((path.pkey(), path.dlid()), (0x8001, two.lid));
    // The SA is a member of the default partition, and hears those who ask it there: the second of these tables.
    assert_eq!(lab.count("drop.mad_pkey", ""), 0);
    assert_eq!(lab.path_queries("H1"), 1);
    drop((client, daemons));
    for host in ["H1", "H2"] {
        lab.inject(&format!("port-reset {host}")).unwrap();
    }
}
