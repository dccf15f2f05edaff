//! UserCache of the decoded per-user records that every turn reads: context windows, gate states
//! and slots. To read and decode them costs as much as to score the turn. Each cache is bounded.
//!
//! Invariant: a cached record is the stored one. A reader that read before a batch was applied must
//! not put its record into the cache afterwards; it notices by the number of batches (`epoch`).

use super::keys;
use domain::fault::Result;
use foldhash::fast::RandomState;
use kernel::reads::{ContextWindow, GateState, SlotHolder};
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct UserCache {
    /// By the key of the ring.
    pub windows: RecordCache<ContextWindow>,
    /// By the key of the record.
    pub gates: RecordCache<GateState>,
    /// By the prefix of all slots of a user.
    pub slots: RecordCache<SlotsAnswer>,
}

/// The first `limit` slots of a user whose names begin with `beginning`.
pub struct SlotsAnswer {
    pub beginning: Box<str>,
    pub limit: usize,
    pub found: Arc<Vec<(String, SlotHolder)>>,
}

impl SlotsAnswer {
    pub fn answer(&self, beginning: &str, limit: usize) -> Option<Arc<Vec<(String, SlotHolder)>>> {
        (*self.beginning == *beginning && self.limit == limit).then(|| self.found.clone())
    }
}

impl UserCache {
    /// Each cache holds at most `count_max` records.
    pub fn new(count_max: usize) -> UserCache {
        UserCache {
            windows: RecordCache::new(count_max),
            gates: RecordCache::new(count_max),
            slots: RecordCache::new(count_max),
        }
    }

    /// Replaces the records that a batch has changed.
    pub fn note_batch<'k>(
        &self,
        changed: impl Iterator<Item = &'k [u8]>,
        windows: Vec<(Vec<u8>, Arc<ContextWindow>)>,
        gates: Vec<(Vec<u8>, Arc<GateState>)>,
    ) {
        self.slots.end_epoch();
        self.gates.end_epoch();
        self.windows.end_epoch();
        for record in changed {
            if keys::is_gate(record) {
                self.gates.remove(record);
            } else if let Some(ring) = keys::ring_of(record) {
                self.windows.remove(ring);
            } else if let Some((of_user, name)) = keys::slot_of(record) {
                self.slots.remove_if(of_user, |slots| name.starts_with(slots.beginning.as_bytes()));
            }
        }
        self.windows.put_all(windows);
        self.gates.put_all(gates);
    }
}

pub struct RecordCache<V> {
    entries: Mutex<LruCache<Vec<u8>, Arc<V>, RandomState>>,
    /// Number of batches applied.
    epoch: AtomicU64,
}

impl<V> RecordCache<V> {
    fn new(count_max: usize) -> RecordCache<V> {
        let count_max = NonZeroUsize::new(count_max).unwrap_or(NonZeroUsize::MIN);
        let entries = Mutex::new(LruCache::with_hasher(count_max, RandomState::default()));
        RecordCache { entries, epoch: AtomicU64::new(0) }
    }

    pub fn get(&self, key: &[u8]) -> Option<Arc<V>> {
        self.entries.lock().get(key).cloned()
    }

    pub fn get_or_read(
        &self,
        key: Vec<u8>,
        read: impl FnOnce(&[u8]) -> Result<V>,
    ) -> Result<Arc<V>> {
        match self.get(&key) {
            Some(found) => Ok(found),
            None => self.read(key.clone(), || read(&key)),
        }
    }

    /// Reads and caches a record, unless a batch was applied meanwhile.
    pub fn read(&self, key: Vec<u8>, read: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let value = Arc::new(read()?);
        let mut entries = self.entries.lock();
        if self.epoch.load(Ordering::Acquire) == epoch {
            entries.put(key, value.clone());
        }
        Ok(value)
    }

    fn put_all(&self, all: Vec<(Vec<u8>, Arc<V>)>) {
        let mut entries = self.entries.lock();
        for (key, value) in all {
            entries.put(key, value);
        }
    }

    /// Order matters: before the changed records leave the cache, so that no reader of the old ones
    /// puts them back.
    fn end_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self, key: &[u8]) {
        self.entries.lock().pop(key);
    }

    fn remove_if(&self, key: &[u8], is_meant: impl Fn(&V) -> bool) {
        let mut entries = self.entries.lock();
        if entries.peek(key).is_some_and(|value| is_meant(value)) {
            entries.pop(key);
        }
    }
}
