//! Clients at random: whoever stays gets each reply once, those given at once in order, and the books are right.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mio::Events;

use super::tests::{BREAK, Bench, LARGE, LATE, MIDDLE, leave, request};
use super::*;
use crate::keyed::{Rng, SipKey};

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64) as usize
}

struct Client {
    socket: Option<UnixStream>,
    to_send: Vec<u8>,
    sent: usize,
    /// What each request asks for, and where it ends.
    requests: Vec<(u8, usize)>,
    got: Vec<u8>,
    ended: bool,
}

impl Client {
    fn new(bench: &mut Bench, rng: &mut Rng, number: usize) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).unwrap();
            sock::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << (10 + below(rng, 8))).unwrap();
        }
        bench.server.insert(ours.into()).unwrap();
        let (mut to_send, mut requests, lates) = (Vec::new(), Vec::new(), [0, 40, 200][below(rng, 3)]);
        for tid in 0..below(rng, 400) {
            let kind = match below(rng, 200) {
                0 => LARGE,
                1 | 2 => MIDDLE,
                3 if below(rng, 3) == 0 => BREAK,
                n if n < 4 + lates => LATE,
                _ => 0,
            };
            let length = 17 + below(rng, 4) / 3 * below(rng, 576);
            to_send.extend(request(length as u16, (number << 16 | tid) as u64, kind));
            requests.push((kind, to_send.len()));
            if kind == BREAK {
                break;
            }
        }
        Client { socket: Some(theirs), to_send, sent: 0, requests, got: Vec::new(), ended: false }
    }

    /// Sends and takes no more than this; gives back how far it is.
    fn go_on(&mut self, send: usize, take: usize) -> usize {
        let Some(socket) = &mut self.socket else { return 0 };
        let end = self.to_send.len().min(self.sent + send);
        self.sent += socket.write(&self.to_send[self.sent..end]).unwrap_or(0);
        let mut buf = vec![0; take];
        match socket.read(&mut buf) {
            Ok(count) => {
                self.ended |= count == 0 && take > 0;
                self.got.extend_from_slice(&buf[..count]);
            }
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
        self.sent + self.got.len() + usize::from(self.ended)
    }

    fn check(&self, number: usize, drained: bool) {
        let (mut at_once, mut late, mut rest) = (Vec::new(), Vec::new(), &self.got[..]);
        while !rest.is_empty() {
            let filler = rest.iter().take_while(|b| **b == 7).count();
            let tid = u64::from_ne_bytes(rest[filler + 8..filler + HEADER].try_into().unwrap()) as usize;
            assert_eq!(tid >> 16, number, "somebody else's");
            let kind = self.requests[tid & 0xffff].0;
            let expected = [0, filler, 1, 65_536 - HEADER, 40_960 - HEADER][usize::from(kind)];
            assert_eq!(filler, expected);
            if kind == LATE { &mut late } else { &mut at_once }.push(tid & 0xffff);
            rest = &rest[filler + HEADER..];
        }
        late.sort_unstable();
        let sent = (0..).zip(&self.requests).take_while(|(_, r)| r.1 <= self.sent && r.0 != BREAK);
        let (wanted_late, wanted): (Vec<_>, Vec<_>) = sent.partition(|(_, r)| r.0 == LATE);
        assert!(at_once.iter().eq(wanted.iter().map(|(tid, _)| tid)), "{number}: {at_once:?}");
        let breaks = self.requests.last().is_some_and(|r| r.0 == BREAK && r.1 <= self.sent);
        assert!(breaks || late.iter().eq(wanted_late.iter().map(|(tid, _)| tid)), "{number}: {late:?}");
        assert_eq!(self.ended, breaks || drained);
    }
}

fn check_books(server: &mut Server) {
    let (mut active, mut unwritten, mut buffered) = (0, 0, 0);
    for id in server.slots.ids() {
        let conn = server.slots.get_mut(id).unwrap();
        active += usize::from(conn.in_flight);
        unwritten += usize::from(conn.wants_write());
        buffered += conn.buffered();
        assert_eq!(conn.queued, server.again.contains(&id));
    }
    assert_eq!((active, unwritten, buffered), (server.active, server.unwritten, server.buffered));
    assert!(server.taken.is_empty() && server.out.is_empty());
}

fn late(bench: &mut Bench, rng: &mut Rng, most: usize) {
    for _ in 0..below(rng, most).min(bench.svc.pending.len()) {
        let place = below(rng, bench.svc.pending.len());
        let (id, reply) = bench.svc.pending.swap_remove(place);
        bench.server.reply(id, &[vec![7; below(rng, 4) / 3 * below(rng, 500)], reply].concat());
    }
}

fn run(seed: u64) {
    let (mut bench, mut rng) = (Bench::new(), Rng::new(SipKey(seed, 0)));
    let mut clients: Vec<Client> = (0..=below(&mut rng, 90)).map(|n| Client::new(&mut bench, &mut rng, n)).collect();
    let drain = if seed.is_multiple_of(2) { 0 } else { 1 + below(&mut rng, 60) };
    let (mut before, mut idle) = (0, 0);
    for step in 1.. {
        assert!(step < 20_000, "no end");
        let wild = step < 60 && (drain == 0 || step < drain);
        let mut most = |size: usize| if step > 60 { size } else { below(&mut rng, 2) * below(&mut rng, 1 + size) };
        let after = clients.iter_mut().map(|c| c.go_on(most(1 << 16), most(1 << 17))).sum();
        let mut events = Events::with_capacity(256);
        bench.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            let parts = token::unpack(event.token());
            bench.event(ClientId::new(parts.index, parts.generation), event.into());
            assert!(bench.server.taken.len() < TOGETHER && bench.server.out.len() < READ_BUFFER / 2);
            late(&mut bench, &mut rng, if wild { 6 } else { 2 });
            let place = below(&mut rng, clients.len());
            match below(&mut rng, 60) {
                0 if wild => clients[place].socket.take().into_iter().for_each(leave),
                1 => bench.answer_all(),
                2 if wild => clients.push(Client::new(&mut bench, &mut rng, clients.len())),
                _ => {}
            }
        }
        bench.server.run_pending(bench.now, &mut bench.svc);
        check_books(&mut bench.server);
        late(&mut bench, &mut rng, 16);
        if step == drain {
            bench.server.drain();
        }
        let busy = !events.is_empty() || !bench.svc.pending.is_empty() || bench.server.has_pending();
        idle = if busy || before != after || step < 60 { 0 } else { idle + 1 };
        before = after;
        if idle == 3 {
            break;
        }
    }
    assert!(bench.server.is_quiet());
    assert_eq!((bench.server.active(), bench.server.buffered(), bench.server.next_deadline()), (0, 0, None));
    clients.iter().zip(0..).filter(|(c, _)| c.socket.is_some()).for_each(|(c, n)| c.check(n, drain > 0));
    assert_eq!(bench.server.clients(), clients.iter().filter(|c| c.socket.is_some() && !c.ended).count());
}

#[test]
fn clients_at_random_get_what_they_asked_for() {
    let many = std::env::var("SEEDS").map_or(10, |s| s.parse().unwrap());
    (0..many).for_each(run);
}
