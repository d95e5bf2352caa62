//! Plug-ins in the loop: what the engine wants of them goes to their threads, what comes from those goes to the engine.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use mio::{Token, Waker};

use super::Daemon;
use crate::engine::{AskId, Call, EpId, MadToken, PortId, ProviderId};
use crate::provider::Notice;
use crate::provider::calls::OpenedDevice;
use crate::provider::core::core;
use crate::provider::load::Loaded;
use crate::provider::tree::Wanted;
use crate::provider::worker::Worker;
use crate::token::{self, kind};
use crate::verbs::Context;
use ibacm_wire::sa::SaMad;

/// What plug-ins may hand over in one turn.
const SHARE: usize = 256;
/// How long plug-ins may take to close what they have open when the service ends.
const CLOSE: Duration = Duration::from_secs(2);

/// Who is in one call for less than this is not the one who is waited for.
const BUSY: Duration = Duration::from_secs(1);

/// A time for people.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, tenths) = (self.0.as_secs(), self.0.subsec_millis() / 100);
        if s < 10 && tenths > 0 { write!(f, "{s}.{tenths} s") } else { write!(f, "{s} s") }
    }
}

/// Plug-ins at work.
#[derive(Default)]
pub(super) struct Providers {
    /// In the order of the engine's numbers.
    workers: Vec<Worker>,
    /// What has come and has not been looked at.
    notices: VecDeque<Notice>,
    /// Devices that a plug-in has been told of. They stay open until it has let go of them.
    held: Vec<(Arc<OpenedDevice>, Rc<Context>)>,
}

impl Providers {
    fn worker(&self, provider: ProviderId) -> Option<&Worker> {
        self.workers.get(usize::from(provider.0))
    }

    fn hold(&mut self, context: &Rc<Context>) -> Arc<OpenedDevice> {
        if let Some((device, _)) = self.held.iter().find(|h| Rc::ptr_eq(&h.1, context)) {
            return Arc::clone(device);
        }
        let device = Arc::new(OpenedDevice::new(context.as_ptr(), context.guid(), context.name()));
        self.held.push((Arc::clone(&device), Rc::clone(context)));
        device
    }
}

impl Daemon {
    /// Puts plug-ins to work, in the order of the engine's numbers; before any device is opened.
    ///
    /// # Errors
    /// The system makes no more threads or descriptors.
    pub fn start_providers(&mut self, loaded: &[Loaded]) -> io::Result<()> {
        if loaded.is_empty() {
            return Ok(());
        }
        core().set_names(loaded.iter().map(|l| l.name.clone()).collect());
        core().set_waker(Waker::new(self.poll.registry(), token::pack(kind::WAKER, 0, 0))?);
        for (number, loaded) in (0..).zip(loaded) {
            self.providers.workers.push(Worker::start(ProviderId(number), loaded)?);
        }
        Ok(())
    }

    /// Has plug-ins close what they have open, since the service ends.
    pub fn stop_providers(&mut self) {
        if self.providers.workers.is_empty() {
            return;
        }
        // a plug-in that waits for the SA is told that there will be no answer
        self.refuse_the_rest();
        let workers = std::mem::take(&mut self.providers.workers);
        workers.iter().for_each(Worker::close);
        let until = Instant::now() + CLOSE;
        let ended: Vec<bool> = workers.into_iter().map(|w| w.join(until)).collect();
        if ended.contains(&false) {
            // it may be in the middle of using them
            std::mem::forget(std::mem::take(&mut self.providers.held));
        }
    }

    /// What is to be open for a port has changed.
    pub(super) fn plugged(&mut self, port: PortId) {
        if self.providers.workers.is_empty() {
            return;
        }
        let place = self.ports.get(&port).and_then(|at| self.devices.get(at.0)?.as_ref());
        let context = place.map(|device| Rc::clone(device.ud.context()));
        let plugged = self.engine.plugged(port).zip(context);
        let provider = plugged.as_ref().map(|(p, _)| p.provider);
        let mut wanted = plugged.map(|(p, context)| Wanted {
            device: self.providers.hold(&context),
            port: p.port,
            generation: p.generation,
            gids: p.gids,
            endpoints: p.endpoints,
        });
        // whoever had it before has to let go of it
        for (number, worker) in (0..).zip(&self.providers.workers) {
            worker.want(port, wanted.take_if(|_| provider == Some(ProviderId(number))));
        }
        // a plug-in that is blocked says nothing of devices that come and go meanwhile
        self.let_go();
    }

    /// Asks a plug-in.
    pub(super) fn ask_provider(&mut self, provider: ProviderId, port: PortId, ep: EpId, id: AskId, call: Call) {
        match self.providers.worker(provider) {
            Some(worker) => {
                core().open_ask(id, provider);
                worker.ask(id, port, ep, call);
            }
            None => self.engine.provider_refused(self.now, id),
        }
    }

    /// Says that a plug-in has not answered in time, and where it is.
    pub(super) fn provider_late(&self, provider: ProviderId, function: &'static str, waited: Duration) {
        let Some(worker) = self.providers.worker(provider) else { return };
        let name = worker.name();
        match worker.place().filter(|at| at.1 >= waited.min(BUSY)) {
            Some((call, time)) => {
                crate::log_keyed!(
                    0,
                    (provider, call),
                    "provider {name}: in {call} for {}, and answers nothing meanwhile",
                    Seconds(time)
                );
            }
            None => crate::log_keyed!(
                0,
                (provider, function),
                "provider {name}: no answer to {function} for {}",
                Seconds(waited)
            ),
        }
    }

    /// Tells a plug-in that the subnet manager wants all registrations once more.
    pub(super) fn reregister_provider(&mut self, provider: ProviderId, port: PortId) {
        if let Some(worker) = self.providers.worker(provider) {
            worker.reregister(port);
        }
    }

    /// Tells a plug-in how its question to the SA ended.
    pub(super) fn mad_done(&mut self, token: MadToken, result: Result<Box<SaMad>, i32>) {
        let worker = core().mad_provider(token).and_then(|p| self.providers.worker(p));
        if let Some(worker) = worker {
            worker.mad_done(token, result);
        }
    }

    /// Whether there are plug-ins; what they have counted since the last time is in the engine's counters then.
    pub(super) fn count_for_providers(&mut self) {
        if !self.providers.workers.is_empty()
            && let Some(counts) = core().take_counts()
        {
            self.engine.add_counts(&counts);
        }
    }

    /// Has plug-ins try again what they could not open.
    pub(super) fn forgive_providers(&self) {
        self.providers.workers.iter().for_each(Worker::forgive);
    }

    /// Plug-ins have something to say.
    pub(super) fn provider_notices(&mut self, token: Token) {
        core().take_notices(&mut self.providers.notices);
        for _ in 0..SHARE {
            let Some(notice) = self.providers.notices.pop_front() else { return };
            match notice {
                Notice::Answer { id, message } => self.engine.provider_answered(self.now, id, &message.0),
                Notice::Counters { id, values } => self.engine.provider_counters(self.now, id, &values),
                Notice::Refused { id } => self.engine.provider_refused(self.now, id),
                Notice::Mad { token, ep, mad } => self.engine.provider_mad(self.now, ep, token, &mad),
                Notice::Closed => self.let_go(),
            }
        }
        self.again.push_back(token);
    }

    /// Closes devices that no plug-in has open, and that none is to have.
    fn let_go(&mut self) {
        let open = |context: &Rc<Context>| self.devices.iter().flatten().any(|d| Rc::ptr_eq(d.ud.context(), context));
        self.providers.held.retain(|(device, context)| Arc::strong_count(device) > 1 || open(context));
    }
}
