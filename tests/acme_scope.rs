//! `ib_acme` and link-local addresses with an interface, `fe80::1%ib0`: the answer comes from there, or there is none.

#[path = "util/acme_checked.rs"]
mod checked;
#[path = "util/acme_run.rs"]
mod run;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::net::Ipv6Addr;

use checked::check;
use run::{Ran, Tool};
use util::{ADDRESS_GROUP, Daemon, Lab, PATIENCE, Program, Shared, partitions, succeed, wait_for};

/// Two hosts of two devices, in two partitions.
static LAB: Shared = Shared::new(|o| {
    (o.hosts, o.hcas) = (2, 2);
    let text = "Default=0x7fff,ipoib:ALL=full;\nOne=0x0001:ALL=full;\n";
    o.partitions = Some(partitions("scope", text));
});

/// Both devices of H1 could ask for the peer's address. A child interface has its parent's address, as is usual, and in
/// one of two cases one of its own.
const ADDRESSES: [(&str, &str, &str); 4] =
    [("H1", "ib0", "fe80::1"), ("H1", "ib1", "fe80::11"), ("H2", "ib0", "fe80::cc"), ("H2", "ib1", "fe80::dd")];
const CHILDREN: [(&str, &str, &str); 2] = [("H1", "ib1.8001", "fe80::11/64"), ("H2", "ib0.8001", "fe80::cc/64")];

struct Links<'a>(&'a Lab<'a>);

impl Links<'_> {
    fn new<'a>(lab: &'a Lab<'a>) -> Links<'a> {
        let links = Links(lab);
        for (host, interface, address) in ADDRESSES {
            ip(lab, host, &format!("addr add {address}/64 dev {interface} nodad"));
        }
        for (host, interface, address) in CHILDREN {
            let device = if interface.starts_with("ib1") { "mlx5_1:1" } else { "mlx5_0:1" };
            lab.add_interface(host, interface, &format!("0x8001 dev={device} {address}")).expect("it is new");
        }
        links
    }
}

impl Drop for Links<'_> {
    fn drop(&mut self) {
        for (host, interface, address) in ADDRESSES {
            let words = format!("addr del {address}/64 dev {interface}");
            let _ = self.0.exec(host, "ip").args(words.split(' ')).status();
        }
        for (host, interface, _) in CHILDREN {
            let _ = self.0.remove_interface(host, interface);
        }
    }
}

fn ip(lab: &Lab<'_>, host: &str, words: &str) {
    succeed(lab.exec(host, "ip").args(words.split(' ')));
}

/// A service on each host, which has joined the groups of every endpoint.
fn serve(lab: &Lab<'_>, program: Program) -> [Daemon; 2] {
    ["H1", "H2"].map(|host| {
        let daemon = lab.start(program, host, "timeout 1000\nretries 1\n");
        let all = wait_for(PATIENCE, || {
            let ports = lab.ports().ok()?;
            let groups = ports.iter().filter(|p| p.host == host).flat_map(|p| &p.joined);
            (groups.filter(|(g, _)| g[..4] == ADDRESS_GROUP).count() >= 3).then_some(())
        });
        assert!(all.is_some(), "{host} does not join: {}", daemon.said());
        lab.wait_joined(host);
        daemon
    })
}

fn ask(lab: &Lab<'_>, line: &str) -> Ran {
    Tool::Ours.words(lab, "H1", line)
}

