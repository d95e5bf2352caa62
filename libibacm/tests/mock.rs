//! The client against services that are dead, hung, slow, lying or restarting.

mod support;

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibacm_wire::client::{Entry, FLAG_QUERY_SA};
use libibacm::{Error, PathRecord, Request, Scope, Session, Status, Violation};
use support::{LIMIT, Place, answer, ask, good, ip, one_by_one, record, refusal, request};

#[test]
fn nobody_there_is_said_at_once_with_advice() {
    let place = Place::new();
    let begin = Instant::now();
    let error = ask(&place.client(), 1).unwrap_err();
    assert_eq!(error.errno(), Some(2), "{error}");
    assert!(error.to_string().contains("start the ibacm service"), "{error}");
    // A file that nobody listens at.
    drop(UnixListener::bind(&place.0).unwrap());
    assert_eq!(ask(&place.client(), 1).unwrap_err().errno(), Some(111));
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_hung_service_costs_the_time_limit() {
    let place = Place::new();
    let (hold, _held) = mpsc::sync_channel::<UnixStream>(100);
    place.serve(move |s| hold.send(s).map_err(io::Error::other));
    let client = place.client().with_limit(Duration::from_millis(200));
    for _ in 0..2 {
        let begin = Instant::now();
        assert!(matches!(ask(&client, 1), Err(Error::TimedOut)));
        assert!((200..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_listener_that_accepts_nobody_costs_the_time_limit() {
    let place = Place::new();
    let _listener = UnixListener::bind(&place.0).unwrap();
    // The queue is filled; whoever comes then would wait in connect(2).
    let mut queue: Vec<Session> = Vec::new();
    loop {
        let mut session = Session::new(place.target());
        let request = Request::Resolve { source: None, destination: ip(1), cached_only: false };
        session.submit(request, Instant::now() + LIMIT).unwrap();
        session.on_ready();
        if session.fd().is_none() {
            break;
        }
        queue.push(session);
        assert!(queue.len() < 10_000);
    }
    let begin = Instant::now();
    assert!(matches!(ask(&place.client().with_limit(Duration::from_millis(200)), 1), Err(Error::TimedOut)));
    assert!((200..5000).contains(&begin.elapsed().as_millis()));
}

#[test]
fn replies_may_come_a_byte_at_a_time() {
    let place = Place::new();
    place.serve(|mut s| {
        let reply = answer(&request(&mut s)?);
        reply.iter().try_for_each(|b| {
            thread::sleep(Duration::from_millis(1));
            s.write_all(&[*b])
        })
    });
    assert_eq!(ask(&place.client(), 7).unwrap(), 7);
}

#[test]
fn a_late_reply_is_not_that_of_the_next_request() {
    let place = Place::new();
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            if record(&request).dlid() == 1 {
                thread::sleep(Duration::from_millis(1500));
            }
            s.write_all(&answer(&request))?;
        }
    });
    let client = place.client().with_limit(Duration::from_millis(1000));
    assert!(matches!(ask(&client, 1), Err(Error::TimedOut)));
    thread::sleep(Duration::from_millis(700));
    assert_eq!(ask(&client, 2).unwrap(), 2);
}

#[test]
fn lies_are_told_apart_and_end_the_connection() {
    type Lie = (fn(&mut Vec<u8>), fn(Violation) -> bool);
    let lies: [Lie; 9] = [
        (|r| r[0] = 2, |v| v == Violation::Version(2)),
        (|r| r[1] = 0x8f, |v| v == Violation::Opcode(0x8f)),
        (|r| (r[1], r[6], r[7]) = (0x82, 0, 88), |v| v == Violation::Opcode(0x82)),
        (|r| r[6..8].copy_from_slice(&15_u16.to_ne_bytes()), |v| v == Violation::Length(15)),
        (|r| r[6..8].copy_from_slice(&16_u16.to_ne_bytes()), |v| v == Violation::Length(16)),
        (|r| r[6..8].copy_from_slice(&60_000_u16.to_ne_bytes()), |v| v == Violation::Length(60_000)),
        (|r| r[8] ^= 1, |v| v == Violation::Transaction),
        (|r| r[20..22].copy_from_slice(&1_u16.to_ne_bytes()), |v| matches!(v, Violation::Contents(_))),
        (
            |r| {
                r.extend_from_slice(&[0; 72]);
                r[6..8].copy_from_slice(&160_u16.to_ne_bytes());
            },
            |v| matches!(v, Violation::Contents(_)),
        ),
    ];
    for (i, (lie, wanted)) in lies.into_iter().enumerate() {
        let place = Place::new();
        place.serve(move |mut s| {
            loop {
                let request = request(&mut s)?;
                let mut reply = answer(&request);
                if record(&request).dlid() == 1 {
                    lie(&mut reply);
                }
                s.write_all(&reply)?;
            }
        });
        let client = place.client();
        match ask(&client, 1) {
            Err(Error::Protocol(v)) => assert!(wanted(v), "lie {i}: {v:?}"),
            other => panic!("lie {i}: {other:?}"),
        }
        assert_eq!(ask(&client, 2).unwrap(), 2, "lie {i}: the next request is not hurt");
    }
}

#[test]
fn statuses_are_answers() {
    let place = Place::new();
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            let mut reply = refusal(&request, Status::Enodata);
            if Entry::read(&request, 0).is_some_and(|e| e.flags & FLAG_QUERY_SA != 0) {
                // The way of some services: the request comes back.
                reply[6..8].copy_from_slice(&88_u16.to_ne_bytes());
                reply.extend_from_slice(&request[16..]);
            }
            s.write_all(&reply)?;
        }
    });
    let client = place.client();
    let mut record = PathRecord::default();
    record.set_dlid(9);
    for error in [ask(&client, 1).unwrap_err(), client.query_path(&record).unwrap_err()] {
        assert_eq!((error.status(), error.errno()), (Some(Status::Enodata), None));
    }
    // What cannot be asked is not sent.
    assert!(matches!(client.resolve_path(&PathRecord::default()), Err(Error::Request(_))));
    assert!(matches!(client.resolve_name(None, &"n".repeat(64)), Err(Error::Request(_))));
    assert!(matches!(client.counters(Scope::Endpoint(0)), Err(Error::Request(_))));
}

