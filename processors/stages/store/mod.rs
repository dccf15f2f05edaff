//! The shard's records: memories, vectors and what the gate must remember, changed batch by batch, each batch with the offset it came from.
//! It decides nothing about what is kept, and knows neither the index nor the log it is rebuilt from.

mod caches;
pub mod changelog;
pub mod compare;
pub mod disk;
mod encode;
mod format;
mod keys;
mod reads;
mod recalled;
pub mod records;
#[cfg(test)]
mod tests;

pub use disk::Options;
pub use encode::{Finished, Touched, Upserted};
pub use keys::is_memory;
pub use records::{Changes, InMemory};

use crate::domain::{Memory, MemoryId, Time, UserKey};
use crate::fault::{Fault, Result, StopName};
use crate::memory::Reads;
use crate::memory::staged::StagedChanges;
use caches::Caches;
use disk::{Disk, NotOpened};
use recalled::Recalled;
use records::Records;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Of a store that ends with its process.
const IN_MEMORY_CACHED_MAX: usize = 100;
const IN_MEMORY_RECALLED_BYTES_MAX: usize = 1 << 20;

/// Which log a store was made from, and with which encoder: with any other its records would mean something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: String,
    pub topic: String,
    pub partition: i32,
    pub partitions: i32,
    pub model: String,
    pub dimensions: u32,
}

pub struct Opened {
    pub store: Store,
    /// Where a damaged store was put. The new one is empty: read the log again.
    pub rebuilt: Option<PathBuf>,
}

/// How far a shard has come: in its input, and in its changelog if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub applied: i64,
    pub changelog: Option<Place>,
}

/// An offset of the changelog, and when this store had come so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: i64,
    pub at: Time,
}

pub struct Store {
    records: Box<dyn Records>,
    identity: Identity,
    cache: Caches,
    recalled: Recalled,
    applied: AtomicI64,
    changelog: Option<Place>,
    /// Everything here is of an older format so far.
    is_older: AtomicBool,
    is_ahead: AtomicBool,
}

impl Store {
    pub fn open(
        dir: &Path,
        options: &Options,
        identity: &Identity,
        stamp_ms: i64,
    ) -> Result<Opened> {
        let about = |fault: Fault| fault.about(format!("opens the store in {}", dir.display()));
        match Store::open_as_it_is(dir, options, identity) {
            Ok(store) => Ok(Opened { store, rebuilt: None }),
            Err(NotOpened::Fault(fault)) => Err(about(fault)),
            Err(NotOpened::Damaged(why)) => {
                let aside = disk::set_aside(dir, stamp_ms, &why).map_err(about)?;
                match Store::open_as_it_is(dir, options, identity) {
                    Ok(store) => Ok(Opened { store, rebuilt: Some(aside) }),
                    Err(NotOpened::Fault(fault)) => Err(about(fault)),
                    Err(NotOpened::Damaged(why)) => Err(about(format::unreadable(why))),
                }
            }
        }
    }

    /// As it lies there: damage is told, not set aside.
    pub fn open_as_found(dir: &Path, options: &Options, identity: &Identity) -> Result<Store> {
        Store::open_as_it_is(dir, options, identity)
            .map_err(|why| match why {
                NotOpened::Damaged(why) => format::unreadable(why),
                NotOpened::Fault(fault) => fault,
            })
            .map_err(|fault| fault.about(format!("opens the store in {}", dir.display())))
    }

    /// A store that ends with its process.
    pub fn in_memory(identity: &Identity) -> Store {
        Store::over(InMemory::default(), identity).expect("new records are of no other log")
    }

    /// A store that ends with the last holder of its records.
    pub fn over(records: InMemory, identity: &Identity) -> Result<Store> {
        let kept = (Caches::new(IN_MEMORY_CACHED_MAX), Recalled::new(IN_MEMORY_RECALLED_BYTES_MAX));
        Store::of(Box::new(records), false, kept, identity).map_err(|not_opened| match not_opened {
            NotOpened::Fault(fault) => fault,
            NotOpened::Damaged(why) => format::unreadable(why),
        })
    }

