//! Requests of clients, handed from the server to the engine.

use std::net::IpAddr;

use super::timed::TimedEngine;
use crate::engine::{self, RouteLookup, Unroutable};
use crate::log;
use crate::route::Sources;
use crate::server::{ClientId, Outcome, Service};
use crate::time::Time;

/// The kernel's routing, asked through a socket.
pub(super) struct Routing<'a>(pub(super) &'a mut Sources);

impl RouteLookup for Routing<'_> {
    fn source_for(&mut self, dest: IpAddr) -> Result<IpAddr, Unroutable> {
        self.0.source_for(dest, None).map_err(|e| {
            log!(2, "no source address for {dest}: {e}");
            Unroutable
        })
    }
}

/// A connection's name for the engine; the top bit is never set, which marks the kernel.
fn engine_id(client: ClientId) -> engine::ClientId {
    engine::ClientId(u64::from(client.generation) << 32 | u64::from(client.index))
}

/// Hands requests of clients to the engine.
pub(super) struct Requests<'a> {
    pub(super) engine: &'a mut TimedEngine,
    pub(super) sources: &'a mut Sources,
    pub(super) now: Time,
}

impl Service for Requests<'_> {
    fn request(&mut self, client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        let id = engine_id(client);
        let start = out.len();
        let outcome = self.engine.request(self.now, id, msg, &mut Routing(self.sources), out);
        let (who, operation) = (client.index, msg.get(1).copied().unwrap_or_default());
        match outcome {
            engine::Outcome::Replied => {
                let status = out.get(start + 2).copied().unwrap_or_default();
                log!(2, "client {who}: operation {operation:#x} answered at once, status {status}");
                Outcome::Replied
            }
            engine::Outcome::Pending => {
                log!(2, "client {who}: operation {operation:#x} waits");
                Outcome::Pending
            }
            engine::Outcome::Close => {
                log!(2, "client {who}: operation {operation:#x} is none that there is: closed");
                Outcome::Close
            }
        }
    }

    fn closed(&mut self, client: ClientId) {
        self.engine.client_gone(engine_id(client));
    }
}
