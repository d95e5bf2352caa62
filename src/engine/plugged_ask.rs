//! Questions to providers: each is put to the provider of its endpoint, and each client gets one reply, whatever the
//! provider does. What ends a question is the provider's answer, time, or that what it was put to is there no more.
//!
//! Also what providers have the subnet administrator asked, which ends once each too.

use std::collections::BTreeSet;
use std::time::Duration;

use ibacm_wire::client::{Counter, ENTRY_LEN, Entry, HDR_LEN, Header, MAX_ENTRIES, More, OP_ACK, Status};
use ibacm_wire::sa::SaMad;

use super::Engine;
use super::action::{Action, ClientId, EpId};
use super::by_address::ByAddress;
use super::plugged::{AskId, Call, MESSAGE, MadToken, ProviderId};
use super::query::{no_counters, put_counters};
use super::request::Outcome;
use super::resolve::SaWho;
use crate::addr::Addr;
use crate::map::Map;
use crate::sa::{Ask, SaError};
use crate::sorted::sort_by_key;
use crate::time::Time;
use crate::turns::Cause;

/// Open questions of a provider: one that answers none takes nothing from the others.
const MAX_ASKS: usize = 16_384;
/// How long a provider may take for its counters, in milliseconds: who wants to see them wants to see those of others,
/// too.
const COUNTERS_MS: u32 = 2000;

/// What a question is put to. When this changes, the provider has closed what the question was put to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Target {
    provider: ProviderId,
    generation: u32,
    pkey: (u16, u16),
    addr: Option<Addr>,
}

/// An open question.
struct Open {
    ep: EpId,
    /// The address that it is put to; `None` for one to the endpoint, which is for its counters.
    place: Option<u32>,
    target: Target,
    client: ClientId,
    /// The request's.
    header: Header,
    since: Time,
    until: Time,
    /// The function that was to be called.
    function: &'static str,
}

/// Open questions.
#[derive(Default)]
pub(super) struct Asks {
    open: Map<u64, Open>,
    /// When each is given up: the time, and the question. A pair of numbers, so that there is one kind of such sets.
    ends: BTreeSet<(u64, u64)>,
    clients: BTreeSet<(u64, u64)>,
    /// How many each provider has.
    of: Map<ProviderId, usize>,
}

impl Asks {
    /// When one is to be given up.
    pub fn deadline(&self) -> Time {
        self.ends.first().map_or(Time::NEVER, |e| Time(e.0))
    }

    /// Panics if what is known of open questions contradicts itself.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) {
        assert_eq!(self.open.len(), self.ends.len());
        assert_eq!(self.open.len(), self.clients.len());
        assert_eq!(self.open.len(), self.of.values().sum::<usize>());
        assert!(self.of.values().all(|n| *n <= MAX_ASKS));
    }

    fn add(&mut self, id: u64, open: Open) {
        self.ends.insert((open.until.0, id));
        self.clients.insert((open.client.0, id));
        *self.of.or_default(open.target.provider) += 1;
        self.open.insert(id, open);
    }

    fn take(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.ends.remove(&(open.until.0, id));
        self.clients.remove(&(open.client.0, id));
        if let Some(count) = self.of.get_mut(&open.target.provider) {
            *count -= 1;
        }
        Some(open)
    }

    fn take_if(&mut self, id: u64, wanted: impl Fn(&Open) -> bool) -> Option<Open> {
        if self.open.get(&id).is_some_and(wanted) { self.take(id) } else { None }
    }
}

/// A request as providers know it, behind whose end is nothing.
fn message(msg: &[u8]) -> Box<[u8; MESSAGE]> {
    let mut message = Box::new([0; MESSAGE]);
    message.iter_mut().zip(msg).for_each(|(to, from)| *to = *from);
    // places of entries; a client's own would have a provider read what is not there
    message[3..6].fill(0);
    message
}

type Asked = Result<Outcome, (Option<EpId>, Status)>;

impl Engine {
    /// A request by address from a plugged endpoint: from `source`, which was `chosen` if the request names none.
    pub(super) fn ask_by_address(
        &mut self,
        now: Time,
        ep: EpId,
        client: ClientId,
        r: &ByAddress<'_>,
        source: Option<&Addr>,
        chosen: Option<&Entry>,
    ) -> Asked {
        let fail = |status| (Some(ep), status);
        let header = Header::read(r.msg).ok_or(fail(Status::Einval))?;
        let mut message = message(r.msg);
        if let Some(chosen) = chosen {
            let at = HDR_LEN + r.source_index.min(MAX_ENTRIES) * ENTRY_LEN;
            let free = message.get_mut(at..at + ENTRY_LEN).ok_or(fail(Status::Einval))?;
            free.copy_from_slice(&chosen.emit());
        }
        // `src_out`, `src_index`, `dst_index`
        message[3..6].copy_from_slice(&[u8::from(chosen.is_some()), r.source_index as u8, r.dest_index as u8]);
        let place = self.place_of(ep, source).ok_or(fail(Status::Esrcaddr))?;
        self.ask(now, ep, client, header, (Some(place), Call::Resolve { place, message }))
    }

