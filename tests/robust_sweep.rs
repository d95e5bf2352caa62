//! Every request that there can be, sound or not: each has one well-formed reply or costs its connection, and nothing is
//! left of them.

#[path = "util/beside.rs"]
mod beside;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::collections::BTreeMap;

use beside::Beside;
use ibacm_wire::client::{
    ENTRY_LEN, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN, MAX_ENTRIES, MAX_REQUEST,
    OP_ACK, OP_EP_QUERY, OP_MASK, OP_PERF_QUERY, OP_RESOLVE, TYPE_IP, TYPE_PATH, VERSION,
};
use rob::{enter, memory, steady_descriptors};
use util::client::between;
use util::{Client, Lab, Message, Shared};

static LAB: Shared = Shared::new(|_| {});

/// Requests that a client has outstanding at most. More than 256 would not be read, and wait where nobody sees them.
const HEAP: usize = 128;

/// Outcomes that the protocol has.
const STATUSES: [u8; 10] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10];

/// A request as it goes out: the length is what is said, in the order of the operation, and not always what is true.
fn request(version: u8, opcode: u8, data: [u8; 4], length: u16, body: &[u8]) -> Vec<u8> {
    let length = if opcode & OP_MASK == OP_RESOLVE { length.to_ne_bytes() } else { length.to_be_bytes() };
    let mut bytes = vec![version, opcode];
    bytes.extend_from_slice(&data);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

fn entry(flags: u32, kind: u16, info: &[u8]) -> [u8; ENTRY_LEN] {
    Entry::address(flags, kind, info).emit()
}

/// A resolve request of these bytes behind the header.
fn resolve(body: &[u8]) -> Vec<u8> {
    request(VERSION, OP_RESOLVE, [0; 4], (HDR_LEN + body.len()) as u16, body)
}

/// Sends sound requests, many at a time, and looks at their replies, which come in any order.
struct Asker<'a> {
    lab: &'a Lab<'a>,
    client: Client,
    heap: BTreeMap<u64, Vec<u8>>,
    next: u64,
    statuses: BTreeMap<u8, usize>,
}

impl<'a> Asker<'a> {
    fn new(lab: &'a Lab<'a>) -> Asker<'a> {
        let client = Client::connect(lab, "H1");
        Asker { lab, client, heap: BTreeMap::new(), next: 1, statuses: BTreeMap::new() }
    }

    fn sound(&mut self, mut bytes: Vec<u8>) {
        bytes[8..HDR_LEN].copy_from_slice(&self.next.to_ne_bytes());
        self.heap.insert(self.next, bytes);
        self.next += 1;
        if self.heap.len() == HEAP {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let bytes: Vec<u8> = self.heap.values().flatten().copied().collect();
        self.client.send(&bytes);
        while !self.heap.is_empty() {
            let reply = self.client.recv().expect("a sound request has a reply");
            let tid = u64::from_ne_bytes(reply.header.tid);
            let asked = self.heap.remove(&tid).unwrap_or_else(|| panic!("one reply each: {reply:?}"));
            assert_well_formed(&asked, &reply);
            *self.statuses.entry(reply.header.status).or_default() += 1;
        }
    }

    /// A request that no service can know: the connection ends, without a reply.
    fn unsound(&self, bytes: &[u8]) {
        let mut client = Client::connect(self.lab, "H1");
        client.send(bytes);
        assert_eq!(client.recv(), None, "{:02x?}", &bytes[..bytes.len().min(HDR_LEN)]);
    }

    /// Whatever it is, by what the protocol says of it.
    fn any(&mut self, bytes: Vec<u8>) {
        let operation = bytes[1] & OP_MASK;
        let field = [bytes[6], bytes[7]];
        let said = if operation == OP_RESOLVE { u16::from_ne_bytes(field) } else { u16::from_be_bytes(field) };
        let known = bytes[0] == VERSION && [OP_RESOLVE, OP_PERF_QUERY, OP_EP_QUERY].contains(&operation);
        if known && (HDR_LEN..=MAX_REQUEST).contains(&usize::from(said)) {
            assert_eq!(bytes.len(), usize::from(said));
            self.sound(bytes);
        } else {
            self.unsound(&bytes);
        }
    }
}

