//! Link-local IPv6 addresses: the same one may be on several links, and a request cannot say which.

#[path = "util/netlink.rs"]
mod netlink;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Status};
use rob::{code, enter, status, until};
use util::client::{between, ip};
use util::{Client, Daemon, Lab, PATIENCE, Program, Shared, partitions, wait_for};

/// Three hosts in two partitions; the subnet manager alone is a full member of the default one.
static LAB: Shared = Shared::new(|o| {
    o.hosts = 3;
    let text = "Default=0x7fff,ipoib:ALL=full;\nOne=0x0001:ALL=full;\n";
    o.partitions = Some(partitions("link-local", text));
});

/// The first two hosts have one address on both links, as an interface and its child usually have; H3 is on the second
/// link only.
const ADDRESSES: [(&str, &str, &str); 5] = [
    ("H1", "ib0", "fe80::1"),
    ("H1", "ib0.8001", "fe80::1"),
    ("H2", "ib0", "fe80::2"),
    ("H2", "ib0.8001", "fe80::2"),
    ("H3", "ib0.8001", "fe80::3"),
];

/// Interfaces with link-local addresses, for the time of a test.
struct Links<'a>(&'a Lab<'a>);

impl Links<'_> {
    fn new<'a>(lab: &'a Lab<'a>) -> Links<'a> {
        for (host, interface, address) in ADDRESSES {
            if interface == "ib0" {
                rob::ip(lab, host, &format!("addr add {address}/64 dev ib0 nodad"));
            } else {
                lab.add_interface(host, interface, &format!("0x8001 {address}/64")).expect("it is new");
            }
        }
        Links(lab)
    }
}

impl Drop for Links<'_> {
    fn drop(&mut self) {
        for (host, interface, address) in ADDRESSES {
            if interface == "ib0" {
                let _ = self.0.exec(host, "ip").args(["addr", "del", &format!("{address}/64"), "dev", "ib0"]).status();
            } else {
                let _ = self.0.remove_interface(host, interface);
            }
        }
    }
}

/// Waits until a service has joined the groups of both partitions.
fn joined(lab: &Lab<'_>, host: &str) {
    let both = wait_for(PATIENCE, || {
        let groups = lab.port(host).ok()?.joined;
        let is_in = |pkey| groups.iter().any(|(g, _)| g[..4] == util::ADDRESS_GROUP && g[4..6] == pkey);
        (is_in([0xff, 0xff]) && is_in([0x80, 0x01])).then_some(())
    });
    assert!(both.is_some(), "{host} joins {:x?}", lab.port(host).unwrap().joined);
    lab.wait_joined(host);
}

/// Partitions of the groups that a host has asked since.
fn asked(lab: &Lab<'_>, host: &str, since: u64) -> Vec<u16> {
    let sent = lab.sniffed(Some(host), since).unwrap();
    sent.iter()
        .filter_map(|s| s.gids)
        .filter(|(_, to)| to[0] == 0xff)
        .map(|(_, g)| u16::from_be_bytes([g[4], g[5]]))
        .collect()
}

/// Our service on every host, with its groups joined.
fn serve_all(lab: &Lab<'_>) -> [Daemon; 3] {
    ["H1", "H2", "H3"].map(|host| {
        let daemon = lab.ours(host, "timeout 1000\nretries 0\n");
        joined(lab, host);
        daemon
    })
}

