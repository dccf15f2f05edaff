//! The restore processor: changelog → store. Brings a shard to where its last owner left it, before anybody reads or writes it.
//! Decides nothing: what is in the changelog is what happened.

use crate::domain::Time;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Log, Polled, Record};
use crate::ports::clock::Clock;
use crate::stages::store::changelog::{self, META, Named, STATE_HEADER, is_marks_key};
use crate::stages::store::{Changes, Finished, Mark, Place, Store};
use crossbeam_channel::{Receiver, Sender};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records applied together.
    pub batch_max: usize,
    /// A store that was away longer may have missed that something was forgotten: the topic no longer tells.
    pub away_ms_max: i64,
    /// The last offset that is read; without it all that is there.
    pub until: Option<i64>,
}

/// How far a restore has come, for whoever waits for it.
#[derive(Debug, Default)]
pub struct Progress {
    from: AtomicI64,
    at: AtomicI64,
    end: AtomicI64,
    cancelled: AtomicBool,
}

impl Progress {
    /// 0 to 1.
    pub fn share(&self) -> f64 {
        let [from, at, end] =
            [&self.from, &self.at, &self.end].map(|offset| offset.load(Ordering::Acquire));
        if end <= from { 0.0 } else { ((at - from) as f64 / (end - from) as f64).clamp(0.0, 1.0) }
    }

    /// The partition is no longer ours: what has been restored stays, and is gone on from another time.
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

/// How a poll waits, and how long a reader may say nothing before it is made anew.
const LOOK: Duration = Duration::from_millis(20);
const SILENCE: Duration = Duration::from_secs(2);

/// Whether this store can be gone on from: it is not so old that tombstones it needs may be gone.
pub fn is_recent(store: &Store, now_ms: i64, options: &Options) -> bool {
    store.changelog().is_none_or(|place| now_ms - place.at.0 <= options.away_ms_max)
}

/// Returns how many records were read. Ends when everything that was written before it began is here, decided, or is cancelled.
pub fn restore(
    store: &Store,
    log: &dyn Log,
    options: &Options,
    progress: &Progress,
    clock: &dyn Clock,
) -> Result<u64> {
    let partition = store.identity().partition;
    // Order matters: the end as it is now, an open transaction included. Its outcome is part of what is restored.
    let end = log.end(partition)?.min(options.until.map_or(i64::MAX, |until| until + 1));
    let from = match store.changelog() {
        Some(place) => place.offset + 1,
        None => log.beginning(partition)?,
    };
    if from > end {
        let what = format!(
            "the store has read the changelog up to {from}, which ends at {end}: it is not the one it was made from"
        );
        return Err(Fault::stop(StopName::StoreOfAnotherLog, what));
    }
    progress.begin(from, end);
    let mark = Mark { applied: store.applied(), changelog: Some(begun(store, from, clock.wall())) };
    // A crash leaves records ahead of the mark, so the mark is there first: it says since when they may be old.
    store.apply(Finished::default(), mark)?;
    let records = std::thread::scope(|scope| {
        let (memories, others) = (Writer::start(scope, store), Writer::start(scope, store));
        let mut batch = Batch::from(store, from, memories, others, options.batch_max);
        let span = Span { partition, from, end, until: options.until };
        each(log, &span, progress, &mut |record| {
            batch.take(record)?;
            progress.reached(batch.next);
            batch.pass_on_what_is_due(clock)
        })?;
        batch.pass_on(clock)?;
        Ok(batch.records)
    })?;
    if !progress.is_cancelled() && store.is_ahead() {
        store.caught_up()?;
    }
    Ok(records)
}

/// Where in the store the records lie that the changelog has from this offset on, those it removes among them.
pub fn changed_since(log: &dyn Log, partition: i32, from: i64) -> Result<BTreeSet<Vec<u8>>> {
    let mut keys = BTreeSet::new();
    let span = Span { partition, from, end: log.end(partition)?, until: None };
    each(log, &span, &Progress::default(), &mut |record| {
        let name = record.key.unwrap_or_default();
        if name != META.as_bytes() && !is_marks_key(&name) {
            keys.insert(changelog::named(name)?.key);
        }
        Ok(())
    })?;
    Ok(keys)
}

/// The first record from this offset on whose name begins so, before `until` or the end as it is now.
pub fn first_named(
    log: &dyn Log,
    partition: i32,
    from: i64,
    until: Option<i64>,
    begin: &str,
) -> Result<Option<Record>> {
    let (mut found, progress) = (None, Progress::default());
    let span =
        Span { partition, from, end: log.end(partition)?, until: until.map(|until| until - 1) };
    each(log, &span, &progress, &mut |record| {
        if record.key.as_ref().is_some_and(|name| name.starts_with(begin.as_bytes())) {
            found = Some(record);
            progress.cancel();
        }
        Ok(())
    })?;
    Ok(found)
}

/// What is read of a partition of the changelog.
struct Span {
    partition: i32,
    from: i64,
    /// The end as it was, open transactions included.
    end: i64,
    /// The last offset that is wanted.
    until: Option<i64>,
}

/// Every record of the span in order, or until it is cancelled.
fn each(
    log: &dyn Log,
    span: &Span,
    progress: &Progress,
    take: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let &Span { partition, from, end, until } = span;
    if from >= end {
        return Ok(());
    }
    let mut next = from;
    let mut reader = log.read_header(partition, next, STATE_HEADER)?;
    let mut silent_since = None;
    while !progress.is_cancelled() {
        match reader.poll(LOOK)? {
            Polled::Record(record) if until.is_some_and(|until| record.offset > until) => {
                return Ok(());
            }
            Polled::Record(record) => {
                silent_since = None;
                next = record.offset + 1;
                take(record)?;
            }
            // Markers and aborted records have offsets too: the last record need not be the last offset.
            Polled::End { partition: ended }
                if ended == partition && log.stable_end(partition)? >= end =>
            {
                return Ok(());
            }
            Polled::End { .. } => {}
            Polled::Nothing
                if silent_since.get_or_insert_with(Instant::now).elapsed() < SILENCE => {}
            Polled::Nothing => {
                // A transaction was open, and is decided by now without a record for us.
                reader = log.read_header(partition, next, STATE_HEADER)?;
                silent_since = None;
            }
        }
    }
    Ok(())
}

/// A store that says nothing yet begins here and now, or it could not be told later how old it is.
fn begun(store: &Store, from: i64, now: Time) -> Place {
    store.changelog().unwrap_or(Place { offset: from - 1, at: now })
}

/// Writes while more is read. Changes of one record all go to the same one, so that the last of them is the one that stays.
struct Writer {
    changes: Sender<Changes>,
    written: Receiver<Result<()>>,
    /// Handed over and not known to be written.
    pending: usize,
}

impl Writer {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, store: &'scope Store) -> Writer {
        let (changes, to_write) = crossbeam_channel::bounded::<Changes>(1);
        let (tell, written) = crossbeam_channel::unbounded();
        scope.spawn(move || {
            for changes in to_write {
                let outcome = store.apply_ahead(&changes);
                let failed = outcome.is_err();
                if tell.send(outcome).is_err() || failed {
                    break;
                }
            }
        });
        Writer { changes, written, pending: 0 }
    }

