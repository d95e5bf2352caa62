//! Cached answers: latency, and throughput over connections and over what is outstanding.

use std::time::{Duration, Instant};

use crate::args::Args;
use crate::chart::{Axis, Chart};
use crate::client::{Client, Fleet, request};
use crate::lab::{HOST, Lab, OTHER, address};
use crate::place::{Place, pin, pinned};
use crate::report::{Figures, Report};
use crate::service::{Program, Service, in_turn};
use crate::stats::{median, percentile};
use crate::{Outcome, machine};

/// Each program, running. They are started anew for each repetition: where a program's memory comes to lie is chance.
struct All {
    floor: Service,
    ours: Service,
    stock: Service,
}

impl All {
    fn start(lab: &Lab) -> Outcome<All> {
        let floor = Service::start(lab, Program::Floor, HOST, "")?;
        let ours = Service::start(lab, Program::Ours, HOST, "")?;
        let stock = Service::start(lab, Program::Stock, OTHER, "")?;
        Ok(All { floor, ours, stock })
    }

    fn get(&self, program: Program) -> &Service {
        match program {
            Program::Floor => &self.floor,
            Program::Ours => &self.ours,
            Program::Stock => &self.stock,
        }
    }
}

/// Times of cached answers on one connection, one after another. Client and service share a processor, so that no
/// wake-up crosses from one to another.
pub fn latency(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let count = args.pick(100_000, 2_000);
    let question = request(None, address(0));
    let (mut p50, mut p999) = (Figures::default(), Figures::default());
    let mut all_times: [Vec<u64>; 3] = Default::default();
    for turn in 0..args.repeat {
        let all = All::start(lab)?;
        for program in in_turn(Program::ALL, turn) {
            let mut client = Client::connect(&all.get(program).socket)?;
            let mut times = Vec::with_capacity(count);
            pin(Place::Service)?;
            for i in 0..count + count / 10 {
                let begin = Instant::now();
                client.must(&question)?;
                if i >= count / 10 {
                    times.push(begin.elapsed().as_nanos() as u64);
                }
            }
            pin(Place::Others)?;
            times.sort_unstable();
            p50.of(program).push(percentile(&times, 0.5) / 1e3);
            p999.of(program).push(percentile(&times, 0.999) / 1e3);
            all_times[program as usize].extend(times);
        }
    }
    report.row("cached_p50", p50);
    report.row("cached_p999", p999);
    let mut chart = Chart::new("latency", "Cached answers, one connection", Axis::shares(), Axis::log("us"));
    for program in Program::ALL {
        let times = &mut all_times[program as usize];
        times.sort_unstable();
        let points = Axis::SHARES.iter().map(|&share| (share, percentile(times, share) / 1e3));
        chart.series(program.name(), points.collect());
    }
    report.chart(chart)
}

/// The programs take turns so often within a repetition: the machine is faster at one time and slower at another.
const SLICES: u32 = 10;

/// Answers a second. The service has a processor to itself, the client the others: what is measured is what the service
/// can do, not what it leaves to the client.
pub fn throughput(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let counts: &[usize] = args.pick(&[1, 4, 16, 64, 256, 1000], &[1, 64, 1000]);
    let question = request(None, address(0));
    let mut chart = Chart::new("connections", "Cached answers a second", Axis::log("connections"), Axis::linear("1/s"));
    let mut cost = Chart::new(
        "processor",
        "Processor time of the service for a cached answer",
        Axis::log("connections"),
        Axis::linear("us"),
    );
    let mut rates: Vec<Figures> = counts.iter().map(|_| Figures::default()).collect();
    let mut costs: Vec<Figures> = counts.iter().map(|_| Figures::default()).collect();
    for turn in 0..args.repeat {
        let all = All::start(lab)?;
        for (at, &count) in counts.iter().enumerate() {
            let mut sums = [Flood::default(); 3];
            for slice in 0..SLICES {
                for program in in_turn(Program::ALL, turn + at + slice as usize) {
                    // connected anew, as where the kernel's memory of a connection comes to lie is chance, too
                    let mut fleet = Fleet::connect(&all.get(program).socket, count)?;
                    let sum = &mut sums[program as usize];
                    sum.add(flood(all.get(program), &mut fleet, &question, args.span() / SLICES)?);
                }
            }
            for (program, sum) in Program::ALL.into_iter().zip(sums) {
                rates[at].of(program).push(sum.rate());
                costs[at].of(program).push(sum.cost());
            }
        }
    }
    for program in Program::ALL {
        let points = |figures: &[Figures]| {
            counts.iter().zip(figures).map(|(&n, f)| (n as f64, median(f.get(program)))).collect::<Vec<_>>()
        };
        chart.series(program.name(), points(&rates));
        cost.series(program.name(), points(&costs));
    }
    for (&count, figures) in counts.iter().zip(rates) {
        match count {
            64 => report.row("throughput_64", figures),
            1000 => report.row("throughput_1000", figures),
            _ => {}
        }
    }
    report.chart(chart)?;
    report.chart(cost)
}

