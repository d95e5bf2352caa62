//! Book-keeping of a datagram endpoint, free of devices: which send slots are in flight, which
//! address handles are cached, how deep the queues may be.

// The parent's allowance isn't for here.
#![deny(unsafe_code)]

use super::Av;
use crate::map::Map;

/// Queue depths that the device can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depths {
    /// Receives.
    pub recv: u32,
    /// Sends.
    pub send: u32,
}

impl Depths {
    /// Most receives or sends that are taken on, whatever the device offers.
    pub const MAX: u32 = 16_384;

    /// The wanted depths, at least 1 each, cut to what the device takes: `max_qp_wr` in one queue,
    /// `max_cqe` completions in all. Sends give way no further than half of the completions.
    pub fn clamped(recv: u32, send: u32, max_qp_wr: u32, max_cqe: u32) -> Depths {
        let queue = max_qp_wr.clamp(1, Depths::MAX);
        let send = send.min(queue).min(max_cqe / 2).max(1);
        let recv = recv.min(queue).min(max_cqe.saturating_sub(send)).max(1);
        Depths { recv, send }
    }

    /// Half of the receives, for a device or a memory limit that refused; none below 32.
    pub fn smaller(self) -> Option<Depths> {
        (self.recv > 32).then_some(Depths { recv: self.recv / 2, ..self })
    }
}

/// Send slots, each free or in flight with what it needs to be given back.
#[derive(Debug)]
pub struct Slots<T> {
    free: Vec<u32>,
    in_flight: Vec<Option<T>>,
}

impl<T> Slots<T> {
    /// `count` free slots.
    pub fn new(count: u32) -> Slots<T> {
        Slots { free: (0..count).rev().collect(), in_flight: (0..count).map(|_| None).collect() }
    }

    /// A free slot, none if all are in flight. It stays free until [`Slots::start`].
    pub fn next_free(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the slot that [`Slots::next_free`] named.
    pub fn start(&mut self, load: T) {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.in_flight.get_mut(slot as usize)
        {
            *place = Some(load);
        }
    }

    /// Gives a slot back; none if it isn't in flight (then nothing changes).
    pub fn finish(&mut self, slot: u64) -> Option<T> {
        let index = u32::try_from(slot).ok()?;
        let load = self.in_flight.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(load)
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }
}

/// An entry of the cache that [`HandleCache::take`] chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleId(usize);

#[derive(Debug)]
struct Entry<T> {
    to: Av,
    handle: T,
    /// Unfinished sends that use the handle.
    users: u32,
    last_use: u64,
    /// Not to be found any more, goes with its last user.
    retired: bool,
}

/// A bounded cache of address handles; the one that was not used for longest makes room.
///
/// A handle with unfinished sends is never dropped.
#[derive(Debug)]
pub struct HandleCache<T> {
    entries: Vec<Option<Entry<T>>>,
    // Keyed with a secret of its own: who asks us chooses the addresses.
    by_address: Map<Av, usize>,
    capacity: usize,
    uses: u64,
}

impl<T> HandleCache<T> {
    /// An empty cache for `capacity` handles.
    pub fn new(capacity: usize) -> HandleCache<T> {
        HandleCache { entries: Vec::new(), by_address: Map::new(), capacity, uses: 0 }
    }

    /// The handle for `to`, made with `make` if it isn't there, and counted as in use.
    ///
    /// None if there is no room: all handles have unfinished sends.
    pub fn take<E>(&mut self, to: &Av, make: impl FnOnce() -> Result<T, E>) -> Result<Option<HandleId>, E> {
        self.uses += 1;
        if let Some(&index) = self.by_address.get(to)
            && let Some(Some(entry)) = self.entries.get_mut(index)
        {
            entry.users += 1;
            entry.last_use = self.uses;
            return Ok(Some(HandleId(index)));
        }
        let Some(index) = self.room() else { return Ok(None) };
        let handle = make()?;
        if let Some(old) = self.entries[index].take() {
            self.by_address.remove(&old.to);
        }
        self.entries[index] = Some(Entry { to: *to, handle, users: 1, last_use: self.uses, retired: false });
        self.by_address.insert(*to, index);
        Ok(Some(HandleId(index)))
    }

