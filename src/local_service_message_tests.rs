use super::*;
use ibacm_wire::client::{Header, OP_ACK, OP_RESOLVE, PATH_FLAGS, Status, TYPE_PATH, VERSION};

pub(crate) const RESOLVE: u16 = 0x1000;
pub(crate) const SET_TIMEOUT: u16 = 0x1001;
pub(crate) const IP_RESOLVE: u16 = 0x1002;

/// A whole message.
pub(crate) fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (16 + payload.len() as u32).to_ne_bytes().to_vec();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&1_u16.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&0_u32.to_ne_bytes());
    out.extend_from_slice(payload);
    out
}

/// An attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = (4 + value.len() as u16).to_ne_bytes().to_vec();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The payload of a question for a path.
pub(crate) fn resolve(device: &[u8], port: u8, path_use: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut out = device.to_vec();
    out.resize(64, 0);
    out.extend_from_slice(&[port, path_use, 0, 0]);
    out.extend(attributes.iter().flatten());
    out
}

fn request(kind: u16, payload: &[u8]) -> Request {
    let bytes = message(kind, 7, payload);
    let mut all = messages(&bytes);
    let request = all.next().expect("there is one").expect("it is whole").request();
    assert_eq!(all.next(), None);
    request
}

fn is_refused(kind: u16, payload: &[u8]) -> bool {
    matches!(request(kind, payload), Request::Refuse(c) if c.sequence == 7 && c.kind == kind)
}

fn path(path_use: u8, attributes: &[Vec<u8>]) -> (Context, PathQuestion) {
    match request(RESOLVE, &resolve(b"mlx5_0", 1, path_use, attributes)) {
        Request::Ask(context, Question::Path(question)) => (context, question),
        other => panic!("{other:?}"),
    }
}

fn reply(status: Status, path: &PathRecord) -> Vec<u8> {
    let h =
        Header { version: VERSION, opcode: OP_RESOLVE | OP_ACK, status: status as u8, length: 88, ..Header::default() };
    let mut out = h.emit().to_vec();
    out.extend_from_slice(&Entry::path(PATH_FLAGS, path).emit());
    out
}

