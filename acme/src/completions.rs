//! `ib_acme completions`: scripts that complete command lines, made from the table of options.

mod bash;
mod fish;
mod zsh;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use getopts::Fail;

use crate::option_table::{COMPLETIONS, SHELLS, parser};
use crate::out::Out;

const HELP: &str = "\
usage: ib_acme completions bash|zsh|fish
Prints a script that completes command lines of ib_acme
   -h, --help       - this text

scripts/install puts them where shells look for them. To try one in a shell that runs already:
   source <(ib_acme completions bash)
   source <(ib_acme completions zsh)
   ib_acme completions fish | source
";

/// The script for a shell, if there is one.
pub fn script(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash::script()),
        "zsh" => Some(zsh::script()),
        "fish" => Some(fish::script()),
        _ => None,
    }
}

/// The command, with the words behind its name.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let text = match text(arguments) {
        Ok(text) => text,
        Err(why) => {
            let shells: Vec<&str> = SHELLS.iter().map(|(shell, _)| *shell).collect();
            let _ = writeln!(io::stderr(), "ib_acme completions: {why} (there are: {})", shells.join(", "));
            return ExitCode::FAILURE;
        }
    };
    let mut out = Out::default();
    out.write_fmt(format_args!("{text}"));
    out.flush();
    ExitCode::SUCCESS
}

/// What is asked for.
fn text(arguments: &[OsString]) -> Result<String, String> {
    let given = parser(COMPLETIONS).parse(arguments).map_err(|fail| match fail {
        Fail::UnrecognizedOption(o) if o.chars().count() == 1 => format!("there is no option -{o}"),
        Fail::UnrecognizedOption(o) => format!("there is no option --{o}"),
        other => other.to_string(),
    })?;
    if given.opt_present("help") {
        return Ok(HELP.to_owned());
    }
    match given.free.as_slice() {
        [] => Err("which shell?".to_owned()),
        [shell] => script(shell).ok_or_else(|| format!("'{shell}' is not known")),
        _ => Err("one shell at a time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        text(&words)
    }

    #[test]
    fn what_is_checked_in_is_what_is_printed() {
        for (shell, file, kept) in [
            ("bash", "ib_acme.bash", include_str!("../../pkg/completions/ib_acme.bash")),
            ("zsh", "_ib_acme", include_str!("../../pkg/completions/_ib_acme")),
            ("fish", "ib_acme.fish", include_str!("../../pkg/completions/ib_acme.fish")),
        ] {
            let now = asked(shell).unwrap();
            assert!(now == kept, "run `ib_acme completions {shell} >pkg/completions/{file}`");
        }
        assert!(SHELLS.iter().all(|(shell, _)| script(shell).is_some()));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (line, why) in [
            ("", "which shell?"),
            ("tcsh", "'tcsh' is not known"),
            ("bash zsh", "one shell at a time"),
            ("-x", "there is no option -x"),
            ("--json bash", "there is no option --json"),
            ("--help=yes", "Option 'help' does not take an argument"),
        ] {
            assert_eq!(asked(line).unwrap_err(), why, "{line}");
        }
        assert_eq!(asked("--help").unwrap(), HELP);
        assert_eq!(asked("-h tcsh").unwrap(), HELP);
    }
}
