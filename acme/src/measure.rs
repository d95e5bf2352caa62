//! `-C` with what people repeat look-ups for: requests a second, and percentiles of latency.

use std::time::{Duration, Instant};

use libibacm::{Client, Error, Reply, Request};

use crate::cli::Options;
use crate::connections::{Connections, is_answer};
use crate::fault::Fault;
use crate::histogram::Histogram;
use crate::json::Json;
use crate::out::Out;
use crate::say;

/// So many look-ups in a row without an answer are the last: each of them can take the whole time limit.
const GIVE_UP: u32 = 3;
/// Rows of the histogram.
const ROWS: u32 = 16;
/// The longest bar of one, so that a row fits into 80 columns.
const BAR: u64 = 40;

/// What was measured.
#[derive(Default)]
pub struct Report {
    connections: usize,
    /// The connections that could not be made, and why.
    missing: Option<(usize, Fault)>,
    warmup: u64,
    /// Those that were timed, whatever came of them.
    lookups: u64,
    seconds: f64,
    /// Of those that gave a path.
    latency: Histogram,
    failures: Vec<(Fault, u64)>,
    /// Whether it ended early, because nobody answered.
    stopped: bool,
}

/// Looks up as often as `-C` says; the last answer, and how long they took.
pub fn measure(out: &mut Out, client: &Client, options: &Options, request: &Request) -> (Result<Reply, Error>, Report) {
    out.flush();
    let mut report = Report::default();
    let lookups = u64::try_from(options.repetitions).unwrap_or(0);
    let wanted = u64::from(options.parallel).min(lookups.max(options.warmup.into())).max(1) as u32;
    // Where it cannot be raised there are fewer connections, which is said.
    let _ = ibacm::sock::raise_descriptor_limit();
    let mut connections = match Connections::open(client.target(), wanted, client.limit()) {
        Ok((connections, failure)) => {
            report.connections = connections.len();
            report.missing = failure.map(|e| ((wanted as usize).saturating_sub(connections.len()), Fault::of(&e)));
            connections
        }
        Err(e) => {
            report.stopped = true;
            return (Err(e), report);
        }
    };
    let mut last = Err(Error::TimedOut);
    let mut silence = 0;
    connections.run(request, options.warmup.into(), |_, _, answer| {
        report.warmup += 1;
        let go_on = Report::goes_on(&mut silence, &answer);
        last = answer;
        go_on
    });
    if silence >= GIVE_UP {
        report.stopped = true;
        return (last, report);
    }
    let begin = Instant::now();
    connections.run(request, lookups, |_, took, answer| {
        let go_on = Report::goes_on(&mut silence, &answer);
        report.count(took, &answer);
        last = answer;
        go_on
    });
    report.seconds = begin.elapsed().as_secs_f64();
    report.stopped = report.lookups < lookups;
    (last, report)
}

impl Report {
    /// Whether there is somebody who answers; `silence` is how many have had no answer since the last that had.
    fn goes_on(silence: &mut u32, answer: &Result<Reply, Error>) -> bool {
        *silence = match answer {
            Err(e) if !is_answer(e) => silence.saturating_add(1),
            _ => 0,
        };
        *silence < GIVE_UP
    }

