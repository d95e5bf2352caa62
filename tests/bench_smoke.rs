//! `scripts/bench --quick` measures, and writes down what it has measured. What comes out is looked at for sense alone:
//! a machine that runs tests has no figures to give.

mod util;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use util::text;

/// Groups of measurements that are made here, and the rows that each gives.
const GROUPS: [(&str, &[&str]); 6] = [
    ("latency", &["cached_p50", "cached_p999"]),
    ("pipeline", &["pipelined_32"]),
    ("cold", &["cold_sa", "cold_acm"]),
    ("burst", &["burst_256"]),
    ("start", &["start", "idle_rss", "idle_threads"]),
    ("program", &["binary", "libraries", "crates_direct", "crates_minimal"]),
];

/// A row for each line: name, floor, stock, ours, whether it is reached; and what stock does instead.
const ROWS: &str = "import json, sys
for r in json.load(open(sys.argv[1]))['rows']:
    print(r['name'], *[r[k] for k in ('floor', 'stock', 'ours', 'met')], r.get('stock_does', ''))
for c in json.load(open(sys.argv[1]))['charts']:
    assert all(s['x'] and len(s['x']) == len(s['y']) for s in json.load(open(f'{sys.argv[2]}/{c}.json'))['series'] if s['name'] != 'stock'), c";

fn bench() -> Command {
    let mut bench = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/bench"));
    bench.env("IBACM_BIN", env!("CARGO_BIN_EXE_ibacm")).env("BENCH_PROFILE", "dev");
    bench.env("FABRIC_BIN", fabric::subnet::program().expect("it is built"));
    bench
}

#[test]
fn every_row_has_its_figures() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench");
    let _ = fs::remove_dir_all(&out);
    // The tool is built before the clock runs.
    let listed = text(&bench().arg("--list").output().expect("it starts"));
    assert!(GROUPS.iter().all(|(group, _)| listed.contains(group)), "{listed}");

    let groups: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).collect();
    let begin = Instant::now();
    let output = bench().args(["--quick", "--only", &groups.join(","), "--out"]).arg(&out).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();

    let python = Command::new("python3").args(["-c", ROWS]).arg(out.join("results.json")).arg(&out).output();
    let python = python.expect("python3 runs");
    assert!(python.status.success(), "{}", text(&python));
    let rows = String::from_utf8_lossy(&python.stdout).into_owned();
    let names: Vec<&str> = rows.lines().filter_map(|l| l.split(' ').next()).collect();
    for (group, wanted) in GROUPS {
        assert!(wanted.iter().all(|row| names.contains(row)), "{group}: {rows}");
    }
    assert_eq!(names.len(), GROUPS.iter().map(|(_, rows)| rows.len()).sum::<usize>(), "{rows}");
    for line in rows.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<f64>().ok();
        let (floor, stock, ours) = (number(1), number(2), number(3));
        assert!(ours.is_some_and(|n| (0.0..1e9).contains(&n)), "{line}");
        assert!(floor.is_none_or(|n| n > 0.0) && stock.is_none_or(|n| n >= 0.0), "{line}");
        assert!(["True", "False"].contains(&words[4]), "{line}");
        match words[0] {
            "cached_p50" | "cached_p999" => assert!(floor.is_some() && stock.is_some(), "{line}"),
            "pipelined_32" => assert!(line.contains("closes the connection"), "{line}"),
            "cold_sa" | "cold_acm" | "burst_256" | "start" | "idle_rss" => assert!(stock > Some(0.0), "{line}"),
            _ => {}
        }
    }
    let judged = table.lines().filter(|l| l.contains("| met ") || l.contains("| MISSED ")).count();
    assert_eq!(judged, names.len(), "{table}");
    for picture in ["latency", "depth", "cold", "burst"] {
        let svg = fs::read_to_string(out.join(format!("{picture}.svg"))).expect("it is drawn");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{picture}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{picture}");
    }
}

#[test]
fn what_it_does_not_know_it_says() {
    for words in [&["--only", "nonsense"][..], &["--often"], &["--repeat", "x"], &["--out"], &["--option", "sa_dept 9"]]
    {
        let output = bench().args(words).output().expect("it starts");
        assert!(!output.status.success(), "{words:?}: {}", text(&output));
        assert!(text(&output).contains("bench: "), "{words:?}: {}", text(&output));
    }
}
