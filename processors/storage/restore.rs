//! Rebuilds a shard's store from the changelog, before any thread reads or writes the shard.
//!
//! The changelog is the `memories` topic. Each of its records carries the bytes of one store
//! record; the last record of each transaction, named `meta`, carries the offset of the newest
//! event that the shard had applied. Restore copies these records and decides nothing:
//!
//! 1. Take the present end of the partition, open transactions included. Their outcome is a
//!    part of the state.
//! 2. Begin behind the store's checkpoint, or at the first record of the topic.
//! 3. Write a checkpoint that states where and when this restore began ([`Store::commit`]).
//! 4. Read record by record ([`Source`]) and collect them in a [`Batch`].
//! 5. A second thread, and a third for half of a long batch, write each batch ahead of the checkpoint
//!    ([`Store::write_ahead`]). Then the second one moves the checkpoint.
//! 6. At the end taken in step 1, compare the store with the digest of the last meta record
//!    ([`Proof`]). If they are equal, clear the store's `ahead` marker ([`Store::caught_up`]).
//!
//! ```text
//!   store:   ... applied │ records ahead of the checkpoint │
//!                   checkpoint                       last one written
//! ```
//!
//! Invariant: a store with the `ahead` marker holds records newer than its checkpoint, and no
//! thread may read it. Reading the changelog from the checkpoint again writes the same bytes, so a
//! crash or a cancelled restore loses only time.
//!
//! Limit: a store that is older than `away_ms_max` must not be restored this way, because
//! compaction may have removed tombstones that are missing there ([`outdated`]). The embedded log
//! records which tombstones are gone, so no age is too old there.

mod pending;
mod take_over;
#[cfg(test)]
mod tests;
mod write;

pub use crate::changelog::{Evidence, Mismatch, Progress, Proof, Writers};
pub(crate) use pending::Pending;
pub use take_over::TakeOver;
pub use write::ChangedMemories;

use crate::changelog::{Source, memory_named};
use crate::checkpoint::Checkpoint;
use crate::store::{EncodedBatch, Store};
use broker::Log;
use broker::clock::Clock;
use domain::fault::{Fault, Result, StopName};
use std::fmt;
use std::sync::Arc;
use write::{Batch, WriterThread};

/// Milliseconds that the clocks of two processes may differ: far more than any do that are set by
/// NTP, and nothing against the days that tombstones are kept.
const AHEAD_MS_MAX: i64 = 3_600_000;

/// Changelog records held back while a shard is restored, so that a record that changes often is
/// written once: about 20 MB of the longest usual records. Another batch may wait and a third be
/// written at the same time.
pub const BATCH_MAX: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Distinct records that are collected before they are written.
    pub batch_max: usize,
    /// Age in ms from which a store counts as outdated: half the retention of tombstones.
    pub away_ms_max: i64,
    /// The last offset to read. `None` reads to the end.
    pub until: Option<i64>,
    /// The groups whose records may be in the changelog.
    pub writers: Writers,
    /// Opens a shard that differs from the writer's digest.
    pub accept_incomplete: bool,
    /// Ends the open transaction of the owner before. `None` waits until the broker ends it.
    pub take_over: Option<TakeOver>,
    /// The highest offset of a tombstone that compaction has removed, if the broker records that.
    pub tombstones_gone: Option<TombstonesGone>,
}

/// Returns the highest offset of a tombstone that compaction has removed from a partition, or -1.
#[derive(Clone)]
pub struct TombstonesGone(pub Arc<dyn Fn(i32) -> i64 + Send + Sync>);

impl fmt::Debug for TombstonesGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TombstonesGone")
    }
}

/// The changelog of a shard, and how it is read.
pub struct Restoring<'a> {
    pub log: &'a dyn Log,
    pub options: &'a RestoreOptions,
    pub progress: &'a Progress,
    pub clock: &'a dyn Clock,
}

/// The outcome of a restore.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Number of records read.
    pub records: u64,
    pub proof: Proof,
    /// The changelog offset of the store before the restore. `None` for a new store.
    pub behind: Option<i64>,
    /// The memories that the restore wrote or removed. `None` if they are too many to be named.
    pub changed: Option<ChangedMemories>,
}

/// Returns why a restore must not continue from this store, or `None`. The changelog may lack
/// tombstones that the store needs, and forgotten memories would return.
pub fn outdated(
    store: &Store,
    log: &dyn Log,
    now_ms: i64,
    options: &RestoreOptions,
) -> Result<Option<&'static str>> {
    let Some(read) = store.changelog() else { return Ok(None) };
    let partition = store.identity().partition;
    let age_ms = now_ms.saturating_sub(store.read_at().0);
    Ok(if options.tombstones_gone.is_some() {
        lacks_some(log, partition, read, now_ms, options)?
    } else if age_ms > options.away_ms_max {
        Some("it is older than half the time that the changelog keeps tombstones")
    } else if age_ms < -AHEAD_MS_MAX {
        // Written by a clock that was wrong, so its age is unknown.
        Some("its date is in the future")
    } else {
        lacks_some(log, partition, read, now_ms, options)?
    })
}

