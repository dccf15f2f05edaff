//! Holds the state of one partition: the store and the index, changed together and read together.
//!
//! A batch becomes visible in [`Shard::apply_batch`], in this order:
//!
//! 1. Take `view` for writing, so that no reader sees half of a batch.
//! 2. Apply the records and the checkpoint to the store ([`Store::commit`]).
//! 3. Put and remove search documents and vectors in the index.
//! 4. Publish the new offset in `applied`.
//!
//! The index on disk is flushed later ([`Shard::flush`]). After a crash it may lack the last
//! batches, never hold more than the store; opening the shard indexes the rest.
//!
//! Locks: a lane of ingest, or a replay, takes `view` for writing, recall and compact take it for
//! reading while they collect. Offsets are atomics, so that a reader may check them without a lock.

mod follow;
pub mod open;
mod recent;
pub mod replay;
mod searched;

pub use searched::document;

use crate::checkpoint::Checkpoint;
use crate::index::{Index, IndexOptions, VectorBlocks};
use crate::store::{EncodedBatch, Rewritten, Store, StoreOptions, Upserted};
use domain::fault::Result;
use domain::{Closed, Decision, MemoryId, Position, Time, UserKey, Vector};
use kernel::reads::{Neighbours, Reads, StagedVectors};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use recent::RecentDecisions;
use searched::has_same_words;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct ShardOptions {
    pub store: StoreOptions,
    pub index: IndexOptions,
    /// The vector cache that all shards opened with these options share.
    pub vector_blocks: Arc<VectorBlocks>,
    /// Changelog offsets up to which the changelog is replayed into an open shard.
    pub replay_max: usize,
}

pub struct Shard {
    pub partition: i32,
    pub store: Store,
    pub index: Index,
    /// The epoch of the meta records that this owner of the shard writes.
    pub epoch: u64,
    /// The directory of an earlier store that was unreadable, if nothing was restored or applied
    /// since.
    pub lost_store: Option<PathBuf>,
    /// Readers hold this lock while they collect, so that a recall sees one state. The writer
    /// takes the lock only to apply a batch.
    view: RwLock<()>,
    /// A batch is being applied, or waits for readers.
    is_applying: AtomicBool,
    applied: AtomicI64,
    /// The position up to which the index has all of the store, set behind each batch.
    indexed: Mutex<Checkpoint>,
    /// Set once the next generation applies the further events.
    closed: RwLock<Option<Closed>>,
    /// The newest event offset known to be in the log.
    newest: AtomicI64,
    /// Offset and time of the oldest event that was polled and not applied when it was noted.
    oldest: Mutex<Option<(i64, Time)>>,
    /// The reader of the events partition is at its end.
    reached_end: AtomicBool,
    /// The reader has been at the end at least once, which makes the shard ready.
    was_caught_up: AtomicBool,
    /// An end of the events partition that was looked up. The shard has caught up when all events
    /// before it are applied. `i64::MAX` if none was looked up.
    known_end: AtomicI64,
    /// The note that the log holds events which are not applied, until ingest takes it.
    unread: Mutex<Option<Unread>>,
    recent: RecentDecisions,
    /// Order matters: the last field, so that it is dropped when all files are closed.
    files: Arc<()>,
}

/// The log holds an event from the offset `next` on, and nothing was applied from there for `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub next: i64,
    pub ms: i64,
}

impl Shard {
    fn of(partition: i32, store: Store, index: Index) -> Result<Shard> {
        let applied = store.applied();
        let epoch = store.epoch() + 1;
        let indexed = Mutex::new(store.checkpoint());
        store.note_epoch(epoch);
        Ok(Shard {
            closed: RwLock::new(store.closed()?),
            partition,
            epoch,
            store,
            index,
            lost_store: None,
            view: RwLock::new(()),
            is_applying: AtomicBool::new(false),
            applied: AtomicI64::new(applied),
            indexed,
            newest: AtomicI64::new(applied),
            oldest: Mutex::default(),
            reached_end: AtomicBool::new(false),
            was_caught_up: AtomicBool::new(false),
            known_end: AtomicI64::new(i64::MAX),
            unread: Mutex::default(),
            recent: RecentDecisions::default(),
            files: Arc::default(),
        })
    }

    /// Returns a handle that is dead once every file of this shard is closed: after the last
    /// reader's reference, and the merge that ran then.
    pub fn files(&self) -> Weak<()> {
        Arc::downgrade(&self.files)
    }