    fn open_as_it_is(
        dir: &Path,
        options: &Options,
        identity: &Identity,
    ) -> std::result::Result<Store, NotOpened> {
        let disk = Disk::open(dir, options)?;
        let existed = disk.existed();
        let kept = (Caches::new(options.tails_max), Recalled::new(options.recalled_bytes_max));
        Store::of(Box::new(disk), existed, kept, identity)
    }

    fn of(
        records: Box<dyn Records>,
        existed: bool,
        (cache, recalled): (Caches, Recalled),
        identity: &Identity,
    ) -> std::result::Result<Store, NotOpened> {
        let mut is_older = false;
        match damaged_if_unreadable(records.get(&keys::identity()))? {
            Some(bytes) => {
                check_identity(&damaged_if_unreadable(format::identity(&bytes))?, identity)?;
                is_older = format::is_older(&bytes);
            }
            None if existed => {
                return Err(NotOpened::Damaged("does not say which log it is made from".into()));
            }
            None => write_identity(&*records, identity)?,
        }
        let applied = records
            .get(&keys::applied())
            .and_then(|bytes| bytes.map_or(Ok(-1), |bytes| format::offset(&bytes)));
        let applied = damaged_if_unreadable(applied)?;
        let place = |bytes: Vec<u8>| format::place(&bytes).map(|(offset, at)| Place { offset, at });
        let changelog =
            records.get(&keys::changelog()).and_then(|bytes| bytes.map(place).transpose());
        let changelog = damaged_if_unreadable(changelog)?;
        let is_ahead =
            AtomicBool::new(damaged_if_unreadable(records.get(&keys::ahead()))?.is_some());
        Ok(Store {
            records,
            identity: identity.clone(),
            cache,
            recalled,
            applied: AtomicI64::new(applied),
            changelog,
            is_older: AtomicBool::new(is_older),
            is_ahead,
        })
    }

    /// The offset of the last event whose effects are here; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.applied.load(Ordering::Acquire)
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where in the changelog this store was when it was opened. None: it has none, or nothing of it has been read.
    pub fn changelog(&self) -> Option<Place> {
        self.changelog
    }

    /// The changelog's record of how far this store will have come.
    pub fn meta(&self, applied: i64) -> Vec<u8> {
        changelog::meta_bytes(&self.identity, applied)
    }

    /// Invariant: records and offsets are one batch, so whatever happens they agree. The first of a newer format says so in the identity,
    /// where an older program stops.
    pub fn apply(&self, batch: Finished, mark: Mark) -> Result<()> {
        let Finished { mut changes, tails, gates } = batch;
        let Mark { applied, changelog } = mark;
        changes.put(keys::applied(), format::offset_bytes(applied));
        if let Some(Place { offset, at }) = changelog {
            changes.put(keys::changelog(), format::place_bytes(offset, at));
        }
        if self.is_older.load(Ordering::Acquire) {
            changes.put(keys::identity(), format::identity_bytes(&self.identity));
        }
        self.records.apply(&changes)?;
        self.is_older.store(false, Ordering::Release);
        self.recalled.forget(changes.records.keys().map(Vec::as_slice));
        self.cache.applied(changes.records.keys().map(Vec::as_slice), tails, gates);
        self.applied.store(applied, Ordering::Release);
        Ok(())
    }

    /// Puts records ahead of the mark: until it has followed (`apply`), the store is as good as before and nobody may read it. The store
    /// says so until `caught_up`.
    pub fn apply_ahead(&self, changes: &Changes) -> Result<()> {
        if !self.is_ahead() {
            self.records.apply(&Changes::of(keys::ahead(), Some(Vec::new())))?;
            self.is_ahead.store(true, Ordering::Release);
        }
        if self.is_older.load(Ordering::Acquire) {
            self.records.apply(&Changes::of(
                keys::identity(),
                Some(format::identity_bytes(&self.identity)),
            ))?;
            self.is_older.store(false, Ordering::Release);
        }
        self.records.apply_each(changes)
    }

