use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mio::{Events, Poll};

use super::*;

/// Answers each request with its header, or as its first data byte says.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) pending: Vec<(ClientId, Vec<u8>)>,
    closed: Vec<ClientId>,
    served: usize,
}

/// In the first byte after the header: answer late.
pub(crate) const LATE: u8 = 1;
/// Break the protocol.
pub(crate) const BREAK: u8 = 2;
/// Answer with 64 KiB.
pub(crate) const LARGE: u8 = 3;
/// Answer with 40 KiB.
pub(crate) const MIDDLE: u8 = 4;

impl Service for Echo {
    fn request(&mut self, client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.served += 1;
        match msg.get(HEADER) {
            Some(&LATE) => {
                self.pending.push((client, msg[..HEADER].to_vec()));
                return Outcome::Pending;
            }
            Some(&BREAK) => return Outcome::Close,
            Some(&LARGE) => out.resize(out.len() + 65_536 - HEADER, 7),
            Some(&MIDDLE) => out.resize(out.len() + 40_960 - HEADER, 7),
            _ => {}
        }
        out.extend_from_slice(&msg[..HEADER]);
        Outcome::Replied
    }

    fn closed(&mut self, client: ClientId) {
        self.closed.push(client);
    }
}

/// The loop around a server, with a clock that the test sets.
pub(crate) struct Bench {
    pub(crate) poll: Poll,
    pub(crate) server: Server,
    pub(crate) svc: Echo,
    pub(crate) now: u64,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Bench {
        let poll = Poll::new().unwrap();
        let server = Server::new(poll.registry(), limits).unwrap();
        Bench { poll, server, svc: Echo::default(), now: 1_000_000 }
    }

    pub(crate) fn client(&mut self) -> (UnixStream, ClientId) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        theirs.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let id = self.server.insert(ours.into()).unwrap();
        (theirs, id)
    }

    /// One turn of the loop; gives back how many events there were.
    pub(crate) fn turn(&mut self) -> usize {
        let mut events = Events::with_capacity(1024);
        self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            let parts = token::unpack(event.token());
            if parts.kind == token::kind::LISTENER {
                self.server.on_listener(parts.index, self.now);
            } else {
                self.event(ClientId::new(parts.index, parts.generation), event.into());
            }
        }
        self.server.run_pending(self.now, &mut self.svc);
        if self.server.next_deadline().is_some_and(|due| due <= self.now) {
            self.server.on_time(self.now, &mut self.svc);
        }
        events.iter().count()
    }

    /// Turns until nothing happens; fails if that takes more than can be right.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.turn() == 0 && !self.server.has_pending() {
                return;
            }
        }
        panic!("the loop spins");
    }

    /// What the loop does about an event of a client.
    pub(crate) fn event(&mut self, id: ClientId, ready: Ready) {
        self.server.on_client(id, ready, self.now, &mut self.svc);
    }

    /// What it does when there are no more.
    pub(crate) fn answer_all(&mut self) {
        self.server.answer_all(self.now, &mut self.svc);
    }

    /// Who was closed.
    pub(crate) fn closed(&self) -> &[ClientId] {
        &self.svc.closed
    }

    fn answer_late(&mut self) {
        for (id, reply) in std::mem::take(&mut self.svc.pending) {
            self.server.reply(id, &reply);
        }
    }
}

/// A request of `length` bytes with a transaction id; `data` is the first byte after the header.
pub(crate) fn request(length: u16, tid: u64, data: u8) -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0, 0, 0];
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&tid.to_ne_bytes());
    bytes.resize(usize::from(length), 0);
    if let Some(first) = bytes.get_mut(HEADER) {
        *first = data;
    }
    bytes
}

pub(crate) fn tids(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(HEADER).map(|m| u64::from_ne_bytes(m[8..].try_into().unwrap())).collect()
}

pub(crate) fn read_some(client: &mut UnixStream) -> Vec<u8> {
    let mut buf = vec![0; 1 << 20];
    let count = client.read(&mut buf).unwrap();
    buf.truncate(count);
    buf
}

/// Ends a client's connection. Only closing it would not do: a child that another test makes has a copy of the descriptor
/// until it has become its program.
pub(crate) fn leave(client: UnixStream) {
    let _ = client.shutdown(Shutdown::Both);
}

