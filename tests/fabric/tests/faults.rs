//! What tests can do to a subnet, seen by small programs in its hosts.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use common::{PATIENCE, Running, compile, run, stock_ibacm, subnet, succeed, text, with};
use fabric::Subnet;
use fabric::subnet::wait_for;

fn probe() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("probe", &["-libumad", "-libverbs"]))
}

/// Asks for the path from H1 to H2.
fn path(subnet: &Subnet, more: &[&str]) -> String {
    let gid = std::net::Ipv6Addr::from(subnet.port("H2").unwrap().gid).to_string();
    succeed(subnet.exec("H1", probe()).args(["path", &gid]).args(more))
}

/// A probe that goes on, and its lines.
fn watch(subnet: &Subnet, args: &[&str]) -> (Running, std::io::Lines<BufReader<ChildStdout>>) {
    let mut command = subnet.exec("H1", probe());
    let mut child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = Running(child);
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (running, lines)
}

#[test]
fn answers_of_the_sa() {
    let subnet = subnet(2);
    let said = path(&subnet, &[]);
    let good =
        format!("status=0 mad=0x0000 dlid={} slid={} ", subnet.port("H2").unwrap().lid, subnet.port("H1").unwrap().lid);
    assert!(said.starts_with(&good), "{said}");

    subnet.inject("sa status status=0x0700 attr=0x35 count=1").unwrap();
    assert!(path(&subnet, &[]).starts_with("status=0 mad=0x0700 "));
    subnet.inject("sa status status=1 host=H2").unwrap();
    assert!(path(&subnet, &[]).starts_with(&good), "the fault is another host's");

    // Two lost, the third of three gets through.
    subnet.inject("sa drop count=2").unwrap();
    subnet.reset_stats().unwrap();
    assert!(path(&subnet, &["1000", "2"]).starts_with(&good));
    assert_eq!(subnet.stat("sa.H1.repeated").unwrap(), 2);
    subnet.inject("sa drop-request attr=0x35").unwrap();
    assert!(path(&subnet, &["50", "2"]).starts_with("status=110 "));
    assert_eq!(subnet.stat("sa.H1.expired").unwrap(), 1);
    subnet.inject("clear").unwrap();

    subnet.inject("sa delay ms=300").unwrap();
    let said = path(&subnet, &["2000"]);
    let ms: u64 = said.trim().rsplit("ms=").next().unwrap().parse().unwrap();
    assert!((250..2000).contains(&ms), "{said}");
    subnet.inject("clear").unwrap();

    assert!(path(&subnet, &["50", "0", "0", "0x1234"]).starts_with("status=110 "), "a wrong Q_Key");
    subnet.inject("port H1 pkeys=0x8001,0xffff").unwrap();
    assert!(path(&subnet, &["50", "0", "0"]).starts_with("status=110 "), "the SA is in the default partition");
    assert!(path(&subnet, &["1000", "0", "1"]).starts_with(&good));
    assert!(subnet.inject("sa drop atr=1").is_err(), "misspelt");
    assert!(subnet.violations().unwrap().is_empty());
}

#[test]
fn addresses_change() {
    let subnet = subnet(2);
    let old = std::net::Ipv6Addr::from(subnet.port("H2").unwrap().gid).to_string();
    subnet.inject("port H1 sm_lid=77").unwrap();
    assert!(path(&subnet, &[]).starts_with("status=0 mad=0x0000 "), "the SM answers at its new LID");
    subnet.inject("port H2 lid=500").unwrap();
    assert!(path(&subnet, &[]).contains("dlid=500 "));
    subnet.inject("port H2 gid=fe80::1234").unwrap();
    assert!(path(&subnet, &[]).contains("mad=0x0000 dlid=500 "), "the SA knows the new GID");
    let old = succeed(subnet.exec("H1", probe()).args(["path", &old]));
    assert!(!old.contains("mad=0x0000"), "and no more the old one: {old}");
    let address = subnet.exec("H2", "cat").arg("/sys/class/net/ib0/address").output().unwrap();
    let wanted = "80:00:00:48:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:12:34\n";
    let said = wait_for(PATIENCE, || {
        let output = subnet.exec("H2", "cat").arg("/sys/class/net/ib0/address").output().ok()?;
        (output.stdout == wanted.as_bytes()).then_some(())
    });
    assert!(said.is_some(), "IPoIB follows: {}", String::from_utf8_lossy(&address.stdout));
}

