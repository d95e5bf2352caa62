//! Link-local addresses with the interface that they hold on, `fe80::1%ib0`.
//!
//! The protocol has no room for an interface: the service knows its endpoints by their addresses. So a request names an
//! own address of the interface as its source, one that no other endpoint has, and an answer that comes from elsewhere
//! all the same is none.

use std::cell::OnceCell;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ibacm::rtnl;
use ibacm_wire::{Gid, PathRecord};

use crate::address::ip_text;
use crate::check::facts::{self, Interface};
use crate::fault::Fault;

/// Interfaces that a failure names at most.
const MAX_NAMED: usize = 16;

/// An address, and the interface behind its `%` if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scoped<'a> {
    /// The address.
    pub ip: IpAddr,
    /// Name or number of an interface of this host.
    pub interface: Option<&'a str>,
}

impl<'a> Scoped<'a> {
    /// The address in a text, if one is in it.
    pub fn parse(text: &'a str) -> Option<Scoped<'a>> {
        let (ip, interface) = text.split_once('%').map_or((text, None), |(ip, interface)| (ip, Some(interface)));
        Some(Scoped { ip: ip.parse().ok()?, interface })
    }
}

/// The interfaces of this host, looked at when the first address needs them.
#[derive(Default)]
pub struct Interfaces(OnceCell<Result<Vec<Interface>, String>>);

impl Interfaces {
    fn get(&self) -> Result<&[Interface], Fault> {
        match self.0.get_or_init(facts::interfaces) {
            Ok(interfaces) => Ok(interfaces),
            Err(e) => Err(Fault::local(libc::EIO, &format!("interfaces cannot be listed: {e}"), "look into dmesg")),
        }
    }

    /// The link that is meant by two addresses; none, where neither says.
    pub fn link(&self, destination: Scoped<'_>, source: Option<Scoped<'_>>) -> Result<Option<Link>, Fault> {
        let Some(scope) = destination.interface.or_else(|| source?.interface) else { return Ok(None) };
        link(self.get()?, scope, destination, source).map(Some)
    }

    /// The link of an own address that says which.
    pub fn link_of(&self, own: Scoped<'_>) -> Result<Link, Fault> {
        link(self.get()?, own.interface.unwrap_or_default(), Scoped { interface: None, ..own }, Some(own))
    }
}

/// A link: an interface, and an own address that stands for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface's name.
    pub interface: String,
    /// The address that requests are to come from.
    pub source: IpAddr,
    /// What was meant, where another interface has that too.
    pub instead_of: Option<IpAddr>,
    gid: Gid,
    pkey: Option<u16>,
}

impl Link {
    /// Whether a path begins here.
    pub fn has(&self, path: &PathRecord) -> bool {
        // The interface may have the subnet prefix from before the subnet manager came.
        path.sgid().interface_id() == self.gid.interface_id()
            && self.pkey.is_none_or(|pkey| (pkey ^ path.pkey()) & 0x7fff == 0)
    }

    /// For a path that begins elsewhere.
    pub fn missed(&self, path: &PathRecord) -> Fault {
        let text = format!(
            "the service has answered from {} in partition {:#06x}, which is not {}",
            path.sgid(),
            path.pkey(),
            self.interface
        );
        Fault::local(libc::EADDRNOTAVAIL, &text, "ib_acme -e shows which endpoint has which addresses")
    }

    /// What to do where the service does not know the source.
    pub fn unserved(&self) -> String {
        let (source, interface) = (ip_text(self.source), &self.interface);
        format!(
            "the service has no endpoint with {source}, the address of {interface}: is the interface up, its port \
             active, and the service this host's? ib_acme -e lists what it has"
        )
    }
}

