//! The address file (`addr_preload acm_hosts`): lines of `name|IPv4|IPv6 GID`.

use std::net::{IpAddr, Ipv6Addr};

use ibacm_wire::Gid;

use crate::addr::Addr;
use crate::addrfile::MAX_NAME;
use crate::options::Finding;
use crate::options::text::{Findings, each_line, quote};
use crate::sorted::sort_by;

/// Most addresses that are kept of one file.
const MAX_HOSTS: usize = 262_144;

/// An address and its GID.
#[derive(Debug)]
struct Host {
    /// Where the address's bytes are.
    start: u32,
    kind: u8,
    len: u8,
    gid: [u8; 16],
}

/// Addresses with their GIDs, sorted: the file is looked into once for an address, before that goes into a cache.
#[derive(Debug, Default)]
pub struct Hosts {
    list: Vec<Host>,
    bytes: Vec<u8>,
}

impl Hosts {
    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of memory that this takes.
    pub fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Host>() + self.bytes.capacity()
    }

    fn key(&self, h: &Host) -> (u8, &[u8]) {
        let start = h.start as usize;
        (h.kind, self.bytes.get(start..start + usize::from(h.len)).unwrap_or_default())
    }

    /// The GID of an address.
    pub fn find(&self, addr: &Addr) -> Option<Gid> {
        let wanted = (addr.kind() as u8, addr.as_bytes());
        let place = self.list.binary_search_by(|h| self.key(h).cmp(&wanted)).ok()?;
        self.list.get(place).map(|h| Gid(h.gid))
    }
}

/// The addresses of a file, and what is wrong in it; `file` is only for the findings. Of several lines for one address
/// the last holds.
pub fn parse_hosts(bytes: &[u8], file: &str) -> (Hosts, Vec<Finding>) {
    let mut findings = Findings::new(file);
    let mut hosts = Hosts::default();
    let mut lines: Vec<(usize, Host)> = Vec::new();
    each_line(bytes, 3, &mut findings, |number, tokens, findings| {
        let parsed = match *tokens {
            [address, gid, ..] => host(address, gid),
            _ => Err(String::from("expected 'name GID' or 'address GID'")),
        };
        match parsed {
            Ok(_) if lines.len() == MAX_HOSTS => {
                findings.warn(number, format!("more than {MAX_HOSTS} addresses: ignored"));
            }
            Ok((addr, gid)) => {
                let (start, bytes) = (hosts.bytes.len() as u32, addr.as_bytes());
                hosts.bytes.extend_from_slice(bytes);
                lines.push((number, Host { start, kind: addr.kind() as u8, len: bytes.len() as u8, gid: gid.0 }));
                if let Some(extra) = tokens.get(2) {
                    findings.warn(number, format!("{} after the GID is ignored", quote(extra)));
                }
            }
            Err(problem) => findings.warn(number, format!("{problem}: ignored")),
        }
    });
    // the last line for an address comes first among its equals and stays
    sort_by(&mut lines, |(n, a), (m, b)| hosts.key(a).cmp(&hosts.key(b)).then(m.cmp(n)));
    lines.dedup_by(|(number, later), (_, kept)| {
        let same = hosts.key(later) == hosts.key(kept);
        if same && later.gid != kept.gid {
            findings.warn(*number, String::from("the address has another GID further down: ignored"));
        }
        same
    });
    hosts.list = lines.into_iter().map(|(_, h)| h).collect();
    hosts.list.shrink_to_fit();
    hosts.bytes.shrink_to_fit();
    (hosts, findings.into_vec())
}

