//! What to do next when a path is not found, where this program knows more of the question than the library does.

use std::net::IpAddr;

use libibacm::{Client, Error, Status};

use crate::address::{Destination, Unfit};
use crate::cli::{Format, Options};
use crate::expand::leading_number;
use crate::fault::Fault;
use crate::provider::{Plugins, SOON};

const GIDS: &str = "-f g takes GIDs, as fe80::2:c903:0:1";

/// For a question that was not asked: the line that scripts may know, and the failure.
pub fn unfit(unfit: Unfit, destination: &Destination, source: Option<&str>, options: &Options) -> (String, Fault) {
    let (to, from) = (destination.text.as_str(), source.unwrap_or_default());
    let gid = destination.format == Format::Gid;
    let format = if gid { GIDS } else { "-f i takes IP addresses, of one family" };
    match unfit {
        Unfit::Source => {
            let line = format!("inet_pton error on source address ({from}): 0x0");
            let text = format!("'{from}' is no source");
            let advice = match options.format {
                Format::Unspecified => {
                    "a source has to be of the destination's kind, here an IP address (ib_acme -e lists those of this \
                     host); with -f n both are names"
                }
                _ => format,
            };
            (line, Fault::local(libc::EINVAL, &text, advice))
        }
        Unfit::Destination => {
            let kind = if gid { "dest" } else { "destination" };
            let line = format!("inet_pton error on {kind} address ({to}): 0x0");
            (line, Fault::local(libc::EINVAL, &format!("'{to}' is no destination"), format))
        }
        Unfit::Families => {
            let text = format!("{from} and {to} are an IPv4 and an IPv6 address");
            let line = "source and destination address families don't match".to_owned();
            (line, Fault::local(libc::EINVAL, &text, "source and destination have to be of one family"))
        }
        Unfit::Nowhere => {
            let lids = "LIDs are decimal, from 1 to 65535";
            let (text, advice) = match options.format {
                Format::Gid => (format!("'{to}' is the GID of no port"), GIDS),
                Format::Lid => (format!("'{to}' is no LID"), lids),
                _ => (
                    format!("'{to}' is neither an address, nor a name that this host can look up, nor a LID"),
                    "-f n asks the service for a name",
                ),
            };
            let fault = Fault::local(libc::EADDRNOTAVAIL, &text, advice);
            (format!("ib_acm_resolve_path failed: {}", fault.strerror()), fault)
        }
    }
}