/// The link on the interface `scope` that a destination is on, from an own address if that is given.
pub fn link(
    all: &[Interface],
    scope: &str,
    destination: Scoped<'_>,
    source: Option<Scoped<'_>>,
) -> Result<Link, Fault> {
    for scoped in [Some(destination), source].into_iter().flatten().filter(|s| s.interface.is_some()) {
        if !is_link_local(scoped.ip) {
            let (ip, scope) = (ip_text(scoped.ip), scoped.interface.unwrap_or_default());
            let text = format!("'{ip}%{scope}': only link-local addresses (fe80::/10) hold on one interface");
            let advice = format!("leave %{scope} away; -s says which address of this host is asked from");
            return Err(Fault::local(libc::EINVAL, &text, &advice));
        }
    }
    let here = find(all, scope)?;
    if let Some(other) = source.and_then(|s| s.interface) {
        let other = find(all, other)?;
        if other.name != here.name {
            let text = format!("source and destination are on two interfaces, {} and {}", other.name, here.name);
            let advice = "a link-local address is reached from its own interface only";
            return Err(Fault::local(libc::EINVAL, &text, advice));
        }
    }
    let own = || here.addresses.iter().map(|(ip, _)| *ip);
    let name = &here.name;
    let wanted = match source {
        Some(source) => own().find(|ip| *ip == source.ip).ok_or_else(|| {
            let text = format!("{} is not an address of {name}", ip_text(source.ip));
            Fault::local(libc::EADDRNOTAVAIL, &text, &format!("ip addr show dev {name} lists them"))
        })?,
        None => own().find(|ip| is_link_local(*ip)).ok_or_else(|| {
            let text = format!("{name} has no link-local address to ask from");
            let advice =
                format!("set it up (ip link set {name} up), or give it one (ip addr add fe80::N/64 dev {name})");
            Fault::local(libc::EADDRNOTAVAIL, &text, &advice)
        })?,
    };
    // A child interface usually has the link-local address of its parent.
    let elsewhere = |i: &&Interface| !is_one_endpoint(i, here);
    let is_shared =
        |ip: IpAddr| all.iter().filter(elsewhere).any(|i| i.addresses.iter().any(|(other, _)| *other == ip));
    let mut others: Vec<IpAddr> = own().filter(|ip| *ip != wanted).collect();
    others.sort_by_key(IpAddr::is_ipv4);
    let source = std::iter::once(wanted).chain(others).find(|ip| !is_shared(*ip)).ok_or_else(|| {
        let text =
            format!("{name} has no address that no other interface has: the service cannot be told which is meant");
        let advice = format!("give it one of its own (ip addr add ADDRESS/LENGTH dev {name})");
        Fault::local(libc::EADDRNOTAVAIL, &text, &advice)
    })?;
    let instead_of = (source != wanted).then_some(wanted);
    Ok(Link { interface: name.clone(), source, instead_of, gid: here.gid, pkey: here.pkey })
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether two interfaces are of one port and partition, which the service does not tell apart.
fn is_one_endpoint(a: &Interface, b: &Interface) -> bool {
    let partition = match (a.pkey, b.pkey) {
        (Some(a), Some(b)) => (a ^ b) & 0x7fff == 0,
        (a, b) => a == b,
    };
    a.name == b.name || partition && a.gid.interface_id() == b.gid.interface_id()
}

fn find<'a>(all: &'a [Interface], scope: &str) -> Result<&'a Interface, Fault> {
    let number = scope.parse::<u32>().ok();
    let is = |i: &&Interface| i.name == scope || number.is_some() && number == number_of(&i.name);
    all.iter().find(is).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).take(MAX_NAMED).collect();
        let advice = match names.as_slice() {
            [] => "this host has none (modprobe ib_ipoib; ip link)".to_owned(),
            names => format!("those that it has: {}", names.join(", ")),
        };
        Fault::local(libc::ENODEV, &format!("this host has no IPoIB interface '{scope}'"), &advice)
    })
}

