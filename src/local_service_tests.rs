use ibacm_wire::client::{Entry, Header, OP_ACK, OP_RESOLVE, PATH_FLAGS, Status, VERSION};
use ibacm_wire::{Gid, PathRecord};

use super::message::tests::{IP_RESOLVE, RESOLVE, SET_TIMEOUT, attribute, message, resolve};
use super::*;

/// An engine that answers some questions at once and keeps the others.
#[derive(Default)]
struct Scripted {
    /// Destinations that are in the cache have this last byte.
    cached: Option<u8>,
    open: Vec<ClientId>,
    asked: usize,
}

fn success() -> Vec<u8> {
    let h = Header { version: VERSION, opcode: OP_RESOLVE | OP_ACK, length: 88, ..Header::default() };
    let mut path = PathRecord::default();
    path.set_dgid(Gid([5; 16]));
    [&h.emit()[..], &Entry::path(PATH_FLAGS, &path).emit()].concat()
}

fn failure(status: Status) -> Vec<u8> {
    let h =
        Header { version: VERSION, opcode: OP_RESOLVE | OP_ACK, status: status as u8, length: 16, ..Header::default() };
    h.emit().to_vec()
}

impl Resolver for Scripted {
    fn ask(&mut self, id: ClientId, question: &Question, wait: bool, reply: &mut Vec<u8>) -> Outcome {
        assert!(is_kernel(id));
        self.asked += 1;
        let last = match question {
            Question::Path(q) if q.path.dgid().is_zero() => return Outcome::Close,
            Question::Path(q) => q.path.dgid().0[15],
            Question::Ip { dest: std::net::IpAddr::V4(ip), .. } => ip.octets()[3],
            Question::Ip { dest: std::net::IpAddr::V6(ip), .. } => ip.octets()[15],
        };
        if self.cached == Some(last) {
            reply.extend_from_slice(&success());
            Outcome::Replied
        } else if wait {
            self.open.push(id);
            Outcome::Pending
        } else {
            reply.extend_from_slice(&failure(Status::Enodata));
            Outcome::Replied
        }
    }
}

const MS: u64 = 1000;

fn question(sequence: u32, last: u8) -> Vec<u8> {
    message(RESOLVE, sequence, &resolve(b"mlx5_0", 1, 2, &[attribute(4, &[last; 16])]))
}

/// Sequence number of an answer, and whether it is a refusal.
fn verdict(answer: &Answer) -> (u32, bool) {
    let b = answer.as_bytes();
    assert_eq!(b[12..16], 4711_u32.to_ne_bytes(), "the port id");
    let refused = b[6..8] == 0x100_u16.to_ne_bytes();
    assert_eq!(b.len() == 16, refused);
    (u32::from_ne_bytes(b[8..12].try_into().unwrap()), refused)
}

struct Bench {
    service: LocalService,
    engine: Scripted,
}

impl Bench {
    fn new() -> Bench {
        Bench { service: LocalService::new(4711), engine: Scripted::default() }
    }

    fn send(&mut self, ms: u64, datagram: &[u8]) -> Vec<(u32, bool)> {
        let mut out = Vec::new();
        self.service.received(Time(ms * MS), datagram, &mut self.engine, &mut |a| out.push(verdict(&a)));
        out
    }

    fn answer(&mut self, nth: usize, reply: &[u8]) -> Option<(u32, bool)> {
        let id = self.engine.open[nth];
        self.service.answered(id, reply).map(|a| verdict(&a))
    }

    fn due(&mut self, ms: u64) -> Vec<(u32, bool)> {
        std::iter::from_fn(|| self.service.on_time(Time(ms * MS))).map(|a| verdict(&a)).collect()
    }
}

#[test]
fn answers_at_once_and_later() {
    let mut b = Bench::new();
    b.engine.cached = Some(1);
    assert_eq!(b.send(0, &question(10, 1)), [(10, false)]);
    assert_eq!(b.send(0, &[question(11, 2), question(12, 3), question(13, 1)].concat()), [(13, false)]);
    assert_eq!(b.service.open(), 2);
    assert_eq!(b.answer(1, &failure(Status::Edestaddr)), Some((12, true)));
    assert_eq!(b.answer(0, &success()), Some((11, false)));
    assert_eq!((b.answer(0, &success()), b.answer(1, &success())), (None, None), "each is answered once");
    assert_eq!(b.service.next_deadline(), Time::NEVER);
    assert_eq!(b.send(0, &question(14, 0)), [(14, true)]);
    let wanted = Counters { questions: 5, answered: 3, refused: 2, ..Counters::default() };
    assert_eq!(b.service.counters(), wanted);
}

#[test]
fn refuses_before_the_kernel_gives_up() {
    let mut b = Bench::new();
    b.send(100, &question(1, 9));
    b.send(300, &message(IP_RESOLVE, 2, &[&[0; 4][..], &attribute(9, &[10, 0, 0, 9])].concat()));
    assert_eq!(b.service.next_deadline(), Time(1900 * MS));
    assert_eq!(b.due(1899), []);
    assert_eq!(b.due(1900), [(1, true)]);
    assert_eq!(b.answer(0, &success()), None, "the kernel waits no longer");
    assert_eq!(b.service.next_deadline(), Time(2100 * MS));
    // another time holds for questions that come after it
    assert_eq!(b.send(2000, &message(SET_TIMEOUT, 3, &attribute(2, &500_u32.to_ne_bytes()))), []);
    b.send(2000, &question(4, 9));
    assert_eq!(b.service.next_deadline(), Time(2100 * MS));
    assert_eq!(b.due(2449), [(2, true)]);
    assert_eq!(b.due(2450), [(4, true)]);
    assert_eq!(b.service.counters().late, 3);
}

