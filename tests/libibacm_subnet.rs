//! Applications that use libibacm, in C, in C++ and in Rust, against this service and the distribution's.

#[path = "../libibacm/capi/tests/support/mod.rs"]
mod library;
mod util;

use std::path::{Path, PathBuf};
use std::process::Command;

use std::time::Duration;

use ibacm_wire::{Gid, PathRecord};
use libibacm::{Address, Client, Scope, Status, Target};
use library::{Prefix, VALGRIND, root};
use util::{Daemon, Lab, PATIENCE, Program, Shared, run, sa, succeed, text, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

/// Ports with two LIDs each, in a subnet with a prefix of its own.
static WIDE: Shared = Shared::new(|o| {
    o.hosts = 2;
    o.opensm.push("lmc 1".into());
    o.opensm.push("subnet_prefix 0xfec0000000000077".into());
});

const EVERYTHING: &str = "libibacm/capi/tests/c/everything.c";

/// A client of the service on H1.
fn client(lab: &Lab<'_>) -> Client {
    Client::new(Target::Unix(lab.file("H1", "/run/ibacm-unix.sock"))).with_limit(Duration::from_secs(15))
}

/// A Rust program of the crate's.
fn rust_program(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libibacm-rust");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--offline", "--package", "libibacm", "--example", name]);
    // The first time it compiles what the crate needs.
    library::succeed(cargo.current_dir(root()).arg("--target-dir").arg(&target));
    target.join("debug/examples").join(name)
}

/// What a program says on H1, where it may neither leak nor touch what it may not.
fn under_valgrind(lab: &Lab<'_>, prefix: &Prefix, program: &Path, arguments: &[&str]) -> String {
    let mut command = lab.exec("H1", VALGRIND[0]);
    command.args(&VALGRIND[1..]).arg(program).args(arguments).env("LD_LIBRARY_PATH", prefix.libraries());
    succeed(&mut command)
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
    assert_eq!(line("record"), record);
    assert_eq!(line("cached"), record);
    assert_eq!((line("connect"), line("source"), line("from"), line("unknown")), ("0", "10.77.0.1", "0 1 1", "3"));
    assert_eq!((line("counters"), line("flags")), ("0 0 1 1", "-1 1"));
    assert!(line("of").starts_with("0 ") && line("of") != "0 0", "{}", line("of"));
    assert_eq!((line("endpoint"), line("endpoints"), line("bounded")), ("1 1 1 1", "1 2 1", "0 0 238"));
    // What else libibverbs has is what it says.
    let depths = line("data").split(' ').take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(depths, line("device"));
    assert_ne!(depths, "0 0");
    assert_eq!(line("nobody"), "1 1 status");
    assert_eq!(line("many"), "0 1275");
    assert_eq!(line("fork"), "0 0");
    assert_eq!((line("port"), line("host")), ("-1 1", "-1 1"));
    assert_eq!((line("null"), line("nowhere")), ("-1 1", "-1 1 no data"));
}

/// A service on H1 that has no socket file.
fn over_tcp(lab: &Lab<'_>, service: Program, options: &str, names: &str) -> Daemon {
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", names);
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", options);
    lab.inject("leave H1").expect("it is there");
    let daemon = lab.spawn(service, "H1", &["-P"]);
    let port = lab.file("H1", "/run/ibacm.port");
    assert!(wait_for(PATIENCE, || port.exists().then_some(())).is_some(), "{service:?}: {}", daemon.said());
    lab.wait_joined("H1");
    daemon
}

#[test]
fn programs_get_the_paths_of_the_sa() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let prefix = Prefix::install("paths");
    let programs = [
        prefix.build(&["cc", "-std=gnu11"], EVERYTHING, "everything-c"),
        prefix.build(&["c++", "-std=c++17", "-x", "c++"], EVERYTHING, "everything-cpp"),
    ];
    let in_rust = rust_program("every_call");
    let arguments = ["", "10.77.0.2", "fd77::2", "here", "there"];
    let _peer = lab.start_named(Program::Ours, "H2", "", &format!("there {} 1 default\n", two.device));
    let mut guid = 0;
    for (service, mode) in [
        (Program::Ours, ""),
        (Program::Stock, ""),
        (Program::Ours, "server_mode loop\nserver_port 6126\n"),
        (Program::Stock, "server_mode loop\nserver_port 6126\n"),
    ] {
        let names = format!("here {} 1 default\n", one.device);
        let _daemon = if mode.is_empty() {
            lab.start_named(service, "H1", mode, &names)
        } else {
            over_tcp(&lab, service, mode, &names)
        };
        // Where applications look, and what there is for them.
        assert_eq!(lab.file("H1", "/run/ibacm.port").exists(), !mode.is_empty(), "{service:?} {mode}");
        assert_eq!(lab.file("H1", "/run/ibacm.sock").exists(), mode.is_empty(), "{service:?} {mode}");
        if mode.is_empty() {
            guid = client(&lab).endpoint(1).expect("there is one").device_guid;
        }
        for program in &programs {
            let said = under_valgrind(&lab, &prefix, program, &arguments);
            wanted(&path, guid, &said);
        }
        let said = under_valgrind(&lab, &prefix, &in_rust, &arguments);
        let record = hex(&path);
        for call in ["ip", "ip6", "name", "resolve", "cached", "path", "query"] {
            assert!(said.contains(&format!("{call} {record}\n")), "{service:?} {mode} {call}: {said}");
        }
        let rest = "counters true\nof-endpoint true\nendpoint true\nof-port true\nendpoints 1\nmany 100\nsession 100\n";
        assert!(said.starts_with("connect true\n") && said.ends_with(rest), "{service:?} {mode}: {said}");
    }
}

