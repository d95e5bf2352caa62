//! Requests that go past the caches or are not about destinations: the SA's own word, counters, endpoints.

use ibacm_wire::PathRecord;
use ibacm_wire::client::{
    Counter, ENTRY_LEN, EP_CONFIG_LEN, EP_FLAG_SOURCE, Entry, HDR_LEN, Header, MAX_ADDRESS, MAX_PROV_NAME, MAX_REQUEST,
    OP_ACK, PERF_MORE, Status,
};
use ibacm_wire::reply::resolve_reply;

use super::Engine;
use super::action::{Action, ClientId, EpId, Reply};
use super::plugged::Call;
use super::request::Outcome;
use super::resolve::SaWho;
use crate::addr::Addr;
use crate::sa::{Ask, SaError};
use crate::time::Time;

/// Name of the built-in provider.
pub const BUILTIN: &str = "ibacmp";
/// Addresses that fit into a reply, whose length is 16 bits.
const MAX_LISTED: usize = (u16::MAX as usize - HDR_LEN - EP_CONFIG_LEN) / MAX_ADDRESS;

/// Counters that fit into a message.
const MOST_COUNTERS: usize = (MAX_REQUEST - HDR_LEN) / 8;

/// A client's question to the SA.
pub(super) struct Query {
    pub ep: EpId,
    pub client: ClientId,
    pub header: Header,
    pub flags: u32,
}

/// Appends the reply to an [`OP_PERF_QUERY`](ibacm_wire::client::OP_PERF_QUERY), of as many counters as fit into a message:
/// clients have no room for more than that, and refuse what is longer.
pub(super) fn put_counters(h: Header, values: &[u64], out: &mut Vec<u8>) {
    let values = &values[..values.len().min(MOST_COUNTERS)];
    let length = (HDR_LEN + values.len() * 8) as u16;
    let data = [values.len() as u8, h.data[1], 0];
    out.extend_from_slice(&Header { opcode: h.opcode | OP_ACK, status: 0, data, length, ..h }.emit());
    values.iter().for_each(|v| out.extend_from_slice(&v.to_be_bytes()));
}

/// The reply where there are none.
pub(super) fn no_counters(h: Header, status: Status) -> [u8; HDR_LEN] {
    let data = [h.data[0], h.data[1], 0];
    Header { opcode: h.opcode | OP_ACK, status: status as u8, data, length: HDR_LEN as u16, ..h }.emit()
}

impl Engine {
    /// `ACM_OP_RESOLVE` of a path with `ACM_FLAGS_QUERY_SA`.
    pub(super) fn query_sa(
        &mut self,
        now: Time,
        client: ClientId,
        h: Header,
        entry: &Entry,
        msg: &[u8],
    ) -> Result<Outcome, (Option<EpId>, Status)> {
        if msg.len() != HDR_LEN + ENTRY_LEN {
            return Err((None, Status::Einval));
        }
        let mut path = PathRecord(entry.info);
        let ep = self.path_endpoint(&path).ok_or((None, Status::Esrcaddr))?;
        if self.eps[ep.0 as usize].provider.is_some() {
            return self.ask_by_path(now, ep, client, msg, |place, message| Call::Query { place, message });
        }
        if path.sgid().is_zero() && path.slid() == 0 {
            // unconstrained, the SA may answer with a path from somewhere else
            path.set_sgid(self.info(ep).gid());
        }
        let port = self.eps[ep.0 as usize].port;
        self.count(Some(ep), Counter::RouteQuery);
        let who = SaWho::Query(Box::new(Query { ep, client, header: h, flags: entry.flags }));
        if self.ports[port.0 as usize].sa.submit(now, client.cause(), who, Ask::Path(path)).is_err() {
            return Err((Some(ep), Status::Enomem));
        }
        self.pump_sa(now, port);
        Ok(Outcome::Pending)
    }

    pub(super) fn query_answered(&mut self, q: Query, result: Result<PathRecord, SaError>) {
        let reply = match result {
            Ok(path) => {
                let h = Header {
                    opcode: q.header.opcode | OP_ACK,
                    status: 0,
                    length: (HDR_LEN + ENTRY_LEN) as u16,
                    ..q.header
                };
                let mut r = Reply::new(h.emit());
                r.push(&Entry::path(q.flags, &path).emit());
                r
            }
            Err(error) => {
                let status = error.client_status();
                self.count_status(Some(q.ep), status);
                self.log(1, || format!("a client's query failed: {error}"));
                Reply::new(resolve_reply(q.header.tid, status, 0))
            }
        };
        self.actions.push_back(Action::Reply { client: q.client, reply: reply.as_bytes().into() });
    }

