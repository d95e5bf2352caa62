//! Destinations and sources: what they look like, and what they are asked for as.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};
use libibacm::{Address, Request, look_up};

use crate::cli::Format;
use crate::expand::leading_number;
use crate::scope::Scoped;

/// A destination as it will be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The text to ask for: an address where the name has one.
    pub text: String,
    /// Never [`Format::Unspecified`].
    pub format: Format,
    /// The interface of this host that a link-local address holds on, where that is said.
    pub scope: Option<String>,
}

impl Destination {
    /// The address with its interface, if it is one.
    pub fn scoped(&self) -> Option<Scoped<'_>> {
        let ip = self.text.parse().ok().filter(|_| self.format == Format::Ip)?;
        Some(Scoped { ip, interface: self.scope.as_deref() })
    }
}

/// Finds what an argument is: an IP address, a name that the system has an address for, or a LID. A name whose look-up
/// takes longer than `limit` has none.
pub fn identify(argument: &str, format: Format, limit: Duration) -> Destination {
    let as_it_is = |format| Destination { text: argument.to_owned(), format, scope: None };
    let ip = |text: String, scope| Destination { text, format: Format::Ip, scope };
    if matches!(format, Format::Unspecified | Format::Ip)
        && let Some(Scoped { ip: address, interface: Some(scope) }) = Scoped::parse(argument)
    {
        return ip(ip_text(address), Some(scope.to_owned()));
    }
    if format != Format::Unspecified {
        return as_it_is(format);
    }
    if argument.parse::<IpAddr>().is_ok() {
        return as_it_is(Format::Ip);
    }
    match look_up(argument, 0, limit).ok().and_then(|found| found.into_iter().next()) {
        Some(address) => ip(ip_text(address.ip()), number_of_scope(&address)),
        None => as_it_is(Format::Lid),
    }
}

/// The number of the interface that a link-local address of the system's resolver is on.
fn number_of_scope(address: &SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id().to_string()),
        _ => None,
    }
}

/// Why an address cannot be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The source is no address of the format.
    Source,
    /// The destination is none.
    Destination,
    /// One is IPv4 and one IPv6.
    Families,
    /// LID 0 or the GID `::`, which no port has.
    Nowhere,
}

/// The request for a path.
pub fn request(destination: &Destination, source: Option<&str>, cached_only: bool) -> Result<Request, Unfit> {
    let text = destination.text.as_str();
    match destination.format {
        Format::Ip | Format::Unspecified => {
            let source = source.map(|s| s.parse::<IpAddr>().map_err(|_| Unfit::Source)).transpose()?;
            let to: IpAddr = text.parse().map_err(|_| Unfit::Destination)?;
            if source.is_some_and(|s| s.is_ipv4() != to.is_ipv4()) {
                return Err(Unfit::Families);
            }
            Ok(Request::Resolve { source: source.map(Address::Ip), destination: Address::Ip(to), cached_only })
        }
        Format::Name => Ok(Request::Resolve {
            source: source.map(|s| Address::Name(s.into())),
            destination: Address::Name(text.into()),
            cached_only,
        }),
        Format::Lid => {
            let mut record = PathRecord::default();
            if let Some(source) = source {
                record.set_slid(leading_number(source) as u16);
            }
            record.set_dlid(leading_number(text) as u16);
            path_request(record, cached_only)
        }
        Format::Gid => {
            let gid = |text: &str| text.parse().map(|ip: Ipv6Addr| Gid(ip.octets()));
            let mut record = PathRecord::default();
            if let Some(source) = source {
                record.set_sgid(gid(source).map_err(|_| Unfit::Source)?);
            }
            record.set_dgid(gid(text).map_err(|_| Unfit::Destination)?);
            path_request(record, cached_only)
        }
    }
}

fn path_request(mut record: PathRecord, cached_only: bool) -> Result<Request, Unfit> {
    if record.dlid() == 0 && record.dgid().is_zero() {
        return Err(Unfit::Nowhere);
    }
    record.set_reversible_numpath(REVERSIBLE | 1);
    Ok(Request::Path { record, query_sa: false, cached_only })
}

/// An address as `inet_ntop` writes it.
pub fn ip_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => ip6_text(v6),
    }
}

/// The same for IPv6 addresses and GIDs. The standard library writes those that hold an IPv4 address in hexadecimal.
pub fn ip6_text(ip: Ipv6Addr) -> String {
    match (ip.segments(), ip.octets()) {
        ([0, 0, 0, 0, 0, 0, high, _], [.., a, b, c, d]) if high != 0 => format!("::{a}.{b}.{c}.{d}"),
        _ => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn what_an_argument_is() {
        let is = |argument: &str| identify(argument, Format::Unspecified, LIMIT).format;
        assert_eq!(is("10.0.0.1"), Format::Ip);
        assert_eq!(is("fd00::1"), Format::Ip);
        assert_eq!(is("no.such.name.invalid"), Format::Lid);
        assert_eq!(identify("5", Format::Unspecified, LIMIT).text, "0.0.0.5", "as the resolver reads it");
        assert_eq!(identify("10.0.0.1", Format::Name, LIMIT).format, Format::Name);
        for format in [Format::Unspecified, Format::Ip] {
            let scoped = identify("fe80::1%ib0", format, LIMIT);
            assert_eq!((scoped.text.as_str(), scoped.format), ("fe80::1", Format::Ip));
            assert_eq!(scoped.scope.as_deref(), Some("ib0"));
        }
        assert_eq!(identify("fe80::1%ib0", Format::Name, LIMIT).scope, None, "a name may be called so");
    }

    #[test]
    fn addresses_are_written_as_c_writes_them() {
        for text in ["::", "::1", "::1.2.3.4", "::ffff:1.2.3.4", "fe80::10:3", "fd77:0:0:1::5", "1::", "0:0:1::"] {
            assert_eq!(ip6_text(text.parse().unwrap()), text);
        }
    }

    #[test]
    fn unfit_addresses() {
        let ask = |to: &str, format, from| request(&identify(to, format, LIMIT), from, false).map(drop);
        assert_eq!(ask("x", Format::Ip, None), Err(Unfit::Destination));
        assert_eq!(ask("10.0.0.1", Format::Ip, Some("x")), Err(Unfit::Source));
        assert_eq!(ask("10.0.0.1", Format::Ip, Some("::1")), Err(Unfit::Families));
        assert_eq!(ask("10.0.0.1", Format::Gid, None), Err(Unfit::Destination));
        assert_eq!(ask("fe80::1", Format::Gid, Some("5")), Err(Unfit::Source));
        assert_eq!(ask("x", Format::Lid, Some("y")), Err(Unfit::Nowhere));
        assert_eq!(ask("5x", Format::Lid, Some("y")), Ok(()));
        assert_eq!(ask("::", Format::Gid, None), Err(Unfit::Nowhere));
    }
}