#[test]
fn an_old_id_finds_nobody() {
    let mut b = Bench::new();
    b.send(0, &question(1, 9));
    assert_eq!(b.answer(0, &success()), Some((1, false)));
    b.send(0, &question(2, 9));
    assert_ne!(b.engine.open[0], b.engine.open[1]);
    assert_eq!(b.answer(0, &success()), None);
    assert_eq!(b.answer(1, &success()), Some((2, false)));
    for id in [0, 1, u64::MAX, KERNEL, KERNEL | 77] {
        assert_eq!(b.service.answered(ClientId(id), &success()), None);
    }
}

#[test]
fn beyond_the_bound_only_the_cache_answers() {
    let mut b = Bench::new();
    b.engine.cached = Some(1);
    for n in 0..MAX_OPEN as u32 {
        assert_eq!(b.send(0, &question(n, 9)), []);
    }
    assert_eq!(b.send(0, &question(5000, 9)), [(5000, true)]);
    assert_eq!(b.send(0, &question(5001, 1)), [(5001, false)]);
    assert_eq!((b.service.open(), b.service.counters().crowded), (MAX_OPEN, 2));
    b.answer(7, &success());
    assert_eq!(b.send(0, &question(5002, 9)), []);
    assert_eq!(b.send(0, &question(5003, 9)), [(5003, true)]);
    assert_eq!(b.due(1800).len(), MAX_OPEN);
}

#[test]
fn refused_questions_keep_their_place_until_the_engine_is_done() {
    let mut b = Bench::new();
    let rounds = MAX_KEPT / MAX_OPEN;
    for round in 0..rounds as u64 {
        for n in 0..MAX_OPEN as u32 {
            assert_eq!(b.send(round * 2000, &question(n, 9)), []);
        }
        assert_eq!(b.due(round * 2000 + 1800).len(), MAX_OPEN);
    }
    let later = rounds as u64 * 2000;
    assert_eq!(b.send(later, &question(1, 9)), [(1, true)], "the engine has enough to do");
    assert_eq!(b.engine.open.len(), MAX_KEPT);
    for nth in 0..MAX_KEPT {
        assert_eq!(b.answer(nth, &success()), None);
    }
    assert_eq!(b.send(later, &question(1, 9)), []);
    assert_eq!(b.service.slots.len(), MAX_KEPT);
}

#[test]
fn stray_messages_are_counted_and_nothing_else() {
    let mut b = Bench::new();
    let error = message(2, 1, &[&[0xff; 4][..], &question(1, 9)].concat());
    for stray in [error, message(3, 1, &[0; 4]), message(0x1402, 1, &[]), message(0x0c00, 1, &[0; 80])] {
        assert_eq!(b.send(0, &stray), []);
    }
    assert_eq!(b.service.counters(), Counters { ignored: 4, ..Counters::default() });
    for cut in [&question(1, 9)[..15], &[0; 16], &question(1, 9)[..40], &message(SET_TIMEOUT, 1, &[])] {
        assert_eq!(b.send(0, cut), []);
    }
    assert_eq!(b.service.counters(), Counters { ignored: 4, malformed: 4, ..Counters::default() });
    assert_eq!(b.send(0, &message(RESOLVE, 8, &[0; 65])), [(8, true)]);
    assert_eq!(b.engine.asked, 0);
}

#[test]
fn no_bytes_break_it() {
    let mut b = Bench::new();
    b.engine.cached = Some(3);
    let seeds = [
        question(1, 2),
        [question(2, 3), question(3, 4)].concat(),
        message(IP_RESOLVE, 4, &[&[0; 4][..], &attribute(9 | 1 << 13, &[10, 0, 0, 9])].concat()),
        message(SET_TIMEOUT, 5, &attribute(2, &700_u32.to_ne_bytes())),
    ];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |below: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % below as u64) as usize
    };
    for round in 0..30_000_u64 {
        let mut bytes = seeds[roll(seeds.len())].clone();
        for _ in 0..roll(4) {
            let at = roll(bytes.len());
            bytes[at] = [0, 1, 4, 15, 0x20, 0xff, roll(256) as u8][roll(7)];
        }
        if roll(4) == 0 {
            bytes.truncate(1 + roll(bytes.len()));
        }
        b.send(round * 10, &bytes);
        if !b.engine.open.is_empty() && roll(3) == 0 {
            let nth = roll(b.engine.open.len());
            let length = roll(89);
            b.answer(nth, &success()[..length]);
            b.engine.open.swap_remove(nth);
        }
        b.due(round * 10);
        assert!(b.service.open() <= MAX_OPEN && b.service.slots.len() <= MAX_KEPT);
    }
    let c = b.service.counters();
    assert!(c.questions > 1000 && c.answered > 1000 && c.malformed > 1000 && c.late > 100, "{c:?}");
    assert!(c.answered + c.refused + b.service.open() as u64 >= c.questions, "{c:?}");
}
