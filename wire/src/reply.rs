//! Replies to resolve requests (`struct acm_msg` of rdma-core's `infiniband/acm.h`).

use crate::PathRecord;
use crate::client::{
    ENTRY_LEN, EP_FLAG_SOURCE, Entry, HDR_LEN, Header, MAX_ADDRESS, OP_ACK, OP_RESOLVE, PATH_FLAGS, Status, TYPE_PATH,
    VERSION,
};
use crate::field::put;

/// Bytes of the longest reply that says one path: header, path, source.
pub const PATH_REPLY: usize = HDR_LEN + 2 * ENTRY_LEN;

/// The header of a reply that has so many entries. `tid` is the request's, as it came.
pub fn resolve_reply(tid: [u8; 8], status: Status, entries: usize) -> [u8; HDR_LEN] {
    let length = (HDR_LEN + entries * ENTRY_LEN) as u16;
    Header { version: VERSION, opcode: OP_RESOLVE | OP_ACK, status: status as u8, data: [0; 3], length, tid }.emit()
}

/// A successful reply, and how many of its bytes count: the path, and the kind and the bytes of the `source` that was
/// chosen, where the client has not said which.
pub fn path_reply(
    tid: [u8; 8],
    path: &PathRecord,
    source: Option<(u16, &[u8; MAX_ADDRESS])>,
) -> ([u8; PATH_REPLY], usize) {
    let mut reply = [0; PATH_REPLY];
    let entries = 1 + usize::from(source.is_some());
    put(&mut reply, 0, &resolve_reply(tid, Status::Success, entries));
    put(&mut reply, HDR_LEN, &Entry { flags: PATH_FLAGS, kind: TYPE_PATH, info: path.0 }.emit());
    if let Some((kind, info)) = source {
        put(&mut reply, HDR_LEN + ENTRY_LEN, &Entry { flags: EP_FLAG_SOURCE, kind, info: *info }.emit());
    }
    (reply, HDR_LEN + entries * ENTRY_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::TYPE_IP;

    #[test]
    fn a_reply_reads_as_what_it_was_made_of() {
        let path = PathRecord([7; 64]);
        for source in [None, Some((TYPE_IP, &[9; MAX_ADDRESS]))] {
            let (reply, length) = path_reply(*b"12345678", &path, source);
            assert_eq!(length, if source.is_some() { 160 } else { 88 });
            let header = Header::read(&reply).unwrap();
            assert_eq!((header.opcode, header.status, usize::from(header.length)), (OP_RESOLVE | OP_ACK, 0, length));
            assert_eq!(header.tid, *b"12345678");
            assert_eq!(Entry::read(&reply[..length], 0), Some(Entry::path(PATH_FLAGS, &path)));
            let told = source.map(|(kind, info)| Entry { flags: EP_FLAG_SOURCE, kind, info: *info });
            assert_eq!(Entry::read(&reply[..length], 1), told);
        }
    }
}
