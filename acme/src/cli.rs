//! The command line of queries and of writing files.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::time::Duration;

use getopts::{Fail, Matches, ParsingStyle};
use ibacm::dirs;

use crate::expand::leading_number;
use crate::option_table;

/// How long each answer may take where nothing is said: several times what a service with default options takes to
/// give up, since it may have others to ask before.
const LIMIT: Duration = Duration::from_secs(60);
/// The most connections of a measurement.
pub const MAX_PARALLEL: u32 = 4096;

/// What `-d` and `-s` are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// What they look like.
    Unspecified,
    /// IP addresses.
    Ip,
    /// Names that the service knows.
    Name,
    /// LIDs.
    Lid,
    /// GIDs.
    Gid,
}

/// What `-P` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Perf {
    /// Counters in a row.
    Row,
    /// Counters in a column.
    Column,
    /// Those of one endpoint, by its number, in a row.
    Endpoint,
    /// Those of every endpoint.
    All,
    /// Those of the endpoint with the source address.
    Address,
}

/// A command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// `-d`
    pub destination: Option<String>,
    /// `-s`
    pub source: Option<String>,
    /// `-S`
    pub service: Option<String>,
    /// `-f`
    pub format: Format,
    /// `-v`
    pub verify: bool,
    /// `-c`
    pub cached_only: bool,
    /// `-C`; there is none of zero, and one below zero asks nothing.
    pub repetitions: i32,
    /// Of `-e` or `-P`, whichever came last; 0 or less is no number.
    pub endpoint: i32,
    /// `-e`
    pub endpoints: bool,
    /// `-P`
    pub perf: Option<Perf>,
    /// `-A`, with its file.
    pub addr_file: Option<OsString>,
    /// `-O`, with its file.
    pub opts_file: Option<OsString>,
    /// `-D`
    pub directory: OsString,
    /// `-V`
    pub verbose: bool,
    /// `--all-counters`
    pub all_counters: bool,
    /// `--json`
    pub json: bool,
    /// `--timeout`
    pub limit: Duration,
    /// `--stats`, or one of those that only make sense with it.
    pub stats: bool,
    /// `--parallel`
    pub parallel: u32,
    /// `--warmup`
    pub warmup: u32,
}

/// What a command line asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// To ask, or to write files.
    Run(Box<Options>),
    /// To print the help.
    Help,
    /// To print the version.
    Version,
    /// It is not understood: to print the usage. The text says why.
    Usage(String),
}

/// Understands a command line without its first word, `program`, which is named in errors.
pub fn parse(program: &str, arguments: &[OsString]) -> Command {
    let mut known = option_table::parser(option_table::MAIN);
    // As getopt(3) has it.
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    known.parsing_style(if posix { ParsingStyle::StopAtFirstFree } else { ParsingStyle::FloatingFrees });
    match known.parse(option_table::without_dashes(option_table::MAIN, arguments, posix)) {
        Err(fail) => Command::Usage(complaint(program, &fail)),
        Ok(given) if given.opt_present("help") => Command::Help,
        Ok(given) if given.opt_present("version") => Command::Version,
        Ok(given) => match options(&given).and_then(|options| options.complete(&given.free)) {
            Ok(options) => Command::Run(Box::new(options)),
            Err(why) => Command::Usage(format!("{program}: {why}")),
        },
    }
}

/// In the words of getopt(3), where it has some.
fn complaint(program: &str, fail: &Fail) -> String {
    match fail {
        Fail::UnrecognizedOption(o) if o.chars().count() == 1 => format!("{program}: invalid option -- '{o}'"),
        Fail::UnrecognizedOption(o) => format!("{program}: unrecognized option '--{o}'"),
        Fail::ArgumentMissing(o) if o.chars().count() == 1 => {
            format!("{program}: option requires an argument -- '{o}'")
        }
        Fail::ArgumentMissing(o) => format!("{program}: option '--{o}' requires an argument"),
        other => format!("{program}: {other}"),
    }
}

