//! A plug-in's two threads: one makes the calls into it, one tells it what came of its questions to the SA. The loop gives
//! them jobs and waits for neither.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use ibacm_wire::sa::SaMad;

use super::calls::{Calls, OpenedDevice};
use super::cancel::Uncancelled;
use super::core::{core, this_thread_is};
use super::handover::Jobs;
use super::load::Loaded;
use super::place::Place;
use super::registry::lock;
use super::tree::{Tree, Wanted};
use super::{Notice, abi};
use crate::engine::{AskId, Call, EpId, MadToken, PortId, ProviderId};
use crate::few::Few;
use crate::log;

/// Plug-ins are used to what a process's first thread has.
const STACK: usize = 8 << 20;

/// What is to be open at a plug-in.
pub(crate) type Wish = Few<PortId, Wanted<Arc<OpenedDevice>>>;

/// The end of a plug-in's question to the SA.
type MadEnd = (MadToken, Result<Box<SaMad>, i32>);

enum Job {
    /// What is to be open has changed.
    Changed,
    /// What could not be opened is to be tried again.
    Forgive,
    Ask {
        id: AskId,
        port: PortId,
        ep: EpId,
        call: Call,
    },
    Reregister(PortId),
}

/// What the loop and the call thread share.
#[derive(Default)]
struct Shared {
    wish: Mutex<Wish>,
    /// A job for the newest wish is queued already.
    changed: AtomicBool,
    /// Something could not be opened.
    failed: AtomicBool,
}