#[test]
fn on_two_links_the_first_partition_is_asked_unless_more_is_known() {
    let lab = enter(&LAB);
    let _links = Links::new(&lab);
    let _daemons = serve_all(&lab);
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let mut client = Client::connect(&lab, "H1");
    // Without a source as with it.
    let begin = lab.sniff_next().unwrap();
    let reply = client.resolve(&[ip(EP_FLAG_DEST, "fe80::2")]);
    let path = reply.path();
    assert_eq!((path.dgid(), path.dlid(), path.pkey()), (Gid(two.gid), two.lid, 0xffff));
    assert_eq!(reply.entries()[1..], [ip(EP_FLAG_SOURCE, "fe80::1")], "the source that was chosen");
    assert_eq!(client.resolve(&between("fe80::1", "fe80::2")).path(), path);
    assert_eq!(asked(&lab, "H1", begin), [0xffff]);
    // An own one is known.
    let path = client.resolve(&[ip(EP_FLAG_DEST, "fe80::1")]).path();
    assert_eq!((path.dgid(), path.sgid()), (Gid(one.gid), Gid(one.gid)));
    assert_eq!(asked(&lab, "H1", begin), [0xffff]);
    // On the other link, where nobody would look first. Its own question says where it is.
    let wanted = [ip(EP_FLAG_DEST, "fe80::3")];
    assert_eq!(status(&mut client, &wanted), code(Status::Etimedout));
    let path = Client::connect(&lab, "H3").resolve(&[ip(EP_FLAG_DEST, "fe80::1")]).path();
    assert_eq!((path.dgid(), path.pkey()), (Gid(one.gid), 0x8001), "H3 has one link to ask on");
    for question in [&wanted[..], &between("fe80::1", "fe80::3")] {
        let path = client.resolve(question).path();
        assert_eq!((path.dgid(), path.pkey()), (Gid(three.gid), 0x8001));
    }
    // Both links have a host of this address: each endpoint knows its own.
    rob::ip(&lab, "H3", "addr add fe80::2/64 dev ib0 nodad");
    let path = client.resolve(&between("fe80::1", "fe80::2")).path();
    assert_eq!((path.dgid(), path.pkey()), (Gid(two.gid), 0xffff));
    rob::ip(&lab, "H3", "addr del fe80::2/64 dev ib0");
    assert_eq!(status(&mut client, &between("fe80::2", "fe80::3")), code(Status::Esrcaddr), "that is no own one");
}

#[test]
fn the_kernel_says_which_link() {
    let lab = enter(&LAB);
    let _links = Links::new(&lab);
    let _daemons = serve_all(&lab);
    let [two, three] = lab.hosts(["H2", "H3"]);
    let kernel = lab.kernel("H1", true).unwrap();
    let index = |name: &str| -> u32 {
        let text = util::succeed(lab.exec("H1", "cat").arg(format!("/sys/class/net/{name}/ifindex")));
        text.trim().parse().expect("a number")
    };
    let [parent, child] = ["ib0", "ib0.8001"].map(index);
    let ask = |address: &str, interface: u32| {
        let mut question = netlink::by_address(1, address);
        question[16..20].copy_from_slice(&interface.to_ne_bytes());
        netlink::ask(&kernel, &question)
    };
    for (interface, pkey) in [(child, 0x8001), (parent, 0xffff)] {
        let begin = lab.sniff_next().unwrap();
        assert_eq!(ask("fe80::2", interface).gid(), Gid(two.gid));
        assert_eq!(asked(&lab, "H1", begin), [pkey], "interface {interface}");
    }
    assert_eq!(ask("fe80::3", child).gid(), Gid(three.gid));
    assert!(ask("fe80::3", parent).is_refusal(), "it is not there");
    for nowhere in [0, 1, 99_999] {
        assert!(ask("fe80::2", nowhere).is_refusal(), "interface {nowhere}");
    }
}

#[test]
fn addresses_of_the_only_link_come_and_go() {
    let lab = enter(&LAB);
    for peer in [Program::Ours, Program::Stock] {
        rob::ip(&lab, "H2", "addr add fe80::2/64 dev ib0 nodad");
        let _daemons = [lab.ours("H1", "timeout 1000\nretries 0\n"), lab.start(peer, "H2", "")];
        let [one, two] = lab.hosts(["H1", "H2"]);
        let mut client = Client::connect(&lab, "H1");
        let question = [ip(EP_FLAG_DEST, "fe80::2")];
        // Nothing of this host is on a link.
        assert_eq!(status(&mut client, &question), code(Status::Edestaddr));
        rob::ip(&lab, "H1", "addr add fe80::1/64 dev ib0 nodad");
        assert!(until(&mut client, &question, 0).is_some(), "it is there");
        let path = client.resolve(&question).path();
        assert_eq!((path.sgid(), path.dgid()), (Gid(one.gid), Gid(two.gid)), "{peer:?}");
        // The other side, with a source: without one the distribution's service asks the kernel, which needs the scope.
        let path = Client::connect(&lab, "H2").resolve(&between("fe80::2", "fe80::1")).path();
        assert_eq!(path.dgid(), Gid(one.gid), "{peer:?}");
        if peer == Program::Stock {
            let refused = status(&mut Client::connect(&lab, "H2"), &[ip(EP_FLAG_DEST, "fe80::1")]);
            assert_ne!(refused, 0, "as docs/differences.md has it");
        }
        rob::ip(&lab, "H1", "addr del fe80::1/64 dev ib0");
        assert!(until(&mut client, &question, code(Status::Edestaddr)).is_some(), "it is gone");
        rob::ip(&lab, "H2", "addr del fe80::2/64 dev ib0");
    }
}
