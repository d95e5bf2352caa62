//! The loop: waits for descriptors and deadlines, tells the engine what happened, and does what it answers.
//!
//! One thread, one epoll. Sources are registered edge-triggered, so a source is read until it is empty or its share
//! of the turn is used up; in the second case it is called again in the next turn without waiting (`Daemon::again`).
//! The descriptors of MADs are level-triggered: there the read that would find nothing costs more than it tells.
//! The clock is read after each wait, for the turn, and before it, to know how long it is.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::device::{self, Device};
use crate::engine::{Engine, EpId, NeighbourToken, PortId, SystemAddr};
use crate::lifecycle::Signals;
use crate::log;
use crate::map::Map;
use crate::metrics::io::MetricsFile;
use crate::neighbours::Neighbours;
use crate::options::{Options, ServerMode};
use crate::preload;
use crate::rdma_nl::RdmaNl;
use crate::route::Sources;
use crate::rtnl::Rtnl;
use crate::rtnl_neigh::{KernelTable, NeighbourEvents};
use crate::server::{ClientId, Ready, Server};
use crate::systemd::Manager;
use crate::time::Time;
use crate::token::{self, kind};
use crate::ud::UdEndpoint;

#[path = "evloop_actions.rs"]
mod actions;
#[path = "evloop_devices.rs"]
mod devices;
#[path = "evloop_kernel.rs"]
mod kernel;
#[path = "evloop_manager.rs"]
mod manager;
#[path = "evloop_metrics.rs"]
mod metrics;
#[path = "evloop_neighbours.rs"]
mod neighbours;
#[path = "evloop_providers.rs"]
mod providers;
#[path = "evloop_requests.rs"]
mod requests;
#[path = "evloop_timed.rs"]
mod timed;

pub use manager::Pause;
use requests::Requests;
use timed::TimedEngine;

/// Events taken from the kernel in one turn.
const EVENTS: usize = 256;
/// Completions, MADs or events that one source may hand over in one turn.
const SHARE: usize = 64;
/// How often the state of ports is looked at for changes that no event told of.
const CHECK: Duration = Duration::from_secs(30);
/// How long after a change of the interfaces, or an event of a device, ports and devices are looked at: there may be more
/// that nobody tells of.
const SETTLE: Duration = Duration::from_secs(1);
/// How long requests in flight may take to end when the daemon is told to.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a start takes, with the joining of groups.
const START: Duration = Duration::from_millis(250);
/// When an endpoint whose QP could not be made, or broke, is tried again; then twice that, and so on.
const REOPEN: Duration = Duration::from_secs(1);
/// The longest time until it is tried again. Whoever was well for twice that has a clean sheet.
const REOPEN_MAX: Duration = Duration::from_secs(60);

/// How long the loop looks for the answer to what it sent before it sleeps: most come sooner, and to be woken takes as
/// long again, more where a processor has to be woken too.
const ANSWER: Duration = Duration::from_micros(200);

/// What the loop itself needs of the options.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// Receives posted per endpoint.
    pub recv: usize,
    /// Sends in flight per endpoint.
    pub send: usize,
}

/// The daemon's state: the engine and every edge.
pub struct Daemon {
    poll: Poll,
    start: Instant,
    now: Time,
    engine: TimedEngine,
    server: Server,
    sources: Sources,
    rtnl: Option<Rtnl>,
    kernel: Option<RdmaNl>,
    neighbours: Neighbours<NeighbourToken>,
    neighbour_table: KernelTable,
    neighbour_events: NeighbourEvents,
    providers: providers::Providers,
    preload: preload::io::Source,
    metrics: MetricsFile,
    signals: Signals,
    depths: Depths,
    /// How long there may be more soon after something has come.
    busy_poll: Duration,
    /// Until then the loop does not sleep.
    awake_until: Time,
    /// Open devices; places keep their number, which tokens hold.
    devices: Vec<Option<Device>>,
    opened: u32,
    others: device::Others,
    lost: VecDeque<devices::Lost>,
    /// Until when lost devices are expected back: they are looked for more often.
    hurry_until: Time,
    /// Device and place among its ports of each port that the engine knows.
    ports: Map<PortId, (usize, usize)>,
    endpoints: Map<EpId, UdEndpoint>,
    /// Endpoints without a QP that ought to have one.
    reopen: Vec<(Time, EpId)>,
    /// How often endpoints lost their QP or got none, and when they are or were tried again.
    reopened: Map<EpId, (u32, Time)>,
    again: VecDeque<Token>,
    next_check: Time,
    manager: Manager,
    /// The files are to be read again.
    reload: bool,
    /// A port has come, or has become active, or is no longer.
    ports_changed: bool,
    stop_at: Option<Time>,
    /// When the start is over, and what only it needed is given back.
    settle_at: Time,
}

