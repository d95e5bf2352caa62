//! What is to be open at providers as ports, endpoints and addresses come and go.

use super::plugged::{BUILTIN, PREFIX, SECOND, asked, forgotten, plugged_net, providers, question};
use super::sim::{MS, Net, S, Sa, gid, ip, ip_kind, name, nobody, octets, path, status, to_ip};
use super::{from, to};
use crate::addr::Addr;
use crate::engine::{Action, AskId, Config, EpId, Plugged, PluggedAddr, PluggedEndpoint, PortId, PortInfo, ProviderId};
use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_SOURCE, Entry, Status};

const PORT: PortId = PortId(0);

/// Gives host 0's port another first GID; the old one stays beside it, since interfaces are known by it.
pub fn set_prefix(net: &mut Net, prefix: u64) {
    let mut first = gid(0);
    first.0[..8].copy_from_slice(&prefix.to_be_bytes());
    net.change_port(0, |p| p.gids = if prefix == PREFIX { vec![gid(0)] } else { vec![first, gid(0)] });
    net.run(10 * MS);
}

fn shown(net: &Net) -> Option<Plugged> {
    net.hosts[0].engine.plugged(PORT)
}

/// What host 0's provider has open of its endpoints: their P_Keys and addresses.
fn open(net: &Net) -> Vec<(u16, Vec<Addr>)> {
    let endpoints = shown(net).map(|p| p.endpoints).unwrap_or_default().into_iter();
    endpoints.map(|e| (e.pkey, e.addrs.iter().map(|a| a.addr).collect())).collect()
}

fn generation(net: &Net) -> u32 {
    shown(net).expect("it is plugged").generation
}

/// How often the loop is told that something has changed for host 0's port, since the last time.
fn tellings(net: &mut Net) -> usize {
    net.run(0);
    let told = std::mem::take(&mut net.hosts[0].told);
    told.iter().filter(|a| matches!(a, Action::Plugged { port: PORT })).count()
}

fn own_name() -> Addr {
    Addr::name(name(0).as_bytes())
}

#[test]
fn a_port_is_plugged_before_anything_is_asked_and_nothing_is_opened() {
    let mut net = Net::with(1, &Config::default(), |e| e.set_providers(providers()));
    net.hosts[0].engine.set_reports(net.now, PORT, true);
    net.start(0, &[from(0), to(1)]);
    net.run(0);
    let told = std::mem::take(&mut net.hosts[0].told);
    assert!(matches!(told[..], [Action::Plugged { port: PORT }, Action::Ask { .. }]), "{told:?}");
    let addrs = vec![
        PluggedAddr { place: 0, addr: Addr::ip(ip(0)), text: format!("{}/16", ip(0)).into_bytes() },
        PluggedAddr { place: 1, addr: own_name(), text: name(0).into_bytes() },
    ];
    let wanted = Plugged {
        provider: ProviderId(0),
        generation: 0,
        device: "mlx5_0".into(),
        port: 1,
        gids: vec![gid(0)],
        endpoints: vec![PluggedEndpoint { ep: EpId(0), pkey: 0xffff, pkey_index: 0, addrs }],
    };
    assert_eq!(shown(&net), Some(wanted));
    let engine = &net.hosts[0].engine;
    assert_eq!((engine.endpoint_count(), engine.endpoint_wanted(EpId(0))), (0, None));
    assert_eq!(engine.plugged(PortId(9)), None);
    net.run(100 * S);
    assert!(net.hosts[0].qps.is_empty());
    assert_eq!((net.joins, net.informs.len(), net.multicasts), (0, 0, 0));
    net.hosts[0].engine.endpoint_opened(net.now, EpId(0), 9);
    net.run(100 * S);
    assert_eq!((net.joins, net.hosts[0].engine.summary()), (0, (1, 0, 0)));
}

