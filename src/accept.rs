//! The server's listeners: opening and adopting them, accepting, pausing, stopping.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use crate::listen::{Accepted, Listener, Notice};
use crate::publish::{self, PublishError, Published};
use crate::server::Server;
use crate::token;

/// Connections that one call accepts from one listener.
pub const ACCEPTS_PER_TURN: usize = 64;

impl Server {
    /// Listens on the unix socket in `dir`; see [`publish::unix`].
    ///
    /// # Errors
    /// Those of [`publish::unix`]; registering can fail as well.
    pub fn listen_unix(&mut self, dir: &Path, link: bool) -> Result<usize, PublishError> {
        let (listener, names) = publish::unix(dir, link)?;
        self.add(listener.into(), names)
            .map_err(|e| PublishError::Io("serve", dir.join(publish::UNIX_SOCKET).display().to_string(), e))
    }

    /// Listens on a TCP address and publishes the port in `dir`; see [`publish::tcp`].
    ///
    /// # Errors
    /// Those of [`publish::tcp`]; registering can fail as well.
    pub fn listen_tcp(&mut self, dir: &Path, addr: SocketAddr, link: bool) -> Result<usize, PublishError> {
        let (listener, names) = publish::tcp(dir, addr, link)?;
        self.add(listener.into(), names).map_err(|e| PublishError::Io("serve", addr.to_string(), e))
    }

    /// Serves a listening stream socket that somebody else made and published.
    ///
    /// # Errors
    /// It is no listening stream socket, or cannot be registered.
    pub fn adopt(&mut self, listener: OwnedFd) -> io::Result<usize> {
        self.add(listener, Published::default())
    }

    fn add(&mut self, fd: OwnedFd, names: Published) -> io::Result<usize> {
        let listener = Listener::new(fd, names)?;
        let index = self.listeners.len();
        let number = u32::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        listener.register(&self.registry, token::pack(token::kind::LISTENER, 0, number))?;
        self.listeners.push(listener);
        Ok(index)
    }

    /// An event of listener `index` (the index of its token): accepts.
    pub fn on_listener(&mut self, index: u32, now_us: u64) {
        let index = index as usize;
        if let Some(listener) = self.listeners.get_mut(index) {
            listener.more = true;
            self.accept_some(index, now_us);
        }
    }

    /// Accepts until nobody waits, the bound is reached, or descriptors are short.
    pub(crate) fn accept_some(&mut self, index: usize, now_us: u64) {
        for _ in 0..ACCEPTS_PER_TURN {
            let clients = self.slots.len();
            let Some(listener) = self.listeners.get_mut(index) else { return };
            if !self.gate.is_open() {
                return;
            }
            if self.gate.tight {
                if !listener.has_room(self.gate.threshold) {
                    self.gate.extend(now_us);
                    return;
                }
                self.gate.tight = false;
            }
            match listener.accept() {
                Accepted::Client(fd) => {
                    let last = u64::try_from(fd.as_raw_fd())
                        .is_ok_and(|number| number.saturating_add(1) >= self.gate.threshold);
                    if let Err(error) = self.insert(fd) {
                        self.pause(now_us, error.raw_os_error().unwrap_or(0));
                    } else if last {
                        self.pause(now_us, 0);
                    }
                }
                Accepted::NoMore => {
                    listener.more = false;
                    return;
                }
                Accepted::Lost => {}
                Accepted::Failed(error) => {
                    self.counters.paused += 1;
                    self.gate.pause(now_us, error.raw_os_error().unwrap_or(0), clients);
                }
            }
        }
    }

    fn pause(&mut self, now_us: u64, errno: i32) {
        self.counters.paused += 1;
        self.gate.pause(now_us, errno, self.slots.len());
    }

    /// Stops accepting and takes the names away; connections stay.
    pub fn stop_accepting(&mut self) {
        for listener in self.listeners.drain(..) {
            // It is closed next anyway.
            let _ = listener.deregister(&self.registry);
        }
        self.gate.open();
    }

    /// Why accepting paused, for the log: at most once a minute.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.gate.take_notice()
    }
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
