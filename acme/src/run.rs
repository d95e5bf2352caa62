//! One command line from its beginning to its exit status.

use std::path::Path;

use crate::cli::Options;
use crate::document::{Answers, Document};
use crate::expand::expand;
use crate::fault::{Fault, Outcome};
use crate::out::Out;
use crate::query::Labels;
use crate::{endpoints, generate, query, resolve, say, service};

/// Does what is asked for; the exit status.
pub fn run(out: &mut Out, options: &Options) -> u8 {
    if options.json {
        out.mute();
    }
    let mut document = Document::default();
    let mut outcome = Outcome::GOOD;
    if options.destination.is_some() || options.perf.is_some() || options.endpoints {
        outcome = ask_services(out, options, &mut document);
    }
    if let Some(file) = options.addr_file.as_ref().filter(|_| outcome == Outcome::GOOD) {
        let done = generate::addresses(out, options, file);
        outcome = wrote_file(&mut document, "addresses", &generate::place(options, file), done);
    }
    if let Some(file) = options.opts_file.as_ref().filter(|_| outcome == Outcome::GOOD) {
        let done = generate::options(out, options, file);
        outcome = wrote_file(&mut document, "options", &generate::place(options, file), done);
    }
    let wrote = options.addr_file.is_some() || options.opts_file.is_some();
    if options.verbose || !wrote || outcome != Outcome::GOOD {
        say!(out, "return status 0x{:x}", outcome.0);
    }
    // The system keeps the lowest byte.
    let code = (outcome.0 & 0xff) as u8;
    if options.json {
        out.document(&document.json(code));
    }
    code
}

fn wrote_file(document: &mut Document, kind: &str, path: &Path, done: Result<(), Fault>) -> Outcome {
    document.file(kind, path, done.as_ref().err());
    done.map_or(Outcome::FAILED, |()| Outcome::GOOD)
}

fn ask_services(out: &mut Out, options: &Options, document: &mut Document) -> Outcome {
    let default = service::default_socket();
    let argument = options.service.clone().unwrap_or_else(|| default.display().to_string());
    let names = match expand(&argument) {
        Ok(names) => names,
        Err(e) => {
            say!(out, "Unable to parse service list argument");
            let fault = Fault::local(libc::EINVAL, &format!("-S '{argument}': {e}"), "correct the list");
            out.explain(&fault);
            document.error = Some(fault);
            return Outcome::FAILED;
        }
    };
    let mut outcome = Outcome::GOOD;
    let mut labels = Labels::default();
    for name in &names {
        let mut answers = Answers::new(name);
        outcome = outcome.then(ask_service(out, &mut labels, name, options, &mut answers));
        // A list can be long, and nobody else reads them.
        if options.json {
            document.services.push(answers);
        }
    }
    outcome
}

fn ask_service(out: &mut Out, labels: &mut Labels, name: &str, options: &Options, answers: &mut Answers) -> Outcome {
    out.flush();
    if service::has_unreadable_port(name) {
        say!(out, "Failed to read server port");
    }
    let client = match service::connect(name, options.limit) {
        Ok(client) => client,
        Err((status, fault)) => {
            say!(out, "{}", service::complaint(name, &fault));
            out.advise(format_args!("{}", fault.advice));
            answers.failed("service", &fault);
            return Outcome(status);
        }
    };
    let mut outcome = Outcome::GOOD;
    if options.destination.is_some() {
        outcome = outcome.then(resolve::resolve(out, name, &client, options, answers));
    }
    if options.perf.is_some() {
        outcome = outcome.then(query::counters(out, labels, name, &client, options, answers));
    }
    if options.endpoints {
        outcome = outcome.then(endpoints::endpoints(out, labels, name, &client, options, answers));
    }
    outcome
}
