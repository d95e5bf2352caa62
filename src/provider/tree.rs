//! What is open at a plug-in, and how that becomes what is to be open: the order and the lifetimes that plug-ins rely on.
//! Pure; the calls themselves are [`Plugin`]'s.
//!
//! A device is open while one of its ports is, a port while it is active, an endpoint while it has an address. What is
//! inside is closed first, the structure that a plug-in was given with an opening call is valid until the matching
//! closing call has returned, and what could not be opened is closed never, and opened again when something about it has
//! changed or [`Tree::forgive`] says so.

use crate::addr::Addr;
use crate::engine::{EpId, PluggedAddr, PluggedEndpoint, PortId};
use crate::few::Few;

/// The calls into a plug-in. A call that opens gives what the matching one is to close; an error is the plug-in's number.
pub trait Plugin {
    /// Tells devices apart.
    type Device: Clone;
    /// An open device.
    type OpenDevice;
    /// An open port.
    type OpenPort;
    /// An open endpoint.
    type OpenEndpoint;
    /// An address that was added.
    type OpenAddress;

    /// Whether both are one.
    fn is_same(a: &Self::Device, b: &Self::Device) -> bool;
    /// `open_device`.
    fn open_device(&mut self, device: &Self::Device) -> Result<Self::OpenDevice, i32>;
    /// `close_device`.
    fn close_device(&mut self, device: Self::OpenDevice);
    /// `open_port`.
    fn open_port(
        &mut self,
        id: PortId,
        wanted: &Wanted<Self::Device>,
        on: &Self::OpenDevice,
    ) -> Result<Self::OpenPort, i32>;
    /// `close_port`.
    fn close_port(&mut self, port: Self::OpenPort);
    /// `open_endpoint`.
    fn open_endpoint(&mut self, id: EpId, pkey: u16, on: &Self::OpenPort) -> Result<Self::OpenEndpoint, i32>;
    /// `close_endpoint`.
    fn close_endpoint(&mut self, endpoint: Self::OpenEndpoint);
    /// `add_address`.
    fn add_address(&mut self, addr: &PluggedAddr, on: &Self::OpenEndpoint) -> Result<Self::OpenAddress, i32>;
    /// `remove_address`.
    fn remove_address(&mut self, addr: Self::OpenAddress);
}

/// What is to be open for a port.
#[derive(Clone, Debug)]
pub struct Wanted<D> {
    /// The port's device.
    pub device: D,
    /// Port number, from 1.
    pub port: u8,
    /// The port is closed and opened again when this changes.
    pub generation: u32,
    /// The port's GIDs.
    pub gids: Vec<ibacm_wire::Gid>,
    /// Its endpoints with their P_Keys, in the order of opening.
    pub endpoints: Vec<PluggedEndpoint>,
}

/// The device of a port, shared by the ports that name it.
struct DeviceNode<P: Plugin> {
    device: P::Device,
    open: P::OpenDevice,
    ports: usize,
}

struct PortNode<P: Plugin> {
    generation: u32,
    device: P::Device,
    /// `None`: it could not be opened.
    open: Option<P::OpenPort>,
    endpoints: Few<EpId, EndpointNode<P>>,
}

struct EndpointNode<P: Plugin> {
    /// The P_Key and its index.
    pkey: (u16, u16),
    open: Option<P::OpenEndpoint>,
    addrs: Few<u32, (Addr, Option<P::OpenAddress>)>,
}

/// What is open at one plug-in.
pub struct Tree<P: Plugin> {
    devices: Vec<DeviceNode<P>>,
    ports: Few<PortId, PortNode<P>>,
}

impl<P: Plugin> Default for Tree<P> {
    fn default() -> Self {
        Tree { devices: Vec::new(), ports: Few::default() }
    }
}

impl<P: Plugin> Tree<P> {
    /// Whether something could not be opened.
    pub fn has_failures(&self) -> bool {
        let failed = |e: &EndpointNode<P>| e.open.is_none() || e.addrs.values().any(|a| a.1.is_none());
        self.ports.values().any(|p| p.open.is_none() || p.endpoints.values().any(failed))
    }

    /// What could not be opened is tried again by the next `become_`.
    pub fn forgive(&mut self) {
        self.ports.retain(|p| p.open.is_some());
        for port in self.ports.values_mut() {
            port.endpoints.retain(|e| e.open.is_some());
            port.endpoints.values_mut().for_each(|e| e.addrs.retain(|a| a.1.is_some()));
        }
    }

    /// An open port.
    pub fn port(&self, port: PortId) -> Option<&P::OpenPort> {
        self.ports.get(port)?.open.as_ref()
    }

    /// An open endpoint.
    pub fn endpoint(&self, port: PortId, ep: EpId) -> Option<&P::OpenEndpoint> {
        self.ports.get(port)?.endpoints.get(ep)?.open.as_ref()
    }

    /// An address that was added.
    pub fn address(&self, port: PortId, ep: EpId, place: u32) -> Option<&P::OpenAddress> {
        self.ports.get(port)?.endpoints.get(ep)?.addrs.get(place)?.1.as_ref()
    }

