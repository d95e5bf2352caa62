use super::*;
use crate::rtnl::tests::{in_namespace, ip, tun};

#[test]
fn the_source_address_follows_the_routes() {
    in_namespace(|| {
        let _ib0 = tun("ib0");
        let _ib1 = tun("ib1");
        for command in [
            "link set lo up",
            "addr add 10.1.0.1/16 dev ib0",
            "addr add 10.2.0.1/16 dev ib1",
            "-6 addr add fd01::1/64 dev ib0 nodad",
            "-6 addr add fd02::1/64 dev ib1 nodad",
            "-6 addr add fe80::1/64 dev ib0 nodad",
            "-6 addr add fe80::2/64 dev ib1 nodad",
            "link set ib0 up",
            "link set ib1 up",
        ] {
            ip(command);
        }
        let number = |name: &std::ffi::CStr| {
            // SAFETY: the name ends with a zero byte.
            unsafe { libc::if_nametoindex(name.as_ptr()) }
        };
        let mut kept = Sources::new();
        let mut ask = |dest: &str, scope: Option<u32>| {
            let dest: IpAddr = dest.parse().unwrap();
            let answer = kept.source_for(dest, scope);
            let fresh = Sources::new().source_for(dest, scope);
            match (answer, fresh) {
                (Ok(answer), Ok(fresh)) => {
                    assert_eq!(answer, fresh, "a kept socket answers like a fresh one");
                    Ok(answer.to_string())
                }
                (Err(answer), Err(fresh)) => {
                    assert_eq!(answer.raw_os_error(), fresh.raw_os_error());
                    Err(answer.raw_os_error())
                }
                (answer, fresh) => panic!("{dest}: {answer:?} and {fresh:?}"),
            }
        };
        for _ in 0..3 {
            assert_eq!(ask("10.1.0.9", None).unwrap(), "10.1.0.1");
            assert_eq!(ask("10.2.0.9", None).unwrap(), "10.2.0.1");
            assert_eq!(ask("10.2.0.1", None).unwrap(), "10.2.0.1", "an own address");
            assert_eq!(ask("::ffff:10.2.0.9", None).unwrap(), "10.2.0.1");
            assert_eq!(ask("10.3.0.9", None), Err(Some(libc::ENETUNREACH)));
            assert_eq!(ask("10.1.255.255", None), Err(Some(libc::EACCES)), "broadcast");
            assert_eq!(ask("fd01::9", None).unwrap(), "fd01::1");
            assert_eq!(ask("fd02::9", None).unwrap(), "fd02::1");
            assert_eq!(ask("fe80::9", None), Err(Some(libc::EINVAL)));
            assert_eq!(ask("fe80::9", Some(number(c"ib0"))).unwrap(), "fe80::1");
            assert_eq!(ask("fe80::9", Some(number(c"ib1"))).unwrap(), "fe80::2");
            assert!(ask("0.0.0.0", None).is_err());
            assert!(ask("::", None).is_err());
        }
        ip("addr del 10.2.0.1/16 dev ib1");
        ip("addr add 10.2.0.7/16 dev ib1");
        assert_eq!(ask("10.2.0.9", None).unwrap(), "10.2.0.7");
    });
}
