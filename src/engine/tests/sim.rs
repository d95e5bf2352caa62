//! Hosts with their engines on one subnet with an SA, in virtual time: what engines ask for is carried out after a
//! latency, unless a test says otherwise.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, More, Status, TYPE_IP, TYPE_IP6, TYPE_NAME};
use ibacm_wire::notice;
use ibacm_wire::sa::{self, SaMad};
use ibacm_wire::{Gid, PathRecord};

use crate::addr::Addr;
use crate::engine::{
    Action, ClientId, Config, Engine, EpId, LocalName, NeighbourToken, Outcome, PkeyChoice, PortId, PortInfo, Rx,
    SystemAddr, Unroutable,
};
use crate::time::Time;

pub const US: u64 = 1;
pub const MS: u64 = 1000;
pub const S: u64 = 1_000_000;

/// Clients from this number on ask more than once; any other is one for its one request.
const STAYS: u64 = 1 << 56;

/// Something that happens later.
enum Later {
    Datagram { to: usize, ep: EpId, rx: Rx, payload: Vec<u8> },
    Mad { to: usize, port: PortId, status: u32, mad: SaMad },
    Sent { to: usize, ep: EpId, token: u64, ok: bool },
    Neighbour { to: usize, token: NeighbourToken, gid: Option<Gid> },
}

pub struct Host {
    pub engine: Engine,
    pub port: PortInfo,
    /// QP of each open endpoint.
    pub qps: HashMap<EpId, u32>,
    attached: HashSet<(EpId, Gid)>,
    pub replies: HashMap<u64, Vec<u8>>,
    /// It takes part in nothing.
    pub dead: bool,
    /// Its kernel's neighbours, and how long it needs to know them; there are no others.
    pub neighbours: HashMap<IpAddr, (u64, Gid)>,
    /// Neighbours that were asked for.
    pub looked: Vec<(Time, IpAddr)>,
    /// What providers are to be told.
    pub told: Vec<Action>,
}

/// What the SA does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sa {
    Answers,
    Silent,
    Status(u16),
}

/// One of the first host's counters.
pub fn counted(net: &Net, counter: More) -> u64 {
    net.hosts[0].engine.more()[counter as usize]
}

pub struct Net {
    pub now: Time,
    pub hosts: Vec<Host>,
    later: BTreeMap<(Time, u64), Later>,
    seq: u64,
    next_qpn: u32,
    pub latency: u64,
    pub sa_latency: u64,
    pub sa: Sa,
    /// The next so many sends fail.
    pub fail_sends: u32,
    pub multicasts: usize,
    pub sent: Vec<(usize, Vec<u8>)>,
    pub path_queries: Vec<PathRecord>,
    pub joins: usize,
    /// Who asked to join what, and how many paths had been asked for by then.
    pub join_log: Vec<(usize, Gid, usize)>,
    /// Groups that the SA refuses.
    pub refused: fn(Gid) -> bool,
    /// What the SA does with subscriptions, if it is something else.
    pub inform_sa: Option<Sa>,
    /// A host whose multicasts get nowhere.
    pub mute: Option<usize>,
    /// Traps that were subscribed to.
    pub informs: Vec<u16>,
    /// Reports that were answered, and by whom.
    pub responded: Vec<usize>,
    /// Lines of the log.
    pub log: Vec<(u8, String)>,
}

pub fn gid(host: usize) -> Gid {
    let mut g = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 0];
    g[14..].copy_from_slice(&(host as u16 + 1).to_be_bytes());
    Gid(g)
}

/// Whether hosts have IPv6 addresses instead of IPv4 ones.
fn is_ipv6() -> bool {
    module_path!().contains("::ipv6::")
}

/// The type of hosts' addresses.
pub fn ip_kind() -> u16 {
    if is_ipv6() { TYPE_IP6 } else { TYPE_IP }
}

