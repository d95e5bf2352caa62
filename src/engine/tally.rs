//! What is counted, and how things are at the moment: for clients that ask, and for whoever writes it down.

use ibacm_wire::client::{COUNTERS, Counter, MORE, More, Status};

use super::Engine;
use super::action::{EpId, PortId};

/// What an endpoint has counted.
#[derive(Clone, Debug)]
pub struct EndpointTally {
    /// The device's name.
    pub device: String,
    /// The port's number.
    pub port: u8,
    /// As in the port's table.
    pub pkey: u16,
    /// In the order of [`Counter`].
    pub counters: [u64; COUNTERS],
    /// In the order of [`More`].
    pub more: [u64; MORE],
    /// Destinations that are known.
    pub destinations: u64,
}

impl Engine {
    /// The totals, in the order of [`Counter`].
    pub fn counters(&self) -> &[u64; COUNTERS] {
        &self.counters
    }

    /// The totals, in the order of [`More`].
    pub fn more(&self) -> [u64; MORE] {
        let mut more = self.more;
        let subscribed = (0..self.ports.len() as u32).filter(|i| self.is_subscribed(PortId(*i))).count();
        more[More::NoticesSubscribed as usize] = subscribed as u64;
        more[More::CacheEvicted as usize] = self.eps.iter().map(|e| e.cache.evicted()).sum();
        more
    }

    /// Those of an endpoint.
    pub(super) fn more_of(&self, ep: EpId) -> [u64; MORE] {
        let e = &self.eps[ep.0 as usize];
        let mut more = e.more;
        more[More::NoticesSubscribed as usize] = u64::from(self.is_subscribed(e.port));
        more[More::CacheEvicted as usize] = e.cache.evicted();
        more
    }

    /// Those of all endpoints that are up, in the order in which they are listed.
    pub fn tallies(&self) -> impl Iterator<Item = EndpointTally> {
        self.order.iter().map(|&ep| {
            let (e, info) = (&self.eps[ep.0 as usize], self.info(ep));
            EndpointTally {
                device: info.device.clone(),
                port: info.port,
                pkey: e.pkey,
                counters: e.counters,
                more: self.more_of(ep),
                destinations: e.cache.len() as u64,
            }
        })
    }

    /// Destinations that endpoints know, those included that are down.
    pub fn destinations(&self) -> u64 {
        self.eps.iter().map(|e| e.cache.len() as u64).sum()
    }

    /// What an edge has counted so far.
    pub fn observe(&mut self, counter: More, so_far: u64) {
        let held = &mut self.more[counter as usize];
        // an edge that has been closed no longer tells
        *held = so_far.max(*held);
    }

    pub(super) fn count(&mut self, ep: Option<EpId>, counter: Counter) {
        self.counters[counter as usize] += 1;
        if let Some(e) = ep.and_then(|ep| self.eps.get_mut(ep.0 as usize)) {
            e.counters[counter as usize] += 1;
        }
    }

    pub(super) fn count_more(&mut self, ep: impl Into<Option<EpId>>, counter: More) {
        self.more[counter as usize] += 1;
        if let Some(e) = ep.into().and_then(|ep| self.eps.get_mut(ep.0 as usize)) {
            e.more[counter as usize] += 1;
        }
    }

    pub(super) fn count_status(&mut self, ep: Option<EpId>, status: Status) {
        self.count_refusal(ep, status);
        match status {
            Status::Success => {}
            Status::Enodata => self.count(ep, Counter::Nodata),
            _ => self.count(ep, Counter::Error),
        }
    }

    /// Counts what was refused for want of room.
    pub(super) fn count_refusal(&mut self, ep: Option<EpId>, status: Status) {
        if status == Status::Enomem {
            self.count_more(ep, More::RequestsRefused);
        }
    }

    /// Adds what providers have counted to what the service has.
    pub fn add_counts(&mut self, counts: &[u64; COUNTERS]) {
        self.counters.iter_mut().zip(counts).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
    }
}
