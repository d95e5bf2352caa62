//! From configuration files to a daemon that serves: each step, and what is said when one fails.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mio::Poll;

use crate::addr::Addr;
use crate::addrfile::{self, AddrEntry, AddrName, AddrPkey};
use crate::cli::Files;
use crate::dirs;
use crate::engine::{Config, Engine, LocalName, PkeyChoice, Providers, RouteProt};
use crate::evloop::{Daemon, Depths, Pause};
use crate::lifecycle::{self, LockFile, Signals};
use crate::log;
use crate::options::{self, AddrFallback, LoopbackProt, Options, ServerMode, Severity, io as files};
use crate::preload;
use crate::provider::core::core;
use crate::provider::load::{self, Loaded};
use crate::rdma_nl::RdmaNl;
use crate::rtnl::{self, Rtnl};
use crate::server::{Limits, Server};
use crate::systemd::{Environment, Manager, Sockets};

#[path = "service_reload.rs"]
mod reload;

/// Send slots of an endpoint beside those that the depths ask for: a request that nobody answers stops counting against
/// its depth before its send is known to have completed.
const SPARE_SENDS: usize = 64;

/// Why the daemon does not serve: the text says where and what.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

fn because<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> StartError {
    let what = what.to_owned();
    move |e| StartError(format!("{what}: {e}"))
}

/// A service that runs.
pub struct Service {
    daemon: Daemon,
    files: Files,
    options: Options,
    /// Sends that a queue of an endpoint takes.
    slots: usize,
    /// There are plug-ins, which may have options of their own.
    plugged: bool,
    /// There is no address file: names are made from the host's.
    from_host: bool,
    /// Device and port that have the host's own name.
    named: Option<(Vec<u8>, u8)>,
    _lock: LockFile,
}

impl Service {
    /// Whether plug-ins are loaded.
    pub fn is_plugged(&self) -> bool {
        self.plugged
    }

    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// The system refuses to wait for events.
    pub fn run(&mut self) -> std::io::Result<()> {
        self.daemon.ready();
        if !self.plugged {
            self.daemon.settle();
        }
        loop {
            match self.daemon.run()? {
                Pause::End => {
                    self.daemon.stop_providers();
                    self.daemon.last_metrics();
                    return Ok(());
                }
                Pause::Reload => self.reload(),
                Pause::Ports => self.ports_changed(),
            }
        }
    }
}

/// Does everything up to the first turn of the loop. Nothing that another instance owns is touched: the lock comes
/// before the socket, and a socket that somebody serves is left alone. `systemd` is what systemd has said, where the
/// service runs under it.
pub fn start(files: &Files, mut systemd: Option<Environment>) -> Result<Service, StartError> {
    let mut manager = systemd.as_ref().map_or_else(Manager::none, Environment::manager);
    match begin(files, systemd.as_mut()) {
        Ok(mut service) => {
            service.daemon.set_manager(manager);
            Ok(service)
        }
        Err(e) => {
            manager.failed(&e.0);
            Err(e)
        }
    }
}