    /// Waits while one part is written and another is ready.
    fn write(&mut self, changes: Changes) -> Result<()> {
        self.pending += 1;
        if self.changes.send(changes).is_err() {
            return self.wait();
        }
        Ok(())
    }

    /// Until all that was handed over is in the store.
    fn wait(&mut self) -> Result<()> {
        for _ in 0..std::mem::take(&mut self.pending) {
            self.written.recv().unwrap_or_else(|_| {
                Err(Fault::retry("a thread that writes what is restored has ended"))
            })?;
        }
        Ok(())
    }
}

/// What has been read and not been passed on. Memories go ahead, a part at a time: hardly one of them changes soon again, so they are
/// written while more is read. Everything else changes with every turn, and is written once for many.
struct Batch<'a> {
    store: &'a Store,
    memories: Changes,
    others: Changes,
    writer_of_memories: Writer,
    writer_of_others: Writer,
    batch_max: usize,
    applied: i64,
    next: i64,
    records: u64,
    /// How many records have been passed on and marked.
    marked: u64,
}

/// Memories that go ahead together: a quarter of a batch. More are written later, fewer are more often written twice.
const PARTS: usize = 4;
/// Batches read, however few records they leave, after which everything is passed on: what a crash while restoring reads again.
const BATCHES: u64 = 8;

