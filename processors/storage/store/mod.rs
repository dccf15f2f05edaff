//! The store of one shard: memories with vectors, context windows, gate states, slots and event
//! ids, in [sled](https://docs.rs/sled/0.34). Each batch ends with the offset of its last event. The store does not decide which memories are kept, and knows neither the index
//! nor the log from which a shard is restored.
//!
//! ```text
//! kernel ──> StagedChanges ──encode──> Store::commit ──> Records (sled, or maps in memory)
//!    └── Reads ──> typed records          │    keys.rs: where, format.rs: bytes
//!                                         └──> caches: UserCache, MemoryCache
//! ```

pub mod compare;
mod digest;
pub mod disk;
mod encode;
pub mod format;
mod identity;
pub(crate) mod keys;
pub mod listing;
mod live;
mod memory_cache;
mod reads;
pub mod records;
mod scrub;
#[cfg(test)]
pub(crate) mod tests;
mod user_cache;

pub(crate) use digest::RecordHasher;
pub use digest::{Claim, Digest};
pub use disk::{StoreOptions, records_with_words, set_aside, set_aside_at, set_aside_of};
pub use encode::{EncodedBatch, TouchedMemories, Upserted};
pub use identity::Identity;
pub(crate) use identity::check_identity;
pub use keys::{before_users, holds_words, is_memory};
pub use records::{AfterBatch, Changes, InMemory, Rewritten};
pub use scrub::Scrubbed;

pub use crate::checkpoint::Checkpoint;

use broker::clock::{Clock, SystemClock};
use digest::{KeptDigest, PartMark, Running};
use disk::{NotOpened, SledRecords};
use domain::fault::{Fault, Result, StopName};
use domain::{Memory, MemoryId, Time, UserKey};
use kernel::Reads;
use kernel::staged::StagedChanges;
use listing::ListingCache;
use live::LiveCounts;
use memory_cache::MemoryCache;
use parking_lot::Mutex;
use records::Records;
use scrub::Scrub;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use user_cache::UserCache;

/// Sessions and users whose records a shard caches in decoded form, the most recently active ones:
/// the last turns of a session (about 5 KB each), the gate state and the denials of a user (about
/// 2 KB each). A turn of any other user first reads eight records.
const USER_CACHE_MAX: usize = 400;
/// Limits of the caches of a store that ends with its process.
const IN_MEMORY_USER_CACHE_MAX: usize = 100;
const IN_MEMORY_MEMORY_CACHE_BYTES_MAX: usize = 1 << 20;

/// Records of a batch above which they are written one by one: a batch of sled holds up the readers
/// of every store of the process while it is applied.
const ONE_BY_ONE_FROM: usize = 64;
/// Bytes of the keys of the records behind one mark. A mark of 4 KiB would be in pieces.
const MARKED_BYTES: usize = 3900;

/// Value of `erased_since` in a store whose files hold nothing erased.
const NEVER: i64 = i64::MAX;

pub struct OpenedStore {
    pub store: Store,
    /// The directory to which a damaged store was moved. `store` is then empty and must be
    /// restored.
    pub rebuilt: Option<PathBuf>,
}

pub struct Store {
    records: Box<dyn Records>,
    identity: Identity,
    user_cache: UserCache,
    memory_cache: MemoryCache,
    listings: ListingCache,
    live: LiveCounts,
    checkpoint: Mutex<Checkpoint>,
    /// When the store reached its changelog offset, in milliseconds since 1970.
    read_at: AtomicI64,
    /// Records may be ahead of the checkpoint, because a restore has not ended, or a crash ended a
    /// batch.
    is_ahead: AtomicBool,
    /// At opening, the digest was that of a part of a batch.
    is_in_parts: AtomicBool,
    /// Milliseconds since 1970 of the first erasure since the last rewrite; [`NEVER`] if there is
    /// none.
    erased_since: AtomicI64,
    /// A record was erased since the running rewrite began, so the new files may hold its bytes.
    erased_again: AtomicBool,
    /// The digest at the checkpoint, if known. Known after a restore; then each batch updates the
    /// digest.
    kept_digest: Mutex<Option<Digest>>,
    /// Order matters: locked before `kept_digest`. A batch holds the lock while the records change.
    scrub: Mutex<Option<Scrub>>,
    /// The digest that the store was still to be compared with at opening.
    claim: Option<Claim>,
    /// Epoch of the last meta record read or written.
    epoch: AtomicU64,
}

