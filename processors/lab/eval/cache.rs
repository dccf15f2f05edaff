//! Caches vectors in a file from one run to the next, so that a second run takes seconds.
//!
//! [`CachedEncoder`] is an embedder in front of the model. The service does not use it: in
//! production hardly any text occurs twice.

use super::report::progress;
use domain::fault::{Fault, Result};
use models::embedder::{Embedder, Model};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

const KEY_BYTES: usize = 16;
/// Names the vectors of texts that are not in English, a part of which may be read as either.
const OTHER_LANGUAGE: Uuid = Uuid::NAMESPACE_URL;
/// Tolerance for the squared length of a vector, which is 1. An incompletely written vector fails
/// this check.
const LENGTH_TOLERANCE: f32 = 1e-3;

/// All vectors of one model, in memory and in a file. The file is a sequence of records: the hash
/// of the text (16 bytes), then the numbers as little-endian `f32`.
#[derive(Default)]
pub struct VectorCache {
    known: RwLock<HashMap<Uuid, Box<[f32]>>>,
    /// `None` if another run is writing the file, or there is none.
    file: Mutex<Option<File>>,
}

impl VectorCache {
    /// Opens the file for `name`, which must contain everything that a vector depends on besides
    /// its text.
    pub fn open(dir: &Path, name: &str, dimensions: usize) -> Result<VectorCache> {
        let path = dir.join(format!(
            "{}.vectors",
            Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).simple()
        ));
        let about =
            |error: std::io::Error| Fault::retry(format!("open {}: {error}", path.display()));
        std::fs::create_dir_all(dir).map_err(about)?;
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(about)?;
        let is_ours = file.try_lock().is_ok();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(about)?;
        let record = KEY_BYTES + 4 * dimensions;
        let known: HashMap<Uuid, Box<[f32]>> =
            bytes.chunks_exact(record).map_while(vector).collect();
        let file = if is_ours {
            file.set_len((known.len() * record) as u64).map_err(about)?;
            Some(file)
        } else {
            progress(format!(
                "another run is writing {}: this run adds nothing to the file",
                path.display()
            ));
            None
        };
        Ok(VectorCache { known: RwLock::new(known), file: Mutex::new(file) })
    }

    fn get(&self, key: &Uuid) -> Option<Vec<f32>> {
        self.known.read().get(key).map(|vector| vector.to_vec())
    }

    /// Stores a vector. A text that two threads encode at the same time is written once.
    fn put(&self, key: Uuid, vector: &[f32]) -> Result<()> {
        let mut file = self.file.lock();
        let before = self.known.write().insert(key, vector.into());
        let Some(file) = file.as_mut().filter(|_| before.is_none()) else { return Ok(()) };
        let record: Vec<u8> = key
            .into_bytes()
            .into_iter()
            .chain(vector.iter().flat_map(|x| x.to_le_bytes()))
            .collect();
        file.write_all(&record).map_err(|e| Fault::retry(format!("write the vector cache: {e}")))
    }
}

/// Decodes a record. `None` for an incomplete record, which a killed run leaves at the end.
fn vector(record: &[u8]) -> Option<(Uuid, Box<[f32]>)> {
    let (key, numbers) = record.split_first_chunk::<KEY_BYTES>()?;
    let (numbers, _) = numbers.as_chunks::<4>();
    let vector: Box<[f32]> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let length = vector.iter().map(|x| x * x).sum::<f32>();
    ((length - 1.0).abs() < LENGTH_TOLERANCE).then_some((Uuid::from_bytes(*key), vector))
}

/// An embedder that uses the model only for texts that are not in the cache. Clones share one
/// session, which is opened when first needed.
#[derive(Clone)]
pub struct CachedEncoder {
    model: Arc<Model>,
    cache: Arc<VectorCache>,
    session: Arc<Mutex<Option<Box<dyn Embedder>>>>,
}

impl CachedEncoder {
    pub fn new(model: Arc<Model>, cache: Arc<VectorCache>) -> CachedEncoder {
        CachedEncoder { model, cache, session: Arc::default() }
    }
}

impl Embedder for CachedEncoder {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        self.encode_part(text, text::is_english(text))
    }

    fn encode_part(&mut self, part: &str, is_english: bool) -> Result<Vec<f32>> {
        // The English encoder's keys are those of the text alone.
        let read_as = if is_english { Uuid::NAMESPACE_OID } else { OTHER_LANGUAGE };
        let key = Uuid::new_v5(&read_as, part.as_bytes());
        if let Some(known) = self.cache.get(&key) {
            return Ok(known);
        }
        let mut session = self.session.lock();
        let session = match session.as_mut() {
            Some(session) => session,
            None => session.insert(self.model.session()?),
        };
        let vector = session.encode_part(part, is_english)?;
        self.cache.put(key, &vector)?;
        Ok(vector)
    }

    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(cache: &VectorCache) -> usize {
        cache.known.read().len()
    }

    #[test]
    fn an_incomplete_record_of_a_killed_run_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        fn open(dir: &tempfile::TempDir) -> VectorCache {
            VectorCache::open(dir.path(), "model", 2).unwrap()
        }
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let cache = open(&dir);
        cache.put(a, &[0.6, 0.8]).unwrap();
        cache.file.lock().as_mut().unwrap().write_all(&[7; 30]).unwrap();
        drop(cache);
        let cache = open(&dir);
        assert_eq!((keys(&cache), cache.get(&a), cache.get(&b)), (1, Some(vec![0.6, 0.8]), None));
        cache.put(b, &[1.0, 0.0]).unwrap();
        assert_eq!(
            open(&dir).get(&b),
            Some(vec![1.0, 0.0]),
            "a second run reads the file while the first one writes it"
        );
    }

    #[test]
    fn another_model_has_other_vectors() {
        let dir = tempfile::tempdir().unwrap();
        VectorCache::open(dir.path(), "one", 2)
            .unwrap()
            .put(Uuid::from_u128(1), &[1.0, 0.0])
            .unwrap();
        assert_eq!(keys(&VectorCache::open(dir.path(), "two", 2).unwrap()), 0);
    }
}