pub fn ip(host: usize) -> IpAddr {
    if is_ipv6() {
        Ipv6Addr::new(0xfd10, 0, 0, 0, 0, 0, 0, host as u16).into()
    } else {
        Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8).into()
    }
}

/// An address that nobody has.
pub fn nobody(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    if is_ipv6() {
        Ipv6Addr::new(0xfd10, 0, 0, 99, 0, 0, 0, number).into()
    } else {
        Ipv4Addr::new(10, 99, high, low).into()
    }
}

pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

pub fn to_ip(ip: IpAddr) -> Entry {
    Entry::address(EP_FLAG_DEST, ip_kind(), &octets(ip))
}

pub fn to(host: usize) -> Entry {
    to_ip(ip(host))
}

pub fn from(host: usize) -> Entry {
    Entry::address(EP_FLAG_SOURCE, ip_kind(), &octets(ip(host)))
}

pub fn name(host: usize) -> String {
    format!("Node-{host}")
}

pub fn to_name(host: usize) -> Entry {
    Entry::address(EP_FLAG_DEST, TYPE_NAME, name(host).to_uppercase().as_bytes())
}

fn system(ip: IpAddr, host: usize) -> SystemAddr {
    SystemAddr { ip, prefix_len: 16, gid: gid(host), pkey: 0xffff }
}

impl Net {
    /// `n` hosts with one port, one partition, one IPv4 address and a name each, all up and joined.
    pub fn new(n: usize, config: &Config) -> Net {
        let mut net = Net::quiet(n, config);
        net.run(10 * MS);
        net
    }

    /// The same, before anything has happened.
    pub fn quiet(n: usize, config: &Config) -> Net {
        Net::with(n, config, |_| ())
    }

    /// The same, with something done to each engine before it knows of any port.
    pub fn with(n: usize, config: &Config, prepare: impl Fn(&mut Engine)) -> Net {
        let mut net = Net {
            now: Time(0),
            hosts: Vec::new(),
            later: BTreeMap::new(),
            seq: 0,
            next_qpn: 0x100,
            latency: 2 * US,
            sa_latency: 50 * US,
            sa: Sa::Answers,
            fail_sends: 0,
            multicasts: 0,
            sent: Vec::new(),
            path_queries: Vec::new(),
            joins: 0,
            join_log: Vec::new(),
            refused: |_| false,
            inform_sa: None,
            mute: None,
            informs: Vec::new(),
            responded: Vec::new(),
            log: Vec::new(),
        };
        for i in 0..n {
            let mut engine = Engine::new(config.clone(), (i as u64, 7));
            prepare(&mut engine);
            let port = PortInfo {
                device: "mlx5_0".into(),
                guid: 0x1000 + i as u64,
                device_order: 0,
                phys_port_cnt: 1,
                port: 1,
                active: true,
                lid: 10 + i as u16,
                lmc: 0,
                sm_lid: 1,
                sm_sl: 0,
                mtu: 5,
                rate: 7,
                subnet_timeout: 18,
                gids: vec![gid(i)],
                pkeys: vec![0xffff, 0],
            };
            engine.set_system_addrs(vec![system(ip(i), i)]);
            engine.set_names(vec![LocalName {
                addr: Addr::name(name(i).as_bytes()),
                text: name(i).into_bytes(),
                device: "MLX5_0".into(),
                port: 1,
                pkey: PkeyChoice::Default,
            }]);
            engine.set_port(Time(0), port.clone());
            let (qps, attached, replies, neighbours) = Default::default();
            let (looked, told) = Default::default();
            net.hosts.push(Host { engine, port, qps, attached, replies, dead: false, neighbours, looked, told });
        }
        net
    }

    /// Tells a host a changed port.
    pub fn change_port(&mut self, host: usize, change: impl FnOnce(&mut PortInfo)) {
        change(&mut self.hosts[host].port);
        let info = self.hosts[host].port.clone();
        self.hosts[host].engine.set_port(self.now, info);
    }

