//! Finds the memories of one shard by words (BM25) and by vectors (cosine). Both engines are
//! derived from the store and can be rebuilt from the store at any time. This module does not
//! decode memories, interpret questions or fuse the results of the two engines.
//!
//! # tantivy is a postings file, scoring is per user
//!
//! [tantivy](https://docs.rs/tantivy) writes terms, postings and columns to disk, merges segments
//! and commits atomically. Nothing else of tantivy is used: no stored fields, no field norms, no
//! tantivy query and no tantivy score. The law `isolated` (`processors/README.md`) wants that no
//! memory of another user moves a score. Therefore every term begins with the `tenant/user` key, and
//! [`bm25`] scores the user's own documents with frequencies and lengths counted over exactly those
//! documents, alike in memory and on disk. Why not tantivy's score with statistics of ours:
//! `processors/decisions/tantivy.md`. The price: every search reads the document list of the user,
//! which `doc_id_cache` keeps for recent users, and cannot stop early.

mod block;
mod bm25;
mod disk;
mod doc_id_cache;
mod document;
mod mem_segment;
mod segments;
mod text;
mod tokens;
mod vectors;

pub use bm25::{Bm25, ScoredDocuments, WordScores};
pub use disk::terms_on_disk;
pub use document::{Document, SearchText};
pub use text::{FlushedIndex, TextIndex};
pub use vectors::{CacheCounts, Compared, VectorBlocks, Vectors};

use domain::fault::Result;
use domain::{MemoryId, UserKey, Vector};
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the write buffer of one flush, released after it: 10,000 documents of 80 words fit
    /// into the default. Documents beyond that become further segments, which are merged at once and
    /// double the work. At least 15 MB, the minimum of tantivy, are used.
    pub writer_bytes: usize,
    /// Documents in the in-memory segment at which ingest waits for the flush: twice those that
    /// trigger it.
    pub tail_max: usize,
    /// Limit of the doc-id cache of one shard.
    pub documents_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { writer_bytes: 64_000_000, tail_max: 20_000, documents_bytes_max: 1 << 19 }
    }
}

/// The position of the store up to which an index has applied it. The event offset alone does not
/// distinguish two states: while a generation is built, no event moves the shard, but records do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The applied event offset.
    pub applied: i64,
    /// The changelog offset. `None` for a store without a changelog, and in an index of an older
    /// version.
    pub changelog: Option<i64>,
}

/// The text index and the vectors of one shard.
pub struct Index {
    pub text: TextIndex,
    pub vectors: Vectors,
}

impl Index {
    pub fn open(
        dir: &Path,
        options: Options,
        room: Arc<VectorBlocks>,
        generation: &str,
    ) -> Result<Index> {
        // A directory of its own: an index that cannot be kept is removed with its whole directory.
        let text = TextIndex::open(&dir.join("text"), options, generation)?;
        Ok(Index { text, vectors: Vectors::new(room) })
    }

    pub fn in_memory(options: Options, room: Arc<VectorBlocks>, flushed: FlushedIndex) -> Index {
        Index { text: TextIndex::in_memory(options, flushed), vectors: Vectors::new(room) }
    }

    /// Adds or replaces a memory. Order matters: the store must hold the memory already, because a
    /// block of vectors that is not cached is read from the store.
    pub fn put(&self, document: Document, vector: &Vector) {
        self.vectors.put(&document.key, document.id, vector);
        self.text.put(document);
    }

    /// Removes a memory. Order matters: the store must have removed the memory already, see `put`.
    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.vectors.remove(key, id);
        self.text.remove(key, id);
    }
}

/// Returns the ids of the `limit` highest scores in no order; among equal scores the smaller ids.
/// Selects among bare numbers, which are cheaper to compare and to move than entries.
fn highest(scored: impl Iterator<Item = (MemoryId, f32)> + Clone, limit: usize) -> Vec<MemoryId> {
    let mut scores: Vec<f32> = scored.clone().map(|(_, score)| score).collect();
    if limit >= scores.len() {
        return scored.map(|(id, _)| id).collect();
    }
    let Some(last) = limit.checked_sub(1) else { return Vec::new() };
    let (_, least, _) = scores.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    let (mut highest, mut equal) = (Vec::with_capacity(limit), Vec::new());
    for (id, score) in scored {
        match score.total_cmp(least) {
            Ordering::Greater => highest.push(id),
            Ordering::Equal => equal.push(id),
            Ordering::Less => {}
        }
    }
    equal.sort_unstable();
    highest.extend(equal.into_iter().take(limit - highest.len()));
    highest
}

/// Selects the `limit` highest scores of a stream; among equal scores the smaller id wins. Holds at
/// most twice `limit` entries.
struct TopK {
    limit: usize,
    kept: Vec<(MemoryId, f32)>,
    /// A lower score cannot be among the best any more.
    least: f32,
}

impl TopK {
    fn new(limit: usize) -> TopK {
        TopK {
            limit,
            kept: Vec::new(),
            least: if limit == 0 { f32::INFINITY } else { f32::NEG_INFINITY },
        }
    }

    fn may_take(&self, score: f32) -> bool {
        score >= self.least
    }

    fn offer(&mut self, id: &MemoryId, score: f32) {
        if self.may_take(score) {
            self.kept.push((*id, score));
            if self.kept.len() >= self.limit.saturating_mul(2) {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if let Some(last) = self.limit.checked_sub(1).filter(|last| *last < self.kept.len()) {
            let (_, (_, least), _) = self.kept.select_nth_unstable_by(last, TopK::best_first);
            self.least = *least;
        }
        self.kept.truncate(self.limit);
    }

    fn sorted(mut self) -> Vec<(MemoryId, f32)> {
        self.cut();
        self.kept.sort_unstable_by(TopK::best_first);
        self.kept
    }

    fn best_first(a: &(MemoryId, f32), b: &(MemoryId, f32)) -> Ordering {
        b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
    }
}
