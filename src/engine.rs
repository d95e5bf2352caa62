//! The service's decisions: ports, endpoints, addresses, requests and what they wait for. Pure: everything that happens
//! is a method call with the time as an argument, everything that is to be done comes out of [`Engine::next_action`].
//!
//! No system call, no clock, no descriptor, no FFI type: the daemon's loop and a simulation of thousands of hosts drive
//! the same code.

mod action;
mod announce;
mod by_address;
#[cfg(any(test, fuzzing))]
pub(crate) mod check;
mod config;
mod doubt;
mod endpoint;
mod fallback;
mod groups;
mod ladder;
mod link_local;
mod local;
mod notices;
mod outage;
mod outcome;
mod peers;
mod plugged;
mod plugged_ask;
mod ports;
mod preload;
mod query;
mod refresh;
mod request;
mod resolve;
mod standing;
mod tally;
mod timers;
mod waiters;

#[cfg(test)]
mod tests;

pub use action::{Action, Av, ClientId, EpId, NeighbourToken, PortId, Reply, Rx};
pub use config::{Config, RouteProt};
pub use link_local::Link;
pub use local::{LocalName, PkeyChoice, SystemAddr};
pub use peers::RESPONSE;
pub use plugged::{AskId, Call, MESSAGE, MadToken, Plugged, PluggedAddr, PluggedEndpoint, ProviderId, Providers};
pub use ports::PortInfo;
pub use query::BUILTIN;
pub use request::{Outcome, RouteLookup, Unroutable};
pub use tally::EndpointTally;

use std::collections::VecDeque;

use ibacm_wire::client::{COUNTERS, MORE};

use crate::keyed::{Rng, SipKey};
use crate::preload::Preload;
use crate::time::Time;
use endpoint::Endpoint;
use local::LocalIndex;
use plugged_ask::Asks;
use ports::Port;
use request::RouteMemo;
use resolve::SaWho;
use waiters::Waiters;

/// Actions whose memory is kept for the next time.
const MANY_ACTIONS: usize = 1024;

/// The service of one host.
pub struct Engine {
    config: Config,
    key: SipKey,
    rng: Rng,
    ports: Vec<Port>,
    eps: Vec<Endpoint>,
    /// Endpoints that are up, in the order in which they are listed and searched.
    order: Vec<EpId>,
    system: Vec<SystemAddr>,
    names: Vec<LocalName>,
    local: LocalIndex,
    preload: Preload,
    providers: Providers,
    asks: Asks,
    routes: RouteMemo,
    counters: [u64; COUNTERS],
    more: [u64; MORE],
    /// Questions to the kernel's neighbour table, which are told apart by their number.
    asked_neighbours: u64,
    waiters: Waiters,
    moved: announce::Moved,
    /// When something is to be said of how ports are.
    tell_at: Time,
    actions: VecDeque<Action>,
    /// The last request was answered with what was known, and has begun nothing.
    was_known: bool,
}

impl Engine {
    /// A service without ports. `secret` must be unpredictable to everybody on the fabric.
    pub fn new(config: Config, secret: (u64, u64)) -> Engine {
        let key = SipKey(secret.0, secret.1);
        Engine {
            config,
            key,
            rng: Rng::new(key),
            ports: Vec::new(),
            eps: Vec::new(),
            order: Vec::new(),
            system: Vec::new(),
            names: Vec::new(),
            local: LocalIndex::new(key),
            preload: Preload::default(),
            providers: Providers::default(),
            asks: Asks::default(),
            routes: RouteMemo::new(key),
            counters: [0; COUNTERS],
            more: [0; MORE],
            asked_neighbours: 0,
            waiters: Waiters::default(),
            moved: announce::Moved::default(),
            tell_at: Time::NEVER,
            actions: VecDeque::new(),
            was_known: false,
        }
    }