    /// Tells a host its addresses.
    pub fn set_ips(&mut self, host: usize, ips: &[IpAddr]) {
        self.hosts[host].engine.set_system_addrs(ips.iter().map(|i| system(*i, host)).collect());
    }

    /// Tells a host its addresses and their partitions.
    pub fn set_addrs(&mut self, host: usize, addrs: &[(IpAddr, u16)]) {
        let addr = |&(ip, pkey): &(IpAddr, u16)| SystemAddr { pkey, ..system(ip, host) };
        self.hosts[host].engine.set_system_addrs(addrs.iter().map(addr).collect());
    }

    /// Sends a request and lets `us` pass: the reply, if one came.
    pub fn ask(&mut self, host: usize, entries: &[Entry], us: u64) -> Option<Vec<u8>> {
        let id = self.start(host, entries);
        self.run(us);
        self.hosts[host].replies.remove(&id)
    }

    /// Sends a request; its reply will be found under the number returned.
    pub fn start(&mut self, host: usize, entries: &[Entry]) -> u64 {
        self.seq += 1;
        let id = self.seq;
        let (msg, len) = ibacm_wire::client::resolve_request(id, entries);
        self.raw(host, id, &msg[..len]);
        id
    }

    /// The same for a client that asks more than once.
    #[allow(dead_code, reason = "no test with IPv6 addresses has one")]
    pub fn start_as(&mut self, host: usize, client: u64, entries: &[Entry]) -> u64 {
        self.seq += 1;
        let id = self.seq;
        let (msg, len) = ibacm_wire::client::resolve_request(id, entries);
        self.raw_as(host, (ClientId(STAYS + client), id), &msg[..len]);
        id
    }

    /// Such a client leaves.
    #[allow(dead_code, reason = "likewise")]
    pub fn leave(&mut self, host: usize, client: u64) {
        self.hosts[host].engine.client_gone(ClientId(STAYS + client));
    }

    pub fn raw(&mut self, host: usize, id: u64, msg: &[u8]) -> Outcome {
        self.raw_as(host, (ClientId(id), id), msg)
    }

    fn raw_as(&mut self, host: usize, (client, id): (ClientId, u64), msg: &[u8]) -> Outcome {
        let mut out = Vec::new();
        let own = ip(host);
        let mut routes = move |dest: IpAddr| match dest {
            IpAddr::V4(a) if a.octets()[0] == 10 => Ok(own),
            IpAddr::V6(a) if a.segments()[0] == 0xfd10 => Ok(own),
            _ => Err(Unroutable),
        };
        let h = &mut self.hosts[host];
        let due = h.engine.next_deadline();
        let outcome = h.engine.request(self.now, client, msg, &mut routes, &mut out);
        assert!(!h.engine.was_known() || h.engine.next_deadline() == due, "an answer that was known moves a deadline");
        if outcome == Outcome::Replied {
            assert!(h.replies.insert(id, out).is_none(), "two replies to request {id}");
        } else {
            assert!(out.is_empty());
        }
        outcome
    }

    fn schedule(&mut self, delay: u64, what: Later) {
        self.seq += 1;
        self.later.insert((Time(self.now.0 + delay), self.seq), what);
    }

    /// Lets time pass.
    pub fn run(&mut self, us: u64) {
        let end = Time(self.now.0 + us);
        loop {
            for h in 0..self.hosts.len() {
                self.actions(h);
            }
            let due = self.hosts.iter_mut().filter(|h| !h.dead).map(|h| h.engine.next_deadline()).min();
            let next = self.later.keys().next().map_or(Time::NEVER, |k| k.0).min(due.unwrap_or(Time::NEVER));
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            while let Some(e) = self.later.first_entry()
                && e.key().0 <= self.now
            {
                let what = e.remove();
                self.happen(what);
            }
            for h in self.hosts.iter_mut().filter(|h| !h.dead) {
                let mut turns = 0;
                while h.engine.next_deadline() <= self.now {
                    h.engine.on_time(self.now);
                    turns += 1;
                    assert!(turns < 1000, "a deadline that stays in the past");
                }
            }
        }
    }

