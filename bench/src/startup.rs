//! How long a service takes from its first instruction to its first answer. A process of its own enters the host, so
//! that the way into it is not measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fabric::paths::StateDir;

use crate::client::{Client, request_counters, request_lid};
use crate::lab::{HOST, Lab};
use crate::service::{self, PATIENCE, Program, end};
use crate::{Outcome, machine, place};

/// The word that has this program measure a start.
pub const COMMAND: &str = "start-in-host";

/// A start.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// From starting the process to the first answer to a client, milliseconds.
    pub answered: f64,
    /// To the first answer with the path to a preloaded LID, if one was asked for.
    pub known: f64,
    /// Memory in use when it has come to rest, KiB.
    pub memory: f64,
    /// Threads.
    pub threads: f64,
}

/// Measures a start on a host that is prepared; with a LID, until the path to it is known.
pub fn measure(lab: &Lab, program: Program, options: &str, lid: Option<u16>) -> Outcome<Start> {
    service::prepare(lab, program, HOST, options)?;
    let output = Command::new(std::env::current_exe()?)
        .arg(COMMAND)
        .arg(lab.subnet.state().path())
        .arg(HOST)
        .arg(program.path(lab))
        .arg(lab.subnet.port(HOST)?.lid.to_string())
        .arg(lid.unwrap_or(0).to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = said.split_whitespace().map_while(|n| n.parse().ok()).collect();
    match numbers.as_slice() {
        &[answered, known, memory, threads] if output.status.success() => {
            Ok(Start { answered, known, memory, threads })
        }
        _ => Err(format!("{} does not start", program.name()).into()),
    }
}

/// What the process of its own does: STATE HOST PROGRAM OWN-LID LID.
pub fn run(words: &[String]) -> Outcome<()> {
    let [state, host, program, own, lid] = words else { return Err("STATE HOST PROGRAM OWN-LID LID".into()) };
    let (own, lid): (u16, u16) = (own.parse()?, lid.parse()?);
    fabric::host::enter(&StateDir::new(state), host)?;
    let inside = fabric::paths::INSIDE;
    let mut command = Command::new(program);
    command
        .arg("-P")
        .env("LD_PRELOAD", format!("{inside}/{}", fabric::daemon::STANDIN))
        .env("FABRIC_HOST", host)
        .env("FABRIC_DIR", inside)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    place::pin(place::Place::Service)?;
    let begin = Instant::now();
    let mut child = command.spawn()?;
    place::pin(place::Place::Others)?;
    let outcome = watch(child.id(), begin, own, lid);
    end(&mut child);
    let start = outcome?;
    println!("{} {} {} {}", start.answered, start.known, start.memory, start.threads);
    Ok(())
}

fn watch(pid: u32, begin: Instant, own: u16, lid: u16) -> Outcome<Start> {
    let ms = || begin.elapsed().as_secs_f64() * 1e3;
    let socket = Path::new("/run/ibacm-unix.sock");
    let mut client = loop {
        match Client::connect(socket) {
            Ok(client) => break client,
            Err(e) if begin.elapsed() > PATIENCE => return Err(format!("it does not serve: {e}").into()),
            Err(_) => std::thread::sleep(Duration::from_micros(20)),
        }
    };
    // An answer, as a connection may wait for long before it is accepted.
    client.must(&request_counters())?;
    let answered = ms();
    let question = request_lid(own, lid);
    let mut known = answered;
    if lid != 0 {
        while client.ask(&question)?.0 != 0 {
            if begin.elapsed() > PATIENCE {
                return Err(format!("LID {lid} is not known").into());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        known = ms();
    }
    // Groups are joined, and what is only needed at the start has been done.
    std::thread::sleep(Duration::from_millis(400));
    let memory = machine::status(pid, "VmRSS")? as f64;
    Ok(Start { answered, known, memory, threads: machine::status(pid, "Threads")? as f64 })
}
