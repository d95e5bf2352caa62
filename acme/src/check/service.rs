//! What is to be said of the service and its endpoints. Pure.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ibacm::options::ServerMode;
use libibacm::{ACME_PORT_FILE, Address, DEFAULT_PORT, Endpoint, Error, Name};

use super::facts::{Interface, Port};
use super::host::is_global;
use super::report::Finding;
use crate::fault::Fault;

/// Where this host's service may be, the likeliest place first. The options file does not tell for sure: a service that
/// systemd starts has the socket file whatever `server_mode` says, and the file may have been edited since the start.
pub fn places(mode: ServerMode, has_port_file: bool) -> Vec<String> {
    let socket = crate::service::default_socket().display().to_string();
    let tcp = Ipv4Addr::LOCALHOST.to_string();
    match mode {
        ServerMode::Loop | ServerMode::Open => vec![tcp, socket],
        // Without the file with its port there is no TCP service, but there may be another program's.
        ServerMode::Unix if has_port_file => vec![socket, tcp],
        ServerMode::Unix => vec![socket],
    }
}

/// Whether nobody is at a place, so that another one may be the right one.
pub fn is_absence(fault: &Fault) -> bool {
    matches!(fault.errno, libc::ENOENT | libc::ECONNREFUSED)
}

/// A service that cannot be connected to, and where else it was looked for.
pub fn unreachable(name: &str, elsewhere: &[String], fault: &Fault) -> Finding {
    let is_tcp = !name.contains('/');
    let nor = elsewhere.iter().map(|place| format!(", nor at {place}")).collect::<String>();
    let start =
        "start it (systemctl start ibacm.socket ibacm.service, or ibacm), and look into its log if it ends again";
    let (found, remedy) = match is_absence(fault) {
        true if is_tcp && elsewhere.is_empty() => (
            "nobody listens there",
            format!(
                "name its socket file with -S, which is all that it has where systemd starts it; or start it otherwise, \
                 with server_mode open (or loop, for its own host only) in its ibacm_opts.cfg, and with the server_port \
                 that {ACME_PORT_FILE} has on this host, or {DEFAULT_PORT} without that file"
            ),
        ),
        true if is_tcp => (
            "it does not run there",
            format!("{start}; unless systemd starts it, server_mode and server_port in ibacm_opts.cfg say where it is"),
        ),
        true => ("it does not run", format!("{start}; or name where it listens with -S")),
        false => ("it cannot be reached", fault.advice.clone()),
    };
    Finding::failed("service", name, format!("{found}{nor}: {}", fault.text), remedy)
}

/// What came of asking the service for its endpoints.
pub fn answered(name: &str, result: &Result<Vec<Endpoint>, Error>, limit: Duration) -> Finding {
    match result {
        Ok(endpoints) => Finding::ok("service", name, format!("it answers; endpoints: {}", endpoints.len())),
        Err(Error::TimedOut) => Finding::failed(
            "service",
            name,
            format!("it hangs: connected, but no answer within {} s", limit.as_secs_f64()),
            "look into its log, and restart it (systemctl restart ibacm)",
        ),
        Err(e @ Error::Protocol(_)) => Finding::failed(
            "service",
            name,
            format!("it gives wrong answers: {}", Fault::of(e).text),
            "look which program listens there (ss -xlp, ss -tlp), and whether it is a whole and current ibacm",
        ),
        Err(e) => Finding::failed(
            "service",
            name,
            format!("it does not say which endpoints it has: {}", Fault::of(e).text),
            "look into its log, and restart it (systemctl restart ibacm)",
        ),
    }
}

/// An address of an endpoint as the service lists it: a name, or an IP address with the length of its prefix or
/// without.
pub fn address(name: &Name) -> Address {
    plain(&name.to_string_lossy()).parse().map_or_else(|_| Address::Name(name.clone()), Address::Ip)
}

/// The same without the length of the prefix.
pub fn plain(text: &str) -> &str {
    text.split_once('/').map_or(text, |(ip, _)| ip)
}

