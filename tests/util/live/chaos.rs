//! Changes and faults of every kind, by dice.

use std::fmt::Write as _;
use std::time::Duration;

use fabric::PortLine;

use super::super::rob::{forge, request};
use super::super::util::client::between;
use super::hosts::{
    MOVES, PORTS, ip_batch, port_reset, restore, sa_answers, sa_is_there, serve, serve_at_once, try_ip, wait_port,
};
use super::{Live, world::Place};

/// Numbers that are the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    /// A number below this one.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len() as u64) as usize]
    }
}

/// Events that come for no reason.
const EVENTS: [&str; 8] = [
    "CLIENT_REREGISTER",
    "CLIENT_REREGISTER",
    "PORT_ERR",
    "PORT_ACTIVE",
    "LID_CHANGE",
    "PKEY_CHANGE",
    "GID_CHANGE",
    "SM_CHANGE",
];

impl Live<'_> {
    /// Makes one change, or sets one fault, and says what it was.
    pub fn disturb(&mut self, dice: &mut Dice) -> String {
        let place = dice.of(&PORTS);
        let host = place.0;
        match dice.roll(40) {
            0..12 => self.disturb_port(dice, place),
            12..22 => self.disturb_addresses(dice, host),
            22..26 => self.disturb_manager(dice),
            26..29 => self.disturb_device(dice, place),
            29 => {
                let peer = 2 + dice.roll(2) as usize;
                self.restart_peer(peer);
                format!("service of H{peer} killed and started again")
            }
            30 => {
                // So that it hears of what happens next from what it finds.
                self.daemon(1).signal("STOP");
                let line = self.disturb_port(dice, ("H1", 0));
                std::thread::sleep(Duration::from_millis(dice.roll(300)));
                self.daemon(1).signal("CONT");
                format!("in its sleep: {line}")
            }
            _ => self.disturb_messages(dice, host),
        }
    }

    fn inject(&self, line: String) -> String {
        self.lab.inject(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        line
    }

    fn disturb_port(&self, dice: &mut Dice, (host, device): Place) -> String {
        let (place, n) = (format!("{host} dev=mlx5_{device}"), dice.roll(1000));
        // A peer that does not know that it was somewhere else for a while cannot say so.
        let quiet = if host == "H1" { dice.of(&["", "", " quiet=1"]) } else { "" };
        let node = if device == 0 { host.to_owned() } else { format!("{host}-2") };
        let value = match dice.roll(14) {
            0 => format!("lid={}", 0x200 + n),
            1 => format!("gid=fe80::{:x}", 1 + n),
            2 => format!("gid=fec0::9:{:x}", 1 + n),
            3 | 4 => {
                format!("pkeys={}", dice.of(&["0xffff", "0x8123,0xffff", "0xffff,0x8222", "0x8123", "0x7fff,0x123"]))
            }
            5 => format!("sm_lid={}", 1100 + n),
            6 => format!("state={}", 1 + n % 4),
            7 => format!("subnet_timeout={}", 8 + n % 9),
            8 => {
                port_reset(&self.lab, (host, device));
                return format!("port-reset {place}");
            }
            9 | 10 => {
                let line = format!("{} \"{node}\"[1]", dice.of(&["Unlink", "ReLink"]));
                self.lab.console(&line).expect("ibsim has a console");
                return line;
            }
            11 => return self.inject(format!("leave {place}")),
            _ => return self.inject(format!("event {place} {}", dice.of(&EVENTS))),
        };
        self.inject(format!("port {place} {value}{quiet}"))
    }

    fn disturb_addresses(&mut self, dice: &mut Dice, host: &'static str) -> String {
        let (interface, n) = (dice.of(&["ib0", "ib0", "ib1"]), dice.roll(40));
        let words = match dice.roll(10) {
            0 => format!("addr add 10.77.8.{n}/16 dev {interface}"),
            1 => format!("addr add fd77::8:{n}/64 dev {interface} nodad"),
            2 => format!("addr del 10.77.8.{n}/16 dev {interface}"),
            3 => format!("addr flush dev {interface} scope global"),
            4 => format!("addr add {MOVES}/32 dev {interface}"),
            5 => format!("addr del {MOVES}/32 dev {interface}"),
            6 => format!("link set {interface} {}", dice.of(&["down", "up", "up"])),
            7 => {
                let rest = format!("0x8222 dev=mlx5_0:1 10.91.0.{}/24", &host[1..]);
                let (verb, done) = match dice.roll(2) {
                    0 => ("made", self.lab.add_interface(host, "ib0.8222", &rest)),
                    _ => ("deleted", self.lab.remove_interface(host, "ib0.8222")),
                };
                return format!("{host}: ib0.8222 {verb}: {}", done.is_ok());
            }
            8 => {
                let done =
                    ["ib0", "ibx", "ib0"].windows(2).all(|w| self.lab.rename_interface(host, w[0], w[1]).is_ok());
                return format!("{host}: ib0 renamed and back: {done}");
            }
            _ => {
                let mut lines = String::new();
                for verb in ["add", "del"] {
                    for n in 1..200 {
                        let _ = writeln!(lines, "addr {verb} 10.77.21.{n}/32 dev ib0");
                    }
                }
                self.daemon(1).signal("STOP");
                ip_batch(&self.lab, "H1", &lines.repeat(5));
                self.daemon(1).signal("CONT");
                return "more news than the kernel keeps".into();
            }
        };
        format!("{host}: ip {words}: {}", try_ip(&self.lab, host, &words))
    }

    fn disturb_manager(&self, dice: &mut Dice) -> String {
        let what = dice.of(&["stop", "start", "start", "restart", "sweep", "sweep", "second", "second-stop"]);
        self.lab.manager(what).expect("the subnet answers");
        format!("manager: {what}")
    }

    fn disturb_device(&self, dice: &mut Dice, (host, device): Place) -> String {
        let place = format!("{host} dev=mlx5_{device}");
        self.inject(match dice.roll(6) {
            0 | 1 => format!("device-remove {place}"),
            2..5 => format!("device-restore {place}"),
            _ => format!("event {place} DEVICE_FATAL"),
        })
    }

    fn disturb_messages(&self, dice: &mut Dice, host: &str) -> String {
        let n = dice.roll(1000);
        match dice.roll(8) {
            0 => self.inject(format!("send-error {host} nth={} status=12", 1 + n % 3)),
            1 => self.inject(format!("sa delay host={host} ms={} count=2", n / 4)),
            2 => self.inject(format!("sa drop host={host} count={}", 1 + n % 3)),
            3 => self.inject(format!("sa status host={host} status={} count=2", dice.of(&[1, 12, 0x300, 0x700]))),
            4 => self.inject(format!("datagram drop percent=40 count={}", 1 + n % 5)),
            5 => self.inject(format!("datagram delay ms={} count=3", n / 10)),
            6 => self.inject(format!("datagram duplicate count={}", 1 + n % 5)),
            _ => {
                let ports: [PortLine; 3] = self.lab.hosts(["H1", "H2", "H3"]);
                let (to, from) = (&ports[n as usize % 2], &ports[2]);
                if let Some((group, _)) = to.joined.first() {
                    let [source, dest] = between(&format!("10.77.200.{}", n % 50), "10.77.0.1");
                    forge(&self.lab, to, n.is_multiple_of(3), from, &request(n + 1, &source, &dest, &[*group]), "");
                }
                format!("a forged request to {}", to.host)
            }
        }
    }

    fn restart_peer(&mut self, n: usize) {
        self.kill(n);
        self.daemons[n - 1] = Some(serve_at_once(&self.lab, self.program, n));
    }

    /// Takes back whatever has been changed.
    pub fn mend(&mut self) {
        self.lab.inject("clear").expect("the subnet answers");
        self.lab.manager("second-stop").expect("the subnet answers");
        // One that has waited behind the second does not always see what happened to links meanwhile.
        self.lab.manager("restart").expect("the subnet answers");
        for (host, device) in PORTS {
            let node = if device == 0 { host.to_owned() } else { format!("{host}-2") };
            self.lab.console(&format!("ReLink \"{node}\"[1]")).expect("ibsim has a console");
        }
        self.world = restore(&self.lab);
        if !sa_is_there(&self.lab, Duration::from_secs(10)) {
            self.lab.manager("restart").expect("the subnet answers");
        }
        sa_answers(&self.lab);
        // Who was taken out of its groups does not know: a manager that does that says so.
        for (host, device) in PORTS {
            self.lab.inject(&format!("event {host} dev=mlx5_{device} CLIENT_REREGISTER")).expect("it is there");
        }
        for n in [2, 3] {
            if !self.daemon(n).is_alive() {
                self.daemons[n - 1] = Some(serve(&self.lab, self.program, n));
            }
        }
        PORTS.into_iter().for_each(|p| wait_port(&self.lab, p, |p| !p.qpns.is_empty() && !p.joined.is_empty()));
        // A service that was started while its port was somewhere else cannot know that others know it there. It learns
        // of one more change of its LID, and says where it is.
        let peers = || PORTS.into_iter().filter(|(host, _)| *host != "H1");
        for (n, (host, device)) in peers().enumerate() {
            self.inject(format!("port {host} dev=mlx5_{device} lid={}", 0x300 + n));
        }
        std::thread::sleep(Duration::from_millis(300));
        peers().for_each(|place| port_reset(&self.lab, place));
        self.look();
    }
}
