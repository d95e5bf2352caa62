//! What is said of hosts that have this or that fault.

use ibacm_wire::Gid;

use super::*;

fn port(number: u8) -> Port {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xfe, 0x80, number);
    Port {
        device: "mlx5_0".into(),
        number,
        state: verbs::PORT_ACTIVE,
        lid: 3,
        sm_lid: 1,
        gids: vec![Gid(gid)],
        pkeys: vec![0xffff, 0],
        ..Port::default()
    }
}

fn interface(number: u8, addresses: &[&str]) -> Interface {
    Interface {
        name: format!("ib{}", number - 1),
        gid: port(number).gid(),
        pkey: Some(0xffff),
        is_up: Some(true),
        carrier: Some(true),
        addresses: addresses.iter().map(|a| (a.parse().unwrap(), 16)).collect(),
    }
}

/// Levels, and the remedies of what is not ok.
#[track_caller]
fn expect(findings: &[Finding], wanted: &[(Level, &str, &str)]) {
    assert_eq!(findings.len(), wanted.len(), "{findings:#?}");
    for (finding, (level, found, remedy)) in findings.iter().zip(wanted) {
        assert_eq!(finding.level, *level, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert_eq!(finding.remedy.is_none(), *level == Level::Ok, "{finding:?}");
        assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
    }
}

#[test]
fn no_device_and_no_infiniband_port() {
    let device = |ports| Device { name: "mlx5_0".into(), ports };
    expect(&devices(&Ok(Vec::new())), &[(Level::Failed, "no RDMA device", "modprobe")]);
    expect(&devices(&Err("ENOSYS".into())), &[(Level::Failed, "ENOSYS", "ib_uverbs")]);
    expect(&devices(&Ok(vec![device(Ok(Vec::new()))])), &[(Level::Failed, "no InfiniBand port", "LINK_TYPE")]);
    expect(&devices(&Ok(vec![device(Err("EACCES".into()))])), &[(Level::Failed, "EACCES", "permissions")]);
    let both = [device(Err("EIO".into())), device(Ok(vec![port(1), port(2)]))];
    expect(&devices(&Ok(both.to_vec())), &[(Level::Failed, "EIO", ""), (Level::Ok, "InfiniBand ports: 2", "")]);
}

#[test]
fn states_of_ports_are_told_apart() {
    for (state, found, remedy) in [
        (verbs::PORT_DOWN, "no link", "cable"),
        (verbs::PORT_INIT, "no subnet manager", "opensm"),
        (verbs::PORT_ARMED, "armed", "log"),
        (77, "state 77", "dmesg"),
    ] {
        let bad = Port { state, ..port(1) };
        expect(&ports(std::slice::from_ref(&bad)), &[(Level::Failed, found, remedy)]);
        expect(&ports(&[bad, port(2)]), &[(Level::Warning, found, remedy), (Level::Ok, "active", "")]);
    }
    let nameless = Port { lid: 0, ..port(1) };
    expect(&ports(&[nameless, port(2)]), &[(Level::Failed, "without a LID", "log"), (Level::Ok, "LID 3", "")]);
    expect(&ports(&[Port { sm_lid: 0, ..port(1) }]), &[(Level::Failed, "SM LID 0", "start a subnet manager")]);
}

#[test]
fn limited_members() {
    let with = |pkeys: &[u16]| partitions(&Port { pkeys: pkeys.to_vec(), ..port(1) }, &[interface(1, &[])]);
    expect(&with(&[0x8001, 0xffff]), &[(Level::Ok, "full member", "")]);
    expect(&with(&[0x7fff, 0]), &[(Level::Failed, "only a limited member", "ipoib:ALL=full")]);
    expect(&with(&[0x7fff, 0x0001]), &[(Level::Failed, "only a limited member", "ipoib:ALL=full")]);
    expect(&with(&[0x7fff, 0x8001]), &[(Level::Warning, "full member of another", "ibacm_addr.cfg")]);
    // What follows for the interface of the default partition is not said again.
    expect(&with(&[0x8001]), &[(Level::Failed, "no member of the default", "ALL=full")]);
    expect(&with(&[0]), &[(Level::Failed, "no partition", "ALL=full")]);
    let child = Interface { pkey: Some(0x8007), ..interface(1, &[]) };
    let found = partitions(&Port { pkeys: vec![0xffff, 0x8001], ..port(1) }, &[child]);
    expect(&found, &[(Level::Ok, "full member", ""), (Level::Failed, "0x8007 is not among those", "ip link del ib0")]);
}

#[test]
fn interfaces_and_addresses() {
    let (one, two) = (port(1), port(2));
    let none = (Level::Failed, "no IPoIB address", "ip addr add");
    expect(&addresses(&[&one], &[]), &[(Level::Failed, "no IPoIB address", "modprobe ib_ipoib")]);
    expect(&addresses(&[&one], &[interface(1, &[])]), &[none]);
    expect(&addresses(&[&one], &[interface(1, &["fe80::1", "::1"])]), &[none]);
    expect(&addresses(&[&one], &[interface(2, &["10.0.0.1"])]), &[(Level::Failed, "no IPoIB interface", "")]);
    expect(&addresses(&[&one], &[interface(1, &["fe80::1", "fd77::1"])]), &[(Level::Ok, "fd77::1/16 on", "")]);
    let good = interface(1, &["10.0.0.1"]);
    let half = [(Level::Ok, "10.0.0.1/16", ""), (Level::Warning, "no IPoIB", "ib1")];
    expect(&addresses(&[&one, &two], &[good.clone(), interface(2, &[])]), &half);
    let missing = [(Level::Ok, "10.0.0.1/16", ""), (Level::Warning, "no IPoIB interface", "ib_ipoib")];
    expect(&addresses(&[&one, &two], std::slice::from_ref(&good)), &missing);
    let down = Interface { is_up: Some(false), ..good.clone() };
    expect(&addresses(&[&one], &[down]), &[(Level::Failed, "is down", "ip link set ib0 up")]);
    let alone = Interface { carrier: Some(false), ..good };
    expect(&addresses(&[&one], &[alone]), &[(Level::Warning, "no carrier", "broadcast group")]);
}

#[test]
fn ports_know_their_gids_and_keys() {
    let port = Port { pkeys: vec![0, 0x7fff, 0x8001, 0x0001], ..port(1) };
    assert_eq!((port.key_of(0xffff), port.key_of(0x0001), port.key_of(0x8002)), (Some(0x7fff), Some(0x8001), None));
    assert_eq!(port.sa_pkey_index(), 1);
    let limited = |key| port.is_limited_in(key);
    assert_eq!((limited(0xffff), limited(0x7fff), limited(0x0001), limited(0x8002)), (true, true, false, false));
    assert!(port.is_in_default_partition() && !Port { pkeys: vec![0x8001], ..port.clone() }.is_in_default_partition());
    let mut other_subnet = port.gid();
    other_subnet.0[7] = 9;
    assert!(port.has_gid(other_subnet) && !port.has_gid(Gid::ZERO));
}
