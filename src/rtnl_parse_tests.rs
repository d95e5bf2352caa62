use super::*;
use crate::netlink::padded;

/// A message with this header and body.
pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut all = u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(&flags.to_ne_bytes());
    all.extend_from_slice(&sequence.to_ne_bytes());
    all.extend_from_slice(&[0; 4]);
    all.extend_from_slice(body);
    all.resize(padded(all.len()), 0);
    all
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut all = u16::try_from(4 + content.len()).unwrap().to_ne_bytes().to_vec();
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(content);
    all.resize(padded(all.len()), 0);
    all
}

fn link_body(family: u8, kind: u16, index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![family, 0];
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&[0; 8]);
    body.extend(attributes.concat());
    body
}

fn addr_body(family: i32, prefix_len: u8, index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![u8::try_from(family).unwrap(), prefix_len, 0, 253];
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend(attributes.concat());
    body
}

fn news(datagram: &[u8]) -> Vec<Result<News, Malformed>> {
    messages(datagram).map(|message| message.news).collect()
}

fn broadcast(pkey: u16) -> [u8; HARDWARE] {
    let mut address = [0; HARDWARE];
    address[4..8].copy_from_slice(&[0xFF, 0x12, 0x40, 0x1B]);
    address[8..10].copy_from_slice(&pkey.to_be_bytes());
    address
}

#[test]
fn a_link_and_its_end() {
    let hardware: [u8; HARDWARE] = std::array::from_fn(|n| u8::try_from(n).unwrap());
    let body = link_body(
        0,
        INFINIBAND,
        7,
        &[
            attribute(IFLA_IFNAME, b"ib0.8001\0"),
            attribute(77, b"unknown"),
            attribute(IFLA_ADDRESS | 0x8000, &hardware),
            attribute(IFLA_BROADCAST, &broadcast(0x0001)),
        ],
    );
    let mut datagram = message(libc::RTM_NEWLINK, NLM_F_DUMP_INTR, 3, &body);
    let mut up = link_body(0, INFINIBAND, 8, &[]);
    up[8..12].copy_from_slice(&0x1043_u32.to_ne_bytes());
    datagram.extend(message(libc::RTM_NEWLINK, 0, 4, &up));
    datagram.extend(message(libc::RTM_DELLINK, 0, 0, &link_body(0, INFINIBAND, 7, &[])));
    let all: Vec<Message> = messages(&datagram).collect();
    let link = Link {
        index: 7,
        kind: INFINIBAND,
        name: b"ib0.8001".to_vec(),
        hardware: Some(hardware),
        is_up: false,
        broadcast_pkey: Some(0x8001),
    };
    let up = Link { index: 8, kind: INFINIBAND, name: Vec::new(), hardware: None, is_up: true, broadcast_pkey: None };
    assert_eq!(
        all,
        [
            Message { sequence: 3, port: 0, interrupted: true, news: Ok(News::Link(link)) },
            Message { sequence: 4, port: 0, interrupted: false, news: Ok(News::Link(up)) },
            Message { sequence: 0, port: 0, interrupted: false, news: Ok(News::LinkGone(7)) },
        ]
    );
}

#[test]
fn leaving_a_bridge_is_not_the_end_of_an_interface() {
    let body = link_body(7, 1, 7, &[]);
    assert_eq!(news(&message(libc::RTM_DELLINK, 0, 0, &body)), [Ok(News::Other)]);
}

#[test]
fn names_that_are_no_file_names_are_dropped() {
    for bad in [&b"../../etc\0"[..], b"..\0", b".", b"a/b", b"sixteen-bytes-xx"] {
        assert!(name(bad).is_empty());
    }
    assert_eq!(name(b"fifteen-bytes-x\0"), b"fifteen-bytes-x");
}

#[test]
fn hardware_addresses_of_other_lengths_are_none() {
    for length in [0, 6, 19, 21] {
        let bytes = vec![0xFF; length];
        let body = link_body(0, INFINIBAND, 1, &[attribute(IFLA_ADDRESS, &bytes), attribute(IFLA_BROADCAST, &bytes)]);
        let all = news(&message(libc::RTM_NEWLINK, 0, 0, &body));
        let [Ok(News::Link(link))] = &all[..] else { panic!("{all:?}") };
        assert_eq!((link.hardware, link.broadcast_pkey), (None, None));
    }
}

#[test]
fn addresses_of_both_families() {
    let v4 = addr_body(
        libc::AF_INET,
        16,
        4,
        &[attribute(IFA_ADDRESS, &[10, 0, 0, 2]), attribute(IFA_LOCAL, &[10, 0, 0, 1])],
    );
    let v6 = Ipv6Addr::LOCALHOST.octets();
    let v6 = addr_body(libc::AF_INET6, 64, 4, &[attribute(IFA_ADDRESS, &v6)]);
    let datagram = [message(libc::RTM_NEWADDR, 0, 0, &v4), message(libc::RTM_DELADDR, 0, 0, &v6)].concat();
    let near = Addr { index: 4, ip: [10, 0, 0, 1].into(), prefix_len: 16, scope: 253 };
    let six = Addr { index: 4, ip: Ipv6Addr::LOCALHOST.into(), prefix_len: 64, scope: 253 };
    assert_eq!(news(&datagram), [Ok(News::Addr(near)), Ok(News::AddrGone(six))]);
}

