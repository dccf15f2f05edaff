//! The bare round trip: a thread that reads requests and sends each back as its own reply. Same client settings as recall, nothing else.

use crate::config::Config;
use crate::fault::Result;
use crate::ports::broker::{Broker, Consumer, Outgoing, Polled, Producer, Record, Start};
use crate::ports::kafka::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// As long as recall's own thread waits before it looks up.
const LOOK_UP: Duration = Duration::from_millis(50);

pub struct Echo {
    consumer: Box<dyn Consumer>,
    producer: Box<dyn Producer>,
}

impl Echo {
    pub fn open(connection: &Connection, config: &Config) -> Result<Echo> {
        let mut consumer = connection
            .reader(&format!("{}-echo", config.kafka.group_id), &config.topics.recalls())?;
        let starts: Vec<(i32, Start)> =
            (0..config.topics.partitions).map(|partition| (partition, Start::At(0))).collect();
        consumer.assign(&starts)?;
        Ok(Echo { consumer, producer: connection.producer("keepsake-echo")? })
    }

    pub fn run(mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            if let Polled::Record(record) = self.consumer.poll(LOOK_UP)? {
                self.producer.send(&reply(record))?;
            }
            self.producer.outstanding()?;
        }
        self.consumer.close();
        Ok(())
    }
}

fn reply(record: Record) -> Outgoing {
    let text = |name: &str| {
        record
            .header(name)
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default()
    };
    let partition = record
        .header("kafka_replyPartition")
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_be_bytes);
    let topic = text("kafka_replyTopic");
    let headers =
        record.headers.into_iter().filter(|(name, _)| name == "kafka_correlationId").collect();
    Outgoing {
        topic,
        partition,
        key: record.key,
        value: record.value,
        headers,
        ..Outgoing::default()
    }
}