impl Daemon {
    /// A daemon with these edges and no devices yet. `server` must use the registry of `poll`.
    pub fn new(
        poll: Poll,
        engine: Engine,
        server: Server,
        rtnl: Option<Rtnl>,
        signals: Signals,
        depths: Depths,
    ) -> io::Result<Daemon> {
        let registry = poll.registry();
        let fd = signals.as_raw_fd();
        registry.register(&mut SourceFd(&fd), token::pack(kind::SIGNAL, 0, 0), Interest::READABLE)?;
        if let Some(r) = &rtnl {
            r.register(registry, token::pack(kind::NETLINK, 0, 0))?;
        }
        let mut daemon = Daemon {
            poll,
            start: Instant::now(),
            now: Time(0),
            engine: TimedEngine::new(engine),
            server,
            sources: Sources::new(),
            rtnl,
            kernel: None,
            neighbours: Neighbours::default(),
            neighbour_table: KernelTable::default(),
            neighbour_events: NeighbourEvents::default(),
            providers: providers::Providers::default(),
            preload: preload::io::Source::default(),
            metrics: MetricsFile::default(),
            signals,
            depths,
            busy_poll: Duration::ZERO,
            awake_until: Time(0),
            devices: Vec::new(),
            opened: 0,
            others: device::Others::default(),
            lost: VecDeque::new(),
            hurry_until: Time(0),
            ports: Map::new(),
            endpoints: Map::new(),
            reopen: Vec::new(),
            reopened: Map::new(),
            again: VecDeque::new(),
            next_check: Time(0).plus(CHECK),
            manager: Manager::none(),
            reload: false,
            ports_changed: false,
            stop_at: None,
            settle_at: Time::NEVER,
        };
        daemon.take_addresses();
        Ok(daemon)
    }

    /// The engine, for what is set before the loop starts.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Looks for more for so long before it sleeps.
    pub fn set_busy_poll(&mut self, time: Duration) {
        self.busy_poll = time;
    }

    /// Memory that only the start needs is to be given back when that is over. Not where providers have threads.
    pub fn settle(&mut self) {
        self.settle_at = self.clock().plus(START);
    }

