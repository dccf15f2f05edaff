//! Where shards live: in a directory of this machine, or in memory that outlives the process it simulates. Knows nothing of what is in them.

use crate::fault::{Fault, Result, StopName};
use crate::stages::index::{self, Index, Room};
use crate::stages::store::{self, Identity, InMemory, Opened, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of all shards of one process.
#[derive(Clone, Debug)]
pub enum Home {
    Directory(PathBuf),
    Memory(MemoryHome),
}

/// The records of each shard, by its name. What is derived from them is not kept. Clones are the same home.
#[derive(Clone, Debug, Default)]
pub struct MemoryHome {
    shards: Arc<Mutex<BTreeMap<String, InMemory>>>,
}

impl Home {
    pub fn store(
        &self,
        options: &store::Options,
        identity: &Identity,
        stamp_ms: i64,
    ) -> Result<Opened> {
        match self {
            Home::Directory(dir) => {
                Store::open(&shard_dir(dir, identity).join("store"), options, identity, stamp_ms)
            }
            Home::Memory(home) => {
                let records = home.lock().entry(name(identity)).or_default().clone();
                Ok(Opened { store: Store::over(records, identity)?, rebuilt: None })
            }
        }
    }

    pub fn index(
        &self,
        options: index::Options,
        room: Arc<Room>,
        identity: &Identity,
    ) -> Result<Index> {
        match self {
            Home::Directory(dir) => Index::open(
                &shard_dir(dir, identity).join("index"),
                options,
                room,
                &generation(identity),
            ),
            Home::Memory(_) => Ok(Index::in_memory(options, room)),
        }
    }

    /// All of one shard.
    pub fn wipe(&self, identity: &Identity) -> Result<()> {
        match self {
            Home::Directory(dir) => wipe(&shard_dir(dir, identity)),
            Home::Memory(home) => {
                home.lock().remove(&name(identity));
                Ok(())
            }
        }
    }
}

impl MemoryHome {
    /// What the next process finds after this one died: each shard without its last batches, as many as that, as far as they are not flushed.
    /// The dead go on with what they hold, and nobody sees it.
    pub fn crash(&self, batches_lost: usize) {
        for records in self.lock().values_mut() {
            *records = records.found_after_crash(batches_lost);
        }
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    /// A panic elsewhere leaves whole entries: each is replaced at once.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, InMemory>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(identity: &Identity) -> String {
    format!("{}-{}", identity.topic, identity.partition)
}

/// Which store an index is derived from.
pub fn generation(identity: &Identity) -> String {
    format!("{}/{}/{}", identity.cluster, identity.topic, identity.partition)
}

/// The directory of one shard, among those of all shards.
pub fn shard_dir(dir: &Path, identity: &Identity) -> PathBuf {
    dir.join(name(identity))
}

fn wipe(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Fault::stop(
            StopName::StoreUnwritable,
            format!("removes {}: {error}", dir.display()),
        )),
        _ => Ok(()),
    }
}