    /// An empty place, a new one, or that of the unused handle with the oldest use.
    fn room(&mut self) -> Option<usize> {
        if let Some(empty) = self.entries.iter().position(Option::is_none) {
            return Some(empty);
        }
        if self.entries.len() < self.capacity {
            self.entries.push(None);
            return Some(self.entries.len() - 1);
        }
        let unused = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let entry = entry.as_ref().filter(|e| e.users == 0)?;
            Some((entry.last_use, index))
        });
        unused.min().map(|(_, index)| index)
    }

    /// The handle of an entry in use.
    pub fn get(&self, id: HandleId) -> Option<&T> {
        self.entries.get(id.0)?.as_ref().map(|entry| &entry.handle)
    }

    /// One use has ended.
    pub fn release(&mut self, id: HandleId) {
        let Some(place) = self.entries.get_mut(id.0) else { return };
        let Some(entry) = place else { return };
        entry.users = entry.users.saturating_sub(1);
        if entry.users == 0 && entry.retired {
            *place = None;
        }
    }

    /// Forgets every handle: unused ones are dropped now, the others after their last use.
    pub fn clear(&mut self) {
        self.by_address.clear();
        for place in &mut self.entries {
            match place {
                Some(entry) if entry.users > 0 => entry.retired = true,
                _ => *place = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    fn to(dlid: u16) -> Av {
        Av { dlid, ..Av::default() }
    }

    fn take(cache: &mut HandleCache<u16>, dlid: u16) -> Option<HandleId> {
        cache.take::<Infallible>(&to(dlid), || Ok(dlid)).expect("make can't fail")
    }

    #[test]
    fn depths_follow_the_device() {
        let roomy = Depths::clamped(1024, 64, 32_768, 4_194_303);
        assert_eq!(roomy, Depths { recv: 1024, send: 64 });
        assert_eq!(Depths::clamped(1024, 64, 100, 1 << 20), Depths { recv: 100, send: 64 });
        assert_eq!(Depths::clamped(1024, 64, 4096, 512), Depths { recv: 448, send: 64 });
        assert_eq!(Depths::clamped(1024, 600, 4096, 512), Depths { recv: 256, send: 256 });
        assert_eq!(Depths::clamped(0, 0, 0, 0), Depths { recv: 1, send: 1 });
        let most = Depths::clamped(u32::MAX, u32::MAX, u32::MAX, u32::MAX);
        assert_eq!(most, Depths { recv: Depths::MAX, send: Depths::MAX });
        assert_eq!(Depths { recv: 64, send: 5 }.smaller(), Some(Depths { recv: 32, send: 5 }));
        assert_eq!(Depths { recv: 32, send: 5 }.smaller(), None);
    }

    #[test]
    fn slots_come_back_once() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.next_free(), Some(0));
        slots.start('a');
        assert_eq!(slots.next_free(), Some(1));
        slots.start('b');
        assert_eq!((slots.next_free(), slots.free()), (None, 0));
        slots.start('c');
        assert_eq!(slots.finish(0), Some('a'));
        assert_eq!(slots.finish(0), None);
        assert_eq!(slots.finish(2), None);
        assert_eq!(slots.finish(u64::MAX), None);
        assert_eq!((slots.next_free(), slots.free()), (Some(0), 1));
        assert_eq!(slots.finish(1), Some('b'));
        assert_eq!(slots.free(), 2);
    }

    #[test]
    fn a_handle_is_made_once() {
        let mut cache = HandleCache::new(4);
        let first = take(&mut cache, 7);
        let made = Cell::new(false);
        let again = cache.take::<Infallible>(&to(7), || {
            made.set(true);
            Ok(0)
        });
        assert_eq!(again, Ok(first));
        assert!(!made.get());
        assert_eq!(first.and_then(|id| cache.get(id)), Some(&7));
    }

    #[test]
    fn the_oldest_unused_handle_makes_room() {
        let mut cache = HandleCache::new(3);
        let ids: Vec<_> = (1..=3).filter_map(|dlid| take(&mut cache, dlid)).collect();
        assert_eq!(take(&mut cache, 4), None, "all are in use");
        for id in &ids[1..] {
            cache.release(*id);
        }
        // 2 is used again, so 3 is the oldest unused one; 1 is still in flight.
        let two = take(&mut cache, 2).expect("cached");
        cache.release(two);
        assert_eq!(take(&mut cache, 4), Some(ids[2]));
        assert_eq!(cache.get(ids[0]), Some(&1));
        assert_eq!(cache.get(ids[1]), Some(&2));
        assert_eq!(cache.get(ids[2]), Some(&4));
        assert_eq!(cache.by_address.len(), 3);
    }

    #[test]
    fn a_failed_handle_changes_nothing() {
        let mut cache = HandleCache::new(1);
        let id = take(&mut cache, 1).expect("room");
        cache.release(id);
        assert_eq!(cache.take(&to(2), || Err("refused")), Err("refused"));
        assert_eq!(take(&mut cache, 1), Some(id));
        assert_eq!(cache.get(id), Some(&1));
    }

    #[test]
    fn a_cleared_handle_stays_while_it_is_used() {
        let mut cache = HandleCache::new(2);
        let used = take(&mut cache, 1).expect("room");
        let unused = take(&mut cache, 2).expect("room");
        cache.release(unused);
        cache.clear();
        assert_eq!(cache.get(used), Some(&1));
        assert_eq!(cache.get(unused), None);
        // The same address gets a new handle while the old one is in flight.
        let fresh = take(&mut cache, 1).expect("room");
        assert_ne!(fresh, used);
        cache.release(used);
        assert_eq!(cache.get(used), None);
        assert_eq!(take(&mut cache, 1), Some(fresh));
    }
}
