//! Tests of loading, with objects that are compiled for them: good ones, and others that do whatever they can.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::options::parse;

/// One at a time: a process that is forked while another thread has the loader's lock would wait for ever.
static TURN: Mutex<()> = Mutex::new(());

/// An object that does what it is told by `-D`.
const SOURCE: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifndef NAME
#define NAME "good"
#endif
#ifndef VERSION
#define VERSION 1
#endif
#ifndef SIZE
#define SIZE sizeof(struct provider)
#endif
#ifndef RESOLVE
#define RESOLVE any
#endif
#ifndef QUERY
#define QUERY
#endif
struct provider { size_t size; uint32_t version; const char *name; int (*calls[12])(void); };
static int any(void) { return 0; }
int missing(void);
static struct provider table = { SIZE, 1, NAME, { any, 0, any, 0, any, 0, any, 0, RESOLVE, any, 0, 0 } };
static __attribute__((constructor)) void begin(void) {
#ifdef MARK
    FILE *f = fopen(MARK, "a");
    fprintf(f, "%d\n", (int) getpid());
    fclose(f);
#endif
#ifdef BEGIN
    BEGIN;
#endif
}
#ifndef NO_QUERY
int provider_query(struct provider **provider, uint32_t *version) {
    QUERY;
    *version = VERSION;
    *provider = &table;
    return 0;
}
#endif
"#;

