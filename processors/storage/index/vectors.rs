//! Searches a user's vectors exactly. The vectors come from a cache that all shards of the process
//! share; the store holds all of them. Ranking is not done here.
//!
//! ```text
//! VectorBlocks (one for each process, bytes_max)
//!   LRU: (shard, user) ──> Arc<Block>          evicts the least recently used user
//! Vectors (one for each shard)
//!   changes: Mutex<u64>                         counts the changes of the shard
//! ```
//!
//! 1. A search takes the user's [`Block`] from the cache; on a miss it is read from the user's file
//!    (`vector_files.rs`), or `load` reads the vectors from the store, with no lock held.
//! 2. Order matters: `changes` is read before the load and compared after. If the shard changed
//!    meanwhile, the loaded block may be stale: this search uses the block, and neither cache nor
//!    file keeps the block.
//! 3. `put` and `remove` change a cached block in place, or a copy if a search is reading the
//!    block, and the file. A block that is not cached needs no change, because the next miss reads
//!    file or store. A change holds `changes` until both are done, and so does whoever keeps what
//!    was loaded.
//! 4. `Unseen` overlays the changes of a batch that is not committed yet.
//!

use super::block::{Block, Sum};
use super::top_k::{TopK, highest};
use super::vector_files::{VectorFiles, WrittenFile};
use crate::byte_lru::ByteLru;
use domain::fault::Result;
use domain::{MemoryId, UserKey, Vector};
use kernel::reads::StagedVectors;
use parking_lot::{Mutex, MutexGuard};
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a user's vectors from the store. Called at most once, and with no lock held.
pub type Load<'l> = dyn FnMut() -> Result<Vec<(MemoryId, Vector)>> + 'l;

/// The vectors of one shard.
pub struct Vectors {
    blocks: Arc<VectorBlocks>,
    /// Unique among all shards that ever shared the cache.
    shard: u64,
    /// Counts changes, so that a block read before a change is not cached after the change.
    changes: Mutex<u64>,
    files: VectorFiles,
}

/// The vector cache that all shards of a process share: a user with many vectors needs more than an
/// even share of each shard.
pub struct VectorBlocks {
    cache: Mutex<BlockCache>,
    bytes_max: usize,
    shards: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    pub hits: u64,
    pub misses: u64,
    pub bytes: usize,
}

/// Every shard has its own part of a tenant's shared memories, so the shard belongs to the key.
type BlockKey = (u64, UserKey);

struct BlockCache {
    blocks: ByteLru<BlockKey, Block>,
    hits: u64,
    misses: u64,
}

/// The cosines of a user's vectors to a query. Limit: holds the block, of which a change meanwhile
/// makes a copy.
pub struct Compared {
    block: Arc<Block>,
    query: Vector,
    /// By row, once somebody asks for the nearest; empty for a query of another width.
    cosines: OnceCell<Vec<f32>>,
}

impl Compared {
    /// Returns the ids of the nearest vectors, in no order; among equal cosines the smaller ids.
    pub fn nearest(&self, limit: usize) -> Vec<MemoryId> {
        highest(self.all().map(|(id, cosine)| (*id, cosine)), self.count(), limit)
    }

    fn all(&self) -> impl Iterator<Item = (&MemoryId, f32)> + Clone {
        let cosines = self.cosines.get_or_init(|| self.block.cosines(&self.query));
        self.block.ids().iter().zip(cosines.iter().copied())
    }

    /// The number of the user's vectors.
    pub fn count(&self) -> usize {
        self.block.ids().len()
    }

    /// The row of an id; `None` for an id without a vector or of another user.
    pub fn row(&self, id: MemoryId) -> Option<usize> {
        self.block.row(id)
    }

    /// The cosine to the query; 0 without a row.
    pub fn cosine(&self, row: Option<usize>) -> f32 {
        match self.cosines.get() {
            Some(cosines) => row.and_then(|row| cosines.get(row).copied()).unwrap_or_default(),
            None => self.cosine_to(row, &self.query),
        }
    }

    /// The cosine to another vector than the query; 0 without a row.
    pub fn cosine_to(&self, row: Option<usize>, other: &Vector) -> f32 {
        row.and_then(|row| self.block.cosine(row, other)).unwrap_or_default()
    }
}

