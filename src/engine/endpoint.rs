//! An endpoint: a partition of a port, with its addresses, groups, destinations and whoever waits for them.

use std::collections::VecDeque;
use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::{COUNTERS, MORE};
use ibacm_wire::datagram::{Groups, PEER_MAX_GIDS};
use ibacm_wire::sa::McMember;

use super::action::{Av, ClientId, PortId};
use super::announce::Announcement;
use super::fallback::Fallback;
use super::ladder::Class;
use super::outage::Known;
use super::plugged::ProviderId;
use super::refresh::Refreshes;
use crate::addr::Addr;
use crate::arp::Arp;
use crate::bucket::Bucket;
use crate::cache::{Cache, DestId};
use crate::map::Map;
use crate::time::Time;

/// Responses that wait for their turn to be sent; a peer whose response is dropped asks again.
pub(super) const MAX_RESPONSES: usize = 4096;
/// Questions to the SA that peers may cause: so many at once, as when a job of that many hosts starts, and then one in
/// this time. A peer for which there is none has its response all the same.
pub(super) const PEER_QUESTIONS: Bucket = Bucket::new(1024, Duration::from_millis(10));
/// Peers that wait for one destination to be resolved. There is one such peer, asking again and again.
pub(super) const MAX_PEER_WAITERS: usize = 4;

/// An address of this host.
#[derive(Clone, Debug)]
pub(super) struct LocalAddr {
    pub addr: Addr,
    /// As it is shown: with the prefix length for addresses of interfaces.
    pub text: Vec<u8>,
}

/// Somebody who waits for a destination.
pub(super) enum Waiter {
    /// A client, for a reply.
    Client {
        client: ClientId,
        tid: [u8; 8],
        /// The source that was chosen for it, which the reply repeats.
        source: Option<Box<Addr>>,
    },
    /// The peer itself, for the response to its request.
    Peer { tid: u64 },
}

impl Waiter {
    /// The client, if it is one.
    pub fn client(&self) -> Option<ClientId> {
        match self {
            Waiter::Client { client, .. } => Some(*client),
            Waiter::Peer { .. } => None,
        }
    }
}

impl Pending {
    /// Whether peers wait for it, and no client does.
    pub fn is_for_peers(&self) -> bool {
        !self.waiters.is_empty() && self.waiters.iter().all(|w| w.client().is_none())
    }
}

/// What a destination that is being resolved has going on.
#[derive(Default)]
pub(super) struct Pending {
    pub waiters: Vec<Waiter>,
    /// The client whose request began it.
    pub asker: Option<ClientId>,
    /// The open multicast request.
    pub tid: Option<u64>,
    /// The own address that the request is to name.
    pub source: Option<Box<Addr>>,
    /// The number of the question to the SA.
    pub question: Option<u64>,
    /// When the SA was last asked for the path, and how often again because of what it told meanwhile.
    pub asked: Time,
    pub again: u8,
    /// How often its group was lost while it was asked there.
    pub rounds: u8,
    /// When it was asked first.
    pub first_asked: Option<Time>,
    /// What else is done to find it.
    pub fallback: Fallback,
    /// It is only to be confirmed: this was known before the port was down.
    pub known: Option<Box<Known>>,
}

/// A multicast group and how far its join has come.
pub(super) struct Group {
    pub mgid: Gid,
    pub class: Class,
    /// As in [`Rung`](super::ladder::Rung).
    pub standing: u8,
    pub state: GroupState,
    /// The membership as the SA gave it; kept during a new join.
    pub joined: Option<McMember>,
    /// Failures in a row.
    pub failures: u32,
    /// The SA refused, so that waiting for it is of no use.
    pub refused: bool,
}

impl Group {
    /// Whether it is the first or the port's own.
    pub fn is_urgent(&self) -> bool {
        self.standing < 2
    }
}

/// How far a join has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupState {
    Idle,
    /// Asked the SA.
    Joining,
    Joined,
    /// Failed; tried again at this time.
    Failed(Time),
}

/// A response to be sent.
pub(super) struct Response {
    pub av: Av,
    pub qpn: u32,
    pub tid: u64,
    pub group: Gid,
}

