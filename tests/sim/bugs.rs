//! Planted bugs: a [`Transactor`], a changelog, a consumer and a restore that make plausible mistakes,
//! to check that the simulator finds them.

use super::instance::restoring;
use super::stream::PARTITIONS;
use broker::clock::Clock;
use broker::{
    CommittedOffsets, Consumer, Log, Membership, OutgoingRecord, Polled, Producer, Start,
    TransactError, Transactor,
};
use domain::fault::Result;
use parking_lot::Mutex;
use service::ownership::Deployment;
use service::ownership::options;
use settings::Config;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use storage::changelog::META;
use storage::restore::Progress;
use storage::restore::Restoring;
use storage::shard::Shard;

/// Beginnings of the rest of a key, in the changelog, of what a turn reads again.
const CONTEXT_TAGS: [&str; 2] = ["t.", "s."];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Treats a commit of unknown outcome as committed: shards change before the batch is certain.
    UnknownIsCommitted,
    /// Treats a commit of unknown outcome as aborted: the events are read again although the
    /// changelog may hold their batch.
    UnknownIsAborted,
    /// Writes the meta record of the previous batch.
    MetaOfTheBatchBefore,
    /// Leaves tombstones out of the changelog.
    NoTombstones,
    /// Loses one memory of every second transaction on its way to the changelog.
    ARecordVanishes,
    /// Writes a memory again after its tombstone, as a writer would that missed the `forget`.
    ForgottenIsWrittenAgain,
    /// Leaves the offsets of forwarded records out of the changelog: a restored shard takes a copy
    /// for the first one.
    NoForwardedOffsets,
    /// Leaves the states of tenant memories out of the topic that other processes follow.
    TenantsAreNotPublished,
    /// Publishes decisions beside the transaction instead of within.
    DecisionsOutsideTheTransaction,
    /// Commits no offsets to the group.
    NoOffsetsCommitted,
    /// Misses one record of the changelog in each restore.
    RestoreSkipsARecord,
    /// Takes the end of the changelog that was found when the process first restored the partition.
    RestoreEndsAtAnOldEnd,
    /// Continues one event too late behind a restored shard.
    ResumesTooLate,
    /// Answers requests without waiting for the offset that they name.
    RequestsDoNotWait,
    /// Restores a partition that another thread restores, without waiting for its directory.
    RestoreWithoutAClaim,
    /// Keeps a shard open whose partition another process gets.
    KeepsALostPartition,
    /// Leaves the context of sessions as it was in a batch that forgets.
    ContextOutlivesAForget,
    /// Takes the last stable offset for the end of the changelog.
    RestoreEndsAtAnOpenTransaction,
    /// Flushes the index in the middle of a batch under the offset of the batch.
    IndexIsMarkedAhead,
}

/// Transactions with a memory until [`Bug::ARecordVanishes`] acts.
const VANISHES_EVERY: u64 = 2;

pub struct Saboteur {
    inner: Box<dyn Transactor>,
    bug: Bug,
    memories: Arc<dyn Log>,
    beside: Box<dyn Producer>,
    topics: Topics,
    metas: BTreeMap<i32, OutgoingRecord>,
    /// The last state of each memory, by key.
    states: BTreeMap<Vec<u8>, OutgoingRecord>,
    forgotten: Vec<OutgoingRecord>,
    transactions: u64,
}

/// Names of the topics that bugs tell apart.
pub struct Topics {
    pub decisions: String,
    pub tenants: String,
}

impl Saboteur {
    pub fn between(
        inner: Box<dyn Transactor>,
        bug: Option<Bug>,
        memories: Arc<dyn Log>,
        beside: Box<dyn Producer>,
        topics: Topics,
    ) -> Box<dyn Transactor> {
        match bug {
            None => inner,
            Some(bug) => Box::new(Saboteur {
                inner,
                bug,
                memories,
                beside,
                topics,
                metas: BTreeMap::new(),
                states: BTreeMap::new(),
                forgotten: Vec::new(),
                transactions: 0,
            }),
        }
    }

