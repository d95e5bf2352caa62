//! An open-addressing table from hashes to indices of somebody else's list: 8 bytes a place, no key stored, so the
//! caller compares. The hash must be keyed where outsiders choose the keys.

const EMPTY: u64 = u64::MAX;

/// The table. An index is at most `u32::MAX - 1`.
#[derive(Clone, Default)]
pub struct Table {
    /// Hash tag in the upper half, index in the lower; [`EMPTY`] where nobody lives.
    places: Vec<u64>,
    len: usize,
}

impl Table {
    /// An empty table, no memory taken.
    pub fn new() -> Table {
        Table::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
        self.len = 0;
    }

    #[inline(always)]
    fn tag(hash: u64) -> u64 {
        // the all-ones tag with the all-ones index would read as empty; the tag is cut to 31 bits
        (hash >> 33) << 32
    }

    #[inline(always)]
    fn home(&self, tag: u64) -> usize {
        (tag >> 32) as usize & (self.places.len() - 1)
    }

    /// The index stored under `hash` that `is` accepts.
    #[inline(always)]
    pub fn find(&self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.place(hash, is).map(|p| self.places[p] as u32)
    }

    /// [`Table::find`] where size matters more than time.
    #[inline(never)]
    pub fn look_up(&self, hash: u64, is: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.find(hash, is)
    }

    /// [`Table::remove`] where size matters more than time.
    #[inline(never)]
    pub fn take(&mut self, hash: u64, is: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.remove(hash, is)
    }

    #[inline(always)]
    fn place(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let tag = Self::tag(hash);
        let mut at = self.home(tag);
        // a free place always exists: at most 3/4 are taken
        while self.places[at] != EMPTY {
            if self.places[at] & !0xffff_ffff == tag && is(self.places[at] as u32) {
                return Some(at);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        None
    }

    /// Adds an index under `hash`; the caller has made sure that it is not there.
    pub fn insert(&mut self, hash: u64, index: u32) {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            let size = (self.places.len() * 2).max(8);
            let old = std::mem::replace(&mut self.places, vec![EMPTY; size]);
            for p in old.into_iter().filter(|p| *p != EMPTY) {
                self.settle(p);
            }
        }
        self.settle(Self::tag(hash) | u64::from(index));
        self.len += 1;
    }

    fn settle(&mut self, p: u64) {
        let mut at = self.home(p);
        while self.places[at] != EMPTY {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = p;
    }

    /// Takes out the index stored under `hash` that `is` accepts.
    pub fn remove(&mut self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut hole = self.place(hash, is)?;
        let index = self.places[hole] as u32;
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let p = self.places[at];
            if p == EMPTY {
                break;
            }
            // whoever would be found no more with the hole before him moves into it
            let home = self.home(p);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = p;
                hole = at;
            }
        }
        self.places[hole] = EMPTY;
        self.len -= 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::{Rng, SipKey};
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_map_through_collisions() {
        let mut rng = Rng::new(SipKey(5, 6));
        let mut table = Table::new();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for step in 0..20_000u32 {
            let i = rng.below(500) as u32;
            // 16 different hashes in all: long runs, wrapping round the end
            let hash = SipKey(1, 1).hash(0, &[(i % 16) as u8]) | 0xf000_0000_0000_0000;
            if model.remove(&i).is_some() {
                assert_eq!(table.remove(hash, |j| j == i), Some(i), "step {step}");
            } else {
                assert_eq!(table.remove(hash, |j| j == i), None);
                table.insert(hash, i);
                model.insert(i, hash);
            }
            assert_eq!(table.len(), model.len());
            if step % 100 == 0 {
                for (i, h) in &model {
                    assert_eq!(table.find(*h, |j| j == *i), Some(*i));
                }
            }
        }
        table.clear();
        assert!(table.is_empty());
        assert_eq!(table.find(0, |_| true), None);
    }
}
