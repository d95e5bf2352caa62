//! For fish.

use std::fmt::Write as _;

use crate::option_table::{CHECK, COMMANDS, COMPLETIONS, MAIN, Opt, SHELLS, Value};

const HEAD: &str = r#"# fish completion for ib_acme(1), as `ib_acme completions fish` prints it.

# Whether the command line is one of this command; without a command it is one of none.
function __ib_acme_command
    set -l words (commandline -opc)
    set -l command none
    set -q words[2]; and contains -- $words[2] check completions; and set command $words[2]
    test $command = $argv[1]
end

# Whether only the first word is missing.
function __ib_acme_first
    test (count (commandline -opc)) -eq 1
end

# Whether the word before ends with this option, after whatever letters that take no value.
function __ib_acme_behind
    string match --quiet --regex -- "^-[$argv[2]]*$argv[1]\$" (commandline -opc)[-1]
end

complete -c ib_acme -f
"#;

/// The script.
pub fn script() -> String {
    let mut script = HEAD.to_owned();
    for (command, means) in COMMANDS {
        let _ = writeln!(script, "complete -c ib_acme -n __ib_acme_first -a {command} -d '{means}'");
    }
    for (command, options) in [("none", MAIN), ("check", CHECK), ("completions", COMPLETIONS)] {
        script.push('\n');
        let flags: String = options.iter().filter(|o| o.value == Value::None).map(|o| o.short).collect();
        for option in options {
            let condition = format!("__ib_acme_command {command}");
            let mut names = String::new();
            for (name, kind) in [(option.short, "-s"), (option.long, "-l")] {
                if !name.is_empty() {
                    let _ = write!(names, " {kind} {name}");
                }
            }
            let offers = offers(option);
            let (inside, behind) = if option.optional { ("", offers.as_str()) } else { (offers.as_str(), "") };
            let _ = writeln!(script, "complete -c ib_acme -n '{condition}'{names}{inside} -d '{}'", option.help);
            // To fish an option whose value may be left out is one without; the value then is a word of its own.
            if !behind.is_empty() && !matches!(option.value, Value::Free(_)) {
                let behind = behind.trim_start_matches(" -x").trim_start_matches(" -r");
                let condition = format!("{condition}; and __ib_acme_behind {} {flags}", option.short);
                let _ = writeln!(script, "complete -c ib_acme -n '{condition}'{behind}");
            }
        }
        if command == "completions" {
            for (shell, means) in SHELLS {
                let _ =
                    writeln!(script, "complete -c ib_acme -n '__ib_acme_command {command}' -a {shell} -d '{means}'");
            }
        }
    }
    script
}

/// What is offered for the value: `-x` is a value that is no file, `-r` is one that may be.
fn offers(option: &Opt) -> String {
    match option.value {
        Value::None => String::new(),
        Value::Free(_) => " -x".to_owned(),
        Value::Choice(_, words) => {
            let each: Vec<String> = words.iter().map(|(word, means)| format!("{word}\\t'{means}'")).collect();
            format!(" -x -a \"{}\"", each.join(" "))
        }
        Value::Host(_) | Value::Hosts(_) => " -x -a '(__fish_print_hostnames)'".to_owned(),
        Value::Service => " -r -F -a '(__fish_print_hostnames)'".to_owned(),
        Value::File => " -r -F".to_owned(),
        Value::Directory => " -x -a '(__fish_complete_directories)'".to_owned(),
    }
}
