//! What a client costs: nothing from the heap for a request that is answered at once, and little
//! for a connection that is idle.

#[path = "util/counting.rs"]
mod counting;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use counting::counts;
use ibacm::addr::Addr;
use ibacm::engine::{self, Action, Config, Engine, LocalName, PkeyChoice, PortId, PortInfo, SystemAddr, Unroutable};
use ibacm::server::{ClientId, Limits, Outcome, Ready, Server, Service};
use ibacm::time::Time;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, TYPE_IP, TYPE_NAME, resolve_request};
use ibacm_wire::sa::{self, McMember, SaMad};
use ibacm_wire::{Gid, PathRecord};
use mio::Poll;

/// Answers at once, with 88 bytes.
struct Cached;

impl Service for Cached {
    fn request(&mut self, _client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(msg);
        Outcome::Replied
    }

    fn closed(&mut self, _client: ClientId) {}
}

fn request() -> Vec<u8> {
    let mut bytes = vec![0; 88];
    bytes[..2].copy_from_slice(&[1, 1]);
    bytes[6..8].copy_from_slice(&88u16.to_ne_bytes());
    bytes
}

/// A server with one client.
fn connected() -> (Poll, Server, ClientId, UnixStream) {
    let poll = Poll::new().unwrap();
    let mut server = Server::new(poll.registry(), Limits::default()).unwrap();
    let (ours, client) = UnixStream::pair().unwrap();
    let id = server.insert(ours.into()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (poll, server, id, client)
}

/// The own address as source and as destination, and the own name.
fn entries() -> (Entry, Entry, Entry) {
    let address = |flags| Entry::address(flags, TYPE_IP, &OWN);
    (address(EP_FLAG_SOURCE), address(EP_FLAG_DEST), Entry::address(EP_FLAG_DEST, TYPE_NAME, NAME))
}

#[test]
fn an_answer_from_the_cache_allocates_nothing() {
    let (_poll, mut server, id, mut client) = connected();
    let (message, mut reply) = (request(), [0; 256]);
    let ready = Ready { readable: true, ..Ready::default() };
    let before = counts();
    for _ in 0..1_000 {
        client.write_all(&message).unwrap();
        server.on_client(id, ready, 5, &mut Cached);
        server.answer_all(5, &mut Cached);
        assert_eq!(client.read(&mut reply).unwrap(), 88);
        assert!(!server.has_pending());
    }
    assert_eq!(counts(), before);
}

#[test]
fn an_idle_connection_is_small() {
    let poll = Poll::new().unwrap();
    let mut server = Server::new(poll.registry(), Limits::default()).unwrap();
    let mut clients = Vec::with_capacity(256);
    let before = counts().1;
    for _ in 0..256 {
        let (ours, mut client) = UnixStream::pair().unwrap();
        let id = server.insert(ours.into()).unwrap();
        // A partial message, and its end: the buffer for it does not stay.
        client.write_all(&request()[..50]).unwrap();
        let ready = Ready { readable: true, ..Ready::default() };
        server.on_client(id, ready, 5, &mut Cached);
        server.answer_all(5, &mut Cached);
        client.write_all(&request()[50..]).unwrap();
        server.on_client(id, ready, 5, &mut Cached);
        server.answer_all(5, &mut Cached);
        clients.push(client);
    }
    let each = (counts().1 - before) / 256;
    println!("{each} bytes for an idle connection");
    assert!(each <= 160, "{each} bytes");
}

const OWN: [u8; 4] = [10, 0, 0, 1];
const NAME: &[u8] = b"a-name-that-is-longer-than-a-short-key";

/// An engine with one port, whose own addresses are in its cache.
struct Resolving(Engine);

impl Resolving {
    fn new() -> Resolving {
        Resolving::with(Config::default())
    }

    fn with(config: Config) -> Resolving {
        let gid = Gid([2; 16]);
        let mut engine = Engine::new(config, (1, 2));
        let ip = IpAddr::from(OWN);
        engine.set_system_addrs(vec![SystemAddr { ip, prefix_len: 16, gid, pkey: 0xffff }]);
        engine.set_names(vec![LocalName {
            addr: Addr::name(NAME),
            text: NAME.to_vec(),
            device: "mlx5_0".into(),
            port: 1,
            pkey: PkeyChoice::Default,
        }]);
        let (gids, pkeys) = (vec![gid], vec![0xffff]);
        let device = "mlx5_0".into();
        engine
            .set_port(Time(0), PortInfo { device, port: 1, active: true, lid: 3, gids, pkeys, ..PortInfo::default() });
        while let Some(action) = engine.next_action() {
            if let Action::Open { ep, .. } = action {
                engine.endpoint_opened(Time(0), ep, 5);
            } else if let Action::Mad { port, mad, .. } = action {
                administrate(&mut engine, port, &mad);
            }
        }
        Resolving(engine)
    }
}

impl Service for Resolving {
    fn request(&mut self, _client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        let mut routes = |_: IpAddr| -> Result<IpAddr, Unroutable> { Ok(IpAddr::from(OWN)) };
        match self.0.request(Time(1), engine::ClientId(1), msg, &mut routes, out) {
            engine::Outcome::Replied => Outcome::Replied,
            _ => Outcome::Close,
        }
    }

    fn closed(&mut self, _client: ClientId) {}
}

/// The subnet administrator: every question is its own answer, but for groups, which have a LID.
fn administrate(engine: &mut Engine, port: PortId, question: &SaMad) {
    let mut answer = *question;
    if question.attribute() == sa::ATTR_MCMEMBER {
        let group = McMember { mlid: 0xc001, ..question.mcmember() };
        answer = SaMad::membership(sa::METHOD_GET, question.tid(), &group, 0);
    }
    answer.0[3] = sa::METHOD_GET | sa::METHOD_RESP;
    engine.mad_received(Time(2), port, 0, &answer.0);
}

/// Answers with the path to a LID, which expires a minute after it was learned.
fn with_a_path(length: &mut usize, message: &[u8]) -> Engine {
    let mut engine = Resolving::with(Config { route_timeout: Some(1), ..Config::default() }).0;
    let mut out = Vec::new();
    let mut nobody = |_: IpAddr| -> Result<IpAddr, Unroutable> { Err(Unroutable) };
    let pending = engine.request(Time(1), engine::ClientId(1), message, &mut nobody, &mut out);
    assert_eq!(pending, engine::Outcome::Pending);
    while let Some(action) = engine.next_action() {
        match action {
            Action::Mad { port, mad, .. } => administrate(&mut engine, port, &mad),
            Action::Reply { reply, .. } => *length = reply.len(),
            _ => {}
        }
    }
    engine
}

#[test]
fn an_answer_that_will_expire_soon_allocates_nothing_either() {
    let mut question = PathRecord::default();
    question.set_dlid(9);
    let (message, used) = resolve_request(7, &[Entry::path(0, &question)]);
    let mut length = 0;
    let mut engine = with_a_path(&mut length, &message[..used]);
    assert_eq!(length, 88);
    let mut nobody = |_: IpAddr| -> Result<IpAddr, Unroutable> { Err(Unroutable) };
    let mut out = Vec::with_capacity(256);
    let mut ask = |engine: &mut Engine, second: u64| {
        out.clear();
        let now = Time(second * 1_000_000);
        let outcome = engine.request(now, engine::ClientId(1), &message[..used], &mut nobody, &mut out);
        assert_eq!((outcome, out.len()), (engine::Outcome::Replied, 88));
    };
    let before = counts().0;
    (1..59).for_each(|second| (0..20).for_each(|_| ask(&mut engine, second)));
    assert_eq!(counts().0, before);
    // nothing is asked before the loop's turn has answered everybody
    assert!(engine.next_action().is_none());
    assert_eq!(engine.next_deadline(), Time(0));
    engine.on_time(Time(59_000_000));
    assert!(matches!(engine.next_action(), Some(Action::Mad { .. })), "it is asked for again");
    ask(&mut engine, 59);
}

#[test]
fn resolving_from_the_cache_allocates_nothing_whatever_is_asked() {
    let (_poll, mut server, id, mut client) = connected();
    let mut service = Resolving::new();
    let (from, to, name) = entries();
    let ready = Ready { readable: true, ..Ready::default() };
    for (entries, length) in [(vec![from, to], 88), (vec![to], 160), (vec![from, name], 88), (vec![name], 160)] {
        let (message, used) = resolve_request(7, &entries);
        let mut reply = [0; 256];
        let mut ask = || {
            client.write_all(&message[..used]).unwrap();
            server.on_client(id, ready, 5, &mut service);
            server.answer_all(5, &mut service);
            assert_eq!(client.read(&mut reply).unwrap(), length);
            assert_eq!(reply[2], 0);
        };
        // the first one may have to choose a source
        ask();
        let before = counts().0;
        (0..1_000).for_each(|_| ask());
        assert_eq!(counts().0, before, "{entries:?}");
        assert!(service.0.next_action().is_none());
    }
}

#[test]
fn many_requests_at_once_allocate_nothing_and_have_one_answer_together() {
    let (_poll, mut server, id, mut client) = connected();
    let mut service = Resolving::new();
    let (from, to, name) = entries();
    let kinds: [(&[Entry], usize); 4] = [(&[from, to], 88), (&[to], 160), (&[from, name], 88), (&[name], 160)];
    let (mut heap, mut length) = (Vec::new(), 0);
    for (tid, (entries, answer)) in (0..32).zip(kinds.into_iter().cycle()) {
        let (message, used) = resolve_request(tid, entries);
        heap.extend_from_slice(&message[..used]);
        length += answer;
    }
    let ready = Ready { readable: true, ..Ready::default() };
    let mut replies = [0; 8192];
    let mut ask = || {
        client.write_all(&heap).unwrap();
        server.on_client(id, ready, 5, &mut service);
        server.answer_all(5, &mut service);
        assert_eq!(client.read(&mut replies).unwrap(), length);
        assert!(!server.has_pending());
    };
    // the first one may have to choose a source
    ask();
    let before = counts();
    (0..100).for_each(|_| ask());
    assert_eq!(counts(), before);
    let tids = (0..16).map(|pair| replies[pair * (88 + 160) + 8]);
    assert!(tids.eq((0..32).step_by(2)), "each in its turn");
}
