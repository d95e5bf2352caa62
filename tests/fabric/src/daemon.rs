//! The process behind a subnet: it starts ibsim, OpenSM and the hosts, and is the switch between them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

use crate::children::{self, Holder};
use crate::ib::Gid;
use crate::ibsim::Client;
use crate::managers::{self, Managers};
use crate::options::Options;
use crate::switch::port::Device;
use crate::switch::sim::SimClient;
use crate::switch::sniff::hex;
use crate::switch::{FIRST_CLIENT, FIRST_CONN, POLL, Switch, verbs};
use crate::topology::{self, Shape};

/// The stand-in's file name in the state directory.
pub const STANDIN: &str = "libfabric_standin.so";
const STANDIN_BYTES: &[u8] = include_bytes!(env!("FABRIC_STANDIN"));

const HOSTS_TOKEN: u64 = 1;
const CONTROL_TOKEN: u64 = 2;
const SIGNAL_TOKEN: u64 = 3;
const HOLDER_TOKEN: u64 = 4;
/// How long ibsim, OpenSM and the hosts may take.
const STARTUP: Duration = Duration::from_secs(120);
/// An OpenSM that ends before the subnet is up has lost what it asked ibsim first; it is started again no sooner than this.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a command's client may take to send its line.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// An interface and the port whose GID is in its hardware address.
struct Interface {
    host: String,
    name: String,
    dev: usize,
    port: u32,
    gid: Gid,
}

struct Daemon {
    options: Options,
    interfaces: Vec<Interface>,
    switch: Switch,
    ibsim: Child,
    managers: Managers,
    holders: Vec<Holder>,
    /// Where programs of the hosts connect.
    hosts: Option<UnixListener>,
    stop: bool,
}

/// Runs a subnet until it is told to end.
pub fn run(options: Options) -> io::Result<()> {
    let state = options.state.clone();
    // Out of the reach of a terminal's signals, and in nobody's way.
    nix::unistd::setsid()?;
    std::env::set_current_dir("/")?;
    fs::write(state.pid_file(), std::process::id().to_string())?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let outcome = start(options).and_then(|mut daemon| {
        let outcome = daemon.serve(&signals);
        daemon.shut_down();
        outcome
    });
    children::clear_hosts(&state);
    outcome
}

fn prepare(options: &Options) -> io::Result<String> {
    let state = &options.state;
    let shape = Shape {
        hosts: options.hosts,
        hcas: options.hcas,
        ports: options.hca_ports,
        extra: options.extra_hcas,
        second_manager: options.second_manager,
    };
    let text = match &options.topology {
        Some(file) => fs::read_to_string(file)?,
        None => topology::write(&shape),
    };
    fs::write(state.file("topology"), &text)?;
    fs::write(state.file(STANDIN), STANDIN_BYTES)?;
    fs::write(state.violations(), "")?;
    fs::set_permissions(state.violations(), fs::Permissions::from_mode(0o666))?;
    managers::prepare(options)?;
    let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for hca in topology::host_hcas(&text).iter().filter(|h| h.index == 0) {
        let n = hca.host;
        hosts.push_str(&format!("10.77.0.{n} h{n}\nfd77::{n:x} h{n}\n"));
    }
    fs::write(state.file("hosts"), hosts)?;
    Ok(text)
}

fn start(options: Options) -> io::Result<Daemon> {
    let text = prepare(&options)?;
    let hcas = topology::host_hcas(&text);
    let most = crate::options::MAX_HCAS
        - usize::from(hcas.iter().any(|hca| hca.ports > 1))
        - usize::from(options.second_manager);
    if hcas.is_empty() || hcas.len() > most {
        return Err(io::Error::other(format!("{} HCAs of hosts in the topology", hcas.len())));
    }
    let ibsim = children::ibsim(&options.state)?;
    let mut switch = Switch::new(options.state.violations())?;
    let deadline = Instant::now() + STARTUP;
    let mut slot = 0;
    let mut connect = |node: &str, issm| loop {
        match Client::connect(&children::socket_base(), slot, node, issm) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(io::Error::other(format!("ibsim: {node}: {e}"))),
            Ok(client) => {
                slot += 1;
                return Ok(client);
            }
        }
    };
    for hca in &hcas {
        let client = connect(&hca.node, true)?;
        let mut device = Device {
            host: format!("H{}", hca.host),
            name: format!("mlx5_{}", hca.index),
            node: Some(hca.node.clone()),
            node_guid: 0,
            gone: false,
            ports: Vec::new(),
            next_qpn: verbs::FIRST_QPN,
        };
        let dev = switch.devices.len();
        let sim = SimClient::new(client, dev, &mut device)?;
        switch.devices.push(device);
        switch.clients.push(sim);
    }
    if hcas.iter().any(|hca| hca.ports > 1) {
        switch.clients.push(SimClient::gateway(connect("SM", false)?)?);
    }
    for (index, sim) in switch.clients.iter().enumerate() {
        let token = FIRST_CLIENT + 2 * index as u64;
        switch.watch(sim.client.ctl(), token)?;
        switch.watch(sim.client.data(), token + 1)?;
    }
    let managers = Managers::start(&options)?;
    let mut daemon = Daemon {
        options,
        switch,
        ibsim,
        managers,
        holders: Vec::new(),
        hosts: None,
        stop: false,
        interfaces: Vec::new(),
    };
    if let Err(e) = daemon.build_hosts() {
        daemon.shut_down();
        return Err(e);
    }
    Ok(daemon)
}

