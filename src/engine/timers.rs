//! Time passing, and what comes from the SA.

use ibacm_wire::client::{More, Status};
use ibacm_wire::sa::{self, SaMad};

use super::Engine;
use super::action::{EpId, PortId};
use super::endpoint::GroupState;
use crate::time::Time;

/// Look-ups that may fail in one turn: each is answered to everybody who waits for it.
const SHARE: usize = 512;

fn take<T>(share: &mut usize, next: impl FnOnce() -> Option<T>) -> Option<T> {
    let taken = if *share == 0 { None } else { next() };
    *share -= usize::from(taken.is_some());
    taken
}

impl Engine {
    pub(super) fn deadline(&mut self) -> Time {
        let mut next = self.moved.deadline().min(self.asks.deadline()).min(self.tell_at);
        for p in &self.ports {
            // what was told is looked at whatever has become of the port
            next = next.min(p.news.deadline());
            if p.info.active {
                next = next.min(p.sa.next_deadline()).min(p.notices.deadline());
            }
        }
        for e in self.eps.iter_mut().filter(|e| e.up) {
            next = next.min(e.arp.next_deadline()).min(e.refreshes.deadline());
            next = next.min(e.await_group.front().map_or(Time::NEVER, |w| w.0));
            next = next.min(e.overdue.front().map_or(Time::NEVER, |w| w.0));
            next = next.min(e.announcement.deadline());
            for g in &e.groups {
                if let GroupState::Failed(at) = g.state {
                    next = next.min(at);
                }
            }
        }
        next
    }

    /// Does what is due, up to a share for one turn: while [`Engine::next_deadline`] is not later than `now`, there is
    /// more to do.
    pub fn on_time(&mut self, now: Time) {
        let mut share = SHARE;
        while take(&mut share, || self.overdue_ask(now)).is_some() {}
        for i in 0..self.ports.len() {
            while let Some(answer) = take(&mut share, || self.ports[i].sa.on_time(now)) {
                self.sa_told(now, PortId(i as u32), &answer.who, answer.result.as_ref().err().copied());
                self.sa_answered(now, answer.who, answer.result);
            }
        }
        for i in 0..self.eps.len() {
            let ep = EpId(i as u32);
            while let Some(gone) = take(&mut share, || self.eps[i].arp.on_time(now)) {
                self.unanswered(now, ep, gone.dest, Status::Etimedout, "no peer answers for it");
            }
            while let Some((_, dest)) = take(&mut share, || self.eps[i].await_group.pop_front_if(|w| w.0 <= now)) {
                self.fail_unasked(now, ep, dest, Status::Etimedout, "the multicast group is not joined yet");
            }
            while let Some((_, dest)) = take(&mut share, || self.eps[i].overdue.pop_front_if(|w| w.0 <= now)) {
                self.waited(now, ep, dest);
            }
        }
        self.retry_joins(now);
        self.refresh_used(now);
        self.subscribe_due(now);
        self.news_due(now);
        self.announce_due(now);
        self.moved_due(now);
        self.tell_ports(now);
        for i in 0..self.eps.len() {
            self.pump_arp(now, EpId(i as u32));
        }
        for i in 0..self.ports.len() {
            self.pump_sa(now, PortId(i as u32));
        }
    }

    /// A MAD came to the port: an answer (`umad_status` 0), or a request that the kernel gave up (an errno).
    pub fn mad_received(&mut self, now: Time, port: PortId, umad_status: u32, mad: &[u8]) {
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        let Some(mad) = mad.first_chunk::<{ sa::LEN }>().map(|b| SaMad(*b)) else {
            self.count_more(None, More::MadsDropped);
            return;
        };
        // a question that was asked anew comes back, too, when its time is up
        if umad_status == 0 && !p.sa.is_answer(&mad) {
            return self.count_more(None, More::MadsDropped);
        }
        if let Some(answer) = p.sa.received(now, umad_status, &mad, &mut self.rng) {
            self.sa_told(now, port, &answer.who, answer.result.as_ref().err().copied());
            self.sa_answered(now, answer.who, answer.result);
        }
        self.pump_sa(now, port);
    }

    /// The MAD with this transaction id could not be sent.
    pub fn mad_failed(&mut self, now: Time, port: PortId, tid: u32) {
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        if let Some(answer) = p.sa.send_failed(tid) {
            self.sa_answered(now, answer.who, answer.result);
        }
        self.pump_sa(now, port);
    }
}
