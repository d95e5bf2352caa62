//! Destinations of the command line, and what they are asked for as. Pure.

use std::net::{IpAddr, Ipv6Addr};

use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};
use libibacm::{Address, Endpoint, Request};

use super::facts::{Interface, Port};
use super::service;
use crate::expand::{MAX_ITEMS, Unusable, expand_addresses};
use crate::fault::Fault;
use crate::scope::{self, Link, Scoped};

/// The largest LID that is not a group's.
const MAX_LID: u16 = 0xbfff;

/// A destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A name or an IP address, asked of the peer itself.
    Address(Address),
    /// A GID, asked of the subnet administrator.
    Gid(Gid),
    /// A LID, likewise.
    Lid(u16),
}

/// The items of a list: commas that are not in brackets part it, and brackets name several.
pub fn list(text: &str) -> Result<Vec<String>, Unusable> {
    let mut depth = 0_u32;
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let mut items = Vec::new();
    for part in parts {
        items.extend(expand_addresses(part)?);
        if items.len() > MAX_ITEMS {
            return Err(Unusable::TooLong);
        }
    }
    Ok(items)
}

/// What a text names. Numbers are LIDs; an IPv6 address in a subnet of the ports is a GID, and so is a link-local one,
/// which no other host could be asked for.
pub fn identify(text: &str, ports: &[Port]) -> Destination {
    let number = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u16::from_str_radix(hex, 16).ok());
    match (text.parse::<IpAddr>(), number) {
        (Ok(IpAddr::V6(v6)), _) if is_gid(v6, ports) => Destination::Gid(Gid(v6.octets())),
        (Ok(ip), _) => Destination::Address(Address::Ip(ip)),
        (_, Some(lid @ 1..=MAX_LID)) => Destination::Lid(lid),
        _ => Destination::Address(Address::Name(text.into())),
    }
}

/// A link-local address with the interface that it holds on, `fe80::1%ib0`; nothing, if the text is none.
pub fn on_link(text: &str, interfaces: &[Interface]) -> Option<Result<(IpAddr, Link), Fault>> {
    let scoped = Scoped::parse(text)?;
    let link = scope::link(interfaces, scoped.interface?, scoped, None);
    Some(link.map(|link| (scoped.ip, link)))
}

fn is_gid(v6: Ipv6Addr, ports: &[Port]) -> bool {
    let gid = Gid(v6.octets());
    let ours = |p: &Port| !p.gid().is_zero() && p.gid().subnet_prefix() == gid.subnet_prefix();
    v6.segments()[0] & 0xffc0 == 0xfe80 || ports.iter().any(ours)
}

impl Destination {
    /// The request for the path. Names, GIDs and LIDs go with a source, which not every service chooses by itself.
    pub fn request(&self, ports: &[Port], endpoints: &[Endpoint]) -> Request {
        let mut record = PathRecord::default();
        record.set_reversible_numpath(REVERSIBLE | 1);
        let usable = |p: &&Port| p.is_usable();
        match self {
            Destination::Address(destination) => {
                let source = matches!(destination, Address::Name(_)).then(|| a_name(ports, endpoints)).flatten();
                return Request::Resolve { source, destination: destination.clone(), cached_only: false };
            }
            Destination::Gid(gid) => {
                let same = |p: &&Port| p.gid().subnet_prefix() == gid.subnet_prefix();
                let port = ports.iter().filter(usable).find(same).or(ports.iter().find(usable));
                record.set_dgid(*gid);
                record.set_sgid(port.map_or(Gid::ZERO, Port::gid));
            }
            Destination::Lid(lid) => {
                record.set_dlid(*lid);
                record.set_sgid(ports.iter().find(usable).map_or(Gid::ZERO, Port::gid));
            }
        }
        Request::Path { record, query_sa: false, cached_only: false }
    }
}

/// A name of this host, of an endpoint whose port is usable.
fn a_name(ports: &[Port], endpoints: &[Endpoint]) -> Option<Address> {
    let usable = endpoints.iter().filter(|e| service::port_of(e, ports).is_some_and(Port::is_usable));
    usable.flat_map(|e| &e.addresses).map(service::address).find(|a| matches!(a, Address::Name(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    fn port(own: &str) -> Port {
        Port { gids: vec![gid(own)], state: ibacm::verbs::PORT_ACTIVE, lid: 3, ..Port::default() }
    }

    #[test]
    fn lists_are_parted_outside_of_brackets() {
        let list = |text| list(text).map(|l| l.join(" "));
        assert_eq!(list("a,node[1-2,5],10.0.0.1"), Ok("a node1 node2 node5 10.0.0.1".into()));
        assert_eq!(list("a"), Ok("a".into()));
        assert_eq!(list("a,,b"), Err(Unusable::Empty));
        assert_eq!(list("a[1-900000],b[1-900000]"), Err(Unusable::TooLong));
        assert_eq!(list("]a,b["), Ok("]a b".into()));
    }

    #[test]
    fn texts_are_told_apart() {
        let ports = [port("fec0:0:0:7::10")];
        let is = |text| identify(text, &ports);
        assert_eq!(is("10.0.0.1"), Destination::Address(Address::parse("10.0.0.1")));
        assert_eq!(is("fd77::1"), Destination::Address(Address::parse("fd77::1")));
        assert_eq!(is("fe80::10:3"), Destination::Gid(gid("fe80::10:3")));
        assert_eq!(is("fec0:0:0:7::11"), Destination::Gid(gid("fec0:0:0:7::11")));
        assert_eq!((is("17"), is("0x11")), (Destination::Lid(17), Destination::Lid(17)));
        for name in ["0", "49152", "65536", "node1", "0xzz", ""] {
            assert_eq!(is(name), Destination::Address(Address::Name(name.into())));
        }
    }

    #[test]
    fn requests_have_a_source_where_one_is_needed() {
        let ports = [Port { device_guid: 9, number: 2, ..port("fe80::1") }];
        let endpoints = [Endpoint {
            device_guid: 9,
            port: 2,
            ports: 2,
            pkey: 0xffff,
            provider: "".into(),
            addresses: vec!["10.0.0.1/8".into(), "here".into()],
        }];
        let ask = |d: Destination| d.request(&ports, &endpoints);
        let Request::Resolve { source, .. } = ask(identify("there", &ports)) else { panic!() };
        assert_eq!(source, Some(Address::Name("here".into())));
        let Request::Resolve { source, .. } = ask(identify("10.0.0.2", &ports)) else { panic!() };
        assert_eq!(source, None);
        for destination in ["fe80::2", "5"] {
            let Request::Path { record, .. } = ask(identify(destination, &ports)) else { panic!() };
            assert_eq!(record.sgid(), gid("fe80::1"));
            assert!(record.dlid() == 5 || record.dgid() == gid("fe80::2"));
        }
    }
}
