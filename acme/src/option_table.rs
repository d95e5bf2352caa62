//! Every option with what it takes: command lines are understood by this table, and completed by it.

use std::ffi::{OsStr, OsString};

use getopts::{HasArg, Occur, Options};

/// What follows an option. The first text is a word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Nothing.
    None,
    /// A number, or something else that nobody can guess.
    Free(&'static str),
    /// One of these words, each with what it means.
    Choice(&'static str, &'static [(&'static str, &'static str)]),
    /// A host's name or address.
    Host(&'static str),
    /// The same, and the option can stand again for further ones.
    Hosts(&'static str),
    /// The path of a socket file, or a host.
    Service,
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// An option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt {
    /// Its letter, or nothing.
    pub short: &'static str,
    /// Its long name, or nothing.
    pub long: &'static str,
    /// What follows it.
    pub value: Value,
    /// Whether that may be left out.
    pub optional: bool,
    /// What it is for, in a few words: without quotes, colons and brackets, which shells have a use for.
    pub help: &'static str,
}

const fn flag(short: &'static str, long: &'static str, help: &'static str) -> Opt {
    Opt { short, long, value: Value::None, optional: false, help }
}

const fn valued(short: &'static str, long: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { short, long, value, optional: false, help }
}

const fn maybe(short: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { short, long: "", value, optional: true, help }
}

const FORMATS: &[(&str, &str)] = &[
    ("i", "IP addresses"),
    ("n", "names that the service knows"),
    ("l", "LIDs"),
    ("g", "GIDs"),
    ("u", "whatever they look like"),
];

const COUNTERS: &[(&str, &str)] = &[
    ("col", "the totals, a line for each counter"),
    ("all", "those of every endpoint"),
    ("s", "those of the endpoint with the address of -s"),
];

/// Those of queries and of writing files.
pub const MAIN: &[Opt] = &[
    valued("f", "", Value::Choice("format", FORMATS), "what destination and source are"),
    valued("s", "", Value::Host("source"), "address of this host that the path starts from"),
    valued("d", "", Value::Host("destination"), "destination to resolve, several with brackets"),
    flag("v", "", "have the subnet administrator confirm the path"),
    flag("c", "", "only what the service has in its cache"),
    valued("C", "", Value::Free("times"), "resolve so many times"),
    flag("", "stats", "with -C, requests a second and percentiles of latency"),
    valued("", "parallel", Value::Free("connections"), "spread the repetitions over so many connections"),
    valued("", "warmup", Value::Free("times"), "resolve so many times more before counting starts"),
    maybe("e", Value::Free("endpoint"), "list endpoints, or the one with this number"),
    maybe("P", Value::Choice("counters", COUNTERS), "show counters of the service or of its endpoints"),
    flag("", "all-counters", "with -P, those too that not every service has"),
    valued("S", "", Value::Service, "service to ask, a socket file or a host"),
    flag("", "json", "one JSON document in place of text"),
    valued("", "timeout", Value::Free("seconds"), "how long to wait for each answer of the service"),
    maybe("A", Value::File, "write a file of names"),
    maybe("O", Value::File, "write a file of options"),
    valued("D", "", Value::Directory, "where to write files"),
    flag("V", "", "say more"),
    flag("h", "help", "show what there is"),
    flag("", "version", "show the version"),
];

/// Those of `ib_acme check`.
pub const CHECK: &[Opt] = &[
    valued("S", "", Value::Service, "service to check, a socket file or a host"),
    valued("d", "", Value::Hosts("destination"), "peer that has to answer, several with commas"),
    valued("", "timeout", Value::Free("seconds"), "how long to wait for each answer"),
    flag("", "json", "one JSON document in place of text"),
    flag("q", "quiet", "show only what is not as it should be"),
    flag("h", "help", "show what there is"),
];

/// Those of `ib_acme completions`.
pub const COMPLETIONS: &[Opt] = &[flag("h", "help", "show what there is")];

/// The words that may stand first in place of options.
pub const COMMANDS: &[(&str, &str)] =
    &[("check", "tell whether this host is healthy"), ("completions", "print a script that completes command lines")];

/// The shells that command lines are completed for.
pub const SHELLS: &[(&str, &str)] =
    &[("bash", "script for bash"), ("zsh", "script for zsh"), ("fish", "script for fish")];

impl Opt {
    /// How it is written: the letter, then the long name.
    pub fn spellings(&self) -> Vec<String> {
        let letter = Some(self.short).filter(|s| !s.is_empty()).map(|s| format!("-{s}"));
        let name = Some(self.long).filter(|l| !l.is_empty()).map(|l| format!("--{l}"));
        letter.into_iter().chain(name).collect()
    }
}

/// An option that does nothing and cannot be given: no argument has a zero byte.
const NOTHING: &str = "\0nothing";

/// Arguments for [`parser`] in which a `-` of its own is no value where one may be left out, as rdma-core's utility has it:
/// it looks for a word that does not begin so. In the way of POSIX options end there.
pub fn without_dashes(options: &[Opt], arguments: &[OsString], posix: bool) -> Vec<OsString> {
    let maybe_valued = |word: &OsStr| match word.as_encoded_bytes() {
        [b'-', letters @ .., last] => {
            letters.first() != Some(&b'-') && options.iter().any(|o| o.optional && o.short.as_bytes() == [*last])
        }
        _ => false,
    };
    let before = std::iter::once(OsStr::new("")).chain(arguments.iter().map(OsString::as_os_str));
    let replaced = before.zip(arguments).map(|(before, word)| match word.to_str() {
        Some("-") if maybe_valued(before) && posix => "--".into(),
        Some("-") if maybe_valued(before) => format!("--{NOTHING}").into(),
        _ => word.clone(),
    });
    replaced.collect()
}

/// A parser that knows these options, each any number of times.
pub fn parser(options: &[Opt]) -> Options {
    let mut known = Options::new();
    known.opt("", NOTHING, "", "", HasArg::No, Occur::Multi);
    for option in options {
        let takes = match (option.value, option.optional) {
            (Value::None, _) => HasArg::No,
            (_, false) => HasArg::Yes,
            (_, true) => HasArg::Maybe,
        };
        known.opt(option.short, option.long, option.help, "", takes, Occur::Multi);
    }
    known
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::usage;

    fn spellings(options: &[Opt]) -> BTreeSet<String> {
        options.iter().flat_map(Opt::spellings).collect()
    }

    #[test]
    fn the_help_has_every_option_and_no_other() {
        let help = usage::help("ib_acme");
        let words = help.split(|c: char| c.is_whitespace() || "[],:;()".contains(c));
        let is_option = |w: &str| match w.strip_prefix('-') {
            Some(letter) if letter.chars().count() == 1 => letter != "-",
            Some(name) => name
                .strip_prefix('-')
                .is_some_and(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !n.is_empty()),
            None => false,
        };
        let said: BTreeSet<String> = words.filter(|w| is_option(w)).map(str::to_owned).collect();
        assert_eq!(said, spellings(MAIN));
        for (command, _) in COMMANDS {
            assert!(help.contains(&format!("\nib_acme {command}")), "{command}");
        }
    }

    #[test]
    fn the_manual_has_every_option() {
        let manual = include_str!("../../pkg/man/ib_acme.1");
        let check = manual.find("\n.Sh CHECK").expect("there is a part on check");
        let end = check + 1 + manual[check + 1..].find("\n.Sh ").expect("it is not the last part");
        let item = |part: &str, spelling: &str| {
            // `.It Fl q , Fl -quiet` has two.
            let flag = format!("Fl {}", &spelling[1..]);
            let ends = |rest: &str| rest.is_empty() || rest.starts_with(' ');
            let has = |l: &str| l.match_indices(&flag).any(|(at, f)| ends(&l[at + f.len()..]));
            part.lines().filter(|l| l.starts_with(".It ")).any(has)
        };
        for spelling in spellings(CHECK) {
            assert!(item(&manual[check..end], &spelling), "check {spelling}");
        }
        for spelling in spellings(MAIN) {
            assert!(item(&manual[..check], &spelling) || item(&manual[end..], &spelling), "{spelling}");
        }
    }

    #[test]
    fn texts_need_no_quoting() {
        let tables = [MAIN, CHECK, COMPLETIONS].concat();
        let helps = tables.iter().map(|o| o.help);
        let choices = tables.iter().filter_map(|o| match o.value {
            Value::Choice(_, choices) => Some(choices),
            _ => None,
        });
        let words = choices.chain([COMMANDS, SHELLS]).flatten().map(|(_, help)| *help);
        for help in helps.chain(words) {
            let fits = |c: char| c.is_ascii_alphanumeric() || " ,-".contains(c);
            assert!(help.chars().all(fits), "{help}");
        }
    }
}
