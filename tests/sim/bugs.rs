//! Planted bugs: a [`Transactor`] that makes plausible mistakes, to check that the simulator finds
//! them.

use keepsake::fault::Result;
use keepsake::ports::broker::{Log, Membership, Outgoing, Transactor, Unwritten, Written};
use keepsake::stages::store::changelog::META;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    metas: BTreeMap<i32, Outgoing>,
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
    fn sabotaged(&mut self, records: &[Outgoing]) -> Vec<Outgoing> {
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

    fn written(&self, records: &[Outgoing]) -> Written {
        Written {
            changelog: records
                .iter()
                .filter(|record| is_meta(record))
                .filter_map(|record| record.partition)
                .map(|partition| (partition, self.memories.end(partition).unwrap_or(1) - 1))
                .collect(),
        }
    }
}

fn is_meta(record: &Outgoing) -> bool {
    record.key.as_deref() == Some(META.as_bytes())
}

impl Transactor for Saboteur {
    fn transact(
        &mut self,
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten> {
        let records = self.sabotaged(records);
        match (self.inner.transact(&records, read, member), self.bug) {
            (Err(Unwritten::Unknown(why)), Bug::UnknownIsCommitted) => {
                self.renew().map_err(|_| Unwritten::Unknown(why))?;
                Ok(self.written(&records))
            }
            (Err(Unwritten::Unknown(why)), Bug::UnknownIsAborted) => {
                self.renew().map_err(|_| Unwritten::Unknown(why.clone()))?;
                Err(Unwritten::Nothing(why))
            }
            (outcome, _) => outcome,
        }
    }

    fn renew(&mut self) -> Result<()> {
        self.inner.renew()
    }
}
