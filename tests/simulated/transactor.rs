//! Implements transactions on the simulated cluster: epochs of a transactional id, the open
//! transaction of each, and every fault between the first record and the answer.

use super::cluster::Connection;
use super::fault::InjectedFault;
use super::group::{GroupId, MemberProof};
use super::partition_log::{Ending, TransactionNumber};
use super::state::ClusterState;
use super::transaction::{Offsets, OpenTransaction, TransactionalId};
use broker::{CommittedOffsets, Membership, OutgoingRecord, TransactError, Transactor};
use domain::fault::{Fault, Result, StopName};
use std::collections::BTreeSet;

pub struct MemoryTransactor {
    connection: Connection,
    id: String,
    /// The topic whose offsets are committed.
    topic: String,
    changelog: String,
    /// `None` until `renew`, and after every outcome that needs one.
    epoch: Option<i64>,
}

impl MemoryTransactor {
    pub fn new(connection: Connection, id: &str, topic: &str, changelog: &str) -> MemoryTransactor {
        MemoryTransactor {
            connection,
            id: id.to_owned(),
            topic: topic.to_owned(),
            changelog: changelog.to_owned(),
            epoch: None,
        }
    }

    fn attempt(
        &self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let mut state = self.connection.alive().map_err(|fault| unknown(&fault.to_string()))?;
        state.admits(&self.id, self.epoch)?;
        let Some(proof) = member.0.downcast_ref::<MemberProof>() else {
            let what = "the membership belongs to another broker";
            return Err(TransactError::Fault(Fault::stop(StopName::BrokerRefuses, what)));
        };
        let mishap = state.mishap(InjectedFault::strikes_transactions);
        let sent = match mishap {
            Some(InjectedFault::DieAfterRecords(sent)) => sent.min(records.len()),
            _ => records.len(),
        };
        let written = state.write(&self.id, &records[..sent], &self.changelog)?;
        let is_member = state.is_member(proof);
        let offsets = (GroupId::new(&proof.group.name, &self.topic), read.to_vec());
        match mishap {
            Some(InjectedFault::DieAfterRecords(_) | InjectedFault::DieBeforeCommit) => {
                state.kill(self.connection.number);
                return Err(unknown("the connection died before the commit"));
            }
            Some(InjectedFault::TimeOutBefore) => {
                return Err(unknown("timed out before the commit"));
            }
            Some(InjectedFault::Abort) => {
                state.decide(&self.id, Ending::Abort);
                return Err(TransactError::Nothing("the broker aborted it".to_owned()));
            }
            Some(InjectedFault::CommitLate) if is_member => {
                state.prepare(&self.id, offsets);
                return Err(unknown("timed out in the commit"));
            }
            _ => {}
        }
        let outcome = if is_member && mishap == Some(InjectedFault::MarkLate) {
            state.prepare(&self.id, offsets);
            state.acknowledge(&self.id);
            Ok(written)
        } else if is_member {
            state.prepare(&self.id, offsets);
            state.decide(&self.id, Ending::Commit);
            Ok(written)
        } else {
            state.decide(&self.id, Ending::Abort);
            Err(TransactError::Nothing(format!(
                "the group {} has another generation, or we are not in it",
                proof.group.name
            )))
        };
        match mishap {
            Some(InjectedFault::DieAfterCommit) => {
                state.kill(self.connection.number);
                Err(unknown("the connection died before the answer"))
            }
            Some(InjectedFault::LoseAcknowledgement) => Err(unknown("the answer did not come")),
            _ => outcome,
        }
    }
}

impl Transactor for MemoryTransactor {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let outcome = self.attempt(records, read, member);
        if !matches!(outcome, Ok(_) | Err(TransactError::Nothing(_))) {
            self.epoch = None;
        }
        outcome
    }

    fn renew(&mut self) -> Result<()> {
        let mut state = self.connection.alive()?;
        state.end_open(&self.id);
        let name = state.transactional_ids.entry(self.id.clone()).or_default();
        name.epoch += 1;
        name.is_expired = false;
        self.epoch = Some(name.epoch);
        Ok(())
    }
}

fn unknown(what: &str) -> TransactError {
    TransactError::Unknown(what.to_owned())
}

