//! Implements the plain producer of the simulated cluster. A record is in the log when sent;
//! `flush` reports whether all were written.

use super::cluster::Connection;
use super::fault::InjectedFault;
use broker::{OutgoingRecord, Producer, REFUSED_MAX, Refusal, RefusedRecord, Room};
use domain::fault::{Fault, Result};
use std::collections::BTreeSet;
use std::time::Duration;

pub struct MemoryProducer {
    connection: Connection,
    unacknowledged: usize,
    refused: Vec<Fault>,
    /// Topics and partitions with a lost record, until the caller learns of it.
    lost: BTreeSet<(String, Option<i32>)>,
    refused_offers: Vec<RefusedRecord>,
}

impl MemoryProducer {
    pub fn new(connection: Connection) -> MemoryProducer {
        MemoryProducer {
            connection,
            unacknowledged: 0,
            refused: Vec::new(),
            lost: BTreeSet::new(),
            refused_offers: Vec::new(),
        }
    }

    /// Returns the fault of the records refused since the last call. A fault that repeating cannot
    /// mend has precedence.
    fn refusal(&mut self) -> Result<()> {
        let count = self.refused.len();
        let stop = self.refused.iter().find(|fault| matches!(fault, Fault::Stop(_)));
        let fault = stop.or(self.refused.last()).cloned();
        self.refused.clear();
        self.lost.clear();
        match fault {
            None => Ok(()),
            Some(Fault::Retry(last)) => {
                Err(Fault::retry(format!("{count} records not written, the last: {}", last.what)))
            }
            Some(stop) => Err(stop),
        }
    }
}

impl Producer for MemoryProducer {
    /// Sends a record. As with Kafka, a refusal is reported by a later call.
    fn send(&mut self, record: &OutgoingRecord) -> Result<()> {
        let mut state = self.connection.alive()?;
        // An idempotent producer that gives nothing up writes no record behind one that is missing.
        let partition = (record.topic.clone(), record.partition);
        if self.lost.contains(&partition)
            || state.mishap(|mishap| mishap == InjectedFault::LoseDelivery).is_some()
        {
            self.lost.insert(partition);
            self.refused.push(Fault::retry(format!("writes to {}: lost on the way", record.topic)));
            return Ok(());
        }
        match state.append(record, None) {
            Ok(_) => self.unacknowledged += 1,
            Err(fault) => self.refused.push(fault),
        }
        Ok(())
    }

    /// Sends a record: nothing waits here, so there is always room.
    fn offer(&mut self, record: &OutgoingRecord, _: Room) -> Result<bool> {
        let why = {
            let state = self.connection.alive()?;
            match state.partitions_of(&record.topic) {
                None => Some(Refusal::NoSuchPartition),
                Some(count) if record.partition.is_some_and(|partition| partition >= count) => {
                    Some(Refusal::NoSuchPartition)
                }
                Some(_) if state.is_too_large(record) => Some(Refusal::TooLarge),
                Some(_) => None,
            }
        };
        let Some(why) = why else { return self.send(record).map(|()| true) };
        let is_kept = self.refused_offers.len() < REFUSED_MAX;
        if is_kept {
            let record = OutgoingRecord { value: None, ..record.clone() };
            self.refused_offers.push(RefusedRecord { record, why });
        }
        Ok(is_kept)
    }

    fn refused(&mut self) -> Vec<RefusedRecord> {
        std::mem::take(&mut self.refused_offers)
    }

    fn flush(&mut self, _: Duration) -> Result<()> {
        let sent = std::mem::take(&mut self.unacknowledged);
        let mut state = self.connection.alive()?;
        if sent > 0 && state.mishap(|mishap| mishap == InjectedFault::DuplicateDelivery).is_some() {
            self.refused.push(Fault::retry("the acknowledgement did not come"));
        }
        drop(state);
        self.refusal()
    }

    fn outstanding(&mut self) -> Result<usize> {
        drop(self.connection.alive()?);
        self.unacknowledged = 0;
        self.refusal().map(|()| 0)
    }
}
