//! The rows of the table: what each is, and what is to be reached.

/// What has to hold for a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most so many times the floor.
    FloorAtMost(f64),
    /// At least so many times the floor.
    FloorAtLeast(f64),
    /// At most so many times the distribution's.
    StockAtMost(f64),
    /// At most so much.
    AtMost(f64),
    /// At least so many times the other figure of ours that the row says.
    OursAtLeast(f64),
    /// At most so many times the other figure of ours that the row says.
    OursAtMost(f64),
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in the results.
    pub name: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// In what.
    pub unit: &'static str,
    /// What is to be reached.
    pub goal: Goal,
}

macro_rules! rows {
    ($($name:literal, $what:literal, $unit:literal, $goal:expr;)+) => {
        /// All rows, in the table's order.
        pub const ROWS: &[Row] = &[$(Row { name: $name, what: $what, unit: $unit, goal: $goal }),+];
    };
}

use Goal::{AtMost, FloorAtLeast, FloorAtMost, OursAtLeast, OursAtMost, StockAtMost};

rows! {
    "cached_p50", "cached, 1 connection, no source, p50", "us", FloorAtMost(1.2);
    "cached_p999", "cached, 1 connection, no source, p99.9", "us", FloorAtMost(1.5);
    "throughput_64", "throughput, 64 connections", "1/s", FloorAtLeast(0.85);
    "throughput_1000", "throughput, 1000 connections", "1/s", FloorAtLeast(0.85);
    "pipelined_32", "1 connection, 32 outstanding, to depth 1 of the floor", "1/s", FloorAtLeast(3.0);
    "connected_20000", "64 of 20,000 connections active, to 64 alone", "1/s", OursAtLeast(0.9);
    "cold_sa", "1000 cold one by one, route_prot sa, p50", "us", StockAtMost(0.75);
    "cold_acm", "1000 cold one by one, route_prot acm, p50", "us", StockAtMost(0.75);
    "burst_256", "256 cold from 64 connections, peers answer after 1 ms", "ms", StockAtMost(0.1);
    "behind_dead", "8 live behind a dead one, to 8 live alone", "ms", OursAtMost(1.2);
    "start", "start to first accepted connection", "ms", StockAtMost(1.0);
    "idle_rss", "idle: memory", "KiB", AtMost(3072.0);
    "idle_threads", "idle: threads", "", AtMost(1.0);
    "idle_wakeups", "idle: wake-ups a minute", "1/min", AtMost(2.0);
    "destination_bytes", "memory a cached destination", "bytes", AtMost(200.0);
    "preload_10000_time", "preload of 10,000 LIDs: time more", "ms", StockAtMost(1.0);
    "preload_10000_rss", "preload of 10,000 LIDs: memory more", "KiB", AtMost(2560.0);
    "preload_48000_time", "preload of 48,000 LIDs: time more", "ms", StockAtMost(1.0);
    "preload_48000_rss", "preload of 48,000 LIDs: memory more", "KiB", StockAtMost(1.0);
    "binary", "stripped release binary (with its plug-in)", "MB", AtMost(1.0);
    "libraries", "libraries linked beside libibverbs, libibumad, libc, libgcc_s, libm", "", AtMost(0.0);
    "crates_direct", "run-time crates that it depends on itself", "", AtMost(5.0);
    "crates_minimal", "run-time crates in all without syslog", "", AtMost(5.0);
}

impl Goal {
    /// The goal in words.
    pub fn words(self) -> String {
        match self {
            FloorAtMost(n) => format!("<= {n} x floor"),
            FloorAtLeast(n) => format!(">= {n} x floor"),
            StockAtMost(n) => format!("<= {n} x stock"),
            AtMost(n) => format!("<= {n}"),
            OursAtLeast(n) => format!(">= {n} x without"),
            OursAtMost(n) => format!("<= {n} x without"),
        }
    }

    /// Whether it is reached by these figures of ours, the ratios to the floor, to the distribution's, and to the other
    /// figure of ours.
    pub fn met(self, ours: f64, to_floor: f64, to_stock: f64, to_other: f64) -> bool {
        match self {
            FloorAtMost(n) => to_floor <= n,
            FloorAtLeast(n) => to_floor >= n,
            StockAtMost(n) => to_stock <= n,
            AtMost(n) => ours <= n,
            OursAtLeast(n) => to_other >= n,
            OursAtMost(n) => to_other <= n,
        }
    }
}
