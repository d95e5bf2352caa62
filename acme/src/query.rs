//! `-e` and `-P`: what the service says of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libibacm::{Address, Client, Counters, Endpoint, Error, Scope, Status};

use crate::address;
use crate::cli::{Format, Options, Perf};
use crate::document::Answers;
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::out::Out;
use crate::say;

/// The counters by the names that are printed and by those in documents, in the service's order.
fn named(c: &Counters) -> [(&'static str, &'static str, u64); 7] {
    [
        ("Error Count", "error_count", c.error),
        ("Resolve Count", "resolve", c.resolve),
        ("No Data", "no_data", c.nodata),
        ("Addr Query Count", "addr_query", c.addr_query),
        ("Addr Cache Count", "addr_cache", c.addr_cache),
        ("Route Query Count", "route_query", c.route_query),
        ("Route Cache Count", "route_cache", c.route_cache),
    ]
}

/// Headings, which are printed once however many services are asked.
#[derive(Default)]
pub struct Labels {
    counters: bool,
    endpoints: bool,
}

/// Prints counters.
pub fn counters(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    client: &Client,
    options: &Options,
    answers: &mut Answers,
) -> Outcome {
    let mut list = Vec::new();
    let found = ask_counters(out, labels, name, client, options, &mut list);
    answers.list("counters", list);
    let Err(mut fault) = found else { return Outcome::GOOD };
    if fault.status.is_some() && fault.errno == libc::EADDRNOTAVAIL {
        fault = fault.advising("ib_acme -e lists the endpoints and their addresses".to_owned());
    }
    say!(out, "{name}: Failed to query perf data: {}", fault.strerror());
    out.advise(format_args!("{}: {}", fault.text, fault.advice));
    answers.failed("counters", &fault);
    Outcome::FAILED
}

fn ask_counters(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    client: &Client,
    options: &Options,
    list: &mut Vec<Json>,
) -> Result<(), Fault> {
    let perf = options.perf.unwrap_or(Perf::Row);
    let mut show = |out: &mut Out, endpoint, found| one(out, labels, name, perf, endpoint, found, list);
    match perf {
        Perf::All => {
            for number in 1..=u8::MAX {
                let found = client.counters(Scope::Endpoint(number));
                // The one behind the last.
                if matches!(&found, Err(e) if e.status().is_some_and(|s| s != Status::Enomem)) {
                    break;
                }
                show(out, Some(number), found)?;
            }
            Ok(())
        }
        Perf::Address => {
            let address = source_address(out, options)?;
            show(out, None, client.counters(Scope::Address(address)))
        }
        _ => match u8::try_from(options.endpoint) {
            Ok(0) => show(out, None, client.counters(Scope::Totals)),
            Ok(number) => show(out, Some(number), client.counters(Scope::Endpoint(number))),
            Err(_) if options.endpoint < 0 => show(out, None, client.counters(Scope::Totals)),
            Err(_) => {
                let text = format!("endpoint {} is none", options.endpoint);
                Err(Fault::local(libc::EADDRNOTAVAIL, &text, "endpoints have numbers from 1 to 255"))
            }
        },
    }
}

/// Prints the counters of one endpoint, or of none in particular.
fn one(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    perf: Perf,
    endpoint: Option<u8>,
    found: Result<Counters, Error>,
    list: &mut Vec<Json>,
) -> Result<(), Fault> {
    let counters = match found {
        Ok(counters) => named(&counters),
        Err(e) => {
            let fault = Fault::of(&e);
            if perf == Perf::Address {
                say!(out, "ib_acm_query_perf failed: {}", fault.strerror());
            }
            return Err(fault);
        }
    };
    if perf == Perf::Column {
        say!(out, "{name}");
        counters.iter().for_each(|(title, _, value)| say!(out, "{title} : {value}"));
    } else {
        let row = |cell: &dyn Fn(&(&str, &str, u64)) -> String| counters.iter().map(cell).collect::<Vec<_>>().join(",");
        if !labels.counters {
            say!(out, "svc,{}", row(&|c| c.0.to_owned()));
            labels.counters = true;
        }
        say!(out, "{name},{}", row(&|c| c.2.to_string()));
    }
    let mut members = vec![("endpoint", endpoint.into())];
    members.extend(counters.iter().map(|(_, key, value)| (*key, Json::Number(*value))));
    list.push(Json::Object(members));
    Ok(())
}