#[test]
fn every_port_has_the_provider_of_its_subnet() {
    let mut net = plugged_net(2);
    let mut second = PortInfo { port: 2, lid: 50, ..net.hosts[0].port.clone() };
    second.gids =
        vec![Gid((u128::from(BUILTIN) << 64 | 5).to_be_bytes()), Gid((u128::from(PREFIX) << 64).to_be_bytes())];
    let mut unknown = PortInfo { port: 3, lid: 60, ..second.clone() };
    unknown.gids = vec![Gid([7; 16])];
    let mut third = PortInfo { port: 4, lid: 70, ..second.clone() };
    third.gids = vec![Gid((u128::from(SECOND) << 64 | 5).to_be_bytes())];
    let engine = &mut net.hosts[0].engine;
    let ports = [second, unknown, third].map(|p| engine.set_port(net.now, p));
    let served = ports.map(|p| engine.plugged(p).map(|p| (p.provider, p.endpoints.len())));
    assert_eq!(served, [None, None, Some((ProviderId(1), 0))]);
}

#[test]
fn the_loop_is_told_once_until_it_has_looked() {
    let mut net = plugged_net(1);
    assert_eq!(tellings(&mut net), 1);
    for lid in 100..105 {
        net.change_port(0, |p| p.lid = lid);
    }
    net.set_ips(0, &[ip(0), nobody(1)]);
    assert_eq!(tellings(&mut net), 1);
    // What is no change is not told.
    net.set_ips(0, &[ip(0), nobody(1)]);
    net.change_port(0, |p| p.subnet_timeout = 3);
    assert_eq!(tellings(&mut net), 0);
    net.set_ips(0, &[ip(0)]);
    assert_eq!(tellings(&mut net), 1);
}

#[test]
fn what_the_provider_knows_of_a_port_makes_it_another() {
    let mut net = plugged_net(1);
    let mut before = generation(&net);
    let changes: [fn(&mut PortInfo); 5] =
        [|p| p.lid += 1, |p| p.lmc = 2, |p| p.rate = 3, |p| p.mtu = 4, |p| p.gids.push(Gid([3; 16]))];
    for change in changes {
        let (request, id, _) = question(&mut net, &[from(0), to(1)]);
        net.change_port(0, change);
        assert_ne!(generation(&net), before);
        before = generation(&net);
        assert_eq!(forgotten(&mut net), [id]);
        assert_eq!(status(&net.hosts[0].replies.remove(&request).expect("told")), Status::Enotconn as u8);
    }
    let (request, id, _) = question(&mut net, &[from(0), to(1)]);
    net.change_port(0, |p| {
        (p.sm_lid, p.sm_sl, p.subnet_timeout) = (77, 3, 5);
        p.pkeys = vec![0xffff, 0x8001];
    });
    net.run(10 * MS);
    assert_eq!((generation(&net), forgotten(&mut net).len()), (before, 0));
    assert_eq!(tellings(&mut net), 0);
    net.hosts[0].engine.provider_refused(net.now, id);
    net.run(0);
    assert!(net.hosts[0].replies.contains_key(&request), "it was still open");
}

#[test]
fn p_keys_are_matters_of_their_endpoints() {
    let mut net = plugged_net(1);
    net.change_port(0, |p| p.pkeys = vec![0xffff, 0x8001]);
    net.set_addrs(0, &[(ip(0), 0xffff), (nobody(1), 0x8001)]);
    let both = [(0xffff, vec![Addr::ip(ip(0)), own_name()]), (0x8001, vec![Addr::ip(nobody(1))])];
    assert_eq!(open(&net), both);
    let before = generation(&net);
    let other = Entry::address(EP_FLAG_SOURCE, ip_kind(), &octets(nobody(1)));
    let (first, id, _) = question(&mut net, &[from(0), to(1)]);
    let second = net.start(0, &[other, to(1)]);
    net.run(0);
    let Some(Action::Ask { ep: EpId(1), id: other_id, .. }) = net.hosts[0].told.pop() else { panic!("nothing asked") };
    // Another place: the endpoint is to be opened anew. The other one goes on.
    net.change_port(0, |p| p.pkeys = vec![0xffff, 0x8002, 0x8001]);
    assert_eq!((open(&net), generation(&net)), (both.to_vec(), before));
    let places = |net: &Net| shown(net).map(|p| p.endpoints.iter().map(|e| e.pkey_index).collect::<Vec<_>>());
    assert_eq!(places(&net), Some(vec![0, 2]));
    assert_eq!(forgotten(&mut net), [other_id]);
    assert_eq!(status(&net.hosts[0].replies[&second]), Status::Enotconn as u8);
    // Membership of the first one.
    net.change_port(0, |p| p.pkeys = vec![0x7fff, 0x8002, 0x8001]);
    assert_eq!((open(&net)[0].0, generation(&net)), (0x7fff, before));
    assert_eq!(forgotten(&mut net), [id]);
    assert_eq!(status(&net.hosts[0].replies[&first]), Status::Enotconn as u8);
    // Gone.
    net.change_port(0, |p| p.pkeys = vec![0x7fff]);
    assert_eq!((open(&net).len(), tellings(&mut net), generation(&net)), (1, 1, before));
}

