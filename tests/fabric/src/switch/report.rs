//! Reports of the SA to a host: who gets them, and forged ones.

use nix::libc::EINVAL;

use super::command::{Outcome, Words, gid};
use super::mad::Agent;
use super::sniff::unhex;
use super::{Switch, conn::Kind};
use crate::ib::mad;
use crate::proto::Msg;

/// Most reports that one command forges.
const MANY: u32 = 200_000;
/// Transaction ids of forged reports start here.
const FORGED: u64 = 0x0f0f_0000_0000;
/// Notice types of the subnet's management: an urgent one, and its own.
const TYPE_URGENT: u8 = 1;
const TYPE_SUBNET: u8 = 3;
/// Who produces notices: switches, class managers.
const SWITCH: u8 = 2;
const MANAGER: u8 = 4;

impl Switch {
    /// Registers an agent of an open port. As in the kernel, a method of a class can have one agent of a port only.
    pub(super) fn umad_register(&mut self, token: u64, msg: &Msg) -> Result<(), i32> {
        let host = self.conns.get(&token).map(|c| c.host.clone()).ok_or(EINVAL)?;
        let (class, methods) = (msg.v[0] as u8, u128::from_le_bytes(msg.gid));
        let conn = self.conns.get(&msg.id).filter(|c| c.host == host).ok_or(EINVAL)?;
        let Kind::Umad(umad) = &conn.kind else { return Err(EINVAL) };
        let at = (umad.dev, umad.port());
        let taken = self.conns.values().any(|c| match &c.kind {
            Kind::Umad(other) if (other.dev, other.port()) == at => other.has_methods(class, methods),
            _ => false,
        });
        if taken {
            return Err(EINVAL);
        }
        let number = self.next_agent_number();
        if let Some(Kind::Umad(umad)) = self.conns.get_mut(&msg.id).map(|c| &mut c.kind) {
            umad.add(msg.obj, Agent { number, class, methods });
        }
        Ok(())
    }

    /// A report that the SA has not made.
    pub(super) fn inject_report(&mut self, words: &Words) -> Outcome {
        words.only(&["dev", "port", "trap", "gid", "lid", "slid", "type", "attr", "method", "data", "count"])?;
        let dev = self.device(words)?;
        let view = self.devices[dev].port(words.number("port")?.unwrap_or(1)).ok_or("no such port")?.view();
        let trap: u16 = words.number("trap")?.unwrap_or(65);
        let link = (128..144).contains(&trap);
        let mut m = [0; mad::SIZE];
        m[..4].copy_from_slice(&[1, mad::CLASS_SA, 2, words.number("method")?.unwrap_or(mad::REPORT)]);
        let attribute: u16 = words.number("attr")?.unwrap_or(mad::ATTR_NOTICE);
        m[16..18].copy_from_slice(&attribute.to_be_bytes());
        let notice = &mut m[mad::SA_DATA..];
        notice[0] = 0x80 | words.number("type")?.unwrap_or(if link { TYPE_URGENT } else { TYPE_SUBNET });
        notice[3] = if link { SWITCH } else { MANAGER };
        notice[4..6].copy_from_slice(&trap.to_be_bytes());
        notice[6..8].copy_from_slice(&view.sm_lid.to_be_bytes());
        let lid: u16 = words.number("lid")?.unwrap_or(0);
        if link {
            notice[10..12].copy_from_slice(&lid.to_be_bytes());
        }
        if let Some(text) = words.text("gid") {
            notice[16..32].copy_from_slice(&gid(text)?);
        }
        if let Some(text) = words.text("data") {
            let data = unhex(text).filter(|d| d.len() <= notice.len()).ok_or("data= is hexadecimal, 200 bytes")?;
            notice[..data.len()].copy_from_slice(&data);
        }
        let slid = words.number("slid")?.unwrap_or(view.sm_lid);
        for i in 0..words.number("count")?.unwrap_or(1u32).min(MANY) {
            mad::set_tid(&mut m, FORGED + u64::from(i) + 1);
            self.unasked(Some(dev), &m, slid);
        }
        Ok(String::new())
    }
}