fn listen_at(path: &std::path::Path) -> io::Result<UnixListener> {
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(128)?)?;
    // Programs in the hosts may run as anybody.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(UnixListener::from(fd))
}

impl Daemon {
    fn build_hosts(&mut self) -> io::Result<()> {
        let mut names: Vec<String> = self.switch.devices.iter().map(|d| d.host.clone()).collect();
        names.dedup();
        for host in names {
            let holder = Holder::start(&self.options.state, &host)?;
            self.switch.watch(holder.answers(), HOLDER_TOKEN)?;
            self.holders.push(holder);
            if !self.options.no_ipoib {
                self.ipoib(&host)?;
            }
        }
        Ok(())
    }

    /// One interface for each port, `ib0` first.
    fn ipoib(&mut self, host: &str) -> io::Result<()> {
        let n: usize = host[1..].parse().map_err(|_| io::Error::other(format!("{host}: no number")))?;
        let mut ports = Vec::new();
        for (dev, device) in self.switch.devices.iter().enumerate().filter(|(_, d)| d.host == host) {
            ports.extend((1..=device.ports.len() as u32).map(|port| (dev, port)));
        }
        for (index, (dev, port)) in ports.into_iter().enumerate() {
            let v6 = if index == 0 { String::from("fd77::") } else { format!("fd77:0:0:{index:x}::") };
            let addresses = format!("10.{}.0.{n}/16 {v6}{n:x}/64", 77 + index);
            self.add_interface(host, &format!("ib{index}"), "0xffff", (dev, port), &addresses)?;
        }
        Ok(())
    }

    fn add_interface(
        &mut self,
        host: &str,
        name: &str,
        pkey: &str,
        (dev, port): (usize, u32),
        addresses: &str,
    ) -> io::Result<()> {
        let gid = self.switch.devices[dev].port(port).and_then(|p| p.view().gid(0)).unwrap_or_default();
        self.in_host(host, &format!("add {name} {pkey} {} {addresses}", hex(&gid)))?;
        self.interfaces.push(Interface { host: host.to_owned(), name: name.to_owned(), dev, port, gid });
        Ok(())
    }

