//! Subscribing to what the SA tells, and who is believed.

use super::sim::{MS, Net, S, Sa, US, counted, gid, path};
use super::{from, to};
use crate::engine::{Config, PortId};
use ibacm_wire::client::{Entry, More};
use ibacm_wire::notice::{Notice, TRAP_GID_IN, TRAP_GID_OUT, TRAP_LINK_STATE};
use ibacm_wire::sa::SaMad;
use ibacm_wire::{Gid, PathRecord};

pub const PORT: PortId = PortId(0);
pub const SM: u16 = 1;
const WANTED: [u16; 3] = [TRAP_GID_OUT, TRAP_GID_IN, TRAP_LINK_STATE];

/// A subnet whose first host hears reports, and has subscribed.
pub fn subscribed(n: usize, config: &Config) -> Net {
    let mut net = Net::new(n, config);
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.run(3 * S);
    assert!(net.hosts[0].engine.is_subscribed(PORT));
    net
}

pub fn tell(net: &mut Net, from_lid: u16, notice: &Notice) {
    let mad = SaMad::report(0x77, notice);
    net.hosts[0].engine.report(net.now, PORT, from_lid, &mad.0);
}

pub fn gone(host: usize) -> Notice {
    Notice::about_gid(TRAP_GID_OUT, SM, gid(host))
}

pub fn came(host: usize) -> Notice {
    Notice::about_gid(TRAP_GID_IN, SM, gid(host))
}

pub fn path_to(host: usize) -> Entry {
    let mut question = PathRecord::default();
    question.set_dgid(gid(host));
    Entry::path(0, &question)
}

pub fn path_to_lid(lid: u16) -> Entry {
    let mut question = PathRecord::default();
    question.set_dlid(lid);
    Entry::path(0, &question)
}

/// Asks for everybody but the first host by address, GID and LID.
pub fn know_all(net: &mut Net) {
    for host in 1..net.hosts.len() {
        for question in [&[from(0), to(host)][..], &[path_to(host)], &[path_to_lid(10 + host as u16)]] {
            path(&net.ask(0, question, 5 * MS).expect("an answer"));
        }
    }
    net.path_queries.clear();
}

/// What the SA was asked since, by destination GID.
pub fn asked(net: &mut Net) -> Vec<Gid> {
    net.run(5 * MS);
    net.path_queries.drain(..).map(|q| q.dgid()).collect()
}

#[test]
fn each_wanted_notice_is_subscribed_to_once() {
    let mut net = Net::new(1, &Config::default());
    net.run(60 * S);
    assert!(net.informs.is_empty(), "there is nobody to take reports");
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.run(3 * S);
    assert_eq!(net.informs, WANTED);
    assert!(net.hosts[0].engine.is_subscribed(PORT));
    net.run(3600 * S);
    assert_eq!(net.informs, WANTED, "and that is all");
    assert!(net.log.iter().all(|l| l.0 > 0), "no word about a healthy day: {:?}", net.log);
    net.hosts[0].engine.set_reports(net.now, PORT, false);
    assert!(!net.hosts[0].engine.is_subscribed(PORT));
}

#[test]
fn a_new_subscription_follows_whatever_may_have_ended_the_old_one() {
    let mut net = subscribed(1, &Config::default());
    let changes: [fn(&mut Net); 3] = [
        |net| net.hosts[0].engine.reregister(net.now, PORT),
        |net| net.change_port(0, |p| p.sm_lid = 2),
        |net| {
            net.change_port(0, |p| p.active = false);
            net.run(10 * S);
            net.change_port(0, |p| p.active = true);
        },
    ];
    for change in changes {
        net.informs.clear();
        change(&mut net);
        assert!(!net.hosts[0].engine.is_subscribed(PORT));
        net.run(3 * S);
        assert_eq!(net.informs, WANTED);
        assert!(net.hosts[0].engine.is_subscribed(PORT));
    }
    net.informs.clear();
    for _ in 0..50 {
        net.hosts[0].engine.reregister(net.now, PORT);
    }
    net.run(3 * S);
    assert_eq!(net.informs, WANTED, "once for all of them");
}

