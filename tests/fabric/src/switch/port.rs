//! Devices and ports as a host sees them: what ibsim says, with a test's changes on top.

use std::collections::{BTreeMap, HashMap};

use crate::ib::{self, Gid, PortInfo};

/// Link layers as verbs numbers them.
pub const LINK_INFINIBAND: u8 = 1;
/// Not InfiniBand: RoCE, say.
pub const LINK_ETHERNET: u8 = 2;

/// Asynchronous events as verbs numbers them.
pub mod event {
    #![allow(missing_docs, reason = "named as in verbs.h")]
    pub const DEVICE_FATAL: u32 = 8;
    pub const PORT_ACTIVE: u32 = 9;
    pub const PORT_ERR: u32 = 10;
    pub const LID_CHANGE: u32 = 11;
    pub const PKEY_CHANGE: u32 = 12;
    pub const SM_CHANGE: u32 = 13;
    pub const CLIENT_REREGISTER: u32 = 17;
    pub const GID_CHANGE: u32 = 18;

    /// The number of an event's name (any case) or number.
    pub fn parse(name: &str) -> Option<u32> {
        Some(match name.to_ascii_uppercase().trim_start_matches("IBV_EVENT_") {
            "CQ_ERR" => 0,
            "QP_FATAL" => 1,
            "DEVICE_FATAL" => DEVICE_FATAL,
            "PORT_ACTIVE" => PORT_ACTIVE,
            "PORT_ERR" => PORT_ERR,
            "LID_CHANGE" => LID_CHANGE,
            "PKEY_CHANGE" => PKEY_CHANGE,
            "SM_CHANGE" => SM_CHANGE,
            "CLIENT_REREGISTER" => CLIENT_REREGISTER,
            "GID_CHANGE" => GID_CHANGE,
            other => return other.parse().ok(),
        })
    }
}

/// What a test has changed about a port. `None` leaves what the subnet says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in ibv_port_attr")]
pub struct Overrides {
    pub state: Option<u8>,
    pub phys_state: Option<u8>,
    pub lid: Option<u16>,
    pub lmc: Option<u8>,
    pub sm_lid: Option<u16>,
    pub sm_sl: Option<u8>,
    pub mtu: Option<u8>,
    pub max_mtu: Option<u8>,
    pub width: Option<u8>,
    pub speed: Option<u8>,
    pub link_layer: Option<u8>,
    pub subnet_timeout: Option<u8>,
    pub gid_tbl_len: Option<u32>,
    pub pkey_tbl_len: Option<u16>,
    pub pkeys: Option<Vec<u16>>,
    /// Entries of the GID table by index.
    pub gids: BTreeMap<u32, Gid>,
}

/// A port as its host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in ibv_port_attr")]
pub struct View {
    pub state: u8,
    pub phys_state: u8,
    pub lid: u16,
    pub lmc: u8,
    pub sm_lid: u16,
    pub sm_sl: u8,
    pub mtu: u8,
    pub max_mtu: u8,
    pub width: u8,
    pub speed: u8,
    pub link_layer: u8,
    pub subnet_timeout: u8,
    pub capabilities: u32,
    pub vl_cap: u8,
    pub init_type_reply: u8,
    pub gid_tbl_len: u32,
    pub pkey_tbl_len: u16,
    pub pkeys: Vec<u16>,
    pub gids: BTreeMap<u32, Gid>,
}

impl View {
    /// An entry of the GID table; zero where nothing is.
    pub fn gid(&self, index: u32) -> Option<Gid> {
        (index < self.gid_tbl_len).then(|| self.gids.get(&index).copied().unwrap_or_default())
    }

    /// An entry of the partition table.
    pub fn pkey(&self, index: u32) -> Option<u16> {
        (index < u32::from(self.pkey_tbl_len)).then(|| self.pkeys.get(index as usize).copied().unwrap_or(0))
    }

    /// Datagrams for this LID come to this port.
    pub fn has_lid(&self, lid: u16) -> bool {
        self.lid != 0 && lid & !((1 << self.lmc) - 1) == self.lid
    }

    /// In service, and not Ethernet.
    pub fn active(&self) -> bool {
        self.state == ib::state::ACTIVE && self.link_layer == LINK_INFINIBAND
    }
}

/// A membership that the SA has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group's LID.
    pub mlid: u16,
    /// The group's partition.
    pub pkey: u16,
}

/// One port of a device.
#[derive(Debug, Default)]
pub struct Port {
    /// As ibsim has it.
    pub info: PortInfo,
    /// As ibsim has it.
    pub pkeys: Vec<u16>,
    /// Port GUID.
    pub guid: u64,
    /// A test's changes.
    pub over: Overrides,
    /// As last seen by the host: differences become events.
    pub seen: View,
    /// Multicast groups joined through the SA.
    pub joined: HashMap<Gid, Membership>,
}

impl Port {
    /// A port that the subnet doesn't know: all it has comes from overrides.
    pub fn imaginary(guid: u64) -> Self {
        let info = PortInfo {
            gid_prefix: ib::DEFAULT_PREFIX,
            width_active: 2,
            speed_active: 32,
            state: ib::state::ACTIVE,
            phys_state: 5,
            mtu_active: 5,
            mtu_cap: 5,
            guid_cap: 8,
            vl_cap: 1,
            ..PortInfo::default()
        };
        Port { info, pkeys: vec![0xffff], guid, ..Port::default() }
    }

