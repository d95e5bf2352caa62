//! What providers have the subnet administrator asked.

use super::plugged::{BUILTIN, plugged_net, providers};
use super::sim::{MS, Net, S, Sa, gid};
use crate::engine::{Action, Config, EpId, MadToken};
use ibacm_wire::PathRecord;
use ibacm_wire::sa::{self, SaMad};

const EP: EpId = EpId(0);

/// A question of a provider, under a transaction id of its own.
fn mad(number: u64) -> SaMad {
    let mut p = PathRecord::default();
    p.set_dgid(gid(0));
    p.set_flow_hop(number as u32);
    SaMad::path_query(0xabcd_0000_1234_0000 | number, &p)
}

fn send(net: &mut Net, number: u64) {
    net.hosts[0].engine.provider_mad(net.now, EP, MadToken(number), &mad(number));
}

/// How questions of host 0's provider have ended since the last time.
fn done(net: &mut Net) -> Vec<(u64, Result<Box<SaMad>, i32>)> {
    net.run(0);
    let told = std::mem::take(&mut net.hosts[0].told).into_iter();
    told.filter_map(|a| if let Action::MadDone { token, result } = a { Some((token.0, result)) } else { None })
        .collect()
}

#[test]
fn each_is_answered_once_with_its_own_transaction_id() {
    let mut net = plugged_net(1);
    for number in 1..=3 {
        send(&mut net, number);
    }
    net.run(0);
    assert_eq!(net.path_queries.len(), 1, "a burst begins with one");
    net.run(S);
    let done = done(&mut net);
    assert_eq!(done.iter().map(|d| d.0).collect::<Vec<_>>(), [1, 2, 3]);
    for (number, result) in done {
        let answer = result.expect("an answer");
        assert_eq!((answer.tid(), answer.status()), (mad(number).tid(), 0));
        assert_eq!(answer.method(), sa::METHOD_GET | sa::METHOD_RESP);
        assert_eq!(answer.path().dlid(), net.hosts[0].port.lid);
    }
    let asked: Vec<u32> = net.path_queries.iter().map(PathRecord::flow_hop).collect();
    assert_eq!(asked, [1, 2, 3], "the question is as it was");
}

#[test]
fn whatever_the_sa_says_is_for_the_provider_to_judge() {
    let mut net = plugged_net(1);
    for (number, status) in (1..).zip([0x0300, 0x000c, 0x0301, 0x0700]) {
        net.sa = Sa::Status(status);
        send(&mut net, number);
        net.run(S);
        let answers: Vec<(u64, u16)> =
            done(&mut net).into_iter().map(|(n, r)| (n, r.expect("an answer").status())).collect();
        assert_eq!(answers, [(number, status)]);
    }
}

#[test]
fn busy_is_asked_again_until_the_time_is_up() {
    let mut net = plugged_net(1);
    net.sa = Sa::Status(sa::STATUS_BUSY);
    send(&mut net, 1);
    net.run(500 * MS);
    assert!(done(&mut net).is_empty());
    let asked = net.path_queries.len();
    assert!(asked > 2, "{asked} times");
    net.sa = Sa::Answers;
    net.run(5 * S);
    assert!(matches!(done(&mut net)[..], [(1, Ok(_))]));
    net.sa = Sa::Status(sa::STATUS_BUSY);
    send(&mut net, 2);
    net.run(60 * S);
    assert!(matches!(done(&mut net)[..], [(2, Err(libc::ETIMEDOUT))]));
}

#[test]
fn silence_ends() {
    let mut net = plugged_net(1);
    net.sa = Sa::Silent;
    (1..=3).for_each(|n| send(&mut net, n));
    net.run(60 * S);
    let mut ends: Vec<(u64, i32)> =
        done(&mut net).into_iter().map(|(n, r)| (n, r.expect_err("nobody answers"))).collect();
    ends.sort_unstable();
    assert_eq!(ends, [1, 2, 3].map(|n| (n, libc::ETIMEDOUT)));
}

#[test]
fn a_port_that_goes_down_or_to_another_ends_them_all() {
    for to_builtin in [false, true] {
        let mut net = plugged_net(1);
        net.sa = Sa::Silent;
        (1..=5).for_each(|n| send(&mut net, n));
        net.run(MS);
        match to_builtin {
            true => super::plugged_ports::set_prefix(&mut net, BUILTIN),
            false => net.change_port(0, |p| p.active = false),
        }
        let mut ends: Vec<(u64, i32)> =
            done(&mut net).into_iter().map(|(n, r)| (n, r.expect_err("it is down"))).collect();
        ends.sort_unstable();
        assert_eq!(ends, [1, 2, 3, 4, 5].map(|n| (n, libc::ENETDOWN)));
        // What comes now, or still, has an end at once.
        send(&mut net, 6);
        net.hosts[0].engine.provider_mad(net.now, EpId(99), MadToken(7), &mad(7));
        let ends: Vec<(u64, i32)> = done(&mut net).into_iter().map(|(n, r)| (n, r.expect_err("it is down"))).collect();
        assert_eq!(ends, [(6, libc::ENETDOWN), (7, libc::ENETDOWN)]);
        net.run(60 * S);
        assert!(done(&mut net).is_empty(), "each has one end");
    }
}

#[test]
fn what_cannot_be_sent_has_an_end() {
    let mut net = Net::with(1, &Config::default(), |e| e.set_providers(providers()));
    send(&mut net, 1);
    let tid = loop {
        match net.hosts[0].engine.next_action() {
            Some(Action::Mad { tid, .. }) => break tid,
            Some(_) => {}
            None => panic!("it was not sent"),
        }
    };
    net.hosts[0].engine.mad_failed(net.now, crate::engine::PortId(0), tid);
    assert!(matches!(done(&mut net)[..], [(1, Err(libc::ENETDOWN))]));
}

#[test]
fn those_that_wait_are_bounded() {
    let mut net = plugged_net(1);
    net.sa = Sa::Silent;
    // as many again are for others
    let most = crate::sa::MAX_QUEUE as u64 / 2 + 1;
    (0..most).for_each(|n| send(&mut net, n));
    assert!(done(&mut net).is_empty());
    send(&mut net, most);
    assert!(matches!(done(&mut net)[..], [(n, Err(libc::ENOMEM))] if n == most));
    net.change_port(0, |p| p.active = false);
    assert_eq!(done(&mut net).len() as u64, most);
}