/// Whether the server has closed it; a copy of its descriptor, too, may be in somebody's hands for a moment.
fn is_closed(client: &mut UnixStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let mut rest = Vec::new();
    (0..5000).any(|_| match client.read_to_end(&mut rest) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
        _ => true,
    })
}

#[test]
fn a_request_has_one_reply() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    client.write_all(&request(88, 5, 0)).unwrap();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), [5]);
    assert_eq!(bench.turn(), 0, "taking the reply must not wake the loop");
    assert_eq!(bench.server.buffered(), 0);
}

#[test]
fn a_message_in_single_bytes_is_served() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    for byte in request(592, 9, 0) {
        client.write_all(&[byte]).unwrap();
        bench.settle();
    }
    assert_eq!(tids(&read_some(&mut client)), [9]);
    assert_eq!(bench.server.buffered(), 0, "the buffer goes with the partial message");
    assert_eq!(bench.server.next_deadline(), None);
}

#[test]
fn fifty_requests_in_one_write_come_back_in_one_write() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let all: Vec<u8> = (0..50).flat_map(|tid| request(88, tid, 0)).collect();
    client.write_all(&all).unwrap();
    bench.turn();
    assert_eq!(tids(&read_some(&mut client)), (0..50).collect::<Vec<_>>());
}

#[test]
fn more_than_a_turn_allows_is_served_in_later_turns() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let count = MAX_PER_TURN as u64 * 3 + 7;
    let all: Vec<u8> = (0..count).flat_map(|tid| request(16, tid, 0)).collect();
    client.write_all(&all).unwrap();
    bench.turn();
    assert!(bench.svc.served <= 2 * MAX_PER_TURN);
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), (0..count).collect::<Vec<_>>());
    assert_eq!(bench.server.buffered(), 0);
}

#[test]
fn what_is_no_request_closes_after_the_earlier_replies() {
    let mut wrong_length = request(16, 0, 0);
    wrong_length[6..8].copy_from_slice(&593u16.to_ne_bytes());
    let mut short_length = request(16, 0, 0);
    short_length[6..8].copy_from_slice(&15u16.to_ne_bytes());
    let cases: [&[u8]; 6] = [&[0], &[2], &[1, 0], &[1, 4], &wrong_length[..8], &short_length[..8]];
    for case in cases {
        let mut bench = Bench::new();
        let (mut client, id) = bench.client();
        client.write_all(&[&request(16, 3, 0), case].concat()).unwrap();
        bench.settle();
        assert_eq!(tids(&read_some(&mut client)), [3], "{case:?}");
        assert!(is_closed(&mut client), "{case:?}");
        assert_eq!(bench.svc.closed, [id]);
        assert_eq!(bench.server.counters().closed_protocol, 1);
    }
}

#[test]
fn the_service_can_close() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    client.write_all(&[request(16, 1, 0), request(88, 2, BREAK), request(16, 3, 0)].concat()).unwrap();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), [1]);
    assert!(is_closed(&mut client));
    assert_eq!(bench.svc.served, 2);
}

#[test]
fn late_replies_come_in_the_order_of_completion() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    client.write_all(&[request(88, 1, LATE), request(88, 2, 0), request(88, 3, LATE)].concat()).unwrap();
    bench.settle();
    assert_eq!(bench.server.active(), 2);
    bench.svc.pending.reverse();
    bench.answer_late();
    assert_eq!(tids(&read_some(&mut client)), [2, 3, 1]);
    assert!(bench.server.is_quiet());
    assert!(!bench.server.has_pending());
}

#[test]
fn clients_share_what_may_be_under_way() {
    let mut bench = Bench::new();
    let mut greedy: Vec<(UnixStream, ClientId)> = (0..200).map(|_| bench.client()).collect();
    for (client, _) in &mut greedy {
        let all: Vec<u8> = (0..u64::from(MAX_IN_FLIGHT)).flat_map(|tid| request(17, tid, LATE)).collect();
        client.write_all(&all).unwrap();
    }
    bench.settle();
    let active = bench.server.active();
    assert!((MAX_ACTIVE / 2..MAX_ACTIVE + 200).contains(&active), "{active}");
    assert!(bench.server.counters().held > 0);
    // one more is read
    let (mut late, _) = bench.client();
    late.write_all(&request(17, 1, LATE)).unwrap();
    bench.settle();
    assert_eq!(bench.server.active(), active + 1);
    // and all are answered in the end
    let mut answered = 0;
    while bench.server.active() > 0 {
        answered += bench.server.active();
        bench.answer_late();
        bench.settle();
        for (client, _) in &mut greedy {
            client.set_nonblocking(true).unwrap();
            while client.read(&mut [0; 4096]).is_ok() {}
            client.set_nonblocking(false).unwrap();
        }
        bench.settle();
    }
    assert_eq!(answered, 200 * usize::from(MAX_IN_FLIGHT) + 1);
}