/// What stands behind each of these words.
fn fields(ran: &Ran, name: &str) -> Vec<String> {
    let lines = ran.stdout.lines().filter_map(|l| l.trim().strip_prefix(name)?.strip_prefix(": "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_interface_decides_where_the_path_begins() {
    let lab = LAB.enter();
    let _links = Links::new(&lab);
    let ports = lab.ports().unwrap();
    let gid = |device: &str| {
        let port = ports.iter().find(|p| p.host == "H1" && p.device == device).expect("it is there");
        Ipv6Addr::from(port.gid).to_string()
    };
    let (first, second) = (gid("mlx5_0"), gid("mlx5_1"));
    for program in [Program::Ours, Program::Stock] {
        let _daemons = serve(&lab, program);
        // Nothing else is known of a link's peer to begin with: the answer may take a repetition.
        for (line, sgids, pkey) in [
            ("-d fe80::cc%ib0", vec![&first], "0xffff"),
            ("-d fe80::cc%ib1", vec![&second], "0xffff"),
            ("-f i -d fe80::cc%ib0 -v", vec![&first], "0xffff"),
            ("-f i -d fe80::cc -s fe80::11%ib1", vec![&second], "0xffff"),
            ("-s fe80::1 -d fe80::cc%ib0", vec![&first], "0xffff"),
            ("-s fe80::1%ib0 -d fe80::cc%ib0 -C 3", vec![&first], "0xffff"),
            ("-d fe80::cc%ib1 -C 50 --stats", vec![&second], "0xffff"),
            ("-d fe80::cc%ib[0-1]", vec![&first, &second], "0xffff"),
            ("-d fe80::[1,11]%ib1 -c", vec![&second], "0xffff"),
        ] {
            // Own addresses are known to the first service at once; peers are asked for.
            let ran = if line.ends_with("-c") { ask(&lab, "-d fe80::11%ib1") } else { ask(&lab, line) };
            assert_eq!(ran.code(), 0, "{program:?}: {line}: {ran:?}");
            assert_eq!(fields(&ran, "sgid").iter().collect::<Vec<_>>(), sgids, "{program:?}: {line}: {ran:?}");
            assert!(fields(&ran, "pkey").iter().all(|k| k == pkey), "{program:?}: {line}: {ran:?}");
        }
        let ran = ask(&lab, "-d fe80::cc%ib0");
        assert_eq!(
            (fields(&ran, "Destination"), fields(&ran, "Source")),
            (vec!["fe80::cc".into()], vec!["fe80::1".into()])
        );
        let ran = ask(&lab, "--json -d fe80::cc%ib1");
        for member in
            ["\"argument\": \"fe80::cc%ib1\"", "\"source\": \"fd77:0:0:1::1\"", &format!("\"sgid\": \"{second}\"")]
        {
            assert!(ran.stdout.contains(member), "{member} in {ran:?}");
        }
        let counted = ask(&lab, "-P s -s fe80::11%ib1");
        assert_eq!(counted.code(), 0, "{counted:?}");
        let all = check(&lab, "H1", &["-d", "fe80::cc%ib0,fe80::cc%ib[0-1]"]);
        assert_eq!(all.of("failed"), [], "{}", all.text);
        for what in ["peer", "path"] {
            for subject in ["fe80::cc%ib0", "fe80::cc%ib1"] {
                assert!(all.of("ok").contains(&(what, subject)), "{what} {subject} in {}", all.text);
            }
        }
    }
}

#[test]
fn a_child_interface_is_told_from_its_parent_or_there_is_no_answer() {
    let lab = LAB.enter();
    let _links = Links::new(&lab);
    let _daemons = serve(&lab, Program::Ours);
    // The parent has an address that the child has not, and the child none.
    let parent = ask(&lab, "-d fe80::cc%ib1");
    assert_eq!((parent.code(), fields(&parent, "pkey")), (0, vec!["0xffff".to_owned()]), "{parent:?}");
    let shared = ask(&lab, "-d fe80::cc%ib1.8001");
    assert_eq!(shared.code(), 255, "{shared:?}");
    assert!(shared.stdout.contains("ib_acm_resolve_ip failed: ") && fields(&shared, "sgid").is_empty(), "{shared:?}");
    assert!(shared.stderr.contains("ib1.8001 has no address that no other interface has"), "{shared:?}");
    ip(&lab, "H1", "addr add fe80::8001/64 dev ib1.8001 nodad");
    let served = wait_for(PATIENCE, || ask(&lab, "-e").stdout.contains("fe80::8001").then_some(()));
    assert!(served.is_some());
    for (line, source) in [("-d fe80::cc%ib1.8001", ""), ("-d fe80::cc%ib1.8001 -s fe80::8001", "fe80::8001")] {
        let ran = ask(&lab, line);
        assert_eq!((ran.code(), fields(&ran, "pkey")), (0, vec!["0x8001".to_owned()]), "{line}: {ran:?}");
        assert!(source.is_empty() || fields(&ran, "Source") == [source], "{ran:?}");
    }
    let all = check(&lab, "H1", &["-d", "fe80::cc%ib1.8001"]);
    assert!(all.of("ok").contains(&("peer", "fe80::cc%ib1.8001")), "{}", all.text);
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    let lab = LAB.enter();
    let _links = Links::new(&lab);
    let _daemons = serve(&lab, Program::Ours);
    for (line, line_of_output, said) in [
        ("-d fe80::cc%ib9", "ib_acm_resolve_ip failed: No such device", "this host has no IPoIB interface 'ib9'"),
        ("-f i -d fe80::cc%lo", "ib_acm_resolve_ip failed: No such device", "those that it has: ib0, ib1"),
        ("-d 10.77.0.2%ib0", "ib_acm_resolve_ip failed: Invalid argument", "only link-local addresses"),
        ("-d fd77::2%ib0", "ib_acm_resolve_ip failed: Invalid argument", "only link-local addresses"),
        ("-s fe80::1%ib1 -d fe80::cc", "Cannot assign requested address", "fe80::1 is not an address of ib1"),
        ("-s fe80::1%ib0 -d fe80::cc%ib1", "Invalid argument", "two interfaces, ib0 and ib1"),
        ("-P s -s fe80::1%ib9", "No such device", "this host has no IPoIB interface 'ib9'"),
    ] {
        let ran = ask(&lab, line);
        assert_eq!(ran.code(), 255, "{line}: {ran:?}");
        assert!(ran.stdout.contains(line_of_output) && ran.stderr.contains(said), "{line}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{line}: {ran:?}");
    }
    ip(&lab, "H1", "addr del fe80::1/64 dev ib0");
    let ran = ask(&lab, "-d fe80::cc%ib0");
    let all = check(&lab, "H1", &["-d", "fe80::cc%ib0"]);
    ip(&lab, "H1", "addr add fe80::1/64 dev ib0 nodad");
    assert_eq!(ran.code(), 255, "{ran:?}");
    assert!(ran.stderr.contains("ib0 has no link-local address to ask from: set it up"), "{ran:?}");
    assert!(all.of("failed").contains(&("peer", "fe80::cc%ib0")), "{}", all.text);
}
