//! Tests are written with IPv4 addresses. In the program `ipv6_suite` they run with the families exchanged: IPv6 in
//! every place of IPv4, and the other way round where a test has both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the families are exchanged.
pub const IPV6: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"ipv6_suite");

/// The first network of simulated hosts, 10.77.0.0/16 and fd77::/64; the next ones have 10.78, fd77:0:0:1 and so on.
const NET: u16 = 77;

/// The other family's address for one of a simulated host: 10.77.8.9 is fd77::8:9. The same digits stand for octets and
/// for groups, as in the hosts' own addresses. Broadcasts and whatever is no such address have no counterpart.
fn counterpart(address: IpAddr) -> Option<IpAddr> {
    let decimal_as_hex = |n: u16| u16::from_str_radix(&n.to_string(), 16).ok();
    let hex_as_decimal = |n: u16| format!("{n:x}").parse::<u8>().ok();
    match address {
        IpAddr::V4(v4) => {
            let [ten, net, high, low] = v4.octets().map(u16::from);
            let net = net.checked_sub(NET).filter(|_| ten == 10 && low != 255)?;
            let [net, high, low] = [decimal_as_hex(net)?, decimal_as_hex(high)?, decimal_as_hex(low)?];
            Some(Ipv6Addr::new(0xfd77, 0, 0, net, 0, 0, high, low).into())
        }
        IpAddr::V6(v6) => {
            let [0xfd77, 0, 0, net, 0, 0, high, low] = v6.segments() else { return None };
            let net = hex_as_decimal(net)?.checked_add(NET as u8)?;
            Some(Ipv4Addr::new(10, net, hex_as_decimal(high)?, hex_as_decimal(low)?).into())
        }
    }
}

/// An address as this program means it.
pub fn address(text: &str) -> IpAddr {
    let address: IpAddr = text.parse().expect("an address");
    if IPV6 { counterpart(address).unwrap_or(address) } else { address }
}

/// A word that may be an address, with the length of its prefix or without, as this program means it.
fn word(text: &str) -> String {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let Some(other) = address.parse().ok().and_then(counterpart).filter(|_| IPV6) else { return text.to_owned() };
    match (other, length) {
        (_, None) => other.to_string(),
        // A whole address, or a network.
        (IpAddr::V6(_), Some(length)) => format!("{other}/{}", if length == "32" { 128 } else { 64 }),
        (IpAddr::V4(_), Some(length)) => format!("{other}/{}", if length == "128" { 32 } else { 16 }),
    }
}

/// Text with addresses in it as this program means it. Words end at blanks and line ends.
pub fn here(text: &str) -> String {
    text.split_inclusive([' ', '\n'])
        .map(|piece| {
            let bare = piece.trim_end_matches([' ', '\n']);
            word(bare) + &piece[bare.len()..]
        })
        .collect()
}

/// A line for ip(8) as this program means it. A new IPv6 address is there at once, without a search for its double.
pub fn ip_command(line: &str) -> String {
    if !IPV6 {
        return line.to_owned();
    }
    let line = here(line);
    let line = line.trim_end_matches('\n').trim_end_matches(" nodad");
    let new = line.starts_with("addr add ") && line.contains(':');
    format!("{line}{}", if new { " nodad" } else { "" })
}
