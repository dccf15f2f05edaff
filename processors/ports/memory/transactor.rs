//! Transactions against the cluster in memory: who may write under a name, what is open under it, and everything that can go wrong between
//! the first record and the answer.

use super::log::{TransactionNumber, Verdict};
use super::reader::Proof;
use super::state::{GroupId, State};
use super::{Connection, Mishap};
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Membership, Outgoing, Transactor, Unwritten, Written};
use std::collections::BTreeSet;

/// What the broker keeps of a transactional id.
#[derive(Debug, Default)]
pub struct Name {
    /// Who was given a lower one is fenced.
    epoch: i64,
    /// The last step of the epoch was the broker's own, at a timeout: who had the one before was not replaced, only given up.
    is_expired: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    number: TransactionNumber,
    touched: BTreeSet<(String, i32)>,
    /// It has been decided that this is a commit, with these offsets, and only the markers are missing.
    prepared: Option<Offsets>,
}

/// What is marked as read, for whom.
type Offsets = (GroupId, Vec<(i32, i64)>);

pub struct MemoryTransactor {
    connection: Connection,
    id: String,
    /// What is marked as read.
    topic: String,
    changelog: String,
    /// None until `renew`, and after every outcome that asks for it.
    epoch: Option<i64>,
}

impl MemoryTransactor {
    pub fn new(connection: Connection, id: &str, topic: &str, changelog: &str) -> MemoryTransactor {
        let (id, topic, changelog) = (id.to_owned(), topic.to_owned(), changelog.to_owned());
        MemoryTransactor { connection, id, topic, changelog, epoch: None }
    }

    fn attempt(
        &self,
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten> {
        let mut state = self.connection.alive().map_err(|fault| unknown(&fault.to_string()))?;
        state.admits(&self.id, self.epoch)?;
        let Some(proof) = member.0.downcast_ref::<Proof>() else {
            let what = "a membership of another broker marks nothing as read here";
            return Err(Unwritten::Fault(Fault::stop(StopName::BrokerRefuses, what)));
        };
        let mishap = state.mishap(Mishap::strikes_transactions);
        let sent = match mishap {
            Some(Mishap::DieAfterRecords(sent)) => sent.min(records.len()),
            _ => records.len(),
        };
        let written = state.write(&self.id, &records[..sent], &self.changelog)?;
        let is_member = state.is_member(proof);
        let (link, offsets) =
            (self.connection.link, (GroupId::new(&proof.group.name, &self.topic), read.to_vec()));
        match mishap {
            Some(Mishap::DieAfterRecords(_) | Mishap::DieBeforeCommit) => {
                state.kill(link);
                return Err(unknown("the connection died before the commit"));
            }
            Some(Mishap::TimeOutBefore) => return Err(unknown("timed out before the commit")),
            Some(Mishap::Abort) => {
                state.decide(&self.id, Verdict::Abort);
                return Err(Unwritten::Nothing("the broker aborted it".to_owned()));
            }
            Some(Mishap::CommitLate) if is_member => {
                state.prepare(&self.id, offsets);
                return Err(unknown("timed out in the commit"));
            }
            _ => {}
        }
        let outcome = if is_member {
            state.prepare(&self.id, offsets);
            state.decide(&self.id, Verdict::Commit);
            Ok(written)
        } else {
            state.decide(&self.id, Verdict::Abort);
            Err(Unwritten::Nothing(format!(
                "the group {} has another generation, or we are not in it",
                proof.group.name
            )))
        };
        match mishap {
            Some(Mishap::DieAfterCommit) => {
                state.kill(link);
                Err(unknown("the connection died before the answer"))
            }
            Some(Mishap::LoseAcknowledgement) => Err(unknown("the answer did not come")),
            _ => outcome,
        }
    }
}

impl Transactor for MemoryTransactor {
    fn transact(
        &mut self,
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten> {
        let outcome = self.attempt(records, read, member);
        if !matches!(outcome, Ok(_) | Err(Unwritten::Nothing(_))) {
            self.epoch = None;
        }
        outcome
    }

    fn renew(&mut self) -> Result<()> {
        let mut state = self.connection.alive()?;
        state.end_open(&self.id);
        let name = state.names.entry(self.id.clone()).or_default();
        name.epoch += 1;
        name.is_expired = false;
        self.epoch = Some(name.epoch);
        Ok(())
    }
}

fn unknown(what: &str) -> Unwritten {
    Unwritten::Unknown(what.to_owned())
}

impl State {
    fn admits(&self, id: &str, epoch: Option<i64>) -> std::result::Result<(), Unwritten> {
        let Some(epoch) = epoch else { return Err(unknown("not renewed since the last failure")) };
        match self.names.get(id) {
            Some(name) if name.epoch == epoch => Ok(()),
            Some(name) if name.is_expired && name.epoch == epoch + 1 => {
                Err(unknown("the broker gave up waiting for us"))
            }
            _ => Err(Unwritten::Fenced(format!("another has begun to write as {id}"))),
        }
    }

    /// Opens a transaction with these records; one that is refused aborts it.
    fn write(
        &mut self,
        id: &str,
        records: &[Outgoing],
        changelog: &str,
    ) -> std::result::Result<Written, Unwritten> {
        let (number, mut written) = (TransactionNumber(self.number()), Written::default());
        self.name(id).open = Some(Open { number, touched: BTreeSet::new(), prepared: None });
        for record in records {
            let (partition, offset) = match self.append(record, Some(number)) {
                Ok(place) => place,
                Err(fault) => {
                    self.decide(id, Verdict::Abort);
                    return Err(match fault {
                        Fault::Retry(retry) => Unwritten::Nothing(retry.what),
                        stop => Unwritten::Fault(stop),
                    });
                }
            };
            self.name(id)
                .open
                .as_mut()
                .expect("it was opened above")
                .touched
                .insert((record.topic.clone(), partition));
            if record.topic == changelog {
                written.changelog.insert(partition, offset);
            }
        }
        Ok(written)
    }

    /// From here on it is a commit, whoever writes the markers.
    fn prepare(&mut self, id: &str, offsets: Offsets) {
        if let Some(open) = &mut self.name(id).open {
            open.prepared = Some(offsets);
        }
    }

    fn decide(&mut self, id: &str, verdict: Verdict) {
        let Some(open) = self.name(id).open.take() else { return };
        for (topic, partition) in &open.touched {
            self.partition_mut(topic, *partition)
                .expect("records were appended there")
                .decide(open.number, verdict);
        }
        if let (Verdict::Commit, Some((group, read))) = (verdict, open.prepared) {
            self.commit(&group, &read);
        }
    }

    /// What an earlier life left open is aborted, unless its commit was decided already.
    fn end_open(&mut self, id: &str) {
        let is_prepared = self.name(id).open.as_ref().is_some_and(|open| open.prepared.is_some());
        self.decide(id, if is_prepared { Verdict::Commit } else { Verdict::Abort });
    }

    /// The broker's `transaction.timeout.ms`, for all that is open.
    pub fn expire_transactions(&mut self) {
        let ids: Vec<String> = self
            .names
            .iter()
            .filter(|(_, name)| name.open.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            self.end_open(&id);
            let name = self.name(&id);
            name.epoch += 1;
            name.is_expired = true;
        }
    }

    fn is_member(&mut self, proof: &Proof) -> bool {
        let group = self.group(&proof.group);
        group.has(proof.member) && group.generation() == proof.generation
    }

    fn name(&mut self, id: &str) -> &mut Name {
        self.names.entry(id.to_owned()).or_default()
    }
}