fn assert_well_formed(asked: &[u8], reply: &Message) {
    let (head, length) = (reply.header, reply.bytes.len());
    let what = || format!("{head:?} to {:02x?}", &asked[..asked.len().min(HDR_LEN + ENTRY_LEN)]);
    // The upper bits of an operation mean nothing; a failed one has none of them in its reply.
    let operation = head.opcode & (OP_ACK | OP_MASK);
    assert_eq!((head.version, operation), (VERSION, asked[1] & OP_MASK | OP_ACK), "{}", what());
    assert!(STATUSES.contains(&head.status), "{}", what());
    if head.status != 0 {
        assert_eq!(length, HDR_LEN, "a failure is a header: {}", what());
        return;
    }
    match asked[1] & OP_MASK {
        OP_RESOLVE => {
            assert_eq!((length - HDR_LEN) % ENTRY_LEN, 0, "{}", what());
            reply.path();
        }
        OP_PERF_QUERY => assert_eq!(length, HDR_LEN + 8 * usize::from(head.data[0]), "{}", what()),
        _ => {
            let addresses = u16::from_be_bytes([reply.bytes[HDR_LEN + 14], reply.bytes[HDR_LEN + 15]]);
            assert_eq!(length, HDR_LEN + 80 + 64 * usize::from(addresses), "{}", what());
        }
    }
}

/// Every operation in every version, with lengths around all that mean something.
fn headers(asker: &mut Asker<'_>) {
    let (one, two, most) = (HDR_LEN + ENTRY_LEN, HDR_LEN + 2 * ENTRY_LEN, MAX_REQUEST);
    let around = [HDR_LEN, one, two, most].into_iter().flat_map(|n| [n - 1, n, n + 1]);
    // 0x1000 and 0x5800 are those that are read in the wrong order.
    let lengths: Vec<u16> = around.chain([0, 1, 0x1000, 0x5800, 0xffff]).map(|n| n as u16).collect();
    let body: Vec<u8> = between("10.77.0.1", "fd77::1").iter().flat_map(Entry::emit).collect();
    for version in [VERSION, 0, 2, 0xff] {
        for opcode in 0..=u8::MAX {
            // What is no version of anything is refused by its first byte, whatever is behind it.
            let lengths = if version == VERSION { &lengths[..] } else { &lengths[1..2] };
            for length in lengths {
                let mut body = body.clone();
                body.resize(usize::from(*length).clamp(HDR_LEN, MAX_REQUEST + 1) - HDR_LEN, 0);
                asker.any(request(version, opcode, [0; 4], *length, &body));
            }
        }
    }
    let values = [0, 1, 2, 0x7f, 0xff];
    for opcode in [OP_RESOLVE, OP_PERF_QUERY, OP_EP_QUERY] {
        for n in 0..values.len().pow(4) {
            let data = [1, 5, 25, 125].map(|place| values[n / place % values.len()]);
            asker.sound(request(VERSION, opcode, data, HDR_LEN as u16, &[]));
        }
    }
}

