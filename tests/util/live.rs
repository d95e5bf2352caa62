//! Twenty clients resolve all the time, while what they resolve changes; and it is known what is right.
//!
//! The rule, for each change: who asks for what the change does not touch never sees a failure or a wrong path; what
//! it touches may fail for a while, but a path that is answered was right before or is right now; and a second after
//! the fabric has settled no wrong path is answered any more. No client loses its connection or waits longer than its
//! time limit. How long each took is written down.
#![allow(dead_code, reason = "each test program uses a part of it")]

#[path = "live/ask.rs"]
pub mod ask;
#[path = "live/chaos.rs"]
pub mod chaos;
#[path = "live/hosts.rs"]
pub mod hosts;
#[path = "live/report.rs"]
pub mod report;
#[path = "live/world.rs"]
pub mod world;

use std::path::Path;
use std::time::{Duration, Instant};

use fabric::Options;

use super::util::{Daemon, Lab, Program, Shared, wait_for};
use ask::{Answer, Clients, Outcome};
use report::Row;
use world::{Place, Topic, World};

/// Clients that ask at a time.
const CLIENTS: usize = 20;
/// After a change has settled, nobody may be told the old path for longer, where the machine is not busy.
const GRACE: Duration = Duration::from_secs(1);
/// A change is looked at for so long at least.
const LEAST: Duration = Duration::from_millis(1200);
/// As long as all answers have to have been right before a change counts as over.
const QUIET: Duration = Duration::from_secs(1);
/// A busy machine has as much more time as this many answers have taken that it need not have been late with.
const LATE: u32 = 4;

/// Three hosts with two devices each, two partitions, and a place for a second subnet manager.
pub fn build(o: &mut Options) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-partitions-{}", std::process::id()));
    let text = "Default=0x7fff,ipoib:ALL=full;\nRed=0x0123:ALL=full;\nBlue=0x0222:ALL=full;\n";
    std::fs::write(&file, text).expect("it can be written");
    o.partitions = Some(file);
    (o.hosts, o.hcas, o.second_manager) = (3, 2, true);
}

/// Which service serves the hosts: `LIVE_PROGRAM=stock` is the distribution's, which is looked at and not judged.
pub fn program() -> Program {
    match std::env::var("LIVE_PROGRAM").as_deref() {
        Ok("stock") => Program::Stock,
        _ => Program::Ours,
    }
}

/// What a change may disturb, beside what it makes different.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// Everything from and to these ports.
    pub ports: &'static [Place],
    /// Everything that only the SA can answer.
    pub sa: bool,
    /// How long after the change it may take until what is right is answered; usual if zero.
    pub within: Duration,
    /// How long after the change a wrong path may be answered; usual if zero.
    pub wrong: Duration,
}

impl Touch {
    /// Nothing beside what becomes different.
    pub const NOTHING: Touch = Touch { ports: &[], sa: false, within: Duration::ZERO, wrong: Duration::ZERO };
    /// What needs the SA.
    pub const SA: Touch = Touch { sa: true, ..Touch::NOTHING };

    /// What these ports have to do with.
    pub const fn ports(ports: &'static [Place]) -> Touch {
        Touch { ports, ..Touch::NOTHING }
    }
}

/// Hosts with services, and clients that ask the one on `H1`.
pub struct Live<'a> {
    pub world: World,
    pub program: Program,
    // These end in this order.
    clients: Clients,
    daemons: [Option<Daemon>; 3],
    pub lab: Lab<'a>,
    topics: Vec<Topic>,
    rows: Vec<Row>,
    /// The longest that somebody had to wait for what no change has touched: how busy the machine is.
    pace: Duration,
    wrongs: Vec<String>,
}

/// What was found wrong, and the first instances of it.
const SHOWN: usize = 6;