    fn happen(&mut self, what: Later) {
        let now = self.now;
        match what {
            Later::Datagram { to, ep, rx, payload } => self.hosts[to].engine.datagram(now, ep, &rx, &payload),
            Later::Mad { to, port, status, mad } => self.hosts[to].engine.mad_received(now, port, status, &mad.0),
            Later::Sent { to, ep, token, ok } => self.hosts[to].engine.sent(now, ep, token, ok),
            Later::Neighbour { to, token, gid } => self.hosts[to].engine.neighbour(now, token, gid),
        }
    }

    fn actions(&mut self, h: usize) {
        while let Some(action) = self.hosts[h].engine.next_action() {
            if self.hosts[h].dead {
                continue;
            }
            match action {
                Action::Open { ep, .. } => {
                    self.next_qpn += 1;
                    self.hosts[h].qps.insert(ep, self.next_qpn);
                    self.hosts[h].engine.endpoint_opened(self.now, ep, self.next_qpn);
                }
                Action::Close { ep } => {
                    self.hosts[h].qps.remove(&ep);
                    self.hosts[h].attached.retain(|a| a.0 != ep);
                }
                Action::Attach { ep, mgid, .. } => drop(self.hosts[h].attached.insert((ep, mgid))),
                Action::Detach { ep, mgid, .. } => drop(self.hosts[h].attached.remove(&(ep, mgid))),
                Action::Send { ep, token, av, qpn, payload } => {
                    let ok = self.fail_sends == 0;
                    self.fail_sends = self.fail_sends.saturating_sub(1);
                    self.schedule(1, Later::Sent { to: h, ep, token, ok });
                    if ok {
                        self.carry(h, ep, av.dgid, qpn, payload.to_vec());
                    }
                }
                Action::Mad { port, mad, timeout_ms, retries, .. } => {
                    self.administrate(h, port, &mad, timeout_ms, retries)
                }
                Action::Reply { client, reply } => {
                    let stays = (STAYS..STAYS << 1).contains(&client.0);
                    let tid = u64::from_ne_bytes(*reply[8..].first_chunk().expect("a header"));
                    let id = if stays { tid } else { client.0 };
                    let old = self.hosts[h].replies.insert(id, reply.to_vec());
                    assert!(old.is_none(), "two replies to request {id}");
                }
                Action::Respond { lid, mad, .. } => {
                    assert_eq!((lid, mad.method()), (self.hosts[h].port.sm_lid, 0x86));
                    self.responded.push(h);
                }
                Action::AskNeighbour { token, ip, until } => {
                    self.hosts[h].looked.push((self.now, ip));
                    assert!(until > self.now, "a question without time");
                    let (delay, gid) = match self.hosts[h].neighbours.get(&ip) {
                        Some((delay, gid)) => (*delay, Some(*gid)),
                        None => (0, None),
                    };
                    let late = self.now.0 + delay > until.0;
                    let (delay, gid) = if late { (until.0 - self.now.0, None) } else { (delay, gid) };
                    self.schedule(delay, Later::Neighbour { to: h, token, gid });
                }
                action @ (Action::Plugged { .. }
                | Action::Ask { .. }
                | Action::Forget { .. }
                | Action::Late { .. }
                | Action::Reregister { .. }
                | Action::MadDone { .. }) => self.hosts[h].told.push(action),
                Action::Log { level, text, .. } => self.log.push((level, text)),
            }
        }
    }

