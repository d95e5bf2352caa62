//! Messages and files as they are, to begin from: `scripts/fuzz --seeds` writes them into the corpus.

use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA, HDR_LEN, Header, VERSION, resolve_request,
};
use ibacm_wire::datagram::{Datagram, Groups, Request, group_gid};
use ibacm_wire::{PathRecord, sa};

use super::names;

/// A seed: its target, its name and its bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// What the first five bytes say: options close to the defaults.
const DEFAULTS: [u8; 5] = [0; 5];
/// `route_prot acm` with more groups, short times, all depths and log level 2.
const OTHERS: [u8; 5] = [1, 0x3f, 2, 0, 0xc2];

fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut all = (16 + body.len() as u32).to_ne_bytes().to_vec();
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(&1u16.to_ne_bytes());
    all.extend_from_slice(&sequence.to_ne_bytes());
    all.extend_from_slice(&[0; 4]);
    all.extend_from_slice(body);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut all = (4 + content.len() as u16).to_ne_bytes().to_vec();
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// A datagram as the target takes it: kind, length, bytes.
fn netlink(kind: u8, datagram: &[u8]) -> Vec<u8> {
    [&[kind][..], &(datagram.len() as u16).to_be_bytes(), datagram].concat()
}

fn kernel_questions() -> Vec<u8> {
    let mut path = b"mlx5_0".to_vec();
    path.resize(64, 0);
    path.extend_from_slice(&[1, 2, 0, 0]);
    path.extend(attribute(4, &names::gid(1).0));
    path.extend(attribute(6 | 0x8000, &0xffffu16.to_ne_bytes()));
    let ip = |kind, bytes: &[u8]| [vec![0; 4], attribute(kind, bytes)].concat();
    let wait = attribute(2, &1000u32.to_ne_bytes());
    let all = [
        message(0x1000, 1, &path),
        message(0x1002, 2, &ip(9, &[10, 0, 0, 2])),
        message(0x1002, 3, &ip(10, &names::gid(2).0)),
        message(0x1001, 4, &wait),
    ];
    [&DEFAULTS[..], &netlink(0, &all.concat()), &[6], &netlink(0, &all[1]), &[14, 200]].concat()
}

