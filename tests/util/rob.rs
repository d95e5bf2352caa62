//! What tests of trouble need besides: processes measured, datagrams forged, hosts put back in order.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::PortLine;
use ibacm_wire::Gid;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, Status};
use ibacm_wire::datagram::{Datagram, Groups, Request, Response};

use super::util::client;
use super::util::family::ip_command;
use super::util::{Client, Lab, PATIENCE, Shared, run, text, wait_for};

/// Takes the subnet, with ports and addresses as they were when it came up.
pub fn enter(shared: &'static Shared) -> Lab<'static> {
    let lab = shared.enter();
    let ports = lab.ports().expect("the subnet answers");
    let mut hosts: Vec<&str> = Vec::new();
    for p in &ports {
        let _ = lab.inject(&format!("port-reset {} dev={} port={}", p.host, p.device, p.port));
        if !hosts.contains(&p.host.as_str()) {
            hosts.push(&p.host);
        }
    }
    for host in hosts {
        let number = &host[1..];
        ip(&lab, host, "link set ib0 up");
        ip(&lab, host, "addr flush dev ib0 scope global");
        ip(&lab, host, &format!("addr add 10.77.0.{number}/16 dev ib0"));
        ip(&lab, host, &format!("addr add fd77::{number}/64 dev ib0 nodad"));
        let _ = lab.inject(&format!("loopback {host} on"));
    }
    lab
}

/// Runs ip(8) on a host, with addresses as this program means them.
pub fn ip(lab: &Lab<'_>, host: &str, words: &str) {
    let words = ip_command(words);
    let output = run(lab.exec(host, "ip").args(words.split_whitespace()));
    assert!(output.status.success(), "ip {words} on {host}: {}", text(&output));
}

/// The status of a reply to a resolve request.
pub fn status(client: &mut Client, entries: &[Entry]) -> u8 {
    client.resolve(entries).header.status
}

/// A status as it stands in a reply.
pub const fn code(status: Status) -> u8 {
    status as u8
}

/// Asks again and again until the answer has this status.
pub fn until(client: &mut Client, entries: &[Entry], wanted: u8) -> Option<Duration> {
    let begin = Instant::now();
    wait_for(PATIENCE, || (status(client, entries) == wanted).then(|| begin.elapsed()))
}

/// Descriptors that a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

/// Waits until a process has no more descriptors than this.
#[track_caller]
pub fn settles(pid: u32, most: usize) {
    let settled = wait_for(PATIENCE, || (descriptors(pid) <= most).then_some(()));
    assert!(settled.is_some(), "{} descriptors, {most} before", descriptors(pid));
}

/// Descriptors that a process has open when those who have left are gone.
pub fn steady_descriptors(pid: u32) -> usize {
    let mut last = usize::MAX;
    let steady = wait_for(PATIENCE, || {
        std::thread::sleep(Duration::from_millis(60));
        let now = descriptors(pid);
        (std::mem::replace(&mut last, now) == now).then_some(now)
    });
    steady.expect("they come to rest")
}

/// Memory that a process has in use, KiB.
pub fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    // Pages of the program and its libraries come and go: the service gives them back after the start.
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("it has memory");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// Processor time that a process has used.
pub fn processor(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    // The name in parentheses may hold anything; after it, user and system time are the 12th and 13th.
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

/// Processor time that the process uses in a second. Just after something it may have work left: of three seconds the
/// quietest counts, and whoever turns in place has none.
pub fn idle_second(pid: u32) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let before = processor(pid);
        std::thread::sleep(Duration::from_secs(1));
        least = least.min(processor(pid) - before);
        if least.is_zero() {
            break;
        }
    }
    least
}

/// A program that ends with this value.
pub struct Running(pub Child);

impl Running {
    /// Starts it, without output.
    pub fn start(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of this protocol's datagrams: type, and 64 bytes.
pub fn wire(entry: &Entry) -> (u8, [u8; 64]) {
    (entry.kind as u8, entry.info)
}

/// An entry of a request that says who asks.
pub fn source(address: &str) -> Entry {
    client::ip(EP_FLAG_SOURCE, address)
}

/// An entry of a request that says who is asked for.
pub fn dest(address: &str) -> Entry {
    client::ip(EP_FLAG_DEST, address)
}

/// A request for `dest` from `source`, which offers these groups.
pub fn request(tid: u64, source: &Entry, dest: &Entry, groups: &[[u8; 16]]) -> Vec<u8> {
    let ((src_type, src), (dest_type, dest)) = (wire(source), wire(dest));
    let groups = Groups::new(groups.iter().map(|g| Gid(*g)));
    Datagram::Request(Request { tid, dest_type, dest, src_type, src, groups }).emit().to_vec()
}

/// A response that names this group.
pub fn response(tid: u64, group: [u8; 16]) -> Vec<u8> {
    Datagram::Response(Response { tid, status: 0, groups: Groups::new([Gid(group)]) }).emit().to_vec()
}

/// Has a host receive a datagram that claims to come from a port, by unicast or through its first group.
pub fn forge(lab: &Lab<'_>, to: &PortLine, multicast: bool, from: &PortLine, data: &[u8], more: &str) {
    let mut line = match to.joined.first() {
        Some((mgid, _)) if multicast => format!("raw mgid={}", hex(mgid)),
        _ => format!("raw to={}", to.host),
    };
    let sqpn = from.qpns.first().copied().unwrap_or(0x77);
    let _ = write!(line, " slid={} sgid={} sqpn={sqpn} data={} {more}", from.lid, hex(&from.gid), hex(data));
    lab.inject(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}
