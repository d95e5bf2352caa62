//! Requests of device contexts: questions about devices and ports, queue pairs, attachments.

use nix::libc::{EBUSY, EINVAL, ENODEV, ENOMEM, ENOTCONN, EOPNOTSUPP};

use super::conn::{Control, Kind};
use super::port::{Device, View};
use super::{Qp, Switch, qps};
use crate::proto::{Msg, flag, op};

/// Numbers of QPs start here on every device, as they do on real ones: two hosts have the same ones.
pub const FIRST_QPN: u32 = 0x48;
/// What `ibv_query_device` says.
const MAX_MCAST_ATTACH: usize = 240;
const WC_FLUSH_ERR: u32 = 5;
const ATTR_PKEY_INDEX: u32 = 1 << 4;
const ATTR_PORT: u32 = 1 << 5;
const ATTR_QKEY: u32 = 1 << 6;

impl Switch {
    pub(super) fn control(&mut self, token: u64, msg: Msg) {
        let mut reply = Msg::new(msg.op);
        let outcome = match msg.op {
            op::LIST => self.list(token, &mut reply),
            op::OPEN => self.open(token, &msg, &mut reply),
            op::SEND => return self.post_send(token, msg),
            op::POST_RECV => return self.post_recv(token, &msg),
            op::UMAD_REGISTER => self.umad_register(token, &msg),
            op::RAISE => return self.raise_in(token, msg.index, msg.obj),
            _ => self.in_context(token, &msg, &mut reply),
        };
        if let Err(e) = outcome {
            reply.err = e;
        }
        self.reply(token, reply);
    }

    fn list(&self, token: u64, reply: &mut Msg) -> Result<(), i32> {
        let host = &self.conns.get(&token).ok_or(EINVAL)?.host;
        for (index, device) in self.devices.iter().filter(|d| &d.host == host && !d.gone).enumerate() {
            let mut name = [0; 40];
            let bytes = &device.name.as_bytes()[..device.name.len().min(39)];
            name[..bytes.len()].copy_from_slice(bytes);
            reply.payload.extend_from_slice(&name);
            reply.payload.extend_from_slice(&device.node_guid.to_be_bytes());
            for word in [device.ports.len() as u32, index as u32, 0x02c9, 4123] {
                reply.payload.extend_from_slice(&word.to_ne_bytes());
            }
        }
        Ok(())
    }

    fn open(&mut self, token: u64, msg: &Msg, reply: &mut Msg) -> Result<(), i32> {
        let host = self.conns.get(&token).ok_or(EINVAL)?.host.clone();
        let name = String::from_utf8_lossy(&msg.payload).into_owned();
        let dev = self.find_device(&host, Some(&name)).filter(|&d| !self.devices[d].gone).ok_or(ENODEV)?;
        let control = self.context(token).ok_or(EINVAL)?;
        control.dev = Some(dev);
        control.peek = msg.flags & 1 != 0;
        reply.id = token;
        Ok(())
    }

    fn in_context(&mut self, token: u64, msg: &Msg, reply: &mut Msg) -> Result<(), i32> {
        let dev = self.context(token).and_then(|c| c.dev).ok_or(ENOTCONN)?;
        if self.devices[dev].gone {
            return Err(nix::libc::EIO);
        }
        match msg.op {
            op::PORT => reply.payload = port_payload(&self.devices[dev], msg.port).ok_or(EINVAL)?,
            op::GID => reply.gid = self.view(dev, msg.port)?.gid(msg.index).ok_or(EINVAL)?,
            op::PKEY => reply.v[0] = self.view(dev, msg.port)?.pkey(msg.index).ok_or(EINVAL)?.into(),
            op::CREATE_CQ => {
                let control = self.context(token).ok_or(EINVAL)?;
                control.next_cq += 1;
                control.cqs.insert(control.next_cq, None);
                reply.obj = control.next_cq;
            }
            op::DESTROY_CQ => {
                self.context(token).ok_or(EINVAL)?.cqs.remove(&msg.obj).ok_or(EINVAL)?;
            }
            op::CREATE_QP => reply.obj = self.create_qp(token, dev, msg)?,
            op::MODIFY_QP => self.modify_qp(token, dev, msg)?,
            op::QUERY_QP => {
                let qp = self.qp(token, dev, msg.obj)?;
                reply.v[..4].copy_from_slice(&[qp.state, qp.pkey_index, qp.port, qp.qkey]);
            }
            op::DESTROY_QP => {
                if !self.qp(token, dev, msg.obj)?.attached.is_empty() {
                    return Err(EBUSY);
                }
                self.qps.remove(&(dev, msg.obj));
            }
            op::ATTACH | op::DETACH => reply.v[0] = self.attach(token, dev, msg)?,
            _ => return Err(EOPNOTSUPP),
        }
        Ok(())
    }

    fn view(&self, dev: usize, port: u32) -> Result<View, i32> {
        Ok(self.devices[dev].port(port).ok_or(EINVAL)?.view())
    }

    fn qp(&mut self, token: u64, dev: usize, qpn: u32) -> Result<&mut Qp, i32> {
        self.qps.get_mut(&(dev, qpn)).filter(|qp| qp.ctx == token).ok_or(EINVAL)
    }

