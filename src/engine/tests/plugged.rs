//! Requests that a provider answers.

use std::collections::HashSet;

use super::sim::{MS, Net, counted, gid, ip, ip_kind, name, octets, status, to_ip};
use super::{from, to, to_name};
use crate::addr::Addr;
use crate::engine::{
    Action, AskId, Call, ClientId, Config, EpId, LocalName, MESSAGE, Outcome, PkeyChoice, PortId, PortInfo, ProviderId,
    Providers,
};
use ibacm_wire::client::{
    COUNTERS, Counter, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN, Header, More,
    OP_EP_QUERY, OP_PERF_QUERY, Status, TYPE_GID, TYPE_IP6, TYPE_NAME, resolve_request,
};
use ibacm_wire::{Gid, PathRecord};

/// Prefix of the subnet that hosts of the simulation are in.
pub const PREFIX: u64 = 0xfe80 << 48;
/// Prefixes of subnets that the second and the built-in provider serve.
pub const SECOND: u64 = PREFIX | 2;
pub const BUILTIN: u64 = PREFIX | 3;

pub fn providers() -> Providers {
    let subnets = vec![(PREFIX, Some(ProviderId(0))), (SECOND, Some(ProviderId(1))), (BUILTIN, None)];
    let names = vec!["first".into(), "a-name-that-is-longer-than-the-field-for-it-".repeat(3)];
    Providers { names, subnets, default: None, timeout_ms: 1000 }
}

/// Hosts whose ports a provider serves.
pub fn plugged_net(n: usize) -> Net {
    let mut net = Net::with(n, &Config { log_level: 2, ..Config::default() }, |e| e.set_providers(providers()));
    net.run(10 * MS);
    net
}

/// What host 0's provider was asked since the last time.
pub fn asked(net: &mut Net) -> Vec<(AskId, Call)> {
    net.run(0);
    let told = std::mem::take(&mut net.hosts[0].told).into_iter();
    told.filter_map(|a| match a {
        Action::Ask { provider, port, ep, id, call } => {
            assert_eq!((provider, port, ep), (ProviderId(0), PortId(0), EpId(0)));
            Some((id, call))
        }
        Action::Forget { id } => panic!("{id:?} is forgotten"),
        _ => None,
    })
    .collect()
}

/// The questions that host 0's provider was told to forget since the last time.
pub fn forgotten(net: &mut Net) -> Vec<AskId> {
    net.run(0);
    let told = std::mem::take(&mut net.hosts[0].told).into_iter();
    told.filter_map(|a| if let Action::Forget { id } = a { Some(id) } else { None }).collect()
}

/// Sends a request to host 0: the number of its reply, and what the provider is asked for it.
pub fn question(net: &mut Net, entries: &[Entry]) -> (u64, AskId, Call) {
    let request = net.start(0, entries);
    let mut asked = asked(net);
    assert_eq!((asked.len(), net.hosts[0].replies.len()), (1, 0), "{asked:?}");
    let (id, call) = asked.remove(0);
    (request, id, call)
}

fn resolve(call: Call) -> (u32, Box<[u8; MESSAGE]>) {
    let Call::Resolve { place, message } = call else { panic!("{call:?}") };
    (place, message)
}

