use super::*;

fn gid(prefix: u64, interface: u64) -> Gid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&prefix.to_be_bytes());
    bytes[8..].copy_from_slice(&interface.to_be_bytes());
    Gid(bytes)
}

/// A path from port 1 to this port, in another subnet than the default one.
fn path_to(port: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dlid(port);
    path.set_dgid(gid(0xfec0 << 48, port.into()));
    path.set_slid(1);
    path.set_sgid(gid(0xfec0 << 48, 1));
    path
}

/// Whether an answer is taken.
fn takes(record: PathRecord, query_sa: bool, answer: &PathRecord) -> bool {
    let header = Header {
        version: VERSION,
        opcode: OP_RESOLVE | OP_ACK,
        status: 0,
        data: [0; 3],
        length: (HDR_LEN + ENTRY_LEN) as u16,
        tid: [0; 8],
    };
    let reply = [header.emit().to_vec(), Entry::path(0, answer).emit().to_vec()].concat();
    match (Request::Path { record, query_sa, cached_only: false }).read(&reply) {
        Ok(answered) => answered.is_ok_and(|r| matches!(r, Reply::Path(p) if p.record == *answer)),
        Err(violation) => {
            assert!(matches!(violation, Violation::Contents(_)), "{violation:?}");
            false
        }
    }
}

/// A question with one field only, or with two.
fn question(set: impl Fn(&mut PathRecord)) -> PathRecord {
    let mut record = PathRecord::default();
    set(&mut record);
    record
}

#[test]
fn a_path_to_another_port_is_no_answer() {
    let right = path_to(7);
    for by_sa in [false, true] {
        for asked in [question(|q| q.set_dlid(7)), question(|q| q.set_dgid(right.dgid())), right] {
            assert!(takes(asked, by_sa, &right), "{asked:?}");
            assert!(!takes(asked, by_sa, &path_to(8)), "{asked:?}");
        }
    }
}

#[test]
fn a_port_has_its_gid_with_the_default_prefix_too() {
    for by_sa in [false, true] {
        let asked = question(|q| q.set_dgid(gid(Gid::DEFAULT_PREFIX, 7)));
        assert!(takes(asked, by_sa, &path_to(7)));
        assert!(!takes(asked, by_sa, &path_to(8)));
        // Any other prefix is a subnet's own.
        assert!(!takes(question(|q| q.set_dgid(gid(0xfec1 << 48, 7))), by_sa, &path_to(7)));
    }
}

#[test]
fn what_a_cache_need_not_keep_to_the_subnet_administrator_does() {
    let right = path_to(7);
    let others = [
        question(|q| {
            q.set_dlid(7);
            q.set_slid(2);
        }),
        question(|q| {
            q.set_dlid(7);
            q.set_sgid(gid(0xfec0 << 48, 2));
        }),
        question(|q| {
            q.set_dlid(7);
            q.set_dgid(gid(0xfec0 << 48, 8));
        }),
    ];
    for asked in others {
        assert_eq!((takes(asked, false, &right), takes(asked, true, &right)), (true, false), "{asked:?}");
    }
}
