//! The distribution's own provider, libibacmp.so, in our service, beside our built-in provider and the distribution's
//! service on other hosts: through changes of the fabric and the host, with other providers in the same process, and
//! under load.

#[path = "util/plugin.rs"]
mod plugin;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, Status};
use ibacm_wire::{Gid, PathRecord};
use plugin::{LIBIBACMP, build, lay_down};
use util::client::{between, ip, name, to_gid, to_lid};
use util::plugged::{EXCUSED, OPTIONS};
use util::{Client, Daemon, Lab, Program, Shared, compile, sa, succeed, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);
static TWO_PORTS: Shared = Shared::new(|o| (o.hosts, o.hcas) = (2, 2));

/// Our service on a host with the distribution's provider alone.
fn plugged(lab: &Lab<'_>, host: &str, options: &str) -> Daemon {
    let daemon = lab.ours(host, &format!("{options}{OPTIONS}"));
    lab.excuse(daemon.pid(), EXCUSED);
    daemon
}

/// H1 with the plug-in, H2 with the built-in provider, H3 with the distribution's service.
fn everywhere(lab: &Lab<'_>, options: &str) -> [Daemon; 3] {
    [plugged(lab, "H1", options), lab.ours("H2", options), lab.stock("H3", options)]
}

fn path_of(from: u16, to: u16) -> Entry {
    let mut p = PathRecord::default();
    p.set_slid(from);
    p.set_dlid(to);
    Entry::path(0, &p)
}

/// Every kind of question from one host to another.
fn questions(lab: &Lab<'_>, from: usize, to: usize) -> Vec<(String, Vec<Entry>)> {
    let [one, two] = lab.hosts([from, to].map(|n| ["H1", "H2", "H3"][n - 1]));
    let mut by_gid = PathRecord(to_gid(0, two.gid).info);
    by_gid.set_sgid(Gid(one.gid));
    let mut sa = Entry::path(0, &by_gid);
    sa.flags = FLAG_QUERY_SA;
    let all: Vec<(&str, Vec<Entry>)> = vec![
        ("IPv4", between(&format!("10.77.0.{from}"), &format!("10.77.0.{to}")).into()),
        ("IPv4 without source", vec![ip(EP_FLAG_DEST, &format!("10.77.0.{to}"))]),
        ("IPv6", between(&format!("fd77::{from}"), &format!("fd77::{to}")).into()),
        ("IPv6 without source", vec![ip(EP_FLAG_DEST, &format!("fd77::{to}"))]),
        ("name", vec![name(EP_FLAG_SOURCE, &format!("h{from}")), name(EP_FLAG_DEST, &format!("h{to}"))]),
        ("LID", vec![to_lid(0, two.lid)]),
        ("LIDs", vec![path_of(one.lid, two.lid)]),
        ("GID", vec![to_gid(0, two.gid)]),
        ("GIDs", vec![Entry::path(0, &by_gid)]),
        ("the SA", vec![sa]),
    ];
    all.into_iter().map(|(kind, entries)| (format!("H{from} to H{to}, {kind}"), entries)).collect()
}

/// Everybody resolves everybody, by every kind of question. The distribution's provider knows nothing of anybody while it
/// joins its groups again.
fn all_resolve_all(lab: &Lab<'_>, what: &str) {
    for from in 1..=3 {
        let mut client = Client::connect(lab, &format!("H{from}"));
        for to in (1..=3).filter(|to| *to != from) {
            let [one, two] = lab.hosts([from, to].map(|n| ["H1", "H2", "H3"][n - 1]));
            for (kind, question) in questions(lab, from, to) {
                let known = || Some(client.resolve(&question)).filter(|r| r.header.status != Status::Enodata as u8);
                let path = wait_for(util::PATIENCE, known).unwrap_or_else(|| panic!("{what}: {kind}")).path();
                assert_eq!((path.slid(), path.dlid()), (one.lid, two.lid), "{what}: {kind}");
                assert_eq!((path.sgid(), path.dgid()), (Gid(one.gid), Gid(two.gid)), "{what}: {kind}");
            }
        }
    }
}

