//! Rebuilds a shard's store from the changelog, before any thread reads or writes the shard.
//!
//! The changelog is the `memories` topic. Each of its records carries the bytes of one store
//! record; the last record of each transaction, named `meta`, carries the offset of the newest
//! event that the shard had applied. Restore copies these records and decides nothing:
//!
//! 1. Take the present end of the partition, open transactions included. Their outcome is a
//!    part of the state.
//! 2. Begin behind the store's checkpoint, or at the first record of the topic.
//! 3. Write a checkpoint that states where and when this restore began ([`Store::apply`]).
//! 4. Read record by record ([`Source`]) and collect them in a [`Batch`].
//! 5. A second thread, and a third for half of a long batch, write each batch ahead of the checkpoint
//!    ([`Store::apply_restored`]). Then the second one moves the checkpoint.
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
mod proof;
mod take_over;
mod write;

pub(crate) use pending::Pending;
pub use proof::{Evidence, Mismatch, Proof, Writers};
pub use take_over::TakeOver;

use crate::changelog::Source;
use crate::store::{ChangelogPosition, Checkpoint, EncodedBatch, Store};
use broker::Log;
use broker::clock::Clock;
use domain::fault::{Fault, Result, StopName};
use domain::{MemoryId, UserKey};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use write::{Batch, Begin, Writer};

/// Milliseconds that the clocks of two processes may differ: far more than any do that are set by
/// NTP, and nothing against the days that tombstones are kept.
const AHEAD_MS_MAX: i64 = 3_600_000;

/// Changelog records held back while a shard is restored, so that a record that changes often is
/// written once: about 20 MB of the longest usual records. Another batch may wait and a third be
/// written at the same time.
pub const BATCH_MAX: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Distinct records that are collected before they are written.
    pub batch_max: usize,
    /// Age in ms from which a store counts as outdated: half the retention of tombstones.
    pub away_ms_max: i64,
    /// The last offset to read. `None` reads to the end.
    pub until: Option<i64>,
    /// Whose records may be in the changelog.
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

pub type ChangedMemories = HashSet<(UserKey, MemoryId)>;

/// About 10 MB of names. To look at every memory of the shard costs no more for so many.
const CHANGED_MAX: usize = 65_536;

/// The progress of one restore. Shared with the threads that show or cancel the restore.
#[derive(Debug, Default)]
pub struct Progress {
    from: AtomicI64,
    at: AtomicI64,
    end: AtomicI64,
    cancelled: AtomicBool,
    claimed: AtomicBool,
}

impl Progress {
    /// Returns the share of the changelog that has been read, 0 to 1.
    pub fn share(&self) -> f64 {
        let from = self.from.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        if end <= from { 0.0 } else { ((at - from) as f64 / (end - from) as f64).clamp(0.0, 1.0) }
    }

    /// Returns true for the first caller, who carries out this restore.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// Stops the restore at the next record. The store keeps its checkpoint, so that a later
    /// restore continues there.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn begin(&self, from: i64, end: i64) {
        self.from.store(from, Ordering::Release);
        self.at.store(from, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn reached(&self, offset: i64) {
        self.at.store(offset, Ordering::Release);
    }
}

/// Returns why a restore must not continue from this store, or `None`. The changelog may lack
/// tombstones that the store needs, and forgotten memories would return.
pub fn outdated(
    store: &Store,
    log: &dyn Log,
    now_ms: i64,
    options: &Options,
) -> Result<Option<&'static str>> {
    let Some(place) = store.changelog() else { return Ok(None) };
    let partition = store.identity().partition;
    if let Some(TombstonesGone(gone)) = &options.tombstones_gone {
        let lacks_one = gone(partition) > place.offset;
        return Ok(lacks_one.then_some("it lacks a tombstone that compaction has removed"));
    }
    // The entry behind the store's last record may be the mark that ends the transaction.
    let lacks_from = place.offset + 1 + 1;
    let age_ms = now_ms.saturating_sub(place.at.0);
    Ok(if age_ms > options.away_ms_max {
        Some("it is older than half the time that the changelog keeps tombstones")
    } else if age_ms < -AHEAD_MS_MAX {
        // Written by a clock that was wrong, so its age is unknown.
        Some("its date is in the future")
    } else if place.offset + 1 < log.beginning(partition)? {
        Some("the changelog no longer has the records that follow")
    } else if lacks_from < log.first_since(partition, now_ms - options.away_ms_max)? {
        // Its date may be of a clock that was wrong; the times of the records are the broker's.
        Some("it lacks records from before half the time that the changelog keeps tombstones")
    } else {
        None
    })
}

