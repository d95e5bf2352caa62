//! What is in use is asked for again before it expires, so that a client that asks all the time never waits for that.
//!
//! An answer from the cache that is in the last part of its life is given at once as ever, and has a question asked
//! behind the scenes: for the path to the SA, or, when it is the address that expires, by multicast to its peer first.
//! When that part begins differs from entry to entry, so that what was learned together does not expire together. What
//! nobody asks for expires.
//!
//! Nobody waits for these questions, so they wait for everybody: the SA is asked while it is asked nothing else or after
//! many other questions, and by multicast a few questions at a time, while no other waits for its turn. One that is not answered makes nothing
//! worse: what is known stays good until it expires, and is asked for again after growing pauses until then.

use std::time::Duration;

use ibacm_wire::client::{Counter, TYPE_PATH};
use ibacm_wire::datagram::{Datagram, Groups, MULTICAST_QPN};

use super::Engine;
use super::action::{Action, Av, EpId, Rx};
use super::config::{Config, RouteProt};
use super::endpoint::GroupState;
use super::ladder::Class;
use super::resolve::asks_for;
use crate::cache::{Dest, DestId, Peer, State};
use crate::time::{Coarse, Time};

/// The last part of a life is this share of it, but that long at least.
const SHARE: u32 = 8;
const LEAST: Duration = Duration::from_secs(10);
/// In how long what may be better by now is asked for, if it is used: this, and as long as it takes at this rate.
const SOON: Duration = Duration::from_secs(1);
const EACH: Duration = Duration::from_millis(10);
/// Entries of an endpoint that wait to be looked at.
const MANY: usize = 64;
/// Multicast questions of an endpoint that are open.
const ASKING: usize = 8;

/// An open question to a peer.
struct Asking {
    dest: DestId,
    tid: u64,
    offered: Groups,
    until: Time,
}

/// What an endpoint asks for again.
pub(super) struct Refreshes {
    /// Entries that were given out and are to be looked at.
    used: Vec<DestId>,
    asking: Vec<Asking>,
    /// A group was joined since destinations were last gone through for that.
    pub better_group: bool,
}

impl Refreshes {
    pub fn new() -> Refreshes {
        // nothing is allocated when an answer is given out
        Refreshes { used: Vec::with_capacity(MANY), asking: Vec::new(), better_group: false }
    }

    /// When there is something to do.
    pub fn deadline(&self) -> Time {
        match self.is_due() {
            true => Time(0),
            false => self.asking.iter().map(|a| a.until).min().unwrap_or(Time::NEVER),
        }
    }

    /// Whether there is an entry to be looked at, and room for a question.
    fn is_due(&self) -> bool {
        !self.used.is_empty() && self.asking.len() < ASKING
    }

    /// The destination and offered groups of an open question.
    pub fn get(&self, tid: u64) -> Option<(DestId, &Groups)> {
        self.asking.iter().find(|a| a.tid == tid).map(|a| (a.dest, &a.offered))
    }

    /// Ends a question; whether it was open.
    pub fn close(&mut self, tid: u64) -> bool {
        let open = self.asking.len();
        self.asking.retain(|a| a.tid != tid);
        self.asking.len() != open
    }

    pub fn clear(&mut self) {
        self.used.clear();
        self.asking.clear();
    }

    /// Takes over a question to a peer whose answer nobody waits for any more; not if there are many.
    pub fn listen(&mut self, dest: DestId, tid: u64, offered: Groups, until: Time) {
        if self.asking.len() < MANY {
            self.asking.push(Asking { dest, tid, offered, until });
        }
    }

    /// Notes that an entry was given out which is to be looked at; the next time will do if there are many.
    pub fn used(&mut self, dest: DestId) {
        if self.used.len() < MANY && !self.used.contains(&dest) {
            self.used.push(dest);
        }
    }
}

