//! The options file, `ibacm_opts.cfg`: lines of `name value`.
//!
//! Pure: [`parse`] takes bytes and gives values and findings; reading the file is [`io`]'s part. Names and keywords
//! compare without case, of several lines for one option the last good one holds, `provider` lines for a subnet add
//! up. A line that cannot be used is a [`Finding`] and changes nothing: the default, or an earlier good line, stays.
//! A good value with something behind it is used, as it always was, with a warning: `retries 3 times`, `timeout 2000ms`.

pub mod io;
mod table;
pub mod text;

pub use text::{Finding, Severity};

use crate::engine::BUILTIN;
use crate::{dirs, rates};
use std::path::{Path, PathBuf};
use text::{Findings, each_line, quote};

/// Most `provider NAME PREFIX` lines that are kept.
pub const MAX_PROVIDERS: usize = 256;
/// Longest name of a provider, in bytes (`ACM_MAX_PROV_NAME` less its terminator).
pub const MAX_PROVIDER_NAME: usize = 63;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The system's log, through `/dev/log`.
    #[cfg(feature = "syslog")]
    Syslog,
    /// Appended to a file.
    File(PathBuf),
}

/// How clients reach the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMode {
    /// A unix socket.
    Unix,
    /// TCP on the loopback address.
    Loop,
    /// TCP on every address.
    Open,
}

/// How an address is turned into a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrProt {
    /// By asking over multicast.
    Acm,
}

/// How an address that nobody answers for over multicast may still be turned into a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrFallback {
    /// By the kernel's neighbour table, or by the GUID in an IPv6 link-local address.
    Neigh,
    /// Not at all.
    None,
}

/// How a path is found once the GID is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteProt {
    /// By asking the subnet administrator.
    Sa,
    /// From the parameters of the multicast group that both sides share.
    Acm,
}

/// How this host's own addresses are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackProt {
    /// As any other address.
    None,
    /// From what is known locally.
    Local,
}

/// Where the route cache is filled from at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutePreload {
    /// Nowhere.
    None,
    /// OpenSM's dump of all path records (`opensm_full_v1`, and `full_opensm_v1` as the manual has it).
    OpensmFullV1,
}

/// Where the address cache is filled from at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrPreload {
    /// Nowhere.
    None,
    /// A file of addresses and GIDs.
    AcmHosts,
}

/// Where a line stands in its file, from 1, if it does. What lines say does not depend on it: all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineNumber(pub Option<usize>);

impl PartialEq for LineNumber {
    fn eq(&self, _: &LineNumber) -> bool {
        true
    }
}

impl Eq for LineNumber {}

/// One `provider NAME PREFIX` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLine {
    /// The plug-in's own name; compares without case.
    pub name: String,
    /// The subnet prefix that it serves, as a number (host order).
    pub prefix: u64,
    /// Where it stands.
    pub line: LineNumber,
}

