//! What is remembered, and what a question costs peers and the subnet administrator.

mod util;

use std::time::{Duration, Instant};

use ibacm_wire::client::{
    Counter, EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, Status, TYPE_PATH,
};
use ibacm_wire::{Gid, PathRecord, path};
use util::client::{between, ip, name, to_lid};
use util::{Client, PATIENCE, Program, Shared, sa, wait_for};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);

/// How much each counter has grown.
fn grown(client: &mut Client, before: [u64; 7]) -> [u64; 7] {
    let now = client.counters();
    std::array::from_fn(|i| now[i] - before[i])
}

/// Counters of which these have these values and the others none.
fn only(values: &[(Counter, u64)]) -> [u64; 7] {
    let mut all = [0; 7];
    values.iter().for_each(|(counter, value)| all[*counter as usize] = *value);
    all
}

#[test]
fn the_second_question_is_answered_from_the_cache() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|h| lab.ours(h, ""));
    let [two] = lab.hosts(["H2"]);
    let mut client = Client::connect(&lab, "H1");
    let by_address = [Counter::Resolve, Counter::AddrQuery, Counter::RouteQuery];
    let by_path = [Counter::Resolve, Counter::RouteQuery];
    for (question, costs) in [
        (&[ip(EP_FLAG_DEST, "10.77.0.2")][..], &by_address[..]),
        (&between("fd77::1", "fd77::2"), &by_address),
        (&[name(EP_FLAG_DEST, "h2")], &by_address),
        (&[to_lid(0, two.lid)], &by_path),
    ] {
        let before = client.counters();
        let first = client.resolve(question).path();
        let costs: Vec<(Counter, u64)> = costs.iter().map(|c| (*c, 1)).collect();
        assert_eq!(grown(&mut client, before), only(&costs), "{question:?}");

        let (before, begin) = (client.counters(), lab.sniff_next().unwrap());
        let asked = lab.path_queries("H1");
        for _ in 0..10 {
            assert_eq!(client.resolve(question).path(), first);
        }
        let cached = only(&[(Counter::Resolve, 10), (Counter::RouteCache, 10)]);
        assert_eq!(grown(&mut client, before), cached, "{question:?}");
        assert_eq!(lab.path_queries("H1"), asked);
        assert_eq!(lab.sniffed(None, begin).unwrap(), []);
    }
    // And of one client what another has asked.
    let before = client.counters();
    let said = lab.acme("H1", &["-c", "-f", "i", "-d", "10.77.0.2", "-C", "50"]);
    assert!(said.contains(&format!("dlid: {}\n", two.lid)), "{said}");
    assert_eq!(grown(&mut client, before), only(&[(Counter::Resolve, 50), (Counter::RouteCache, 50)]));
}

#[test]
fn a_question_to_the_cache_does_not_wait() {
    let lab = SUBNET.enter();
    let timeout = Duration::from_secs(5);
    let options = format!("timeout {}\n", timeout.as_millis());
    let _daemons = ["H1", "H2"].map(|h| lab.ours(h, &options));
    let mut client = Client::connect(&lab, "H1");
    let begin = Instant::now();
    let said = lab.acme("H1", &["-c", "-f", "i", "-d", "10.77.0.99"]);
    assert!(said.contains("ib_acm_resolve_ip failed: No data available"), "{said}");
    let reply = client.resolve(&[ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.98")]);
    assert_eq!(reply.header.status, Status::Enodata as u8);
    assert!(begin.elapsed() < timeout, "{:?}", begin.elapsed());
    assert_eq!(client.counters()[Counter::Nodata as usize], 2);
    // It starts the look-up, though: soon the answer is there.
    let question = [ip(EP_FLAG_DEST | FLAG_NODELAY, "10.77.0.2")];
    assert_eq!(client.resolve(&question).header.status, Status::Enodata as u8);
    let found = wait_for(PATIENCE, || (client.resolve(&question).header.status == 0).then_some(()));
    assert!(found.is_some(), "nobody has looked");
}

#[test]
fn a_hundred_clients_cost_as_much_as_one() {
    let lab = SUBNET.enter();
    let _daemons = ["H1", "H2"].map(|h| lab.ours(h, "timeout 1500\nretries 1\n"));
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    // While the SA thinks, everybody asks: nobody is to be so late that the answer is there already.
    lab.inject("sa delay ms=1000 attr=0x35").unwrap();
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(&lab, "H1")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let question = between("10.77.0.1", "10.77.0.2");
        client.ask(if number % 2 == 0 { &question } else { &question[1..] });
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.recv().expect("an answer");
        assert_eq!((reply.path(), reply.entries().len()), (path, 1 + number % 2));
    }
    assert_eq!(lab.path_queries("H1"), 1);
    assert_eq!(lab.count("mcast.H1", "sent"), 1);
    let counted = clients[0].counters();
    assert_eq!(counted, only(&[(Counter::Resolve, 100), (Counter::AddrQuery, 1), (Counter::RouteQuery, 1)]));

    // Nobody there: as many requests as one client would cause, and the SA isn't asked.
    clients.iter_mut().for_each(|c| _ = c.ask(&[ip(EP_FLAG_DEST, "10.77.0.99")]));
    for client in &mut clients {
        assert_eq!(client.recv().expect("an answer").header.status, Status::Etimedout as u8);
    }
    assert_eq!((lab.path_queries("H1"), lab.count("mcast.H1", "sent")), (1, 3));
    assert_eq!(
        grown(&mut clients[0], counted),
        only(&[(Counter::Resolve, 100), (Counter::AddrQuery, 2), (Counter::Error, 100)])
    );
    // A question by path, all at once.
    clients.iter_mut().for_each(|c| _ = c.ask(&[to_lid(0, two.lid)]));
    for client in &mut clients {
        assert_eq!(client.recv().expect("an answer").path(), path);
    }
    assert_eq!(lab.path_queries("H1"), 2);
}

#[test]
fn the_answer_waits_for_the_route() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    for peer in [Program::Ours, Program::Stock] {
        let _daemons = [lab.ours("H1", ""), lab.start(peer, "H2", "")];
        lab.inject("sa delay ms=1000 host=H1 attr=0x35").unwrap();
        let mut client = Client::connect(&lab, "H1");
        let begin = Instant::now();
        client.ask(&between("10.77.0.1", "10.77.0.2"));
        assert!(client.is_silent(Duration::from_millis(700)), "an answer before the SA's");
        assert_eq!(client.recv().expect("an answer").path(), path);
        assert!(begin.elapsed() >= Duration::from_millis(950), "{:?}", begin.elapsed());
        lab.inject("clear").unwrap();
    }
}

