//! What is to be said of paths that the service has found, and of what the subnet administrator says of them. Pure.

use std::time::Duration;

use ibacm_wire::PathRecord;
use libibacm::{Error, Path, Status};

use super::destination::Destination;
use super::facts::Port;
use super::report::Finding;
use crate::fault::Fault;
use crate::verdict;

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

/// A path of the service beside that of the subnet administrator.
pub fn agreement(subject: &str, cached: &PathRecord, result: &Result<Path, Error>, lmc: u8) -> Finding {
    let verdict = verdict::judge(cached, result, lmc);
    let found = verdict.found();
    match (verdict.is_good(), verdict.remedy()) {
        (None, Some(remedy)) => Finding::warning("path", subject, found, remedy),
        (_, Some(remedy)) => Finding::failed("path", subject, found, remedy),
        (_, None) => Finding::ok("path", subject, found),
    }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