/// Every option, with the name that it has in the file. [`Options::default`] is what holds without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the log goes.
    pub log_file: LogTarget,
    /// 0 (little) to 2 (everything).
    pub log_level: u8,
    /// Debug level of libibumad, 0 to 2.
    pub umad_debug_level: u8,
    /// The file that keeps a second instance out and holds the process id.
    pub lock_file: PathBuf,
    /// TCP port, where `server_mode` is not `unix`.
    pub server_port: u16,
    /// How clients reach the service.
    pub server_mode: ServerMode,
    /// Serve the kernel and ib_acme only: don't publish the socket where librdmacm looks for it.
    pub acme_plus_kernel_only: bool,
    /// Directory of the plug-ins.
    pub provider_lib_path: PathBuf,
    /// Name of the provider for subnets that no line names (`provider NAME default`).
    pub default_provider: String,
    /// Where it says so.
    pub default_line: LineNumber,
    /// Providers of single subnets, in the file's order.
    pub providers: Vec<ProviderLine>,
    /// The built-in provider serves subnets too.
    pub builtin_provider: bool,
    /// Milliseconds that a plug-in may take for an answer.
    pub provider_timeout: u32,
    /// Take IP addresses from the address file too.
    pub support_ips_in_addr_cfg: bool,
    /// How an address is turned into a GID.
    pub addr_prot: AddrProt,
    /// How an address that nobody answers for may still be turned into a GID.
    pub addr_fallback: AddrFallback,
    /// How many minutes an address is good for; `None`: for ever.
    pub addr_timeout: Option<u32>,
    /// How a path is found.
    pub route_prot: RouteProt,
    /// How many minutes a path is good for; `None`: as long as its address.
    pub route_timeout: Option<u32>,
    /// How own addresses are resolved.
    pub loopback_prot: LoopbackProt,
    /// Milliseconds to wait for an answer, beside the subnet's own timeout.
    pub timeout: u32,
    /// How often a request that got no answer is sent again.
    pub retries: u32,
    /// Multicast requests in flight at most.
    pub resolve_depth: u32,
    /// Requests to the subnet administrator in flight at most.
    pub sa_depth: u32,
    /// Responses in flight at most.
    pub send_depth: u32,
    /// Receive buffers of an endpoint.
    pub recv_depth: u32,
    /// Smallest MTU that every endpoint joins with, as the InfiniBand code (in the file: bytes).
    pub min_mtu: u8,
    /// Slowest rate that every endpoint joins with, as the InfiniBand code (in the file: Gb/s).
    pub min_rate: u8,
    /// Multicast groups that an endpoint joins at most, where paths are made from them.
    pub multicast_groups: u32,
    /// Where the route cache is filled from.
    pub route_preload: RoutePreload,
    /// The file for `route_preload`.
    pub route_data_file: PathBuf,
    /// Where the address cache is filled from.
    pub addr_preload: AddrPreload,
    /// The file for `addr_preload`.
    pub addr_data_file: PathBuf,
    /// Destinations that one endpoint remembers at most; beyond that the longest unused goes.
    pub max_destinations: u32,
    /// Milliseconds for which a destination that did not answer is answered for at once; 0: ask each time.
    pub negative_cache: u32,
    /// Microseconds for which the service looks for more before it sleeps.
    pub busy_poll_us: u32,
    /// Where the service's numbers are written to, for Prometheus; `None`: nowhere.
    pub metrics_file: Option<PathBuf>,
    /// How often, in seconds.
    pub metrics_interval: u32,
    /// Without InfiniBand hardware, stay and wait for it instead of exiting.
    pub wait_for_device: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            log_file: LogTarget::File(Path::new(dirs::LOG).join("ibacm.log")),
            log_level: 0,
            umad_debug_level: 0,
            lock_file: Path::new(dirs::RUN).join("ibacm.pid"),
            server_port: 6125,
            server_mode: ServerMode::Unix,
            acme_plus_kernel_only: false,
            provider_lib_path: PathBuf::from(dirs::PROVIDERS),
            default_provider: String::from(BUILTIN),
            default_line: LineNumber(None),
            providers: Vec::new(),
            builtin_provider: true,
            provider_timeout: 30_000,
            support_ips_in_addr_cfg: false,
            addr_prot: AddrProt::Acm,
            addr_fallback: AddrFallback::Neigh,
            addr_timeout: Some(1440),
            route_prot: RouteProt::Sa,
            route_timeout: None,
            loopback_prot: LoopbackProt::Local,
            timeout: 2000,
            retries: 2,
            resolve_depth: 64,
            sa_depth: 32,
            send_depth: 32,
            recv_depth: 1024,
            min_mtu: rates::MTU_2048,
            min_rate: rates::RATE_10,
            multicast_groups: 2,
            route_preload: RoutePreload::None,
            route_data_file: Path::new(dirs::CONF).join("ibacm_route.data"),
            addr_preload: AddrPreload::None,
            addr_data_file: Path::new(dirs::CONF).join("ibacm_hosts.data"),
            max_destinations: 65_536,
            negative_cache: 0,
            busy_poll_us: 0,
            metrics_file: None,
            metrics_interval: 15,
            wait_for_device: false,
        }
    }
}

impl Options {
    /// The options in force as lines of an options file, one each, always in the same order.
    ///
    /// Parsing them gives the same options, except where a path is not UTF-8: that is shown as well as can be.
    pub fn render(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            table::TABLE.iter().map(|option| format!("{} {}", option.name, (option.get)(self))).collect();
        lines.push(format!("provider {} default", self.default_provider));
        lines.extend(self.providers.iter().map(|line| format!("provider {} {:#018x}", line.name, line.prefix)));
        lines
    }
}