#[test]
fn a_port_that_is_down_asks_nothing() {
    let mut net = subscribed(1, &Config::default());
    net.hosts[0].engine.reregister(net.now, PORT);
    net.change_port(0, |p| p.active = false);
    net.informs.clear();
    net.run(100 * S);
    assert!(net.informs.is_empty());
}

#[test]
fn a_refusal_is_told_once_and_tried_again_rarely() {
    let mut net = Net::new(2, &Config::default());
    net.inform_sa = Some(Sa::Status(0x0700));
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.run(24 * 3600 * S);
    let told = |net: &Net| net.log.iter().filter(|l| l.0 == 0 && l.1.contains("0x0700")).count();
    assert_eq!(told(&net), 1, "{:?}", net.log);
    assert!((24..60).contains(&net.informs.len()), "{} tries in a day", net.informs.len());
    path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("it serves as before"));
    net.inform_sa = None;
    net.run(3600 * S);
    assert!(net.hosts[0].engine.is_subscribed(PORT));
    assert_eq!(net.log.iter().filter(|l| l.0 == 0).count(), 2, "that it tells now is said too: {:?}", net.log);
}

#[test]
fn a_silent_or_busy_sa_is_asked_again_after_growing_pauses() {
    for sa in [Sa::Silent, Sa::Status(1)] {
        let mut net = Net::new(2, &Config::default());
        net.inform_sa = Some(sa);
        net.hosts[0].engine.set_reports(net.now, PORT, true);
        net.run(600 * S);
        assert!((8..30).contains(&net.informs.len()), "{} tries in ten minutes", net.informs.len());
        assert!(net.log.iter().all(|l| l.0 > 0), "{:?}", net.log);
        net.inform_sa = None;
        net.run(70 * S);
        assert!(net.hosts[0].engine.is_subscribed(PORT));
    }
}

#[test]
fn subscribing_delays_no_question_and_no_join() {
    for sa in [Sa::Silent, Sa::Status(1)] {
        let mut net = Net::new(2, &Config { sa_depth: 1, ..Config::default() });
        net.inform_sa = Some(sa);
        net.hosts[0].engine.set_reports(net.now, PORT, true);
        net.run(2 * S);
        assert_eq!(net.informs[0], TRAP_GID_OUT, "it is under way");
        let joins = net.joins;
        path(&net.ask(0, &[path_to(1)], 100 * US).expect("at once"));
        net.hosts[0].engine.reregister(net.now, PORT);
        net.run(100 * US);
        assert_eq!(net.joins, joins + 1);
    }
}

#[test]
fn nobody_but_the_sa_is_believed_and_nonsense_does_nothing() {
    let mut net = subscribed(3, &Config::default());
    know_all(&mut net);
    let dropped = counted(&net, More::MadsDropped);
    for lid in [0, 2, 10, 0xffff] {
        tell(&mut net, lid, &gone(1));
        tell(&mut net, lid, &Notice::about_links(5));
    }
    let m = SaMad::report(1, &gone(1));
    for len in [0, 1, 24, 255] {
        net.hosts[0].engine.report(net.now, PORT, SM, &m.0[..len]);
    }
    assert_eq!(counted(&net, More::MadsDropped), dropped + 12);
    net.run(MS);
    assert!(net.responded.is_empty(), "nobody else is answered");
    // From the SA, but not about paths.
    let mut vendor = gone(1);
    vendor.generic = false;
    for notice in [vendor, Notice::about_gid(66, SM, gid(1)), Notice::about_gid(144, SM, gid(1))] {
        tell(&mut net, SM, &notice);
    }
    tell(&mut net, SM, &Notice::about_gid(TRAP_GID_OUT, SM, Gid::ZERO));
    let mut other = SaMad::report(1, &gone(1));
    other.0[17] = 0x35;
    net.hosts[0].engine.report(net.now, PORT, SM, &other.0);
    net.hosts[0].engine.report(net.now, PortId(9), SM, &m.0);
    net.run(3600 * S);
    assert_eq!(net.responded.len(), 5, "each is answered");
    for host in 1..3 {
        assert!(net.ask(0, &[from(0), to(host)], 0).is_some() && net.ask(0, &[path_to(host)], 0).is_some());
    }
    assert_eq!(asked(&mut net), []);
}
