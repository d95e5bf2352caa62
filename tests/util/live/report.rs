//! What the answers around a change say of it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::util::Program;
use super::Touch;
use super::ask::{Answer, Outcome};
use super::world::World;

/// What a change did to clients.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub name: &'static str,
    /// Answers that were looked at.
    pub answers: usize,
    /// Failures, though there was a path; and how long after the change the last one came.
    pub failures: (usize, Duration),
    /// Paths that were true no longer, likewise.
    pub stale: (usize, Duration),
    /// The longest answer.
    pub slowest: Duration,
    /// When each question that has a right answer had got it, after the change had settled.
    pub right_after: Duration,
    /// Connections that the service closed, and answers that never came.
    pub lost: usize,
    pub notes: Vec<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_millis();
        write!(f, "{:<44} | {:>5} |", self.name, self.answers)?;
        for (count, last) in [self.failures, self.stale] {
            match count {
                0 => write!(f, " {:>12} |", "-")?,
                _ => write!(f, " {:>12} |", format!("{count} ({} ms)", ms(last)))?,
            }
        }
        write!(f, " {:>6} | {:>6} | {}", ms(self.right_after), ms(self.slowest), self.notes.join(", "))?;
        if self.lost > 0 { write!(f, " {} lost", self.lost) } else { Ok(()) }
    }
}

/// Whether a change makes a difference to a question, or may disturb it.
fn is_affected(a: &Answer, (before, after): (&World, &World), touch: &Touch) -> bool {
    let touched = |p| touch.ports.contains(&p);
    let at_ends = before.ends(&a.question).into_iter().chain(after.ends(&a.question)).any(touched);
    let same = before.right(&a.question).is_like(&after.right(&a.question));
    !same || at_ends || (touch.sa && a.question.needs_sa())
}

/// The longest that somebody had to wait for a path that a change does not touch.
pub fn pace(answers: &[Answer], worlds: (&World, &World), touch: &Touch) -> Duration {
    let paths = answers.iter().filter(|a| matches!(a.outcome, Outcome::Path(_)) && !is_affected(a, worlds, touch));
    paths.map(|a| a.took).max().unwrap_or_default()
}

/// Looks at the answers to questions around a change: begun, settled, and from when on nothing may be wrong. What
/// broke a rule is told in words.
pub fn judge(
    answers: &[Answer],
    (before, after): (&World, &World),
    touch: &Touch,
    (begin, settled, strict): (Instant, Instant, Instant),
) -> (Row, Vec<String>) {
    let mut row = Row { answers: answers.len(), ..Row::default() };
    let mut wrongs = Vec::new();
    let mut first_right: BTreeMap<String, Instant> = BTreeMap::new();
    let late = |a: &Answer| a.came().saturating_duration_since(settled);
    for a in answers {
        let (old, new) = (before.right(&a.question), after.right(&a.question));
        let affected = is_affected(a, (before, after), touch);
        row.slowest = row.slowest.max(a.took);
        let mut broken = |rule: &str| {
            let when = a.came().saturating_duration_since(begin).as_millis();
            wrongs.push(format!("{rule}: {:?} after {when} ms: {:?}; right is {new:?}", a.question, a.outcome));
        };
        match a.outcome {
            Outcome::Hung | Outcome::Closed => {
                row.lost += 1;
                broken("no answer");
            }
            Outcome::Path(ends) if new.paths.contains(&ends) => {
                if new.must && a.asked >= settled {
                    first_right.entry(format!("{:?}", a.question)).or_insert(a.came());
                }
            }
            Outcome::Path(ends) => {
                // What the SA was asked before it was over may have something of both.
                let all = || old.paths.iter().chain(&new.paths);
                let mixed = all().any(|p| (p.sgid, p.slid) == (ends.sgid, ends.slid))
                    && all().any(|p| (p.dgid, p.dlid) == (ends.dgid, ends.dlid))
                    && all().any(|p| p.partition == ends.partition);
                if !(old.paths.contains(&ends) || (mixed && a.question.needs_sa() && a.asked < settled)) {
                    broken("a path that never was");
                } else if a.came() > strict {
                    broken("a path that is no more");
                }
                if a.came() > settled {
                    row.stale = (row.stale.0 + 1, row.stale.1.max(late(a)));
                }
            }
            Outcome::Failed(_) if new.must && (old.must || a.asked >= settled) => {
                row.failures = (row.failures.0 + 1, row.failures.1.max(late(a)));
                if !affected {
                    broken("a failure of what is not touched");
                }
            }
            Outcome::Failed(_) => {}
        }
    }
    row.right_after = first_right.values().map(|t| t.saturating_duration_since(settled)).max().unwrap_or_default();
    (row, wrongs)
}

/// Writes the rows down, behind those of other tests of this program.
pub fn write(program: Program, rows: &[Row]) {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let own = std::env::current_exe().expect("a test is a file");
    let own = own.file_stem().expect("with a name").to_string_lossy().into_owned();
    // Without the number that the compiler puts behind it.
    let name = format!("{}-{program:?}.txt", own.split('-').next().unwrap_or_default()).to_lowercase();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !BEGUN.swap(true, Ordering::Relaxed) {
        let _ = std::fs::remove_file(&path);
    }
    let file = std::fs::File::options().create(true).append(true).open(path);
    let mut file = file.expect("the directory for tests can be written");
    for row in rows {
        writeln!(file, "{row}").expect("the file can be written");
    }
}
