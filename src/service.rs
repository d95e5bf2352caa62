//! From configuration files to a daemon that serves: each step, and what is said when one fails.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mio::Poll;

use crate::addr::Addr;
use crate::addrfile::{self, AddrEntry, AddrName, AddrPkey};
use crate::cli::Files;
use crate::device;
use crate::engine::{Config, Engine, LocalName, PkeyChoice, RouteProt};
use crate::evloop::{Daemon, Depths};
use crate::lifecycle::{self, LockFile, Signals};
use crate::log;
use crate::options::{self, LoopbackProt, Options, io as files};
use crate::rtnl::{self, Rtnl};
use crate::server::{Limits, Server};

/// Where sockets and port files are published.
const RUN_DIR: &str = "/run";
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

/// Does everything up to the first turn of the loop. Nothing that another instance owns is touched: the lock comes
/// before the socket, and a socket that somebody serves is left alone.
pub fn start(files: &Files) -> Result<(Daemon, LockFile), StartError> {
    let loaded = files::load(&files.opts).map_err(|e| {
        // the log's place is in the file that cannot be read; the usual one is the best guess
        let _ = log::configure(&Options::default().log_file, 0);
        StartError(e.to_string())
    })?;
    let options = loaded.options;
    log::configure(&options.log_file, options.log_level).map_err(|e| StartError(e.to_string()))?;
    let lock = LockFile::acquire(&options.lock_file).map_err(|e| StartError(e.to_string()))?;
    for finding in &loaded.findings {
        log!(0, "{finding}");
    }
    for line in options.render() {
        log!(1, "{line}");
    }
    crate::umad::set_debug_level(i32::from(options.umad_debug_level));
    if let Err(e) = lifecycle::raise_open_files() {
        log!(0, "cannot raise the limit of open files: {e}");
    }
    let signals = Signals::new().map_err(because("cannot receive signals"))?;
    let poll = Poll::new().map_err(because("cannot make an epoll descriptor"))?;
    let server = Server::new(poll.registry(), Limits::default()).map_err(because("cannot serve clients"))?;
    let rtnl = match Rtnl::open(Path::new(rtnl::SYSFS_NET), 0) {
        Ok(r) => Some(r),
        Err(e) => {
            log!(0, "addresses of interfaces are not known: {e}");
            None
        }
    };
    let engine = Engine::new(config(&options), secret()?);
    let depths = Depths {
        recv: options.recv_depth as usize,
        send: (options.resolve_depth + options.send_depth) as usize + SPARE_SENDS,
    };
    let mut daemon =
        Daemon::new(poll, engine, server, rtnl, signals, depths).map_err(because("cannot start the loop"))?;
    let found = daemon.open_devices().map_err(because("cannot list InfiniBand devices"))?;
    if found == 0 {
        return Err(StartError("no InfiniBand device with an InfiniBand port is there".to_owned()));
    }
    let entries = addr_entries(&files.addr, options.support_ips_in_addr_cfg, &daemon)?;
    daemon.engine().set_names(entries.into_iter().map(local_name).collect());
    daemon.listen(&PathBuf::from(RUN_DIR), &options).map_err(StartError)?;
    Ok((daemon, lock))
}

/// The engine's part of the options.
pub fn config(o: &Options) -> Config {
    Config {
        route_prot: match o.route_prot {
            options::RouteProt::Sa => RouteProt::Sa,
            options::RouteProt::Acm => RouteProt::Acm,
        },
        loopback_local: o.loopback_prot == LoopbackProt::Local,
        addr_timeout: o.addr_timeout,
        route_timeout: o.route_timeout,
        timeout_ms: o.timeout,
        retries: o.retries,
        resolve_depth: o.resolve_depth as usize,
        sa_depth: o.sa_depth as usize,
        send_depth: o.send_depth as usize,
        min_mtu: o.min_mtu,
        min_rate: o.min_rate,
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

/// The lines of the address file; of a host without one, names made from its host name.
fn addr_entries(path: &Path, allow_ip: bool, daemon: &Daemon) -> Result<Vec<AddrEntry>, StartError> {
    match files::read(path).map_err(|e| StartError(e.to_string()))? {
        Some(bytes) => {
            let (entries, findings) = addrfile::parse(&bytes, &path.display().to_string(), allow_ip);
            for finding in &findings {
                log!(0, "{finding}");
            }
            Ok(entries)
        }
        None => {
            log!(1, "{} is not there: names are made from the host name", path.display());
            let host = lifecycle::hostname().unwrap_or_default();
            Ok(addrfile::default_entries(&host, &device::ib_ports(daemon.devices())))
        }
    }
}

fn local_name(e: AddrEntry) -> LocalName {
    let (addr, text) = match &e.name {
        AddrName::Name(n) => (Addr::name(n), String::from_utf8_lossy(n).into_owned()),
        AddrName::Ip4(a) => (Addr::ip((*a).into()), a.to_string()),
        AddrName::Ip6(a) => (Addr::ip((*a).into()), a.to_string()),
    };
    let pkey = match e.pkey {
        AddrPkey::Default => PkeyChoice::Default,
        AddrPkey::Value(v) => PkeyChoice::Pkey(v),
    };
    LocalName { addr, text, device: String::from_utf8_lossy(&e.device).into_owned(), port: e.port, pkey }
}

/// Reads the files, prints the effective options and everything that is wrong in them.
pub fn check_config(paths: &Files) -> ExitCode {
    let mut out = std::io::stdout();
    let mut problems = 0;
    let mut say = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    let allow_ip = match files::load(&paths.opts) {
        Ok(loaded) => {
            loaded.options.render().into_iter().for_each(&mut say);
            problems += loaded.findings.len();
            loaded.findings.iter().for_each(|f| say(f.to_string()));
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
            let (_, findings) = addrfile::parse(&bytes, &paths.addr.display().to_string(), allow_ip);
            problems += findings.len();
            findings.iter().for_each(|f| say(f.to_string()));
        }
        Ok(None) => {}
        Err(e) => {
            say(e.to_string());
            problems += 1;
        }
    }
    if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
