//! A map for few entries: a list in the order of the keys. It is a tenth of the code of the standard library's map, which
//! the compiler makes anew for each kind of entry. An entry that comes or goes moves those behind it, so this is for what
//! changes seldom: interfaces, what is open at a plug-in.

/// Entries in the order of their keys, each key once.
#[derive(Clone, Debug)]
pub(crate) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Few(Vec::new())
    }
}

impl<K: Ord + Copy, V> Few<K, V> {
    /// The place of a key, or the one that it would have.
    fn place(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by(|e| e.0.cmp(&key))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The entry of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// The entry of a key, to be changed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The entry of a key, made first if it is not there.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = match self.place(key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, make()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Sets the entry of a key; what it was.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Keeps those that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.0.retain_mut(|e| keep(&mut e.1));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(k, v)| (*k, v))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.0.iter_mut().map(|(k, v)| (*k, v))
    }

    /// All of them, without their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|e| &e.1)
    }

    /// All of them, without their keys, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|e| &mut e.1)
    }

    /// Takes all of them out.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|e| e.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_in_order_and_each_key_once() {
        let mut few = Few::default();
        for key in [5, 1, 9, 5, 3] {
            *few.get_or_insert_with(key, || 0) += key;
        }
        assert_eq!(few.iter().collect::<Vec<_>>(), [(1, &1), (3, &3), (5, &10), (9, &9)]);
        assert_eq!((few.get(5), few.get(4)), (Some(&10), None));
        assert_eq!((few.remove(4), few.remove(1)), (None, Some(1)));
        if let Some(nine) = few.get_mut(9) {
            *nine = 2;
        }
        few.retain(|v| *v > 2);
        assert_eq!((few.len(), few.into_values().collect::<Vec<_>>()), (2, vec![3, 10]));
    }
}
