//! For bash.

use crate::option_table::{CHECK, COMMANDS, COMPLETIONS, MAIN, Opt, SHELLS, Value};

const HEAD: &str = r#"# bash completion for ib_acme(1), as `ib_acme completions bash` prints it.

# Of the words that follow, each with what it means, those that begin with the first argument.
__ib_acme_words() {
    local cur=$1 i
    local -a found=() means=()
    shift
    while (($# > 1)); do
        if [[ $1 == "$cur"* ]]; then
            found+=("$1")
            means+=("$2")
        fi
        shift 2
    done
    # Where they are only listed, there is room for what they mean.
    if ((${#found[@]} > 1)) && [[ ${COMP_TYPE-} == 63 ]]; then
        for i in "${!found[@]}"; do
            printf -v 'found[i]' '%-12s  %s' "${found[i]}" "${means[i]}"
        done
    fi
    COMPREPLY+=("${found[@]}")
}

__ib_acme_hosts() {
    if declare -F _known_hosts_real >/dev/null; then
        _known_hosts_real -- "$1"
    else
        mapfile -t COMPREPLY < <(compgen -A hostname -- "$1")
    fi
}

__ib_acme_files() { # kind, word
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -A "$1" -- "$2")
    # It cannot be said outside of a completion, as in a test.
    compopt -o filenames 2>/dev/null
}

_ib_acme() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=
    COMPREPLY=()
    # bash takes the = of --timeout=5 for a word.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
    case $command in
"#;

/// The script.
pub fn script() -> String {
    let mut lines = Vec::new();
    for (command, options, words) in
        [("check", CHECK, &[][..]), ("completions", COMPLETIONS, SHELLS), ("*", MAIN, COMMANDS)]
    {
        let mut inner = values(options);
        let words = offer(words.iter().map(|(word, means)| ((*word).to_owned(), *means)));
        // A command is the first word only.
        inner.extend(if command == "*" { within("if ((COMP_CWORD == 1)); then", words, "fi") } else { words });
        inner.extend(offer(options.iter().flat_map(|o| o.spellings().into_iter().map(|s| (s, o.help)))));
        lines.extend(within(&format!("{command})"), inner, "    ;;"));
    }
    let body: String = lines.iter().map(|l| format!("        {l}\n")).collect();
    format!("{HEAD}{body}    esac\n}}\n\ncomplete -F _ib_acme ib_acme\n")
}

/// What is offered behind options that something follows.
fn values(options: &[Opt]) -> Vec<String> {
    let letters = |takes: bool| -> String {
        options.iter().filter(|o| (o.value != Value::None) == takes).map(|o| o.short).collect()
    };
    // Spellings, and what is done behind each of them.
    let mut cases: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for option in options {
        let mut action = match option.value {
            Value::None => continue,
            // Nothing can be offered but options, where it may be left out.
            Value::Free(_) if option.optional => continue,
            Value::Free(_) => Vec::new(),
            Value::Choice(_, choices) => offer(choices.iter().map(|(word, means)| ((*word).to_owned(), *means))),
            Value::Host(_) | Value::Hosts(_) => vec!["__ib_acme_hosts \"$cur\"".to_owned()],
            Value::Service => vec![
                "[[ $cur == /* ]] || __ib_acme_hosts \"$cur\"".to_owned(),
                "__ib_acme_files file \"${cur:-/run/ibacm}\"".to_owned(),
            ],
            Value::File => vec!["__ib_acme_files file \"$cur\"".to_owned()],
            Value::Directory => vec!["__ib_acme_files directory \"$cur\"".to_owned()],
        };
        action.push("return".to_owned());
        if option.optional {
            action = within("if [[ $cur != -* ]]; then", action, "fi");
        }
        match cases.iter_mut().find(|(_, same)| *same == action) {
            Some((spellings, _)) => spellings.extend(option.spellings()),
            None => cases.push((option.spellings(), action)),
        }
    }
    if cases.is_empty() {
        return Vec::new();
    }
    let (flags, takers) = (letters(false), letters(true));
    let mut lines = vec![
        "# Several letters behind one dash: the last one counts.".to_owned(),
        format!("[[ $prev =~ ^-[{flags}]+([{takers}])$ ]] && prev=-${{BASH_REMATCH[1]}}"),
    ];
    let cases = cases.into_iter().flat_map(|(s, action)| within(&format!("{})", s.join(" | ")), action, "    ;;"));
    lines.extend(within("case $prev in", cases.collect(), "esac"));
    lines
}

/// Words that can follow, with what they mean.
fn offer<'a>(words: impl Iterator<Item = (String, &'a str)>) -> Vec<String> {
    let mut lines: Vec<String> = words.map(|(word, means)| format!("    {word} '{means}' \\")).collect();
    let Some(last) = lines.last_mut() else { return lines };
    last.truncate(last.len() - " \\".len());
    lines.insert(0, "__ib_acme_words \"$cur\" \\".to_owned());
    lines
}

/// Lines between two others, four columns further in.
fn within(first: &str, lines: Vec<String>, last: &str) -> Vec<String> {
    let mut all = vec![first.to_owned()];
    all.extend(lines.into_iter().map(|l| format!("    {l}")));
    all.push(last.to_owned());
    all
}