#[test]
fn a_service_that_always_closes_is_given_up() {
    let place = Place::new();
    let connections = place.serve(|mut s| request(&mut s).map(drop));
    let error = ask(&place.client(), 1).unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[test]
fn a_restart_is_not_seen() {
    let place = Place::new();
    let listener = UnixListener::bind(&place.0).unwrap();
    let path = place.0.clone();
    let service = thread::spawn(move || {
        let (mut s, _) = listener.accept()?;
        let first = request(&mut s)?;
        s.write_all(&answer(&first))?;
        // The second is lost with the connection, and the service is away for a moment.
        request(&mut s)?;
        drop((s, listener));
        std::fs::remove_file(&path)?;
        thread::sleep(Duration::from_millis(200));
        let listener = UnixListener::bind(&path)?;
        let (s, _) = listener.accept()?;
        good(s)
    });
    let client = place.client();
    for n in 1..4 {
        assert_eq!(ask(&client, n).unwrap(), n);
    }
    drop(client);
    assert_eq!(service.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn many_are_answered_whatever_the_service_reads_at_once() {
    let services: [fn(UnixStream) -> io::Result<()>; 2] = [good, one_by_one];
    for (i, service) in services.into_iter().enumerate() {
        let place = Place::new();
        let connections = place.serve(service);
        let destinations: Vec<_> = (0..600).map(ip).collect();
        let mut seen = vec![0; destinations.len()];
        let client = place.client();
        for round in 1..3 {
            client.resolve_many(None, &destinations, |n, path| {
                assert_eq!(usize::from(path.unwrap().record.dlid()), n);
                seen[n] += 1;
            });
            assert!(seen.iter().all(|s| *s == round));
        }
        // The trial costs one connection, once.
        assert_eq!(connections.load(Ordering::Relaxed), i + 1);
    }
}

#[test]
fn threads_share_a_client() {
    for service in [good as fn(UnixStream) -> io::Result<()>, one_by_one] {
        let place = Place::new();
        place.serve(service);
        let client = place.client();
        thread::scope(|scope| {
            for t in 0..8 {
                let client = &client;
                scope.spawn(move || (0..50).for_each(|n| assert_eq!(ask(client, t * 100 + n).unwrap(), t * 100 + n)));
            }
        });
    }
}

#[test]
fn results_come_to_an_event_loop() {
    let place = Place::new();
    place.serve(good);
    let mut session = Session::new(place.target());
    let deadline = Instant::now() + LIMIT;
    assert_eq!((session.fd(), session.deadline(), session.pending()), (None, None, 0));
    let mut tickets: Vec<_> = (0..100)
        .map(|n| {
            let request = Request::Resolve { source: None, destination: ip(n), cached_only: false };
            session.submit(request, deadline).unwrap()
        })
        .collect();
    while session.pending() > 0 {
        assert!(Instant::now() < deadline && session.deadline() <= Some(deadline));
        session.on_ready();
        while let Some((ticket, result)) = session.next_result() {
            result.unwrap();
            tickets.retain(|t| *t != ticket);
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(tickets.is_empty() && session.pipelines());
}