/// Returns why whoever has read the changelog up to this offset cannot learn all that has changed
/// since, or `None`.
fn lacks_some(
    log: &dyn Log,
    partition: i32,
    read: i64,
    now_ms: i64,
    options: &RestoreOptions,
) -> Result<Option<&'static str>> {
    if let Some(TombstonesGone(gone)) = &options.tombstones_gone {
        let lacks_one = gone(partition) > read;
        return Ok(lacks_one.then_some("it lacks a tombstone that compaction has removed"));
    }
    // The entry behind the last record may be the marker that ends the transaction.
    let lacks_from = read + 2;
    Ok(if read + 1 < log.beginning(partition)? {
        Some("the changelog no longer has the records that follow")
    } else if lacks_from < log.first_since(partition, now_ms - options.away_ms_max)? {
        // A date may be of a clock that was wrong; the times of the records are the broker's.
        Some("it lacks records from before half the time that the changelog keeps tombstones")
    } else {
        None
    })
}

/// Offsets of the changelog that are read for the index after a crash: as many as one flush of the
/// index may cover. To look at every memory of the shard costs no more for many more.
const MISSED_MAX: i64 = 200_000;

/// Returns the memories that the changelog names behind the offset `after`, up to `until`. `None` if
/// these are too many, the changelog may no longer name all, or the reading is cancelled.
pub fn changed_between(
    from: &Restoring<'_>,
    partition: i32,
    (after, until): (i64, i64),
) -> Result<Option<ChangedMemories>> {
    let &Restoring { log, options, progress, clock } = from;
    let too_many = until - after > MISSED_MAX;
    if too_many || lacks_some(log, partition, after, clock.wall().0, options)?.is_some() {
        return Ok(None);
    }
    let mut changed = ChangedMemories::new();
    let reading = Progress::default();
    Source::range(log, partition, after + 1, until + 1).each_until(&reading, &mut |record| {
        changed.extend(memory_named(record));
        if progress.is_cancelled() {
            reading.cancel();
        }
        Ok(())
    })?;
    Ok((!progress.is_cancelled()).then_some(changed))
}

/// Reads the changelog from the store's checkpoint to the present end. Returns early, and
/// without error, if `progress` is cancelled. After [`Proof::Differs`] the store keeps its `ahead`
/// marker, and the caller decides.
pub fn restore(store: &Store, from: &Restoring<'_>) -> Result<Restored> {
    let &Restoring { log, options, progress, clock } = from;
    // The end includes open transactions, because their outcome is a part of the state.
    let source = Source::behind(store, log, options.until)?;
    let Source { partition, from, end, .. } = source;
    if from > end {
        let what = format!(
            "the store has read the changelog up to {from}, but the changelog ends at {end}: the \
             store was made from another one"
        );
        return Err(Fault::stop(StopName::StoreOfAnotherLog, what));
    }
    progress.begin(from, end);
    let began = clock.wall();
    let behind = store.changelog();
    // A new store is before its first record, and as old as this restore.
    let changelog = Some(behind.unwrap_or(from - 1));
    // Order matters: records are written ahead of the checkpoint, so the checkpoint must already
    // state since when they may be there. Without that time their age would be unknown after a
    // crash.
    store.note_read_at(behind.map_or(began, |_| store.read_at()));
    store.commit(EncodedBatch::default(), Checkpoint { changelog, ..store.checkpoint() })?;
    let (records, evidence, changed) = std::thread::scope(|scope| {
        let writer = WriterThread::start(scope, store);
        let mut batch =
            Batch::new(store, from, behind.is_none(), writer, options.batch_max, &options.writers);
        let _reading = options.take_over.as_ref().map(|it| it.start(scope, log, partition, end));
        let read = source.each_until(progress, &mut |record| batch.take(record));
        batch.finish(read)
    })?;
    if progress.is_cancelled() {
        return Ok(Restored { records, proof: Proof::None, behind, changed });
    }
    // Order matters: until every record up to the end is written, the store lacks tombstones as old as
    // its date.
    store.note_read_at(began);
    store.commit(EncodedBatch::default(), store.checkpoint())?;
    let proof = evidence.judge(
        store.establish_digest()?,
        options.until.is_some(),
        options.accept_incomplete,
    )?;
    if store.is_ahead() && !matches!(proof, Proof::Differs(_)) {
        store.caught_up()?;
    }
    Ok(Restored { records, proof, behind, changed })
}