impl<'a> Live<'a> {
    /// Starts services and clients on a subnet as it was at first.
    pub fn start(shared: &'a Shared) -> Live<'a> {
        let lab = shared.enter();
        let world = hosts::restore(&lab);
        let program = program();
        let daemons = [1, 2, 3].map(|n| Some(hosts::serve(&lab, program, n)));
        let topics = hosts::topics();
        let socket = lab.file("H1", "/run/ibacm-unix.sock");
        let clients = Clients::start(CLIENTS, socket, topics.clone(), world.clone());
        let (rows, pace, wrongs) = (Vec::new(), Duration::ZERO, Vec::new());
        let live = Live { lab, world, program, clients, daemons, topics, rows, pace, wrongs };
        // All is well before anything changes.
        live.settled(Instant::now(), Duration::from_secs(10));
        let begun = live.clients.take();
        let recent = || begun.iter().rev().take(50);
        let well = recent().filter(|a| live.is_right(a)).count();
        let bad = recent().find(|a| !live.is_right(a));
        assert!(well >= 45 || program == Program::Stock, "it does not answer well to begin with: {bad:#?}");
        live
    }

    /// The service of host `H<n>`.
    pub fn daemon(&mut self, n: usize) -> &mut Daemon {
        self.daemons[n - 1].as_mut().expect("it is started")
    }

    /// Ends the service of a host without a word.
    pub fn kill(&mut self, n: usize) {
        let daemon = self.daemons[n - 1].take().expect("it is started");
        daemon.signal("KILL");
        daemon.wait();
    }

    /// Starts the service of a host (again).
    pub fn serve(&mut self, n: usize) {
        if let Some(mut old) = self.daemons[n - 1].take()
            && old.is_alive()
        {
            old.stop();
        }
        self.daemons[n - 1] = Some(hosts::serve(&self.lab, self.program, n));
    }

    /// Starts the service of a host anew, with its clients looking on; what they see of it is no part of a change.
    pub fn restart(&mut self, n: usize) {
        self.serve(n);
        self.world.look(&self.lab);
        self.clients.show(&self.world);
        let well = self.settled(Instant::now(), Duration::from_secs(10));
        assert!(well || self.program == Program::Stock, "host {n} does not serve well");
    }

    /// Asks about this too from now on.
    pub fn also(&mut self, topic: Topic) {
        self.topics.push(topic);
        self.clients.set_topics(self.topics.clone());
    }

    /// Asks about this no more.
    pub fn no_longer(&mut self, topic: Topic) {
        self.topics.retain(|t| *t != topic);
        self.clients.set_topics(self.topics.clone());
    }

    fn is_right(&self, answer: &Answer) -> bool {
        let right = self.world.right(&answer.question);
        match answer.outcome {
            Outcome::Path(ends) => right.paths.contains(&ends),
            Outcome::Failed(_) => !right.must,
            Outcome::Closed | Outcome::Hung => false,
        }
    }

    /// Waits until all answers to questions since `from` are right for a while, or for as long as this.
    fn settled(&self, from: Instant, patience: Duration) -> bool {
        // The other one has everybody wait for a failure, so that it comes late.
        let quiet = if self.program == Program::Ours { QUIET } else { QUIET * 4 };
        let well = |answers: &[Answer]| {
            let end = Instant::now();
            let recent = answers.iter().rev().take_while(|a| a.came() > end - quiet);
            recent.clone().count() > 20 && recent.clone().all(|a| a.asked < from || self.is_right(a))
        };
        let calm = || from.elapsed() > quiet && self.clients.with(well);
        wait_for(patience, || calm().then_some(())).is_some()
    }

    /// Makes a change, which comes back when the fabric has settled, and watches what becomes of it.
    pub fn change(&mut self, name: &'static str, touch: Touch, make: impl FnOnce(&mut Live<'a>)) {
        // What came since the last change belongs to that one.
        let before = self.world.clone();
        self.clients.take();
        let begin = Instant::now();
        make(self);
        self.world.look(&self.lab);
        self.clients.show(&self.world);
        let settled = Instant::now();
        std::thread::sleep(LEAST);
        let within = if touch.within.is_zero() { Duration::from_secs(6) } else { touch.within };
        let well = self.settled(settled, within.saturating_sub(LEAST) + LATE * self.pace);
        let answers = self.clients.take();
        self.pace = self.pace.max(report::pace(&answers, (&before, &self.world), &touch));
        let wrong = if touch.wrong.is_zero() { GRACE } else { touch.wrong } + LATE * self.pace;
        let row = report::judge(&answers, (&before, &self.world), &touch, (begin, settled, settled + wrong));
        self.finish_change(name, row, well);
    }

    fn finish_change(&mut self, name: &'static str, judged: (Row, Vec<String>), well: bool) {
        let (mut row, mut wrongs) = judged;
        row.name = name;
        let alive = self.daemon(1).is_alive();
        if !alive {
            row.notes.push("it has ended".into());
        } else if !well {
            row.notes.push("it does not recover".into());
        }
        if self.program == Program::Ours {
            if !well {
                let late = self.clients.with(|all| all.iter().rev().find(|a| !self.is_right(a)).copied());
                wrongs.push(format!("not all answers are right in the end: {late:?}"));
            }
            assert!(alive, "{name}: the service has ended: {}", self.daemon(1).said());
            let many = wrongs.len();
            self.wrongs.extend(wrongs.into_iter().take(SHOWN).map(|w| format!("{name}: {w}")));
            if many > SHOWN {
                self.wrongs.push(format!("{name}: {} more", many - SHOWN));
            }
        } else if !alive || !well {
            // Each change is looked at by itself.
            for n in [1, 2, 3] {
                self.serve(n);
            }
            self.settled(Instant::now(), Duration::from_secs(10));
        }
        eprintln!("{row}");
        self.rows.push(row);
    }

    /// Waits until everything is answered rightly again; what was not answered at all meanwhile.
    pub fn recovers(&mut self, patience: Duration) -> Result<Vec<Answer>, String> {
        let well = self.settled(Instant::now(), patience);
        let bad = self.clients.with(|all| all.iter().rev().find(|a| !self.is_right(a)).copied());
        let lost = self.clients.take().into_iter().filter(|a| matches!(a.outcome, Outcome::Closed | Outcome::Hung));
        if well { Ok(lost.collect()) } else { Err(format!("not all answers are right: {bad:?}")) }
    }

    /// Nobody asks any more.
    pub fn quiet(&mut self) {
        self.clients.stop();
    }

    /// Shows clients the fabric as it is now.
    pub fn look(&mut self) {
        self.world.look(&self.lab);
        self.clients.show(&self.world);
    }

    /// Ends it, with a table of what was seen; panics if a rule was broken.
    pub fn finish(mut self) {
        report::write(self.program, &self.rows);
        self.clients.stop();
        let lost = |a: &Answer| matches!(a.outcome, Outcome::Closed | Outcome::Hung);
        if self.program == Program::Ours {
            self.wrongs.extend(self.clients.take().iter().filter(|a| lost(a)).map(|a| format!("no answer: {a:?}")));
        }
        let wrongs = std::mem::take(&mut self.wrongs);
        assert!(wrongs.is_empty(), "{}\n{}", wrongs.join("\n"), self.daemon(1).said());
    }
}
