//! `-P`: what the service has counted.

use std::net::IpAddr;

use ibacm_wire::client::ROWS;
use libibacm::{Address, Client, Counters, Error, Kind, Reply, Request, Row, Scope, Status, Violation};

use crate::address;
use crate::cli::{Format, Options, Perf};
use crate::document::Answers;
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::out::Out;
use crate::provider::SOON;
use crate::say;
use crate::scope::Interfaces;

/// Headings, which are printed once however many services are asked.
#[derive(Default)]
pub struct Labels {
    /// That of counters.
    pub counters: bool,
    /// That of endpoints.
    pub endpoints: bool,
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
    let found = ask_counters(out, labels, name, client, options, (&mut list, answers));
    answers.list("counters", list);
    let mut fault = match found {
        Ok(outcome) => return outcome,
        Err(fault) => fault,
    };
    if fault.status.is_some() && fault.errno == libc::EADDRNOTAVAIL {
        fault = fault.advising("ib_acme -e lists the endpoints and their addresses".to_owned());
    }
    // What ends the list of all is not named on standard output, whatever the service's reason.
    if options.perf != Some(Perf::All) || fault.status.is_none() {
        say!(out, "{name}: Failed to query perf data: {}", fault.strerror());
    }
    out.explain(&fault);
    answers.failed("counters", &fault);
    Outcome::FAILED
}