impl Store {
    /// Opens or creates the store. A damaged store is renamed to `<dir>.corrupt-<stamp_ms>` and an
    /// empty one takes its place.
    pub fn open(
        dir: &Path,
        options: &StoreOptions,
        identity: &Identity,
        stamp_ms: i64,
    ) -> Result<OpenedStore> {
        Store::open_or_set_aside(dir, options, identity, stamp_ms)
            .map_err(|fault| fault.about(format!("opens the store in {}", dir.display())))
    }

    fn open_or_set_aside(
        dir: &Path,
        options: &StoreOptions,
        identity: &Identity,
        stamp_ms: i64,
    ) -> Result<OpenedStore> {
        match Store::open_as_it_is(dir, options, identity) {
            Ok(store) => Ok(OpenedStore { store, rebuilt: None }),
            Err(NotOpened::Fault(fault)) => Err(fault),
            Err(NotOpened::Damaged(why)) => {
                let aside = disk::set_aside(dir, stamp_ms, &why)?;
                Store::open_as_it_is(dir, options, identity)
                    .map(|store| OpenedStore { store, rebuilt: Some(aside) })
                    .map_err(NotOpened::into_fault)
            }
        }
    }

    /// Opens the store and changes nothing: damage is an error, the directory stays.
    pub fn open_as_found(dir: &Path, options: &StoreOptions, identity: &Identity) -> Result<Store> {
        Store::open_as_it_is(dir, options, identity)
            .map_err(NotOpened::into_fault)
            .map_err(|fault| fault.about(format!("opens the store in {}", dir.display())))
    }

    /// Creates a store that ends with its process.
    pub fn in_memory(identity: &Identity) -> Store {
        Store::over(InMemory::default(), identity).expect("empty records have no other identity")
    }

    /// Opens a store over records in memory, which end with their last holder.
    pub fn over(records: impl Records + 'static, identity: &Identity) -> Result<Store> {
        let caches = (
            UserCache::new(IN_MEMORY_USER_CACHE_MAX),
            MemoryCache::new(IN_MEMORY_MEMORY_CACHE_BYTES_MAX),
        );
        Store::of(Box::new(records), false, caches, identity).map_err(NotOpened::into_fault)
    }

    fn open_as_it_is(
        dir: &Path,
        options: &StoreOptions,
        identity: &Identity,
    ) -> std::result::Result<Store, NotOpened> {
        let records = SledRecords::open(dir, options)?;
        let existed = records.existed();
        let caches = (UserCache::new(USER_CACHE_MAX), MemoryCache::new(options.recalled_bytes_max));
        Store::of(Box::new(records), existed, caches, identity)
    }

    fn of(
        records: Box<dyn Records>,
        existed: bool,
        (user_cache, memory_cache): (UserCache, MemoryCache),
        identity: &Identity,
    ) -> std::result::Result<Store, NotOpened> {
        match damaged_if_unreadable(records.get(&keys::identity()))? {
            Some(bytes) => {
                check_identity(&damaged_if_unreadable(format::identity(&bytes))?, identity)?;
            }
            None if existed => {
                return Err(NotOpened::Damaged("has no record of the log it is made from".into()));
            }
            None => write_identity(&*records, identity)?,
        }
        let applied = records
            .get(&keys::applied())
            .and_then(|bytes| bytes.map_or(Ok(-1), |bytes| format::offset(&bytes)));
        let applied = damaged_if_unreadable(applied)?;
        let changelog = records
            .get(&keys::changelog())
            .and_then(|bytes| bytes.map(|bytes| format::changelog_position(&bytes)).transpose());
        let (changelog, read_at) = damaged_if_unreadable(changelog)?.unzip();
        let checkpoint = Checkpoint { applied, changelog };
        let erased_since = records
            .get(&keys::erased())
            .and_then(|bytes| bytes.map_or(Ok(NEVER), |bytes| format::offset(&bytes)));
        let erased_since = AtomicI64::new(damaged_if_unreadable(erased_since)?);
        let ahead = damaged_if_unreadable(records.get(&keys::ahead()))?;
        let kept = damaged_if_unreadable(records.get(&keys::digest()))?;
        let kept = kept.as_deref().and_then(KeptDigest::of);
        // A digest of another checkpoint is not of these records; a restore that has not
        // ended has written records that the digest lacks.
        let is_here = |at: (i64, i64)| at == (applied, changelog.unwrap_or(-1));
        let part = ahead.as_deref().and_then(PartMark::of);
        let part = part.filter(|part| is_here((part.applied, part.changelog)));
        let kept_digest = match &part {
            Some(part) => Some(damaged_if_unreadable(part.digest(&*records))?),
            None => kept
                .filter(|kept| ahead.is_none() && is_here((kept.applied, kept.changelog)))
                .map(|kept| kept.digest),
        };
        Ok(Store {
            records,
            identity: identity.clone(),
            user_cache,
            memory_cache,
            listings: ListingCache::default(),
            live: LiveCounts::default(),
            checkpoint: Mutex::new(checkpoint),
            read_at: AtomicI64::new(read_at.map_or(0, |at: Time| at.0)),
            is_ahead: AtomicBool::new(ahead.is_some()),
            is_in_parts: AtomicBool::new(part.is_some()),
            erased_since,
            erased_again: AtomicBool::new(false),
            kept_digest: Mutex::new(kept_digest),
            scrub: Mutex::default(),
            claim: ahead.as_deref().map(Claim::of),
            epoch: AtomicU64::new(kept.map_or(0, |kept| kept.epoch)),
        })
    }

