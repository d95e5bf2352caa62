//! Paths and addresses from files: what they say is what the subnet administrator would say, without asking it.

#[path = "util/rob.rs"]
mod rob;
mod util;

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry};
use ibacm_wire::{Gid, PathRecord};
use rob::{enter, memory};
use util::client::{between, name, to_gid, to_lid};
use util::{Client, Lab, Message, PATIENCE, Program, Shared, run, sa, text, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 4);

const ROUTES: &str = "/etc/rdma/ibacm_route.data";
const HOSTS: &str = "/etc/rdma/ibacm_hosts.data";
const BOTH: &str = "route_preload opensm_full_v1\naddr_preload acm_hosts\n";

/// A port of the subnet.
struct Node {
    kind: &'static str,
    guid: u64,
    lid: u16,
    description: String,
}

/// All ports that the subnet manager has given a LID, switches and itself among them.
fn nodes(lab: &Lab<'_>) -> Vec<Node> {
    let nodes: Vec<Node> = (1..=8).filter_map(|lid| node(lab, lid)).collect();
    assert!(nodes.len() >= 6 && nodes.iter().any(|n| n.kind == "Switch"), "{} nodes", nodes.len());
    nodes
}

fn node(lab: &Lab<'_>, lid: u16) -> Option<Node> {
    let said = text(&run(lab.query("saquery").args(["NR", &lid.to_string()])));
    let field = |name: &str| {
        let line = said.lines().map(str::trim).find_map(|l| l.strip_prefix(name).filter(|l| l.starts_with('.')));
        line.map(|l| l.trim_start_matches('.'))
    };
    let guid = field("port_guid")?.strip_prefix("0x")?;
    Some(Node {
        kind: if field("node_type")? == "Switch" { "Switch" } else { "Channel Adapter" },
        guid: u64::from_str_radix(guid, 16).ok()?,
        lid,
        description: field("NodeDescription")?.to_owned(),
    })
}

/// The dump that OpenSM's plug-in would write: every pair of ports with what OpenSM says of it. `source` names the
/// ports that paths from are wanted of.
fn dump(lab: &Lab<'_>, nodes: &[Node], source: impl Fn(&Node) -> bool) -> String {
    let mut dump = String::new();
    for from in nodes {
        let Node { kind, guid, lid, description } = from;
        writeln!(dump, "{kind} 0x{guid:016x}, base LID {lid}, \"{description}\", port 1").unwrap();
        dump += "# LID  : SL : MTU : RATE\n";
        for to in nodes.iter().filter(|_| source(from)) {
            let p = sa::path(lab, *lid, to.lid);
            writeln!(dump, "0x{:04X} : {:<2} : {:<3} : {:<4}", to.lid, p.sl(), p.mtu() & 0x3f, p.rate() & 0x3f)
                .unwrap();
        }
        dump.push('\n');
    }
    dump
}

/// What a preloaded path is, of which the subnet administrator says `p`.
fn preloaded(mut p: PathRecord) -> PathRecord {
    p.set_mtu(p.mtu() & 0x3f);
    p.set_rate(p.rate() & 0x3f);
    p.set_packet_lifetime(if p.slid() == p.dlid() { 0 } else { p.packet_lifetime() & 0x3f });
    p
}

fn gid_text(gid: [u8; 16]) -> Ipv6Addr {
    Ipv6Addr::from(gid)
}

/// The GID of a node in the subnet of these hosts.
fn gid_of(lab: &Lab<'_>, node: &Node) -> [u8; 16] {
    let mut gid = lab.port("H1").expect("it is there").gid;
    gid[8..].copy_from_slice(&node.guid.to_be_bytes());
    gid
}

/// A reply as far as it does not depend on when it was asked for and by whom.
fn comparable(reply: Message) -> Vec<u8> {
    let mut bytes = reply.bytes;
    bytes[1] &= 0x0f;
    bytes[8..16].fill(0);
    bytes
}