    /// Holds the state still while a reader collects from store and index.
    pub fn view(&self) -> RwLockReadGuard<'_, ()> {
        self.view.read()
    }

    /// Makes the batch of the events up to `applied` visible, all at once, and returns the time this
    /// took under the lock. `changelog`: the offset of the last record of the batch there, and when it
    /// was written or read.
    pub fn apply_batch(
        &self,
        batch: EncodedBatch,
        applied: i64,
        changelog: Option<(i64, Time)>,
    ) -> Result<Duration> {
        self.is_applying.store(true, Ordering::Release);
        let applied = self.apply_alone(batch, applied, changelog);
        self.is_applying.store(false, Ordering::Release);
        applied
    }

    /// Returns whether a reader would have to wait for a batch.
    pub fn is_applying(&self) -> bool {
        self.is_applying.load(Ordering::Acquire)
    }

    fn apply_alone(
        &self,
        mut batch: EncodedBatch,
        applied: i64,
        changelog: Option<(i64, Time)>,
    ) -> Result<Duration> {
        let _alone = self.view.write();
        let began = Instant::now();
        if let Some((_, at)) = changelog {
            self.store.note_read_at(at);
        }
        let changelog = changelog.map(|(offset, _)| offset);
        let touched = std::mem::take(&mut batch.touched);
        self.store.commit(batch, Checkpoint { applied, changelog })?;
        // Order matters: behind the store, because a block of vectors that is not cached is read there.
        for (key, id) in &touched.removed {
            self.index.text.remove(key, *id);
            self.index.vectors.remove(key, *id);
        }
        for Upserted { memory, was } in touched.upserted {
            if !was.is_some_and(|was| has_same_words(&was, &memory)) {
                self.index.text.put(document(memory));
            }
        }
        for (key, id, vector) in &touched.vectors {
            self.index.vectors.put(key, *id, vector);
        }
        *self.closed.write() = self.store.closed()?;
        *self.indexed.lock() = self.store.checkpoint();
        self.applied.store(applied, Ordering::Release);
        self.newest.fetch_max(applied, Ordering::AcqRel);
        self.compare_with_end();
        Ok(began.elapsed())
    }

    /// Flushes the in-memory segment of the text index, and returns whether there was anything to
    /// flush. Searches continue meanwhile.
    pub fn flush(&self) -> Result<bool> {
        let checkpoint = *self.indexed.lock();
        if self.index.text.pending() == 0 && self.index.text.checkpoint() == Some(checkpoint) {
            return Ok(false);
        }
        // Order matters: if the index were ahead of the store after a crash, opening the shard
        // would have to compare every memory.
        self.store.flush()?;
        self.index.text.flush(checkpoint)
    }

    /// Removes the bytes of everything forgotten so far from the disk: from the index, by merging
    /// the segments that hold them, and from the store, by writing the live records anew. Searches
    /// and batches go on. Ends early, with everything unchanged, if `goes_on` returns false.
    pub fn rewrite(&self, goes_on: &dyn Fn() -> bool) -> Result<Rewritten> {
        self.store.rewrite(
            || {
                // Order matters: only removals that are on disk can be purged there.
                self.flush()?;
                self.index.vectors.remove_files();
                self.index.text.purge(goes_on).map(drop)
            },
            goes_on,
        )
    }

    /// Returns whether something was erased at least `after_ms` ago whose bytes may be on the disk.
    pub fn is_rewrite_due(&self, now: Time, after_ms: i64) -> bool {
        self.store.erased_since().is_some_and(|since| now.ms_since(since) >= after_ms)
    }

    /// The newest event offset that readers see; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Returns why the shard applies no further events: the next generation does.
    pub fn closed(&self) -> Option<Closed> {
        *self.closed.read()
    }

    /// Returns whether readers see every change that this user made here up to this offset. A
    /// closed shard knows nothing of the offsets of a user whom the next generation has elsewhere.
    pub fn has_applied(&self, key: &UserKey, offset: i64) -> bool {
        let is_moved =
            self.closed().is_some_and(|next| key.partition(next.partitions) != self.partition);
        self.applied() >= offset && !(is_moved && offset >= 0)
    }

    /// Returns up to which offset of this partition the tenant's home must have applied what was
    /// sent on, so that the home has every change that this user made up to `offset`.
    pub fn sent_on(&self, key: &UserKey, offset: i64) -> Result<Option<i64>> {
        let sent = self.store.sent_on(key)?.filter(|(partition, _)| *partition == self.partition);
        Ok(sent.map(|(_, last)| last.min(offset)).filter(|offset| *offset >= 0))
    }

    /// Notes that the log holds an event at this offset, of this time.
    pub fn saw(&self, offset: i64, at: Time) {
        self.newest.fetch_max(offset, Ordering::AcqRel);
        let applied = self.applied();
        let mut oldest = self.oldest.lock();
        if offset > applied && !oldest.is_some_and(|(known, _)| known > applied) {
            *oldest = Some((offset, at));
        }
    }

    /// The time of the oldest event that was polled and is not applied yet.
    pub fn oldest_polled(&self) -> Option<Time> {
        let oldest = *self.oldest.lock();
        oldest.filter(|(offset, _)| *offset > self.applied()).map(|(_, at)| at)
    }

    pub fn reached_end(&self) {
        self.reached_end.store(true, Ordering::Release);
        self.was_caught_up.store(true, Ordering::Release);
    }

    pub fn left_end(&self) {
        self.reached_end.store(false, Ordering::Release);
        self.known_end.store(i64::MAX, Ordering::Release);
    }

    /// Returns true if the reader is not at the end, and no end was looked up that it will reach.
    pub fn needs_end(&self) -> bool {
        !self.reached_end.load(Ordering::Acquire)
            && self.known_end.load(Ordering::Acquire) == i64::MAX
    }

    /// Notes the end of the events partition. While events keep coming, the reader never finds the
    /// end by itself, because its consumer reports an end only after a pause.
    pub fn note_end(&self, end: i64) {
        self.known_end.store(end, Ordering::Release);
        self.compare_with_end();
    }

    fn compare_with_end(&self) {
        if self.applied() + 1 >= self.known_end.load(Ordering::Acquire) {
            self.reached_end();
        }
    }

    /// Returns whether the shard has applied every event that the log held when it opened. Stays
    /// true under load, when answers may be stale again.
    pub fn was_caught_up(&self) -> bool {
        self.was_caught_up.load(Ordering::Acquire)
    }

    /// Returns whether the log holds, or may hold, events that readers do not see yet.
    pub fn is_stale(&self) -> bool {
        self.behind() > 0 || !self.reached_end.load(Ordering::Acquire)
    }

    /// Adds the time since the last look at the log, which found the same event waiting.
    pub fn note_unread(&self, next: i64, ms: i64) {
        let mut unread = self.unread.lock();
        let before = unread.filter(|before| before.next == next).map_or(0, |before| before.ms);
        *unread = Some(Unread { next, ms: before + ms });
    }

    /// Takes the note about events that wait in the log, unless some were applied since.
    pub fn take_unread(&self) -> Option<Unread> {
        self.unread.lock().take().filter(|unread| unread.next == self.applied() + 1)
    }

    /// Returns the distance from the applied offset to the newest one known to be in the log.
    pub fn behind(&self) -> i64 {
        (self.newest.load(Ordering::Acquire) - self.applied()).max(0)
    }

    /// Reads the user's vectors from the store, for a cache that lacks them.
    pub fn vectors(&self, key: &UserKey) -> Result<Vec<(MemoryId, Vector)>> {
        self.store.vectors(key)
    }

    pub fn remember_decisions(&self, decisions: impl Iterator<Item = Decision>) {
        self.recent.add(decisions);
    }

    pub fn decisions_of(&self, key: &UserKey, event: &Position) -> Vec<Decision> {
        self.recent.of_event(key, event)
    }

    /// Counts this user's recent decisions by outcome.
    pub fn outcomes_of(&self, key: &UserKey) -> BTreeMap<String, u64> {
        self.recent.outcomes(key)
    }

    /// Removes recent decisions, so that `explain` does not return the text of a memory that was
    /// forgotten.
    pub fn forget_decisions(&self, forgotten: impl Fn(&Decision) -> bool) {
        self.recent.remove(forgotten);
    }
}

impl Neighbours for Shard {
    fn nearest(
        &self,
        key: &UserKey,
        query: &Vector,
        limit: usize,
        staged: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>> {
        self.index.vectors.nearest(key, &mut || self.vectors(key), query, limit, staged)
    }

    fn cosine_to_all(
        &self,
        key: &UserKey,
        query: &Vector,
        staged: &StagedVectors,
    ) -> Result<Option<f32>> {
        let sum = self.index.vectors.sum(key, &mut || self.vectors(key), staged)?;
        Ok(sum.cosine(query))
    }
}
