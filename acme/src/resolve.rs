//! `-d`: paths, from each source to each destination.

use ibacm_wire::PathRecord;
use libibacm::{Address, Client, Error, Path, Reply, Request};

use crate::address::{self, Destination, ip_text};
use crate::advice;
use crate::cli::{Format, Options};
use crate::document::Answers;
use crate::expand::expand;
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::measure::{self, Report};
use crate::out::Out;
use crate::path;
use crate::progress::Progress;
use crate::say;

/// One line of questions and what came of it.
struct Lookup {
    destination: Destination,
    source: Option<String>,
    /// The path, and the source that the service has chosen where none was given.
    result: Result<Path, Fault>,
    verification: Option<Result<PathRecord, Fault>>,
    report: Option<Report>,
}

/// Asks for every path, prints what comes, and adds it to `answers`.
pub fn resolve(out: &mut Out, name: &str, client: &Client, options: &Options, answers: &mut Answers) -> Outcome {
    let argument = options.destination.as_deref().unwrap_or_default();
    let list = |argument: &str| expand(argument).map_err(|e| (argument.to_owned(), e));
    let destinations = list(argument);
    let sources = options.source.as_deref().map(list).transpose();
    let (destinations, sources) = match (destinations, sources) {
        (Ok(destinations), Ok(sources)) => (destinations, sources),
        (Err((text, e)), _) | (_, Err((text, e))) => {
            let which = if text == argument { "destination" } else { "source" };
            say!(out, "Unable to parse {which} argument");
            let fault = Fault::local(libc::EINVAL, &format!("-{} '{text}': {e}", &which[..1]), "correct the list");
            out.explain(&fault);
            answers.failed("lookups", &fault);
            return Outcome::FAILED;
        }
    };
    say!(out, "Service: {name}");
    let mut progress = Progress::new(out, destinations.len());
    let mut outcome = Outcome::GOOD;
    let mut lookups = Vec::new();
    for (i, argument) in destinations.iter().enumerate() {
        progress.at(i, argument);
        // A name may have to be looked up.
        progress.wait(out);
        let destination = address::identify(argument, options.format, options.limit);
        let sources = sources.as_ref().map_or(vec![None], |s| s.iter().map(|s| Some(s.as_str())).collect());
        for source in sources {
            let lookup = look_up(out, &mut progress, client, options, &destination, source);
            let good = lookup.result.is_ok() && !matches!(lookup.verification, Some(Err(_)));
            if !good {
                outcome = Outcome::FAILED;
                progress.failed();
            }
            if options.json {
                lookups.push(lookup.json(argument, options.verify));
            }
        }
    }
    progress.end(out);
    answers.list("lookups", lookups);
    outcome
}

fn look_up(
    out: &mut Out,
    progress: &mut Progress,
    client: &Client,
    options: &Options,
    destination: &Destination,
    source: Option<&str>,
) -> Lookup {
    say!(out, "Destination: {}", destination.text);
    if let Some(source) = source {
        say!(out, "Source: {source}");
    }
    out.flush();
    progress.wait(out);
    let mut lookup = Lookup {
        destination: destination.clone(),
        source: source.map(str::to_owned),
        result: Err(Fault::local(libc::EINVAL, "nothing was asked", "give -C a number above 0")),
        verification: None,
        report: None,
    };
    match address::request(destination, source, options.cached_only) {
        Err(unfit) => {
            let (line, fault) = advice::unfit(unfit, destination, source, options);
            // It cannot become better, but scripts may count.
            let count = if options.json { 0 } else { options.repetitions };
            (0..count).for_each(|_| say!(out, "{line}"));
            out.explain(&fault);
            lookup.result = Err(fault);
        }
        Ok(request) if options.repetitions > 0 => {
            if let Some(note) = advice::misread(destination, source) {
                out.advise(format_args!("{note}"));
            }
            ask(out, client, options, &request, &mut lookup);
        }
        Ok(_) => out.advise(format_args!("nothing was asked: give -C a number above 0")),
    }
    if let Ok(path) = &lookup.result {
        path::show(out, &path.record);
        if options.verify {
            out.flush();
            progress.wait(out);
            lookup.verification = Some(verify(out, client, destination, &path.record));
        }
    }
    if let Some(report) = &lookup.report {
        report.show(out);
    }
    say!(out, "");
    lookup
}

