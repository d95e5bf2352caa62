//! What the engine asks for, done; and completions and MADs, told to it.

use ibacm_wire::{Gid, datagram};

use super::{ANSWER, Daemon, REOPEN, REOPEN_MAX, SHARE};
use crate::engine::{self, Action, EpId, PortId, Rx};
use crate::local_service;
use crate::log;
use crate::provider::core::core;
use crate::server::ClientId;
use crate::token::{self, kind};
use crate::ud::{Av, AvGrh, Completion, UdEndpoint};

/// Receives that endpoints share where there are many, as with hundreds of virtual functions and partitions: their
/// buffers are locked memory, 300 bytes each.
const RECEIVES: usize = 131_072;
/// What each has at least.
const FEWEST_RECEIVES: usize = 64;

/// How many receives one of so many endpoints gets.
fn share_of_receives(wanted: usize, endpoints: usize) -> usize {
    wanted.min((RECEIVES / endpoints.max(1)).max(FEWEST_RECEIVES))
}

/// What lines of one kind have in common: how they begin. Where they name a provider, which there are few of, all but the
/// numbers.
fn kind_of(text: &str) -> Vec<u8> {
    match text.starts_with("provider ") {
        true => text.bytes().filter(|b| !b.is_ascii_digit()).take(128).collect(),
        false => text.bytes().take(8).collect(),
    }
}

impl Daemon {
    /// Does everything that the engine wants, and what it wants after that.
    #[inline]
    pub(super) fn do_actions(&mut self) {
        // not even a call for an answer that was known
        if self.engine.has_actions() {
            self.do_all_actions();
        }
    }

