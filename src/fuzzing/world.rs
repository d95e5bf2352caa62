//! A host's service in virtual time, and what is around it: clients, a kernel that gives MADs back, the loop that does
//! actions. Whatever happens, it panics when the service breaks a promise.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use ibacm_wire::client::{Counter, HDR_LEN, OP_ACK, OP_EP_QUERY, OP_MASK, OP_RESOLVE, Status, VERSION};
use ibacm_wire::datagram::Datagram;
use ibacm_wire::sa::SaMad;
use ibacm_wire::{PathRecord, client};

use super::names;
use crate::engine::check::Limits;
use crate::engine::{
    Action, AskId, Call, ClientId, Config, Engine, EpId, NeighbourToken, Outcome, PortId, PortInfo, Providers,
    Unroutable,
};
use crate::time::Time;

/// Turns in which everything that is due must be done.
const TURNS: usize = 64;
/// What is remembered of what the service has sent.
const KEPT: usize = 32;
/// What a look-up may take beside the times of its protocols: the kernel's forgetting, the neighbour table.
const GRACE: Duration = Duration::from_secs(6);

/// Somebody who waits for a reply.
struct Wait {
    limit: Time,
    /// The reply may come though the client has gone: its server drops it.
    late: bool,
}

/// A MAD that is on its way.
pub(super) struct Asked {
    pub port: PortId,
    pub tid: u32,
    pub mad: SaMad,
    /// When the kernel gives it back; never, if it forgets it.
    pub ends: Time,
}

pub(super) struct World {
    pub now: Time,
    pub engine: Engine,
    pub config: Config,
    pub limits: Limits,
    pub ports: [PortInfo; 2],
    /// Destinations, by the last byte of their address, without a route to them.
    pub unroutable: u8,
    /// Endpoints cannot be opened.
    pub shut: bool,
    generations: [u64; 4],
    tid: u64,
    waiting: HashMap<(ClientId, u64), Wait>,
    /// Those of clients that have gone, whose replies may come.
    gone: HashSet<(ClientId, u64)>,
    /// Endpoints that are to be open, and whether they are: a QP may be broken, or not to be had.
    qps: HashMap<EpId, bool>,
    next_qpn: u32,
    /// Requests that were sent, and by whom.
    pub sent: VecDeque<(EpId, Datagram)>,
    /// Sends whose end is not told yet, and whether they are good.
    pub unsent: VecDeque<(EpId, u64, bool)>,
    pub mads: Vec<Asked>,
    /// MADs that were answered, or had their time.
    pub old_mads: VecDeque<(PortId, SaMad)>,
    neighbours: Vec<(NeighbourToken, Time)>,
    pub asks: Vec<(AskId, bool)>,
    provider_mads: HashSet<u64>,
    /// Replies that came late, as long as somebody takes them.
    pub replies: Vec<(ClientId, Box<[u8]>)>,
    /// Requests to resolve, their answers of "no data" and other failures.
    counts: [u64; 3],
    /// The longest that a protocol may have taken since the options were last what they are.
    longest: Duration,
}

impl World {
    pub fn new(config: Config, providers: Providers) -> World {
        let mut engine = Engine::new(config.clone(), (1, 2));
        engine.set_providers(providers);
        let limits = Limits { max_destinations: 0, sa_depth: 0, send_depth: 0 };
        let mut world = World {
            now: Time(1),
            engine,
            config: config.clone(),
            limits,
            ports: [names::port(0), names::port(1)],
            unroutable: 0,
            shut: false,
            generations: [0; 4],
            tid: 0,
            waiting: HashMap::new(),
            gone: HashSet::new(),
            qps: HashMap::new(),
            next_qpn: 0x100,
            sent: VecDeque::new(),
            unsent: VecDeque::new(),
            mads: Vec::new(),
            old_mads: VecDeque::new(),
            neighbours: Vec::new(),
            asks: Vec::new(),
            provider_mads: HashSet::new(),
            replies: Vec::new(),
            counts: [0; 3],
            longest: Duration::ZERO,
        };
        world.note(&config);
        world
    }

    /// The host with both ports and all its addresses.
    pub fn start(&mut self, addrs: u8, names: u8) {
        self.engine.set_system_addrs(names::system(addrs));
        self.engine.set_names(names::names(names));
        for port in self.ports.clone() {
            let id = self.engine.set_port(self.now, port);
            self.engine.set_reports(self.now, id, true);
        }
        self.turn();
    }

