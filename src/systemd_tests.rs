//! Tests of what is taken over, in a process that has not been handed anything.

use super::*;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

fn with(pairs: &[(&str, &str)]) -> Environment {
    Environment::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
}

#[test]
fn only_what_is_meant_for_this_process_counts() {
    let own = std::process::id();
    let pid = own.to_string();
    assert_eq!(with(&[]).count(own), Ok(0));
    assert_eq!(with(&[("LISTEN_FDS", "2")]).count(own), Ok(0));
    assert_eq!(with(&[("LISTEN_PID", &pid)]).count(own), Ok(0));
    assert_eq!(with(&[("LISTEN_PID", "1"), ("LISTEN_FDS", "77")]).count(own), Ok(0));
    assert_eq!(with(&[("LISTEN_PID", &pid), ("LISTEN_FDS", "0")]).count(own), Ok(0));
    assert_eq!(with(&[("LISTEN_PID", &pid), ("LISTEN_FDS", "2")]).count(own), Ok(2));
    assert_eq!(with(&[("LISTEN_PID", &pid), ("LISTEN_FDS", "3")]).count(own), Err(SocketError::Surplus(3)));
    for bad in ["", "-1", "two", "2 ", "99999999999999999999999"] {
        let error = with(&[("LISTEN_PID", &pid), ("LISTEN_FDS", bad)]).count(own).unwrap_err();
        assert_eq!(error, SocketError::Variable("LISTEN_FDS", bad.to_owned()));
        let error = with(&[("LISTEN_PID", bad), ("LISTEN_FDS", "1")]).count(own).unwrap_err();
        assert_eq!(error, SocketError::Variable("LISTEN_PID", bad.to_owned()));
    }
}

#[test]
fn kinds_of_sockets() {
    let other = |fd: BorrowedFd<'_>| match look(fd) {
        Kind::Other(what) => what,
        kind => panic!("{kind:?}"),
    };
    let path = std::env::temp_dir().join(format!("ibacm-kind-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(look(listener.as_fd()), Kind::Stream);
    assert_eq!(look(TcpListener::bind("127.0.0.1:0").unwrap().as_fd()), Kind::Stream);
    assert_eq!(look(TcpListener::bind("[::1]:0").unwrap().as_fd()), Kind::Stream);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    assert_eq!(other(connected.as_fd()), "a stream socket that does not listen");
    assert_eq!(other(UnixStream::pair().unwrap().0.as_fd()), "a stream socket that does not listen");
    assert_eq!(other(UnixDatagram::unbound().unwrap().as_fd()), "a socket, but not a stream");
    assert_eq!(other(UdpSocket::bind("127.0.0.1:0").unwrap().as_fd()), "a socket, but not a stream");
    assert_eq!(other(std::fs::File::open("/dev/null").unwrap().as_fd()), "no socket");
}

#[test]
fn errors_name_the_descriptor() {
    let error = SocketError::Useless("descriptor 4 (ibacm.socket)".into(), "no socket".into()).to_string();
    assert_eq!(
        error,
        "inherited sockets: descriptor 4 (ibacm.socket) is no socket, expected a listening stream socket (unix or \
         TCP) or a NETLINK_RDMA socket"
    );
    let error = SocketError::Second("descriptor 4".into(), "stream socket").to_string();
    assert_eq!(error, "inherited sockets: descriptor 4 is a second stream socket, expected one");
    assert!(SocketError::Surplus(3).to_string().contains("3 descriptors, expected at most 2"));
    assert!(SocketError::Variable("LISTEN_FDS", "\n".into()).to_string().contains("LISTEN_FDS is '\\n'"));
}

#[test]
fn the_watchdog_of_another_process_is_not_ours() {
    let own = std::process::id().to_string();
    let at = ("NOTIFY_SOCKET", "@ibacm-nobody");
    let period = |pairs: &[(&str, &str)]| with(pairs).manager().next_deadline();
    let never = crate::time::Time::NEVER;
    assert_eq!(period(&[at, ("WATCHDOG_USEC", "1000")]), crate::time::Time(0));
    assert_eq!(period(&[at, ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", &own)]), crate::time::Time(0));
    assert_eq!(period(&[at, ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")]), never);
    assert_eq!(period(&[("WATCHDOG_USEC", "1000")]), never);
    for bad in ["", "0", "-5", "soon"] {
        assert_eq!(period(&[at, ("WATCHDOG_USEC", bad)]), never);
    }
}

#[test]
fn variables_stay_while_other_threads_may_read_them() {
    // This test has at least one thread beside it: its harness.
    assert!(std::env::var_os("PATH").is_some());
    sys::remove_variables(&["PATH"]);
    assert!(std::env::var_os("PATH").is_some());
}