/// The port of an endpoint. Devices may have equal GUIDs, which endpoints do not tell apart.
pub fn port_of<'a>(endpoint: &Endpoint, ports: &'a [Port]) -> Option<&'a Port> {
    let mine = |p: &&Port| p.device_guid == endpoint.device_guid && p.number == endpoint.port;
    ports.iter().filter(mine).max_by_key(|p| p.is_usable())
}

/// Port and partition of an endpoint, for people.
pub fn name_of(endpoint: &Endpoint, ports: &[Port]) -> String {
    match port_of(endpoint, ports) {
        Some(port) => format!("{} {:#06x}", port.name(), endpoint.pkey),
        None => format!("{:#018x}/{} {:#06x}", endpoint.device_guid, endpoint.port, endpoint.pkey),
    }
}

/// Of the endpoints: has each address of the host one, and each one an address?
pub fn endpoints(endpoints: &[Endpoint], ports: &[Port], interfaces: &[Interface]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for endpoint in endpoints {
        let name = name_of(endpoint, ports);
        findings.push(if endpoint.addresses.is_empty() {
            Finding::warning(
                "endpoint",
                name,
                "it has neither an address nor a name: nobody can ask for it",
                "give the IPoIB interface of its partition an address, or write a line for it in ibacm_addr.cfg and \
                 restart the service (systemctl restart ibacm)",
            )
        } else {
            Finding::ok("endpoint", name, endpoint.addresses.iter().map(Name::to_string).collect::<Vec<_>>().join(", "))
        });
    }
    if endpoints.is_empty() && ports.iter().any(Port::is_usable) {
        findings.push(Finding::failed(
            "endpoint",
            "all",
            "the service has none, though there is an active port",
            "look into its log why, and restart it (systemctl restart ibacm)",
        ));
        return findings;
    }
    for (interface, pkey) in interfaces.iter().filter_map(|i| Some((i, i.pkey?))) {
        let Some(port) = ports.iter().find(|p| p.is_usable() && p.has_gid(interface.gid)) else { continue };
        // Without the partition there is no endpoint, and the partition has a finding of its own.
        if port.key_of(pkey).is_none() {
            continue;
        }
        findings.extend(missing(endpoints, port, interface, pkey));
    }
    findings
}

/// Whether the subnet administrator tells the service of changes that come to a port. Nothing depends on it.
pub fn notices(port: &str, subscribed: bool) -> Finding {
    let found = match subscribed {
        true => "subscribed to the SA's notices: the service hears what changes",
        false => {
            "not subscribed to the SA's notices: changes are noticed without them, some later (after a start it takes \
             seconds; the service's log says why where it stays so)"
        }
    };
    Finding::ok("notices", port, found)
}

/// Addresses of an interface that are no endpoint's.
fn missing(endpoints: &[Endpoint], port: &Port, interface: &Interface, pkey: u16) -> Option<Finding> {
    let wanted: Vec<IpAddr> = interface.addresses.iter().map(|(ip, _)| *ip).filter(|ip| is_global(*ip)).collect();
    let here =
        |e: &&Endpoint| e.device_guid == port.device_guid && e.port == port.number && (e.pkey ^ pkey) & 0x7fff == 0;
    let mut mine = endpoints.iter().filter(here).peekable();
    let remedy = "look into its log why, and restart it (systemctl restart ibacm)";
    if mine.peek().is_none() && !wanted.is_empty() {
        let found = format!("the service has no endpoint for {} in partition {pkey:#06x}", port.name());
        return Some(Finding::failed("endpoint", &interface.name, found, remedy));
    }
    let known: Vec<Address> = mine.flat_map(|e| &e.addresses).map(address).collect();
    let left: Vec<String> =
        wanted.into_iter().filter(|ip| !known.contains(&Address::Ip(*ip))).map(|ip| ip.to_string()).collect();
    if left.is_empty() {
        return None;
    }
    let found = format!("the service does not know {} of this interface", left.join(", "));
    Some(Finding::failed("endpoint", &interface.name, found, remedy))
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
