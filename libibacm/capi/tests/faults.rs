//! Every call of the C library against services that are dead, hung, slow, lying or restarting: each gives an error or
//! an answer within its time limit, and nothing is leaked.

#[path = "../../tests/support/mod.rs"]
mod services;
mod support;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ibacm_c as _;
use libibacm::{Client, Status};
use services::{Place, any_answer, refusal, request};
use support::{Prefix, VALGRIND, said};

/// What a call is to give: 0, a status, or a negative errno.
type Wanted = fn(call: &str, result: i32) -> bool;

/// A time limit that a service which answers keeps.
const ENOUGH: u64 = 8000;

/// One that is waited for, and in which a busy machine connects.
const SHORT: u64 = 300;

struct Case {
    name: &'static str,
    /// Milliseconds that a call may take.
    limit: u64,
    /// Rounds of calls without valgrind.
    rounds: u32,
    wanted: Wanted,
    /// Makes the service; what comes back is kept until the programs have ended.
    service: fn(&Place) -> Box<dyn Send>,
}

/// Only what asks the service without waiting can succeed there.
fn never(call: &str, result: i32, errno: i32) -> bool {
    result == if call == "left" { 0 } else { -errno }
}

/// Connecting is no trouble.
fn connected(call: &str, result: i32, errno: i32) -> bool {
    result == if call == "connect" { 0 } else { return never(call, result, errno) }
}

/// Answers everything, after `pause` before each byte.
fn slowly(mut s: UnixStream, pause: Duration) -> io::Result<()> {
    loop {
        for byte in any_answer(&request(&mut s)?) {
            thread::sleep(pause);
            s.write_all(&[byte])?;
        }
    }
}

/// Answers with what `lie` makes of the truth.
fn lying(mut s: UnixStream, lie: impl Fn(&mut Vec<u8>)) -> io::Result<()> {
    loop {
        let mut reply = any_answer(&request(&mut s)?);
        lie(&mut reply);
        s.write_all(&reply)?;
    }
}

fn noise(mut s: UnixStream) -> io::Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let mut reply = any_answer(&request(&mut s)?);
        for byte in &mut reply {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte ^= if state >> 60 == 0 { (state >> 40) as u8 } else { 0 };
        }
        s.write_all(&reply)?;
    }
}

fn cases() -> Vec<Case> {
    let case = |name, limit, rounds, wanted: Wanted, service| Case { name, limit, rounds, wanted, service };
    vec![
        case("healthy", ENOUGH, 40, |_, r| r == 0, |p| Box::new(p.serve(|s| lying(s, |_| {})))),
        case("refusing", ENOUGH, 40, refused, |p| Box::new(p.serve(refuse))),
        case("not there", ENOUGH, 40, |c, r| never(c, r, libc::ENOENT), |_| Box::new(())),
        case("dead", ENOUGH, 40, |c, r| never(c, r, libc::ECONNREFUSED), desert),
        case("hung", SHORT, 6, |c, r| connected(c, r, libc::ETIMEDOUT), |p| Box::new(p.serve(hang))),
        case("full", 100, 12, |c, r| never(c, r, libc::ETIMEDOUT), |p| Box::new(fill(p))),
        case("slow", ENOUGH, 6, |_, r| r == 0, |p| Box::new(p.serve(|s| slowly(s, Duration::from_micros(200))))),
        case(
            "too slow",
            SHORT,
            6,
            |c, r| connected(c, r, libc::ETIMEDOUT),
            |p| Box::new(p.serve(|s| slowly(s, Duration::from_millis(20)))),
        ),
        case("closing", ENOUGH, 20, |c, r| connected(c, r, libc::ECONNRESET), |p| Box::new(p.serve(close))),
        case("lying", ENOUGH, 40, lied_to, |p| Box::new(p.serve(|s| lying(s, |r| r[0] = 2)))),
        case("wrong answers", ENOUGH, 40, lied_to, |p| Box::new(p.serve(|s| lying(s, |r| r[14] ^= 1)))),
        case("noise", 100, 20, |_, _| true, |p| Box::new(p.serve(noise))),
        case("restarting", ENOUGH, 10, |_, r| r == 0, restart),
    ]
}

fn refused(call: &str, result: i32) -> bool {
    result == if ["left", "connect"].contains(&call) { 0 } else { Status::Enodata as i32 }
}

fn lied_to(call: &str, result: i32) -> bool {
    connected(call, result, libc::EPROTO)
}

fn refuse(mut s: UnixStream) -> io::Result<()> {
    loop {
        let refusal = refusal(&request(&mut s)?, Status::Enodata);
        s.write_all(&refusal)?;
    }
}

