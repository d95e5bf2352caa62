//! The command line, and how long things are measured.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Outcome, measure};

const USAGE: &str = "\
scripts/bench [--quick] [--only NAME[,NAME]] [--repeat N] [--option LINE] [--out DIR]
  --quick       each measurement short and once: to see that everything works, not for figures
  --only NAME   these measurements alone (--list says which there are)
  --option LINE this service has this option too, wherever it is measured: to find good defaults
  --repeat N    so often, interleaved; 7 if not said
  --out DIR     where results.json, the curves and their figures go; docs/bench if not said";

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
        let out = root.join("docs/bench");
        let mut args =
            Args { quick: false, only: Vec::new(), repeat: 0, options: String::new(), out, ours: ours.into(), root };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => args.quick = true,
                "--only" => args.only.extend(value()?.split(',').map(str::to_owned)),
                "--repeat" => args.repeat = value()?.parse().map_err(|_| "--repeat takes a number")?,
                "--option" => args.options += &format!("{}\n", value()?),
                "--out" => args.out = PathBuf::from(value()?),
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
        if args.repeat == 0 {
            args.repeat = if args.quick { 1 } else { 7 };
        }
        Ok(Some(args))
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