/// When the last part of the life of `d` begins, of which this is the end and that the whole in minutes.
fn last_part(d: &Dest, expiry: Time, life: Option<u32>) -> Time {
    if expiry == Time::NEVER {
        return expiry;
    }
    let life = Duration::from_secs(60 * u64::from(life.unwrap_or(0)));
    let part = if life.is_zero() { LEAST } else { (life / SHARE).max(LEAST).min(life) };
    // an entry's own share of its second half
    let own = part / 2 * u32::from(d.spread()) / (1 + u32::from(u16::MAX));
    let begin = Time(expiry.0.saturating_sub((part / 2 + own).as_micros() as u64));
    // as it is noted in the entry
    Coarse::of(begin).time()
}

/// When to ask again for what ends at `expiry`, if what is asked now comes to nothing, which takes so long: after as
/// long as it has been asked for in vain, but no longer than half of what is left.
fn again(now: Time, begin: Time, expiry: Time, answer: Duration) -> Time {
    if now < begin {
        return begin;
    }
    now.plus(begin.until(now).min(now.until(expiry) / 2).max(answer))
}

impl Config {
    /// When the last part of a known destination's life begins: of its address, and of its path.
    fn last_parts(&self, d: &Dest) -> (Time, Time) {
        let by_path = d.addr().kind() == TYPE_PATH;
        let address = if by_path { Time::NEVER } else { last_part(d, d.addr_expiry, self.addr_timeout) };
        let path = match self.route_prot {
            // is put together anew in no time
            RouteProt::Acm if !by_path => Time::NEVER,
            _ if by_path && d.addr_expiry < d.route_expiry => last_part(d, d.addr_expiry, self.addr_timeout),
            _ => last_part(d, d.route_expiry, self.route_timeout),
        };
        (address, path)
    }

    /// When a known destination that is given out is to be looked at.
    pub(super) fn refresh_at(&self, d: &Dest) -> Time {
        let (address, path) = self.last_parts(d);
        if d.is_learned() { address.min(path) } else { Time::NEVER }
    }

    /// The same, if a question that is asked now comes to nothing, which takes so long.
    pub(super) fn refresh_again(&self, now: Time, d: &Dest, answer: Duration) -> Time {
        let (address, path) = self.last_parts(d);
        let path = again(now, path, d.route_expiry.min(d.addr_expiry), answer);
        again(now, address, d.addr_expiry, answer).min(path)
    }
}

impl Engine {
    /// The path to `dest`, which was asked for at `asked`, is known: notes when it is to be looked at.
    pub(super) fn settled(&mut self, ep: EpId, dest: DestId, asked: Time) {
        let e = &mut self.eps[ep.0 as usize];
        let outdated = self.ports[e.port.0 as usize].news.routes_changed_since(asked);
        let Some(d) = e.cache.get_mut(dest) else { return };
        let at = self.config.refresh_at(d);
        d.check_at = Coarse::of(if outdated { at.min(d.check_at.time()) } else { at });
    }

    /// Groups were joined, and no other is being joined: what was found with fewer is looked at when it is next given
    /// out, for its peer may be in one of them.
    pub(super) fn look_for_better(&mut self, now: Time, ep: EpId) {
        let e = &mut self.eps[ep.0 as usize];
        let joining = e.groups.iter().any(|g| g.state == GroupState::Joining);
        if joining || !std::mem::take(&mut e.refreshes.better_group) || self.config.route_prot != RouteProt::Acm {
            return;
        }
        let best = Class::from_code(e.own_group());
        let spread = SOON + EACH * u32::try_from(e.cache.len()).unwrap_or(u32::MAX);
        for d in e.cache.iter_mut().filter(|d| d.is_learned() && d.state == State::Ready && d.peer.lid != 0) {
            if best.is_better(Class::of(&d.path)) {
                let wait = Duration::from_micros(self.rng.below(spread.as_micros() as u64));
                d.check_at = Coarse::of(now.plus(wait).min(d.check_at.time()));
            }
        }
    }

    /// Asks for what was given out and is to be asked for again, and gives up what was not answered.
    pub(super) fn refresh_used(&mut self, now: Time) {
        for i in 0..self.eps.len() {
            let ep = EpId(i as u32);
            self.eps[i].refreshes.asking.retain(|a| a.until > now);
            while self.eps[i].refreshes.is_due() {
                if let Some(dest) = self.eps[i].refreshes.used.pop() {
                    self.refresh_one(now, ep, dest);
                }
            }
        }
    }

