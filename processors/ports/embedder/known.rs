//! Vectors of texts that were encoded lately, by a hash of the text: what is said again and again is encoded once, and no text is kept.

use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

pub struct Known {
    vectors: Mutex<LruCache<Uuid, Vec<f32>>>,
}

/// A batch of texts on its way: what is known of it already, and which texts are still to be encoded, each once.
pub struct Asked {
    hashes: Vec<Uuid>,
    found: Vec<Option<Vec<f32>>>,
    missing: Vec<Uuid>,
}

impl Known {
    /// Of at least one text.
    pub fn of(texts: usize) -> Known {
        let texts = NonZeroUsize::new(texts).unwrap_or(NonZeroUsize::MIN);
        Known { vectors: Mutex::new(LruCache::new(texts)) }
    }

    /// The texts that must be encoded, in the order in which `complete` wants their vectors.
    pub fn ask(&self, texts: Vec<String>) -> (Asked, Vec<String>) {
        let mut asked =
            Asked { hashes: Vec::with_capacity(texts.len()), found: Vec::with_capacity(texts.len()), missing: Vec::new() };
        let (mut unknown, mut vectors) = (Vec::new(), self.vectors());
        for text in texts {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
            let found = vectors.get(&hash).cloned();
            if found.is_none() && !asked.missing.contains(&hash) {
                asked.missing.push(hash);
                unknown.push(text);
            }
            asked.hashes.push(hash);
            asked.found.push(found);
        }
        (asked, unknown)
    }

    /// All vectors, in the order of the texts that were asked for.
    pub fn complete(&self, asked: Asked, encoded: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        let of = |hash: &Uuid| asked.missing.iter().position(|missing| missing == hash).map(|place| encoded[place].clone());
        let vectors = asked.hashes.iter().zip(asked.found).filter_map(|(hash, found)| found.or_else(|| of(hash))).collect();
        let mut known = self.vectors();
        for (hash, vector) in asked.missing.iter().zip(encoded.iter()) {
            known.put(*hash, vector.clone());
        }
        vectors
    }

    /// Whatever a panic left there is a vector of its text.
    fn vectors(&self) -> MutexGuard<'_, LruCache<Uuid, Vec<f32>>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
