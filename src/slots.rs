//! The table of connections, and the clocks that run against some of them.
//!
//! A slot is used again under another generation, so that an old id finds nobody. All clocks
//! run for the same time, so the list of them, linked through the connections, is in order of
//! their ends by itself: starting, stopping and finding the first cost the same for any number.

use crate::conn::Conn;
use crate::frame::ClientId;
use crate::token::GENERATIONS;

/// No neighbour.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot {
    generation: u32,
    conn: Option<Conn>,
}

/// Connections by id.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// Indices that hold no connection.
    free: Vec<u32>,
    first: u32,
    last: u32,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { slots: Vec::new(), free: Vec::new(), first: NONE, last: NONE }
    }
}

impl Slots {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Of all connections.
    pub fn ids(&self) -> Vec<ClientId> {
        let ids = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.conn.is_some());
        ids.map(|(index, slot)| ClientId { index, generation: slot.generation }).collect()
    }

    pub fn insert(&mut self, conn: Conn) -> ClientId {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.conn = Some(conn);
            return ClientId { index, generation: slot.generation };
        }
        // There are fewer descriptors than 32-bit numbers, so this cannot wrap.
        let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
        self.slots.push(Slot { generation: 0, conn: Some(conn) });
        ClientId { index, generation: 0 }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.conn.as_mut() } else { None }
    }

    pub fn remove(&mut self, id: ClientId) -> Option<Conn> {
        self.stop_clock(id);
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let conn = slot.conn.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(id.index);
        Some(conn)
    }

    #[inline(always)]
    fn at(&mut self, index: u32) -> Option<&mut Conn> {
        self.slots.get_mut(index as usize)?.conn.as_mut()
    }

    /// Starts the clock of a connection unless it runs; `deadline` is not before any other one.
    pub fn start_clock(&mut self, id: ClientId, deadline: u64) {
        let last = self.last;
        let Some(conn) = self.get_mut(id) else { return };
        if conn.deadline != 0 {
            return;
        }
        conn.deadline = deadline.max(1);
        conn.before = last;
        conn.after = NONE;
        match self.at(last) {
            Some(neighbour) => neighbour.after = id.index,
            None => self.first = id.index,
        }
        self.last = id.index;
    }

    /// Stops the clock of a connection, if it runs.
    pub fn stop_clock(&mut self, id: ClientId) {
        let Some(conn) = self.get_mut(id) else { return };
        if conn.deadline == 0 {
            return;
        }
        conn.deadline = 0;
        let (before, after) = (conn.before, conn.after);
        match self.at(before) {
            Some(neighbour) => neighbour.after = after,
            None => self.first = after,
        }
        match self.at(after) {
            Some(neighbour) => neighbour.before = before,
            None => self.last = before,
        }
    }

    /// The clock that ends first, and when.
    #[inline(always)]
    pub fn first(&self) -> Option<(ClientId, u64)> {
        let slot = self.slots.get(self.first as usize)?;
        let deadline = slot.conn.as_ref()?.deadline;
        Some((ClientId { index: self.first, generation: slot.generation }, deadline))
    }

    #[inline(always)]
    pub fn first_deadline(&self) -> Option<u64> {
        self.first().map(|(_, deadline)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn conn() -> Conn {
        Conn::new(UnixStream::pair().unwrap().0.into())
    }

    #[test]
    fn an_old_id_finds_nobody() {
        let mut slots = Slots::default();
        let old = slots.insert(conn());
        assert!(slots.remove(old).is_some());
        let new = slots.insert(conn());
        assert_eq!(old.index, new.index);
        assert!(slots.get_mut(old).is_none());
        assert!(slots.remove(old).is_none());
        assert!(slots.get_mut(new).is_some());
        assert_eq!(slots.len(), 1);
        assert!(slots.get_mut(ClientId::new(99, 0)).is_none());
    }

    #[test]
    fn clocks_end_in_order_whatever_is_taken_out() {
        let mut slots = Slots::default();
        let ids: Vec<ClientId> = (0..5).map(|_| slots.insert(conn())).collect();
        for (id, deadline) in ids.iter().zip(10..) {
            slots.start_clock(*id, deadline);
        }
        slots.start_clock(ids[0], 99); // runs already
        assert_eq!(slots.first(), Some((ids[0], 10)));
        slots.stop_clock(ids[2]);
        slots.remove(ids[0]);
        slots.stop_clock(ids[4]);
        slots.start_clock(ids[2], 20);
        let mut order = Vec::new();
        while let Some((id, deadline)) = slots.first() {
            order.push((id, deadline));
            slots.stop_clock(id);
        }
        assert_eq!(order, [(ids[1], 11), (ids[3], 13), (ids[2], 20)]);
        assert_eq!(slots.first_deadline(), None);
    }
}