    /// The records as the bug changes them.
    fn sabotaged(&mut self, records: &[OutgoingRecord]) -> Vec<OutgoingRecord> {
        let mut records = records.to_vec();
        match self.bug {
            Bug::MetaOfTheBatchBefore => {
                for record in records.iter_mut().filter(|record| is_meta(record)) {
                    let partition = record.partition.expect("a meta record names its partition");
                    if let Some(before) = self.metas.insert(partition, record.clone()) {
                        *record = before;
                    }
                }
            }
            Bug::ARecordVanishes => {
                let is_state =
                    |record: &OutgoingRecord| record.value.is_some() && is_memory(record);
                if let Some(at) = records.iter().position(is_state) {
                    self.transactions += 1;
                    if self.transactions.is_multiple_of(VANISHES_EVERY) {
                        records.remove(at);
                    }
                }
            }
            Bug::NoTombstones => records.retain(|record| record.value.is_some()),
            Bug::ForgottenIsWrittenAgain => {
                let again = std::mem::take(&mut self.forgotten);
                self.note_forgotten(&records);
                records.splice(0..0, again);
            }
            Bug::NoForwardedOffsets => records.retain(|record| !is_named(record, "via.")),
            Bug::TenantsAreNotPublished => {
                records.retain(|record| record.topic != self.topics.tenants || !is_memory(record))
            }
            Bug::DecisionsOutsideTheTransaction => {
                let decisions = records.extract_if(.., |it| it.topic == self.topics.decisions);
                // A producer that cannot write is a fault of the run, which the laws then find.
                decisions.for_each(|decision| drop(self.beside.send(&decision)));
            }
            Bug::ContextOutlivesAForget => {
                if records.iter().any(|it| is_memory(it) && it.value.is_none()) {
                    records.retain(|record| !is_context(record));
                }
            }
            Bug::UnknownIsCommitted
            | Bug::UnknownIsAborted
            | Bug::NoOffsetsCommitted
            | Bug::RestoreSkipsARecord
            | Bug::RestoreEndsAtAnOldEnd
            | Bug::ResumesTooLate
            | Bug::RequestsDoNotWait
            | Bug::RestoreWithoutAClaim
            | Bug::KeepsALostPartition
            | Bug::RestoreEndsAtAnOpenTransaction
            | Bug::IndexIsMarkedAhead => {}
        }
        records
    }

    /// Keeps the last state of every memory whose tombstone is among these records.
    fn note_forgotten(&mut self, records: &[OutgoingRecord]) {
        for record in records.iter().filter(|record| is_memory(record)) {
            let key = record.key.clone().unwrap_or_default();
            if record.value.is_some() {
                self.states.insert(key, record.clone());
            } else {
                self.forgotten.extend(self.states.remove(&key));
            }
        }
    }

    fn written(&self, records: &[OutgoingRecord]) -> CommittedOffsets {
        CommittedOffsets {
            changelog: records
                .iter()
                .filter(|record| is_meta(record))
                .filter_map(|record| record.partition)
                .map(|partition| (partition, self.memories.end(partition).unwrap_or(1) - 1))
                .collect(),
        }
    }
}

fn is_meta(record: &OutgoingRecord) -> bool {
    record.key.as_deref() == Some(META.as_bytes())
}

fn is_named(record: &OutgoingRecord, start: &str) -> bool {
    record.key.as_ref().is_some_and(|key| key.starts_with(start.as_bytes()))
}

/// True for a changelog record of the context of a session: its last turns, and their places.
fn is_context(record: &OutgoingRecord) -> bool {
    let key = record.key.as_deref().unwrap_or_default();
    let name = String::from_utf8_lossy(key);
    let rest = name.rsplit_once('/').map_or("", |(_, rest)| rest);
    CONTEXT_TAGS.iter().any(|tag| rest.starts_with(tag))
}

/// True for a changelog record of a memory, whose key has an id behind its last slash and no stop.
fn is_memory(record: &OutgoingRecord) -> bool {
    let key = record.key.as_deref().unwrap_or_default();
    let name = String::from_utf8_lossy(key);
    let id = name.rsplit_once('/').map_or("", |(_, id)| id);
    id.len() == 36 && !id.contains('.')
}

