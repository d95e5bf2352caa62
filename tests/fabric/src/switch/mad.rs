//! The kernel's part in sending MADs: agents, transaction ids, time limits, repeats; and what the SA's answers tell.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::fault::Fate;
use super::port::Membership;
use super::timer::Timer;
use super::{Switch, conn::Kind};
use crate::ib::{self, McMember, mad};
use crate::ibsim::Packet;
use crate::proto::{Msg, op};

/// Bytes of libibumad's header.
const HEADER: usize = 64;
/// Offsets in it.
const AT_STATUS: usize = 4;
const AT_LENGTH: usize = 16;
const AT_QPN: usize = 20;
const AT_QKEY: usize = 24;
const AT_LID: usize = 28;
const AT_SL: usize = 30;
const AT_PKEY_INDEX: usize = 56;

/// An open port.
#[derive(Debug)]
pub struct Umad {
    /// Its device.
    pub dev: usize,
    port: u32,
    agents: HashMap<u32, Agent>,
}

/// Somebody who sends MADs of a class through an open port, and gets the answers.
#[derive(Debug)]
pub(super) struct Agent {
    /// Upper half of the transaction ids of its requests, without ibsim's part.
    pub number: u16,
    pub class: u8,
    /// One bit a method: wants these without having asked.
    pub methods: u128,
}

impl Umad {
    /// A port without agents.
    pub fn new(dev: usize, port: u32) -> Self {
        Umad { dev, port, agents: HashMap::new() }
    }

    /// The port's number.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Whether one of its agents has one of these methods of a class.
    pub fn has_methods(&self, class: u8, methods: u128) -> bool {
        self.agents.values().any(|a| a.class == class && a.methods & methods != 0)
    }

