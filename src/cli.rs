//! The command line of the daemon.
//!
//! What the C service takes, in the same spelling, and a few of our own. Paths are made absolute here, since a daemon
//! changes its directory.

use getopts::{Matches, Options as Getopts, ParsingStyle};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::dirs;

/// The address file, unless `-A` names another.
pub fn addr_file() -> PathBuf {
    Path::new(dirs::CONF).join("ibacm_addr.cfg")
}

/// The options file, unless `-O` names another.
pub fn opts_file() -> PathBuf {
    Path::new(dirs::CONF).join("ibacm_opts.cfg")
}

/// The exit code of a command line that is not understood.
pub const EXIT_USAGE: u8 = 1;

/// How the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the background; what holds without an option.
    Daemon,
    /// As it was started (`-P`).
    Process,
    /// As it was started, by systemd: with inherited sockets, and telling it when it serves (`--systemd`).
    Systemd,
}

/// The configuration files; absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Names of endpoints.
    pub addr: PathBuf,
    /// Options.
    pub opts: PathBuf,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To serve.
    Run(Mode, Files),
    /// To read the files and say what is wrong in them, and nothing else.
    CheckConfig(Files),
    /// To print this text on standard output and exit with 0.
    Print(String),
}

/// A command line that is not understood: to be shown on standard error, exit code [`EXIT_USAGE`].
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError {
    program: String,
    problem: String,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n{}", self.program, self.problem, usage(&self.program))
    }
}

impl std::error::Error for UsageError {}

/// Understands a command line; the first argument is the program's name. Of several `-A` or `-O` the last holds, `-P`
/// holds against `-D`, and `--systemd` against both.
///
/// # Errors
/// An option that doesn't exist or lacks its value, or a word that is no option.
pub fn parse<T: AsRef<OsStr>>(arguments: impl IntoIterator<Item = T>) -> Result<Action, UsageError> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().map(|name| name.as_ref().to_string_lossy().into_owned());
    let program = program.unwrap_or_else(|| String::from("ibacm"));
    let failed = |problem: String| UsageError { program: program.clone(), problem };

    let mut known = Getopts::new();
    known
        .parsing_style(ParsingStyle::FloatingFrees)
        .optflagmulti("D", "", "")
        .optflagmulti("P", "", "")
        .optmulti("A", "", "", "")
        .optmulti("O", "", "", "")
        .optflagmulti("h", "help", "")
        .optflagmulti("", "version", "")
        .optflagmulti("", "systemd", "")
        .optflagmulti("", "check-config", "");
    let given = known.parse(arguments).map_err(|error| failed(error.to_string()))?;
    if given.opt_present("help") {
        return Ok(Action::Print(usage(&program)));
    }
    if given.opt_present("version") {
        return Ok(Action::Print(format!("ibacm {}\n", env!("CARGO_PKG_VERSION"))));
    }
    if let Some(word) = given.free.first() {
        return Err(failed(format!("unexpected argument '{}'", word.escape_debug())));
    }
    let files = Files {
        addr: path(&given, "A", addr_file()).map_err(&failed)?,
        opts: path(&given, "O", opts_file()).map_err(&failed)?,
    };
    if given.opt_present("check-config") {
        return Ok(Action::CheckConfig(files));
    }
    let mode = match (given.opt_present("systemd"), given.opt_present("P")) {
        (true, _) => Mode::Systemd,
        (false, true) => Mode::Process,
        (false, false) => Mode::Daemon,
    };
    Ok(Action::Run(mode, files))
}

fn path(given: &Matches, option: &str, default: PathBuf) -> Result<PathBuf, String> {
    match given.opt_strs(option).pop() {
        None => Ok(default),
        Some(name) => {
            std::path::absolute(&name).map_err(|error| format!("-{option} '{}': {error}", name.escape_debug()))
        }
    }
}

