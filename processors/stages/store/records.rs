//! What a shard's records are kept in: bytes under ordered keys, changed in whole batches. It knows neither users nor formats.
//! `disk.rs` is the real one; the twin here serves tests and shards that die with their process. One suite runs against both.

use crate::fault::Result;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Called with each key and value in key order; says whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

pub trait Records: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Every record whose key begins with the prefix, in key order. The visitor may read other records.
    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()>;

    /// The first key after this one.
    fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Invariant: after a crash either all of a batch is there or none of it.
    fn apply(&self, changes: &Changes) -> Result<()>;

    /// The same, one record after the other, from several threads at a time: a crash leaves as many as had come. Cheaper, for what will be
    /// written again if that happens.
    fn apply_each(&self, changes: &Changes) -> Result<()>;

    /// Returns when everything applied would survive a loss of power.
    fn flush(&self) -> Result<()>;

    fn bytes(&self) -> u64;
}

/// One batch: the new value of each key, or that it is gone. In key order, so that equal batches are equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub records: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Changes {
    pub(super) fn of(key: Vec<u8>, value: Option<Vec<u8>>) -> Changes {
        Changes { records: BTreeMap::from([(key, value)]) }
    }

    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.records.insert(key, Some(value));
    }

    pub fn remove(&mut self, key: Vec<u8>) {
        self.records.insert(key, None);
    }
}

/// Records that end with the process. Clones are the same records.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    held: Arc<RwLock<Held>>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What undoes each batch since the last flush, the newest last.
    undo: Vec<Changes>,
}

/// So many records are copied at a time, because a visitor that reads again must not find the lock held.
const SCANNED_AT_ONCE: usize = 64;

impl InMemory {
    /// What the next process would find if this one died now: without its last batches, as many as that, as far as they are not flushed.
    /// Whoever holds these records goes on with them, and nobody sees it.
    pub fn found_after_crash(&self, batches_lost: usize) -> InMemory {
        let mut held = self.read().clone();
        for _ in 0..batches_lost {
            let Some(undo) = held.undo.pop() else { break };
            held.change(&undo);
        }
        held.undo.clear();
        InMemory { held: Arc::new(RwLock::new(held)) }
    }

    /// A panic elsewhere cannot leave maps of plain bytes half changed.
    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn some_from(&self, from: Bound<&[u8]>, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.read()
            .records
            .range::<[u8], _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(SCANNED_AT_ONCE)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl Records for InMemory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.read().records.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut some = self.some_from(Bound::Included(prefix), prefix);
        loop {
            if !some.iter().all(|(key, value)| visit(key, value)) {
                return Ok(());
            }
            match some.last() {
                Some((last, _)) if some.len() == SCANNED_AT_ONCE => {
                    some = self.some_from(Bound::Excluded(last), prefix)
                }
                _ => return Ok(()),
            }
        }
    }

    fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let held = self.read();
        let next = held.records.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        Ok(next.map(|(key, _)| key.clone()))
    }

    fn apply(&self, changes: &Changes) -> Result<()> {
        let mut held = self.write();
        let undo = held.change(changes);
        held.undo.push(undo);
        Ok(())
    }

    fn apply_each(&self, changes: &Changes) -> Result<()> {
        changes
            .records
            .iter()
            .try_for_each(|(key, value)| self.apply(&Changes::of(key.clone(), value.clone())))
    }

    fn flush(&self) -> Result<()> {
        self.write().undo.clear();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.read().records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

impl Held {
    /// What undoes it.
    fn change(&mut self, changes: &Changes) -> Changes {
        let mut undo = Changes::default();
        for (key, value) in &changes.records {
            let before = match value {
                Some(value) => self.records.insert(key.clone(), value.clone()),
                None => self.records.remove(key),
            };
            undo.records.insert(key.clone(), before);
        }
        undo
    }
}