#[test]
fn reading_stops_at_too_many_requests_in_flight() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let count = u64::from(MAX_IN_FLIGHT) * 2 + 10;
    let all: Vec<u8> = (0..count).flat_map(|tid| request(17, tid, LATE)).collect();
    client.write_all(&all).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        bench.settle();
        assert!(bench.server.active() <= usize::from(MAX_IN_FLIGHT));
        bench.answer_late();
        seen.extend(tids(&read_some(&mut client)));
    }
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    assert_eq!(bench.server.buffered(), 0);
}

#[test]
fn a_message_cut_by_the_stop_is_not_held_against_the_client() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let mut all: Vec<u8> = (0..u64::from(MAX_IN_FLIGHT)).flat_map(|tid| request(17, tid, LATE)).collect();
    all.extend_from_slice(&request(88, 999, 0)[..20]);
    client.write_all(&all).unwrap();
    bench.settle();
    client.write_all(&request(88, 999, 0)[20..]).unwrap();
    bench.now += 2 * MESSAGE_US;
    bench.settle();
    bench.answer_late();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)).last(), Some(&999));
    assert_eq!(bench.server.counters().closed_timeout, 0);
}

#[test]
fn a_client_that_never_reads_is_bounded_and_alone() {
    let mut bench = Bench::new();
    let (mut deaf, _) = bench.client();
    let (mut other, _) = bench.client();
    deaf.set_nonblocking(true).unwrap();
    let batch: Vec<u8> = (0..512).flat_map(|tid| request(17, tid, LARGE)).collect();
    for _ in 0..200 {
        let _ = deaf.write(&batch);
        bench.settle();
        other.write_all(&request(16, 1, 0)).unwrap();
        bench.settle();
        assert_eq!(tids(&read_some(&mut other)), [1]);
        assert!(bench.server.buffered() <= 2 * MAX_OUTPUT);
    }
    assert_eq!(bench.server.clients(), 2);
    assert!(!bench.server.is_quiet());
    // It gets everything once it reads.
    let before = bench.svc.served;
    let mut got = 0;
    let mut buf = vec![0; 1 << 20];
    for _ in 0..100_000 {
        match deaf.read(&mut buf) {
            Ok(count) => got += count,
            Err(_) => bench.settle(),
        }
        if got >= 65_536 * (before + 2) {
            break;
        }
    }
    assert!(got >= 65_536 * (before + 2), "{got} bytes of {before} replies");
}

#[test]
fn late_replies_to_one_who_does_not_read_close_at_the_bound() {
    let mut bench = Bench::new();
    let (mut client, id) = bench.client();
    client.write_all(&(0..60).flat_map(|t| request(17, t, LATE)).collect::<Vec<_>>()).unwrap();
    bench.settle();
    for _ in 0..60 {
        bench.server.reply(id, &[0; 60_000]);
    }
    assert!(bench.server.has_pending());
    bench.settle();
    assert_eq!(bench.server.counters().closed_overflow, 1);
    assert_eq!((bench.server.active(), bench.server.buffered()), (0, 0));
    assert_eq!(bench.svc.closed, [id]);
}

#[test]
fn all_connections_together_are_bounded() {
    let mut bench = Bench::with(Limits { buffered: 10_000, ..Limits::default() });
    let mut clients: Vec<_> = (0..100).map(|_| bench.client()).collect();
    for (client, _) in &mut clients {
        client.write_all(&request(592, 0, 0)[..500]).unwrap();
    }
    bench.settle();
    assert!(bench.server.buffered() <= 10_000);
    assert_eq!(bench.server.counters().closed_overflow, 80);
}

