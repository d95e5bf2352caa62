//! What a port that was down did not hear, and what becomes of addresses that it knew.

use ibacm_wire::PathRecord;
use ibacm_wire::client::{Entry, FLAG_NODELAY, Status};
use ibacm_wire::notice::{Notice, TRAP_GID_IN};
use ibacm_wire::sa::SaMad;

use super::sim::{MS, Net, S, Sa, US, gid, ip, name, path, status};
use super::{from, to, to_name};
use crate::addr::Addr;
use crate::engine::{Config, EpId, LocalName, PkeyChoice, PortId, RouteProt};
use crate::preload::{Preload, parse_hosts};

/// Something that happens to host 0, and goes by, with addresses moving meanwhile.
type Outage = fn(&mut Net);

const EP: EpId = EpId(0);
const PORT: PortId = PortId(0);
pub const PROTS: [RouteProt; 2] = [RouteProt::Sa, RouteProt::Acm];

/// Timeouts of 300 ms; the subnet's own adds 1024 ms.
pub const WAIT: u64 = 1324 * MS;
/// Until an answer to the first repetition would have come, and the SA's after it.
pub const KEPT: u64 = WAIT + 110 * MS;

pub fn config(route_prot: RouteProt) -> Config {
    Config { timeout_ms: 300, route_prot, ..Config::default() }
}

/// Makes host 0 deaf, lets `meanwhile` happen, and some time pass for it to be said.
pub fn down(net: &mut Net, meanwhile: impl FnOnce(&mut Net)) {
    net.change_port(0, |p| p.active = false);
    meanwhile(net);
    net.run(3 * S);
    net.change_port(0, |p| p.active = true);
    net.run(10 * MS);
}

fn names(net: &mut Net, host: usize, of: &[usize]) {
    let line = |h: &usize| LocalName {
        addr: Addr::name(name(*h).as_bytes()),
        text: name(*h).into_bytes(),
        device: "mlx5_0".into(),
        port: 1,
        pkey: PkeyChoice::Default,
    };
    net.hosts[host].engine.set_names(of.iter().map(line).collect());
}

/// The address and the name of host 1 are host 2's from now on.
pub fn move_over(net: &mut Net) {
    net.set_ips(1, &[]);
    names(net, 1, &[]);
    net.set_ips(2, &[ip(2), ip(1)]);
    names(net, 2, &[2, 1]);
}

pub fn know(net: &mut Net, hosts: std::ops::Range<usize>) {
    for host in hosts {
        for question in [[from(0), to(host)], [from(0), to_name(host)]] {
            assert_eq!(path(&net.ask(0, &question, 5 * MS).expect("an answer")).dgid(), gid(host));
        }
    }
}

/// Asks, and is answered at once, with nobody else being asked for the address.
pub fn known(net: &mut Net, question: &[Entry]) -> PathRecord {
    let before = net.multicasts;
    let p = path(&net.ask(0, question, 5 * MS).expect("an answer"));
    assert_eq!(net.multicasts, before, "nobody is asked");
    p
}

/// The port is no longer reached, and its service does not know.
pub fn deaf(net: &mut Net, meanwhile: impl FnOnce(&mut Net)) {
    net.hosts[0].port.active = false;
    meanwhile(net);
    net.run(3 * S);
    net.hosts[0].port.active = true;
}

fn link_down(net: &mut Net) {
    down(net, move_over);
}

fn device_gone(net: &mut Net) {
    let port = net.hosts[0].port.clone();
    net.hosts[0].engine.port_gone(net.now, PORT);
    deaf(net, move_over);
    net.hosts[0].engine.set_port(net.now, port);
}

fn down_too_short_to_be_seen(net: &mut Net) {
    deaf(net, move_over);
    net.hosts[0].engine.port_bounced(net.now, PORT);
}

fn partition_gone(net: &mut Net) {
    net.change_port(0, |p| p.pkeys = vec![0x8001]);
    deaf(net, move_over);
    net.change_port(0, |p| p.pkeys = vec![0xffff]);
}

fn queue_pair_broken(net: &mut Net) {
    deaf(net, move_over);
    queue_pair_made(net);
}

fn queue_pair_made(net: &mut Net) {
    net.hosts[0].qps.insert(EP, 0x777);
    net.hosts[0].engine.endpoint_opened(net.now, EP, 0x777);
}

/// Another place in the partition table is another queue pair, whose joins get no answer for a while.
fn partition_moved(net: &mut Net) {
    net.sa = Sa::Silent;
    net.change_port(0, |p| p.pkeys = vec![0x8001, 0xffff]);
    net.run(3 * S);
    net.sa = Sa::Answers;
    deaf(net, move_over);
}

