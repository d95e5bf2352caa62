//! Devices of this host: opened, queried, and turned into what the engine knows of ports.

use std::io;
use std::rc::Rc;

use ibacm_wire::Gid;

use crate::addrfile::IbPort;
use crate::engine::PortInfo;
use crate::rates;
use crate::ud::UdDevice;
use crate::umad::UmadPort;
use crate::verbs::{self, Context, PortAttr};

/// GID table entries that are looked at; virtual functions have far fewer.
const MAX_GIDS: u32 = 256;

/// An open device.
pub struct Device {
    /// What its endpoints share.
    pub ud: UdDevice,
    /// Number in the order of opening, over all devices that ever were.
    pub order: u32,
    /// Its InfiniBand ports.
    pub ports: Vec<DevicePort>,
}

/// An InfiniBand port of a device.
pub struct DevicePort {
    /// Number, from 1.
    pub number: u8,
    /// The way to the subnet administrator, if it could be opened.
    pub umad: Option<UmadPort>,
}

impl Device {
    /// The device's name.
    pub fn name(&self) -> &str {
        self.ud.context().name()
    }

    /// Whether a port can be used, without all of its tables: reading them takes long where each entry is a question.
    fn is_active(&self, port: u8) -> bool {
        let context = self.ud.context();
        let Ok(attr) = context.query_port(port) else { return false };
        let first = context.query_gid(port, 0).map(Gid).ok().filter(|gid| gid.interface_id() != 0);
        is_usable(&attr, first.as_ref())
    }

    /// What the engine is to know of a port; an error if the device does not answer.
    pub fn query(&self, port: u8) -> io::Result<PortInfo> {
        let context = self.ud.context();
        let attr = context.query_port(port)?;
        let gids = gid_table(context, port, &attr);
        let pkeys = (0..attr.pkey_tbl_len).map(|i| context.query_pkey(port, i).unwrap_or(0)).collect();
        Ok(PortInfo {
            device: context.name().to_owned(),
            guid: context.guid(),
            device_order: self.order,
            phys_port_cnt: context.phys_port_cnt(),
            port,
            active: is_usable(&attr, gids.first()),
            lid: attr.lid,
            lmc: attr.lmc,
            sm_lid: attr.sm_lid,
            sm_sl: attr.sm_sl,
            mtu: attr.active_mtu,
            rate: rates::port_rate(attr.active_width, u32::from(attr.active_speed)),
            subnet_timeout: attr.subnet_timeout,
            gids,
            pkeys,
        })
    }
}

/// Whether a port with this first GID can be used.
fn is_usable(attr: &PortAttr, first: Option<&Gid>) -> bool {
    attr.state == verbs::PORT_ACTIVE && attr.lid != 0 && first.is_some_and(|gid| !gid.is_zero())
}

/// The GID table up to its last entry in use; unused entries before that are zero, so that places are indices.
pub fn gid_table(context: &Context, port: u8, attr: &PortAttr) -> Vec<Gid> {
    let entries = (0..attr.gid_tbl_len.min(MAX_GIDS)).map(|i| match context.query_gid(port, i).map(Gid) {
        Ok(gid) if gid.interface_id() != 0 => gid,
        _ => Gid::ZERO,
    });
    let mut gids: Vec<Gid> = entries.collect();
    let used = gids.iter().rposition(|g| !g.is_zero()).map_or(0, |i| i + 1);
    gids.truncate(used);
    gids
}

/// Whether a port has the InfiniBand link layer. Drivers from before there was another do not say.
pub fn is_infiniband(attr: &PortAttr) -> bool {
    matches!(attr.link_layer, verbs::LINK_LAYER_INFINIBAND | verbs::LINK_LAYER_UNSPECIFIED)
}

/// Devices that are there and not open, by name.
#[derive(Debug, Default)]
pub struct Others {
    /// Those without an InfiniBand port: opening them again and again would tell nothing new.
    inert: Vec<String>,
    /// Those that could not be opened, which is tried again but said once.
    failed: Vec<String>,
}