    /// Makes the calls that lead from what is open to what is wanted: first those that close.
    pub(crate) fn become_(&mut self, plugin: &mut P, wanted: &Few<PortId, Wanted<P::Device>>) {
        let stays = |id: PortId, node: &PortNode<P>| {
            let same = |w: &Wanted<P::Device>| w.generation == node.generation && P::is_same(&w.device, &node.device);
            wanted.get(id).is_some_and(same)
        };
        let gone: Vec<PortId> = self.ports.iter().filter(|(id, node)| !stays(*id, node)).map(|(id, _)| id).collect();
        for id in gone {
            self.close_port(plugin, id);
        }
        for (id, wanted) in wanted.iter() {
            if let Some(node) = self.ports.get_mut(id) {
                close_endpoints(plugin, node, wanted);
            }
        }
        for (id, wanted) in wanted.iter() {
            if self.ports.get(id).is_none() {
                self.open_port(plugin, id, wanted);
            }
            if let Some(node) = self.ports.get_mut(id) {
                open_endpoints(plugin, node, wanted);
            }
        }
    }

    fn open_port(&mut self, plugin: &mut P, id: PortId, wanted: &Wanted<P::Device>) {
        let known = self.devices.iter().position(|d| P::is_same(&d.device, &wanted.device));
        let at = known.or_else(|| {
            let open = plugin.open_device(&wanted.device).ok()?;
            self.devices.push(DeviceNode { device: wanted.device.clone(), open, ports: 0 });
            Some(self.devices.len() - 1)
        });
        let open = at.and_then(|at| plugin.open_port(id, wanted, &self.devices[at].open).ok());
        if let (Some(at), Some(_)) = (at, &open) {
            self.devices[at].ports += 1;
        }
        let (generation, device) = (wanted.generation, wanted.device.clone());
        self.ports.get_or_insert_with(id, || PortNode { generation, device, open, endpoints: Few::default() });
        self.close_devices(plugin);
    }

    fn close_port(&mut self, plugin: &mut P, id: PortId) {
        let Some(node) = self.ports.remove(id) else { return };
        for endpoint in node.endpoints.into_values() {
            close_endpoint(plugin, endpoint);
        }
        let Some(open) = node.open else { return };
        plugin.close_port(open);
        if let Some(device) = self.devices.iter_mut().find(|d| P::is_same(&d.device, &node.device)) {
            device.ports -= 1;
        }
        self.close_devices(plugin);
    }

    /// Closes devices without an open port.
    fn close_devices(&mut self, plugin: &mut P) {
        while let Some(at) = self.devices.iter().position(|d| d.ports == 0) {
            plugin.close_device(self.devices.swap_remove(at).open);
        }
    }
}

/// Closes endpoints and removes addresses that are wanted no longer.
fn close_endpoints<P: Plugin>(plugin: &mut P, node: &mut PortNode<P>, wanted: &Wanted<P::Device>) {
    let find = |ep: EpId, pkey: (u16, u16)| {
        let same = |w: &&PluggedEndpoint| w.ep == ep && (w.pkey, w.pkey_index) == pkey && !w.addrs.is_empty();
        wanted.endpoints.iter().find(same)
    };
    let gone: Vec<EpId> =
        node.endpoints.iter().filter(|(ep, e)| find(*ep, e.pkey).is_none()).map(|(ep, _)| ep).collect();
    for endpoint in gone.iter().filter_map(|ep| node.endpoints.remove(*ep)) {
        close_endpoint(plugin, endpoint);
    }
    for (ep, endpoint) in node.endpoints.iter_mut() {
        let Some(wanted) = find(ep, endpoint.pkey) else { continue };
        let stays = |place: u32, addr: &Addr| wanted.addrs.iter().any(|w| w.place == place && w.addr == *addr);
        let gone: Vec<u32> = endpoint.addrs.iter().filter(|(p, a)| !stays(*p, &a.0)).map(|(p, _)| p).collect();
        for (_, open) in gone.iter().filter_map(|place| endpoint.addrs.remove(*place)) {
            if let Some(open) = open {
                plugin.remove_address(open);
            }
        }
    }
}

fn close_endpoint<P: Plugin>(plugin: &mut P, endpoint: EndpointNode<P>) {
    for open in endpoint.addrs.into_values().filter_map(|a| a.1) {
        plugin.remove_address(open);
    }
    if let Some(open) = endpoint.open {
        plugin.close_endpoint(open);
    }
}

/// Opens endpoints and adds addresses that are not there.
fn open_endpoints<P: Plugin>(plugin: &mut P, node: &mut PortNode<P>, wanted: &Wanted<P::Device>) {
    let Some(port) = &node.open else { return };
    for w in wanted.endpoints.iter().filter(|w| !w.addrs.is_empty()) {
        let endpoint = node.endpoints.get_or_insert_with(w.ep, || EndpointNode {
            pkey: (w.pkey, w.pkey_index),
            open: plugin.open_endpoint(w.ep, w.pkey, port).ok(),
            addrs: Few::default(),
        });
        let Some(open) = &endpoint.open else { continue };
        for addr in &w.addrs {
            let add = || (addr.addr, plugin.add_address(addr, open).ok());
            endpoint.addrs.get_or_insert_with(addr.place, add);
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