fn begin(files: &Files, systemd: Option<&mut Environment>) -> Result<Service, StartError> {
    let loaded = files::load(&files.opts).map_err(|e| {
        // the log's place is in the file that cannot be read; the usual one is the best guess
        let _ = log::configure(&Options::default().log_file, 0);
        StartError(e.to_string())
    })?;
    let options = loaded.options;
    if let Err(e) = log::configure(&options.log_file, options.log_level) {
        // a full or missing disk must not cost the service
        log::set_level(options.log_level);
        log!(0, "{e}: lines go to standard error");
    }
    let managed = systemd.is_some();
    let sockets = match systemd {
        Some(environment) => environment.sockets().map_err(|e| StartError(e.to_string()))?,
        None => Sockets::default(),
    };
    let lock = LockFile::acquire(&options.lock_file).map_err(|e| StartError(e.to_string()))?;
    // Whose options the unknown ones are is known when plug-ins are.
    let (unknown, findings): (Vec<_>, Vec<_>) =
        loaded.findings.into_iter().partition(|f| f.severity == Severity::Unknown);
    findings.iter().for_each(|finding| log!(0, "{finding}"));
    log_options(&options);
    crate::umad::set_debug_level(i32::from(options.umad_debug_level));
    if let Err(e) = lifecycle::raise_open_files() {
        log!(0, "cannot raise the limit of open files: {e}");
    }
    let signals = Signals::new().map_err(because("cannot receive signals"))?;
    // Plug-ins may have threads, which are to have no signals; and there has to be one thread when they are tried.
    let (plugins, providers) = load_providers(files, &options)?;
    let plugged = !plugins.is_empty();
    unknown.iter().for_each(|finding| log!(finding.level(plugged), "{finding}"));
    let poll = Poll::new().map_err(because("cannot make an epoll descriptor"))?;
    let server = Server::new(poll.registry(), Limits::default()).map_err(because("cannot serve clients"))?;
    let rtnl = match Rtnl::open(Path::new(rtnl::SYSFS_NET), 0) {
        Ok(r) => Some(r),
        Err(e) => {
            log!(0, "addresses of interfaces are not known: {e}");
            None
        }
    };
    let mut engine = Engine::new(config(&options), secret()?);
    engine.set_providers(providers);
    let slots = send_slots(&options);
    let depths = Depths { recv: options.recv_depth as usize, send: slots };
    let mut daemon =
        Daemon::new(poll, engine, server, rtnl, signals, depths).map_err(because("cannot start the loop"))?;
    daemon.set_busy_poll(busy_poll(&options));
    daemon.preload_from(preload::io::Source::new(&options));
    daemon.start_providers(&plugins).map_err(because("cannot start the threads of providers"))?;
    open_devices(&mut daemon, managed || options.wait_for_device)?;
    let files = files.clone();
    let mut service = Service { daemon, files, options, slots, plugged, from_host: false, named: None, _lock: lock };
    let entries = service.names()?;
    let Service { daemon, options, .. } = &mut service;
    daemon.engine().set_names(entries.into_iter().map(local_name).collect());
    serve_kernel(daemon, sockets.netlink);
    listen(daemon, options, managed, sockets.stream)?;
    daemon.set_metrics(options.metrics_file.as_deref(), options.metrics_interval);
    Ok(service)
}

/// How long the loop looks for more before it sleeps.
fn busy_poll(options: &Options) -> Duration {
    Duration::from_micros(options.busy_poll_us.into())
}

/// Loads the plug-ins, and says which provider serves which subnet.
fn load_providers(files: &Files, options: &Options) -> Result<(Vec<Loaded>, Providers), StartError> {
    core().set_opts_file(&files.opts);
    // a constructor that changes signals would have SIGHUP end the service
    let kept = lifecycle::Kept::new();
    let (plugins, loading) = load::load(&options.provider_lib_path, options.builtin_provider, names_directory(options));
    drop(kept);
    let (providers, assigning) = load::assign(options, &plugins);
    for line in loading.iter().chain(&assigning) {
        log!(line.level, "{}", of_file(line, &files.opts));
    }
    if plugins.is_empty() && !options.builtin_provider {
        return Err(StartError(no_provider(options)));
    }
    Ok((plugins, providers))
}

/// What there is to say, with the line of the options file that it is about.
fn of_file(line: &load::Line, opts: &Path) -> String {
    match line.line {
        Some(number) => format!("{}:{number}: warning: {}", opts.display(), line.text),
        None => line.text.clone(),
    }
}

/// Whether somebody wants plug-ins from a directory of his own.
fn names_directory(options: &Options) -> bool {
    options.provider_lib_path != Path::new(dirs::PROVIDERS)
}

fn no_provider(options: &Options) -> String {
    let dir = options.provider_lib_path.display();
    format!("no provider is there: builtin_provider is no, and {dir} has none that can be used")
}

