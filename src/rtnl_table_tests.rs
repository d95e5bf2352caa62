use super::*;

const HW: [u8; HARDWARE] = [7; HARDWARE];

fn link(index: u32, name: &str, hardware: Option<[u8; HARDWARE]>) -> Link {
    Link { index, kind: INFINIBAND, name: name.into(), hardware, is_up: true, broadcast_pkey: None }
}

fn addr(index: u32, last: u8) -> Addr {
    Addr { index, ip: [10, 0, 0, last].into(), prefix_len: 24, scope: 0 }
}

fn found() -> Sysfs {
    Sysfs { hardware: None, pkey: Some(0x8001) }
}

#[test]
fn an_address_counts_when_port_and_partition_are_known() {
    let mut table = Table::default();
    assert!(table.link(link(1, "ib0", Some(HW)), 5));
    table.addr(addr(1, 1));
    assert!(table.snapshot().is_empty());
    assert_eq!(table.due(5, 9), [(1, b"ib0".to_vec())]);
    table.probed(1, found(), 5);
    assert!(table.take_changed());
    assert!(!table.take_changed());
    let all = table.snapshot();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].gid, all[0].pkey, all[0].ifname.as_str()), ([7; 16], 0x8001, "ib0"));
    assert_eq!(table.next_probe(), None);
    assert!(!table.link(link(1, "ib0", Some(HW)), 6), "known");
    assert_eq!((table.next_probe(), table.take_changed()), (None, false));
}

#[test]
fn files_that_come_late_are_waited_for_and_not_for_ever() {
    let mut table = Table::default();
    table.link(link(1, "ib0", None), 0);
    table.addr(addr(1, 1));
    let mut tries = 0;
    while let Some(due) = table.next_probe() {
        table.probed(1, Sysfs { hardware: Some(HW), pkey: None }, due);
        tries += 1;
        assert!(due < 4 * LAST_RETRY_US && tries < 20);
    }
    assert!(table.snapshot().is_empty());
    table.link(link(1, "ib0", None), 99);
    assert_eq!(table.next_probe(), Some(99), "a change of the interface tries again");
    table.probed(1, Sysfs { hardware: Some(HW), pkey: Some(0x8001) }, 99);
    assert_eq!(table.snapshot().len(), 1);
}

#[test]
fn without_sysfs_the_broadcast_address_tells_the_partition() {
    let mut table = Table::default();
    table.link(Link { broadcast_pkey: Some(0x8002), ..link(1, "ib0", Some(HW)) }, 0);
    table.addr(addr(1, 1));
    assert_eq!(table.snapshot()[0].pkey, 0x8002);
    table.probed(1, found(), 0);
    assert_eq!(table.snapshot()[0].pkey, 0x8001, "sysfs is the better source");
}

#[test]
fn a_new_name_or_hardware_address_is_a_change() {
    let mut table = Table::default();
    table.link(link(1, "ib0", Some(HW)), 0);
    table.addr(addr(1, 1));
    table.probed(1, found(), 0);
    table.take_changed();
    table.link(link(1, "ibx", Some(HW)), 1);
    assert!(table.take_changed());
    assert_eq!(table.snapshot()[0].ifname, "ibx");
    assert_eq!(table.next_probe(), Some(1), "the files have new paths");
    table.link(link(1, "ibx", Some([9; HARDWARE])), 2);
    assert!(table.take_changed());
    assert_eq!(table.snapshot()[0].gid, [9; 16]);
    table.take_changed();
    assert_eq!((table.is_up("ibx"), table.is_up("ib0")), (Some(true), None));
    table.link(Link { is_up: false, ..link(1, "ibx", Some([9; HARDWARE])) }, 3);
    assert_eq!((table.is_up("ibx"), table.take_changed()), (Some(false), false), "addresses stay what they are");
}

#[test]
fn an_address_on_two_interfaces_ends_on_the_one_that_keeps_it() {
    let mut table = Table::default();
    for index in [1, 2] {
        table.link(link(index, "ib", Some(HW)), 0);
        table.probed(index, found(), 0);
        table.addr(addr(index, 1));
    }
    assert_eq!(table.snapshot().len(), 2);
    table.addr_gone(addr(1, 1));
    let all = table.snapshot();
    assert_eq!((all.len(), all[0].ifindex), (1, 2));
    // The same address under another prefix is another one.
    table.addr(Addr { prefix_len: 16, ..addr(2, 1) });
    table.addr_gone(addr(2, 1));
    assert_eq!(table.snapshot()[0].prefix_len, 16);
}

#[test]
fn what_a_full_dump_does_not_tell_of_is_gone() {
    let mut table = Table::default();
    for index in [1, 2] {
        table.link(link(index, "ib", Some(HW)), 0);
        table.probed(index, found(), 0);
        table.addr(addr(index, 1));
        table.addr(addr(index, 2));
    }
    table.take_changed();
    table.begin_round();
    table.link(link(2, "ib", Some(HW)), 0);
    table.sweep_links();
    table.addr(addr(2, 2));
    table.sweep_addrs();
    assert!(table.take_changed());
    let all = table.snapshot();
    assert_eq!((all.len(), all[0].ifindex, all[0].ip), (1, 2, [10, 0, 0, 2].into()));
    assert_eq!(table.addresses, 1);
    table.begin_round();
    table.link(link(2, "ib", Some(HW)), 0);
    table.sweep_links();
    table.addr(addr(2, 2));
    table.sweep_addrs();
    assert!(!table.take_changed(), "nothing is new");
}

