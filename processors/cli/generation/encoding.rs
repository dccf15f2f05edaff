//! Makes the vectors of a new generation with the new encoder, from the texts that the old shards
//! hold: on as many threads as ingest uses, and with a cache, because the turn before a memory is
//! often a memory itself.

use broker::Record;
use domain::Vector;
use domain::fault::{Fault, Result};
use models::embedder::Model;
use models::embedder::pool::{self, Pool};
use service::run;
use settings::Config;
use std::time::Instant;
use storage::changelog::{Owner, STATE_HEADER, owner};
use storage::reencoding::Reencoding;

/// Cached vectors: 32 MB at 512 dimensions.
const REMEMBERED: usize = 16_384;

/// The encoder of the new generation, with its threads.
pub struct Encoding {
    model: Model,
    threads: usize,
    /// Made when the first text is encoded.
    pool: Option<Pool>,
    began: Instant,
    /// Vectors made so far, those from the cache included.
    pub encoded: u64,
    /// Texts that the encoder refuses: their memories are found by words only.
    pub refused: u64,
}

impl Encoding {
    pub fn new(config: &Config, model: Model) -> Encoding {
        Encoding {
            model,
            threads: run::pool_size(config),
            pool: None,
            began: Instant::now(),
            encoded: 0,
            refused: 0,
        }
    }

    pub fn model(&self) -> (&str, u32) {
        (self.model.name(), self.model.dimensions() as u32)
    }

    /// Vectors a second since the first.
    pub fn rate(&self) -> f64 {
        self.encoded as f64 / self.began.elapsed().as_secs_f64().max(f64::EPSILON)
    }

    /// Replaces the vectors of these records.
    pub fn anew(&mut self, records: &mut [Record]) -> Result<()> {
        let mut texts = Vec::new();
        let mut found = Vec::new();
        for (index, record) in records.iter().enumerate() {
            if let Some(record) = reencoding(record)? {
                let own = record.texts();
                found.push((index, own.len(), record));
                texts.extend(own);
            }
        }
        if texts.is_empty() {
            return Ok(());
        }
        let pool = self.pool()?;
        let (vectors, _) = pool.finish(pool.begin(texts)?)?;
        self.encoded += vectors.len() as u64;
        self.refused += vectors.iter().filter(|vector| vector.is_err()).count() as u64;
        let mut vectors = vectors.into_iter();
        for (index, count, record) in found {
            // A vector of no numbers stands for none.
            let own = vectors.by_ref().take(count).map(|vector| match vector {
                Ok(exact) => Vector::of(&exact),
                Err(_) => Vector::default(),
            });
            let state = record.bytes(own.collect());
            let mut headers = records[index].headers.iter_mut().rev();
            if let Some((_, former)) = headers.find(|(name, _)| name == STATE_HEADER) {
                *former = state;
            }
        }
        Ok(())
    }

    fn pool(&mut self) -> Result<Pool> {
        if let Some(pool) = &self.pool {
            return Ok(pool.clone());
        }
        let (pool, worker) = pool::pool(pool::QUEUE);
        for _ in 0..self.threads {
            let (worker, session) = (worker.clone(), self.model.session()?);
            std::thread::Builder::new()
                .name("encoder".to_owned())
                .spawn(move || worker.run(session))
                .map_err(|error| Fault::retry(format!("cannot start an encoder: {error}")))?;
        }
        let pool = if self.model.is_stand_in() { pool } else { pool.remembering(REMEMBERED) };
        self.began = Instant::now();
        Ok(self.pool.insert(pool).clone())
    }
}

/// The record with its texts. `None` without vectors, or if the record is no user's.
pub fn reencoding(record: &Record) -> Result<Option<Reencoding>> {
    let name = record.key.as_deref().unwrap_or_default();
    match (owner(name)?, record.header(STATE_HEADER)) {
        (Owner::User(_), Some(state)) => Reencoding::of(name, state),
        _ => Ok(None),
    }
}
