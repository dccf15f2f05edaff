//! Writes restored records on a thread of their own, while more are read.

use super::proof::{Witness, Writers};
use super::{CHANGED_MAX, ChangedMemories, Options};
use crate::changelog::{self, META, STATE_HEADER, is_signing_key};
use crate::store::{ChangelogPosition, Changes, Checkpoint, Claim, Store, keys};
use crossbeam_channel::Sender;
use domain::Time;
use domain::fault::{Fault, Result};
use log::broker::Record;
use std::thread::{Scope, ScopedJoinHandle};

/// Batches of read records, however few distinct ones they leave, after which the checkpoint
/// moves. Bounds what a restore reads again after a crash.
const BATCHES: u64 = 8;

/// Records of a batch from which two threads write half of it each: the last batch is written when
/// nothing is left to read, and the thread that read has nothing to do.
const SHARED_FROM: usize = 1000;

/// A thread that writes batches to the store, each with its checkpoint behind it. Order matters:
/// after a crash, the records between the old checkpoint and the new one are read and written
/// again.
pub struct Writer<'scope> {
    batches: Sender<(Changes, Checkpoint, Claim)>,
    thread: ScopedJoinHandle<'scope, Result<()>>,
}

impl<'scope> Writer<'scope> {
    pub fn start(scope: &'scope Scope<'scope, '_>, store: &'scope Store) -> Writer<'scope> {
        let (batches, to_write) = crossbeam_channel::bounded::<(Changes, Checkpoint, Claim)>(1);
        let thread = scope.spawn(move || {
            for (changes, checkpoint, claim) in to_write {
                apply(store, changes)?;
                store.apply_checkpoint(checkpoint, claim)?;
            }
            Ok(())
        });
        Writer { batches, thread }
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

fn apply(store: &Store, mut changes: Changes) -> Result<()> {
    if changes.records.len() < SHARED_FROM {
        return store.apply_restored(&changes);
    }
    let upper = changes.split_off_half();
    std::thread::scope(|scope| {
        let upper = scope.spawn(|| store.apply_restored(&upper));
        let lower = store.apply_restored(&changes);
        lower.and(upper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Records that were read and not yet sent to the writer. Only the last value of each is written.
pub struct Batch<'a> {
    store: &'a Store,
    /// The age of the store, for the next checkpoint.
    at: Time,
    changes: Changes,
    writer: Writer<'a>,
    writers: &'a Writers,
    witness: Witness,
    is_from_beginning: bool,
    batch_max: usize,
    applied: i64,
    next: i64,
    records: u64,
    /// Value of `records` at the last checkpoint.
    checkpointed: u64,
    changed: Option<ChangedMemories>,
}

/// Where a restore begins.
#[derive(Clone, Copy)]
pub struct Begin {
    pub from: i64,
    /// The age of the store before the restore. This age stays until the restore is complete.
    pub at: Time,
    /// The store had read nothing before.
    pub is_new: bool,
}

impl<'a> Batch<'a> {
    pub fn new(
        store: &'a Store,
        begin: Begin,
        writer: Writer<'a>,
        options: &'a Options,
    ) -> Batch<'a> {
        let claim = store.claim();
        Batch {
            store,
            at: begin.at,
            changes: Changes::default(),
            writer,
            writers: &options.writers,
            witness: Witness::new(match claim {
                Some(claim) => claim.digest,
                None => store.kept_digest(),
            }),
            is_from_beginning: begin.is_new || claim.is_some_and(|claim| claim.is_from_beginning),
            batch_max: options.batch_max,
            applied: store.applied(),
            next: begin.from,
            records: 0,
            checkpointed: 0,
            changed: Some(ChangedMemories::new()),
        }
    }

    /// The offset behind the last record taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    pub fn take(&mut self, mut record: Record) -> Result<()> {
        self.next = record.offset + 1;
        self.records += 1;
        let name = record.key.take().unwrap_or_default();
        if name == META.as_bytes() {
            let meta = record.value.as_deref().unwrap_or_default();
            let meta = changelog::meta_of(meta, self.store.identity())?;
            // Order matters: no checkpoint passes a record of another group, so that every later
            // restore meets the record again.
            self.writers.check(&meta, record.offset)?;
            self.witness.saw_meta(&meta);
            self.store.note_epoch(meta.epoch.unwrap_or(0));
            self.applied = meta.applied;
            return Ok(());
        }
        if is_signing_key(&name) {
            return Ok(()); // belongs to the service, not to this shard
        }
        match changelog::named(name) {
            Ok(key) => {
                self.witness.saw_state();
                self.note_changed(&key);
                self.changes.records.insert(key, state_of(record)?);
            }
            Err(why) => self.witness.saw_unknown(why, record.offset),
        }
        Ok(())
    }

    fn note_changed(&mut self, record: &[u8]) {
        if let Some(changed) = &mut self.changed {
            changed.extend(keys::memory_of(record));
            if changed.len() > CHANGED_MAX {
                self.changed = None;
            }
        }
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
        let digest = self.witness.claimed();
        let claim = Claim { is_from_beginning: self.is_from_beginning, digest };
        self.writer.write(std::mem::take(&mut self.changes), checkpoint, claim)
    }

    /// Writes the rest, unless reading failed, and returns the number of records taken, with their
    /// meta records, and the memories among them. A failure of the writer counts first, because the failure ends the reading.
    /// `at` becomes the age of the store.
    pub fn finish(
        mut self,
        read: Result<()>,
        at: Time,
    ) -> Result<(u64, Witness, Option<ChangedMemories>)> {
        self.at = at;
        let read = read.and_then(|()| self.write());
        self.writer.finish()?;
        read.map(|()| (self.records, self.witness, self.changed))
    }
}

/// The store record that a changelog record puts, or removes if there is no value.
pub fn change_of(mut record: Record) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let key = changelog::named(record.key.take().unwrap_or_default())?;
    Ok((key, state_of(record)?))
}

fn state_of(record: Record) -> Result<Option<Vec<u8>>> {
    let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
    match (record.value, state) {
        (None, _) => Ok(None),
        (Some(_), Some((_, state))) => Ok(Some(state)),
        (Some(_), None) => Err(changelog::without_state(record.offset)),
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

        fn apply(&self, changes: &Changes) -> Result<()> {
            self.0.apply(changes)
        }

        fn apply_each(&self, _changes: &Changes, _replaced: Replaced<'_>) -> Result<()> {
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
        let options = Options { batch_max: 1, ..Options::default() };
        let failed = std::thread::scope(|scope| {
            let begin = Begin { from: 0, at: Time(0), is_new: true };
            let mut batch = Batch::new(&store, begin, Writer::start(scope, &store), &options);
            let read = (0..100).try_for_each(|_| batch.write());
            batch.finish(read, Time(0))
        });
        let Err(Fault::Stop(stop)) = failed else { panic!("the write failed") };
        assert_eq!(stop.name, StopName::StoreUnwritable);
    }
}