#[test]
fn every_attribute_lands_in_the_record() {
    let (context, question) = path(
        USE_GMP,
        &[
            attribute(SERVICE_ID | MANDATORY, &0x0102_0304_0506_0708_u64.to_ne_bytes()),
            attribute(DGID | MANDATORY, &[0xd0; 16]),
            attribute(SGID | MANDATORY, &[0xa0; 16]),
            attribute(TCLASS, &[0x5a]),
            attribute(PKEY, &0x8001_u16.to_ne_bytes()),
            attribute(QOS_CLASS, &0x0abc_u16.to_ne_bytes()),
        ],
    );
    let mut wanted = [0; 64];
    wanted[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    wanted[8..24].fill(0xd0);
    wanted[24..40].fill(0xa0);
    wanted[48..54].copy_from_slice(&[0x5a, 0x81, 0x80, 0x01, 0xab, 0xc0]);
    assert_eq!(question.path.0, wanted);
    assert_eq!((question.device.as_slice(), question.port), (&b"mlx5_0"[..], 1));
    assert_eq!(context, Context { kind: RESOLVE, sequence: 7, one_way: false });
}

#[test]
fn uses_are_both_ways_or_one_way() {
    for (path_use, byte, one_way) in [(USE_ALL, 0x81, false), (USE_UNIDIRECTIONAL, 1, true), (USE_GMP, 0x81, false)] {
        let (context, question) = path(path_use, &[]);
        assert_eq!((question.path.reversible_numpath(), context.one_way), (byte, one_way));
    }
    assert!(is_refused(RESOLVE, &resolve(b"", 0, 3, &[])));
}

#[test]
fn a_device_name_ends_at_its_zero() {
    let Request::Ask(_, Question::Path(question)) = request(RESOLVE, &resolve(b"rxe1\0junk", 1, 0, &[])) else {
        panic!("a question")
    };
    assert_eq!(question.device, b"rxe1");
    let Request::Ask(_, Question::Path(question)) = request(RESOLVE, &resolve(&[b'x'; 64], 1, 0, &[])) else {
        panic!("a question")
    };
    assert_eq!(question.device, [b'x'; 64]);
}

#[test]
fn only_mandatory_strangers_matter() {
    for kind in [0, PATH_RECORD, TIMEOUT, IPV4, IPV6, 11, 0x1fff] {
        path(0, &[attribute(kind, &[1, 2, 3])]);
        assert!(is_refused(RESOLVE, &resolve(b"", 1, 0, &[attribute(kind | MANDATORY, &[1, 2, 3])])), "{kind}");
        let address = attribute(IPV4 | MANDATORY, &[10, 0, 0, 1]);
        let both = [&0_u32.to_ne_bytes()[..], &address, &attribute(kind | MANDATORY, &[])].concat();
        assert!(is_refused(IP_RESOLVE, &both), "{kind}");
    }
    // netlink's own two bits are no part of the type
    let (_, question) = path(0, &[attribute(DGID | 0xc000, &[3; 16])]);
    assert_eq!(question.path.dgid(), Gid([3; 16]));
}

#[test]
fn wrong_lengths_are_refused() {
    for (kind, right) in [(SERVICE_ID, 8), (DGID, 16), (SGID, 16), (TCLASS, 1), (PKEY, 2), (QOS_CLASS, 2)] {
        for length in (0..20).filter(|l| *l != right) {
            let attributes = [attribute(kind, &vec![0; length])];
            assert!(is_refused(RESOLVE, &resolve(b"", 1, 0, &attributes)), "{kind} of {length} bytes");
        }
    }
    let whole = resolve(b"", 1, 0, &[attribute(PKEY, &[1, 2]), attribute(DGID, &[4; 16])]);
    for length in 0..whole.len() {
        // with none of its attributes it is whole, and without the padding behind one
        let fine = matches!(length, 66..=68 | 74..=76);
        let refused = is_refused(RESOLVE, &whole[..length]);
        assert_eq!(refused, !fine, "{length} bytes");
    }
    // an attribute that is shorter than its own header, or longer than the message
    for length in [0_u16, 1, 3, 9, 0xffff] {
        let mut attribute = attribute(PKEY, &[1, 2]);
        attribute[..2].copy_from_slice(&length.to_ne_bytes());
        assert!(is_refused(RESOLVE, &resolve(b"", 1, 0, &[attribute])), "{length}");
    }
}

#[test]
fn addresses_of_both_families() {
    let ask = |attributes: &[u8]| request(IP_RESOLVE, &[&9_u32.to_ne_bytes()[..], attributes].concat());
    for (kind, value, wanted) in
        [(IPV4, &[10, 99, 0, 1][..], "10.99.0.1"), (IPV6, &[0xfd; 16], "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd")]
    {
        let Request::Ask(context, Question::Ip { dest, interface }) = ask(&attribute(kind | MANDATORY, value)) else {
            panic!("a question")
        };
        assert_eq!((dest.to_string().as_str(), interface), (wanted, 9));
        assert_eq!(context, Context { kind: IP_RESOLVE, sequence: 7, one_way: false });
    }
    assert!(is_refused(IP_RESOLVE, &9_u32.to_ne_bytes()));
    assert!(is_refused(IP_RESOLVE, &[1, 2, 3]));
    for value in [&[][..], &[1; 3], &[1; 5], &[1; 16]] {
        assert!(matches!(ask(&attribute(IPV4, value)), Request::Refuse(_)), "{value:?}");
    }
    assert!(matches!(ask(&attribute(IPV6, &[1; 4])), Request::Refuse(_)));
    assert!(matches!(ask(&attribute(IPV4, &[1; 4])[..7]), Request::Refuse(_)));
}

#[test]
fn timeouts_are_kept_within_the_kernels_bounds() {
    for (ms, wanted) in [(0_u32, 100), (100, 100), (1234, 1234), (200_000, 200_000), (u32::MAX, 200_000)] {
        let request = request(SET_TIMEOUT, &attribute(TIMEOUT, &ms.to_ne_bytes()));
        assert_eq!(request, Request::Wait(Duration::from_millis(wanted)));
    }
    for payload in [vec![], vec![1, 2, 3], attribute(TIMEOUT, &[1, 2]), attribute(PKEY, &[1; 4])] {
        assert_eq!(request(SET_TIMEOUT, &payload), Request::Malformed, "{payload:?}");
    }
}

#[test]
fn what_is_none_of_ours_gets_no_answer() {
    // errors, acknowledgements, ends of dumps, overruns; the port mapper's and the device interface's messages
    for kind in [0, 1, 2, 3, 4, 0xf, 0x10, 0x0801, 0x1400, 0xffff] {
        assert_eq!(request(kind, &[0; 20]), Request::Nothing, "{kind:#x}");
    }
    for kind in [0x1003, 0x13ff] {
        assert!(is_refused(kind, &[]), "an operation that is not known yet");
    }
}

#[test]
fn a_datagram_ends_where_its_lengths_contradict() {
    let good = message(RESOLVE, 1, &[0; 1]);
    let mut padded = good.clone();
    padded.resize(20, 0);
    let two = [padded.clone(), message(RESOLVE, 2, &[])].concat();
    let sequences: Vec<_> = messages(&two).map(|m| m.expect("whole").sequence).collect();
    assert_eq!(sequences, [1, 2]);
    for length in 1..16 {
        let cut = [&padded[..], &good[..length]].concat();
        let all: Vec<_> = messages(&cut).collect();
        assert!(matches!(all[..], [Ok(_), Err(Malformed)]), "{length}");
    }
    for length in [0_u32, 15, 18, u32::MAX] {
        let mut bad = good.clone();
        bad[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(messages(&bad).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
    }
    assert_eq!(messages(&[]).next(), None);
}

#[test]
fn answers_have_the_bytes_that_the_kernel_wants() {
    let mut record = PathRecord::default();
    record.set_dgid(Gid([9; 16]));
    record.set_dlid(0x1234);
    for (path_use, flags) in [(USE_ALL, 0x2b_u32), (USE_UNIDIRECTIONAL, 0x0a), (USE_GMP, 0x2b)] {
        let (context, _) = path(path_use, &[]);
        let answer = Answer::from_reply(4711, context, &reply(Status::Success, &record));
        let mut wanted = 92_u32.to_ne_bytes().to_vec();
        wanted.extend_from_slice(&RESOLVE.to_ne_bytes());
        wanted.extend_from_slice(&[0; 2]);
        wanted.extend_from_slice(&7_u32.to_ne_bytes());
        wanted.extend_from_slice(&4711_u32.to_ne_bytes());
        wanted.extend_from_slice(&76_u16.to_ne_bytes());
        wanted.extend_from_slice(&1_u16.to_ne_bytes());
        wanted.extend_from_slice(&flags.to_ne_bytes());
        wanted.extend_from_slice(&[0; 4]);
        wanted.extend_from_slice(&record.0);
        assert_eq!(answer.as_bytes(), wanted);
    }
    let by_address = Context { kind: IP_RESOLVE, sequence: 3, one_way: false };
    let answer = Answer::from_reply(4711, by_address, &reply(Status::Success, &record));
    let mut wanted = 36_u32.to_ne_bytes().to_vec();
    wanted.extend_from_slice(&IP_RESOLVE.to_ne_bytes());
    wanted.extend_from_slice(&[0; 2]);
    wanted.extend_from_slice(&3_u32.to_ne_bytes());
    wanted.extend_from_slice(&4711_u32.to_ne_bytes());
    wanted.extend_from_slice(&20_u16.to_ne_bytes());
    wanted.extend_from_slice(&4_u16.to_ne_bytes());
    wanted.extend_from_slice(&[9; 16]);
    assert_eq!(answer.as_bytes(), wanted);

    let mut refusal = 16_u32.to_ne_bytes().to_vec();
    refusal.extend_from_slice(&IP_RESOLVE.to_ne_bytes());
    refusal.extend_from_slice(&0x100_u16.to_ne_bytes());
    refusal.extend_from_slice(&3_u32.to_ne_bytes());
    refusal.extend_from_slice(&4711_u32.to_ne_bytes());
    let nobody = reply(Status::Success, &PathRecord::default());
    let failure = reply(Status::Etimedout, &record);
    for reply in [&nobody[..], &failure, &failure[..16], &nobody[..87], &[]] {
        assert_eq!(Answer::from_reply(4711, by_address, reply).as_bytes(), refusal);
    }
}

#[test]
fn questions_become_those_of_a_client() {
    let (_, question) = path(0, &[attribute(DGID, &[1; 16])]);
    let entry = question.entry(Some(Gid([2; 16])), true);
    let asked = PathRecord(entry.info);
    assert_eq!((entry.flags, entry.kind, asked.dgid(), asked.sgid()), (0, TYPE_PATH, Gid([1; 16]), Gid([2; 16])));
    assert_eq!(question.entry(None, false).flags, FLAG_NODELAY);
    let (_, question) = path(0, &[attribute(SGID, &[3; 16])]);
    assert_eq!(PathRecord(question.entry(Some(Gid([2; 16])), true).info).sgid(), Gid([3; 16]));

    let entries = ip_entries([10, 0, 0, 1].into(), None, true);
    assert_eq!(entries, [Entry::address(EP_FLAG_DEST, TYPE_IP, &[10, 0, 0, 1])]);
    let (dest, source) = (Ipv6Addr::from([1; 16]), Ipv6Addr::from([2; 16]));
    let entries = ip_entries(dest.into(), Some(source.into()), false);
    let wanted = [
        Entry::address(EP_FLAG_DEST | FLAG_NODELAY, TYPE_IP6, &[1; 16]),
        Entry::address(EP_FLAG_SOURCE, TYPE_IP6, &[2; 16]),
    ];
    assert_eq!(entries, wanted);
}

#[test]
fn questions_can_be_read() {
    let (_, question) = path(0, &[attribute(DGID, &[1; 16])]);
    let said = Question::Path(question).to_string();
    assert!(said.starts_with("for a path from ") && said.contains("(mlx5_0 port 1) to "), "{said}");
    let ask = |interface| Question::Ip { dest: [10, 0, 0, 1].into(), interface }.to_string();
    assert_eq!((ask(0).as_str(), ask(6).as_str()), ("who has 10.0.0.1", "who has 10.0.0.1 on interface 6"));
}
