//! What becomes of known paths when the SA has told that something changed. Nothing is ever forgotten for that: what
//! may be wrong is asked for again when it is next used, so that a whole subnet that hears of a change asks no more
//! than it would have asked for anyhow.
//!
//! A GID that came or went puts the destinations with it *in doubt*: whoever wants one next waits for the SA's new
//! answer. An answer to a question from before the notice is no answer to it, and is asked for again.
//!
//! When routes may have changed every path of the port is to be *checked*: it is given out as before, for most paths
//! stay the same and a LID is still the way to its port, and asked for behind the scenes when it is first used after a
//! random moment of its own. That is one question at a time, while the SA is asked nothing else. It is not urgent, and
//! must not be: a switch tells of each host that is rebooted, before the subnet manager has looked at what it means.
//!
//! Notices come in floods when a fabric is rebooted. Each costs an entry in a table; the destinations are gone through
//! once for all that came since the last time, at most ten times a second.

use std::time::Duration;

use ibacm_wire::client::TYPE_PATH;
use ibacm_wire::{Gid, PathRecord};

use super::Engine;
use super::action::{EpId, PortId};
use super::config::RouteProt;
use super::resolve::SaWho;
use crate::cache::{Dest, DestId, State};
use crate::keyed::Rng;
use crate::map::Map;
use crate::sa::{Ask, SaError};
use crate::time::{Coarse, Time};

/// GIDs that are remembered as told of.
const MAX_TOLD: usize = 16_384;
/// Those whose memory is kept.
const FEW_TOLD: usize = 1024;
/// Destinations are gone through once in this time, or in as many as there are [`MANY`] of them.
const WALK: Duration = Duration::from_millis(100);
const MANY: usize = 65_536;
/// How long at least it is remembered when a GID was told of.
const REMEMBER: Duration = Duration::from_secs(10);
/// How long the subnet manager of a large fabric is given for new routes.
const SETTLE: Duration = Duration::from_secs(60);
/// In how long the paths of a port on one are checked after that: this, or as long as they take at this rate.
const SPREAD: Duration = Duration::from_secs(540);
const EACH: Duration = Duration::from_millis(100);
/// Both are this short on the smallest fabric, where a subnet manager does in no time what there is to do.
const SHORTEST: Duration = Duration::from_secs(4);
/// In between it is that all hosts together ask for so many paths a second, if each knows all others.
const ALL_HOSTS: u64 = 500;
/// Checks of a port that wait for the SA or for an idle moment.
const MAX_CHECKS: usize = 16;
/// How often a question is repeated because of what was told meanwhile, with somebody waiting.
const MAX_AGAIN: u8 = 2;

/// When paths are checked after a change of routes.
#[derive(Clone, Copy)]
struct Span {
    /// Not before that.
    settle: Duration,
    /// And at a random time in that which follows.
    spread: Duration,
}

impl Default for Span {
    fn default() -> Self {
        Span { settle: SETTLE, spread: SPREAD }
    }
}

impl Span {
    /// For a port with so many destinations, which tell how large the fabric is.
    fn of(known: usize) -> Span {
        let known = known as u64;
        let whole = Duration::from_millis(known.saturating_mul(known).saturating_mul(1000) / ALL_HOSTS);
        let spread = whole.clamp(SHORTEST, SPREAD);
        Span { settle: spread / 9, spread: spread.max(EACH.saturating_mul(u32::try_from(known).unwrap_or(u32::MAX))) }
    }

    fn end(&self) -> Duration {
        self.settle + self.spread
    }

    /// How long until one path is checked.
    fn pick(&self, rng: &mut Rng) -> Duration {
        self.settle + up_to(self.spread, rng)
    }
}

/// What the SA has told a port lately.
#[derive(Default)]
pub(super) struct News {
    /// How quickly paths are checked, as of the last look at them.
    span: Span,
    /// GIDs with when they were told of, and whether no destination has been looked at since.
    told: Map<Gid, (Time, bool)>,
    /// When more was told than could be remembered: everything older is in doubt.
    all: Option<(Time, bool)>,
    /// When routes were said to change, and whether no destination has been looked at since.
    routes: Option<(Time, bool)>,
    /// Something is to be looked at, but not before this time.
    pending: bool,
    walk_at: Time,
    /// Checks under way.
    checks: usize,
}

