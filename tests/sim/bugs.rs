//! Mistakes that one could make, put between the ingest thread and its transactions, to see that the simulator finds them.

use keepsake::fault::Result;
use keepsake::ports::broker::{Log, Membership, Outgoing, Transactor, Unwritten, Written};
use keepsake::stages::store::changelog::META;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// An unknown end is taken for a good one: shards are changed before anything is certain.
    UnknownIsCommitted,
    /// An unknown end is taken for an abort: events are read again without asking the changelog what it has.
    UnknownIsAborted,
    /// The meta record says what the batch before had read.
    MetaOfTheBatchBefore,
    /// The changelog is not told that something is gone.
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

    fn spoiled(&mut self, records: &[Outgoing]) -> Vec<Outgoing> {
        let mut records = records.to_vec();
        match self.bug {
            Bug::MetaOfTheBatchBefore => {
                for record in records
                    .iter_mut()
                    .filter(|record| record.key.as_deref() == Some(META.as_bytes()))
                {
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
        let metas = records.iter().filter(|record| record.key.as_deref() == Some(META.as_bytes()));
        let end = |partition: i32| self.memories.end(partition).unwrap_or(1) - 1;
        Written {
            changelog: metas
                .filter_map(|record| record.partition)
                .map(|partition| (partition, end(partition)))
                .collect(),
        }
    }
}

impl Transactor for Saboteur {
    fn transact(
        &mut self,
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten> {
        let records = self.spoiled(records);
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
