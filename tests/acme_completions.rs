//! Command lines of ib_acme are completed by bash, zsh and fish themselves, with the scripts that the program prints.

mod util;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use util::{acme, succeed};

/// A directory for one test, which goes with this value.
struct Place(PathBuf);

impl Place {
    /// With the script for a shell as `name`.
    fn new(shell: &str, name: &str) -> Place {
        let place =
            Place(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("completions-{shell}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&place.0);
        fs::create_dir_all(&place.0).unwrap();
        fs::write(place.0.join(name), printed(&["completions", shell])).unwrap();
        place
    }

    /// Adds a file; its path.
    fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// A program in this directory that gets nothing of whoever runs the test, and half a minute.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "30", program]).current_dir(&self.0).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &self.0).env("LC_ALL", "C.UTF-8");
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn printed(arguments: &[&str]) -> String {
    succeed(Command::new(acme::ours()).args(arguments))
}

/// What looks like an option in a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "[](),:;|'\"=+{}".contains(c));
    let is_option = |w: &&str| {
        let name = w.trim_start_matches('-');
        match w.len() - name.len() {
            1 => name.len() == 1,
            2 => name.len() > 1 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
            _ => false,
        }
    };
    words.filter(is_option).map(str::to_owned).collect()
}

/// Runs bash's completion for lines, each of whose words are separated by single blanks; what is offered for each.
fn bash(place: &Place, before: &str, lines: &[&str]) -> Vec<BTreeSet<String>> {
    let hosts = place.file("hosts", "10.0.0.1 node1 other\n10.0.0.2 node2\n");
    let mut script = format!("HOSTFILE={}\nsource ./ib_acme.bash\n{before}\n", hosts.display());
    for line in lines {
        let words: Vec<String> = line.split(' ').map(|w| format!("'{w}'")).collect();
        script += &format!("COMP_WORDS=({}) COMP_CWORD={}\n_ib_acme\n", words.join(" "), words.len() - 1);
        script += "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\necho =====\n";
    }
    let file = place.file("run", &script);
    let said = succeed(place.command("bash").args(["--norc", "--noprofile"]).arg(file));
    let mut offers: Vec<BTreeSet<String>> =
        said.split("=====\n").map(|part| part.lines().map(str::to_owned).collect()).collect();
    offers.pop();
    assert_eq!(offers.len(), lines.len(), "{said}");
    offers
}

/// Types into an interactive zsh. Its arguments: keys, and what has to be seen then, in turns.
const TYPE: &str = r#"
zmodload zsh/zpty zsh/zselect
zpty -b shell zsh -f -i
seen=
await() {
    local piece until=$((SECONDS + 20))
    while [[ $seen != *$1* ]]; do
        if zpty -r shell piece; then
            seen+=$piece
        elif ((SECONDS < until)); then
            zselect -t 2
        else
            print -r -- "no '$1' in: ${(V)seen}"
            exit 1
        fi
    done
}
type() {
    seen=
    zpty -w -n shell $1
    await $2
}
turn=0
begin() {
    # Not as it stands, since what is typed is seen too.
    type $'\x15'"print -r -- done\$(($1))"$'\n' "done$1"
}
type $'PS1= fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -D; LISTMAX=1000; setopt no_list_ambiguous\n' ''
type $'zstyle ":completion:*" hosts alpha alpine beta; ib_acme() { print -r -- "<${(j:|:)@}>"; }\n' ''
begin 0
for keys wanted in "$@"; do
    type ${(g::)keys} $wanted
    begin $((++turn))
done
print all
"#;

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

#[test]
fn bash_completes() {
    let place = Place::new("bash", "ib_acme.bash");
    place.file("service.sock", "");
    fs::create_dir(place.0.join("sub")).unwrap();
    let socket = place.0.join("service.sock").display().to_string();
    let service = format!("ib_acme -S {}", &socket[..socket.len() - 4]);
    let cases: &[(&str, &[&str])] = &[
        ("ib_acme c", &["check", "completions"]),
        ("ib_acme -v ch", &[]),
        ("ib_acme --st", &["--stats"]),
        ("ib_acme -d node", &["node1", "node2"]),
        ("ib_acme -s ot", &["other"]),
        ("ib_acme -vcd ot", &["other"]),
        ("ib_acme -v -f ", &["i", "n", "l", "g", "u"]),
        ("ib_acme -f l", &["l"]),
        ("ib_acme -P ", &["col", "all", "s"]),
        ("ib_acme -P --j", &["--json"]),
        ("ib_acme -e --j", &["--json"]),
        ("ib_acme -C ", &[]),
        ("ib_acme -d x --timeout = ", &[]),
        ("ib_acme -d x --timeout =", &[]),
        ("ib_acme -S no", &["node1", "node2"]),
        (&service, &[&socket]),
        ("ib_acme -A ser", &["service.sock"]),
        ("ib_acme -D s", &["sub"]),
        ("ib_acme check -d node", &["node1", "node2"]),
        ("ib_acme check --", &["--timeout", "--json", "--quiet", "--help"]),
        ("ib_acme check -qd ot", &["other"]),
        ("ib_acme completions ", &["bash", "zsh", "fish", "-h", "--help"]),
        ("ib_acme completions z", &["zsh"]),
    ];
    let lines: Vec<&str> = cases.iter().map(|(line, _)| *line).collect();
    for ((line, wanted), offered) in cases.iter().zip(bash(&place, "", &lines)) {
        assert_eq!(offered, set(wanted), "{line}");
    }
    // All that the helps have is offered.
    let offered = bash(&place, "", &["ib_acme -", "ib_acme check -", "ib_acme completions -"]);
    for (offered, help) in offered.iter().zip([&["--help"][..], &["check", "--help"], &["completions", "--help"]]) {
        assert_eq!(offered, &options(&printed(help)), "{help:?}");
    }
    // A list says what words mean; a word that is alone, or is put into the line, stands for itself.
    let listed = bash(&place, "COMP_TYPE=63", &["ib_acme -f ", "ib_acme -f g"]);
    assert!(listed[0].contains("i             IP addresses"), "{listed:?}");
    assert_eq!((listed[0].len(), &listed[1]), (5, &set(&["g"])), "{listed:?}");
    // The package bash-completion knows more hosts.
    let known = bash(&place, "_known_hosts_real() { COMPREPLY+=(\"$2-known\"); }", &["ib_acme -d x"]);
    assert_eq!(known, [set(&["x-known"])]);
    let said = succeed(place.command("bash").args(["--norc", "-c", "source ./ib_acme.bash && complete -p ib_acme"]));
    assert_eq!(said, "complete -F _ib_acme ib_acme\n");
}

#[test]
fn fish_completes() {
    let place = Place::new("fish", "ib_acme.fish");
    place.file("service.sock", "");
    fs::create_dir(place.0.join(".ssh")).unwrap();
    place.file(".ssh/known_hosts", "alpha ssh-ed25519 AAAA\n");
    fs::create_dir(place.0.join("sub")).unwrap();
    let fish = |line: &str| -> BTreeSet<String> {
        let script = "source ib_acme.fish; complete -C \"$argv\"";
        let said = succeed(place.command("fish").args(["--no-config", "-c", script, line]));
        said.lines().map(str::to_owned).collect()
    };
    let words = |line: &str| -> BTreeSet<String> {
        fish(line).iter().map(|l| l.split('\t').next().unwrap().to_owned()).collect()
    };
    for (line, wanted) in [
        ("ib_acme ", &["check", "completions"][..]),
        ("ib_acme -v ", &[]),
        ("ib_acme --st", &["--stats"]),
        ("ib_acme -P c", &["col"]),
        ("ib_acme -vP ", &["col", "all", "s"]),
        ("ib_acme -C ", &[]),
        ("ib_acme -A ser", &["service.sock"]),
        ("ib_acme -D s", &["sub/"]),
        ("ib_acme check --q", &["--quiet"]),
        ("ib_acme completions ", &["bash", "zsh", "fish"]),
    ] {
        assert_eq!(words(line), set(wanted), "{line}");
    }
    let formats = fish("ib_acme -f ");
    assert!(formats.len() == 5 && formats.contains("i\tIP addresses"), "{formats:?}");
    for line in ["ib_acme -d alp", "ib_acme -s alp", "ib_acme check -d alp"] {
        assert_eq!(words(line), set(&["alpha"]), "{line}");
    }
    let services = words("ib_acme -S ");
    assert!(services.contains("alpha") && services.contains("service.sock"), "{services:?}");
    for (line, help) in [
        ("ib_acme -", &["--help"][..]),
        ("ib_acme check -", &["check", "--help"]),
        ("ib_acme completions -", &["completions", "--help"]),
    ] {
        assert_eq!(words(line), options(&printed(help)), "{line}");
    }
}

#[test]
fn zsh_completes() {
    let place = Place::new("zsh", "_ib_acme");
    place.file("service.sock", "");
    fs::create_dir(place.0.join("sub")).unwrap();
    let mut keys: Vec<(String, String)> = [
        (r"ib_acme che\t\n", "<check>"),
        (r"ib_acme -v -d be\t\n", "<-v|-d|beta>"),
        (r"ib_acme -d al\t", "alpine"),
        (r"ib_acme -f \t", "i  -- IP addresses"),
        (r"ib_acme --par\t4\n", "<--parallel=4>"),
        (r"ib_acme -vP co\t\n", "<-vP|col>"),
        (r"ib_acme -S serv\t\n", "<-S|service.sock>"),
        (r"ib_acme -A ser\t\n", "<-A|service.sock>"),
        // The slash behind a directory is for going on, and is taken back.
        (r"ib_acme -D s\t\n", "<-D|sub>"),
        (r"ib_acme comp\tz\t\n", "<completions|zsh>"),
        (r"ib_acme check --q\t\n", "<check|--quiet>"),
        (r"ib_acme check -d alpha -d be\t\n", "<check|-d|alpha|-d|beta>"),
        // Once this is read by `source` the function is another one, which does the same.
        (r"source ./_ib_acme; print -r rea''d\n", "read"),
        (r"ib_acme completions f\t\n", "<completions|fish>"),
    ]
    .map(|(typed, seen)| (typed.to_owned(), seen.to_owned()))
    .into();
    for (line, help) in [("ib_acme -", &["--help"][..]), ("ib_acme check -", &["check", "--help"])] {
        keys.extend(options(&printed(help)).into_iter().map(|o| (format!(r"{line}\t"), format!("{o} "))));
    }
    let script = place.file("type", TYPE);
    let keys = keys.iter().flat_map(|(typed, seen)| [typed, seen]);
    let said = succeed(place.command("zsh").env("TERM", "dumb").arg("-f").arg(script).args(keys));
    assert_eq!(said, "all\n");
}
