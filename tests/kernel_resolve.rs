//! The kernel asks for paths and GIDs over netlink.

#[path = "util/netlink.rs"]
mod netlink;
#[path = "util/rob.rs"]
mod rob;
mod util;

use std::time::{Duration, Instant};

use ibacm_wire::{Gid, path};
use netlink::{
    ALL, Answer, DGID, GMP, IPV4, MANDATORY, PKEY, QOS_CLASS, RESOLVE, SERVICE_ID, SET_TIMEOUT, SGID, TCLASS, TIMEOUT,
    UNIDIRECTIONAL, ask, attribute, between, by_address, message, recv, recv_within,
};
use util::client::{Client, to_gid};
use util::{Program, Shared, sa};

static LAB: Shared = Shared::new(|o| o.hosts = 3);
static PORTS: Shared = Shared::new(|o| o.hca_ports = 2);

#[test]
fn a_path_for_every_use() {
    let lab = rob::enter(&LAB);
    let daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let kernel = lab.kernel("H1", true).unwrap();
    let attributes = [attribute(DGID | MANDATORY, &two.gid), attribute(SGID | MANDATORY, &one.gid)];
    for (sequence, (path_use, flags)) in (1..).zip([(ALL, 0x2b), (UNIDIRECTIONAL, 0x0a), (GMP, 0x2b)]) {
        let question = message(RESOLVE, sequence, &netlink::path("mlx5_0", 1, path_use, &attributes));
        let answer = ask(&kernel, &question);
        let wanted = sa::path(&lab, one.lid, two.lid);
        assert_eq!(answer.path(), (flags, wanted), "use {path_use}");
        // Our socket is the only one of its kind in the host, so the kernel gives it the process's number.
        assert_eq!((answer.port, answer.sender), (daemon.pid(), daemon.pid()));
    }
    assert_eq!(lab.path_queries("H1"), 2, "reversible paths are one question, others another");
    // Cached, they are answered without anybody else.
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    ask(&kernel, &between(9, &one.gid, &two.gid)).path();
}