#[test]
fn a_tentative_address_counts_and_a_duplicate_one_does_not() {
    let octets = Ipv6Addr::LOCALHOST.octets();
    let with = |flags: u32| {
        let body = addr_body(
            libc::AF_INET6,
            64,
            4,
            &[attribute(IFA_ADDRESS, &octets), attribute(IFA_FLAGS, &flags.to_ne_bytes())],
        );
        news(&message(libc::RTM_NEWADDR, 0, 0, &body))
    };
    assert!(matches!(with(0x40)[..], [Ok(News::Addr(_))]));
    assert!(matches!(with(0x40 | IFA_F_DADFAILED)[..], [Ok(News::AddrGone(_))]));
}

#[test]
fn an_address_that_does_not_fit_its_family_is_malformed() {
    let short = addr_body(libc::AF_INET6, 64, 4, &[attribute(IFA_ADDRESS, &[0; 15])]);
    let none = addr_body(libc::AF_INET, 16, 4, &[]);
    let wide = addr_body(libc::AF_INET, 33, 4, &[attribute(IFA_LOCAL, &[10, 0, 0, 1])]);
    for body in [short, none, wide] {
        assert_eq!(news(&message(libc::RTM_NEWADDR, 0, 0, &body)), [Err(Malformed)]);
    }
}

#[test]
fn routes_rules_and_control_messages() {
    let mut cloned = [0; ROUTE_HEADER];
    cloned[8..].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
    let datagram = [
        message(libc::RTM_NEWROUTE, 0, 0, &[0; ROUTE_HEADER]),
        message(libc::RTM_NEWROUTE, 0, 0, &cloned),
        message(libc::RTM_DELRULE, 0, 0, &[]),
        message(NLMSG_ERROR, 0, 9, &(-libc::EBUSY).to_ne_bytes()),
        message(NLMSG_ERROR, 0, 9, &i32::MIN.to_ne_bytes()),
        message(NLMSG_DONE, 0, 9, &[]),
        message(NLMSG_OVERRUN, 0, 0, &[]),
    ]
    .concat();
    assert_eq!(
        news(&datagram),
        [
            Ok(News::Routes),
            Ok(News::Other),
            Ok(News::Routes),
            Ok(News::Failed(libc::EBUSY)),
            Err(Malformed),
            Ok(News::Done),
            Ok(News::Overrun),
        ]
    );
}

#[test]
fn lying_lengths_end_the_datagram() {
    let good = message(NLMSG_DONE, 0, 0, &[]);
    for length in [0u32, 15, 17, u32::MAX] {
        let mut bad = good.clone();
        bad[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(news(&[&good[..], &bad[..]].concat()), [Ok(News::Done), Err(Malformed)]);
    }
    for length in [0u16, 3, 200] {
        let mut bad = attribute(IFLA_IFNAME, b"ib0\0");
        bad[..2].copy_from_slice(&length.to_ne_bytes());
        let body = link_body(0, INFINIBAND, 1, &[bad]);
        assert_eq!(news(&message(libc::RTM_NEWLINK, 0, 0, &body)), [Err(Malformed)]);
    }
}

#[test]
fn no_bytes_panic_or_loop() {
    // A small generator with a fixed seed: every truncation and many mutations of real messages.
    let seed = [
        message(
            libc::RTM_NEWLINK,
            2,
            1,
            &link_body(
                0,
                INFINIBAND,
                3,
                &[
                    attribute(IFLA_IFNAME, b"ib0\0"),
                    attribute(IFLA_ADDRESS, &[1; 20]),
                    attribute(IFLA_BROADCAST, &broadcast(0x8001)),
                ],
            ),
        ),
        message(libc::RTM_NEWADDR, 2, 1, &addr_body(libc::AF_INET, 16, 4, &[attribute(IFA_LOCAL, &[10, 0, 0, 1])])),
    ]
    .concat();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for round in 0..50_000usize {
        let mut bytes = seed.clone();
        bytes.truncate(seed.len() - round % seed.len());
        for _ in 0..round % 7 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state >> 16).unwrap_or(0) % bytes.len();
            bytes[at] = state.to_ne_bytes()[0];
        }
        let limit = bytes.len() / HEADER + 1;
        assert!(messages(&bytes).count() <= limit);
    }
}

#[test]
fn a_dump_request_has_its_length_and_asks_for_all() {
    let request = dump_request(Dump::Links, 5);
    assert_eq!(request.len(), 16 + 16 + 8);
    assert_eq!(u32_at(&request, 0), Some(40));
    assert_eq!(u16_at(&request, 4), Some(libc::RTM_GETLINK));
    assert_eq!(u32_at(&request, 8), Some(5));
    assert_eq!(dump_request(Dump::Addresses, 6).len(), 24);
}
