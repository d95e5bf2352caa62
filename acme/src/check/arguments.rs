//! The command line of the check. Pure.

use std::ffi::OsString;
use std::time::Duration;

use getopts::{Matches, Options};

use super::destination::list;
use super::report::Style;
use crate::expand::{MAX_ITEMS, Unusable};

/// How long each look-up may take where nothing is said: a service with default options gives a peer up before that.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest that can be said, in seconds.
const LONGEST: f64 = 3600.0;

/// What `--help` says.
pub const HELP: &str = "\
usage: ib_acme check [-S service] [-d destination[,destination...]]... [--timeout SECONDS] [--json] [-q] [-h]

Tells whether this host is healthy: devices, ports, partitions, IPoIB addresses, the
subnet administrator (SA), the ibacm service, its endpoints and multicast groups, and
whether its paths are those of the SA. Root is needed to ask the SA itself.

  -S SERVICE         socket file or host of the service (default: this host's)
  -d DESTINATIONS    peers that have to answer: names, IP addresses, GIDs, LIDs, with
                     commas between; node[1-3,7] names several. Can be repeated
  --timeout SECONDS  how long each look-up may take (default: 10). What takes long is done
                     at once: all together take eight times that at most
  --json             one JSON document in place of lines
  -q, --quiet        only what is not ok
  -h, --help         this text

A line for each finding: `ok`, `warning` or `failed`, what was looked at, what was found,
and what to do about it. What depends on something that has failed is not looked at.

Exit status: 0 all is ok, 1 there are warnings, 2 something failed, 64 the command line
is not understood.
";

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// To say how it is used.
    Help,
    /// To look.
    Check(Arguments),
}

/// What is to be looked at, and how it is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct Arguments {
    /// The service, by the path of its socket or the name of its host; if not given, this host's.
    pub service: Option<String>,
    /// Peers, in order.
    pub destinations: Vec<String>,
    /// For each look-up.
    pub limit: Duration,
    /// How findings are shown.
    pub style: Style,
}

/// Reads the command line.
pub fn parse(arguments: &[OsString]) -> Result<Command, String> {
    let mut known = Options::new();
    known
        .optopt("S", "", "", "")
        .optmulti("d", "", "", "")
        .optopt("", "timeout", "", "")
        .optflag("", "json", "")
        .optflag("q", "quiet", "")
        .optflag("h", "help", "");
    let matches = known.parse(arguments).map_err(|e| e.to_string().to_lowercase())?;
    if matches.opt_present("h") {
        return Ok(Command::Help);
    }
    if let Some(extra) = matches.free.first() {
        return Err(format!("unexpected '{extra}'"));
    }
    read(&matches).map(Command::Check)
}

fn read(matches: &Matches) -> Result<Arguments, String> {
    let mut destinations = Vec::new();
    for text in matches.opt_strs("d") {
        destinations.extend(list(&text).map_err(|e| format!("-d '{text}': {e}"))?);
        if destinations.len() > MAX_ITEMS {
            return Err(format!("-d '{text}': with those before {}", Unusable::TooLong));
        }
    }
    let limit = match matches.opt_str("timeout") {
        None => LIMIT,
        Some(text) => {
            let seconds = text.parse().ok().filter(|s: &f64| *s >= 0.001 && *s <= LONGEST);
            let seconds = seconds.ok_or_else(|| format!("--timeout '{text}': seconds are 0.001 to {LONGEST}"))?;
            Duration::from_secs_f64(seconds)
        }
    };
    Ok(Arguments {
        service: matches.opt_str("S").filter(|s| !s.is_empty()),
        destinations,
        limit,
        style: Style { json: matches.opt_present("json"), quiet: matches.opt_present("quiet") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Command, String> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_can_be_said() {
        let Ok(Command::Check(all)) = parsed(&["-S", "/run/x", "-d", "a,n[1-2]", "-d", "b", "--timeout", "0.5", "-q"])
        else {
            panic!("it is good");
        };
        assert_eq!((all.service.as_deref(), all.limit), (Some("/run/x"), Duration::from_millis(500)));
        assert_eq!(all.destinations, ["a", "n1", "n2", "b"]);
        assert_eq!(all.style, Style { json: false, quiet: true });
        let Ok(Command::Check(none)) = parsed(&[]) else { panic!("it is good") };
        assert!(none.service.is_none() && none.limit == LIMIT && none.destinations.is_empty());
        assert_eq!(parsed(&["-h", "--json"]), Ok(Command::Help));
    }

    #[test]
    fn what_cannot() {
        for words in [
            &["--timeout", "0"][..],
            &["--timeout", "NaN"],
            &["--timeout", "1e9"],
            &["--timeout"],
            &["-d", ""],
            &["-d", "n[2-1]"],
            &["-d", "n[1-900000]", "-d", "m[1-900000]"],
            &["-x"],
            &["x"],
            &["--json=1"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
