//! The same files, ours and the deployed service: clients see the same, or the table says what is different.

#[path = "util/observe.rs"]
mod observe;
#[path = "util/option_rows.rs"]
mod rows;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::collections::VecDeque;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use observe::{Case, check, observe, own_address, prepare};
use rows::{Row, Stock};
use util::{Lab, Program, Shared, partitions};

/// Seven hosts where services are compared, and one that they ask for.
const PEER: &str = "H8";

static SUBNET: Shared = Shared::new(|o| {
    o.hosts = 8;
    o.partitions = Some(partitions("options", "Default=0x7fff,ipoib:ALL=full;\nOne=0x0001:ALL=full;\n"));
});

/// What is wrong with a row, if anything.
fn compare(lab: &Lab<'_>, host: &str, row: &Row) -> Result<(), String> {
    let peer = own_address(PEER);
    let see = |program, case: &Case| observe(lab, program, host, &peer, case);
    let ours = see(Program::Ours, &row.case);
    let (stock, also) = match &row.stock {
        Stock::Adds(seen, _) => {
            let stock = see(Program::Stock, &row.case);
            let as_said = ours.contains(seen) && !stock.contains(seen);
            return as_said
                .then_some(())
                .ok_or(format!("not {seen:?} as it ought to be: ours:\n{ours}\nstock:\n{stock}\n"));
        }
        Stock::Same => (see(Program::Stock, &row.case), None),
        Stock::Differs(like, _) => (see(Program::Stock, like), Some(see(Program::Stock, &row.case))),
        Stock::Breaks(like, _) => (see(Program::Stock, like), None),
    };
    if ours != stock {
        return Err(format!("ours:\n{ours}\nstock:\n{stock}\n"));
    }
    if also.is_some_and(|also| also == stock) {
        return Err(format!("no difference to be seen:\n{stock}\n"));
    }
    Ok(())
}

/// As many findings as the table says, each with its file and line, and an exit code to match.
fn compare_findings(lab: &Lab<'_>, host: &str, row: &Row) -> Result<(), String> {
    prepare(lab, host, &row.case);
    let (findings, code) = check(lab, host);
    if findings.len() != row.findings || code != Some(i32::from(row.findings > 0)) {
        return Err(format!("{} findings, exit code {code:?}: {findings:#?}", findings.len()));
    }
    Ok(())
}

#[test]
fn the_same_files_have_the_same_effect() {
    let lab = SUBNET.enter();
    for host in 1..=8 {
        // 2^(8-8) ms of the subnet's own: waiting is for the options alone.
        lab.inject(&format!("port H{host} subnet_timeout=8 quiet=1")).unwrap();
    }
    let _peer = lab.ours(PEER, "");
    // Rows with this in their names alone, for whoever works on one.
    let only = std::env::var("ROW").unwrap_or_default();
    let rows: VecDeque<Row> = rows::table().into_iter().filter(|r| r.name.contains(&only)).collect();
    assert!(rows.len() >= 60 || !only.is_empty(), "{} rows", rows.len());
    let (rows, failures) = (Mutex::new(rows), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for number in 1..=7 {
            let (lab, rows, failures) = (&lab, &rows, &failures);
            scope.spawn(move || {
                let host = format!("H{number}");
                loop {
                    let Some(row) = rows.lock().unwrap().pop_front() else { break };
                    // A loaded machine can make any time longer: what is different has to be so each time.
                    let look = || {
                        compare_findings(lab, &host, &row)?;
                        let again = |_| compare(lab, &host, &row);
                        compare(lab, &host, &row).or_else(again).or_else(again).or_else(again)
                    };
                    let found = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| Err("panics".into()));
                    if let Err(why) = found {
                        failures.lock().unwrap().push(format!("== {}\n{why}", row.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} rows\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_difference_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/differences.md");
    let text = fs::read_to_string(path).expect("the list of differences");
    for row in rows::table() {
        if let Stock::Differs(_, why) | Stock::Breaks(_, why) | Stock::Adds(_, why) = row.stock {
            assert!(text.lines().any(|l| l.trim_start_matches('#').trim() == why), "{}: no section {why:?}", row.name);
        }
    }
}