    /// A request by path from a plugged endpoint.
    pub(super) fn ask_by_path(
        &mut self,
        now: Time,
        ep: EpId,
        client: ClientId,
        msg: &[u8],
        call: impl FnOnce(u32, Box<[u8; MESSAGE]>) -> Call,
    ) -> Asked {
        let header = Header::read(msg).ok_or((Some(ep), Status::Einval))?;
        let place = self.place_of(ep, None).ok_or((Some(ep), Status::Esrcaddr))?;
        self.ask(now, ep, client, header, (Some(place), call(place, message(msg))))
    }

    /// The place of an own address; of the first one, where it is the port that was named.
    fn place_of(&self, ep: EpId, addr: Option<&Addr>) -> Option<u32> {
        let addrs = &self.eps.get(ep.0 as usize)?.addrs;
        let same = addrs.iter().position(|a| a.as_ref().is_some_and(|a| Some(&a.addr) == addr));
        same.or_else(|| addrs.iter().position(Option::is_some)).map(|place| place as u32)
    }

    fn target(&self, ep: EpId, place: Option<u32>) -> Option<Target> {
        let e = self.eps.get(ep.0 as usize).filter(|e| e.up)?;
        let addr = match place {
            Some(place) => Some(e.addrs.get(place as usize)?.as_ref()?.addr),
            None => None,
        };
        let generation = self.ports.get(e.port.0 as usize)?.shown.generation;
        Some(Target { provider: e.provider?, generation, pkey: (e.pkey, e.pkey_index), addr })
    }

    /// Puts a question to the endpoint's provider.
    pub(super) fn ask(
        &mut self,
        now: Time,
        ep: EpId,
        client: ClientId,
        header: Header,
        (place, call): (Option<u32>, Call),
    ) -> Asked {
        let target = self.target(ep, place).ok_or((Some(ep), Status::Esrcaddr))?;
        if self.asks.of.get(&target.provider).is_some_and(|&n| n >= MAX_ASKS) {
            return Err((Some(ep), Status::Enomem));
        }
        let id = loop {
            let id = self.rng.next_u64();
            if id != 0 && !self.asks.open.contains_key(&id) {
                break id;
            }
        };
        let (function, most) = match &call {
            Call::Resolve { .. } => ("resolve", u32::MAX),
            Call::Query { .. } => ("query", u32::MAX),
            Call::Counters => ("query_perf", COUNTERS_MS),
        };
        let until = now.plus(Duration::from_millis(u64::from(self.providers.timeout_ms.min(most))));
        self.asks.add(id, Open { ep, place, target, client, header, since: now, until, function });
        let port = self.eps[ep.0 as usize].port;
        self.actions.push_back(Action::Ask { provider: target.provider, port, ep, id: AskId(id), call });
        Ok(Outcome::Pending)
    }

    /// A provider's answer. It counts if the question is open, once.
    pub fn provider_answered(&mut self, _now: Time, id: AskId, message: &[u8; MESSAGE]) {
        let Some(open) = self.asks.take_if(id.0, |o| o.place.is_some()) else { return self.unasked() };
        let (status, length) = (message[2], usize::from(u16::from_ne_bytes([message[6], message[7]])));
        let entries = match length.checked_sub(HDR_LEN) {
            _ if status != 0 => &[],
            // a success without a path is none
            Some(n) if n != 0 && n % ENTRY_LEN == 0 && length <= MESSAGE => &message[HDR_LEN..length],
            n => {
                let name = self.providers.name(Some(open.target.provider)).to_owned();
                let function = open.function;
                let what = if n == Some(0) { "without an entry".to_owned() } else { format!("of {length} bytes") };
                self.log(0, || format!("provider {name}: malformed answer to {function}: a success {what}"));
                return self.ask_failed(&open, Status::Einval);
            }
        };
        self.reply_to_ask(&open, status, entries);
    }

    /// A provider's counters, host order.
    pub fn provider_counters(&mut self, _now: Time, id: AskId, values: &[u64]) {
        let Some(open) = self.asks.take_if(id.0, |o| o.place.is_none()) else { return self.unasked() };
        let mut reply = Vec::new();
        put_counters(open.header, values, &mut reply);
        self.actions.push_back(Action::Reply { client: open.client, reply: reply.into() });
    }