fn options(given: &Matches) -> Result<Options, String> {
    let last = |name: &str| given.opt_strs(name).pop();
    // The last one counts, but none may be wrong.
    let mut format = Format::Unspecified;
    for given in given.opt_strs("f") {
        format = match given.chars().next() {
            Some('u') => Format::Unspecified,
            Some('i') => Format::Ip,
            Some('n') => Format::Name,
            Some('l') => Format::Lid,
            Some('g') => Format::Gid,
            _ => return Err("-f is one of i, n, l, g and u".to_owned()),
        };
    }
    let (perf, endpoint) = numbered(given);
    let file = |option: &str, default: &str| {
        let present = given.opt_present(option);
        present.then(|| OsString::from(last(option).unwrap_or_else(|| default.to_owned())))
    };
    let repetitions = last("C").map_or(1, |n| leading_number(&n));
    let parallel = count(given, "parallel", 1..=MAX_PARALLEL)?;
    let warmup = count(given, "warmup", 0..=u32::MAX)?;
    Ok(Options {
        destination: last("d"),
        source: last("s"),
        service: last("S"),
        format,
        verify: given.opt_present("v"),
        cached_only: given.opt_present("c"),
        repetitions: if repetitions == 0 { 1 } else { repetitions },
        endpoint,
        endpoints: given.opt_present("e"),
        perf,
        addr_file: file("A", "ibacm_addr.cfg"),
        opts_file: file("O", "ibacm_opts.cfg"),
        directory: last("D").map_or_else(|| dirs::CONF.into(), OsString::from),
        verbose: given.opt_present("V"),
        all_counters: given.opt_present("all-counters"),
        json: given.opt_present("json"),
        limit: last("timeout").map_or(Ok(LIMIT), |text| seconds(&text))?,
        stats: given.opt_present("stats") || parallel.is_some() || warmup.is_some(),
        parallel: parallel.unwrap_or(1),
        warmup: warmup.unwrap_or(0),
    })
}

/// What `-e` and `-P` say together: they share one number, which the last of them sets.
fn numbered(given: &Matches) -> (Option<Perf>, i32) {
    let mut words: Vec<(usize, bool, Option<String>)> = Vec::new();
    for (name, is_perf) in [("e", false), ("P", true)] {
        let valued = given.opt_strs_pos(name);
        for at in given.opt_positions(name) {
            let value = valued.iter().find(|(p, _)| *p == at).map(|(_, v)| v.clone());
            words.push((at, is_perf, value));
        }
    }
    words.sort_by_key(|(at, ..)| *at);
    let (mut perf, mut endpoint) = (None, 0);
    for (_, is_perf, value) in words {
        let starts = |v: &str, word: &str| v.get(..3).is_some_and(|v| v.eq_ignore_ascii_case(word));
        match value {
            Some(v) if !is_perf => endpoint = leading_number(&v),
            None if !is_perf => {}
            None => perf = Some(Perf::Row),
            Some(v) if starts(&v, "col") => perf = Some(Perf::Column),
            Some(v) if starts(&v, "all") => perf = Some(Perf::All),
            Some(v) if v == "s" => perf = Some(Perf::Address),
            Some(v) => {
                endpoint = leading_number(&v);
                perf = Some(if endpoint > 0 { Perf::Endpoint } else { Perf::Row });
            }
        }
    }
    (perf, endpoint)
}

fn count(given: &Matches, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, String> {
    let Some(text) = given.opt_strs(name).pop() else { return Ok(None) };
    let number = text.parse().ok().filter(|n| range.contains(n));
    let (least, most) = range.into_inner();
    number.map(Some).ok_or_else(|| format!("--{name} is a number from {least} to {most}, not '{text}'"))
}

/// A time limit in seconds, with a fraction if need be.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|s: &f64| (0.001..=86_400.0).contains(s));
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("--timeout is 0.001 to 86400 seconds, not '{text}'"))
}

impl Options {
    /// These, if they say what to do and nothing that has no use; `words` stand beside them.
    fn complete(self, words: &[String]) -> Result<Options, String> {
        let by_address = self.perf == Some(Perf::Address);
        let files = self.addr_file.is_some() || self.opts_file.is_some();
        let asks = self.destination.is_some() || self.perf.is_some() || self.endpoints;
        if by_address && self.source.is_none() {
            return Err("-P s needs -s, which has the address of the endpoint".to_owned());
        }
        if self.source.is_some() && self.destination.is_none() && !by_address {
            return Err("-s needs -d, or -P s".to_owned());
        }
        if self.stats && self.destination.is_none() {
            return Err("--stats, --parallel and --warmup need -d, which has what to resolve".to_owned());
        }
        match words.first() {
            _ if asks || files => Ok(self),
            Some(word) if option_table::COMMANDS.iter().any(|(command, _)| command == word) => {
                Err(format!("'{word}' has to be the first word"))
            }
            Some(word) => {
                let commands: Vec<&str> = option_table::COMMANDS.iter().map(|(command, _)| *command).collect();
                Err(format!("'{word}' is no command (there are: {})", commands.join(", ")))
            }
            None => Err("the options do not say what to do".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
