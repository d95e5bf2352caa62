//! Destinations of one endpoint and what is known of them: a bounded table, the least recently used goes first.
//!
//! An entry that somebody waits for, the host's own addresses and preloaded ones never go.

use ibacm_wire::PathRecord;

use crate::addr::{Addr, Key};
use crate::keyed::SipKey;
use crate::table::Table;
use crate::time::{Coarse, Time};

const NONE: u32 = u32::MAX;

/// Names an entry; of one that is gone it finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct DestId {
    index: u32,
    generation: u32,
}

/// How far a destination is resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing known.
    Init,
    /// The multicast request is under way.
    QueryAddr,
    /// The peer is known, the path is not (or in doubt).
    AddrResolved,
    /// The SA is asked for the path.
    QueryRoute,
    /// The path is known.
    Ready,
    /// It failed with this client status, and is not tried again before `addr_expiry`.
    Failed(u8),
}

/// Where an entry comes from, which says who may change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From the fabric: changes with what the fabric says, is forgotten when room is needed.
    Learned,
    /// An own address.
    Local,
    /// From a preload file.
    Preloaded,
}

/// What the address protocol told of a peer, for datagrams to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// QP number of its endpoint; 0 where unknown.
    pub qpn: u32,
    /// LID that its datagrams come from.
    pub lid: u16,
    /// Path bits of the own LID that they came to.
    pub path_bits: u8,
    /// Rate and MTU of the best group that both are in, as a code of the engine's.
    pub group: u8,
}

/// An entry.
#[derive(Debug)]
pub struct Dest {
    key: Key,
    hash: u64,
    generation: u32,
    newer: u32,
    older: u32,
    /// How far it is resolved.
    pub state: State,
    /// Where it comes from.
    pub origin: Origin,
    /// Somebody waits for it, or it may not go.
    pinned: bool,
    /// Nobody here has asked for it: it is the first to go.
    cold: bool,
    /// The endpoint's era in which its peer was last heard of; 0 if in none that can come again.
    pub era: u8,
    /// Increases when what a route query asked for is no longer what is wanted.
    pub epoch: u16,
    /// The peer.
    pub peer: Peer,
    /// The path; before that is known its DGID is the peer's GID.
    pub path: PathRecord,
    /// From then on the address is to be asked for again.
    pub addr_expiry: Time,
    /// From then on the path is to be asked for again.
    pub route_expiry: Time,
    /// From then on the path is to be asked for once it has been given out: it may be another one.
    pub check_at: Coarse,
}

impl Dest {
    /// The address.
    pub fn addr(&self) -> Addr {
        self.key.addr()
    }

    /// A number that it has for as long as it is there, and others have others.
    pub fn spread(&self) -> u16 {
        (self.hash >> 16) as u16
    }

    /// Whether its peer has told of the address, but not in this era of the endpoint.
    pub fn is_unconfirmed(&self, era: u8) -> bool {
        self.era != era && self.is_learned() && self.peer.lid != 0
    }

    /// Whether the fabric may overwrite or forget it.
    pub fn is_learned(&self) -> bool {
        self.origin == Origin::Learned
    }
}

/// The table.
pub struct Cache {
    key: SipKey,
    table: Table,
    dests: Vec<Dest>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    learned: usize,
    capacity: usize,
    evicted: u64,
}

impl Cache {
    /// A table for at most `capacity` learned entries, hashed under `key`.
    pub fn new(key: SipKey, capacity: usize) -> Cache {
        Cache {
            key,
            table: Table::new(),
            dests: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            learned: 0,
            capacity,
            evicted: 0,
        }
    }

    /// Changes how many learned entries there may be; where there are more, those longest unused go.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.learned > capacity && self.evict() {}
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The entry for `addr`.
    pub fn find(&self, addr: &Addr) -> Option<DestId> {
        let index = self.table.find(addr.hash(&self.key), |i| self.dests[i as usize].key.is(addr))?;
        Some(self.id(index))
    }

    fn id(&self, index: u32) -> DestId {
        DestId { index, generation: self.dests[index as usize].generation }
    }

    /// The entry, if it is still there.
    pub fn get(&self, id: DestId) -> Option<&Dest> {
        self.dests.get(id.index as usize).filter(|d| d.generation == id.generation)
    }

    /// The entry, if it is still there and is `addr`.
    pub fn get_for(&self, id: DestId, addr: &Addr) -> Option<&Dest> {
        self.get(id).filter(|d| d.key.is(addr))
    }

    /// The entry, if it is still there.
    pub fn get_mut(&mut self, id: DestId) -> Option<&mut Dest> {
        self.dests.get_mut(id.index as usize).filter(|d| d.generation == id.generation)
    }

