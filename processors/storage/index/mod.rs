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
//! `processors/decisions/tantivy.md`. The price: a search needs the document list of the user, which
//! `search_cache` keeps for recent users, and cannot stop early.

mod block;
mod bm25;
mod disk;

mod document;
mod layers;
mod mem_segment;
mod search_cache;
mod segments;
mod some_ids;
mod text;
mod tokens;
mod top_k;
mod vector_files;
mod vectors;

pub use bm25::{Bm25, ScoredDocuments, WordScores};
pub use disk::{IndexOptions, terms_on_disk};
pub use document::{Document, SearchText};
pub use layers::FlushedIndex;
pub use text::TextIndex;
pub use vectors::{CacheCounts, Compared, VectorBlocks, Vectors};

use domain::fault::Result;
use std::path::Path;
use std::sync::Arc;
use vector_files::VectorFiles;

/// The text index and the vectors of one shard.
pub struct Index {
    pub text: TextIndex,
    pub vectors: Vectors,
}

impl Index {
    pub fn open(
        dir: &Path,
        options: IndexOptions,
        blocks: Arc<VectorBlocks>,
        generation: &str,
    ) -> Result<Index> {
        // A directory of its own: an index that cannot be kept is removed with its whole directory.
        let text = TextIndex::open(&dir.join("text"), options, generation)?;
        let files = VectorFiles::open(&dir.join("vectors"), options.vectors_filed_min);
        if text.checkpoint().is_none() {
            files.clear();
        }
        Ok(Index { text, vectors: Vectors::new(blocks, files) })
    }

    pub fn in_memory(
        options: IndexOptions,
        blocks: Arc<VectorBlocks>,
        flushed: FlushedIndex,
    ) -> Index {
        let vectors = Vectors::new(blocks, VectorFiles::none());
        Index { text: TextIndex::in_memory(options, flushed), vectors }
    }
}