/// Opens every device that has an InfiniBand port and whose name is not `known`. What fails costs that device or port,
/// with a line in the log.
pub fn open_devices(known: impl Fn(&str) -> bool, others: &mut Others, mut next_order: u32) -> io::Result<Vec<Device>> {
    let mut devices = Vec::new();
    let handles = verbs::devices()?;
    let present = |name: &String| handles.iter().any(|h| h.name() == name);
    others.inert.retain(present);
    others.failed.retain(present);
    for handle in &handles {
        let name = handle.name();
        if known(name) || !handle.is_infiniband_transport() || others.inert.iter().any(|other| other == name) {
            continue;
        }
        let result = handle.open().and_then(|context| open_device(context, next_order));
        let said = others.failed.iter().position(|other| other == name).map(|i| others.failed.swap_remove(i));
        match result {
            Ok(Some(device)) => {
                devices.push(device);
                next_order += 1;
            }
            Ok(None) => {
                crate::log!(1, "{name} has no InfiniBand port");
                others.inert.push(name.to_owned());
            }
            Err(e) => {
                crate::log!(u8::from(said.is_some()), "cannot open {name}: {e}");
                others.failed.push(name.to_owned());
            }
        }
    }
    Ok(devices)
}

fn open_device(context: Rc<Context>, order: u32) -> io::Result<Option<Device>> {
    let mut ports = Vec::new();
    for number in 1..=context.phys_port_cnt() {
        match context.query_port(number) {
            Ok(attr) if is_infiniband(&attr) => ports.push(DevicePort { number, umad: None }),
            Ok(_) => crate::log!(1, "{} port {number} is not InfiniBand", context.name()),
            Err(e) => crate::log!(0, "cannot query {} port {number}: {e}", context.name()),
        }
    }
    if ports.is_empty() {
        return Ok(None);
    }
    for p in &mut ports {
        match open_umad(context.name(), p.number) {
            Ok(umad) => p.umad = Some(umad),
            Err(e) => {
                crate::log!(0, "{} port {}: the subnet administrator is out of reach: {e}", context.name(), p.number)
            }
        }
    }
    Ok(Some(Device { ud: UdDevice::new(context)?, order, ports }))
}

/// Opens the way to the subnet administrator, with its reports if no other program on this host has them.
pub fn open_umad(device: &str, port: u8) -> io::Result<UmadPort> {
    let mut umad = UmadPort::open(device, port, &[])?;
    if let Err(e) = umad.take_reports() {
        crate::log!(
            0,
            "{device} port {port}: nobody tells what changes: another program has the SA's notices ({e}), there is no \
             subscription (InformInfo); the service works as before"
        );
    }
    Ok(umad)
}

/// The InfiniBand ports that are here, whoever uses them; none if that cannot be found out.
pub fn present_ports() -> Vec<IbPort> {
    let mut out = Vec::new();
    for handle in verbs::devices().iter().flatten().filter(|h| h.is_infiniband_transport()) {
        let Ok(context) = handle.open() else { continue };
        for port in 1..=context.phys_port_cnt() {
            if let Ok(attr) = context.query_port(port)
                && is_infiniband(&attr)
            {
                let active = attr.state == verbs::PORT_ACTIVE;
                out.push(IbPort { device: handle.name().as_bytes().to_vec(), port, active });
            }
        }
    }
    out
}

/// The InfiniBand ports of `devices`, for names that are made from them.
pub fn ib_ports<'a>(devices: impl Iterator<Item = &'a Device>) -> Vec<IbPort> {
    let mut out = Vec::new();
    for d in devices {
        for p in &d.ports {
            out.push(IbPort { device: d.name().as_bytes().to_vec(), port: p.number, active: d.is_active(p.number) });
        }
    }
    out
}
