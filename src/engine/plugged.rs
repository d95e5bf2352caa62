//! Ports that a plug-in serves in place of the built-in provider: the engine knows their endpoints and addresses, hands
//! requests over and answers clients, once each; all else is the provider's.

use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::MAX_REQUEST;

use super::Engine;
use super::action::{Action, EpId, PortId};
use super::ports::PortInfo;
use super::query::BUILTIN;
use crate::addr::Addr;
use crate::time::Time;

/// Bytes of a message as providers know it (`struct acm_msg` of `infiniband/acm.h`).
pub const MESSAGE: usize = MAX_REQUEST;

/// Orders to register again that come so soon after another are the same one.
const ONE_OCCASION: Duration = Duration::from_millis(100);

/// A provider other than the built-in one: its place in [`Providers::names`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProviderId(pub u16);

/// The providers beside the built-in one, and which subnets they serve. `None` stands for the built-in one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Providers {
    /// Their own names, as clients are shown them.
    pub names: Vec<String>,
    /// Subnet prefixes (host order) and who serves them; the first that fits holds.
    pub subnets: Vec<(u64, Option<ProviderId>)>,
    /// Who serves all other subnets.
    pub default: Option<ProviderId>,
    /// How long a provider may take for an answer, in milliseconds.
    pub timeout_ms: u32,
}

impl Providers {
    /// Who serves the port as it is now. A port that is not active is nobody's.
    pub(super) fn of(&self, info: &PortInfo) -> Option<ProviderId> {
        let prefix = info.gid().subnet_prefix();
        let subnet = self.subnets.iter().find(|s| s.0 == prefix);
        subnet.map_or(self.default, |s| s.1).filter(|_| info.active)
    }

    /// Its name.
    pub(super) fn name(&self, provider: Option<ProviderId>) -> &str {
        provider.map_or(Some(BUILTIN), |p| self.names.get(usize::from(p.0)).map(String::as_str)).unwrap_or_default()
    }
}

/// Names a question to a provider: unpredictable, and never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AskId(pub u64);

/// Names a MAD that a provider has the SA asked with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MadToken(pub u64);

/// What a provider is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// `resolve` for the address at `place` of the endpoint.
    Resolve {
        /// As in [`PluggedAddr`].
        place: u32,
        /// The client's message; where it names no source, the chosen one is behind its entries, and the header says so.
        message: Box<[u8; MESSAGE]>,
    },
    /// `query` likewise.
    Query {
        /// As in [`PluggedAddr`].
        place: u32,
        /// The client's message.
        message: Box<[u8; MESSAGE]>,
    },
    /// `query_perf` of the endpoint.
    Counters,
}

/// What is to be open at a provider for one port, in the order of opening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plugged {
    /// The port's provider.
    pub provider: ProviderId,
    /// Differs from that of before where the port is to be closed and opened again.
    pub generation: u32,
    /// Name of the port's device.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// The port's GIDs.
    pub gids: Vec<Gid>,
    /// Endpoints that have an address.
    pub endpoints: Vec<PluggedEndpoint>,
}

/// An endpoint of a [`Plugged`] port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluggedEndpoint {
    /// The endpoint.
    pub ep: EpId,
    /// Its P_Key, host order.
    pub pkey: u16,
    /// The P_Key's place in the port's table: where that is another one, the endpoint is to be closed and opened again.
    pub pkey_index: u16,
    /// Its addresses.
    pub addrs: Vec<PluggedAddr>,
}

/// An address of a [`PluggedEndpoint`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluggedAddr {
    /// Its place among the endpoint's. A place may get another address.
    pub place: u32,
    /// The address.
    pub addr: Addr,
    /// As it is shown.
    pub text: Vec<u8>,
}

/// What a provider has open of a port, and how the loop knows of it.
#[derive(Default)]
pub(super) struct Shown {
    /// As it was last told.
    now: Option<Plugged>,
    /// The loop has not taken it yet.
    queued: bool,
    /// As in [`Plugged`].
    pub generation: u32,
    /// The subnet manager wanted all registrations once more while the port was down: its provider is to be told then.
    pub owed: bool,
    /// When its provider was last told of that, and as of which generation.
    told: Option<(Time, u32)>,
}