fn usage(program: &str) -> String {
    let (addr, opts) = (addr_file(), opts_file());
    let (addr, opts) = (addr.display(), opts.display());
    format!(
        "usage: {program}\n   \
         [-D]             - run as a daemon (default)\n   \
         [-P]             - run as a standard process\n   \
         [-A addr_file]   - address configuration file\n                      \
         (default {addr})\n   \
         [-O option_file] - option configuration file\n                      \
         (default {opts})\n   \
         [--systemd]      - run as a service of systemd\n   \
         [--check-config] - say what is wrong in the files, and exit\n   \
         [--version]      - show the version, and exit\n   \
         [-h, --help]     - show this text, and exit\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Action, UsageError> {
        parse(["/usr/sbin/ibacm"].into_iter().chain(line.split_whitespace()))
    }

    fn files(addr: impl Into<PathBuf>, opts: impl Into<PathBuf>) -> Files {
        Files { addr: addr.into(), opts: opts.into() }
    }

    #[test]
    fn what_the_c_service_takes() {
        let default = || files(addr_file(), opts_file());
        assert_eq!(parsed(""), Ok(Action::Run(Mode::Daemon, default())));
        assert_eq!(parsed("-D"), Ok(Action::Run(Mode::Daemon, default())));
        assert_eq!(parsed("-P"), Ok(Action::Run(Mode::Process, default())));
        assert_eq!(parsed("-PD -D -P"), Ok(Action::Run(Mode::Process, default())));
        assert_eq!(parsed("--systemd"), Ok(Action::Run(Mode::Systemd, default())));
        assert_eq!(parsed("-A /a -O /o -P"), Ok(Action::Run(Mode::Process, files("/a", "/o"))));
        assert_eq!(parsed("-A/a -PO/o -A /b"), Ok(Action::Run(Mode::Process, files("/b", "/o"))));
    }

    #[test]
    fn relative_paths_survive_the_daemon() {
        let Ok(Action::Run(_, files)) = parsed("-A a.cfg -O ./o.cfg") else { panic!("not understood") };
        let here = std::env::current_dir().unwrap();
        assert_eq!((files.addr.as_path(), files.opts.as_path()), (&*here.join("a.cfg"), &*here.join("o.cfg")));
        assert!(files.addr.is_absolute());
    }

    #[test]
    fn our_own() {
        assert_eq!(parsed("--check-config -O /o"), Ok(Action::CheckConfig(files(addr_file(), "/o"))));
        for line in ["-h", "--help", "-P --help", "-h stray"] {
            let Ok(Action::Print(text)) = parsed(line) else { panic!("{line}") };
            assert!(
                text.starts_with("usage: /usr/sbin/ibacm\n   [-D]             - run as a daemon (default)\n"),
                "{text}"
            );
            assert!(text.contains("\n                      (default /etc/rdma/ibacm_addr.cfg)\n"), "{text}");
        }
        let Ok(Action::Print(text)) = parsed("--version") else { panic!("no version") };
        assert_eq!(text, format!("ibacm {}\n", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn what_is_not_understood() {
        for line in ["-x", "--bogus", "-A", "-O", "stray", "-P stray", "-V", "--systemd=yes", "-A ''x", "-- -P"] {
            match parsed(line) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("/usr/sbin/ibacm: ") && text.contains("\nusage: "), "{line}: {text}");
                }
                Ok(action) => assert_eq!(line, "-A ''x", "{action:?}"),
            }
        }
        assert!(parse(["ibacm", "-A", ""]).is_err());
        assert!(parse(["ibacm", "a\nb"]).unwrap_err().to_string().starts_with("ibacm: unexpected argument 'a\\nb'\n"));
    }

    #[test]
    fn odd_arguments() {
        use std::os::unix::ffi::OsStrExt;
        let none: [&str; 0] = [];
        assert!(matches!(parse(none), Ok(Action::Run(Mode::Daemon, _))));
        assert!(parse([OsStr::new("ibacm"), OsStr::from_bytes(b"-\xff")]).is_err());
        assert!(addr_file().is_absolute());
    }
}