/// Asks as often as is wanted; the last answer counts.
fn ask(out: &mut Out, client: &Client, options: &Options, request: &Request, lookup: &mut Lookup) {
    let repetitions = options.repetitions;
    // Scripts that repeat look-ups get what they always got.
    if options.stats || (repetitions > 1 && (options.json || out.is_terminal())) {
        let (last, report) = measure::measure(out, client, options, request);
        lookup.result = last.and_then(Reply::into_path).map_err(|e| failed(out, client, options, lookup, &e, true));
        lookup.report = Some(report);
        return;
    }
    for i in 0..repetitions {
        lookup.result = match client.ask(request.clone()).and_then(Reply::into_path) {
            Ok(path) => {
                if let Some(source) = path.source.as_ref().filter(|_| repetitions == 1) {
                    out.write_fmt(format_args!("Source: "));
                    match source {
                        Address::Name(name) => out.name(name),
                        Address::Ip(ip) => out.write_fmt(format_args!("{}", ip_text(*ip))),
                    }
                    say!(out, "");
                }
                Ok(path)
            }
            Err(e) => Err(failed(out, client, options, lookup, &e, i == 0)),
        };
    }
}

/// Says what failed, with advice for the first of several repetitions.
fn failed(out: &mut Out, client: &Client, options: &Options, lookup: &Lookup, e: &Error, first: bool) -> Fault {
    let call = match lookup.destination.format {
        Format::Ip | Format::Unspecified => "ib_acm_resolve_ip",
        Format::Name => "ib_acm_resolve_name",
        Format::Lid | Format::Gid => "ib_acm_resolve_path",
    };
    let mut fault = Fault::of(e);
    say!(out, "{call} failed: {}", fault.strerror());
    if first {
        if let Some(advice) = advice::refused(client, &lookup.destination, lookup.source.as_deref(), options, e) {
            fault = fault.advising(advice);
        }
        out.advise(format_args!("{}: {}: {}", lookup.destination.text, fault.text, fault.advice));
    }
    fault
}

/// Whether the subnet administrator has the path too.
fn verify(out: &mut Out, client: &Client, destination: &Destination, record: &PathRecord) -> Result<PathRecord, Fault> {
    match client.query_path(record) {
        Ok(path) => {
            say!(out, "SA verification: success");
            Ok(path.record)
        }
        Err(e) => {
            let mut fault = Fault::of(&e);
            if let Some(advice) = advice::unconfirmed(destination, &e) {
                fault = fault.advising(advice);
            }
            say!(out, "SA verification: failed {}", fault.strerror());
            out.advise(format_args!("the path is not confirmed: {}: {}", fault.text, fault.advice));
            Err(fault)
        }
    }
}

fn address_text(address: &Address) -> String {
    match address {
        Address::Name(name) => name.to_string(),
        Address::Ip(ip) => ip_text(*ip),
    }
}

impl Lookup {
    fn json(&self, argument: &str, verify: bool) -> Json {
        let format = match self.destination.format {
            Format::Ip | Format::Unspecified => "ip",
            Format::Name => "name",
            Format::Lid => "lid",
            Format::Gid => "gid",
        };
        let path = self.result.as_ref().ok();
        let chosen = path.and_then(|p| p.source.as_ref()).map(address_text);
        let verification = self.verification.as_ref().map(|v| {
            let (verified, differs) = match (v, path) {
                (Ok(record), Some(path)) => (true, record != &path.record),
                _ => (false, false),
            };
            Json::Object(vec![
                ("verified", verified.into()),
                ("differs", differs.into()),
                ("path", v.as_ref().ok().map(path::json).into()),
                ("error", v.as_ref().err().map(Fault::json).into()),
            ])
        });
        let mut members = vec![
            ("argument", argument.into()),
            ("destination", self.destination.text.as_str().into()),
            ("format", format.into()),
            ("source", self.source.clone().or(chosen).into()),
            ("path", path.map(|p| path::json(&p.record)).into()),
            ("error", self.result.as_ref().err().map(Fault::json).into()),
        ];
        if verify {
            members.push(("sa", verification.into()));
        }
        if let Some(report) = &self.report {
            members.push(("measurement", report.json()));
        }
        Json::Object(members)
    }
}
