//! Path records, as text and in documents.

use std::net::Ipv6Addr;

use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};

use crate::address::ip6_text;
use crate::json::Json;
use crate::out::Out;
use crate::say;

/// Prints a path record.
pub fn show(out: &mut Out, path: &PathRecord) {
    let gid = |gid: Gid| ip6_text(Ipv6Addr::from(gid.0));
    say!(out, "Path information");
    say!(out, "  dgid: {}", gid(path.dgid()));
    say!(out, "  sgid: {}", gid(path.sgid()));
    say!(out, "  dlid: {}", path.dlid());
    say!(out, "  slid: {}", path.slid());
    say!(out, "  flow label: 0x{:x}", path.flow_hop() >> 8);
    say!(out, "  hop limit: {}", path.flow_hop() & 0xff);
    say!(out, "  tclass: {}", path.tclass());
    say!(out, "  reversible: {}", path.reversible_numpath() >> 7);
    say!(out, "  pkey: 0x{:x}", path.pkey());
    say!(out, "  sl: {}", path.sl());
    say!(out, "  mtu: {}", path.mtu() & 0x1f);
    say!(out, "  rate: {}", path.rate() & 0x1f);
    say!(out, "  packet lifetime: {}", path.packet_lifetime() & 0x1f);
}

/// A path record for documents. Selectors are left out, since they say "exactly".
pub fn json(path: &PathRecord) -> Json {
    let gid = |gid: Gid| Json::Text(ip6_text(Ipv6Addr::from(gid.0)));
    Json::Object(vec![
        ("dgid", gid(path.dgid())),
        ("sgid", gid(path.sgid())),
        ("dlid", path.dlid().into()),
        ("slid", path.slid().into()),
        ("flow_label", ((path.flow_hop() >> 8) & 0xf_ffff).into()),
        ("hop_limit", (path.flow_hop() & 0xff).into()),
        ("tclass", path.tclass().into()),
        ("reversible", (path.reversible_numpath() & REVERSIBLE != 0).into()),
        ("pkey", path.pkey().into()),
        ("qos_class", (path.qos_sl() >> 4).into()),
        ("sl", path.sl().into()),
        ("mtu", (path.mtu() & 0x3f).into()),
        ("rate", (path.rate() & 0x3f).into()),
        ("packet_lifetime", (path.packet_lifetime() & 0x3f).into()),
        // Readers that keep numbers as floating point would lose some of its 64 bits.
        ("service_id", Json::Text(format!("0x{:016x}", path.service_id()))),
    ])
}
