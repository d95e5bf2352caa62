//! What is said of outages to an operator: each once, and that it is over.

use super::notices::{PORT, path_to, subscribed};
use super::sim::{MS, Net, S, Sa, ip, path, status};
use super::{from, to};
use crate::engine::Config;
use ibacm_wire::client::{COUNTERS, HDR_LEN, Header, More, OP_PERF_QUERY, PERF_MORE, Status, VERSION};

/// Soon gives the SA up.
fn hasty() -> Config {
    Config { timeout_ms: 100, retries: 1, ..Config::default() }
}

/// What was said since at level 0.
fn said(net: &mut Net) -> Vec<String> {
    net.run(MS);
    net.log.drain(..).filter(|l| l.0 == 0).map(|l| l.1).collect()
}

#[test]
fn a_port_that_goes_and_comes_back_is_told_once_each() {
    let mut net = Net::new(1, &Config::default());
    net.run(10 * S);
    assert_eq!(said(&mut net), [""; 0], "a start is no outage");
    net.change_port(0, |p| p.active = false);
    assert_eq!(said(&mut net), ["mlx5_0 port 1 is down"]);
    net.run(3600 * S);
    assert_eq!(said(&mut net), [""; 0]);
    net.change_port(0, |p| p.active = true);
    assert_eq!(said(&mut net), ["mlx5_0 port 1 is up and serves; endpoints: 1"]);
    net.run(10 * S);
    // The last endpoint goes with the last address and name, and comes with the first.
    net.hosts[0].engine.set_names(Vec::new());
    assert_eq!(said(&mut net), [""; 0]);
    net.set_ips(0, &[]);
    let bare = said(&mut net);
    assert!(bare.len() == 1 && bare[0].starts_with("mlx5_0 port 1 is up and serves nobody: "), "{bare:?}");
    net.run(2 * S);
    net.set_ips(0, &[ip(0)]);
    assert_eq!(said(&mut net), ["mlx5_0 port 1 is up and serves; endpoints: 1"]);
}

#[test]
fn a_port_that_flaps_costs_a_line_a_second_and_the_last_is_true() {
    for (flaps, last) in [(1000, "is up and serves"), (1001, "is down")] {
        let mut net = Net::new(1, &Config::default());
        net.run(5 * S);
        for _ in 0..flaps {
            net.change_port(0, |p| p.active = !p.active);
            net.run(10 * MS);
        }
        net.run(5 * S);
        let said = said(&mut net);
        assert!(said.len() <= 12, "{} lines for {flaps} changes in ten seconds", said.len());
        assert!(said.last().is_some_and(|l| l.contains(last)), "{said:?}");
    }
}

#[test]
fn a_silent_administrator_is_told_once_and_so_is_its_answer() {
    let mut net = Net::new(3, &hasty());
    net.run(5 * S);
    path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("an answer"));
    net.log.clear();
    net.sa = Sa::Silent;
    for _ in 0..10 {
        let reply = net.ask(0, &[path_to(2)], 5 * S).expect("an answer");
        assert_eq!(status(&reply), Status::Etimedout as u8);
    }
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(100 * S);
    assert_eq!(said(&mut net), ["mlx5_0 port 1: the subnet administrator (SA) at LID 1 does not answer"]);
    net.sa = Sa::Answers;
    net.run(100 * S);
    path(&net.ask(0, &[path_to(2)], 5 * MS).expect("an answer"));
    assert_eq!(said(&mut net), ["mlx5_0 port 1: the subnet administrator (SA) at LID 1 answers again"]);
    net.run(100 * S);
    assert_eq!(said(&mut net), [""; 0]);
}

#[test]
fn an_administrator_that_answers_others_is_not_silent() {
    let mut net = Net::new(2, &hasty());
    net.inform_sa = Some(Sa::Silent);
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.run(600 * S);
    assert_eq!(said(&mut net), [""; 0]);
}

#[test]
fn that_nobody_tells_is_said_once_whatever_the_reasons() {
    let mut net = Net::new(2, &Config { log_level: 1, ..hasty() });
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.inform_sa = Some(Sa::Silent);
    net.run(300 * S);
    net.inform_sa = Some(Sa::Status(1));
    net.run(300 * S);
    let lines = |net: &Net, text: &str| net.log.iter().filter(|l| l.1.contains(text)).map(|l| l.0).collect::<Vec<_>>();
    assert_eq!(lines(&net, "nobody tells what changes"), [1], "{:?}", net.log);
    net.inform_sa = Some(Sa::Status(0x0700));
    net.run(24 * 3600 * S);
    assert_eq!(lines(&net, "nobody tells what changes"), [1, 0], "a refusal is for everybody, and once");
    assert_eq!(lines(&net, "InformInfo"), [1, 0]);
    net.inform_sa = None;
    net.run(3600 * S);
    assert_eq!(lines(&net, "the subnet administrator tells what changes"), [0]);
}

#[test]
fn lines_name_device_port_and_partition() {
    let mut net = Net::new(1, &Config { log_level: 1, ..Config::default() });
    net.run(S);
    net.set_ips(0, &[]);
    net.run(S);
    let where_ = "mlx5_0 port 1 pkey 0xffff";
    for line in [
        format!("address {} is served on {where_}", ip(0)),
        format!("address {} is gone from {where_}", ip(0)),
        format!(" on {where_}: LID "),
        format!("joining ff15:4001:ffff:3:400:: on {where_}"),
    ] {
        assert!(net.log.iter().any(|l| l.0 == 1 && l.1.contains(&line)), "{line} in {:?}", net.log);
    }
}

/// The counter of notices: all in all, and of the first endpoint.
fn counted(net: &mut Net) -> [u64; 2] {
    [0, 1].map(|endpoint| {
        let data = [0, endpoint, PERF_MORE];
        let h = Header { version: VERSION, opcode: OP_PERF_QUERY, data, length: HDR_LEN as u16, ..Header::default() };
        net.raw(0, 900_000, &h.emit());
        let reply = net.hosts[0].replies.remove(&900_000).expect("a reply");
        let at = HDR_LEN + 8 * (COUNTERS + More::NoticesSubscribed as usize);
        u64::from_be_bytes(reply[at..at + 8].try_into().expect("it is there"))
    })
}

#[test]
fn whether_somebody_tells_can_be_asked() {
    let mut net = subscribed(1, &Config::default());
    assert_eq!(counted(&mut net), [1, 1]);
    net.hosts[0].engine.set_reports(net.now, PORT, false);
    assert_eq!(counted(&mut net), [0, 0]);
}
