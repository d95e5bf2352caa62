//! Which plug-ins there are: goes through their directory, tries each object in a process of its own (`probe`), loads those
//! that are to be used (`object`), and says which of them serves which subnet.
//!
//! Nothing that is wrong with a directory or an object is an error of the service: there is a line that says so.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::object;
use super::probe::Probe;
use crate::engine::{BUILTIN, ProviderId, Providers};
use crate::options::Options;

pub use super::object::Loaded;

/// Objects that are looked at.
const MAX_OBJECTS: usize = 64;
/// Lines of one level about one directory; one more says that there were others.
const MAX_LINES: usize = 256;
/// Links on the way to the directory.
const MAX_LINKS: usize = 40;
/// For how long an object may be tried. All of them are at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Name of what serves subnets that nobody serves.
const NOBODY: &str = "(none)";

/// Something to be said, and at which level of the log. Those of level 0 are about what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Level of the log.
    pub level: u8,
    /// The text, printable.
    pub text: String,
    /// The line of the options file that it is about.
    pub line: Option<usize>,
    /// It is worth knowing, and may be as it is to be.
    pub harmless: bool,
}

/// Lines, not too many.
#[derive(Debug, Default)]
struct Lines(Vec<Line>);

impl Lines {
    fn say(&mut self, level: u8, text: String) {
        self.say_of(None, level, text);
    }

    fn say_of(&mut self, line: Option<usize>, level: u8, text: String) {
        let text = match self.0.iter().filter(|l| l.level == level).count() {
            n if n < MAX_LINES => text,
            MAX_LINES => String::from("there is more to say than can be listed"),
            _ => return,
        };
        self.0.push(Line { level, text, line, harmless: level > 0 });
    }
}

/// Loads the plug-ins in `dir`. With `builtin` the built-in provider serves too, and its namesakes are left out.
/// `explicit`: somebody has named the directory, so that it ought to be there.
///
/// To be called while the process has one thread and signals are blocked: plug-ins start threads.
pub fn load(dir: &Path, builtin: bool, explicit: bool) -> (Vec<Loaded>, Vec<Line>) {
    let (found, lines) = choose(dir, builtin, explicit, PATIENCE, "loaded", |file, _| {
        let loaded = object::open(file, || ())?;
        Ok((loaded.name.clone(), loaded))
    });
    (found.into_iter().map(|(_, loaded)| loaded).collect(), lines)
}

/// The names of the plug-ins that [`load`] would load, and what it would say. Nothing is loaded into this process.
pub fn check(dir: &Path, builtin: bool, explicit: bool) -> (Vec<String>, Vec<Line>) {
    let (found, lines) = choose(dir, builtin, explicit, PATIENCE, "usable", |_, tried| Ok((tried?, ())));
    (found.into_iter().map(|(name, ())| name).collect(), lines)
}

/// Goes through a directory; `take` has an object and its name, or why it could not be tried.
fn choose<T>(
    dir: &Path,
    builtin: bool,
    explicit: bool,
    patience: Duration,
    taken: &str,
    take: impl Fn(&Path, Result<String, String>) -> Result<(String, T), String>,
) -> (Vec<(String, T)>, Vec<Line>) {
    let mut lines = Lines::default();
    let files = match objects(dir, &mut lines) {
        Ok(files) => files,
        Err(reason) => {
            let missing = matches!(&reason, Unusable::System(e) if e.kind() == io::ErrorKind::NotFound);
            let level = u8::from(missing && builtin && !explicit);
            lines.say(level, format!("{}: no provider is loaded from there: {reason}", shown(dir)));
            return (Vec::new(), lines.0);
        }
    };
    let until = Instant::now() + patience;
    let tried: Vec<(PathBuf, io::Result<Probe>)> =
        files.into_iter().map(|file| (file.clone(), Probe::start(&file))).collect();
    let mut found: Vec<(String, T)> = Vec::new();
    let mut used: Vec<PathBuf> = Vec::new();
    for (file, probe) in tried {
        let refuse = |found: &[(String, T)], used: &[PathBuf], name: &str| -> Result<(), (u8, String)> {
            if builtin && name.eq_ignore_ascii_case(BUILTIN) {
                return Err((1, format!("{BUILTIN} is built in, and builtin_provider is yes")));
            }
            match found.iter().zip(used).find(|f| name.eq_ignore_ascii_case(&f.0.0)) {
                Some(((other, _), file)) => {
                    Err((0, format!("{} is provider {} already", shown(file), printable(other))))
                }
                None => Ok(()),
            }
        };
        let done = match probe {
            Ok(probe) => probe.finish(until).map_err(|reason| (0, reason)).and_then(|name| {
                refuse(&found, &used, &name)?;
                take(&file, Ok(name)).map_err(|reason| (0, reason))
            }),
            Err(e) => take(&file, Err(format!("it cannot be tried: {e}"))).map_err(|reason| (0, reason)),
        };
        // What it says of itself may be another thing the second time.
        match done.and_then(|(name, it)| refuse(&found, &used, &name).map(|()| (name, it))) {
            Ok((name, it)) => {
                lines.say(1, format!("{}: provider {}, {taken}", shown(&file), printable(&name)));
                if !nameable(&name) {
                    let text = "no 'provider' line can name it: its name has white space in it, or begins with #";
                    lines.say(0, format!("{}: provider '{}': {text}", shown(&file), printable(&name)));
                }
                found.push((name, it));
                used.push(file);
            }
            Err((level, reason)) => lines.say(level, format!("{}: not used: {}", shown(&file), printable(&reason))),
        }
    }
    (found, lines.0)
}

