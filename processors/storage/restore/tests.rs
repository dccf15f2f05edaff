//! Which store a restore continues, and what a restore leaves in the store.

mod proof;

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

fn restored(store: &Store, options: &RestoreOptions, progress: &Progress) -> Result<Restored> {
    restore(store, &Restoring { log: &NEW, options, progress, clock: &SystemClock })
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

fn store_at(identity: &Identity, offset: i64, at: Time) -> Stored {
    let stored = Stored(InMemory::default(), identity.clone());
    let checkpoint = Checkpoint { applied: 0, changelog: Some(offset) };
    let store = stored.reopened();
    store.note_read_at(at);
    store.commit(EncodedBatch::default(), checkpoint).expect("a store in memory");
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
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
    let before = SystemClock.wall();
    restored(&store, &options, &Progress::default()).expect_err("the log cannot be read");
    let again = Store::over(records, &identity).expect("the identity is the same");
    let written = again.checkpoint();
    assert_eq!(written, Checkpoint { applied: -1, changelog: Some(3) });
    let at = again.read_at();
    assert!(at >= before);
    let why = |now_ms| outdated(&again, &NEW, now_ms, &options).expect("it has a beginning");
    assert_eq!(why(at.0 + 1000), None);
    assert!(why(at.0 + 1001).is_some());
    assert_eq!(why(at.0 - AHEAD_MS_MAX), None);
    assert!(why(at.0 - AHEAD_MS_MAX - 1).is_some());
}

#[test]
fn a_store_behind_the_beginning_of_its_changelog_is_rebuilt() {
    let identity = identity();
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
    for (offset, is_outdated) in [(2, true), (3, false), (9, false)] {
        let store = store_at(&identity, offset, Time(0)).reopened();
        let why = outdated(&store, &NEW, 0, &options).expect("it has a beginning");
        assert_eq!(why.is_some(), is_outdated, "{offset}: {why:?}");
    }
}

/// The date of a store is of the clock of its process; the times of the records are not.
#[test]
fn a_store_is_as_old_as_the_records_that_it_lacks() {
    let identity = identity();
    let options = RestoreOptions { batch_max: 10, away_ms_max: 100, ..RestoreOptions::default() };
    // Record n is of the time 100 n, and now is 900: the store must have all up to record 7.
    for (offset, is_outdated) in [(5, true), (6, false), (8, false)] {
        let store = store_at(&identity, offset, Time(900)).reopened();
        let why = outdated(&store, &Unreadable(100), 900, &options).expect("it has a beginning");
        assert_eq!(why.is_some(), is_outdated, "{offset}: {why:?}");
    }
}

/// A laptop that was off for a month reads on where it stopped.
#[test]
fn a_store_is_outdated_by_tombstones_if_the_broker_records_them_and_not_by_time() {
    let identity = identity();
    let store = store_at(&identity, 5, Time(0)).reopened();
    for (gone, is_outdated) in [(-1, false), (5, false), (6, true)] {
        let options = RestoreOptions {
            away_ms_max: 1,
            tombstones_gone: Some(TombstonesGone(Arc::new(move |_| gone))),
            ..RestoreOptions::default()
        };
        let why = outdated(&store, &NEW, i64::MAX, &options).expect("nothing is read");
        assert_eq!(why.is_some(), is_outdated, "{gone}: {why:?}");
    }
}

#[test]
fn a_cancelled_restore_makes_its_store_no_younger() {
    let identity = identity();
    let stored = store_at(&identity, 5, Time(7));
    let nothing_new = RestoreOptions {
        batch_max: 10,
        away_ms_max: 1000,
        until: Some(5),
        ..RestoreOptions::default()
    };
    let cancelled = Progress::default();
    cancelled.cancel();
    for (progress, is_younger) in [(cancelled, false), (Progress::default(), true)] {
        restored(&stored.reopened(), &nothing_new, &progress).expect("an empty span");
        let store = stored.reopened();
        assert_eq!((store.changelog(), store.read_at() > Time(7)), (Some(5), is_younger));
    }
}

#[test]
fn the_ahead_marker_stays_until_a_restore_reaches_the_end() {
    let identity = identity();
    let records = InMemory::default();
    let store =
        Store::over(records.clone(), &identity).expect("empty records open with any identity");
    store.write_ahead(&Changes::default()).expect("a store in memory takes every change");
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
    restored(&store, &options, &Progress::default()).expect_err("the log cannot be read");
    let again = Store::over(records.clone(), &identity).expect("the identity is the same");
    assert!(store.is_ahead() && again.is_ahead());
    let cancelled = Progress::default();
    cancelled.cancel();
    let nothing_new = RestoreOptions { until: Some(3), ..options.clone() };
    restored(&again, &nothing_new, &cancelled).expect("the span is empty");
    assert!(again.is_ahead(), "a cancelled restore did not reach the end");
    restored(&again, &nothing_new, &Progress::default()).expect("the span is empty");
    assert!(
        !again.is_ahead()
            && !Store::over(records, &identity).expect("the identity is the same").is_ahead()
    );
}