impl News {
    /// When destinations are to be gone through.
    pub fn deadline(&self) -> Time {
        if self.pending { self.walk_at } else { Time::NEVER }
    }

    /// Whether an answer to a question from `asked` may not know the last change of routes.
    pub fn routes_changed_since(&self, asked: Time) -> bool {
        self.routes.is_some_and(|r| r.0.plus(self.span.settle) > asked)
    }

    /// Whether something was told of `gid` at `asked` or since.
    fn is_newer(&self, gid: &Gid, asked: Time) -> bool {
        let told = self.told.get(gid).map(|t| t.0);
        told.max(self.all.map(|a| a.0)).is_some_and(|t| t >= asked)
    }

    /// Panics if it is too much, or so many checks are under way as are not counted.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self, checks: usize) {
        assert!(self.told.len() <= MAX_TOLD && self.checks <= MAX_CHECKS);
        assert_eq!(self.checks, checks, "checks under way");
    }

    fn add(&mut self, now: Time, gid: Gid) {
        self.pending = true;
        if self.told.len() >= MAX_TOLD && !self.told.contains_key(&gid) {
            self.told.clear();
            self.all = Some((now, true));
        }
        self.told.insert(gid, (now, true));
    }

    /// Notes that all has been looked at, and forgets what is of no use any more.
    fn looked(&mut self, now: Time, next: Time, remember: Duration) {
        (self.pending, self.walk_at) = (false, next);
        self.told.retain(|_, t| {
            t.1 = false;
            t.0.plus(remember) > now
        });
        // a flood is over: its memory goes back
        self.told.shrink_to(FEW_TOLD.max(2 * self.told.len()));
        for t in [&mut self.all, &mut self.routes].into_iter().flatten() {
            t.1 = false;
        }
    }
}

/// The path to `d` is not to be given out before the SA has been asked. Where the path is made from a group (`acm`) the
/// peer is, if its address is what is asked for.
pub(super) fn doubt(d: &mut Dest, acm: bool) {
    d.epoch = d.epoch.wrapping_add(1);
    let keep = d.peer.qpn != 0 && !d.path.dgid().is_zero() && d.addr().kind() != TYPE_PATH && !acm;
    d.state = if keep { State::AddrResolved } else { State::Init };
}

fn up_to(time: Duration, rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(time.as_micros() as u64))
}

/// The GID that a destination leads to, as far as anybody knows.
fn leads_to(d: &Dest) -> Gid {
    match d.path.dgid() {
        Gid::ZERO if d.addr().kind() == TYPE_PATH => PathRecord(*d.addr().wire()).dgid(),
        gid => gid,
    }
}

impl Engine {
    /// The SA says that a GID has come or gone.
    pub(super) fn gid_told(&mut self, now: Time, port: PortId, gid: Gid) {
        let Some(p) = self.ports.get_mut(port.0 as usize).filter(|_| !gid.is_zero()) else { return };
        p.news.add(now, gid);
        self.look_at_news(now, port);
    }

    /// The SA says, or it may have said to somebody else, that routes have changed.
    pub(super) fn routes_told(&mut self, now: Time, port: PortId) {
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        p.news.routes = Some((now, true));
        p.news.pending = true;
        self.look_at_news(now, port);
    }

    /// Goes through the destinations where it is time to.
    pub(super) fn news_due(&mut self, now: Time) {
        for i in 0..self.ports.len() {
            self.look_at_news(now, PortId(i as u32));
        }
    }

