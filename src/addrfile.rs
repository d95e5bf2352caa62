//! The address file, `ibacm_addr.cfg`: lines of `name device port pkey`, the names of this host's endpoints.
//!
//! Pure: bytes in, entries and findings out. Where there is no file, [`default_entries`] gives what would stand in it.

use crate::options::Finding;
use crate::options::text::{Findings, each_line, quote};
use crate::sorted::{sort_by, sort_by_key};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name of an endpoint, in bytes: the protocol's 64 less a terminator.
pub const MAX_NAME: usize = 63;
/// Longest name of a device, in bytes (`IBV_SYSFS_NAME_MAX` less its terminator).
pub const MAX_DEVICE: usize = 63;
/// Most entries that are kept of one file.
pub const MAX_ENTRIES: usize = 65_536;
/// Most devices and ports that are named as absent.
const MAX_ABSENT: usize = 64;
/// Highest number that a port of a channel adapter can have.
const MAX_PORT: u8 = 254;

/// What an endpoint is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddrName {
    /// A name of 1 to [`MAX_NAME`] bytes without NUL; compares without case.
    Name(Vec<u8>),
    /// An IPv4 address (only where the options allow it).
    Ip4(Ipv4Addr),
    /// An IPv6 address (only where the options allow it).
    Ip6(Ipv6Addr),
}

/// Which partition of the port an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrPkey {
    /// The first of the port's table.
    Default,
    /// This one, in host order; bit 15 says nothing about which partition it is.
    Value(u16),
}

/// One line of the address file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddrEntry {
    /// What the endpoint is called.
    pub name: AddrName,
    /// The verbs device's name, 1 to [`MAX_DEVICE`] bytes; compares without case.
    pub device: Vec<u8>,
    /// The device's port, from 1.
    pub port: u8,
    /// The partition.
    pub pkey: AddrPkey,
    /// Where it stands in the file, from 1; 0 if there is no file.
    pub line: usize,
}

impl fmt::Display for AddrEntry {
    /// As a line of the file, without its newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            AddrName::Name(name) => write!(f, "{}", String::from_utf8_lossy(name))?,
            AddrName::Ip4(address) => write!(f, "{address}")?,
            AddrName::Ip6(address) => write!(f, "{address}")?,
        }
        write!(f, " {} {} ", String::from_utf8_lossy(&self.device), self.port)?;
        match self.pkey {
            AddrPkey::Default => f.write_str("default"),
            AddrPkey::Value(pkey) => write!(f, "{pkey:#06x}"),
        }
    }
}

/// The entries of an address file, and what is wrong in it; `file` is only for the findings.
///
/// A line that cannot be used is left out whole. `allow_ip` is the option `support_ips_in_addr_cfg`.
pub fn parse(bytes: &[u8], file: &str, allow_ip: bool) -> (Vec<AddrEntry>, Vec<Finding>) {
    let mut entries = Vec::new();
    let mut findings = Findings::new(file);
    each_line(bytes, 5, &mut findings, |number, tokens, findings| {
        let &[name, device, port, pkey, ref extra @ ..] = tokens else {
            findings.warn(number, String::from("expected 'name device port pkey': ignored"));
            return;
        };
        let parsed = entry(number, name, device, port, pkey, allow_ip);
        match parsed {
            Ok(_) if entries.len() == MAX_ENTRIES => {
                findings.warn(number, format!("more than {MAX_ENTRIES} entries: ignored"));
            }
            Ok(entry) => {
                entries.push(entry);
                if let Some(extra) = extra.first() {
                    findings.warn(number, format!("{} after the pkey is ignored", quote(extra)));
                }
            }
            Err(problem) => findings.warn(number, format!("{problem}: ignored")),
        }
    });
    (entries, findings.into_vec())
}

fn entry(
    line: usize,
    name: &[u8],
    device: &[u8],
    port: &[u8],
    pkey: &[u8],
    allow_ip: bool,
) -> Result<AddrEntry, String> {
    let too_long = |what, token: &[u8], most| format!("{what} of {} bytes, at most {most} are allowed", token.len());
    let address = std::str::from_utf8(name).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let parsed_name = match address {
        Some(_) if !allow_ip => {
            return Err(format!("IP address {} without the option support_ips_in_addr_cfg", quote(name)));
        }
        Some(IpAddr::V4(address)) => AddrName::Ip4(address),
        Some(IpAddr::V6(address)) => AddrName::Ip6(address),
        None if name.len() > MAX_NAME => return Err(too_long("name", name, MAX_NAME)),
        None => AddrName::Name(name.to_vec()),
    };
    if device.len() > MAX_DEVICE {
        return Err(too_long("device name", device, MAX_DEVICE));
    }
    let port_number = std::str::from_utf8(port)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|number| (1..=MAX_PORT).contains(number))
        .ok_or_else(|| format!("bad port {}, expected 1 to {MAX_PORT}", quote(port)))?;
    let partition = parse_pkey(pkey)
        .ok_or_else(|| format!("bad pkey {}, expected 'default' or hexadecimal 0x0001 to 0xffff", quote(pkey)))?;
    Ok(AddrEntry { name: parsed_name, device: device.to_vec(), port: port_number, pkey: partition, line })
}

