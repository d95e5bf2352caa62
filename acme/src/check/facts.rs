//! What this host has: devices, ports and interfaces, as the system shows them. Nothing is judged here.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ibacm::{device, rtnl, verbs};
use ibacm_wire::Gid;

/// The interface type of IPoIB (`ARPHRD_INFINIBAND`).
const INFINIBAND: &str = "32";
/// The key of the default partition.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// The flag of an interface that has been set up (`IFF_UP`).
const UP: u32 = 1;

/// An RDMA device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its InfiniBand ports, or why it could not be looked at.
    pub ports: Result<Vec<Port>, String>,
}

/// An InfiniBand port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// The device's name.
    pub device: String,
    /// The device's node GUID.
    pub device_guid: u64,
    /// Number, from 1.
    pub number: u8,
    /// Logical state, as libibverbs numbers them.
    pub state: u32,
    /// Its first LID.
    pub lid: u16,
    /// It has 2^lmc of them.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level towards it.
    pub sm_sl: u8,
    /// Its GIDs; unused entries are zero.
    pub gids: Vec<Gid>,
    /// Its partition keys; unused entries are zero.
    pub pkeys: Vec<u16>,
}

impl Port {
    /// Device and number.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.number)
    }

    /// Whether the subnet can be reached through it.
    pub fn is_usable(&self) -> bool {
        self.state == verbs::PORT_ACTIVE && self.lid != 0
    }

    /// The first GID.
    pub fn gid(&self) -> Gid {
        self.gids.first().copied().unwrap_or_default()
    }

    /// Whether this is one of its GIDs. The subnet prefix does not count: an interface may have the one from before the
    /// subnet manager came.
    pub fn has_gid(&self, gid: Gid) -> bool {
        gid.interface_id() != 0 && self.gids.iter().any(|g| g.interface_id() == gid.interface_id())
    }

    /// Whether it is a full member of some partition.
    pub fn is_full_member(&self) -> bool {
        self.pkeys.iter().any(|k| k & 0x8000 != 0)
    }

    /// The key of the port's table that is for this partition, the one of a full member if there are both.
    pub fn key_of(&self, pkey: u16) -> Option<u16> {
        self.pkeys.iter().copied().filter(|k| *k != 0 && (k ^ pkey) & 0x7fff == 0).max()
    }

    /// Whether it is a member of this partition, but no full one.
    pub fn is_limited_in(&self, pkey: u16) -> bool {
        self.key_of(pkey).is_some_and(|key| key & 0x8000 == 0)
    }

    /// Whether it is a member, of whatever kind, of the default partition: only there the subnet administrator is asked.
    pub fn is_in_default_partition(&self) -> bool {
        self.key_of(DEFAULT_PKEY).is_some()
    }

    /// Where in the table the key is with which the subnet administrator is asked.
    pub fn sa_pkey_index(&self) -> u16 {
        let index = |key| self.pkeys.iter().position(|k| *k == key);
        index(0xffff).or_else(|| index(0x7fff)).and_then(|i| u16::try_from(i).ok()).unwrap_or(0)
    }
}

/// An IPoIB interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The GID in its hardware address.
    pub gid: Gid,
    /// Its partition, with the bit of full members.
    pub pkey: Option<u16>,
    /// Whether it has been set up, where that is known.
    pub is_up: Option<bool>,
    /// Whether it has a carrier, where that is known.
    pub carrier: Option<bool>,
    /// Its addresses with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// The RDMA devices of this host.
pub fn devices() -> Result<Vec<Device>, String> {
    let handles = verbs::devices().map_err(|e| e.to_string())?;
    let look = |handle: &verbs::DeviceHandle| {
        let name = handle.name().to_owned();
        if !handle.is_infiniband_transport() {
            return Device { name, ports: Ok(Vec::new()) };
        }
        Device { ports: ports(handle).map_err(|e| e.to_string()), name }
    };
    Ok(handles.iter().map(look).collect())
}

fn ports(handle: &verbs::DeviceHandle) -> io::Result<Vec<Port>> {
    let context = handle.open()?;
    let mut ports = Vec::new();
    for number in 1..=context.phys_port_cnt() {
        let attr = context.query_port(number)?;
        if !device::is_infiniband(&attr) {
            continue;
        }
        ports.push(Port {
            device: context.name().to_owned(),
            device_guid: context.guid(),
            number,
            state: attr.state,
            lid: attr.lid,
            lmc: attr.lmc,
            sm_lid: attr.sm_lid,
            sm_sl: attr.sm_sl,
            gids: device::gid_table(&context, number, &attr),
            pkeys: (0..attr.pkey_tbl_len).map(|i| context.query_pkey(number, i).unwrap_or(0)).collect(),
        });
    }
    Ok(ports)
}

/// The IPoIB interfaces of this host.
pub fn interfaces() -> Result<Vec<Interface>, String> {
    let sysfs = Path::new(rtnl::SYSFS_NET);
    let kernel = rtnl::Rtnl::open(sysfs, 0).map_err(|e| e.to_string())?;
    let mut interfaces: Vec<Interface> = Vec::new();
    // A container may have no view of its own there; the addresses are known all the same.
    for entry in fs::read_dir(sysfs).into_iter().flatten().flatten() {
        interfaces.extend(interface(&entry.path(), entry.file_name().to_string_lossy().into_owned()));
    }
    for address in kernel.snapshot() {
        let place = interfaces.iter().position(|i| i.name == address.ifname).unwrap_or(interfaces.len());
        if place == interfaces.len() {
            interfaces.push(Interface {
                name: address.ifname,
                gid: Gid(address.gid),
                pkey: Some(address.pkey),
                is_up: None,
                carrier: None,
                addresses: Vec::new(),
            });
        }
        if let Some(interface) = interfaces.get_mut(place) {
            interface.addresses.push((address.ip, address.prefix_len));
        }
    }
    for interface in &mut interfaces {
        interface.is_up = kernel.is_up(&interface.name).or(interface.is_up);
    }
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(interfaces)
}

fn interface(path: &Path, name: String) -> Option<Interface> {
    let text = |file: &str| fs::read_to_string(path.join(file)).ok().map(|t| t.trim().to_owned());
    if text("type")? != INFINIBAND {
        return None;
    }
    let hardware = text("address").and_then(|t| rtnl::parse_hardware(&t));
    let flags = text("flags").and_then(|t| u32::from_str_radix(t.trim_start_matches("0x"), 16).ok());
    Some(Interface {
        name,
        gid: hardware.and_then(|h| h.last_chunk().copied()).map(Gid).unwrap_or_default(),
        pkey: text("pkey").and_then(|t| rtnl::parse_pkey(&t)),
        is_up: flags.map(|f| f & UP != 0),
        // Cannot be read while the interface is down.
        carrier: text("carrier").map(|t| t == "1"),
        addresses: Vec::new(),
    })
}
