//! Files that `ib_acme` writes: what it says of them is what the distribution's says, and either service takes either's.

#[path = "util/acme_run.rs"]
mod run;
mod util;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use run::{Ran, Tool, difference, finish, is_documented};
use util::{Lab, Program, Shared};

/// One host that writes, and one that it asks for.
static SUBNET: Shared = Shared::new(|o| (o.hcas, o.hca_ports) = (2, 2));

/// Headings of docs/differences.md.
const MODE: &str = "Directories that are made";
const TWICE: &str = "A directory is entered once";
const KEPT: &str = "Files of which nothing better is known stay";
const PORTS: &str = "Names for InfiniBand ports alone";
const UNWRITTEN: &str = "Output that cannot be written";

/// Lines whose output and exit status are the same; `@` is a directory for the files, below which `sub` is missing.
const LINES: &str = "
-A -D @ | -A -V -D @ | -VA -D @ | -O -D @ | -O -V -D @ | -A -O -D @ | -O -A -V -D @ | -A -O -D @/sub -V
-A file -D @ | -Afile -D @ -V | -O file -D @ | -Ofile -D@ -V | -A file -O ofile -D @ -V | -Afile -V -Oofile -D @
-A file -O -D @ -V | -A -O ofile -D @ -V | -D @ -A @/absolute | -D @ -A @/absolute -V | -D / -D @ -A -V
-A -D @/no/such | -A -V -D @/no/such | -O -D @/no/such | -O -V -D @/no/such | -A -O -D @/no/such
-A no/such -D @ | -O no/such -D @ -V | -A '' -D @ | -O '' -D @ | -A -D '' | -A . -D @ -V | -A -D @/file/sub
-A -D @/plain | -O -D @/plain -V | -A @/plain/file -D @ | -O -D /proc/self/nosuch
-A x y -D @ -V | -A -A file -D @ -V | -A file -A -D @ -V | -A -- x -D @ | -A -V -S /nosuch -D @ | -A -v -c -D @ -V
-A -e -D @ | -A -e -D @ -V | -A file -e -D @ | -A -P -D @ | -A -e -S /nosuch -D @ | -A -d 10.77.0.9 -c -D @
-A -d 10.77.0.1 -D @ -O -V | -A -d nosuch -D @ -V | -A -s 10.77.0.1 -D @ | -AV -D @ | -OV -D @ | -A -O -P s -D @
-O - -D @ | -A - -D @ -V | -O- -D @ -V | -A- -D @ | -A - file -D @ | -A f1/ -D @ | -O f1/ -D @ -V | -O plain/ -D @
-A -C 3 -D @ | -A -f i -D @ | -A -f x -D @ | -A -D | -A -D @ -x
";

/// Takes away what was written and makes the directory new, with a file where none ought to be.
fn renew(lab: &Lab<'_>) -> PathBuf {
    let outside = lab.file("H1", "/etc/rdma/written");
    let _ = fs::remove_dir_all(&outside);
    fs::create_dir(&outside).expect("it can be made");
    fs::write(outside.join("plain"), "").expect("it can be written");
    outside
}

fn write(lab: &Lab<'_>, tool: Tool, line: &str) -> Ran {
    let words = line.split_whitespace().map(|w| w.replace('@', "/etc/rdma/written").replace("''", ""));
    tool.ask(lab, "H1", &words.collect::<Vec<_>>())
}

