//! What is to be thought of a path beside the one that the subnet administrator (SA) has: the one judgement of `-v` and
//! of `ib_acme check`. Pure.

use ibacm::rates;
use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};
use libibacm::{Error, Path, Request, Status};

use crate::fault::Fault;

/// A path beside the SA's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is the SA's.
    Same,
    /// It is the SA's, with less rate or MTU: in the words of the fields.
    Less(String),
    /// It is the SA's, with more rate or MTU than the SA says.
    More(String),
    /// It leads elsewhere than the SA's.
    Stale(String),
    /// The SA has none.
    Gone(String),
    /// The SA did not answer.
    Unknown(String),
}

impl Verdict {
    /// Whether the path is a good one; nothing if that is not known.
    pub fn is_good(&self) -> Option<bool> {
        match self {
            Verdict::Same | Verdict::Less(_) => Some(true),
            Verdict::More(_) | Verdict::Stale(_) | Verdict::Gone(_) => Some(false),
            Verdict::Unknown(_) => None,
        }
    }

    /// What was found, in words.
    pub fn found(&self) -> String {
        match self {
            Verdict::Same => "the SA says the same".to_owned(),
            Verdict::Less(fields) => format!(
                "the SA says the same, of more speed: {fields}. With route_prot acm a path is no better than the \
                 multicast group that both hosts are in: multicast_groups (from 3 on) and min_rate, in ibacm_opts.cfg \
                 of both, decide on that"
            ),
            Verdict::More(fields) => format!("more speed than the SA has for this path: {fields}"),
            Verdict::Stale(fields) => format!("stale cached path: {fields}"),
            Verdict::Gone(why) => format!("stale cached path: {why}"),
            Verdict::Unknown(why) => format!("not compared with the SA's: {why}"),
        }
    }

    /// What is to be done; nothing for a good path.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Verdict::Same | Verdict::Less(_) => None,
            Verdict::More(_) => Some(
                "with route_prot acm the multicast group of both hosts promises more than the links between them can do: \
                 set route_prot sa, or multicast_groups 1 and a min_rate and min_mtu that every link has, in \
                 ibacm_opts.cfg on all hosts; with route_prot sa restart the service (systemctl restart ibacm), which \
                 forgets its paths",
            ),
            Verdict::Stale(_) | Verdict::Gone(_) => Some(
                "restart the service (systemctl restart ibacm), which forgets its paths; where it happens again, look \
                 at addr_timeout and route_timeout in ibacm_opts.cfg, and at files for preloading",
            ),
            Verdict::Unknown(_) => Some("see what is said of the subnet administrator (sa); check again"),
        }
    }
}

/// The request for what the SA says of a path, whatever the service has cached.
pub fn question(cached: &PathRecord) -> Request {
    let mut record = PathRecord::default();
    record.set_dgid(cached.dgid());
    record.set_sgid(cached.sgid());
    record.set_pkey(cached.pkey());
    record.set_reversible_numpath(REVERSIBLE | 1);
    if cached.dgid().is_zero() {
        record.set_dlid(cached.dlid());
    }
    Request::Path { record, query_sa: true, cached_only: false }
}

/// The request for whether the SA has a path too, at whatever speed.
pub fn question_at_any_speed(cached: &PathRecord) -> Request {
    let mut record = *cached;
    record.set_mtu(0);
    record.set_rate(0);
    record.set_packet_lifetime(0);
    if is_loopback(cached) {
        record.set_qos_sl(0);
    }
    Request::Path { record, query_sa: true, cached_only: false }
}

/// To itself a port sends on any service level.
fn is_loopback(path: &PathRecord) -> bool {
    path.dgid() == path.sgid()
}

/// Judges a path by what came of one of the two questions. The own port has 2^lmc LIDs.
pub fn judge(cached: &PathRecord, result: &Result<Path, Error>, lmc: u8) -> Verdict {
    let sa = match result {
        Ok(path) => &path.record,
        Err(e) if matches!(e.status(), Some(Status::Etimedout)) || matches!(e, Error::TimedOut) => {
            return Verdict::Unknown(Fault::of(e).text);
        }
        Err(e) => {
            let (from, to, why) = (cached.sgid(), cached.dgid(), Fault::of(e).text);
            return Verdict::Gone(format!("the SA has none from {from} to {to}: {why}"));
        }
    };
    let elsewhere = differences(cached, sa, lmc);
    if !elsewhere.is_empty() {
        return Verdict::Stale(elsewhere.join(", "));
    }
    // What stays within the port passes no link.
    if is_loopback(cached) {
        return Verdict::Same;
    }
    let speeds = speeds(cached, sa);
    let more = speeds.iter().any(|s| s.more);
    let words = speeds.into_iter().map(|s| s.words).collect::<Vec<_>>().join(", ");
    match words {
        _ if more => Verdict::More(words),
        words if words.is_empty() => Verdict::Same,
        words => Verdict::Less(words),
    }
}

/// Where the service would send something wrong: each field with what is cached and what the SA says.
fn differences(cached: &PathRecord, sa: &PathRecord, lmc: u8) -> Vec<String> {
    let mut list = Vec::new();
    let mut differ = |is: bool, field: &str, cached: String, sa: String| {
        if is {
            list.push(format!("{field} {cached} cached, {sa} by the SA"));
        }
    };
    // A port has 2^lmc LIDs, of which the SA may name another one each time.
    let other_port = |a: u16, b: u16| a.checked_shr(lmc.into()) != b.checked_shr(lmc.into());
    let number = |n: u16| n.to_string();
    differ(other_port(cached.dlid(), sa.dlid()), "DLID", number(cached.dlid()), number(sa.dlid()));
    differ(other_port(cached.slid(), sa.slid()), "SLID", number(cached.slid()), number(sa.slid()));
    let gid = |g: Gid| g.to_string();
    differ(cached.dgid() != sa.dgid(), "DGID", gid(cached.dgid()), gid(sa.dgid()));
    differ(cached.sgid() != sa.sgid(), "SGID", gid(cached.sgid()), gid(sa.sgid()));
    let key = |k: u16| format!("{k:#06x}");
    differ((cached.pkey() ^ sa.pkey()) & 0x7fff != 0, "pkey", key(cached.pkey()), key(sa.pkey()));
    let other_level = !is_loopback(cached) && cached.sl() != sa.sl();
    differ(other_level, "SL", cached.sl().to_string(), sa.sl().to_string());
    list
}

/// A speed that is not the SA's.
struct Speed {
    more: bool,
    words: String,
}

fn speeds(cached: &PathRecord, sa: &PathRecord) -> Vec<Speed> {
    let mtu = |record: &PathRecord| rates::mtu_bytes(record.mtu() & 0x3f).unwrap_or(0);
    let rate = |record: &PathRecord| rates::rate_mbps(record.rate() & 0x3f).unwrap_or(0);
    let gbps = |mbps: u32| format!("{} Gb/s", f64::from(mbps) / 1000.0);
    let speed = |name: &str, cached: u32, sa: u32, shown: &dyn Fn(u32) -> String| {
        let words = format!("{name} {} cached, {} by the SA", shown(cached), shown(sa));
        (cached != sa).then_some(Speed { more: cached > sa, words })
    };
    let bytes = |n: u32| n.to_string();
    [speed("MTU", mtu(cached), mtu(sa), &bytes), speed("rate", rate(cached), rate(sa), &gbps)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(crate) mod tests;
