//! The command line, and how long things are measured.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{Outcome, measure};

const USAGE: &str = "\
scripts/bench [--quick] [--only NAME[,NAME]] [--repeat N] [--option LINE] [--out DIR]
  --quick       each measurement short and once: to see that everything works, not for figures
  --only NAME   these measurements alone (--list says which there are)
  --option LINE this service has this option too, wherever it is measured: to find good defaults
  --repeat N    so often, interleaved; 7 if not said
  --out DIR     where results.json, the curves and their figures go; if not said, docs/bench for a whole run with the
                defaults, else bench-results
  --list        which measurements there are
  --help        this text";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Args {
    /// Everything short.
    pub quick: bool,
    /// Names of measurements; all if there are none.
    pub only: Vec<String>,
    /// How often.
    pub repeat: usize,
    /// Where results go.
    pub out: PathBuf,
    /// Options of this service, beside those of each measurement.
    pub options: String,
    /// This service's program.
    pub ours: PathBuf,
    /// The project's directory.
    pub root: PathBuf,
}

impl Args {
    /// Reads a command line; `None` if it only wanted to be told something.
    pub fn parse(words: &[String]) -> Outcome<Option<Args>> {
        let root = std::env::var_os("BENCH_ROOT").map_or_else(|| PathBuf::from("."), PathBuf::from);
        let ours = std::env::var_os("IBACM_BIN").ok_or("$IBACM_BIN names no service: run scripts/bench")?;
        let (quick, only, repeat, options) = Default::default();
        let (mut out, ours) = (None, PathBuf::from(ours));
        let mut args = Args { quick, only, repeat, options, out: PathBuf::new(), ours, root };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => args.quick = true,
                "--only" => args.only.extend(value()?.split(',').map(str::to_owned)),
                "--repeat" => args.repeat = value()?.parse().map_err(|_| "--repeat takes a number")?,
                "--option" => args.options += &format!("{}\n", value()?),
                "--out" => out = Some(PathBuf::from(value()?)),
                "--list" => {
                    measure::GROUPS.iter().for_each(|g| println!("{:12} {}", g.name, g.what));
                    return Ok(None);
                }
                "-h" | "--help" => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                _ => return Err(format!("{word}: unknown option\n{USAGE}").into()),
            }
        }
        if let Some(name) = args.only.iter().find(|n| measure::GROUPS.iter().all(|g| g.name != n.as_str())) {
            return Err(format!("{name}: no such measurement (--list)").into());
        }
        // figures that are kept are those of a whole run
        let whole = !args.quick && args.only.is_empty() && args.options.is_empty() && args.repeat == 0;
        args.out = out.unwrap_or_else(|| args.root.join(if whole { "docs/bench" } else { "bench-results" }));
        args.check_options()?;
        if args.repeat == 0 {
            args.repeat = if args.quick { 1 } else { 7 };
        }
        Ok(Some(args))
    }

    /// Options that the service would pass over are mistakes here.
    fn check_options(&self) -> Outcome<()> {
        if self.options.is_empty() {
            return Ok(());
        }
        let file = std::env::temp_dir().join(format!("ibacm-bench-options-{}", std::process::id()));
        std::fs::write(&file, &self.options)?;
        let checked = Command::new(&self.ours).args(["--check-config", "-O"]).arg(&file).output();
        std::fs::remove_file(&file)?;
        let checked = checked?;
        if checked.status.success() {
            return Ok(());
        }
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let faults: Vec<&str> = said.lines().filter(|l| l.contains(": warning: ")).collect();
        Err(format!("--option: {}", faults.join("\n")).into())
    }

    /// Whether a measurement is to be made.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|n| n == name)
    }

    /// One of two, by whether figures are wanted.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long a throughput is measured.
    pub fn span(&self) -> Duration {
        self.pick(Duration::from_millis(400), Duration::from_millis(30))
    }
}