fn membership_refused(net: &mut Net) {
    membership_lost(net, Sa::Status(0x0200));
}

fn membership_unanswered(net: &mut Net) {
    membership_lost(net, Sa::Silent);
}

fn membership_lost(net: &mut Net, sa: Sa) {
    net.sa = sa;
    net.hosts[0].engine.reregister(net.now, PORT);
    deaf(net, move_over);
    net.sa = Sa::Answers;
    net.run(60 * S);
}

#[test]
fn an_address_that_has_moved_meanwhile_is_right_at_the_first_question() {
    let outages: [(&str, Outage); 8] = [
        ("link", link_down),
        ("device", device_gone),
        ("bounce", down_too_short_to_be_seen),
        ("partition", partition_gone),
        ("queue pair", queue_pair_broken),
        ("partition's place", partition_moved),
        ("refused", membership_refused),
        ("unanswered", membership_unanswered),
    ];
    for (what, outage) in outages {
        for route_prot in PROTS {
            let mut net = Net::new(3, &config(route_prot));
            know(&mut net, 1..3);
            outage(&mut net);
            net.run(20 * MS);
            for question in [[from(0), to(1)], [from(0), to_name(1)]] {
                let reply = net.ask(0, &question, 5 * MS).expect("an answer, without waiting");
                assert_eq!(path(&reply).dgid(), gid(2), "{what}, {route_prot:?}");
                assert_eq!(known(&mut net, &question).dgid(), gid(2));
            }
            know(&mut net, 2..3);
        }
    }
}

#[test]
fn a_question_before_the_group_is_joined_again_waits_for_it() {
    for broken in [false, true] {
        let mut net = Net::new(3, &config(RouteProt::Sa));
        know(&mut net, 1..2);
        if broken {
            deaf(&mut net, move_over);
            net.sa_latency = 200 * MS;
            queue_pair_made(&mut net);
        } else {
            net.change_port(0, |p| p.active = false);
            move_over(&mut net);
            net.run(3 * S);
            net.sa_latency = 200 * MS;
            net.change_port(0, |p| p.active = true);
        }
        let id = net.start(0, &[from(0), to(1)]);
        net.run(700 * MS);
        assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(2));
    }
}

#[test]
fn nothing_is_asked_for_that_nobody_wants() {
    let mut net = Net::new(60, &config(RouteProt::Sa));
    know(&mut net, 1..60);
    let own = |net: &Net| net.path_queries.iter().filter(|q| q.sgid() == gid(0)).count();
    let (multicasts, queries) = (net.multicasts, own(&net));
    down(&mut net, |_| ());
    net.run(100 * S);
    assert_eq!(net.multicasts, multicasts + 4, "what it says of itself");
    assert_eq!(own(&net), queries);
    // each is asked for once, when it is wanted
    for host in 1..60 {
        net.ask(0, &[from(0), to(host)], 5 * MS).expect("an answer");
    }
    assert_eq!((net.multicasts, own(&net)), (multicasts + 4 + 59, queries + 59));
    for host in 1..60 {
        known(&mut net, &[from(0), to(host)]);
    }
}

/// The subnet manager wants groups to be joined again, whether it has forgotten them or not.
pub fn reregister(net: &mut Net) {
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(10 * MS);
}

#[test]
fn a_membership_that_was_forgotten_is_told_of_by_the_order_to_join_again() {
    for route_prot in PROTS {
        let mut net = Net::new(3, &config(route_prot));
        know(&mut net, 1..3);
        deaf(&mut net, move_over);
        reregister(&mut net);
        for question in [[from(0), to(1)], [from(0), to_name(1)]] {
            assert_eq!(path(&net.ask(0, &question, 5 * MS).expect("an answer")).dgid(), gid(2), "{route_prot:?}");
        }
    }
}

#[test]
fn what_is_asked_before_the_group_is_joined_again_may_not_be_heard() {
    for route_prot in PROTS {
        for later in [false, true] {
            let mut net = Net::new(3, &config(route_prot));
            know(&mut net, 1..3);
            deaf(&mut net, move_over);
            net.mute = Some(0);
            net.sa_latency = 2 * MS;
            net.hosts[0].engine.reregister(net.now, PORT);
            let ids = [net.start(0, &[from(0), to(1)]), net.start(0, &[from(0), to_name(1)])];
            net.run(MS);
            assert!(ids.iter().all(|id| !net.hosts[0].replies.contains_key(id)));
            if later {
                // nor is it when it is: what was kept is asked for once more
                net.run(110 * MS);
            }
            net.mute = None;
            net.run(10 * MS);
            for (id, question) in ids.iter().zip([[from(0), to(1)], [from(0), to_name(1)]]) {
                assert_eq!(path(&net.hosts[0].replies[id]).dgid(), gid(if later { 1 } else { 2 }), "{route_prot:?}");
                assert_eq!(path(&net.ask(0, &question, 5 * MS).expect("an answer")).dgid(), gid(2), "{route_prot:?}");
            }
        }
    }
}