    fn do_all_actions(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match action {
                Action::Reply { client, reply } if local_service::is_kernel(client) => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.reply(self.now, client, &reply);
                    }
                }
                Action::Reply { client, reply } => {
                    let id = ClientId::new(client.0 as u32, (client.0 >> 32) as u32);
                    let status = reply.get(2).copied().unwrap_or_default();
                    log!(2, "client {}: answered, status {status}", id.index);
                    // it may be among those that were read and not written to yet: the earlier one first
                    self.answer_clients();
                    self.server.reply(id, &reply);
                    // what it was for has come
                    self.awake_until = self.now.plus(self.busy_poll);
                }
                Action::Send { ep, token, av, qpn, payload } => {
                    self.send(ep, token, &av, qpn, &*payload);
                    if token & engine::RESPONSE == 0 {
                        self.stay_awake(ANSWER);
                    }
                }
                Action::Mad { port, tid, lid, sl, pkey_index, timeout_ms, retries, mad } => {
                    self.stay_awake(ANSWER);
                    let sent = match self.umad(port) {
                        Some(umad) => umad.send(lid, sl, pkey_index, (timeout_ms, retries), &mad.0),
                        None => Err(std::io::ErrorKind::NotConnected.into()),
                    };
                    if let Err(e) = sent {
                        crate::log_limited!(0, "cannot ask the subnet administrator: {e}");
                        self.engine.mad_failed(self.now, port, tid);
                    }
                }
                Action::Respond { port, lid, sl, pkey_index, mad } => {
                    let sent = self.umad(port).map(|umad| umad.send(lid, sl, pkey_index, (0, 0), &mad.0));
                    if let Some(Err(e)) = sent {
                        // who reported asks again
                        crate::log_limited!(1, "cannot answer the subnet administrator: {e}");
                    }
                }
                Action::Open { ep, port, pkey_index } => self.open(ep, port, pkey_index),
                Action::Close { ep } => {
                    self.endpoints.remove(&ep);
                    self.reopen.retain(|r| r.1 != ep);
                }
                Action::Attach { ep, mgid, mlid } => {
                    let attached = self.endpoints.get_mut(&ep).map(|e| e.attach(&mgid.0, mlid));
                    if let Some(Err(e)) = attached {
                        // deaf, the endpoint is of no use: all of it is made anew
                        log!(0, "cannot attach to {mgid}: {e}");
                        self.endpoints.remove(&ep);
                        self.open_later(ep);
                    }
                }
                Action::Detach { ep, mgid, .. } => {
                    if let Some(Err(e)) = self.endpoints.get_mut(&ep).map(|e| e.detach(&mgid.0)) {
                        log!(1, "cannot detach from {mgid}: {e}");
                    }
                }
                Action::AskNeighbour { token, ip, until } => self.ask_neighbour(token, ip, until),
                Action::Plugged { port } => self.plugged(port),
                Action::Ask { provider, port, ep, id, call } => self.ask_provider(provider, port, ep, id, call),
                Action::Forget { id } => drop(core().close_ask(id)),
                Action::Late { provider, function, waited } => self.provider_late(provider, function, waited),
                Action::Reregister { provider, port } => self.reregister_provider(provider, port),
                Action::MadDone { token, result } => self.mad_done(token, result),
                Action::Log { level, limited: false, text } => log!(level, "{text}"),
                Action::Log { level, text, .. } => crate::log_keyed!(level, kind_of(&text), "{text}"),
            }
        }
    }

    fn open(&mut self, ep: EpId, port: PortId, pkey_index: u16) {
        let Some(&(d, p)) = self.ports.get(&port) else { return };
        let Some(device) = self.devices.get(d).and_then(Option::as_ref) else { return };
        let Some(number) = device.ports.get(p).map(|p| p.number) else { return };
        let cookie = u64::from(ep.0);
        let (recv, send) = (share_of_receives(self.depths.recv, self.engine.endpoint_count()), self.depths.send);
        match UdEndpoint::new(&device.ud, cookie, number, pkey_index, datagram::QKEY, recv, send) {
            Ok(endpoint) => {
                let qpn = endpoint.qpn();
                self.endpoints.insert(ep, endpoint);
                self.engine.endpoint_opened(self.now, ep, qpn);
            }
            Err(e) => {
                self.engine.endpoint_failed(ep, &e.to_string());
                self.open_later(ep);
            }
        }
    }

    /// Has an endpoint without a QP opened again, after a pause that grows with the number of times.
    fn open_later(&mut self, ep: EpId) {
        let (times, last) = self.reopened.get(&ep).copied().unwrap_or((0, self.now));
        let times = if last.plus(REOPEN_MAX * 2) < self.now { 0 } else { times };
        let at = self.now.plus(REOPEN.saturating_mul(1 << times.min(6)).min(REOPEN_MAX));
        self.reopened.insert(ep, (times + 1, at));
        self.reopen.push((at, ep));
    }

    pub(super) fn reopen_endpoints(&mut self) {
        let now = self.now;
        while let Some(i) = self.reopen.iter().position(|r| r.0 <= now) {
            let (_, ep) = self.reopen.swap_remove(i);
            if let Some((port, pkey_index)) = self.engine.endpoint_wanted(ep) {
                self.open(ep, port, pkey_index);
            }
        }
    }

    fn send(&mut self, ep: EpId, token: u64, to: &engine::Av, qpn: u32, payload: &[u8]) {
        let av = Av {
            dlid: to.dlid,
            sl: to.sl,
            src_path_bits: to.src_path_bits,
            static_rate: to.static_rate,
            grh: Some(AvGrh {
                dgid: to.dgid.0,
                sgid_index: to.sgid_index,
                flow_label: to.flow_label,
                hop_limit: to.hop_limit,
                traffic_class: to.traffic_class,
            }),
        };
        let sent = self.endpoints.get_mut(&ep).map(|e| e.send(token, &av, qpn, datagram::QKEY, payload));
        match sent {
            Some(Ok(())) => {}
            Some(Err(e)) => {
                crate::log_limited!(1, "cannot send to {}: {e}", to.dgid);
                self.engine.sent(self.now, ep, token, false);
            }
            None => self.engine.sent(self.now, ep, token, false),
        }
    }

    /// Events of a device's completion channel. Generation 1 stands for a single endpoint that had more to hand over.
    pub(super) fn completions(&mut self, index: usize, generation: u32, token: mio::Token) {
        if generation == 1 {
            return self.poll_endpoint(EpId(index as u32));
        }
        let Some(device) = self.devices.get_mut(index).and_then(Option::as_mut) else { return };
        let mut ready = Vec::new();
        match device.ud.drain_events(SHARE, |cookie| ready.push(EpId(cookie as u32))) {
            Ok(SHARE) => self.again.push_back(token),
            Ok(_) => {}
            Err(e) => return self.device_lost(index, &e.to_string()),
        }
        for ep in ready {
            self.poll_endpoint(ep);
        }
    }

    /// Takes what an endpoint has, and does what follows from it before the queue is armed and looked at again: somebody
    /// waits for the one, and nobody for the other.
    fn poll_endpoint(&mut self, ep: EpId) {
        let Some(taken) = self.take_completions(ep, SHARE) else { return };
        self.do_actions();
        let Some(endpoint) = self.endpoints.get_mut(&ep) else { return };
        // an endpoint that breaks by this is taken out by the look that follows
        if let Err(e) = endpoint.arm() {
            crate::log_limited!(0, "cannot wait for completions: {e}");
        }
        self.take_completions(ep, SHARE - taken);
    }

    /// Hands an endpoint's completions to the engine: how many there were, if that was all, and the endpoint is well.
    fn take_completions(&mut self, ep: EpId, budget: usize) -> Option<usize> {
        let (engine, now) = (&mut self.engine, self.now);
        let endpoint = self.endpoints.get_mut(&ep)?;
        let polled = endpoint.poll(budget, |completion| match completion {
            Completion::Recv(r) => {
                let Some(grh) = &r.grh else { return engine.datagram_lost(ep) };
                let rx = Rx {
                    sgid: Gid(grh.sgid()),
                    dgid: Gid(grh.dgid()),
                    slid: r.slid,
                    src_qp: r.src_qp,
                    dlid_path_bits: r.dlid_path_bits,
                };
                engine.datagram(now, ep, &rx, r.payload);
            }
            Completion::Sent { token, ok, status } => {
                if !ok {
                    crate::log_limited!(1, "a datagram was not sent: completion status {status}");
                }
                engine.sent(now, ep, token, ok);
            }
            Completion::RecvError { status } => {
                // a queue that goes down gives back what it had for datagrams
                if status != crate::ffi::IBV_WC_WR_FLUSH_ERR {
                    engine.datagram_lost(ep);
                }
                crate::log_limited!(1, "a receive failed: completion status {status}");
            }
        });
        let broken = endpoint.is_broken();
        if let Err(e) = &polled {
            crate::log_limited!(0, "cannot poll for completions: {e}");
        }
        if broken {
            self.endpoints.remove(&ep);
            self.open_later(ep);
            return None;
        }
        match polled {
            Ok(p) if !p.more => Some(p.completions),
            Ok(_) => {
                self.again.push_back(token::pack(kind::COMPLETION, 1, ep.0));
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_providers_are_of_one_kind_where_only_numbers_differ() {
        let line = |name: &str, n: u32| kind_of(&format!("provider {name}: malformed answer: {n} bytes"));
        assert_eq!(line("a", 1), line("a", 17));
        assert_ne!(line("a", 1), line("b", 1));
        assert_ne!(line("a", 1), kind_of("provider a: no answer"));
        assert_eq!(kind_of("no answer from 1.2.3.4"), kind_of("no answer from a stranger's text"));
    }

    #[test]
    fn many_endpoints_share_their_receives() {
        for (wanted, endpoints, have) in
            [(1024, 0, 1024), (1024, 1, 1024), (1024, 128, 1024), (1024, 256, 512), (1024, 10_000, 64), (9, 10_000, 9)]
        {
            assert_eq!(share_of_receives(wanted, endpoints), have, "{wanted} each for {endpoints}");
        }
    }
}
