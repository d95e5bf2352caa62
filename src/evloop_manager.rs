//! What the loop has to do with whoever started the service: signals, its word to a service manager, and what it hands
//! back because it takes files to do it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::{DRAIN, Daemon, Depths};
use crate::device::Device;
use crate::engine::{Config, Engine, PortId};
use crate::lifecycle::Signal;
use crate::log;
use crate::preload::io::Source;
use crate::publish;
use crate::server::Server;
use crate::systemd::{Manager, Status};

/// How often devices are looked for while there is none, or one was lost a short time ago.
pub(super) const RESCAN: Duration = Duration::from_secs(2);

/// Why the loop paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The service was told to end, and has.
    End,
    /// The files are to be read again.
    Reload,
    /// There is a port that was not there, or one has become active or is no longer.
    Ports,
}

impl Daemon {
    /// Says who wants to hear how the service is.
    pub fn set_manager(&mut self, manager: Manager) {
        self.manager = manager;
    }

    /// The files are being read again; [`Daemon::ready`] is to follow.
    pub fn reloading(&mut self) {
        self.manager.reloading();
    }

    /// The service serves (again).
    pub fn ready(&mut self) {
        self.manager.ready(status(&self.engine, &self.devices, &self.server));
    }

    /// Serves clients on a socket that somebody else made, in place of [`Daemon::listen`]; the names of a TCP service
    /// under `dir` are taken away, since clients would prefer them.
    pub fn adopt(&mut self, dir: &Path, listener: OwnedFd) -> Result<(), String> {
        let unix = std::os::unix::net::UnixListener::from(listener);
        let is_unix = unix.local_addr().is_ok();
        self.server.adopt(unix.into()).map_err(|e| format!("cannot serve the inherited socket: {e}"))?;
        if is_unix {
            publish::remove_tcp_names(dir).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Reads the preload files (again), in the place of what they said before.
    pub fn preload_again(&mut self, source: Source) {
        self.preload = source;
        let preload = self.preload.refresh(&self.engine.port_guids()).unwrap_or_default();
        self.engine.set_preload(self.now, preload);
    }

    /// Changes the sizes of queues for endpoints that are opened from now on.
    pub fn set_depths(&mut self, depths: Depths) {
        self.depths = depths;
    }

    /// Changes the options of the engine.
    pub fn configure(&mut self, config: Config) {
        self.engine.set_config(self.now, config);
    }

    /// Once a turn.
    pub(super) fn manager_turn(&mut self) {
        let Daemon { manager, engine, devices, server, now, .. } = self;
        manager.turn(*now, || status(engine, devices, server));
        if self.devices.iter().all(Option::is_none) {
            self.next_check = self.next_check.min(self.now.plus(RESCAN));
        }
    }

    pub(super) fn signal(&mut self) {
        while let Ok(Some(signal)) = self.signals.next_signal() {
            match signal {
                Signal::Hangup => self.reload = true,
                _ if self.stop_at.is_none() => {
                    log!(0, "stopping");
                    self.manager.stopping();
                    self.server.drain();
                    self.leave_kernel();
                    self.stop_at = Some(self.now.plus(DRAIN));
                }
                _ => self.stop_at = Some(self.now),
            }
        }
    }

    /// What the loop has to pause for now.
    pub(super) fn pause(&mut self) -> Option<Pause> {
        if let Some(at) = self.stop_at {
            if at <= self.now {
                self.refuse_the_rest();
            }
            return (at <= self.now || self.server.is_quiet()).then_some(Pause::End);
        }
        if std::mem::take(&mut self.reload) {
            return Some(Pause::Reload);
        }
        std::mem::take(&mut self.ports_changed).then_some(Pause::Ports)
    }

    /// Whoever still waits for an answer is told that there will be none.
    pub(super) fn refuse_the_rest(&mut self) {
        let ports: Vec<PortId> = self.ports.keys().copied().collect();
        for port in ports {
            self.engine.port_gone(self.now, port);
        }
        self.do_actions();
    }
}

fn status(engine: &Engine, devices: &[Option<Device>], server: &Server) -> Status {
    let (endpoints, groups, joined) = engine.summary();
    Status { devices: devices.iter().flatten().count(), endpoints, groups, joined, clients: server.clients() }
}
