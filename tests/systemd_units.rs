//! What is installed beside the program: units, manuals and sample files, held against the program.
//!
//! Needs Debian's packages systemd and mandoc; scripts/setup installs them.

mod util;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ibacm::options::{self, Options};
use ibacm::{addrfile, cli};
use util::{run, succeed, text};

fn package(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pkg").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(package(name)).unwrap()
}

#[test]
fn systemd_finds_nothing_wrong_in_the_units() {
    let [service, socket] = ["ibacm.service", "ibacm.socket"].map(package);
    let output = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).args([&service, &socket]));
    let said = text(&output);
    // The machine's own units are looked at as well.
    let about_ours: Vec<&str> = said.lines().filter(|l| l.contains("ibacm")).collect();
    assert!(output.status.success() && about_ours.is_empty(), "{said}");
    // It does look: a unit with a mistake in it is an error.
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ibacm-wrong.service");
    fs::write(&copy, fs::read_to_string(&service).unwrap().replace("ProtectHome=yes", "ProtectHme=yes")).unwrap();
    let said = text(&run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy)));
    assert!(said.contains("ProtectHme"), "{said}");
}

#[test]
fn the_service_is_confined() {
    let service = package("ibacm.service");
    let mut analyze = Command::new("systemd-analyze");
    let said = succeed(analyze.args(["security", "--offline=true", "--threshold=30"]).arg(service));
    let line = said.lines().find(|l| l.contains("Overall exposure level")).expect("a verdict");
    let level: f64 = line.split_once(": ").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
    assert!(level <= 3.0, "{line}");
}

#[test]
fn the_units_have_what_others_rely_on() {
    let [service, socket] = ["ibacm.service", "ibacm.socket"].map(read);
    for line in [
        "ExecStart=/usr/sbin/ibacm --systemd",
        "Type=notify",
        "WantedBy=rdma-hw.target",
        "Wants=ibacm.socket",
        // It comes back whatever ended it, and however often.
        "Restart=always",
        "StartLimitIntervalSec=0",
    ] {
        assert!(service.lines().any(|l| l == line), "{line}");
    }
    for line in [
        "ListenStream=/run/ibacm-unix.sock",
        "Symlinks=/run/ibacm.sock",
        "ListenNetlink=rdma 4",
        "WantedBy=sockets.target",
        "Before=rdma-hw.target",
    ] {
        assert!(socket.lines().any(|l| l == line), "{line}");
    }
    let stock = fs::read_to_string("/lib/systemd/system/ibacm.socket").expect("Debian's ibacm is installed");
    let sockets = |unit: &str| -> BTreeSet<String> {
        unit.lines().filter(|l| l.starts_with("Listen") || l.starts_with("Symlinks")).map(str::to_owned).collect()
    };
    assert_eq!(sockets(&socket), sockets(&stock));
}

