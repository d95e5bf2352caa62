//! Clients whose requests came together: read first, then answered.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::tests::{BREAK, Bench, LATE, MIDDLE, read_some, request, tids};
use super::*;

const READABLE: Ready = Ready { readable: true, writable: false, read_closed: false, gone: false };

/// Clients that have each sent a request, whose transaction id is their place.
fn asking(bench: &mut Bench, count: usize) -> Vec<(UnixStream, ClientId)> {
    let mut clients: Vec<_> = (0..count).map(|_| bench.client()).collect();
    for (tid, (client, _)) in (0..).zip(&mut clients) {
        client.set_nonblocking(true).unwrap();
        client.write_all(&request(88, tid, 0)).unwrap();
    }
    clients
}

fn has_nothing(client: &mut UnixStream) -> bool {
    client.read(&mut [0; 64]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn clients_are_read_before_they_are_answered() {
    let mut bench = Bench::new();
    let mut clients = asking(&mut bench, TOGETHER + 1);
    for (_, id) in &clients[..TOGETHER - 1] {
        bench.event(*id, READABLE);
    }
    assert!(clients.iter_mut().all(|(client, _)| has_nothing(client)));
    bench.event(clients[TOGETHER - 1].1, READABLE);
    for (tid, (client, _)) in (0..).zip(&mut clients[..TOGETHER]) {
        assert_eq!(tids(&read_some(client)), [tid]);
    }
    let (last, id) = &mut clients[TOGETHER];
    bench.event(*id, READABLE);
    assert!(has_nothing(last));
    bench.answer_all();
    assert_eq!(tids(&read_some(last)), [TOGETHER as u64]);
}

#[test]
fn replies_that_became_many_are_not_kept_waiting() {
    let mut bench = Bench::new();
    let mut clients = asking(&mut bench, 3);
    for (client, _) in &mut clients[1..] {
        client.write_all(&request(88, 7, MIDDLE)).unwrap();
    }
    bench.event(clients[0].1, READABLE);
    bench.event(clients[1].1, READABLE);
    assert!(has_nothing(&mut clients[0].0));
    bench.event(clients[2].1, READABLE);
    assert_eq!(tids(&read_some(&mut clients[0].0)), [0]);
    for (client, _) in &mut clients[1..] {
        assert_eq!(read_some(client).len(), HEADER + 40_960);
    }
}

#[test]
fn who_leaves_after_being_read_takes_nobodys_reply_along() {
    let mut bench = Bench::new();
    let mut clients = asking(&mut bench, 3);
    for (_, id) in &clients {
        bench.event(*id, READABLE);
    }
    let (gone, id) = clients.remove(1);
    drop(gone);
    bench.event(id, Ready { gone: true, ..READABLE });
    // its place is another's now
    let (mut new, _) = bench.client();
    bench.answer_all();
    assert_eq!(bench.closed(), [id]);
    assert_eq!(tids(&read_some(&mut clients[0].0)), [0]);
    assert_eq!(tids(&read_some(&mut clients[1].0)), [2]);
    new.set_nonblocking(true).unwrap();
    assert!(has_nothing(&mut new));
}

#[test]
fn who_breaks_the_protocol_is_closed_behind_its_earlier_replies_and_alone() {
    let mut bench = Bench::new();
    let mut clients = asking(&mut bench, 3);
    clients[1].0.write_all(&request(88, 8, BREAK)).unwrap();
    for (_, id) in &clients {
        bench.event(*id, READABLE);
    }
    bench.answer_all();
    assert_eq!(bench.closed(), [clients[1].1]);
    for (tid, (client, _)) in (0..).zip(&mut clients) {
        assert_eq!(tids(&read_some(client)), [tid]);
    }
    assert_eq!(clients[1].0.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(bench.server.clients(), 2);
}

/// One that is between the halves of its turn when a late reply of more than the socket takes comes, and than may be kept.
fn doomed(bench: &mut Bench) -> UnixStream {
    let (mut client, id) = bench.client();
    client.set_nonblocking(true).unwrap();
    client.write_all(&[request(88, 1, LATE), request(88, 2, 0)].concat()).unwrap();
    bench.event(id, READABLE);
    bench.server.reply(id, &[9; 1_000_000]);
    client
}

#[test]
fn nothing_follows_a_part_of_a_late_reply() {
    let mut bench = Bench::with(Limits { buffered: 100_000, ..Limits::default() });
    let mut client = doomed(&mut bench);
    let (mut all, mut part) = (0, vec![0; 1 << 20]);
    while let Ok(count) = client.read(&mut part) {
        all += count;
    }
    assert!(all > 0 && all < 1_000_000);
    bench.answer_all();
    assert_eq!(client.read(&mut part).unwrap(), 0, "the end, and nothing before it");
}

#[test]
fn who_does_not_take_a_late_reply_is_closed_at_once() {
    let mut bench = Bench::with(Limits { buffered: 100_000, ..Limits::default() });
    let _client = doomed(&mut bench);
    bench.settle();
    assert_eq!((bench.server.clients(), bench.server.is_quiet()), (0, true));
}

#[test]
fn nothing_is_over_while_somebody_is_to_be_answered() {
    let mut bench = Bench::new();
    let clients = asking(&mut bench, 1);
    bench.event(clients[0].1, READABLE);
    assert!(bench.server.has_pending() && !bench.server.is_quiet());
    bench.settle();
    assert!(bench.server.is_quiet());
}