/// Whether what a provider knows of a port, which is active before and after, is no longer so. P_Keys are matters of
/// endpoints, and the subnet manager is none of the provider's.
pub(super) fn is_another(old: &PortInfo, new: &PortInfo) -> bool {
    let address = |p: &PortInfo| (p.lid, p.lmc, p.rate, p.mtu);
    address(old) != address(new) || old.gids != new.gids
}

impl Engine {
    /// Tells which providers there are beside the built-in one. To be called before ports are told; later, `subnets` and
    /// `default` count for a port when it next changes.
    pub fn set_providers(&mut self, providers: Providers) {
        self.providers = providers;
    }

    /// What is to be open at the port's provider; `None`: nothing.
    pub fn plugged(&self, port: PortId) -> Option<Plugged> {
        self.ports.get(port.0 as usize)?.shown.now.clone()
    }

    /// The loop has taken an [`Action::Plugged`]: the next change is one more.
    pub(super) fn plugged_taken(&mut self, port: PortId) {
        if let Some(p) = self.ports.get_mut(port.0 as usize) {
            p.shown.queued = false;
        }
    }

    /// The number of a port's provider is known: says so.
    pub(super) fn say_provider(&mut self, port: PortId) {
        let Some(p) = self.ports.get(port.0 as usize) else { return };
        let Some(provider) = p.provider else { return };
        let (device, number) = (p.info.device.clone(), p.info.port);
        let name = self.providers.name(Some(provider)).to_owned();
        self.log(1, || format!("{device} port {number} is served by provider {name}"));
    }

    /// The subnet manager wants all registrations once more: whether that is the matter of a provider, which is told when
    /// it has the port open.
    pub(super) fn reregister_plugged(&mut self, now: Time, port: PortId) -> bool {
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return false };
        let Some(provider) = p.provider else {
            p.shown.owed = !p.info.active;
            return false;
        };
        let generation = p.shown.generation;
        // a port that comes up and the manager's order are one occasion
        if p.shown.told.is_some_and(|(at, of)| of == generation && at.until(now) < ONE_OCCASION) {
            return true;
        }
        p.shown.told = Some((now, generation));
        self.actions.push_back(Action::Reregister { provider, port });
        true
    }

    /// A port has come up, and is told already.
    pub(super) fn pay_reregister(&mut self, now: Time, port: PortId) {
        if self.ports.get_mut(port.0 as usize).is_some_and(|p| std::mem::take(&mut p.shown.owed)) {
            self.reregister_plugged(now, port);
        }
    }

    /// Ports, endpoints or addresses may have changed: tells of ports of which something else is to be open now, and
    /// ends the questions to what is there no more.
    pub(super) fn tell_plugged(&mut self) {
        for i in 0..self.ports.len() {
            let port = PortId(i as u32);
            let now = self.look_plugged(port);
            let Some(p) = self.ports.get_mut(i).filter(|p| p.shown.now != now) else { continue };
            p.shown.now = now;
            if !std::mem::replace(&mut p.shown.queued, true) {
                self.actions.push_back(Action::Plugged { port });
            }
        }
        self.end_stale_asks();
    }

    fn look_plugged(&self, port: PortId) -> Option<Plugged> {
        let p = self.ports.get(port.0 as usize)?;
        let provider = p.provider?;
        let endpoints = self.port_eps(port).into_iter().filter_map(|ep| {
            let e = self.eps.get(ep.0 as usize)?;
            let places = (0..).zip(&e.addrs);
            let addrs = places.filter_map(|(place, a)| {
                let a = a.as_ref()?;
                Some(PluggedAddr { place, addr: a.addr, text: a.text.clone() })
            });
            Some(PluggedEndpoint { ep, pkey: e.pkey, pkey_index: e.pkey_index, addrs: addrs.collect() })
        });
        Some(Plugged {
            provider,
            generation: p.shown.generation,
            device: p.info.device.clone(),
            port: p.info.port,
            gids: p.info.gids.clone(),
            endpoints: endpoints.collect(),
        })
    }
}