fn host(address: &[u8], gid: &[u8]) -> Result<(Addr, Gid), String> {
    let text = |token| std::str::from_utf8(token).ok();
    let gid = match text(gid).and_then(|t| t.parse::<Ipv6Addr>().ok()).map(|a| Gid(a.octets())) {
        Some(g) if g.interface_id() != 0 && !g.is_multicast() => g,
        _ => return Err(format!("{} is not the GID of a port", quote(gid))),
    };
    match text(address).and_then(|t| t.parse::<IpAddr>().ok()) {
        Some(ip) => Ok((Addr::ip(ip), gid)),
        None if address.len() > MAX_NAME => {
            Err(format!("name of {} bytes, at most {MAX_NAME} are allowed", address.len()))
        }
        None => Ok((Addr::name(address), gid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    fn parse(text: &[u8]) -> (Hosts, Vec<String>) {
        let (hosts, findings) = parse_hosts(text, "f");
        (hosts, findings.iter().map(ToString::to_string).collect())
    }

    fn ip(text: &str) -> Addr {
        Addr::ip(text.parse().unwrap())
    }

    #[test]
    fn names_and_addresses_have_gids() {
        let text = "# address GID\r\n10.77.0.2 fe80::2:c903:0:2\r\n\nfd77::2\tfe80::2:c903:0:2\n\
                    Node-2.Example fe80::2:c903:0:2 # spare\n10.77.0.3 fe80::3";
        let (h, findings) = parse(text.as_bytes());
        assert_eq!(findings, [""; 0]);
        let two = Some(gid("fe80::2:c903:0:2"));
        assert_eq!((h.find(&ip("10.77.0.2")), h.find(&ip("fd77::2"))), (two, two));
        assert_eq!(h.find(&Addr::name(b"node-2.EXAMPLE")), two);
        assert_eq!(h.find(&ip("10.77.0.3")), Some(gid("fe80::3")));
        let absent = [ip("10.77.0.4"), ip("0.0.0.0"), ip("::"), Addr::name(b"node-2"), Addr::name(b""), Addr::lid(2)];
        assert!(absent.iter().all(|a| h.find(a).is_none()));
        assert_eq!(h.len(), 4);
    }

    #[test]
    fn bad_lines_cost_themselves() {
        let long = format!("{} fe80::1", "n".repeat(64));
        let endless = format!("a {}fe80::1", " ".repeat(5000));
        for (line, problem) in [
            ("h2", "expected 'name GID' or 'address GID'"),
            ("h2 10.77.0.2", "'10.77.0.2' is not the GID of a port"),
            ("h2 0xfe80", "'0xfe80' is not the GID of a port"),
            ("h2 fe80::", "'fe80::' is not the GID of a port"),
            ("h2 ::", "'::' is not the GID of a port"),
            ("h2 ff12:401b::1", "'ff12:401b::1' is not the GID of a port"),
            ("h2 fe80::2%ib0", "'fe80::2%ib0' is not the GID of a port"),
            (long.as_str(), "name of 64 bytes, at most 63 are allowed"),
            (endless.as_str(), "line of 5009 bytes"),
            ("a\0b fe80::1", "line with a NUL byte"),
        ] {
            let (h, findings) = parse(format!("h1 fe80::1\n{line}\nh3 fe80::3\n").as_bytes());
            assert!(findings.len() == 1 && findings[0].contains(problem), "{line}: {findings:?}");
            assert!(findings[0].starts_with("f:2: "), "{findings:?}");
            assert_eq!((h.len(), h.find(&Addr::name(b"h3"))), (2, Some(gid("fe80::3"))), "{line}");
        }
        let (h, findings) = parse(format!("{} fe80::1 more\n", "n".repeat(63)).as_bytes());
        assert_eq!((h.len(), findings.as_slice()), (1, &["f:1: warning: 'more' after the GID is ignored".into()][..]));
    }

    #[test]
    fn the_last_line_for_an_address_holds() {
        let (h, findings) = parse(b"A fe80::1\n10.0.0.1 fe80::1\na fe80::2\n10.0.0.1 fe80::1\nA fe80::3\n");
        assert_eq!((h.len(), h.find(&Addr::name(b"a"))), (2, Some(gid("fe80::3"))));
        let text = |n| format!("f:{n}: warning: the address has another GID further down: ignored");
        assert_eq!(findings, [text(3), text(1)]);
    }

    #[test]
    fn many_hosts_take_little_room() {
        let mut text = String::new();
        for n in 0..30_000u32 {
            let [_, b, c, d] = n.to_be_bytes();
            text += &format!("node{n:05}-ib0 fe80::{n:x}:1\n10.{b}.{c}.{d} fe80::{n:x}:1\nfd77::{n:x} fe80::{n:x}:1\n");
        }
        let begin = std::time::Instant::now();
        let (h, findings) = parse(text.as_bytes());
        let took = begin.elapsed();
        assert!(findings.is_empty() && took.as_secs() < 5, "{took:?} {findings:?}");
        assert_eq!((h.len(), h.find(&Addr::name(b"node29999-ib0"))), (90_000, Some(gid("fe80::752f:1"))));
        assert!(h.memory() <= 90_000 * 40, "{}", h.memory());
        println!("{} bytes read in {took:?}, {} kept", text.len(), h.memory());
    }

    #[test]
    fn noise_is_no_danger() {
        let mut rng = crate::keyed::Rng::new(crate::keyed::SipKey(3, 9));
        let text = b"h2 fe80::2\n10.77.0.2 fe80::2 x\nfd77::2 fe80::2\n# a\n";
        for _ in 0..3000 {
            let mut bytes = text.to_vec();
            for _ in 0..=rng.below(6) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            let (h, _) = parse(&bytes);
            assert!(h.len() <= 6);
            let _ = h.find(&Addr::name(b"h2"));
        }
    }
}
