//! The memories that were asked for last, decoded: a question reads two hundred, and the next one of the same user mostly the same ones.
//! Derived from the records and bounded; it decides nothing.

use super::keys;
use crate::domain::{Memory, MemoryId, Neighbour, UserKey};
use crate::fault::Result;
use foldhash::fast::RandomState;
use lru::LruCache;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads a memory from its record. Called with no lock held.
pub type Read<'r> = &'r dyn Fn(MemoryId) -> Result<Option<Memory>>;

pub struct Recalled {
    cache: Mutex<Cache>,
    bytes_max: usize,
}

struct Cache {
    memories: LruCache<MemoryId, Arc<Memory>, RandomState>,
    bytes: usize,
    /// Goes up with every change, so that a memory read before one is not kept after it.
    changes: u64,
}

impl Recalled {
    pub fn new(bytes_max: usize) -> Recalled {
        let memories = LruCache::unbounded_with_hasher(RandomState::default());
        Recalled { cache: Mutex::new(Cache { memories, bytes: 0, changes: 0 }), bytes_max }
    }

    /// Each of these, in their order; none in the place of one that is not the user's.
    pub fn of(
        &self,
        key: &UserKey,
        ids: &[MemoryId],
        read: Read,
    ) -> Result<Vec<Option<Arc<Memory>>>> {
        let (mut found, changes_before) = {
            let mut cache = self.lock();
            (ids.iter().map(|id| cache.known(key, id)).collect::<Vec<_>>(), cache.changes)
        };
        let mut fresh = Vec::new();
        for (place, id) in found.iter_mut().zip(ids).filter(|(place, _)| place.is_none()) {
            *place = read(*id)?.map(Arc::new);
            fresh.extend(place.clone());
        }
        if !fresh.is_empty() {
            let mut cache = self.lock();
            if cache.changes == changes_before {
                fresh.into_iter().for_each(|memory| cache.keep(memory));
                cache.shrink(self.bytes_max);
            }
        }
        Ok(found)
    }

    /// These records are no longer what they were.
    pub fn forget<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut cache = self.lock();
        cache.changes += 1;
        if !cache.memories.is_empty() {
            keys.filter_map(keys::id_of_memory).for_each(|id| cache.remove(&id));
        }
    }

    /// A panic elsewhere leaves whole entries, and `bytes` at worst too great.
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Nobody's question finds another's.
    fn known(&mut self, key: &UserKey, id: &MemoryId) -> Option<Arc<Memory>> {
        self.memories.get(id).filter(|memory| memory.key == *key).cloned()
    }

    fn keep(&mut self, memory: Arc<Memory>) {
        self.bytes += bytes_of(&memory);
        if let Some(before) = self.memories.put(memory.id, memory) {
            self.bytes -= bytes_of(&before);
        }
    }

    fn remove(&mut self, id: &MemoryId) {
        if let Some(memory) = self.memories.pop(id) {
            self.bytes -= bytes_of(&memory);
        }
    }

    /// One by one: who has more memories than all may have together would else wait for thousands to go at once.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((_, memory)) = self.memories.pop_lru() else { return };
            self.bytes -= bytes_of(&memory);
        }
    }
}

/// About: what it has on the heap, each piece with what the allocator adds.
fn bytes_of(memory: &Memory) -> usize {
    const PIECE: usize = 16;
    let beside = |one: &Neighbour| {
        one.speaker.len()
            + one.words.len()
            + one.vector.values.len()
            + one.source.topic.len()
            + 4 * PIECE
    };
    let optional = [&memory.session, &memory.speaker, &memory.event_id].into_iter().flatten();
    let texts = [&memory.content, &memory.reason]
        .into_iter()
        .chain(optional)
        .map(String::len)
        .sum::<usize>();
    let metadata = memory
        .metadata
        .iter()
        .map(|(name, value)| name.len() + value.len() + 6 * PIECE)
        .sum::<usize>();
    let history = memory.history.iter().map(|one| one.content.len() + 3 * PIECE).sum::<usize>();
    let links = (memory.supersedes.len()
        + memory.revises.len()
        + memory.conflicts_with.len()
        + memory.covers.len())
        * size_of::<MemoryId>();
    let around = memory.around.all().map(beside).sum::<usize>();
    size_of::<Memory>()
        + memory.source.topic.len()
        + texts
        + metadata
        + history
        + links
        + around
        + 20 * PIECE
}

#[cfg(test)]
mod tests {
    use super::super::tests::{a_memory, key};
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    fn told(user: usize, n: usize, uses: u32) -> Memory {
        Memory { key: key(&format!("user {user}")), uses, ..a_memory(n as i64, "tea") }
    }

    fn id(n: usize) -> MemoryId {
        told(0, n, 0).id
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Users have memories of the same id here, as they never do.
        #[test]
        fn what_is_recalled_is_what_the_records_say(
            steps in prop::collection::vec((0..3usize, 0..8usize, prop::option::weighted(0.7, 0..5u32)), 1..60),
            bytes_max in prop::sample::select(vec![0, 2_500, 8_000, 1_000_000]),
        ) {
            let (recalled, mut records) = (Recalled::new(bytes_max), BTreeMap::new());
            for (user, n, uses) in steps {
                match uses {
                    Some(uses) => drop(records.insert((user, id(n)), told(user, n, uses))),
                    None => drop(records.remove(&(user, id(n)))),
                }
                let changed = keys::memory(&told(user, n, 0).key, id(n));
                recalled.forget([&changed[..]].into_iter());
                for user in 0..3 {
                    let ids: Vec<_> = (0..8).map(id).collect();
                    let read = |id| Ok(records.get(&(user, id)).cloned());
                    let found = recalled.of(&told(user, 0, 0).key, &ids, &read).unwrap();
                    let expected: Vec<_> = ids.iter().map(|id| records.get(&(user, *id)).cloned().map(Arc::new)).collect();
                    prop_assert_eq!(found, expected);
                }
                let cache = recalled.lock();
                prop_assert!(cache.bytes <= bytes_max);
                prop_assert_eq!(cache.bytes, cache.memories.iter().map(|(_, memory)| bytes_of(memory)).sum::<usize>());
            }
        }
    }

    #[test]
    fn what_is_asked_for_again_is_not_read_again_and_what_is_not_asked_for_goes_first() {
        let recalled = Recalled::new(2 * bytes_of(&told(0, 0, 0)));
        let reads = RefCell::new(Vec::new());
        let read = |asked| {
            let n = (0..3).find(|n| id(*n) == asked);
            reads.borrow_mut().extend(n);
            Ok(n.map(|n| told(0, n, 0)))
        };
        for n in [0, 1, 0, 1, 0, 2, 0, 1] {
            recalled.of(&told(0, n, 0).key, &[id(n)], &read).unwrap();
        }
        assert_eq!(*reads.borrow(), [0, 1, 2, 1]);
    }

    #[test]
    fn a_memory_read_before_a_change_is_not_kept_after_it() {
        let recalled = Recalled::new(1_000_000);
        let ask = |uses, meanwhile: &dyn Fn()| {
            let read = |_| {
                let read = Ok(Some(told(0, 1, uses)));
                meanwhile();
                read
            };
            recalled.of(&told(0, 1, 0).key, &[id(1)], &read).unwrap()[0]
                .as_ref()
                .map(|memory| memory.uses)
        };
        let changed = keys::memory(&told(0, 1, 0).key, id(1));
        assert_eq!(ask(0, &|| recalled.forget([&changed[..]].into_iter())), Some(0));
        assert_eq!(ask(1, &|| ()), Some(1));
        assert_eq!(ask(2, &|| ()), Some(1));
    }
}