#[test]
fn where_nothing_was_missed_a_path_is_kept_and_the_sa_left_alone() {
    for route_prot in PROTS {
        let mut net = Net::new(2, &config(route_prot));
        know(&mut net, 1..2);
        let queries = net.path_queries.len();
        for silent in [false, true] {
            net.hosts[1].dead = silent;
            reregister(&mut net);
            net.sa = Sa::Silent;
            for question in [[from(0), to(1)], [from(0), to_name(1)]] {
                let multicasts = net.multicasts;
                let reply = net.ask(0, &question, if silent { 110 * MS } else { 5 * MS }).expect("in time");
                assert_eq!((path(&reply).dgid(), net.multicasts), (gid(1), multicasts + 1), "{silent}");
                assert_eq!(known(&mut net, &question), path(&reply));
            }
            net.sa = Sa::Answers;
            assert_eq!(net.path_queries.len(), queries, "{silent}");
        }
    }
}

#[test]
fn a_path_that_changes_while_it_is_confirmed_is_asked_for() {
    for told in [false, true] {
        let mut net = Net::new(2, &Config { retries: 0, ..config(RouteProt::Sa) });
        know(&mut net, 1..2);
        reregister(&mut net);
        net.hosts[1].dead = true;
        let id = net.start(0, &[from(0), to_name(1)]);
        net.run(MS);
        if told {
            net.hosts[1].port.lid = 77;
            let report = SaMad::report(0x77, &Notice::about_gid(TRAP_GID_IN, 1, gid(1)));
            net.hosts[0].engine.report(net.now, PORT, 1, &report.0);
        } else {
            net.change_port(0, |p| p.lid = 99);
        }
        net.run(110 * MS);
        let p = path(&net.hosts[0].replies[&id]);
        assert_eq!((p.slid(), p.dlid()), if told { (10, 77) } else { (99, 11) });
    }
}

#[test]
fn own_addresses_preloaded_ones_and_paths_are_as_before() {
    let mut net = Net::new(4, &config(RouteProt::Sa));
    let (hosts, findings) = parse_hosts(format!("{} {}\n", ip(3), gid(3)).as_bytes(), "h");
    assert_eq!(findings, []);
    net.hosts[0].engine.set_preload(net.now, Preload { hosts, ..Preload::default() });
    let mut by_gid = PathRecord::default();
    by_gid.set_dgid(gid(1));
    let questions = [&[from(0), to(0)][..], &[from(0), to_name(0)], &[from(0), to(3)], &[Entry::path(0, &by_gid)]];
    for question in questions {
        known(&mut net, question);
    }
    // whoever is preloaded may be heard of
    net.ask(3, &[from(3), to(0)], 5 * MS).expect("an answer");
    down(&mut net, |_| ());
    net.run(3 * S);
    for (question, there) in questions.into_iter().zip([gid(0), gid(0), gid(3), gid(1)]) {
        assert_eq!(known(&mut net, question).dgid(), there);
    }
}

#[test]
fn own_addresses_that_are_not_looped_back_are_nobody_else_s() {
    let mut net = Net::new(1, &Config { loopback_local: false, ..config(RouteProt::Sa) });
    for _ in 0..2 {
        assert_eq!(known(&mut net, &[from(0), to(0)]).dgid(), gid(0));
        let queries = net.path_queries.len();
        known(&mut net, &[from(0), to(0)]);
        assert_eq!(net.path_queries.len(), queries, "it is asked for once");
        down(&mut net, |_| ());
        net.run(3 * S);
    }
}

#[test]
fn who_says_something_meanwhile_is_confirmed_by_it() {
    let mut net = Net::new(3, &config(RouteProt::Sa));
    know(&mut net, 1..3);
    down(&mut net, |_| ());
    // whoever asks for something tells where it is
    net.start(1, &[from(1), to(99)]);
    net.run(5 * MS);
    assert_eq!(known(&mut net, &[from(0), to(1)]).dgid(), gid(1));
    // with somebody waiting, too
    net.hosts[2].dead = true;
    let id = net.start(0, &[from(0), to(2)]);
    net.run(100 * MS);
    net.hosts[2].dead = false;
    net.start(2, &[from(2), to(99)]);
    net.run(5 * MS);
    assert_eq!(path(&net.hosts[0].replies[&id]).dgid(), gid(2));
}