/// Reads the changelog from the store's checkpoint to the present end. Returns early, and
/// without error, if `progress` is cancelled. After [`Proof::Differs`] the store keeps its `ahead`
/// marker, and the caller decides.
pub fn restore(
    store: &Store,
    log: &dyn Log,
    options: &Options,
    progress: &Progress,
    clock: &dyn Clock,
) -> Result<Restored> {
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
    let behind = store.changelog().map(|place| place.offset);
    // A new store is before its first record, and as old as this restore.
    let new = ChangelogPosition { offset: from - 1, at: began };
    let begun = store.changelog().unwrap_or(new);
    // Order matters: records are written ahead of the checkpoint, so the checkpoint must already
    // state since when they may be there. Without that time their age would be unknown after a
    // crash.
    store.apply(
        EncodedBatch::default(),
        Checkpoint { applied: store.applied(), changelog: Some(begun) },
    )?;
    let begin = Begin { from, at: begun.at, is_new: behind.is_none() };
    let (records, evidence, changed) = std::thread::scope(|scope| {
        let writer = Writer::start(scope, store);
        let mut batch = Batch::new(store, begin, writer, options);
        let _reading = options.take_over.as_ref().map(|it| it.start(scope, log, partition, end));
        let read = source.each_until(progress, &mut |record| batch.take(record));
        // Until the end is reached, the store lacks tombstones as old as its date.
        let at = if progress.is_cancelled() { begun.at } else { began };
        batch.finish(read, at)
    })?;
    if progress.is_cancelled() {
        return Ok(Restored { records, proof: Proof::None, behind, changed });
    }
    let proof = evidence.judge(store.establish_digest()?, options)?;
    if store.is_ahead() && !matches!(proof, Proof::Differs(_)) {
        store.caught_up()?;
    }
    Ok(Restored { records, proof, behind, changed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Changes, Identity, InMemory};
    use broker::Consumer;
    use broker::clock::SystemClock;
    use domain::Time;

    /// A log with ten records that fails every attempt to read one. Holds the milliseconds from one
    /// record to the next.
    struct Unreadable(i64);

    const NEW: Unreadable = Unreadable(i64::MAX);

    impl Log for Unreadable {
        fn end(&self, _partition: i32) -> Result<i64> {
            Ok(10)
        }

        fn stable_end(&self, _partition: i32) -> Result<i64> {
            Ok(10)
        }

        fn beginning(&self, _partition: i32) -> Result<i64> {
            Ok(4)
        }

        fn first_since(&self, _partition: i32, time_ms: i64) -> Result<i64> {
            Ok((time_ms / self.0).clamp(4, 10))
        }

        fn read(&self, _partition: i32, _from: i64) -> Result<Box<dyn Consumer>> {
            Err(Fault::retry("the broker does not answer"))
        }

        fn read_header(
            &self,
            partition: i32,
            from: i64,
            _header: &'static str,
        ) -> Result<Box<dyn Consumer>> {
            self.read(partition, from)
        }
    }

    fn identity() -> Identity {
        Identity {
            cluster: "c".into(),
            topic: "events".into(),
            partition: 0,
            partitions: 1,
            model: "hash".into(),
            dimensions: 4,
        }
    }

    /// Records of a store, to be opened as by another process.
    struct Stored(InMemory, Identity);

    impl Stored {
        fn reopened(&self) -> Store {
            Store::over(self.0.clone(), &self.1).expect("the identity is the same")
        }
    }

    fn store_at(identity: &Identity, place: ChangelogPosition) -> Stored {
        let stored = Stored(InMemory::default(), identity.clone());
        let checkpoint = Checkpoint { applied: 0, changelog: Some(place) };
        stored.reopened().apply(EncodedBatch::default(), checkpoint).expect("a store in memory");
        stored
    }

    /// Without the checkpoint, records written ahead would have no age, and would survive their
    /// tombstones.
    #[test]
    fn a_restore_writes_its_checkpoint_before_its_first_record() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("empty records open with any identity");
        let options = Options { batch_max: 10, away_ms_max: 1000, ..Options::default() };
        let before = SystemClock.wall();
        restore(&store, &NEW, &options, &Progress::default(), &SystemClock)
            .expect_err("the log cannot be read");
        let again = Store::over(records, &identity).expect("the identity is the same");
        let place = again.changelog().expect("the checkpoint is written first");
        assert!(place.offset == 3 && place.at >= before && again.applied() == -1, "{place:?}");
        let why = |now_ms| outdated(&again, &NEW, now_ms, &options).expect("it has a beginning");
        assert_eq!(why(place.at.0 + 1000), None);
        assert!(why(place.at.0 + 1001).is_some());
        assert_eq!(why(place.at.0 - AHEAD_MS_MAX), None);
        assert!(why(place.at.0 - AHEAD_MS_MAX - 1).is_some());
    }

    #[test]
    fn a_store_behind_the_beginning_of_its_changelog_is_rebuilt() {
        let identity = identity();
        let options = Options { batch_max: 10, away_ms_max: 1000, ..Options::default() };
        for (offset, is_outdated) in [(2, true), (3, false), (9, false)] {
            let store = store_at(&identity, ChangelogPosition { offset, at: Time(0) }).reopened();
            let why = outdated(&store, &NEW, 0, &options).expect("it has a beginning");
            assert_eq!(why.is_some(), is_outdated, "{offset}: {why:?}");
        }
    }

    /// The date of a store is of the clock of its process; the times of the records are not.
    #[test]
    fn a_store_is_as_old_as_the_records_that_it_lacks() {
        let identity = identity();
        let options = Options { batch_max: 10, away_ms_max: 100, ..Options::default() };
        // Record n is of the time 100 n, and now is 900: the store must have all up to record 7.
        for (offset, is_outdated) in [(5, true), (6, false), (8, false)] {
            let place = ChangelogPosition { offset, at: Time(900) };
            let store = store_at(&identity, place).reopened();
            let why =
                outdated(&store, &Unreadable(100), 900, &options).expect("it has a beginning");
            assert_eq!(why.is_some(), is_outdated, "{offset}: {why:?}");
        }
    }

    /// A laptop that was off for a month reads on where it stopped.
    #[test]
    fn a_store_is_outdated_by_tombstones_if_the_broker_records_them_and_not_by_time() {
        let identity = identity();
        let store = store_at(&identity, ChangelogPosition { offset: 5, at: Time(0) }).reopened();
        for (gone, is_outdated) in [(-1, false), (5, false), (6, true)] {
            let options = Options {
                away_ms_max: 1,
                tombstones_gone: Some(TombstonesGone(Arc::new(move |_| gone))),
                ..Options::default()
            };
            let why = outdated(&store, &NEW, i64::MAX, &options).expect("nothing is read");
            assert_eq!(why.is_some(), is_outdated, "{gone}: {why:?}");
        }
    }

    #[test]
    fn a_cancelled_restore_makes_its_store_no_younger() {
        let identity = identity();
        let old = ChangelogPosition { offset: 5, at: Time(7) };
        let stored = store_at(&identity, old);
        let nothing_new =
            Options { batch_max: 10, away_ms_max: 1000, until: Some(5), ..Options::default() };
        let cancelled = Progress::default();
        cancelled.cancel();
        for (progress, is_younger) in [(cancelled, false), (Progress::default(), true)] {
            restore(&stored.reopened(), &NEW, &nothing_new, &progress, &SystemClock)
                .expect("an empty span");
            let place = stored.reopened().changelog().expect("a restore keeps the position");
            assert_eq!((place.offset, place.at > old.at), (old.offset, is_younger));
        }
    }

    #[test]
    fn the_ahead_marker_stays_until_a_restore_reaches_the_end() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("empty records open with any identity");
        store.apply_restored(&Changes::default()).expect("a store in memory takes every change");
        let options = Options { batch_max: 10, away_ms_max: 1000, ..Options::default() };
        restore(&store, &NEW, &options, &Progress::default(), &SystemClock)
            .expect_err("the log cannot be read");
        let again = Store::over(records.clone(), &identity).expect("the identity is the same");
        assert!(store.is_ahead() && again.is_ahead());
        let cancelled = Progress::default();
        cancelled.cancel();
        let nothing_new = Options { until: Some(3), ..options.clone() };
        restore(&again, &NEW, &nothing_new, &cancelled, &SystemClock).expect("the span is empty");
        assert!(again.is_ahead(), "a cancelled restore did not reach the end");
        restore(&again, &NEW, &nothing_new, &Progress::default(), &SystemClock)
            .expect("the span is empty");
        assert!(
            !again.is_ahead()
                && !Store::over(records, &identity).expect("the identity is the same").is_ahead()
        );
    }
}