    fn look_at_news(&mut self, now: Time, port: PortId) {
        let acm = self.config.route_prot == RouteProt::Acm;
        let Some(p) = self.ports.get_mut(port.0 as usize).filter(|p| p.news.deadline() <= now) else { return };
        let (first, more) = {
            let mut fresh = p.news.told.iter().filter(|(_, t)| t.1).map(|(gid, _)| *gid);
            (fresh.next(), fresh.next().is_some())
        };
        let news = &p.news;
        let all = news.all.is_some_and(|a| a.1);
        let is_told = |gid: &Gid| match first {
            _ if all => true,
            Some(only) if !more => *gid == only,
            Some(_) => news.told.get(gid).is_some_and(|t| t.1),
            None => false,
        };
        let (mut known, mut doubted) = (0, 0);
        for d in self.eps.iter_mut().filter(|e| e.port == port).flat_map(|e| e.cache.iter_mut()) {
            known += 1;
            // where a path would be made of what is known, without asking anybody, that is in doubt too
            let settled = matches!(d.state, State::Ready | State::Failed(_)) || (acm && d.state == State::AddrResolved);
            if settled && d.is_learned() && (all || first.is_some()) && is_told(&leads_to(d)) {
                doubt(d, acm);
                doubted += 1;
            } else if d.state == State::QueryAddr {
                // if it has a path that is being confirmed, it is asked for anew
                d.epoch = d.epoch.wrapping_add(1);
            }
        }
        let gids = if all { MAX_TOLD } else { news.told.values().filter(|t| t.1).count() };
        if news.routes.is_some_and(|r| r.1) {
            let span = Span::of(known);
            p.news.span = span;
            let (rng, latest) = (&mut self.rng, now.plus(span.end()));
            for d in self.eps.iter_mut().filter(|e| e.port == port).flat_map(|e| e.cache.iter_mut()) {
                let from_sa = !acm || d.addr().kind() == TYPE_PATH;
                if d.is_learned() && from_sa && d.check_at.time() > latest {
                    d.check_at = Coarse::of(now.plus(span.pick(rng)));
                }
            }
        }
        let remember = REMEMBER.max(self.config.sa().total());
        let pause = WALK.saturating_mul(u32::try_from(1 + known / MANY).unwrap_or(u32::MAX));
        p.news.looked(now, now.plus(pause), remember);
        if doubted != 0 {
            let name = p.name();
            self.log(1, || format!("{name}: {doubted} paths are in doubt after notices of {gids} GIDs"));
        }
    }

    /// Whether an answer to a question for `dest` from `asked` is older than what was told since.
    fn is_outdated(&self, ep: EpId, dest: DestId, answer: &Result<PathRecord, SaError>, asked: Time) -> bool {
        let e = &self.eps[ep.0 as usize];
        let gid = match answer {
            Ok(path) => path.dgid(),
            Err(SaError::Status(_)) => e.cache.get(dest).map(leads_to).unwrap_or_default(),
            Err(_) => return false,
        };
        self.ports[e.port.0 as usize].news.is_newer(&gid, asked)
    }

    /// An answer to the question for a path came. Whether it is too old to be given to anybody, and was asked for again:
    /// a few times at most, and not if it took long, since somebody waits.
    pub(super) fn asked_again(
        &mut self,
        now: Time,
        ep: EpId,
        dest: DestId,
        answer: &Result<PathRecord, SaError>,
    ) -> bool {
        let Some((asked, again)) = self.eps[ep.0 as usize].pending.get(&dest).map(|p| (p.asked, p.again)) else {
            return false;
        };
        let quick = now < asked.plus(self.config.sa().total() / 2);
        if again >= MAX_AGAIN || !quick || !self.is_outdated(ep, dest, answer, asked) {
            return false;
        }
        if let Some(p) = self.eps[ep.0 as usize].pending.get_mut(&dest) {
            p.again += 1;
        }
        self.ask_route(now, ep, dest).is_ok()
    }

