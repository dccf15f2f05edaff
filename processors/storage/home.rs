//! Locates the files of each shard: a directory on this machine, or memory for tests, evaluations
//! and the simulator.
//!
//! On disk, a shard has one directory under `store.dir`, named after its topic and partition, with
//! `store` and `index` inside. In memory, the records and the last flush of the index survive a
//! simulated crash, and one owner at a time may open a store, as on disk.

use crate::index::{FlushedIndex, Index, IndexOptions, VectorBlocks};
use crate::store::{self, AfterBatch, Identity, InMemory, OpenedStore, Store, StoreOptions};
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of all shards of one process.
#[derive(Clone, Debug)]
pub enum Home {
    Directory(PathBuf),
    Memory(MemoryHome),
}

/// The files of each shard by the shard's name. Clones share the same files.
#[derive(Clone, Default)]
pub struct MemoryHome {
    shards: Arc<Mutex<BTreeMap<String, MemoryFiles>>>,
    after_batch: AfterBatch,
}

#[derive(Clone, Default)]
struct MemoryFiles {
    records: InMemory,
    index: FlushedIndex,
}

impl std::fmt::Debug for MemoryHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.shards.lock().keys()).finish()
    }
}

impl Home {
    /// Opens or creates the store of one shard. `stamp_ms` becomes a part of the name under which
    /// an unreadable store is moved aside.
    pub fn store(
        &self,
        options: &StoreOptions,
        identity: &Identity,
        stamp_ms: i64,
    ) -> Result<OpenedStore> {
        match self {
            Home::Directory(dir) => {
                Store::open(&shard_dir(dir, identity).join("store"), options, identity, stamp_ms)
            }
            Home::Memory(home) => {
                let records = home.files(identity).records;
                if records.is_open() {
                    let what = format!("another owner has {} open", name(identity));
                    return Err(Fault::stop(StopName::StoreLocked, what));
                }
                Ok(OpenedStore { store: Store::over(records, identity)?, rebuilt: None })
            }
        }
    }

    /// Opens or creates the index of one shard.
    pub fn index(
        &self,
        options: IndexOptions,
        blocks: Arc<VectorBlocks>,
        identity: &Identity,
    ) -> Result<Index> {
        match self {
            Home::Directory(dir) => Index::open(
                &shard_dir(dir, identity).join("index"),
                options,
                blocks,
                &identity.log(),
            ),
            Home::Memory(home) => Ok(Index::in_memory(options, blocks, home.files(identity).index)),
        }
    }

    /// Returns the newest directory to which an unreadable store of the shard was moved.
    pub fn set_aside(&self, identity: &Identity) -> Option<PathBuf> {
        let Home::Directory(dir) = self else { return None };
        store::set_aside_of(&shard_dir(dir, identity).join("store")).pop()
    }

    /// Returns whether the shard has files on disk.
    pub fn has_files(&self, identity: &Identity) -> bool {
        matches!(self, Home::Directory(dir) if shard_dir(dir, identity).exists())
    }

    /// Removes the unreadable stores of the shard that were moved aside up to this time, and
    /// returns their number.
    pub fn remove_set_aside(&self, identity: &Identity, until_ms: i64) -> Result<usize> {
        let Home::Directory(dir) = self else { return Ok(0) };
        let aside = store::set_aside_of(&shard_dir(dir, identity).join("store"));
        let old: Vec<&PathBuf> = aside
            .iter()
            .filter(|aside| store::set_aside_at(aside).is_some_and(|at| at <= until_ms))
            .collect();
        old.iter().try_for_each(|aside| wipe(aside))?;
        Ok(old.len())
    }

    /// Returns the free bytes of the file system on which the shards lie; `None` in memory, or if
    /// the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        match self {
            Home::Directory(dir) => fs4::available_space(dir).ok(),
            Home::Memory(_) => None,
        }
    }

    /// Moves the store of one shard aside and removes its index, and returns the new directory of
    /// the store. In memory both end.
    pub fn move_aside(
        &self,
        identity: &Identity,
        stamp_ms: i64,
        why: &str,
    ) -> Result<Option<PathBuf>> {
        let Home::Directory(dir) = self else {
            self.wipe(identity)?;
            return Ok(None);
        };
        let dir = shard_dir(dir, identity);
        wipe(&dir.join("index"))?;
        store::set_aside(&dir.join("store"), stamp_ms, why).map(Some)
    }

    /// Removes the store and the index of one shard.
    pub fn wipe(&self, identity: &Identity) -> Result<()> {
        match self {
            Home::Directory(dir) => wipe(&shard_dir(dir, identity)),
            Home::Memory(home) => {
                home.shards.lock().remove(&name(identity));
                Ok(())
            }
        }
    }
}

impl MemoryHome {
    /// Calls `call` with the partition after each batch that a store here has applied, before the
    /// index has the batch.
    pub fn with_call(call: impl Fn(i32) + Send + Sync + 'static) -> MemoryHome {
        MemoryHome { after_batch: AfterBatch::calls(Arc::new(call)), ..MemoryHome::default() }
    }

    fn files(&self, identity: &Identity) -> MemoryFiles {
        let mut shards = self.shards.lock();
        let files = shards.entry(name(identity)).or_insert_with(|| MemoryFiles {
            records: InMemory::with_call(self.after_batch.of(identity.partition)),
            index: FlushedIndex::default(),
        });
        files.clone()
    }

    /// Replaces each shard's files by those that a new process would find after a crash: up to
    /// `batches_lost` batches that were not flushed are missing. The crashed process keeps its own
    /// copy and writes there unseen.
    pub fn crash(&self, batches_lost: usize) {
        for files in self.shards.lock().values_mut() {
            files.records = files.records.found_after_crash(batches_lost);
            files.index = files.index.detached();
        }
    }

    /// Lets each shard write so many batches more, until a crash or a restart frees the space.
    pub fn fill_up_after(&self, batches: usize) {
        self.shards.lock().values().for_each(|files| files.records.fill_up_after(batches));
    }

    pub fn clear(&self) {
        self.shards.lock().clear();
    }
}

fn name(identity: &Identity) -> String {
    format!("{}-{}", identity.topic, identity.partition)
}

/// Returns the directory of one shard, below the directory of all shards.
pub fn shard_dir(dir: &Path, identity: &Identity) -> PathBuf {
    dir.join(name(identity))
}

fn wipe(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Fault::stop(
            StopName::StoreUnwritable,
            format!("cannot remove {}: {error}", dir.display()),
        )),
        _ => Ok(()),
    }
}