impl VectorBlocks {
    pub fn new(bytes_max: usize) -> Arc<VectorBlocks> {
        let blocks = ByteLru::new(bytes_max, Block::bytes);
        let cache = BlockCache { blocks, hits: 0, misses: 0 };
        Arc::new(VectorBlocks { cache: Mutex::new(cache), bytes_max, shards: AtomicU64::new(0) })
    }

    pub fn counts(&self) -> CacheCounts {
        let BlockCache { blocks, hits, misses } = &*self.cache.lock();
        CacheCounts { hits: *hits, misses: *misses, bytes: blocks.bytes() }
    }
}

impl fmt::Debug for VectorBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VectorBlocks({} bytes)", self.bytes_max)
    }
}

impl Vectors {
    pub fn new(blocks: Arc<VectorBlocks>, files: VectorFiles) -> Vectors {
        let shard = blocks.shards.fetch_add(1, Ordering::Relaxed);
        Vectors { blocks, shard, changes: Mutex::new(0), files }
    }

    /// The user's nearest vectors by cosine, nearest first; among equal cosines the smaller id
    /// comes first.
    pub fn nearest(
        &self,
        key: &UserKey,
        load: &mut Load,
        query: &Vector,
        limit: usize,
        staged: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let mut best = TopK::new(limit);
        for (id, cosine) in self.compared(key, load, query)?.all() {
            // The cheap comparison first, which rejects most vectors.
            if best.may_take(cosine) && !staged.contains_key(id) {
                best.offer(id, cosine);
            }
        }
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

    /// Compares the user's vectors with the query, each when it is asked for.
    pub fn compared(&self, key: &UserKey, load: &mut Load, query: &Vector) -> Result<Compared> {
        let block = self.block(key, load)?;
        Ok(Compared { block, query: query.clone(), cosines: OnceCell::new() })
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

    /// Changes the user's file and block, if there are any; otherwise the next search finds the
    /// vector in the store. An empty vector counts as no vector.
    pub fn put(&self, key: &UserKey, id: MemoryId, vector: &Vector) {
        let _changing = self.begin_change();
        self.files.add(key, id, vector);
        self.change(key, |block| block.put(id, vector));
    }

    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        let _changing = self.begin_change();
        self.files.remove(key);
        self.change(key, |block| block.remove(id));
    }

    /// Drops the user's block and file; the next search reads the vectors that the store still has.
    pub fn forget(&self, key: &UserKey) {
        let _changing = self.begin_change();
        self.files.remove(key);
        self.blocks.cache.lock().blocks.remove(&self.block_key(key));
    }

    /// Removes the files of all users, which may hold vectors that were replaced.
    pub fn remove_files(&self) {
        let _changing = self.begin_change();
        self.files.clear();
    }

    fn block_key(&self, key: &UserKey) -> BlockKey {
        (self.shard, key.clone())
    }

    fn block(&self, key: &UserKey, load: &mut Load) -> Result<Arc<Block>> {
        let block_key = self.block_key(key);
        {
            let mut cache = self.blocks.cache.lock();
            if let Some(block) = cache.blocks.get(&block_key).cloned() {
                cache.hits += 1;
                return Ok(block);
            }
            cache.misses += 1;
        }
        let changes_before = *self.changes.lock();
        let (block, is_to_be_written) = match self.files.read(key) {
            Some(found) => found,
            None => (Block::of(load()?), true),
        };
        let block = Arc::new(block);
        let file = is_to_be_written.then(|| self.files.write(key, &block)).flatten();
        let changes = self.changes.lock();
        if *changes == changes_before {
            file.into_iter().for_each(WrittenFile::keep);
            self.blocks.cache.lock().blocks.put(block_key, Arc::clone(&block));
        }
        Ok(block)
    }

    /// Limit: all shards wait while a large block is copied, tens of milliseconds.
    fn change(&self, key: &UserKey, change: impl FnOnce(&mut Block)) {
        let block_key = self.block_key(key);
        // Copies a block that a scan is reading, so that neither waits for the other.
        let mut cache = self.blocks.cache.lock();
        cache.blocks.change(&block_key, |block| change(Arc::make_mut(block)));
    }

    /// Counts a change, which ends with the returned value. Nothing loaded before is kept.
    fn begin_change(&self) -> MutexGuard<'_, u64> {
        let mut changes = self.changes.lock();
        *changes += 1;
        changes
    }
}

