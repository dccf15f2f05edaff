//! What each turn of those who spoke last reads again, decoded: the last turns of the session, what the gate knows, what was denied. To read
//! and decode it costs as much as to score the turn. Derived from the records and bounded; it decides nothing.

use super::format::Gate;
use super::keys;
use super::reading::{SlotHolder, Tail};
use foldhash::fast::RandomState;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Known {
    /// By ring.
    pub tails: Lately<Tail>,
    /// By record.
    pub gates: Lately<Gate>,
    /// By what all of a user's slots have in common.
    pub slots: Lately<Slots>,
}

/// A user's slots whose names begin so: the first ones in the order of their names.
pub struct Slots {
    pub beginning: Box<str>,
    pub limit: usize,
    pub found: Arc<Vec<(String, SlotHolder)>>,
}

impl Slots {
    pub fn answer(&self, beginning: &str, limit: usize) -> Option<Arc<Vec<(String, SlotHolder)>>> {
        (*self.beginning == *beginning && self.limit == limit).then(|| self.found.clone())
    }
}

impl Known {
    /// As much of each sort.
    pub fn new(count_max: usize) -> Known {
        Known {
            tails: Lately::new(count_max),
            gates: Lately::new(count_max),
            slots: Lately::new(count_max),
        }
    }

    /// These records are no longer what they were. Tails are replaced by whoever changes them.
    pub fn forget<'k>(&self, changed: impl Iterator<Item = &'k [u8]>) {
        for record in changed {
            if keys::is_gate(record) {
                self.gates.forget(record);
            } else if let Some((of_user, name)) = keys::slot_of(record) {
                self.slots.forget_if(of_user, |slots| name.starts_with(slots.beginning.as_bytes()));
            }
        }
    }
}

/// What was put or asked for last.
pub struct Lately<V> {
    known: Mutex<LruCache<Vec<u8>, Arc<V>, RandomState>>,
}

/// As many as are put.
impl<V> Default for Lately<V> {
    fn default() -> Lately<V> {
        Lately { known: Mutex::new(LruCache::unbounded_with_hasher(RandomState::default())) }
    }
}

impl<V> Lately<V> {
    fn new(count_max: usize) -> Lately<V> {
        let count_max = NonZeroUsize::new(count_max).unwrap_or(NonZeroUsize::MIN);
        Lately { known: Mutex::new(LruCache::with_hasher(count_max, RandomState::default())) }
    }

    pub fn get(&self, key: &[u8]) -> Option<Arc<V>> {
        self.lock().get(key).cloned()
    }

    pub fn put(&self, key: Vec<u8>, value: Arc<V>) {
        self.lock().put(key, value);
    }

    pub fn put_all(&self, all: impl IntoIterator<Item = (Vec<u8>, Arc<V>)>) {
        let mut known = self.lock();
        all.into_iter().for_each(|(key, value)| drop(known.put(key, value)));
    }

    /// The known keys that begin so.
    pub fn under(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        self.lock()
            .iter()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect()
    }

    pub fn forget(&self, key: &[u8]) {
        self.lock().pop(key);
    }

    fn forget_if(&self, key: &[u8], is_meant: impl Fn(&V) -> bool) {
        let mut known = self.lock();
        if known.peek(key).is_some_and(|value| is_meant(value)) {
            known.pop(key);
        }
    }

    /// A panic elsewhere leaves whole entries: each is replaced at once.
    fn lock(&self) -> MutexGuard<'_, LruCache<Vec<u8>, Arc<V>, RandomState>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