pub(super) struct Endpoint {
    pub port: PortId,
    /// As in the port's table.
    pub pkey: u16,
    pub pkey_index: u16,
    /// The port is active and has the P_Key.
    pub up: bool,
    /// Who has it, as long as it is up, if not the built-in provider: then there are no QP, no groups and no look-ups.
    pub provider: Option<ProviderId>,
    /// QP number, once there is a QP.
    pub qpn: Option<u32>,
    /// Order of creation: the newest of a port is listed first.
    pub serial: u64,
    /// Places keep their number while an address is there.
    pub addrs: Vec<Option<LocalAddr>>,
    pub groups: Vec<Group>,
    /// Distinguishes joins from those of an earlier life of the endpoint.
    pub life: u32,
    /// Grows when something may have been missed that was said to the group; never 0.
    pub era: u8,
    /// The era that the last outage began which is beyond doubt.
    pub outage: u8,
    /// Since when the first group is being joined again, and whether because it may be lost.
    pub rejoining: Option<(Time, bool)>,
    pub cache: Cache,
    pub pending: Map<DestId, Pending>,
    /// Destinations that wait for the first group to be joined, and until when.
    pub await_group: VecDeque<(Time, DestId)>,
    /// Destinations without a multicast request, and when what they wait for is overdue.
    pub overdue: VecDeque<(Time, DestId)>,
    pub arp: Arp,
    pub refreshes: Refreshes,
    pub responses: VecDeque<Response>,
    pub responses_sent: usize,
    /// Destinations that the group was asked about because of a peer's claim, and when.
    pub verified: Map<DestId, Time>,
    /// Questions to the SA that peers may cause.
    pub peer_questions: Bucket,
    pub announcement: Announcement,
    pub counters: [u64; COUNTERS],
    pub more: [u64; MORE],
}

impl Endpoint {
    /// The group that requests go to, if it is joined.
    pub fn first_group(&self) -> Option<&McMember> {
        self.groups.first().and_then(|g| g.joined.as_ref())
    }

    /// Has `dest`, which has no multicast request, looked at again at this time.
    pub fn wait_until(&mut self, at: Time, dest: DestId) {
        if self.overdue.len() > 4 * self.pending.len() + 64 {
            // look-ups that ended before that are left behind
            self.overdue.retain(|(_, d)| self.pending.contains_key(d));
        }
        let place = self.overdue.partition_point(|w| w.0 <= at);
        self.overdue.insert(place, (at, dest));
    }

    /// Whether multicast may still answer for `dest`.
    pub fn is_asking(&self, dest: DestId) -> bool {
        self.pending.get(&dest).is_some_and(|p| p.tid.is_some()) || self.await_group.iter().any(|w| w.1 == dest)
    }

    /// Whether `addr` is one of the endpoint's addresses.
    pub fn has_addr(&self, addr: &Addr) -> bool {
        self.addrs.iter().flatten().any(|a| a.addr == *addr)
    }

    /// The own address that a request for `wanted` names, by which peers will know this host: the one that the client
    /// chose, else one of the same kind.
    pub fn request_source(&self, dest: DestId, wanted: &Addr) -> Option<Addr> {
        let chosen = self.pending.get(&dest).and_then(|p| p.source.as_deref()).filter(|a| self.has_addr(a));
        let mut own = self.addrs.iter().flatten().map(|a| a.addr);
        chosen.copied().or_else(|| own.clone().find(|a| a.kind() == wanted.kind())).or_else(|| own.next())
    }

    /// The groups that are joined, the worst first.
    fn joined_groups(&self) -> impl DoubleEndedIterator<Item = &Group> {
        self.groups.iter().filter(|g| g.joined.is_some())
    }

    /// The class of the last group in `offered` that is joined, which is the best that both have.
    pub fn best_group(&self, offered: &[Gid]) -> Option<u8> {
        let joined = |gid: &Gid| self.joined_groups().find(|g| g.mgid == *gid);
        offered.iter().rev().find_map(|gid| joined(gid).map(|g| g.class.code()))
    }

    /// The class of the best group that is joined; 0 if none is.
    pub fn own_group(&self) -> u8 {
        self.joined_groups().next_back().map_or(0, |g| g.class.code())
    }

    /// The group of this class, if it is joined.
    pub fn group(&self, class: u8) -> Option<(&Group, &McMember)> {
        let group = self.groups.iter().find(|g| g.class.code() == class)?;
        Some((group, group.joined.as_ref()?))
    }

    /// The groups that a request names: of those that are joined as many as fit, and not the last of the list but
    /// those that stand foremost.
    pub fn offered(&self) -> Groups {
        let before = |g: &Group| self.joined_groups().filter(|o| o.standing < g.standing).count();
        Groups::new(self.joined_groups().filter(|g| before(g) < PEER_MAX_GIDS).map(|g| g.mgid))
    }
}
