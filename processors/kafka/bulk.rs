//! Writes many records to chosen partitions, in order, and reports where they are.

use super::connection::Connection;
use super::producer::KafkaProducer;
use broker::{OutgoingRecord, Producer as _};
use domain::fault::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for the brokers to acknowledge the queued records.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(120);

/// An idempotent producer for large batches: the records of one partition keep their order, and
/// none is written twice while the process lives.
pub struct BulkWriter(KafkaProducer);

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
        Ok(BulkWriter(KafkaProducer::open(&self.finished(config), topic)?))
    }
}

impl BulkWriter {
    pub fn send(&mut self, record: &OutgoingRecord) -> Result<()> {
        self.0.send(record)
    }

    /// Waits until every record is acknowledged. Returns the offset of the last record of each
    /// partition that this writer has written to.
    pub fn flush(&mut self) -> Result<BTreeMap<i32, i64>> {
        self.0.flush(ACKNOWLEDGED_WITHIN)?;
        Ok(self.0.offsets_written().lock().clone())
    }
}
