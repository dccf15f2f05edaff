//! Writes many records to chosen partitions, in order, and reports where they are.

use super::fault::failed;
use super::producer::{KafkaProducer, ProducerCallbacks};
use super::{Connection, OFFSETS, UNDECIDED, first_since, refused};
use broker::{OutgoingRecord, Producer as _};
use domain::fault::Result;
use parking_lot::Mutex;
use rdkafka::consumer::Consumer as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time for the brokers to acknowledge the queued records.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(120);

/// An idempotent producer for large batches: the records of one partition keep their order, and
/// none is written twice while the process lives.
pub struct BulkWriter {
    producer: KafkaProducer,
    offsets_written: Arc<Mutex<BTreeMap<i32, i64>>>,
}

impl Connection {
    /// Opens a writer for one topic.
    pub fn bulk_writer(&self, client_id: &str, topic: &str) -> Result<BulkWriter> {
        let mut config = self.writer(client_id);
        config
            // Millions of tiny records at a time: large batches, compressed.
            .set("linger.ms", "20")
            .set("batch.num.messages", "100000")
            .set("batch.size", "900000")
            .set("queue.buffering.max.messages", "400000")
            .set("compression.type", "lz4");
        let context = ProducerCallbacks::following(topic);
        let deliveries = context.deliveries();
        let offsets_written = context.offsets_written();
        let producer = self
            .finished(config)
            .create_with_context(context)
            .map_err(|e| refused("creates a producer", &e))?;
        Ok(BulkWriter {
            producer: KafkaProducer { producer: Arc::new(producer), deliveries },
            offsets_written,
        })
    }

    /// Returns the number of members that a consumer group has now. `topic`: one that the group
    /// reads.
    pub fn members(&self, group: &str, topic: &str) -> Result<usize> {
        let probe = self.probe(UNDECIDED)?;
        let groups = probe
            .fetch_group_list(Some(group), OFFSETS)
            .map_err(|e| failed(format!("looks up the group {group}"), &e))?;
        if let Some(found) = groups.groups().iter().find(|found| found.name() == group) {
            return Ok(found.members().len());
        }
        // A broker leaves out a group that this client may not see, and names the missing right
        // only if asked for the offsets.
        self.committed(group, topic, &[0]).map(|_| 0)
    }

    /// Returns the first offset of a partition whose record is of this time or later, or the end.
    pub fn offset_at(&self, topic: &str, partition: i32, timestamp_ms: i64) -> Result<i64> {
        let found = first_since(&self.probe(UNDECIDED)?, topic, partition, timestamp_ms, OFFSETS)?;
        found.map_or_else(|| Ok(self.offsets(topic, partition)?.1), Ok)
    }
}

impl BulkWriter {
    pub fn send(&mut self, record: &OutgoingRecord) -> Result<()> {
        self.producer.send(record)
    }

    /// Waits until every record is acknowledged. Returns the offset of the last record of each
    /// partition that this writer has written to.
    pub fn flush(&mut self) -> Result<BTreeMap<i32, i64>> {
        self.producer.flush(ACKNOWLEDGED_WITHIN)?;
        Ok(self.offsets_written.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use domain::fault::{Fault, StopName};
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    #[test]
    fn a_missing_right_is_not_tried_again() {
        let mock = Mock::with_topics(&["events"]);
        let broker = mock.connection();
        broker.offset_at("events", 0, 1).expect("the broker answers");
        let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
        mock.cluster.request_errors(RDKafkaApiKey::ListOffsets, &[denied; 20]);
        match broker.offset_at("events", 0, 1) {
            Err(Fault::Stop(stop)) => assert_eq!(stop.name, StopName::AccessDenied),
            other => panic!("{other:?}"),
        }
    }
}
