//! More connections than the service may have descriptors, 60,000 of them: it goes on serving those that it has, takes
//! others as some leave, and keeps what it needs for addresses and devices.

#[path = "util/beside.rs"]
mod beside;
#[path = "util/rob.rs"]
mod rob;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beside::Beside;
use ibacm::sock::{descriptor_limit, raise_descriptor_limit};
use ibacm_wire::client::{Entry, More};
use rob::{Running, descriptors, enter, idle_second, ip, memory, settles, steady_descriptors};
use util::client::between;
use util::{Client, Lab, PATIENCE, Program, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// Descriptors that the service may have, where the system allows as many.
const LIMIT: u64 = 20_000;
/// Connections that are tried.
const WANTED: usize = 60_000;
/// Connections that wait to be accepted: what the listener asks for, and one.
const BACKLOG: usize = 4097;
/// Names the socket for a process that only holds connections.
const HOLDER: &str = "TEST_HOLDS_CONNECTIONS_TO";
const HOLDER_WANTS: &str = "TEST_HOLDS_CONNECTIONS";

/// Another process that holds connections, as descriptors are limited for each.
struct Holder {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Holder {
    /// Tries this many.
    fn start(lab: &Lab<'_>, wanted: usize) -> Holder {
        let mut child = Command::new(std::env::current_exe().expect("a test is a file"))
            .args(["--exact", "holds_connections", "--nocapture"])
            .env(HOLDER, lab.file("H1", "/run/ibacm-unix.sock"))
            .env(HOLDER_WANTS, wanted.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Holder { child, said }
    }

    /// How many it got, when it gets no more.
    fn held(&mut self) -> usize {
        let lines = (&mut self.said).lines();
        let mut held = lines.map_while(Result::ok).filter_map(|line| line.split_once("held ")?.1.parse().ok());
        held.next().expect("it says how many")
    }

    /// Ends it, and with it its connections.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("it ends well");
        assert!(self.child.wait().expect("it is a child").success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What such a process does; nothing where it is run as a test.
#[test]
fn holds_connections() {
    let (Some(socket), Ok(wanted)) = (std::env::var_os(HOLDER), std::env::var(HOLDER_WANTS)) else { return };
    let may = raise_descriptor_limit().expect("it may have what is allowed") as usize;
    let wanted: usize = wanted.parse().expect("a number");
    assert!(wanted + 50 < may, "{may} descriptors are too few");
    let held = Arc::new(Mutex::new(Vec::with_capacity(wanted)));
    let connections = Arc::clone(&held);
    let count = || held.lock().expect("nobody panics").len();
    // Whoever finds the line full waits in it.
    let connector = std::thread::spawn(move || {
        for _ in 0..wanted {
            let connection = UnixStream::connect(&socket).expect("there is a service");
            let mut connections = connections.lock().expect("nobody panics");
            if connections.capacity() == 0 {
                // That was one more than was told.
                return;
            }
            connections.push(connection);
        }
    });
    let mut last = usize::MAX;
    while !connector.is_finished() && last != count() {
        last = count();
        std::thread::sleep(Duration::from_secs(2));
    }
    let connections = std::mem::take(&mut *held.lock().expect("nobody panics"));
    println!("\nheld {}", connections.len());
    std::io::stdout().flush().expect("somebody reads");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Somebody who has a connection asks until the answer is a success.
fn becomes(lab: &Lab<'_>, client: &mut Client, question: &[Entry]) {
    let found = rob::until(client, question, 0);
    assert!(found.is_some(), "{question:?}: {}", log(lab));
}

fn log(lab: &Lab<'_>) -> String {
    std::fs::read_to_string(lab.file("H1", "/var/log/ibacm.log")).expect("it has a log")
}

#[test]
fn sixty_thousand_connections() {
    let lab = enter(&LAB);
    let limit = raise_descriptor_limit().expect("this is allowed").min(LIMIT);
    assert!(descriptor_limit().expect("there is one") >= limit);
    let _peers = (lab.ours("H2", ""), lab.ours("H3", ""));
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "");
    let script = format!("ulimit -n {limit}; exec {} -P", Program::Ours.path());
    let daemon = Running::start(lab.exec("H1", "sh").args(["-c", &script]));
    wait_for(PATIENCE, || Client::try_connect(&lab, "H1").ok()).expect("it serves");
    lab.wait_joined("H1");
    let mut client = Client::connect(&lab, "H1");
    client.resolve(&between("10.77.0.1", "10.77.0.2")).path();
    let before = (steady_descriptors(daemon.pid()), memory(daemon.pid()));
    let questions = vec![between("10.77.0.1", "fd77::1"), between("10.77.0.1", "10.77.0.2")];
    let good = Beside::start(&lab, "H1", questions.clone());

    let each = WANTED / 4;
    let most = (limit as usize).saturating_sub(100);
    let mut holders: Vec<Holder> = (0..4).map(|_| Holder::start(&lab, each.min(most))).collect();
    let full = limit as usize - 32;
    let filled = wait_for(PATIENCE, || (descriptors(daemon.pid()) >= full).then_some(()));
    assert!(filled.is_some(), "{} descriptors: {}", descriptors(daemon.pid()), log(&lab));
    let held: usize = holders.iter_mut().map(Holder::held).sum();
    println!("{held} of {WANTED} connections, {} descriptors", descriptors(daemon.pid()));
    assert!((full - before.0..=full + BACKLOG).contains(&held), "{held} connections");
    assert_eq!(steady_descriptors(daemon.pid()), full, "the reserve is not for clients");
    good.was_served();
    let cpu = idle_second(daemon.pid());
    println!("{cpu:?} of processor time in a second at the limit, {} KiB", memory(daemon.pid()));

    assert!(cpu <= Duration::from_millis(50), "{cpu:?} of processor time while clients wait");

    // The connection is one that was there before. An address comes, and is served here and found from elsewhere. A host that was never asked for is found.
    ip(&lab, "H1", "addr add 10.77.60.1/16 dev ib0");
    becomes(&lab, &mut client, &between("10.77.60.1", "10.77.0.1"));
    let mut other = Client::connect(&lab, "H2");
    becomes(&lab, &mut other, &between("10.77.0.2", "10.77.60.1"));
    becomes(&lab, &mut client, &between("10.77.0.1", "10.77.0.3"));

    // The device is pulled out and put back, twice: what it gives back goes to clients the first time.
    for round in 0..2 {
        lab.inject("device-remove H1 dev=mlx5_0").unwrap();
        let gone = wait_for(PATIENCE, || {
            let reply = client.resolve(&between("10.77.0.1", "10.77.0.2"));
            (reply.header.status != 0).then_some(())
        });
        assert!(gone.is_some(), "round {round}");
        let refilled = wait_for(PATIENCE, || (descriptors(daemon.pid()) >= full - 1).then_some(()));
        assert!(refilled.is_some() || round > 0, "{} descriptors", descriptors(daemon.pid()));
        lab.inject("device-restore H1 dev=mlx5_0").unwrap();
        // New devices are looked for where something has changed, else every half a minute.
        ip(&lab, "H1", &format!("addr add 10.77.61.{round}/16 dev ib0"));
        becomes(&lab, &mut client, &between("10.77.0.1", "10.77.0.2"));
        becomes(&lab, &mut client, &between("10.77.0.1", "10.77.0.3"));
    }
    let most = descriptors(daemon.pid());
    assert!(most < limit as usize, "{most} descriptors");
    assert!(client.more_counters()[More::ClientsPaused as usize] > 0);

    // Somebody waits in the line, and is served when others leave; when all have left nothing is left of them.
    holders.remove(0).end();
    let begin = Instant::now();
    let mut late = Client::connect(&lab, "H1");
    late.resolve(&between("10.77.0.1", "10.77.0.2")).path();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    holders.drain(..).for_each(Holder::end);
    drop(late);
    settles(daemon.pid(), before.0 + 2);
    let used = memory(daemon.pid());
    println!("{used} KiB, {} before", before.1);
    assert!(used < before.1 + limit / 4, "{used} KiB, {} before", before.1);
    let lines = log(&lab).lines().filter(|l| l.contains("clients wait")).count();
    assert_eq!(lines, 1, "said once: {}", log(&lab));
}