    /// Delivers a datagram to whoever it is for.
    pub fn carry(&mut self, from: usize, ep: EpId, dgid: Gid, qpn: u32, payload: Vec<u8>) {
        let src_qp = self.hosts[from].qps.get(&ep).copied().unwrap_or(0);
        let p = &self.hosts[from].port;
        let rx = Rx { sgid: p.gid(), dgid, slid: p.lid, src_qp, dlid_path_bits: 0 };
        self.sent.push((from, payload.clone()));
        self.multicasts += usize::from(dgid.is_multicast());
        if dgid.is_multicast() && self.mute == Some(from) {
            return;
        }
        for to in 0..self.hosts.len() {
            let host = &self.hosts[to];
            let there = host.qps.iter().filter(|(e, q)| {
                if dgid.is_multicast() {
                    host.attached.contains(&(**e, dgid))
                } else {
                    host.port.gid() == dgid && **q == qpn
                }
            });
            let alive = !host.dead && host.port.active;
            let eps: Vec<EpId> = there.map(|(e, _)| *e).filter(|_| alive).collect();
            for ep in eps {
                self.schedule(self.latency, Later::Datagram { to, ep, rx, payload: payload.clone() });
            }
        }
    }

    /// The SA.
    fn administrate(&mut self, from: usize, port: PortId, mad: &SaMad, timeout_ms: u32, retries: u32) {
        let mut a = *mad;
        match mad.attribute() {
            sa::ATTR_PATH => self.path_queries.push(mad.path()),
            notice::ATTR_INFORM => self.informs.push(mad.inform().trap),
            _ => {
                self.joins += 1;
                self.join_log.push((from, mad.mcmember().mgid, self.path_queries.len()));
            }
        }
        a.0[3] = sa::METHOD_GET | sa::METHOD_RESP;
        let inform = mad.attribute() == notice::ATTR_INFORM;
        match self.inform_sa.filter(|_| inform).unwrap_or(self.sa) {
            Sa::Silent => {
                let wait = u64::from(timeout_ms) * u64::from(retries + 1) * MS;
                return self.schedule(wait, Later::Mad { to: from, port, status: 110, mad: *mad });
            }
            Sa::Status(s) => a.set_status(s),
            Sa::Answers if inform => {}
            Sa::Answers if mad.attribute() == sa::ATTR_MCMEMBER && (self.refused)(mad.mcmember().mgid) => {
                a.set_status(0x0200);
            }
            Sa::Answers if mad.attribute() == sa::ATTR_MCMEMBER => {
                let mut m = mad.mcmember();
                m.mlid = 0xc000 | u16::from(m.mgid.0[7]) << 4 | u16::from(m.mgid.0[8]);
                m.packet_lifetime = 0x92;
                m.sl_flow_hop = 0x1000_0000;
                a = SaMad::membership(sa::METHOD_GET | sa::METHOD_RESP, mad.tid(), &m, 0);
            }
            Sa::Answers => match self.path_for(from, &mad.path()) {
                Some(p) => {
                    a = SaMad::path_query(mad.tid(), &p);
                    a.0[3] |= sa::METHOD_RESP;
                }
                None => a.set_status(0x0300),
            },
        }
        self.schedule(self.sa_latency, Later::Mad { to: from, port, status: 0, mad: a });
    }

    fn path_for(&self, from: usize, q: &PathRecord) -> Option<PathRecord> {
        let to = self.hosts.iter().find(|h| h.port.gid() == q.dgid() || h.port.lid == q.dlid())?;
        let mut p = *q;
        p.set_dgid(to.port.gid());
        p.set_dlid(to.port.lid);
        p.set_sgid(self.hosts[from].port.gid());
        p.set_slid(self.hosts[from].port.lid);
        p.set_qos_sl(3);
        p.set_mtu(0x84);
        p.set_rate(0x83);
        p.set_packet_lifetime(0x92);
        Some(p)
    }
}

/// The status in a reply.
pub fn status(reply: &[u8]) -> u8 {
    reply[2]
}

/// The path in a successful reply.
pub fn path(reply: &[u8]) -> PathRecord {
    assert_eq!(status(reply), Status::Success as u8, "{reply:02x?}");
    PathRecord(Entry::read(reply, 0).expect("an entry").info)
}