#[test]
fn the_answer_is_that_of_the_stock_service() {
    let lab = rob::enter(&LAB);
    let [one, two] = lab.hosts(["H1", "H2"]);
    let mut answers = Vec::new();
    for program in [Program::Stock, Program::Ours] {
        let daemon = lab.start(program, "H1", "");
        let kernel = lab.kernel("H1", true).unwrap();
        let mut answer = ask(&kernel, &between(0xfeed, &one.gid, &two.gid)).bytes;
        assert_eq!(answer[12..16], daemon.pid().to_ne_bytes());
        answer[12..16].fill(0);
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn every_attribute_is_asked_for() {
    let lab = rob::enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let kernel = lab.kernel("H1", true).unwrap();
    let base = [attribute(DGID | MANDATORY, &two.gid), attribute(SGID | MANDATORY, &one.gid)];
    let mut sequence = 0;
    let mut with = |more: Vec<u8>| {
        sequence += 1;
        let attributes = [&base[..], &[more]].concat();
        ask(&kernel, &message(RESOLVE, sequence, &netlink::path("mlx5_0", 1, GMP, &attributes)))
    };
    let plain = with(Vec::new()).path().1;
    let mut queries = lab.path_queries("H1");
    for more in [
        attribute(SERVICE_ID | MANDATORY, &0x0106_1234_u64.to_ne_bytes()),
        attribute(TCLASS | MANDATORY, &[0x20]),
        attribute(QOS_CLASS | MANDATORY, &0x0123_u16.to_ne_bytes()),
    ] {
        let asked = with(more.clone());
        assert_eq!(asked.path().1.dlid(), plain.dlid(), "{more:02x?}");
        queries += 1;
        assert_eq!(lab.path_queries("H1"), queries, "{more:02x?} makes another question");
    }
    with(attribute(PKEY | MANDATORY, &0x7fff_u16.to_ne_bytes())).path();
    assert!(with(attribute(PKEY | MANDATORY, &0x8123_u16.to_ne_bytes())).is_refusal(), "a partition we are not in");
    assert!(with(attribute(DGID, &[0xfe; 16])).is_refusal(), "nobody has it");
}

#[test]
fn the_named_port_is_the_source() {
    let lab = PORTS.enter();
    let _daemon = lab.ours("H1", "");
    let ports = lab.ports().unwrap();
    let kernel = lab.kernel("H1", true).unwrap();
    let dest = ports.iter().find(|p| p.host == "H2").expect("there is one");
    let to = attribute(DGID | MANDATORY, &dest.gid);
    for own in ports.iter().filter(|p| p.host == "H1") {
        let other = ports.iter().find(|p| p.host == "H1" && p.port != own.port).expect("there are two");
        let by_name = netlink::path("mlx5_0", own.port as u8, ALL, std::slice::from_ref(&to));
        // The GID counts for more than the name.
        let by_gid = netlink::path("mlx5_0", other.port as u8, ALL, &[to.clone(), attribute(SGID, &own.gid)]);
        for question in [by_name, by_gid] {
            let (_, path) = ask(&kernel, &message(RESOLVE, 1, &question)).path();
            assert_eq!((path.slid(), path.sgid()), (own.lid, Gid(own.gid)));
        }
    }
    let nameless = netlink::path("", 0, ALL, std::slice::from_ref(&to));
    assert_eq!(ask(&kernel, &message(RESOLVE, 2, &nameless)).path().1.dlid(), dest.lid);
    for (device, port) in [("mlx5_0", 3), ("mlx5_1", 1), ("mlx5_0x", 1)] {
        let question = netlink::path(device, port, ALL, std::slice::from_ref(&to));
        assert!(ask(&kernel, &message(RESOLVE, 3, &question)).is_refusal(), "{device} {port}");
    }
}

#[test]
fn addresses_of_both_families_have_a_gid() {
    let lab = rob::enter(&LAB);
    let _daemons = ["H1", "H2", "H3"].map(|h| lab.ours(h, ""));
    rob::ip(&lab, "H3", "addr add 10.99.0.3/32 dev ib0");
    rob::ip(&lab, "H1", "route add 10.99.0.0/16 via 10.77.0.2");
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let kernel = lab.kernel("H1", true).unwrap();
    for (address, wanted) in [
        ("10.77.0.2", two.gid),
        ("10.77.0.3", three.gid),
        ("fd77::2", two.gid),
        ("fd77::3", three.gid),
        ("10.77.0.1", one.gid),
        ("10.99.0.3", three.gid), // behind a gateway, as far as routing is concerned
    ] {
        for sequence in 1..3 {
            assert_eq!(ask(&kernel, &by_address(sequence, address)).gid(), Gid(wanted), "{address}");
        }
    }
    rob::ip(&lab, "H1", "route del 10.99.0.0/16");
    for unroutable in ["10.100.0.1", "fd78::1", "0.0.0.0", "::"] {
        let begin = Instant::now();
        assert!(ask(&kernel, &by_address(7, unroutable)).is_refusal(), "{unroutable}");
        // Who is looked for is waited for for 1.8 s.
        assert!(begin.elapsed() < Duration::from_millis(1500));
    }
}

#[test]
fn the_interface_tells_which_link() {
    let lab = rob::enter(&LAB);
    let _daemons = ["H1", "H2"].map(|h| lab.ours(h, ""));
    for (host, address) in [("H1", "fe80::77:1"), ("H2", "fe80::77:2")] {
        rob::ip(&lab, host, &format!("addr add {address}/64 dev ib0 nodad"));
    }
    let [two] = lab.hosts(["H2"]);
    let index = util::succeed(lab.exec("H1", "cat").arg("/sys/class/net/ib0/ifindex"));
    let index: u32 = index.trim().parse().expect("a number");
    let kernel = lab.kernel("H1", true).unwrap();
    let mut question = by_address(1, "fe80::77:2");
    question[16..20].copy_from_slice(&index.to_ne_bytes());
    // The service may not have heard of the address yet.
    let answer = util::wait_for(util::PATIENCE, || Some(ask(&kernel, &question)).filter(|a| !a.is_refusal()));
    assert_eq!(answer.expect("an answer").gid(), Gid(two.gid));
    for interface in [0, 99_999_u32] {
        question[16..20].copy_from_slice(&interface.to_ne_bytes());
        assert!(ask(&kernel, &question).is_refusal(), "interface {interface}");
    }
    for (host, address) in [("H1", "fe80::77:1"), ("H2", "fe80::77:2")] {
        rob::ip(&lab, host, &format!("addr del {address}/64 dev ib0"));
    }
}

#[test]
fn what_is_not_understood_is_refused_and_what_is_no_question_ignored() {
    let lab = rob::enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let kernel = lab.kernel("H1", true).unwrap();
    let base = [attribute(DGID | MANDATORY, &two.gid), attribute(SGID | MANDATORY, &one.gid)];
    let with = |more: &[u8]| {
        let mut attributes = base.to_vec();
        attributes.push(more.to_vec());
        message(RESOLVE, 5, &netlink::path("mlx5_0", 1, GMP, &attributes))
    };
    // Unknown but not mandatory, or nothing to do with paths.
    for more in [attribute(11, &[1; 30]), attribute(0x1fff, &[]), attribute(IPV4, &[1; 4])] {
        ask(&kernel, &with(&more)).path();
    }
    let mut queries = lab.path_queries("H1");
    let short_of_device = message(RESOLVE, 5, &[0; 65]);
    let whole = with(&attribute(PKEY | MANDATORY, &0xffff_u16.to_ne_bytes()));
    let mut cut = whole[..whole.len() - 3].to_vec();
    let length = cut.len() as u32;
    cut[..4].copy_from_slice(&length.to_ne_bytes());
    for wrong in [
        with(&attribute(11 | MANDATORY, &[1; 4])),
        with(&attribute(0x1fff | MANDATORY, &[])),
        with(&attribute(PKEY, &[1; 3])),
        with(&attribute(DGID, &[1; 15])),
        with(&[9, 0, 7, 0, 1, 2]),
        with(&[3, 0, 7, 0]),
        with(&[1, 2]),
        cut,
        message(RESOLVE, 5, &netlink::path("mlx5_0", 1, GMP, &[])),
        message(RESOLVE, 5, &netlink::path("mlx5_0", 1, 3, &base)),
        message(RESOLVE, 5, &[]),
        short_of_device,
        message(0x1003, 5, &[0; 80]),
        message(netlink::IP_RESOLVE, 5, &[0; 4]),
        message(netlink::IP_RESOLVE, 5, &[0; 2]),
        message(netlink::IP_RESOLVE, 5, &[&[0; 4][..], &attribute(12 | MANDATORY, &[1; 4])].concat()),
    ] {
        assert!(ask(&kernel, &wrong).is_refusal(), "{wrong:02x?}");
    }
    // Errors, acknowledgements, other clients' messages, and such as have no beginning or end.
    let error = message(2, 5, &[&(-1_i32).to_ne_bytes()[..], &whole[..16]].concat());
    let mut too_long = whole.clone();
    too_long[..4].copy_from_slice(&500_u32.to_ne_bytes());
    let mut too_short = whole.clone();
    too_short[..4].copy_from_slice(&15_u32.to_ne_bytes());
    for stray in [
        error,
        message(1, 5, &[]),
        message(3, 5, &[0; 4]),
        message(4, 5, &[]),
        message(0x1402, 5, &[0; 80]),
        message(0x0801, 5, &[0; 80]),
        message(SET_TIMEOUT, 5, &[1, 2]),
        too_long,
        too_short,
        whole[..15].to_vec(),
        vec![0],
        vec![0xff; 30_000],
    ] {
        kernel.send(&stray).unwrap();
    }
    queries += 1;
    ask(&kernel, &whole).path();
    assert!(recv_within(&kernel, Duration::from_millis(100)).is_none());
    assert!(lab.path_queries("H1") <= queries, "nothing else was a question");
    // Several messages in one datagram are as many questions.
    let mut sequences = [whole.clone(), message(RESOLVE, 6, &[]), between(7, &one.gid, &two.gid)].concat();
    kernel.send(&sequences).unwrap();
    assert_eq!([recv(&kernel).sequence, recv(&kernel).sequence, recv(&kernel).sequence], [5, 6, 7]);
    sequences.truncate(whole.len() + 10);
    kernel.send(&sequences).unwrap();
    recv(&kernel).path();
    assert!(recv_within(&kernel, Duration::from_millis(100)).is_none());
}

/// How long it takes until a question is refused that nobody answers.
fn refused_after(kernel: &fabric::Kernel, question: &[u8]) -> Duration {
    let begin = Instant::now();
    assert!(ask(kernel, question).is_refusal());
    begin.elapsed()
}

/// It takes so long until such questions are refused, each of them the first one for what it asks for.
#[track_caller]
fn assert_about(kernel: &fabric::Kernel, question: &mut dyn FnMut() -> Vec<u8>, wanted_ms: u64) {
    let wanted = Duration::from_millis(wanted_ms);
    let mut took = Vec::new();
    // The kernel waits for a tenth more. A busy machine may be late for one or the other.
    let in_time = (0..8).any(|_| {
        let this = refused_after(kernel, &question());
        took.push(this);
        assert!(this >= wanted, "{took:?} instead of {wanted:?}");
        this < wanted * 10 / 9
    });
    assert!(in_time, "{took:?} instead of {wanted:?}");
}

/// The message with which the kernel says how long it waits.
fn wait(ms: u32) -> Vec<u8> {
    message(SET_TIMEOUT, 3, &attribute(TIMEOUT, &ms.to_ne_bytes()))
}

#[test]
fn the_kernel_is_never_kept_waiting_longer_than_it_waits() {
    let lab = rob::enter(&LAB);
    let _daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let kernel = lab.kernel("H1", true).unwrap();
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    let path = between(1, &one.gid, &two.gid);
    let mut number = 0;
    let mut new_path = || {
        number += 1;
        let own = [attribute(DGID | MANDATORY, &two.gid), attribute(SGID | MANDATORY, &one.gid)];
        let attributes = [&own[..], &[attribute(SERVICE_ID | MANDATORY, &u64::to_ne_bytes(number))]].concat();
        message(RESOLVE, 1, &netlink::path("mlx5_0", 1, GMP, &attributes))
    };
    let mut last = 0;
    let mut new_address = || {
        last += 1;
        by_address(2, &format!("10.77.9.{last}"))
    };
    for (told, wanted) in [(None, 1800), (Some(1000), 900)] {
        told.into_iter().for_each(|ms| kernel.send(&wait(ms)).unwrap());
        assert_about(&kernel, &mut new_path, wanted);
        assert_about(&kernel, &mut new_address, wanted);
    }
    // The kernel itself waits for no less than this.
    kernel.send(&wait(1)).unwrap();
    assert!(refused_after(&kernel, &path) >= Duration::from_millis(90));
    // A client of the same destination waits as long as ever, and then the kernel has an answer too.
    let mut client = Client::connect(&lab, "H1");
    client.ask(&[to_gid(0, two.gid)]);
    assert!(refused_after(&kernel, &path) < Duration::from_secs(3));
    lab.inject("clear").unwrap();
    assert_eq!(client.recv().expect("an answer").path().dlid(), two.lid);
    assert_eq!(ask(&kernel, &path).path().1.dlid(), two.lid);
}

#[test]
fn only_the_kernel_is_believed() {
    let lab = rob::enter(&LAB);
    let daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let process = lab.kernel("H1", false).unwrap();
    for n in 0..300 {
        process.send(&between(n, &one.gid, &two.gid)).unwrap();
    }
    process.send(&wait(100)).unwrap();
    assert!(recv_within(&process, Duration::from_millis(300)).is_none());
    assert_eq!(lab.path_queries("H1"), 0);
    let kernel = lab.kernel("H1", true).unwrap();
    assert_eq!(ask(&kernel, &between(1, &one.gid, &two.gid)).sender, daemon.pid());
}

#[test]
fn thousands_of_questions_have_their_answers() {
    let lab = rob::enter(&LAB);
    let daemon = lab.ours("H1", "");
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let kernel = lab.kernel("H1", true).unwrap();
    ask(&kernel, &between(1, &one.gid, &two.gid)).path();
    // As fast as they can be sent, as many as the service's socket holds.
    const CACHED: u32 = 4000;
    for n in 0..CACHED {
        kernel.send(&between(n, &one.gid, &two.gid)).unwrap();
    }
    for n in 0..CACHED {
        let answer = recv(&kernel);
        assert_eq!((answer.sequence, answer.path().1.dlid()), (n, two.lid));
    }
    // Beyond those that may be open, only what is cached has an answer, but nobody waits.
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    // Time enough to ask them all before the first one has its answer.
    kernel.send(&wait(5000)).unwrap();
    const OPEN: u32 = 4096;
    let begin = Instant::now();
    for n in 0..OPEN {
        kernel.send(&between(n, &one.gid, &three.gid)).unwrap();
        if n % 1024 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let refused = ask(&kernel, &between(70_000, &one.gid, &three.gid));
    assert!(refused.is_refusal() && begin.elapsed() < Duration::from_millis(4500), "{:?}", begin.elapsed());
    assert_eq!(ask(&kernel, &between(70_001, &one.gid, &two.gid)).path().1.dlid(), two.lid);
    let answers: Vec<Answer> = (0..OPEN).map(|_| recv(&kernel)).collect();
    assert!(answers.iter().all(Answer::is_refusal));
    assert!(answers.iter().map(|a| a.sequence).eq(0..OPEN));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    // Other clients are served as ever, and what was open leaves nothing behind.
    lab.inject("clear").unwrap();
    let answer = util::wait_for(util::PATIENCE, || {
        Some(ask(&kernel, &between(80_000, &one.gid, &three.gid))).filter(|a| !a.is_refusal())
    });
    assert_eq!(answer.expect("an answer").path().1.reversible_numpath() & path::REVERSIBLE, path::REVERSIBLE);
    assert!(recv_within(&kernel, Duration::from_millis(100)).is_none());
    let idle = rob::idle_second(daemon.pid());
    assert!(idle <= Duration::from_millis(20), "{idle:?} of processor time in a second without work");
}

#[test]
fn a_service_that_ends_leaves_no_question_open() {
    let lab = rob::enter(&LAB);
    let daemon = lab.ours("H1", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let kernel = lab.kernel("H1", true).unwrap();
    lab.inject("sa drop-request host=H1 attr=0x35").unwrap();
    kernel.send(&wait(20_000)).unwrap();
    for n in 0..3 {
        kernel.send(&between(n, &one.gid, &two.gid)).unwrap();
    }
    assert!(recv_within(&kernel, Duration::from_millis(100)).is_none());
    let begin = Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    for n in 0..3 {
        let answer = recv(&kernel);
        assert!(answer.is_refusal() && answer.sequence == n, "{answer:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn questions_from_before_the_start_are_answered() {
    let lab = rob::enter(&LAB);
    let _peer = lab.ours("H2", "");
    let [one, two] = lab.hosts(["H1", "H2"]);
    // A service manager has opened the socket and starts the service when somebody asks.
    let socket = fabric::kernel::netlink_socket(lab.state(), "H1", fabric::kernel::LOCAL_SERVICES).unwrap();
    let kernel = lab.kernel("H1", true).unwrap();
    // What the service needs to start does not count.
    kernel.send(&wait(20_000)).unwrap();
    kernel.send(&between(1, &one.gid, &two.gid)).unwrap();
    kernel.send(&message(2, 2, &[0; 20])).unwrap();
    kernel.send(&by_address(3, "10.77.0.2")).unwrap();
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "");
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" --systemd";
    let mut service = lab.exec("H1", "sh");
    service.args(["-c", script, Program::Ours.path()]).stdin(socket);
    let mut child = service.spawn().expect("it starts");
    let mut answers = [recv_within(&kernel, util::PATIENCE), recv_within(&kernel, util::PATIENCE)];
    let late = ask(&kernel, &between(4, &one.gid, &two.gid));
    let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
    assert!(child.wait().expect("it is a child").success());
    answers.sort_by_key(|a| a.as_ref().map(|a| a.sequence));
    let [path, gid] = answers.map(|a| a.expect("an answer"));
    assert_eq!((path.sequence, path.path().1.dlid()), (1, two.lid));
    assert_eq!((gid.sequence, gid.gid()), (3, Gid(two.gid)));
    assert!(path.port == path.sender && path.port != kernel.port_id(), "{path:?}");
    assert_eq!(late.path().1, path.path().1);
}
