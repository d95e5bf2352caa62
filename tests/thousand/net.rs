//! Hosts with their engines on one subnet, in virtual time. Everything that may happen is in one heap of events, so that
//! a thousand hosts cost what happens on them and not what they are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use ibacm::engine::{Action, ClientId, Config, Engine, EpId, Outcome, PortId, PortInfo, Rx, SystemAddr};
use ibacm::keyed::{Rng, SipKey};
use ibacm::time::Time;
use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, TYPE_IP, resolve_request};
use ibacm_wire::sa::SaMad;

use super::sa::Sa;

pub const MS: u64 = 1000;
pub const S: u64 = 1_000_000;
/// From one host to another, through a switch or three.
const LATENCY: u64 = 2;

/// Something that happens later.
enum Event {
    /// A look-up of the job begins.
    Start {
        host: usize,
    },
    Datagram {
        to: usize,
        ep: EpId,
        rx: Rx,
        payload: Rc<[u8]>,
    },
    Multicast {
        from: usize,
        rx: Rx,
        payload: Rc<[u8]>,
    },
    Sent {
        to: usize,
        ep: EpId,
        token: u64,
    },
    /// The host's engine wants to be called.
    Wake {
        host: usize,
    },
    /// A question reaches the SA.
    Question {
        from: usize,
        tid: u32,
    },
    /// The SA has finished with a question.
    Answered {
        to: usize,
        tid: u32,
    },
    /// The kernel has waited long enough for an answer.
    Repeat {
        host: usize,
        tid: u32,
        attempt: u32,
    },
    SaBack,
    Reregister {
        host: usize,
    },
}

/// A question to the SA that the kernel keeps until it is answered.
struct Outstanding {
    port: PortId,
    mad: Box<SaMad>,
    timeout_ms: u32,
    retries: u32,
}

/// What the job of a host still has to do.
pub struct Job {
    /// The next host to ask for, counted from the one after this.
    next: usize,
    /// Look-ups that had a failure for an answer, which are asked again.
    pub failures: u64,
    /// Those with a path.
    pub done: usize,
    /// The longest that one look-up took.
    pub slowest: u64,
    open: HashMap<u64, (usize, Time)>,
}

pub struct Host {
    pub engine: Engine,
    pub port: PortInfo,
    port_id: PortId,
    ep: Option<(EpId, u32)>,
    attached: bool,
    outstanding: HashMap<u32, Outstanding>,
    wake: Time,
    pub job: Job,
}

/// What is counted over the whole subnet.
#[derive(Default, Debug)]
pub struct Counts {
    pub multicasts: u64,
    /// Multicasts of the millisecond that had the most.
    pub busiest: u64,
    millisecond: (u64, u64),
    pub unicasts: u64,
    pub lost: u64,
    pub repeats: u64,
    pub events: u64,
}

impl Counts {
    fn multicast(&mut self, now: Time) {
        let (millisecond, count) = self.millisecond;
        let count = if now.0 / MS == millisecond { count + 1 } else { 1 };
        self.millisecond = (now.0 / MS, count);
        self.busiest = self.busiest.max(count);
        self.multicasts += 1;
    }
}

pub struct Net {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub sa: Sa,
    pub counts: Counts,
    /// Datagrams and MADs that get lost, in percent.
    pub loss: u64,
    /// Look-ups of a host at a time: as many as it has processes.
    pub processes: usize,
    rng: Rng,
    events: BinaryHeap<Reverse<(Time, u64, usize)>>,
    bodies: HashMap<usize, Event>,
    sequence: u64,
    free: Vec<usize>,
}

pub fn gid(host: usize) -> Gid {
    let mut g = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 0];
    g[14..].copy_from_slice(&(host as u16 + 1).to_be_bytes());
    Gid(g)
}

pub fn host_of(gid: Gid) -> usize {
    usize::from(u16::from_be_bytes([gid.0[14], gid.0[15]])) - 1
}

pub fn ip(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8)
}

fn entry(flags: u32, host: usize) -> Entry {
    Entry::address(flags, TYPE_IP, &ip(host).octets())
}

impl Net {
    pub fn new(n: usize, config: &Config, loss: u64, seed: u64) -> Net {
        let mut net = Net {
            now: Time(0),
            hosts: Vec::new(),
            sa: Sa::default(),
            counts: Counts::default(),
            loss,
            processes: 16,
            rng: Rng::new(SipKey(seed, 1)),
            events: BinaryHeap::new(),
            bodies: HashMap::new(),
            sequence: 0,
            free: Vec::new(),
        };
        for i in 0..n {
            let mut engine = Engine::new(config.clone(), (seed, i as u64));
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
            engine.set_system_addrs(vec![SystemAddr { ip: ip(i).into(), prefix_len: 16, gid: gid(i), pkey: 0xffff }]);
            let port_id = engine.set_port(Time(0), port.clone());
            let job = Job { next: 0, failures: 0, done: 0, slowest: 0, open: HashMap::new() };
            net.hosts.push(Host {
                engine,
                port,
                port_id,
                ep: None,
                attached: false,
                outstanding: HashMap::new(),
                wake: Time::NEVER,
                job,
            });
            net.settle(i);
        }
        net
    }

