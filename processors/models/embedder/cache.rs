//! Caches the vectors of recently encoded texts, so that a repeated text is encoded once.
//!
//! The key is a hash of the text ([UUID version 5](https://www.rfc-editor.org/rfc/rfc9562)): the
//! cache holds no texts. The least recently used vector is evicted first.

use super::pool::Encoded;
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use uuid::Uuid;

pub struct VectorCache {
    vectors: Mutex<LruCache<Uuid, Vec<f32>>>,
}

/// A batch between [`VectorCache::look_up`] and [`VectorCache::complete`].
pub struct CachedBatch {
    /// The hash of each text, with the vector if cached.
    texts: Vec<(Uuid, Option<Vec<f32>>)>,
    /// The index of each missing text among those to be encoded.
    missing: HashMap<Uuid, usize>,
}

impl VectorCache {
    /// `texts`: number of vectors held, at least one.
    pub fn new(texts: usize) -> VectorCache {
        let texts = NonZeroUsize::new(texts).unwrap_or(NonZeroUsize::MIN);
        VectorCache { vectors: Mutex::new(LruCache::new(texts)) }
    }

    /// Looks up the vectors of a batch. Also returns the texts to be encoded, each once, in the
    /// order in which `complete` expects their vectors.
    pub fn look_up(&self, texts: Vec<String>) -> (CachedBatch, Vec<String>) {
        let mut batch =
            CachedBatch { texts: Vec::with_capacity(texts.len()), missing: HashMap::new() };
        let mut to_encode = Vec::new();
        let mut vectors = self.vectors.lock();
        for text in texts {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
            let found = vectors.get(&hash).cloned();
            if found.is_none()
                && let Entry::Vacant(entry) = batch.missing.entry(hash)
            {
                entry.insert(to_encode.len());
                to_encode.push(text);
            }
            batch.texts.push((hash, found));
        }
        (batch, to_encode)
    }

    /// Returns the vectors of all texts of the batch, in their order, and caches the encoded ones.
    /// A refusal is not cached.
    pub fn complete(&self, batch: CachedBatch, encoded: Vec<Encoded>) -> Vec<Encoded> {
        let mut vectors = self.vectors.lock();
        let mut all = Vec::with_capacity(batch.texts.len());
        for (hash, found) in batch.texts {
            all.push(match found {
                Some(vector) => Ok(vector),
                None => {
                    let vector = &encoded[batch.missing[&hash]];
                    if let Ok(vector) = vector {
                        vectors.put(hash, vector.clone());
                    }
                    vector.clone()
                }
            });
        }
        all
    }
}
