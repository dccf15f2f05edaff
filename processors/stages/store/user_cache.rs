//! Cache of the decoded per-user records that every turn reads: the context window of the session,
//! the gate state and the slots. To read and decode these records costs as much as to score the
//! turn. Derived from the records and bounded by the number of entries; no decision is made here.
//!
//! Invariant: an entry equals the committed record. `Store::apply` drops the entries of changed
//! records (`forget`) and puts the decoded values that the batch computed.

use super::format::GateState;
use super::keys;
use super::reading::{ContextWindow, SlotHolder};
use foldhash::fast::RandomState;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub struct UserCache {
    /// By the ring of the session's turns.
    pub windows: RecordCache<ContextWindow>,
    /// By the key of the gate record.
    pub gates: RecordCache<GateState>,
    /// By the common prefix of a user's slots: the last answer for that user.
    pub slots: RecordCache<SlotsAnswer>,
}

/// The first slots of a user whose names begin with `beginning`, in the order of their names.
pub struct SlotsAnswer {
    pub beginning: Box<str>,
    pub limit: usize,
    pub found: Arc<Vec<(String, SlotHolder)>>,
}

impl SlotsAnswer {
    /// Returns the slots if this answers the same query.
    pub fn for_query(
        &self,
        beginning: &str,
        limit: usize,
    ) -> Option<Arc<Vec<(String, SlotHolder)>>> {
        (*self.beginning == *beginning && self.limit == limit).then(|| self.found.clone())
    }
}

impl UserCache {
    /// Creates the caches, each with up to `count_max` entries.
    pub fn new(count_max: usize) -> UserCache {
        UserCache {
            windows: RecordCache::new(count_max),
            gates: RecordCache::new(count_max),
            slots: RecordCache::new(count_max),
        }
    }

    /// Drops the entries of changed records. Context windows stay: a batch that changes a window
    /// puts the new one.
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

/// Least-recently-used cache of decoded records, by key.
pub struct RecordCache<V> {
    entries: Mutex<LruCache<Vec<u8>, Arc<V>, RandomState>>,
}

/// Without a bound: for the one batch of an overlay.
impl<V> Default for RecordCache<V> {
    fn default() -> RecordCache<V> {
        let entries = LruCache::unbounded_with_hasher(RandomState::default());
        RecordCache { entries: Mutex::new(entries) }
    }
}

impl<V> RecordCache<V> {
    fn new(count_max: usize) -> RecordCache<V> {
        let count_max = NonZeroUsize::new(count_max).unwrap_or(NonZeroUsize::MIN);
        let entries = LruCache::with_hasher(count_max, RandomState::default());
        RecordCache { entries: Mutex::new(entries) }
    }

    pub fn get(&self, key: &[u8]) -> Option<Arc<V>> {
        self.entries.lock().get(key).cloned()
    }

    pub fn put(&self, key: Vec<u8>, value: Arc<V>) {
        self.entries.lock().put(key, value);
    }

    pub fn put_all(&self, all: impl IntoIterator<Item = (Vec<u8>, Arc<V>)>) {
        let mut entries = self.entries.lock();
        all.into_iter().for_each(|(key, value)| drop(entries.put(key, value)));
    }

    /// The cached keys with this prefix.
    pub fn keys_under(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        self.entries
            .lock()
            .iter()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect()
    }

    pub fn forget(&self, key: &[u8]) {
        self.entries.lock().pop(key);
    }

    fn forget_if(&self, key: &[u8], is_changed: impl Fn(&V) -> bool) {
        let mut entries = self.entries.lock();
        if entries.peek(key).is_some_and(|value| is_changed(value)) {
            entries.pop(key);
        }
    }
}