    /// Changes the options. What is under way and what is known stays, but for what the change makes false: paths that
    /// come from elsewhere from now on are asked for again when they are next used, and groups that are no longer the
    /// right ones are left behind.
    pub fn set_config(&mut self, now: Time, config: Config) {
        let old = std::mem::replace(&mut self.config, config);
        let new = &self.config;
        let classes = |c: &Config| (c.route_prot, c.min_rate, c.min_mtu, c.multicast_groups);
        let groups = classes(&old) != classes(new);
        let (route, loopback) = (old.route_prot != new.route_prot, old.loopback_local != new.loopback_local);
        for p in &mut self.ports {
            p.sa.set_config(self.config.sa());
        }
        for e in &mut self.eps {
            e.arp.set_config(self.config.arp(self.ports[e.port.0 as usize].info.subnet_timeout));
            e.cache.set_capacity(self.config.max_destinations);
        }
        for ep in (0..self.eps.len() as u32).map(EpId) {
            if route {
                self.doubt_paths(ep);
            }
            if loopback {
                self.loopback_changed(ep);
            }
            if groups && self.eps[ep.0 as usize].up && self.eps[ep.0 as usize].qpn.is_some() {
                self.join_others(now, ep);
            }
        }
        // the limits may let go what waited
        self.on_time(now);
    }

    /// The service in numbers: endpoints that are up, their groups, and how many of those are joined.
    pub fn summary(&self) -> (usize, usize, usize) {
        let up = self.eps.iter().filter(|e| e.up);
        let groups = up.clone().flat_map(|e| &e.groups);
        (up.count(), groups.clone().count(), groups.filter(|g| g.joined.is_some()).count())
    }

    /// Whether there is something to do.
    #[inline(always)]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if let Some(Action::Plugged { port }) = action {
            self.plugged_taken(port);
        }
        if action.is_none() && self.actions.capacity() > MANY_ACTIONS {
            // a burst is over: its memory goes back
            self.actions.shrink_to(MANY_ACTIONS);
        }
        action
    }

    /// A client has left: nothing is kept for it.
    pub fn client_gone(&mut self, client: ClientId) {
        self.forget_asks(client);
        let cause = client.cause();
        self.eps.iter_mut().for_each(|e| e.arp.abandon(cause));
        for p in &mut self.ports {
            p.sa.abandon(cause, |who| matches!(who, SaWho::Query(_)));
        }
        if !self.waiters.leave(client) {
            return;
        }
        let mut unwanted = Vec::new();
        let waiters = &mut self.waiters;
        for (e, ep) in self.eps.iter_mut().zip((0..).map(EpId)) {
            for (dest, p) in e.pending.iter_mut() {
                let before = p.waiters.len();
                p.waiters.retain(|w| !w.client().is_some_and(|c| waiters.is_gone(c) && !waiters.end(c)));
                if p.waiters.is_empty() && before != 0 {
                    unwanted.push((ep, *dest));
                }
            }
        }
        unwanted.into_iter().for_each(|(ep, dest)| self.give_up(ep, dest));
    }

    fn log(&mut self, level: u8, text: impl FnOnce() -> String) {
        self.log_as(level, true, text);
    }

    /// A line about what this host has: its ports, endpoints, addresses, groups. There is no limit to those but the host.
    fn log_own(&mut self, level: u8, text: impl FnOnce() -> String) {
        self.log_as(level, false, text);
    }

    fn log_as(&mut self, level: u8, limited: bool, text: impl FnOnce() -> String) {
        if level <= self.config.log_level {
            self.actions.push_back(Action::Log { level, limited, text: text() });
        }
    }

    /// Drops remembered source choices: the kernel's routing may have changed.
    pub fn routes_changed(&mut self) {
        self.routes.clear();
    }

    /// Whether the last request was answered with what was known, and has begun nothing: [`Engine::next_deadline`] is
    /// what it was before.
    pub fn was_known(&self) -> bool {
        self.was_known
    }

    /// When [`Engine::on_time`] has something to do next.
    pub fn next_deadline(&mut self) -> Time {
        self.deadline()
    }
}