impl Transactor for Saboteur {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let records = self.sabotaged(records);
        let read = if self.bug == Bug::NoOffsetsCommitted { &[] } else { read };
        match (self.inner.transact(&records, read, member), self.bug) {
            (Err(TransactError::Unknown(why)), Bug::UnknownIsCommitted) => {
                self.renew().map_err(|_| TransactError::Unknown(why))?;
                Ok(self.written(&records))
            }
            (Err(TransactError::Unknown(why)), Bug::UnknownIsAborted) => {
                self.renew().map_err(|_| TransactError::Unknown(why.clone()))?;
                Err(TransactError::Nothing(why))
            }
            (outcome, _) => outcome,
        }
    }

    fn renew(&mut self) -> Result<()> {
        self.inner.renew()
    }
}

/// The changelog as a buggy restore reads it.
pub struct SabotagedLog {
    inner: Arc<dyn Log>,
    bug: Bug,
    ends: Mutex<BTreeMap<i32, i64>>,
}

impl SabotagedLog {
    pub fn between(inner: Arc<dyn Log>, bug: Option<Bug>) -> Arc<dyn Log> {
        match bug {
            None => inner,
            Some(bug) => Arc::new(SabotagedLog { inner, bug, ends: Mutex::default() }),
        }
    }
}

impl Log for SabotagedLog {
    fn end(&self, partition: i32) -> Result<i64> {
        let end = self.inner.end(partition)?;
        if self.bug == Bug::RestoreEndsAtAnOldEnd {
            return Ok(*self.ends.lock().entry(partition).or_insert(end));
        }
        Ok(end)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        if self.bug == Bug::RestoreEndsAtAnOpenTransaction {
            return self.inner.end(partition);
        }
        self.inner.stable_end(partition)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.inner.beginning(partition)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        self.inner.first_since(partition, time_ms)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        Ok(SabotagedConsumer::between(self.inner.read(partition, from)?, Some(self.bug)))
    }
}

/// A reader of the changelog that skips a record, or of the events that continues too late.
pub struct SabotagedConsumer {
    inner: Box<dyn Consumer>,
    bug: Bug,
    read: usize,
}

/// The record that [`Bug::RestoreSkipsARecord`] skips, counted from where the restore begins.
const SKIPPED: usize = 3;

impl SabotagedConsumer {
    pub fn between(inner: Box<dyn Consumer>, bug: Option<Bug>) -> Box<dyn Consumer> {
        match bug {
            None => inner,
            Some(bug) => Box::new(SabotagedConsumer { inner, bug, read: 0 }),
        }
    }
}

impl Consumer for SabotagedConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        let polled = self.inner.poll(wait)?;
        let Polled::Record(record) = polled else { return Ok(polled) };
        self.read += 1;
        let is_state = record.key.as_deref().is_some_and(|key| key != META.as_bytes());
        if self.bug == Bug::RestoreSkipsARecord && self.read == SKIPPED && is_state {
            return self.inner.poll(wait);
        }
        Ok(Polled::Record(record))
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        self.inner.assign(partitions)
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        self.inner.unassign(partitions)
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        self.inner.commit(offsets)
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        self.inner.pause(partitions)
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        let late = i64::from(self.bug == Bug::ResumesTooLate && offset > 0);
        self.inner.resume(partition, offset + late)
    }

    fn membership(&self) -> Option<Membership> {
        self.inner.membership()
    }

    fn join_again(&mut self) -> Result<()> {
        self.inner.join_again()
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }
}

/// A restore that does not claim the directory of its partition: another thread may be restoring
/// it.
pub fn unclaimed_restore(
    place: Deployment,
    config: &Config,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
) -> Arc<dyn Fn(i32) -> Result<()> + Send + Sync> {
    let shard = options::shard(config, PARTITIONS);
    let restore = restoring(config);
    Arc::new(move |partition| {
        let from = Restoring {
            log: &*log,
            options: &restore,
            progress: &Progress::default(),
            clock: &*clock,
        };
        let identity = place.identity(partition);
        Shard::open(&place.home, &shard, &identity, clock.wall(), Some(&from)).map(drop)
    })
}
