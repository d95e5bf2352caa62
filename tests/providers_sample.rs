//! `examples/static_provider.c`: a provider as it is to be, built with either header, in this service and in the
//! distribution's.

#[path = "util/plugin.rs"]
mod plugin;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use ibacm_wire::client::{
    Counter, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN, PATH_FLAGS, Status, TYPE_PATH,
};
use ibacm_wire::{Gid, PathRecord, path};
use plugin::{Headers, build, compiler, lay_down, serve};
use util::client::{between, ip, name, to_gid, to_lid};
use util::{Client, Lab, Program, Shared, run, sa, succeed, text};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);

const SAMPLE: &str = "examples/static_provider.c";
const TABLE: &str = "/etc/rdma/static_table.data";
const NAMES: &str = "h1 mlx5_0 1 default\nother mlx5_0 1 default\n";

#[test]
fn it_compiles_with_either_header_in_c_and_in_cpp() {
    let languages: [&[&str]; 5] = [
        &["cc", "-std=gnu11"],
        &["cc", "-std=gnu17", "-O3", "-D_FORTIFY_SOURCE=2"],
        &["c++", "-std=gnu++17", "-x", "c++"],
        &["c++", "-std=gnu++20", "-x", "c++"],
        &["c++", "-x", "c++"],
    ];
    for headers in [Headers::Ours, Headers::System] {
        for language in languages {
            for source in [SAMPLE, "tests/c/acm_functions.c"] {
                succeed(compiler(language, headers, source).args(["-fPIC", "-c", "-o", "/dev/null"]));
            }
        }
    }
    // The line that the file itself and examples/README.md tell.
    let line = "cc -shared -fPIC -O2 -Wall -Wextra -o static_provider.so examples/static_provider.c -libverbs";
    for place in [SAMPLE, "examples/README.md"] {
        let said = fs::read_to_string(plugin::root().join(place)).unwrap();
        assert!(said.contains(line), "{place}");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static_provider.so");
    let words = line.split(' ').skip(1).map(|word| match word {
        "static_provider.so" => target.display().to_string(),
        word => word.to_owned(),
    });
    let said = succeed(std::process::Command::new("cc").args(words).current_dir(plugin::root()));
    assert_eq!(said, "", "warnings");
    let exported = succeed(std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(&target));
    assert!(exported.contains(" T provider_query\n"), "{exported}");
    fs::remove_file(target).unwrap();
}

#[test]
fn both_headers_say_the_same() {
    let say = |headers| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("acm-layout-{headers:?}"));
        succeed(compiler(&["cc"], headers, "tests/c/acm_layout.c").arg("-o").arg(&program));
        let said = succeed(&mut std::process::Command::new(&program));
        fs::remove_file(program).unwrap();
        said
    };
    let (ours, theirs) = (say(Headers::Ours), say(Headers::System));
    assert!(ours.contains("struct acm_provider 120 8\n"), "{ours}");
    assert_eq!(ours, theirs);
    // The macro for the log is text, and in C++ only ours can be used.
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("acm-log.c");
    fs::write(&source, "#include <infiniband/acm_prov.h>\nvoid f(void);\nvoid f(void) { acm_log(1, \"%d\\n\", 1); }\n")
        .unwrap();
    for language in [&["cc"][..], &["c++", "-x", "c++"]] {
        let mut cc = std::process::Command::new(language[0]);
        cc.args(&language[1..]).arg("-I").arg(plugin::root().join("pkg/include"));
        succeed(cc.args(["-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"]).arg(&source));
    }
    fs::remove_file(source).unwrap();
}

/// Puts the table in place, and gives back the options that the provider is used by.
fn furnish(lab: &Lab<'_>) -> String {
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let gid = |g: [u8; 16]| Ipv6Addr::from(g);
    let table = format!(
        "# address GID LID\n\
         Two {two} {}\n10.77.0.2 {two} {}\nfd77::2 {two} {} 3 1024 40\n\
         own {one} {}\n10.77.0.1 {one} {} 0\n\
         nonsense\n10.77.0.9 not-a-gid 4\n10.77.0.10 {two} 0\n10.77.0.11 {two} 4 16\n\
         far fec0::5 9\n",
        two.lid,
        two.lid,
        two.lid,
        one.lid,
        one.lid,
        two = gid(two.gid),
        one = gid(one.gid),
    );
    assert_ne!(three.lid, two.lid);
    lab.write("H1", TABLE, &table);
    let sample = build(SAMPLE);
    lay_down(lab, "H1", &[&sample]) + &format!("provider static default\nstatic_table {TABLE}\n")
}

