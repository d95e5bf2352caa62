//! Datagrams: from a send queue over the wires into receive queues, or into a counter of lost ones.

use super::timer::Timer;
use super::{Switch, qps};
use crate::ib::{self, Gid, pkeys_match};
use crate::proto::{Msg, flag, op};

const WC_SUCCESS: u32 = 0;
const WC_LOC_LEN_ERR: u32 = 1;
const WC_FLUSH_ERR: u32 = 5;

/// Bytes of a GRH.
pub const GRH: usize = 40;

/// The global route header, as far as it isn't constant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture")]
pub struct Grh {
    pub sgid: Gid,
    pub dgid: Gid,
    pub flow_label: u32,
    pub tclass: u8,
    pub hop_limit: u8,
}

/// A datagram on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the architecture")]
pub struct Datagram {
    /// Device and port that sent it; `None` for one that a test made up.
    pub from: Option<(usize, u32)>,
    pub slid: u16,
    pub dlid: u16,
    pub sl: u8,
    pub sqpn: u32,
    pub dqpn: u32,
    pub pkey: u16,
    pub qkey: u32,
    pub grh: Option<Grh>,
    pub imm: Option<u32>,
    pub solicited: bool,
    pub payload: Vec<u8>,
}

impl Datagram {
    /// To a multicast group.
    pub fn multicast(&self) -> bool {
        self.dlid >= ib::FIRST_MLID && self.dlid != 0xffff
    }
}

/// Where a datagram may go: the QP's name, and whether it is on the port that sent.
struct Target {
    dev: usize,
    qpn: u32,
    port: u32,
}

impl Switch {
    pub(super) fn post_send(&mut self, token: u64, msg: Msg) {
        let Some(dev) = self.context(token).and_then(|c| c.dev) else { return };
        let Some(qp) = self.qps.get(&(dev, msg.obj)).filter(|qp| qp.ctx == token) else { return };
        let (state, port, pkey_index, epoch) = (qp.state, qp.port, qp.pkey_index, qp.epoch);
        let (host, pid) = self.conns.get(&token).map(|c| (c.host.clone(), c.pid)).unwrap_or_default();
        if state == qps::SQE || state == qps::ERR {
            return self.send_done(token, dev, &msg, WC_FLUSH_ERR, epoch);
        }
        let Some(view) = self.devices[dev].port(port).map(|p| p.view()) else { return };
        let mtu = 128usize << view.mtu;
        let status = if msg.v[8] != WC_SUCCESS {
            msg.v[8]
        } else if msg.payload.len() > mtu {
            self.violation(&host, pid, &format!("a datagram of {} bytes, the MTU is {mtu}", msg.payload.len()));
            WC_LOC_LEN_ERR
        } else {
            self.faults.send_status(&host).unwrap_or(WC_SUCCESS)
        };
        if status == WC_SUCCESS {
            let grh = (msg.flags & flag::GRH != 0).then(|| Grh {
                sgid: view.gid(msg.v[6]).unwrap_or_default(),
                dgid: msg.gid,
                flow_label: msg.v[4] & 0x000f_ffff,
                tclass: msg.v[5] as u8,
                hop_limit: (msg.v[5] >> 8) as u8,
            });
            let path_bits = (msg.v[1] >> 8) as u16 & ((1 << view.lmc) - 1);
            let datagram = Datagram {
                from: Some((dev, port)),
                slid: view.lid | path_bits,
                dlid: msg.v[0] as u16,
                sl: msg.v[1] as u8 & 0x0f,
                sqpn: msg.obj,
                dqpn: msg.v[2] & 0x00ff_ffff,
                pkey: view.pkey(pkey_index).unwrap_or(0),
                qkey: msg.v[3],
                grh,
                imm: (msg.flags & flag::IMM != 0).then_some(msg.v[7]),
                solicited: msg.flags & flag::SOLICITED != 0,
                payload: msg.payload.clone(),
            };
            let kind = if datagram.multicast() { "mcast" } else { "ucast" };
            self.count(format!("{kind}.{host}.sent"));
            self.sniffer.record(&host, &datagram);
            if view.active() { self.transmit(datagram) } else { self.count("drop.port_down") }
        }
        self.send_done(token, dev, &msg, status, epoch);
    }

    /// The completion of a send, where one is due. An error stops the send queue.
    fn send_done(&mut self, token: u64, dev: usize, send: &Msg, status: u32, epoch: u32) {
        let Some(qp) = self.qps.get_mut(&(dev, send.obj)) else { return };
        if status != WC_SUCCESS && qp.state == qps::RTS {
            qp.state = qps::SQE;
        }
        if status == WC_SUCCESS && send.flags & flag::SIGNALED == 0 {
            return;
        }
        let cq = qp.send_cq;
        let mut cqe = Msg { obj: send.obj, id: send.id, ..Msg::new(op::CQE) };
        cqe.v[0] = status;
        cqe.v[8] = epoch;
        if !self.complete(token, cq, &cqe) {
            self.count("drop.send_completion");
        }
    }

    /// Puts a datagram on the wire, where faults may befall it.
    pub(super) fn transmit(&mut self, datagram: Datagram) {
        let host = datagram.from.map(|(dev, _)| self.devices[dev].host.clone()).unwrap_or_default();
        let fate = self.faults.datagram_sent(&host, datagram.multicast());
        if fate.drop {
            return self.count("drop.fault");
        }
        for _ in 0..fate.copies {
            if datagram.multicast() {
                self.ask_peers(&datagram);
            }
            match fate.delay {
                Some(delay) => self.timers.set(self.now + delay, Timer::Deliver(Box::new(datagram.clone()))),
                None => self.deliver(&datagram),
            }
        }
    }