    /// Opens the way for clients that the options ask for, under `dir`.
    pub fn listen(&mut self, dir: &Path, options: &Options) -> Result<(), String> {
        let link = !options.acme_plus_kernel_only;
        let listening = match options.server_mode {
            ServerMode::Unix => self.server.listen_unix(dir, link),
            ServerMode::Loop => self.server.listen_tcp(dir, (Ipv4Addr::LOCALHOST, options.server_port).into(), link),
            ServerMode::Open => self.server.listen_tcp(dir, (Ipv4Addr::UNSPECIFIED, options.server_port).into(), link),
        };
        listening.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Runs until there is something that is not the loop's to do; to be called again unless that is the end.
    pub fn run(&mut self) -> io::Result<Pause> {
        let mut events = Events::with_capacity(EVENTS);
        self.do_actions();
        loop {
            let mut timeout = self.timeout();
            self.sources.settle();
            if timeout != Some(Duration::ZERO) && self.now < self.awake_until {
                timeout = Some(Duration::ZERO);
                // whoever is to answer may be waiting for this processor
                std::thread::yield_now();
            }
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            self.now = self.clock();
            if !events.is_empty() {
                self.stay_awake(self.busy_poll);
            }
            self.count_for_providers();
            self.observe();
            for event in &events {
                let ready = Ready::from(event);
                self.dispatch(event.token(), ready);
            }
            for _ in 0..self.again.len() {
                if let Some(token) = self.again.pop_front() {
                    self.dispatch(token, Ready { readable: true, ..Ready::default() });
                }
            }
            self.turn();
            if let Some(pause) = self.pause() {
                return Ok(pause);
            }
        }
    }

    /// There may be more within this time.
    fn stay_awake(&mut self, time: Duration) {
        self.awake_until = self.awake_until.max(self.now.plus(time));
    }

    fn clock(&self) -> Time {
        self.time(Instant::now())
    }

    fn time(&self, at: Instant) -> Time {
        Time(0).plus(at.saturating_duration_since(self.start))
    }

    /// How long there is nothing to do.
    fn timeout(&mut self) -> Option<Duration> {
        let busy =
            self.rtnl.as_ref().is_some_and(Rtnl::has_pending) || self.kernel.as_ref().is_some_and(RdmaNl::has_pending);
        if busy || !self.again.is_empty() || self.server.has_pending() {
            return Some(Duration::ZERO);
        }
        let mut next = self.engine.next_deadline().min(self.next_check);
        next = next.min(self.server.next_deadline().map_or(Time::NEVER, Time));
        next = next.min(self.rtnl.as_ref().and_then(Rtnl::next_deadline).map_or(Time::NEVER, Time));
        next = next.min(self.kernel.as_ref().map_or(Time::NEVER, RdmaNl::next_deadline));
        next = next.min(self.neighbours.next_deadline());
        next = next.min(self.lost.front().map_or(Time::NEVER, |l| l.until));
        next = next.min(self.reopen.iter().map(|r| r.0).min().unwrap_or(Time::NEVER));
        next = next.min(self.manager.next_deadline()).min(self.metrics.next_deadline());
        next = next.min(self.stop_at.unwrap_or(Time::NEVER)).min(self.settle_at);
        // a turn may have been long, and the process stopped in the middle of it
        let now = Instant::now();
        if let Some(due) = log::on_time(now) {
            next = next.min(self.time(due));
        }
        (next != Time::NEVER).then(|| self.time(now).until(next))
    }

    fn dispatch(&mut self, token: Token, ready: Ready) {
        let parts = token::unpack(token);
        let now = self.now.0;
        if parts.kind != kind::CLIENT {
            self.answer_clients();
        }
        match parts.kind {
            kind::CLIENT => {
                let id = ClientId::new(parts.index, parts.generation);
                let (server, mut svc) = self.clients();
                server.on_client(id, ready, now, &mut svc);
            }
            kind::LISTENER => self.server.on_listener(parts.index, now),
            kind::COMPLETION => self.completions(parts.index as usize, parts.generation, token),
            kind::UMAD => self.mads(parts.index as usize, parts.generation),
            kind::ASYNC => self.device_events(parts.index as usize, token),
            kind::NETLINK => {
                if let Some(r) = &mut self.rtnl {
                    r.on_readable(now);
                }
            }
            kind::RDMA_NETLINK => self.kernel_questions(true),
            kind::NEIGHBOURS => self.neighbour_news(token),
            kind::WAKER => self.provider_notices(token),
            kind::SIGNAL => self.signal(),
            _ => log!(2, "an event of an unknown source {token:?}"),
        }
        self.do_actions();
    }

    /// The clients, and what answers them.
    fn clients(&mut self) -> (&mut Server, Requests<'_>) {
        (&mut self.server, Requests { engine: &mut self.engine, sources: &mut self.sources, now: self.now })
    }

    /// Writes what clients were answered.
    fn answer_clients(&mut self) {
        let now = self.now.0;
        let (server, mut svc) = self.clients();
        server.answer_all(now, &mut svc);
    }

    /// What happens once a turn, whatever the events.
    fn turn(&mut self) {
        let now = self.now;
        let (server, mut svc) = self.clients();
        server.run_pending(now.0, &mut svc);
        if server.next_deadline().is_some_and(|at| at <= now.0) {
            server.on_time(now.0, &mut svc);
        }
        if let Some(notice) = server.take_notice() {
            log!(0, "{notice}");
        }
        if let Some(r) = &mut self.rtnl {
            r.run_pending(now.0);
            if r.take_routes_changed() {
                self.engine.routes_changed();
            }
            if r.take_changed() {
                self.take_addresses();
                self.next_check = self.next_check.min(now.plus(SETTLE));
            }
        }
        self.kernel_questions(false);
        if self.engine.next_deadline() <= now {
            self.engine.on_time(now);
        }
        self.neighbour_turn();
        if self.next_check <= now {
            self.next_check = now.plus(if now < self.hurry_until { manager::RESCAN } else { CHECK });
            self.check_devices();
        }
        if self.settle_at <= now {
            self.settle_at = Time::NEVER;
            crate::lifecycle::give_back();
        }
        self.lost.pop_front_if(|l| l.until <= now);
        self.reopen_endpoints();
        self.do_actions();
        self.manager_turn();
        self.metrics_turn();
    }

    fn take_addresses(&mut self) {
        let Some(r) = &self.rtnl else { return };
        let addrs = r.snapshot().into_iter().map(|a| SystemAddr {
            ip: a.ip,
            prefix_len: a.prefix_len,
            gid: ibacm_wire::Gid(a.gid),
            pkey: a.pkey,
        });
        self.engine.set_system_addrs(addrs.collect());
    }
}