    pub fn checkpoint(&self) -> Checkpoint {
        *self.checkpoint.lock()
    }

    /// The offset of the last event that the store has applied; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.checkpoint().applied
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The changelog offset of the checkpoint.
    pub fn changelog(&self) -> Option<i64> {
        self.checkpoint().changelog
    }

    /// When the store reached its changelog offset.
    pub fn read_at(&self) -> Time {
        Time(self.read_at.load(Ordering::Acquire))
    }

    /// Stored with the next batch.
    pub fn note_read_at(&self, at: Time) {
        self.read_at.store(at.0, Ordering::Release);
    }

    /// Writes a finished batch. Invariant: records and checkpoint agree after any crash, or the
    /// store is marked as ahead of its checkpoint, and a restore writes the same records again. A
    /// checkpoint without a changelog offset keeps the former one.
    pub fn commit(&self, batch: EncodedBatch, checkpoint: Checkpoint) -> Result<()> {
        let EncodedBatch { mut changes, windows, gates, live, digest, touched: _ } = batch;
        let digest = match digest {
            Some(digest) => Some(digest),
            None => self.digest_after(&changes)?,
        };
        let changelog = checkpoint.changelog.or(self.changelog());
        let checkpoint = Checkpoint { changelog, ..checkpoint };
        let mut last = Changes::default();
        last.put(keys::applied(), format::offset_bytes(checkpoint.applied));
        if let Some(offset) = changelog {
            last.put(keys::changelog(), format::changelog_position_bytes(offset, self.read_at()));
        }
        if let Some(digest) = digest {
            last.put(keys::digest(), self.digest_record(checkpoint, digest));
        }
        let is_erasing = holds_erasure(&changes);
        if is_erasing {
            self.note_erased()?;
        }
        let mut scrub = self.scrub.lock();
        if let Some(scrub) = scrub.as_mut() {
            scrub.note(&changes, &*self.records)?;
        }
        if changes.records.len() <= ONE_BY_ONE_FROM || changelog.is_none() || self.is_ahead() {
            changes.records.append(&mut last.records);
            self.records.write_batch(&changes)?;
        } else {
            self.write_in_parts(&changes)?;
            last.remove(keys::ahead());
            self.records.write_batch(&last)?;
        }
        *self.kept_digest.lock() = digest;
        drop(scrub);
        if is_erasing {
            self.note_erased()?;
        }
        self.memory_cache.forget(changes.records.keys().map(Vec::as_slice));
        self.listings.follow(&changes);
        self.user_cache.note_batch(changes.records.keys().map(Vec::as_slice), windows, gates);
        self.live.note_batch(changes.records.keys().map(Vec::as_slice), live);
        *self.checkpoint.lock() = checkpoint;
        Ok(())
    }

    /// Writes records one by one, those of each part behind a mark that the store is ahead of its
    /// checkpoint: after a crash, opening need not read the whole store for its digest.
    fn write_in_parts(&self, changes: &Changes) -> Result<()> {
        let mut mark = self.kept_digest().map(|digest| PartMark::at(self.checkpoint(), digest));
        for part in changes.parts(MARKED_BYTES) {
            mark.iter_mut().try_for_each(|mark| mark.move_to(&part, &*self.records))?;
            let bytes = mark.as_ref().map_or_else(|| Claim::default().bytes(), PartMark::bytes);
            self.records.write_each(&Changes::of(keys::ahead(), Some(bytes)), &mut |_, _| {})?;
            self.records.write_each(&part, &mut |_, _| {})?;
        }
        Ok(())
    }