    /// Brings a datagram to whoever it is for.
    pub(super) fn deliver(&mut self, datagram: &Datagram) {
        let targets = if datagram.multicast() { self.group_targets(datagram) } else { self.unicast_target(datagram) };
        match targets {
            Ok(targets) => {
                for target in targets {
                    if let Err(reason) = self.receive(&target, datagram) {
                        self.count(format!("drop.{reason}"));
                    }
                }
            }
            Err(reason) => self.count(format!("drop.{reason}")),
        }
    }

    fn unicast_target(&self, d: &Datagram) -> Result<Vec<Target>, &'static str> {
        for (dev, device) in self.devices.iter().enumerate().filter(|(_, d)| !d.gone) {
            for (index, port) in device.ports.iter().enumerate() {
                let view = port.view();
                if !view.has_lid(d.dlid) {
                    continue;
                }
                if !view.active() {
                    return Err("destination_down");
                }
                if let Some(grh) = &d.grh
                    && !view.gids.values().any(|g| *g == grh.dgid)
                {
                    return Err("wrong_gid");
                }
                return Ok(vec![Target { dev, qpn: d.dqpn, port: index as u32 + 1 }]);
            }
        }
        Err("no_such_lid")
    }

    /// Queue pairs that are attached to the group, on ports that the SA has let in.
    fn group_targets(&self, d: &Datagram) -> Result<Vec<Target>, &'static str> {
        let Some(grh) = &d.grh else { return Err("multicast_without_grh") };
        if d.dqpn != ib::MULTICAST_QPN {
            return Err("multicast_qpn");
        }
        if let Some((dev, port)) = d.from {
            let port = self.devices[dev].port(port).ok_or("port")?;
            if port.joined.get(&grh.dgid).is_none_or(|m| m.mlid != d.dlid) {
                return Err("sender_not_joined");
            }
        }
        let mut targets = Vec::new();
        for (&(dev, qpn), qp) in &self.qps {
            let device = &self.devices[dev];
            let Some(port) = device.port(qp.port) else { continue };
            let member = port.joined.get(&grh.dgid).is_some_and(|m| m.mlid == d.dlid);
            let attached = qp.attached.contains(&(grh.dgid, d.dlid));
            let looped = d.from == Some((dev, qp.port)) && self.faults.no_loopback.contains(&device.host);
            if member && attached && !looped && !device.gone && port.view().active() {
                targets.push(Target { dev, qpn, port: qp.port });
            }
        }
        // The map has no order of its own; runs should not differ by it.
        targets.sort_by_key(|t| (t.dev, t.qpn));
        Ok(targets)
    }

    fn receive(&mut self, target: &Target, d: &Datagram) -> Result<(), &'static str> {
        let host = self.devices[target.dev].host.clone();
        let from = d.from.map(|(dev, _)| self.devices[dev].host.clone()).unwrap_or_default();
        if self.faults.datagram_received(&from, &host, d.multicast()) {
            return Err("fault");
        }
        let view = self.devices[target.dev].port(target.port).ok_or("port")?.view();
        let qp = self.qps.get_mut(&(target.dev, target.qpn)).ok_or("no_such_qp")?;
        if qp.port != target.port {
            return Err("no_such_qp");
        }
        if !matches!(qp.state, qps::RTR | qps::RTS | qps::SQD | qps::SQE) {
            return Err("qp_state");
        }
        if !pkeys_match(d.pkey, view.pkey(qp.pkey_index).unwrap_or(0)) {
            return Err("pkey");
        }
        if d.qkey != qp.qkey {
            return Err("qkey");
        }
        if qp.posted == 0 {
            return Err("no_receive");
        }
        qp.posted -= 1;
        let (ctx, cq) = (qp.ctx, qp.recv_cq);
        let flags = flag::RECV
            | if d.grh.is_some() { flag::GRH } else { 0 }
            | if d.imm.is_some() { flag::IMM } else { 0 }
            | if d.solicited { flag::SOLICITED } else { 0 };
        let mut cqe = Msg { obj: target.qpn, flags, ..Msg::new(op::CQE) };
        let path_bits = d.dlid & ((1 << view.lmc) - 1);
        cqe.v = [
            WC_SUCCESS,
            (GRH + d.payload.len()) as u32,
            d.sqpn,
            d.slid.into(),
            d.sl.into(),
            qp.pkey_index,
            d.imm.unwrap_or(0),
            if d.multicast() { 0 } else { path_bits.into() },
            qp.epoch,
            0,
        ];
        cqe.payload = grh_bytes(d);
        cqe.payload.extend_from_slice(&d.payload);
        let kind = if d.multicast() { "mcast" } else { "ucast" };
        if !self.complete(ctx, cq, &cqe) {
            return Err("completion_queue");
        }
        self.count(format!("{kind}.{host}.received"));
        Ok(())
    }
}

/// The 40 bytes before the payload: the GRH, or whatever was in memory.
fn grh_bytes(d: &Datagram) -> Vec<u8> {
    let Some(grh) = &d.grh else { return vec![0xa5; GRH] };
    let mut out = Vec::with_capacity(GRH);
    out.extend_from_slice(&(6 << 28 | u32::from(grh.tclass) << 20 | grh.flow_label).to_be_bytes());
    // Transport headers (12 + 8), payload padded to words, and the invariant CRC.
    let length = 20 + d.payload.len().next_multiple_of(4) + 4 + if d.imm.is_some() { 4 } else { 0 };
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.push(0x1b);
    out.push(grh.hop_limit);
    out.extend_from_slice(&grh.sgid);
    out.extend_from_slice(&grh.dgid);
    out
}
