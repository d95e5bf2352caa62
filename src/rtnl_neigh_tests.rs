use std::time::{Duration, Instant};

use super::*;
use crate::rtnl::tests::{in_namespace, ip, tun};
use crate::rtnl_parse::tests::message;
use crate::rtnl_parse::{HARDWARE, Malformed};

const HW: [u8; HARDWARE] = [0x80, 0, 0, 0x48, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 1];

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut all = u16::try_from(4 + content.len()).unwrap().to_ne_bytes().to_vec();
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn body(family: u8, state: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0, 5, 0, 0, 0];
    body.extend_from_slice(&state.to_ne_bytes());
    body.extend_from_slice(&[0, 1]);
    body.extend(attributes.concat());
    body
}

fn news(datagram: &[u8]) -> Vec<Result<News, Malformed>> {
    rtnl_parse::messages(datagram).map(|message| message.news).collect()
}

fn whole(state: u16) -> Vec<u8> {
    let attributes =
        [attribute(1, &[10, 77, 0, 9]), attribute(2, &HW), attribute(4, &[1, 0, 0, 0]), attribute(99, b"x")];
    message(libc::RTM_NEWNEIGH, 0, 8, &body(2, state, &attributes))
}

#[test]
fn an_entry_with_its_hardware_address() {
    let ip = "10.77.0.9".parse().unwrap();
    let wanted = Neighbour { index: 5, ip, state: libc::NUD_STALE, hardware: Some(HW) };
    assert_eq!(news(&whole(libc::NUD_STALE)), [Ok(News::Neighbour(wanted))]);
    let six: std::net::Ipv6Addr = "fd77::9".parse().unwrap();
    let gone = body(10, libc::NUD_FAILED, &[attribute(1, &six.octets())]);
    let wanted = Neighbour { index: 5, ip: six.into(), state: libc::NUD_FAILED, hardware: None };
    assert_eq!(news(&message(libc::RTM_DELNEIGH, 0, 8, &gone)), [Ok(News::NeighbourGone(wanted))]);
}

#[test]
fn other_families_and_hardware_are_passed_over() {
    // a bridge's
    let bridge = body(7, libc::NUD_PERMANENT, &[attribute(2, &[1; 6])]);
    assert_eq!(news(&message(libc::RTM_NEWNEIGH, 0, 8, &bridge)), [Ok(News::Other)]);
    for length in [0, 6, 8, 19, 21, 32] {
        let odd = body(2, libc::NUD_REACHABLE, &[attribute(1, &[10, 0, 0, 1]), attribute(2, &vec![1; length])]);
        let told = news(&message(libc::RTM_NEWNEIGH, 0, 8, &odd));
        let Ok(News::Neighbour(n)) = told[0] else { panic!("{told:?}") };
        assert_eq!((n.hardware, entry(&n)), (None, Entry::Useless), "{length} bytes");
    }
}

#[test]
fn what_does_not_fit_is_malformed() {
    for (family, attributes) in [
        (2, vec![]),
        (2, vec![attribute(1, &[10, 0, 0])]),
        (10, vec![attribute(1, &[10, 0, 0, 1])]),
        (2, vec![vec![200, 0, 1, 0, 10, 0, 0, 1]]),
        (2, vec![vec![3, 0, 1, 0, 10, 0, 0, 1]]),
    ] {
        let bytes = message(libc::RTM_NEWNEIGH, 0, 8, &body(family, 2, &attributes));
        assert_eq!(news(&bytes), [Err(Malformed)], "{family} {attributes:?}");
    }
    for length in 0..12 {
        let bytes = message(libc::RTM_NEWNEIGH, 0, 8, &body(2, 2, &[])[..length]);
        assert_eq!(news(&bytes), [Err(Malformed)], "{length}");
    }
}

#[test]
fn no_bytes_are_too_strange() {
    let good = whole(libc::NUD_REACHABLE);
    for length in 0..good.len() {
        assert!(news(&good[..length]).iter().all(|n| n.is_err()), "{length}");
    }
    for at in 0..good.len() {
        for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            for one in news(&bytes).into_iter().flatten() {
                if let News::Neighbour(n) = one {
                    let _ = entry(&n);
                }
            }
        }
    }
}

