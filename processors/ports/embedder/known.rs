//! Vectors of texts that were encoded lately, by a hash of the text: what is said again and again is encoded once, and no text is kept.

use lru::LruCache;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

pub struct Known {
    vectors: Mutex<LruCache<Uuid, Vec<f32>>>,
}

/// A batch of texts on its way: what is known of it already, and which texts are still to be encoded, each once.
pub struct Asked {
    texts: Vec<(Uuid, Option<Vec<f32>>)>,
    /// With its place among those that must be encoded.
    missing: HashMap<Uuid, usize>,
}

impl Known {
    /// Of at least one text.
    pub fn of(texts: usize) -> Known {
        let texts = NonZeroUsize::new(texts).unwrap_or(NonZeroUsize::MIN);
        Known { vectors: Mutex::new(LruCache::new(texts)) }
    }

    /// The texts that must be encoded, in the order in which `complete` wants their vectors.
    pub fn ask(&self, texts: Vec<String>) -> (Asked, Vec<String>) {
        let mut asked = Asked { texts: Vec::with_capacity(texts.len()), missing: HashMap::new() };
        let (mut unknown, mut vectors) = (Vec::new(), self.vectors());
        for text in texts {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
            let found = vectors.get(&hash).cloned();
            if found.is_none()
                && let Entry::Vacant(place) = asked.missing.entry(hash)
            {
                place.insert(unknown.len());
                unknown.push(text);
            }
            asked.texts.push((hash, found));
        }
        (asked, unknown)
    }

    /// All vectors, in the order of the texts that were asked for.
    pub fn complete(&self, asked: Asked, encoded: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        let mut known = self.vectors();
        let mut vector = |(hash, found): (Uuid, Option<Vec<f32>>)| {
            found.unwrap_or_else(|| {
                let vector = &encoded[asked.missing[&hash]];
                known.put(hash, vector.clone());
                vector.clone()
            })
        };
        asked.texts.into_iter().map(&mut vector).collect()
    }

    /// Whatever a panic left there is a vector of its text.
    fn vectors(&self) -> MutexGuard<'_, LruCache<Uuid, Vec<f32>>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