    /// Marks the entry as just used by somebody here.
    pub fn touch(&mut self, id: DestId) {
        let Some(d) = self.get_mut(id) else { return };
        d.cold = false;
        if !d.pinned && self.newest != id.index {
            self.unlink(id.index);
            self.link_newest(id.index);
        }
    }

    /// An entry for `addr`, which has none: state Init. `None` if all entries that may go are gone. With `cold`, the
    /// entry is the first to go: somebody was heard of whom nobody here asked for.
    pub fn insert(&mut self, addr: &Addr, origin: Origin, cold: bool) -> Option<DestId> {
        if origin == Origin::Learned {
            if self.learned >= self.capacity {
                self.evict().then_some(())?;
            }
            self.learned += 1;
        }
        let hash = addr.hash(&self.key);
        let dest = Dest {
            key: Key::new(addr),
            hash,
            generation: 1,
            newer: NONE,
            older: NONE,
            state: State::Init,
            origin,
            pinned: origin != Origin::Learned,
            cold,
            era: 0,
            epoch: 0,
            peer: Peer::default(),
            path: PathRecord::default(),
            addr_expiry: Time::NEVER,
            route_expiry: Time::NEVER,
            check_at: Coarse::NEVER,
        };
        let index = match self.free.pop() {
            Some(i) => {
                let generation = self.dests[i as usize].generation;
                self.dests[i as usize] = Dest { generation, ..dest };
                i
            }
            None => {
                self.dests.push(dest);
                (self.dests.len() - 1) as u32
            }
        };
        self.table.insert(hash, index);
        if origin == Origin::Learned {
            if cold {
                self.link_oldest(index);
            } else {
                self.link_newest(index);
            }
        }
        Some(self.id(index))
    }

    /// Takes out the longest unused of those that may go; false if there is none.
    fn evict(&mut self) -> bool {
        let any = self.oldest != NONE;
        if any {
            self.remove(self.id(self.oldest));
            self.evicted += 1;
        }
        any
    }

    /// How many entries have gone to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Takes the entry out.
    pub fn remove(&mut self, id: DestId) {
        let Some(d) = self.get(id) else { return };
        let (hash, learned, pinned) = (d.hash, d.is_learned(), d.pinned);
        self.table.remove(hash, |i| i == id.index);
        if !pinned {
            self.unlink(id.index);
        }
        if learned {
            self.learned -= 1;
        }
        let d = &mut self.dests[id.index as usize];
        d.generation = d.generation.wrapping_add(1);
        d.key = Key::Short(0, 0, [0; 16]);
        self.free.push(id.index);
    }

    /// Keeps the entry while `pinned`. Own and preloaded ones are always kept.
    pub fn pin(&mut self, id: DestId, pinned: bool) {
        let Some(d) = self.get_mut(id) else { return };
        if !d.is_learned() || d.pinned == pinned {
            return;
        }
        d.pinned = pinned;
        let cold = d.cold;
        if pinned {
            self.unlink(id.index);
        } else if cold {
            self.link_oldest(id.index);
        } else {
            self.link_newest(id.index);
        }
    }

    /// Makes a preloaded entry one like any other, which somebody waits for if `pinned`.
    pub fn demote(&mut self, id: DestId, pinned: bool) {
        if self.get(id).is_none_or(|d| d.origin != Origin::Preloaded) {
            return;
        }
        if self.learned >= self.capacity {
            self.evict();
        }
        self.learned += 1;
        let Some(d) = self.get_mut(id) else { return };
        (d.origin, d.pinned) = (Origin::Learned, pinned);
        if !pinned {
            self.link_newest(id.index);
        }
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (DestId, &Dest)> {
        self.dests
            .iter()
            .enumerate()
            .filter(|(_, d)| !matches!(d.key, Key::Short(0, ..)))
            .map(|(i, d)| (DestId { index: i as u32, generation: d.generation }, d))
    }

    /// All entries, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Dest> {
        self.dests.iter_mut().filter(|d| !matches!(d.key, Key::Short(0, ..)))
    }

    fn unlink(&mut self, i: u32) {
        let (newer, older) = (self.dests[i as usize].newer, self.dests[i as usize].older);
        match newer {
            NONE => self.newest = older,
            n => self.dests[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.dests[o as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, i: u32) {
        let next = self.newest;
        (self.dests[i as usize].newer, self.dests[i as usize].older) = (NONE, next);
        match next {
            NONE => self.oldest = i,
            n => self.dests[n as usize].newer = i,
        }
        self.newest = i;
    }

    fn link_oldest(&mut self, i: u32) {
        let next = self.oldest;
        (self.dests[i as usize].newer, self.dests[i as usize].older) = (next, NONE);
        match next {
            NONE => self.newest = i,
            n => self.dests[n as usize].older = i,
        }
        self.oldest = i;
    }
}

#[cfg(any(test, fuzzing))]
#[path = "cache_check.rs"]
mod check;

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