/// Reads and says nothing.
fn hang(mut s: UnixStream) -> io::Result<()> {
    while s.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

fn close(mut s: UnixStream) -> io::Result<()> {
    request(&mut s).map(drop)
}

/// A socket file that nobody listens at.
fn desert(place: &Place) -> Box<dyn Send> {
    Box::new(UnixListener::bind(&place.0).expect("the name is free").local_addr())
}

/// A listener whose queue is full.
fn fill(place: &Place) -> (UnixListener, Vec<Client>) {
    let listener = UnixListener::bind(&place.0).expect("the name is free");
    let mut queue = Vec::new();
    loop {
        let client = place.client().with_limit(Duration::from_millis(100));
        if client.connect().is_err() {
            return (listener, queue);
        }
        queue.push(client);
        assert!(queue.len() < 10_000, "the queue is bounded");
    }
}

/// Goes away in the middle of some request each time, and is back a moment later.
fn restart(place: &Place) -> Box<dyn Send> {
    let path = place.0.clone();
    let mut listener = UnixListener::bind(&path).expect("the name is free");
    thread::spawn(move || -> io::Result<()> {
        for life in 0_usize.. {
            let left = AtomicUsize::new(20 + life % 7);
            listener.set_nonblocking(true)?;
            thread::scope(|scope| -> io::Result<()> {
                let mut streams = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    match listener.accept() {
                        Ok((mut s, _)) => {
                            streams.push(s.try_clone()?);
                            let left = &left;
                            scope.spawn(move || -> io::Result<()> {
                                loop {
                                    let request = request(&mut s)?;
                                    // The last one has no answer.
                                    let count = |n: usize| n.checked_sub(1);
                                    if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).unwrap_or(0) > 1 {
                                        s.write_all(&any_answer(&request))?;
                                    }
                                }
                            });
                        }
                        Err(_) => thread::sleep(Duration::from_millis(1)),
                    }
                }
                streams.iter().try_for_each(|s| s.shutdown(Shutdown::Both).or(Ok(())))
            })?;
            drop(listener);
            std::fs::remove_file(&path)?;
            thread::sleep(Duration::from_millis(50));
            listener = UnixListener::bind(&path)?;
        }
        Ok(())
    });
    Box::new(())
}

/// Runs the program once, and looks at all that it says. A program under valgrind takes longer, and its memory is not
/// for it to count.
fn check(case: &Case, prefix: &Prefix, program: &std::path::Path, place: &Place, valgrind: bool) {
    let name = case.name;
    let mut command = Command::new("timeout");
    command.arg("100").args(VALGRIND.iter().filter(|_| valgrind)).arg(program).arg(&place.0);
    command.args([case.limit.to_string(), if valgrind { 2 } else { case.rounds }.to_string()]);
    let output = command.env("LD_LIBRARY_PATH", prefix.libraries()).output().expect("timeout runs");
    let said = said(&output);
    assert!(output.status.success(), "{name}, valgrind {valgrind}: {}: {said}", output.status);
    let slack = if valgrind { 4000 } else { 2000 };
    let mut calls = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [call, first, second] = words[..] else { panic!("{name}: {said}") };
        let (first, second): (i64, i64) = (first.parse().unwrap(), second.parse().unwrap());
        match call {
            "descriptors" => assert!(second <= first, "{name}: {line}"),
            "memory" if valgrind => {}
            "memory" => assert!(second <= first + 16_384, "{name}: {line}"),
            "convert" => assert_eq!(first, -i64::from(libc::ENODEV), "{name}: no device has this GUID"),
            _ => {
                let result = i32::try_from(first).unwrap();
                assert!((case.wanted)(call, result), "{name}, valgrind {valgrind}: {line}");
                assert!(second <= case.limit as i64 + slack, "{name}, valgrind {valgrind}: {line}");
                calls += 1;
            }
        }
    }
    assert!(calls >= 12, "{name}: {said}");
}

#[test]
fn every_call_ends_in_time_and_leaks_nothing() {
    let prefix = Prefix::install("faults");
    let program = prefix.build(&["cc", "-std=gnu11"], "libibacm/capi/tests/c/faults.c", "faults");
    let (prefix, program) = (&prefix, &program);
    thread::scope(|scope| {
        for case in cases() {
            scope.spawn(move || {
                let place = Place::new();
                let _kept = (case.service)(&place);
                for valgrind in [false, true] {
                    check(&case, prefix, program, &place, valgrind);
                }
            });
        }
    });
}