#[test]
fn datagrams() {
    let subnet = subnet(2);
    let _daemons = [stock_ibacm(&subnet, "H1"), stock_ibacm(&subnet, "H2")];
    let stat = |key: &str| subnet.stat(key).unwrap();
    subnet.reset_stats().unwrap();

    // Nonsense to one host, and to the group.
    let (mgid, _) = subnet.port("H1").unwrap().joined[0];
    let mgid = std::net::Ipv6Addr::from(mgid);
    subnet.inject("raw to=H1 data=0102ff count=3").unwrap();
    assert_eq!(stat("ucast.H1.received"), 3);
    subnet.inject(&format!("raw mgid={mgid} data=00")).unwrap();
    assert_eq!((stat("mcast.H1.received"), stat("mcast.H2.received")), (1, 1));
    // What the HCA doesn't let in.
    for (wrong, counter) in [
        ("pkey=0x8001", "drop.pkey"),
        ("qkey=1", "drop.qkey"),
        ("dqpn=99999", "drop.no_such_qp"),
        ("dlid=999", "drop.no_such_lid"),
        ("dgid=fe80::77", "drop.wrong_gid"),
    ] {
        subnet.inject(&format!("raw to=H2 data=00 {wrong}")).unwrap();
        assert_eq!(stat(counter), 1, "{wrong}");
    }
    subnet.inject("raw to=H2 data=00 count=5000").unwrap();
    assert!(stat("drop.no_receive") > 0, "more than are posted at once");

    // The first request is lost; it is repeated.
    subnet.inject("datagram drop from=H1 to=H2 kind=mcast count=1").unwrap();
    let said = succeed(subnet.exec("H1", "ib_acme").args(["-s", "10.77.0.1", "-d", "10.77.0.2", "-v"]));
    assert!(said.contains("SA verification: success"), "{said}");
    assert_eq!((stat("drop.fault"), stat("mcast.H1.sent")), (1, 2));

    let begin = subnet.sniff_next().unwrap();
    subnet.inject("loopback H2 off").unwrap();
    subnet.reset_stats().unwrap();
    succeed(subnet.exec("H2", "ib_acme").args(["-s", "fd77::2", "-d", "fd77::1", "-f", "i"]));
    let sent = subnet.sniffed(Some("H2"), begin).unwrap();
    assert_eq!(sent[0].data.len(), 256);
    assert_eq!((stat("mcast.H1.received"), stat("mcast.H2.received")), (1, 0));
}

#[test]
fn a_send_fails() {
    let program = compile("misuse", &["-libverbs"]);
    let subnet = subnet(1);
    subnet.inject("send-error H1 nth=1 status=12").unwrap();
    let output = run(subnet.exec("H1", &program).arg("correct"));
    assert!(text(&output).contains("wc.status == IBV_WC_SUCCESS"), "{}", text(&output));
    assert!(run(subnet.exec("H1", &program).arg("correct")).status.success(), "one only");
}

#[test]
fn events() {
    let subnet = subnet(1);
    let (_running, mut lines) = watch(&subnet, &["events", "100"]);
    let mut expect = |wanted: &[u32]| {
        for event in wanted {
            assert_eq!(lines.next().unwrap().unwrap(), format!("{event} port 1"));
        }
    };
    subnet.inject("event H1 CLIENT_REREGISTER").unwrap();
    expect(&[17]);
    subnet.console("Unlink \"H1\"[1]").unwrap();
    expect(&[10]);
    subnet.console("ReLink \"H1\"[1]").unwrap();
    expect(&[17, 9]);
    subnet.inject("port H1 pkeys=0x8001,0x7fff").unwrap();
    subnet.inject("port H1 lid=99").unwrap();
    subnet.inject("port H1 gid=fe80::99").unwrap();
    subnet.inject("port H1 sm_lid=88").unwrap();
    expect(&[12, 11, 18, 13, 17]);
    subnet.manager("restart").unwrap();
    expect(&[17]);
}

#[test]
fn notices_of_the_sa() {
    let subnet = subnet(2);
    let (_running, mut lines) = watch(&subnet, &["notices", "3"]);
    subnet.console("Unlink \"H2\"[1]").unwrap();
    wait_for(PATIENCE, || (subnet.port("H2").ok()?.state == 1).then_some(())).expect("goes down");
    // The subnet manager has to have seen that before it is over.
    let mut traps = Vec::new();
    while !traps.contains(&"65".to_owned()) {
        let Some(Ok(line)) = lines.next() else { break };
        traps.push(line);
    }
    subnet.console("ReLink \"H2\"[1]").unwrap();
    traps.extend(lines.map_while(Result::ok));
    assert!(traps.contains(&"65".into()) && traps.contains(&"128".into()), "{traps:?}");
}