    /// The offset up to which each change of a memory has been judged; -1 before the first.
    pub fn judged(&self) -> Result<i64> {
        self.records.get(&keys::judged())?.map_or(Ok(-1), |bytes| format::offset(&bytes))
    }

    pub fn note_judged(&self, offset: i64) -> Result<()> {
        let offset = Some(format::offset_bytes(offset));
        self.records.write_batch(&Changes::of(keys::judged(), offset))
    }

    /// The id of the tenants topic that has all tenant memories of this shard.
    pub fn published(&self) -> Result<Option<u128>> {
        self.records.get(&keys::published())?.map(|bytes| format::topic(&bytes)).transpose()
    }

    pub fn note_published(&self, topic: Option<u128>) -> Result<()> {
        if self.published()? == topic {
            return Ok(());
        }
        self.records.write_batch(&Changes::of(keys::published(), topic.map(format::topic_bytes)))
    }

    /// The digest at the checkpoint. `None` if no restore has established one.
    pub fn kept_digest(&self) -> Option<Digest> {
        *self.kept_digest.lock()
    }

    /// The digest after a batch, if the present one is known.
    pub(crate) fn digest_after(&self, changes: &Changes) -> Result<Option<Digest>> {
        self.kept_digest().map(|digest| digest.after(changes, &*self.records)).transpose()
    }

    fn digest_record(&self, checkpoint: Checkpoint, digest: Digest) -> Vec<u8> {
        let Checkpoint { applied, changelog } = checkpoint;
        let changelog = changelog.unwrap_or(-1);
        KeptDigest { applied, changelog, epoch: self.epoch(), digest }.bytes()
    }

    /// Returns the digest at the checkpoint. If the digest is not known, computes the
    /// digest by a scan; from then on each batch updates the digest.
    pub fn establish_digest(&self) -> Result<Digest> {
        if let Some(digest) = self.kept_digest() {
            return Ok(digest);
        }
        let digest = self.digest()?;
        let record = self.digest_record(self.checkpoint(), digest);
        self.records.write_batch(&Changes::of(keys::digest(), Some(record)))?;
        *self.kept_digest.lock() = Some(digest);
        Ok(digest)
    }

    /// The digest that the store was still to be compared with at opening. `None` once the restore
    /// has ended.
    pub fn claim(&self) -> Option<Claim> {
        self.claim.filter(|_| self.is_ahead())
    }

    /// Epoch of the last meta record read or written; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Stored with the next batch.
    pub fn note_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Writes restored records ahead of the checkpoint. Until `move_checkpoint` moves the checkpoint, nobody
    /// may read the store, and a crash leaves the old checkpoint, from which the restore runs
    /// again. `is_ahead` stays true until `caught_up`. Several threads may write different records.
    pub fn write_ahead(&self, changes: &Changes) -> Result<()> {
        if !self.is_ahead() || self.is_in_parts.load(Ordering::Acquire) {
            // Order matters: the digest on disk no longer counts before other records come.
            let mark = self.claim.map_or_else(Vec::new, |claim| claim.bytes());
            self.records.write_batch(&Changes::of(keys::ahead(), Some(mark)))?;
            self.is_ahead.store(true, Ordering::Release);
            self.is_in_parts.store(false, Ordering::Release);
        }
        if holds_erasure(changes) {
            self.note_erased()?;
        }
        self.live.forget();
        // Only the difference: another thread may write other records meanwhile.
        let mut running = self.kept_digest().map(|_| Running::default());
        self.records.write_each(changes, &mut |key, old| {
            running.iter_mut().for_each(|running| running.remove(key, old));
        })?;
        if let Some(mut running) = running {
            let values = changes.records.iter();
            let values = values.filter_map(|(key, value)| Some((key, value.as_ref()?)));
            values.for_each(|(key, value)| running.insert(key, value));
            self.kept_digest.lock().iter_mut().for_each(|kept| kept.merge(running.digest));
        }
        Ok(())
    }

    /// Moves the checkpoint of a restore, with the digest that the store is still to be compared
    /// with.
    pub fn move_checkpoint(&self, checkpoint: Checkpoint, claim: Claim) -> Result<()> {
        let changes = Changes::of(keys::ahead(), Some(claim.bytes()));
        self.commit(EncodedBatch { changes, ..EncodedBatch::default() }, checkpoint)
    }

    /// Notes on disk that the files will hold bytes of something forgotten. Order matters: the note
    /// comes before the change, so that no crash leaves the bytes unnoted, and again behind the
    /// change, because a rewrite may have begun in between.
    pub fn note_erased(&self) -> Result<()> {
        self.erased_again.store(true, Ordering::Release);
        if self.erased_since().is_some() {
            return Ok(());
        }
        // The wall clock: the limit is a promise to people, also in a replay.
        self.set_erased_since(SystemClock.wall().0)
    }