/// Why nothing is loaded from a directory, or an object is not.
enum Unusable {
    /// The system says so.
    System(io::Error),
    /// It is something else, or somebody else's.
    Not(&'static str),
    /// So is a directory or a link on the way to it.
    Way(PathBuf, &'static str),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::System(e) => e.fmt(f),
            Unusable::Not(why) => f.write_str(why),
            Unusable::Way(path, why) => write!(f, "{}, which leads there: {why}", shown(path)),
        }
    }
}

/// The objects of a directory that may be loaded, in the order of their names.
fn objects(dir: &Path, lines: &mut Lines) -> Result<Vec<PathBuf>, Unusable> {
    // where there is none there is nothing to be said of the way
    fs::metadata(dir).map_err(Unusable::System)?;
    trusted_directory(dir)?;
    let mut names: Vec<OsString> = Vec::new();
    let mut more = 0usize;
    for entry in fs::read_dir(dir).map_err(Unusable::System)? {
        let name = entry.map_err(Unusable::System)?.file_name();
        if name.as_bytes().ends_with(b".so") && candidate(dir, &name, lines) {
            if let Err(at) = names.binary_search(&name) {
                names.insert(at, name);
            }
            if names.len() > MAX_OBJECTS {
                names.pop();
                more += 1;
            }
        }
    }
    if more > 0 {
        lines.say(0, format!("{}: {more} more objects are not used: {MAX_OBJECTS} are looked at", shown(dir)));
    }
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Whether a provider line can have the name.
fn nameable(name: &str) -> bool {
    !name.starts_with('#') && !name.contains(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

/// Whether nobody but root can put another directory in its place, or something into it: follows the path from the root
/// on, links included.
fn trusted_directory(dir: &Path) -> Result<(), Unusable> {
    let absolute = std::path::absolute(dir).map_err(Unusable::System)?;
    let names = |path: &Path| -> Vec<OsString> { path.iter().rev().map(OsStr::to_owned).collect() };
    let (mut at, mut ahead) = (PathBuf::from("/"), names(&absolute));
    let mut status = fs::metadata(&at).map_err(Unusable::System)?;
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        let way = |path: &Path, why| Err(Unusable::Way(path.to_owned(), why));
        if let Err(why) = trusted_on_the_way(&status) {
            return way(&at, why);
        }
        let next = at.join(&name);
        let found = fs::symlink_metadata(&next).map_err(Unusable::System)?;
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return way(&next, "there are too many links");
            }
            if found.uid() != 0 {
                return way(&next, "its owner is not root");
            }
            ahead.extend(names(&fs::read_link(&next).map_err(Unusable::System)?));
            continue;
        }
        // what is behind a ".." has been looked at on the way to it
        if name == ".." {
            at.pop();
        } else if name != "/" {
            at = next;
        } else {
            at = PathBuf::from("/");
        }
        status = fs::metadata(&at).map_err(Unusable::System)?;
    }
    if !status.is_dir() {
        return Err(Unusable::Not("it is not a directory"));
    }
    trusted(&status).map_err(Unusable::Not)
}

/// A directory that others can write to, but in which they can only touch what is theirs, may be on the way.
fn trusted_on_the_way(status: &Metadata) -> Result<(), &'static str> {
    if status.uid() == 0 && status.is_dir() && status.mode() & libc::S_ISVTX != 0 { Ok(()) } else { trusted(status) }
}

