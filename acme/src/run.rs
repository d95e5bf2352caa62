//! One command line from its beginning to its exit status.

use crate::cli::Options;
use crate::expand::expand;
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::out::Out;
use crate::query::Labels;
use crate::{generate, query, resolve, say, service};

/// Does what is asked for; the exit status.
pub fn run(out: &mut Out, options: &Options) -> u8 {
    if options.json {
        out.mute();
    }
    let mut document = Vec::new();
    let mut outcome = Outcome::GOOD;
    if options.destination.is_some() || options.perf.is_some() || options.endpoints {
        outcome = ask_services(out, options, &mut document);
    }
    if let Some(file) = options.addr_file.as_ref().filter(|_| outcome == Outcome::GOOD) {
        outcome = generate::addresses(out, options, file);
    }
    if let Some(file) = options.opts_file.as_ref().filter(|_| outcome == Outcome::GOOD) {
        outcome = generate::options(out, options, file);
    }
    let wrote = options.addr_file.is_some() || options.opts_file.is_some();
    if options.verbose || !wrote || outcome != Outcome::GOOD {
        say!(out, "return status 0x{:x}", outcome.0);
    }
    // The system keeps the lowest byte.
    let code = (outcome.0 & 0xff) as u8;
    if options.json {
        document.push(("status", code.into()));
        out.document(&Json::Object(document));
    }
    code
}

fn ask_services(out: &mut Out, options: &Options, document: &mut Vec<(&'static str, Json)>) -> Outcome {
    let default = service::default_socket();
    let argument = options.service.clone().unwrap_or_else(|| default.display().to_string());
    let names = match expand(&argument) {
        Ok(names) => names,
        Err(e) => {
            say!(out, "Unable to parse service list argument");
            let fault = Fault::local(libc::EINVAL, &format!("-S '{argument}': {e}"), "correct the list");
            out.advise(format_args!("{}", fault.text));
            document.push(("error", fault.json()));
            return Outcome::FAILED;
        }
    };
    let mut outcome = Outcome::GOOD;
    let mut labels = Labels::default();
    let mut services = Vec::new();
    for name in &names {
        let mut members = vec![("service", Json::Text(name.clone()))];
        let this = ask_service(out, &mut labels, name, options, &mut members);
        services.push(Json::Object(members));
        outcome = outcome.then(this);
    }
    document.push(("services", Json::List(services)));
    outcome
}

fn ask_service(
    out: &mut Out,
    labels: &mut Labels,
    name: &str,
    options: &Options,
    members: &mut Vec<(&'static str, Json)>,
) -> Outcome {
    out.flush();
    let client = match service::connect(name, options.limit) {
        Ok(client) => client,
        Err((status, fault)) => {
            say!(out, "{}", service::complaint(name, &fault));
            out.advise(format_args!("{}", fault.advice));
            members.push(("error", fault.json()));
            return Outcome(status);
        }
    };
    let mut outcome = Outcome::GOOD;
    if options.destination.is_some() {
        outcome = outcome.then(resolve::resolve(out, name, &client, options, members));
    }
    if options.perf.is_some() {
        outcome = outcome.then(query::counters(out, labels, name, &client, options, members));
    }
    if options.endpoints {
        outcome = outcome.then(query::endpoints(out, labels, name, &client, options, members));
    }
    outcome
}
