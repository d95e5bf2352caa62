//! What comes from ibsim: the state of ports, and MADs. And the names that a test has given to LIDs and GIDs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Switch;
use crate::ib::{self, Gid, NodeInfo, PortInfo, mad};
use crate::ibsim::{Client, Packet, SMP_PKEYS, SMP_PORTINFO, ctl};

/// A question that ibsim has not answered for so long is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last unicast LID: no topology is so large.
const NOBODY_LID: u16 = 0xbfff;
/// A GID that no port has.
const NOBODY_GID: Gid = [0xfd; 16];

/// A client of ibsim.
#[derive(Debug)]
pub struct SimClient {
    /// The connection.
    pub client: Client,
    /// The device that it stands for. ibsim gives a client the first port of its node and no other: what other ports
    /// send goes through a client beside the SM, which stands for nobody.
    pub dev: Option<usize>,
    /// Questions to be answered in this order.
    asked: VecDeque<u32>,
    asked_at: Instant,
    partition_cap: u16,
}

impl SimClient {
    /// Attaches to a device's node, and fills in what is known at once.
    pub fn new(client: Client, dev: usize, device: &mut super::port::Device) -> std::io::Result<Self> {
        let node = NodeInfo::parse(&client.ask(ctl::NODEINFO)?);
        device.node_guid = node.node_guid;
        let info = PortInfo::parse(&client.ask(ctl::PORTINFO)?);
        for number in 1..=node.ports {
            // Ports other than the first are asked about later; until then they are down.
            let info = if number == 1 { info.clone() } else { PortInfo { lid: 0, state: 1, ..info.clone() } };
            let guid = node.node_guid + u64::from(number);
            device.ports.push(super::port::Port { info, guid, ..Default::default() });
        }
        client.set_nonblocking()?;
        let partition_cap = node.partition_cap.clamp(1, 32);
        Ok(SimClient { client, dev: Some(dev), asked: VecDeque::new(), asked_at: Instant::now(), partition_cap })
    }

    /// One that stands for nobody.
    pub fn gateway(client: Client) -> std::io::Result<Self> {
        client.set_nonblocking()?;
        Ok(SimClient { client, dev: None, asked: VecDeque::new(), asked_at: Instant::now(), partition_cap: 0 })
    }

    fn ask_next(&mut self) {
        if let Some(&kind) = self.asked.front() {
            self.asked_at = Instant::now();
            if let Err(e) = self.client.send_request(kind) {
                eprintln!("ibsim: {e}");
                self.asked.clear();
            }
        }
    }
}

impl Switch {
    /// The client of ibsim that this port's MADs go through. A device that a test made up uses that of its host's first.
    pub(super) fn client_of(&self, dev: usize, port: u32) -> Option<usize> {
        let device = self.devices.get(dev)?;
        let dev = if device.node.is_some() {
            dev
        } else {
            self.devices.iter().position(|d| d.node.is_some() && d.host == device.host)?
        };
        let wanted = (port == 1).then_some(dev);
        self.clients.iter().position(|c| c.dev == wanted)
    }

    /// Asks for the state of all ports.
    pub fn poll(&mut self) {
        for index in 0..self.clients.len() {
            let sim = &mut self.clients[index];
            if sim.dev.is_none() {
                self.poll_other_ports(index);
                continue;
            }
            if !sim.asked.is_empty() && sim.asked_at.elapsed() < PATIENCE {
                continue;
            }
            sim.asked.clear();
            sim.asked.extend([ctl::PORTINFO, ctl::PKEYS]);
            sim.ask_next();
        }
    }

    /// ibsim's control messages tell about first ports only; about others it is asked by SMP.
    fn poll_other_ports(&self, gateway: usize) {
        for (dev, device) in self.devices.iter().enumerate() {
            let Some(own) = self.client_of(dev, 1) else { continue };
            for (index, port) in device.ports.iter().enumerate().skip(1) {
                let ask = |client: usize, lid, attribute, modifier| {
                    let client = &self.clients[client].client;
                    let tid = u64::from(client.number()) << 48 | (dev as u64) << 8 | index as u64;
                    // What is lost is asked for again in the next turn.
                    let _ = client.send(&Packet::smp_get(lid, attribute, modifier, tid));
                };
                ask(own, 0, SMP_PORTINFO, index as u32 + 1);
                // The table of the port at which the question arrives.
                if port.info.lid != 0 {
                    ask(gateway, port.info.lid, SMP_PKEYS, 0);
                }
            }
        }
    }