    fn create_qp(&mut self, token: u64, dev: usize, msg: &Msg) -> Result<u32, i32> {
        let [send_cq, recv_cq, ..] = msg.v;
        let control = self.context(token).ok_or(EINVAL)?;
        if !control.cqs.contains_key(&send_cq) || !control.cqs.contains_key(&recv_cq) {
            return Err(EINVAL);
        }
        let device = &mut self.devices[dev];
        let qpn = device.next_qpn;
        device.next_qpn += 1;
        let qp = Qp {
            ctx: token,
            send_cq,
            recv_cq,
            state: qps::RESET,
            pkey_index: 0,
            port: 0,
            qkey: 0,
            posted: 0,
            epoch: 0,
            attached: Vec::new(),
        };
        self.qps.insert((dev, qpn), qp);
        Ok(qpn)
    }

    fn modify_qp(&mut self, token: u64, dev: usize, msg: &Msg) -> Result<(), i32> {
        let [state, pkey_index, port, qkey, ..] = msg.v;
        let port_now = self.qp(token, dev, msg.obj)?.port;
        let view = match if msg.flags & ATTR_PORT != 0 { port } else { port_now } {
            0 => None,
            number => Some(self.view(dev, number)?),
        };
        if msg.flags & ATTR_PKEY_INDEX != 0 && view.is_none_or(|v| v.pkey(pkey_index).is_none()) {
            return Err(EINVAL);
        }
        let qp = self.qp(token, dev, msg.obj)?;
        if msg.flags & ATTR_PKEY_INDEX != 0 {
            qp.pkey_index = pkey_index;
        }
        if msg.flags & ATTR_PORT != 0 {
            qp.port = port;
        }
        if msg.flags & ATTR_QKEY != 0 {
            qp.qkey = qkey;
        }
        qp.state = state;
        match state {
            qps::RESET => {
                qp.posted = 0;
                qp.epoch += 1;
            }
            qps::ERR => self.flush_receives(dev, msg.obj),
            _ => {}
        }
        Ok(())
    }

    /// In the error state every posted receive comes back.
    fn flush_receives(&mut self, dev: usize, qpn: u32) {
        let Some(qp) = self.qps.get_mut(&(dev, qpn)) else { return };
        let count = std::mem::take(&mut qp.posted);
        let (ctx, cq, epoch) = (qp.ctx, qp.recv_cq, qp.epoch);
        for _ in 0..count {
            let mut cqe = Msg { obj: qpn, flags: flag::RECV, ..Msg::new(op::CQE) };
            cqe.v[0] = WC_FLUSH_ERR;
            cqe.v[8] = epoch;
            self.complete(ctx, cq, &cqe);
        }
    }

    fn attach(&mut self, token: u64, dev: usize, msg: &Msg) -> Result<u32, i32> {
        let group = (msg.gid, msg.v[0] as u16);
        let qp = self.qp(token, dev, msg.obj)?;
        let at = qp.attached.iter().position(|g| *g == group);
        match (msg.op, at) {
            (op::ATTACH, Some(_)) => {}
            (op::ATTACH, None) if qp.attached.len() >= MAX_MCAST_ATTACH => return Err(ENOMEM),
            (op::ATTACH, None) => qp.attached.push(group),
            (_, Some(at)) => drop(qp.attached.remove(at)),
            (_, None) => return Err(EINVAL),
        }
        Ok(qp.attached.len() as u32)
    }

    fn post_recv(&mut self, token: u64, msg: &Msg) {
        let Some(dev) = self.context(token).and_then(|c| c.dev) else { return };
        let Ok(qp) = self.qp(token, dev, msg.obj) else { return };
        qp.posted += msg.v[0];
        if qp.state == qps::ERR {
            self.flush_receives(dev, msg.obj);
        }
    }

    /// Puts a completion into a CQ; false if there is no room.
    pub(super) fn complete(&mut self, ctx: u64, cq: u32, cqe: &Msg) -> bool {
        let token = match self.conns.get(&ctx).map(|c| &c.kind) {
            Some(Kind::Control(Control { cqs, .. })) => cqs.get(&cq).copied().flatten(),
            _ => None,
        };
        token.and_then(|t| self.conns.get_mut(&t)).is_some_and(|conn| conn.send(cqe))
    }
}

fn port_payload(device: &Device, number: u32) -> Option<Vec<u8>> {
    let port = device.port(number)?;
    let v = port.view();
    let gid = v.gid(0).unwrap_or_default();
    let words: [u32; 20] = [
        v.state.into(),
        v.max_mtu.into(),
        v.mtu.into(),
        v.gid_tbl_len,
        v.capabilities,
        0,
        1 << 30,
        v.pkey_tbl_len.into(),
        v.lid.into(),
        v.sm_lid.into(),
        v.lmc.into(),
        v.vl_cap.into(),
        v.sm_sl.into(),
        v.subnet_timeout.into(),
        v.init_type_reply.into(),
        v.width.into(),
        v.speed.into(),
        v.phys_state.into(),
        v.link_layer.into(),
        0,
    ];
    let mut out: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    out.extend_from_slice(&gid);
    Some(out)
}
