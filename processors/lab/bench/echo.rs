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
    /// Sent instead of the request's own bytes.
    answer: Option<Vec<u8>>,
}

impl Echo {
    pub fn open(connection: &Connection, config: &Config) -> Result<Echo> {
        let mut consumer = connection
            .reader(&format!("{}-echo", config.kafka.group_id), &config.topics.recalls())?;
        let starts: Vec<(i32, Start)> =
            (0..config.topics.partitions).map(|partition| (partition, Start::At(0))).collect();
        consumer.assign(&starts)?;
        Ok(Echo { consumer, producer: connection.producer("keepsake-echo")?, answer: None })
    }

    /// Sends these bytes in each reply. A record of many bytes takes longer through two clients and
    /// a broker than the request does.
    pub fn answering(self, answer: Vec<u8>) -> Echo {
        Echo { answer: Some(answer), ..self }
    }

    pub fn run(mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            if let Polled::Record(record) = self.consumer.poll(POLL)? {
                self.producer.send(&reply(record, self.answer.as_ref()))?;
            }
            self.producer.outstanding()?;
        }
        self.consumer.close();
        Ok(())
    }
}

fn reply(record: Record, answer: Option<&Vec<u8>>) -> OutgoingRecord {
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
        value: answer.cloned().or(record.value),
        headers,
        ..OutgoingRecord::default()
    }
}