    /// The mark has come to where the last record lies that was ever put ahead of it.
    pub fn caught_up(&self) -> Result<()> {
        self.records.apply(&Changes::of(keys::ahead(), None))?;
        self.is_ahead.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether records may be ahead of the mark: a restore has not ended.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Acquire)
    }

    /// Encodes a batch, and lists its memories for the index and the change feed.
    pub fn encode(&self, staged: StagedChanges) -> Result<(Finished, Touched)> {
        encode::encode(staged, &*self.records)
    }

    /// Each of the user's memories meant, in this order. What was asked for lately is not read again.
    pub fn recalled(&self, key: &UserKey, ids: &[MemoryId]) -> Result<Vec<Option<Arc<Memory>>>> {
        self.recalled.of(key, ids, &|id| self.memory(key, id))
    }

    /// Whoever has a record, in the store's own order (not that of names), a tenant's shared records among them.
    pub fn users(&self, after: Option<&UserKey>, limit: usize) -> Result<Vec<UserKey>> {
        let mut users = Vec::new();
        let mut from = after.map_or_else(keys::before_users, keys::behind);
        while users.len() < limit {
            let Some(next) = self.records.next_after(&from)? else { break };
            let user = keys::user_of(&next)
                .ok_or_else(|| format::unreadable(format!("no key of ours {next:02x?}")))?;
            from = keys::behind(&user);
            users.push(user);
        }
        Ok(users)
    }

    pub fn flush(&self) -> Result<()> {
        self.records.flush()
    }

    pub fn bytes_on_disk(&self) -> u64 {
        self.records.bytes()
    }

    /// Every user's records.
    pub fn everything(&self) -> Result<Changes> {
        let mut all = Changes::default();
        self.records.scan(&[], &mut |key, value| {
            if key.first() != Some(&keys::SHARD) {
                all.put(key.to_vec(), value.to_vec());
            }
            true
        })?;
        Ok(all)
    }

    /// Of every user's records in order. Without the shard's own: stores that say the same at different offsets are equal.
    pub fn digest(&self) -> Result<u64> {
        let mut digest = Fnv::default();
        self.records.scan(&[], &mut |key, value| {
            if key.first() != Some(&keys::SHARD) {
                digest.add(key);
                digest.add(value);
            }
            true
        })?;
        Ok(digest.0)
    }
}

/// Safe on disk before the first batch: without it, what is found at the next start counts as damaged.
fn write_identity(records: &dyn Records, identity: &Identity) -> Result<()> {
    let mut changes = Changes::default();
    changes.put(keys::identity(), format::identity_bytes(identity));
    records.apply(&changes)?;
    records.flush()
}

fn check_identity(theirs: &Identity, ours: &Identity) -> Result<()> {
    let log = |identity: &Identity| {
        format!("{}/{}/{}", identity.cluster, identity.topic, identity.partition)
    };
    let model =
        |identity: &Identity| format!("{} ({} dimensions)", identity.model, identity.dimensions);
    let (name, what) = if log(theirs) != log(ours) {
        (
            StopName::StoreOfAnotherLog,
            format!("it is made from {}, not from {}", log(theirs), log(ours)),
        )
    } else if theirs.partitions != ours.partitions {
        let what = format!(
            "it was made when the topic had {} partitions, now it has {}",
            theirs.partitions, ours.partitions
        );
        (StopName::PartitionsDiffer, what)
    } else if model(theirs) != model(ours) {
        (
            StopName::ModelChanged,
            format!("its vectors are of {}, not of {}", model(theirs), model(ours)),
        )
    } else {
        return Ok(());
    };
    Err(Fault::stop(
        name,
        format!(
            "{what}; move the directory away to have it rebuilt from the log, or undo the change"
        ),
    ))
}

/// While opening, bytes that say nothing are damage to set aside; a newer format is not.
fn damaged_if_unreadable<T>(read: Result<T>) -> std::result::Result<T, NotOpened> {
    read.map_err(|fault| match fault {
        Fault::Stop(stop) if stop.name == StopName::StoreUnreadable => {
            NotOpened::Damaged(stop.what)
        }
        other => NotOpened::Fault(other),
    })
}

/// FNV-1a of 64 bits: the standard library's hashers promise nothing from one release to the next.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// With its length, so that moving a byte from one part to the next shows.
    fn add(&mut self, part: &[u8]) {
        for byte in (part.len() as u32).to_be_bytes().iter().chain(part) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
