//! The asking side of the multicast address protocol, for one endpoint: which requests are open, when each is sent,
//! sent again and given up. Pure: datagrams and times come in as arguments, what to send comes out.
//!
//! `resolve_depth` limits how many requests are *young*: just sent and not yet answered. A request that has not been
//! answered within [`YOUNG`] keeps waiting but no longer keeps others from being sent, so that a destination that does
//! not answer delays nobody.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use ibacm_wire::datagram::Groups;

use crate::cache::DestId;
use crate::keyed::Rng;
use crate::time::Time;

/// How long an unanswered request counts against `resolve_depth`.
pub const YOUNG: Duration = Duration::from_millis(1);
/// When a request whose datagram could not be sent is tried again; twice as late each time that this happens again.
pub const SEND_RETRY: Duration = Duration::from_millis(10);
/// Requests that may be open on an endpoint.
pub const MAX_OPEN: usize = 16_384;

/// Limits of the asking side.
#[derive(Clone, Copy, Debug)]
pub struct ArpConfig {
    /// Young requests at a time.
    pub depth: usize,
    /// How long to wait for an answer before sending again.
    pub timeout: Duration,
    /// How often to send again.
    pub retries: u32,
}

struct Open {
    dest: DestId,
    sent: u32,
    /// Transmissions that failed in a row.
    failures: u32,
    /// When it is given up if its datagram cannot be sent at all.
    limit: Time,
    young: bool,
    queued: bool,
    deadline: Time,
    /// Groups that were offered with the latest transmission.
    offered: Groups,
}

/// What became of time passing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GaveUp {
    /// The destination that did not answer.
    pub dest: DestId,
}

/// Open requests of an endpoint.
pub struct Arp {
    config: ArpConfig,
    open: HashMap<u64, Open>,
    queue: VecDeque<u64>,
    young: usize,
    /// When each transmission stops being young: in order, for all are young equally long.
    aging: VecDeque<(Time, u64)>,
    /// When each transmission's wait for an answer ends.
    waits: BinaryHeap<Reverse<(Time, u64)>>,
}

impl Arp {
    /// No requests.
    pub fn new(config: ArpConfig) -> Arp {
        Arp {
            config,
            open: HashMap::new(),
            queue: VecDeque::new(),
            young: 0,
            aging: VecDeque::new(),
            waits: BinaryHeap::new(),
        }
    }

    /// Changes the limits; what is under way keeps its deadlines.
    pub fn set_config(&mut self, config: ArpConfig) {
        self.config = config;
    }

    /// Number of open requests.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens a request for `dest`: its transaction id. `None` at [`MAX_OPEN`].
    pub fn start(&mut self, dest: DestId, rng: &mut Rng) -> Option<u64> {
        if self.open.len() >= MAX_OPEN {
            return None;
        }
        let tid = loop {
            // bit 63 tells sends of requests from sends of responses
            let t = rng.next_u64() >> 1;
            if t != 0 && !self.open.contains_key(&t) {
                break t;
            }
        };
        let open = Open {
            dest,
            sent: 0,
            failures: 0,
            limit: Time::NEVER,
            young: false,
            queued: true,
            deadline: Time::NEVER,
            offered: Groups::default(),
        };
        self.open.insert(tid, open);
        self.queue.push_back(tid);
        Some(tid)
    }

    /// The next request that is to be sent now, if the depth allows one; it counts as sent, offering these groups.
    pub fn next_to_send(&mut self, now: Time, offered: &Groups) -> Option<(u64, DestId)> {
        while self.young < self.config.depth {
            let tid = self.queue.pop_front()?;
            let Some(o) = self.open.get_mut(&tid) else { continue };
            o.sent += 1;
            o.limit = o.limit.min(now.plus(self.config.timeout * (self.config.retries + 1)));
            o.young = true;
            o.queued = false;
            o.deadline = now.plus(self.config.timeout);
            o.offered = *offered;
            self.young += 1;
            self.aging.push_back((now.plus(YOUNG), tid));
            self.waits.push(Reverse((o.deadline, tid)));
            return Some((tid, o.dest));
        }
        None
    }

    /// The destination and offered groups of the open request `tid`.
    pub fn get(&self, tid: u64) -> Option<(DestId, &Groups)> {
        self.open.get(&tid).filter(|o| o.sent > 0).map(|o| (o.dest, &o.offered))
    }

