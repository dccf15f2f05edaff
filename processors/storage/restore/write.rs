//! Writes restored records while more are read.
//!
//! - *Memories* seldom change twice, so they are written early, a quarter of a batch at a time.
//! - *Other records* (sessions, gate state and the like) change with every turn, so they are
//!   collected for a whole batch and only the last value of each is written.

use crate::changelog::{self, META, STATE_HEADER, StoreKey, is_signing_key};
use crate::store::{ChangelogPosition, Changes, Checkpoint, EncodedBatch, Store};
use crossbeam_channel::{Receiver, Sender};
use domain::fault::{Fault, Result, StopName};
use log::broker::Record;
use log::clock::Clock;
use std::thread::Scope;

/// Parts of a batch in which memories are written. Larger parts begin to be written later; smaller
/// parts more often write a memory twice that changes again.
const PARTS: usize = 4;
/// Batches of read records, however few distinct ones they leave, after which the checkpoint
/// moves. Bounds what a restore reads again after a crash.
const BATCHES: u64 = 8;

/// A thread that writes to the store. Invariant: all changes of one record go through the same
/// writer, so that the last one wins.
pub struct Writer {
    changes: Sender<Changes>,
    written: Receiver<Result<()>>,
    /// Parts that were sent and whose outcome was not received yet.
    pending: usize,
}

impl Writer {
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, store: &'scope Store) -> Writer {
        let (changes, to_write) = crossbeam_channel::bounded::<Changes>(1);
        let (outcomes, written) = crossbeam_channel::unbounded();
        scope.spawn(move || {
            for changes in to_write {
                let outcome = store.apply_restored(&changes);
                let failed = outcome.is_err();
                if outcomes.send(outcome).is_err() || failed {
                    break;
                }
            }
        });
        Writer { changes, written, pending: 0 }
    }

    /// Sends a part to the thread. Blocks while one part is being written and another waits.
    fn write(&mut self, changes: Changes) -> Result<()> {
        self.pending += 1;
        if self.changes.send(changes).is_err() {
            return self.wait();
        }
        Ok(())
    }

    /// Blocks until every part that was sent is in the store.
    fn wait(&mut self) -> Result<()> {
        for _ in 0..std::mem::take(&mut self.pending) {
            self.written
                .recv()
                .unwrap_or_else(|_| Err(Fault::retry("a writer thread of a restore has ended")))?;
        }
        Ok(())
    }
}

/// Records that were read and not yet sent to a writer.
pub struct Batch<'a> {
    store: &'a Store,
    memories: Changes,
    others: Changes,
    memory_writer: Writer,
    other_writer: Writer,
    batch_max: usize,
    applied: i64,
    next: i64,
    records: u64,
    /// Value of `records` at the last checkpoint.
    checkpointed: u64,
}

impl<'a> Batch<'a> {
    pub fn new(
        store: &'a Store,
        from: i64,
        memory_writer: Writer,
        other_writer: Writer,
        batch_max: usize,
    ) -> Batch<'a> {
        Batch {
            store,
            memories: Changes::default(),
            others: Changes::default(),
            memory_writer,
            other_writer,
            batch_max,
            applied: store.applied(),
            next: from,
            records: 0,
            checkpointed: 0,
        }
    }

    /// The offset behind the last record taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The number of records taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn take(&mut self, record: Record) -> Result<()> {
        self.next = record.offset + 1;
        self.records += 1;
        let name = record.key.unwrap_or_default();
        if name == META.as_bytes() {
            let meta = record.value.as_deref().unwrap_or_default();
            self.applied = changelog::applied_of(meta, self.store.identity())?;
            return Ok(());
        }
        if is_signing_key(&name) {
            return Ok(()); // belongs to the service, not to this shard
        }
        let StoreKey { key, is_memory } = changelog::named(name)?;
        let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
        let changes = if is_memory { &mut self.memories } else { &mut self.others };
        match (record.value, state) {
            (None, _) => changes.remove(key),
            (Some(_), Some((_, state))) => changes.put(key, state),
            (Some(_), None) => {
                let what = format!(
                    "the changelog record at offset {} has no {STATE_HEADER} header: it was \
                     written without store.durability = \"changelog\"",
                    record.offset
                );
                return Err(Fault::stop(StopName::DurabilityDiffers, what));
            }
        }
        Ok(())
    }

    pub fn write_if_due(&mut self, clock: &dyn Clock) -> Result<()> {
        let read = self.records - self.checkpointed;
        if self.others.records.len() >= self.batch_max || read >= BATCHES * self.batch_max as u64 {
            self.write(clock)
        } else if self.memories.records.len() >= self.batch_max.div_ceil(PARTS) {
            self.write_memories()
        } else {
            Ok(())
        }
    }

    /// Writes everything and moves the checkpoint. Order matters: the checkpoint is written when
    /// all records before it are in the store; after a crash they are read and written again.
    pub fn write(&mut self, clock: &dyn Clock) -> Result<()> {
        self.other_writer.write(std::mem::take(&mut self.others))?;
        self.write_memories()?;
        self.memory_writer.wait()?;
        self.other_writer.wait()?;
        self.checkpointed = self.records;
        let at = clock.wall();
        let changelog = Some(ChangelogPosition { offset: self.next - 1, at });
        self.store.apply(EncodedBatch::default(), Checkpoint { applied: self.applied, changelog })
    }

    fn write_memories(&mut self) -> Result<()> {
        self.memory_writer.write(std::mem::take(&mut self.memories))
    }
}