fn ask_counters(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    client: &Client,
    options: &Options,
    (list, answers): (&mut Vec<Json>, &mut Answers),
) -> Result<Outcome, Fault> {
    let perf = options.perf.unwrap_or(Perf::Row);
    let mut show = |out: &mut Out, endpoint, found| one(out, labels, name, options, endpoint, found, list);
    match perf {
        Perf::All => {
            let mut outcome = Outcome::GOOD;
            for (number, found) in all(client)? {
                match found {
                    Err(e) if is_of_one(&e) => {
                        let mut fault = Fault::of(&e);
                        fault.text = format!("endpoint {number}: {}", fault.text);
                        let look = "ib_acme -e shows its provider; look into the service's log";
                        out.explain(&fault.clone().advising(look.to_owned()));
                        answers.failed("counters", &fault.advising(look.to_owned()));
                        outcome = Outcome::FAILED;
                    }
                    found => drop(show(out, Some(number), found)?),
                }
            }
            Ok(outcome)
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

/// Whether it is the failure of one endpoint, whose provider does not tell: others may.
fn is_of_one(e: &Error) -> bool {
    let provider = matches!(e.status(), Some(Status::Etimedout | Status::Enodata | Status::Enotconn));
    provider || matches!(e, Error::TimedOut)
}

/// What came of asking endpoints, by their numbers.
type Found = Vec<(u8, Result<Counters, Error>)>;

/// The counters of all endpoints, in order: one after the other, but all at once as soon as one of them keeps its own, so
/// that many of those take no longer than one.
fn all(client: &Client) -> Result<Found, Fault> {
    let mut found = Found::new();
    // The one behind the last.
    let is_end = |result: &Result<Counters, Error>| matches!(result, Err(e) if !is_of_one(e) && e.status().is_some_and(|s| s != Status::Enomem));
    for number in 1..=u8::MAX {
        let result = client.counters(Scope::Endpoint(number));
        if is_end(&result) {
            break;
        }
        let failure = result.as_ref().err().map(|e| (is_of_one(e), Fault::of(e)));
        found.push((number, result));
        match failure {
            None => {}
            Some((true, fault)) => {
                let alive = Client::new(client.target().clone()).with_limit(client.limit().min(SOON));
                // A service that says nothing at all is not one whose endpoints do not.
                if fault.status.is_none() && alive.counters(Scope::Totals).is_err() {
                    return Err(fault);
                }
                found.extend(together(client, number).into_iter().take_while(|r| !is_end(&r.1)));
                break;
            }
            Some((false, _)) => break,
        }
    }
    Ok(found)
}

/// The counters of those behind an endpoint, all asked for at once.
fn together(client: &Client, behind: u8) -> Found {
    // From the back: what is not there is answered at once, and shows whether the service takes many at a time.
    let numbers: Vec<u8> = (behind..=u8::MAX).skip(1).rev().collect();
    let mut found = Found::new();
    client.many(numbers.iter().map(|n| Request::Counters(Scope::Endpoint(*n))), |i, result| {
        let counters = result.and_then(|reply| match reply {
            Reply::Counters(counters) => Ok(counters),
            _ => Err(Error::Protocol(Violation::Contents("an answer to another question"))),
        });
        found.extend(numbers.get(i).map(|n| (*n, counters)));
    });
    found.sort_by_key(|f| f.0);
    found
}

/// Prints the counters of one endpoint, or of none in particular.
fn one(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    options: &Options,
    endpoint: Option<u8>,
    found: Result<Counters, Error>,
    list: &mut Vec<Json>,
) -> Result<Outcome, Fault> {
    let perf = options.perf.unwrap_or(Perf::Row);
    let found = match found {
        Ok(counters) => counters,
        Err(e) => {
            let fault = Fault::of(&e);
            if perf == Perf::Address {
                say!(out, "ib_acm_query_perf failed: {}", fault.strerror());
            }
            return Err(fault);
        }
    };
    // What the service counts as a whole is nothing of an endpoint's.
    let of_endpoint = endpoint.is_some() || perf == Perf::Address;
    let known =
        |(row, value): (&'static Row, Option<u64>)| (row, value.filter(|_| !of_endpoint || row.kind != Kind::Service));
    let rows = found.rows().take(if options.all_counters { usize::MAX } else { ROWS.len() }).map(known);
    let counters: Vec<(&str, u64)> = rows.filter_map(|(row, value)| Some((row.title, value?))).collect();
    if perf == Perf::Column {
        say!(out, "{name}");
        counters.iter().for_each(|(title, value)| say!(out, "{title} : {value}"));
    } else {
        let row = |cell: &dyn Fn(&(&str, u64)) -> String| counters.iter().map(cell).collect::<Vec<_>>().join(",");
        if !labels.counters {
            say!(out, "svc,{}", row(&|c| c.0.to_owned()));
            labels.counters = true;
        }
        say!(out, "{name},{}", row(&|c| c.1.to_string()));
    }
    let mut members = vec![("endpoint", endpoint.into())];
    members.extend(found.rows().map(known).map(|(row, value)| (row.key, value.into())));
    list.push(Json::Object(members));
    Ok(Outcome::GOOD)
}

/// The address whose endpoint is meant.
fn source_address(out: &mut Out, options: &Options) -> Result<Address, Fault> {
    let source = address::identify(options.source.as_deref().unwrap_or_default(), options.format, options.limit);
    let text = source.text.as_str();
    let verbose = |out: &mut Out, function: &str| {
        if options.verbose {
            say!(out, "{function}: src_addr {text}");
        }
    };
    match source.format {
        Format::Ip => {
            verbose(out, "query_perf_ip");
            if let Some(own) = source.scoped().filter(|own| own.interface.is_some()) {
                return Interfaces::default().link_of(own).map(|link| Address::Ip(link.source));
            }
            let parsed: Result<IpAddr, _> = text.parse();
            parsed.map(Address::Ip).map_err(|_| {
                say!(out, "inet_pton error on src address ({text}): 0x0");
                Fault::local(libc::EINVAL, &format!("'{text}' is no IP address"), "-f n is for names")
            })
        }
        Format::Name => {
            verbose(out, "query_perf_name");
            Ok(Address::Name(text.into()))
        }
        other => {
            say!(out, "Unsupported src_type {}", if other == Format::Gid { b'g' } else { b'l' });
            let why = format!("'{text}' is no address that counters can be asked for");
            Err(Fault::local(libc::EINVAL, &why, "-s takes an IP address, or with -f n a name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use ibacm_wire::client::{MORE_ROWS, ROWS};

    #[test]
    fn every_counter_is_in_the_manual_the_schema_and_its_description() {
        let manual = include_str!("../../pkg/man/ib_acme.1").replace("\\&", "");
        let schema = include_str!("../../docs/ib_acme.schema.json");
        let description = include_str!("../../docs/ib_acme-json.md");
        for row in ROWS.iter().chain(&MORE_ROWS) {
            assert!(manual.contains(&format!("\n.It {}\n", row.title)), "{} is not in the manual", row.title);
            // as one that has to be there, and as what it is
            assert_eq!(schema.matches(&format!("\"{}\"", row.key)).count(), 2, "{} in the schema", row.key);
            assert!(description.contains(&format!("`{}`", row.key)), "{} is not described", row.key);
        }
    }
}