    fn holder(&mut self, host: &str) -> io::Result<&mut Holder> {
        let holder = self.holders.iter_mut().find(|h| h.host == host);
        holder.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host}: no such host")))
    }

    /// Has a host do something. What its kernel takes for it, seconds on a busy machine, is not to hold up the fabric.
    fn in_host(&mut self, host: &str, line: &str) -> io::Result<()> {
        self.holder(host)?.ask(line)?;
        while !self.holder(host)?.has_answered()? {
            self.turn(None)?;
        }
        self.holder(host)?.answer()
    }

    /// IPoIB follows its port's GID.
    fn follow_gids(&mut self) {
        let mut changed = Vec::new();
        for interface in &mut self.interfaces {
            let port = self.switch.devices[interface.dev].port(interface.port);
            let Some(gid) = port.and_then(|p| p.view().gid(0)) else { continue };
            if gid != interface.gid {
                interface.gid = gid;
                changed.push((interface.host.clone(), interface.name.clone(), gid));
            }
        }
        for (host, name, gid) in changed {
            if let Err(e) = self.in_host(&host, &format!("gid {name} {}", hex(&gid))) {
                eprintln!("{name}: {e}");
            }
        }
    }

    fn serve(&mut self, signals: &SignalFd) -> io::Result<()> {
        let hosts = listen_at(&self.options.state.switch_socket())?;
        let control = UnixListener::bind(self.options.state.control_socket())?;
        control.set_nonblocking(true)?;
        self.switch.watch(&hosts, HOSTS_TOKEN)?;
        self.hosts = Some(hosts);
        self.switch.watch(&control, CONTROL_TOKEN)?;
        self.switch.watch(signals, SIGNAL_TOKEN)?;
        let begin = Instant::now();
        let (mut last_poll, mut ready, mut started) = (None::<Instant>, false, begin);
        while !self.stop {
            if last_poll.is_none_or(|t| t.elapsed() >= POLL) {
                last_poll = Some(Instant::now());
                self.switch.poll();
                self.follow_gids();
                self.check_children()?;
                if !ready && self.subnet_up() {
                    ready = true;
                    fs::write(self.options.state.ready_file(), "")?;
                } else if !ready && begin.elapsed() > STARTUP {
                    return Err(io::Error::other("OpenSM does not bring the subnet up"));
                } else if !ready && started.elapsed() > AGAIN {
                    started = Instant::now();
                    self.manager("start")?;
                }
            }
            self.turn(Some(&control))?;
        }
        Ok(())
    }

    /// Waits for what comes next, and passes it on. Commands are taken where there is their listener: one at a time.
    fn turn(&mut self, control: Option<&UnixListener>) -> io::Result<()> {
        for token in self.switch.wait()? {
            match token {
                HOSTS_TOKEN => {
                    if let Some(hosts) = &self.hosts {
                        self.switch.accept(hosts);
                    }
                }
                CONTROL_TOKEN => {
                    if let Some(control) = control {
                        self.commands(control);
                    }
                }
                SIGNAL_TOKEN => self.stop = true,
                HOLDER_TOKEN => {}
                FIRST_CLIENT..FIRST_CONN => {
                    let client = ((token - FIRST_CLIENT) / 2) as usize;
                    if (token - FIRST_CLIENT).is_multiple_of(2) {
                        self.switch.ctl_readable(client);
                    } else {
                        self.switch.data_readable(client);
                    }
                }
                _ => self.switch.readable(token),
            }
        }
        self.switch.run_timers();
        Ok(())
    }

    fn check_children(&mut self) -> io::Result<()> {
        children::check(&mut self.ibsim, "ibsim")?;
        for holder in &mut self.holders {
            holder.check()?;
        }
        self.managers.check()
    }

    fn subnet_up(&self) -> bool {
        let log = fs::read_to_string(self.options.state.file("opensm.log")).unwrap_or_default();
        log.contains("SUBNET UP") && self.switch.all_active()
    }

    /// Carries out the commands that wait: one line each, the answer ends with the connection.
    fn commands(&mut self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            if let Err(e) = self.one_command(stream) {
                eprintln!("command: {e}");
            }
        }
    }

    fn one_command(&mut self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(COMMAND_PATIENCE))?;
        stream.set_write_timeout(Some(COMMAND_PATIENCE))?;
        let mut line = String::new();
        (&mut stream).take(1 << 20).read_to_string(&mut line)?;
        let line = line.trim();
        let outcome = match self.switch.command(line) {
            Some(outcome) => outcome,
            None => self.own_command(line).map_err(|e| e.to_string()),
        };
        match outcome {
            Ok(text) => write!(stream, "ok\n{text}"),
            Err(reason) => writeln!(stream, "{reason}"),
        }
    }

    fn own_command(&mut self, line: &str) -> io::Result<String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "shutdown" => self.stop = true,
            "console" => {
                let stdin = self.ibsim.stdin.as_mut().ok_or_else(|| io::Error::other("ibsim has no console"))?;
                writeln!(stdin, "{rest}")?;
            }
            "interface" => self.interface(rest)?,
            "sm" => self.manager(rest)?,
            "base" => return Ok(format!("{}\n", children::socket_base())),
            _ => return Err(io::Error::other(format!("{verb}: no such command"))),
        }
        Ok(String::new())
    }

    /// `HOST add NAME PKEY [DEV:PORT] [ADDRESS...]`, `HOST remove NAME` or `HOST rename OLD NEW`.
    fn interface(&mut self, line: &str) -> io::Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        match words.as_slice() {
            [host, "add", name, pkey, rest @ ..] => {
                let (place, addresses) = match rest {
                    [place, addresses @ ..] if place.starts_with("dev=") => (Some(*place), addresses),
                    addresses => (None, addresses),
                };
                let (device, port) = match place.map(|p| p.trim_start_matches("dev=").split_once(':')) {
                    None => (None, 1),
                    Some(Some((device, port))) => (Some(device), port.parse().map_err(|_| wrong("dev=DEVICE:PORT"))?),
                    Some(None) => return Err(wrong("dev=DEVICE:PORT")),
                };
                let dev = self.switch.find_device(host, device).ok_or_else(|| wrong("no such host or device"))?;
                self.add_interface(host, name, pkey, (dev, port), &addresses.join(" "))
            }
            [host, "rename", old, new] => {
                self.in_host(host, &format!("rename {old} {new}"))?;
                for i in self.interfaces.iter_mut().filter(|i| i.host == *host && i.name == *old) {
                    (*new).clone_into(&mut i.name);
                }
                Ok(())
            }
            [host, "remove", name] => {
                self.in_host(host, &format!("remove {name}"))?;
                self.interfaces.retain(|i| i.host != *host || i.name != *name);
                Ok(())
            }
            _ => Err(wrong("add, remove or rename")),
        }
    }

    fn manager(&mut self, what: &str) -> io::Result<()> {
        if self.managers.command(&self.options, what)? {
            self.switch.manager_restarted();
        }
        Ok(())
    }

    fn shut_down(&mut self) {
        children::clear_hosts(&self.options.state);
        for holder in self.holders.drain(..) {
            holder.stop();
        }
        self.managers.stop();
        children::stop(&mut self.ibsim, Duration::from_secs(2));
    }
}