    /// Whether what was sent last of the request `tid` was its first repetition: its time has passed once.
    pub fn is_first_repeat(&self, tid: u64) -> bool {
        self.open.get(&tid).is_some_and(|o| o.sent == 2)
    }

    /// Whether requests wait for their turn.
    pub fn is_behind(&self) -> bool {
        self.queue.iter().any(|tid| self.open.contains_key(tid))
    }

    /// Ends the request `tid`, answered or no longer wanted.
    pub fn close(&mut self, tid: u64) {
        if let Some(o) = self.open.remove(&tid)
            && o.young
        {
            self.young -= 1;
        }
        // a closed request leaves its timers and perhaps a place in the queue behind; they are skipped when their turn
        // comes, but must not outgrow what is open
        let open = &self.open;
        let most = 4 * open.len() + 64;
        if self.waits.len() > most {
            self.waits.retain(|Reverse((_, tid))| open.contains_key(tid));
        }
        if self.aging.len() > most {
            self.aging.retain(|(_, tid)| open.contains_key(tid));
        }
        if self.queue.len() > most {
            self.queue.retain(|tid| open.contains_key(tid));
        }
    }

    /// The datagram of `tid` did not get out: it is sent again soon, and holds nobody up meanwhile.
    pub fn send_failed(&mut self, now: Time, tid: u64) {
        let Some(o) = self.open.get_mut(&tid) else { return };
        if std::mem::take(&mut o.young) {
            self.young -= 1;
        }
        if !o.queued {
            // no peer has been asked, so it does not count among the retries
            o.sent = o.sent.saturating_sub(1);
            o.deadline = now.plus(SEND_RETRY * (1 << o.failures.min(6))).min(o.limit);
            o.failures += 1;
            self.waits.push(Reverse((o.deadline, tid)));
        }
    }

    /// Lets time pass: one destination that is given up, or `None` when all that is due has happened.
    pub fn on_time(&mut self, now: Time) -> Option<GaveUp> {
        while let Some(&(at, tid)) = self.aging.front()
            && at <= now
        {
            self.aging.pop_front();
            // an older transmission's end may end a newer one's youth: that only lets the next go sooner
            self.age(tid);
        }
        while let Some(&Reverse((at, tid))) = self.waits.peek()
            && at <= now
        {
            self.waits.pop();
            self.age(tid);
            let Some(o) = self.open.get_mut(&tid) else { continue };
            if o.queued || at != o.deadline {
                continue;
            }
            if o.sent > self.config.retries || (o.failures > 0 && at >= o.limit) {
                let dest = o.dest;
                self.close(tid);
                return Some(GaveUp { dest });
            }
            o.queued = true;
            self.queue.push_back(tid);
        }
        None
    }

    fn age(&mut self, tid: u64) {
        if let Some(o) = self.open.get_mut(&tid)
            && std::mem::take(&mut o.young)
        {
            self.young -= 1;
        }
    }

    /// When [`Arp::on_time`] has something to do next. The end of a youth matters only while somebody waits for it.
    pub fn next_deadline(&mut self) -> Time {
        while let Some(Reverse((at, tid))) = self.waits.peek() {
            if self.open.get(tid).is_some_and(|o| !o.queued && o.deadline == *at) {
                break;
            }
            self.waits.pop();
        }
        let wait = self.waits.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        let aged = match self.aging.front() {
            Some((at, _)) if !self.queue.is_empty() => *at,
            _ => Time::NEVER,
        };
        wait.min(aged)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "arp_check.rs"]
mod check;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Addr;
    use crate::cache::{Cache, Origin};
    use crate::keyed::SipKey;

    const MS: u64 = 1000;

    fn setup(depth: usize) -> (Arp, Rng, Vec<DestId>) {
        let config = ArpConfig { depth, timeout: Duration::from_millis(100), retries: 2 };
        let mut cache = Cache::new(SipKey(1, 2), 100);
        let dests = (0..20).map(|l| cache.insert(&Addr::lid(l), Origin::Learned, false).unwrap()).collect();
        (Arp::new(config), Rng::new(SipKey(7, 7)), dests)
    }

    fn send(a: &mut Arp, now: u64) -> Option<(u64, DestId)> {
        a.next_to_send(Time(now), &Groups::default())
    }