#[test]
fn an_unfinished_message_has_ten_seconds() {
    let mut bench = Bench::new();
    let (mut slow, _) = bench.client();
    let (mut idle, _) = bench.client();
    slow.write_all(&request(16, 0, 0)[..1]).unwrap();
    bench.settle();
    assert_eq!(bench.server.next_deadline(), Some(bench.now + MESSAGE_US));
    bench.now += MESSAGE_US - 1;
    slow.write_all(&request(16, 0, 0)[1..2]).unwrap();
    bench.settle();
    assert_eq!(bench.server.clients(), 2, "not yet");
    bench.now += 1;
    bench.settle();
    assert!(is_closed(&mut slow));
    assert_eq!(bench.server.counters().closed_timeout, 1);
    bench.now += 1_000 * MESSAGE_US;
    bench.settle();
    idle.write_all(&request(16, 4, 0)).unwrap();
    bench.settle();
    assert_eq!(tids(&read_some(&mut idle)), [4], "an idle client is never dropped");
}

#[test]
fn a_new_partial_message_has_its_own_ten_seconds() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let message = request(16, 0, 0);
    client.write_all(&message[..8]).unwrap();
    for _ in 0..5 {
        bench.settle();
        bench.now += MESSAGE_US * 6 / 10;
        client.write_all(&[&message[8..], &message[..8]].concat()).unwrap();
    }
    bench.settle();
    assert_eq!(bench.server.counters().closed_timeout, 0);
    assert_eq!(bench.server.next_deadline(), Some(bench.now + MESSAGE_US));
}

#[test]
fn a_half_closed_client_is_answered() {
    let mut bench = Bench::new();
    let (mut client, id) = bench.client();
    client.write_all(&[request(88, 1, LATE), request(88, 2, 0), vec![1, 1]].concat()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    bench.settle();
    assert_eq!(tids(&read_some(&mut client)), [2]);
    assert_eq!(bench.server.clients(), 1);
    bench.answer_late();
    assert_eq!(tids(&read_some(&mut client)), [1]);
    bench.settle();
    assert!(is_closed(&mut client));
    assert_eq!(bench.svc.closed, [id]);
}

#[test]
fn a_client_that_leaves_is_forgotten_and_its_replies_ignored() {
    let mut bench = Bench::new();
    let (mut client, id) = bench.client();
    client.write_all(&request(88, 1, LATE)).unwrap();
    bench.settle();
    leave(client);
    bench.settle();
    assert_eq!(bench.svc.closed, [id]);
    assert_eq!(bench.server.active(), 0);
    let (mut heir, heir_id) = bench.client();
    assert_eq!(heir_id.index, id.index);
    bench.answer_late();
    heir.set_nonblocking(true).unwrap();
    assert!(heir.read(&mut [0; 16]).is_err(), "a reply meant for somebody else");
    for _ in 0..1_000 {
        let (mut client, _) = bench.client();
        client.write_all(&request(88, 1, 0)[..50]).unwrap();
        leave(client);
        bench.settle();
    }
    assert_eq!((bench.server.clients(), bench.server.buffered()), (1, 0));
    assert_eq!(bench.server.next_deadline(), None);
}

#[test]
fn draining_answers_what_was_sent_and_takes_no_more() {
    let mut bench = Bench::new();
    let (mut client, _) = bench.client();
    let (mut unread, _) = bench.client();
    let (mut idle, _) = bench.client();
    let (mut slow, _) = bench.client();
    client.write_all(&request(88, 1, LATE)).unwrap();
    bench.settle();
    client.write_all(&request(88, 2, 0)).unwrap();
    unread.write_all(&request(88, 3, 0)).unwrap();
    slow.write_all(&request(88, 4, 0)[..40]).unwrap();
    bench.server.drain();
    assert!(!bench.server.is_quiet());
    assert!(client.write_all(&request(88, 5, 0)).is_err(), "the client is told");
    bench.settle();
    assert!(!bench.server.is_quiet());
    assert_eq!(tids(&read_some(&mut unread)), [3]);
    assert!(is_closed(&mut unread) && is_closed(&mut idle) && is_closed(&mut slow));
    bench.answer_late();
    bench.settle();
    assert!(bench.server.is_quiet());
    assert_eq!(tids(&read_some(&mut client)), [2, 1]);
    assert!(is_closed(&mut client));
    assert_eq!(bench.server.clients(), 0);
}