/// What a service of H1 answers, which must not have asked anybody.
fn silent_answers(lab: &Lab<'_>, program: Program, questions: &[Vec<Entry>]) -> Vec<Message> {
    let _daemon = lab.start(program, "H1", BOTH);
    lab.reset_stats().unwrap();
    let begin = lab.sniff_next().unwrap();
    let mut client = Client::connect(lab, "H1");
    let answers = questions.iter().map(|q| client.resolve(q)).collect();
    assert_eq!(lab.path_queries("H1"), 0, "{program:?}: {:?}", lab.stats().unwrap());
    assert_eq!(lab.sniffed(Some("H1"), begin).unwrap(), [], "{program:?}");
    answers
}

#[test]
fn paths_are_what_the_administrator_says_and_cost_it_nothing() {
    let lab = enter(&SUBNET);
    let nodes = nodes(&lab);
    let [one] = lab.hosts(["H1"]);
    lab.write("H1", ROUTES, &dump(&lab, &nodes, |_| true));
    let addresses: String = nodes
        .iter()
        .filter(|n| n.guid != one.guid)
        .map(|n| {
            let (gid, lid) = (gid_text(gid_of(&lab, n)), n.lid);
            format!("node-{lid} {gid}\n10.99.0.{lid} {gid}\nfd99::{lid} {gid}\n")
        })
        .collect();
    lab.write("H1", HOSTS, &addresses);
    let mut asked = Vec::new();
    for n in &nodes {
        let path = preloaded(sa::path(&lab, one.lid, n.lid));
        let mut with_ends = PathRecord::default();
        with_ends.set_sgid(path.sgid());
        with_ends.set_dgid(path.dgid());
        let by_path = [to_lid(0, n.lid), to_gid(0, path.dgid().0), Entry::path(0, &with_ends)];
        asked.extend(by_path.map(|q| (vec![q], path)));
        if n.lid != one.lid {
            let names = vec![name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, &format!("node-{}", n.lid))];
            asked.push((names, path));
            asked.push((between("10.77.0.1", &format!("10.99.0.{}", n.lid)).into(), path));
            asked.push((between("fd77::1", &format!("fd99::{}", n.lid)).into(), path));
        }
    }
    let questions: Vec<Vec<Entry>> = asked.iter().map(|(q, _)| q.clone()).collect();
    let ours = silent_answers(&lab, Program::Ours, &questions);
    for ((question, wanted), reply) in asked.iter().zip(&ours) {
        assert_eq!(reply.path(), *wanted, "{question:?}");
    }
    let stock = silent_answers(&lab, Program::Stock, &questions);
    for ((a, b), q) in ours.into_iter().zip(stock).zip(questions) {
        assert_eq!(comparable(a), comparable(b), "{q:?}");
    }
    // with the value of the manual page, and on another host whose part of the file is another
    lab.write("H2", ROUTES, &fs::read_to_string(lab.file("H1", ROUTES)).unwrap());
    let _daemon = lab.ours("H2", "route_preload full_opensm_v1\n");
    lab.reset_stats().unwrap();
    let [two] = lab.hosts(["H2"]);
    let mut client = Client::connect(&lab, "H2");
    for n in &nodes {
        assert_eq!(client.resolve(&[to_lid(0, n.lid)]).path(), preloaded(sa::path(&lab, two.lid, n.lid)));
    }
    assert_eq!(lab.path_queries("H2"), 0);
    assert_eq!(client.counters()[6], nodes.len() as u64, "answers from the cache");
    // what says more than its ends is the administrator's to answer
    let mut more = PathRecord::default();
    more.set_dlid(nodes[0].lid);
    more.set_service_id(1);
    let by_sa = client.resolve(&[Entry::path(0, &more)]).path();
    assert_eq!((lab.path_queries("H2"), by_sa.mtu() & 0xc0), (1, 0x80));
}

