//! What the subnet administrator itself says, by way of a program that asks it directly.

use std::net::Ipv6Addr;

use ibacm_wire::{Gid, PathRecord};

use super::{Lab, succeed};

/// The number in a field of saquery's: `name....value`.
fn field<'a>(said: &'a str, name: &str) -> &'a str {
    let line = said.lines().map(str::trim).find(|l| l.starts_with(&format!("{name}.")));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).trim_start_matches(name).trim_start_matches('.')
}

fn number(said: &str, name: &str) -> u64 {
    let text = field(said, name);
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|e| panic!("{name} {text}: {e}"))
}

fn gid(said: &str, name: &str) -> Gid {
    let address: Ipv6Addr = field(said, name).parse().expect("a GID is written like an IPv6 address");
    Gid(address.octets())
}

/// The path between two LIDs, all of it.
pub fn path(lab: &Lab<'_>, slid: u16, dlid: u16) -> PathRecord {
    let [slid, dlid] = [slid, dlid].map(|lid| lid.to_string());
    let said = succeed(lab.query("saquery").args(["PR", "--slid", &slid, "--dlid", &dlid]));
    let mut p = PathRecord::default();
    p.set_service_id(number(&said, "service_id"));
    p.set_dgid(gid(&said, "dgid"));
    p.set_sgid(gid(&said, "sgid"));
    p.set_dlid(number(&said, "dlid") as u16);
    p.set_slid(number(&said, "slid") as u16);
    p.set_flow_hop(number(&said, "hop_flow_raw") as u32);
    p.set_tclass(number(&said, "tclass") as u8);
    p.set_reversible_numpath(number(&said, "num_path_revers") as u8);
    p.set_pkey(number(&said, "pkey") as u16);
    p.set_qos_sl((number(&said, "qos_class") << 4 | number(&said, "sl")) as u16);
    p.set_mtu(number(&said, "mtu") as u8);
    p.set_rate(number(&said, "rate") as u8);
    p.set_packet_lifetime(number(&said, "pkt_life") as u8);
    p.set_preference(number(&said, "preference") as u8);
    p
}

/// What a multicast group's members share, as far as paths are built from it.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the architecture")]
pub struct Group {
    pub mlid: u16,
    pub mtu: u8,
    pub rate: u8,
    pub lifetime: u8,
    pub tclass: u8,
    pub pkey: u16,
    pub sl: u8,
}

/// The group with this GID.
pub fn group(lab: &Lab<'_>, mgid: &[u8; 16]) -> Group {
    let mgid = Ipv6Addr::from(*mgid).to_string();
    let said = succeed(lab.query("saquery").args(["MCMR", "--mgid", &mgid]));
    Group {
        mlid: number(&said, "mlid") as u16,
        mtu: number(&said, "mtu") as u8,
        rate: number(&said, "rate") as u8,
        lifetime: number(&said, "pkt_life") as u8,
        tclass: number(&said, "TClass") as u8,
        pkey: number(&said, "pkey") as u16,
        sl: number(&said, "SL") as u8,
    }
}
