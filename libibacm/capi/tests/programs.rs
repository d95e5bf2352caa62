//! C and C++ programs built with nothing but the header, the libraries and pkg-config, as an installation has them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ibacm_c as _;
use ibacm_wire::client::{Entry, Header, OP_ACK, PATH_FLAGS};
use libibacm::PathRecord;

/// The static library that cargo has made beside this program.
fn static_library() -> PathBuf {
    let program = std::env::current_exe().expect("a test is a file");
    let directory = program.parent().expect("in a directory");
    let made = fs::read_dir(directory).expect("that can be read").flatten().map(|e| e.path()).filter(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libibacm_c") && name.ends_with(".a")
    });
    made.max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok()).expect("cargo makes it with the tests")
}

/// Runs a command that must succeed; its output.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// An installation in a directory of its own.
fn install(name: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libibacm-{name}-{}", std::process::id()));
    let capi = Path::new(env!("CARGO_MANIFEST_DIR"));
    succeed(
        Command::new(capi.join("../../scripts/install-libibacm"))
            .arg(format!("PREFIX={}", prefix.display()))
            .arg(format!("LIBRARY={}", static_library().display())),
    );
    let text = fs::read_to_string(prefix.join("lib/pkgconfig/libibacm.pc")).unwrap();
    assert!(!text.contains('@') && text.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
    let manual = succeed(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(capi.join("../ib_acm.3")));
    assert_eq!(manual, "");
    prefix
}

fn build(prefix: &Path, compiler: &[&str], source: &str, name: &str) -> PathBuf {
    let flags = succeed(
        Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .args(["--cflags", "--libs", "libibacm"]),
    );
    let program = prefix.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    succeed(
        Command::new(compiler[0])
            .args(&compiler[1..])
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .args(flags.split_whitespace()),
    );
    program
}

fn run(prefix: &Path, program: &Path, server: &str) -> String {
    succeed(Command::new("timeout").arg("30").arg(program).env("LD_LIBRARY_PATH", prefix.join("lib")).args([
        server,
        "10.77.0.2",
        "fd77::2",
        "here",
        "there",
    ]))
}

#[test]
fn only_what_is_promised_is_exported_with_its_version() {
    let prefix = install("symbols");
    let symbols = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(prefix.join("lib/libibacm.so.1")),
    );
    let exported: Vec<_> = symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("libibacm.map")).unwrap();
    let mut promised: Vec<_> = map.lines().filter_map(|l| l.trim().strip_suffix(';')).collect();
    promised.retain(|l| l.starts_with("ib_acm_"));
    assert_eq!(promised.len(), 20);
    for symbol in &promised {
        assert!(exported.contains(&format!("{symbol}@@IBACM_1.0").as_str()), "{symbol} is not in {symbols}");
    }
    // The version itself is a symbol too.
    assert_eq!(exported.len(), promised.len() + 1, "{symbols}");
    fs::remove_dir_all(prefix).unwrap();
}

#[test]
fn programs_in_c_and_cpp_ask_a_service() {
    let prefix = install("programs");
    let socket = std::env::temp_dir().join(format!("libibacm-c-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 592];
                loop {
                    stream.read_exact(&mut bytes[..16])?;
                    let header = Header::read(&bytes).expect("16 bytes");
                    let length = usize::from(header.length);
                    stream.read_exact(&mut bytes[16..length])?;
                    let mut record = PathRecord::default();
                    record.set_dlid(5);
                    record.set_slid(4);
                    let asked = PathRecord(Entry::read(&bytes[..length], 0).expect("an entry").info);
                    let refuse = asked.dlid() == 0x7777;
                    let (status, length) = if refuse { (3, 16) } else { (0, 88) };
                    let header = Header { opcode: header.opcode | OP_ACK, status, length, ..header };
                    let mut reply = header.emit().to_vec();
                    if !refuse {
                        reply.extend_from_slice(&Entry::path(PATH_FLAGS, &record).emit());
                    }
                    stream.write_all(&reply)?;
                }
                #[allow(unreachable_code, reason = "the type of the thread's result")]
                std::io::Result::Ok(())
            });
        }
    });
    let c = build(&prefix, &["cc", "-std=c11", "-D_GNU_SOURCE"], "everything.c", "program-c");
    let cpp = build(&prefix, &["c++", "-std=c++17", "-x", "c++"], "everything.c", "program-cpp");
    for program in [c, cpp] {
        // No device here has the path's source: the path is found, but not where to send from.
        let said = run(&prefix, &program, &socket.display().to_string());
        assert_eq!(said, "resolve_ip -1 19\n");
        let begin = Instant::now();
        let said = run(&prefix, &program, "/nowhere/ibacm.sock");
        assert_eq!(said, "resolve_ip -1 2\n");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    let forks = build(&prefix, &["cc", "-std=gnu11", "-pthread"], "forks.c", "forks");
    let mut command = Command::new("timeout");
    command.arg("30").arg(forks).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert_eq!(succeed(command.arg(&socket)), "0 0\n");
    fs::remove_file(socket).unwrap();
    fs::remove_dir_all(prefix).unwrap();
}
