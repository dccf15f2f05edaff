//! Echoes each request as its own reply: the bare Kafka round trip that a recall is compared with.
//! The clients have the same settings as those of the recall processor; nothing else is done.

use broker::{Broker, Consumer, OutgoingRecord, Polled, Producer, Record, Start};
use domain::fault::Result;
use kafka::Connection;
use settings::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Same poll timeout as the thread of the recall processor.
const POLL: Duration = Duration::from_millis(50);

pub struct Echo {
    consumer: Box<dyn Consumer>,
    producer: Box<dyn Producer>,
    answer: Vec<u8>,
}

impl Echo {
    /// Opens an echo that sends `answer` in each reply instead of the bytes of the request: a
    /// record of many bytes takes longer through two clients and a broker.
    pub fn open(connection: &Connection, config: &Config, answer: Vec<u8>) -> Result<Echo> {
        let mut consumer = connection
            .reader(&format!("{}-echo", config.kafka.group_id), &config.topics.recalls())?;
        let starts: Vec<(i32, Start)> =
            (0..config.topics.partitions).map(|partition| (partition, Start::At(0))).collect();
        consumer.assign(&starts)?;
        Ok(Echo { consumer, producer: connection.producer("keepsake-echo")?, answer })
    }

    pub fn run(mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            if let Polled::Record(record) = self.consumer.poll(POLL)? {
                self.producer.send(&reply(record, &self.answer))?;
            }
            self.producer.outstanding()?;
        }
        self.consumer.close();
        Ok(())
    }
}

fn reply(record: Record, answer: &[u8]) -> OutgoingRecord {
    let topic = record.header("kafka_replyTopic").unwrap_or_default();
    let topic = String::from_utf8_lossy(topic).into_owned();
    let partition = record
        .header("kafka_replyPartition")
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_be_bytes);
    let headers =
        record.headers.into_iter().filter(|(name, _)| name == "kafka_correlationId").collect();
    OutgoingRecord {
        topic,
        partition,
        key: record.key,
        value: Some(answer.to_vec()),
        headers,
        ..OutgoingRecord::default()
    }
}
