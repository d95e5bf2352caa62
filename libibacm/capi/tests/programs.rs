//! C and C++ programs built with nothing but the header, the libraries and pkg-config, as an installation has them.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ibacm_c as _;
use ibacm_wire::client::{Entry, Header, OP_ACK, PATH_FLAGS, TYPE_PATH};
use libibacm::PathRecord;
use support::{Prefix, root, succeed};

fn run(prefix: &Prefix, program: &Path, server: &str) -> String {
    succeed(Command::new("timeout").arg("30").arg(program).env("LD_LIBRARY_PATH", prefix.libraries()).args([
        server,
        "10.77.0.2",
        "fd77::2",
        "here",
        "there",
    ]))
}

fn promised() -> Vec<String> {
    let map = fs::read_to_string(root().join("libibacm/capi/libibacm.map")).unwrap();
    let symbols = map.lines().filter_map(|l| l.trim().strip_suffix(';')).filter(|l| l.starts_with("ib_acm_"));
    symbols.map(str::to_owned).collect()
}

#[test]
fn an_installation_is_complete() {
    let prefix = Prefix::install("files");
    let text = fs::read_to_string(prefix.0.join("lib/pkgconfig/libibacm.pc")).unwrap();
    assert!(!text.contains('@') && text.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
    for page in ["ib_acm.3", "ib_acm_session.3"] {
        let page = root().join("libibacm").join(page);
        assert_eq!(succeed(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&page)), "");
    }
    // What is exported is declared, and described where man(1) looks for it.
    let header = fs::read_to_string(prefix.0.join("include/infiniband/ib_acm.h")).unwrap();
    for symbol in promised() {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
        let page = prefix.0.join(format!("share/man/man3/{symbol}.3.gz"));
        let text = succeed(Command::new("gzip").arg("-dc").arg(&page));
        assert!(text.contains(&format!("\n.Fn {symbol} ")), "{symbol} is not in {}", page.display());
    }
    // And all of it goes again, with the directories, but for what somebody else has there.
    fs::write(prefix.0.join("share/theirs"), "").unwrap();
    prefix.command(&["REMOVE=yes"]);
    let left: Vec<_> = fs::read_dir(&prefix.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["share"]);
    assert_eq!(fs::read_dir(prefix.0.join("share")).unwrap().count(), 1);
    fs::remove_file(prefix.0.join("share/theirs")).unwrap();
    prefix.command(&["REMOVE=yes"]);
    assert!(!prefix.0.exists() && prefix.0.parent().unwrap().exists());
}

#[test]
fn programs_are_linked_in_every_way() {
    let prefix = Prefix::install("links");
    let source = "libibacm/capi/tests/c/everything.c";
    let nowhere = |program: &Path| assert_eq!(run(&prefix, program, "/nowhere/ibacm.sock"), "resolve_ip -1 2\n");
    let archive = prefix.libraries().join("libibacm.a");
    let whole = ["-Wl,--whole-archive".into(), archive.display().to_string(), "-Wl,--no-whole-archive".into()];
    for (compiler, flags) in [("cc", vec!["-static-libgcc"]), ("c++", vec!["-static-libgcc", "-x", "c++"])] {
        let program = prefix.0.join("program");
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").arg(&program).arg(root().join(source)).args(["-x", "none"]);
        succeed(command.args(prefix.flags(&["--static", "--cflags", "--libs"])));
        nowhere(&program);
    }
    // The library's archive, all of it, with the shared libraries of others.
    let program = prefix.0.join("program");
    let mut command = Command::new("cc");
    command.arg("-o").arg(&program).arg(root().join(source)).args(prefix.flags(&["--cflags"])).args(whole);
    let libraries = prefix.flags(&["--static", "--libs"]);
    succeed(command.args(libraries.iter().filter(|l| *l != "-libacm")));
    nowhere(&program);
    let statuses = prefix.build(&["cc", "-std=c11"], "libibacm/capi/tests/c/statuses.c", "statuses");
    let mut command = Command::new(statuses);
    assert_eq!(succeed(command.env("LD_LIBRARY_PATH", prefix.libraries())), "no data\n");
}

#[test]
fn only_what_is_promised_is_exported_with_its_version() {
    let prefix = Prefix::install("symbols");
    let symbols = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(prefix.libraries().join("libibacm.so.1")),
    );
    let exported: Vec<_> = symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let promised = promised();
    assert_eq!(promised.len(), 26);
    for symbol in &promised {
        assert!(exported.contains(&format!("{symbol}@@IBACM_1.0").as_str()), "{symbol} is not in {symbols}");
    }
    // The version itself is a symbol too.
    assert_eq!(exported.len(), promised.len() + 1, "{symbols}");

    // The static library has these names and no others, and nothing for a debugger.
    let file = prefix.libraries().join("libibacm.a");
    let symbols = succeed(Command::new("nm").args(["-g", "--defined-only"]).arg(&file));
    let mut exported: Vec<_> = symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let mut promised: Vec<_> = promised.iter().map(String::as_str).collect();
    exported.sort_unstable();
    promised.sort_unstable();
    assert_eq!(exported, promised);
    let sections = succeed(Command::new("readelf").args(["-SW"]).arg(&file));
    assert!(!sections.contains(".debug_") && !sections.contains(".llvmbc"), "{sections}");
    assert!(file.metadata().unwrap().len() < 4 << 20);
}

#[test]
fn programs_in_c_and_cpp_ask_a_service() {
    let prefix = Prefix::install("programs");
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
                    let entry = Entry::read(&bytes[..length], 0).expect("an entry");
                    let asked = PathRecord(entry.info);
                    if entry.kind == TYPE_PATH {
                        record.set_dlid(asked.dlid());
                    }
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
    let source = "libibacm/capi/tests/c/everything.c";
    let c = prefix.build(&["cc", "-std=c11", "-D_GNU_SOURCE"], source, "program-c");
    let cpp = prefix.build(&["c++", "-std=c++17", "-x", "c++"], source, "program-cpp");
    // All in one file.
    let whole = prefix.0.join("program-static");
    let mut command = Command::new("cc");
    command.arg("-static").arg("-o").arg(&whole).arg(root().join(source));
    succeed(command.args(prefix.flags(&["--static", "--cflags", "--libs"])));
    for program in [c, cpp, whole] {
        // No device here has the path's source: the path is found, but not where to send from.
        let said = run(&prefix, &program, &socket.display().to_string());
        assert_eq!(said, "resolve_ip -1 19\n");
        let begin = Instant::now();
        let said = run(&prefix, &program, "/nowhere/ibacm.sock");
        assert_eq!(said, "resolve_ip -1 2\n");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    let forks = prefix.build(&["cc", "-std=gnu11", "-pthread"], "libibacm/capi/tests/c/forks.c", "forks");
    let mut command = Command::new("timeout");
    command.arg("30").arg(forks).env("LD_LIBRARY_PATH", prefix.libraries());
    assert_eq!(succeed(command.arg(&socket)), "0 0 0\n");
    fs::remove_file(socket).unwrap();
}
