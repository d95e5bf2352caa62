//! For zsh.

use crate::option_table::{CHECK, COMMANDS, COMPLETIONS, MAIN, Opt, SHELLS, Value};

const HEAD: &str = "\
#compdef ib_acme
# zsh completion for ib_acme(1), as `ib_acme completions zsh` prints it.

_ib_acme_services() {
    _alternative 'sockets:socket file:_files' 'hosts:host:_hosts'
}

_ib_acme() {
    local -a first
";

const TAIL: &str = "
# Loaded by compinit this file is the function; read by source it only defines it.
if [[ ${funcstack[1]} == _ib_acme ]]; then
    _ib_acme \"$@\"
else
    compdef _ib_acme ib_acme
fi
";

/// The script.
pub fn script() -> String {
    let check = arguments(CHECK, &[]);
    let shells = format!("'1:shell:{}'", choices(SHELLS));
    let completions = arguments(COMPLETIONS, &[&shells]);
    let main = arguments(MAIN, &["$first"]);
    let commands = choices(COMMANDS);
    format!(
        "\
{HEAD}    if (( CURRENT > 2 )); then
        case $words[2] in
            check)
                shift words
                (( CURRENT-- ))
                {check}
                return
                ;;
            completions)
                shift words
                (( CURRENT-- ))
                {completions}
                return
                ;;
        esac
    fi
    # A command is the first word only.
    (( CURRENT == 2 )) && first=('1:command:{commands}')
    {main}
}}
{TAIL}",
        check = check.join(" \\\n                    "),
        completions = completions.join(" \\\n                    "),
        main = main.join(" \\\n        "),
    )
}

/// The words of a call of `_arguments`.
fn arguments(options: &[Opt], more: &[&str]) -> Vec<String> {
    let mut words = vec!["_arguments -s".to_owned()];
    words.extend(more.iter().map(|w| (*w).to_owned()));
    for option in options {
        let spellings = option.spellings();
        // Only these can stand again, and one of two names is enough.
        let excluded = match option.value {
            Value::Hosts(_) => "*".to_owned(),
            _ if spellings.len() > 1 => format!("({})", spellings.join(" ")),
            _ => String::new(),
        };
        for spelling in &spellings {
            // A value follows a letter in the same word or the next, and a long name behind `=` or in the next.
            let glue = match option.value {
                Value::None => "",
                _ if spelling.starts_with("--") => "=",
                _ => "+",
            };
            words.push(format!("'{excluded}{spelling}{glue}[{}]{}'", option.help, value(option)));
        }
    }
    words
}

fn value(option: &Opt) -> String {
    let colon = if option.optional { "::" } else { ":" };
    match option.value {
        Value::None => String::new(),
        Value::Free(name) => format!("{colon}{name}: "),
        Value::Choice(name, words) => format!("{colon}{name}:{}", choices(words)),
        Value::Host(name) | Value::Hosts(name) => format!("{colon}{name}:_hosts"),
        Value::Service => format!("{colon}service:_ib_acme_services"),
        Value::File => format!("{colon}file:_files"),
        Value::Directory => format!("{colon}directory:_files -/"),
    }
}

fn choices(words: &[(&str, &str)]) -> String {
    let each: Vec<String> = words.iter().map(|(word, means)| format!("{word}\\:\"{means}\"")).collect();
    format!("(({}))", each.join(" "))
}
