//! Calls in the middle of which processes are forked and threads are cancelled, and unusual arguments.

#[path = "../../tests/support/mod.rs"]
mod services;
mod support;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use ibacm_c as _;
use ibacm_wire::client::{Entry, OP_PERF_QUERY, TYPE_NAME};
use libibacm::Status;
use services::{Place, any_answer, refusal, request};
use support::{Prefix, said, succeed};

/// A name that is not UTF-8.
const ODD_NAME: &[u8] = b"n\xe4me";

/// A program's command line, which ends whatever it does.
fn command(prefix: &Prefix, name: &str, place: &Place) -> Command {
    let source = format!("libibacm/capi/tests/c/{name}.c");
    let program = prefix.build(&["cc", "-std=gnu11", "-pthread"], &source, name);
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).arg(&place.0).env("LD_LIBRARY_PATH", prefix.libraries());
    command
}

fn healthy(mut s: UnixStream) -> io::Result<()> {
    loop {
        let answer = any_answer(&request(&mut s)?);
        s.write_all(&answer)?;
    }
}

#[test]
fn descendants_wait_for_no_thread_that_they_do_not_have() {
    let (prefix, place) = (Prefix::install("generations"), Place::new());
    place.serve(healthy);
    assert_eq!(succeed(&mut command(&prefix, "generations", &place)), "0 0\n");
}

#[test]
fn a_cancelled_thread_holds_nobody_up() {
    let (prefix, place) = (Prefix::install("cancelled"), Place::new());
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            if request[1] == OP_PERF_QUERY {
                s.write_all(&any_answer(&request))?;
            }
        }
    });
    let said = succeed(&mut command(&prefix, "cancelled", &place));
    let numbers: Vec<i64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [cancelled, result, failed, milliseconds] = numbers[..] else { panic!("{said}") };
    // The call comes to its end before.
    assert_eq!((cancelled, result, failed), (1, -i64::from(libc::ETIMEDOUT), 0), "{said}");
    assert!(milliseconds < 5000, "{said}");
}

#[test]
fn arguments_may_be_anywhere_and_names_anything() {
    let (prefix, place) = (Prefix::install("arguments"), Place::new());
    place.serve(|mut s| {
        loop {
            let request = request(&mut s)?;
            let unknown = |e: Entry| e.kind == TYPE_NAME && e.info.split(|b| *b == 0).next() != Some(ODD_NAME);
            if (0..).map_while(|i| Entry::read(&request, i)).any(unknown) {
                s.write_all(&refusal(&request, Status::Esrcaddr))?;
                continue;
            }
            let mut answer = any_answer(&request);
            if answer.len() == 16 + 80 + 2 * 64 {
                answer[160..164].copy_from_slice(ODD_NAME);
            }
            s.write_all(&answer)?;
        }
    });
    let output = command(&prefix, "arguments", &place).output().expect("timeout runs");
    assert!(output.status.success(), "{}: {}", output.status, said(&output));
}
