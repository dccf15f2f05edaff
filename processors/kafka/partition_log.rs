//! Reads a topic from the beginning, to restore shards.
//!
//! Readers are kept open and reused: creating and, above all, closing one takes longer than
//! restoring a small shard.

use super::connection::{Connection, DECIDED, UNDECIDED};
use super::consumer::{ConsumerCallbacks, KafkaConsumer};
use super::fault::refused;
use super::offsets::{OFFSETS_SOON, first_since, watermarks};
use broker::{Consumer, Log, Membership, Polled, Start};
use domain::fault::Result;
use parking_lot::Mutex;
use rdkafka::consumer::BaseConsumer;
use std::sync::Arc;
use std::time::Duration;

/// Group id of the readers, with which no consumer subscribes and nothing is committed.
const GROUP: &str = "keepsake-restore";

pub struct KafkaLog {
    undecided: BaseConsumer<ConsumerCallbacks>,
    decided: BaseConsumer<ConsumerCallbacks>,
    connection: Connection,
    topic: String,
    /// Longest wait for an answer about offsets.
    within: Duration,
    /// Idle readers: at most as many as ever restored at the same time.
    idle: Arc<Mutex<Vec<KafkaConsumer>>>,
}

impl Connection {
    /// Opens a log for a thread that serves other partitions, too: a partition without a leader is
    /// a fault at once.
    pub fn impatient_log(&self, topic: &str) -> Result<Arc<dyn Log>> {
        Ok(Arc::new(KafkaLog::new(self, topic, OFFSETS_SOON)?))
    }
}

impl KafkaLog {
    pub fn new(connection: &Connection, topic: &str, within: Duration) -> Result<KafkaLog> {
        Ok(KafkaLog {
            undecided: connection.probe(UNDECIDED)?,
            decided: connection.probe(DECIDED)?,
            connection: connection.clone(),
            topic: topic.to_owned(),
            within,
            idle: Arc::default(),
        })
    }

    fn reader(&self) -> Result<KafkaConsumer> {
        if let Some(reader) = self.idle.lock().pop() {
            return Ok(reader);
        }
        let mut config = self.connection.consumer(GROUP, GROUP);
        config
            // The end of a partition shows only in an empty answer, and a broker waits this long
            // before sending one.
            .set("fetch.wait.max.ms", "5")
            .set("queued.max.messages.kbytes", "65536");
        let consumer = self
            .connection
            .finished(config)
            .create_with_context(ConsumerCallbacks::without_group());
        Ok(KafkaConsumer::new(
            consumer.map_err(|e| refused(format!("creates a reader of {}", self.topic), &e))?,
            &self.topic,
        ))
    }

    fn lent(
        &self,
        partition: i32,
        from: i64,
        only: Option<&'static str>,
    ) -> Result<Box<dyn Consumer>> {
        let mut reader = self.reader()?;
        reader.take_only(only);
        reader.assign(&[(partition, Start::At(from))])?;
        Ok(Box::new(Lent { reader: Some(reader), partition, idle: self.idle.clone() }))
    }
}

impl Log for KafkaLog {
    fn end(&self, partition: i32) -> Result<i64> {
        Ok(watermarks(&self.undecided, &self.topic, partition, self.within)?.1)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        Ok(watermarks(&self.decided, &self.topic, partition, self.within)?.1)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        Ok(watermarks(&self.decided, &self.topic, partition, self.within)?.0)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        match first_since(&self.undecided, &self.topic, partition, time_ms, self.within)? {
            Some(offset) => Ok(offset),
            None => self.end(partition),
        }
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        self.lent(partition, from, None)
    }

    fn read_header(
        &self,
        partition: i32,
        from: i64,
        header: &'static str,
    ) -> Result<Box<dyn Consumer>> {
        self.lent(partition, from, Some(header))
    }
}

/// A reader that returns to the idle ones when dropped.
struct Lent {
    reader: Option<KafkaConsumer>,
    partition: i32,
    idle: Arc<Mutex<Vec<KafkaConsumer>>>,
}

impl Lent {
    fn reader(&mut self) -> &mut KafkaConsumer {
        self.reader.as_mut().expect("only `drop` takes the reader")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut reader) = self.reader.take() else { return };
        // A reader that keeps its partition would return that partition's records to the next user.
        if reader.unassign(&[self.partition]).is_ok() {
            self.idle.lock().push(reader);
        }
    }
}

impl Consumer for Lent {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        self.reader().poll(wait)
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        self.reader().assign(partitions)
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        self.reader().unassign(partitions)
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        self.reader().commit(offsets)
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        self.reader().pause(partitions)
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        self.reader().resume(partition, offset)
    }

    fn membership(&self) -> Option<Membership> {
        None
    }

    fn close(self: Box<Self>) {}
}
