//! Applications that use libibacm, in C and in C++, against this service and the distribution's.

mod util;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use std::time::Duration;

use ibacm_wire::PathRecord;
use libibacm::{Address, Client, Scope, Status, Target};
use util::{Lab, Program, Shared, run, sa, succeed, text};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

/// A client of the service on H1.
fn client(lab: &Lab<'_>) -> Client {
    Client::new(Target::Unix(lab.file("H1", "/run/ibacm-unix.sock"))).with_limit(Duration::from_secs(15))
}

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

/// The shared library and the program, built by a compiler.
fn build(name: &str, compiler: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libibacm-{name}"));
    succeed(Command::new(here.join("scripts/link-libibacm")).arg(static_library()).arg(&directory));
    let program = directory.join("everything");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Werror", "-I"]).arg(here.join("libibacm/include"));
    command.arg("-o").arg(&program).arg(here.join("libibacm/capi/tests/c/everything.c"));
    succeed(command.arg("-L").arg(&directory).args(["-libacm", "-libverbs"]));
    program
}

fn hex(record: &PathRecord) -> String {
    record.0.iter().map(|b| format!("{b:02x}")).collect()
}

/// What the program has to say on H1.
fn wanted(path: &PathRecord, guid: u64, said: &str) {
    let line = |start: &str| {
        let found = said.lines().find_map(|l| l.strip_prefix(start)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {start} in {said}"))
    };
    let record = format!("0 {}", hex(path));
    for asked in ["path", "query", "many0", "many1", "session"] {
        assert_eq!(line(asked), record, "{asked}");
    }
    assert_eq!(line("dev"), format!("{:016x} 0 1", guid.to_be()));
    assert_eq!(line("ah"), format!("{} {} 0 {} 0 1", path.dlid(), path.sl(), path.rate() & 0x3f));
    assert!(line("data").ends_with(&format!(" {} {}", path.packet_lifetime() & 0x3f, path.mtu() & 0x3f)));
    // Made here of the pieces: a local path has no destination GID in its address handle.
    let converted = line("convert").strip_prefix("0 ").expect("it works");
    let bytes: Vec<u8> =
        (0..64).map(|i| u8::from_str_radix(&converted[2 * i..2 * i + 2], 16).expect("it is printed so")).collect();
    let converted = PathRecord::read(&bytes).expect("64 bytes");
    assert_eq!(
        (converted.sgid(), converted.slid(), converted.dlid(), converted.pkey(), converted.sl()),
        (path.sgid(), path.slid(), path.dlid(), path.pkey(), path.sl())
    );
    assert_eq!(converted.reversible_numpath(), 0x81);
    for (made, found) in [
        (converted.mtu(), path.mtu()),
        (converted.rate(), path.rate()),
        (converted.packet_lifetime(), path.packet_lifetime()),
    ] {
        assert_eq!(made, 0x80 | found & 0x3f);
    }
    let dlid = path.dlid();
    assert_eq!((line("ip6"), line("name")), (&*format!("0 {dlid}"), &*format!("0 {dlid}")));
    assert_eq!(line("nobody"), "1 1 status");
    assert_eq!(line("many"), "0 1275");
    assert_eq!(line("fork"), "0 0");
    assert_eq!((line("null"), line("nowhere")), ("-1 1", "-1 1 no data"));
}

#[test]
fn programs_get_the_paths_of_the_sa() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let programs = [build("c", &["cc", "-std=gnu11"]), build("cpp", &["c++", "-std=c++17", "-x", "c++"])];
    let _peer = lab.start_named(Program::Ours, "H2", "", &format!("there {} 1 default\n", two.device));
    for service in [Program::Ours, Program::Stock] {
        let _daemon = lab.start_named(service, "H1", "", &format!("here {} 1 default\n", one.device));
        for program in &programs {
            let mut command = lab.exec("H1", program);
            command.env("LD_LIBRARY_PATH", program.parent().expect("in a directory"));
            let output = run(command.args(["", "10.77.0.2", "fd77::2", "here", "there"]));
            let said = text(&output);
            assert!(output.status.success(), "{service:?}: {said}");
            let guid = client(&lab).endpoint(1).expect("there is one").device_guid;
            wanted(&path, guid, &said);
        }
    }
}

#[test]
fn the_crate_asks_everything_there_is_to_ask() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let names = |host: &str, device: &str| format!("{host} {device} 1 default\n");
    let _peer = lab.start_named(Program::Ours, "H2", "", &names("there", &two.device));
    for service in [Program::Ours, Program::Stock] {
        let _daemon = lab.start_named(service, "H1", "timeout 200\nretries 1\n", &names("here", &one.device));
        let client = client(&lab);
        let found = client.resolve_ip(None, "10.77.0.2".parse().unwrap()).unwrap();
        assert_eq!((found.record, found.source), (path, Some(Address::parse("10.77.0.1"))), "{service:?}");
        let found = client.resolve_name(Some("here"), "there").unwrap();
        assert_eq!((found.record, found.source), (path, None), "{service:?}");
        let mut part = PathRecord::default();
        part.set_dgid(path.dgid());
        part.set_sgid(path.sgid());
        assert_eq!(client.resolve_path(&part).unwrap().record, path, "{service:?}");
        assert_eq!(client.query_path(&part).unwrap().record, path, "{service:?}");
        // Nobody has this address.
        let nobody = Address::parse("10.77.0.99");
        let status = client.resolve_cached(None, nobody.clone()).unwrap_err().status();
        assert_eq!(status, Some(Status::Enodata), "{service:?}");
        let status = client.resolve(None, nobody).unwrap_err().status();
        assert_eq!(status, Some(Status::Etimedout), "{service:?}");

        let endpoints = client.endpoints().unwrap();
        assert_eq!(endpoints.len(), 1, "{service:?}");
        assert_eq!((endpoints[0].port, endpoints[0].pkey & 0x7fff), (1, 0x7fff), "{service:?}");
        assert!(endpoints[0].addresses.iter().any(|a| a == "here"), "{service:?}: {endpoints:?}");
        let totals = client.counters(Scope::Totals).unwrap();
        assert!(totals.resolve >= 6 && totals.addr_query >= 1, "{service:?}: {totals:?}");
        let by_number = client.counters(Scope::Endpoint(1)).unwrap();
        assert_eq!(client.counters(Scope::Address(Address::parse("10.77.0.1"))).unwrap(), by_number, "{service:?}");

        // The distribution's service closes on two requests in one read, which the caller does not see.
        let many = vec![Address::parse("10.77.0.2"); 300];
        let mut answers = 0;
        client.resolve_many(None, &many, |_, found| {
            assert_eq!(found.expect("each has one").record, path, "{service:?}");
            answers += 1;
        });
        assert_eq!(answers, 300, "{service:?}");
    }
}

#[test]
fn a_restarted_service_is_found_again() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let _peer = lab.ours("H2", "");
    let client = client(&lab);
    for service in [Program::Ours, Program::Stock, Program::Ours] {
        let daemon = lab.start(service, "H1", "");
        let found = client.resolve_ip(None, "10.77.0.2".parse().unwrap()).unwrap();
        assert_eq!(found.record, path, "{service:?}");
        daemon.stop();
    }
    let error = client.resolve_ip(None, "10.77.0.2".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("start the ibacm service"), "{error}");
}