fn interfaces() -> Vec<u8> {
    let hardware = [&[0x80, 0, 0, 0x48][..], &names::gid(0).0].concat();
    let broadcast = [&[0, 0xff, 0xff, 0xff, 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff][..], &[0; 10]].concat();
    let mut link = vec![0, 0, 32, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    link.extend([attribute(3, b"ib0\0"), attribute(1, &hardware), attribute(2, &broadcast)].concat());
    let mut addr = vec![2, 16, 0, 0, 7, 0, 0, 0];
    addr.extend(attribute(2, &[10, 0, 0, 1]));
    let mut neighbour = vec![2, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0];
    let other = [&[0x80, 0, 0, 0x48][..], &names::gid(1).0].concat();
    neighbour.extend([attribute(1, &[10, 0, 0, 2]), attribute(2, &other)].concat());
    let all = [message(16, 2, &link), message(20, 2, &addr), message(28, 0, &neighbour), message(3, 2, &[0; 4])];
    let gone = [message(21, 0, &addr), message(17, 0, &link)].concat();
    [&DEFAULTS[..], &netlink(3, &all.concat()), &[7 | 16, 0xff, 0xff], &netlink(3, &gone), &[7]].concat()
}

fn requests() -> Vec<u8> {
    let mut path = PathRecord::default();
    path.set_dgid(names::gid(1));
    let resolve = |entries: &[Entry]| {
        let (msg, length) = resolve_request(1, entries);
        msg[..length].to_vec()
    };
    let (from, to) = (names::entry(EP_FLAG_SOURCE, 0, 0), names::entry(EP_FLAG_DEST, 1, 0));
    let header = |opcode, data| {
        Header { version: VERSION, opcode, status: 0, data, length: HDR_LEN as u16, tid: [1; 8] }.emit().to_vec()
    };
    [
        [&DEFAULTS[..], &[0, 100]].concat(),
        resolve(&[to]),
        resolve(&[from, to]),
        resolve(&[names::entry(EP_FLAG_DEST, 2, 3)]),
        resolve(&[Entry::path(0, &path)]),
        resolve(&[Entry::path(FLAG_QUERY_SA, &path)]),
        header(2, [0, 0, 1]),
        header(2, [0, 1, 0]),
        header(3, [1, 0, 0]),
    ]
    .concat()
}

/// A look-up of host 1 with its response, its path, and what follows.
fn look_ups() -> Vec<u8> {
    let mut all = Vec::new();
    for kind in 0..4 {
        // asks by address; the response comes from host 1; the SA answers
        all.extend([0, 0, 0, 8 | kind, 128, 1 << 5, 0, 0, 0, 100]);
    }
    // host 2 asks for an own address; host 3 claims another's; garbage
    all.extend([128, 2 << 5 | 3, 0, 0, 1, 2, 100, 128, 3 << 5 | 3, 0x88, 0, 1, 2, 128, 7, 3, 1, 0x2c, 1, 0]);
    all
}

fn raw_request() -> Vec<u8> {
    let info = |last| {
        let mut info = [0; 64];
        info[..4].copy_from_slice(&[10, 0, 0, last]);
        info
    };
    let groups = Groups::new([group_gid(0xffff, 3, 4)]);
    let request = Request { tid: 1, dest_type: 2, dest: info(1), src_type: 2, src: info(2), groups };
    let bytes = Datagram::Request(request).emit();
    [&[128, 1 << 5 | 7, 200][..], &bytes[..200], &[0, 100]].concat()
}

/// Options, and then for each kind of event one with some of its variants.
fn events(options: [u8; 5], kinds: &[u8]) -> Vec<u8> {
    let mut all = [&options[..], &[0, 0, 0]].concat();
    for kind in kinds {
        for variant in [0, 3, 0x84] {
            all.extend([0, 0, variant, 8, 0, *kind, variant, 1, 2, 0]);
        }
    }
    all
}

/// Routes change, and a path that is being checked because of that goes down with its port.
fn checks() -> Vec<u8> {
    let mut all = [&DEFAULTS[..], &[0, 0, 0]].concat();
    // host 1 is asked for by GID, and the SA answers; a notice of links; time
    all.extend([0, 0, 3, 1, 1, 0, 15, 0, 11, 13, 0, 2, 0, 18, 40, 0]);
    // the same is asked for again, and is checked; the port goes down, comes up, and everything is answered
    all.extend([0, 0, 3, 1, 1, 0, 22, 0, 0, 0, 22, 0, 0, 0, 15, 0]);
    all
}

/// The seeds of all targets.
pub fn seeds() -> Vec<Seed> {
    let file = |kind: u8, text: &str| [&[kind][..], text.as_bytes()].concat();
    let guid = |h| names::gid(h).interface_id();
    let dump = format!(
        "Channel Adapter 0x{:016x}, base LID 10, \"h1 mlx5_0\", port 1\n# LID  : SL : MTU : RATE\n0x000A : 0  : 5   : 7   \n\
         0x000B : 3  : 4   : 16  \n0x000C : UNREACHABLE\n\nSwitch 0x{:016x}, base LID 11, \"leaf\", port 0\n# LID  : SL : MTU : RATE\n\
         0x000A : 0  : 4   : 3   \n",
        guid(0),
        guid(1)
    );
    let report = [112, 0, 112, 9, 112, 2, 96, 112, 0x84, 1, 3, 1];
    let mad = [&[128, 14 | 16, 0, 24, 1, 3, 2, sa::METHOD_GET | sa::METHOD_RESP][..], &[0; 20]].concat();
    vec![
        ("client", "requests", requests()),
        ("datagram", "look_ups", [&DEFAULTS[..], &look_ups()].concat()),
        ("datagram", "look_ups_acm", [&OTHERS[..], &look_ups()].concat()),
        ("datagram", "request", [&DEFAULTS[..], &raw_request()].concat()),
        ("sa", "answers", [&DEFAULTS[..], &[0], &look_ups(), &report, &mad].concat()),
        ("sa", "answers_acm", [&OTHERS[..], &[1], &look_ups(), &report, &mad].concat()),
        ("netlink", "questions", kernel_questions()),
        ("netlink", "interfaces", interfaces()),
        (
            "files",
            "options",
            file(0, "log_level 1\nprovider ibacmp default\ntimeout 200ms # more\nserver_mode open\nminrate 40\n"),
        ),
        (
            "files",
            "addresses",
            file(5, "# name\nnode1 mlx5_0 1 default\n10.0.0.7 mlx5_0 2 8001\nfd00::1 mlx5_1 1 0xffff\n"),
        ),
        (
            "files",
            "hosts",
            file(2, "10.0.0.2 fe80::2:c900:0:2\nnode-1 fe80::2:c900:0:2 # c\nfd10::3 fe80::2:c900:0:3\n"),
        ),
        ("files", "routes", file(3 | 5 << 2, &dump)),
        ("engine", "checks", checks()),
        ("engine", "look_ups", events(DEFAULTS, &[0, 6, 11, 15, 17, 18])),
        ("engine", "all", events(OTHERS, &(0..32).collect::<Vec<u8>>())),
    ]
}