    pub(super) fn add(&mut self, id: u32, agent: Agent) {
        self.agents.insert(id, agent);
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Pending {
    /// The connection it came from.
    pub conn: u64,
    dev: usize,
    port: u32,
    /// As the program sent it, with the whole transaction id.
    buffer: Vec<u8>,
    timeout: Duration,
    retries: u32,
    deadline: Instant,
}

impl Switch {
    pub(super) fn umad(&mut self, token: u64, msg: Msg) {
        match msg.op {
            op::UMAD_UNREGISTER => {
                if let Some(umad) = self.umad_conn(token) {
                    umad.agents.remove(&msg.obj);
                }
            }
            op::UMAD_SEND => self.umad_send(token, msg),
            _ => {}
        }
    }

    pub(super) fn next_agent_number(&mut self) -> u16 {
        let number = self.next_agent as u16;
        // Zero would look like a transaction id that nobody has touched.
        self.next_agent = (self.next_agent + 1) & 0xffff | u32::from(self.next_agent == 0xffff);
        number
    }

    fn umad_conn(&mut self, token: u64) -> Option<&mut Umad> {
        match self.conns.get_mut(&token).map(|c| &mut c.kind) {
            Some(Kind::Umad(umad)) => Some(umad),
            _ => None,
        }
    }

    fn umad_send(&mut self, token: u64, mut msg: Msg) {
        let Some(umad) = self.umad_conn(token) else { return };
        let (dev, port) = (umad.dev, umad.port);
        let Some(number) = umad.agents.get(&msg.obj).map(|a| a.number) else { return };
        if msg.payload.len() < HEADER + 24 {
            return;
        }
        msg.payload.resize(HEADER + mad::SIZE, 0);
        let client = self.client_of(dev, port).map_or(0, |c| self.clients[c].client.number());
        let m = &mut msg.payload[HEADER..];
        let request = mad::method(m) & mad::RESPONSE == 0;
        if request {
            // The kernel owns the upper half; ibsim finds us by the upper half of that.
            mad::set_tid(m, u64::from(client) << 48 | u64::from(number) << 32 | mad::tid(m) & 0xffff_ffff);
        }
        let tid = mad::tid(m);
        if request && mad::class(m) == mad::CLASS_SA {
            let (attribute, method) = (mad::attribute_name(mad::attribute(m)), mad::method_name(mad::method(m)));
            let host = self.devices[dev].host.clone();
            self.count(format!("sa.{host}.{attribute}.{method}"));
        } else if mad::method(m) == mad::REPORT | mad::RESPONSE {
            let host = self.devices[dev].host.clone();
            self.count(format!("sa.{host}.Notice.ReportResp"));
        }
        let timeout = Duration::from_millis(msg.v[0].into());
        if request && !timeout.is_zero() {
            if self.pending.contains_key(&tid) {
                let (host, pid) = self.conns.get(&token).map(|c| (c.host.clone(), c.pid)).unwrap_or_default();
                return self.violation(&host, pid, "umad_send: a request with this transaction id is under way");
            }
            let deadline = self.now + timeout;
            let pending =
                Pending { conn: token, dev, port, buffer: msg.payload.clone(), timeout, retries: msg.v[1], deadline };
            self.pending.insert(tid, pending);
            self.timers.set(deadline, Timer::Mad(tid));
        }
        self.mad_out(dev, port, &msg.payload);
    }

    /// A MAD leaves its port, unless something is wrong with it or a fault is set.
    fn mad_out(&mut self, dev: usize, port: u32, buffer: &[u8]) {
        let host = self.devices[dev].host.clone();
        let Some(view) = self.devices[dev].port(port).map(super::port::Port::view) else { return };
        let word = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().expect("four bytes"));
        let (qpn, qkey) = (word(AT_QPN), word(AT_QKEY));
        let dlid = u16::from_be_bytes([buffer[AT_LID], buffer[AT_LID + 1]]);
        let pkey_index = u16::from_ne_bytes([buffer[AT_PKEY_INDEX], buffer[AT_PKEY_INDEX + 1]]);
        let mut m: [u8; mad::SIZE] = buffer[HEADER..].try_into().expect("256 bytes");
        let sa = mad::class(&m) == mad::CLASS_SA && mad::method(&m) & mad::RESPONSE == 0;
        let lost = if !view.active() {
            Some("mad_port_down")
        } else if qpn == 1 && qkey != ib::GSI_QKEY {
            Some("mad_qkey")
        } else if qpn == 1 && view.pkey(pkey_index.into()).is_none_or(|k| k & 0x7fff != 0x7fff) {
            // The SA listens in the default partition only.
            Some("mad_pkey")
        } else if view.sm_lid != self.devices[dev].ports[port as usize - 1].info.sm_lid && dlid != view.sm_lid {
            // A test has moved the SM: nobody is at its old address.
            Some("mad_old_sm_lid")
        } else {
            None
        };
        if let Some(reason) = lost {
            return self.count(format!("drop.{reason}"));
        }
        if sa {
            match self.faults.sa_request(&host, mad::attribute(&m), mad::method(&m)) {
                Fate::Pass => {}
                Fate::Drop => return self.count("drop.sa_request"),
                Fate::Status(status) => {
                    // Get and Set are both answered by a GetResp (IBA 15.2.1)
                    m[3] = mad::RESPONSE | if mad::method(&m) == 2 { 1 } else { mad::method(&m) };
                    mad::set_status(&mut m, status);
                    return self.mad_in(Some(dev), &m, dlid);
                }
                Fate::Delay(_) => {}
            }
        }
        let Some(client) = self.client_of(dev, port) else { return };
        self.to_subnet(&mut m);
        let real = self.devices[dev].ports[port as usize - 1].info.sm_lid;
        let dlid = if dlid == view.sm_lid { real } else { dlid };
        let packet = Packet { dlid, slid: 0, dqp: qpn, sqp: 1, status: 0, mad: m };
        if let Err(e) = self.clients[client].client.send(&packet) {
            eprintln!("{host}: MAD not sent: {e}");
        }
    }

    pub(super) fn mad_expired(&mut self, tid: u64) {
        let now = self.now;
        let Some(pending) = self.pending.get_mut(&tid) else { return };
        if pending.deadline > now {
            // A timer of an earlier request that had the same id.
            return;
        }
        if pending.retries > 0 {
            pending.retries -= 1;
            pending.deadline = now + pending.timeout;
            let (dev, port, deadline, buffer) = (pending.dev, pending.port, pending.deadline, pending.buffer.clone());
            self.timers.set(deadline, Timer::Mad(tid));
            let host = self.devices[dev].host.clone();
            self.count(format!("sa.{host}.repeated"));
            return self.mad_out(dev, port, &buffer);
        }
        let Some(mut pending) = self.pending.remove(&tid) else { return };
        pending.buffer[AT_STATUS..AT_STATUS + 4].copy_from_slice(&110u32.to_ne_bytes());
        let host = self.devices[pending.dev].host.clone();
        self.count(format!("sa.{host}.expired"));
        self.hand_over(pending.conn, pending.buffer);
    }

    /// A MAD came from ibsim for this client.
    pub(super) fn packet_arrived(&mut self, client: usize, packet: Packet) {
        if packet.status != 0 {
            // Nobody there. The kernel would wait for its time limit.
            return self.count("drop.mad_unreachable");
        }
        let m = &packet.mad;
        if matches!(mad::class(m), 0x01 | 0x81) {
            return self.smp_answer(m);
        }
        if mad::class(m) == mad::CLASS_SA
            && mad::method(m) & mad::RESPONSE != 0
            && let Some(pending) = self.pending.get(&mad::tid(m))
        {
            let host = self.devices[pending.dev].host.clone();
            match self.faults.sa_answer(&host, mad::attribute(m), mad::method(m)) {
                Fate::Drop => return self.count("drop.sa_answer"),
                Fate::Delay(delay) => {
                    return self.timers.set(self.now + delay, Timer::Answer(client, Box::new(packet)));
                }
                Fate::Pass | Fate::Status(_) => {}
            }
        }
        self.answer_arrived(client, packet);
    }

    pub(super) fn answer_arrived(&mut self, client: usize, packet: Packet) {
        let mut m = packet.mad;
        self.note_membership(&m);
        self.to_host(&mut m);
        self.mad_in(self.clients[client].dev, &m, packet.slid);
    }

    /// Gives a MAD to the agent that asked for it, or to one that wants such MADs.
    fn mad_in(&mut self, dev: Option<usize>, m: &[u8; mad::SIZE], slid: u16) {
        let method = mad::method(m);
        let tid = mad::tid(m);
        if method & mad::RESPONSE != 0 {
            let Some(mut pending) = self.pending.remove(&tid) else { return self.count("drop.mad_unexpected") };
            let view = self.devices[pending.dev].port(pending.port).map(super::port::Port::view).unwrap_or_default();
            let known = self.devices[pending.dev].port(pending.port).is_some_and(|p| p.info.sm_lid == slid);
            let slid = if known { view.sm_lid } else { slid };
            set_source(&mut pending.buffer, slid);
            pending.buffer[HEADER..].copy_from_slice(m);
            let (host, attribute) = (self.devices[pending.dev].host.clone(), mad::attribute_name(mad::attribute(m)));
            self.count(format!("sa.{host}.{attribute}.status.0x{:04x}", mad::status(m)));
            return self.hand_over(pending.conn, pending.buffer);
        }
        let own = dev.and_then(|d| self.devices[d].port(1));
        let (real, view) = own.map_or((0, 0), |p| (p.info.sm_lid, p.view().sm_lid));
        self.unasked(dev, m, if slid == real { view } else { slid });
    }

    /// Gives a MAD that answers nothing to the agent of the device's first port that wants such MADs.
    pub(super) fn unasked(&mut self, dev: Option<usize>, m: &[u8; mad::SIZE], slid: u16) {
        let method = mad::method(m);
        let wanted = self.conns.values().find_map(|c| match &c.kind {
            Kind::Umad(umad) if Some(umad.dev) == dev && umad.port == 1 => umad
                .agents
                .iter()
                .find(|(_, a)| a.class == mad::class(m) && a.methods >> (method & 0x7f) & 1 != 0)
                .map(|(&agent, _)| (c.token, agent)),
            _ => None,
        });
        let Some((token, agent)) = wanted else { return self.count("drop.mad_unwanted") };
        let host = dev.map(|d| self.devices[d].host.clone()).unwrap_or_default();
        self.count(format!("sa.{host}.{}.given", mad::attribute_name(mad::attribute(m))));
        let mut buffer = vec![0; HEADER + mad::SIZE];
        buffer[0..4].copy_from_slice(&agent.to_ne_bytes());
        set_source(&mut buffer, slid);
        buffer[HEADER..].copy_from_slice(m);
        self.hand_over(token, buffer);
    }

    fn hand_over(&mut self, token: u64, mut buffer: Vec<u8>) {
        let length = buffer.len() as u32;
        buffer[AT_LENGTH..AT_LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
        let msg = Msg { payload: buffer, ..Msg::new(op::UMAD_RECV) };
        if let Some(conn) = self.conns.get_mut(&token)
            && !conn.send(&msg)
        {
            self.count("drop.mad_queue");
        }
    }

    /// What the SA grants, the switches carry out.
    fn note_membership(&mut self, m: &[u8; mad::SIZE]) {
        if mad::class(m) != mad::CLASS_SA || mad::attribute(m) != mad::ATTR_MC_MEMBER || mad::status(m) != 0 {
            return;
        }
        let Some(record) = McMember::parse(m) else { return };
        let port = self.devices.iter_mut().flat_map(|d| &mut d.ports).find(|p| {
            let real = ib::gid(p.info.gid_prefix, p.guid);
            real == record.port_gid
        });
        let Some(port) = port else { return };
        match mad::method(m) {
            // GetResp answers a Set as well as a Get: only one that names a member of the group counts.
            0x81 if record.join_state != 0 => {
                port.joined.insert(record.mgid, Membership { mlid: record.mlid, pkey: record.pkey });
            }
            0x95 => drop(port.joined.remove(&record.mgid)),
            _ => {}
        }
    }
}

fn set_source(buffer: &mut [u8], slid: u16) {
    buffer[AT_STATUS..AT_STATUS + 4].fill(0);
    buffer[AT_QPN..AT_QPN + 4].copy_from_slice(&1u32.to_be_bytes());
    buffer[AT_LID..AT_LID + 2].copy_from_slice(&slid.to_be_bytes());
    buffer[AT_SL] = 0;
}