/// Files below the directory by name, with the lines that count in them.
fn written(lab: &Lab<'_>) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut directories = vec![lab.file("H1", "/etc/rdma/written")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("it is there").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match fs::read_to_string(entry.path()) {
                Ok(text) => {
                    let counts = |line: &&str| !line.is_empty() && !line.starts_with('#');
                    found.push((name, text.lines().filter(counts).map(str::to_owned).collect()));
                }
                Err(_) => directories.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_said_of_files_is_the_same() {
    let lab = SUBNET.enter();
    let _daemon = lab.stock("H1", "");
    let mut failures = Vec::new();
    for line in LINES.lines().filter(|l| !l.is_empty()).flat_map(|l| l.split(" | ")) {
        let [(stock, theirs), (ours, own)] = [Tool::Stock, Tool::Ours].map(|tool| {
            renew(&lab);
            let ran = write(&lab, tool, line);
            (ran, written(&lab))
        });
        if let Err(why) = difference(&ours, &stock) {
            failures.push(format!("== {line}\n{why}"));
        }
        let names = |files: &[(String, Vec<String>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        // What failed may leave a file without names behind with the distribution's.
        if stock.code() == 0 && names(&own) != names(&theirs) {
            failures.push(format!("== {line}\nours: {:?}\nstock: {:?}", names(&own), names(&theirs)));
        }
        let addresses = |files: &[(String, Vec<String>)]| {
            files
                .iter()
                .map(|(_, lines)| lines.clone())
                .filter(|l| l.iter().all(|l| l.ends_with(" default")))
                .collect::<Vec<_>>()
        };
        if stock.code() == 0 && addresses(&own) != addresses(&theirs) {
            failures.push(format!("== {line}\nours: {own:?}\nstock: {theirs:?}"));
        }
    }
    assert!(failures.is_empty(), "{} lines\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn either_service_takes_the_files_of_either_tool() {
    let lab = SUBNET.enter();
    let _peer = lab.ours("H2", "");
    let mut seen = Vec::new();
    for (tool, program) in
        [Tool::Ours, Tool::Stock].into_iter().flat_map(|t| [Program::Ours, Program::Stock].map(|p| (t, p)))
    {
        let ran = tool.words(&lab, "H1", "-A -O");
        assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{tool:?}: {ran:?}");
        let options = fs::read_to_string(lab.file("H1", "/etc/rdma/ibacm_opts.cfg")).expect("it is written");
        // It puts the file of options there as it is.
        let daemon = lab.start_configured(program, "H1", &options);
        lab.wait_joined("H1");
        let names = "-f n -s h1-1 -d h2-1 -v";
        let found =
            util::wait_for(util::PATIENCE, || Some(Tool::Stock.words(&lab, "H1", names)).filter(|r| r.code() == 0));
        assert!(found.is_some(), "{tool:?}, {program:?}: {}", Tool::Stock.words(&lab, "H1", names).stdout);
        let endpoints = Tool::Stock.words(&lab, "H1", "-e");
        seen.push((program, tool, endpoints.stdout));
        drop(daemon);
        if program == Program::Ours {
            let check = finish(lab.exec("H1", program.path()).arg("--check-config"));
            assert!(tool == Tool::Stock || check.code() == 0, "{tool:?}: {}", check.stdout);
        }
    }
    for program in [Program::Ours, Program::Stock] {
        let of: Vec<_> = seen.iter().filter(|(p, ..)| *p == program).collect();
        assert_eq!(of[0].2, of[1].2, "{program:?}");
        assert!(of[0].2.contains(",h1,h1-1") || of[0].2.contains(",h1-1,h1"), "{}", of[0].2);
    }
}

#[test]
fn directories_can_be_entered() {
    let lab = SUBNET.enter();
    for (tool, mode) in [(Tool::Ours, 0o755), (Tool::Stock, 0o644)] {
        let outside = renew(&lab);
        assert_eq!(write(&lab, tool, "-A -O -D @/sub").code(), 0, "{tool:?}");
        let made = fs::metadata(outside.join("sub")).expect("it is made").permissions().mode() & 0o777;
        assert_eq!(made, mode, "{tool:?}: {made:o}");
    }
    assert!(is_documented(MODE));
    for (tool, name) in [(Tool::Ours, "rel"), (Tool::Stock, "rel/rel")] {
        let outside = renew(&lab);
        let script = r#"umask 0; cd /etc/rdma/written && exec "$IB_ACME" -A -O -D rel"#;
        let ran = finish(&mut tool.script(&lab, "H1", script));
        assert_eq!(ran.code(), 0, "{tool:?}: {ran:?}");
        assert!(outside.join("rel/ibacm_addr.cfg").exists(), "{tool:?}");
        let made = fs::metadata(outside.join("rel")).expect("it is made").permissions().mode() & 0o777;
        assert!(tool == Tool::Stock || made == 0o755, "{made:o}");
        assert!(outside.join(name).join("ibacm_opts.cfg").exists(), "{tool:?}");
    }
    assert!(is_documented(TWICE));
}

#[test]
fn files_that_cannot_be_written_are_told() {
    let lab = SUBNET.enter();
    for (option, what) in [("-A", "address"), ("-O", "option")] {
        let line = format!("{option} /dev/full -D /run");
        let [ours, stock] = [Tool::Ours, Tool::Stock].map(|tool| tool.words(&lab, "H1", &line));
        assert_eq!((stock.code(), stock.stdout.as_str()), (0, ""), "{line}");
        let said = format!("Failed to write {what} configuration file: No space left on device\n");
        assert_eq!((ours.code(), ours.stdout), (255, said + "return status 0xffffffff\n"), "{line}: {}", ours.stderr);
    }
    assert!(is_documented(UNWRITTEN));
}

#[test]
fn ports_that_are_not_infiniband_have_no_names() {
    let lab = SUBNET.enter();
    lab.inject("device-add H2 rocep1s0 ports=eth").unwrap();
    let [ours, stock] = [Tool::Ours, Tool::Stock].map(|tool| tool.words(&lab, "H2", "-A -V"));
    lab.inject("device-remove H2 dev=rocep1s0").unwrap();
    let said = |ran: &Ran| ran.stdout.lines().filter(|l| l.contains(" default")).map(str::to_owned).collect::<Vec<_>>();
    let expected = ["h2 mlx5_0 1", "h2-1 mlx5_0 1", "h2-2 mlx5_0 2", "h2-3 mlx5_1 1", "h2-4 mlx5_1 2"];
    assert_eq!(said(&ours), expected.map(|l| format!("{l} default")), "{ours:?}");
    assert!(said(&stock).iter().any(|l| l.contains("rocep1s0")), "{stock:?}");
    assert!(is_documented(PORTS));
}

#[test]
fn what_is_known_of_devices_is_written() {
    let lab = SUBNET.enter();
    let every = |fate| ["mlx5_0", "mlx5_1"].map(|dev| lab.inject(&format!("{fate} H2 dev={dev}")).unwrap());
    every("device-remove");
    let seen = [true, false].map(|there| {
        [Tool::Ours, Tool::Stock].map(|tool| {
            let file = lab.file("H2", "/etc/rdma/ibacm_addr.cfg");
            let _ = fs::remove_file(&file);
            if there {
                lab.write("H2", "/etc/rdma/ibacm_addr.cfg", "precious mlx5_0 1 default\n");
            }
            let lines = ["-A -V", "-A", "-A -O", "-A no/such", "-A /etc/rdma"];
            let ran = lines.map(|line| tool.words(&lab, "H2", line));
            (ran, fs::read_to_string(file).expect("it is there"))
        })
    });
    every("device-restore");
    for ([(ours, own), (stock, theirs)], there) in seen.into_iter().zip([true, false]) {
        for (ours, stock) in ours.iter().zip(&stock) {
            assert_eq!(difference(ours, stock), Ok(()));
        }
        // None is what there is to name.
        let nothing = |text: &str| text.lines().all(|line| line.starts_with('#') || line.is_empty());
        assert!(nothing(&theirs) && !theirs.is_empty(), "{theirs}");
        if there {
            assert_eq!(own, "precious mlx5_0 1 default\n");
            assert!(ours[0].stderr.contains("/etc/rdma/ibacm_addr.cfg stays as it was"), "{ours:?}");
        } else {
            assert!(nothing(&own) && !own.is_empty(), "{own}");
            assert!(ours[0].stderr.contains("the file has no names"), "{ours:?}");
            // By now it is there.
            assert!(ours[1].stderr.contains("stays as it was"), "{ours:?}");
        }
    }

    // Where they cannot even be looked for, nothing is known.
    let script = r#"exec unshare -m bash -c 'mount -t tmpfs none /sys && unset LD_PRELOAD && exec "$IB_ACME" -A -V'"#;
    let [(ours, own), (stock, theirs)] = [Tool::Ours, Tool::Stock].map(|tool| {
        lab.write("H2", "/etc/rdma/ibacm_addr.cfg", "precious mlx5_0 1 default\n");
        let ran = finish(&mut tool.script(&lab, "H2", script));
        (ran, fs::read_to_string(lab.file("H2", "/etc/rdma/ibacm_addr.cfg")).expect("it is there"))
    });
    assert_eq!(difference(&ours, &stock), Ok(()));
    assert_eq!((ours.code(), own.as_str(), theirs.as_str()), (255, "precious mlx5_0 1 default\n", ""), "{ours:?}");
    assert!(is_documented(KEPT));
}
