//! The kernel's neighbour table in the loop: asked for the engine, and followed as soon as it has told something.

use std::net::IpAddr;

use super::Daemon;
use crate::engine::NeighbourToken;
use crate::log_limited;
use crate::neighbours::{Entry, Place};
use crate::time::Time;
use crate::token::{self, kind};
use ibacm_wire::Gid;

impl Daemon {
    /// Asks for an address on the interfaces of the token's endpoint.
    pub(super) fn ask_neighbour(&mut self, token: NeighbourToken, ip: IpAddr, until: Time) {
        let links = self.neighbour_links(token, ip).unwrap_or_default();
        let answer = self.neighbours.ask(self.now, &mut self.neighbour_table, token, (ip, links), until);
        if let Some((token, gid)) = answer {
            self.neighbour_answered(token, gid);
        }
        self.neighbour_rest();
    }

    fn neighbour_rest(&mut self) {
        if self.neighbours.next_deadline() == Time::NEVER {
            self.neighbour_table.rest();
        }
    }

    fn neighbour_links(&self, token: NeighbourToken, ip: IpAddr) -> Option<Vec<Place>> {
        let (port, pkey_index) = self.engine.endpoint_wanted(token.ep)?;
        let info = self.engine.port(port)?;
        let pkey = *info.pkeys.get(usize::from(pkey_index))?;
        Some(self.rtnl.as_ref()?.table().links(&info.gids, pkey, ip))
    }

    fn neighbour_answered(&mut self, token: NeighbourToken, gid: Option<Gid>) {
        if gid.is_some() {
            let listening = self.neighbour_events.listen(self.poll.registry(), token::pack(kind::NEIGHBOURS, 0, 0));
            if let Err(e) = listening {
                // what was found holds as long as addresses do, like everything that nobody tells of
                log_limited!(1, "changes of neighbours are not seen: {e}");
            }
        }
        self.engine.neighbour(self.now, token, gid);
    }

    /// What is due of the open questions.
    pub(super) fn neighbour_turn(&mut self) {
        if self.neighbours.next_deadline() > self.now {
            return;
        }
        while let Some((token, gid)) = self.neighbours.on_time(self.now, &mut self.neighbour_table) {
            self.neighbour_answered(token, gid);
        }
        self.neighbour_rest();
    }

    /// The table has changed.
    pub(super) fn neighbour_news(&mut self, token: mio::Token) {
        let (engine, table) = (&mut self.engine, self.rtnl.as_ref().map(|r| r.table()));
        let more = self.neighbour_events.read(|n, entry| {
            let gid = match entry {
                Entry::Known { hardware, .. } => hardware.last_chunk().map(|gid| Gid(*gid)),
                Entry::Failed => None,
                _ => return,
            };
            if let Some((port, pkey)) = table.and_then(|t| t.place(n.index)) {
                engine.neighbour_changed(Gid(port), pkey, n.ip, gid);
            }
        });
        if more {
            self.again.push_back(token);
        }
    }
}
