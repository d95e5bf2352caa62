//! `scripts/bench`: this service, the distribution's and a floor, measured side by side on a simulated subnet.

mod args;
mod chart;
mod client;
mod json;
mod lab;
mod machine;
mod measure;
mod place;
mod report;
mod rows;
mod service;
mod startup;
mod stats;

use std::process::ExitCode;

use args::Args;
use json::Json;
use report::Report;

/// What went wrong.
type Fault = Box<dyn std::error::Error>;

/// A value, or what went wrong.
type Outcome<T> = Result<T, Fault>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        // A part of a measurement that runs inside a host.
        Some((first, rest)) if first == startup::COMMAND => startup::run(rest),
        _ => Args::parse(&words).and_then(|args| match args {
            Some(args) => run(&args),
            None => Ok(()),
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Outcome<()> {
    place::many_descriptors()?;
    let mut report = Report::new(args);
    let before = machine::load();
    {
        let lab = lab::Lab::up(args)?;
        for group in measure::GROUPS.iter().filter(|g| args.wants(g.name)) {
            eprintln!("bench: {}", group.name);
            (group.run)(&lab, args, &mut report).map_err(|e| format!("{}: {e}", group.name))?;
        }
    }
    report.machine(Json::object([
        ("processors", Json::Number(machine::processors() as f64)),
        ("model", Json::Text(machine::model())),
        ("kernel", Json::Text(machine::kernel())),
        ("load_before", Json::Text(before)),
        ("load_after", Json::Text(machine::load())),
    ]));
    report.write()
}
