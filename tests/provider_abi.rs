//! What plug-ins see: the layouts of `src/provider/abi.rs` are those of the headers that rdma-core's service comes with,
//! and the program exports their functions, itself and no other.

mod util;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use ibacm::provider::abi::{Address, Device, Endpoint, Message, Port, Provider, SaMad, VERSION};
use util::{acme, run, succeed, text};

/// Debian's package ibacm has it.
const HEADER: &str = "/usr/include/infiniband/acm_prov.h";
/// And this, the provider that rdma-core has.
const STOCK_PROVIDER: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// A line for a size, an alignment or an offset: of the C type `c`, and as Rust has it.
macro_rules! layouts {
    ($($c:literal $rust:ty { $($c_field:literal $field:ident)* })*) => {{
        let mut rows: Vec<(String, usize)> = Vec::new();
        $(
            rows.push((format!("sizeof({})", $c), size_of::<$rust>()));
            rows.push((format!("_Alignof({})", $c), align_of::<$rust>()));
            $(rows.push((format!("offsetof({}, {})", $c, $c_field), offset_of!($rust, $field)));)*
        )*
        rows
    }};
}

fn layouts() -> Vec<(String, usize)> {
    let mut rows = layouts! {
        "struct acm_msg" Message {}
        "struct acm_device" Device { "verbs" verbs "dev_guid" dev_guid }
        "struct acm_port" Port { "dev" dev "port_num" port_num }
        "struct acm_endpoint" Endpoint { "port" port "pkey" pkey }
        "struct acm_address" Address { "endpoint" endpoint "info" info "id_string" id_string "type" kind }
        "struct acm_provider" Provider {
            "size" size "version" version "name" name
            "open_device" open_device "close_device" close_device
            "open_port" open_port "close_port" close_port
            "open_endpoint" open_endpoint "close_endpoint" close_endpoint
            "add_address" add_address "remove_address" remove_address
            "resolve" resolve "query" query "handle_event" handle_event "query_perf" query_perf
        }
        "struct acm_sa_mad" SaMad { "context" context "umad" umad "sa_mad" mad }
    };
    rows.push(("ACM_PROV_VERSION".into(), VERSION as usize));
    rows
}

#[test]
fn layouts_are_those_of_the_header() {
    let rows = layouts();
    let mut source =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/acm_prov.h>\nint main(void) {\n");
    for (what, _) in &rows {
        writeln!(source, "\tprintf(\"%s %zu\\n\", \"{what}\", (size_t)({what}));").unwrap();
    }
    source.push_str("\treturn 0;\n}\n");
    let directory = directory("layouts");
    let (file, program) = (directory.join("layouts.c"), directory.join("layouts"));
    fs::write(&file, source).unwrap();
    succeed(Command::new("cc").args(["-Wall", "-Werror", "-Wno-unused-function", "-o"]).arg(&program).arg(&file));
    let ours: String = rows.iter().map(|(what, n)| format!("{what} {n}\n")).collect();
    assert_eq!(ours, succeed(&mut Command::new(&program)));
    fs::remove_dir_all(&directory).unwrap();
}

/// The functions that the header says the service has.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(HEADER).unwrap();
    let functions = header.split_once("Functions exported from core").expect("the header has them").1;
    let names = functions.split('(').filter_map(|before| {
        let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
        (name.starts_with("acm_") || name.starts_with("ib_")).then(|| name.to_owned())
    });
    // The one is a macro; the other is in no header, but rdma-core's own provider calls it.
    names.filter(|name| name != "acm_log").chain(["acm_if_get_sgid".to_owned()]).collect()
}

/// The functions and data that a program exports.
fn exported(program: &Path) -> BTreeSet<String> {
    let table = succeed(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(program));
    table.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_program_exports_what_providers_call_and_nothing_else() {
    let declared = declared();
    assert!(declared.contains("acm_write") && declared.len() == 17, "{declared:?}");
    assert_eq!(exported(Path::new(env!("CARGO_BIN_EXE_ibacm"))), declared);
}

#[test]
fn other_programs_have_none_of_it() {
    assert_eq!(exported(acme::ours()), BTreeSet::new());
    // Nor is it in there for nothing.
    let all = Command::new("nm").arg(acme::ours()).output().expect("nm runs");
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    let all = String::from_utf8_lossy(&all.stdout);
    let found = all.lines().find(|line| line.ends_with(" acm_write") || line.ends_with(" acm_send_sa_mad"));
    assert_eq!(found, None);
}

#[test]
fn rdma_cores_provider_finds_all_it_needs() {
    let needed = succeed(Command::new("nm").args(["-D", "--undefined-only", "--format=posix"]).arg(STOCK_PROVIDER));
    let needed: BTreeSet<String> = needed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("acm_") || *name == "ib_any_gid")
        .map(str::to_owned)
        .collect();
    let exported = exported(Path::new(env!("CARGO_BIN_EXE_ibacm")));
    assert!(needed.len() > 10 && needed.is_subset(&exported), "{needed:?}");

    // Its constructor reads options and writes to the log, here before `main` has begun.
    let loaded = |program: &Path| {
        let mut command = Command::new(program);
        run(command.arg("--version").env("LD_PRELOAD", STOCK_PROVIDER).env("LD_BIND_NOW", "1"))
    };
    let output = loaded(Path::new(env!("CARGO_BIN_EXE_ibacm")));
    let said = text(&output);
    assert!(output.status.success() && said.contains(": acmp_log_options: route resolution "), "{said}");
    let output = loaded(acme::ours());
    assert!(!output.status.success() && text(&output).contains("undefined symbol"), "{}", text(&output));
}
