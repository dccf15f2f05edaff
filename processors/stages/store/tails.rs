//! The last turns of the sessions that spoke last, decoded: each turn reads those before it, and a scan costs more than to score it.
//! Derived from the records and bounded; it decides nothing.

use super::reading::Tail;
use lru::LruCache;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Tails {
    known: Mutex<LruCache<Vec<u8>, Arc<Tail>>>,
}

impl Tails {
    pub fn new(sessions_max: usize) -> Tails {
        Tails { known: Mutex::new(LruCache::new(NonZeroUsize::new(sessions_max).unwrap_or(NonZeroUsize::MIN))) }
    }

    pub fn get(&self, ring: &[u8]) -> Option<Arc<Tail>> {
        self.lock().get(ring).cloned()
    }

    pub fn put_all(&self, tails: HashMap<Vec<u8>, Arc<Tail>>) {
        let mut known = self.lock();
        tails.into_iter().for_each(|(ring, tail)| drop(known.put(ring, tail)));
    }

    /// The known ones of a user.
    pub fn of(&self, user: &[u8]) -> Vec<Vec<u8>> {
        self.lock().iter().map(|(ring, _)| ring).filter(|ring| ring.starts_with(user)).cloned().collect()
    }

    /// A panic elsewhere leaves whole entries: each is replaced at once.
    fn lock(&self) -> MutexGuard<'_, LruCache<Vec<u8>, Arc<Tail>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
