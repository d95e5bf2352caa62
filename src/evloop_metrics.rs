//! What the edges have counted, told to the engine; and the file of all numbers, if one is wanted.

use std::path::Path;

use ibacm_wire::client::More;

use super::Daemon;
use crate::metrics::{self, Gauges, Snapshot};
use crate::{log, rdma_nl};

impl Daemon {
    /// Says where the file of numbers is to be, if anywhere, and how often it is written, in seconds.
    pub fn set_metrics(&mut self, path: Option<&Path>, interval: u32) {
        if self.metrics.path() != path {
            // nobody is to take the numbers of a file that is left behind for those of now
            self.last_metrics();
        }
        self.metrics.set(self.now, path, interval);
    }

    /// Writes the file, if it is time.
    pub(super) fn metrics_turn(&mut self) {
        if self.metrics.next_deadline() <= self.now {
            self.write_metrics(true);
        }
    }

    /// Writes the file once more, as one of a service that is no longer.
    pub fn last_metrics(&mut self) {
        self.write_metrics(false);
    }

    fn write_metrics(&mut self, up: bool) {
        if self.metrics.path().is_none() {
            return;
        }
        self.observe();
        let (endpoints, groups, joined) = self.engine.summary();
        let gauges = Gauges {
            up,
            clients: self.server.clients() as u64,
            requests: self.server.active() as u64,
            questions: self.kernel.as_ref().map_or(0, |k| k.service().open()) as u64,
            endpoints: endpoints as u64,
            groups: (groups as u64, joined as u64),
            destinations: self.engine.destinations(),
        };
        let snapshot = Snapshot {
            counters: *self.engine.counters(),
            more: self.engine.more(),
            gauges,
            endpoints: self.engine.tallies().collect(),
        };
        self.metrics.write(self.now, &metrics::render(&snapshot));
    }

    /// Tells the engine what the edges have counted, so that clients can ask for it.
    pub(super) fn observe(&mut self) {
        let server = self.server.counters();
        let (suppressed, lost) = log::left_out();
        let (kernel, service) = self
            .kernel
            .as_ref()
            .map_or((rdma_nl::Counters::default(), Default::default()), |k| (k.counters(), k.service().counters()));
        let (routes, left_out) = self.rtnl.as_ref().map_or_else(Default::default, |r| (r.counters(), r.left_out()));
        let overruns = kernel.overruns + routes.overruns + self.neighbour_events.overruns();
        let dropped = kernel.foreign + kernel.truncated + service.malformed + routes.foreign + routes.malformed;
        for (counter, so_far) in [
            (More::NeighboursRefused, self.neighbours.refused()),
            (More::ClientsProtocol, server.closed_protocol),
            (More::ClientsUnfinished, server.closed_timeout),
            (More::ClientsSlow, server.closed_overflow),
            (More::ClientsPaused, server.paused),
            (More::ClientsHeld, server.held),
            (More::KernelLate, service.late),
            (More::KernelCrowded, service.crowded),
            (More::KernelUnsent, kernel.unsent),
            (More::NetlinkOverruns, overruns),
            (More::NetlinkDropped, dropped + left_out),
            (More::LogSuppressed, suppressed),
            (More::LogLost, lost),
        ] {
            self.engine.observe(counter, so_far);
        }
    }
}
