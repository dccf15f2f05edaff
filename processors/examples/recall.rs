//! Asks for the memories that answer a question and prints the prompt block of the reply:
//!
//! ```text
//! cargo run --example recall -- localhost:9092 ada "Where do I live?"
//! ```
//!
//! Uses nothing but a Kafka client and JSON, so that the code can be copied into another program.
//! The request names a reply topic, one of its partitions and a correlation id, which comes back in
//! the reply.

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::error::Error;
use std::time::{Duration, Instant};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(5);
const REPLY_PARTITION: i32 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, user, question] = arguments.as_slice() else {
        return Err("usage: recall BROKERS USER QUESTION".into());
    };
    let reply = recall(brokers, "keepsake.", user, question)?;
    match reply["status"].as_str() {
        Some("ok") => println!("{}", reply["prompt"].as_str().unwrap_or_default()),
        _ => return Err(reply["error"].to_string().into()),
    }
    Ok(())
}

/// Sends a recall request and waits for the reply.
pub fn recall(
    brokers: &str,
    prefix: &str,
    user: &str,
    question: &str,
) -> Result<Value, Box<dyn Error>> {
    // The reader is in place before the request is sent, or the reply could come too early.
    let reply_topic = format!("{prefix}replies");
    let replies: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "keepsake-example")
        .set("enable.auto.commit", "false")
        .create()?;
    let (_, end) = replies.fetch_watermarks(&reply_topic, REPLY_PARTITION, TIMEOUT)?;
    let mut place = TopicPartitionList::new();
    place.add_partition_offset(&reply_topic, REPLY_PARTITION, Offset::Offset(end))?;
    replies.assign(&place)?;

    let correlation = Uuid::new_v4().into_bytes();
    let headers = OwnedHeaders::new()
        .insert(Header { key: "kafka_replyTopic", value: Some(&reply_topic) })
        .insert(Header { key: "kafka_replyPartition", value: Some(&REPLY_PARTITION.to_be_bytes()) })
        .insert(Header { key: "kafka_correlationId", value: Some(&correlation) });
    let request = json!({"type": "recall", "user": user, "query": question}).to_string();
    let key = format!("default/{user}");
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "0")
        .create()?;
    let topic = format!("{prefix}recalls");
    let record = BaseRecord::to(&topic).key(&key).payload(&request).headers(headers);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.flush(TIMEOUT)?;

    let give_up = Instant::now() + TIMEOUT;
    while Instant::now() < give_up {
        let Some(record) = replies.poll(Duration::from_millis(100)) else { continue };
        let record = record?;
        let is_ours = record.headers().is_some_and(|headers| {
            let mut all = headers.iter();
            all.any(|one| one.key == "kafka_correlationId" && one.value == Some(&correlation))
        });
        if is_ours {
            return Ok(serde_json::from_slice(record.payload().unwrap_or_default())?);
        }
    }
    Err("no reply within 5 s: is `keepsake serve` running?".into())
}
