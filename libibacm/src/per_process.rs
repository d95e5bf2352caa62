//! Values of which every process of a family has its own. Whoever finds one waits for nobody: a thread that was making
//! one when its process was forked is not in the child, and nothing that it held is released there.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread;
use std::time::Duration;

use crate::process;

/// Values that the processes forked from one can have. More than one is needed only if a fork comes upon a value just
/// as it is put here, which is a moment in the life of a process.
const PLACES: usize = 4;
/// How long a thread of the same process may take to put a value here that it has already.
const PATIENCE: u32 = 1000;
/// How often a lock is tried that others hold for a moment each, or nobody here ever releases.
const GLANCES: u32 = 200;

/// A value of which a forked process has another one than its parent.
pub struct PerProcess<T> {
    places: [Place<T>; PLACES],
}

struct Place<T> {
    /// The process that fills this place; 0 if none. In another process than that, a place that is not filled never
    /// will be.
    taker: AtomicU64,
    entry: OnceLock<Box<Entry<T>>>,
}

struct Entry<T> {
    process: u64,
    value: T,
    forked: PerProcess<T>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T> PerProcess<T> {
    /// Nobody's value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess { places: [const { Place { taker: AtomicU64::new(0), entry: OnceLock::new() } }; PLACES] }
    }

    /// The value of this process. If there is none it is made, knowing that of the process it was forked from; other
    /// threads of this process may make one too, of which one is kept.
    pub fn get(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        let process = process::id();
        let (mut level, mut parent) = (self, None);
        while let Some(entry) = level.places.iter().find_map(|p| p.entry.get()) {
            if entry.process == process {
                return &entry.value;
            }
            (level, parent) = (&entry.forked, Some(&entry.value));
        }
        level.put(process, make(parent))
    }

    fn put(&self, process: u64, value: T) -> &T {
        let entry = Box::new(Entry { process, value, forked: PerProcess::new() });
        for place in &self.places {
            match place.taker.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire) {
                // Nobody else is in there, so that this waits for nobody.
                Ok(_) => return &place.entry.get_or_init(move || entry).value,
                Err(other) if other == process => {
                    if let Some(others) = place.wait() {
                        return &others.value;
                    }
                }
                Err(_) => {}
            }
        }
        // One fork after another has come upon that moment.
        &Box::leak(entry).value
    }
}

impl<T> Place<T> {
    /// What another thread of this process is about to put here.
    fn wait(&self) -> Option<&Entry<T>> {
        for _ in 0..PATIENCE {
            if let Some(entry) = self.entry.get() {
                return Some(entry);
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

/// A parent's lock, unless it is held by a thread that is not here. Other threads of this process may just be looking at
/// what is in there too.
pub fn inherited<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..GLANCES {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(e)) => return Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_micros(100)),
        }
    }
    None
}

impl<T> Drop for Place<T> {
    /// A value of another process is left as it is: a thread that is not here may have been changing it.
    fn drop(&mut self) {
        let others = self.entry.take().filter(|e| e.process != process::id());
        if let Some(mut others) = others {
            drop(mem::take(&mut others.forked));
            mem::forget(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_share_one_value() {
        let shared = PerProcess::new();
        let value = |n| shared.get(|parent: Option<&u32>| parent.copied().unwrap_or(n)) as *const u32 as usize;
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|n| scope.spawn(move || value(n))).collect();
            let found: Vec<usize> = all.into_iter().filter_map(|t| t.join().ok()).collect();
            assert_eq!(found, vec![value(9); 8]);
        });
    }

    #[test]
    fn a_place_that_another_process_was_filling_is_left_alone() {
        let shared = PerProcess::new();
        // As if forked there.
        let other = process::id() + 1000;
        shared.places[0].taker.store(other, Ordering::Relaxed);
        assert_eq!(*shared.get(|parent| parent.copied().unwrap_or(5)), 5);
        assert_eq!(*shared.get(|_| 6), 5);
        // All of them.
        let shared = PerProcess::new();
        shared.places.iter().for_each(|p| p.taker.store(other, Ordering::Relaxed));
        assert_eq!((*shared.get(|_| 7), *shared.get(|_| 8)), (7, 8));
    }

    #[test]
    fn a_lock_of_the_parent_is_not_waited_for() {
        let lock = Mutex::new(5);
        assert_eq!(inherited(&lock).as_deref(), Some(&5));
        let _held = lock.lock();
        assert!(inherited(&lock).is_none());
    }

    #[test]
    fn a_child_knows_the_value_of_its_parent_and_does_not_touch_it() {
        let value = Arc::new(());
        let shared = PerProcess::new();
        let entry = Entry { process: process::id() + 1000, value: value.clone(), forked: PerProcess::new() };
        assert!(shared.places[0].entry.set(Box::new(entry)).is_ok());
        let own = Arc::new(());
        let found = shared.get(|parent| {
            assert!(parent.is_some_and(|p| Arc::ptr_eq(p, &value)));
            own.clone()
        });
        assert!(Arc::ptr_eq(found, &own));
        drop(shared);
        assert_eq!((Arc::strong_count(&value), Arc::strong_count(&own)), (2, 1));
    }
}