impl<'a> Batch<'a> {
    fn from(
        store: &'a Store,
        from: i64,
        writer_of_memories: Writer,
        writer_of_others: Writer,
        batch_max: usize,
    ) -> Batch<'a> {
        Batch {
            store,
            memories: Changes::default(),
            others: Changes::default(),
            writer_of_memories,
            writer_of_others,
            batch_max,
            applied: store.applied(),
            next: from,
            records: 0,
            marked: 0,
        }
    }

    fn take(&mut self, record: Record) -> Result<()> {
        self.next = record.offset + 1;
        self.records += 1;
        let name = record.key.unwrap_or_default();
        if name == META.as_bytes() {
            self.applied = changelog::applied_of(
                record.value.as_deref().unwrap_or_default(),
                self.store.identity(),
            )?;
            return Ok(());
        }
        if is_marks_key(&name) {
            return Ok(()); // the service's, not this shard's
        }
        let Named { key, is_memory } = changelog::named(name)?;
        let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
        let changes = if is_memory { &mut self.memories } else { &mut self.others };
        match (record.value, state) {
            (None, _) => changes.remove(key),
            (Some(_), Some((_, state))) => changes.put(key, state),
            (Some(_), None) => {
                let what = format!(
                    "offset {} of the changelog has no {STATE_HEADER}: what is in it is not known",
                    record.offset
                );
                return Err(Fault::stop(StopName::DurabilityDiffers, what));
            }
        }
        Ok(())
    }

    fn pass_on_what_is_due(&mut self, clock: &dyn Clock) -> Result<()> {
        let read = self.records - self.marked;
        if self.others.records.len() >= self.batch_max || read >= BATCHES * self.batch_max as u64 {
            self.pass_on(clock)
        } else if self.memories.records.len() >= self.batch_max.div_ceil(PARTS) {
            self.pass_memories_on()
        } else {
            Ok(())
        }
    }

    /// Order matters: the mark comes when all before it is there. A crash before it reads and writes the same again.
    fn pass_on(&mut self, clock: &dyn Clock) -> Result<()> {
        self.writer_of_others.write(std::mem::take(&mut self.others))?;
        self.pass_memories_on()?;
        self.writer_of_memories.wait()?;
        self.writer_of_others.wait()?;
        self.marked = self.records;
        let changelog = Some(Place { offset: self.next - 1, at: clock.wall() });
        self.store.apply(Finished::default(), Mark { applied: self.applied, changelog })
    }

    fn pass_memories_on(&mut self) -> Result<()> {
        self.writer_of_memories.write(std::mem::take(&mut self.memories))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::broker::Consumer;
    use crate::ports::clock::SystemClock;
    use crate::stages::store::{Changes, Identity, InMemory};

    /// A topic whose records cannot be read.
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
            Err(Fault::retry("nobody answers"))
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

    /// Records that went ahead would otherwise look as if they had never been away, however long their tombstones are gone.
    #[test]
    fn a_restore_that_was_cut_short_has_said_since_when_its_records_are_there() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("new records are of no other log");
        let options = Options { batch_max: 10, away_ms_max: 1000, until: None };
        let before = SystemClock.wall();
        restore(&store, &Unreadable, &options, &Progress::default(), &SystemClock)
            .expect_err("nothing can be read");
        let again = Store::over(records, &identity).expect("they are of the same log");
        let place = again.changelog().expect("it was written first");
        assert!(place.offset == 3 && place.at >= before && again.applied() == -1, "{place:?}");
        assert!(!is_recent(&again, place.at.0 + 1001, &options), "then it is made anew");
    }

    #[test]
    fn a_store_is_ahead_until_a_restore_has_come_to_the_end() {
        let identity = identity();
        let records = InMemory::default();
        let store =
            Store::over(records.clone(), &identity).expect("new records are of no other log");
        store.apply_ahead(&Changes::default()).expect("memory");
        let options = Options { batch_max: 10, away_ms_max: 1000, until: None };
        restore(&store, &Unreadable, &options, &Progress::default(), &SystemClock)
            .expect_err("nothing can be read");
        let again = Store::over(records.clone(), &identity).expect("they are of the same log");
        assert!(store.is_ahead() && again.is_ahead());
        let cancelled = Progress::default();
        cancelled.cancel();
        let nothing_new = Options { until: Some(3), ..options };
        restore(&again, &Unreadable, &nothing_new, &cancelled, &SystemClock)
            .expect("nothing is read");
        assert!(again.is_ahead(), "who cancels has not read to the end");
        restore(&again, &Unreadable, &nothing_new, &Progress::default(), &SystemClock)
            .expect("nothing is read");
        assert!(
            !again.is_ahead()
                && !Store::over(records, &identity).expect("they are of the same log").is_ahead()
        );
    }
}