    fn count(&mut self, took: Duration, answer: &Result<Reply, Error>) {
        self.lookups += 1;
        let fault = match answer {
            Ok(_) => return self.latency.add(took),
            Err(e) => Fault::of(e),
        };
        match self.failures.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, count)) => *count += 1,
            None => self.failures.push((fault, 1)),
        }
    }

    fn failed(&self) -> u64 {
        self.failures.iter().map(|(_, count)| count).sum()
    }

    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.lookups as f64 / self.seconds } else { 0.0 }
    }

    /// The figures by the names that are printed and by those in documents.
    fn figures(&self) -> [(&'static str, &'static str, Option<Duration>); 7] {
        let h = &self.latency;
        [
            ("min", "min", h.min()),
            ("mean", "mean", h.mean()),
            ("p50", "p50", h.quantile(0.5)),
            ("p90", "p90", h.quantile(0.9)),
            ("p99", "p99", h.quantile(0.99)),
            ("p99.9", "p99_9", h.quantile(0.999)),
            ("max", "max", h.max()),
        ]
    }

    /// Prints it.
    pub fn show(&self, out: &mut Out) {
        let seconds = Duration::try_from_secs_f64(self.seconds).unwrap_or_default();
        say!(out, "Measurement");
        say!(out, "  lookups:     {} in {}, {:.0} a second", self.lookups, text(seconds), self.per_second());
        say!(out, "  connections: {}", self.connections);
        if let Some((count, fault)) = &self.missing {
            say!(out, "  missing:     {count} connections: {}: {}", fault.text, fault.advice);
        }
        if self.warmup > 0 {
            say!(out, "  warm-up:     {} lookups before", self.warmup);
        }
        say!(out, "  failures:    {}", self.failed());
        for (fault, count) in &self.failures {
            say!(out, "    {count}: {}: {}", fault.text, fault.advice);
        }
        if self.stopped {
            say!(out, "  stopped:     the service does not answer any more");
        }
        for (name, _, figure) in self.figures() {
            if let Some(figure) = figure {
                say!(out, "  {:<12} {}", format!("{name}:"), text(figure));
            }
        }
        if out.is_terminal() {
            self.draw(out);
        }
    }

    /// Prints the histogram.
    fn draw(&self, out: &mut Out) {
        let rows = self.latency.rows(ROWS);
        let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
        for row in rows {
            // What was seen is to be seen.
            let length = (u128::from(row.count) * u128::from(BAR)).div_ceil(most.into()) as usize;
            let (from, to) = (text(row.from), text(row.to));
            say!(out, "  {from:>7} - {to:>7} {:<2$} {}", "#".repeat(length), row.count, BAR as usize);
        }
    }

    /// For documents.
    pub fn json(&self) -> Json {
        let micros = |d: Duration| Json::Real(d.as_nanos() as f64 / 1000.0);
        let latency = (self.latency.count() > 0).then(|| {
            let figures = self.figures().into_iter();
            Json::Object(figures.map(|(_, key, figure)| (key, figure.map(micros).into())).collect())
        });
        let rows = self.latency.rows(ROWS).into_iter().map(|row| {
            Json::Object(vec![("from_us", micros(row.from)), ("to_us", micros(row.to)), ("count", row.count.into())])
        });
        let errors = self
            .failures
            .iter()
            .map(|(fault, count)| Json::Object(vec![("count", (*count).into()), ("error", fault.json())]));
        let missing = self.missing.as_ref();
        Json::Object(vec![
            ("lookups", self.lookups.into()),
            ("failures", self.failed().into()),
            ("errors", errors.collect()),
            ("stopped", self.stopped.into()),
            ("connections", self.connections.into()),
            ("connections_missing", missing.map_or(0, |(count, _)| *count).into()),
            ("connections_error", missing.map(|(_, fault)| fault.json()).into()),
            ("warmup", self.warmup.into()),
            ("seconds", Json::Real(self.seconds)),
            ("per_second", Json::Real((self.per_second() * 1000.0).round() / 1000.0)),
            ("latency_us", latency.into()),
            ("histogram", rows.collect()),
        ])
    }
}

/// A duration in three digits and the unit that fits.
fn text(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (nanos, wanted) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (12_345_678, "12.3 ms"),
            (1_500_000_000, "1.50 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(text(Duration::from_nanos(nanos)), wanted);
        }
    }

    #[test]
    fn failures_are_counted_by_what_they_are() {
        let mut report = Report::default();
        let refused = || Err(Error::Status(3));
        for answer in [refused(), Err(Error::TimedOut), refused()] {
            report.count(Duration::from_micros(5), &answer);
        }
        let counts: Vec<u64> = report.failures.iter().map(|(_, count)| *count).collect();
        assert_eq!((counts, report.failed(), report.lookups, report.latency.count()), (vec![2, 1], 3, 3, 0));
        assert!(report.json().to_string().contains("\"latency_us\": null"));
    }

    #[test]
    fn silence_ends_a_measurement_and_refusals_do_not() {
        let mut silence = 0;
        let mut goes_on = |answer: Result<Reply, Error>| Report::goes_on(&mut silence, &answer);
        let silent = [goes_on(Err(Error::TimedOut)), goes_on(Err(Error::TimedOut)), goes_on(Err(Error::Status(3)))];
        assert_eq!(silent, [true; 3]);
        let silent = [goes_on(Err(Error::TimedOut)), goes_on(Err(Error::TimedOut)), goes_on(Err(Error::TimedOut))];
        assert_eq!(silent, [true, true, false]);
    }
}