/// A plug-in at work.
pub struct Worker {
    name: String,
    shared: Arc<Shared>,
    jobs: Arc<Jobs<Job>>,
    mads: Arc<Jobs<MadEnd>>,
    /// Where the call thread is, and the other one.
    places: [Arc<Place>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Worker {
    /// Starts the threads of the provider with number `id`.
    ///
    /// # Errors
    /// The system makes no more threads.
    pub fn start(id: ProviderId, loaded: &Loaded) -> io::Result<Worker> {
        let (shared, jobs, mads) = (Arc::new(Shared::default()), Arc::new(Jobs::new()), Arc::new(Jobs::new()));
        let thread = |what: &str| thread::Builder::new().name(format!("{what}:{}", loaded.name)).stack_size(STACK);
        let (name, table) = (loaded.name.clone(), loaded.table);
        let places: [Arc<Place>; 2] = Default::default();
        let [calling, hearing] = places.clone();
        let answers = {
            let mads = Arc::clone(&mads);
            thread("sa").spawn(move || {
                this_thread_is(id);
                tell_answers(&mads, &hearing);
            })?
        };
        let calls = {
            let (shared, jobs, mads) = (Arc::clone(&shared), Arc::clone(&jobs), Arc::clone(&mads));
            thread("prov").spawn(move || {
                this_thread_is(id);
                let settle = Box::new(move |most| {
                    mads.wait_idle(most);
                });
                make_calls(&shared, &jobs, Calls::new(id, &name, table, calling, settle));
            })?
        };
        Ok(Worker { name: loaded.name.clone(), shared, jobs, mads, places, threads: vec![calls, answers] })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The call that the plug-in is in, and for how long it has been.
    pub fn place(&self) -> Option<(&'static str, Duration)> {
        self.places.iter().filter_map(|p| p.look()).max_by_key(|p| p.1)
    }

    /// What is to be open for `port` from now on.
    pub fn want(&self, port: PortId, wanted: Option<Wanted<Arc<OpenedDevice>>>) {
        {
            let mut wish = lock(&self.shared.wish);
            match wanted {
                Some(wanted) => drop(wish.insert(port, wanted)),
                None if wish.remove(port).is_none() => return,
                None => {}
            }
        }
        self.changed();
    }

    fn changed(&self) {
        if !self.shared.changed.swap(true, Ordering::AcqRel) {
            self.jobs.push(Job::Changed);
        }
    }

    /// Asks; what comes of it is a [`Notice`] with the id, unless nobody waits for it any more.
    pub fn ask(&self, id: AskId, port: PortId, ep: EpId, call: Call) {
        // of a plug-in that is blocked, clients may go on to ask and to leave
        let is_stale = |job: &Job| matches!(job, Job::Ask { id, .. } if !core().is_open(*id));
        self.jobs.push_sweeping(Job::Ask { id, port, ep, call }, is_stale);
    }

    /// The subnet manager wants all registrations once more.
    pub fn reregister(&self, port: PortId) {
        self.jobs.push(Job::Reregister(port));
    }

    /// Tells the plug-in how a question to the SA ended.
    pub fn mad_done(&self, token: MadToken, result: Result<Box<SaMad>, i32>) {
        self.mads.push((token, result));
    }

    /// Has what could not be opened tried again.
    pub fn forgive(&self) {
        if self.shared.failed.swap(false, Ordering::AcqRel) {
            self.jobs.push(Job::Forgive);
        }
    }

    /// Has everything closed, and no further calls made.
    pub fn close(&self) {
        mem::take(&mut *lock(&self.shared.wish));
        self.changed();
        self.jobs.close();
    }

    /// Waits until all is closed, but not past `until`: a plug-in that hangs ends with the process. Whether it has let go
    /// of everything.
    pub fn join(self, until: Instant) -> bool {
        for thread in &self.threads {
            while !thread.is_finished() {
                if Instant::now() >= until {
                    log!(0, "provider {} does not end", self.name);
                    return false;
                }
                thread::sleep(Duration::from_millis(2));
            }
            // after the calls, none of which waits for an answer any more
            self.mads.close();
        }
        true
    }
}

/// The call thread.
fn make_calls(shared: &Shared, jobs: &Jobs<Job>, mut calls: Calls) {
    let _uncancelled = Uncancelled::new();
    let mut tree = Tree::default();
    while let Some(job) = jobs.next() {
        match job {
            Job::Changed | Job::Forgive => {
                if matches!(job, Job::Forgive) {
                    tree.forgive();
                } else {
                    shared.changed.store(false, Ordering::Release);
                }
                let wish = lock(&shared.wish).clone();
                calls.begin();
                tree.become_(&mut calls, &wish);
                drop(wish);
                shared.failed.store(tree.has_failures(), Ordering::Release);
                core().notify(Notice::Closed);
            }
            Job::Reregister(port) => {
                if let Some(port) = tree.port(port) {
                    calls.reregister(port);
                }
            }
            // nobody waits for it any more
            Job::Ask { id, .. } if !core().is_open(id) => {}
            Job::Ask { id, port, ep, call: Call::Counters } => match tree.endpoint(port, ep) {
                Some(endpoint) => {
                    let values = calls.counters(endpoint);
                    if core().close_ask(id) {
                        core().notify(Notice::Counters { id, values });
                    }
                }
                None => refuse(id),
            },
            Job::Ask { id, port, ep, call } => {
                let is_query = matches!(call, Call::Query { .. });
                let (Call::Resolve { place, message } | Call::Query { place, message }) = call else { continue };
                let message = Box::new(abi::Message(*message));
                let address = tree.address(port, ep, place);
                if !address.is_some_and(|address| calls.ask(is_query, address, message, id)) {
                    refuse(id);
                }
            }
        }
    }
}

/// Unless the plug-in has answered already.
fn refuse(id: AskId) {
    if core().close_ask(id) {
        core().notify(Notice::Refused { id });
    }
}

/// The SA thread.
fn tell_answers(mads: &Jobs<MadEnd>, place: &Place) {
    let _uncancelled = Uncancelled::new();
    while let Some((token, result)) = mads.next() {
        if let Some(delivery) = core().mad_done(token, result) {
            let _inside = place.enter("a handler of a MAD");
            delivery.deliver();
        }
    }
}