    fn note(&mut self, config: &Config) {
        let most = &mut self.limits;
        most.max_destinations = most.max_destinations.max(config.max_destinations);
        most.sa_depth = most.sa_depth.max(config.sa_depth);
        most.send_depth = most.send_depth.max(config.send_depth);
        let sa = config.sa().total();
        let arp = config.arp(18);
        let arp = arp.timeout * (arp.retries + 1);
        self.longest = self.longest.max(2 * arp + 4 * sa + GRACE);
    }

    pub fn set_config(&mut self, config: Config) {
        self.note(&config);
        self.config = config.clone();
        let longest = self.longest;
        // what waits may begin again under the new ones
        self.waiting.values_mut().for_each(|w| w.limit = w.limit.max(self.now.plus(longest)));
        self.engine.set_config(self.now, config);
    }

    pub fn client(&self, number: usize) -> ClientId {
        let index = number % self.generations.len();
        ClientId(self.generations[index] << 32 | index as u64)
    }

    /// A client's request, under a transaction id of its own.
    pub fn request(&mut self, client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.tid += 1;
        let mut msg = msg.to_vec();
        if let Some(place) = msg.get_mut(8..16) {
            place.copy_from_slice(&self.tid.to_be_bytes());
        }
        let operation = msg.get(1).map_or(0, |o| o & OP_MASK);
        self.counts[0] += u64::from(operation == OP_RESOLVE && msg.len() >= HDR_LEN);
        let unroutable = self.unroutable;
        let mut routes = move |dest: IpAddr| match dest {
            IpAddr::V4(a) if a.octets()[3] & unroutable == 0 => Ok(names::ip(0, 0)),
            IpAddr::V6(a) if a.octets()[15] & unroutable == 0 => Ok(names::ip(0, 1)),
            _ => Err(Unroutable),
        };
        let before = out.len();
        let due = self.engine.next_deadline();
        let outcome = self.engine.request(self.now, client, &msg, &mut routes, out);
        assert!(!self.engine.was_known() || self.engine.next_deadline() == due, "a known answer moves a deadline");
        let said = out.get(before..).unwrap_or_default().to_vec();
        match outcome {
            Outcome::Replied => assert_eq!(self.reply(&said), self.tid, "a reply to another request"),
            Outcome::Pending => {
                let late = client::Entry::read(&msg, 0).is_some_and(|e| e.flags & client::FLAG_QUERY_SA != 0);
                let wait = Wait { limit: self.now.plus(self.longest), late };
                self.waiting.insert((client, self.tid), wait);
            }
            Outcome::Close => {}
        }
        assert!(outcome == Outcome::Replied || said.is_empty(), "a reply that is none");
        outcome
    }

    /// Takes a reply: its transaction id.
    fn reply(&mut self, reply: &[u8]) -> u64 {
        assert!(reply.len() >= HDR_LEN && reply[0] == VERSION && reply[1] & OP_ACK != 0, "{reply:02x?}");
        let length = [reply[6], reply[7]];
        let resolve = reply[1] & OP_MASK == OP_RESOLVE;
        let length = if resolve { u16::from_ne_bytes(length) } else { u16::from_be_bytes(length) };
        assert_eq!(usize::from(length), reply.len());
        assert!(reply.len() <= client::MAX_REQUEST || reply[1] & OP_MASK == OP_EP_QUERY);
        match reply[2] {
            status if !resolve || status == 0 => {}
            status if status == Status::Enodata as u8 => self.counts[1] += 1,
            _ => self.counts[2] += 1,
        }
        u64::from_be_bytes(*reply[8..].first_chunk().expect("a header"))
    }

    /// A client closes its connection; another one gets its place.
    pub fn close(&mut self, number: usize) {
        let client = self.client(number);
        self.generations[number % 4] += 1;
        let gone = self.waiting.extract_if(|(c, _), _| *c == client);
        self.gone.extend(gone.filter(|(_, w)| w.late).map(|(who, _)| who));
        self.engine.client_gone(client);
    }

