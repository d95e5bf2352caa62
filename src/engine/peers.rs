//! What comes from other hosts: requests for own addresses, responses to own requests, and what both tell of who sent
//! them.

use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::More;
use ibacm_wire::datagram::{Datagram, Groups, Request, Response as ResponseMsg};
use ibacm_wire::sa::McMember;

use super::Engine;
use super::action::{Action, Av, EpId, Rx};
use super::config::RouteProt;
use super::endpoint::{MAX_RESPONSES, Pending, Response, Waiter};
use super::ladder::Class;
use crate::addr::Addr;
use crate::cache::{DestId, Origin, Peer, State};
use crate::time::Time;

/// Set in the token of a response's send, which has no answer; requests' transaction ids do not have it.
pub const RESPONSE: u64 = 1 << 63;
/// How soon the group is asked again because of a claim of the same address.
const VERIFY_AGAIN: Duration = Duration::from_secs(1);
/// Addresses that the group is asked for so in that time.
const MAX_VERIFIED: usize = 256;
/// Where a datagram that is dropped is counted, and why it is.
type Dropped = (More, &'static str);

/// First LID of multicast groups (IBA 4.1.3).
const MULTICAST_LID: u16 = 0xc000;

impl Av {
    /// The address vector of a joined group.
    pub(super) fn group(rec: &McMember) -> Av {
        Av {
            dlid: rec.mlid,
            sl: (rec.sl_flow_hop >> 28) as u8,
            src_path_bits: 0,
            static_rate: rec.rate & 0x3f,
            dgid: rec.mgid,
            sgid_index: 0,
            flow_label: (rec.sl_flow_hop >> 8) & 0xf_ffff,
            hop_limit: rec.sl_flow_hop as u8,
            traffic_class: rec.tclass,
        }
    }
}

impl Engine {
    /// A datagram came to the endpoint. Nothing in it is believed that its transport does not bear out.
    pub fn datagram(&mut self, now: Time, ep: EpId, rx: &Rx, payload: &[u8]) {
        let Some(e) = self.eps.get(ep.0 as usize).filter(|e| e.up && e.provider.is_none()) else { return };
        let own = e.qpn == Some(rx.src_qp) && rx.sgid == self.info(ep).gid();
        if own {
            // multicast comes back to its sender
            return;
        }
        let unicast_source = rx.slid != 0 && rx.slid < MULTICAST_LID && !rx.sgid.is_zero() && !rx.sgid.is_multicast();
        let done = match Datagram::parse(payload) {
            _ if !unicast_source => Err((More::DatagramsMalformed, "it has no unicast source")),
            Ok(Datagram::Request(r)) => self.peer_request(now, ep, rx, &r),
            Ok(Datagram::Response(r)) => self.peer_response(now, ep, rx, &r),
            Err(_) => Err((More::DatagramsMalformed, "it is malformed")),
        };
        if let Err((counter, why)) = done {
            self.count_more(ep, counter);
            self.log(2, || format!("dropped a datagram from {} LID {}: {why}", rx.sgid, rx.slid));
        }
        self.pump_arp(now, ep);
        self.pump_sa(now, self.eps[ep.0 as usize].port);
    }

    /// A datagram came to the endpoint that was cut or of which nobody says who sent it.
    pub fn datagram_lost(&mut self, ep: EpId) {
        self.count_more(ep, More::DatagramsMalformed);
    }

    fn peer_request(&mut self, now: Time, ep: EpId, rx: &Rx, r: &Request) -> Result<(), Dropped> {
        let foreign = |why| (More::DatagramsForeign, why);
        let from = Addr::from_wire(u16::from(r.src_type), &r.src).ok_or(foreign("its source is no address"))?;
        let wanted =
            Addr::from_wire(u16::from(r.dest_type), &r.dest).ok_or(foreign("its destination is no address"))?;
        let e = &mut self.eps[ep.0 as usize];
        let group = e.best_group(r.groups.as_slice()).ok_or(foreign("no group in common"))?;
        let mine = e.has_addr(&wanted);
        let announced = from == wanted;
        if announced {
            self.peer_moved(ep, rx.sgid, rx.slid);
        }
        let e = &mut self.eps[ep.0 as usize];
        if e.has_addr(&from) {
            return Err(self.claimed(rx, &from, "it claims an own address"));
        }
        let known = e.cache.find(&from);
        let known = self.preloaded_dest(now, ep, known, &from);
        let e = &mut self.eps[ep.0 as usize];
        let dest = match known {
            Some(id) => id,
            // it is said for those who know something else
            None if announced => return Ok(()),
            None => e.cache.insert(&from, Origin::Learned, true).ok_or((More::PeersRefused, "the table is full"))?,
        };
        if e.cache.get(dest).is_some_and(|d| !d.is_learned() && d.path.dgid() != rx.sgid) {
            return Err(self.claimed(rx, &from, "it claims a preloaded address"));
        }
        if self.contradicts(now, ep, dest, rx) {
            return self.verify(now, ep, dest, mine.then_some((&wanted, r.tid)));
        }
        let state = self.learn(now, ep, dest, rx, group);
        let wanted_by_us = self.eps[ep.0 as usize].pending.contains_key(&dest);
        if state == State::Ready && wanted_by_us {
            self.finish(ep, dest, Ok(()));
        }
        if mine {
            // where no path could be had (of a preloaded address) the way of the request is still known
            if matches!(state, State::Ready | State::Failed(_)) {
                self.respond(ep, dest, r.tid);
                return Ok(());
            }
            self.wait(ep, dest, Waiter::Peer { tid: r.tid });
        }
        if state == State::AddrResolved && (mine || wanted_by_us) {
            self.route_or_fail(now, ep, dest);
        }
        Ok(())
    }

    /// An address is claimed that is not for others to have. That may be a lie, or two hosts have been given one address.
    fn claimed(&mut self, rx: &Rx, addr: &Addr, why: &'static str) -> Dropped {
        if !self.ports.iter().any(|p| p.info.gids.contains(&rx.sgid)) {
            self.log(1, || format!("{} LID {} says that it has {addr}: {why}", rx.sgid, rx.slid));
        }
        (More::ClaimsRefused, why)
    }

    /// Whether somebody else is known to have the address of `dest`.
    fn contradicts(&self, now: Time, ep: EpId, dest: DestId, rx: &Rx) -> bool {
        self.eps[ep.0 as usize].cache.get(dest).is_some_and(|d| {
            // what is in doubt is still what is known: only who answers the group's question takes its place
            let known = !matches!(d.state, State::Failed(_)) && !d.path.dgid().is_zero();
            d.is_learned() && known && now < d.addr_expiry && d.path.dgid() != rx.sgid
        })
    }

    /// An address is claimed by somebody else than who is known to have it. It may have moved, or the claim is false:
    /// a request alone does not say. The group is asked who has it, at once if the claimant waits for a response (to
    /// its request for `asked`), else when the address is next wanted.
    fn verify(&mut self, now: Time, ep: EpId, dest: DestId, asked: Option<(&Addr, u64)>) -> Result<(), Dropped> {
        let e = &mut self.eps[ep.0 as usize];
        if let Some(p) = e.pending.get(&dest) {
            let Some((_, tid)) = asked.filter(|_| p.known.is_some()) else {
                return Err((More::ClaimsRefused, "it claims an address that is just being resolved"));
            };
            // the group is being asked: whoever answers gets a response
            self.wait(ep, dest, Waiter::Peer { tid });
            return Ok(());
        }
        if asked.is_some() {
            if e.verified.len() >= MAX_VERIFIED {
                e.verified.retain(|_, at| now < at.plus(VERIFY_AGAIN));
            }
            let recent = e.verified.get(&dest).is_some_and(|at| now < at.plus(VERIFY_AGAIN));
            if recent || e.verified.len() >= MAX_VERIFIED {
                return Err((More::ClaimsRefused, "claims of its address were followed lately"));
            }
            e.verified.insert(dest, now);
        }
        let Some(d) = e.cache.get_mut(dest) else { return Ok(()) };
        d.state = State::Init;
        d.epoch = d.epoch.wrapping_add(1);
        let gid = d.path.dgid();
        self.peer_moved(ep, gid, 0);
        if let Some((own, tid)) = asked {
            self.wait(ep, dest, Waiter::Peer { tid });
            if let Err(status) = self.start(now, ep, dest, Some(own)) {
                self.fail(now, ep, dest, status, "the look-up cannot be started");
            }
        }
        Ok(())
    }

    fn peer_response(&mut self, now: Time, ep: EpId, rx: &Rx, r: &ResponseMsg) -> Result<(), Dropped> {
        let unasked = |why| (More::DatagramsUnasked, why);
        let gid = self.info(ep).gid();
        let e = &mut self.eps[ep.0 as usize];
        let open = e.arp.get(r.tid).or_else(|| e.refreshes.get(r.tid));
        let (dest, offered) = open.ok_or(unasked("it answers no open request"))?;
        let chosen = match r.groups.as_slice() {
            [one] if offered.as_slice().contains(one) => *one,
            _ => return Err(unasked("it names a group that was not offered")),
        };
        if rx.dgid != gid && !self.ports[e.port.0 as usize].info.gids.contains(&rx.dgid) {
            return Err(unasked("a response is not multicast"));
        }
        if r.status != 0 {
            return Err(unasked("a refusal proves nothing"));
        }
        let group = e.best_group(&[chosen]).ok_or(unasked("it names a group that is not joined"))?;
        e.arp.answered(now, r.tid);
        if e.refreshes.close(r.tid) && self.peer_stays(now, ep, dest, rx, group) {
            return Ok(());
        }
        self.learn(now, ep, dest, rx, group);
        self.route_or_fail(now, ep, dest);
        Ok(())
    }

    fn route_or_fail(&mut self, now: Time, ep: EpId, dest: DestId) {
        match self.eps[ep.0 as usize].cache.get(dest).map(|d| d.state) {
            Some(State::AddrResolved) => {}
            // it was only to be confirmed
            Some(State::Ready) => return self.finish(ep, dest, Ok(())),
            _ => return,
        }
        let Err(status) = self.route(now, ep, dest) else { return };
        if self.eps[ep.0 as usize].pending.get(&dest).is_some_and(Pending::is_for_peers) {
            // too many are asked about for peers: this one has its response without, and is where it was heard
            self.finish_failed(now, ep, dest, status, true);
        } else {
            self.fail(now, ep, dest, status, "the route cannot be asked for");
        }
    }

    /// Notes where a peer is. What was known is thrown away if it has moved or restarted; its state then is
    /// AddrResolved.
    fn learn(&mut self, now: Time, ep: EpId, dest: DestId, rx: &Rx, group: u8) -> State {
        let expiry = now.plus_minutes(self.config.addr_timeout);
        let lmc = self.info(ep).lmc.min(7);
        let e = &mut self.eps[ep.0 as usize];
        let Some(d) = e.cache.get_mut(dest) else { return State::Init };
        let peer = Peer { qpn: rx.src_qp, lid: rx.slid, path_bits: rx.dlid_path_bits, group };
        if !d.is_learned() {
            // the path was given and stays; only where to respond is new
            d.peer = peer;
            return d.state;
        }
        d.era = e.era;
        let lid_changed = d.peer.lid != 0 && d.path.dgid() == rx.sgid && (d.peer.lid ^ peer.lid) >> lmc != 0;
        let same = d.peer.qpn == peer.qpn && d.peer.lid == peer.lid && d.path.dgid() == rx.sgid;
        // an expired entry is not made fresh by its peer asking: its path is asked for again
        let current = now < d.addr_expiry && now < d.route_expiry;
        let keep = match d.state {
            State::Ready | State::QueryRoute | State::AddrResolved => same && current,
            State::QueryAddr => {
                let known = e.pending.get(&dest).and_then(|p| p.known.as_ref());
                same && current && known.is_some_and(|k| k.has_path(d.epoch))
            }
            State::Init | State::Failed(_) => false,
        };
        if !keep && d.state == State::QueryRoute {
            // the question is for the GID: if that is another one, the answer to the old question asks the new one
            d.epoch = d.epoch.wrapping_add(u16::from(d.path.dgid() != rx.sgid));
        } else if !keep {
            d.epoch = d.epoch.wrapping_add(1);
            if let Some(p) = e.pending.get_mut(&dest) {
                p.known = None;
                p.tid.take().into_iter().for_each(|tid| e.arp.close(tid));
            }
            d.state = State::AddrResolved;
        } else if d.state == State::QueryAddr {
            d.state = State::Ready;
        }
        // a path of a group, and the peer is in a better one by now: it is made anew when it is next wanted
        let acm = self.config.route_prot == RouteProt::Acm;
        if keep && acm && d.state == State::Ready && Class::from_code(group).is_better(Class::of(&d.path)) {
            d.state = State::AddrResolved;
        }
        if !keep {
            d.path = Default::default();
            d.path.set_dgid(rx.sgid);
            (d.addr_expiry, d.route_expiry) = (expiry, Time::NEVER);
        }
        d.peer = peer;
        let state = d.state;
        if lid_changed {
            self.peer_moved(ep, rx.sgid, rx.slid);
        }
        state
    }

    /// Responds to a peer's request along what is known of it.
    pub(super) fn respond(&mut self, ep: EpId, dest: DestId, tid: u64) {
        let gid_index = |gids: &[Gid], gid: Gid| gids.iter().position(|g| *g == gid).unwrap_or(0) as u8;
        let e = &self.eps[ep.0 as usize];
        let Some(d) = e.cache.get(dest) else { return };
        let Some((g, rec)) = e.group(d.peer.group) else { return };
        let p = &d.path;
        let av = if d.state == State::Ready && d.is_learned() {
            Av {
                dlid: p.dlid(),
                sl: p.sl(),
                src_path_bits: d.peer.path_bits,
                static_rate: p.rate() & 0x3f,
                dgid: p.dgid(),
                sgid_index: gid_index(&self.info(ep).gids, p.sgid()),
                flow_label: (p.flow_hop() >> 8) & 0xf_ffff,
                hop_limit: p.flow_hop() as u8,
                traffic_class: p.tclass(),
            }
        } else {
            // no path from the SA: the way the request came, with the group's parameters
            Av { dlid: d.peer.lid, src_path_bits: d.peer.path_bits, dgid: p.dgid(), ..Av::group(rec) }
        };
        let response = Response { av, qpn: d.peer.qpn, tid, group: g.mgid };
        let e = &mut self.eps[ep.0 as usize];
        if e.responses.len() < MAX_RESPONSES {
            e.responses.push_back(response);
        } else {
            self.count_more(ep, More::PeersRefused);
        }
        self.pump_responses(ep);
    }

    pub(super) fn pump_responses(&mut self, ep: EpId) {
        let depth = self.config.send_depth;
        let e = &mut self.eps[ep.0 as usize];
        while e.responses_sent < depth {
            let Some(r) = e.responses.pop_front() else { return };
            let msg = ResponseMsg { tid: r.tid, status: 0, groups: Groups::new([r.group]) };
            let payload = Box::new(Datagram::Response(msg).emit());
            e.responses_sent += 1;
            self.actions.push_back(Action::Send { ep, token: r.tid | RESPONSE, av: r.av, qpn: r.qpn, payload });
        }
    }

    /// A datagram is sent, or could not be.
    pub fn sent(&mut self, now: Time, ep: EpId, token: u64, ok: bool) {
        if !ok {
            self.count_more(ep, More::SendsFailed);
        }
        let Some(e) = self.eps.get_mut(ep.0 as usize) else { return };
        if token & RESPONSE != 0 {
            e.responses_sent = e.responses_sent.saturating_sub(1);
            self.pump_responses(ep);
        } else if !ok {
            e.arp.send_failed(now, token);
            self.pump_arp(now, ep);
        }
    }
}