    /// The answer to such a question.
    pub(super) fn smp_answer(&mut self, m: &[u8; mad::SIZE]) {
        let tid = mad::tid(m);
        let (dev, index) = ((tid >> 8 & 0xff) as usize, (tid & 0xff) as usize);
        let Some(port) = self.devices.get_mut(dev).and_then(|d| d.ports.get_mut(index)) else { return };
        let data: [u8; 64] = m[64..128].try_into().expect("64 bytes");
        match mad::attribute(m) {
            SMP_PORTINFO => port.told(PortInfo::parse(&data)),
            SMP_PKEYS => {
                let entries = data.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]]));
                port.pkeys = entries.take(port.pkeys.len().max(1)).collect();
            }
            _ => return,
        }
        self.notice_changes(dev);
    }

    /// An answer to one of these questions.
    pub fn ctl_readable(&mut self, client: usize) {
        while let Ok((kind, data)) = self.clients[client].client.reply() {
            let sim = &mut self.clients[client];
            if sim.asked.front() != Some(&kind) {
                continue;
            }
            sim.asked.pop_front();
            sim.ask_next();
            let (Some(dev), cap) = (sim.dev, usize::from(sim.partition_cap)) else { continue };
            let device = &mut self.devices[dev];
            if kind == ctl::PORTINFO {
                if let Some(p) = device.port_mut(1) {
                    p.told(PortInfo::parse(&data));
                }
            } else {
                let keys: Vec<u16> = data.chunks_exact(2).take(cap).map(|c| u16::from_be_bytes([c[0], c[1]])).collect();
                // A table that has not been read yet has the right length from here.
                for p in device.ports.iter_mut().skip(1).filter(|p| p.pkeys.is_empty()) {
                    p.pkeys = vec![0; keys.len()];
                }
                if let Some(p) = device.port_mut(1) {
                    p.pkeys = keys;
                }
            }
            self.notice_changes(dev);
        }
    }

    /// MADs for this client.
    pub fn data_readable(&mut self, client: usize) {
        for _ in 0..64 {
            match self.clients[client].client.recv() {
                Ok(packet) => self.packet_arrived(client, packet),
                Err(_) => return,
            }
        }
    }

    /// Turns what has changed at a device's ports into events.
    pub(super) fn notice_changes(&mut self, dev: usize) {
        for number in 1..=self.devices[dev].ports.len() as u32 {
            let Some(port) = self.devices[dev].port_mut(number) else { continue };
            for event in port.changes() {
                self.raise(dev, event, number);
            }
        }
    }

    /// A new SM knows of no memberships, and has everybody register again.
    pub fn manager_restarted(&mut self) {
        for dev in 0..self.devices.len() {
            for port in &mut self.devices[dev].ports {
                port.joined.clear();
            }
            for number in 1..=self.devices[dev].ports.len() as u32 {
                if self.devices[dev].node.is_some() {
                    self.raise(dev, super::port::event::CLIENT_REREGISTER, number);
                }
            }
        }
    }

    /// LIDs and GIDs that a test has changed: as the host says, and as the subnet says.
    fn aliases(&self) -> Aliases {
        let mut aliases = Aliases::default();
        for port in self.devices.iter().flat_map(|d| &d.ports) {
            if let Some(lid) = port.over.lid
                && port.info.lid != 0
            {
                aliases.lids.push((lid, port.info.lid));
            }
            if let Some(&gid) = port.over.gids.get(&0) {
                aliases.gids.push((gid, ib::gid(port.info.gid_prefix, port.guid)));
            }
        }
        aliases
    }

    /// Translates a MAD of a host for the SA.
    pub(super) fn to_subnet(&self, m: &mut [u8; mad::SIZE]) {
        let mut aliases = self.aliases();
        // The names that the changes replace belong to nobody any more.
        aliases.lids.extend(aliases.lids.clone().iter().map(|&(_, real)| (real, NOBODY_LID)));
        aliases.gids.extend(aliases.gids.clone().iter().map(|&(_, real)| (real, NOBODY_GID)));
        aliases.translate(m);
    }

    /// Translates a MAD of the SA for a host.
    pub(super) fn to_host(&self, m: &mut [u8; mad::SIZE]) {
        self.aliases().reversed().translate(m);
    }
}

/// Pairs of names: what is found, and what it becomes.
#[derive(Default)]
struct Aliases {
    lids: Vec<(u16, u16)>,
    gids: Vec<(Gid, Gid)>,
}

impl Aliases {
    fn reversed(self) -> Self {
        Aliases {
            lids: self.lids.into_iter().map(|(a, b)| (b, a)).collect(),
            gids: self.gids.into_iter().map(|(a, b)| (b, a)).collect(),
        }
    }

    fn translate(&self, m: &mut [u8; mad::SIZE]) {
        if mad::class(m) != mad::CLASS_SA {
            return;
        }
        // Where a path record has its GIDs and LIDs, and a membership its port's GID.
        let (gid_at, lid_at): (&[usize], &[usize]) = match mad::attribute(m) {
            mad::ATTR_PATH_RECORD => (&[8, 24], &[40, 42]),
            mad::ATTR_MC_MEMBER => (&[16], &[]),
            _ => return,
        };
        for &at in gid_at {
            let field = &mut m[mad::SA_DATA + at..mad::SA_DATA + at + 16];
            if let Some((_, to)) = self.gids.iter().find(|(from, _)| from == field) {
                field.copy_from_slice(to);
            }
        }
        for &at in lid_at {
            let field = &mut m[mad::SA_DATA + at..mad::SA_DATA + at + 2];
            if let Some((_, to)) = self.lids.iter().find(|(from, _)| from.to_be_bytes() == field) {
                field.copy_from_slice(&to.to_be_bytes());
            }
        }
    }
}
