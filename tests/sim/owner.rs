//! The registry of shards as the consumer group calls it, and the outputs of a process without
//! transactions: which of them the group had committed already.

use super::bugs::Bug;
use super::interruptions::Interruptions;
use domain::fault::Result;
use log::broker::{OutgoingRecord, Producer, RebalanceListener, RefusedRecord, Room, Start};
use parking_lot::Mutex;
use serde_json::Value;
use service::ownership::Shards;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Passes the assignments on, and notes the committed offsets that came with them.
pub struct Owner {
    pub shards: Arc<Shards>,
    pub published: Published,
    pub interruptions: Interruptions,
    pub bug: Option<Bug>,
}

impl RebalanceListener for Owner {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        let passed: Vec<(i32, Option<i64>)> = match self.bug {
            Some(Bug::PublishedOffsetIgnored) => {
                partitions.iter().map(|(p, _)| (*p, None)).collect()
            }
            _ => partitions.to_vec(),
        };
        let starts = self.shards.assigned(&passed);
        for (partition, committed) in partitions {
            let committed = committed.unwrap_or(0);
            self.published.offsets.lock().insert(*partition, committed);
            let shard = self.shards.get(*partition);
            if shard.is_some_and(|shard| shard.applied() + 1 < committed) {
                self.interruptions.happened("reads again in silence");
            }
        }
        starts
    }

    fn revoked(&self, partitions: &[i32]) {
        let passed = match self.bug {
            Some(Bug::KeepsALostPartition) => &partitions[1..],
            _ => partitions,
        };
        self.shards.revoked(passed);
    }
}

/// The committed offsets at the last assignment, and the decisions about earlier events that were
/// written since: the world has them twice, without need.
#[derive(Clone, Default)]
pub struct Published {
    offsets: Arc<Mutex<BTreeMap<i32, i64>>>,
    again: Arc<Mutex<Vec<(i32, i64)>>>,
}

impl Published {
    /// Returns the places of the events that were decided again since the last call.
    pub fn take_again(&self) -> Vec<(i32, i64)> {
        std::mem::take(&mut *self.again.lock())
    }

    fn note(&self, decision: &[u8]) {
        let decision: Value = serde_json::from_slice(decision).unwrap_or_default();
        let event = &decision["event"];
        let (Some(partition), Some(offset)) =
            (event["partition"].as_i64(), event["offset"].as_i64())
        else {
            return;
        };
        let place = (partition as i32, offset);
        if self.offsets.lock().get(&place.0).is_some_and(|committed| offset < *committed) {
            self.again.lock().push(place);
        }
    }
}

/// A producer of outputs that notes the decisions it writes.
pub struct NotingProducer {
    pub inner: Box<dyn Producer>,
    pub decisions: String,
    pub published: Published,
}

impl Producer for NotingProducer {
    fn send(&mut self, record: &OutgoingRecord) -> Result<()> {
        if record.topic == self.decisions {
            self.published.note(record.value.as_deref().unwrap_or_default());
        }
        self.inner.send(record)
    }

    fn flush(&mut self, within: Duration) -> Result<()> {
        self.inner.flush(within)
    }

    fn outstanding(&mut self) -> Result<usize> {
        self.inner.outstanding()
    }

    fn offer(&mut self, record: &OutgoingRecord, room: Room) -> Result<bool> {
        self.inner.offer(record, room)
    }

    fn refused(&mut self) -> Vec<RefusedRecord> {
        self.inner.refused()
    }
}
