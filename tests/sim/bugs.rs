//! Planted bugs: a [`Transactor`] that makes plausible mistakes, to check that the simulator finds
//! them.

use domain::fault::Result;
use log::broker::{CommittedOffsets, Log, Membership, OutgoingRecord, TransactError, Transactor};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::changelog::META;

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
}

pub struct Saboteur {
    inner: Box<dyn Transactor>,
    bug: Bug,
    memories: Arc<dyn Log>,
    metas: BTreeMap<i32, OutgoingRecord>,
}

impl Saboteur {
    pub fn between(
        inner: Box<dyn Transactor>,
        bug: Option<Bug>,
        memories: Arc<dyn Log>,
    ) -> Box<dyn Transactor> {
        match bug {
            None => inner,
            Some(bug) => Box::new(Saboteur { inner, bug, memories, metas: BTreeMap::new() }),
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
            Bug::NoTombstones => records.retain(|record| record.value.is_some()),
            Bug::UnknownIsCommitted | Bug::UnknownIsAborted => {}
        }
        records
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

impl Transactor for Saboteur {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let records = self.sabotaged(records);
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
