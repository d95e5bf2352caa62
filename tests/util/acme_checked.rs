//! What `ib_acme check` says, taken apart.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::util::{Lab, PATIENCE, acme, run, succeed, text, wait_for};

/// What a check said.
pub struct Checked {
    pub status: Option<i32>,
    /// Both outputs.
    pub text: String,
    pub took: Duration,
}

/// Runs a check on a host.
pub fn check(lab: &Lab<'_>, host: &str, arguments: &[&str]) -> Checked {
    // It may have to be built first.
    let program = acme::ours();
    let began = Instant::now();
    let output = run(lab.exec(host, program).arg("check").args(arguments));
    Checked { status: output.status.code(), text: text(&output), took: began.elapsed() }
}

impl Checked {
    /// Kinds and subjects of the findings with this level.
    pub fn of(&self, level: &str) -> Vec<(&str, &str)> {
        let words = self.text.lines().filter_map(|line| line.strip_prefix(level)?.trim_start().split_once(": "));
        words.filter_map(|(words, _)| words.split_once(' ')).collect()
    }

    /// All is well, and all of this has been looked at.
    #[track_caller]
    pub fn healthy(&self, kinds: &[&str]) {
        assert_eq!(self.status, Some(0), "{}", self.text);
        assert!(self.text.ends_with("\nhealthy\n"), "{}", self.text);
        assert_eq!((self.of("failed"), self.of("warning")), (Vec::new(), Vec::new()), "{}", self.text);
        let ok = self.of("ok");
        assert!(kinds.iter().all(|k| ok.iter().any(|(what, _)| what == k)), "{kinds:?} in {}", self.text);
    }

    /// Exactly these lines failed: how each starts, and what else is in it, the remedy among it.
    #[track_caller]
    pub fn failed(&self, wanted: &[(&str, &[&str])]) {
        self.not_ok("failed", Some(2), wanted);
    }

    /// Exactly these lines are not ok, all of them with this level.
    #[track_caller]
    pub fn not_ok(&self, level: &str, status: Option<i32>, wanted: &[(&str, &[&str])]) {
        let lines: Vec<&str> = self.text.lines().collect();
        let (last, lines) = lines.split_last().expect("a summary");
        let bad: Vec<&&str> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
        assert_eq!(bad.len(), wanted.len(), "{}", self.text);
        for (line, (start, pieces)) in bad.iter().zip(wanted) {
            assert!(line.starts_with(&format!("{level:<8} {start}: ")), "{start} in {}", self.text);
            assert!(pieces.iter().all(|piece| line.contains(piece)), "{pieces:?} in {line}");
            assert!(line.contains("; remedy: "), "{line}");
        }
        let (failed, warnings) = if level == "failed" { (bad.len(), 0) } else { (0, bad.len()) };
        assert_eq!(*last, format!("{failed} failed, {warnings} warnings"));
        assert_eq!(self.status, status, "{}", self.text);
    }
}

/// A fault that is taken back, whatever becomes of the test.
pub struct Undo<'a>(pub &'a Lab<'a>, pub &'a str);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let _ = self.0.inject(self.1);
    }
}

/// Waits until a check says that all is well again. Who has been refused by a subnet manager, or has found it silent, tries
/// again after pauses that double.
#[track_caller]
pub fn wait_healthy(lab: &Lab<'_>, host: &str) {
    let healthy = wait_for(3 * PATIENCE, || (check(lab, host, &[]).status == Some(0)).then_some(()));
    assert!(healthy.is_some(), "{}", check(lab, host, &[]).text);
}

/// Everything that is looked at.
pub const ALL: [&str; 10] =
    ["device", "port", "partition", "address", "sa", "service", "endpoint", "group", "local", "path"];

/// Validates a document, with Python's jsonschema.
pub fn validate(document: &str) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ib_acme-check.schema.json");
    let program = "import json, sys, jsonschema\n\
        schema = json.load(open(sys.argv[1]))\n\
        jsonschema.Draft202012Validator.check_schema(schema)\n\
        jsonschema.Draft202012Validator(schema).validate(json.loads(sys.argv[2]))";
    succeed(Command::new("python3").args(["-c", program]).arg(schema).arg(document));
}
