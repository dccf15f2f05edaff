//! The memories that were asked for last, decoded: a question reads two hundred, and the next one of the same user mostly the same ones.
//! Derived from the records and bounded; it decides nothing.

use super::keys;
use crate::domain::{Memory, MemoryId, Neighbour, UserKey};
use crate::fault::Result;
use foldhash::fast::RandomState;
use lru::LruCache;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads a memory from its record. Called with no lock held.
pub type Read<'r> = &'r dyn Fn(MemoryId) -> Result<Option<Memory>>;

pub struct Recalled {
    cache: Mutex<Cache>,
    bytes_max: usize,
}

/// By the beginning that all keys of a user have: nobody's question finds another's.
struct Cache {
    users: LruCache<Vec<u8>, Known>,
    bytes: usize,
    /// Goes up with every change, so that a memory read before one is not kept after it.
    changes: u64,
}

#[derive(Default)]
struct Known {
    memories: HashMap<MemoryId, Arc<Memory>, RandomState>,
    bytes: usize,
}

impl Recalled {
    pub fn new(bytes_max: usize) -> Recalled {
        Recalled { cache: Mutex::new(Cache { users: LruCache::unbounded(), bytes: 0, changes: 0 }), bytes_max }
    }

    /// Each of these, in their order; none in the place of one that is not the user's.
    pub fn of(&self, key: &UserKey, ids: &[MemoryId], read: Read) -> Result<Vec<Option<Arc<Memory>>>> {
        let user = keys::user(key);
        let (mut found, changes_before) = {
            let mut cache = self.lock();
            (cache.known(&user, ids), cache.changes)
        };
        let mut fresh = Vec::new();
        for (place, id) in found.iter_mut().zip(ids).filter(|(place, _)| place.is_none()) {
            *place = read(*id)?.map(Arc::new);
            fresh.extend(place.clone());
        }
        if !fresh.is_empty() {
            let mut cache = self.lock();
            if cache.changes == changes_before {
                cache.keep(user, fresh);
                cache.shrink(self.bytes_max);
            }
        }
        Ok(found)
    }

    /// These records are no longer what they were.
    pub fn forget<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut cache = self.lock();
        cache.changes += 1;
        if !cache.users.is_empty() {
            keys.filter_map(keys::user_and_memory).for_each(|(user, id)| cache.remove(user, id));
        }
    }

    /// A panic elsewhere leaves whole entries, and `bytes` at worst too great.
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn known(&mut self, user: &[u8], ids: &[MemoryId]) -> Vec<Option<Arc<Memory>>> {
        match self.users.get(user) {
            Some(known) => ids.iter().map(|id| known.memories.get(id).cloned()).collect(),
            None => vec![None; ids.len()],
        }
    }

    fn keep(&mut self, user: Vec<u8>, memories: Vec<Arc<Memory>>) {
        let known = self.users.get_or_insert_mut(user, Known::default);
        for memory in memories {
            let bytes = bytes_of(&memory);
            if known.memories.insert(memory.id, memory).is_none() {
                known.bytes += bytes;
                self.bytes += bytes;
            }
        }
    }

    fn remove(&mut self, user: &[u8], id: MemoryId) {
        let Some(known) = self.users.peek_mut(user) else { return };
        let Some(memory) = known.memories.remove(&id) else { return };
        let bytes = bytes_of(&memory);
        known.bytes -= bytes;
        self.bytes -= bytes;
    }

    /// Whoever has more than all may have together is not kept at all.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((_, known)) = self.users.pop_lru() else { return };
            self.bytes -= known.bytes;
        }
    }
}

/// About: what it has on the heap, each piece with what the allocator adds.
fn bytes_of(memory: &Memory) -> usize {
    const PIECE: usize = 16;
    let beside =
        |one: &Neighbour| one.speaker.len() + one.words.len() + one.vector.values.len() + one.source.topic.len() + 4 * PIECE;
    let optional = [&memory.session, &memory.speaker, &memory.event_id].into_iter().flatten();
    let texts = [&memory.content, &memory.reason].into_iter().chain(optional).map(String::len).sum::<usize>();
    let metadata = memory.metadata.iter().map(|(name, value)| name.len() + value.len() + 6 * PIECE).sum::<usize>();
    let history = memory.history.iter().map(|one| one.content.len() + 3 * PIECE).sum::<usize>();
    let links = (memory.supersedes.len() + memory.conflicts_with.len() + memory.covers.len()) * size_of::<MemoryId>();
    let around = memory.around.all().map(beside).sum::<usize>();
    size_of::<Memory>() + memory.source.topic.len() + texts + metadata + history + links + around + 20 * PIECE
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
                let known = cache.users.iter().flat_map(|(_, known)| known.memories.values());
                prop_assert_eq!(cache.bytes, known.map(|memory| bytes_of(memory)).sum::<usize>());
            }
        }
    }

    #[test]
    fn what_is_asked_for_again_is_not_read_again_and_the_user_not_asked_for_goes_first() {
        let recalled = Recalled::new(2 * bytes_of(&told(0, 1, 0)));
        let reads = RefCell::new(Vec::new());
        let ask = |user: usize| {
            let read = |_| {
                reads.borrow_mut().push(user);
                Ok(Some(told(user, 1, 0)))
            };
            recalled.of(&told(user, 1, 0).key, &[id(1)], &read).unwrap();
        };
        [0, 1, 0, 1, 0, 2, 0, 1].into_iter().for_each(ask);
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
            recalled.of(&told(0, 1, 0).key, &[id(1)], &read).unwrap()[0].as_ref().map(|memory| memory.uses)
        };
        let changed = keys::memory(&told(0, 1, 0).key, id(1));
        assert_eq!(ask(0, &|| recalled.forget([&changed[..]].into_iter())), Some(0));
        assert_eq!(ask(1, &|| ()), Some(1));
        assert_eq!(ask(2, &|| ()), Some(1));
    }
}
