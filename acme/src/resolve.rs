//! `-d`: paths, from each source to each destination.

use ibacm_wire::PathRecord;
use libibacm::{Address, Client, Error, Path, Reply, Request, Status};

use crate::address::{self, Destination, ip_text};
use crate::advice;
use crate::cli::{Format, Options};
use crate::document::Answers;
use crate::expand::{expand, expand_addresses};
use crate::fault::{Fault, Outcome};
use crate::json::Json;
use crate::measure::{self, Report};
use crate::out::Out;
use crate::path;
use crate::progress::Progress;
use crate::say;
use crate::scope::{Interfaces, Link, Scoped};
use crate::verdict::{self, Verdict};

/// One line of questions and what came of it.
struct Lookup {
    destination: Destination,
    source: Option<String>,
    /// The interface of this host that it is about.
    link: Option<Link>,
    /// The path, and the source that the service has chosen where none was given.
    result: Result<Path, Fault>,
    verification: Option<Result<PathRecord, Fault>>,
    report: Option<Report>,
}

/// Asks for every path, prints what comes, and adds it to `answers`.
pub fn resolve(out: &mut Out, name: &str, client: &Client, options: &Options, answers: &mut Answers) -> Outcome {
    let argument = options.destination.as_deref().unwrap_or_default();
    let of_addresses = matches!(options.format, Format::Ip | Format::Unspecified);
    let list = |argument: &str| {
        let items = if of_addresses { expand_addresses(argument) } else { expand(argument) };
        items.map_err(|e| (argument.to_owned(), e))
    };
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
    let interfaces = Interfaces::default();
    for (i, argument) in destinations.iter().enumerate() {
        progress.at(i, argument);
        // A name may have to be looked up.
        progress.wait(out);
        let destination = address::identify(argument, options.format, options.limit);
        let sources = sources.as_ref().map_or(vec![None], |s| s.iter().map(|s| Some(s.as_str())).collect());
        for source in sources {
            let lookup = look_up(out, &mut progress, client, options, &interfaces, &destination, source);
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
    interfaces: &Interfaces,
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
        link: None,
        result: Err(Fault::local(libc::EINVAL, "nothing was asked", "give -C a number above 0")),
        verification: None,
        report: None,
    };
    match request(interfaces, destination, source, options, &mut lookup.link) {
        Err((line, fault)) => {
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
            if let Some(Link { interface, source: own, instead_of: Some(meant), .. }) = &lookup.link {
                let [own, meant] = [own, meant].map(|ip| ip_text(*ip));
                out.advise(format_args!("{meant} is not only on {interface}: asked from its {own}"));
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

/// The request, and the link that it names; or the line that scripts may know, and the failure.
fn request(
    interfaces: &Interfaces,
    destination: &Destination,
    source: Option<&str>,
    options: &Options,
    link: &mut Option<Link>,
) -> Result<Request, (String, Fault)> {
    let from = source.and_then(Scoped::parse).filter(|_| destination.format == Format::Ip);
    let plain = from.filter(|s| s.interface.is_some()).map(|s| ip_text(s.ip));
    let request = address::request(destination, plain.as_deref().or(source), options.cached_only)
        .map_err(|unfit| advice::unfit(unfit, destination, source, options))?;
    let Some(to) = destination.scoped() else { return Ok(request) };
    *link = interfaces
        .link(to, from)
        .map_err(|fault| (format!("ib_acm_resolve_ip failed: {}", fault.strerror()), fault))?;
    Ok(match link {
        Some(link) => Request::Resolve {
            source: Some(Address::Ip(link.source)),
            destination: Address::Ip(to.ip),
            cached_only: options.cached_only,
        },
        None => request,
    })
}

/// Asks as often as is wanted; the last answer counts.
fn ask(out: &mut Out, client: &Client, options: &Options, request: &Request, lookup: &mut Lookup) {
    let repetitions = options.repetitions;
    // Scripts that repeat look-ups get what they always got.
    if options.stats || (repetitions > 1 && (options.json || out.is_terminal())) {
        let (last, report) = measure::measure(out, client, options, request);
        lookup.result = match last.and_then(Reply::into_path) {
            Ok(path) => lookup.on_link(out, path),
            Err(e) => Err(failed(out, client, options, lookup, &e, true)),
        };
        lookup.report = Some(report);
        return;
    }
    for i in 0..repetitions {
        let answer = client.ask(request.clone()).and_then(Reply::into_path).map(|path| lookup.on_link(out, path));
        lookup.result = match answer {
            Ok(Err(fault)) => Err(fault),
            Ok(Ok(path)) => {
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
        let unserved = lookup.link.as_ref().filter(|_| e.status() == Some(Status::Esrcaddr)).map(Link::unserved);
        if let Some(advice) = unserved {
            fault = fault.advising(advice);
        } else if let Some(advice) = advice::refused(client, &lookup.destination, lookup.source.as_deref(), options, e)
        {
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
            // The question was for exactly this speed, and a path that is made from a group seldom has the SA's.
            let refused = !matches!(e.status(), None | Some(Status::Etimedout));
            let again = refused.then(|| client.ask(verdict::question_at_any_speed(record)).and_then(Reply::into_path));
            match (again.as_ref().map(|result| verdict::judge(record, result, 0)), again) {
                (Some(verdict @ (Verdict::Same | Verdict::Less(_))), Some(Ok(path))) => {
                    say!(out, "SA verification: success");
                    out.advise(format_args!("{}", verdict.found()));
                    return Ok(path.record);
                }
                (Some(verdict @ Verdict::More(_)), _) => {
                    fault.text = verdict.found();
                    fault.advice = verdict.remedy().unwrap_or_default().to_owned();
                }
                _ => {
                    if let Some(advice) = advice::unconfirmed(destination, &e) {
                        fault = fault.advising(advice);
                    }
                }
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
    /// A path, if it begins where it was to begin.
    fn on_link(&self, out: &mut Out, mut path: Path) -> Result<Path, Fault> {
        let Some(link) = &self.link else { return Ok(path) };
        if link.has(&path.record) {
            path.source = self.source.is_none().then_some(Address::Ip(link.source));
            return Ok(path);
        }
        let fault = link.missed(&path.record);
        say!(out, "ib_acm_resolve_ip failed: {}", fault.strerror());
        out.explain(&fault);
        Err(fault)
    }

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
