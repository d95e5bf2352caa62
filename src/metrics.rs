//! The service in numbers as a text file for Prometheus, by the rules of its exposition format 0.0.4. Pure: the numbers
//! come in as arguments, bytes come out; [`io`] writes them.
//!
//! A counter `key` of [`ROWS`] and [`MORE_ROWS`] is `ibacm_KEY_total` for the whole service, and
//! `ibacm_endpoint_KEY_total` with the labels `device`, `port` and `pkey` for an endpoint: two names, so that a sum over
//! one counts nothing twice. Of what stands at the end of a key, `_count` is left out.

use std::io::Write;

use ibacm_wire::client::{COUNTERS, Kind, MORE, MORE_ROWS, ROWS, Row};

use crate::engine::EndpointTally;

#[path = "metrics_io.rs"]
pub mod io;

/// Bytes that lines of endpoints may have in all. The rest is less than 14 KiB.
const MAX_ENDPOINTS: usize = 48 * 1024;
/// What a line has beside its name and labels, in bytes: a number of 64 bits, the space, the newline.
const NUMBER: usize = 22;

/// How things are at the moment, beside what has been counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    /// The service serves: not so in what is written last.
    pub up: bool,
    /// Connected clients.
    pub clients: u64,
    /// Requests of clients that wait for their answer.
    pub requests: u64,
    /// Questions of the kernel that wait for their answer.
    pub questions: u64,
    /// Endpoints that are up.
    pub endpoints: u64,
    /// Multicast groups that they are to be members of, and those that they are members of.
    pub groups: (u64, u64),
    /// Known destinations of all endpoints.
    pub destinations: u64,
}

/// All numbers.
pub struct Snapshot {
    /// What has been counted in all, in the order of [`ROWS`].
    pub counters: [u64; COUNTERS],
    /// In the order of [`MORE_ROWS`].
    pub more: [u64; MORE],
    /// How things are.
    pub gauges: Gauges,
    /// The endpoints that are up.
    pub endpoints: Vec<EndpointTally>,
}

/// Names and explanations of gauges, and their values.
fn gauges(g: &Gauges) -> [(&'static str, &'static str, u64); 8] {
    [
        ("up", "Whether the service serves: 0 is written when it ends", u64::from(g.up)),
        ("clients", "Connected clients", g.clients),
        ("open_requests", "Requests of clients that wait for their answer", g.requests),
        ("open_kernel_questions", "Questions of the kernel that wait for their answer", g.questions),
        ("endpoints", "Endpoints that are up", g.endpoints),
        ("groups", "Multicast groups that endpoints are to be members of", g.groups.0),
        ("groups_joined", "Multicast groups that endpoints are members of", g.groups.1),
        ("destinations", "Known destinations of all endpoints", g.destinations),
    ]
}

/// A metric: its name, and what is said of it.
struct Family {
    name: String,
    help: &'static str,
    counter: bool,
}

impl Family {
    fn of(row: &Row, prefix: &str) -> Family {
        let counter = row.kind != Kind::Now;
        let key = row.key.strip_suffix("_count").unwrap_or(row.key);
        Family { name: format!("{prefix}{key}{}", if counter { "_total" } else { "" }), help: row.help, counter }
    }

    fn head(&self, out: &mut Vec<u8>) {
        let (name, kind) = (&self.name, if self.counter { "counter" } else { "gauge" });
        put(out, format_args!("# HELP {name} {}.\n# TYPE {name} {kind}\n", self.help));
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // a vector takes everything
    let _ = out.write_fmt(text);
}

/// A label's value: a backslash, a quotation mark and a newline are escaped.
fn escape(value: &str) -> String {
    let mut escaped = String::new();
    for c in value.chars() {
        if matches!(c, '\\' | '"' | '\n') {
            escaped.push('\\');
        }
        escaped.push(if c == '\n' { 'n' } else { c });
    }
    escaped
}

/// What an endpoint has of each counter, in the order of its families.
fn values(e: &EndpointTally) -> impl Iterator<Item = u64> {
    let more = MORE_ROWS.iter().zip(e.more).filter(|(row, _)| row.kind != Kind::Service);
    e.counters.into_iter().chain(more.map(|(_, value)| value)).chain([e.destinations])
}

/// The file's bytes: less than 64 KiB, whatever the number of endpoints. Those that there is no room for are counted.
pub fn render(s: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    let one = |out: &mut Vec<u8>, family: &Family, value: u64| {
        family.head(out);
        put(out, format_args!("{} {value}\n", family.name));
    };
    let info = Family { name: "ibacm_info".into(), help: "The version of the service", counter: false };
    info.head(&mut out);
    put(&mut out, format_args!("ibacm_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION")));
    for (key, help, value) in gauges(&s.gauges) {
        one(&mut out, &Family { name: format!("ibacm_{key}"), help, counter: false }, value);
    }
    for (row, value) in ROWS.iter().chain(&MORE_ROWS).zip(s.counters.iter().chain(&s.more)) {
        one(&mut out, &Family::of(row, "ibacm_"), *value);
    }
    let rows = ROWS.iter().chain(MORE_ROWS.iter().filter(|row| row.kind != Kind::Service));
    let mut families: Vec<Family> = rows.map(|row| Family::of(row, "ibacm_endpoint_")).collect();
    families.push(Family { name: "ibacm_endpoint_destinations".into(), help: "Known destinations", counter: false });
    let names: usize = families.iter().map(|f| f.name.len() + NUMBER).sum();
    let mut room = MAX_ENDPOINTS;
    let shown = s.endpoints.iter().map_while(|e| {
        let (device, port, pkey) = (escape(&e.device), e.port, e.pkey);
        let labels = format!("{{device=\"{device}\",port=\"{port}\",pkey=\"{pkey:#06x}\"}}");
        room = room.checked_sub(names + families.len() * labels.len())?;
        Some((labels, values(e).collect::<Vec<_>>()))
    });
    let shown: Vec<_> = shown.collect();
    let left_out = s.endpoints.len().saturating_sub(shown.len()) as u64;
    let help = "Endpoints that are up and have no lines of their own, since there are too many";
    one(&mut out, &Family { name: "ibacm_endpoints_left_out".into(), help, counter: false }, left_out);
    for (i, family) in families.iter().enumerate() {
        family.head(&mut out);
        for (labels, values) in &shown {
            put(&mut out, format_args!("{}{labels} {}\n", family.name, values.get(i).copied().unwrap_or_default()));
        }
    }
    out
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
