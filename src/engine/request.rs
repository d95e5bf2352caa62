//! Requests of clients: what they ask, whether it makes sense, and from which endpoint it is to be answered.

use std::net::IpAddr;

use ibacm_wire::PathRecord;
use ibacm_wire::client::{
    self, Counter, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, Header, OP_MASK, OP_RESOLVE, Status, TYPE_GID,
    TYPE_IP, TYPE_IP6, TYPE_LID, TYPE_NAME, TYPE_PATH,
};
use ibacm_wire::reply::resolve_reply;

use super::Engine;
use super::action::{ClientId, EpId};
use super::by_address::ByAddress;
use super::link_local::{Link, is_link_local};
use super::local::same_partition;
use super::plugged::Call;
use super::ports::PortInfo;
use super::resolve::append_path_reply;
use crate::addr::Addr;
use crate::cache::{DestId, Origin, State};
use crate::keyed::SipKey;
use crate::table::Table;
use crate::time::Time;
use crate::turns::Cause;

/// Source choices that are remembered.
const MAX_ROUTES: usize = 65_536;

/// Look-ups under way that nobody waits for, beside which no other such is started.
const CROWD: usize = 1024;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The reply has been appended.
    Replied,
    /// The reply comes as an [`Action::Reply`](super::Action::Reply).
    Pending,
    /// It breaks the protocol: the connection is to be closed.
    Close,
}

/// There is no way to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unroutable;

/// The kernel's routing, as far as requests without a source need it.
pub trait RouteLookup {
    /// The source address that a datagram to `dest` would have.
    fn source_for(&mut self, dest: IpAddr) -> Result<IpAddr, Unroutable>;

    /// The link that link-local addresses of the request are on, where that is known.
    fn link(&self) -> Option<Link> {
        None
    }
}

impl<F: FnMut(IpAddr) -> Result<IpAddr, Unroutable>> RouteLookup for F {
    fn source_for(&mut self, dest: IpAddr) -> Result<IpAddr, Unroutable> {
        self(dest)
    }
}

/// A remembered source choice: the destination's entry, and the number of the own address it is reached from.
#[derive(Clone, Copy)]
struct Route {
    ep: EpId,
    dest: DestId,
    source: u32,
}

/// Source choices for destinations that are in a cache; forgotten when routing, addresses or ports change.
pub(super) struct RouteMemo {
    key: SipKey,
    table: Table,
    list: Vec<Route>,
}

impl RouteMemo {
    pub fn new(key: SipKey) -> RouteMemo {
        RouteMemo { key, table: Table::new(), list: Vec::new() }
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.list.clear();
    }

    /// Panics if it is too much.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) {
        assert!(self.list.len() <= MAX_ROUTES);
        assert_eq!(self.table.len(), self.list.len());
    }
}

impl Engine {
    /// A client's request, whole and with a valid header. A reply that is known at once is appended to `out`.
    pub fn request(
        &mut self,
        now: Time,
        client: ClientId,
        msg: &[u8],
        routes: &mut dyn RouteLookup,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.was_known = false;
        let Some(h) = Header::read(msg) else { return Outcome::Close };
        match h.opcode & OP_MASK {
            OP_RESOLVE => {}
            client::OP_PERF_QUERY => return self.perf_query(now, client, h, msg, out),
            client::OP_EP_QUERY => return self.ep_query(h, out),
            _ => return Outcome::Close,
        }
        self.counters[Counter::Resolve as usize] += 1;
        let outcome = match Entry::read(msg, 0) {
            Some(e) if e.kind == TYPE_PATH && e.flags & FLAG_QUERY_SA != 0 => self.query_sa(now, client, h, &e, msg),
            Some(e) if e.kind == TYPE_PATH => self.resolve_path(now, client, h.tid, &e, msg, out),
            _ => match ByAddress::parse(msg) {
                Ok(r) => self.resolve_addr(now, client, h.tid, &r, routes, out),
                Err(status) => Err((None, status)),
            },
        };
        match outcome {
            Ok(o) => o,
            Err((ep, status)) => {
                self.count_status(ep, status);
                out.extend_from_slice(&resolve_reply(h.tid, status, 0));
                Outcome::Replied
            }
        }
    }