/// Opens the devices that there are. None is an error unless the service is to wait for one.
fn open_devices(daemon: &mut Daemon, wait: bool) -> Result<(), StartError> {
    let none = match daemon.open_devices() {
        Ok(0) => StartError("no InfiniBand device with an InfiniBand port is there (ibv_devices lists what the kernel has; is ib_uverbs loaded?)".to_owned()),
        Ok(_) => return Ok(()),
        Err(e) => because("cannot list InfiniBand devices")(e),
    };
    if !wait {
        return Err(none);
    }
    log!(0, "{none}: waiting for one");
    Ok(())
}

/// Opens the way for clients: the socket that was handed over, or one of our own.
fn listen(daemon: &mut Daemon, options: &Options, managed: bool, inherited: Option<OwnedFd>) -> Result<(), StartError> {
    let dir = Path::new(dirs::RUN);
    let mut mode = options.server_mode;
    if managed && mode != ServerMode::Unix {
        log!(0, "server_mode is unix under systemd, whatever the options say");
        mode = ServerMode::Unix;
    }
    let Some(socket) = inherited else {
        return daemon.listen(dir, &Options { server_mode: mode, ..options.clone() }).map_err(StartError);
    };
    if options.acme_plus_kernel_only {
        log!(0, "acme_plus_kernel_only does not hold: the names of the socket are those of its unit");
    }
    daemon.adopt(dir, socket).map_err(StartError)
}

fn log_options(options: &Options) {
    for line in options.render() {
        log!(1, "{line}");
    }
}

/// Sends that an endpoint's queue has to take.
fn send_slots(options: &Options) -> usize {
    (options.resolve_depth + options.send_depth) as usize + SPARE_SENDS
}

/// Opens the way to the kernel's local service. Kernels without RDMA have none, and who has none is served all the same.
/// `inherited` is the socket that was handed over, which may hold questions already.
fn serve_kernel(daemon: &mut Daemon, inherited: Option<OwnedFd>) {
    match inherited.map_or_else(RdmaNl::open, RdmaNl::adopt).and_then(|socket| daemon.serve_kernel(socket)) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(libc::EPROTONOSUPPORT) => log!(1, "the kernel asks nobody for paths: {e}"),
        Err(e) => log!(0, "cannot answer the kernel's questions: {e}"),
    }
}

/// The engine's part of the options.
pub fn config(o: &Options) -> Config {
    let usual = Options::default();
    Config {
        route_prot: match o.route_prot {
            options::RouteProt::Sa => RouteProt::Sa,
            options::RouteProt::Acm => RouteProt::Acm,
        },
        loopback_local: o.loopback_prot == LoopbackProt::Local,
        addr_fallback: o.addr_fallback == AddrFallback::Neigh,
        addr_timeout: o.addr_timeout,
        route_timeout: o.route_timeout,
        timeout_ms: o.timeout,
        retries: o.retries,
        resolve_depth: o.resolve_depth as usize,
        resolve_fixed: o.resolve_depth != usual.resolve_depth,
        sa_depth: o.sa_depth as usize,
        sa_fixed: o.sa_depth != usual.sa_depth,
        send_depth: o.send_depth as usize,
        min_mtu: o.min_mtu,
        min_rate: o.min_rate,
        multicast_groups: o.multicast_groups as usize,
        max_destinations: o.max_destinations as usize,
        negative_cache_ms: o.negative_cache,
        log_level: o.log_level,
    }
}

/// 128 bits that nobody on the fabric can guess.
fn secret() -> Result<(u64, u64), StartError> {
    let mut b = [0; 16];
    let source = "/dev/urandom";
    File::open(source).and_then(|mut f| f.read_exact(&mut b)).map_err(because(source))?;
    let (a, c) = (u128::from_ne_bytes(b) as u64, (u128::from_ne_bytes(b) >> 64) as u64);
    Ok((a, c))
}