    /// A provider does not take the question, or nothing is open at it.
    pub fn provider_refused(&mut self, _now: Time, id: AskId) {
        match self.asks.take(id.0) {
            Some(open) => self.ask_failed(&open, Status::Enodata),
            None => self.unasked(),
        }
    }

    fn unasked(&mut self) {
        self.count_more(None, More::ProvidersDropped);
        self.log(2, || "dropped a provider's answer to a question that is not open".into());
    }

    fn ask_failed(&mut self, open: &Open, status: Status) {
        if open.place.is_some() {
            return self.reply_to_ask(open, status as u8, &[]);
        }
        let reply = Box::new(no_counters(open.header, status));
        self.actions.push_back(Action::Reply { client: open.client, reply });
    }

    fn reply_to_ask(&mut self, open: &Open, status: u8, entries: &[u8]) {
        let length = (HDR_LEN + entries.len()) as u16;
        let header = Header { opcode: open.header.opcode | OP_ACK, status, data: [0; 3], length, ..open.header };
        match status {
            0 => {}
            s if s == Status::Enodata as u8 => self.count(Some(open.ep), Counter::Nodata),
            _ => self.count(Some(open.ep), Counter::Error),
        }
        let reply = [header.emit().as_slice(), entries].concat();
        self.actions.push_back(Action::Reply { client: open.client, reply: reply.into() });
    }

    /// Gives up one question whose time is up.
    pub(super) fn overdue_ask(&mut self, now: Time) -> Option<()> {
        let &(_, id) = self.asks.ends.first().filter(|e| e.0 <= now.0)?;
        let open = self.asks.take(id)?;
        let (provider, function, waited) = (open.target.provider, open.function, open.since.until(now));
        self.actions.push_back(Action::Forget { id: AskId(id) });
        self.actions.push_back(Action::Late { provider, function, waited });
        self.count_more(None, More::ProvidersLate);
        self.ask_failed(&open, Status::Etimedout);
        Some(())
    }

    /// Ends the questions that were put to what is no longer there.
    pub(super) fn end_stale_asks(&mut self) {
        let stale = |o: &Open| self.target(o.ep, o.place) != Some(o.target);
        let mut ids: Vec<u64> = self.asks.open.iter().filter(|(_, o)| stale(o)).map(|(id, _)| *id).collect();
        // in an order that does not depend on the table's
        sort_by_key(&mut ids, |id| self.asks.open.get(id).map(|o| (o.until, o.client.0, *id)));
        for id in ids {
            let Some(open) = self.asks.take(id) else { continue };
            self.actions.push_back(Action::Forget { id: AskId(id) });
            self.ask_failed(&open, Status::Enotconn);
        }
    }

    /// A client has left: nobody waits for the answers to its questions.
    pub(super) fn forget_asks(&mut self, client: ClientId) {
        let asked = self.asks.clients.range((client.0, 0)..=(client.0, u64::MAX));
        let ids: Vec<u64> = asked.map(|(_, id)| *id).collect();
        for id in ids {
            self.asks.take(id);
            self.actions.push_back(Action::Forget { id: AskId(id) });
        }
    }

    /// A provider has the SA of the endpoint's port asked.
    pub fn provider_mad(&mut self, now: Time, ep: EpId, token: MadToken, mad: &SaMad) {
        let plugged = self.eps.get(ep.0 as usize).filter(|e| e.up && e.provider.is_some());
        let Some(port) = plugged.map(|e| e.port) else {
            return self.actions.push_back(Action::MadDone { token, result: Err(libc::ENETDOWN) });
        };
        let who = SaWho::Provider { token, tid: mad.tid() };
        let sa = &mut self.ports[port.0 as usize].sa;
        if sa.submit(now, Cause::PROVIDERS, who, Ask::Mad(Box::new(*mad))).is_err() {
            return self.actions.push_back(Action::MadDone { token, result: Err(libc::ENOMEM) });
        }
        self.pump_sa(now, port);
    }

    /// How a provider's question to the SA has ended.
    pub(super) fn provider_mad_done(&mut self, token: MadToken, tid: u64, result: Result<SaMad, SaError>) {
        let result = match result {
            Ok(mut mad) => {
                mad.set_tid(tid);
                Ok(Box::new(mad))
            }
            Err(SaError::Timeout | SaError::Busy) => Err(libc::ETIMEDOUT),
            Err(SaError::Down | SaError::Status(_) | SaError::Malformed) => Err(libc::ENETDOWN),
        };
        self.actions.push_back(Action::MadDone { token, result });
    }
}