fn number_of(interface: &str) -> Option<u32> {
    fs::read_to_string(Path::new(rtnl::SYSFS_NET).join(interface).join("ifindex")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, id: u8, pkey: u16, addresses: &[&str]) -> Interface {
        let mut gid = Gid([0; 16]);
        gid.0[15] = id;
        Interface {
            name: name.to_owned(),
            gid,
            pkey: Some(pkey),
            is_up: None,
            carrier: None,
            addresses: addresses.iter().map(|a| (a.parse().expect("an address"), 64)).collect(),
        }
    }

    fn of(to: &str, from: Option<&str>) -> Result<(String, String), String> {
        let all = [
            interface("ib0", 1, 0xffff, &["10.77.0.1", "fd77::1", "fe80::1"]),
            interface("ib0.8001", 1, 0x8001, &["fe80::1", "10.9.0.1", "fd09::1"]),
            interface("ib0.8002", 1, 0x8002, &["fe80::1"]),
            interface("ib1", 2, 0xffff, &["fd78::1", "fe80::2"]),
            interface("ib2", 3, 0xffff, &["fd79::1"]),
        ];
        let (to, from) = (Scoped::parse(to).expect("it is one"), from.and_then(Scoped::parse));
        let scope = to.interface.or_else(|| from?.interface).expect("one has it");
        let found = link(&all, scope, to, from);
        found.map(|l| (l.interface, ip_text(l.source))).map_err(|f| f.text)
    }

    fn is(interface: &str, source: &str) -> Result<(String, String), String> {
        Ok((interface.to_owned(), source.to_owned()))
    }

    #[test]
    fn a_scope_is_an_own_address_of_its_interface() {
        assert_eq!(of("fe80::cc%ib1", None), is("ib1", "fe80::2"));
        assert_eq!(of("fe80::cc%ib1", Some("fe80::2")), is("ib1", "fe80::2"));
        assert_eq!(of("fe80::cc%ib1", Some("fd78::1")), is("ib1", "fd78::1"));
        assert_eq!(of("fe80::cc", Some("fe80::2%ib1")), is("ib1", "fe80::2"));
        assert_eq!(of("fe80::cc%ib1", Some("fe80::2%ib1")), is("ib1", "fe80::2"));
        // What parent and child share says nothing.
        assert_eq!(of("fe80::cc%ib0", None), is("ib0", "fd77::1"));
        assert_eq!(of("fe80::cc%ib0.8001", None), is("ib0.8001", "fd09::1"));
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        for (to, from, why) in [
            ("fe80::cc%ib9", None, "no IPoIB interface 'ib9'"),
            ("fe80::cc%", None, "no IPoIB interface ''"),
            ("fd77::2%ib0", None, "only link-local"),
            ("10.77.0.2%ib0", None, "only link-local"),
            ("fe80::cc%ib2", None, "ib2 has no link-local address"),
            ("fe80::cc%ib0.8002", None, "no address that no other interface has"),
            ("fe80::cc%ib1", Some("fe80::1"), "fe80::1 is not an address of ib1"),
            ("fe80::cc%ib1", Some("fe80::1%ib0"), "two interfaces, ib0 and ib1"),
            ("fe80::cc", Some("fd77::1%ib0"), "only link-local"),
        ] {
            let said = of(to, from).expect_err(to);
            assert!(said.contains(why), "{to}: {said}");
        }
    }

    #[test]
    fn paths_from_elsewhere_are_told() {
        let all = [interface("ib0", 1, 0xffff, &["fe80::1"]), interface("ib0.8001", 1, 0x8001, &["fe80::2"])];
        let to = Scoped::parse("fe80::cc%ib0").expect("an address");
        let link = link(&all, "ib0", to, None).expect("there is one");
        let mut path = PathRecord::default();
        path.set_sgid(all[0].gid);
        path.set_pkey(0x7fff);
        assert!(link.has(&path));
        path.set_pkey(0x8001);
        assert!(!link.has(&path) && link.missed(&path).text.contains("which is not ib0"));
        path.set_pkey(0xffff);
        path.set_sgid(Gid([9; 16]));
        assert!(!link.has(&path));
    }
}