    /// When something was erased whose bytes may still be in the files, if anything was.
    pub fn erased_since(&self) -> Option<Time> {
        let since = self.erased_since.load(Ordering::Acquire);
        (since != NEVER).then_some(Time(since))
    }

    fn set_erased_since(&self, since: i64) -> Result<()> {
        let note = (since != NEVER).then(|| format::offset_bytes(since));
        self.records.write_batch(&Changes::of(keys::erased(), note))?;
        self.erased_since.store(since, Ordering::Release);
        Ok(())
    }

    /// Writes the live records into new files, so that the disk holds no bytes of erased ones.
    /// Reads and batches go on. Records erased from the call of `before` on are left to the next
    /// rewrite.
    pub fn rewrite(
        &self,
        before: impl FnOnce() -> Result<()>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Rewritten> {
        let began = SystemClock.wall();
        self.erased_again.store(false, Ordering::Release);
        before()?;
        let rewritten = self.records.rewrite(goes_on)?;
        self.set_erased_since(NEVER)?;
        if self.erased_again.load(Ordering::Acquire) {
            self.set_erased_since(began.0)?;
        }
        Ok(rewritten)
    }

    /// Ends a restore: the checkpoint has reached the last record that was applied ahead.
    pub fn caught_up(&self) -> Result<()> {
        self.records.write_batch(&Changes::of(keys::ahead(), None))?;
        self.is_ahead.store(false, Ordering::Release);
        Ok(())
    }

    /// True if records may be ahead of the checkpoint, because a restore has not ended, or a crash
    /// ended a batch.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Acquire)
    }

    pub fn encode(&self, staged: StagedChanges) -> Result<EncodedBatch> {
        let mut batch = encode::encode(staged, &*self.records)?;
        batch.digest = self.digest_after(&batch.changes)?;
        Ok(batch)
    }

    /// Returns these memories of the user in the order of `ids`, recent ones from the cache.
    pub fn cached_memories(
        &self,
        key: &UserKey,
        ids: &[MemoryId],
    ) -> Result<Vec<Option<Arc<Memory>>>> {
        self.memory_cache.of(key, ids, &|id| self.memory(key, id))
    }

    /// The users with a record, in the order of keys (which is not that of names). The shared
    /// records of a tenant count as a user.
    pub fn users(&self, after: Option<&UserKey>, limit: usize) -> Result<Vec<UserKey>> {
        let mut users = Vec::new();
        let mut from = after.map_or_else(keys::before_users, keys::behind);
        while users.len() < limit {
            let Some(next) = self.records.next_after(&from)? else { break };
            let user = keys::user_of(&next).ok_or_else(|| {
                let key = hex::encode(&next);
                format::unreadable(format!("a key has an unknown form: {key}"))
            })?;
            from = keys::behind(&user);
            users.push(user);
        }
        Ok(users)
    }

    pub fn flush(&self) -> Result<()> {
        self.records.flush()
    }

    /// Lets the next start set the store aside and begin an empty one.
    pub fn note_damage(&self, why: &str) {
        self.records.note_damage(why);
    }

    pub fn bytes_on_disk(&self) -> u64 {
        self.records.bytes()
    }

    /// All records except the shard's own.
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

    /// Computes the digest of all records that the changelog carries, by a scan.
    pub fn digest(&self) -> Result<Digest> {
        Digest::of(&*self.records)
    }
}

fn holds_erasure(changes: &Changes) -> bool {
    changes.records.iter().any(|(key, value)| value.is_none() && keys::is_erased_with_words(key))
}

/// Writes and flushes the identity before the first batch: at the next start, records without an
/// identity count as damaged.
fn write_identity(records: &dyn Records, identity: &Identity) -> Result<()> {
    let mut changes = Changes::default();
    changes.put(keys::identity(), format::identity_bytes(identity));
    records.write_batch(&changes)?;
    records.flush()
}

/// While opening, unreadable bytes are damage to set aside; the format of another program is not.
fn damaged_if_unreadable<T>(read: Result<T>) -> std::result::Result<T, NotOpened> {
    read.map_err(|fault| match fault {
        Fault::Stop(stop) if stop.name == StopName::StoreUnreadable => {
            NotOpened::Damaged(stop.what)
        }
        other => NotOpened::Fault(other),
    })
}
