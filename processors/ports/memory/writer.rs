//! The plain producer against the cluster in memory: in the log when sent, known to be there when flushed.

use super::{Connection, Mishap};
use crate::fault::{Fault, Result};
use crate::ports::broker::{Outgoing, Producer};
use std::time::Duration;

pub struct MemoryProducer {
    connection: Connection,
    unacknowledged: usize,
    refused: Vec<Fault>,
}

impl MemoryProducer {
    pub fn new(connection: Connection) -> MemoryProducer {
        MemoryProducer { connection, unacknowledged: 0, refused: Vec::new() }
    }

    /// What was refused since the last time: a fault that no repetition mends comes before those that one does.
    fn refusal(&mut self) -> Result<()> {
        let count = self.refused.len();
        let is_stop = |fault: &Fault| matches!(fault, Fault::Stop(_));
        let told =
            self.refused.iter().find(|fault| is_stop(fault)).or(self.refused.last()).cloned();
        self.refused.clear();
        match told {
            None => Ok(()),
            Some(Fault::Retry(last)) => {
                Err(Fault::retry(format!("{count} records not written, the last: {}", last.what)))
            }
            Some(stop) => Err(stop),
        }
    }
}

impl Producer for MemoryProducer {
    /// As with the real one, what the broker thinks of it is told later.
    fn send(&mut self, record: &Outgoing) -> Result<()> {
        let mut state = self.connection.alive()?;
        if state.mishap(|mishap| mishap == Mishap::LoseDelivery).is_some() {
            self.refused.push(Fault::retry(format!("writes to {}: lost on the way", record.topic)));
            return Ok(());
        }
        match state.append(record, None) {
            Ok(_) => self.unacknowledged += 1,
            Err(fault) => self.refused.push(fault),
        }
        Ok(())
    }

    fn flush(&mut self, _: Duration) -> Result<()> {
        let sent = std::mem::take(&mut self.unacknowledged);
        let mut state = self.connection.alive()?;
        if sent > 0 && state.mishap(|mishap| mishap == Mishap::DuplicateDelivery).is_some() {
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
