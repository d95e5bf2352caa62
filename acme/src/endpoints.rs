//! `-e`: the endpoints of a service, printed as they come. However many a service makes up, there is an end.

use std::time::{Duration, Instant};

use libibacm::{Client, Endpoint, Error, Name, Status};

use crate::cli::Options;
use crate::document::Answers;
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::out::Out;
use crate::query::Labels;
use crate::say;

/// So many bytes are taken, as a service sends them: a thousand endpoints with two hundred addresses each.
const MOST_BYTES: usize = 16 << 20;
/// What an endpoint has of them, and each of its addresses.
const BYTES: (usize, usize) = (80, 64);
/// A whole list may take the time limit of one answer, and no less than this.
const LEAST_TIME: Duration = Duration::from_secs(10);

/// Prints endpoints.
pub fn endpoints(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    client: &Client,
    options: &Options,
    answers: &mut Answers,
) -> Outcome {
    let mut kept = Vec::new();
    let wanted = usize::try_from(options.endpoint).unwrap_or(0);
    let mut list = List::new(client);
    let longest = list.read(wanted, &mut |number, endpoint| {
        if !labels.endpoints {
            say!(out, "svc,guid,port,pkey,ep_index,prov,addr_0,addresses");
            labels.endpoints = true;
        }
        let Endpoint { device_guid, port, pkey, provider, addresses, .. } = endpoint;
        out.write_fmt(format_args!("{name},0x{device_guid:016x},{port},0x{pkey:04x},{number},"));
        out.name(provider);
        for address in addresses {
            out.write_fmt(format_args!(","));
            out.name(address);
        }
        say!(out, "");
        if out.is_terminal() {
            out.flush();
        }
        // For nobody else: a list can be long.
        if options.json {
            kept.push(json(endpoint, number));
        }
    });
    let fault = match longest {
        Err(fault) => {
            say!(out, "{name}: Failed to query endpoints: {}", fault.strerror());
            Some(fault)
        }
        Ok(longest) if wanted > longest => {
            say!(out, " Endpoint {} is not available", options.endpoint);
            let text = format!("{name} has no endpoint {wanted}");
            let none =
                || Fault::local(libc::EADDRNOTAVAIL, &text, &format!("its endpoints have numbers up to {longest}"));
            Some(list.refusal.unwrap_or_else(none))
        }
        Ok(_) => list.refusal,
    };
    answers.list("endpoints", kept);
    let Some(fault) = fault else { return Outcome::GOOD };
    out.explain(&fault);
    answers.failed("endpoints", &fault);
    Outcome::FAILED
}

/// A list that is being read.
struct List<'a> {
    client: &'a Client,
    limit: Duration,
    end: Instant,
    /// Bytes that may still come.
    left: usize,
    /// The first refusal for another reason than that there is no such endpoint.
    refusal: Option<Fault>,
}

impl List<'_> {
    fn new(client: &Client) -> List<'_> {
        let limit = client.limit().max(LEAST_TIME);
        List { client, limit, end: Instant::now() + limit, left: MOST_BYTES, refusal: None }
    }

    /// Shows the endpoints with this number, or all where it is 0: by their numbers among those of ports with the same
    /// number, and then by port. How far they were counted.
    fn read(&mut self, wanted: usize, show: &mut dyn FnMut(usize, &Endpoint)) -> Result<usize, Fault> {
        // Counted over all ports, where 255 is the end; that shows which ports there are.
        let mut most = 0;
        for number in 1..=u8::MAX {
            let Some(endpoint) = self.endpoint(number, 0)? else { break };
            most = most.max(endpoint.ports).max(endpoint.port);
        }
        let mut ports: Vec<u8> = (1..=most).collect();
        let mut longest = 0;
        for number in 1..=u8::MAX {
            let mut going_on = Vec::new();
            for port in ports {
                let Some(endpoint) = self.endpoint(number, port)? else { continue };
                going_on.push(port);
                if [0, number.into()].contains(&wanted) {
                    self.charge(&endpoint)?;
                    show(number.into(), &endpoint);
                }
            }
            if going_on.is_empty() {
                break;
            }
            longest = number.into();
            ports = going_on;
            if longest == wanted {
                break;
            }
        }
        Ok(longest)
    }

    /// One of them, if the service has it.
    fn endpoint(&mut self, number: u8, port: u8) -> Result<Option<Endpoint>, Fault> {
        match self.client.endpoint_of_port(number, port) {
            Ok(endpoint) if Instant::now() < self.end => Ok(Some(endpoint)),
            Ok(_) => {
                let text = format!("the list of endpoints does not end within {} s", self.limit.as_secs());
                Err(Fault::local(libc::ETIMEDOUT, &text, "--timeout gives it more, if the service is but slow"))
            }
            Err(e) if e.status() == Some(Status::Einval) => Ok(None),
            Err(e @ Error::Status(_)) => {
                self.refusal.get_or_insert_with(|| Fault::of(&e));
                Ok(None)
            }
            Err(e) => Err(Fault::of(&e)),
        }
    }

    fn charge(&mut self, endpoint: &Endpoint) -> Result<(), Fault> {
        let bytes = BYTES.0 + BYTES.1 * endpoint.addresses.len();
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            let text = format!("the list of endpoints is cut: it is longer than {} MiB", MOST_BYTES >> 20);
            Fault::local(libc::EMSGSIZE, &text, "no host has so many; look what it is that listens there")
        })?;
        Ok(())
    }
}

fn json(endpoint: &Endpoint, number: usize) -> Json {
    Json::Object(vec![
        ("number", number.into()),
        ("device_guid", Json::Text(format!("0x{:016x}", endpoint.device_guid))),
        ("port", endpoint.port.into()),
        ("pkey", endpoint.pkey.into()),
        ("provider", endpoint.provider.to_string().into()),
        ("addresses", endpoint.addresses.iter().map(Name::to_string).collect()),
    ])
}