    fn refresh_one(&mut self, now: Time, ep: EpId, dest: DestId) {
        let wait = self.config.arp(self.info(ep).subnet_timeout).timeout;
        let e = &mut self.eps[ep.0 as usize];
        let Some(d) = e.cache.get(dest).filter(|d| d.is_learned() && d.state == State::Ready) else { return };
        let addr = d.addr();
        let from_group = self.config.route_prot == RouteProt::Acm && addr.kind() != TYPE_PATH;
        let expires = from_group || self.config.last_parts(d).0 <= now;
        let unheard = d.peer.lid == 0 && addr.kind() != TYPE_PATH;
        if !expires {
            let refresh = self.config.refresh_at(d) <= now;
            return self.check(now, ep, dest, refresh);
        }
        if e.has_addr(&addr) {
            let group = e.own_group();
            if let Some(d) = e.cache.get_mut(dest) {
                d.peer.group = group;
            }
            return self.address_stays(now, ep, dest);
        }
        let Some(d) = self.eps[ep.0 as usize].cache.get_mut(dest) else { return };
        // where the peer was not who said it, it will not be now
        d.check_at = Coarse::of(if unheard { Time::NEVER } else { self.config.refresh_again(now, d, wait) });
        if !unheard {
            self.ask_peer(ep, dest, now.plus(wait));
        }
    }

    /// Asks the peer of `dest` whether it is still there, if no other question waits.
    fn ask_peer(&mut self, ep: EpId, dest: DestId, until: Time) {
        let e = &mut self.eps[ep.0 as usize];
        let busy = e.arp.is_behind();
        let Some((first, addr)) = e.first_group().copied().zip(e.cache.get(dest).map(|d| d.addr())) else { return };
        let Some(source) = e.request_source(dest, &addr).filter(|_| !busy) else { return };
        // bit 63 tells sends of requests from sends of responses
        let tid = (self.rng.next_u64() >> 1).max(1);
        let groups = e.offered();
        e.refreshes.asking.push(Asking { dest, tid, offered: groups, until });
        let request = asks_for(tid, &addr, &source, groups);
        let payload = Box::new(Datagram::Request(request).emit());
        self.actions.push_back(Action::Send { ep, token: tid, av: Av::group(&first), qpn: MULTICAST_QPN, payload });
        self.count(Some(ep), Counter::AddrQuery);
    }

    /// The peer of `dest` has answered a question that nobody waits for. False if it is not where it was, or the entry
    /// is no longer what it was: then it is an answer like any other.
    pub(super) fn peer_stays(&mut self, now: Time, ep: EpId, dest: DestId, rx: &Rx, group: u8) -> bool {
        let Some(d) = self.eps[ep.0 as usize].cache.get_mut(dest) else { return true };
        let same = d.peer.qpn == rx.src_qp && d.peer.lid == rx.slid && d.path.dgid() == rx.sgid;
        let good = d.is_learned() && d.state == State::Ready && now < d.addr_expiry && now < d.route_expiry;
        if same && good {
            d.peer = Peer { group, path_bits: rx.dlid_path_bits, ..d.peer };
            self.address_stays(now, ep, dest);
        }
        same && good
    }

    /// The address of `dest` is good for another life; its path is the next thing to ask for.
    fn address_stays(&mut self, now: Time, ep: EpId, dest: DestId) {
        let expiry = now.plus_minutes(self.config.addr_timeout);
        if self.config.route_prot == RouteProt::Acm {
            if let Err(status) = self.route(now, ep, dest) {
                self.fail(now, ep, dest, status, "the path cannot be made");
            }
            return;
        }
        if let Some(d) = self.eps[ep.0 as usize].cache.get_mut(dest) {
            // a path is good for as long as the address for which it was asked
            d.route_expiry = d.route_expiry.min(d.addr_expiry);
            d.addr_expiry = expiry;
        }
        self.check(now, ep, dest, true);
    }
}
