//! `ibacm --check-config`: the options in force, every finding, and an exit code; and nothing else is done.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use ibacm::options::{Options, parse};

/// A directory for one test, with files of these names and contents.
struct Files(PathBuf);

impl Files {
    fn new(test: &str, files: &[(&str, &str)]) -> Files {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let own = Files(directory);
        for (name, text) in files {
            fs::write(own.path(name), text.replace('%', &own.0.display().to_string())).unwrap();
        }
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What a check of `opts` and `addr` says, with the directory's name as `%`, and its exit code.
    fn check(&self) -> (Vec<String>, Option<i32>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ibacm"));
        command.arg("--check-config").arg("-O").arg(self.path("opts")).arg("-A").arg(self.path("addr"));
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| line.replace(&self.0.display().to_string(), "%"));
        (lines.collect(), output.status.code())
    }

    /// What [`check`](Self::check) says but for comments, which are about plug-ins of this machine too.
    fn lines(&self) -> (Vec<String>, Option<i32>) {
        let (mut lines, code) = self.check();
        lines.retain(|line| !line.starts_with('#'));
        (lines, code)
    }

    /// The findings of a check that must have some.
    fn findings(&self) -> Vec<String> {
        let (lines, code) = self.check();
        assert_eq!(code, Some(1), "{lines:#?}");
        lines.into_iter().filter(|line| line.starts_with("%/")).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_in_force_can_be_read_back() {
    let files = Files::new("force", &[("opts", "retries 7\nmin_rate 100\nlog_file stderr\n"), ("addr", "")]);
    let (lines, code) = files.check();
    assert_eq!(code, Some(0), "{lines:#?}");
    let (options, findings) = parse(lines.join("\n").as_bytes(), "again");
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(options, parse(b"retries 7\nmin_rate 100\nlog_file stderr\n", "opts").0);
    assert_eq!(files.lines().0, options.render());
}

#[test]
fn files_that_are_not_there_are_none() {
    let (lines, code) = Files::new("none", &[]).lines();
    assert_eq!((lines, code), (Options::default().render(), Some(0)));
}

#[test]
fn every_file_has_its_findings() {
    let files = Files::new(
        "all",
        &[
            (
                "opts",
                "retries 3x\nretires 3\nsa_depth 0\naddr_preload acm_hosts\naddr_data_file %/hosts\n\
                 route_preload opensm_full_v1\nroute_data_file %/routes\nlog_file /tmp/a b\nprovider x\n",
            ),
            (
                "addr",
                "# names\nhost mlx5_0 1\n10.0.0.1 mlx5_0 1 default\nhost mlx5_0 0 default\nhost mlx5_0 1 default x\n",
            ),
            ("hosts", "10.0.0.1 fe80::1\n10.0.0.2\n"),
            ("routes", "Channel Adapter 0x0000000000100003, base LID x, \"a\", port 1\n0x0001 : 0 : 4 : 3\n"),
        ],
    );
    let findings = files.findings();
    for start in [
        "%/opts:1: warning: retries: '3x'",
        "%/opts:2: warning: unknown option 'retires'",
        "%/opts:3: warning: sa_depth: bad value '0', expected 1 to 65536; 32 stays",
        "%/opts:8: warning: 'b' after the value is ignored",
        "%/opts:9: warning: provider: ",
        "%/addr:2: warning: expected 'name device port pkey'",
        "%/addr:3: warning: IP address '10.0.0.1' without the option support_ips_in_addr_cfg",
        "%/addr:4: warning: bad port '0'",
        "%/addr:5: warning: 'x' after the pkey is ignored",
        "%/hosts:2: ",
        "%/routes:1: ",
    ] {
        assert!(findings.iter().any(|line| line.starts_with(start)), "no {start}: {findings:#?}");
    }
}

#[test]
fn the_options_hold_for_the_other_files() {
    let addr = ("addr", "10.0.0.1 mlx5_0 1 default\n");
    assert_eq!(Files::new("ips", &[("opts", "support_ips_in_addr_cfg 1\n"), addr]).check().1, Some(0));
    assert_eq!(Files::new("no-ips", &[("opts", ""), addr]).findings().len(), 1);
    // Nobody reads a file that no option asks for.
    let hosts = ("hosts", "nonsense\n");
    assert_eq!(Files::new("unasked", &[("opts", "addr_data_file %/hosts\n"), hosts]).check().1, Some(0));
}

#[test]
fn what_cannot_be_read_is_a_finding() {
    let files = Files::new("unreadable", &[("opts", "addr_preload acm_hosts\naddr_data_file %/missing\n")]);
    fs::create_dir(files.path("addr")).unwrap();
    let findings = files.findings();
    assert!(findings.iter().any(|line| line.starts_with("%/addr: cannot be read: ")), "{findings:#?}");
    assert!(findings.iter().any(|line| line.starts_with("%/missing: ")), "{findings:#?}");
    fs::remove_file(files.path("opts")).unwrap();
    fs::create_dir(files.path("opts")).unwrap();
    let findings = files.findings();
    assert!(findings.iter().any(|line| line.starts_with("%/opts: cannot be read: ")), "{findings:#?}");
}

#[test]
fn there_is_an_end_to_findings() {
    let mut text = String::new();
    for number in 0..20_000 {
        writeln!(text, "nonsense{number} \x1b[2J").unwrap();
    }
    let files = Files::new("many", &[("opts", &text)]);
    let findings = files.findings();
    assert!((1000..1100).contains(&findings.len()), "{}", findings.len());
    assert!(findings.last().unwrap().contains("more is wrong"), "{:?}", findings.last());
    let large = Files::new("large", &[]);
    fs::write(large.path("opts"), vec![b'\n'; 17 << 20]).unwrap();
    assert!(large.findings()[0].contains("larger than"));
}

/// Compiles an object for `provider_lib_path`.
fn plugin(files: &Files, name: &str, code: &str) {
    let source = files.path("source.c");
    let text = format!(
        "#include <infiniband/acm_prov.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         static struct acm_provider p = {{ .size = sizeof(p), .version = 1, .name = \"{name}\" }};\n\
         int provider_query(struct acm_provider **q, uint32_t *v) {{ *q = &p; *v = 1; return 0; }}\n\
         static __attribute__((constructor)) void begin(void) {{ {code} }}\n"
    );
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(files.path(&format!("{name}.so"))).arg(&source);
    assert!(cc.status().expect("the package gcc is installed").success());
}

#[test]
fn plugins_are_tried_and_named() {
    let lines = "provider_lib_path %\nprovider late 1\nprovider ibacmp 2\n";
    let files = Files::new("plugins", &[("opts", lines), ("addr", "")]);
    fs::set_permissions(&files.0, fs::Permissions::from_mode(0o755)).unwrap();
    // What they say is nothing that a check says.
    plugin(&files, "silent", "puts(\"noise\"); fputs(\"noise\", stderr); fflush(0);");
    plugin(&files, "ends", "puts(\"noise\"); exit(0);");
    plugin(&files, "dies", "abort();");
    fs::copy("/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so", files.path("own.so"))
        .expect("Debian's ibacm is installed");
    let (said, code) = files.check();
    assert_eq!(code, Some(1), "{said:#?}");
    for line in [
        "%/ends.so: not used: it ends the process while it is loaded (exit code 0)",
        "%/dies.so: not used: it crashes while it is loaded (abort)",
        "%/silent.so: not used: it lacks the function open_device",
        "# %/own.so: not used: ibacmp is built in, and builtin_provider is yes",
        "%/opts:2: warning: 'provider late 0x0000000000000001' has no effect: there is no such provider (there are: ibacmp)",
    ] {
        assert!(said.iter().any(|l| l == line), "no {line}: {said:#?}");
    }
    assert!(!said.iter().any(|l| l.contains("noise")), "{said:#?}");
    // One that serves alone is nothing wrong, unless there is none.
    for name in ["silent", "ends", "dies"] {
        fs::remove_file(files.path(&format!("{name}.so"))).unwrap();
    }
    let alone = format!("provider_lib_path {}\nbuiltin_provider no\n", files.0.display());
    fs::write(files.path("opts"), alone).unwrap();
    let (said, code) = files.check();
    assert_eq!(code, Some(0), "{said:#?}");
    assert!(said.iter().any(|l| l == "# %/own.so: provider ibacmp, usable"), "{said:#?}");
    fs::set_permissions(&files.0, fs::Permissions::from_mode(0o775 | 0o002)).unwrap();
    let (said, code) = files.check();
    assert_eq!(code, Some(1), "{said:#?}");
    for line in [
        "%: no provider is loaded from there: others than root can write to it",
        "%/opts: no provider is called ibacmp (there is none): subnets that no line names are not served",
        "%/opts: no provider is there: builtin_provider is no, and % has none that can be used",
    ] {
        assert!(said.iter().any(|l| l == line), "no {line}: {said:#?}");
    }
}

#[test]
fn nothing_but_reading_is_done() {
    let files =
        Files::new("reading", &[("opts", "log_file %/log\nlock_file %/lock\nserver_mode open\n"), ("addr", "")]);
    for name in ["opts", "addr"] {
        fs::set_permissions(files.path(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    assert_eq!(files.check().1, Some(0));
    let mut names: Vec<_> = fs::read_dir(&files.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["addr", "opts"]);
}
