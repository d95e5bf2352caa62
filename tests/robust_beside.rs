//! Clients that do all they can to be a burden, for a while, and one beside them that is served all the time.

#[path = "util/beside.rs"]
mod beside;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use beside::Beside;
use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, HDR_LEN, Header, MAX_REQUEST, More, OP_PERF_QUERY, TYPE_IP,
    TYPE_NAME, VERSION, resolve_request,
};
use rob::{enter, idle_second, memory, settles, steady_descriptors};
use util::client::{between, ip};
use util::{Client, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|_| {});

/// Clients of each kind.
const EACH: usize = 12;
/// Bytes of a flood, at least.
const MUCH: u64 = 1 << 18;

fn own_bytes() -> Vec<u8> {
    let (bytes, length) = resolve_request(1, &between("10.77.0.1", "fd77::1"));
    bytes[..length].to_vec()
}

/// The shortest request, one for counters.
fn short() -> [u8; HDR_LEN] {
    Header { version: VERSION, opcode: OP_PERF_QUERY, length: HDR_LEN as u16, tid: [7; 8], ..Header::default() }.emit()
}

/// Writes requests until the service takes no more.
fn fill(stream: &mut UnixStream) {
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let heap = own_bytes().repeat(64);
    let mut sent = 0;
    while stream.write_all(&heap).is_ok() {
        sent += heap.len();
        assert!(sent < 64 << 20, "nobody reads that much for nothing");
    }
}

/// What `EACH` clients have that are all of one kind.
fn several(connect: impl Fn() -> Client) -> Vec<Client> {
    (0..EACH).map(|_| connect()).collect()
}

#[test]
fn a_byte_a_second_each_way_and_none_at_all() {
    let lab = enter(&LAB);
    let _peer = lab.ours("H2", "");
    let daemon = lab.ours("H1", "");
    let questions = vec![between("10.77.0.1", "fd77::1"), between("10.77.0.1", "10.77.0.2")];
    let good = Beside::start(&lab, "H1", questions);
    let before = (steady_descriptors(daemon.pid()), memory(daemon.pid()));
    let connect = || Client::connect(&lab, "H1");
    let (mut never, mut readers) = (several(connect), several(connect));
    never.iter_mut().chain(&mut readers).for_each(|client| fill(client.stream()));
    let (mut writers, mut in_time) = (several(connect), several(connect));
    let (resolve, counters) = (own_bytes(), short());
    let begin = Instant::now();
    let mut read: Vec<Vec<u8>> = vec![Vec::new(); EACH];
    for step in 0..24 {
        if step % 2 == 0 {
            // A request of 160 bytes at this pace does not end in ten seconds, and a reply may take as long as it likes.
            for writer in &mut writers {
                // The service has closed it by the end.
                let _ = writer.stream().write_all(&resolve[step / 2..=step / 2]);
            }
            for (reader, bytes) in readers.iter_mut().zip(&mut read) {
                let mut byte = [0];
                reader.stream().read_exact(&mut byte).expect("its replies are kept");
                bytes.push(byte[0]);
            }
        }
        // Sixteen bytes in eight seconds are slow, and in time.
        if let Some(byte) = counters.get(step) {
            in_time.iter_mut().for_each(|client| client.send(&[*byte]));
        }
        let next = Duration::from_millis(500) * (step as u32 + 1);
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
    }
    assert!(begin.elapsed() < Duration::from_secs(18), "the machine is too slow for this test");
    for writer in &mut writers {
        assert_eq!(writer.recv(), None, "its time is over");
    }
    for client in &mut in_time {
        assert_eq!(client.recv().expect("an answer").header.tid, [7; 8]);
    }
    for bytes in &read {
        assert_eq!(bytes[..3], [VERSION, 0x81, 0], "the beginning of a success: {bytes:?}");
        assert_eq!(bytes[8..], 1_u64.to_ne_bytes()[..bytes.len() - 8], "{bytes:?}");
    }
    let closed = connect().more_counters()[More::ClientsUnfinished as usize];
    assert_eq!(closed, EACH as u64, "those who did not finish, and nobody else");
    let used = memory(daemon.pid());
    assert!(used < before.1 + 2 * 16 * EACH as u64 * 8, "{used} KiB, {} before", before.1);
    good.was_served();
    assert!(idle_second(daemon.pid()) <= Duration::from_millis(20), "no turning in place");
    drop((never, readers, writers, in_time));
    settles(daemon.pid(), before.0);
}