/// A provider's answer with this status, length and these bytes.
fn answer(net: &mut Net, id: AskId, status: u8, length: usize, fill: u8) {
    let mut message = [fill; MESSAGE];
    message[2] = status;
    message[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
    net.hosts[0].engine.provider_answered(net.now, id, &message);
    net.run(0);
}

fn padded(tid: u64, entries: &[Entry]) -> [u8; MESSAGE] {
    resolve_request(tid, entries).0
}

#[test]
fn an_address_is_for_the_provider_to_resolve_and_its_answer_is_the_reply() {
    let mut net = plugged_net(2);
    let (request, id, call) = question(&mut net, &[from(0), to(1)]);
    let mut wanted = padded(request, &[from(0), to(1)]);
    wanted[3..6].copy_from_slice(&[0, 0, 1]);
    assert_eq!(resolve(call), (0, Box::new(wanted)));
    answer(&mut net, id, 0, 88, 0xa5);
    let reply = net.hosts[0].replies[&request].clone();
    let h = Header::read(&reply).expect("a header");
    assert_eq!((h.version, h.opcode, h.status, h.data, h.length), (1, 0x81, 0, [0; 3], 88));
    assert_eq!((h.tid, reply.len()), (request.to_ne_bytes(), 88));
    assert!(reply[HDR_LEN..].iter().all(|b| *b == 0xa5));
    // Once more: it is dropped. So is an answer to nothing.
    for stray in [id, AskId(77), AskId(0)] {
        let before = counted(&net, More::ProvidersDropped);
        answer(&mut net, stray, 0, 88, 1);
        assert_eq!(counted(&net, More::ProvidersDropped), before + 1);
    }
    assert_eq!((net.multicasts, net.path_queries.len(), net.joins), (0, 0, 0));
}

#[test]
fn the_source_is_chosen_where_the_request_names_none() {
    let mut net = plugged_net(2);
    let (request, _, call) = question(&mut net, &[to(1)]);
    let source = Entry::address(EP_FLAG_SOURCE, ip_kind(), &octets(ip(0)));
    let mut wanted = padded(request, &[to(1), source]);
    wanted[6..8].copy_from_slice(&88u16.to_ne_bytes());
    wanted[3..6].copy_from_slice(&[1, 1, 0]);
    assert_eq!(resolve(call), (0, Box::new(wanted)));
    // A name is asked for from the own name.
    let (_, _, call) = question(&mut net, &[to_name(1)]);
    let (place, message) = resolve(call);
    assert_eq!((place, &message[3..6]), (1, &[1, 1, 0][..]));
    let own = Entry::read(&*message, 1).expect("an entry");
    assert_eq!((own.flags, own.kind), (EP_FLAG_SOURCE, TYPE_NAME));
    assert_eq!(Addr::from_wire(own.kind, &own.info), Some(Addr::name(name(0).as_bytes())));
    // The port's GID as the source is any address of the port.
    let by_gid = Entry::address(EP_FLAG_SOURCE, TYPE_GID, &gid(0).0);
    let (place, message) = resolve(question(&mut net, &[to(1), by_gid]).2);
    assert_eq!((place, &message[3..6]), (0, &[0, 1, 0][..]));
    // Link-local addresses are found without routing.
    let local = Entry::address(EP_FLAG_DEST, TYPE_IP6, &[&[0xfe, 0x80][..], &[0; 13], &[9]].concat());
    let reply = net.ask(0, &[local], 0).expect("there is no such own address");
    assert_eq!(status(&reply), Status::Edestaddr as u8);
    let nowhere = net.ask(0, &[to_ip("192.0.2.1".parse().expect("an address"))], 0).expect("a refusal");
    assert_ne!(status(&nowhere), 0);
    assert!(asked(&mut net).is_empty());
}

#[test]
fn what_makes_no_sense_is_refused_before_it_reaches_the_provider() {
    let mut net = plugged_net(1);
    let odd = Entry { kind: 9, ..to(1) };
    let strange = Entry { kind: 9, ..from(0) };
    let foreign = from(5);
    let query = Entry { flags: FLAG_QUERY_SA, ..Entry::path(0, &path_to(gid(1))) };
    let cases: [(&[Entry], Status); 9] = [
        (&[from(0)], Status::Edesttype),
        (&[to(1), to(2)], Status::Edestaddr),
        (&[from(0), from(0), to(1)], Status::Esrcaddr),
        (&[from(0), odd], Status::Edesttype),
        (&[strange, to(1)], Status::Esrctype),
        (&[foreign, to(1)], Status::Esrcaddr),
        (&[Entry::path(0, &PathRecord::default())], Status::Edestaddr),
        (&[query, query], Status::Einval),
        (&[Entry { flags: 0, ..to(1) }; 8], Status::Edesttype),
    ];
    for (entries, wanted) in cases {
        let reply = net.ask(0, entries, 0).expect("a refusal");
        assert_eq!((status(&reply), reply.len()), (wanted as u8, HDR_LEN), "{entries:?}");
    }
    let mut full = [Entry { flags: 0, ..to(1) }; 8];
    full[3] = to(1);
    assert_eq!(net.ask(0, &full, 0).map(|r| status(&r)), Some(Status::Einval as u8), "there is no room for a source");
    full[7] = from(0);
    assert_eq!(resolve(question(&mut net, &full).2).1[3..6], [0, 7, 3]);
}

fn path_to(dgid: ibacm_wire::Gid) -> PathRecord {
    let mut p = PathRecord::default();
    p.set_dgid(dgid);
    p
}

#[test]
fn paths_are_asked_for_at_the_first_address_as_they_are() {
    let mut net = plugged_net(1);
    let plain = Entry::path(0, &path_to(gid(1)));
    let sa = Entry { flags: FLAG_QUERY_SA, ..plain };
    for (number, entry) in [(1u64 << 40, plain), (1 << 41, sa)] {
        let mut bytes = padded(9, &[entry]);
        // Indices from outside are nothing that a provider should follow.
        bytes[3..6].copy_from_slice(&[1, 200, 200]);
        assert_eq!(net.raw(0, number, &bytes[..88]), Outcome::Pending);
        let (id, call) = asked(&mut net).remove(0);
        bytes[3..6].fill(0);
        let wanted = match entry.flags {
            0 => Call::Resolve { place: 0, message: Box::new(bytes) },
            _ => Call::Query { place: 0, message: Box::new(bytes) },
        };
        assert_eq!(call, wanted);
        answer(&mut net, id, 0, 88, 3);
        assert_eq!(net.hosts[0].replies[&number][..4], [1, 0x81, 0, 0]);
    }
    assert_eq!(net.path_queries.len(), 0);
}

#[test]
fn no_delay_is_the_providers_matter() {
    let mut net = plugged_net(1);
    let hurried = Entry { flags: EP_FLAG_DEST | FLAG_NODELAY, ..to(1) };
    let (request, id, call) = question(&mut net, &[from(0), hurried]);
    let flags = Entry::read(&*resolve(call).1, 1).map(|e| e.flags);
    assert_eq!(flags, Some(EP_FLAG_DEST | FLAG_NODELAY));
    answer(&mut net, id, Status::Enodata as u8, 16, 0);
    assert_eq!(status(&net.hosts[0].replies[&request]), Status::Enodata as u8);
}

#[test]
fn an_answer_is_as_long_as_its_entries() {
    let mut net = plugged_net(1);
    let einval = Status::Einval as u8;
    let cases = [
        // status and length given, status and length of the reply
        (0, 16, einval, 16),
        (0, 16 + 8 * 72, 0, 592),
        (0, 160, 0, 160),
        (0, 0, einval, 16),
        (0, 15, einval, 16),
        (0, 17, einval, 16),
        (0, 16 + 9 * 72, einval, 16),
        (0, 0xffff, einval, 16),
        (3, 88, 3, 16),
        (3, 5, 3, 16),
        (200, 16, 200, 16),
    ];
    for (given, length, status, reply_length) in cases {
        let (request, id, _) = question(&mut net, &[from(0), to(1)]);
        answer(&mut net, id, given, length, 0x5a);
        let reply = net.hosts[0].replies.remove(&request).expect("a reply");
        let h = Header::read(&reply).expect("a header");
        assert_eq!((h.status, reply.len(), usize::from(h.length)), (status, reply_length, reply_length), "{length}");
        assert!(reply[16..].iter().all(|b| *b == 0x5a));
    }
    let said = |text: &str| net.log.iter().filter(|l| l.0 == 0 && l.1.ends_with(text)).count();
    let start = "provider first: malformed answer to resolve: a success ";
    assert_eq!([17, 0xffff].map(|n| said(&format!("{start}of {n} bytes"))), [1, 1]);
    assert_eq!(said(&format!("{start}without an entry")), 1);
    let engine = &net.hosts[0].engine;
    assert_eq!(engine.counters()[Counter::Nodata as usize], 2);
    assert_eq!(engine.counters()[Counter::Error as usize], 7);
    assert_eq!(engine.counters()[Counter::Resolve as usize], cases.len() as u64);
}

#[test]
fn who_is_not_answered_in_time_is_told() {
    let mut net = plugged_net(1);
    let (first, id, _) = question(&mut net, &[from(0), to(1)]);
    net.run(400 * MS);
    let (second, late, _) = question(&mut net, &[from(0), to(2)]);
    net.run(600 * MS - 1);
    assert!(net.hosts[0].replies.is_empty());
    net.run(1);
    assert_eq!(status(&net.hosts[0].replies[&first]), Status::Etimedout as u8);
    assert_eq!((forgotten(&mut net), net.hosts[0].replies.len()), (vec![id], 1));
    answer(&mut net, id, 0, 88, 0);
    answer(&mut net, late, 0, 88, 0);
    assert_eq!(status(&net.hosts[0].replies[&second]), 0);
    net.run(5000 * MS);
    assert_eq!((net.hosts[0].replies.len(), forgotten(&mut net).len()), (2, 0));
    assert_eq!(net.hosts[0].engine.counters()[Counter::Error as usize], 1);
}

/// Who was late since the last time, with what, and for how long in milliseconds.
fn late(net: &mut Net) -> Vec<(&'static str, u128)> {
    let told = std::mem::take(&mut net.hosts[0].told).into_iter();
    told.filter_map(|a| match a {
        Action::Late { provider: ProviderId(0), function, waited } => Some((function, waited.as_millis())),
        _ => None,
    })
    .collect()
}

#[test]
fn who_is_late_is_told_of_and_with_what() {
    let mut net = plugged_net(1);
    question(&mut net, &[from(0), to(1)]);
    question(&mut net, &[Entry { flags: FLAG_QUERY_SA, ..Entry::path(0, &path_to(gid(1))) }]);
    net.run(1000 * MS);
    let mut both = late(&mut net);
    both.sort_unstable();
    assert_eq!(both, [("query", 1000), ("resolve", 1000)]);
    // However long answers may take, counters may not.
    net.hosts[0].replies.clear();
    let patient = Providers { timeout_ms: 30_000, ..providers() };
    net.hosts[0].engine.set_providers(patient);
    question(&mut net, &[from(0), to(1)]);
    assert_eq!(net.raw(0, 1 << 40, &perf_query([0, 1, 0])), Outcome::Pending);
    net.run(2000 * MS);
    assert_eq!(late(&mut net), [("query_perf", 2000)]);
    assert_eq!(status(&net.hosts[0].replies[&(1 << 40)]), Status::Etimedout as u8);
    net.run(28_000 * MS);
    assert_eq!(late(&mut net), [("resolve", 30_000)]);
}

#[test]
fn a_refusal_is_no_data() {
    let mut net = plugged_net(1);
    let (request, id, _) = question(&mut net, &[from(0), to(1)]);
    net.hosts[0].engine.provider_refused(net.now, id);
    net.hosts[0].engine.provider_refused(net.now, id);
    net.run(2000 * MS);
    assert_eq!(status(&net.hosts[0].replies[&request]), Status::Enodata as u8);
    assert_eq!(counted(&net, More::ProvidersDropped), 1);
    assert!(forgotten(&mut net).is_empty());
}

#[test]
fn nothing_is_kept_for_a_client_that_has_left() {
    let mut net = plugged_net(1);
    let bytes = padded(1, &[from(0), to(1)]);
    for _ in 0..3 {
        assert_eq!(net.raw(0, 7, &bytes[..160]), Outcome::Pending);
    }
    let ids: Vec<AskId> = asked(&mut net).into_iter().map(|(id, _)| id).collect();
    let (request, id, _) = question(&mut net, &[from(0), to(1)]);
    net.hosts[0].engine.client_gone(ClientId(7));
    net.hosts[0].engine.client_gone(ClientId(7));
    let gone: HashSet<AskId> = forgotten(&mut net).into_iter().collect();
    assert_eq!(gone, ids.iter().copied().collect());
    answer(&mut net, ids[0], 0, 88, 0);
    answer(&mut net, id, 0, 88, 0);
    net.run(2000 * MS);
    assert_eq!(net.hosts[0].replies.keys().collect::<Vec<_>>(), [&request]);
}

#[test]
fn the_kernels_questions_go_the_same_way() {
    let mut net = plugged_net(1);
    let kernel = 1 << 63 | 1 << 32 | 5;
    assert_eq!(net.raw(0, kernel, &padded(0, &[to(1)])[..88]), Outcome::Pending);
    let (id, _) = asked(&mut net).remove(0);
    answer(&mut net, id, 0, 88, 0);
    assert_eq!(net.hosts[0].replies[&kernel].len(), 88);
}

#[test]
fn open_questions_are_bounded() {
    let mut net = plugged_net(1);
    let requests: Vec<u64> = (0..16_384).map(|_| net.start(0, &[from(0), to(1)])).collect();
    let ids: Vec<AskId> = asked(&mut net).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), requests.len(), "each has its own");
    assert!(!ids.contains(&AskId(0)));
    let distances: HashSet<u64> = ids.windows(2).map(|w| w[1].0.wrapping_sub(w[0].0)).collect();
    assert_eq!(distances.len(), ids.len() - 1, "one does not tell the next");
    let too_many = net.ask(0, &[from(0), to(1)], 0).expect("a refusal");
    assert_eq!(status(&too_many), Status::Enomem as u8);
    answer(&mut net, ids[9], 0, 88, 0);
    assert!(net.ask(0, &[from(0), to(1)], 0).is_none(), "there is room again");
    net.run(1000 * MS);
    assert_eq!(net.hosts[0].replies.len(), requests.len() + 1, "all are answered in the end");
}