#[test]
fn the_manuals_are_well_formed() {
    for page in ["ib_acme.1", "ibacm.7", "ibacm.8", "ibacm_prov.7"] {
        let page = package(&format!("man/{page}"));
        let said = text(&run(Command::new("mandoc").args(["-T", "lint", "-W", "style"]).arg(&page)));
        // Which other manuals are installed here says nothing of ours.
        let elsewhere = |l: &&str| l.contains("referenced manual not found") || l.contains("outdated mandoc.db");
        let wrong: Vec<&str> = said.lines().filter(|l| !elsewhere(l)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Every option with its default, as it stands in a file.
fn defaults() -> Vec<(String, String)> {
    let lines = Options::default().render();
    lines.iter().map(|l| l.split_once(' ').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap()).collect()
}

#[test]
fn every_option_is_in_the_manual_with_its_default() {
    let page = read("man/ibacm.7");
    let options = &page[page.find(".Sh OPTIONS").unwrap()..];
    for (name, value) in defaults() {
        let start = options.find(&format!(".It Va {name} ")).unwrap_or_else(|| panic!("{name} is not in the manual"));
        let item = &options[start + 4..];
        let item = &item[..item.find("\n.It ").or_else(|| item.find("\n.El")).unwrap()];
        let default = item.rsplit_once("The default is").unwrap_or_else(|| panic!("{name} without a default")).1;
        let default = default.replace("\\-", "-");
        match name.as_str() {
            // It depends on the architecture.
            "provider_lib_path" => assert!(default.contains("the package's own directory"), "{default}"),
            "provider" => assert!(default.contains(&value), "{default}"),
            _ => {
                let said = default.split_whitespace().find(|w| !w.starts_with('.'));
                let said = said.unwrap_or_default().trim_end_matches(['.', ',']);
                assert_eq!(said, value, "{name}");
            }
        }
    }
    let documented = options.lines().filter_map(|l| l.strip_prefix(".It Va ")).count();
    assert_eq!(documented, defaults().len(), "an option in the manual that does not exist");
}

#[test]
fn every_option_of_ib_acme_is_in_its_manual() {
    // The package's program, which has no --help: it shows its summary, and fails.
    let usage = text(&run(&mut Command::new("/usr/bin/ib_acme")));
    let flags: BTreeSet<char> = usage
        .lines()
        .filter_map(|l| l.trim_start().trim_start_matches('[').strip_prefix('-'))
        .filter_map(|l| l.chars().next())
        .collect();
    assert!(flags.len() >= 13, "{usage}");
    let page = read("man/ib_acme.1");
    for flag in flags {
        let item = format!(".It Fl {flag}");
        let is = |l: &str| l.strip_prefix(&item).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        assert!(page.lines().any(is), "-{flag} is not in the manual");
    }
}

#[test]
fn every_word_of_the_command_line_is_in_the_manual() {
    let page = read("man/ibacm.8").replace("\\-", "-");
    let Ok(cli::Action::Print(usage)) = cli::parse(["ibacm", "--help"]) else { panic!("no usage") };
    let words: BTreeSet<&str> = usage
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|w| w.starts_with('-') && w.len() > 1)
        .collect();
    assert!(words.len() >= 8, "{words:?}");
    for word in words {
        let flag = format!("Fl {}", &word[1..]);
        assert!(page.lines().any(|l| l.starts_with(".It ") && l.contains(&flag)), "{word} is not in the manual");
    }
    for word in
        ["SIGHUP", "SIGTERM", "SIGINT", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "/etc/rdma/ibacm_opts.cfg"]
    {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn the_sample_of_options_shows_each_with_its_default_and_changes_nothing() {
    let sample = read("ibacm_opts.cfg");
    let (as_it_is, findings) = options::parse(sample.as_bytes(), "sample");
    assert_eq!((as_it_is, findings.len()), (Options::default(), 0));
    // Lines of options are those where nothing stands between '#' and name.
    let shown: Vec<&str> = sample
        .lines()
        .filter_map(|l| l.strip_prefix('#'))
        .filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    let (uncommented, findings) = options::parse(shown.join("\n").as_bytes(), "sample");
    assert!(findings.is_empty(), "{findings:?}");
    // The example of a provider and the directory of the architecture are no defaults.
    let expected = Options {
        providers: uncommented.providers.clone(),
        provider_lib_path: "/usr/lib/x86_64-linux-gnu/ibacm".into(),
        ..Options::default()
    };
    assert_eq!(uncommented, expected);
    for (name, _) in defaults() {
        assert!(shown.iter().any(|l| l.split(' ').next() == Some(&name)), "{name} is not in the sample");
    }
}

#[test]
fn the_sample_of_names_has_good_lines() {
    let sample = read("ibacm_addr.cfg");
    assert!(addrfile::parse(sample.as_bytes(), "sample", false).0.is_empty());
    let lines = |l: &str| l.strip_prefix('#').filter(|l| l.starts_with("node")).map(str::to_owned);
    let shown: Vec<String> = sample.lines().filter_map(lines).collect();
    let (entries, findings) = addrfile::parse(shown.join("\n").as_bytes(), "sample", false);
    assert!(findings.is_empty() && entries.len() == 3, "{findings:?}");
}
