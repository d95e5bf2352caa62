//! A map by a keyed hash. What depends on the kind of entry is small, since the compiler makes that anew for each kind; the
//! standard library's map is several times as much code.
//!
//! Entries lie one behind the other, so that going through them is quick, in the order in which they came as long as none
//! is removed: the last one takes the place of one that is.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use crate::keyed::{KeyedHasher, SipKey};
use crate::table::Table;

/// Entries, each key once.
#[derive(Clone)]
pub struct Map<K, V> {
    key: SipKey,
    table: Table,
    list: Vec<(K, V)>,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        // as unpredictable as those of the standard library's maps
        let random = RandomState::new();
        Map { key: SipKey(random.hash_one(0u8), random.hash_one(1u8)), table: Table::new(), list: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash, V> Map<K, V> {
    /// No entries, and no memory taken.
    pub fn new() -> Map<K, V> {
        Map::default()
    }

    fn hash(&self, key: &K) -> u64 {
        let mut hasher = KeyedHasher::new(self.key);
        key.hash(&mut hasher);
        hasher.finish()
    }

    fn place(&self, key: &K) -> Option<usize> {
        self.table.look_up(self.hash(key), &mut |i| self.list[i as usize].0 == *key).map(|i| i as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there may be before the list grows.
    pub fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// The entry of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).map(|at| &self.list[at].1)
    }

    /// The entry of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).map(|at| &mut self.list[at].1)
    }

    /// Whether there is an entry of a key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_some()
    }

    /// The entry of a key, made first if it is not there.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = match self.place(&key) {
            Some(at) => at,
            None => {
                self.table.insert(self.hash(&key), self.list.len() as u32);
                self.list.push((key, make()));
                self.list.len() - 1
            }
        };
        &mut self.list[at].1
    }

    /// The entry of a key, the usual one if it is not there.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Sets the entry of a key; what it was.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(at) = self.place(&key) {
            return Some(std::mem::replace(&mut self.list[at].1, value));
        }
        self.get_or_insert_with(key, || value);
        None
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.table.take(self.hash(key), &mut |i| self.list[i as usize].0 == *key)? as usize;
        let (_, value) = self.list.swap_remove(at);
        if let Some((moved, _)) = self.list.get(at) {
            let (hash, old) = (self.hash(moved), self.list.len() as u32);
            self.table.take(hash, &mut |i| i == old);
            self.table.insert(hash, at as u32);
        }
        Some(value)
    }

    /// Keeps those that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let before = self.list.len();
        self.list.retain_mut(|(k, v)| keep(k, v));
        if self.list.len() != before {
            self.index();
        }
    }

    /// Numbers all entries anew.
    fn index(&mut self) {
        self.table.clear();
        for i in 0..self.list.len() {
            self.table.insert(self.hash(&self.list[i].0), i as u32);
        }
    }

    /// Forgets all of them, keeping the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.list.clear();
    }

    /// Gives back memory beyond that for so many.
    pub fn shrink_to(&mut self, capacity: usize) {
        if self.list.capacity() > capacity.max(self.list.len()) {
            self.list.shrink_to(capacity);
            self.table = Table::new();
            self.index();
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + Clone {
        self.list.iter().map(|(k, v)| (k, v))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.list.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> + Clone {
        self.list.iter().map(|(k, _)| k)
    }

    /// All of them, without their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.list.iter().map(|(_, v)| v)
    }

    /// All of them, without their keys, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.list.iter_mut().map(|(_, v)| v)
    }

    /// Takes those out that `is` wants.
    pub fn extract(&mut self, mut is: impl FnMut(&K, &V) -> bool) -> Vec<V> {
        let keys: Vec<K> = self.iter().filter(|(k, v)| is(k, v)).map(|(k, _)| *k).collect();
        keys.iter().filter_map(|k| self.remove(k)).collect()
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + '_ {
        self.table.clear();
        self.list.drain(..)
    }
}

impl<K, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::keyed::Rng;

    #[test]
    fn behaves_like_the_standard_librarys() {
        let mut rng = Rng::new(SipKey(7, 8));
        let (mut map, mut model) = (Map::new(), HashMap::new());
        for step in 0..50_000u64 {
            let key = (rng.below(300) as u32, [rng.below(2) as u8; 16]);
            match rng.below(8) {
                0..3 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                3 => *map.or_default(key) += 1,
                4..7 => assert_eq!(map.remove(&key), model.remove(&key)),
                _ => assert_eq!(map.get(&key), model.get(&key)),
            }
            if let Some(value) = map.get(&key) {
                model.insert(key, *value);
            }
            assert_eq!((map.len(), map.contains_key(&key)), (model.len(), model.contains_key(&key)));
            if step % 5000 == 4999 {
                map.retain(|k, v| k.0 % 3 != 0 && *v % 2 == 0);
                model.retain(|k, v| k.0 % 3 != 0 && *v % 2 == 0);
            }
            if step % 500 == 0 {
                assert!(map.iter().all(|(k, v)| model.get(k) == Some(v)));
                map.shrink_to(0);
                assert!(model.iter().all(|(k, v)| map.get(k) == Some(v)));
            }
        }
        let odd = map.extract(|_, v| v % 2 == 1);
        assert!(odd.iter().all(|v| v % 2 == 1) && map.values().all(|v| v % 2 == 0));
        model.retain(|_, v| *v % 2 == 0);
        assert_eq!(map.drain().count(), model.len());
        assert!(map.is_empty() && model.keys().all(|k| map.get(k).is_none()));
    }

    #[test]
    fn memory_goes_back() {
        let mut map: Map<u64, [u64; 4]> = Map::new();
        assert_eq!(map.capacity(), 0);
        for n in 0..10_000 {
            map.insert(n, [n; 4]);
        }
        map.retain(|n, _| *n < 3);
        map.shrink_to(8);
        assert!((3..=8).contains(&map.capacity()), "{}", map.capacity());
        assert_eq!(map.values().map(|v| v[3]).sum::<u64>(), 3);
    }
}
