//! Where services are, what they answer besides paths, and time limits of some among many.

mod support;

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use ibacm_wire::client::{Header, OP_ACK};
use libibacm::{Client, Endpoint, Error, Name, Request, Scope, Status, Target, Violation};
use support::{LIMIT, Place, answer, ask, good, ip, record, request};

#[test]
fn services_are_found_over_tcp_too() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut bytes = [0; 88];
        stream.read_exact(&mut bytes)?;
        stream.write_all(&answer(&bytes))
    });
    let target = Target::parse(&address.to_string()).unwrap();
    assert_eq!(target, Target::Tcp(address));
    let client = Client::new(target).with_limit(LIMIT);
    assert_eq!(ask(&client, 3).unwrap(), 3);
    service.join().unwrap().unwrap();
    // Gone, and not back in the time that a restart may take.
    let begin = Instant::now();
    assert_eq!(ask(&client, 4).unwrap_err().errno(), Some(111));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[test]
fn places_are_told_apart() {
    assert_eq!(Target::parse("").unwrap(), Target::Published);
    assert_eq!(Target::parse("./a.sock").unwrap(), Target::Unix("./a.sock".into()));
    assert_eq!(Target::parse("10.0.0.1").unwrap(), Target::Tcp("10.0.0.1:6125".parse().unwrap()));
    assert_eq!(Target::parse("fd77::1").unwrap(), Target::Tcp("[fd77::1]:6125".parse().unwrap()));
    assert_eq!(Target::parse("[fd77::1]:99").unwrap(), Target::Tcp("[fd77::1]:99".parse().unwrap()));
    assert!(Target::parse("10.0.0.1:nothing").is_err());
    let long = Client::new(Target::parse(&format!("/{}", "x".repeat(200))).unwrap());
    assert!(matches!(ask(&long, 1), Err(Error::Transport { .. })));
}

#[test]
fn endpoints_and_counters_are_as_long_as_they_say() {
    // Network order throughout; the number asked for says which lie is told.
    let place = Place::new();
    place.serve(|mut s| {
        loop {
            let mut bytes = [0; 16];
            s.read_exact(&mut bytes)?;
            let header = Header::read(&bytes).expect("16 bytes");
            let (mut data, body) = if header.opcode == 2 {
                let count = if header.data[1] == 2 { 6 } else { 7 };
                ([count, 0, 0], (1..8_u64).flat_map(u64::to_be_bytes).collect::<Vec<_>>())
            } else {
                let mut body = vec![0; 80 + 2 * 64];
                body[..8].copy_from_slice(&0x1234_u64.to_be_bytes());
                (body[8], body[9], body[15]) = (header.data[1].max(1), 2, if header.data[0] == 2 { 3 } else { 2 });
                body[12..14].copy_from_slice(&0xffff_u16.to_be_bytes());
                body[16..21].copy_from_slice(b"ibacm");
                body[80..82].copy_from_slice(b"n1");
                // The last is not closed by a zero, and no UTF-8.
                body[144..].fill(0xff);
                ([1, 0, 0], body)
            };
            let status = if header.data[0] == 3 { Status::Einval as u8 } else { 0 };
            let body = if status == 0 { body } else { Vec::new() };
            if status != 0 {
                data = [0; 3];
            }
            let length = 16 + body.len() as u16;
            let reply = Header { opcode: header.opcode | OP_ACK, status, data, length, ..header };
            s.write_all(&[reply.emit().to_vec(), body].concat())?;
        }
    });
    let client = place.client();
    let counters = client.counters(Scope::Totals).unwrap();
    assert_eq!((counters.error, counters.addr_cache, counters.route_cache), (1, 5, 7));
    assert!(matches!(client.counters(Scope::Endpoint(2)), Err(Error::Protocol(Violation::Length(72)))));
    let endpoint = client.endpoint(1).unwrap();
    assert_eq!((endpoint.device_guid, endpoint.port, endpoint.ports, endpoint.pkey), (0x1234, 1, 2, 0xffff));
    assert!(endpoint.provider == "ibacm" && endpoint.addresses == ["n1".into(), Name::from(&[0xff; 64][..])]);
    assert_eq!(client.endpoint_of_port(1, 2).unwrap(), Endpoint { port: 2, ..endpoint });
    assert!(matches!(client.endpoint(2), Err(Error::Protocol(Violation::Length(_)))));
    assert_eq!(client.endpoint(3).unwrap_err().status(), Some(Status::Einval));
}

#[test]
fn what_expires_does_not_hold_up_the_rest() {
    let place = Place::new();
    // Requests in one read are read one by one, and one of them is never answered.
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            if record(&request).dlid() != 50 {
                s.write_all(&answer(&request))?;
            }
        }
    });
    // Enough for those that are answered.
    let client = place.client().with_limit(Duration::from_secs(2));
    let destinations: Vec<_> = (0..100).map(ip).collect();
    let mut late = Vec::new();
    client.resolve_many(None, &destinations, |i, path| match path {
        Ok(path) => assert_eq!(usize::from(path.record.dlid()), i),
        Err(e) => late.push((i, e.errno())),
    });
    assert_eq!(late, [(50, Some(110))]);
    assert_eq!(ask(&client, 51).unwrap(), 51);
}

#[test]
fn any_bytes_are_an_error_in_time() {
    let place = Place::new();
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            let seed = u64::from(record(&request).dlid());
            let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            // From nothing but noise to a reply with one byte that is wrong.
            let mut reply = answer(&request);
            if seed % 4 == 0 {
                reply.iter_mut().for_each(|b| *b = next() as u8);
            } else {
                let at = next() as usize % 24;
                reply[at] ^= 1 << (next() % 8);
                reply.resize(next() as usize % 200, 0);
            }
            s.write_all(&reply)?;
        }
    });
    let client = place.client().with_limit(Duration::from_millis(30));
    let begin = Instant::now();
    let answered = (0..300).filter(|n| ask(&client, *n).is_ok()).count();
    assert!(answered < 300, "some of them are wrong");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn callers_may_ask_while_they_are_asked_for_more() {
    let place = Place::new();
    place.serve(good);
    let client = place.client();
    let requests = (0..300).map(|n| {
        assert_eq!(ask(&client, n).unwrap(), n);
        Request::Resolve { source: None, destination: ip(n), cached_only: false }
    });
    let mut answered = 0;
    client.many(requests, |i, reply| {
        reply.unwrap();
        assert_eq!(ask(&client, i as u16).unwrap(), i as u16);
        answered += 1;
    });
    assert_eq!(answered, 300);
}
