//! The same link-local address on several links.

use std::net::{IpAddr, Ipv6Addr};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, Status, TYPE_IP6};

use super::sim::{MS, Net, S, path, status};
use crate::engine::Config;

fn link_local(number: u16) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number).into()
}

fn entry(flags: u32, number: u16) -> Entry {
    Entry::address(flags, TYPE_IP6, &super::octets(link_local(number)))
}

/// Hosts with two partitions. Host 0 has fe80::1 on both, host 1 fe80::2 on both, host 2 fe80::3 on the second.
fn net() -> Net {
    let mut net = Net::new(3, &Config { timeout_ms: 100, retries: 0, ..Config::default() });
    for host in 0..3 {
        let address = link_local(host as u16 + 1);
        let pkeys: &[u16] = if host < 2 { &[0xffff, 0x8001] } else { &[0x8001] };
        net.set_addrs(host, &pkeys.iter().map(|p| (address, *p)).collect::<Vec<_>>());
        net.change_port(host, |p| p.pkeys = vec![0xffff, 0x0001]);
    }
    net.run(10 * MS);
    net
}

#[test]
fn the_first_partition_is_asked_unless_more_is_known() {
    let mut net = net();
    for question in [&[entry(EP_FLAG_DEST, 2)][..], &[entry(EP_FLAG_SOURCE, 1), entry(EP_FLAG_DEST, 2)]] {
        assert_eq!(path(&net.ask(0, question, 5 * MS).unwrap()).pkey(), 0xffff);
    }
    let wanted = [entry(EP_FLAG_DEST, 3)];
    assert_eq!(status(&net.ask(0, &wanted, 5 * S).unwrap()), Status::Etimedout as u8);
    assert_eq!(path(&net.ask(2, &[entry(EP_FLAG_DEST, 1)], 5 * MS).unwrap()).pkey() & 0x7fff, 1);
    assert_eq!(path(&net.ask(0, &wanted, 5 * MS).unwrap()).pkey() & 0x7fff, 1, "its question told where it is");
}

#[test]
fn what_is_known_is_still_known_while_it_is_confirmed() {
    let mut net = net();
    path(&net.ask(2, &[entry(EP_FLAG_DEST, 1)], 5 * MS).unwrap());
    net.change_port(0, |p| p.active = false);
    net.run(S);
    net.change_port(0, |p| p.active = true);
    net.run(10 * MS);
    let wanted = [entry(EP_FLAG_DEST, 3)];
    let ids = [net.start(0, &wanted), net.start(0, &wanted)];
    net.run(5 * MS);
    for id in ids {
        assert_eq!(path(&net.hosts[0].replies[&id]).pkey() & 0x7fff, 1);
    }
}

#[test]
fn the_source_that_was_chosen_is_told() {
    let mut net = net();
    let reply = net.ask(0, &[entry(EP_FLAG_DEST, 2)], 5 * MS).unwrap();
    assert_eq!(Entry::read(&reply, 1), Some(entry(EP_FLAG_SOURCE, 1)));
}

#[test]
fn without_such_a_link_there_is_no_way() {
    let mut net = net();
    net.set_ips(0, &[super::sim::ip(0)]);
    assert_eq!(status(&net.ask(0, &[entry(EP_FLAG_DEST, 2)], 0).unwrap()), Status::Edestaddr as u8);
    let foreign = [entry(EP_FLAG_SOURCE, 2), entry(EP_FLAG_DEST, 3)];
    assert_eq!(status(&net.ask(0, &foreign, 0).unwrap()), Status::Esrcaddr as u8);
}