#[test]
fn a_provider_that_does_not_answer_takes_nothing_from_another() {
    let mut net = plugged_net(1);
    let mut second = PortInfo { port: 2, lid: 50, ..net.hosts[0].port.clone() };
    second.gids = vec![Gid((u128::from(SECOND) << 64 | 5).to_be_bytes())];
    let own = |name: &[u8], device: &str, port| LocalName {
        addr: Addr::name(name),
        text: name.to_vec(),
        device: device.to_owned(),
        port,
        pkey: PkeyChoice::Default,
    };
    let device = second.device.clone();
    let names = vec![own(b"one", &device, 1), own(b"two", &device, 2)];
    let engine = &mut net.hosts[0].engine;
    engine.set_port(net.now, second);
    engine.set_names(names);
    net.run(10 * MS);
    for _ in 0..16_384 {
        net.start(0, &[from(0), to(1)]);
    }
    let too_many = net.ask(0, &[from(0), to(1)], 0).expect("a refusal");
    assert_eq!(status(&too_many), Status::Enomem as u8);
    net.hosts[0].told.clear();
    net.start(0, &[Entry::address(EP_FLAG_SOURCE, TYPE_NAME, b"two"), to(1)]);
    net.run(0);
    let asked: Vec<_> = net.hosts[0]
        .told
        .iter()
        .filter_map(|a| if let Action::Ask { provider, .. } = a { Some(*provider) } else { None })
        .collect();
    assert_eq!(asked, [ProviderId(1)]);
}