    fn resolve_addr(
        &mut self,
        now: Time,
        client: ClientId,
        tid: [u8; 8],
        r: &ByAddress<'_>,
        routes: &mut dyn RouteLookup,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, (Option<EpId>, Status)> {
        let none = |status| (None, status);
        if matches!(r.dest.kind, TYPE_GID | TYPE_LID) {
            return Err(none(Status::Edesttype));
        }
        let dest = Addr::from_wire(r.dest.kind, &r.dest.info).ok_or(none(Status::Edesttype))?;
        let nodelay = r.dest.flags & FLAG_NODELAY != 0;
        if let Some(entry) = &r.source {
            let source = Addr::from_wire(entry.kind, &entry.info).ok_or(none(Status::Esrctype))?;
            let ep = if is_link_local(&source) {
                self.link_local_source(Some(&source), &dest, routes.link()).map(|(_, ep)| ep)
            } else {
                self.source_endpoint(&source)
            };
            let ep = ep.ok_or(none(Status::Esrcaddr))?;
            let id = self.eps[ep.0 as usize].cache.find(&dest);
            let asker = Asker { client, tid, tells_source: false, request: Some(r) };
            return self.lookup(now, ep, id, &dest, Some(source), nodelay, asker, out);
        }
        if is_link_local(&dest) {
            // not remembered: which link is the best guess changes with what is known of hosts
            let (source, ep) = self.link_local_source(None, &dest, routes.link()).ok_or(none(Status::Edestaddr))?;
            let id = self.eps[ep.0 as usize].cache.find(&dest);
            let asker = Asker { client, tid, tells_source: true, request: Some(r) };
            return self.lookup(now, ep, id, &dest, Some(source), nodelay, asker, out);
        }
        let hash = dest.hash(&self.routes.key);
        let known = self.routes.table.find(hash, |i| {
            let m = &self.routes.list[i as usize];
            self.eps[m.ep.0 as usize].cache.get_for(m.dest, &dest).is_some()
        });
        let (ep, number, id) = match known.map(|i| self.routes.list[i as usize]) {
            Some(m) => (m.ep, m.source, Some(m.dest)),
            None => {
                let (number, ep) = self.choose_source(&dest, routes).map_err(none)?;
                (ep, number, self.eps[ep.0 as usize].cache.find(&dest))
            }
        };
        let source = *self.local.get(number).ok_or(none(Status::Esrcaddr))?;
        let asker = Asker { client, tid, tells_source: true, request: Some(r) };
        let outcome = self.lookup(now, ep, id, &dest, Some(source), nodelay, asker, out);
        if known.is_none()
            && let Some(id) = id.or_else(|| self.eps[ep.0 as usize].cache.find(&dest))
        {
            if self.routes.list.len() >= MAX_ROUTES {
                self.routes.clear();
            }
            self.routes.table.insert(hash, self.routes.list.len() as u32);
            self.routes.list.push(Route { ep, dest: id, source: number });
        }
        outcome
    }

    /// The own address to reach `dest` from: its number and endpoint.
    fn choose_source(&mut self, dest: &Addr, routes: &mut dyn RouteLookup) -> Result<(u32, EpId), Status> {
        if dest.kind() == TYPE_NAME {
            let names = self.order.iter().flat_map(|ep| self.eps[ep.0 as usize].addrs.iter().flatten());
            let name = names.map(|a| a.addr).find(|a| a.kind() == TYPE_NAME).ok_or(Status::Esrcaddr)?;
            return self.local.find(&name).ok_or(Status::Esrcaddr);
        }
        let ip = dest.as_ip().filter(|_| matches!(dest.kind(), TYPE_IP | TYPE_IP6)).ok_or(Status::Edesttype)?;
        let source = routes.source_for(ip).map_err(|Unroutable| Status::Edestaddr)?;
        self.local.find(&Addr::ip(source)).ok_or(Status::Esrcaddr)
    }

    /// The endpoint that an own address, GID or LID belongs to.
    pub(super) fn source_endpoint(&self, source: &Addr) -> Option<EpId> {
        let by_port = |is: &dyn Fn(&PortInfo) -> bool| self.order.iter().copied().find(|ep| is(self.info(*ep)));
        match source.kind() {
            TYPE_GID => by_port(&|p| p.gids.iter().any(|g| g.0 == *source.as_bytes())),
            TYPE_LID => {
                let b = source.as_bytes();
                by_port(&|p| b.len() == 2 && p.has_lid(u16::from_be_bytes([b[0], b[1]])))
            }
            _ => self.local.find(source).map(|(_, ep)| ep),
        }
    }

    /// The endpoint that a path is to be asked for from.
    pub(super) fn path_endpoint(&self, path: &PathRecord) -> Option<EpId> {
        let (dgid, sgid, slid, pkey) = (path.dgid(), path.sgid(), path.slid(), path.pkey());
        self.order.iter().copied().find(|ep| {
            let info = self.info(*ep);
            let from_here = if !sgid.is_zero() {
                info.gids.contains(&sgid)
            } else if slid != 0 {
                info.has_lid(slid)
            } else {
                dgid.is_zero() || info.gids.iter().any(|g| g.subnet_prefix() == dgid.subnet_prefix())
            };
            from_here && (pkey == 0 || same_partition(pkey, self.eps[ep.0 as usize].pkey))
        })
    }

    fn resolve_path(
        &mut self,
        now: Time,
        client: ClientId,
        tid: [u8; 8],
        entry: &Entry,
        msg: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Outcome, (Option<EpId>, Status)> {
        let mut question = PathRecord(entry.info);
        if question.dlid() == 0 && question.dgid().is_zero() {
            return Err((None, Status::Edestaddr));
        }
        let ep = self.path_endpoint(&question).ok_or((None, Status::Esrcaddr))?;
        if self.eps[ep.0 as usize].provider.is_some() {
            self.eps[ep.0 as usize].counters[Counter::Resolve as usize] += 1;
            return self.ask_by_path(now, ep, client, msg, |place, message| Call::Resolve { place, message });
        }
        let info = self.info(ep);
        if question.slid() == 0 {
            question.set_slid(info.lid);
        }
        if question.sgid().is_zero() {
            question.set_sgid(info.gid());
        }
        question.set_pkey(self.eps[ep.0 as usize].pkey);
        // no part of the question: what is never asked for must not make two entries of one
        question.set_preference(0);
        question.0[58..].fill(0);
        question.set_reversible_numpath(question.reversible_numpath() & ibacm_wire::path::REVERSIBLE);
        if let Some(path) = self.preloaded_answer(now, ep, &question) {
            self.eps[ep.0 as usize].counters[Counter::Resolve as usize] += 1;
            self.count(Some(ep), Counter::RouteCache);
            append_path_reply(out, tid, &path, None);
            self.was_known = true;
            return Ok(Outcome::Replied);
        }
        let dest = Addr::path(&question);
        let id = self.eps[ep.0 as usize].cache.find(&dest);
        let nodelay = entry.flags & FLAG_NODELAY != 0;
        self.lookup(now, ep, id, &dest, None, nodelay, Asker { client, tid, tells_source: false, request: None }, out)
    }

    /// Whether so much is being asked that nobody waits for that no more of it is started: there is no end to how many such
    /// look-ups a client can make. None is forgotten while it is under way: too many would push out what is in use.
    fn is_crowded(&self, ep: EpId) -> bool {
        let e = &self.eps[ep.0 as usize];
        let (sa, nobody) = (&self.ports[e.port.0 as usize].sa, Cause::NOBODY);
        let crowd = CROWD.min(self.config.max_destinations / 4);
        e.arp.opened(nobody) + sa.asked(nobody) + e.await_group.len() >= crowd
    }

    /// Answers from the cache, or starts what is needed and lets the client wait.
    #[expect(clippy::too_many_arguments, reason = "one step of a request, cut out for both kinds of destination")]
    fn lookup(
        &mut self,
        now: Time,
        ep: EpId,
        known: Option<DestId>,
        dest: &Addr,
        source: Option<Addr>,
        nodelay: bool,
        asker: Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, (Option<EpId>, Status)> {
        self.eps[ep.0 as usize].counters[Counter::Resolve as usize] += 1;
        let fail = |status| (Some(ep), status);
        let told = source.as_ref().filter(|_| asker.tells_source);
        if self.eps[ep.0 as usize].provider.is_some()
            && let Some(r) = asker.request
        {
            let entry = told.map(source_entry);
            return self.ask_by_address(now, ep, asker.client, r, source.as_ref(), entry.as_ref());
        }
        let known = self.preloaded_dest(now, ep, known, dest);
        let crowded = known.is_none() && nodelay && self.is_crowded(ep);
        let e = &mut self.eps[ep.0 as usize];
        let id = match known {
            Some(id) => id,
            None if crowded => return Err(fail(Status::Enodata)),
            None => e.cache.insert(dest, Origin::Learned, false).ok_or(fail(Status::Enomem))?,
        };
        e.cache.touch(id);
        let era = e.era;
        let Some(d) = e.cache.get_mut(id) else { return Err(fail(Status::Enomem)) };
        let known = matches!(d.state, State::Ready | State::AddrResolved) && now < d.addr_expiry;
        let unconfirmed = known && d.is_unconfirmed(era);
        match d.state {
            _ if unconfirmed => {}
            State::Ready if now < d.addr_expiry && now < d.route_expiry => {
                append_path_reply(out, asker.tid, &d.path, told);
                let check = now >= d.check_at.time();
                self.count(Some(ep), Counter::RouteCache);
                if check {
                    self.eps[ep.0 as usize].refreshes.used(id);
                }
                self.was_known = !check;
                return Ok(Outcome::Replied);
            }
            State::Ready | State::AddrResolved if now >= d.addr_expiry => d.state = State::Init,
            State::Ready if dest.kind() == TYPE_PATH => d.state = State::Init,
            State::Ready => d.state = State::AddrResolved,
            State::Failed(_) if now >= d.addr_expiry => d.state = State::Init,
            State::Failed(code) => return Err(fail(failed_status(code))),
            _ => {}
        }
        let state = d.state;
        if unconfirmed || matches!(state, State::Init | State::AddrResolved) {
            e.pending.or_default(id).asker = (!nodelay).then_some(asker.client);
        }
        let started = match state {
            _ if unconfirmed => self.confirm(now, ep, id, source.as_ref()),
            State::Init => self.start(now, ep, id, source.as_ref()),
            State::AddrResolved => {
                self.count(Some(ep), Counter::AddrCache);
                self.route(now, ep, id)
            }
            _ => Ok(()),
        };
        if let Err(status) = started {
            // the entry was made for this request; whoever came before would have ended in the same place
            self.fail(now, ep, id, status, "the look-up cannot be started");
            return Err(fail(status));
        }
        let e = &self.eps[ep.0 as usize];
        if let Some(d) = e.cache.get(id).filter(|d| d.state == State::Ready) {
            append_path_reply(out, asker.tid, &d.path, told);
            return Ok(Outcome::Replied);
        }
        if !nodelay {
            if !self.waiters.has_room() {
                return Err(fail(Status::Enomem));
            }
            self.wait_client(now, ep, id, asker.client, asker.tid, told.copied());
        }
        self.pump_arp(now, ep);
        self.pump_sa(now, self.eps[ep.0 as usize].port);
        if nodelay { Err(fail(Status::Enodata)) } else { Ok(Outcome::Pending) }
    }
}

/// Who asks, and what the reply repeats.
struct Asker<'a> {
    client: ClientId,
    tid: [u8; 8],
    /// Which source was chosen.
    tells_source: bool,
    /// As it came, if it is one by address.
    request: Option<&'a ByAddress<'a>>,
}

/// The entry that tells a client which source was chosen.
fn source_entry(source: &Addr) -> Entry {
    Entry { flags: EP_FLAG_SOURCE, kind: source.kind(), info: *source.wire() }
}

fn failed_status(code: u8) -> Status {
    [Status::Enomem, Status::Einval, Status::Enotconn, Status::Etimedout, Status::Esrcaddr, Status::Edestaddr]
        .into_iter()
        .find(|s| *s as u8 == code)
        .unwrap_or(Status::Enodata)
}
