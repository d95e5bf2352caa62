//! The fabric changes while clients resolve all the time: links, LIDs, GIDs, partitions, subnet managers.

#[path = "util/live.rs"]
mod live;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::time::Duration;

use live::hosts::{BLUE, PORTS, manager_is, other_lids, port_reset, sa_answers, second_manager_takes_over, wait_port};
use live::world::Topic;
use live::{Live, Touch};
use util::Shared;

static LAB: Shared = Shared::new(live::build);

const OWN: Touch = Touch::ports(&[("H1", 0)]);
const PEER: Touch = Touch::ports(&[("H2", 0)]);

#[test]
fn links_lids_and_gids() {
    let mut live = Live::start(&LAB);
    live.change("nothing", Touch::NOTHING, |_| {});
    for (host, touch, down, up) in [
        ("H1", OWN, "own link goes down", "own link comes up"),
        ("H2", PEER, "a peer's link goes down", "a peer's link comes up"),
    ] {
        live.change(down, touch, |l| {
            l.lab.console(&format!("Unlink \"{host}\"[1]")).unwrap();
            wait_port(&l.lab, (host, 0), |p| p.state != 4);
        });
        live.change(up, touch, |l| {
            l.lab.console(&format!("ReLink \"{host}\"[1]")).unwrap();
            wait_port(&l.lab, (host, 0), |p| p.state == 4);
            sa_answers(&l.lab);
        });
    }
    for (host, touch, names) in [
        ("H1", OWN, ["own LID changes", "own LID changes back", "own GID changes", "own GID changes back"]),
        (
            "H2",
            PEER,
            ["a peer's LID changes", "a peer's LID changes back", "a peer's GID changes", "a peer's GID changes back"],
        ),
    ] {
        live.change(names[0], touch, |l| l.lab.inject(&format!("port {host} lid=555")).unwrap());
        live.change(names[1], touch, |l| port_reset(&l.lab, (host, 0)));
        live.change(names[2], touch, |l| l.lab.inject(&format!("port {host} gid=fe80::4:4")).unwrap());
        live.change(names[3], touch, |l| port_reset(&l.lab, (host, 0)));
    }
    let all = Touch::ports(&PORTS);
    live.change("the subnet prefix changes", all, |l| {
        for (n, (host, device)) in PORTS.into_iter().enumerate() {
            l.lab.inject(&format!("port {host} dev=mlx5_{device} gid=fec0::7:{n}")).unwrap();
        }
    });
    live.change("the subnet prefix changes back", all, |l| PORTS.into_iter().for_each(|p| port_reset(&l.lab, p)));
    live.finish();
}

#[test]
fn partitions() {
    let mut live = Live::start(&LAB);
    for (host, names) in [
        ("H1", ["a partition of the own port goes", "it comes back"]),
        ("H2", ["a partition of a peer's port goes", "it comes back there"]),
    ] {
        // A question that leaves the partition open may be on its way in this one.
        live.change(names[0], Touch::SA, |l| l.lab.inject(&format!("port {host} pkeys=0xffff,0x8222")).unwrap());
        live.change(names[1], Touch::NOTHING, |l| port_reset(&l.lab, (host, 0)));
    }
    live.change("the partition table has another order", Touch::NOTHING, |l| {
        l.lab.inject("port H1 pkeys=0x8222,0x8123,0xffff").unwrap();
    });
    live.change("it has the old one", Touch::NOTHING, |l| port_reset(&l.lab, ("H1", 0)));
    let blue = Topic::Address(Some("10.91.0.1"), "10.91.0.2");
    live.change("interfaces of another partition are made", Touch::NOTHING, |l| {
        for (host, address) in [("H1", "10.91.0.1"), ("H2", "10.91.0.2")] {
            l.lab.add_interface(host, "ib0.8222", &format!("0x8222 {address}/24")).unwrap();
            l.world.own(address, (host, 0), BLUE);
        }
        l.also(blue);
    });
    live.change("they are deleted", Touch::NOTHING, |l| {
        for (host, address) in [("H1", "10.91.0.1"), ("H2", "10.91.0.2")] {
            l.lab.remove_interface(host, "ib0.8222").unwrap();
            l.world.disown(address);
        }
    });
    live.no_longer(blue);
    live.finish();
}

#[test]
fn subnet_managers() {
    let mut live = Live::start(&LAB);
    live.change("one client is to register again", Touch::NOTHING, |l| {
        l.lab.inject("event H1 CLIENT_REREGISTER").unwrap();
    });
    live.change("all are, ten times", Touch::NOTHING, |l| {
        for _ in 0..10 {
            for (host, device) in PORTS {
                l.lab.inject(&format!("event {host} CLIENT_REREGISTER dev=mlx5_{device}")).unwrap();
            }
        }
    });
    live.change("the manager's LID changes", Touch::SA, |l| l.lab.inject("port H1 sm_lid=1100").unwrap());
    live.change("it changes back", Touch::SA, |l| port_reset(&l.lab, ("H1", 0)));
    live.change("the manager ends", Touch::SA, |l| {
        l.lab.manager("stop").unwrap();
        l.world.no_sa = true;
    });
    live.change("it starts again", Touch::SA, |l| {
        l.lab.manager("start").unwrap();
        sa_answers(&l.lab);
        l.world.no_sa = false;
    });
    let first = live.lab.port("H1").unwrap().sm_lid;
    live.change("a second manager takes over", Touch::SA, |l| {
        second_manager_takes_over(&l.lab, first);
        sa_answers(&l.lab);
    });
    live.change("it ends, the first one takes over", Touch { within: Duration::from_secs(8), ..Touch::SA }, |l| {
        l.lab.manager("second-stop").unwrap();
        manager_is(&l.lab, first);
        sa_answers(&l.lab);
    });
    for name in ["a manager gives out other LIDs", "and the old ones again"] {
        live.change(name, Touch::SA, |l| other_lids(&l.lab, &[("H2", 0), ("H1", 1), ("H3", 1)]));
    }
    live.finish();
}