    /// Those who waited have got an answer to a question from `asked`. If something was told since, the next one who
    /// wants to know it has the SA asked again.
    pub(super) fn doubt_if_outdated(&mut self, now: Time, ep: EpId, dest: DestId, asked: Time) {
        let acm = self.config.route_prot == RouteProt::Acm;
        let e = &mut self.eps[ep.0 as usize];
        let news = &self.ports[e.port.0 as usize].news;
        let Some(d) = e.cache.get_mut(dest).filter(|d| d.state == State::Ready && d.is_learned()) else { return };
        if news.is_newer(&d.path.dgid(), asked) {
            doubt(d, acm);
        } else if news.routes_changed_since(asked) && d.check_at.time() > now.plus(news.span.end()) {
            d.check_at = Coarse::of(now.plus(news.span.pick(&mut self.rng)));
        }
    }

    /// A path was given out that is to be checked: asks the SA for it, for the next one who wants it. Where nothing but
    /// time speaks against it (`refresh`), it is good until it expires, whatever the SA says.
    pub(super) fn check(&mut self, now: Time, ep: EpId, dest: DestId, refresh: bool) {
        let wait = up_to(SETTLE, &mut self.rng);
        let Some(question) = self.path_question(ep, dest) else { return };
        let e = &mut self.eps[ep.0 as usize];
        let Some(d) = e.cache.get_mut(dest) else { return };
        // whatever comes of it
        let again = self.config.refresh_again(now, d, self.config.sa().total());
        d.check_at = Coarse::of(now.plus(SETTLE + wait).min(again));
        let p = &mut self.ports[e.port.0 as usize];
        let who = SaWho::Check { ep, dest, epoch: d.epoch, asked: now, refresh };
        if p.news.checks < MAX_CHECKS && p.sa.submit_idle(now, who, Ask::Path(question)).is_ok() {
            p.news.checks += 1;
        } else {
            d.check_at = Coarse::of(now.plus(wait).min(again));
        }
        let port = e.port;
        self.pump_sa(now, port);
    }

    /// A check went down with its port.
    pub(super) fn check_lost(&mut self, ep: EpId) {
        let news = &mut self.ports[self.eps[ep.0 as usize].port.0 as usize].news;
        news.checks = news.checks.saturating_sub(1);
    }

    /// The SA's word on a path that was checked.
    pub(super) fn checked(
        &mut self,
        now: Time,
        (ep, dest): (EpId, DestId),
        epoch: u16,
        (asked, refresh): (Time, bool),
        result: Result<PathRecord, SaError>,
    ) {
        let acm = self.config.route_prot == RouteProt::Acm;
        let (addr_expiry, route_expiry) =
            (now.plus_minutes(self.config.addr_timeout), now.plus_minutes(self.config.route_timeout));
        let e = &mut self.eps[ep.0 as usize];
        let news = &mut self.ports[e.port.0 as usize].news;
        let wait = news.span.pick(&mut self.rng);
        news.checks = news.checks.saturating_sub(1);
        let Some(d) = e.cache.get_mut(dest).filter(|d| d.epoch == epoch && d.state == State::Ready) else { return };
        let elsewhere = |path: &PathRecord| d.addr().kind() != TYPE_PATH && path.dgid() != d.path.dgid();
        match result {
            // the address has moved since it was asked
            Ok(path) if elsewhere(&path) => {}
            Ok(path) => {
                let older = news.routes_changed_since(asked);
                (d.path, d.route_expiry) = (path, route_expiry);
                if d.addr().kind() == TYPE_PATH {
                    d.addr_expiry = addr_expiry;
                }
                let next = self.config.refresh_at(d);
                d.check_at = Coarse::of(if older { next.min(now.plus(wait)) } else { next });
            }
            Err(_) if refresh => {}
            Err(SaError::Status(_) | SaError::Malformed) => doubt(d, acm),
            // it is tried again at the time that was set when it was asked
            Err(SaError::Timeout | SaError::Busy | SaError::Down) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_flood_goes_back() {
        let mut news = News::default();
        for number in 0..MAX_TOLD as u128 {
            news.add(Time(0), Gid(number.to_be_bytes()));
        }
        let then = Time(0).plus(REMEMBER);
        news.looked(then, then, REMEMBER);
        assert!(news.told.is_empty());
        assert!(news.told.capacity() < 4 * FEW_TOLD, "{}", news.told.capacity());
    }
}
