//! More connections than most services take.

use crate::args::Args;
use crate::client::{Fleet, request};
use crate::lab::{HOST, Lab, OTHER, address};
use crate::report::{Figures, Report};
use crate::service::{Program, Service};
use crate::{Outcome, place};

use super::cached::flood;

/// Connections that are active.
const ACTIVE: usize = 64;

/// Throughput of 64 connections beside many that are idle, and without them.
pub fn connected(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let wanted = args.pick(20_000, 2_000);
    let all = wanted.min(place::connections()?);
    let idle = all.saturating_sub(ACTIVE + 1);
    let question = request(None, address(0));
    let mut figures = Figures::default();
    let floor = Service::start(lab, Program::Floor, HOST, "")?;
    let ours = Service::start(lab, Program::Ours, HOST, "")?;
    for _ in 0..args.repeat {
        for (program, service) in [(Program::Floor, &floor), (Program::Ours, &ours)] {
            let mut active = Fleet::connect(&service.socket, ACTIVE)?;
            let alone = flood(service, &mut active, &question, args.span())?.rate();
            let others = Fleet::connect(&service.socket, idle)?;
            // All are accepted when the last one is: it is answered.
            let mut last = Fleet::connect(&service.socket, 1)?;
            flood(service, &mut last, &question, args.span() / 10)?;
            let crowded = flood(service, &mut active, &question, args.span())?.rate();
            drop(others);
            figures.of(program).push(crowded);
            if program == Program::Ours {
                figures.other.push(alone);
            }
        }
    }
    if all < wanted {
        figures.note = Some(format!("{all} connections: more descriptors are not allowed here"));
    }
    figures.says = Some(stock(lab, &question)?);
    report.row("connected_20000", figures);
    Ok(())
}

/// What becomes of the distribution's service when its connections grow more and more.
fn stock(lab: &Lab, question: &[u8]) -> Outcome<String> {
    let mut service = Service::start(lab, Program::Stock, OTHER, "")?;
    let mut fleet = Fleet::new()?;
    for number in 0..2_000 {
        let answered = fleet.add(&service.socket).and_then(|()| fleet.ask_last(question));
        if answered.is_err() || !service.is_alive() {
            return Ok(format!("{} at {} connections", service.how_it_ended(), number + 1));
        }
    }
    Ok(format!("takes {}", fleet.len()))
}