#[test]
fn it_resolves_and_is_resolved() {
    let lab = SUBNET.enter();
    let resolve = compile("rdma_resolve", &["-lrdmacm", "-libverbs"]);
    for route in ["sa", "acm"] {
        let _daemons = everywhere(&lab, &format!("route_prot {route}\n"));
        all_resolve_all(&lab, route);
        // From memory, and not at all.
        let mut client = Client::connect(&lab, "H1");
        let known = [ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.2")];
        assert_eq!(client.resolve(&known).header.status, 0);
        let unknown = [ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.77")];
        assert_eq!(client.resolve(&unknown).header.status, Status::Enodata as u8);
        let own = client.resolve(&between("10.77.0.1", "10.77.0.1")).path();
        assert_eq!(own.dlid(), own.slid());
        // The distribution's clients.
        let [one, two] = lab.hosts(["H1", "H2"]);
        let (dlid, dgid) = (two.lid.to_string(), std::net::Ipv6Addr::from(two.gid).to_string());
        for words in [
            &["-f", "i", "-d", "10.77.0.2"][..],
            &["-f", "i", "-s", "fd77::1", "-d", "fd77::2"],
            &["-f", "n", "-s", "h1", "-d", "h2"],
            &["-f", "l", "-d", &dlid],
            &["-f", "g", "-d", &dgid],
        ] {
            let said = lab.acme("H1", &[words, &["-v"]].concat());
            assert!(said.contains("SA verification: success"), "{route}, {words:?}: {said}");
        }
        let said = lab.acme("H1", &["-e"]);
        assert!(said.contains(",ibacmp,10.77.0.1/16,fd77::1/64,h1,h1-1\n"), "{said}");
        let said = lab.acme("H1", &["-P", "1"]);
        assert!(said.lines().any(|l| l.starts_with('/') && !l.ends_with(",0,0,0,0,0,0,0")), "{said}");
        let said = succeed(lab.exec("H1", &resolve).args(["4", "-", "10.77.0.3"]));
        assert!(said.starts_with("path 0000") && said.ends_with("\nsource 10.77.0.1\n"), "{said}");
        if route == "sa" {
            let path = sa::path(&lab, one.lid, two.lid);
            assert_eq!(client.resolve(&between("10.77.0.1", "10.77.0.2")).path(), path);
        }
    }
    std::fs::remove_file(resolve).unwrap();
}

/// Waits until the answer is a path between these.
fn becomes(lab: &Lab<'_>, question: &[Entry], slid: u16, dlid: u16, what: &str) {
    let mut last = None;
    let found = wait_for(util::PATIENCE, || {
        // A new client, since the service that is asked may be a new one.
        let reply = Client::connect(lab, "H1").resolve(question);
        let ends = (reply.header.status == 0).then(|| (reply.path().slid(), reply.path().dlid()));
        last = Some((reply.header.status, ends));
        (ends == Some((slid, dlid))).then_some(())
    });
    assert!(found.is_some(), "{what}: {last:?}");
}

#[test]
fn it_goes_through_changes() {
    let lab = rob::enter(&SUBNET);
    // Short, so that what nobody answers ends soon; often, so that a busy machine answers in time.
    let options = "timeout 300\nretries 8\n";
    let [mut daemon, _built_in, _stock] = everywhere(&lab, options);
    all_resolve_all(&lab, "at first");
    let question = between("10.77.0.1", "10.77.0.2");
    let [one, two] = lab.hosts(["H1", "H2"]);

    // The port goes down and up. The provider joins its groups again when it is told that the manager wants it: managers
    // say so, and if they do not, the groups are gone all the same.
    for turn in 0..3 {
        lab.inject("port H1 state=1").unwrap();
        plugin::until(&lab, "H1", &question, Status::Esrcaddr as u8);
        lab.inject("port-reset H1").unwrap();
        if turn != 1 {
            lab.inject("event H1 CLIENT_REREGISTER").unwrap();
        }
        lab.wait_joined("H1");
        becomes(&lab, &question, one.lid, two.lid, &format!("port up, {turn}"));
    }
    all_resolve_all(&lab, "port up");

    // Its LID changes and changes back. The provider goes on with what it remembers, as it does elsewhere.
    lab.inject("port H1 lid=57").unwrap();
    let mut fresh = path_of(57, two.lid);
    fresh.flags = FLAG_QUERY_SA;
    becomes(&lab, &[fresh], 57, two.lid, "new LID");
    lab.inject("port-reset H1").unwrap();
    becomes(&lab, &question, one.lid, two.lid, "old LID");

    // An address comes, moves away and comes back.
    let moving = between("10.77.4.1", "10.77.0.2");
    let to_moving = between("10.77.0.1", "10.77.4.1");
    rob::ip(&lab, "H1", "addr add 10.77.4.1/32 dev ib0");
    becomes(&lab, &moving, one.lid, two.lid, "a new source");
    becomes(&lab, &to_moving, one.lid, one.lid, "a new own address");
    rob::ip(&lab, "H1", "addr del 10.77.4.1/32 dev ib0");
    plugin::until(&lab, "H1", &moving, Status::Esrcaddr as u8);
    rob::ip(&lab, "H2", "addr add 10.77.4.1/32 dev ib0");
    becomes(&lab, &to_moving, one.lid, two.lid, "an address at another host");
    rob::ip(&lab, "H2", "addr del 10.77.4.1/32 dev ib0");
    for n in 0..30 {
        rob::ip(&lab, "H1", &format!("addr add 10.77.5.{n}/32 dev ib0"));
    }
    becomes(&lab, &between("10.77.5.29", "10.77.0.2"), one.lid, two.lid, "many addresses");
    rob::ip(&lab, "H1", "link set ib0 down");
    rob::ip(&lab, "H1", "link set ib0 up");
    // IPv6 addresses go with the link.
    rob::ip(&lab, "H1", "addr add fd77::1/64 dev ib0 nodad");
    for n in 0..30 {
        rob::ip(&lab, "H1", &format!("addr del 10.77.5.{n}/32 dev ib0"));
    }
    becomes(&lab, &question, one.lid, two.lid, "addresses gone");

    // A new subnet manager wants all registrations once more.
    lab.manager("restart").unwrap();
    ["H1", "H2", "H3"].into_iter().for_each(|host| lab.wait_joined(host));
    all_resolve_all(&lab, "a new manager");
    lab.inject("event H1 CLIENT_REREGISTER").unwrap();

    // Files are read again; the provider has read its own options when it was loaded.
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", &format!("renamed {} 1 default\n", one.device));
    daemon.signal("HUP");
    becomes(&lab, &[name(EP_FLAG_SOURCE, "renamed"), name(EP_FLAG_DEST, "h2")], one.lid, two.lid, "a new name");
    assert!(daemon.is_alive());
    assert_eq!(lab.acme("H1", &["-e"]).matches(",ibacmp,").count(), 1);
    std::fs::remove_file(lab.file("H1", "/etc/rdma/ibacm_addr.cfg")).unwrap();
    assert_eq!(daemon.stop(), Some(0));
}

/// Ports of H1 with two subnet prefixes: the first stays in the usual one.
fn split(lab: &Lab<'_>) {
    for host in ["H1", "H2"] {
        lab.inject(&format!("port {host} dev=mlx5_1 gid=fec0:0:0:1::{}", &host[1..])).unwrap();
    }
    lab.write("H1", "/etc/rdma/ibacm_addr.cfg", "one mlx5_0 1 default\ntwo mlx5_1 1 default\n");
    lab.write("H2", "/etc/rdma/ibacm_addr.cfg", "one-peer mlx5_0 1 default\ntwo-peer mlx5_1 1 default\n");
}

fn ports(lab: &Lab<'_>) -> [[u16; 2]; 2] {
    let ports = lab.ports().unwrap();
    let lid = |h: &str, d: &str| ports.iter().find(|p| p.host == h && p.device == d).unwrap().lid;
    ["mlx5_0", "mlx5_1"].map(|device| ["H1", "H2"].map(|host| lid(host, device)))
}

#[test]
fn two_providers_serve_two_ports() {
    let lab = rob::enter(&TWO_PORTS);
    split(&lab);
    let sample = build("examples/static_provider.c");
    lab.write("H1", "/etc/rdma/static_table.data", "two-peer fec0:0:0:1::2 77\n");
    let prefix = "0xfec0000000000001";
    let debian = lay_down(&lab, "H1", &[Path::new(LIBIBACMP), &sample]);
    let table = "static_table /etc/rdma/static_table.data\n";
    let _peer = lab.start_configured(Program::Ours, "H2", "timeout 300\n");
    let [[one, one_peer], [two, two_peer]] = ports(&lab);
    let ask = |from: &str, to: &str| [name(EP_FLAG_SOURCE, from), name(EP_FLAG_DEST, to)];
    // (options, who serves the ports, where the second path leads)
    for (options, served, far) in [
        (format!("{debian}builtin_provider no\nprovider static {prefix}\n{table}"), ["ibacmp", "static"], 77),
        (format!("{debian}{table}provider static {prefix}\n"), ["ibacmp", "static"], 77),
        (format!("{debian}{table}provider STATIC default\nprovider ibacmp {prefix}\n"), ["static", "ibacmp"], two_peer),
        (format!("{debian}{table}builtin_provider no\n"), ["ibacmp", "ibacmp"], two_peer),
    ] {
        let plugged = options.contains("builtin_provider no");
        let daemon = lab.start_configured(Program::Ours, "H1", &format!("{options}timeout 300\n"));
        if plugged {
            lab.excuse(daemon.pid(), EXCUSED);
        }
        becomes(&lab, &ask("two", "two-peer"), two, far, &options);
        if served[0] == "ibacmp" {
            becomes(&lab, &ask("one", "one-peer"), one, one_peer, &options);
        }
        becomes(&lab, &[path_of(one, one_peer)], one, one_peer, &options);
        becomes(&lab, &[path_of(two, two_peer)], two, two_peer, &options);
        let said = lab.acme("H1", &["-e"]);
        for (name, prov) in ["one", "two"].iter().zip(served) {
            let line = said.lines().find(|l| l.split(',').any(|word| word == *name));
            let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
            assert!(line.contains(&format!(",{prov},")), "{options}: {said}");
        }
        assert_eq!(
            plugged,
            std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap().contains("libibacmp")
        );
        // A port changes hands when its subnet prefix does.
        if served == ["ibacmp", "static"] {
            lab.inject("port H1 dev=mlx5_1 gid=fec0:0:0:2::1").unwrap();
            let changed = wait_for(util::PATIENCE, || (!lab.acme("H1", &["-e"]).contains(",static,")).then_some(()));
            assert!(changed.is_some(), "{options}: {}", lab.acme("H1", &["-e"]));
            lab.inject("port H1 dev=mlx5_1 gid=fec0:0:0:1::1").unwrap();
            becomes(&lab, &ask("two", "two-peer"), two, 77, &options);
        }
        assert_eq!(daemon.stop(), Some(0), "{options}");
    }
}

/// What is asked under load, and whether it has an answer.
fn loads(lab: &Lab<'_>) -> Vec<(Vec<Entry>, Option<u16>)> {
    let [_, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let lid = |n| if n == 2 { two.lid } else { three.lid };
    let mut all: Vec<(Vec<Entry>, Option<u16>)> = Vec::new();
    for to in [2, 3] {
        for (kind, question) in questions(lab, 1, to) {
            if !kind.contains("without source") {
                all.push((question, Some(lid(to))));
            }
        }
    }
    all.push((vec![ip(EP_FLAG_SOURCE, "10.77.0.1"), ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.99")], None));
    all.push((between("10.77.0.1", "10.77.0.98").into(), None));
    all
}

/// Clients that ask all the time, and come and go; what the process has grown by.
fn under_load(provider: &str, seconds: u64) {
    let lab = SUBNET.enter();
    let options = "timeout 100\nretries 0\nsa_depth 16\nresolve_depth 16\n";
    let mut daemon = match provider {
        "ibacmp" => plugged(&lab, "H1", options),
        _ => {
            let sample = build("examples/static_provider.c");
            let [two, three] = lab.hosts(["H2", "H3"]);
            let line = |name: String, port: &fabric::PortLine| {
                format!("{name} {} {}\n", std::net::Ipv6Addr::from(port.gid), port.lid)
            };
            let lines = [(2, &two), (3, &three)].map(|(n, port)| {
                [format!("10.77.0.{n}"), format!("fd77::{n}"), format!("h{n}")].map(|name| line(name, port)).concat()
            });
            lab.write("H1", "/etc/rdma/static_table.data", &lines.concat());
            let options = lay_down(&lab, "H1", &[&sample])
                + options
                + "provider static default\nstatic_table /etc/rdma/static_table.data\n";
            plugin::serve(&lab, Program::Ours, "H1", &options, "static")
        }
    };
    let _peers = [lab.ours("H2", ""), lab.stock("H3", "")];
    let pid = daemon.pid();
    let loads = loads(&lab);
    for (question, answer) in &loads {
        if answer.is_some() {
            plugin::until(&lab, "H1", question, 0);
        }
    }
    let (answered, failed, longest) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let (mut measured, begin) = (Vec::new(), Instant::now());
    std::thread::scope(|scope| {
        for n in 0..24usize {
            let (lab, loads, stop) = (&lab, &loads, &stop);
            let (answered, failed, longest) = (&answered, &failed, &longest);
            scope.spawn(move || {
                let mut turn = n * 7;
                while !stop.load(Ordering::Relaxed) {
                    let mut client = Client::connect(lab, "H1");
                    for _ in 0..1 + turn % 50 {
                        turn += 1;
                        let (question, answer) = &loads[turn % loads.len()];
                        let asked = Instant::now();
                        let reply = client.resolve(question);
                        let took = asked.elapsed().as_millis() as u64;
                        longest.fetch_max(took, Ordering::Relaxed);
                        match answer {
                            Some(dlid) if reply.header.status == 0 => assert_eq!(reply.path().dlid(), *dlid),
                            Some(_) => {
                                failed.fetch_add(1, Ordering::Relaxed);
                                // of few failures each is worth a line
                                eprintln!(
                                    "{:?} {question:?}: status {} after {took} ms",
                                    begin.elapsed(),
                                    reply.header.status
                                );
                            }
                            None => assert_ne!(reply.header.status, 0),
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    // One that leaves while it waits.
                    client.ask(&loads[turn % loads.len()].0);
                }
            });
        }
        while begin.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(Duration::from_millis(500));
            measured.push((rob::memory(pid), rob::descriptors(pid)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (answered, failed) = (answered.into_inner(), failed.into_inner());
    let quarter = measured.len() / 4;
    let most =
        |part: &[(u64, usize)]| (part.iter().map(|m| m.0).max().unwrap(), part.iter().map(|m| m.1).max().unwrap());
    let (early, late) = (most(&measured[quarter..2 * quarter]), most(&measured[3 * quarter..]));
    eprintln!(
        "{provider}: {} a second, {failed} failed, longest {longest:?} ms, KiB and descriptors {early:?} then {late:?}",
        answered / seconds
    );
    assert!(daemon.is_alive(), "{}", daemon.said());
    assert!(answered > 100 * seconds, "{answered}");
    // With a tenth of a second for an answer and no repeats, a machine that is busy for a moment has some.
    assert!(failed * 100 <= answered, "{failed} of {answered} failed");
    assert!(late.0 <= early.0 + 1024, "memory: {measured:?}");
    assert!(late.1 <= early.1 + 24, "descriptors: {measured:?}");
    // Nobody is there any more: nothing is left of them.
    rob::settles(pid, late.1);
    let endpoint = lab.acme("H1", &["-P", "all"]);
    assert!(endpoint.contains("return status 0x0"), "{endpoint}");
    assert_eq!(daemon.stop(), Some(0));
}

/// For how long, unless `PROVIDER_LOAD_SECONDS` says otherwise.
fn seconds() -> u64 {
    std::env::var("PROVIDER_LOAD_SECONDS").ok().map_or(120, |s| s.parse().expect("a number"))
}

#[test]
fn it_bears_load() {
    under_load("ibacmp", seconds());
}

#[test]
fn the_sample_bears_load() {
    under_load("static", (seconds() / 4).max(5));
}
