//! The service as a process: its start, its memory, its sleep.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::client::{Fleet, request};
use crate::lab::{ADDRESSES, HOST, Lab, OTHER, address};
use crate::report::{Figures, Report};
use crate::service::{Program, Service, in_turn};
use crate::{Outcome, machine, startup};

/// From the first instruction to the first answer, then what the process takes when it has come to rest.
pub fn start(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let (mut times, mut memory, mut threads) = (Figures::default(), Figures::default(), Figures::default());
    // The first start of all reads the program from the disk.
    for program in Program::SERVICES {
        startup::measure(lab, program, "", None)?;
    }
    for turn in 0..args.repeat {
        for program in in_turn(Program::SERVICES, turn) {
            let start = startup::measure(lab, program, "", None)?;
            times.of(program).push(start.answered);
            memory.of(program).push(start.memory);
            threads.of(program).push(start.threads);
        }
    }
    report.row("start", times);
    report.row("idle_rss", memory);
    report.row("idle_threads", threads);
    Ok(())
}

/// How often one looks whether a service has been awake.
const LOOK: Duration = Duration::from_millis(10);

/// Both at once do nothing on a host of their own.
///
/// What the subnet's library does in a service's name waits for answers of another process, which real devices don't. So
/// a wake-up is a time in which there were some, however many: the service was asleep before and after it.
pub fn idle(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let span = args.pick(Duration::from_secs(60), Duration::from_secs(1));
    let services = [
        (Program::Ours, Service::start(lab, Program::Ours, HOST, "")?),
        (Program::Stock, Service::start(lab, Program::Stock, OTHER, "")?),
    ];
    // Until all that a start leaves to do is done.
    std::thread::sleep(args.pick(Duration::from_secs(12), Duration::from_millis(300)));
    let begin = Instant::now();
    let first: Vec<u64> = services.iter().map(|(_, s)| machine::sleeps(s.pid())).collect::<Outcome<_>>()?;
    let (mut last, mut awake, mut woken) = (first.clone(), vec![false; first.len()], vec![0; first.len()]);
    while begin.elapsed() < span {
        std::thread::sleep(LOOK);
        for (at, (_, service)) in services.iter().enumerate() {
            let now = machine::sleeps(service.pid())?;
            let moved = std::mem::replace(&mut last[at], now) != now;
            woken[at] += u32::from(moved && !std::mem::replace(&mut awake[at], moved));
            awake[at] = moved;
        }
    }
    let minute = 60.0 / begin.elapsed().as_secs_f64();
    let mut figures = Figures::default();
    for (at, (program, _)) in services.iter().enumerate() {
        figures.of(*program).push((f64::from(woken[at]) * minute).round());
    }
    let switches: Vec<u64> = last.iter().zip(&first).map(|(now, before)| now - before).collect();
    figures.note = Some(format!("context switches in that time, ours and stock: {switches:?}"));
    report.row("idle_wakeups", figures);
    Ok(())
}

/// What memory grows by when thousands of destinations become known.
pub fn memory(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    const WARM: usize = 200;
    const CONNECTIONS: usize = 16;
    let count = args.pick(20_000, 1_000).min(ADDRESSES - WARM);
    let mut figures = Figures::default();
    for turn in 0..args.repeat {
        for program in in_turn(Program::SERVICES, turn) {
            let service = Service::start(lab, program, HOST, "route_prot acm\n")?;
            let mut fleet = Fleet::connect(&service.socket, CONNECTIONS)?;
            let mut look_up = |from: usize, count: usize| {
                let of = |c: usize| (from + c..from + count).step_by(CONNECTIONS).map(|n| request(None, address(n)));
                fleet.burst(&(0..CONNECTIONS).map(|c| of(c).collect()).collect::<Vec<_>>()).map(drop)
            };
            look_up(0, WARM)?;
            let before = service.memory()?;
            look_up(WARM, count)?;
            figures.of(program).push((service.memory()? - before) * 1024.0 / count as f64);
        }
    }
    report.row("destination_bytes", figures);
    Ok(())
}

/// A dump of this many LIDs in which only the host's own paths are written out: each other port has its header.
fn dump(lab: &Lab, count: u16) -> Outcome<String> {
    let own = lab.subnet.port(HOST)?;
    let mut text = String::new();
    let header = |text: &mut String, guid: u64, lid: u16| {
        writeln!(text, "Channel Adapter {guid:#018x}, base LID {lid}, \"node{lid} HCA-1\", port 1")?;
        writeln!(text, "# LID  : SL : MTU : RATE")
    };
    header(&mut text, own.guid, own.lid)?;
    for lid in 1..=count {
        writeln!(text, "0x{lid:04X} : {:<2} : {:<3} : {:<4}", 0, 5, 7)?;
    }
    for lid in (1..=count).filter(|&lid| lid != own.lid) {
        header(&mut text, 0x0002_c903_0000_0000 + u64::from(lid), lid)?;
    }
    Ok(text)
}

/// How much longer a start takes, and how much more memory, with paths from OpenSM's dump.
pub fn preload(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    const OPTIONS: &str = "route_preload opensm_full_v1\nroute_data_file /etc/rdma/ibacm_route.data\n";
    let sizes: [(u16, &str, &str); 2] =
        [(10_000, "preload_10000_time", "preload_10000_rss"), (48_000, "preload_48000_time", "preload_48000_rss")];
    let mut rows: BTreeMap<&str, Figures> = BTreeMap::new();
    for (count, time_row, memory_row) in sizes {
        fs::write(lab.subnet.file(HOST, "/etc/rdma/ibacm_route.data"), dump(lab, count)?)?;
        for turn in 0..args.repeat {
            for program in in_turn(Program::SERVICES, turn) {
                let without = startup::measure(lab, program, "", None)?;
                let with = startup::measure(lab, program, OPTIONS, Some(count))?;
                rows.entry(time_row).or_default().of(program).push(with.known - without.answered);
                rows.entry(memory_row).or_default().of(program).push(with.memory - without.memory);
            }
        }
    }
    rows.into_iter().for_each(|(row, figures)| report.row(row, figures));
    Ok(())
}
