//! What a shard's records are kept in: bytes under ordered keys, changed in whole batches. It knows neither users nor formats.
//! `disk.rs` is the real one; the twin here serves tests and shards that die with their process. One suite runs against both.

use crate::fault::Result;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

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
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.records.insert(key, Some(value));
    }

    pub fn remove(&mut self, key: Vec<u8>) {
        self.records.insert(key, None);
    }
}

/// Records that end with the process.
#[derive(Default)]
pub struct InMemory {
    records: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// So many records are copied at a time, because a visitor that reads again must not find the lock held.
const SCANNED_AT_ONCE: usize = 64;

impl InMemory {
    /// A panic elsewhere cannot leave a map of plain bytes half changed.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn some_from(&self, from: Bound<&[u8]>, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.read()
            .range::<[u8], _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(SCANNED_AT_ONCE)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl Records for InMemory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.read().get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut some = self.some_from(Bound::Included(prefix), prefix);
        loop {
            if !some.iter().all(|(key, value)| visit(key, value)) {
                return Ok(());
            }
            match some.last() {
                Some((last, _)) if some.len() == SCANNED_AT_ONCE => some = self.some_from(Bound::Excluded(last), prefix),
                _ => return Ok(()),
            }
        }
    }

    fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let records = self.read();
        let next = records.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        Ok(next.map(|(key, _)| key.clone()))
    }

    fn apply(&self, changes: &Changes) -> Result<()> {
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &changes.records {
            match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.read().iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}