    /// Lets time pass, with everything done when it is due.
    pub fn run(&mut self, us: u64) {
        let end = Time(self.now.0.saturating_add(us));
        loop {
            let mads = self.mads.iter().map(|m| m.ends);
            let next = mads.chain(self.neighbours.iter().map(|n| n.1)).min().unwrap_or(Time::NEVER);
            let next = next.min(self.engine.next_deadline());
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.turn_quickly();
        }
        self.now = end;
        self.turn();
    }

    /// Time passes in which nothing is done: everybody may wait for so much longer.
    pub fn sleep(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.waiting.values_mut().for_each(|w| w.limit = w.limit.plus(time));
        self.turn();
    }

    /// One turn of the loop, after which everything is looked at.
    pub fn turn(&mut self) {
        self.turn_quickly();
        self.engine.check_all(&self.limits);
    }

    fn turn_quickly(&mut self) {
        while let Some((ep, token, ok)) = self.unsent.pop_front() {
            self.engine.sent(self.now, ep, token, ok);
        }
        while let Some(i) = self.mads.iter().position(|m| m.ends <= self.now) {
            self.give_back(i);
        }
        while let Some(i) = self.neighbours.iter().position(|n| n.1 <= self.now) {
            self.neighbour(i, None);
        }
        self.act();
        let mut turns = 0;
        while self.engine.next_deadline() <= self.now {
            self.engine.on_time(self.now);
            self.act();
            turns += 1;
            assert!(turns < TURNS, "a deadline that stays in the past");
        }
        // what is not due is not done: else it would be done too late where nothing else happens
        self.engine.on_time(self.now);
        let late = self.engine.next_action();
        assert!(late.is_none(), "there was something to do, and no deadline said so: {late:?}");
        for (who, wait) in &self.waiting {
            assert!(wait.limit >= self.now, "{who:?} waits for too long");
        }
        let counters = self.engine.counters();
        let counted = [Counter::Resolve, Counter::Nodata, Counter::Error].map(|c| counters[c as usize]);
        assert_eq!(counted, self.counts, "requests, no data, errors");
        assert!(counters[Counter::RouteCache as usize] <= self.counts[0]);
    }

    /// The kernel gives a MAD back that nobody has answered.
    pub fn give_back(&mut self, i: usize) {
        let Asked { port, mad, .. } = self.mads.swap_remove(i);
        self.remember(port, mad);
        self.engine.mad_received(self.now, port, 110, &mad.0);
    }

    pub fn remember(&mut self, port: PortId, mad: SaMad) {
        self.old_mads.push_back((port, mad));
        if self.old_mads.len() > KEPT {
            self.old_mads.pop_front();
        }
    }

    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// The kernel says nothing of a neighbour.
    pub fn forget_neighbour(&mut self, i: usize) {
        self.neighbours.swap_remove(i);
    }

    /// What the kernel says of a neighbour.
    pub fn neighbour(&mut self, i: usize, gid: Option<ibacm_wire::Gid>) {
        let (token, _) = self.neighbours.swap_remove(i);
        self.engine.neighbour(self.now, token, gid);
    }

    /// A provider has the SA asked, with a number of its own.
    pub fn provider_mad(&mut self, ep: EpId, mad: &SaMad) {
        self.tid += 1;
        self.provider_mads.insert(self.tid);
        self.engine.provider_mad(self.now, ep, crate::engine::MadToken(self.tid), mad);
    }

    /// Does everything that the engine wants.
    pub fn act(&mut self) {
        while let Some(action) = self.engine.next_action() {
            self.one(action);
        }
    }

