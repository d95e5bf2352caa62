//! The tests of the service with IPv6 in every place of IPv4: the same files once more, in a program with this name.
//!
//! `util/family.rs` exchanges the families where a test names an address. The tests that say both families ask for both
//! here, too. What has no counterpart (broadcasts) stays as it is.
#![allow(clippy::duplicate_mod, reason = "each file brings its own `util`, as it does as a program")]

#[path = "compat_cache.rs"]
mod compat_cache;
#[path = "compat_mixed.rs"]
mod compat_mixed;
#[path = "compat_partitions.rs"]
mod compat_partitions;
#[path = "compat_preload.rs"]
mod compat_preload;
#[path = "compat_requests.rs"]
mod compat_requests;
#[path = "compat_resolve.rs"]
mod compat_resolve;
#[path = "robust_addresses.rs"]
mod robust_addresses;
#[path = "robust_peers.rs"]
mod robust_peers;
#[path = "robust_sa.rs"]
mod robust_sa;
#[path = "robust_unanswered.rs"]
mod robust_unanswered;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

/// What the module `util` of all of them makes of an address.
#[test]
fn the_families_are_exchanged() {
    use ibacm_wire::client::{TYPE_IP, TYPE_IP6};
    use util::client::between;
    use util::family::{address, here, ip_command};

    assert_eq!(between("10.77.0.1", "fd77::2").map(|entry| entry.kind), [TYPE_IP6, TYPE_IP]);
    for (four, six) in [("10.77.0.1", "fd77::1"), ("10.77.8.20", "fd77::8:20"), ("10.78.0.2", "fd77:0:0:1::2")] {
        assert_eq!((address(four), address(six)), (six.parse().unwrap(), four.parse().unwrap()));
    }
    for alone in ["10.77.255.255", "127.0.0.1", "192.0.2.1", "fe80::1", "::ffff:10.77.0.2"] {
        assert_eq!(address(alone), alone.parse::<std::net::IpAddr>().unwrap(), "{alone}");
    }
    assert_eq!(here("-d 10.77.0.3/16 x\n"), "-d fd77::3/64 x\n");
    assert_eq!(ip_command("addr add 10.77.1.2/32 dev ib0"), "addr add fd77::1:2/128 dev ib0 nodad");
}
