//! The text index of one shard: three layers that a search sees as one.
//!
//! ```text
//!  put, remove ──> fresh: MemSegment      changes since the last flush began
//!                    │ freeze
//!                  flushing: Arc<MemSegment>   immutable, on the way to disk
//!                    │ commit (tantivy)
//!                  segments: Segments     the last commit on disk
//! ```
//!
//! A change in a newer layer hides the document of the same user and id in the older layers, as in
//! an [LSM tree](https://en.wikipedia.org/wiki/Log-structured_merge-tree). A flush
//! ([`TextIndex::flush`]):
//!
//! 1. Move `fresh` into `flushing`, under the write lock: searches see the same documents.
//! 2. Write `flushing` to tantivy and commit, without that lock: searches and changes go on.
//! 3. Replace `segments` by those of the new commit and empty `flushing`, in one step under the
//!    write lock.
//!
//! If step 2 fails, `flushing` stays searchable, and no flush succeeds until the index is opened
//! again, from its last commit.
//!
//! Invariant: every document is seen exactly once at any moment, also during a flush.

use super::bm25::{Bm25, ScoredDocuments};
use super::disk::{IndexDir, IndexOptions, OpenedDir};
use super::document::Document;
use super::layers::{FlushedIndex, Layers};
use super::segments::Segments;
use crate::checkpoint::Checkpoint;
use domain::fault::{Fault, Result};
use domain::{MemoryId, UserKey};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use text::Language;

/// Looks for segments with deleted documents in one purge. A running merge of the merge policy
/// makes a second look necessary.
const PURGE_TRIES: usize = 5;

pub struct TextIndex {
    /// `None`: the index has no disk, documents stay in memory. Order matters: a flush locks the
    /// directory, then the layers, and the layers never for long.
    dir: Option<Mutex<IndexDir>>,
    /// Takes the place of the directory if there is none.
    flushed: FlushedIndex,
    layers: RwLock<Layers>,
    discarded: Option<String>,
    mem_segment_max: usize,
}

impl TextIndex {
    /// Opens or creates the index. An index of another format or generation, or one that does not
    /// open, is removed with everything in `dir`: nothing else may live in that directory.
    pub fn open(dir: &Path, options: IndexOptions, generation: &str) -> Result<TextIndex> {
        let OpenedDir { dir, checkpoint, discarded } = IndexDir::open(dir, options, generation)?;
        let layers = Layers::over(dir.segments()?, checkpoint);
        Ok(TextIndex {
            dir: Some(Mutex::new(dir)),
            flushed: FlushedIndex::default(),
            layers: RwLock::new(layers),
            discarded,
            mem_segment_max: options.mem_segment_max,
        })
    }

    /// Opens an index without a directory, as of the last flush. Limit: no document ever leaves
    /// memory.
    pub fn in_memory(options: IndexOptions, flushed: FlushedIndex) -> TextIndex {
        let (checkpoint, flushing) = flushed.0.lock().clone();
        TextIndex {
            dir: None,
            flushed,
            layers: RwLock::new(Layers { flushing, ..Layers::over(Segments::none(), checkpoint) }),
            discarded: None,
            mem_segment_max: options.mem_segment_max,
        }
    }

