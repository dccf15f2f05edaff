//! Writes restored records on a thread of their own, while more are read.

use super::pending::Pending;
use crate::changelog::{Evidence, Writers};
use crate::checkpoint::Checkpoint;
use crate::store::{Changes, Claim, Store, keys};
use broker::Record;
use crossbeam_channel::Sender;
use domain::fault::{Fault, Result};
use domain::{MemoryId, UserKey};
use std::collections::HashSet;
use std::thread::{Scope, ScopedJoinHandle};

/// Batches of read records, however few distinct ones they leave, after which the checkpoint moves.
/// Bounds the records that a restore reads again after a crash.
const BATCHES: u64 = 8;

/// Records of a batch from which two threads write half of it each: the last batch is written when
/// nothing is left to read, and the thread that read has nothing to do.
const SHARED_FROM: usize = 1000;

pub type ChangedMemories = HashSet<(UserKey, MemoryId)>;

/// About 10 MB of names. To look at every memory of the shard costs no more for so many.
const CHANGED_MAX: usize = 65_536;

/// A thread that writes batches to the store, each with its checkpoint behind it. Order matters:
/// after a crash, the records between the old checkpoint and the new one are read and written
/// again.
pub struct WriterThread<'scope> {
    batches: Sender<(Changes, Checkpoint, Claim)>,
    thread: ScopedJoinHandle<'scope, Result<()>>,
}

impl<'scope> WriterThread<'scope> {
    pub fn start(scope: &'scope Scope<'scope, '_>, store: &'scope Store) -> WriterThread<'scope> {
        let (batches, to_write) = crossbeam_channel::bounded::<(Changes, Checkpoint, Claim)>(1);
        let thread = scope.spawn(move || {
            for (changes, checkpoint, claim) in to_write {
                write_ahead(store, changes)?;
                store.move_checkpoint(checkpoint, claim)?;
            }
            Ok(())
        });
        WriterThread { batches, thread }
    }

    /// Blocks while one batch is being written and another waits. Fails if the thread has ended;
    /// `finish` then returns why.
    fn write(&self, changes: Changes, checkpoint: Checkpoint, claim: Claim) -> Result<()> {
        let sent = self.batches.send((changes, checkpoint, claim));
        sent.map_err(|_| Fault::retry("the writer thread of a restore has ended"))
    }

    /// Waits until every batch is written.
    fn finish(self) -> Result<()> {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn write_ahead(store: &Store, mut changes: Changes) -> Result<()> {
    if changes.records.len() < SHARED_FROM {
        return store.write_ahead(&changes);
    }
    let upper = changes.split_off_half();
    std::thread::scope(|scope| {
        let upper = scope.spawn(|| store.write_ahead(&upper));
        let lower = store.write_ahead(&changes);
        lower.and(upper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sends the pending records to the writer, some thousand at a time.
pub struct Batch<'a> {
    store: &'a Store,
    pending: Pending<'a>,
    writer: WriterThread<'a>,
    is_from_beginning: bool,
    batch_max: usize,
    /// Number of records taken at the last checkpoint.
    checkpointed: u64,
    changed: Option<ChangedMemories>,
}

impl<'a> Batch<'a> {
    /// `from`: the first offset to be read. `is_new`: the store had read nothing before.
    pub fn new(
        store: &'a Store,
        from: i64,
        is_new: bool,
        writer: WriterThread<'a>,
        batch_max: usize,
        writers: &'a Writers,
    ) -> Batch<'a> {
        let claim = store.claim();
        let digest = claim.map_or_else(|| store.kept_digest(), |claim| claim.digest);
        Batch {
            store,
            pending: Pending::new(store, from, digest, writers),
            writer,
            is_from_beginning: is_new || claim.is_some_and(|claim| claim.is_from_beginning),
            batch_max,
            checkpointed: 0,
            changed: Some(ChangedMemories::new()),
        }
    }

    /// Takes a record, and writes what is pending if that is enough.
    pub fn take(&mut self, record: Record) -> Result<()> {
        if let Some(meta) = self.pending.take(record)? {
            self.store.note_epoch(meta.epoch.unwrap_or(0));
            self.store.note_published(meta.tenants.map(|topic| topic.0))?;
        }
        let read = self.pending.count - self.checkpointed;
        let is_full = self.pending.changes.records.len() >= self.batch_max;
        if is_full || read >= BATCHES * self.batch_max as u64 { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let Pending { count, applied, next, .. } = self.pending;
        self.checkpointed = count;
        let changes = std::mem::take(&mut self.pending.changes);
        if let Some(changed) = &mut self.changed {
            changed.extend(changes.records.keys().filter_map(|key| keys::memory_of(key)));
        }
        self.changed.take_if(|changed| changed.len() > CHANGED_MAX);
        let changelog = Some(next - 1);
        let digest = self.pending.evidence.expected;
        let claim = Claim { is_from_beginning: self.is_from_beginning, digest };
        self.writer.write(changes, Checkpoint { applied, changelog }, claim)
    }

    /// Writes the rest, unless reading failed, and returns the number of records taken, with their
    /// meta records, and the memories among them. A failure of the writer counts first, because the
    /// failure ends the reading.
    pub fn finish(mut self, read: Result<()>) -> Result<(u64, Evidence, Option<ChangedMemories>)> {
        let read = read.and_then(|()| self.write());
        self.writer.finish()?;
        read.map(|()| (self.pending.count, self.pending.evidence, self.changed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Identity;
    use crate::store::records::{InMemory, Records, Replaced, Visit};
    use domain::fault::StopName;

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

        fn write_batch(&self, changes: &Changes) -> Result<()> {
            self.0.write_batch(changes)
        }

        fn write_each(&self, _changes: &Changes, _replaced: Replaced<'_>) -> Result<()> {
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
        let writers = Writers::default();
        let failed = std::thread::scope(|scope| {
            let writer = WriterThread::start(scope, &store);
            let mut batch = Batch::new(&store, 0, true, writer, 1, &writers);
            let read = (0..100).try_for_each(|_| batch.write());
            batch.finish(read)
        });
        let Err(Fault::Stop(stop)) = failed else { panic!("the write failed") };
        assert_eq!(stop.name, StopName::StoreUnwritable);
    }
}
