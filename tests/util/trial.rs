//! A service with a provider that breaks the rules (`tests/c/hostile_provider.c`), and one port beside it that the built-in
//! provider serves.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, HDR_LEN, Status};
use ibacm_wire::{Gid, PathRecord};

use super::plugin::{self, build, lay_down};
use super::rob;
use super::util::client::{between, name};
use super::util::{self, Client, Daemon, Lab, Program, Shared, wait_for};

pub static SUBNET: Shared = Shared::new(|o| (o.hosts, o.hcas) = (2, 2));

pub static HOSTILE: LazyLock<PathBuf> = LazyLock::new(|| build("tests/c/hostile_provider.c"));

/// Time that a provider has for an answer here, in milliseconds.
pub const LIMIT: u64 = 1500;
/// Clients that ask at a time.
pub const CLIENTS: usize = 20;
/// What does not wait for the provider takes no longer, on a busy machine either; one that blocks does so for longer.
pub const SOON: Duration = Duration::from_secs(3);
/// Nor does it take that long each time: one that waits for a provider waits for [`LIMIT`].
const QUICK: Duration = Duration::from_secs(1);

/// Two ports of H1: the first is the provider's, the second, in another subnet, the built-in one's.
pub struct Trial<'a> {
    // The service ends first.
    pub daemon: Daemon,
    pub lab: Lab<'a>,
}

impl Trial<'_> {
    /// Starts the service with a provider that behaves so. Its ports may not come to anything.
    pub fn start(mode: &str, more: &str) -> Trial<'static> {
        let lab = rob::enter(&SUBNET);
        lab.inject("port H1 dev=mlx5_1 gid=fec0:0:0:1::1").unwrap();
        lab.write("H1", "/etc/rdma/ibacm_addr.cfg", "one mlx5_0 1 default\ntwo mlx5_1 1 default\n");
        let options = lay_down(&lab, "H1", &[&HOSTILE])
            + "provider hostile default\nprovider IBACMP 0xfec0000000000001\n"
            + &format!("provider_timeout {LIMIT}\nhostile {mode}\n{more}");
        let daemon = lab.start_configured(Program::Ours, "H1", &options);
        let trial = Trial { daemon, lab };
        let joined = wait_for(util::PATIENCE, || {
            let ports = trial.lab.ports().ok()?;
            let port = ports.iter().find(|p| p.host == "H1" && p.device == "mlx5_1")?;
            (!port.joined.is_empty()).then_some(())
        });
        assert!(joined.is_some(), "{mode}: the other port: {}", trial.daemon.said());
        trial
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.lab, "H1")
    }

    /// The other port, and what needs no provider, are served as ever.
    pub fn others_are_well(&self, mode: &str) {
        let mut took = Vec::new();
        while took.last().is_none_or(|t| *t >= QUICK) {
            assert!(took.len() < 5, "{mode}: {took:?}");
            took.push(self.ask_others(mode));
        }
    }

    fn ask_others(&self, mode: &str) -> Duration {
        let begin = Instant::now();
        let mut client = self.client();
        let own = client.resolve(&[name(EP_FLAG_SOURCE, "two"), name(EP_FLAG_DEST, "TWO")]).path();
        assert_eq!(own.sgid(), Gid([0xfe, 0xc0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]), "{mode}");
        let ports = self.lab.ports().unwrap();
        let port = |host: &str, device: &str| ports.iter().find(|p| p.host == host && p.device == device).unwrap();
        let mut wanted = PathRecord::default();
        wanted.set_slid(port("H1", "mlx5_1").lid);
        wanted.set_dlid(port("H2", "mlx5_1").lid);
        assert_eq!(client.resolve(&[Entry::path(0, &wanted)]).path().dlid(), wanted.dlid(), "{mode}");
        client.counters();
        let names = [1, 2].map(|n| {
            let bytes = client.endpoint(n, 0).bytes;
            String::from_utf8_lossy(&bytes[HDR_LEN + 16..HDR_LEN + 80]).trim_end_matches('\0').to_owned()
        });
        assert!(names.contains(&"ibacmp".to_owned()) && names.contains(&"hostile".to_owned()), "{mode}: {names:?}");
        begin.elapsed()
    }

    /// Each of many clients asks three times, and gets one answer each time: their statuses.
    pub fn everybody_is_answered(&self, mode: &str) -> Vec<u8> {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| self.client()).collect();
        let mut statuses = Vec::new();
        for round in 0..3 {
            let question = |n: usize| between("10.77.0.1", &format!("10.77.{round}.{}", 100 + n));
            let begin = Instant::now();
            let tids: Vec<u64> = clients.iter_mut().enumerate().map(|(n, c)| c.ask(&question(n))).collect();
            for (n, client) in clients.iter_mut().enumerate() {
                let reply = client.recv().unwrap_or_else(|| panic!("{mode}: client {n} is thrown out"));
                let h = &reply.header;
                assert_eq!((h.tid, h.version, h.opcode, h.data), (tids[n].to_ne_bytes(), 1, 0x81, [0; 3]), "{mode}");
                if h.status == 0 && mode != "other" && !mode.starts_with("malformed") {
                    let wanted = Gid(question(n)[1].info[..16].try_into().unwrap());
                    assert_eq!(reply.path().dgid(), wanted, "{mode}: somebody else's answer");
                }
                assert!(h.status == 0 || reply.bytes.len() == HDR_LEN, "{mode}: {reply:?}");
                statuses.push(h.status);
            }
            assert!(begin.elapsed() < Duration::from_millis(LIMIT) + SOON, "{mode}: {:?}", begin.elapsed());
        }
        for client in &mut clients {
            assert!(client.is_silent(Duration::from_millis(20)), "{mode}: an answer too many");
        }
        statuses
    }

    /// All answers have this status.
    pub fn all_are(&self, mode: &str, wanted: Status) {
        let statuses = self.everybody_is_answered(mode);
        assert!(statuses.iter().all(|s| *s == wanted as u8), "{mode}: {statuses:?}\n{}", self.daemon.said());
        self.others_are_well(mode);
    }

    /// Waits until the provider's port is open: its first call has been answered with a success.
    pub fn open(&self) {
        plugin::until(&self.lab, "H1", &between("10.77.0.1", "10.77.0.9"), 0);
    }

    /// Ends the service; how long that took.
    pub fn stop(self) -> (Duration, String) {
        let begin = Instant::now();
        let pid = self.daemon.pid();
        self.daemon.signal("TERM");
        let gone = wait_for(util::PATIENCE, || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (state.is_empty() || state.contains(") Z ")).then_some(())
        });
        assert!(gone.is_some(), "it does not end: {}", self.daemon.said());
        let (took, said) = (begin.elapsed(), self.daemon.said());
        assert_eq!(self.daemon.wait(), Some(0), "{said}");
        (took, said)
    }
}
