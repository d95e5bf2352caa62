//! Findings, and how they are shown: a line each as they come, or one document at the end.

use std::collections::HashMap;

use crate::fault::Fault;
use crate::json::Json;
use crate::out::{Out, printable};
use crate::say;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but perhaps not as it was meant to; or could not be looked at.
    Warning,
    /// Does not work.
    Failed,
}

impl Level {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failed => "failed",
        }
    }

    /// The exit status for a host of which this is the worst finding.
    pub fn exit_status(self) -> u8 {
        match self {
            Level::Ok => 0,
            Level::Warning => 1,
            Level::Failed => 2,
        }
    }
}

/// What was looked at and what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing: one of a few words that stay the same.
    pub what: &'static str,
    /// Which one.
    pub subject: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What the administrator is to do; nothing if all is well.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(what: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { what, subject: subject.into(), level: Level::Ok, found: found.into(), remedy: None }
    }

    /// Something is worth a look.
    pub fn warning(
        what: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Warning, remedy: Some(remedy.into()), ..Finding::ok(what, subject, found) }
    }

    /// Something does not work.
    pub fn failed(
        what: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Failed, ..Finding::warning(what, subject, found, remedy) }
    }

    /// The same, no worse than this.
    pub fn at_most(self, level: Level) -> Finding {
        Finding { level: self.level.min(level), ..self }
    }

    /// Kind and subject.
    fn about(&self) -> String {
        format!("{} {}", self.what, self.subject)
    }

    /// The line, with this for a remedy.
    fn line(&self, remedy: Option<&str>) -> String {
        let remedy = remedy.map_or(String::new(), |r| format!("; remedy: {r}"));
        format!("{:<8} {}: {}{remedy}", self.level.word(), self.about(), self.found)
    }

    fn json(&self) -> Json {
        Json::Object(vec![
            ("what", self.what.into()),
            ("subject", self.subject.as_str().into()),
            ("result", self.level.word().into()),
            ("found", self.found.as_str().into()),
            ("remedy", self.remedy.clone().into()),
        ])
    }
}

/// How findings are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Style {
    /// As one document.
    pub json: bool,
    /// Nothing of what is as it should be.
    pub quiet: bool,
}

/// All findings.
pub struct Report {
    out: Out,
    style: Style,
    kept: Vec<Json>,
    remedies: Remedies,
    warnings: u32,
    failed: u32,
}

impl Report {
    /// Nothing yet.
    pub fn new(style: Style) -> Report {
        Report { out: Out::default(), style, kept: Vec::new(), remedies: Remedies::default(), warnings: 0, failed: 0 }
    }

    /// Shows a finding.
    pub fn add(&mut self, finding: Finding) {
        match finding.level {
            Level::Ok if self.style.quiet => return,
            Level::Ok => {}
            Level::Warning => self.warnings += 1,
            Level::Failed => self.failed += 1,
        }
        if self.style.json {
            self.kept.push(finding.json());
        } else {
            let remedy = self.remedies.of(&finding);
            say!(self.out, "{}", printable(&finding.line(remedy.as_deref())));
            self.out.flush();
        }
    }

    /// Shows findings.
    pub fn add_all(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|f| self.add(f));
    }

    /// Sums up: how bad the worst finding is.
    pub fn end(mut self) -> Level {
        let worst = match (self.failed, self.warnings) {
            (0, 0) => Level::Ok,
            (0, _) => Level::Warning,
            _ => Level::Failed,
        };
        if self.style.json {
            let document = document(self.kept, worst, [self.failed, self.warnings], None, worst.exit_status());
            say!(self.out, "{document}");
        } else if worst != Level::Ok {
            say!(self.out, "{} failed, {} warnings", self.failed, self.warnings);
        } else if !self.style.quiet {
            say!(self.out, "healthy");
        }
        self.out.flush();
        worst
    }
}

/// Remedies that have been said, with what they were said of first.
#[derive(Default)]
struct Remedies(HashMap<String, String>);

impl Remedies {
    /// How the remedy of a finding is shown: in full once, and from then on by naming that finding.
    fn of(&mut self, finding: &Finding) -> Option<String> {
        let remedy = finding.remedy.as_ref()?;
        if let Some(first) = self.0.get(remedy) {
            return Some(format!("as for {first}"));
        }
        self.0.insert(remedy.clone(), finding.about());
        Some(remedy.clone())
    }
}

/// The whole document; `error` is why nothing was looked at.
fn document(kept: Vec<Json>, worst: Level, [failed, warnings]: [u32; 2], error: Option<&Fault>, status: u8) -> Json {
    Json::Object(vec![
        ("check", Json::List(kept)),
        ("result", worst.word().into()),
        ("failed", failed.into()),
        ("warnings", warnings.into()),
        ("error", error.map(Fault::json).into()),
        ("status", status.into()),
    ])
}

/// The document for a command line that is not understood.
pub fn refused(error: &Fault, status: u8) -> Json {
    document(Vec::new(), Level::Failed, [0, 0], Some(error), status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let good = Finding::ok("port", "mlx5_0/1", "active");
        assert_eq!(good.line(None), "ok       port mlx5_0/1: active");
        let bad = Finding::failed("port", "mlx5_0/1", "down", "plug it in");
        assert_eq!(bad.line(bad.remedy.as_deref()), "failed   port mlx5_0/1: down; remedy: plug it in");
        assert_eq!(bad.at_most(Level::Warning).level, Level::Warning);
        assert_eq!(good.clone().at_most(Level::Warning), good);
    }

    #[test]
    fn nobody_writes_to_the_terminal_with_a_name() {
        assert_eq!(printable("a\u{1b}[2Jb\nok\u{9b}"), "a\\u{1b}[2Jb\\u{a}ok\\u{9b}");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(printable("plain é"), "plain é");
    }

    #[test]
    fn a_remedy_is_said_once() {
        let mut remedies = Remedies::default();
        let failed = |subject: &str, remedy: &str| Finding::failed("peer", subject, "silent", remedy);
        let mut say = |finding: &Finding| remedies.of(finding).unwrap_or_default();
        assert_eq!(say(&failed("h4", "look there")), "look there");
        assert_eq!(say(&failed("h5", "look there")), "as for peer h4");
        assert_eq!(say(&failed("h6", "look elsewhere")), "look elsewhere");
        assert_eq!(say(&failed("h7", "look there")), "as for peer h4");
        assert_eq!(say(&Finding::ok("peer", "h8", "found")), "");
        // A document has it whole each time.
        assert!(failed("h5", "look there").json().to_string().contains("\"remedy\": \"look there\""));
    }
}