#[test]
fn addresses_without_a_path_ask_for_theirs_only() {
    let lab = enter(&SUBNET);
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    lab.write("H1", ROUTES, "");
    let (g2, g3) = (gid_text(two.gid), gid_text(three.gid));
    let hosts = format!("# names\nsome-node {g2}\n10.99.0.2 {g2}\nfd99::2 {g2}\n10.99.0.3 {g3}\nbad line\n");
    lab.write("H1", HOSTS, &hosts);
    let daemon = lab.ours("H1", BOTH);
    assert!(
        daemon.said().contains("ibacm_hosts.data:6: warning: 'line' is not the GID of a port"),
        "{}",
        daemon.said()
    );
    lab.reset_stats().unwrap();
    let begin = lab.sniff_next().unwrap();
    let mut client = Client::connect(&lab, "H1");
    let questions = [
        vec![name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_DEST, "some-node")],
        vec![name(EP_FLAG_DEST, "SOME-NODE")],
        between("10.77.0.1", "10.99.0.2").into(),
        between("fd77::1", "fd99::2").into(),
    ];
    for q in &questions {
        assert_eq!(client.resolve(q).path(), sa::path(&lab, one.lid, two.lid), "{q:?}");
    }
    assert_eq!(client.resolve(&between("10.77.0.1", "10.99.0.3")).path(), sa::path(&lab, one.lid, three.lid));
    assert_eq!(lab.path_queries("H1"), 4, "one for each address");
    assert_eq!(lab.sniffed(Some("H1"), begin).unwrap(), []);
}

#[test]
fn nobody_takes_a_preloaded_address_and_files_take_no_own_one() {
    let lab = enter(&SUBNET);
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    lab.write("H1", ROUTES, "");
    let (g2, g3) = (gid_text(two.gid), gid_text(three.gid));
    lab.write("H1", HOSTS, &format!("10.77.0.2 {g3}\n10.77.0.1 {g3}\nh1 {g3}\nfd77::3 {g3}\n10.99.0.4 {g2}\n"));
    let _daemons = [lab.ours("H1", BOTH), lab.ours("H2", "timeout 100\nretries 1\n"), lab.ours("H3", "")];
    let mut client = Client::connect(&lab, "H1");
    for own in [between("10.77.0.1", "10.77.0.1").into(), vec![name(EP_FLAG_DEST, "h1")]] {
        let path: PathRecord = client.resolve(&own).path();
        assert_eq!((path.dlid(), path.dgid()), (one.lid, Gid(one.gid)));
    }
    // H2 asks, under the address that is H3's here; that it gets no answer is what the file is for
    let mut back = Client::connect(&lab, "H2");
    assert_ne!(back.resolve(&between("10.77.0.2", "10.77.0.1")).header.status, 0);
    assert_eq!(client.resolve(&between("10.77.0.1", "10.77.0.2")).path().dgid(), Gid(three.gid));
    // who has the GID is answered
    let mut back = Client::connect(&lab, "H3");
    assert_eq!(back.resolve(&between("fd77::3", "fd77::1")).path().dgid(), Gid(one.gid));
}

#[test]
fn a_port_that_comes_up_later_or_moves_has_what_the_file_says() {
    let lab = enter(&SUBNET);
    let [one, two] = lab.hosts(["H1", "H2"]);
    let nodes = nodes(&lab);
    let dumped = dump(&lab, &nodes, |n| n.guid == one.guid);
    let elsewhere = format!(
        "Channel Adapter 0x{:016x}, base LID 77, \"h1 at, base LID 77, a time\", port 1\n0x{:04X} : 9 : 3 : 2\n",
        one.guid, two.lid
    );
    lab.write("H1", ROUTES, &(dumped + &elsewhere));
    lab.write("H1", HOSTS, &format!("10.99.0.2 {}\n", gid_text(two.gid)));
    lab.inject("port H1 state=1").unwrap();
    let daemon = lab.start_configured(Program::Ours, "H1", BOTH);
    let questions = [vec![to_lid(0, two.lid)], between("10.77.0.1", "10.99.0.2").into()];
    let mut client = Client::connect(&lab, "H1");
    assert_ne!(client.resolve(&questions[0]).header.status, 0);
    lab.inject("port-reset H1").unwrap();
    lab.wait_joined("H1");
    lab.reset_stats().unwrap();
    let mut check = |wanted: &dyn Fn(&PathRecord) -> bool| {
        for q in &questions {
            let seen = wait_for(PATIENCE, || {
                let reply = client.resolve(q);
                (reply.header.status == 0 && wanted(&reply.path())).then_some(())
            });
            assert!(seen.is_some(), "{q:?}: {:?}, {}", client.resolve(q), daemon.said());
        }
    };
    let by_sa = preloaded(sa::path(&lab, one.lid, two.lid));
    check(&|p| *p == by_sa);
    assert_eq!(lab.path_queries("H1"), 0);
    lab.inject("port H1 lid=77").unwrap();
    check(&|p| (p.slid(), p.sl(), p.mtu(), p.rate(), p.dlid()) == (77, 9, 3, 2, two.lid));
    lab.inject("port H1 lid=78").unwrap();
    check(&|p| p.mtu() == 0x84 && p.dlid() == two.lid);
    assert!(daemon.said().contains("no paths are preloaded from port"), "{}", daemon.said());
    lab.inject("port-reset H1").unwrap();
    check(&|p| *p == by_sa);
}

