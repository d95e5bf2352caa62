//! `ib_acme check`: whether this host is healthy, looked at from the device up to the paths of the service.
//!
//! Facts are gathered at the edges (`facts`, `ask`, and the requests to the service, here) and judged by pure
//! functions. What depends on something that has failed is not looked at: one fault has one finding.

mod arguments;
mod ask;
mod destination;
mod fabric;
pub(crate) mod facts;
mod host;
mod paths;
mod report;
mod service;

use std::ffi::OsString;
use std::path::Path as File;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ibacm::options::{self, Options};
use ibacm::{dirs, rates};
use ibacm_wire::datagram::group_gid;
use libibacm::{
    ACME_PORT_FILE, Address, Client, Endpoint, Error, More, Path, Reply, Request, Scope, Status, Violation,
};

use arguments::{Arguments, Command};
use ask::{Line, Question};
use destination::Destination;
use facts::{Interface, Port};
use report::{Finding, Level, Report};

use crate::fault::Fault;
use crate::out::Out;
use crate::provider::{self, Plugins};
use crate::say;
use crate::scope::Link;
use crate::verdict;

/// The exit status for a command line that is not understood (`EX_USAGE`).
const USAGE: u8 = 64;

/// The options file.
const OPTIONS: &str = "ibacm_opts.cfg";

/// The command: `arguments` are those after its name.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match arguments::parse(arguments) {
        Ok(Command::Help) => {
            say!(Out::default(), "{}", arguments::HELP.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Command::Check(arguments)) => ExitCode::from(check(&arguments).exit_status()),
        Err(e) => {
            let mut out = Out::default();
            // Whoever wants a document gets one.
            if arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
                let fault = Fault::local(libc::EINVAL, &e, "ib_acme check --help lists the options");
                say!(out, "{}", report::refused(&fault, USAGE));
            }
            out.advise(format_args!("check: {e}; see ib_acme check --help"));
            ExitCode::from(USAGE)
        }
    }
}

fn check(arguments: &Arguments) -> Level {
    let mut report = Report::new(arguments.style);
    // The service has been started with these, as far as anybody can know.
    let file = File::new(dirs::CONF).join(OPTIONS);
    let options = options::io::load(&file).map_or_else(|_| Options::default(), |loaded| loaded.options);
    let (ports, interfaces) = look_at_host(&mut report);
    let mut lines = open_lines(&mut report, &ports);
    ask_administrator(&mut report, &mut lines, arguments);
    if let Some((client, endpoints)) = ask_service(&mut report, &options, arguments) {
        report.add_all(service::endpoints(&endpoints, &ports, &interfaces));
        if ports.iter().any(Port::is_usable) {
            look_for_members(&mut report, &mut lines.answering, &endpoints, &options, arguments);
            look_for_notices(&mut report, &client, &endpoints, &ports);
            let host = Host { endpoints: &endpoints, ports: &ports, interfaces: &interfaces };
            let paths = resolve(&mut report, &client, &host, &lines, arguments);
            compare(&mut report, &client, &paths, &ports, &lines);
        }
    }
    report.end()
}

/// Devices, ports, partitions, addresses.
fn look_at_host(report: &mut Report) -> (Vec<Port>, Vec<Interface>) {
    let devices = facts::devices();
    report.add_all(host::devices(&devices));
    let ports: Vec<Port> = devices.into_iter().flatten().filter_map(|d| d.ports.ok()).flatten().collect();
    report.add_all(host::ports(&ports));
    let usable: Vec<&Port> = ports.iter().filter(|p| p.is_usable()).collect();
    if usable.is_empty() {
        return (ports, Vec::new());
    }
    let interfaces = facts::interfaces().unwrap_or_else(|e| {
        let remedy = "check again; if it stays so, look into dmesg";
        report.add(Finding::failed("address", "this host", format!("interfaces cannot be listed: {e}"), remedy));
        Vec::new()
    });
    for port in &usable {
        report.add_all(host::partitions(port, &interfaces));
    }
    report.add_all(host::addresses(&usable, &interfaces));
    (ports, interfaces)
}

/// Ways to the subnet administrator.
#[derive(Default)]
struct Lines {
    /// Those that can be asked through.
    answering: Vec<Line>,
    /// Whether one of the usable ports has none that answers, which has been found already.
    silent: bool,
}

fn open_lines(report: &mut Report, ports: &[Port]) -> Lines {
    let mut lines = Lines::default();
    for port in ports.iter().filter(|p| p.is_usable()) {
        // That it knows of no subnet manager, or may not ask there, has been found already.
        if port.sm_lid == 0 || !port.is_in_default_partition() {
            lines.silent = true;
            continue;
        }
        match Line::open(port) {
            Ok(line) => lines.answering.push(line),
            Err(e) => {
                let finding = fabric::unasked(port, &e);
                lines.silent |= finding.level == Level::Failed;
                report.add(finding);
            }
        }
    }
    lines
}

