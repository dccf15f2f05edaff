//! What a shard can find its memories by: words and vectors, both derived from the store and rebuildable from it at any time.
//! What a memory is, which ones a question wants and how the two engines are fused is not known here.

mod bm25;
mod disk;
mod document;
mod segments;
mod tail;
mod text;
mod tokens;
mod vectors;

pub use bm25::{Bm25, Scored, Words};
pub use document::{Document, Text};
pub use text::TextIndex;
pub use vectors::{Counts, Vectors};

use crate::domain::{MemoryId, UserKey, Vector};
use crate::fault::Result;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the words of one settling may take in memory before they become a segment of their own. At least 15 MB is taken.
    pub writer_bytes: usize,
    /// So many changes in memory make a settling due.
    pub tail_max: usize,
    /// What the vectors of the users asked for last may take in memory.
    pub vectors_bytes_max: usize,
}

/// Both engines of one shard.
pub struct Index {
    pub text: TextIndex,
    pub vectors: Vectors,
}

impl Index {
    pub fn open(dir: &Path, options: Options, generation: &str) -> Result<Index> {
        // A directory of its own, because it is removed whole when it is begun anew.
        let text = TextIndex::open(&dir.join("text"), options, generation)?;
        Ok(Index { text, vectors: Vectors::new(options.vectors_bytes_max) })
    }

    pub fn in_memory(options: Options) -> Index {
        Index { text: TextIndex::in_memory(options), vectors: Vectors::new(options.vectors_bytes_max) }
    }

    /// Order matters: the store must have the memory already, since a block of vectors that is not loaded is read from there.
    pub fn put(&self, document: Document, vector: &Vector) {
        self.vectors.put(&document.key, document.id, vector);
        self.text.put(document);
    }

    /// Order matters here too: the store must have lost it already.
    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.vectors.remove(key, id);
        self.text.remove(id);
    }
}

/// Sorts the best to the front, of equals the one with the smaller id, and drops what is over the limit.
fn keep_best(hits: &mut Vec<(MemoryId, f32)>, limit: usize) {
    let best_first = |a: &(MemoryId, f32), b: &(MemoryId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if limit < hits.len() {
        hits.select_nth_unstable_by(limit, best_first);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(best_first);
}