    fn one(&mut self, action: Action) {
        match action {
            Action::Open { ep, port, .. } => {
                assert!(self.ports[port.0 as usize].active, "an endpoint of a port that is down");
                assert!(!self.qps.contains_key(&ep), "opened twice");
                self.open(ep);
            }
            Action::Close { ep } => {
                self.qps.remove(&ep);
                self.unsent.retain(|s| s.0 != ep);
            }
            Action::Attach { ep, mgid, .. } | Action::Detach { ep, mgid, .. } => {
                assert!(mgid.is_multicast() && self.qps.contains_key(&ep));
            }
            Action::Send { ep, token, payload, av, .. } => {
                let open = *self.qps.get(&ep).expect("sent from an endpoint that is to be open");
                assert!(av.dlid != 0 && !av.dgid.is_zero(), "sent to nobody");
                let datagram = Datagram::parse(&*payload).expect("what others understand");
                if matches!(datagram, Datagram::Request(_)) {
                    self.sent.push_back((ep, datagram));
                }
                if self.sent.len() > KEPT {
                    self.sent.pop_front();
                }
                self.unsent.push_back((ep, token, open));
            }
            Action::Mad { port, tid, mad, timeout_ms, retries, .. } => {
                assert!(self.ports[port.0 as usize].active, "the SA is asked by a port that is down");
                assert_eq!(mad.tid() as u32, tid);
                let wait = Duration::from_millis(u64::from(timeout_ms)) * (retries + 1);
                self.mads.push(Asked { port, tid, mad: *mad, ends: self.now.plus(wait) });
            }
            Action::Reply { client, reply } => {
                let tid = self.reply(&reply);
                let who = (client, tid);
                let waited = self.waiting.remove(&who).is_some() || self.gone.remove(&who);
                assert!(waited, "{client:?} {tid}: nobody waits for this reply");
                self.replies.push((client, reply));
            }
            Action::AskNeighbour { token, until, .. } => {
                assert!(until > self.now, "a question without time");
                self.neighbours.push((token, until));
            }
            Action::Ask { id, call, .. } => {
                assert!(self.asks.iter().all(|a| a.0 != id) && id.0 != 0);
                self.asks.push((id, call == Call::Counters));
            }
            Action::Forget { id } => self.asks.retain(|a| a.0 != id),
            Action::MadDone { token, .. } => assert!(self.provider_mads.remove(&token.0), "ended twice"),
            Action::Respond { mad, .. } => assert!(!mad.is_report()),
            Action::Plugged { .. } | Action::Late { .. } | Action::Reregister { .. } | Action::Log { .. } => {}
        }
    }

    /// Makes an endpoint's QP.
    pub fn open(&mut self, ep: EpId) {
        self.unsent.retain(|s| s.0 != ep);
        self.qps.insert(ep, !self.shut);
        if self.shut {
            return self.engine.endpoint_failed(ep, "no QP to be had");
        }
        self.next_qpn += 1;
        self.engine.endpoint_opened(self.now, ep, self.next_qpn);
    }

    /// Nothing happens any more: everybody must have an answer.
    pub fn end(&mut self) {
        self.run(self.longest.as_micros() as u64);
        let left: Vec<_> = self.waiting.keys().collect();
        assert!(left.is_empty(), "nobody answers {left:?}");
        assert!(self.provider_mads.is_empty(), "questions of a provider that do not end");
        self.engine.check_idle(|ep| self.qps.get(&ep) == Some(&true));
    }

    /// The SA's true answer to what `mad` asks.
    pub fn truth(&self, mad: &SaMad) -> SaMad {
        use ibacm_wire::{notice, sa};
        let mut answer = *mad;
        answer.0[3] = sa::METHOD_GET | sa::METHOD_RESP;
        match mad.attribute() {
            sa::ATTR_MCMEMBER => {
                let mut m = mad.mcmember();
                m.mlid = 0xc000 | u16::from(m.mgid.0[7]) << 4 | u16::from(m.mgid.0[8]);
                m.packet_lifetime = 0x92;
                m.sl_flow_hop = 0x1000_0000;
                SaMad::membership(sa::METHOD_GET | sa::METHOD_RESP, mad.tid(), &m, 0)
            }
            notice::ATTR_INFORM => answer,
            _ => match self.path_for(&mad.path()) {
                Some(path) => {
                    let mut answer = SaMad::path_query(mad.tid(), &path);
                    answer.0[3] |= sa::METHOD_RESP;
                    answer
                }
                None => {
                    answer.set_status(0x0300);
                    answer
                }
            },
        }
    }

    fn path_for(&self, question: &PathRecord) -> Option<PathRecord> {
        let hosts = (0..names::HOSTS).chain([128]);
        let to = hosts.clone().find(|h| names::gid(*h) == question.dgid() || names::lid(*h) == question.dlid())?;
        let port = self.ports.iter().find(|p| p.gid() == question.sgid() || p.lid == question.slid())?;
        let mut path = *question;
        path.set_dgid(names::gid(to));
        path.set_dlid(names::lid(to));
        path.set_sgid(port.gid());
        path.set_slid(port.lid);
        path.set_qos_sl(3);
        path.set_mtu(0x84);
        path.set_rate(0x83);
        path.set_packet_lifetime(0x92);
        Some(path)
    }
}
