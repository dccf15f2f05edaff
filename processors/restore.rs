//! The restore processor: changelog → store. Brings a shard to where its last owner left it, before anybody reads or writes it.
//! Decides nothing: what is in the changelog is what happened.

use crate::domain::Time;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Log, Polled, Record};
use crate::ports::clock::Clock;
use crate::stages::store::changelog::{self, META};
use crate::stages::store::{self, Changes, Finished, Mark, Place, Store};
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
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
        let [from, at, end] = [&self.from, &self.at, &self.end].map(|offset| offset.load(Ordering::Acquire));
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
pub fn restore(store: &Store, log: &dyn Log, options: &Options, progress: &Progress, clock: &dyn Clock) -> Result<u64> {
    let partition = store.identity().partition;
    // Order matters: the end as it is now, an open transaction included. Its outcome is part of what is restored.
    let end = log.end(partition)?.min(options.until.map_or(i64::MAX, |until| until + 1));
    let from = match store.changelog() {
        Some(place) => place.offset + 1,
        None => log.beginning(partition)?,
    };
    if from > end {
        let what =
            format!("the store has read the changelog up to {from}, which ends at {end}: it is not the one it was made from");
        return Err(Fault::stop(StopName::StoreOfAnotherLog, what));
    }
    progress.begin(from, end);
    let (ready, to_apply) = crossbeam_channel::bounded(1);
    std::thread::scope(|scope| {
        // One batch is written while the next is read: each takes about as long.
        let applier = scope.spawn(move || to_apply.iter().try_for_each(|(batch, mark)| store.apply(batch, mark)));
        let mut batch = Batch::from(store, from, ready, options.batch_max, clock.wall());
        let read = if from < end { batch.read(log, end, options, progress, clock) } else { Ok(()) };
        if read.is_ok() {
            batch.pass_on(clock);
        }
        let records = batch.records;
        drop(batch);
        let applied = applier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        applied.and(read).map(|()| records)
    })
}

/// What has been read and not been passed on. Memories go ahead, a part at a time: hardly one of them changes soon again, so they are
/// written while more is read. Everything else changes with every turn, and is written once for many.
struct Batch<'a> {
    store: &'a Store,
    /// To the thread that writes.
    ready: Sender<(Finished, Mark)>,
    memories: Changes,
    others: Changes,
    batch_max: usize,
    applied: i64,
    next: i64,
    records: u64,
    /// Up to where everything has been passed on, and how many records that were.
    mark: Mark,
    marked: u64,
}

/// Memories that go ahead together: a quarter of a batch. More are written later, fewer are more often written twice.
const PARTS: usize = 4;
/// Batches read, however few records they leave, after which everything is passed on: what a crash while restoring reads again.
const BATCHES: u64 = 8;

impl<'a> Batch<'a> {
    /// A store that says nothing yet says where it begins and since when, or it could not be told later how old it is.
    fn from(store: &'a Store, from: i64, ready: Sender<(Finished, Mark)>, batch_max: usize, now: Time) -> Batch<'a> {
        let applied = store.applied();
        let place = store.changelog().unwrap_or(Place { offset: from - 1, at: now });
        let mark = Mark { applied, changelog: Some(place) };
        let (memories, others) = (Changes::default(), Changes::default());
        Batch { store, ready, memories, others, batch_max, applied, next: from, records: 0, mark, marked: 0 }
    }

    fn read(&mut self, log: &dyn Log, end: i64, options: &Options, progress: &Progress, clock: &dyn Clock) -> Result<()> {
        let partition = self.store.identity().partition;
        let mut reader = log.read(partition, self.next)?;
        let mut heard = Instant::now();
        while !progress.is_cancelled() {
            match reader.poll(LOOK)? {
                Polled::Record(record) if options.until.is_some_and(|until| record.offset > until) => return Ok(()),
                Polled::Record(record) => {
                    heard = Instant::now();
                    self.take(record)?;
                    progress.reached(self.next);
                    if !self.pass_on_what_is_due(clock) {
                        return Ok(());
                    }
                }
                // Markers and aborted records have offsets too: the last record need not be the last offset.
                Polled::End { partition: ended } if ended == partition && log.stable_end(partition)? >= end => return Ok(()),
                Polled::End { .. } => {}
                Polled::Nothing if heard.elapsed() < SILENCE => {}
                Polled::Nothing => {
                    // A transaction was open, and is decided by now without a record for us.
                    reader = log.read(partition, self.next)?;
                    heard = Instant::now();
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, record: Record) -> Result<()> {
        self.next = record.offset + 1;
        self.records += 1;
        let name = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        if name == META {
            self.applied = changelog::applied_of(record.value.as_deref().unwrap_or_default(), self.store.identity())?;
            return Ok(());
        }
        let key = changelog::store_key(&name)?;
        let state = record.headers.into_iter().find(|(name, _)| name == changelog::STATE_HEADER);
        let changes = if store::is_memory(&key) { &mut self.memories } else { &mut self.others };
        match (record.value, state) {
            (None, _) => changes.remove(key),
            (Some(_), Some((_, state))) => changes.put(key, state),
            (Some(_), None) => {
                let what = format!("offset {} of the changelog holds {name:?} without its record", record.offset);
                return Err(Fault::stop(StopName::DurabilityDiffers, what));
            }
        }
        Ok(())
    }

    /// Whether somebody takes it, or nothing is due. If not, writing has failed, and that thread says why.
    fn pass_on_what_is_due(&mut self, clock: &dyn Clock) -> bool {
        let read = self.records - self.marked;
        if self.others.records.len() >= self.batch_max || read >= BATCHES * self.batch_max as u64 {
            self.pass_on(clock)
        } else if self.memories.records.len() >= self.batch_max.div_ceil(PARTS) {
            self.pass_memories_on()
        } else {
            true
        }
    }

    fn pass_on(&mut self, clock: &dyn Clock) -> bool {
        self.mark = Mark { applied: self.applied, changelog: Some(Place { offset: self.next - 1, at: clock.wall() }) };
        self.marked = self.records;
        let mut changes = std::mem::take(&mut self.others);
        changes.records.append(&mut self.memories.records);
        self.send(changes)
    }

    /// The store still says that it has come to the mark: after a crash, what is written here is read and written again.
    fn pass_memories_on(&mut self) -> bool {
        let memories = std::mem::take(&mut self.memories);
        self.send(memories)
    }

    fn send(&self, changes: Changes) -> bool {
        self.ready.send((Finished { changes, ..Finished::default() }, self.mark)).is_ok()
    }
}
