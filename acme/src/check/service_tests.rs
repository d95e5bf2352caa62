//! What is said of services and their endpoints.

use std::io;

use ibacm_wire::Gid;
use libibacm::{During, Violation};

use super::*;
use crate::check::report::Level;

fn port() -> Port {
    Port {
        device: "mlx5_0".into(),
        device_guid: 0x10,
        number: 1,
        state: ibacm::verbs::PORT_ACTIVE,
        lid: 3,
        gids: vec![Gid([1; 16])],
        pkeys: vec![0xffff, 0x0123],
        ..Port::default()
    }
}

fn endpoint(pkey: u16, addresses: &[&str]) -> Endpoint {
    let addresses = addresses.iter().map(|a| (*a).into()).collect();
    Endpoint { device_guid: 0x10, port: 1, ports: 1, pkey, provider: "ibacmp".into(), addresses }
}

fn interface(pkey: u16, addresses: &[&str]) -> Interface {
    Interface {
        name: "ib0".into(),
        gid: Gid([1; 16]),
        pkey: Some(pkey),
        is_up: None,
        carrier: None,
        addresses: addresses.iter().map(|a| (a.parse().unwrap(), 16)).collect(),
    }
}

#[test]
fn services_that_are_down_hang_or_talk_nonsense() {
    let limit = Duration::from_secs(3);
    let say = |e| answered("/run/x", &Err(e), limit);
    assert_eq!(answered("/run/x", &Ok(Vec::new()), limit).level, Level::Ok);
    let lost = Error::Transport { during: During::Receive, source: io::ErrorKind::UnexpectedEof.into() };
    for (error, found, remedy) in [
        (Error::TimedOut, "hangs: connected, but no answer within 3 s", "restart"),
        (Error::Protocol(Violation::Version(9)), "wrong answers", "ss -xlp"),
        (Error::Status(1), "does not say", "log"),
        (lost, "does not say", "log"),
    ] {
        let finding = say(error);
        assert!(finding.level == Level::Failed && finding.found.contains(found), "{finding:?}");
        let remedies = finding.remedy.unwrap();
        assert!(remedies.contains(remedy), "{remedies}");
    }
    let down = unreachable("/run/x", &[], &Fault::local(libc::ECONNREFUSED, "refused", "it was left behind"));
    assert!(down.found.contains("does not run: refused"));
    let remedy = down.remedy.unwrap();
    assert!(remedy.contains("systemctl start ibacm.socket"), "{remedy}");
    let closed = unreachable("/run/x", &[], &Fault::local(libc::EACCES, "denied", "be root"));
    assert!(closed.found.contains("cannot be reached") && closed.remedy.unwrap() == "be root");
}

#[test]
fn a_service_may_be_where_the_options_do_not_have_it() {
    let (socket, tcp) = ("/run/ibacm-unix.sock", "127.0.0.1");
    assert_eq!(places(ServerMode::Unix, false), [socket]);
    assert_eq!(places(ServerMode::Unix, true), [socket, tcp]);
    for mode in [ServerMode::Loop, ServerMode::Open] {
        assert_eq!(places(mode, false), [tcp, socket]);
    }
    let refused = Fault::local(libc::ECONNREFUSED, "refused", "");
    let here = unreachable("127.0.0.1", &[socket.to_owned()], &refused);
    assert_eq!(here.found, "it does not run there, nor at /run/ibacm-unix.sock: refused");
    let asked = unreachable("localhost", &[], &refused);
    assert_eq!(asked.found, "nobody listens there: refused");
    for finding in [here, asked] {
        let remedy = finding.remedy.unwrap();
        assert!(["server_mode", "server_port", "start"].iter().all(|w| remedy.contains(w)), "{remedy}");
    }
    // Where somebody is, or may be, no other place is looked at.
    let denied = [libc::EACCES, libc::ETIMEDOUT].map(|errno| Fault::local(errno, "", ""));
    assert!(is_absence(&refused) && !denied.iter().any(is_absence));
}

#[test]
fn addresses_have_endpoints() {
    let say = |list: &[Endpoint], interfaces: &[Interface]| {
        let findings = endpoints(list, &[port()], interfaces);
        findings.into_iter().map(|f| (f.level, f.subject, f.found)).collect::<Vec<_>>()
    };
    let ok = |found: &str| (Level::Ok, "mlx5_0/1 0xffff".to_owned(), found.to_owned());
    let whole = endpoint(0xffff, &["10.0.0.1/16", "fd77::1", "here"]);
    let ib0 = interface(0xffff, &["10.0.0.1", "fd77::1", "fe80::1"]);
    assert_eq!(say(&[whole], std::slice::from_ref(&ib0)), [ok("10.0.0.1/16, fd77::1, here")]);
    let half = say(&[endpoint(0xffff, &["10.0.0.1/16"])], std::slice::from_ref(&ib0));
    assert_eq!(half[0], ok("10.0.0.1/16"));
    assert_eq!((half[1].0, half[1].1.as_str()), (Level::Failed, "ib0"));
    assert!(half.len() == 2 && half[1].2.contains("does not know fd77::1 of"), "{half:?}");
    // Only the partition's own endpoint counts, whatever its membership is.
    let child = interface(0x8123, &["10.0.0.1"]);
    let other = say(&[endpoint(0xffff, &["10.0.0.1/16"])], std::slice::from_ref(&child));
    assert!(other.len() == 2 && other[1].2.contains("no endpoint for mlx5_0/1 in partition 0x8123"), "{other:?}");
    assert_eq!(say(&[endpoint(0x0123, &["10.0.0.1/16"])], &[child]).len(), 1);
    // A partition that the port is not in, and an interface without addresses, need none.
    assert_eq!(say(&[endpoint(0xffff, &["x"])], &[interface(0x8777, &["10.0.0.1"]), interface(0x8123, &[])]).len(), 1);
}

#[test]
fn endpoints_have_addresses() {
    let bare = endpoints(&[endpoint(0xffff, &[])], &[port()], &[]);
    assert!(bare.len() == 1 && bare[0].level == Level::Warning, "{bare:?}");
    assert!(bare[0].remedy.as_deref().unwrap().contains("ibacm_addr.cfg"));
    let none = endpoints(&[], &[port()], &[interface(0xffff, &["10.0.0.1"])]);
    assert!(none.len() == 1 && none[0].level == Level::Failed && none[0].found.contains("none"), "{none:?}");
    assert!(endpoints(&[], &[Port { lid: 0, ..port() }], &[]).is_empty(), "no port, no endpoint");
    let foreign = Endpoint { device_guid: 0x99, ..endpoint(0xffff, &["x"]) };
    assert_eq!(endpoints(&[foreign], &[port()], &[])[0].subject, "0x0000000000000099/1 0xffff");
}
