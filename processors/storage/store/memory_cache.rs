//! Cache of decoded memories. A recall reads two hundred memories, and the next recall of the same
//! user mostly the same ones. Derived from the records and bounded by bytes: the least recently
//! used memory goes first. No decision is made here.
//!
//! Invariant: a memory that was read before a change is not cached after the change. `changes`
//! counts the batches; `of` compares the count before and after reading, under the lock.

use super::keys;
use crate::byte_lru::ByteLru;
use domain::fault::Result;
use domain::{Kind, Memory, MemoryId, NeighbourTurn, UserKey};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;

/// Reads a memory from the store. Called with no lock held.
pub type ReadMemory<'r> = &'r dyn Fn(MemoryId) -> Result<Option<Memory>>;

pub struct MemoryCache {
    entries: Mutex<CachedMemories>,
}

struct CachedMemories {
    by_id: ByteLru<MemoryId, Memory>,
    /// Words that many memories share: kinds and topics.
    words: HashSet<Arc<str>, RandomState>,
    changes: u64,
}

/// Shared words, at most. Kinds are open words; beyond this many, sharing starts again.
const WORDS_MAX: usize = 1024;

impl MemoryCache {
    pub fn new(bytes_max: usize) -> MemoryCache {
        let by_id = ByteLru::new(bytes_max, bytes_of);
        let words = HashSet::default();
        MemoryCache { entries: Mutex::new(CachedMemories { by_id, words, changes: 0 }) }
    }

    /// Returns each memory, in the order of `ids`; `None` for an id that is not the user's.
    pub fn of(
        &self,
        key: &UserKey,
        ids: &[MemoryId],
        read: ReadMemory,
    ) -> Result<Vec<Option<Arc<Memory>>>> {
        let mut entries = self.entries.lock();
        let changes_before = entries.changes;
        ids.iter().filter_map(|id| entries.by_id.peek(id)).for_each(|memory| load(memory));
        let mut found: Vec<Option<Arc<Memory>>> =
            ids.iter().map(|id| entries.of_user(key, id)).collect();
        drop(entries);
        let mut fresh = Vec::new();
        for (entry, id) in found.iter_mut().zip(ids).filter(|(entry, _)| entry.is_none()) {
            *entry = read(*id)?.map(|memory| Arc::new(self.entries.lock().shared(key, memory)));
            fresh.extend(entry.clone());
        }
        if !fresh.is_empty() {
            let mut entries = self.entries.lock();
            if entries.changes == changes_before {
                fresh.into_iter().for_each(|memory| entries.by_id.put(memory.id, memory));
            }
        }
        Ok(found)
    }

    /// Drops the memories of changed records.
    pub fn forget<'k>(&self, changed: impl Iterator<Item = &'k [u8]>) {
        let mut entries = self.entries.lock();
        entries.changes += 1;
        if !entries.by_id.is_empty() {
            changed.filter_map(keys::id_of_memory).for_each(|id| entries.by_id.remove(&id));
        }
    }
}

impl CachedMemories {
    /// Returns a memory only to the user who owns the memory.
    fn of_user(&mut self, key: &UserKey, id: &MemoryId) -> Option<Arc<Memory>> {
        self.by_id.get(id).filter(|memory| memory.key == *key).cloned()
    }

    /// Makes the memory share its key, kind and topic with others: a recall compares these of two
    /// hundred memories, and would wait for the main memory at each.
    fn shared(&mut self, key: &UserKey, mut memory: Memory) -> Memory {
        if memory.key == *key {
            memory.key = key.clone();
        }
        memory.kind = Kind(self.word(memory.kind.0));
        memory.source.topic = self.word(memory.source.topic);
        memory
    }

    fn word(&mut self, word: Arc<str>) -> Arc<str> {
        if let Some(known) = self.words.get(&word) {
            return known.clone();
        }
        if self.words.len() >= WORDS_MAX {
            self.words.clear();
        }
        self.words.insert(word.clone());
        word
    }
}

/// Loads the fields that a recall reads of a memory into the processor's cache, from which the
/// encoder has just evicted them. In a loop of nothing else, the processor waits for several
/// memories at once. The ranking would wait for each alone, and so would the count of an [`Arc`].
fn load(memory: &Memory) {
    black_box((
        memory.content.as_bytes().last().copied(),
        (memory.kind.0.len(), memory.source.offset, memory.revises.len()),
        (memory.speaker.is_some(), memory.session.is_some(), memory.surprise.is_some()),
        (memory.around.before.is_some(), memory.around.after.is_some()),
        (memory.superseded_by, memory.revised_by, memory.compressed_by),
        (memory.valid_to, memory.expires_at, memory.fresh_at),
        (memory.importance, memory.archived),
    ));
}

/// Overhead of the allocator for one allocation.
const PIECE: usize = 16;