#[test]
fn an_interface_that_changes_its_type_leaves() {
    let mut table = Table::default();
    table.link(link(1, "ib0", Some(HW)), 0);
    table.addr(addr(1, 1));
    table.link(Link { kind: 1, ..link(1, "ib0", None) }, 0);
    assert_eq!((table.snapshot().len(), table.addresses), (0, 0));
    table.addr(addr(1, 1));
    assert_eq!(table.addresses, 0);
}

#[test]
fn sizes_are_bounded() {
    let mut table = Table::default();
    for index in 0..=u32::try_from(MAX_INTERFACES).unwrap() {
        table.link(link(index, "ib", Some(HW)), 0);
    }
    assert_eq!((table.interfaces.len(), table.left_out), (MAX_INTERFACES, 1));
    for n in 0..=u32::try_from(MAX_ADDRESSES).unwrap() {
        let ip = std::net::Ipv4Addr::from(n).into();
        table.addr(Addr { index: 3, ip, prefix_len: 8, scope: 0 });
    }
    assert_eq!((table.addresses, table.left_out), (MAX_ADDRESSES, 2));
    table.link_gone(3);
    assert_eq!(table.addresses, 0);
}

#[test]
fn sysfs_texts() {
    let text = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0A:0b:0c\n";
    let bytes = parse_hardware(text).unwrap();
    assert_eq!((bytes[0], bytes[4], bytes[19]), (0x80, 0xFE, 0x0C));
    for bad in ["", "\n", "00:11:22:33:44:55", &text.replace("80", "+8"), &text[3..]] {
        assert_eq!(parse_hardware(bad), None, "{bad:?}");
    }
    assert_eq!(parse_hardware(&format!("{}:00", text.trim())), None);
    assert_eq!(parse_pkey("0x8001\n"), Some(0x8001));
    assert_eq!(parse_pkey("0x0001"), Some(0x8001));
    assert_eq!(parse_pkey("ffff"), Some(0xFFFF));
    for bad in ["", "0x", "0x10000", "0x+1", "pkey"] {
        assert_eq!(parse_pkey(bad), None, "{bad:?}");
    }
}

#[test]
fn interfaces_of_a_port_and_who_is_near_them() {
    let (a, b) = ([1; HARDWARE], [2; HARDWARE]);
    let mut table = Table::default();
    for (index, hardware, pkey) in [(1, a, 0xffff), (2, b, 0xffff), (3, a, 0x8001), (4, a, 0x7fff)] {
        table.link(link(index, "ib", Some(hardware)), 0);
        table.probed(index, Sysfs { hardware: Some(hardware), pkey: Some(pkey) }, 0);
    }
    for (index, text, prefix_len) in
        [(1, "10.77.0.1", 16), (1, "fd77::1", 64), (2, "10.77.0.2", 16), (4, "10.0.0.1", 0)]
    {
        table.addr(Addr { index, ip: text.parse().unwrap(), prefix_len, scope: 0 });
    }
    let near = |pkey, text: &str| {
        let places = table.links(&[Gid([1; 16]), Gid([9; 16])], pkey, text.parse().unwrap());
        places.iter().map(|p| (p.index, p.near)).collect::<Vec<_>>()
    };
    assert_eq!(near(0xffff, "10.77.255.1"), [(1, true), (4, true)]);
    assert_eq!(near(0x7fff, "10.78.0.1"), [(1, false), (4, true)], "everything is near to a prefix of no bits");
    assert_eq!(near(0xffff, "fd77::9"), [(1, true), (4, false)]);
    assert_eq!(near(0xffff, "fd78::9"), [(1, false), (4, false)]);
    assert_eq!(near(0xffff, "fe80::1"), [(1, true), (4, false)], "where there is an address of that family");
    assert_eq!(near(0x0001, "10.77.0.9"), [(3, false)]);
    assert_eq!(near(0x8002, "10.77.0.9"), []);
    assert_eq!(table.place(2), Some(([2; 16], 0xffff)));
    assert_eq!(table.place(7), None);
}

#[test]
fn an_interface_with_the_prefix_that_the_port_had_before_is_outdated() {
    let mut table = Table::default();
    table.link(link(1, "ib0", Some(HW)), 0);
    let (own, mut other_prefix, mut other_port) = ([7; 16], [7; 16], [7; 16]);
    other_prefix[0] = 8;
    other_port[15] = 8;
    assert!(!table.has_other_prefix(&[Gid(own)]));
    assert!(table.has_other_prefix(&[Gid(other_prefix)]));
    assert!(!table.has_other_prefix(&[Gid(other_port)]), "another port's");
    assert!(!table.has_other_prefix(&[Gid(other_prefix), Gid(own)]), "both are the port's");
    assert!(!table.has_other_prefix(&[]));
}