/// What is asked for in place of a LID that is none, if that is so.
pub fn misread(destination: &Destination, source: Option<&str>) -> Option<String> {
    let misread = |text: &str| {
        let lid = leading_number(text) as u16;
        let is_one = text.trim().parse() == Ok(lid);
        (!is_one).then(|| format!("'{text}' is no LID, and is read as {lid}"))
    };
    if destination.format != Format::Lid {
        return None;
    }
    let both: Vec<String> =
        [Some(destination.text.as_str()), source].into_iter().flatten().filter_map(misread).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// Whether a service says that it has no endpoint. That is not worth waiting for.
fn has_none(client: &Client) -> bool {
    let quick = Client::new(client.target().clone()).with_limit(client.limit().min(SOON));
    quick.endpoint(1).is_err_and(|e| e.status() == Some(Status::Einval))
}

/// For a question that the service has refused, whichever provider it was put to.
pub fn refused(
    client: &Client,
    destination: &Destination,
    source: Option<&str>,
    options: &Options,
    e: &Error,
) -> Option<String> {
    let usual = by_the_service(client, destination, source, options, e);
    // These a provider may have given; others are the service's own.
    match e.status() {
        Some(Status::Etimedout | Status::Enodata | Status::Einval | Status::Edestaddr) => {}
        Some(_) => return usual,
        None => match e {
            Error::Status(_) => {}
            _ => return usual,
        },
    }
    let usual = usual.unwrap_or_else(|| e.advice().to_owned());
    Some(Plugins::ask(client, source).advise(usual))
}

/// For a question that the built-in provider has refused, or the service itself.
fn by_the_service(
    client: &Client,
    destination: &Destination,
    source: Option<&str>,
    options: &Options,
    e: &Error,
) -> Option<String> {
    let to = match destination.format {
        Format::Lid => format!("LID {}", leading_number(&destination.text) as u16),
        Format::Gid => format!("GID {}", destination.text),
        _ => destination.text.clone(),
    };
    let by_path = matches!(destination.format, Format::Lid | Format::Gid);
    // What nobody was asked for: only an IP address without a source needs a route.
    let unrouted = destination.format == Format::Ip && source.is_none();
    let hint = match destination.text.parse() {
        Ok(IpAddr::V4(v4)) if unrouted && v4.octets()[0] == 0 => ". If a LID is meant, say so with -f l",
        Ok(IpAddr::V6(v6)) if unrouted && v6.is_unicast_link_local() => ". If a GID is meant, say so with -f g",
        _ => "",
    };
    let status = match (e.status(), e) {
        (Some(status), _) => status,
        // rdma-core's service tells the errno of a route that is missing.
        (None, Error::Status(_)) if unrouted => Status::Edestaddr,
        (None, _) => return None,
    };
    Some(match status {
        Status::Esrcaddr => match (source, destination.format) {
            (Some(from), Format::Lid) => format!("no active port of the service's host has the LID {from}"),
            (Some(from), Format::Gid) => format!("no active port of the service's host has the GID {from}"),
            (Some(from), Format::Name) => {
                format!("no port of the service's host is called {from}; ib_acme -e lists those that are")
            }
            (Some(from), _) => {
                format!("{from} is not on an IPoIB interface of the service's host; ib_acme -e lists what is")
            }
            (None, _) if by_path => {
                format!("no active port of the service's host is in the subnet of {to}; ib_acme -e lists its ports")
            }
            (None, _) => {
                format!("no endpoint of the service's host leads to {to}: look at its routes, and at ib_acme -e{hint}")
            }
        },
        Status::Edesttype if destination.format == Format::Name && source.is_none() => {
            "this service finds a name from a source alone: give one with -s; ib_acme -e lists the names of its host"
                .to_owned()
        }
        Status::Edestaddr if unrouted => format!(
            "{to} cannot be asked for from the service's host: no route over an IPoIB interface leads to it (ip route \
             get {to}){hint}"
        ),
        Status::Etimedout if by_path => "the subnet administrator does not answer: ib_acme check tells why".to_owned(),
        Status::Etimedout => {
            let name = if destination.format == Format::Name { "name" } else { "address on an IPoIB interface" };
            format!(
                "{to} does not answer: is the host up, has it that {name}, and does it run ibacm? Or the subnet \
                 administrator does not: ib_acme check tells{hint}"
            )
        }
        Status::Enodata if has_none(client) => {
            "the service has no endpoint: is a port active? ib_acme check tells".to_owned()
        }
        Status::Enodata if options.cached_only && by_path => {
            format!("the service has no path to {to} in its cache; without -c it asks for one")
        }
        Status::Enodata if options.cached_only => {
            format!("the service does not know {to} yet; without -c it looks for it")
        }
        Status::Enodata | Status::Edestaddr if by_path => format!(
            "the subnet administrator knows no path to {to}: is there such a port (saquery), in the same partition?"
        ),
        Status::Enodata | Status::Edestaddr => format!(
            "the subnet administrator knows no path to {to}, or the service has no multicast group to look for it in: \
             ib_acme check tells"
        ),
        _ => return None,
    })
}

/// For a path that the subnet administrator was asked about, and did not confirm.
pub fn unconfirmed(destination: &Destination, e: &Error) -> Option<String> {
    Some(match e.status()? {
        Status::Etimedout => "the subnet administrator does not answer: ib_acme check tells why".to_owned(),
        Status::Enodata | Status::Edestaddr | Status::Einval => format!(
            "the service's path to {} is not the subnet's any more: ask again in a moment, as a port that moves says so \
             itself; if it stays so, ib_acme check -d shows where they differ, and systemctl restart ibacm makes the \
             service forget what it has found",
            destination.text
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str, format: Format) -> Destination {
        Destination { text: text.to_owned(), format, scope: None }
    }

    #[test]
    fn what_is_no_lid_is_said() {
        let read = |text: &str, source| misread(&destination(text, Format::Lid), source);
        for text in ["1", "007", "65535", "0", "+5"] {
            assert_eq!(read(text, Some("3")), None, "{text}");
        }
        assert_eq!(read("65541", None).as_deref(), Some("'65541' is no LID, and is read as 5"));
        assert_eq!(
            read("5x", Some("y")).as_deref(),
            Some("'5x' is no LID, and is read as 5; 'y' is no LID, and is read as 0")
        );
        assert_eq!(misread(&destination("x", Format::Name), Some("y")), None);
    }
}