#[test]
fn devices_come_and_go() {
    let subnet = with(|o| o.hcas = 2, 1);
    subnet.inject("device-add H1 rocep1 ports=eth,ib").unwrap();
    subnet.inject("port H1 dev=rocep1 port=2 gid_tbl_len=0").unwrap();
    subnet.inject("node-guid H1 dev=mlx5_1 guid=0x100002").unwrap();
    let list = || succeed(subnet.exec("H1", probe()).arg("list"));
    let said = list();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].starts_with("mlx5_0 guid=0000000000100002 port=1 state=4 layer=1"), "{said}");
    assert!(lines[1].starts_with("mlx5_1 guid=0000000000100002 "), "{said}");
    assert!(lines[2].ends_with("port=1 state=4 layer=2 gids=8 gid0=yes"), "{said}");
    assert!(lines[3].ends_with("port=2 state=4 layer=1 gids=0 gid0=no"), "{said}");

    let (mut running, mut lines) = watch(&subnet, &["hangup"]);
    subnet.inject("device-remove H1 dev=mlx5_0").unwrap();
    // The first thing to read is DEVICE_FATAL, so the probe's question is answered: it calls that a failure.
    let status = wait_for(PATIENCE, || running.0.try_wait().unwrap()).expect("ends");
    assert_eq!(status.code(), Some(4), "{:?}", lines.next());
    assert_eq!(list().lines().count(), 3);
    subnet.inject("device-restore H1 dev=mlx5_0").unwrap();
    assert_eq!(list().lines().count(), 4);
}

#[test]
fn descriptors_hang_up_with_the_switch() {
    let subnet = subnet(1);
    let (_running, mut lines) = watch(&subnet, &["hangup"]);
    let pid = nix::unistd::Pid::from_raw(subnet.switch_pid().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "all hung up");
}

#[test]
fn who_is_the_kernel() {
    let subnet = subnet(1);
    let (_running, mut lines) = watch(&subnet, &["netlink", "2"]);
    for (believed, name) in [(true, "kernel"), (false, "somebody")] {
        let kernel = subnet.kernel("H1", believed).unwrap();
        kernel.send(&[0; 16]).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), name);
        assert!(kernel.recv(Duration::from_secs(5)).unwrap().is_some());
    }
}

/// Extra HCAs answer for addresses that no host has, and the SA knows the paths to them.
#[test]
fn peers_that_are_not_there() {
    let subnet = with(|options| options.extra_hcas = 3, 1);
    let _daemon = stock_ibacm(&subnet, "H1");
    let own = subnet.port("H1").unwrap();
    let lids = std::fs::read_to_string(subnet.state().file("guid2lid")).expect("OpenSM writes it");
    let extra = lids.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let guid = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let lid = u16::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        // The SM's port has LID 1, and switches have other GUIDs.
        (guid >> 20 == 1 && lid != 1 && lid != own.lid).then_some((lid, guid))
    });
    let extra: Vec<(u16, u64)> = extra.collect();
    assert_eq!(extra.len(), 3, "{lids}");
    let file = subnet.state().file("peers");
    let line = |(i, (lid, guid)): (usize, &(u16, u64))| format!("10.77.9.{i} {lid} fe80{guid:028x}\n");
    std::fs::write(&file, extra.iter().enumerate().map(line).collect::<String>()).unwrap();
    subnet.inject(&format!("peers file={} ms=20", file.display())).unwrap();
    for (i, (lid, _)) in extra.iter().enumerate() {
        let begin = std::time::Instant::now();
        let to = format!("10.77.9.{i}");
        let said = succeed(subnet.exec("H1", "ib_acme").args(["-s", "10.77.0.1", "-d", &to, "-v"]));
        assert!(said.contains(&format!("dlid: {lid}\n")), "{said}");
        assert!(begin.elapsed() >= Duration::from_millis(20), "they take their time");
    }
    assert_eq!(subnet.stat("peers.answered").unwrap(), 3);
    assert!(subnet.inject("peers file=/nonexistent").is_err());
}