/// The lines of the address file; `None` where there is no such file.
fn addr_entries(path: &Path, allow_ip: bool) -> Result<Option<Vec<AddrEntry>>, StartError> {
    match files::read(path).map_err(|e| StartError(e.to_string()))? {
        Some(bytes) => {
            let (entries, findings) = addrfile::parse(&bytes, &path.display().to_string(), allow_ip);
            for finding in &findings {
                log!(0, "{finding}");
            }
            Ok(Some(entries))
        }
        None => Ok(None),
    }
}

fn local_name(e: AddrEntry) -> LocalName {
    let (addr, text) = match &e.name {
        AddrName::Name(n) => (Addr::name(n), n.clone()),
        AddrName::Ip4(a) => (Addr::ip((*a).into()), a.to_string().into_bytes()),
        AddrName::Ip6(a) => (Addr::ip((*a).into()), a.to_string().into_bytes()),
    };
    let pkey = match e.pkey {
        AddrPkey::Default => PkeyChoice::Default,
        AddrPkey::Value(v) => PkeyChoice::Pkey(v),
    };
    LocalName { addr, text, device: String::from_utf8_lossy(&e.device).into_owned(), port: e.port, pkey }
}

/// Whether there are plug-ins, and what there is to say of them and of lines that name them: what is wrong, and the rest as
/// comments.
fn check_providers(paths: &Files, options: &Options) -> (bool, Vec<String>, Vec<String>) {
    core().set_opts_file(&paths.opts);
    let (names, loading) = load::check(&options.provider_lib_path, options.builtin_provider, names_directory(options));
    let (_, assigning) = load::assign_names(options, &names);
    let nobody = (names.is_empty() && !options.builtin_provider).then(|| no_provider(options));
    let of_options = |text: String| format!("{}: {text}", paths.opts.display());
    let assigning = assigning.into_iter().map(|line| match line.line {
        Some(_) => (line.harmless, of_file(&line, &paths.opts)),
        None => (line.harmless, of_options(line.text)),
    });
    let nobody = nobody.map(|text| (false, of_options(text)));
    let all = loading.into_iter().map(|line| (line.harmless, line.text)).chain(assigning).chain(nobody);
    let (other, wrong): (Vec<_>, Vec<_>) = all.partition(|line| line.0);
    let texts = |lines: Vec<(bool, String)>| lines.into_iter().map(|line| line.1);
    (!names.is_empty(), texts(wrong).collect(), texts(other).map(|text| format!("# {text}")).collect())
}

/// Reads the files, prints the effective options and everything that is wrong in them. Objects of plug-ins are tried.
pub fn check_config(paths: &Files) -> ExitCode {
    let mut out = std::io::stdout();
    let mut problems = 0;
    let mut say = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    let allow_ip = match files::load(&paths.opts) {
        Ok(loaded) => {
            loaded.options.render().into_iter().for_each(&mut say);
            let preloaded = preload::io::Source::new(&loaded.options).check();
            problems += preloaded.len();
            let (plugged, wrong, other) = check_providers(paths, &loaded.options);
            problems += wrong.len();
            other.into_iter().for_each(&mut say);
            let (findings, foreign): (Vec<_>, Vec<_>) = loaded.findings.iter().partition(|f| f.level(plugged) == 0);
            problems += findings.len();
            foreign.iter().for_each(|f| say(format!("# {f}")));
            let findings = findings.iter().map(ToString::to_string);
            findings.chain(preloaded).chain(wrong).for_each(&mut say);
            loaded.options.support_ips_in_addr_cfg
        }
        Err(e) => {
            say(e.to_string());
            problems += 1;
            false
        }
    };
    match files::read(&paths.addr) {
        Ok(Some(bytes)) => {
            let file = paths.addr.display().to_string();
            let (entries, findings) = addrfile::parse(&bytes, &file, allow_ip);
            problems += findings.len();
            findings.iter().for_each(|f| say(f.to_string()));
            // a hint only: a device may come later, and these may be the files of another host
            addrfile::absent(&entries, &crate::device::present_ports(), &file).into_iter().for_each(&mut say);
        }
        Ok(None) => {}
        Err(e) => {
            say(e.to_string());
            problems += 1;
        }
    }
    if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