#[test]
fn who_asked_from_an_address_that_goes_is_told() {
    let mut net = plugged_net(1);
    net.set_ips(0, &[ip(0), nobody(1)]);
    assert_eq!(open(&net)[0].1, [Addr::ip(ip(0)), own_name(), Addr::ip(nobody(1))]);
    let going = Entry::address(EP_FLAG_SOURCE, ip_kind(), &octets(nobody(1)));
    let (first, id, _) = question(&mut net, &[going, to(1)]);
    let (_, staying, _) = question(&mut net, &[from(0), to(1)]);
    net.set_ips(0, &[ip(0), nobody(2)]);
    assert_eq!(forgotten(&mut net), [id]);
    assert_eq!(status(&net.hosts[0].replies[&first]), Status::Enotconn as u8);
    assert_eq!(net.hosts[0].replies.len(), 1);
    // The place has another address now.
    let addrs = shown(&net).expect("it is plugged").endpoints.remove(0).addrs;
    assert_eq!(addrs.iter().map(|a| (a.place, a.addr)).nth(2), Some((2, Addr::ip(nobody(2)))));
    // The endpoint has lost its last address.
    net.set_ips(0, &[]);
    net.hosts[0].engine.set_names(Vec::new());
    assert_eq!((forgotten(&mut net), open(&net)), (vec![staying], vec![]));
    assert!(shown(&net).is_some(), "the port is still there");
    net.run(5 * S);
    assert_eq!(net.hosts[0].replies.len(), 2);
}

#[test]
fn a_port_that_goes_takes_its_questions_with_it() {
    let mut net = plugged_net(1);
    for gone in [true, false] {
        let before = generation(&net);
        let requests: Vec<u64> = (0..5).map(|_| net.start(0, &[from(0), to(1)])).collect();
        let mut ids: Vec<AskId> = asked(&mut net).into_iter().map(|(id, _)| id).collect();
        match gone {
            true => net.hosts[0].engine.port_gone(net.now, PORT),
            false => net.change_port(0, |p| p.active = false),
        }
        let mut told = forgotten(&mut net);
        told.sort_by_key(|id| id.0);
        ids.sort_by_key(|id| id.0);
        assert_eq!((told, shown(&net)), (ids.clone(), None));
        let replies: Vec<u8> = requests.iter().map(|r| status(&net.hosts[0].replies[r])).collect();
        assert_eq!(replies, [Status::Enotconn as u8; 5]);
        net.hosts[0].engine.provider_refused(net.now, ids[0]);
        net.run(5 * S);
        assert_eq!(net.hosts[0].replies.len(), 5, "each is told once");
        let reply = net.ask(0, &[from(0), to(1)], 0).expect("a refusal");
        assert_eq!(status(&reply), Status::Esrcaddr as u8);
        net.change_port(0, |p| p.active = true);
        assert_ne!(generation(&net), before, "it is opened anew even if nobody saw it go");
        assert_eq!(tellings(&mut net), 1);
        net.hosts[0].replies.clear();
    }
}