    /// The job's processes begin, all hosts within this time.
    pub fn start_job(&mut self, within: u64) {
        for host in 0..self.hosts.len() {
            for _ in 0..self.processes {
                let delay = self.rng.below(within.max(1));
                self.later(delay, Event::Start { host });
            }
        }
    }

    /// The SM ends now, and is back after this time; ports are told by its sweep, over a tenth of a second.
    pub fn restart_sm(&mut self, down: u64) {
        self.sa.down = true;
        self.later(down, Event::SaBack);
    }

    fn later(&mut self, delay: u64, event: Event) {
        let slot = self.free.pop().unwrap_or(self.bodies.len());
        self.bodies.insert(slot, event);
        self.sequence += 1;
        self.events.push(Reverse((Time(self.now.0 + delay), self.sequence, slot)));
    }

    fn is_lost(&mut self) -> bool {
        let lost = self.rng.below(100) < self.loss;
        self.counts.lost += u64::from(lost);
        lost
    }

    /// Lets events happen until `stop` says so or none is left before `end`. Whether it was `stop`.
    pub fn run(&mut self, end: Time, mut stop: impl FnMut(&Net) -> bool) -> bool {
        while let Some(Reverse((at, _, slot))) = self.events.pop() {
            if at > end {
                // It stays for the next run.
                self.sequence += 1;
                self.events.push(Reverse((at, self.sequence, slot)));
                self.now = end;
                return false;
            }
            self.now = at;
            self.counts.events += 1;
            let event = self.bodies.remove(&slot).expect("every place in the heap has its event");
            self.free.push(slot);
            self.happen(event);
            if self.counts.events.is_multiple_of(1000) && stop(self) {
                return true;
            }
        }
        stop(self)
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Start { host } => self.look_up_next(host),
            Event::Datagram { to, ep, rx, payload } => {
                self.hosts[to].engine.datagram(now, ep, &rx, &payload);
                self.settle(to);
            }
            Event::Multicast { from, rx, payload } => {
                for to in 0..self.hosts.len() {
                    let Some((ep, _)) = self.hosts[to].ep.filter(|_| self.hosts[to].attached) else { continue };
                    if to == from || !self.is_lost() {
                        self.hosts[to].engine.datagram(now, ep, &rx, &payload);
                        self.settle(to);
                    }
                }
            }
            Event::Sent { to, ep, token } => {
                self.hosts[to].engine.sent(now, ep, token, true);
                self.settle(to);
            }
            Event::Wake { host } => {
                if self.hosts[host].wake <= now {
                    self.hosts[host].wake = Time::NEVER;
                    self.hosts[host].engine.on_time(now);
                    self.settle(host);
                }
            }
            Event::Question { from, tid } => {
                if let Some(done) = self.sa.arrived(now) {
                    self.later(now.until(done).as_micros() as u64, Event::Answered { to: from, tid });
                }
            }
            Event::Answered { to, tid } => {
                self.sa.finished();
                if !self.sa.down && !self.is_lost() {
                    self.answer(to, tid);
                }
            }
            Event::Repeat { host, tid, attempt } => self.repeat(host, tid, attempt),
            Event::SaBack => {
                self.sa.down = false;
                for host in 0..self.hosts.len() {
                    let delay = self.rng.below(100 * MS);
                    self.later(delay, Event::Reregister { host });
                }
            }
            Event::Reregister { host } => {
                let port = self.hosts[host].port_id;
                self.hosts[host].engine.reregister(now, port);
                self.settle(host);
            }
        }
    }

    fn answer(&mut self, to: usize, tid: u32) {
        let Some(kept) = self.hosts[to].outstanding.remove(&tid) else { return };
        let answer = self.sa.answer(&kept.mad, &self.hosts[to].port, self.hosts.len());
        self.hosts[to].engine.mad_received(self.now, kept.port, 0, &answer.0);
        self.settle(to);
    }

    /// The kernel sends a question again, or gives it back.
    fn repeat(&mut self, host: usize, tid: u32, attempt: u32) {
        let Some(kept) = self.hosts[host].outstanding.get(&tid) else { return };
        let (timeout, retries) = (u64::from(kept.timeout_ms) * MS, kept.retries);
        if attempt > retries {
            if let Some(kept) = self.hosts[host].outstanding.remove(&tid) {
                self.hosts[host].engine.mad_received(self.now, kept.port, 110, &kept.mad.0);
                self.settle(host);
            }
            return;
        }
        self.counts.repeats += u64::from(attempt > 0);
        if !self.is_lost() {
            self.later(LATENCY, Event::Question { from: host, tid });
        }
        self.later(timeout, Event::Repeat { host, tid, attempt: attempt + 1 });
    }

    /// The next look-up of one of the host's processes.
    fn look_up_next(&mut self, host: usize) {
        let n = self.hosts.len();
        if self.hosts[host].job.next + 1 < n {
            self.hosts[host].job.next += 1;
            let to = (host + self.hosts[host].job.next) % n;
            self.look_up(host, to);
        }
    }

    fn look_up(&mut self, host: usize, to: usize) {
        self.sequence += 1;
        let id = self.sequence;
        let (message, length) = resolve_request(id, &[entry(EP_FLAG_SOURCE, host), entry(EP_FLAG_DEST, to)]);
        let mut out = Vec::new();
        let mut routes = move |_: IpAddr| Ok(IpAddr::from(ip(host)));
        let h = &mut self.hosts[host];
        h.job.open.insert(id, (to, self.now));
        let outcome = h.engine.request(self.now, ClientId(id), &message[..length], &mut routes, &mut out);
        match outcome {
            Outcome::Replied => self.replied(host, id, &out),
            _ => assert!(out.is_empty()),
        }
        self.settle(host);
    }

    fn replied(&mut self, host: usize, id: u64, reply: &[u8]) {
        let job = &mut self.hosts[host].job;
        let (to, since) = job.open.remove(&id).expect("one reply to a request");
        job.slowest = job.slowest.max(self.now.0 - since.0);
        if reply[2] != 0 {
            job.failures += 1;
            return self.look_up(host, to);
        }
        let record = ibacm_wire::PathRecord(Entry::read(reply, 0).expect("a path").info);
        assert_eq!(record.dgid(), gid(to), "the path of another host");
        assert_eq!(record.dlid(), 10 + to as u16);
        job.done += 1;
        // The process works on its connection for a moment.
        let pause = 20 + self.rng.below(20);
        self.later(pause, Event::Start { host });
    }

    /// Does what the host's engine asks for, until it asks for no more.
    fn settle(&mut self, h: usize) {
        while let Some(action) = self.hosts[h].engine.next_action() {
            match action {
                Action::Open { ep, .. } => {
                    let qpn = 0x100 + h as u32;
                    self.hosts[h].ep = Some((ep, qpn));
                    self.hosts[h].engine.endpoint_opened(self.now, ep, qpn);
                }
                Action::Close { .. } => self.hosts[h].ep = None,
                Action::Attach { .. } => self.hosts[h].attached = true,
                Action::Detach { .. } => self.hosts[h].attached = false,
                Action::Send { ep, token, av, qpn, payload } => {
                    self.later(1, Event::Sent { to: h, ep, token });
                    self.carry(h, av.dgid, qpn, Rc::from(&payload[..]));
                }
                Action::Mad { port, tid, mad, timeout_ms, retries, .. } => {
                    self.hosts[h].outstanding.insert(tid, Outstanding { port, mad, timeout_ms, retries });
                    self.repeat(h, tid, 0);
                }
                Action::Reply { client, reply } => self.replied(h, client.0, &reply),
                Action::Plugged { .. }
                | Action::Ask { .. }
                | Action::Forget { .. }
                | Action::Late { .. }
                | Action::Reregister { .. }
                | Action::MadDone { .. } => {}
                Action::Log { .. } => {}
                #[allow(unreachable_patterns, reason = "what a fabric like this has no part in")]
                _ => {}
            }
        }
        let due = self.hosts[h].engine.next_deadline();
        if due < self.hosts[h].wake {
            self.hosts[h].wake = due;
            let delay = due.0.saturating_sub(self.now.0);
            self.later(delay, Event::Wake { host: h });
        }
    }

    fn carry(&mut self, from: usize, dgid: Gid, qpn: u32, payload: Rc<[u8]>) {
        let host = &self.hosts[from];
        let src_qp = host.ep.map_or(0, |(_, q)| q);
        let rx = Rx { sgid: host.port.gid(), dgid, slid: host.port.lid, src_qp, dlid_path_bits: 0 };
        if dgid.is_multicast() {
            self.counts.multicast(self.now);
            return self.later(LATENCY, Event::Multicast { from, rx, payload });
        }
        self.counts.unicasts += 1;
        let to = host_of(dgid);
        if let Some((ep, there)) = self.hosts[to].ep
            && there == qpn
            && !self.is_lost()
        {
            self.later(LATENCY, Event::Datagram { to, ep, rx, payload });
        }
    }
}
