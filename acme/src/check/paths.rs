//! What is to be said of paths that the service has found, and of what the subnet administrator says of them. Pure.

use std::time::Duration;

use ibacm::rates;
use ibacm_wire::path::REVERSIBLE;
use ibacm_wire::{Gid, PathRecord};
use libibacm::{Error, Path, Request, Status};

use super::destination::Destination;
use super::facts::Port;
use super::report::Finding;
use crate::fault::Fault;

const RESTART: &str = "restart the service (systemctl restart ibacm)";

fn shown(record: &PathRecord) -> String {
    format!("LID {}, {}", record.dlid(), record.dgid())
}

/// Whether there is no path for want of an answer, be it that the service gives up or that it is not waited for any
/// longer: which one comes first depends on the time limit only.
fn is_silence(error: &Error) -> bool {
    matches!(error, Error::TimedOut) || error.status() == Some(Status::Etimedout)
}

/// What has no path because the subnet administrator cannot be asked, which has been found already.
fn unasked(what: &'static str, subject: &str, error: &Error) -> Option<Finding> {
    let follows = is_silence(error) || matches!(error.status(), Some(Status::Enodata | Status::Enotconn));
    follows.then(|| {
        let found = "not resolved, as the SA does not answer";
        Finding::warning(what, subject, found, "first mend what keeps the subnet administrator (SA) from answering")
    })
}

/// An own address that has been resolved.
pub fn own(subject: &str, port: Option<&Port>, result: &Result<Path, Error>, sa_answers: bool) -> Finding {
    if let Some(finding) = result.as_ref().err().filter(|_| !sa_answers).and_then(|e| unasked("local", subject, e)) {
        return finding;
    }
    match result {
        Ok(path) => match port {
            Some(port) if !port.has_gid(path.record.dgid()) => Finding::failed(
                "local",
                subject,
                format!("this host's own address resolves to {}, not to {}", shown(&path.record), port.name()),
                format!("look whether another host has the same address, and {RESTART}"),
            ),
            _ => Finding::ok("local", subject, format!("resolves to {}", shown(&path.record))),
        },
        Err(e) => Finding::failed(
            "local",
            subject,
            format!("this host's own address does not resolve: {}", Fault::of(e).text),
            format!("look into the service's log, and {RESTART}"),
        ),
    }
}

/// A destination that has been asked for.
pub fn peer(
    subject: &str,
    destination: &Destination,
    result: &Result<Path, Error>,
    sa_answers: bool,
    limit: Duration,
) -> Finding {
    let error = match result {
        Ok(path) => return Finding::ok("peer", subject, format!("resolves to {}", shown(&path.record))),
        Err(error) => error,
    };
    let why = Fault::of(error).text;
    let status = error.status();
    if let Some(finding) = unasked("peer", subject, error).filter(|_| !sa_answers) {
        return finding;
    }
    let silence = is_silence(error);
    // Not what has been waited: it depends on the peer's place in the list, and the remedy is to be the same for all.
    let more = format!("more than {} s (--timeout)", limit.as_secs_f64());
    let (found, remedy) = match (status, destination) {
        (_, Destination::Address(_)) if silence || status == Some(Status::Enodata) => (
            if silence { "the peer does not answer".to_owned() } else { format!("the peer does not answer: {why}") },
            format!(
                "look whether it is up, its port is active and it runs ibacm (ib_acme check there), and whether it has \
             this address or name, the same min_mtu and min_rate, and the same partition; where several do not \
             answer, allow {more}, as some services ask one after the other"
            ),
        ),
        _ if silence => ("no path in time".to_owned(), format!("allow {more}, or look into the service's log")),
        (Some(_), Destination::Gid(_) | Destination::Lid(_)) => (
            format!("there is no path to it: {why}"),
            "look whether it is right, its port is active (ibstat there), and shares a partition with this one".into(),
        ),
        (Some(Status::Edestaddr | Status::Edesttype | Status::Esrcaddr | Status::Esrctype), _) => (
            format!("it cannot be asked for from this host: {why}"),
            "look whether the address is right, and whether a route leads to it over an IPoIB interface \
             (ip route get ADDRESS)"
                .to_owned(),
        ),
        _ => (format!("cannot be resolved: {why}"), Fault::of(error).advice),
    };
    Finding::failed("peer", subject, found, remedy)
}

/// The request for what the subnet administrator says of a path, whatever the service has cached.
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

/// A path of the service beside that of the subnet administrator.
pub fn agreement(subject: &str, cached: &PathRecord, result: &Result<Path, Error>, lmc: u8) -> Finding {
    let remedy = format!(
        "{RESTART}, which forgets its paths; where it happens again, look at addr_timeout and \
                          route_timeout in ibacm_opts.cfg, and at files for preloading"
    );
    match result {
        Ok(path) => {
            let differences = differences(cached, &path.record, lmc);
            if differences.is_empty() {
                return Finding::ok("path", subject, "the SA says the same");
            }
            let found = format!("stale cached path: {}", differences.join(", "));
            Finding::failed("path", subject, found, remedy)
        }
        Err(e) if matches!(e.status(), Some(Status::Etimedout)) || matches!(e, Error::TimedOut) => Finding::warning(
            "path",
            subject,
            format!("not compared with the SA's: {}", Fault::of(e).text),
            "see what is said of the subnet administrator (sa); check again",
        ),
        Err(e) => Finding::failed(
            "path",
            subject,
            format!(
                "stale cached path: the SA has none from {} to {}: {}",
                cached.sgid(),
                cached.dgid(),
                Fault::of(e).text
            ),
            remedy,
        ),
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
    // To itself a port sends on any service level.
    let to_itself = cached.dgid() == cached.sgid();
    differ(!to_itself && cached.sl() != sa.sl(), "SL", cached.sl().to_string(), sa.sl().to_string());
    // Less than the path can do is no fault: it may come from the group that both sides share.
    let bytes = |record: &PathRecord| rates::mtu_bytes(record.mtu() & 0x3f).unwrap_or(0);
    differ(bytes(cached) > bytes(sa), "MTU", bytes(cached).to_string(), bytes(sa).to_string());
    let mbps = |record: &PathRecord| rates::rate_mbps(record.rate() & 0x3f).unwrap_or(0);
    let gbps = |record: &PathRecord| format!("{} Gb/s", f64::from(mbps(record)) / 1000.0);
    differ(mbps(cached) > mbps(sa), "rate", gbps(cached), gbps(sa));
    list
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