fn perf_query(data: [u8; 3]) -> Vec<u8> {
    let h = Header { version: 1, opcode: OP_PERF_QUERY, data, length: 16, tid: [8; 8], ..Header::default() };
    h.emit().to_vec()
}

fn counters(reply: &[u8]) -> Vec<u64> {
    reply[16..].as_chunks::<8>().0.iter().map(|b| u64::from_be_bytes(*b)).collect()
}

#[test]
fn counters_of_an_endpoint_are_the_providers() {
    let mut net = plugged_net(1);
    for (number, values, wanted) in [(1, vec![5, u64::MAX, 7], 3), (2, vec![1; 300], 72), (3, vec![], 0)] {
        assert_eq!(net.raw(0, number, &perf_query([0, 1, 1])), Outcome::Pending);
        let (id, call) = asked(&mut net).remove(0);
        assert_eq!(call, Call::Counters);
        // An answer of another kind is none.
        answer(&mut net, id, 0, 88, 0);
        assert!(!net.hosts[0].replies.contains_key(&number));
        net.hosts[0].engine.provider_counters(net.now, id, &values);
        net.hosts[0].engine.provider_counters(net.now, id, &values);
        net.run(0);
        let reply = &net.hosts[0].replies[&number];
        let h = Header::read(reply).expect("a header");
        assert_eq!((h.opcode, h.status, h.data, h.tid), (0x82, 0, [wanted as u8, 1, 0], [8; 8]));
        assert_eq!((usize::from(h.length), counters(reply)), (reply.len(), values[..wanted].to_vec()));
    }
    assert_eq!(net.raw(0, 4, &perf_query([0, 1, 0])), Outcome::Pending);
    let (id, _) = asked(&mut net).remove(0);
    net.hosts[0].engine.provider_refused(net.now, id);
    assert_eq!(net.raw(0, 5, &perf_query([0, 1, 0])), Outcome::Pending);
    net.run(1000 * MS);
    assert_eq!(forgotten(&mut net).len(), 1);
    for (number, wanted) in [(4, Status::Enodata), (5, Status::Etimedout)] {
        let reply = &net.hosts[0].replies[&number];
        assert_eq!((status(reply), reply.len(), &reply[6..8]), (wanted as u8, 16, &[0, 16][..]));
    }
    net.hosts[0].replies.clear();
    let (_, resolving, _) = question(&mut net, &[from(0), to(1)]);
    net.hosts[0].engine.provider_counters(net.now, resolving, &[1]);
    net.run(0);
    assert!(net.hosts[0].replies.is_empty(), "it is still open");
}

