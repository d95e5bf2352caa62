//! The utility `ib_acme`: asks the ibacm service for paths, endpoints and counters, measures it, looks whether a host is
//! healthy, and writes configuration files.
//!
//! Without options that the other `ib_acme` does not have, standard output and exit status are byte for byte those of
//! rdma-core's; docs/differences.md has the exceptions.

pub mod address;
pub mod advice;
pub mod check;
pub mod cli;
pub mod completions;
pub mod connections;
pub mod document;
pub mod endpoints;
pub mod expand;
pub mod fault;
pub mod generate;
pub mod histogram;
pub mod json;
pub mod measure;
pub mod option_table;
pub mod out;
pub mod path;
pub mod progress;
pub mod provider;
pub mod query;
pub mod resolve;
pub mod run;
pub mod scope;
pub mod service;
pub mod usage;
pub mod verdict;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use cli::Command;
use document::Document;
use fault::Fault;

/// The program.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().map_or_else(|| "ib_acme".to_owned(), |p| p.to_string_lossy().into_owned());
    let arguments: Vec<OsString> = words.collect();
    if let Some((first, rest)) = arguments.split_first() {
        match first.to_str() {
            Some("check") => return check::main(rest),
            Some("completions") => return completions::main(rest),
            _ => {}
        }
    }
    let mut out = out::Out::default();
    let code = match cli::parse(&program, &arguments) {
        Command::Run(options) => run::run(&mut out, &options),
        Command::Help => {
            out.write_fmt(format_args!("{}", usage::help(&program)));
            0
        }
        Command::Version => {
            say!(out, "ib_acme {}", env!("CARGO_PKG_VERSION"));
            0
        }
        Command::Usage(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            // Whoever wants a document gets one.
            if arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
                let why = why.strip_prefix(&format!("{program}: ")).unwrap_or(&why);
                let fault = Fault::local(libc::EINVAL, why, &format!("{program} --help lists the options"));
                out.document(&Document::failed(fault).json(1));
            } else {
                out.write_fmt(format_args!("{}", usage::usage(&program)));
            }
            1
        }
    };
    out.flush();
    ExitCode::from(code)
}