/// Estimates the heap bytes of a memory, with an allocator overhead of `PIECE` for each allocation.
fn bytes_of(memory: &Memory) -> usize {
    let optional = [&memory.session, &memory.speaker, &memory.event_id].into_iter().flatten();
    let texts: usize =
        [&memory.content, &memory.reason].into_iter().chain(optional).map(String::len).sum();
    let metadata = memory.metadata.iter();
    let metadata: usize = metadata.map(|(name, value)| name.len() + value.len() + 6 * PIECE).sum();
    let history: usize = memory.history.iter().map(|one| one.content.len() + 3 * PIECE).sum();
    let links = memory.supersedes.len()
        + memory.revises.len()
        + memory.conflicts_with.len()
        + memory.covers.len();
    let sources = memory.sources.iter().map(|source| source.topic.len() + 3 * PIECE);
    let around: usize = memory.around.all().map(bytes_of_neighbour).sum();
    size_of::<Memory>()
        + memory.source.topic.len()
        + sources.sum::<usize>()
        + texts
        + metadata
        + history
        + links * size_of::<MemoryId>()
        + around
        + 20 * PIECE
}

fn bytes_of_neighbour(neighbour: &NeighbourTurn) -> usize {
    neighbour.speaker.len()
        + neighbour.words.len()
        + neighbour.vector.values.len()
        + neighbour.source.topic.len()
        + 4 * PIECE
}

#[cfg(test)]
mod tests {
    use super::super::tests::{a_memory, key};
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    fn memory_of(user: usize, n: usize, uses: u32) -> Memory {
        Memory { key: key(&format!("user {user}")), uses, ..a_memory(n as i64, "tea") }
    }

    fn id(n: usize) -> MemoryId {
        memory_of(0, n, 0).id
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Different users have memories with the same id here, which never happens in a shard.
        #[test]
        fn the_cache_returns_what_the_records_hold(
            steps in prop::collection::vec(
                (0..3usize, 0..8usize, prop::option::weighted(0.7, 0..5u32)),
                1..60,
            ),
            bytes_max in prop::sample::select(vec![0, 2_500, 8_000, 1_000_000]),
        ) {
            let cache = MemoryCache::new(bytes_max);
            let mut records = BTreeMap::new();
            for (user, n, uses) in steps {
                match uses {
                    Some(uses) => drop(records.insert((user, id(n)), memory_of(user, n, uses))),
                    None => drop(records.remove(&(user, id(n)))),
                }
                let changed = keys::memory(&memory_of(user, n, 0).key, id(n));
                cache.forget([&changed[..]].into_iter());
                for user in 0..3 {
                    let ids: Vec<_> = (0..8).map(id).collect();
                    let found = cache
                        .of(&memory_of(user, 0, 0).key, &ids, &|id| {
                            Ok(records.get(&(user, id)).cloned())
                        })
                        .unwrap();
                    let expected: Vec<_> = ids
                        .iter()
                        .map(|id| records.get(&(user, *id)).cloned().map(Arc::new))
                        .collect();
                    prop_assert_eq!(found, expected);
                }
                let entries = cache.entries.lock();
                prop_assert!(entries.by_id.bytes() <= bytes_max);
                let bytes: usize = entries.by_id.iter().map(|(_, memory)| bytes_of(memory)).sum();
                prop_assert_eq!(entries.by_id.bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_cached_memory_is_not_read_again_and_the_least_recent_goes_first() {
        let cache = MemoryCache::new(2 * bytes_of(&memory_of(0, 0, 0)));
        let reads = RefCell::new(Vec::new());
        for n in [0, 1, 0, 1, 0, 2, 0, 1] {
            cache
                .of(&memory_of(0, n, 0).key, &[id(n)], &|asked| {
                    let n = (0..3).find(|n| id(*n) == asked);
                    reads.borrow_mut().extend(n);
                    Ok(n.map(|n| memory_of(0, n, 0)))
                })
                .unwrap();
        }
        assert_eq!(*reads.borrow(), [0, 1, 2, 1]);
    }

    #[test]
    fn memories_share_their_kind_and_topic_and_the_shared_words_are_bounded() {
        let cache = MemoryCache::new(1_000_000);
        let of_kind = |n: usize, kind: String| {
            let memory = Memory { kind: Kind::new(&kind), ..memory_of(0, n, 0) };
            let found = cache.of(&memory_of(0, 0, 0).key, &[id(n)], &|_| Ok(Some(memory.clone())));
            found.unwrap()[0].clone().expect("it is read")
        };
        let [one, other] = [1, 2].map(|n| of_kind(n, "fact".into()));
        assert!(Arc::ptr_eq(&one.kind.0, &other.kind.0), "kind");
        assert!(Arc::ptr_eq(&one.source.topic, &other.source.topic), "topic");
        for n in 3..3 + WORDS_MAX {
            of_kind(n, format!("kind {n}"));
            assert!(cache.entries.lock().words.len() <= WORDS_MAX);
        }
    }

    #[test]
    fn a_memory_read_before_a_change_is_not_cached_after_the_change() {
        let cache = MemoryCache::new(1_000_000);
        fn ask(cache: &MemoryCache, uses: u32, meanwhile: &dyn Fn()) -> Option<u32> {
            let found = cache.of(&memory_of(0, 1, 0).key, &[id(1)], &|_| {
                let read = Ok(Some(memory_of(0, 1, uses)));
                meanwhile();
                read
            });
            found.unwrap()[0].as_ref().map(|memory| memory.uses)
        }
        let changed = keys::memory(&memory_of(0, 1, 0).key, id(1));
        assert_eq!(ask(&cache, 0, &|| cache.forget([&changed[..]].into_iter())), Some(0));
        assert_eq!(ask(&cache, 1, &|| ()), Some(1));
        assert_eq!(ask(&cache, 2, &|| ()), Some(1));
    }
}