#[test]
fn what_providers_count_is_the_services() {
    let mut net = plugged_net(1);
    let mut counts = [0; COUNTERS];
    (counts[3], counts[5]) = (4, u64::MAX);
    net.hosts[0].engine.add_counts(&counts);
    net.hosts[0].engine.add_counts(&counts);
    let (_, id, _) = question(&mut net, &[from(0), to(1)]);
    answer(&mut net, id, Status::Enodata as u8, 16, 0);
    assert_eq!(net.raw(0, 1 << 50, &perf_query([0, 0, 0])), Outcome::Replied);
    assert_eq!(counters(&net.hosts[0].replies[&(1 << 50)]), [0, 1, 1, 8, 0, u64::MAX, 0]);
}

#[test]
fn endpoints_show_their_providers_name() {
    let mut net = plugged_net(1);
    let h = Header { version: 1, opcode: OP_EP_QUERY, data: [1, 0, 0], length: 16, ..Header::default() };
    let shown = |net: &mut Net, number| {
        assert_eq!(net.raw(0, number, &h.emit()), Outcome::Replied);
        let reply = &net.hosts[0].replies[&number];
        assert_eq!(status(reply), 0);
        let field = &reply[HDR_LEN + 16..HDR_LEN + 80];
        String::from_utf8(field.iter().copied().take_while(|b| *b != 0).collect()).expect("text")
    };
    assert_eq!(shown(&mut net, 1), "first");
    super::plugged_ports::set_prefix(&mut net, SECOND);
    assert_eq!(shown(&mut net, 2), providers().names[1][..63]);
    super::plugged_ports::set_prefix(&mut net, BUILTIN);
    assert_eq!(shown(&mut net, 3), "ibacmp");
}