/// What a fleet was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flood {
    answers: f64,
    /// In so many seconds.
    time: f64,
    /// In so many microseconds of the service's processor time.
    used: f64,
}

impl Flood {
    fn add(&mut self, more: Flood) {
        self.answers += more.answers;
        self.time += more.time;
        self.used += more.used;
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.answers / self.time
    }

    /// Microseconds of the service's processor time for an answer.
    fn cost(&self) -> f64 {
        self.used / self.answers
    }
}

/// Answers on all connections of a fleet in this time.
pub fn flood(service: &Service, fleet: &mut Fleet, question: &[u8], span: Duration) -> Outcome<Flood> {
    let mut before = 0;
    let (count, time) = fleet.flood(question, span, || {
        before = machine::processor_time(service.pid()).unwrap_or(0);
    })?;
    let used = machine::processor_time(service.pid())?.saturating_sub(before);
    Ok(Flood { answers: count as f64, time: time.as_secs_f64(), used: used as f64 / 1e3 })
}

/// Answers a second on one connection on which more than one request is outstanding. Client and service share a
/// processor here too.
pub fn pipeline(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let depths: &[usize] = args.pick(&[1, 2, 4, 8, 16, 32, 64], &[1, 32]);
    let question = request(None, address(0));
    let mut chart =
        Chart::new("depth", "Cached answers a second, one connection", Axis::log("outstanding"), Axis::linear("1/s"));
    let mut figures: Vec<Figures> = depths.iter().map(|_| Figures::default()).collect();
    let mut said = None;
    for turn in 0..args.repeat {
        let mut all = All::start(lab)?;
        for (at, &depth) in depths.iter().enumerate() {
            for program in in_turn(Program::ALL, turn) {
                if program == Program::Stock && said.is_some() {
                    continue;
                }
                let service = all.get(program);
                match pinned(Place::Service, || outstanding(service, &question, depth, args.span())) {
                    Ok(rate) => figures[at].of(program).push(rate),
                    Err(_) if program == Program::Stock => {
                        said = Some(format!("{} at {depth} outstanding", all.stock.how_it_ended()));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
    }
    for program in Program::ALL {
        let points = depths.iter().zip(&figures).filter(|(_, f)| !f.get(program).is_empty());
        chart.series(program.name(), points.map(|(&d, f)| (d as f64, median(f.get(program)))).collect());
    }
    let one = figures.first().map(|f| f.floor.clone()).unwrap_or_default();
    let at_32 = depths.iter().position(|&d| d == 32).map(|at| figures.swap_remove(at)).unwrap_or_default();
    let stock = if at_32.stock.is_empty() { said } else { None };
    report.row("pipelined_32", Figures { floor: one, says: stock, ..at_32 });
    report.chart(chart)
}

fn outstanding(service: &Service, question: &[u8], depth: usize, span: Duration) -> Outcome<f64> {
    let mut client = Client::connect(&service.socket)?;
    let length = client.must(question)?;
    let questions = question.repeat(depth);
    client.send(&questions)?;
    let (mut begun, mut bytes, mut count, mut open) = (None::<Instant>, 0, 0u64, depth);
    let start = Instant::now();
    loop {
        bytes += client.read()?;
        let whole = bytes / length;
        bytes %= length;
        count += whole as u64;
        open -= whole.min(open);
        let now = Instant::now();
        match begun {
            None if now - start >= span / 4 => (begun, count) = (Some(now), 0),
            Some(at) if now - at >= span => return Ok(count as f64 / (now - at).as_secs_f64()),
            _ => {}
        }
        // As many as have been answered, so that there are always as many under way.
        client.send(&questions[..question.len() * (depth - open)])?;
        open = depth;
    }
}