    /// `ACM_OP_PERF_QUERY`.
    pub(super) fn perf_query(
        &mut self,
        now: Time,
        client: ClientId,
        h: Header,
        msg: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let entry = Entry::read(msg, 0);
        let index = usize::from(h.data[1]);
        let more = h.data[2] == PERF_MORE;
        let (whole, ep) = match entry {
            None if index == 0 => (true, None),
            Some(e) if e.flags & EP_FLAG_SOURCE == 0 => (true, None),
            _ if index >= 1 => (false, self.order.get(index - 1).copied()),
            Some(e) => (false, self.entry_endpoint(&e)),
            None => (false, None),
        };
        if let Some(ep) = ep.filter(|ep| self.eps[ep.0 as usize].provider.is_some()) {
            return match self.ask(now, ep, client, h, (None, Call::Counters)) {
                Ok(outcome) => outcome,
                Err((_, status)) => {
                    self.count_refusal(Some(ep), status);
                    out.extend_from_slice(&no_counters(h, status));
                    Outcome::Replied
                }
            };
        }
        let of = |ep: EpId| (self.eps[ep.0 as usize].counters, self.more_of(ep));
        let found = if whole { Some((self.counters, self.more())) } else { ep.map(of) };
        match found {
            Some((first, rest)) => {
                let values: Vec<u64> = first.iter().chain(rest.iter().filter(|_| more)).copied().collect();
                put_counters(h, &values, out);
            }
            None => out.extend_from_slice(&no_counters(h, Status::Esrcaddr)),
        }
        Outcome::Replied
    }

    fn entry_endpoint(&self, entry: &Entry) -> Option<EpId> {
        let addr = Addr::from_wire(entry.kind, &entry.info)?;
        self.source_endpoint(&addr)
    }

    /// `ACM_OP_EP_QUERY`.
    pub(super) fn ep_query(&mut self, h: Header, out: &mut Vec<u8>) -> Outcome {
        let (number, port) = (usize::from(h.data[0]), h.data[1]);
        let listed = self.order.iter().filter(|ep| port == 0 || self.info(**ep).port == port);
        let found = number.checked_sub(1).and_then(|i| listed.copied().nth(i));
        let reply = |status: u8, length: usize| Header {
            opcode: h.opcode | OP_ACK,
            status,
            data: [h.data[0], 0, 0],
            length: length as u16,
            ..h
        };
        let Some(ep) = found else {
            out.extend_from_slice(&reply(Status::Einval as u8, HDR_LEN).emit());
            return Outcome::Replied;
        };
        let (e, info) = (&self.eps[ep.0 as usize], self.info(ep));
        let addrs: Vec<&[u8]> = e.addrs.iter().flatten().map(|a| a.text.as_slice()).take(MAX_LISTED).collect();
        out.extend_from_slice(&reply(0, HDR_LEN + EP_CONFIG_LEN + addrs.len() * MAX_ADDRESS).emit());
        out.extend_from_slice(&info.guid.to_be_bytes());
        out.extend_from_slice(&[info.port, info.phys_port_cnt, 0, 0]);
        out.extend_from_slice(&e.pkey.to_be_bytes());
        out.extend_from_slice(&(addrs.len() as u16).to_be_bytes());
        let mut name = [0; MAX_PROV_NAME];
        let text = self.providers.name(e.provider).bytes();
        // the last byte stays zero here too
        name[..MAX_PROV_NAME - 1].iter_mut().zip(text).for_each(|(to, from)| *to = from);
        out.extend_from_slice(&name);
        for text in addrs {
            let mut field = [0; MAX_ADDRESS];
            // the last byte stays zero: clients print it as a string
            let n = text.len().min(MAX_ADDRESS - 1);
            field[..n].copy_from_slice(&text[..n]);
            out.extend_from_slice(&field);
        }
        Outcome::Replied
    }
}