/// Whether a file may be loaded.
fn candidate(dir: &Path, name: &OsString, lines: &mut Lines) -> bool {
    let file = dir.join(name);
    let (level, reason) = match fs::symlink_metadata(&file) {
        Ok(status) if status.is_symlink() => (1, Unusable::Not("it is a symbolic link")),
        Ok(status) if !status.is_file() => (1, Unusable::Not("it is not a file")),
        Ok(status) => match trusted(&status) {
            Ok(()) => return true,
            Err(why) => (0, Unusable::Not(why)),
        },
        Err(e) => (0, Unusable::System(e)),
    };
    lines.say(level, format!("{}: not used: {reason}", shown(&file)));
    false
}

/// What runs with root's rights must be root's to change, and nobody else's.
fn trusted(status: &Metadata) -> Result<(), &'static str> {
    match (status.uid(), status.gid(), status.mode()) {
        (1.., _, _) => Err("its owner is not root"),
        (_, _, mode) if mode & 0o002 != 0 => Err("others than root can write to it"),
        (_, 1.., mode) if mode & 0o020 != 0 => Err("its group can write to it"),
        _ => Ok(()),
    }
}

/// Which provider serves which subnet, by the options' `provider` lines, and what is wrong with those. The engine's numbers
/// are the places in `loaded`.
pub fn assign(options: &Options, loaded: &[Loaded]) -> (Providers, Vec<Line>) {
    let names: Vec<String> = loaded.iter().map(|l| l.name.clone()).collect();
    assign_names(options, &names)
}

/// [`assign`] by the names alone.
pub fn assign_names(options: &Options, names: &[String]) -> (Providers, Vec<Line>) {
    let mut lines = Lines::default();
    let find = |name: &str| -> Option<Option<ProviderId>> {
        if options.builtin_provider && name.eq_ignore_ascii_case(BUILTIN) {
            return Some(None);
        }
        let place = names.iter().position(|n| name.eq_ignore_ascii_case(n))?;
        Some(Some(ProviderId(u16::try_from(place).ok()?)))
    };
    let builtin = options.builtin_provider.then_some(BUILTIN);
    let there: Vec<String> = builtin.into_iter().chain(names.iter().map(String::as_str)).map(printable).collect();
    let there =
        if there.is_empty() { String::from("there is none") } else { format!("there are: {}", there.join(", ")) };
    let mut subnets: Vec<(u64, Option<ProviderId>)> = Vec::new();
    for line in &options.providers {
        let text = format!("provider {} {:#018x}", printable(&line.name), line.prefix);
        let number = line.line.0;
        match (find(&line.name), subnets.iter().find(|s| s.0 == line.prefix)) {
            (None, _) => {
                lines.say_of(number, 0, format!("'{text}' has no effect: there is no such provider ({there})"));
            }
            (Some(id), Some(other)) if other.1 != id => {
                lines.say_of(number, 0, format!("'{text}' has no effect: an earlier line names another provider"));
            }
            (Some(_), Some(_)) => {}
            (Some(id), None) => subnets.push((line.prefix, id)),
        }
    }
    let (default, number) = (find(&options.default_provider), options.default_line.0);
    let mut all = names.to_vec();
    let default = default.unwrap_or_else(|| {
        let text = format!("no provider is called {} ({there})", printable(&options.default_provider));
        // as rdma-core's service: what is not there does not take the place of the usual one
        if let Some(usual) = find(BUILTIN) {
            lines.say_of(number, 0, format!("{text}: {BUILTIN} serves subnets that no line names"));
            return usual;
        }
        lines.say_of(number, 0, format!("{text}: subnets that no line names are not served"));
        all.push(NOBODY.to_owned());
        u16::try_from(names.len()).ok().map(ProviderId)
    });
    // Somebody may have laid it down and think that this is enough. Where lines name others, it may be meant so.
    let meant = options.default_line.0.is_some() || !options.providers.is_empty();
    let lines_name = |name: &str| {
        let mut named = options.providers.iter().map(|line| &line.name).chain([&options.default_provider]);
        named.any(|named| named.eq_ignore_ascii_case(name))
    };
    for name in names.iter().filter(|name| nameable(name) && !lines_name(name)) {
        let name = printable(name);
        lines.say(0, format!("provider {name} is loaded, but no 'provider' line names it: it serves no port"));
        lines.0.iter_mut().last().into_iter().for_each(|line| line.harmless = meant);
    }
    (Providers { names: all, subnets, default, timeout_ms: options.provider_timeout }, lines.0)
}

/// Somebody's text, without what a terminal or a log would do with it.
fn printable(text: impl AsRef<str>) -> String {
    let mut shown = String::new();
    for c in text.as_ref().chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn shown(path: impl AsRef<OsStr>) -> String {
    printable(String::from_utf8_lossy(path.as_ref().as_bytes()))
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
