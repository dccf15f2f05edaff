//! Rebuilds a shard's store from the changelog, before any thread reads or writes the shard.
//!
//! The changelog is the `memories` topic. Each of its records carries the bytes of one store
//! record; the last record of each transaction, named `meta`, carries the offset of the newest
//! event that the shard had applied. Restore copies these records and decides nothing:
//!
//! 1. Take the end of the partition as it is now, open transactions included. Their outcome is a
//!    part of the state.
//! 2. Begin behind the store's checkpoint, or at the first record of the topic.
//! 3. Write a checkpoint that says where and when this restore began ([`Store::apply`]).
//! 4. Read record by record ([`read`]) and collect them in a [`Batch`].
//! 5. A second thread writes each batch ahead of the checkpoint ([`Store::apply_restored`]), then
//!    moves the checkpoint.
//! 6. At the end taken in step 1, clear the store's `ahead` marker ([`Store::caught_up`]).
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
//! compaction may have removed the tombstones that it lacks ([`is_recent`]).

mod read;
mod write;

pub use read::{changed_since, first_named};

use crate::store::{ChangelogPosition, Checkpoint, EncodedBatch, Store};
use domain::Time;
use domain::fault::{Fault, Result, StopName};
use log::broker::Log;
use log::clock::Clock;
use read::{Span, each};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use write::{Batch, Writer};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Distinct records that are collected before they are written.
    pub batch_max: usize,
    /// Age in ms from which a store counts as outdated: half the retention of tombstones.
    pub away_ms_max: i64,
    /// The last offset to read. `None` reads to the end.
    pub until: Option<i64>,
}

/// The progress of one restore. Shared with the threads that show or cancel the restore.
#[derive(Debug, Default)]
pub struct Progress {
    from: AtomicI64,
    at: AtomicI64,
    end: AtomicI64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Returns the share of the changelog that has been read, 0 to 1.
    pub fn share(&self) -> f64 {
        let from = self.from.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        if end <= from { 0.0 } else { ((at - from) as f64 / (end - from) as f64).clamp(0.0, 1.0) }
    }

    /// Stops the restore at its next record. The store keeps its checkpoint, so that a later
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

    fn reached(&self, offset: i64) {
        self.at.store(offset, Ordering::Release);
    }
}

/// Returns whether a restore may continue from this store. False for a store so old that the
/// changelog may have dropped tombstones that the store needs: forgotten memories would return.
pub fn is_recent(store: &Store, now_ms: i64, options: &Options) -> bool {
    store.changelog().is_none_or(|place| now_ms - place.at.0 <= options.away_ms_max)
}

/// Reads the changelog from the store's checkpoint to the end as it is now, and returns the number
/// of records read. Returns early, and without error, if `progress` is cancelled.
pub fn restore(
    store: &Store,
    log: &dyn Log,
    options: &Options,
    progress: &Progress,
    clock: &dyn Clock,
) -> Result<u64> {
    let partition = store.identity().partition;
    // Order matters: the end is taken first and includes open transactions, because their outcome
    // is a part of the state.
    let end = log.end(partition)?.min(options.until.map_or(i64::MAX, |until| until + 1));
    let from = match store.changelog() {
        Some(place) => place.offset + 1,
        None => log.beginning(partition)?,
    };
    if from > end {
        let what = format!(
            "the store has read the changelog up to {from}, but the changelog ends at {end}: the \
             store was made from another one"
        );
        return Err(Fault::stop(StopName::StoreOfAnotherLog, what));
    }
    progress.begin(from, end);
    let begun = checkpoint_at_begin(store, from, clock.wall());
    // Order matters: records are written ahead of the checkpoint, so the checkpoint must already
    // say since when they may be there. Without it their age would be unknown after a crash.
    store.apply(
        EncodedBatch::default(),
        Checkpoint { applied: store.applied(), changelog: Some(begun) },
    )?;
    let records = std::thread::scope(|scope| {
        let writer = Writer::start(scope, store);
        let mut batch = Batch::new(store, from, writer, options.batch_max);
        let span = Span { partition, from, end, until: options.until };
        let read = each(log, &span, progress, &mut |record| {
            batch.take(record)?;
            progress.reached(batch.next());
            batch.write_if_due(clock)
        });
        batch.finish(read, clock)
    })?;
    if !progress.is_cancelled() && store.is_ahead() {
        store.caught_up()?;
    }
    Ok(records)
}

/// The position that the store already has; for a new store, the position before its first record,
/// with the present time as its age.
fn checkpoint_at_begin(store: &Store, from: i64, now: Time) -> ChangelogPosition {
    store.changelog().unwrap_or(ChangelogPosition { offset: from - 1, at: now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Changes, Identity, InMemory};
    use log::broker::Consumer;
    use log::clock::SystemClock;

    /// A log with ten records that fails every attempt to read one.
    struct Unreadable;

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

    /// Without the checkpoint, records written ahead would have no age, and would survive their
    /// tombstones.
    #[test]
    fn a_restore_writes_its_checkpoint_before_its_first_record() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("empty records open with any identity");
        let options = Options { batch_max: 10, away_ms_max: 1000, until: None };
        let before = SystemClock.wall();
        restore(&store, &Unreadable, &options, &Progress::default(), &SystemClock)
            .expect_err("the log cannot be read");
        let again = Store::over(records, &identity).expect("the identity is the same");
        let place = again.changelog().expect("the checkpoint is written first");
        assert!(place.offset == 3 && place.at >= before && again.applied() == -1, "{place:?}");
        assert!(!is_recent(&again, place.at.0 + 1001, &options), "an outdated store is rebuilt");
    }

    #[test]
    fn the_ahead_marker_stays_until_a_restore_reaches_the_end() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("empty records open with any identity");
        store.apply_restored(&Changes::default()).expect("a store in memory takes every change");
        let options = Options { batch_max: 10, away_ms_max: 1000, until: None };
        restore(&store, &Unreadable, &options, &Progress::default(), &SystemClock)
            .expect_err("the log cannot be read");
        let again = Store::over(records.clone(), &identity).expect("the identity is the same");
        assert!(store.is_ahead() && again.is_ahead());
        let cancelled = Progress::default();
        cancelled.cancel();
        let nothing_new = Options { until: Some(3), ..options };
        restore(&again, &Unreadable, &nothing_new, &cancelled, &SystemClock)
            .expect("the span is empty");
        assert!(again.is_ahead(), "a cancelled restore did not reach the end");
        restore(&again, &Unreadable, &nothing_new, &Progress::default(), &SystemClock)
            .expect("the span is empty");
        assert!(
            !again.is_ahead()
                && !Store::over(records, &identity).expect("the identity is the same").is_ahead()
        );
    }
}