/// The address whose endpoint is meant.
fn source_address(out: &mut Out, options: &Options) -> Result<Address, Fault> {
    let source = address::identify(options.source.as_deref().unwrap_or_default(), options.format);
    let text = source.text.as_str();
    let verbose = |out: &mut Out, function: &str| {
        if options.verbose {
            say!(out, "{function}: src_addr {text}");
        }
    };
    match source.format {
        Format::Ip => {
            verbose(out, "query_perf_ip");
            let parsed: Result<IpAddr, _> = text.parse();
            parsed.map(Address::Ip).map_err(|_| {
                say!(out, "inet_pton error on src address ({text}): 0x0");
                Fault::local(libc::EINVAL, &format!("'{text}' is no IP address"), "-f n is for names")
            })
        }
        Format::Name => {
            verbose(out, "query_perf_name");
            Ok(Address::Name(text.to_owned()))
        }
        other => {
            say!(out, "Unsupported src_type {}", if other == Format::Gid { b'g' } else { b'l' });
            let why = format!("'{text}' is no address that counters can be asked for");
            Err(Fault::local(libc::EINVAL, &why, "-s takes an IP address, or with -f n a name"))
        }
    }
}

/// Prints endpoints.
pub fn endpoints(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    client: &Client,
    options: &Options,
    answers: &mut Answers,
) -> Outcome {
    let ports = match by_port(client) {
        Ok(ports) => ports,
        Err(e) => {
            let fault = Fault::of(&e);
            say!(out, "{name}: Failed to query endpoints: {}", fault.strerror());
            out.advise(format_args!("{}: {}", fault.text, fault.advice));
            answers.failed("endpoints", &fault);
            return Outcome::FAILED;
        }
    };
    let mut list = Vec::new();
    let longest = ports.values().map(Vec::len).max().unwrap_or(0);
    let wanted = usize::try_from(options.endpoint).unwrap_or(0);
    let numbers = if wanted > 0 { wanted..=wanted } else { 1..=longest };
    for number in numbers {
        for endpoint in ports.values().filter_map(|of_port| of_port.get(number - 1)) {
            if !labels.endpoints {
                say!(out, "svc,guid,port,pkey,ep_index,prov,addr_0,addresses");
                labels.endpoints = true;
            }
            let Endpoint { device_guid, port, pkey, provider, addresses, .. } = endpoint;
            let addresses: String = addresses.iter().flat_map(|a| [",", a]).collect();
            say!(out, "{name},0x{device_guid:016x},{port},0x{pkey:04x},{number},{provider}{addresses}");
            list.push(endpoint_json(endpoint, number));
        }
    }
    let outcome = if wanted > longest {
        say!(out, " Endpoint {} is not available", options.endpoint);
        let text = format!("{name} has no endpoint {wanted}");
        let fault = Fault::local(libc::EADDRNOTAVAIL, &text, &format!("its endpoints have numbers up to {longest}"));
        out.advise(format_args!("{}: {}", fault.text, fault.advice));
        answers.failed("endpoints", &fault);
        Outcome::FAILED
    } else {
        Outcome::GOOD
    };
    answers.list("endpoints", list);
    outcome
}

/// The endpoints by the numbers of their ports, each list in the order in which the service numbers them.
fn by_port(client: &Client) -> Result<BTreeMap<u8, Vec<Endpoint>>, Error> {
    let mut ports = BTreeMap::new();
    // Counted over all ports, where 255 is the end; that shows which ports there are.
    let most = client.endpoints()?.iter().map(|e| e.ports.max(e.port)).max().unwrap_or(0);
    for port in 1..=most {
        let mut of_port = Vec::new();
        for number in 1..=u8::MAX {
            match client.endpoint_of_port(number, port) {
                Ok(endpoint) => of_port.push(endpoint),
                Err(e) if e.status() == Some(Status::Einval) => break,
                Err(e) => return Err(e),
            }
        }
        ports.insert(port, of_port);
    }
    Ok(ports)
}

fn endpoint_json(endpoint: &Endpoint, number: usize) -> Json {
    Json::Object(vec![
        ("number", number.into()),
        ("device_guid", Json::Text(format!("0x{:016x}", endpoint.device_guid))),
        ("port", endpoint.port.into()),
        ("pkey", endpoint.pkey.into()),
        ("provider", endpoint.provider.as_str().into()),
        ("addresses", endpoint.addresses.iter().map(String::as_str).collect()),
    ])
}