    /// The position up to which the index on disk has applied the store. `None`: the index is empty
    /// and needs all of the store.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.layers.read().checkpoint
    }

    /// The reason for which a former index was removed when this one was opened.
    pub fn discarded(&self) -> Option<&str> {
        self.discarded.as_deref()
    }

    pub fn put(&self, document: Document) {
        let document = Arc::new(document);
        self.layers.write().fresh.put(document);
    }

    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.layers.write().fresh.remove(key, id);
    }

    /// Scores the user's documents that have a word of the query, or only `among` these.
    pub fn scored(
        &self,
        key: &UserKey,
        query_terms: &[String],
        bm25: Bm25,
        among: Option<&[MemoryId]>,
    ) -> Result<ScoredDocuments> {
        let layers = self.layers.read();
        Ok(bm25.scored(&layers.find(key, query_terms)?, among))
    }

    /// Returns the names that are the speaker of a memory of the user.
    pub fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        self.layers.read().speakers(key, names)
    }

    /// The languages of the user's memories, English left out.
    pub fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
        self.layers.read().languages(key)
    }

    /// The number of the user's documents, and the number of stems in all of them.
    pub fn documents(&self, key: &UserKey) -> Result<(usize, u64)> {
        let layers = self.layers.read();
        let found = layers.find(key, &[])?;
        Ok((found.documents(), found.lengths().0))
    }

    /// Every live document of the shard by user and id, in no order.
    pub fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
        self.layers.read().ids()
    }

    /// Counts the live documents of each user of the shard. Users without one are left out.
    pub fn counts(&self) -> Result<BTreeMap<UserKey, usize>> {
        self.layers.read().counts()
    }

    /// Number of changes that are in memory only.
    pub fn pending(&self) -> usize {
        let layers = self.layers.read();
        let flushing = if self.dir.is_some() { layers.flushing.written() } else { 0 };
        flushing + layers.fresh.written()
    }

    pub fn is_flush_due(&self) -> bool {
        self.pending() >= self.mem_segment_max
    }

    /// Flushes the changes in memory to disk and notes there that the store has been applied up to
    /// `checkpoint`: all changes up to that position must have been put. Returns `false` if there was
    /// nothing to write or note. Searches and changes go on meanwhile. After a failure all
    /// documents are still found, and each further call fails.
    pub fn flush(&self, checkpoint: Checkpoint) -> Result<bool> {
        let Some(dir) = &self.dir else { return Ok(self.flush_in_memory(checkpoint)) };
        let mut dir = dir.lock();
        let Some(flushing) = self.layers.write().freeze(checkpoint) else { return Ok(false) };
        dir.commit(flushing.changes(), checkpoint)?;
        let segments = dir.segments()?;
        let replaced = self.layers.write().flushed(segments, checkpoint);
        // Dropped here, outside the lock that searches wait for: thousands of documents and the
        // files of a commit may go.
        drop(replaced);
        Ok(true)
    }

    fn flush_in_memory(&self, checkpoint: Checkpoint) -> bool {
        let mut flushed = self.flushed.0.lock();
        let mut layers = self.layers.write();
        if layers.checkpoint == Some(checkpoint) && layers.fresh.is_empty() {
            return false;
        }
        // The segment has no second holder during a change, and so need not be copied.
        flushed.1 = Arc::default();
        drop(layers.freeze(checkpoint));
        layers.checkpoint = Some(checkpoint);
        *flushed = (layers.checkpoint, layers.flushing.clone());
        true
    }

    /// Removes the terms of deleted documents from the disk, and returns whether there were any.
    /// Searches, changes and flushes go on meanwhile. Ends early with an error if `goes_on` returns
    /// false. Limit: concerns the files on disk, so `flush` comes before.
    pub fn purge(&self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let Some(dir) = &self.dir else { return Ok(false) };
        let mut is_changed = false;
        for _ in 0..PURGE_TRIES {
            let holding = dir.lock().holding_deleted()?;
            if holding.is_empty() {
                if is_changed {
                    self.use_merged(&mut dir.lock())?;
                }
                return Ok(is_changed);
            }
            is_changed = true;
            for segment in holding {
                if !goes_on() {
                    return Err(Fault::retry("the index is needed for something else"));
                }
                // Order matters: the lock is free while the merge runs, which may take minutes. A
                // flush, and so ingest and a rebalance, waits for the lock.
                let merge = dir.lock().begin_merge(segment);
                // Fails if a merge of the merge policy has replaced the segment meanwhile, which
                // does the same. The next look shows the rest.
                if let Err(error) = merge.wait() {
                    tracing::debug!(%error, "a segment was not merged");
                }
            }
        }
        Err(Fault::retry("segments of the index are still being merged"))
    }

    /// Lets searches use the segments on disk as they are now, and removes the files of the former.
    fn use_merged(&self, dir: &mut IndexDir) -> Result<()> {
        let segments = dir.segments()?;
        let replaced = std::mem::replace(&mut self.layers.write().segments, segments);
        // Order matters: the files of segments that somebody holds are not removed.
        drop(replaced);
        dir.remove_unused_files()
    }
}

#[cfg(test)]
mod tests;