/// A question for the path to a LID with one more component, and what that is in the answer.
fn more(lid: u16, set: impl Fn(&mut PathRecord)) -> Entry {
    let mut p = PathRecord::default();
    p.set_dlid(lid);
    set(&mut p);
    Entry::path(0, &p)
}

#[test]
fn every_component_is_part_of_the_question() {
    let lab = SUBNET.enter();
    let _daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let plain = sa::path(&lab, one.lid, two.lid);
    let mut client = Client::connect(&lab, "H1");
    assert_eq!(client.resolve(&[to_lid(0, two.lid)]).path(), plain);
    let mut asked = lab.path_queries("H1");
    // Selectors: 0 is "greater than", 1 "less than", 2 "exactly".
    let less_than = |n: u8| 0x40 | n;
    let mut ask = |what: &str, set: &dyn Fn(&mut PathRecord)| {
        let question = more(two.lid, set);
        let first = client.resolve(&[question]).path();
        asked += 1;
        assert_eq!(lab.path_queries("H1"), asked, "{what}: the SA is asked");
        assert_eq!(client.resolve(&[question]).path(), first, "{what}");
        assert_eq!(lab.path_queries("H1"), asked, "{what}: it is remembered");
        assert_eq!((first.dlid(), first.slid()), (two.lid, one.lid), "{what}");
        // What the SA says to the question itself, without our service's memory.
        let mut own = question;
        own.flags = FLAG_QUERY_SA;
        let mut record = PathRecord(own.info);
        record.set_slid(one.lid);
        record.set_sgid(Gid(one.gid));
        record.set_pkey(0xffff);
        own.info = record.0;
        assert_eq!(client.resolve(&[own]).path(), first, "{what}");
        asked += 1;
        first
    };
    assert_eq!(ask("rate", &|p| p.set_rate(less_than(3))).rate(), 0x85);
    assert_eq!(ask("MTU", &|p| p.set_mtu(less_than(4))).mtu(), 0x83);
    assert_eq!(ask("SL", &|p| p.set_qos_sl(3)).sl(), 3);
    ask("lifetime", &|p| p.set_packet_lifetime(less_than(19)));
    ask("service id", &|p| p.set_service_id(0x0000_0000_0106_1d2f));
    ask("traffic class", &|p| p.set_tclass(0x20));
    ask("QoS class", &|p| p.set_qos_sl(0x0100));
    ask("reversible", &|p| p.set_reversible_numpath(path::REVERSIBLE));
    // What the path cannot be, it is not, whatever is remembered of it.
    let slower = more(two.lid, |p| p.set_rate(0x82));
    assert_eq!(client.resolve(&[slower]).header.status, Status::Enodata as u8);
    asked += 1;
    // None of them has taken the place of the plain one.
    assert_eq!(client.resolve(&[to_lid(0, two.lid)]).path(), plain);
    assert_eq!(lab.path_queries("H1"), asked);
    // What is no component makes no difference.
    let mut same = more(two.lid, |p| p.set_preference(7));
    assert_eq!(same.kind, TYPE_PATH);
    same.info[60] = 9;
    assert_eq!(client.resolve(&[same]).path(), plain);
    assert_eq!(lab.path_queries("H1"), asked);
}

#[test]
fn a_request_of_a_peer_teaches_its_address() {
    let lab = SUBNET.enter();
    let _daemons = [lab.ours("H1", "route_prot acm\n"), lab.stock("H2", "route_prot acm\n")];
    Client::connect(&lab, "H2").resolve(&[ip(EP_FLAG_SOURCE, "10.77.0.2"), ip(EP_FLAG_DEST, "10.77.0.1")]).path();
    let begin = lab.sniff_next().unwrap();
    let [two] = lab.hosts(["H2"]);
    assert_eq!(Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.2")).path().dlid(), two.lid);
    assert_eq!(lab.sniffed(None, begin).unwrap(), []);
}
