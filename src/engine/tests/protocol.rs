//! Requests that make no sense, and queries of counters and endpoints.

use super::sim::{MS, Net, gid, ip, ip_kind, status};
use super::{from, octets, to, to_name};
use crate::engine::{Config, Outcome};
use ibacm_wire::PathRecord;
use ibacm_wire::client::{
    self, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA, Header, Status, TYPE_GID, TYPE_IP, TYPE_IP6, TYPE_LID,
};

#[test]
fn impossible_requests_are_refused_at_once_with_a_protocol_code() {
    let mut net = Net::new(2, &Config::default());
    let bad_type = |flags, kind| Entry::address(flags, kind, &[1; 16]);
    let both_paths = {
        let mut p = PathRecord::default();
        p.set_dlid(11);
        [Entry::path(FLAG_QUERY_SA, &p), to(1)]
    };
    let eight = [Entry::address(0, TYPE_IP, &[]); 7];
    let mut eight_no_source = vec![to(1)];
    eight_no_source.extend(eight);
    let cases: Vec<(Vec<Entry>, Status)> = vec![
        (vec![], Status::Edesttype),
        (vec![from(0)], Status::Edesttype),
        (vec![to(1), to(1)], Status::Edestaddr),
        (vec![from(0), from(0), to(1)], Status::Esrcaddr),
        (vec![bad_type(EP_FLAG_SOURCE, 0), to(1)], Status::Esrctype),
        (vec![bad_type(EP_FLAG_SOURCE, 6), to(1)], Status::Esrctype),
        (vec![from(0), bad_type(EP_FLAG_DEST, 0)], Status::Edesttype),
        (vec![from(0), bad_type(EP_FLAG_DEST, 0x10)], Status::Edesttype),
        (vec![from(0), bad_type(EP_FLAG_DEST, TYPE_LID)], Status::Edesttype),
        (vec![bad_type(EP_FLAG_DEST, TYPE_GID)], Status::Edesttype),
        (vec![from(1), to(1)], Status::Esrcaddr),
        (vec![bad_type(EP_FLAG_DEST, TYPE_IP6)], Status::Edestaddr),
        (vec![Entry::path(0, &PathRecord::default())], Status::Edestaddr),
        (both_paths.to_vec(), Status::Einval),
        (eight_no_source, Status::Einval),
    ];
    for (entries, want) in cases {
        let reply = net.ask(0, &entries, 0).unwrap_or_else(|| panic!("{entries:?}: no reply"));
        assert_eq!((status(&reply), reply.len()), (want as u8, 16), "{entries:?}");
        assert_eq!((reply[1], &reply[3..6]), (0x81, &[0; 3][..]));
    }
    assert_eq!(net.multicasts, 0);
}

#[test]
fn gids_and_lids_select_the_endpoint_as_sources() {
    let mut net = Net::new(2, &Config::default());
    for source in [
        Entry::address(EP_FLAG_SOURCE, TYPE_GID, &gid(0).0),
        Entry::address(EP_FLAG_SOURCE, TYPE_LID, &10u16.to_be_bytes()),
    ] {
        let reply = net.ask(0, &[to(1), source], 5 * MS).unwrap();
        assert_eq!((status(&reply), reply.len()), (0, 88));
    }
    let stranger = Entry::address(EP_FLAG_SOURCE, TYPE_LID, &11u16.to_be_bytes());
    assert_eq!(status(&net.ask(0, &[to(1), stranger], 0).unwrap()), Status::Esrcaddr as u8);
}

fn query(opcode: u8, data: [u8; 3], entry: Option<Entry>) -> Vec<u8> {
    let length = 16 + if entry.is_some() { 72 } else { 0 };
    let h = Header { version: 1, opcode, data, length, tid: *b"tidtidti", ..Header::default() };
    let mut m = h.emit().to_vec();
    m.extend(entry.iter().flat_map(|e| e.emit()));
    m
}

fn counters(reply: &[u8]) -> Vec<u64> {
    reply[16..].as_chunks::<8>().0.iter().map(|b| u64::from_be_bytes(*b)).collect()
}

#[test]
fn counters_in_total_by_number_and_by_address() {
    let mut net = Net::new(2, &Config::default());
    net.ask(0, &[from(0), to(1)], 5 * MS).unwrap();
    net.ask(0, &[from(0), to(1)], 0).unwrap();
    net.ask(0, &[from(1), to(1)], 0).unwrap();
    let mut ask = |id, m: Vec<u8>| {
        assert_eq!(net.raw(0, id, &m), Outcome::Replied);
        net.hosts[0].replies.remove(&id).unwrap()
    };
    let total = ask(1001, query(client::OP_PERF_QUERY, [0; 3], None));
    assert_eq!((total[1], total[2], total[3], total.len()), (0x82, 0, 7, 16 + 56));
    assert_eq!(total[6..8], [0, 72]);
    assert_eq!(&total[8..16], b"tidtidti");
    assert_eq!(counters(&total), [1, 3, 0, 1, 0, 1, 1]);
    let first = ask(1002, query(client::OP_PERF_QUERY, [0, 1, 0], None));
    assert_eq!(counters(&first), [0, 2, 0, 1, 0, 1, 1]);
    let none = ask(1003, query(client::OP_PERF_QUERY, [0, 2, 0], None));
    assert_eq!((none[2], none.len()), (Status::Esrcaddr as u8, 16));
    let by = from(0);
    assert_eq!(counters(&ask(1004, query(client::OP_PERF_QUERY, [0; 3], Some(by)))), counters(&first));
    let all = Entry::address(0, ip_kind(), &octets(ip(0)));
    assert_eq!(counters(&ask(1005, query(client::OP_PERF_QUERY, [0; 3], Some(all)))), counters(&total));
}

#[test]
fn endpoints_are_described() {
    let mut net = Net::new(1, &Config::default());
    net.change_port(0, |p| p.pkeys = vec![0xffff, 0x8001, 0x7fff, 0]);
    let id = |n| 2000 + u64::from(n);
    for n in [0, 1, 2] {
        net.raw(0, id(n), &query(client::OP_EP_QUERY, [n, 0, 0], None));
    }
    let unknown = &net.hosts[0].replies[&id(2)];
    assert_eq!((unknown[2], unknown.len()), (Status::Einval as u8, 16));
    assert_eq!(net.hosts[0].replies[&id(0)][2], Status::Einval as u8);
    let r = &net.hosts[0].replies[&id(1)];
    assert_eq!((r[1], r[2], r.len()), (0x83, 0, 16 + 80 + 2 * 64));
    assert_eq!(r[6..8], (r.len() as u16).to_be_bytes());
    assert_eq!(r[16..24], 0x1000u64.to_be_bytes());
    assert_eq!((r[24], r[25], &r[28..32]), (1, 1, &[0xff, 0xff, 0, 2][..]));
    assert_eq!(&r[32..39], b"ibacmp\0");
    let shown = format!("{}/16\0", ip(0));
    assert_eq!(&r[96..][..shown.len()], shown.as_bytes());
    assert_eq!(&r[160..167], b"Node-0\0");
}

#[test]
fn names_reach_hosts_without_any_source() {
    let mut net = Net::new(2, &Config::default());
    assert_eq!(status(&net.ask(1, &[to_name(0)], 5 * MS).unwrap()), 0);
}