impl ClusterState {
    fn admits(&self, id: &str, epoch: Option<i64>) -> std::result::Result<(), TransactError> {
        let Some(epoch) = epoch else {
            return Err(unknown("not renewed since the last failure"));
        };
        match self.transactional_ids.get(id) {
            Some(name) if name.epoch == epoch => Ok(()),
            Some(name) if name.is_expired && name.epoch == epoch + 1 => {
                Err(unknown("the broker gave up waiting for us"))
            }
            _ => Err(TransactError::Fenced(format!("another has begun to write as {id}"))),
        }
    }

    /// Opens a transaction with these records. A refused record aborts the transaction.
    fn write(
        &mut self,
        id: &str,
        records: &[OutgoingRecord],
        changelog: &str,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        // As with Kafka, the next transaction of an id begins behind the markers of the one before.
        self.end_open(id);
        let number = TransactionNumber(self.number());
        let mut written = CommittedOffsets::default();
        self.transactional_id(id).open = Some(OpenTransaction {
            number,
            touched: BTreeSet::new(),
            prepared: None,
            is_acknowledged: false,
        });
        for record in records {
            let (partition, offset) = match self.append(record, Some(number)) {
                Ok(written) => written,
                Err(fault) => {
                    self.decide(id, Ending::Abort);
                    return Err(match fault {
                        Fault::Retry(retry) => TransactError::Nothing(retry.what),
                        stop => TransactError::Fault(stop),
                    });
                }
            };
            self.transactional_id(id)
                .open
                .as_mut()
                .expect("`write` opened the transaction above")
                .touched
                .insert((record.topic.clone(), partition));
            if record.topic == changelog {
                written.changelog.insert(partition, offset);
            }
        }
        Ok(written)
    }

    /// Decides the commit. The transaction is committed even if another call writes the markers.
    fn prepare(&mut self, id: &str, offsets: Offsets) {
        if let Some(open) = &mut self.transactional_id(id).open {
            open.prepared = Some(offsets);
        }
    }

    fn acknowledge(&mut self, id: &str) {
        if let Some(open) = &mut self.transactional_id(id).open {
            open.is_acknowledged = true;
        }
    }

    pub fn has_late_markers(&self) -> bool {
        self.transactional_ids.values().any(TransactionalId::is_acknowledged)
    }

    pub fn write_markers(&mut self) -> usize {
        let waiting = self.transactional_ids.iter().filter(|(_, name)| name.is_acknowledged());
        let ids: Vec<String> = waiting.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.decide(id, Ending::Commit));
        ids.len()
    }

    fn decide(&mut self, id: &str, ending: Ending) {
        let Some(open) = self.transactional_id(id).open.take() else { return };
        for (topic, partition) in &open.touched {
            self.partition_mut(topic, *partition)
                .expect("`touched` holds partitions that records were appended to")
                .decide(open.number, ending);
        }
        if let (Ending::Commit, Some((group, read))) = (ending, open.prepared) {
            self.commit(&group, &read);
        }
    }

    /// Ends the open transaction of an id: aborts it, unless its commit is already decided.
    fn end_open(&mut self, id: &str) {
        let is_prepared =
            self.transactional_id(id).open.as_ref().is_some_and(|open| open.prepared.is_some());
        self.decide(id, if is_prepared { Ending::Commit } else { Ending::Abort });
    }

    /// Lets all open transactions expire, as the broker's `transaction.timeout.ms` does.
    /// Transactions whose commit is acknowledged do not expire: only their markers are missing.
    pub fn expire_transactions(&mut self) {
        self.write_markers();
        let ids: Vec<String> = self
            .transactional_ids
            .iter()
            .filter(|(_, name)| name.open.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            self.end_open(&id);
            let name = self.transactional_id(&id);
            name.epoch += 1;
            name.is_expired = true;
        }
    }

    fn is_member(&mut self, proof: &MemberProof) -> bool {
        let group = self.group(&proof.group);
        group.has(proof.member) && group.generation() == proof.generation
    }

    fn transactional_id(&mut self, id: &str) -> &mut TransactionalId {
        self.transactional_ids.entry(id.to_owned()).or_default()
    }
}
