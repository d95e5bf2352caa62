//! What the fuzzer runs (`scripts/fuzz`): replies of a service that is not to be trusted. Compiled for `cargo fuzz`, and
//! for the test that runs it on the corpus.

use ibacm_wire::client::{
    COUNTERS, ENTRY_LEN, EP_CONFIG_LEN, EP_FLAG_SOURCE, Entry, HDR_LEN, Header, MAX_ADDRESS, OP_ACK, PATH_FLAGS,
    VERSION,
};
use ibacm_wire::{Gid, PathRecord};

use crate::message::{Address, Reply, Request, Scope, reply_len};

/// Requests, of which the first byte chooses one. `asked` is what is known of a path.
fn request(kind: u8, asked: &[u8]) -> Request {
    let mut record = PathRecord::default();
    match kind >> 4 & 3 {
        0 => record.set_dlid(11),
        1 => record.set_dgid(Gid([5; 16])),
        _ => record.0.iter_mut().zip(asked).for_each(|(to, from)| *to = *from),
    }
    let destination = Address::parse(if kind & 64 == 0 { "10.0.0.1" } else { "node" });
    match kind & 7 {
        0 => Request::Resolve { source: None, destination, cached_only: kind & 8 != 0 },
        1 => Request::Resolve { source: Some(Address::parse("fd00::1")), destination, cached_only: false },
        2 | 3 => Request::Path { record, query_sa: kind & 1 != 0, cached_only: kind & 8 != 0 },
        4 => Request::Counters(Scope::Totals),
        5 => Request::Counters(Scope::Address(destination)),
        _ => Request::Endpoint { number: 1, port: kind >> 4 },
    }
}

/// The first byte says what was asked, the rest is what a service sends.
pub fn reply(bytes: &[u8]) {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let request = request(*kind, rest);
    let _ = request.emit([0; 8]);
    while let Ok(Some(length)) = reply_len(rest) {
        // it is told as early as there is a header
        assert_eq!(rest.get(..HDR_LEN).map(reply_len), Some(Ok(Some(length))));
        let Some((whole, more)) = rest.split_at_checked(length) else { return };
        match request.read(whole) {
            Ok(Ok(Reply::Endpoint(e))) => {
                assert!(e.addresses.len() <= whole.len() / MAX_ADDRESS);
                assert!(e.addresses.iter().all(|a| a.as_bytes().len() <= MAX_ADDRESS));
            }
            Ok(Ok(Reply::Path(p))) => drop(p.source.map(|s| s.to_string())),
            Ok(Ok(Reply::Counters(_))) => assert!(whole.len() >= HDR_LEN + 8 * COUNTERS),
            Ok(Err(error)) => drop(error.to_string()),
            Err(violation) => drop(violation.to_string()),
        }
        rest = more;
    }
}

/// Replies as a service gives them: the target's name, their own, and the bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let header = |opcode: u8, data, length: usize| {
        let length = length as u16;
        Header { version: VERSION, opcode: opcode | OP_ACK, status: 0, data, length, tid: [0; 8] }.emit().to_vec()
    };
    let mut path = PathRecord::default();
    path.set_dlid(11);
    path.set_dgid(Gid([5; 16]));
    let found = Entry::path(PATH_FLAGS, &path).emit();
    let source = Entry::address(EP_FLAG_SOURCE, 2, &[10, 0, 0, 2]).emit();
    let with_source = [header(1, [0; 3], HDR_LEN + 2 * ENTRY_LEN), found.to_vec(), source.to_vec()].concat();
    let alone = [header(1, [0; 3], HDR_LEN + ENTRY_LEN), found.to_vec()].concat();
    let counters = [header(2, [11, 0, 0], HDR_LEN + 88), vec![1; 88]].concat();
    let mut config = vec![0; EP_CONFIG_LEN + 2 * MAX_ADDRESS];
    config[15] = 2;
    let endpoint = [header(3, [1, 0, 0], HDR_LEN + config.len()), config].concat();
    let refused = [1, 0x81, 6, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let seed = |kind: u8, reply: &[u8]| [&[kind][..], reply, &refused].concat();
    vec![
        ("reply", "address", seed(0, &with_source)),
        ("reply", "path", seed(2, &alone)),
        ("reply", "path_by_sa", seed(3 | 16, &alone)),
        ("reply", "counters", seed(4, &counters)),
        ("reply", "endpoint", seed(6, &endpoint)),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn nothing_in_the_corpus_is_too_much() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/reply");
        let files = std::fs::read_dir(corpus).expect("a corpus");
        let files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
        assert!(files.len() >= super::seeds().len());
        for file in files {
            let bytes = std::fs::read(&file).expect("a file");
            // the last line of a failed test says which it was
            println!("{}", file.display());
            super::reply(&bytes);
        }
    }
}