#[test]
fn who_has_the_address_now_is_answered_while_it_is_being_confirmed() {
    let mut net = Net::new(3, &config(RouteProt::Sa));
    know(&mut net, 1..2);
    down(&mut net, move_over);
    net.run(3 * S);
    net.latency = 10 * MS;
    let wanted = net.start(0, &[from(0), to(1)]);
    net.run(5 * MS);
    let theirs = net.start(2, &[from(1), to_name(0)]);
    net.run(100 * MS);
    assert_eq!(path(&net.hosts[0].replies[&wanted]).dgid(), gid(2));
    assert_eq!(path(&net.hosts[2].replies[&theirs]).dgid(), gid(0));
}

#[test]
fn an_outage_during_the_confirmation_makes_it_no_better_and_no_worse() {
    for later in [MS, WAIT + 50 * MS] {
        let mut net = Net::new(3, &config(RouteProt::Sa));
        know(&mut net, 1..2);
        net.hosts[1].dead = true;
        net.hosts[2].dead = true;
        down(&mut net, |_| ());
        let ids = [net.start(0, &[from(0), to(1)]), net.start(0, &[from(0), to_name(1)])];
        net.run(later);
        net.hosts[1].dead = false;
        net.hosts[2].dead = false;
        down(&mut net, move_over);
        for id in ids {
            assert_eq!(status(&net.hosts[0].replies[&id]), Status::Enotconn as u8);
        }
        for question in [[from(0), to(1)], [from(0), to_name(1)]] {
            assert_eq!(path(&net.ask(0, &question, 5 * MS).expect("an answer")).dgid(), gid(2));
        }
    }
}

#[test]
fn who_does_not_want_to_wait_is_told_that_it_is_not_known() {
    let mut net = Net::new(3, &config(RouteProt::Sa));
    know(&mut net, 1..2);
    down(&mut net, move_over);
    let mut quick = to(1);
    quick.flags |= FLAG_NODELAY;
    assert_eq!(status(&net.ask(0, &[from(0), quick], 0).expect("at once")), Status::Enodata as u8);
    net.run(5 * MS);
    assert_eq!(path(&net.ask(0, &[from(0), quick], 0).expect("at once")).dgid(), gid(2));
}

#[test]
fn however_many_outages_none_is_like_another() {
    let mut net = Net::new(2, &config(RouteProt::Sa));
    know(&mut net, 1..2);
    for outages in [1, 100, 254, 255, 256, 257, 510, 511, 512] {
        for _ in 0..outages {
            net.hosts[0].engine.port_bounced(net.now, PORT);
            net.run(US * 500);
        }
        let before = net.multicasts;
        path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer"));
        assert_eq!(net.multicasts, before + 1, "after {outages}");
    }
}

#[test]
fn what_has_expired_is_not_known() {
    let mut net = Net::new(2, &Config { addr_timeout: Some(1), ..config(RouteProt::Sa) });
    know(&mut net, 1..2);
    net.hosts[1].dead = true;
    down(&mut net, |_| ());
    net.run(60 * S);
    let reply = net.ask(0, &[from(0), to_name(1)], 3 * WAIT + 10 * MS).expect("in time");
    assert_eq!(status(&reply), Status::Etimedout as u8);
}

#[test]
fn a_group_that_is_lost_all_the_time_makes_no_look_up_endless() {
    let mut net = Net::new(1, &Config { retries: 3, addr_fallback: false, ..config(RouteProt::Sa) });
    net.sa_latency = 100 * MS;
    let ids = [net.start(0, &[from(0), to(9)]), net.start(0, &[from(0), to_name(9)])];
    for _ in 0..15 {
        net.run(500 * MS);
        queue_pair_made(&mut net);
    }
    for id in ids {
        assert_eq!(net.hosts[0].replies.get(&id).map(|r| status(r)), Some(Status::Etimedout as u8));
    }
}

#[test]
fn a_group_lost_soon_after_each_join_makes_no_look_up_endless() {
    let mut net = Net::new(1, &config(RouteProt::Sa));
    let ids = [net.start(0, &[from(0), to(9)]), net.start(0, &[from(0), to_name(9)])];
    for other in 0..20 {
        net.run(50 * MS);
        queue_pair_made(&mut net);
        // has its turn while there is no group, so that those who were asked for wait for the group, too
        net.start(0, &[from(0), to(10 + other)]);
    }
    for id in ids {
        assert_eq!(net.hosts[0].replies.get(&id).map(|r| status(r)), Some(Status::Etimedout as u8));
    }
}
