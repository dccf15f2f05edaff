//! Storage of a shard's records: bytes under ordered keys, changed in whole batches. The trait
//! [`Records`] does not know users or formats.
//!
//! Two implementations: sled (`disk.rs`), and the maps in memory here for tests and for shards that
//! end with their process. One test suite runs against both.

use domain::fault::{Fault, Result, StopName};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Called with each key and value in key order; returns whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;
/// Called with each key and the value that a batch replaced or removed.
pub type Replaced<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

pub trait Records: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits every record whose key begins with the prefix, in key order. The visitor may read
    /// other records.
    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()>;

    /// The first key greater than `key`.
    fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Applies a batch. Invariant: after a crash either all of a batch is there or nothing.
    fn write_batch(&self, changes: &Changes) -> Result<()>;

    /// Applies a batch record by record; several threads may do so at a time. A crash leaves a part
    /// of the batch. Cheaper than `write_batch`, and holds up nobody, for records that are written
    /// again after a crash.
    fn write_each(&self, changes: &Changes, replaced: Replaced<'_>) -> Result<()>;

    /// Returns when everything applied would survive a loss of power.
    fn flush(&self) -> Result<()>;

    fn bytes(&self) -> u64;

    /// Lets the next start set the records aside. Those in memory end with the process.
    fn note_damage(&self, _why: &str) {}

    /// Writes the live records anew, so that the disk holds no bytes of removed ones. Reads and
    /// batches go on meanwhile. After an error, or if `goes_on` returns false, the store is as
    /// before.
    fn rewrite(&self, _goes_on: &dyn Fn() -> bool) -> Result<Rewritten> {
        Ok(Rewritten::default())
    }
}

/// The result of a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Time for which batches and reads waited at the end.
    pub paused: Duration,
}

/// One batch: the new value of each key, or `None` for a removal. In key order, so that equal
/// batches are equal bytes.
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

    /// Divides the records into parts whose keys, each with its length, take at most so many bytes, or
    /// are one key.
    pub(super) fn parts(&self, bytes_max: usize) -> Vec<Changes> {
        let mut parts: Vec<Changes> = Vec::new();
        let mut left = 0;
        for (key, value) in &self.records {
            let bytes = size_of::<u16>() + key.len();
            if parts.is_empty() || bytes > left {
                parts.push(Changes::default());
                left = bytes_max;
            }
            left = left.saturating_sub(bytes);
            let part = parts.last_mut().expect("the first record begins a part");
            part.records.insert(key.clone(), value.clone());
        }
        parts
    }

    /// Takes the upper half of the keys away.
    pub fn split_off_half(&mut self) -> Changes {
        let middle = self.records.keys().nth(self.records.len() / 2).cloned();
        let upper = middle.map(|middle| self.records.split_off(&middle));
        Changes { records: upper.unwrap_or_default() }
    }
}

/// Records that end with the process. Clones share the same records.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    held: Arc<RwLock<HeldRecords>>,
    after_batch: AfterBatch,
}

/// A call after each applied batch, for tests that interrupt there.
#[derive(Clone, Default)]
pub struct AfterBatch {
    call: Option<Arc<dyn Fn(i32) + Send + Sync>>,
    partition: i32,
}

impl AfterBatch {
    pub fn calls(call: Arc<dyn Fn(i32) + Send + Sync>) -> AfterBatch {
        AfterBatch { call: Some(call), partition: -1 }
    }

    pub fn of(&self, partition: i32) -> AfterBatch {
        AfterBatch { call: self.call.clone(), partition }
    }
}

impl std::fmt::Debug for AfterBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AfterBatch({})", self.partition)
    }
}

#[derive(Clone, Debug, Default)]
struct HeldRecords {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The inverse of each batch since the last flush, the newest last.
    undo: Vec<Changes>,
    /// Batches that are still accepted, if the space is limited.
    batches_left: Option<usize>,
}

/// Number of records that a scan copies at a time. A scan copies, because a visitor that reads
/// other records must not find the lock held.
const SCANNED_AT_ONCE: usize = 64;

impl InMemory {
    pub fn with_call(after_batch: AfterBatch) -> InMemory {
        InMemory { after_batch, ..InMemory::default() }
    }

    /// Returns whether a store holds these records, besides their home and this clone.
    pub fn is_open(&self) -> bool {
        Arc::strong_count(&self.held) > 2
    }

    /// Copies the records as the next process would find them after a crash now that loses up to
    /// `batches_lost` unflushed batches. Holders of the original records go on undisturbed.
    pub fn found_after_crash(&self, batches_lost: usize) -> InMemory {
        let mut held = self.held.read().clone();
        for _ in 0..batches_lost {
            let Some(undo) = held.undo.pop() else { break };
            held.change(&undo);
        }
        held.undo.clear();
        held.batches_left = None;
        InMemory { held: Arc::new(RwLock::new(held)), after_batch: self.after_batch.clone() }
    }

    /// Accepts so many batches more and refuses the next ones, as a full disk does.
    pub fn fill_up_after(&self, batches: usize) {
        self.held.write().batches_left = Some(batches);
    }

    fn some_from(&self, from: Bound<&[u8]>, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.held
            .read()
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
        Ok(self.held.read().records.get(key).cloned())
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
        let held = self.held.read();
        let next = held.records.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        Ok(next.map(|(key, _)| key.clone()))
    }

    fn write_batch(&self, changes: &Changes) -> Result<()> {
        let mut held = self.held.write();
        match &mut held.batches_left {
            Some(0) => return Err(Fault::stop(StopName::StoreUnwritable, "no space is left")),
            Some(batches_left) => *batches_left -= 1,
            None => {}
        }
        let undo = held.change(changes);
        held.undo.push(undo);
        drop(held);
        if let Some(call) = &self.after_batch.call {
            call(self.after_batch.partition);
        }
        Ok(())
    }

    fn write_each(&self, changes: &Changes, replaced: Replaced<'_>) -> Result<()> {
        for (key, value) in &changes.records {
            let old = self.get(key)?;
            self.write_batch(&Changes::of(key.clone(), value.clone()))?;
            old.iter().for_each(|old| replaced(key, old));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.held.write().undo.clear();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let held = self.held.read();
        held.records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

impl HeldRecords {
    /// Applies the changes and returns their inverse.
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