/// Questions, what they are called, and the status that they end with.
fn questions(lab: &Lab<'_>) -> Vec<(&'static str, Vec<Entry>, Status)> {
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let dest = |text| ip(EP_FLAG_DEST, text);
    let from = |mut p: PathRecord| {
        p.set_sgid(Gid(one.gid));
        Entry::path(0, &p)
    };
    let mut by_lid = PathRecord::default();
    by_lid.set_dlid(two.lid);
    by_lid.set_slid(one.lid);
    let mut nobody = two.gid;
    nobody[15] ^= 0x80;
    let ok = Status::Success;
    vec![
        ("IPv4", between("10.77.0.1", "10.77.0.2").into(), ok),
        ("IPv4 without source", vec![dest("10.77.0.2")], ok),
        ("IPv6", between("fd77::1", "fd77::2").into(), ok),
        ("IPv6 without source", vec![dest("fd77::2")], ok),
        ("source last", between("10.77.0.1", "10.77.0.2").into_iter().rev().collect(), ok),
        ("from IPv6 to IPv4", between("fd77::1", "10.77.0.2").into(), ok),
        ("name", vec![name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "two")], ok),
        ("name in capitals", vec![name(EP_FLAG_SOURCE, "OTHER"), name(EP_FLAG_DEST, "TWO")], ok),
        ("own", between("10.77.0.1", "10.77.0.1").into(), ok),
        ("another subnet", vec![name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "far")], ok),
        ("known at once", vec![ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.2")], ok),
        ("LID", vec![to_lid(0, two.lid)], ok),
        ("LID with source", vec![Entry::path(0, &by_lid)], ok),
        ("GID", vec![to_gid(0, two.gid)], ok),
        ("GID with source", vec![from(PathRecord(to_gid(0, two.gid).info))], ok),
        ("a LID that only the SA knows", vec![to_lid(0, three.lid)], ok),
        ("a GID that only the SA knows", vec![to_gid(0, three.gid)], ok),
        ("not at once", vec![to_gid(FLAG_NODELAY, three.gid)], Status::Enodata),
        ("the SA's own word", vec![to_lid(FLAG_QUERY_SA, two.lid)], ok),
        ("the SA's own word about a GID", vec![to_gid(FLAG_QUERY_SA, three.gid)], ok),
        ("nobody's LID", vec![to_lid(0, 0x1234)], Status::Enodata),
        ("nobody's GID", vec![to_gid(0, nobody)], Status::Enodata),
        ("nobody's GID at the SA", vec![to_gid(FLAG_QUERY_SA, nobody)], Status::Enodata),
        ("unknown address", between("10.77.0.1", "10.77.0.77").into(), Status::Enodata),
        ("no line", between("10.77.0.1", "10.77.0.9").into(), Status::Enodata),
        ("no LID", between("10.77.0.1", "10.77.0.10").into(), Status::Enodata),
        ("no SL", between("10.77.0.1", "10.77.0.11").into(), Status::Enodata),
        ("unknown name", vec![name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "nobody")], Status::Enodata),
        ("no destination", vec![ip(EP_FLAG_SOURCE, "10.77.0.1")], Status::Edesttype),
        ("somebody else's source", between("10.77.0.2", "10.77.0.1").into(), Status::Esrcaddr),
        ("two destinations", vec![dest("10.77.0.2"), dest("10.77.0.3")], Status::Edestaddr),
        ("no path", vec![Entry::path(0, &PathRecord::default())], Status::Edestaddr),
    ]
}

