//! Connecting: at once, to sockets that take their time or nobody at all, and to hosts with several addresses.

mod support;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use libibacm::{ACME_PORT_FILE, ACME_SOCKET_FILE, Client, DEFAULT_PORT, During, Error, Target, published_port_in};
use support::{LIMIT, Place, answer, ask, good, ip, request};

/// Answers whoever comes over TCP, until the test ends.
fn serve_tcp(listener: TcpListener) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || -> io::Result<()> {
                let mut bytes = [0; 88];
                loop {
                    stream.read_exact(&mut bytes)?;
                    stream.write_all(&answer(&bytes))?;
                }
            });
        }
    });
    address
}

/// An address of this host that nobody listens at. No other test's listener gets the port of this IP address.
fn deserted() -> SocketAddr {
    TcpListener::bind("127.0.0.77:0").unwrap().local_addr().unwrap()
}

/// A listener whose queue is full, so that it answers no connection, and what fills it.
fn full() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        queue.push(stream);
        assert!(queue.len() < 1000, "the queue is bounded");
    }
    (address, listener, queue)
}

fn errno_of(target: Target, limit: Duration) -> Option<i32> {
    match Client::new(target).with_limit(limit).connect() {
        Err(Error::Transport { during: During::Connect, source }) => source.raw_os_error(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_to_connect_is_the_systems_own() {
    let place = Place::new();
    let begin = Instant::now();
    assert_eq!(errno_of(place.target(), LIMIT), Some(libc::ENOENT));
    drop(UnixListener::bind(&place.0).unwrap());
    assert_eq!(errno_of(place.target(), LIMIT), Some(libc::ECONNREFUSED));
    assert_eq!(errno_of(Target::Unix(place.0.join("below")), LIMIT), Some(libc::ENOTDIR));
    assert_eq!(errno_of(Target::Unix(format!("/{}", "x".repeat(200)).into()), LIMIT), Some(libc::ENAMETOOLONG));
    assert_eq!(errno_of(Target::Tcp(deserted()), LIMIT), Some(libc::ECONNREFUSED));
    assert_eq!(errno_of(Target::AnyOf(vec![deserted(), deserted()]), LIMIT), Some(libc::ECONNREFUSED));
    assert_eq!(errno_of(Target::AnyOf(Vec::new()), LIMIT), Some(libc::EDESTADDRREQ));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn the_connection_is_kept_for_the_calls_that_follow() {
    let place = Place::new();
    let connections = place.serve(good);
    let client = place.client();
    for n in 1..4 {
        client.connect().unwrap();
        assert_eq!(ask(&client, n).unwrap(), n);
    }
    // The service counts when it accepts, which is before it answers.
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn a_connection_that_has_ended_is_replaced() {
    let place = Place::new();
    let connections = place.serve(|mut s| {
        let request = request(&mut s)?;
        s.write_all(&answer(&request))
    });
    let client = place.client();
    for n in 1..4 {
        client.connect().unwrap();
        assert_eq!(ask(&client, n).unwrap(), n);
        // Until the end of the connection has come here.
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[test]
fn a_full_queue_is_waited_for() {
    let place = Place::new();
    let listener = UnixListener::bind(&place.0).unwrap();
    let mut queue = Vec::new();
    loop {
        let client = place.client().with_limit(Duration::from_millis(100));
        let begin = Instant::now();
        match client.connect() {
            Ok(()) => queue.push(client),
            Err(Error::TimedOut) => {
                assert!((100..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
                break;
            }
            Err(e) => panic!("{e}"),
        }
        assert!(queue.len() < 10_000, "the queue is bounded");
    }
    let emptied = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        let _held: Vec<UnixStream> = queue.iter().filter_map(|_| Some(listener.accept().ok()?.0)).collect();
        listener.accept().map(drop)
    });
    place.client().connect().unwrap();
    emptied.join().unwrap().unwrap();
}

#[test]
fn a_connection_over_tcp_is_complete_or_late() {
    let client = Client::new(Target::Tcp(serve_tcp(TcpListener::bind("127.0.0.1:0").unwrap())));
    client.connect().unwrap();
    assert_eq!(ask(&client, 5).unwrap(), 5);

    let (address, _listener, _queue) = full();
    let client = Client::new(Target::Tcp(address)).with_limit(Duration::from_millis(200));
    for ask_it in [false, true] {
        let begin = Instant::now();
        let result = if ask_it { ask(&client, 1).map(drop) } else { client.connect() };
        assert!(matches!(result, Err(Error::TimedOut)), "{result:?}");
        assert!((200..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    }
}

#[test]
fn the_first_address_that_accepts_is_taken() {
    let accepts = serve_tcp(TcpListener::bind("127.0.0.1:0").unwrap());
    let (hangs, _listener, _queue) = full();
    let places =
        [vec![accepts], vec![accepts, deserted()], vec![deserted(), accepts], vec![deserted(), hangs, accepts, hangs]];
    for addresses in places {
        let said = format!("{addresses:?}");
        let client = Client::new(Target::AnyOf(addresses)).with_limit(LIMIT);
        assert_eq!(ask(&client, 6).unwrap(), 6, "{said}");
        client.connect().unwrap();
        client.resolve_many(None, &(0..200).map(ip).collect::<Vec<_>>(), |_, path| drop(path.unwrap()));
    }
    // The time is shared out, whatever there is of it.
    let client = Client::new(Target::AnyOf(vec![hangs, accepts])).with_limit(Duration::from_secs(2));
    client.connect().unwrap();
}

#[test]
fn a_host_by_name_is_found_whatever_it_listens_on() {
    // `localhost` is often ::1 first.
    let address = serve_tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let client = Client::new(Target::parse(&format!("localhost:{}", address.port())).unwrap()).with_limit(LIMIT);
    client.connect().unwrap();
    assert_eq!(ask(&client, 7).unwrap(), 7);
    let client = Client::new(Target::parse_within("localhost", address.port(), LIMIT).unwrap()).with_limit(LIMIT);
    assert_eq!(ask(&client, 8).unwrap(), 8);
}

#[test]
fn texts_are_told_apart_with_any_port() {
    let parse = |text: &str| Target::parse_within(text, 77, Duration::ZERO);
    let tcp = |text: &str| Target::Tcp(text.parse().unwrap());
    assert_eq!(parse("10.0.0.1").unwrap(), tcp("10.0.0.1:77"));
    assert_eq!(parse("10.0.0.1:6").unwrap(), tcp("10.0.0.1:6"));
    assert_eq!(parse("fd77::1").unwrap(), tcp("[fd77::1]:77"));
    assert_eq!(parse("[fd77::1]").unwrap(), tcp("[fd77::1]:77"));
    assert_eq!(parse("[fd77::1]:6").unwrap(), tcp("[fd77::1]:6"));
    let wrong =
        ["10.0.0.1:", "10.0.0.1:0", "10.0.0.1:+6", "10.0.0.1:65536", ":6", "[]:6", "[fd77::1", "[fd77::1]6", "["];
    for text in wrong {
        assert_eq!(parse(text).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{text}");
    }
    // Asking the resolver takes time, and there is none.
    assert_eq!(parse("localhost").unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!((ACME_PORT_FILE, ACME_SOCKET_FILE, DEFAULT_PORT), ("/run/ibacm-tcp.port", "/run/ibacm-unix.sock", 6125));
}

#[test]
fn ports_are_read_from_files() {
    let place = Place::new();
    assert_eq!(published_port_in(&place.0), None);
    for (text, port) in [("6126\n", Some(6126)), ("6126", Some(6126)), ("0\n", None), ("", None), ("65536", None)] {
        fs::write(&place.0, text).unwrap();
        assert_eq!(published_port_in(&place.0), port, "{text:?}");
    }
    fs::write(&place.0, [0xff; 100_000]).unwrap();
    assert_eq!(published_port_in(&place.0), None);
}
