//! Devices in the loop: opened, watched for events, dropped when they vanish.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::manager::RESCAN;
use super::{Daemon, SETTLE, SHARE};
use crate::device::{self, Device, open_umad};
use crate::engine::PortId;
use crate::time::Time;
use crate::token::{self, kind};
use crate::ud::UdEndpoint;
use crate::umad::UmadPort;
use crate::verbs;
use crate::{log, sock};

/// How long the kernel is given to tear down what was open on a lost device. Until it has, nothing can be destroyed
/// from here: what is tried is refused, and would be leaked.
const LINGER: Duration = Duration::from_secs(2);
/// How long a lost device is expected to come back soon: resets and new firmware take that long.
const HURRY: Duration = Duration::from_secs(60);

/// What events say of a port; the last of these counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// It may be another one.
    Changed,
    /// It is to join its groups again.
    Reregister,
    /// It was down, even if that is over already.
    Down,
}

/// A lost device with what was open on it.
pub(super) struct Lost {
    /// When it is let go of.
    pub until: Time,
    _endpoints: Vec<UdEndpoint>,
    _device: Device,
}

impl Daemon {
    /// Opens devices that are not open yet: how many are, in all.
    pub fn open_devices(&mut self) -> io::Result<usize> {
        let known = |name: &str| self.devices.iter().flatten().any(|d| d.name() == name);
        let found = device::open_devices(known, &mut self.others, self.opened)?;
        for d in found {
            self.opened = self.opened.max(d.order + 1);
            // a new one is no news for every operator, but one that was missed is
            match self.engine.knows_device(d.name()) {
                true => log!(0, "{} is back", d.name()),
                false => log!(1, "opened {}", d.name()),
            }
            self.add_device(d);
        }
        if let Some(preload) = self.preload.refresh(&self.engine.port_guids()) {
            self.engine.set_preload(self.now, preload);
        }
        Ok(self.devices.iter().flatten().count())
    }

    /// Where paths and addresses are preloaded from, for the ports of devices that are opened from now on.
    pub fn preload_from(&mut self, source: crate::preload::io::Source) {
        self.preload = source;
    }

