//! The vectors of the users asked for last, each user's in a block, in a room that all shards share. The store has them all; which memories
//! are worth comparing is not known here.

use super::Best;
use super::block::{Block, Sum};
use crate::domain::{MemoryId, UserKey, Vector};
use crate::fault::Result;
use crate::memory::reads::StagedVectors;
use lru::LruCache;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads a user's vectors from the store. Called at most once, and with no lock held.
pub type Load<'l> = dyn FnMut() -> Result<Vec<(MemoryId, Vector)>> + 'l;

/// Those of one shard.
pub struct Vectors {
    room: Arc<Room>,
    /// Of all that ever shared the room.
    shard: u64,
    /// Goes up with every change, so that a block read from the store before one is not kept after it.
    changes: AtomicU64,
}

/// Where all shards of a process keep them: a user who has many needs more than an even share.
pub struct Room {
    cache: Mutex<Cache>,
    bytes_max: usize,
    shards: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub hits: u64,
    pub misses: u64,
    pub bytes: usize,
}

/// What all users of a tenant see, every shard has its own part of.
type Whose = (u64, UserKey);

struct Cache {
    blocks: LruCache<Whose, Arc<Block>>,
    counts: Counts,
}

impl Room {
    pub fn new(bytes_max: usize) -> Arc<Room> {
        let cache = Cache { blocks: LruCache::unbounded(), counts: Counts::default() };
        Arc::new(Room { cache: Mutex::new(cache), bytes_max, shards: AtomicU64::new(0) })
    }

    pub fn counts(&self) -> Counts {
        self.cache().counts
    }

    /// A panic under the lock can at worst leave a block that lacks its last change: all are dropped, and read again.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(|poisoned: PoisonError<MutexGuard<'_, Cache>>| {
            let mut cache = poisoned.into_inner();
            cache.blocks.clear();
            cache.counts.bytes = 0;
            self.cache.clear_poison();
            cache
        })
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} bytes)", self.bytes_max)
    }
}

impl Vectors {
    pub fn new(room: Arc<Room>) -> Vectors {
        let shard = room.shards.fetch_add(1, Ordering::Relaxed);
        Vectors { room, shard, changes: AtomicU64::new(0) }
    }

    /// The user's nearest vectors by cosine, nearest first; of equals the one with the smaller id.
    pub fn nearest(
        &self,
        key: &UserKey,
        load: &mut Load,
        query: &Vector,
        limit: usize,
        staged: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let (block, mut best) = (self.block(key, load)?, Best::of(limit));
        block.each_cosine(query, |id, cosine| {
            // Most are too far away to be worth the second question.
            if best.may_take(cosine) && !staged.contains_key(id) {
                best.offer(id, cosine);
            }
        });
        for (id, vector) in staged {
            // A vector of another width came from another model and compares with nothing.
            let comparable = vector
                .as_ref()
                .filter(|vector| !vector.is_empty() && vector.values.len() == query.values.len());
            if let Some(vector) = comparable {
                best.offer(id, vector.cosine(query));
            }
        }
        Ok(best.sorted())
    }

    /// The cosine of each of these, 0 for one that has no vector or is not this user's.
    pub fn cosines(
        &self,
        key: &UserKey,
        load: &mut Load,
        query: &Vector,
        ids: &[MemoryId],
    ) -> Result<Vec<f32>> {
        let block = self.block(key, load)?;
        Ok(ids.iter().map(|id| block.cosine(*id, query).unwrap_or_default()).collect())
    }

    /// The sum of the user's vectors.
    pub fn sum(&self, key: &UserKey, load: &mut Load, staged: &StagedVectors) -> Result<Sum> {
        let mut sum = Sum::default();
        self.block(key, load)?.add_to(&mut sum, |id| !staged.contains_key(id));
        for vector in staged.values().flatten() {
            sum.add(&vector.values, vector.scale);
        }
        Ok(sum)
    }

    /// Only a block that is loaded takes it: the others find it in the store. An empty vector is none.
    pub fn put(&self, key: &UserKey, id: MemoryId, vector: &Vector) {
        self.change(key, |block| block.put(id, vector));
    }

    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.change(key, |block| block.remove(id));
    }

    /// Drops the user's block. What the store still has is read again when asked for.
    pub fn forget(&self, key: &UserKey) {
        let mut cache = self.changed();
        cache.drop_block(&self.whose(key));
    }

    fn whose(&self, key: &UserKey) -> Whose {
        (self.shard, key.clone())
    }

    fn block(&self, key: &UserKey, load: &mut Load) -> Result<Arc<Block>> {
        let whose = self.whose(key);
        let changes_before = {
            let mut cache = self.room.cache();
            if let Some(block) = cache.hit(&whose) {
                return Ok(block);
            }
            cache.counts.misses += 1;
            self.changes.load(Ordering::Relaxed)
        };
        let block = Arc::new(Block::of(load()?));
        let mut cache = self.room.cache();
        if self.changes.load(Ordering::Relaxed) == changes_before {
            cache.keep(whose, Arc::clone(&block), self.room.bytes_max);
        }
        Ok(block)
    }

    /// Limit: all shards wait while a large block is copied, tens of milliseconds.
    fn change(&self, key: &UserKey, change: impl FnOnce(&mut Block)) {
        let (mut cache, whose) = (self.changed(), self.whose(key));
        let Some(block) = cache.blocks.peek_mut(&whose) else { return };
        let bytes_before = block.bytes();
        // Copies the block if a scan is reading it, so that neither waits for the other.
        change(Arc::make_mut(block));
        let bytes_after = block.bytes();
        cache.counts.bytes = cache.counts.bytes - bytes_before + bytes_after;
        if bytes_after > self.room.bytes_max {
            cache.drop_block(&whose);
        } else {
            cache.shrink(self.room.bytes_max);
        }
    }

    /// Counted under the lock, as it is read.
    fn changed(&self) -> MutexGuard<'_, Cache> {
        let cache = self.room.cache();
        self.changes.fetch_add(1, Ordering::Relaxed);
        cache
    }
}