fn ask_administrator(report: &mut Report, lines: &mut Lines, arguments: &Arguments) {
    let questions: Vec<_> = (0..lines.answering.len()).map(|i| (i, Question::Myself)).collect();
    let mut results = ask::ask(&mut lines.answering, &questions, arguments.limit).into_iter();
    lines.answering.retain(|line| {
        let Some(result) = results.next() else { return false };
        let finding = fabric::answered(line.port(), &result, arguments.limit);
        let answers = finding.level == Level::Ok;
        report.add(finding);
        lines.silent |= !answers;
        answers
    });
}

/// The service and its endpoints, if it is there and in order.
fn ask_service(report: &mut Report, options: &Options, arguments: &Arguments) -> Option<(Client, Vec<Endpoint>)> {
    let places = match &arguments.service {
        Some(name) => vec![name.clone()],
        None => service::places(options.server_mode, File::new(ACME_PORT_FILE).exists()),
    };
    let (name, client) = connect(report, &places, arguments.limit)?;
    let endpoints = endpoints(&client, arguments.limit);
    report.add(service::answered(name, &endpoints, arguments.limit));
    Some((client, endpoints.ok()?))
}

/// Connects to the first of these places where somebody is. If nobody is anywhere, that is said of the first.
fn connect<'a>(report: &mut Report, places: &'a [String], limit: Duration) -> Option<(&'a str, Client)> {
    let mut finding = None;
    for name in places {
        match crate::service::connect(name, limit) {
            Ok(client) => return Some((name, client)),
            Err((_, fault)) if service::is_absence(&fault) => {
                let elsewhere = places.get(1..).unwrap_or_default();
                finding.get_or_insert_with(|| service::unreachable(name, elsewhere, &fault));
            }
            Err((_, fault)) => {
                finding = Some(service::unreachable(name, &[], &fault));
                break;
            }
        }
    }
    report.add_all(finding);
    None
}

