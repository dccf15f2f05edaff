//! Writes restored records on a thread of their own, while more are read.

use crate::changelog::{self, META, STATE_HEADER, is_signing_key};
use crate::store::{ChangelogPosition, Changes, Checkpoint, EncodedBatch, Store};
use crossbeam_channel::Sender;
use domain::Time;
use domain::fault::{Fault, Result, StopName};
use log::broker::Record;
use std::thread::{Scope, ScopedJoinHandle};

/// Batches of read records, however few distinct ones they leave, after which the checkpoint
/// moves. Bounds what a restore reads again after a crash.
const BATCHES: u64 = 8;

/// A thread that writes batches to the store, each with its checkpoint behind it. Order matters:
/// after a crash, the records between the old checkpoint and the new one are read and written again.
pub struct Writer<'scope> {
    batches: Sender<(Changes, Checkpoint)>,
    thread: ScopedJoinHandle<'scope, Result<()>>,
}

impl<'scope> Writer<'scope> {
    pub fn start(scope: &'scope Scope<'scope, '_>, store: &'scope Store) -> Writer<'scope> {
        let (batches, to_write) = crossbeam_channel::bounded::<(Changes, Checkpoint)>(1);
        let thread = scope.spawn(move || {
            for (changes, checkpoint) in to_write {
                store.apply_restored(&changes)?;
                store.apply(EncodedBatch::default(), checkpoint)?;
            }
            Ok(())
        });
        Writer { batches, thread }
    }

    /// Blocks while one batch is being written and another waits. Fails if the thread has ended;
    /// `finish` then says why.
    fn write(&self, changes: Changes, checkpoint: Checkpoint) -> Result<()> {
        let sent = self.batches.send((changes, checkpoint));
        sent.map_err(|_| Fault::retry("the writer thread of a restore has ended"))
    }

    /// Waits until every batch is written.
    fn finish(self) -> Result<()> {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Records that were read and not yet sent to the writer. Only the last value of each is written.
pub struct Batch<'a> {
    store: &'a Store,
    /// The age of the store, for the next checkpoint.
    at: Time,
    changes: Changes,
    writer: Writer<'a>,
    batch_max: usize,
    applied: i64,
    next: i64,
    records: u64,
    /// Value of `records` at the last checkpoint.
    checkpointed: u64,
}

impl<'a> Batch<'a> {
    /// `at` is the age of the store before the restore. It stays until the restore is complete.
    pub fn new(
        store: &'a Store,
        from: i64,
        at: Time,
        writer: Writer<'a>,
        batch_max: usize,
    ) -> Batch<'a> {
        Batch {
            store,
            at,
            changes: Changes::default(),
            writer,
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
        let key = changelog::named(name)?;
        let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
        match (record.value, state) {
            (None, _) => self.changes.remove(key),
            (Some(_), Some((_, state))) => self.changes.put(key, state),
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

    pub fn write_if_due(&mut self) -> Result<()> {
        let read = self.records - self.checkpointed;
        let is_full = self.changes.records.len() >= self.batch_max;
        if is_full || read >= BATCHES * self.batch_max as u64 { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.checkpointed = self.records;
        let changelog = Some(ChangelogPosition { offset: self.next - 1, at: self.at });
        let checkpoint = Checkpoint { applied: self.applied, changelog };
        self.writer.write(std::mem::take(&mut self.changes), checkpoint)
    }

    /// Writes the rest, unless reading failed, and returns the number of records taken. A failure of
    /// the writer counts first: it ends the reading. `at` becomes the age of the store.
    pub fn finish(mut self, read: Result<()>, at: Time) -> Result<u64> {
        self.at = at;
        let read = read.and_then(|()| self.write());
        self.writer.finish()?;
        read.map(|()| self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Identity;
    use crate::store::records::{InMemory, Records, Visit};

    /// Records that can be read and not written, as on a full disk.
    struct ReadOnly(InMemory);

    impl Records for ReadOnly {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
            self.0.get(key)
        }

        fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
            self.0.scan(prefix, visit)
        }

        fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
            self.0.next_after(key)
        }

        fn apply(&self, changes: &Changes) -> Result<()> {
            self.0.apply(changes)
        }

        fn apply_each(&self, _changes: &Changes) -> Result<()> {
            Err(Fault::stop(StopName::StoreUnwritable, "no space is left"))
        }

        fn flush(&self) -> Result<()> {
            self.0.flush()
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
    }

    #[test]
    fn a_restore_that_cannot_write_ends_with_the_error_of_the_write() {
        let identity = Identity {
            cluster: "c".into(),
            topic: "events".into(),
            partition: 0,
            partitions: 1,
            model: "hash".into(),
            dimensions: 4,
        };
        let store = Store::over(ReadOnly(InMemory::default()), &identity)
            .expect("empty records open with any identity");
        let failed = std::thread::scope(|scope| {
            let mut batch = Batch::new(&store, 0, Time(0), Writer::start(scope, &store), 1);
            let read = (0..100).try_for_each(|_| batch.write());
            batch.finish(read, Time(0))
        });
        let Err(Fault::Stop(stop)) = failed else { panic!("the write failed: {failed:?}") };
        assert_eq!(stop.name, StopName::StoreUnwritable);
    }
}
