//! Publishes one turn and prints Keepsake's first decision on that turn:
//!
//! ```text
//! cargo run --example publish -- localhost:9092 ada "I moved to Lisbon last month."
//! ```
//!
//! Uses nothing but a Kafka client and JSON, so that the code can be copied into another program.
//! The decision is found on the decisions topic by the event's own `id`.

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::error::Error;
use std::time::{Duration, Instant};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, user, text] = arguments.as_slice() else {
        return Err("usage: publish BROKERS USER TEXT".into());
    };
    let decision = publish(brokers, "keepsake.", user, text)?;
    println!("{} ({})", decision["outcome"], decision["reason"]);
    Ok(())
}

/// Publishes `text` as a turn of `user` and waits for the first decision on that turn.
pub fn publish(
    brokers: &str,
    prefix: &str,
    user: &str,
    text: &str,
) -> Result<Value, Box<dyn Error>> {
    let decisions = follow(brokers, &format!("{prefix}decisions"))?;
    // The `id` makes the event safe to repeat: a second copy changes nothing.
    let id = Uuid::new_v4().to_string();
    let turn = json!({"type": "turn", "user": user, "id": id, "content": text}).to_string();
    let key = format!("default/{user}");
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        // Kafka's default partitioner, which librdkafka does not use by itself.
        .set("partitioner", "murmur2_random")
        .create()?;
    let topic = format!("{prefix}events");
    let record = BaseRecord::to(&topic).key(&key).payload(&turn);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.flush(TIMEOUT)?;

    let give_up = Instant::now() + TIMEOUT;
    while Instant::now() < give_up {
        let Some(record) = decisions.poll(Duration::from_millis(100)) else { continue };
        let decision: Value = serde_json::from_slice(record?.payload().unwrap_or_default())?;
        if decision["event"]["id"] == id.as_str() {
            return Ok(decision);
        }
    }
    Err("no decision within 10 s: is `keepsake serve` running?".into())
}

/// Reads all partitions of a topic from their present end.
fn follow(brokers: &str, topic: &str) -> Result<BaseConsumer, Box<dyn Error>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "keepsake-example")
        .set("enable.auto.commit", "false")
        // Skips the decisions of transactions that were aborted.
        .set("isolation.level", "read_committed")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT)?;
    let mut places = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        let (_, end) = consumer.fetch_watermarks(topic, partition.id(), TIMEOUT)?;
        places.add_partition_offset(topic, partition.id(), Offset::Offset(end))?;
    }
    consumer.assign(&places)?;
    Ok(consumer)
}