/// What a service with the provider says: its answers with the tids zero, its list of endpoints, its counters.
struct Said {
    answers: Vec<(&'static str, Vec<u8>)>,
    endpoints: String,
    counters: Vec<String>,
}

fn say(lab: &Lab<'_>, program: Program, options: &str) -> Said {
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", NAMES);
    let daemon = serve(lab, program, "H1", options, "static");
    plugin::until(lab, "H1", &between("10.77.0.1", "10.77.0.2"), 0);
    let before = lab.path_queries("H1");
    let mut client = Client::connect(lab, "H1");
    let mut answers = Vec::new();
    for (what, entries, status) in questions(lab) {
        let reply = client.resolve(&entries);
        assert_eq!(reply.header.status, status as u8, "{program:?}: {what}: {}", daemon.said());
        let mut bytes = reply.bytes;
        bytes[8..16].fill(0);
        answers.push((what, bytes));
    }
    assert_eq!(lab.path_queries("H1") - before, 7, "{program:?}: the SA is asked for what only it knows");
    let counters = ["-P", "-P 1", "-P all", "-P s -s 10.77.0.1"]
        .map(|words| lab.acme("H1", &words.split(' ').collect::<Vec<_>>()))
        .to_vec();
    let endpoints = lab.acme("H1", &["-e"]);
    drop(client);
    drop(daemon);
    Said { answers, endpoints, counters }
}

#[test]
fn both_services_say_the_same() {
    let lab = SUBNET.enter();
    let options = furnish(&lab);
    let stock = say(&lab, Program::Stock, &options);
    let ours = say(&lab, Program::Ours, &options);
    for ((what, ours), (_, stock)) in ours.answers.iter().zip(&stock.answers) {
        assert_eq!(ours, stock, "{what}");
    }
    assert_eq!(ours.endpoints, stock.endpoints);
    assert!(ours.endpoints.contains(",static,10.77.0.1/16,fd77::1/64,h1,other\n"), "{}", ours.endpoints);
    assert_eq!(ours.counters.len(), 4);
    // How often it was asked until it answered is the one thing that differs.
    let figures = |said: &String| {
        let line = said.lines().rfind(|l| l.starts_with('/')).unwrap_or_else(|| panic!("no figures: {said}"));
        line.split(',').skip(1).map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    for (ours, stock) in ours.counters[1..].iter().zip(&stock.counters[1..]) {
        let [ours, stock] = [ours, stock].map(figures);
        let (resolve, cache) = (Counter::Resolve as usize, Counter::RouteCache as usize);
        for (i, (a, b)) in ours.iter().zip(&stock).enumerate().filter(|(i, _)| *i != resolve && *i != cache) {
            assert_eq!(a, b, "counter {i}: {ours:?} {stock:?}");
        }
        assert_eq!(ours[Counter::RouteQuery as usize], 7);
        assert!(ours[cache] >= 14 && ours[resolve] == ours[cache] + 13, "{ours:?}");
    }
    // Those of the service have what the provider told it.
    let total = figures(&ours.counters[0]);
    assert_eq!(total[Counter::RouteQuery as usize], 7, "{total:?}");
    assert!(total[Counter::RouteCache as usize] >= 14, "{total:?}");
}

#[test]
fn its_records_are_those_of_the_table_and_the_port() {
    let lab = SUBNET.enter();
    let options = furnish(&lab);
    let [one, two] = lab.hosts(["H1", "H2"]);
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", NAMES);
    let daemon = serve(&lab, Program::Ours, "H1", &options, "static");
    plugin::until(&lab, "H1", &between("10.77.0.1", "10.77.0.2"), 0);
    let mut wanted = PathRecord::default();
    wanted.set_dgid(Gid(two.gid));
    wanted.set_sgid(Gid(one.gid));
    wanted.set_dlid(two.lid);
    wanted.set_slid(one.lid);
    wanted.set_reversible_numpath(path::REVERSIBLE | 1);
    wanted.set_pkey(0xffff);
    wanted.set_mtu(0x84);
    wanted.set_rate(0x83);
    wanted.set_packet_lifetime(0x80 | 18);
    let mut client = Client::connect(&lab, "H1");
    let reply = client.resolve(&[ip(EP_FLAG_DEST, "10.77.0.2")]);
    let h = &reply.header;
    assert_eq!((h.version, h.opcode, h.status, h.data, reply.bytes.len()), (1, 0x81, 0, [0; 3], HDR_LEN + 144));
    let entries = reply.entries();
    assert_eq!((entries[0].flags, entries[0].kind), (PATH_FLAGS, TYPE_PATH));
    assert_eq!(entries[1], ip(EP_FLAG_SOURCE, "10.77.0.1"));
    assert_eq!(reply.path(), wanted);
    // What the line says of MTU, rate and SL.
    let slow = client.resolve(&between("fd77::1", "fd77::2")).path();
    assert_eq!((slow.sl(), slow.mtu(), slow.rate()), (3, 0x83, 0x87));
    let far = client.resolve(&[name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "far")]).path();
    assert_eq!((far.flow_hop(), far.dlid()), (64, 9));
    // The SA's, byte by byte.
    let reply = client.resolve(&[to_lid(FLAG_QUERY_SA, two.lid)]);
    assert_eq!(reply.path(), sa::path(&lab, one.lid, two.lid));
    let said = lab.acme("H1", &["-f", "i", "-d", "10.77.0.2"]);
    assert!(said.contains("Source: 10.77.0.1\n") && said.contains("return status 0x0"), "{said}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn it_follows_its_port() {
    let lab = SUBNET.enter();
    let options = furnish(&lab);
    let daemon = serve(&lab, Program::Ours, "H1", &options, "static");
    let question = between("10.77.0.1", "10.77.0.2");
    plugin::until(&lab, "H1", &question, 0);
    // A new LID is a new port to a provider; the table is read again.
    let [one] = lab.hosts(["H1"]);
    lab.write("H1", TABLE, &format!("10.77.0.2 {} 77\n", Ipv6Addr::from(one.gid)));
    lab.inject("port H1 lid=55").unwrap();
    let mut client = Client::connect(&lab, "H1");
    let moved = util::wait_for(util::PATIENCE, || {
        let reply = client.resolve(&question);
        (reply.header.status == 0 && reply.path().slid() == 55).then(|| reply.path())
    });
    assert_eq!(moved.map(|p| p.dlid()), Some(77), "{}", daemon.said());
    // A port that is down has no endpoints; questions about it fail at once.
    lab.inject("port H1 state=1").unwrap();
    plugin::until(&lab, "H1", &question, Status::Esrcaddr as u8);
    lab.inject("port-reset H1").unwrap();
    plugin::until(&lab, "H1", &question, 0);
    // An address more, an address less.
    succeed(lab.exec("H1", "ip").args(["addr", "add", "10.77.3.1/32", "dev", "ib0"]));
    plugin::until(&lab, "H1", &between("10.77.3.1", "10.77.0.2"), 0);
    succeed(lab.exec("H1", "ip").args(["addr", "del", "10.77.3.1/32", "dev", "ib0"]));
    plugin::until(&lab, "H1", &between("10.77.3.1", "10.77.0.2"), Status::Esrcaddr as u8);
    plugin::until(&lab, "H1", &question, 0);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn without_a_table_it_says_so_in_the_log_of_the_service() {
    let lab = SUBNET.enter();
    let sample = build(SAMPLE);
    let options = lay_down(&lab, "H1", &[&sample]) + "provider static default\n";
    let daemon = serve(&lab, Program::Ours, "H1", &options, "static");
    plugin::until(&lab, "H1", &between("10.77.0.1", "10.77.0.2"), Status::Enodata as u8);
    let said = daemon.said();
    assert!(said.contains("static: there is no line static_table in /etc/rdma/ibacm_opts.cfg\n"), "{said}");
    drop(daemon);
    // An option of its own is nothing to warn of while it is there: with level 1 the log has it.
    let opts = lab.file("H1", "/etc/rdma/ibacm_opts.cfg");
    let check = || run(lab.exec("H1", Program::Ours.path()).arg("--check-config"));
    fs::write(&opts, furnish(&lab)).unwrap();
    let checked = check();
    assert!(checked.status.success(), "{}", text(&checked));
    assert!(text(&checked).contains("\n# /etc/rdma/ibacm_opts.cfg:3: warning: unknown option 'static_table'\n"));
    for level in [0, 1] {
        let options = format!("log_level {level}\n{}", furnish(&lab));
        let daemon = serve(&lab, Program::Ours, "H1", &options, "static");
        daemon.signal("HUP");
        let read = util::wait_for(util::PATIENCE, || daemon.said().contains("were read again").then_some(()));
        assert!(read.is_some(), "{}", daemon.said());
        let said = daemon.said();
        assert_eq!(said.matches("unknown option 'static_table'").count(), 2 * level, "{said}");
    }
    fs::write(&opts, "static_table x\n").unwrap();
    let checked = check();
    assert!(!checked.status.success(), "{}", text(&checked));
    // The manual of the interface is there for whoever writes another.
    let manual = run(std::process::Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .arg(plugin::root().join("pkg/man/ibacm_prov.7")));
    assert!(manual.status.success(), "{}", text(&manual));
}