/// `default`, or hexadecimal with or without `0x`. Partition 0 is no partition, with either membership.
fn parse_pkey(token: &[u8]) -> Option<AddrPkey> {
    if token.eq_ignore_ascii_case(b"default") {
        return Some(AddrPkey::Default);
    }
    let text = std::str::from_utf8(token).ok()?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // from_str_radix would take a sign here.
    if digits.starts_with('+') {
        return None;
    }
    let pkey = u16::from_str_radix(digits, 16).ok()?;
    (pkey & 0x7fff != 0).then_some(AddrPkey::Value(pkey))
}

/// A port of an InfiniBand device, for [`default_entries`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbPort {
    /// The verbs device's name.
    pub device: Vec<u8>,
    /// Port number, from 1.
    pub port: u8,
    /// Whether the port is ACTIVE now.
    pub active: bool,
}

/// The entries of a host that has no address file: `host` for its first active port, and `host-N` for the N-th port.
///
/// `hostname` is cut at its first dot, and further where `-N` would not fit otherwise; an empty one gives no entries.
/// `ports` are the InfiniBand ports only, in the order of the devices. A port is named whether it is active or not, so
/// that its name doesn't depend on which other ports happen to be up.
pub fn default_entries(hostname: &[u8], ports: &[IbPort]) -> Vec<AddrEntry> {
    let Some(host) = hostname.split(|&b| b == b'.').find(|part| !part.is_empty()) else {
        return Vec::new();
    };
    let named = |suffix: &str, port: &IbPort| {
        let mut name = host[..host.len().min(MAX_NAME - suffix.len())].to_vec();
        name.extend_from_slice(suffix.as_bytes());
        let (name, device) = (AddrName::Name(name), port.device.clone());
        AddrEntry { name, device, port: port.port, pkey: AddrPkey::Default, line: 0 }
    };
    let first_active = ports.iter().find(|port| port.active).map(|port| named("", port));
    let numbered = ports.iter().take(MAX_ENTRIES).zip(1u32..).map(|(port, n)| named(&format!("-{n}"), port));
    first_active.into_iter().chain(numbered).collect()
}