/// The examples do what their description says.
#[test]
fn the_examples_find_paths() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let prefix = Prefix::install("examples");
    let build = |name: &str| prefix.build(&["cc", "-std=gnu11"], &format!("examples/{name}.c"), name);
    let (resolve, connect) = (build("resolve"), build("connect_rc"));
    let in_rust = rust_program("resolve");
    let names = |host: &str, device: &str| format!("{host} {device} 1 default\n");
    let _peer = lab.start_named(Program::Ours, "H2", "", &names("there", &two.device));
    let wanted = format!(
        "from LID {} to LID {}, SL {}, P_Key {:#06x}, MTU {}\n",
        path.slid(),
        path.dlid(),
        path.sl(),
        path.pkey(),
        128 << (path.mtu() & 0x3f)
    );
    for service in [Program::Ours, Program::Stock] {
        let _daemon = lab.start_named(service, "H1", "", &names("here", &one.device));
        for arguments in [&["10.77.0.2"][..], &["fd77::2", "10.77.0.1"], &["there", "here"]] {
            for program in [&resolve, &in_rust] {
                assert_eq!(under_valgrind(&lab, &prefix, program, arguments), wanted, "{service:?} {arguments:?}");
            }
            let said = under_valgrind(&lab, &prefix, &connect, arguments);
            let value = |name: &str| {
                let word = said.split([' ', ',', '\n']).skip_while(|w| *w != name).nth(1);
                word.and_then(|w| w.parse::<u32>().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
            };
            assert_eq!((value("port_num"), value("pkey_index")), (1, 0), "{said}");
            assert_eq!((value("dlid"), value("sl")), (path.dlid().into(), path.sl().into()), "{said}");
            assert_eq!(value("path_mtu"), u32::from(path.mtu() & 0x3f), "{said}");
            // The device allows 16 of the peer's and 128 of its own, and says that it takes 2^16 * 4.096 us.
            assert_eq!((value("max_dest_rd_atomic"), value("max_rd_atomic")), (16, 16), "{said}");
            let lifetime = u32::from(path.packet_lifetime() & 0x3f);
            assert_eq!(value("timeout"), (lifetime + 1).max(16) + 1, "{said}");
            assert!(said.ends_with("UD    an address handle\n"), "{said}");
        }
        // There are no reliable connections on this subnet: its devices refuse the queue pair, and that is said.
        let mut command = lab.exec("H1", &connect);
        command.args(["-q", "7", "-p", "99", "10.77.0.2"]).env("LD_LIBRARY_PATH", prefix.libraries());
        let output = run(&mut command);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("dest_qp_num 7, rq_psn 99,") && said.contains("ibv_create_qp: "), "{said}");
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
        let _daemon = lab.start_named(service, "H1", "timeout 1000\nretries 1\n", &names("here", &one.device));
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

/// Whatever a question names, the answers of services and of the subnet administrator are to it.
#[test]
fn answers_are_to_their_questions() {
    let lab = WIDE.enter();
    let hosts = lab.hosts(["H1", "H2"]);
    let _peer = lab.ours("H2", "");
    let by_default = |gid: Gid| {
        let mut bytes = gid.0;
        bytes[..8].copy_from_slice(&(0xfe80_u64 << 48).to_be_bytes());
        Gid(bytes)
    };
    for service in [Program::Ours, Program::Stock] {
        let _daemon = lab.start(service, "H1", "");
        let client = client(&lab);
        let [one, two] = hosts.each_ref().map(|h| (h.lid, sa::path(&lab, h.lid, h.lid).sgid()));
        for (lid, gid) in [two, one] {
            let mut questions = Vec::new();
            for offset in [0, 1] {
                let mut question = PathRecord::default();
                question.set_dlid(lid + offset);
                questions.push(question);
                question.set_slid(one.0 + offset);
                questions.push(question);
                question.set_dgid(gid);
                question.set_sgid(one.1);
                questions.push(question);
            }
            for dgid in [gid, by_default(gid)] {
                let mut question = PathRecord::default();
                question.set_dgid(dgid);
                question.set_sgid(one.1);
                questions.push(question);
            }
            for question in questions {
                for answer in [client.resolve_path(&question), client.query_path(&question)] {
                    let found = answer.unwrap_or_else(|e| panic!("{service:?} {question:?}: {e}")).record;
                    assert_eq!(found.dgid(), gid, "{service:?} {question:?}");
                    assert!([0, found.dlid()].contains(&question.dlid()), "{service:?} {question:?}");
                }
            }
        }
    }
}