    /// Takes what ibsim tells of the port. Another SM knows of no memberships.
    pub fn told(&mut self, info: PortInfo) {
        if info.sm_lid != self.info.sm_lid {
            self.joined.clear();
        }
        self.info = info;
    }

    /// The port as its host sees it.
    pub fn view(&self) -> View {
        let (info, over) = (&self.info, &self.over);
        let gid_tbl_len = over.gid_tbl_len.unwrap_or(u32::from(info.guid_cap.max(1)));
        let mut gids = BTreeMap::from([(0, ib::gid(info.gid_prefix, self.guid))]);
        gids.extend(over.gids.iter().map(|(&i, &g)| (i, g)));
        gids.retain(|&i, _| i < gid_tbl_len);
        let pkeys = over.pkeys.clone().unwrap_or_else(|| self.pkeys.clone());
        View {
            state: over.state.unwrap_or(info.state),
            phys_state: over.phys_state.unwrap_or(info.phys_state),
            lid: over.lid.unwrap_or(info.lid),
            lmc: over.lmc.unwrap_or(info.lmc),
            sm_lid: over.sm_lid.unwrap_or(info.sm_lid),
            sm_sl: over.sm_sl.unwrap_or(info.sm_sl),
            mtu: over.mtu.unwrap_or(info.mtu_active),
            max_mtu: over.max_mtu.unwrap_or(info.mtu_cap),
            width: over.width.unwrap_or(info.width_active),
            speed: over.speed.unwrap_or(info.speed_active),
            link_layer: over.link_layer.unwrap_or(LINK_INFINIBAND),
            // ibsim doesn't keep it; 18 is what OpenSM sets.
            subnet_timeout: over.subnet_timeout.unwrap_or(18),
            capabilities: info.capabilities,
            vl_cap: info.vl_cap,
            init_type_reply: info.init_type_reply,
            gid_tbl_len,
            pkey_tbl_len: over.pkey_tbl_len.unwrap_or(pkeys.len().max(self.pkeys.len()) as u16),
            pkeys,
            gids,
        }
    }

    /// Takes note of how the port is now, and tells what events that makes.
    pub fn changes(&mut self) -> Vec<u32> {
        let now = self.view();
        let old = std::mem::replace(&mut self.seen, now.clone());
        let mut events = Vec::new();
        let came_up = now.state == ib::state::ACTIVE && old.state != ib::state::ACTIVE;
        if old.state == ib::state::ACTIVE && now.state != ib::state::ACTIVE {
            // The SM takes a port that is down out of its groups.
            self.joined.clear();
            events.push(event::PORT_ERR);
        }
        if now.lid != old.lid || now.lmc != old.lmc {
            events.push(event::LID_CHANGE);
        }
        if now.sm_lid != old.sm_lid {
            events.push(event::SM_CHANGE);
        }
        if now.pkeys != old.pkeys || now.pkey_tbl_len != old.pkey_tbl_len {
            events.push(event::PKEY_CHANGE);
        }
        if now.gids != old.gids || now.gid_tbl_len != old.gid_tbl_len {
            events.push(event::GID_CHANGE);
        }
        // OpenSM sets the bit as it configures the port, before the port becomes active.
        if came_up || (now.sm_lid != old.sm_lid && now.state == ib::state::ACTIVE) {
            events.push(event::CLIENT_REREGISTER);
        }
        if came_up {
            events.push(event::PORT_ACTIVE);
        }
        events
    }
}

/// A device of a host.
#[derive(Debug)]
pub struct Device {
    /// Whose it is.
    pub host: String,
    /// `mlx5_0`.
    pub name: String,
    /// Node of the topology; `None` for a device that a test made up.
    pub node: Option<String>,
    /// Node GUID that the host is told.
    pub node_guid: u64,
    /// Unplugged.
    pub gone: bool,
    /// Its ports, the first is port 1.
    pub ports: Vec<Port>,
    /// The next QP number.
    pub next_qpn: u32,
}

impl Device {
    /// A port by its number.
    pub fn port(&self, number: u32) -> Option<&Port> {
        self.ports.get((number as usize).checked_sub(1)?)
    }

    /// A port by its number.
    pub fn port_mut(&mut self, number: u32) -> Option<&mut Port> {
        self.ports.get_mut((number as usize).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_become_events() {
        let mut port = Port::imaginary(0x1234);
        port.info.lid = 4;
        port.info.sm_lid = 1;
        assert!(port.changes().contains(&event::PORT_ACTIVE));
        assert_eq!(port.changes(), []);
        port.over.pkeys = Some(vec![0x8001]);
        assert_eq!(port.changes(), [event::PKEY_CHANGE]);
        port.info.state = ib::state::DOWN;
        assert_eq!(port.changes(), [event::PORT_ERR]);
        port.info.state = ib::state::ACTIVE;
        port.over.lid = Some(9);
        assert_eq!(port.changes(), [event::LID_CHANGE, event::CLIENT_REREGISTER, event::PORT_ACTIVE]);
        port.over.gids.insert(0, [1; 16]);
        assert_eq!(port.changes(), [event::GID_CHANGE]);
    }

    #[test]
    fn lmc_covers_a_range() {
        let view = View { lid: 8, lmc: 2, ..View::default() };
        assert!(view.has_lid(8) && view.has_lid(11) && !view.has_lid(12) && !view.has_lid(7));
    }
}