#[test]
fn states_say_what_an_entry_is_good_for() {
    let known = |old| Entry::Known { hardware: HW, old };
    for (state, wanted) in [
        (libc::NUD_NONE, Entry::Absent),
        (libc::NUD_INCOMPLETE, Entry::Looking),
        (libc::NUD_REACHABLE, known(false)),
        (libc::NUD_STALE, known(true)),
        (libc::NUD_DELAY, known(true)),
        (libc::NUD_PROBE, known(true)),
        (libc::NUD_FAILED, Entry::Failed),
        (libc::NUD_NOARP, Entry::Useless),
        (libc::NUD_PERMANENT, known(false)),
        (0x300, Entry::Useless),
    ] {
        let told = news(&whole(state));
        let Ok(News::Neighbour(n)) = told[0] else { panic!("{told:?}") };
        assert_eq!(entry(&n), wanted, "{state:#x}");
    }
}

#[allow(unsafe_code)] // a name becomes a number
fn index(name: &str) -> u32 {
    let c = std::ffi::CString::new(name).unwrap();
    // SAFETY: the name ends with a zero byte and lives through the call.
    let index = unsafe { libc::if_nametoindex(c.as_ptr()) };
    assert_ne!(index, 0, "{name}: {}", io::Error::last_os_error());
    index
}

/// The state of an entry, as the kernel has it.
fn state(table: &mut KernelTable, link: u32, ip: IpAddr) -> Option<u16> {
    match table.request(|sequence| rtnl_parse::get_neighbour(link, ip, sequence)) {
        Ok(Said::Neighbour(n)) => Some(n.state),
        Ok(Said::Error(libc::ENOENT)) => None,
        Ok(Said::Error(e)) => panic!("error {e}"),
        Err(e) => panic!("{e}"),
    }
}

/// Two interfaces with a wire between them, whose hardware addresses hold no GID.
fn wire() -> u32 {
    ip("link set lo up");
    ip("link add v0 type veth peer name v1");
    for (name, address) in [("v0", "10.9.0.1/24"), ("v1", "10.9.0.2/24")] {
        ip(&format!("link set {name} up"));
        ip(&format!("addr add {address} dev {name}"));
        // the neighbour is this host itself
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/accept_local"), "1").unwrap();
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
    }
    index("v0")
}

#[test]
fn the_kernel_looks_for_a_neighbour_when_it_is_told_to() {
    in_namespace(|| {
        let (link, mut table) = (wire(), KernelTable::default());
        let (there, nobody): (IpAddr, IpAddr) = ("10.9.0.2".parse().unwrap(), "10.9.0.77".parse().unwrap());
        let mut events = NeighbourEvents::default();
        let poll = mio::Poll::new().unwrap();
        events.listen(poll.registry(), Token(1)).unwrap();
        events.listen(poll.registry(), Token(1)).unwrap();
        for ip in [there, nobody] {
            assert_eq!(table.look(link, ip), Entry::Absent);
            assert!(table.probe(link, ip, Entry::Absent));
            assert!(table.probe(link, ip, Entry::Absent), "somebody else was quicker");
        }
        let end = Instant::now() + Duration::from_secs(20);
        while state(&mut table, link, there) != Some(libc::NUD_REACHABLE) {
            assert!(Instant::now() < end, "{:?}", state(&mut table, link, there));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(table.look(link, there), Entry::Useless, "six bytes are no InfiniBand address");
        while table.look(link, nobody) != Entry::Failed {
            assert!(Instant::now() < end, "{:?}", table.look(link, nobody));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(table.probe(link, nobody, Entry::Failed));
        assert_eq!(table.look(link, nobody), Entry::Looking, "once more");
        let mut told = Vec::new();
        while !told.contains(&(nobody, Entry::Failed)) {
            assert!(Instant::now() < end, "{told:?}");
            events.read(|n, entry| told.push((n.ip, entry)));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

#[test]
fn entries_of_others_are_left_alone() {
    in_namespace(|| {
        let (link, mut table) = (wire(), KernelTable::default());
        ip("neigh add 10.9.0.50 lladdr 02:00:00:00:00:01 dev v0 nud permanent");
        let fixed = "10.9.0.50".parse().unwrap();
        assert!(table.probe(link, fixed, Entry::Absent), "it came meanwhile");
        assert_eq!(state(&mut table, link, fixed), Some(libc::NUD_PERMANENT));
        // an interface that is gone, and one that asks nobody
        assert_eq!(table.look(9999, fixed), Entry::Useless);
        assert!(!table.probe(9999, fixed, Entry::Absent));
        let _tun = tun("ib0");
        ip("link set ib0 up");
        let silent = index("ib0");
        let six: IpAddr = "fd77::9".parse().unwrap();
        ip("neigh add fd77::9 dev ib0 nud noarp");
        assert_eq!(table.look(silent, six), Entry::Useless, "its hardware address is the interface's own");
    });
}