/// All endpoints of a service that must not take much longer than `limit` for the whole list.
fn endpoints(client: &Client, limit: Duration) -> Result<Vec<Endpoint>, Error> {
    let end = Instant::now() + limit;
    let mut endpoints = Vec::new();
    for number in 1..=u8::MAX {
        match client.endpoint(number) {
            Ok(endpoint) if Instant::now() < end => endpoints.push(endpoint),
            Ok(_) => return Err(Error::TimedOut),
            Err(e) if e.status() == Some(Status::Einval) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(endpoints)
}

/// Whether the ports are members of the groups of their endpoints.
fn look_for_members(
    report: &mut Report,
    lines: &mut [Line],
    endpoints: &[Endpoint],
    options: &Options,
    arguments: &Arguments,
) {
    let mut groups = Vec::new();
    let mut questions = Vec::new();
    // What groups a plug-in has its ports in, if any, is its own affair.
    for endpoint in endpoints.iter().filter(|e| provider::plugin(e).is_none()) {
        let mine = |l: &Line| l.port().device_guid == endpoint.device_guid && l.port().number == endpoint.port;
        // No group has to take a limited member, which has been found already.
        let takes = |l: &Line| !l.port().is_limited_in(endpoint.pkey);
        let Some(place) = lines.iter().position(|l| mine(l) && takes(l)) else { continue };
        let name = lines.get(place).map(|l| format!("{} {:#06x}", l.port().name(), endpoint.pkey));
        let mgid = group_gid(endpoint.pkey, options.min_rate, options.min_mtu);
        let (mtu, rate) = (rates::mtu_bytes(options.min_mtu), rates::rate_mbps(options.min_rate));
        groups.push(fabric::Group {
            endpoint: name.unwrap_or_default(),
            mgid,
            options: format!(
                "min_mtu ({}) and min_rate ({}) in {OPTIONS}",
                mtu.unwrap_or(0),
                f64::from(rate.unwrap_or(0)) / 1000.0
            ),
        });
        questions.push((place, Question::Member(mgid)));
    }
    let results = ask::ask(lines, &questions, arguments.limit);
    report.add_all(groups.iter().zip(&results).map(|(group, result)| fabric::member(group, result)));
}

/// Whether the subnet administrator tells the service what changes, of each port; a service that does not know it says
/// nothing.
fn look_for_notices(report: &mut Report, client: &Client, endpoints: &[Endpoint], ports: &[Port]) {
    let mut seen = Vec::new();
    for (endpoint, number) in endpoints.iter().zip(1..=u8::MAX).filter(|(e, _)| provider::plugin(e).is_none()) {
        let Some(port) = service::port_of(endpoint, ports).map(Port::name).filter(|name| !seen.contains(name)) else {
            continue;
        };
        let subscribed = client.counters(Scope::Endpoint(number)).ok().and_then(|c| c.more(More::NoticesSubscribed));
        report.add_all(subscribed.map(|n| service::notices(&port, n > 0)));
        seen.push(port);
    }
}

/// An own or a peer's address, and what is asked for it.
enum Target<'a> {
    Own(Option<&'a Port>),
    Peer(Destination, Option<Link>),
}

/// What this host and its service have.
struct Host<'a> {
    endpoints: &'a [Endpoint],
    ports: &'a [Port],
    interfaces: &'a [Interface],
}

/// Asks the service for the paths to this host itself and to the peers, all at once: those that were found, with what
/// they lead to.
fn resolve(
    report: &mut Report,
    client: &Client,
    host: &Host<'_>,
    lines: &Lines,
    arguments: &Arguments,
) -> Vec<(String, Path)> {
    let Host { endpoints, ports, interfaces } = *host;
    let mut targets = Vec::new();
    for endpoint in endpoints {
        let Some(first) = endpoint.addresses.first() else { continue };
        let address = service::address(first);
        let request = Request::Resolve { source: Some(address.clone()), destination: address, cached_only: false };
        targets.push((
            service::plain(&first.to_string_lossy()).to_owned(),
            Target::Own(service::port_of(endpoint, ports)),
            request,
        ));
    }
    for text in &arguments.destinations {
        match destination::on_link(text, interfaces) {
            Some(Ok((ip, link))) => {
                let (source, destination) = (Some(Address::Ip(link.source)), Address::Ip(ip));
                let request = Request::Resolve { source, destination: destination.clone(), cached_only: false };
                let destination = Destination::Address(destination);
                targets.push((text.clone(), Target::Peer(destination, Some(link)), request));
            }
            Some(Err(fault)) => report.add(Finding::failed("peer", text, fault.text, fault.advice)),
            None => {
                let destination = destination::identify(text, ports);
                let request = destination.request(ports, endpoints);
                targets.push((text.clone(), Target::Peer(destination, None), request));
            }
        }
    }
    let mut found = Vec::new();
    client.many(targets.iter().map(|(_, _, request)| request.clone()), |i, result| {
        let Some((subject, target, _)) = targets.get(i) else { return };
        let result = result.and_then(path);
        // Where a plug-in has been asked, what helps with the built-in provider may not.
        let plugins =
            Plugins::of(endpoints, Some(subject).filter(|_| matches!(target, Target::Own(_))).map(String::as_str));
        let finding = match target {
            Target::Own(port) => paths::own(subject, *port, &result, !lines.silent),
            Target::Peer(_, Some(link)) if result.as_ref().is_ok_and(|path| !link.has(&path.record)) => {
                let fault = result.as_ref().map(|path| link.missed(&path.record));
                report.add_all(fault.ok().map(|f| Finding::failed("peer", subject, f.text, f.advice)));
                return;
            }
            Target::Peer(d, _) => paths::peer(subject, d, &result, !lines.silent, arguments.limit),
        };
        report.add(Finding { remedy: finding.remedy.map(|usual| plugins.advise(usual)), ..finding });
        found.extend(result.ok().map(|path| (subject.clone(), path)));
    });
    found
}

fn path(reply: Reply) -> Result<Path, Error> {
    match reply {
        Reply::Path(path) => Ok(path),
        _ => Err(Error::Protocol(Violation::Contents("an answer to another question"))),
    }
}

/// Compares paths with what the subnet administrator says.
fn compare(report: &mut Report, client: &Client, paths: &[(String, Path)], ports: &[Port], lines: &Lines) {
    if lines.silent {
        return;
    }
    let port = |path: &Path| ports.iter().find(|p| p.has_gid(path.record.sgid()));
    // Limited members, who have no path to each other nor to themselves, have been found already.
    let is_limited = |p: &Port, path: &Path| !p.is_full_member() || p.is_limited_in(path.record.pkey());
    let compared: Vec<_> = paths.iter().filter(|(_, path)| !port(path).is_some_and(|p| is_limited(p, path))).collect();
    client.many(compared.iter().map(|(_, path)| verdict::question(&path.record)), |i, result| {
        let Some((subject, cached)) = compared.get(i) else { return };
        let lmc = port(cached).map_or(0, |p| p.lmc);
        report.add(paths::agreement(subject, &cached.record, &result.and_then(path), lmc));
    });
}