impl Drop for Vectors {
    /// Its shard is somebody else's now, and the room is for those that are ours.
    fn drop(&mut self) {
        let mut cache = self.room.cache();
        let gone: Vec<Whose> = cache
            .blocks
            .iter()
            .map(|(whose, _)| whose)
            .filter(|(shard, _)| *shard == self.shard)
            .cloned()
            .collect();
        gone.iter().for_each(|whose| cache.drop_block(whose));
    }
}

impl Cache {
    fn hit(&mut self, whose: &Whose) -> Option<Arc<Block>> {
        let block = Arc::clone(self.blocks.get(whose)?);
        self.counts.hits += 1;
        Some(block)
    }

    /// One that is over the limit alone is not kept: it would push all others out and then itself.
    fn keep(&mut self, whose: Whose, block: Arc<Block>, bytes_max: usize) {
        if block.bytes() > bytes_max {
            return;
        }
        self.drop_block(&whose);
        self.counts.bytes += block.bytes();
        self.blocks.put(whose, block);
        self.shrink(bytes_max);
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.counts.bytes > bytes_max {
            let Some((_, block)) = self.blocks.pop_lru() else { return };
            self.counts.bytes -= block.bytes();
        }
    }

    fn drop_block(&mut self, whose: &Whose) {
        if let Some(block) = self.blocks.pop(whose) {
            self.counts.bytes -= block.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{id, vector};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn user(n: usize) -> UserKey {
        UserKey::new("acme", &format!("user {n}")).unwrap()
    }

    type Store = BTreeMap<MemoryId, Vector>;

    fn load(store: &Store) -> Result<Vec<(MemoryId, Vector)>> {
        Ok(store.iter().map(|(id, vector)| (*id, vector.clone())).collect())
    }

    fn check(vectors: &Vectors, key: &UserKey, store: &Store) {
        let query = vector(999);
        let mut expected: Vec<_> =
            store.iter().map(|(id, vector)| (*id, vector.cosine(&query))).collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let ids: Vec<_> = expected.iter().map(|(id, _)| *id).chain([id(12345)]).collect();
        let cosines: Vec<_> = expected.iter().map(|(_, cosine)| *cosine).chain([0.0]).collect();
        assert_eq!(vectors.cosines(key, &mut || load(store), &query, &ids).unwrap(), cosines);
        for limit in [0, 3, 100] {
            let near = vectors
                .nearest(key, &mut || load(store), &query, limit, &StagedVectors::new())
                .unwrap();
            assert_eq!(near, expected[..limit.min(expected.len())]);
        }
        assert!(vectors.room.counts().bytes <= vectors.room.bytes_max);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_nearest_are_those_of_a_plain_scan_of_the_store(
            steps in prop::collection::vec((0..4usize, 0..10usize, prop::option::weighted(0.7, 0..50usize)), 1..60),
            bytes_max in prop::sample::select(vec![0, 600, 2_000, 1_000_000]),
        ) {
            let vectors = Vectors::new(Room::new(bytes_max));
            let mut stores = vec![Store::new(); 4];
            for (n, memory, seed) in steps {
                let (key, store) = (user(n), &mut stores[n]);
                match seed {
                    Some(seed) => {
                        store.insert(id(memory), vector(seed));
                        vectors.put(&key, id(memory), &vector(seed));
                    }
                    None => {
                        store.remove(&id(memory));
                        vectors.remove(&key, id(memory));
                    }
                }
                check(&vectors, &key, store);
            }
        }

        /// Some changes the shard has, the rest not yet.
        #[test]
        fn what_the_shard_does_not_have_yet_counts_as_if_it_had_it(
            steps in prop::collection::vec((0..12usize, prop::option::weighted(0.7, 0..50usize)), 1..60),
            seen in 0..60usize,
        ) {
            let (vectors, key, mut store, mut staged) = (Vectors::new(Room::new(1_000_000)), user(0), Store::new(), StagedVectors::new());
            let (before, after) = steps.split_at(seen.min(steps.len()));
            let change = |store: &mut Store, (memory, seed): &(usize, Option<usize>)| match seed {
                Some(seed) => drop(store.insert(id(*memory), vector(*seed))),
                None => drop(store.remove(&id(*memory))),
            };
            before.iter().for_each(|step| change(&mut store, step));
            let mut load_seen = { let seen = store.clone(); move || load(&seen) };
            for step in after {
                change(&mut store, step);
                match step {
                    (memory, Some(seed)) => staged.insert(id(*memory), Some(vector(*seed))),
                    (memory, None) => staged.insert(id(*memory), None),
                };
            }
            let all = Vectors::new(Room::new(1_000_000));
            for limit in [0, 3, 100] {
                let near = vectors.nearest(&key, &mut load_seen, &vector(999), limit, &staged).unwrap();
                prop_assert_eq!(near, all.nearest(&key, &mut || load(&store), &vector(999), limit, &StagedVectors::new()).unwrap());
            }
            let sum = vectors.sum(&key, &mut load_seen, &staged).unwrap();
            prop_assert_eq!(sum, all.sum(&key, &mut || load(&store), &StagedVectors::new()).unwrap());
        }
    }

    #[test]
    fn a_block_read_before_a_change_is_not_kept_after_it() {
        let vectors = Vectors::new(Room::new(1_000_000));
        let (key, mut store) = (user(0), Store::from([(id(1), vector(1))]));
        let mut read_then_overtaken = || {
            let read = load(&store);
            vectors.put(&key, id(2), &vector(2));
            read
        };
        assert_eq!(
            vectors
                .nearest(&key, &mut read_then_overtaken, &vector(0), 9, &StagedVectors::new())
                .unwrap()
                .len(),
            1
        );
        store.insert(id(2), vector(2));
        check(&vectors, &key, &store);
    }

    #[test]
    fn a_user_asked_for_again_is_not_read_again_and_the_one_not_asked_for_goes_first() {
        let store: Store = (0..50).map(|n| (id(n), vector(n))).collect();
        let one = Block::of(load(&store).unwrap()).bytes();
        let vectors = Vectors::new(Room::new(2 * one));
        let ask = |n| check(&vectors, &user(n), &store);
        ask(0);
        ask(1);
        ask(0);
        ask(2);
        let before = vectors.room.counts();
        assert_eq!((before.misses, before.bytes), (3, 2 * one));
        ask(0);
        assert_eq!(vectors.room.counts().misses, 3);
        ask(1);
        assert_eq!(vectors.room.counts().misses, 4);
        vectors.forget(&user(1));
        assert_eq!(vectors.room.counts().bytes, one);
    }

    #[test]
    fn shards_share_a_room_and_neither_sees_what_the_other_has_of_the_same_user() {
        let stores: Vec<Store> =
            (0..2).map(|n| (0..50).map(|m| (id(m), vector(n + m))).collect()).collect();
        let one = Block::of(load(&stores[0]).unwrap()).bytes();
        let room = Room::new(2 * one);
        let mut shards: Vec<Vectors> = (0..2).map(|_| Vectors::new(Arc::clone(&room))).collect();
        for _ in 0..2 {
            shards.iter().zip(&stores).for_each(|(vectors, store)| check(vectors, &user(0), store));
        }
        assert_eq!((room.counts().misses, room.counts().bytes), (2, 2 * one));
        // Who asks most has most of it.
        check(&shards[0], &user(1), &stores[0]);
        check(&shards[0], &user(0), &stores[0]);
        assert_eq!((room.counts().misses, room.counts().bytes), (4, 2 * one));
        shards.remove(0);
        assert_eq!(room.counts().bytes, 0);
    }

    #[test]
    fn a_user_who_outgrows_the_room_leaves_the_others_in_it() {
        let (mut many, few): (Store, Store) =
            ((0..50).map(|n| (id(n), vector(n))).collect(), Store::from([(id(0), vector(0))]));
        let bytes = |store: &Store| Block::of(load(store).unwrap()).bytes();
        let vectors = Vectors::new(Room::new(bytes(&many) + bytes(&few)));
        check(&vectors, &user(1), &few);
        check(&vectors, &user(0), &many);
        assert_eq!(vectors.room.counts().bytes, bytes(&many) + bytes(&few));
        for n in 50..100 {
            many.insert(id(n), vector(n));
            vectors.put(&user(0), id(n), &vector(n));
        }
        let misses = vectors.room.counts().misses;
        check(&vectors, &user(1), &few);
        assert_eq!(
            (vectors.room.counts().misses, vectors.room.counts().bytes),
            (misses, bytes(&few))
        );
        check(&vectors, &user(0), &many);
    }

    #[test]
    fn a_vector_of_another_width_is_near_nothing() {
        let vectors = Vectors::new(Room::new(1_000_000));
        let store = Store::from([(id(1), vector(1))]);
        check(&vectors, &user(0), &store);
        vectors.put(&user(0), id(2), &Vector::of(&[1.0, 0.0]));
        vectors.put(&user(0), id(3), &Vector::default());
        check(&vectors, &user(0), &store);
        let near = vectors
            .nearest(
                &user(0),
                &mut || load(&store),
                &Vector::of(&[1.0, 0.0]),
                9,
                &StagedVectors::new(),
            )
            .unwrap();
        assert_eq!(near, []);
    }
}
