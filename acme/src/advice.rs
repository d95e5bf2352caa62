//! What to do next when a path is not found, where this program knows more of the question than the library does.

use std::net::IpAddr;

use libibacm::{Client, Error, Status};

use crate::address::{Destination, Unfit};
use crate::cli::Format;
use crate::fault::Fault;

/// For a question that was not asked: the line that scripts may know, and the failure.
pub fn unfit(unfit: Unfit, destination: &Destination, source: Option<&str>) -> (String, Fault) {
    let (to, from) = (destination.text.as_str(), source.unwrap_or_default());
    let gid = destination.format == Format::Gid;
    let format = if gid { "-f g takes GIDs, as fe80::2:c903:0:1" } else { "-f i takes IP addresses, of one family" };
    match unfit {
        Unfit::Source => {
            let line = format!("inet_pton error on source address ({from}): 0x0");
            (line, Fault::local(libc::EINVAL, &format!("'{from}' is no source"), format))
        }
        Unfit::Destination => {
            let kind = if gid { "dest" } else { "destination" };
            let line = format!("inet_pton error on {kind} address ({to}): 0x0");
            (line, Fault::local(libc::EINVAL, &format!("'{to}' is no destination"), format))
        }
        Unfit::Families => {
            let text = format!("{from} and {to} are an IPv4 and an IPv6 address");
            let line = "source and destination address families don't match".to_owned();
            (line, Fault::local(libc::EINVAL, &text, format))
        }
        Unfit::Nowhere => {
            let text = format!("'{to}' is neither an address, nor a name that this host can look up, nor a LID");
            let advice = if gid { format } else { "-f n asks the service for a name" };
            let fault = Fault::local(libc::EADDRNOTAVAIL, &text, advice);
            (format!("ib_acm_resolve_path failed: {}", fault.strerror()), fault)
        }
    }
}

/// For a question that the service has refused.
pub fn refused(client: &Client, destination: &Destination, source: Option<&str>, e: &Error) -> Option<String> {
    let to = destination.text.as_str();
    let by_path = matches!(destination.format, Format::Lid | Format::Gid);
    Some(match e.status()? {
        Status::Esrcaddr => match source {
            Some(from) if from.contains(['.', ':']) => {
                format!("{from} is not on an IPoIB interface of the service's host; ib_acme -e lists what is")
            }
            Some(from) => format!("no port of the service's host is called {from}; ib_acme -e lists those that are"),
            None => format!("no endpoint of the service's host leads to {to}: look at its routes, and at ib_acme -e"),
        },
        Status::Edestaddr if by_path => format!(
            "the subnet administrator knows no path to {to}: is there such a port (saquery), in the same partition?"
        ),
        Status::Edestaddr | Status::Etimedout => {
            let hint = match to.parse() {
                Ok(IpAddr::V4(v4)) if v4.octets()[0] == 0 => " If a LID is meant, say so with -f l.",
                Ok(IpAddr::V6(v6)) if v6.is_unicast_link_local() => " If a GID is meant, say so with -f g.",
                _ => "",
            };
            format!(
                "{to} does not answer: is the host up, has it that address on an IPoIB interface, and does it run \
                 ibacm?{hint}"
            )
        }
        Status::Enodata if client.endpoints().is_ok_and(|found| !found.is_empty()) => {
            format!("the service does not know {to} yet; without -c it looks for it")
        }
        Status::Enodata => "the service has no endpoint: is a port active? ib_acme check tells".to_owned(),
        _ => return None,
    })
}
