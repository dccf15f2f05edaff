//! What a shard can find its memories by: words and vectors, both derived from the store and rebuildable from it at any time.
//! What a memory is, which ones a question wants and how the two engines are fused is not known here.

mod block;
mod bm25;
mod disk;
mod document;
mod owned;
mod segments;
mod tail;
mod text;
mod tokens;
mod vectors;

pub use bm25::{Bm25, Scored, Words};
pub use document::{Document, Text};
pub use text::TextIndex;
pub use vectors::{Counts, Room, Vectors};

use crate::domain::{MemoryId, UserKey, Vector};
use crate::fault::Result;
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the words of one settling may take in memory before they become a segment of their own. At least 15 MB is taken.
    pub writer_bytes: usize,
    /// So many changes in memory make a settling due.
    pub tail_max: usize,
    /// What the lists of documents of the users asked for last may take in memory.
    pub documents_bytes_max: usize,
}

/// Both engines of one shard.
pub struct Index {
    pub text: TextIndex,
    pub vectors: Vectors,
}

impl Index {
    pub fn open(dir: &Path, options: Options, room: Arc<Room>, generation: &str) -> Result<Index> {
        // A directory of its own, because it is removed whole when it is begun anew.
        let text = TextIndex::open(&dir.join("text"), options, generation)?;
        Ok(Index { text, vectors: Vectors::new(room) })
    }

    pub fn in_memory(options: Options, room: Arc<Room>) -> Index {
        Index { text: TextIndex::in_memory(options), vectors: Vectors::new(room) }
    }

    /// Order matters: the store must have the memory already, since a block of vectors that is not loaded is read from there.
    pub fn put(&self, document: Document, vector: &Vector) {
        self.vectors.put(&document.key, document.id, vector);
        self.text.put(document);
    }

    /// Order matters here too: the store must have lost it already.
    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.vectors.remove(key, id);
        self.text.remove(key, id);
    }
}

/// The best of many that are offered one by one: of equals those with the smaller id. Never holds more than twice as many as are wanted.
struct Best {
    limit: usize,
    kept: Vec<(MemoryId, f32)>,
    /// Whoever has less is not among the best.
    least: f32,
}

impl Best {
    fn of(limit: usize) -> Best {
        Best {
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
            let (_, (_, least), _) = self.kept.select_nth_unstable_by(last, Best::first);
            self.least = *least;
        }
        self.kept.truncate(self.limit);
    }

    fn sorted(mut self) -> Vec<(MemoryId, f32)> {
        self.cut();
        self.kept.sort_unstable_by(Best::first);
        self.kept
    }

    fn first(a: &(MemoryId, f32), b: &(MemoryId, f32)) -> Ordering {
        b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
    }
}
