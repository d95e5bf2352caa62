//! Destinations that are not known yet.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::args::Args;
use crate::chart::{Axis, Chart};
use crate::client::{Client, Fleet, request};
use crate::lab::{HOST, Lab, address, nobody};
use crate::place::{Place, pinned};
use crate::report::{Figures, Report};
use crate::service::{Program, Service, in_turn};
use crate::stats::{median, percentile};

/// Look-ups before those that count.
const WARM: usize = 20;
/// Connections of a burst.
const CONNECTIONS: usize = 64;
/// Destinations of a burst.
const BURST: usize = 256;

/// Distinct destinations one after another. Client and service share a processor; the subnet has the other.
pub fn one_by_one(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let count = args.pick(1000, 50);
    let mut chart =
        Chart::new("cold", "Look-ups of destinations that are not known", Axis::log("us"), Axis::linear("share"));
    for (protocol, row) in [("sa", "cold_sa"), ("acm", "cold_acm")] {
        let mut figures = Figures::default();
        let mut all: [Vec<u64>; 3] = Default::default();
        for turn in 0..args.repeat {
            for program in in_turn(Program::SERVICES, turn) {
                let service = Service::start(lab, program, HOST, &format!("route_prot {protocol}\n"))?;
                let mut client = Client::connect(&service.socket)?;
                let mut times = pinned(Place::Service, || {
                    let mut times = Vec::with_capacity(count);
                    for i in 0..WARM + count {
                        let question = request(None, address(1 + i));
                        let begin = Instant::now();
                        client.must(&question)?;
                        if i >= WARM {
                            times.push(begin.elapsed().as_nanos() as u64);
                        }
                    }
                    Ok(times)
                })?;
                times.sort_unstable();
                figures.of(program).push(percentile(&times, 0.5) / 1e3);
                all[program as usize].extend(times);
            }
        }
        report.row(row, figures);
        for program in Program::SERVICES {
            let times = &mut all[program as usize];
            times.sort_unstable();
            let shares = (0..=100).map(|n| f64::from(n) / 100.0).chain([0.995, 0.999]);
            let mut points: Vec<(f64, f64)> = shares.map(|s| (percentile(times, s) / 1e3, s)).collect();
            points.sort_by(|a, b| a.1.total_cmp(&b.1));
            chart.series(&format!("{}, {protocol}", program.name()), points);
        }
    }
    report.chart(chart)
}

/// Many destinations at once, with the options that each service has of its own.
pub fn burst(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    lab.peers_answer_after(1)?;
    let mut figures = Figures::default();
    let mut chart = Chart::new("burst", "256 look-ups from 64 connections", Axis::log("ms"), Axis::linear("answered"));
    let mut courses: [Vec<Vec<f64>>; 3] = Default::default();
    for turn in 0..args.repeat {
        for program in in_turn(Program::SERVICES, turn) {
            let service = Service::start(lab, program, HOST, "")?;
            let mut fleet = Fleet::connect(&service.socket, CONNECTIONS)?;
            // Each connection has been accepted, and the choice of a source has been made once.
            fleet.burst(&vec![vec![request(None, address(0))]; CONNECTIONS])?;
            let each = BURST / CONNECTIONS;
            let requests: Vec<Vec<Vec<u8>>> = (0..CONNECTIONS)
                .map(|c| (0..each).map(|i| request(None, address(1 + c * each + i))).collect())
                .collect();
            let mut ends: Vec<f64> = fleet.burst(&requests)?.iter().map(|reply| reply.as_secs_f64() * 1e3).collect();
            ends.sort_by(f64::total_cmp);
            figures.of(program).push(ends.last().copied().unwrap_or(f64::NAN));
            courses[program as usize].push(ends);
        }
    }
    lab.peers_answer_after(0)?;
    report.row("burst_256", figures);
    for program in Program::SERVICES {
        let runs = &courses[program as usize];
        let nth = |n: usize| median(&runs.iter().filter_map(|r| r.get(n).copied()).collect::<Vec<_>>());
        chart.series(program.name(), (0..BURST).step_by(3).map(|n| (nth(n), (n + 1) as f64)).collect());
    }
    report.chart(chart)
}

/// Eight destinations that are asked for right after one that nobody answers for, and eight without it.
pub fn behind_dead(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    lab.peers_answer_after(1)?;
    let mut figures = Figures::default();
    let mut alone = Figures::default();
    for turn in 0..args.repeat {
        for program in in_turn(Program::SERVICES, turn) {
            let service = Service::start(lab, program, HOST, "")?;
            let mut fleet = Fleet::connect(&service.socket, 8)?;
            fleet.burst(&vec![vec![request(None, address(0))]; 8])?;
            let mut eight = |from: usize| -> Outcome<f64> {
                let requests: Vec<Vec<Vec<u8>>> = (0..8).map(|i| vec![request(None, address(from + i))]).collect();
                let ends = fleet.burst(&requests)?;
                Ok(ends.iter().max().map_or(f64::NAN, |end| end.as_secs_f64() * 1e3))
            };
            // Several, as one lasts hardly longer than a timer is exact.
            let times: Vec<f64> = (1..6).map(|n| eight(8 * n)).collect::<Outcome<_>>()?;
            let mut dead = Client::connect(&service.socket)?;
            dead.must(&request(None, address(0)))?;
            dead.send(&request(None, nobody(1)))?;
            // It is what the service reads first.
            std::thread::sleep(Duration::from_millis(5));
            alone.of(program).push(median(&times));
            figures.of(program).push(eight(100)?);
        }
    }
    lab.peers_answer_after(0)?;
    figures.other = alone.ours;
    report.row("behind_dead", figures);
    Ok(())
}