impl Drop for Vectors {
    /// Drops the blocks of a shard that this process no longer owns.
    fn drop(&mut self) {
        let mut cache = self.blocks.cache.lock();
        let gone: Vec<BlockKey> = cache
            .blocks
            .iter()
            .map(|(block_key, _)| block_key)
            .filter(|(shard, _)| *shard == self.shard)
            .cloned()
            .collect();
        gone.iter().for_each(|block_key| cache.blocks.remove(block_key));
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{id, vector};
    use super::super::vector_files::tests::any_number;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Vectors {
        fn alone(blocks: Arc<VectorBlocks>) -> Vectors {
            Vectors::new(blocks, VectorFiles::none())
        }
    }

    fn user(n: usize) -> UserKey {
        UserKey::new("acme", &format!("user {n}")).unwrap()
    }

    type StoredVectors = BTreeMap<MemoryId, Vector>;

    fn change(store: &mut StoredVectors, (memory, seed): &(usize, Option<usize>)) {
        match seed {
            Some(seed) => drop(store.insert(id(*memory), vector(*seed))),
            None => drop(store.remove(&id(*memory))),
        }
    }

    fn load(store: &StoredVectors) -> Result<Vec<(MemoryId, Vector)>> {
        Ok(store.iter().map(|(id, vector)| (*id, vector.clone())).collect())
    }

    fn bytes_of(store: &StoredVectors) -> usize {
        Block::of(load(store).unwrap()).bytes()
    }

    fn check(vectors: &Vectors, key: &UserKey, store: &StoredVectors) {
        let query = vector(999);
        let mut expected: Vec<_> =
            store.iter().map(|(id, vector)| (*id, vector.cosine(&query))).collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let compared = vectors.compared(key, &mut || load(store), &query).unwrap();
        let another = vector(998);
        for (id, cosine) in expected.iter().copied().chain([(id(12345), 0.0)]) {
            let row = compared.row(id);
            assert_eq!((row.is_some(), compared.cosine(row)), (store.contains_key(&id), cosine));
            let to_another = store.get(&id).map_or(0.0, |vector| vector.cosine(&another));
            assert_eq!(compared.cosine_to(row, &another), to_another);
        }
        for limit in [0, 3, 100] {
            let near = vectors
                .nearest(key, &mut || load(store), &query, limit, &StagedVectors::new())
                .unwrap();
            assert_eq!(near, expected[..limit.min(expected.len())]);
            let mut ids: Vec<_> = near.iter().map(|(id, _)| *id).collect();
            let mut unordered = compared.nearest(limit);
            ids.sort_unstable();
            unordered.sort_unstable();
            assert_eq!(unordered, ids);
        }
        assert!(vectors.blocks.counts().bytes <= vectors.blocks.bytes_max);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_nearest_equal_a_plain_scan_of_the_store(
            steps in prop::collection::vec(
                (0..4usize, 0..10usize, prop::option::weighted(0.7, 0..50usize)),
                1..60,
            ),
            bytes_max in prop::sample::select(vec![0, 600, 2_000, 1_000_000]),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let vectors = Vectors::new(VectorBlocks::new(bytes_max), any_number(dir.path()));
            let mut stores = vec![StoredVectors::new(); 4];
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

        /// The shard has the first changes and lacks the rest.
        #[test]
        fn uncommitted_changes_count_as_if_the_shard_had_them(
            steps in prop::collection::vec(
                (0..12usize, prop::option::weighted(0.7, 0..50usize)),
                1..60,
            ),
            seen in 0..60usize,
        ) {
            let vectors = Vectors::alone(VectorBlocks::new(1_000_000));
            let key = user(0);
            let mut store = StoredVectors::new();
            let mut staged = StagedVectors::new();
            let (before, after) = steps.split_at(seen.min(steps.len()));
            before.iter().for_each(|step| change(&mut store, step));
            let mut load_seen = { let seen = store.clone(); move || load(&seen) };
            for step in after {
                change(&mut store, step);
                match step {
                    (memory, Some(seed)) => staged.insert(id(*memory), Some(vector(*seed))),
                    (memory, None) => staged.insert(id(*memory), None),
                };
            }
            let all = Vectors::alone(VectorBlocks::new(1_000_000));
            for limit in [0, 3, 100] {
                let query = vector(999);
                let near = vectors.nearest(&key, &mut load_seen, &query, limit, &staged).unwrap();
                let mut load_all = || load(&store);
                let expected = all
                    .nearest(&key, &mut load_all, &query, limit, &StagedVectors::new())
                    .unwrap();
                prop_assert_eq!(near, expected);
            }
            let sum = vectors.sum(&key, &mut load_seen, &staged).unwrap();
            prop_assert_eq!(sum, all.sum(&key, &mut || load(&store), &StagedVectors::new()).unwrap());
        }
    }

    #[test]
    fn what_was_read_before_a_change_is_kept_neither_in_the_cache_nor_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let vectors = Vectors::new(VectorBlocks::new(1_000_000), any_number(dir.path()));
        let key = user(0);
        let mut store = StoredVectors::from([(id(1), vector(1))]);
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
    fn a_cached_user_is_not_read_again_and_the_least_recent_goes_first() {
        let store: StoredVectors = (0..50).map(|n| (id(n), vector(n))).collect();
        let one = bytes_of(&store);
        let vectors = Vectors::alone(VectorBlocks::new(2 * one));
        for n in [0, 1, 0, 2] {
            check(&vectors, &user(n), &store);
        }
        let before = vectors.blocks.counts();
        assert_eq!((before.misses, before.bytes), (3, 2 * one));
        check(&vectors, &user(0), &store);
        assert_eq!(vectors.blocks.counts().misses, 3);
        check(&vectors, &user(1), &store);
        assert_eq!(vectors.blocks.counts().misses, 4);
        vectors.forget(&user(1));
        assert_eq!(vectors.blocks.counts().bytes, one);
    }

    #[test]
    fn shards_share_a_cache_and_neither_sees_the_others_block_of_the_same_user() {
        let stores: Vec<StoredVectors> =
            (0..2).map(|n| (0..50).map(|m| (id(m), vector(n + m))).collect()).collect();
        let one = bytes_of(&stores[0]);
        let blocks = VectorBlocks::new(2 * one);
        let mut shards: Vec<Vectors> =
            (0..2).map(|_| Vectors::alone(Arc::clone(&blocks))).collect();
        for _ in 0..2 {
            shards.iter().zip(&stores).for_each(|(vectors, store)| check(vectors, &user(0), store));
        }
        assert_eq!((blocks.counts().misses, blocks.counts().bytes), (2, 2 * one));
        // The shard that searches most gets most of the cache.
        check(&shards[0], &user(1), &stores[0]);
        check(&shards[0], &user(0), &stores[0]);
        assert_eq!((blocks.counts().misses, blocks.counts().bytes), (4, 2 * one));
        shards.remove(0);
        assert_eq!(blocks.counts().bytes, 0);
    }

    #[test]
    fn a_user_who_outgrows_the_cache_does_not_evict_the_others() {
        let mut many: StoredVectors = (0..50).map(|n| (id(n), vector(n))).collect();
        let few = StoredVectors::from([(id(0), vector(0))]);
        let vectors = Vectors::alone(VectorBlocks::new(bytes_of(&many) + bytes_of(&few)));
        check(&vectors, &user(1), &few);
        check(&vectors, &user(0), &many);
        assert_eq!(vectors.blocks.counts().bytes, bytes_of(&many) + bytes_of(&few));
        for n in 50..100 {
            many.insert(id(n), vector(n));
            vectors.put(&user(0), id(n), &vector(n));
        }
        let misses = vectors.blocks.counts().misses;
        check(&vectors, &user(1), &few);
        assert_eq!(
            (vectors.blocks.counts().misses, vectors.blocks.counts().bytes),
            (misses, bytes_of(&few))
        );
        check(&vectors, &user(0), &many);
    }

    #[test]
    fn a_vector_of_another_width_has_no_neighbours() {
        let vectors = Vectors::alone(VectorBlocks::new(1_000_000));
        let store = StoredVectors::from([(id(1), vector(1))]);
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