#[test]
fn files_that_are_no_files_are_said_and_the_service_serves() {
    let lab = enter(&SUBNET);
    let [two] = lab.hosts(["H2"]);
    let opts = |place: &str| format!("{BOTH}route_data_file {place}\naddr_data_file {place}\n");
    for place in ["/etc/rdma", "/etc/rdma/missing", "/dev/zero", "/dev/stdin"] {
        let daemon = lab.ours("H1", &opts(place));
        let mut client = Client::connect(&lab, "H1");
        client.resolve(&[to_lid(0, two.lid)]).path();
        let said = daemon.said();
        assert!(said.contains(&format!("nothing is preloaded: {place}: ")), "{place}: {said}");
    }
    // a check of the configuration says the same, and what is wrong in the lines
    lab.write("H1", ROUTES, "Switch 0x1, base LID 49152, \"\"\nSwitch 0x1, base LID 2, \"\"\n0x0001 : 1 : 2 : 999\n");
    lab.write("H1", HOSTS, "x y\n");
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", BOTH);
    let output = run(lab.exec("H1", Program::Ours.path()).arg("--check-config"));
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    for wanted in ["route.data:1: warning: LID 0xc000", "route.data:3: warning: bad rate", "hosts.data:1: warning: 'y'"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn ten_thousand_lids_take_little_time_and_room() {
    let lab = enter(&SUBNET);
    let [one] = lab.hosts(["H1"]);
    let (mut routes, mut hosts, mut own) = (String::new(), String::new(), String::new());
    for n in 1..=10_000u16 {
        let guid = if n == one.lid { one.guid } else { 0x0002_c903_0000_0000 + u64::from(n) };
        let head = format!("Channel Adapter 0x{guid:016x}, base LID {n}, \"node{n:05} mlx5_0\", port 1\n# LID\n");
        writeln!(own, "0x{n:04X} : {:<2} : 4   : 3   ", n % 16).unwrap();
        routes += &(head + if n == one.lid { "OWN" } else { "0x0001 : 0  : 4   : 3   \n" } + "\n");
        writeln!(
            hosts,
            "node{n:05} fe80::{:x}:{:x}:{:x}:{:x}",
            guid >> 48,
            guid >> 32 & 0xffff,
            guid >> 16 & 0xffff,
            n
        )
        .unwrap();
    }
    lab.write("H1", ROUTES, &routes.replace("OWN", &own));
    lab.write("H1", HOSTS, &hosts);
    let mut used = [0; 2];
    for (i, options) in ["", BOTH].iter().enumerate() {
        let begin = Instant::now();
        let daemon = lab.start_configured(Program::Ours, "H1", options);
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        lab.wait_joined("H1");
        let mut client = Client::connect(&lab, "H1");
        client.counters();
        if *options == BOTH {
            let path = client.resolve(&[to_lid(0, 10_000)]).path();
            assert_eq!((path.dlid(), path.sl(), path.dgid().interface_id()), (10_000, 0, 0x0002_c903_0000_2710));
            let names = [name(EP_FLAG_DEST, "NODE09999")];
            assert_eq!(client.resolve(&names).path(), client.resolve(&[to_lid(0, 9999)]).path());
        }
        used[i] = memory(daemon.pid());
        println!("serves after {took:?}, {} KiB", used[i]);
    }
    assert!(used[1] <= used[0] + 2500, "{used:?} KiB");
}