/// The options that an options file puts in force, and what is wrong in it; `file` is only for the findings.
pub fn parse(bytes: &[u8], file: &str) -> (Options, Vec<Finding>) {
    let mut options = Options::default();
    let mut findings = Findings::new(file);
    each_line(bytes, 4, &mut findings, |number, tokens, findings| {
        let Some((&name, values)) = tokens.split_first() else { return };
        let taken = if name.eq_ignore_ascii_case(b"provider") {
            provider_line(&mut options, number, values, findings).then_some(2)
        } else if let Some(option) = table::TABLE.iter().find(|o| name.eq_ignore_ascii_case(o.name.as_bytes())) {
            set_option(&mut options, option, number, values, findings).then_some(1)
        } else {
            findings.unknown(number, format!("unknown option {}", quote(name)));
            None
        };
        if let Some(extra) = taken.and_then(|taken| values.get(taken)) {
            findings.warn(number, format!("{} after the value is ignored", quote(extra)));
        }
    });
    (options, findings.into_vec())
}

/// Whether the option was set.
fn set_option(
    options: &mut Options,
    option: &table::OptionRow,
    number: usize,
    values: &[&[u8]],
    findings: &mut Findings<'_>,
) -> bool {
    let (name, expects) = (option.name, option.expects);
    let problem = match values.first() {
        None => String::from("value missing"),
        Some(value) if (option.set)(options, value).is_some() => return true,
        Some(value) => match option.set_leniently(options, value) {
            Some(taken) => {
                let (value, taken) = (quote(value), quote(taken));
                findings.warn(number, format!("{name}: {value}, expected {expects}; {taken} is used"));
                return true;
            }
            None => format!("bad value {}", quote(value)),
        },
    };
    findings.warn(number, format!("{name}: {problem}, expected {expects}; {} stays", (option.get)(options)));
    false
}

/// Whether the line was kept.
fn provider_line(options: &mut Options, number: usize, values: &[&[u8]], findings: &mut Findings<'_>) -> bool {
    let &[name, subnet, ..] = values else {
        findings.warn(number, String::from("provider: expected a name and a subnet prefix or 'default'"));
        return false;
    };
    let name = match std::str::from_utf8(name) {
        Ok(text) if text.len() <= MAX_PROVIDER_NAME => text.to_owned(),
        _ => {
            findings.warn(number, format!("provider: bad name {}, at most {MAX_PROVIDER_NAME} bytes", quote(name)));
            return false;
        }
    };
    if subnet.eq_ignore_ascii_case(b"default") {
        let before = &options.default_provider;
        if let Some(line) = options.default_line.0.filter(|_| !before.eq_ignore_ascii_case(&name)) {
            let (before, name) = (quote(before.as_bytes()), quote(name.as_bytes()));
            findings.warn(number, format!("provider: {name} is the default, and no longer {before} of line {line}"));
        }
        (options.default_provider, options.default_line) = (name, LineNumber(Some(number)));
        return true;
    }
    let Some(prefix) = table::c_number(subnet) else {
        let expected = "expected a number (hexadecimal with 0x in front) or 'default'";
        findings.warn(number, format!("provider: bad subnet prefix {}, {expected}", quote(subnet)));
        return false;
    };
    // sixteen digits are what a prefix has in hexadecimal
    if subnet.len() == 16 && std::str::from_utf8(subnet).is_ok_and(|s| u64::from_str_radix(s, 16) != Ok(prefix)) {
        let prefix = format!("{prefix:#018x}");
        findings
            .warn(number, format!("provider: {} is {prefix}; if it is hexadecimal, put 0x in front", quote(subnet)));
    }
    if options.providers.len() == MAX_PROVIDERS {
        findings.warn(number, format!("provider: more than {MAX_PROVIDERS} lines, this one is ignored"));
        return false;
    }
    options.providers.push(ProviderLine { name, prefix, line: LineNumber(Some(number)) });
    true
}

#[cfg(test)]
mod tests;