#[test]
fn a_port_follows_its_prefix_to_another_provider_and_home() {
    let mut net = plugged_net(2);
    let (request, id, _) = question(&mut net, &[from(0), to(1)]);
    set_prefix(&mut net, SECOND);
    assert_eq!(shown(&net).map(|p| (p.provider, p.endpoints.len())), Some((ProviderId(1), 1)));
    assert_eq!((forgotten(&mut net), net.hosts[0].qps.len()), (vec![id], 0));
    assert_eq!(status(&net.hosts[0].replies[&request]), Status::Enotconn as u8);
    net.start(0, &[from(0), to(1)]);
    net.run(0);
    let last = net.hosts[0].told.pop();
    assert!(matches!(last, Some(Action::Ask { provider: ProviderId(1), .. })), "{last:?}");

    net.hosts[0].replies.clear();
    // The built-in provider, for both hosts, as if there had been no other.
    net.hosts[1].port.gids[0].0[..8].copy_from_slice(&BUILTIN.to_be_bytes());
    net.change_port(1, |p| p.gids.push(gid(1)));
    set_prefix(&mut net, BUILTIN);
    assert_eq!((shown(&net), tellings(&mut net)), (None, 1));
    assert_eq!((net.hosts[0].qps.len(), net.joins, net.hosts[0].replies.len()), (1, 2, 1));
    let dgid = net.hosts[1].port.gid();
    assert_eq!(path(&net.ask(0, &[from(0), to(1)], 5 * MS).expect("a path")).dgid(), dgid);
    let own = path(&net.ask(0, &[from(0), to(0)], 0).expect("from what is known locally"));
    assert_eq!(own.dlid(), net.hosts[0].port.lid);
    // Who waits for the SA when the port passes to a provider is told.
    net.sa = Sa::Silent;
    let waiting = net.start(0, &[from(0), to_ip(nobody(3))]);
    net.run(MS);
    set_prefix(&mut net, PREFIX);
    assert!(net.hosts[0].qps.is_empty(), "its QP is closed");
    assert_eq!(status(&net.hosts[0].replies[&waiting]), Status::Enotconn as u8);
    (net.hosts[0].replies, net.hosts[0].told) = Default::default();
    question(&mut net, &[from(0), to(0)]);
    let joins = net.joins;
    net.run(100 * S);
    assert_eq!((net.joins, net.hosts[0].qps.len()), (joins, 0));
}

#[test]
fn a_reregistration_is_told_to_the_provider() {
    let mut net = plugged_net(1);
    net.hosts[0].told.clear();
    net.hosts[0].engine.reregister(net.now, PORT);
    net.hosts[0].engine.reregister(net.now, PortId(9));
    net.run(10 * S);
    let told = std::mem::take(&mut net.hosts[0].told);
    assert!(matches!(told[..], [Action::Reregister { provider: ProviderId(0), port: PORT }]), "{told:?}");
    net.change_port(0, |p| p.active = false);
    net.run(0);
    net.hosts[0].told.clear();
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(10 * S);
    assert_eq!((net.hosts[0].told.len(), net.joins), (0, 0));
    // Again, so soon that it is about the same: once is enough. Later it is another order.
    net.change_port(0, |p| p.active = true);
    net.run(0);
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(50 * MS);
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(50 * MS);
    let orders = |net: &mut Net| {
        let told = std::mem::take(&mut net.hosts[0].told);
        told.iter().filter(|a| matches!(a, Action::Reregister { .. })).count()
    };
    assert_eq!(orders(&mut net), 1);
    net.hosts[0].engine.reregister(net.now, PORT);
    // A port that is closed and opened has not heard of it.
    net.change_port(0, |p| p.lid += 1);
    net.run(0);
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(0);
    assert_eq!(orders(&mut net), 2);
    net.change_port(0, |p| p.active = false);
    net.run(0);
    net.hosts[0].told.clear();
    net.hosts[0].engine.reregister(net.now, PORT);
    net.run(10 * S);
    // It is told when it has the port open again, and once.
    for owed in [true, false] {
        net.change_port(0, |p| p.active = true);
        net.run(10 * S);
        let told = std::mem::take(&mut net.hosts[0].told);
        assert!(matches!(told[0], Action::Plugged { port: PORT }), "{told:?}");
        assert_eq!(matches!(told[1..], [Action::Reregister { provider: ProviderId(0), port: PORT }]), owed, "{told:?}");
        net.change_port(0, |p| p.active = false);
        net.run(0);
        net.hosts[0].told.clear();
    }
}

#[test]
fn options_do_not_touch_what_a_provider_has() {
    let mut net = plugged_net(1);
    net.hosts[0].told.clear();
    for loopback_local in [false, true] {
        let config =
            Config { loopback_local, min_rate: 5, route_prot: crate::engine::RouteProt::Acm, ..Config::default() };
        net.hosts[0].engine.set_config(net.now, config);
        net.run(S);
    }
    assert_eq!((net.hosts[0].told.len(), net.joins, net.hosts[0].qps.len()), (0, 0, 0));
    question(&mut net, &[from(0), to(0)]);
}
