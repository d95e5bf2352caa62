//! Stopped and started again while it is used: no request that the service has taken is without an answer.

#[path = "util/manager.rs"]
mod manager;
mod util;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ibacm_wire::client::{FLAG_QUERY_SA, HDR_LEN, Header, resolve_request};
use manager::{Managed, Notify, start, stream_socket};
use util::client::{between, to_lid};
use util::{Client, Lab, PATIENCE, Shared};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

const CLIENTS: usize = 50;

fn managed(lab: &Lab<'_>, listener: &OwnedFd, options: &str) -> (Managed, Notify) {
    let _ = fs::remove_file(lab.file("H1", "/etc/rdma/ibacm_addr.cfg"));
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", options);
    let mut notify = Notify::new(lab, "H1");
    let copy = listener.as_fd().try_clone_to_owned().expect("descriptors are not rare");
    let service = start(lab, "H1", vec![copy], &[]);
    notify.wait("READY=1\n");
    (service, notify)
}

/// What a client has seen.
#[derive(Debug, Default)]
struct Seen {
    answered: usize,
    connections: usize,
    /// Requests that the service's side took, without an answer.
    lost: usize,
}

/// Asks again and again until it is told to stop, with a new connection when the service has gone.
fn ask_on(path: &Path, stop: &AtomicUsize, answered: &AtomicUsize) -> Seen {
    let mut seen = Seen::default();
    let (request, length) = resolve_request(5, &between("10.77.0.1", "10.77.0.1"));
    let mut reply = [0; HDR_LEN + 72];
    'connect: while stop.load(Ordering::Relaxed) == 0 {
        // The socket is there all the time.
        let mut stream = UnixStream::connect(path).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        seen.connections += 1;
        while stop.load(Ordering::Relaxed) == 0 {
            if stream.write_all(&request[..length]).is_err() {
                // Not taken: to be asked again elsewhere.
                continue 'connect;
            }
            if stream.read_exact(&mut reply).is_err() {
                seen.lost += 1;
                continue 'connect;
            }
            assert_eq!(Header::read(&reply).unwrap().status, 0);
            seen.answered += 1;
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    seen
}

#[test]
fn fifty_clients_lose_nothing() {
    let lab = SUBNET.enter();
    let listener = stream_socket(&lab, "H1");
    let path = lab.file("H1", "/run/ibacm-unix.sock");
    let (stop, answered) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; CLIENTS]);
    let (mut service, _) = managed(&lab, &listener, "");
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let (path, stop) = (&path, &stop);
        let clients: Vec<_> = answered.iter().map(|own| scope.spawn(move || ask_on(path, stop, own))).collect();
        let counts = || answered.each_ref().map(|own| own.load(Ordering::Relaxed));
        // Of every client: on a busy machine one alone could miss a whole service.
        let more = |what: &str| {
            let (begin, before) = (Instant::now(), counts());
            while counts().iter().zip(before).any(|(now, before)| *now < before + 20) {
                if begin.elapsed() > PATIENCE {
                    stop.store(1, Ordering::Relaxed);
                    panic!("nothing is answered {what}");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        for round in 0..4 {
            more("while it runs");
            assert_eq!(service.stop(), Some(0), "{}", service.said());
            if round == 2 {
                // With nobody there, clients wait in the socket.
                std::thread::sleep(Duration::from_millis(300));
            }
            service = managed(&lab, &listener, "").0;
        }
        more("at the end");
        stop.store(1, Ordering::Relaxed);
        clients.into_iter().map(|c| c.join().expect("no client fails")).collect()
    });
    let lost: usize = seen.iter().map(|s| s.lost).sum();
    let least = seen.iter().map(|s| s.connections).min().unwrap();
    assert_eq!(lost, 0, "{seen:?}");
    assert!(least >= 4 && seen.iter().all(|s| s.answered > 0), "every client lives through restarts: {seen:?}");
    assert_eq!(service.stop(), Some(0));
}

/// Fifty clients, each with an open question to the subnet administrator.
fn waiting(lab: &Lab<'_>) -> Vec<Client> {
    let [two] = lab.hosts(["H2"]);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(lab, "H1")).collect();
    for client in &mut clients {
        client.ask(&[to_lid(FLAG_QUERY_SA, two.lid)]);
    }
    clients
}

#[test]
fn answers_on_their_way_are_waited_for() {
    let lab = SUBNET.enter();
    let listener = stream_socket(&lab, "H1");
    let (mut service, mut notify) = managed(&lab, &listener, "sa_depth 64\n");
    lab.inject("sa delay host=H1 attr=0x35 ms=400").unwrap();
    let mut clients = waiting(&lab);
    // At once: most requests have not even been read.
    service.signal("TERM");
    notify.wait("STOPPING=1\n");
    let [two] = lab.hosts(["H2"]);
    for client in &mut clients {
        assert_eq!(client.recv().expect("an answer").path().dlid(), two.lid);
        assert!(client.recv().is_none(), "the connection ends after it");
    }
    assert_eq!(service.wait(), Some(0), "{}", service.said());
}

#[test]
fn what_takes_too_long_is_refused() {
    let lab = SUBNET.enter();
    let listener = stream_socket(&lab, "H1");
    let (mut service, _notify) = managed(&lab, &listener, "sa_depth 64\n");
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    let mut clients = waiting(&lab);
    let begin = Instant::now();
    service.signal("TERM");
    for client in &mut clients {
        assert_ne!(client.recv().expect("an answer").header.status, 0);
    }
    assert_eq!(service.wait(), Some(0), "{}", service.said());
    let took = begin.elapsed();
    // The SA's silence would take six seconds.
    assert!((Duration::from_millis(1500)..Duration::from_millis(5500)).contains(&took), "{took:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let lab = SUBNET.enter();
    let listener = stream_socket(&lab, "H1");
    let (mut service, mut notify) = managed(&lab, &listener, "sa_depth 64\n");
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    let mut clients = waiting(&lab);
    service.signal("INT");
    notify.wait("STOPPING=1\n");
    let begin = Instant::now();
    service.signal("INT");
    assert_eq!(service.wait(), Some(0), "{}", service.said());
    // Without it, it would wait for two seconds.
    assert!(begin.elapsed() < Duration::from_millis(1800));
    for client in &mut clients {
        assert_ne!(client.recv().expect("even so everybody is told").header.status, 0);
    }
}