/// Bytes that are the same each time, and look like nothing.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// What somebody floods the service with: nothing that it knows, requests with nonsense in them, look-ups of made-up
/// destinations that nobody waits for, and requests that can be answered.
#[derive(Clone, Copy, Debug)]
enum Flood {
    Bytes,
    Entries,
    Destinations,
    Requests,
}

/// A heap of what is sent.
fn heap(flood: Flood, noise: &mut Noise) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..64 {
        let mut info = [0; MAX_REQUEST];
        noise.fill(&mut info);
        match flood {
            Flood::Bytes => bytes.extend_from_slice(&info),
            Flood::Entries => {
                let frame = Header { version: VERSION, opcode: 1, length: MAX_REQUEST as u16, ..Header::default() };
                bytes.extend_from_slice(&frame.emit());
                bytes.extend_from_slice(&info[HDR_LEN..]);
            }
            Flood::Destinations => {
                let kind = [TYPE_NAME, TYPE_IP][usize::from(info[100] & 1)];
                let dest = Entry::address(EP_FLAG_DEST | FLAG_NODELAY, kind, &info[..4]);
                let (request, length) = resolve_request(1, &[ip(EP_FLAG_SOURCE, "10.77.0.1"), dest]);
                bytes.extend_from_slice(&request[..length]);
            }
            Flood::Requests => bytes.extend_from_slice(&own_bytes()),
        }
    }
    bytes
}

/// Sends as fast as the service takes it until `end`, and until it has taken much, connecting anew whenever it is closed.
/// Gives back the bytes that were taken, and how many connections that was.
fn flood(socket: &Path, kind: Flood, end: Instant) -> (u64, u64) {
    let mut noise = Noise(kind as u64);
    let heaps: Vec<Vec<u8>> = (0..32).map(|_| heap(kind, &mut noise)).collect();
    let (mut sent, mut connections) = (0, 0);
    let at_last = end + PATIENCE;
    let over = |sent: u64| Instant::now() > if sent > MUCH { end } else { at_last };
    while !over(sent) {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        connections += 1;
        let mut replies = stream.try_clone().expect("descriptors are not rare");
        // Whoever sends has to read as well, or it stops.
        let reader = std::thread::spawn(move || {
            let _ = io::copy(&mut replies, &mut io::sink());
        });
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        for heap in heaps.iter().cycle() {
            if stream.write_all(heap).is_err() || over(sent) {
                break;
            }
            sent += heap.len() as u64;
        }
        let _ = stream.shutdown(Shutdown::Both);
        reader.join().expect("it reads until the end");
    }
    (sent, connections)
}

#[test]
fn garbage_at_full_speed() {
    let lab = enter(&LAB);
    lab.inject("port H1 subnet_timeout=8").unwrap();
    let _peer = lab.ours("H2", "");
    let mut daemon = lab.ours("H1", "timeout 100\nretries 0\nmax_destinations 1024\n");
    let socket = lab.file("H1", "/run/ibacm-unix.sock");
    let questions = vec![between("10.77.0.1", "fd77::1"), between("10.77.0.1", "10.77.0.2")];
    let before = steady_descriptors(daemon.pid());
    let good = Beside::start(&lab, "H1", questions);
    let mut used = Vec::new();
    let mut closed = 0;
    for round in 0..3 {
        let end = Instant::now() + Duration::from_secs(1);
        let kinds = [Flood::Bytes, Flood::Entries, Flood::Destinations, Flood::Requests, Flood::Bytes, Flood::Entries];
        let threads = kinds.map(|kind| {
            let socket = socket.clone();
            std::thread::spawn(move || (kind, flood(&socket, kind, end)))
        });
        for thread in threads {
            let (kind, (sent, connections)) = thread.join().expect("it sends");
            println!("{kind:?}: {} KiB over {connections} connections", sent >> 10);
            match kind {
                Flood::Bytes => closed += connections,
                _ => assert!(sent > MUCH, "{kind:?}: {sent} bytes were taken"),
            }
        }
        settles(daemon.pid(), before + 1);
        // What was being looked up is given up.
        let rested = wait_for(PATIENCE, || (idle_second(daemon.pid()) < Duration::from_millis(200)).then_some(()));
        assert!(rested.is_some(), "round {round}: it does not come to rest");
        used.push(memory(daemon.pid()));
    }
    good.was_served();
    let refused = Client::connect(&lab, "H1").more_counters()[More::ClientsProtocol as usize];
    assert!(refused > 0 && refused <= closed, "{refused} of {closed} connections");
    assert!(daemon.is_alive());
    assert!(used[2] < used[1] + 512, "memory grows: {used:?} KiB");
    assert!(daemon.said().lines().count() < 100, "nor do they fill the log: {}", daemon.said());
    settles(daemon.pid(), before);
}