/// A directory of objects, and the turn to use it.
struct Dir(PathBuf, #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Dir {
    fn new(test: &str) -> Dir {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("ibacm-load-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Dir(path, turn)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles an object.
    fn object(&self, name: &str, defines: &[&str]) -> PathBuf {
        let (source, object) = (self.path("source.c"), self.path(name));
        fs::write(&source, SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", "-o"])
            .args([&object, &source])
            .args(defines.iter().map(|d| format!("-D{d}")));
        assert!(cc.status().expect("the package gcc is installed").success());
        mode(&object, 0o644);
        object
    }

    /// What is loaded, by name, and what is said, with the directory's name as `%`.
    fn load(&self, builtin: bool) -> (Vec<String>, Vec<(u8, String)>) {
        let (loaded, lines) = load(&self.0, builtin, true);
        (loaded.into_iter().map(|l| l.name).collect(), self.said(lines))
    }

    fn said(&self, lines: Vec<Line>) -> Vec<(u8, String)> {
        let dir = self.0.display().to_string();
        lines.into_iter().map(|l| (l.level, l.text.replace(&dir, "%"))).collect()
    }

    /// Processes that an object was loaded into.
    fn marks(&self) -> Vec<u32> {
        fs::read_to_string(self.path("mark")).unwrap_or_default().lines().map(|l| l.parse().unwrap()).collect()
    }

    fn mark(&self) -> String {
        format!("MARK={:?}", self.path("mark"))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

fn line(level: u8, text: &str) -> (u8, String) {
    (level, text.to_owned())
}

#[test]
fn good_ones_are_loaded_in_the_order_of_their_names() {
    let dir = Dir::new("good");
    for (file, name) in [("c.so", "Three"), ("a.so", "one"), ("b.so", "two")] {
        dir.object(file, &[&format!("NAME=\"{name}\""), &dir.mark()]);
    }
    for other in ["x.so.org", "x.SO", "xso", "README"] {
        fs::write(dir.path(other), "").unwrap();
    }
    let own = |marks: &[u32]| marks.iter().filter(|m| **m == std::process::id()).count();
    // A check loads nothing into this process.
    let (names, lines) = check(&dir.0, true, true);
    assert_eq!(names, ["one", "two", "Three"]);
    let expected = ["a.so: provider one", "b.so: provider two", "c.so: provider Three"];
    assert_eq!(dir.said(lines), expected.map(|text| line(1, &format!("%/{text}, usable"))));
    let marks = dir.marks();
    assert_eq!((own(&marks), marks.len()), (0, 3), "{marks:?}");
    let (loaded, lines) = load(&dir.0, true, true);
    let names: Vec<&str> = loaded.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "Three"]);
    assert_eq!(loaded[2].file, dir.path("c.so"));
    assert!(loaded.iter().all(|l| l.table.size == size_of::<super::super::abi::Provider>()));
    assert_eq!(dir.said(lines), expected.map(|text| line(1, &format!("%/{text}, loaded"))));
    // Each has been in a process of its own first.
    let marks = dir.marks();
    assert_eq!((own(&marks), marks.len()), (3, 9), "{marks:?}");
}

#[test]
fn bad_ones_cost_themselves_only() {
    let dir = Dir::new("bad");
    let name_of_64 = format!("NAME=\"{}\"", "n".repeat(64));
    let name_of_63 = format!("NAME=\"{}\"", "n".repeat(63));
    let table = [
        ("aborts", "BEGIN=abort()", "it crashes while it is loaded (abort)"),
        ("crashes", "BEGIN=*(volatile int *) 0 = 0", "it crashes while it is loaded (segmentation fault)"),
        ("ends", "BEGIN=exit(0)", "it ends the process while it is loaded (exit code 0)"),
        ("fails", "QUERY=return -1", "provider_query failed with -1"),
        ("name-empty", "NAME=\"\"", "its name is empty or longer than 63 bytes"),
        ("name-long", &name_of_64, "its name is empty or longer than 63 bytes"),
        ("name-none", "NAME=0", "it has no name"),
        ("no-query", "NO_QUERY", "it has no function provider_query"),
        ("no-resolve", "RESOLVE=0", "it lacks the function resolve"),
        ("nothing", "QUERY=*version = 1; *provider = 0; return 0", "provider_query has given no structure"),
        ("odd", "QUERY=*version = 1; *provider = (void *) 7; return 0", "provider_query has given no structure"),
        ("query-crashes", "QUERY=*(volatile int *) 0 = 0", "it crashes in provider_query (segmentation fault)"),
        ("query-ends", "QUERY=_exit(3)", "it ends the process in provider_query (exit code 3)"),
        ("size", "SIZE=8", "its structure has 8 bytes, this service's has 120"),
        ("symbol", "QUERY=return missing()", "undefined symbol: missing"),
        ("version", "VERSION=2", "its interface has version 2, this service's has 1"),
    ];
    for (name, define, _) in table {
        dir.object(&format!("{name}.so"), &[define]);
    }
    fs::write(dir.path("text.so"), "no object").unwrap();
    dir.object("z.so", &[&name_of_63]);
    let (names, said) = dir.load(true);
    assert_eq!(names, ["n".repeat(63)]);
    for (name, _, reason) in table {
        assert!(said.contains(&line(0, &format!("%/{name}.so: not used: {reason}"))), "{name}: {said:#?}");
    }
    assert!(said.iter().any(|l| l.0 == 0 && l.1.starts_with("%/text.so: not used: ")), "{said:#?}");
    assert_eq!(said.len(), table.len() + 2);
}

#[test]
fn what_hangs_is_ended_and_holds_nobody_up() {
    let dir = Dir::new("hangs");
    dir.object("constructor.so", &["BEGIN=for (;;) pause()", &dir.mark()]);
    dir.object("good.so", &[]);
    dir.object("query.so", &["QUERY=for (;;)", &dir.mark()]);
    let begin = Instant::now();
    let tried = |_: &Path, name: Result<String, String>| Ok((name?, ()));
    let (found, lines) = choose(&dir.0, true, true, Duration::from_secs(3), "usable", tried);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(found, [("good".to_owned(), ())]);
    let expected = [
        line(0, "%/constructor.so: not used: it does not return in time while it is loaded"),
        line(1, "%/good.so: provider good, usable"),
        line(0, "%/query.so: not used: it does not return in time in provider_query"),
    ];
    assert_eq!(dir.said(lines), expected);
    let marks = dir.marks();
    assert_eq!(marks.len(), 2);
    assert!(marks.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{marks:?}");
}

#[test]
fn what_others_can_change_is_refused() {
    let dir = Dir::new("trust");
    let object = dir.object("a.so", &[]);
    let reasons = [
        (0o646, 0, 0, "others than root can write to it"),
        (0o664, 0, 12, "its group can write to it"),
        (0o644, 12, 0, "its owner is not root"),
    ];
    for (bits, uid, gid, reason) in reasons {
        chown(&object, Some(uid), Some(gid)).expect("tests are root's");
        mode(&object, bits);
        assert_eq!(dir.load(true), (vec![], vec![line(0, &format!("%/a.so: not used: {reason}"))]));
    }
    chown(&object, Some(0), Some(0)).unwrap();
    mode(&object, 0o664);
    assert_eq!(dir.load(true).0, ["good"]);
    for (bits, uid, gid, reason) in reasons {
        chown(&dir.0, Some(uid), Some(gid)).unwrap();
        mode(&dir.0, bits | 0o111);
        let said = format!("%: no provider is loaded from there: {reason}");
        assert_eq!(dir.load(true), (vec![], vec![line(0, &said)]));
    }
    chown(&dir.0, Some(0), Some(0)).unwrap();
    mode(&dir.0, 0o755);
    // The directory may be a link; what it holds may not.
    let link = dir.path("link");
    symlink(&dir.0, &link).unwrap();
    assert_eq!(load(&link, true, true).0.len(), 1);
    fs::create_dir(dir.path("d.so")).unwrap();
    symlink("a.so", dir.path("l.so")).unwrap();
    let (names, said) = dir.load(true);
    assert_eq!(names, ["good"]);
    for reason in ["%/d.so: not used: it is not a file", "%/l.so: not used: it is a symbolic link"] {
        assert!(said.contains(&line(1, reason)), "{said:?}");
    }
}

#[test]
fn the_way_to_the_directory_is_roots() {
    let dir = Dir::new("way");
    dir.object("a.so", &[]);
    let (way, inner) = (dir.path("way"), dir.path("way/inner"));
    fs::create_dir_all(&inner).unwrap();
    fs::copy(dir.path("a.so"), inner.join("a.so")).unwrap();
    [&way, &inner].into_iter().for_each(|d| mode(d, 0o755));
    let loads = |from: &Path| {
        let (loaded, lines) = load(from, true, true);
        (loaded.len(), dir.said(lines).pop().map(|l| l.1).unwrap_or_default())
    };
    assert_eq!(loads(&inner).0, 1);
    for (bits, uid, gid, reason) in [
        (0o757, 0, 0, "others than root can write to it"),
        (0o775, 0, 12, "its group can write to it"),
        (0o755, 12, 0, "its owner is not root"),
        (0o1777, 12, 0, "its owner is not root"),
    ] {
        chown(&way, Some(uid), Some(gid)).unwrap();
        mode(&way, bits);
        let said = format!("%/way/inner: no provider is loaded from there: %/way, which leads there: {reason}");
        assert_eq!(loads(&inner), (0, said));
        // Nor does another way lead there.
        let link = dir.path("short");
        symlink("way/inner", &link).unwrap();
        let said = format!("%/short: no provider is loaded from there: %/way, which leads there: {reason}");
        assert_eq!(loads(&link), (0, said));
        fs::remove_file(link).unwrap();
    }
    // Others can put something into these, but not something else in the place of what is root's.
    chown(&way, Some(0), Some(0)).unwrap();
    for bits in [0o1777, 0o775] {
        mode(&way, bits);
        assert_eq!(loads(&inner).0, 1);
        assert_eq!(loads(&way.join("inner/../inner/.")).0, 1);
    }
    // Such a one is not for objects, and a link of somebody else's leads where he likes.
    mode(&inner, 0o1777);
    assert!(loads(&inner).1.ends_with("from there: others than root can write to it"));
    mode(&inner, 0o755);
    let link = way.join("link");
    symlink("inner", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(12), None).unwrap();
    assert!(loads(&link).1.ends_with("%/way/link, which leads there: its owner is not root"), "{:?}", loads(&link));
    symlink("round", dir.path("round")).unwrap();
    assert_eq!(loads(&dir.path("round")).0, 0);
}

#[test]
fn directories_that_are_none() {
    let dir = Dir::new("none");
    let missing = dir.path("missing");
    for (builtin, explicit, level) in [(true, false, 1), (true, true, 0), (false, false, 0)] {
        let (loaded, lines) = load(&missing, builtin, explicit);
        assert!(loaded.is_empty());
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].level, level, "{lines:?}");
        assert!(lines[0].text.contains("/missing: no provider is loaded from there: No such file"), "{lines:?}");
    }
    fs::write(&missing, "").unwrap();
    let (_, lines) = load(&missing, true, false);
    assert_eq!(lines[0].level, 0);
    assert!(lines[0].text.ends_with("it is not a directory"), "{lines:?}");
    assert!(load(Path::new(""), true, true).0.is_empty());
    fs::remove_file(missing).unwrap();
    assert_eq!(dir.load(false), (vec![], vec![]), "an empty one is none of these");
}

#[test]
fn a_namesake_of_the_built_in_one_is_never_loaded_beside_it() {
    let dir = Dir::new("builtin");
    dir.object("a.so", &["NAME=\"IBacmP\"", &dir.mark()]);
    let left_out = line(1, "%/a.so: not used: ibacmp is built in, and builtin_provider is yes");
    assert_eq!(dir.load(true), (vec![], vec![left_out]));
    let marks = dir.marks();
    assert!(marks.len() == 1 && marks[0] != std::process::id(), "{marks:?}");
    assert_eq!(dir.load(false).0, ["IBacmP"]);
}

#[test]
fn of_two_with_one_name_the_first_stays() {
    let dir = Dir::new("twice");
    dir.object("a.so", &["NAME=\"Same\""]);
    dir.object("b.so", &["NAME=\"sAME\"", &dir.mark()]);
    let (names, said) = dir.load(true);
    assert_eq!(names, ["Same"]);
    assert_eq!(said[1], line(0, "%/b.so: not used: %/a.so is provider Same already"));
    assert!(!dir.marks().contains(&std::process::id()));
}

#[test]
fn a_name_that_no_line_can_have_is_said() {
    let dir = Dir::new("unnameable");
    dir.object("a.so", &["NAME=\"my own\""]);
    dir.object("b.so", &["NAME=\"#x\""]);
    let (names, said) = dir.load(true);
    assert_eq!(names, ["my own", "#x"]);
    for start in ["%/a.so: provider 'my own': no 'provider' line can name it", "%/b.so: provider '#x': no 'provider'"] {
        assert!(said.iter().any(|l| l.0 == 0 && l.1.starts_with(start)), "{said:?}");
    }
    assert!(assigned("", &["my own", "#x"]).1.is_empty(), "once is enough");
}

#[test]
fn who_is_there_for_nothing_is_said() {
    let parsed = |text: &str| {
        let (options, _) = parse(text.as_bytes(), "f");
        assign_names(&options, &["one".to_owned(), "two".to_owned()]).1
    };
    let text = |name| format!("provider {name} is loaded, but no 'provider' line names it: it serves no port");
    let line = |name, harmless| Line { level: 0, text: text(name), line: None, harmless };
    assert_eq!(parsed(""), [line("one", false), line("two", false)]);
    assert_eq!(parsed("retries 3\nprovider ONE default\n"), [line("two", true)]);
    assert_eq!(parsed("provider two 7\n"), [line("one", true)]);
    assert!(parsed("provider two 7\nprovider one default\n").is_empty());
    // Lines that have no effect are said with their number.
    let lines: Vec<_> = parsed("\nprovider x 7\nprovider one 8\nprovider two 8\nprovider y default\n");
    assert_eq!(lines.iter().map(|l| l.line).collect::<Vec<_>>(), [Some(2), Some(4), Some(5)], "{lines:?}");
}

#[test]
fn names_are_text_and_whole() {
    let dir = Dir::new("text");
    let text = format!("NAME=\"{}\\033\\xff\"", "\u{e9}".repeat(30));
    dir.object("a.so", &[&text]);
    let long = "\\xff".repeat(63);
    dir.object("b.so", &[&format!("NAME=\"{long}\"")]);
    let (names, said) = dir.load(true);
    // What stands for a byte that is no text has three.
    assert_eq!(names, ["\u{e9}".repeat(30) + "\u{1b}", "\u{fffd}".repeat(21)], "{said:?}");
    assert!(said.iter().all(|l| !l.1.contains('\u{1b}')), "{said:?}");
}

#[test]
fn there_is_an_end_to_objects() {
    let dir = Dir::new("many");
    for n in 0..70 {
        fs::write(dir.path(&format!("{n:02}.so")), "").unwrap();
        symlink("00.so", dir.path(&format!("l{n:02}.so"))).unwrap();
    }
    let (names, said) = dir.load(true);
    assert!(names.is_empty());
    let about = |end: &str| said.iter().filter(|l| l.0 == 0 && l.1.contains(end)).count();
    assert_eq!((about(".so: not used: "), about("%: 6 more objects are not used: 64 are looked at")), (64, 1));
    assert!(said.iter().any(|l| l.1.starts_with("%/63.so")) && !said.iter().any(|l| l.1.starts_with("%/64.so")));
}

fn assigned(text: &str, names: &[&str]) -> (Providers, Vec<String>) {
    let (options, findings) = parse(text.as_bytes(), "f");
    assert!(findings.is_empty(), "{findings:?}");
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let (providers, lines) = assign_names(&options, &names);
    assert!(lines.iter().all(|l| l.level == 0));
    (providers, lines.into_iter().map(|l| l.text).collect())
}

const ONE: Option<ProviderId> = Some(ProviderId(0));
const TWO: Option<ProviderId> = Some(ProviderId(1));

#[test]
fn lines_name_providers_in_any_case() {
    let (providers, lines) = assigned(
        "provider One 1\nprovider TWO 0xfe80000000000000\nprovider IbAcmP 3\nprovider one 4\nprovider two default\n\
         provider_timeout 77\n",
        &["one", "Two"],
    );
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(providers.subnets, [(1, ONE), (0xfe80_0000_0000_0000, TWO), (3, None), (4, ONE)]);
    assert_eq!((providers.default, providers.timeout_ms), (TWO, 77));
    assert_eq!(providers.names, ["one", "Two"]);
    let none = assigned("", &[]);
    assert_eq!(none.0, Providers { timeout_ms: 30_000, ..Providers::default() });
    assert!(none.1.is_empty());
}

#[test]
fn lines_that_name_nobody_are_said() {
    let (providers, lines) = assigned("provider x 1\nprovider y default\nprovider one 2\n", &["one"]);
    assert_eq!((providers.subnets, providers.default), (vec![(2, ONE)], None));
    assert_eq!(
        lines,
        [
            "'provider x 0x0000000000000001' has no effect: there is no such provider (there are: ibacmp, one)",
            "no provider is called y (there are: ibacmp, one): ibacmp serves subnets that no line names",
        ]
    );
    let (providers, lines) = assigned("provider one 1\nprovider two 1\nprovider ONE 1\n", &["one", "two"]);
    assert_eq!((providers.subnets, lines.len()), (vec![(1, ONE)], 1));
    assert!(lines[0].contains("an earlier line names another provider"), "{lines:?}");
}

#[test]
fn without_the_built_in_one() {
    let off = "builtin_provider no\n";
    // Debian's object takes its place.
    let (providers, lines) = assigned(off, &["one", "ibacmp"]);
    assert_eq!((providers.default, lines.len()), (TWO, 1));
    assert!(lines[0].starts_with("provider one is loaded, but "), "{lines:?}");
    let (providers, lines) = assigned(&format!("{off}provider ibacmp 1\nprovider x default\n"), &["one", "ibacmp"]);
    assert_eq!((providers.subnets, providers.default, lines.len()), (vec![(1, TWO)], TWO, 2));
    // Nobody does.
    let (providers, lines) = assigned(&format!("{off}provider ibacmp 1\nprovider one 2\n"), &["one"]);
    assert_eq!(providers.subnets, [(2, ONE)]);
    assert_eq!(providers.default, TWO, "nobody: who is asked refuses");
    assert_eq!(providers.names, ["one", NOBODY]);
    assert_eq!(
        lines,
        [
            "'provider ibacmp 0x0000000000000001' has no effect: there is no such provider (there are: one)",
            "no provider is called ibacmp (there are: one): subnets that no line names are not served",
        ]
    );
}
