//! The command `fabric`.

use std::process::{Command, ExitCode};

use fabric::options::Options;
use fabric::paths::StateDir;
use fabric::{children, client, daemon, host};

const USAGE: &str = "\
fabric up [--hosts N] [--hcas N] [--hca-ports 1|2] [--extra-hcas N] [--topology FILE] [--partitions FILE]
          [--opensm 'LINE'] [--no-ipoib]
fabric down
fabric exec HOST -- COMMAND...
fabric inject FAULT...            see README.md
fabric console COMMAND            of ibsim, such as 'Unlink \"H1\"[1]'
fabric stats | stats-reset | ports | violations | sniff [HOST] [since=N]
fabric ifadd HOST NAME PKEY [ADDRESS/LEN...] | ifdel HOST NAME | ifrename HOST OLD NEW
fabric sm stop|start|restart|sweep|second|second-stop
fabric saquery ... | sminfo ... | any other program that uses libibumad
Every command takes --state DIR first (or $FABRIC_STATE; /run/ibfabric if neither is there).";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let Some(verb) = (!args.is_empty()).then(|| args.remove(0)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&verb, args) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("fabric {verb}: {e}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn run(verb: &str, mut args: Vec<String>) -> Outcome {
    match verb {
        // Parts of a subnet that run as processes of their own.
        "serve" => {
            daemon::run(Options::parse(&args)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        "hold" => {
            let [state, host] = args.as_slice() else { return Err("hold STATE HOST".into()) };
            host::hold(&StateDir::new(state), host)?;
            return Ok(ExitCode::SUCCESS);
        }
        "tether" if !args.is_empty() => return Err(children::tether(&args).into()),
        "up" => {
            client::up(&std::env::current_exe()?, &Options::parse(&args)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let mut state = StateDir::from_env();
    if args.first().is_some_and(|a| a == "--state") && args.len() >= 2 {
        state = StateDir::new(std::path::absolute(&args[1])?);
        args.drain(..2);
    }
    match verb {
        "down" => client::down(&state)?,
        "exec" => {
            let host = (!args.is_empty()).then(|| args.remove(0)).ok_or("exec HOST -- COMMAND")?;
            if args.first().is_some_and(|a| a == "--") {
                args.remove(0);
            }
            if args.is_empty() {
                return Err("exec HOST -- COMMAND".into());
            }
            host::enter(&state, &host)?;
            let e = host::exec(&host, &args);
            eprintln!("fabric exec: {}: {e}", args[0]);
            // As shells have it.
            return Ok(ExitCode::from(if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }));
        }
        "violations" => {
            let text = std::fs::read_to_string(state.violations())?;
            print!("{text}");
            return Ok(if text.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        "ifadd" => {
            let [host, name, pkey, addresses @ ..] = args.as_slice() else {
                return Err("ifadd HOST NAME PKEY [ADDRESS/LEN...]".into());
            };
            client::command(&state, &format!("interface {host} add {name} {pkey} {}", addresses.join(" ")))?;
        }
        "ifdel" => {
            let [host, name] = args.as_slice() else { return Err("ifdel HOST NAME".into()) };
            client::command(&state, &format!("interface {host} remove {name}"))?;
        }
        "ifrename" => {
            let [host, old, new] = args.as_slice() else { return Err("ifrename HOST OLD NEW".into()) };
            client::command(&state, &format!("interface {host} rename {old} {new}"))?;
        }
        "inject" | "console" | "stats" | "stats-reset" | "ports" | "sniff" | "sm" => {
            print!("{}", client::command(&state, format!("{verb} {}", args.join(" ")).trim_end())?);
        }
        "help" | "--help" | "-h" => println!("{USAGE}"),
        tool => return query(&state, tool, &args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a program of infiniband-diags against the subnet itself.
fn query(state: &StateDir, tool: &str, args: &[String]) -> Outcome {
    let base = client::command(state, "base")?;
    let mut command = Command::new(tool);
    children::umad2sim(&mut command, base.trim(), "SM");
    // libumad2sim keeps a directory of its own in the current one
    command.current_dir(state.path());
    let status = command.args(args).status().map_err(|e| format!("{tool}: {e}"))?;
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)))
}