/// A line for each device or port that entries name and that is not among `ports`: it may be misspelt, or come later.
/// A host without any port gets none.
pub fn absent(entries: &[AddrEntry], ports: &[IbPort], file: &str) -> Vec<String> {
    if ports.is_empty() {
        return Vec::new();
    }
    let has_device = |e: &AddrEntry| ports.iter().any(|p| p.device.eq_ignore_ascii_case(&e.device));
    let has_port = |e: &AddrEntry| ports.iter().any(|p| p.device.eq_ignore_ascii_case(&e.device) && p.port == e.port);
    // device, and port if it is the port that is not here; the first line and how many
    type Place = (Vec<u8>, Option<u8>);
    let place = |e: &AddrEntry| -> Place { (e.device.to_ascii_lowercase(), has_device(e).then_some(e.port)) };
    let mut places: Vec<(Place, &AddrEntry, usize)> =
        entries.iter().filter(|e| !has_port(e)).map(|e| (place(e), e, 1)).collect();
    sort_by(&mut places, |a, b| a.0.cmp(&b.0));
    places.dedup_by(|later, first| {
        let same = later.0 == first.0;
        first.2 += usize::from(same);
        same
    });
    sort_by_key(&mut places, |(_, first, _)| first.line);
    let left_out = places.len().saturating_sub(MAX_ABSENT);
    let hints = places.into_iter().take(MAX_ABSENT).map(|((_, port), first, count)| {
        let what = match port {
            None => format!("no device {} here now", quote(&first.device)),
            Some(port) => format!("no InfiniBand port {port} on {} here now", quote(&first.device)),
        };
        let more = if count > 1 { format!(" ({count} lines name it)") } else { String::new() };
        format!("{file}:{}: {what}: served when it comes{more}", first.line)
    });
    let rest = (left_out > 0).then(|| format!("{file}: {left_out} more devices or ports are not here now"));
    hints.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8], allow_ip: bool) -> (Vec<String>, Vec<String>) {
        let (entries, findings) = parse(text, "a.cfg", allow_ip);
        (entries.iter().map(ToString::to_string).collect(), findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn good_lines() {
        let (entries, findings) = parsed(
            b"# c d 1 default\n\nnode1 mlx5_0 1 default\r\n  node1-b\tmlx5_0 2 0x8001 # comment\nNode2 X 254 7FFF\nlast d 1 DEFAULT",
            false,
        );
        assert_eq!(
            entries,
            ["node1 mlx5_0 1 default", "node1-b mlx5_0 2 0x8001", "Node2 X 254 0x7fff", "last d 1 default"]
        );
        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn what_is_not_here_is_named_once() {
        let port = |device: &str, port| IbPort { device: device.into(), port, active: false };
        let (entries, _) =
            parse(b"# x\na MLX5_0 1 default\nb mlx5_0 2 8001\nc mlx5_7 1 default\nd mlx5_7 2 1", "a.cfg", false);
        let here = [port("mlx5_0", 1)];
        let hints = absent(&entries, &here, "a.cfg");
        assert_eq!(
            hints,
            [
                "a.cfg:3: no InfiniBand port 2 on 'mlx5_0' here now: served when it comes",
                "a.cfg:4: no device 'mlx5_7' here now: served when it comes (2 lines name it)",
            ]
        );
        assert_eq!(absent(&entries, &[], "a.cfg"), [""; 0], "nothing is here at all, which is another matter");
        let many: String = (0..1000).map(|i| format!("n{i} dev{i} 1 default\n")).collect();
        let hints = absent(&parse(many.as_bytes(), "a.cfg", false).0, &here, "a.cfg");
        assert_eq!((hints.len(), hints[64].as_str()), (65, "a.cfg: 936 more devices or ports are not here now"));
    }

    #[test]
    fn bad_lines_are_left_out_and_named() {
        let long = [&[b'd'; 64][..], b" dev 1 default\n"].concat();
        let long_device = [b"n ", &[b'd'; 64][..], b" 1 default\n"].concat();
        for bad in [
            &b"name\n"[..],
            b"name dev 1\n",
            b"name dev 0 default\n",
            b"name dev 255 default\n",
            b"name dev 256 default\n",
            b"name dev -1 default\n",
            b"name dev x default\n",
            b"name dev 1 0x\n",
            b"name dev 1 0x10000\n",
            b"name dev 1 xyz\n",
            b"name dev 1 -1\n",
            b"name dev 1 +1\n",
            b"name dev 1 0\n",
            b"name dev 1 0x8000\n",
            b"name dev 1 0x1 2\n",
            b"na\0me dev 1 default\n",
            b"10.0.0.1 dev 1 default\n",
            b"fe80::1 dev 1 default\n",
            &long,
            &long_device,
            b"name dev 1 #default\n",
        ] {
            let (entries, findings) = parsed(&[b"\n", bad, b"ok dev 1 default"].concat(), false);
            let extra = bad.ends_with(b"0x1 2\n");
            assert_eq!(entries.len(), if extra { 2 } else { 1 }, "{}", bad.escape_ascii());
            assert_eq!(findings.len(), 1, "{}", bad.escape_ascii());
            assert!(findings[0].starts_with("a.cfg:2: "), "{findings:?}");
        }
    }

    #[test]
    fn names_keep_all_their_63_bytes() {
        for length in [31, 32, 33, 45, 46, 47, 62, 63] {
            let name = vec![b'n'; length];
            let (entries, findings) = parse(&[&name[..], b" ", &name, b" 1 default"].concat(), "f", false);
            assert!(findings.is_empty());
            assert_eq!(entries[0].name, AddrName::Name(name.clone()));
            assert_eq!(entries[0].device, name);
        }
    }

    #[test]
    fn addresses_where_allowed() {
        let (entries, findings) =
            parse(b"10.0.0.1 d 1 ffff\nfe80::1 d 1 ffff\n10.0.0 d 1 ffff\n10.0.0.256 d 1 1\n", "f", true);
        assert!(findings.is_empty());
        assert_eq!(entries[0].name, AddrName::Ip4(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(entries[1].name, AddrName::Ip6("fe80::1".parse().unwrap()));
        assert_eq!(entries[2].name, AddrName::Name(b"10.0.0".to_vec()), "what is no address is a name");
        assert_eq!(entries[3].pkey, AddrPkey::Value(1));
    }

    fn ib(device: &str, port: u8, active: bool) -> IbPort {
        IbPort { device: device.into(), port, active }
    }

    #[test]
    fn generated_names() {
        let ports = [ib("mlx5_0", 1, false), ib("mlx5_0", 2, true), ib("mlx5_1", 1, true)];
        let shown = |host: &[u8], ports: &[IbPort]| {
            default_entries(host, ports).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(b"node7.example.org", &ports),
            [
                "node7 mlx5_0 2 default",
                "node7-1 mlx5_0 1 default",
                "node7-2 mlx5_0 2 default",
                "node7-3 mlx5_1 1 default"
            ]
        );
        assert_eq!(shown(b"n", &ports[..1]), ["n-1 mlx5_0 1 default"], "no port is active");
        assert!(shown(b"", &ports).is_empty());
        assert!(shown(b"...", &ports).is_empty());
        assert!(shown(b"n", &[]).is_empty());
    }

    #[test]
    fn generated_names_fit() {
        let ports = vec![ib("d", 1, true); 120];
        let entries = default_entries(&[b'h'; 64], &ports);
        assert_eq!(entries.len(), 121);
        let AddrName::Name(last) = &entries[120].name else { panic!("not a name") };
        assert_eq!(last.len(), MAX_NAME);
        assert!(last.ends_with(b"h-120"));
    }
}