/// Every type of an entry, with every combination of flags and some that none knows.
fn entries(asker: &mut Asker<'_>) {
    let flags = [EP_FLAG_SOURCE, EP_FLAG_DEST, FLAG_NODELAY, FLAG_QUERY_SA, 1 << 2, 1 << 29];
    let flags = |n: u32| flags.iter().enumerate().filter(|(i, _)| n & 1 << i != 0).fold(0, |sum, (_, flag)| sum | flag);
    for kind in (0..=0xff).chain([0x0100, 0x0200, 0x1000, 0x8001, 0xffff]) {
        for n in 0..1 << 6 {
            asker.sound(resolve(&entry(flags(n), kind, &[10, 77, 0, 1])));
        }
        // A source of this type, and a destination of it.
        let own = [10, 77, 0, 1];
        let (from, to) = (entry(EP_FLAG_SOURCE, TYPE_IP, &own), entry(EP_FLAG_DEST, TYPE_IP, &own));
        asker.sound(resolve(&[entry(EP_FLAG_SOURCE, kind, &own), to].concat()));
        asker.sound(resolve(&[from, entry(EP_FLAG_DEST, kind, &own)].concat()));
        asker.sound(resolve(&[from, entry(EP_FLAG_DEST, kind, &[0xff; 64])].concat()));
        asker.sound(resolve(&[from, entry(EP_FLAG_DEST, kind, &[])].concat()));
        // Questions for counters and endpoints take entries too.
        for opcode in [OP_PERF_QUERY, OP_EP_QUERY] {
            let body = entry(EP_FLAG_SOURCE, kind, &own);
            asker.sound(request(VERSION, opcode, [0; 4], (HDR_LEN + ENTRY_LEN) as u16, &body));
        }
    }
}

/// Every number of entries, whole ones and a part of one more; and paths with every byte of theirs set.
fn numbers(asker: &mut Asker<'_>) {
    let own = [10, 77, 0, 1];
    for count in 0..=MAX_ENTRIES {
        for kind in [0, 1, 2, 3, 4, 5, TYPE_PATH, 0x11, 0xff] {
            for flags in [0, EP_FLAG_SOURCE, EP_FLAG_DEST, EP_FLAG_SOURCE | EP_FLAG_DEST, FLAG_QUERY_SA, u32::MAX] {
                for rest in [0, 1, ENTRY_LEN - 1] {
                    let mut body = entry(flags, kind, &own).repeat(count);
                    // A destination in the last place, which makes some of them sound.
                    if let Some(last) = body.len().checked_sub(ENTRY_LEN).filter(|_| flags & EP_FLAG_DEST == 0) {
                        body[last..].copy_from_slice(&entry(EP_FLAG_DEST, TYPE_IP, &own));
                    }
                    body.resize(body.len() + rest, 0xaa);
                    let bytes = resolve(&body);
                    asker.any(bytes);
                }
            }
        }
    }
    for at in 0..64 {
        for value in [1, 0x80, 0xff] {
            let mut path = [0; 64];
            // A destination that is there, this host, so that it is a question.
            path[40..42].copy_from_slice(&asker.lab.port("H1").unwrap().lid.to_be_bytes());
            path[at] = value;
            for flags in [0, FLAG_NODELAY, FLAG_QUERY_SA] {
                asker.sound(resolve(&entry(flags, TYPE_PATH, &path)));
            }
        }
    }
}

#[test]
fn every_request_there_can_be() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let mut daemon = lab.ours("H1", "timeout 20\nretries 0\n");
    let good = Beside::start(&lab, "H1", vec![between("10.77.0.1", "fd77::1")]);
    let mut left = Vec::new();
    for _ in 0..3 {
        let mut asker = Asker::new(&lab);
        for sweep in [headers, entries, numbers] {
            let begin = std::time::Instant::now();
            sweep(&mut asker);
            asker.finish();
            println!("{:?}, {} sound requests: {:?}", begin.elapsed(), asker.next - 1, asker.statuses);
        }
        assert!(asker.client.is_silent(std::time::Duration::from_millis(20)), "one reply each");
        for status in [0, 2, 3, 6, 7, 8, 9, 10] {
            assert!(asker.statuses.contains_key(&status), "no request has status {status}: {:?}", asker.statuses);
        }
        drop(asker);
        left.push((steady_descriptors(daemon.pid()), memory(daemon.pid())));
    }
    good.was_served();
    assert!(daemon.is_alive());
    // What it opens for the first question of a kind stays.
    assert!(left[2].0 <= left[0].0 && left[2].1 < left[0].1 + 512, "descriptors, KiB: {left:?}");
    assert!(daemon.said().lines().count() < 100, "nor do they fill the log: {}", daemon.said());
}