    #[test]
    fn an_unanswered_request_is_repeated_and_given_up() {
        let (mut a, mut rng, d) = setup(1);
        let tid = a.start(d[0], &mut rng).unwrap();
        let mut now = 0;
        for _ in 0..3 {
            assert_eq!(send(&mut a, now), Some((tid, d[0])));
            assert_eq!(send(&mut a, now), None);
            assert_eq!(a.next_deadline(), Time(now + 100 * MS));
            assert_eq!(a.on_time(Time(now + 99 * MS)), None);
            now += 100 * MS;
            if a.get(tid).is_some() && now < 300 * MS {
                assert_eq!(a.on_time(Time(now)), None);
            }
        }
        assert_eq!(a.on_time(Time(now)), Some(GaveUp { dest: d[0] }));
        assert!(a.is_empty());
        assert_eq!(a.next_deadline(), Time::NEVER);
    }

    #[test]
    fn a_silent_destination_holds_the_only_place_for_a_moment() {
        let (mut a, mut rng, d) = setup(1);
        a.start(d[0], &mut rng).unwrap();
        let live = a.start(d[1], &mut rng).unwrap();
        send(&mut a, 0).unwrap();
        assert_eq!(send(&mut a, 10), None);
        assert_eq!(a.next_deadline(), Time(MS));
        assert_eq!(a.on_time(Time(MS)), None);
        assert_eq!(send(&mut a, MS), Some((live, d[1])));
    }

    #[test]
    fn an_answer_frees_the_place_at_once() {
        let (mut a, mut rng, d) = setup(1);
        let first = a.start(d[0], &mut rng).unwrap();
        let second = a.start(d[1], &mut rng).unwrap();
        send(&mut a, 0).unwrap();
        assert!(a.get(first).is_some());
        assert!(a.get(second).is_none(), "not sent yet: nobody can know its id");
        a.close(first);
        assert_eq!(send(&mut a, 1), Some((second, d[1])));
    }

    #[test]
    fn a_failed_send_gives_its_place_back_and_is_tried_again() {
        let (mut a, mut rng, d) = setup(1);
        let first = a.start(d[0], &mut rng).unwrap();
        let second = a.start(d[1], &mut rng).unwrap();
        send(&mut a, 0).unwrap();
        a.send_failed(Time(1), first);
        assert_eq!(send(&mut a, 1), Some((second, d[1])));
        a.close(second);
        assert_eq!(a.on_time(Time(1 + 10 * MS)), None);
        assert_eq!(send(&mut a, 1 + 10 * MS), Some((first, d[0])));
    }

    #[test]
    fn sends_that_fail_are_no_transmissions_but_end_in_time() {
        let (mut a, mut rng, d) = setup(1);
        let tid = a.start(d[0], &mut rng).unwrap();
        let (mut now, mut tries) = (0, 0);
        loop {
            assert_eq!(send(&mut a, now), Some((tid, d[0])));
            a.send_failed(Time(now), tid);
            tries += 1;
            now = a.next_deadline().0;
            if a.on_time(Time(now)).is_some() {
                break;
            }
        }
        assert_eq!(now, 300 * MS, "as long as without an answer");
        assert!((5..=8).contains(&tries), "{tries}: less and less often");

        let tid = a.start(d[1], &mut rng).unwrap();
        for _ in 0..4 {
            assert_eq!(send(&mut a, now), Some((tid, d[1])));
            a.send_failed(Time(now), tid);
            now = a.next_deadline().0;
            assert_eq!(a.on_time(Time(now)), None, "more failures than retries");
        }
    }

    #[test]
    fn ids_differ_and_leftovers_of_closed_requests_do_not_pile_up() {
        let (mut a, mut rng, d) = setup(4);
        let mut seen = std::collections::HashSet::new();
        for i in 0..10_000u64 {
            let tid = a.start(d[0], &mut rng).unwrap();
            assert!(seen.insert(tid) && tid >> 63 == 0);
            send(&mut a, i).unwrap();
            a.close(tid);
        }
        assert!(a.waits.len() + a.aging.len() + a.queue.len() < 300);
    }

    #[test]
    fn the_number_of_open_requests_is_bounded() {
        let (mut a, mut rng, d) = setup(1);
        for _ in 0..MAX_OPEN {
            a.start(d[0], &mut rng).unwrap();
        }
        assert_eq!(a.start(d[0], &mut rng), None);
    }
}