    /// The open devices.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flatten()
    }

    fn add_device(&mut self, device: Device) {
        // a place that is free again holds nothing that an old event could harm
        let index = self.devices.iter().position(Option::is_none).unwrap_or(self.devices.len());
        let registry = self.poll.registry();
        let register = |fd: i32, token: Token| {
            if let Err(e) = registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
                log!(0, "cannot watch {}: {e}", device.name());
            }
        };
        let epoll = self.poll.as_raw_fd();
        register(device.ud.fd(), token::pack(kind::COMPLETION, 0, index as u32));
        register(device.ud.context().async_fd(), token::pack(kind::ASYNC, 0, index as u32));
        for p in &device.ports {
            if let Some(umad) = &p.umad {
                // the port's number is its generation: it distinguishes the ports of a device
                let token = token::pack(kind::UMAD, u32::from(p.number), index as u32);
                if let Err(e) = sock::watch_level(epoll, umad.fd(), token.0) {
                    log!(0, "cannot watch {}: {e}", device.name());
                }
            }
        }
        let numbers: Vec<u8> = device.ports.iter().map(|p| p.number).collect();
        match self.devices.get_mut(index) {
            Some(place) => *place = Some(device),
            None => self.devices.push(Some(device)),
        }
        for number in numbers {
            self.refresh_port(index, number);
        }
    }

    /// Looks at a port and tells the engine.
    pub(super) fn refresh_port(&mut self, index: usize, number: u8) -> Option<PortId> {
        let device = self.devices.get(index)?.as_ref()?;
        let place = device.ports.iter().position(|p| p.number == number)?;
        match device.query(number) {
            Ok(info) => {
                let active = info.active;
                let known = self.ports.iter().find(|(_, at)| **at == (index, place)).map(|(id, _)| *id);
                let old = known.and_then(|id| self.engine.port(id));
                // of a device that was away nobody knows what its interfaces were told meanwhile
                let gids_changed = old.is_none_or(|old| old.gids != info.gids);
                self.ports_changed |= old.is_none_or(|old| old.active != active);
                let reports = device.ports.get(place).and_then(|p| p.umad.as_ref()).is_some_and(UmadPort::has_reports);
                // the kernel changes the prefix in an interface's address some time after the port's, and tells nobody
                let outdated = active && self.rtnl.as_ref().is_some_and(|r| r.table().has_other_prefix(&info.gids));
                let id = self.engine.set_port(self.now, info);
                self.engine.set_reports(self.now, id, reports);
                self.ports.insert(id, (index, place));
                if gids_changed {
                    // address handles hold indices into the table, and interfaces are known by GID
                    self.endpoints.values_mut().for_each(|e| e.forget_handles());
                }
                if let Some(r) = self.rtnl.as_mut().filter(|_| gids_changed || outdated) {
                    r.resync(self.now.0);
                }
                Some(id)
            }
            Err(e) => {
                self.device_lost(index, &e.to_string());
                None
            }
        }
    }

    /// Whether the engine knows the port as active.
    fn is_active(&self, index: usize, number: u8) -> bool {
        let name = self.devices.get(index).and_then(Option::as_ref).map(Device::name);
        let known = self.ports.iter().filter(|(_, at)| at.0 == index);
        known
            .filter_map(|(id, _)| self.engine.port(*id))
            .any(|p| p.active && p.port == number && name == Some(p.device.as_str()))
    }

    /// Asynchronous events of a device. They come in bursts: one look at a port does for all of its events.
    pub(super) fn device_events(&mut self, index: usize, token: Token) {
        let mut touched: Vec<(u8, Told)> = Vec::new();
        let mut more = true;
        for _ in 0..SHARE {
            let Some(device) = self.devices.get(index).and_then(Option::as_ref) else { return };
            let event = match device.ud.context().next_async_event() {
                Ok(Some(event)) => event,
                Ok(None) => {
                    more = false;
                    break;
                }
                Err(e) => return self.device_lost(index, &e.to_string()),
            };
            log!(1, "{}: event {} on port {}", device.name(), verbs::event_name(event.kind), event.port);
            let told = match event.kind {
                verbs::EVENT_DEVICE_FATAL => return self.device_lost(index, "it reported a fatal error"),
                verbs::EVENT_PORT_ERR => Told::Down,
                verbs::EVENT_CLIENT_REREGISTER => Told::Reregister,
                verbs::EVENT_PORT_ACTIVE
                | verbs::EVENT_LID_CHANGE
                | verbs::EVENT_PKEY_CHANGE
                | verbs::EVENT_SM_CHANGE
                | verbs::EVENT_GID_CHANGE => Told::Changed,
                _ => continue,
            };
            match touched.iter_mut().find(|(number, _)| *number == event.port) {
                Some(port) => port.1 = port.1.max(told),
                None => touched.push((event.port, told)),
            }
        }
        if !touched.is_empty() {
            // what the kernel makes of an event may come later, and without another one
            self.next_check = self.next_check.min(self.now.plus(SETTLE));
        }
        for (number, told) in touched {
            let was_active = self.is_active(index, number);
            let Some(id) = self.refresh_port(index, number) else {
                self.do_actions();
                continue;
            };
            // with the built-in provider a port that has just come up joins anyway; a plug-in wants to be told
            if was_active || self.engine.plugged(id).is_some() || !self.is_active(index, number) {
                match told {
                    Told::Changed => {}
                    Told::Reregister => self.engine.reregister(self.now, id),
                    Told::Down => self.engine.port_bounced(self.now, id),
                }
            }
            self.do_actions();
        }
        if more {
            self.again.push_back(token);
        }
    }

    /// The device is gone: its ports are told down, its descriptors are watched no more. It is looked for again soon.
    pub(super) fn device_lost(&mut self, index: usize, why: &str) {
        let Some(mut device) = self.devices.get_mut(index).and_then(Option::take) else { return };
        log!(0, "{} is lost: {why}", device.name());
        let endpoints = self.endpoints.extract(|_, e| e.is_on(&device.ud));
        let ports: Vec<PortId> = self.ports.iter().filter(|(_, at)| at.0 == index).map(|(id, _)| *id).collect();
        for id in ports {
            self.engine.port_gone(self.now, id);
            self.ports.remove(&id);
        }
        self.do_actions();
        let registry = self.poll.registry();
        let umads = device.ports.iter().filter_map(|p| p.umad.as_ref()).map(UmadPort::fd);
        for fd in umads.chain([device.ud.fd(), device.ud.context().async_fd()]) {
            // it may be gone from the set with the device already
            let _ = registry.deregister(&mut SourceFd(&fd));
        }
        // nothing lingers on these, and as long as they are open nobody else gets the SA's reports: not the device that
        // comes back either
        device.ports.iter_mut().for_each(|p| p.umad = None);
        self.lost.push_back(Lost { until: self.now.plus(LINGER), _endpoints: endpoints, _device: device });
        self.hurry_until = self.now.plus(HURRY);
        self.next_check = self.next_check.min(self.now.plus(RESCAN));
    }

    pub(super) fn umad(&mut self, port: PortId) -> Option<&mut UmadPort> {
        let (d, p) = *self.ports.get(&port)?;
        self.devices.get_mut(d)?.as_mut()?.ports.get_mut(p)?.umad.as_mut()
    }

    /// MADs that came to a port. Where no answer is outstanding the next one is not looked for: it is an event of its own,
    /// as these descriptors are level-triggered. So one is read whatever happens, or the loop would not sleep any more.
    pub(super) fn mads(&mut self, index: usize, number: u32) {
        let Some(device) = self.devices.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(place) = device.ports.iter().position(|p| u32::from(p.number) == number) else { return };
        let id = self.ports.iter().find(|(_, at)| **at == (index, place)).map(|(id, _)| *id);
        let Some(umad) = device.ports.get_mut(place).and_then(|p| p.umad.as_mut()) else { return };
        for _ in 0..SHARE {
            match (umad.recv(), id) {
                (Ok(Some(r)), Some(id)) if r.is_report() => self.engine.report(self.now, id, r.lid, &r.mad),
                (Ok(Some(r)), Some(id)) => self.engine.mad_received(self.now, id, r.status, &r.mad),
                (Ok(Some(_)), None) => {}
                (Ok(None), _) => return,
                // nothing but the end of the device ends it
                (Err(e), _) => return self.device_lost(index, &e.to_string()),
            }
            if !umad.expects_answer() {
                return;
            }
        }
    }

    /// Opens the way to the SA where it could not be opened before: whether it is open now.
    fn reopen_umad(&mut self, index: usize, number: u8) -> bool {
        let Some(device) = self.devices.get_mut(index).and_then(Option::as_mut) else { return false };
        let name = device.name().to_owned();
        let Some(p) = device.ports.iter_mut().find(|p| p.number == number && p.umad.is_none()) else { return false };
        let Ok(umad) = open_umad(&name, number) else { return false };
        let token = token::pack(kind::UMAD, u32::from(number), index as u32);
        match sock::watch_level(self.poll.as_raw_fd(), umad.fd(), token.0) {
            Ok(()) => p.umad = Some(umad),
            Err(e) => crate::log_limited!(0, "cannot watch {name}: {e}"),
        }
        p.umad.is_some()
    }

    /// Takes the SA's reports where another program had them.
    fn retake_reports(&mut self, index: usize, number: u8) {
        let Some(device) = self.devices.get_mut(index).and_then(Option::as_mut) else { return };
        let name = device.name().to_owned();
        let Some(p) = device.ports.iter_mut().find(|p| p.number == number) else { return };
        let Some(umad) = p.umad.as_mut().filter(|umad| !umad.has_reports()) else { return };
        if umad.take_reports().is_ok() {
            log!(0, "{name} port {number}: the SA's notices are free again");
        }
    }

    /// Looks for what no event told of: changed ports, new devices.
    pub(super) fn check_devices(&mut self) {
        let ports: Vec<(usize, u8)> = self
            .devices
            .iter()
            .enumerate()
            .filter_map(|(i, d)| d.as_ref().map(|d| (i, d)))
            .flat_map(|(i, d)| d.ports.iter().map(move |p| (i, p.number)))
            .collect();
        for (index, number) in ports {
            let reachable = self.reopen_umad(index, number);
            self.retake_reports(index, number);
            if let Some(id) = self.refresh_port(index, number)
                && reachable
            {
                log!(0, "the subnet administrator is in reach");
                self.engine.reregister(self.now, id);
            }
        }
        if let Err(e) = self.open_devices() {
            crate::log_limited!(1, "cannot list devices: {e}");
        }
        self.forgive_providers();
    }
}
