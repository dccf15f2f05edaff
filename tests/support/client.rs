//! A client written from the contract alone: topics, keys, headers and JSON over a plain Kafka client. Shares no code with ours.

use super::{PATIENCE, eventually, validator};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{
    BorrowedMessage, DeliveryResult, Header, Headers, Message as _, OwnedHeaders,
};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A record to be sent, or one that was read.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub topic: String,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub partition: Option<i32>,
    pub timestamp_ms: i64,
}

impl Message {
    pub fn with(mut self, header: &str, value: impl AsRef<[u8]>) -> Message {
        self.headers.push((header.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
    }

    pub fn text(&self, name: &str) -> &str {
        let bytes = self.header(name).unwrap_or_else(|| panic!("no header {name} on {self:?}"));
        std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("header {name} is no text: {bytes:?}"))
    }

    pub fn json(&self) -> Value {
        let value = self.value.as_deref().unwrap_or_else(|| panic!("no value: {self:?}"));
        serde_json::from_slice(value)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(value)))
    }
}

#[derive(Clone)]
struct Acknowledge;

impl ClientContext for Acknowledge {}

type Delivery = Arc<OnceLock<Result<(i32, i64), String>>>;

impl ProducerContext for Acknowledge {
    type DeliveryOpaque = Delivery;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Delivery) {
        let _ = delivery.set(match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.to_string()),
        });
    }
}

/// One connection: sends to any topic, reads the replies topic.
pub struct Wire {
    pub prefix: String,
    servers: String,
    producer: BaseProducer<Acknowledge>,
    replies: BaseConsumer,
}

impl Wire {
    pub fn connect(servers: &str, prefix: &str) -> Wire {
        let producer = config(servers)
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "0")
            // Else a restart of the broker has it send again what is there already, under another offset: another event.
            .set("enable.idempotence", "true")
            .set("message.max.bytes", "4000000")
            .create_with_context(Acknowledge)
            .expect("the settings are valid");
        let replies = reader(servers, &format!("{prefix}replies"), false);
        Wire { prefix: prefix.to_owned(), servers: servers.to_owned(), producer, replies }
    }

    pub fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn user(&self, tenant: &str, user: &str) -> User<'_> {
        User { wire: self, tenant: tenant.to_owned(), user: user.to_owned() }
    }

    /// Sends it and says where it went: partition and offset.
    pub fn send(&self, message: &Message) -> (i32, i64) {
        let delivery = self.post(message);
        self.flush();
        match delivery.get() {
            Some(Ok(place)) => *place,
            other => panic!("sending to {} was not acknowledged: {other:?}", message.topic),
        }
    }

    /// Puts it on its way.
    pub fn post(&self, message: &Message) -> Delivery {
        let delivery = Delivery::default();
        let mut record: BaseRecord<'_, [u8], [u8], Delivery> =
            BaseRecord::with_opaque_to(&message.topic, delivery.clone());
        record.key = message.key.as_deref();
        record.payload = message.value.as_deref();
        record.partition = message.partition;
        record.timestamp = (message.timestamp_ms != 0).then_some(message.timestamp_ms);
        if !message.headers.is_empty() {
            let headers = message.headers.iter();
            record.headers = Some(headers.fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header { key, value: Some(value) })
            }));
        }
        if let Err((error, _)) = self.producer.send(record) {
            panic!("sending to {}: {error}", message.topic);
        }
        delivery
    }

    pub fn flush(&self) {
        let give_up = Instant::now() + PATIENCE;
        while self.producer.in_flight_count() > 0 && Instant::now() < give_up {
            self.producer.poll(Duration::from_millis(1));
        }
        self.producer.poll(Duration::ZERO);
    }

    /// Sends it with a reply topic and a correlation id of its own, and waits for the one reply. Checked against its schema.
    pub fn exchange(&self, message: Message) -> Message {
        let correlation = Uuid::new_v4().into_bytes();
        let message = message
            .with("kafka_replyTopic", self.topic("replies"))
            .with("kafka_correlationId", correlation);
        self.send(&message);
        self.reply("kafka_correlationId", &correlation)
    }

    /// The reply that carries this value in this header.
    pub fn reply(&self, header: &str, correlation: &[u8]) -> Message {
        let reply = self.reply_if(PATIENCE, |reply| reply.header(header) == Some(correlation));
        reply.unwrap_or_else(|| {
            panic!("no reply with {header} {correlation:02x?} within {} s", PATIENCE.as_secs())
        })
    }

    pub fn reply_if(&self, within: Duration, fits: impl Fn(&Message) -> bool) -> Option<Message> {
        let give_up = Instant::now() + within;
        while Instant::now() < give_up {
            match self.replies.poll(Duration::from_millis(50)) {
                Some(Ok(record)) => {
                    let reply = taken(&record);
                    if fits(&reply) {
                        validator::reply(&reply.json());
                        return Some(reply);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) | None => {}
                Some(Err(error)) => eprintln!("while it waits for a reply: {error}"),
            }
        }
        None
    }

    /// Everything a topic holds now, partition by partition. Decisions and memory states are checked against their schemas.
    pub fn read(&self, name: &str) -> Vec<Message> {
        let mut messages = self.everything(name);
        match name {
            "decisions" => {
                messages.iter().for_each(|message| validator::valid("decision", &message.json()))
            }
            // The shard's own records lie there too; whoever follows the memories skips them by their header.
            "memories" => {
                messages.retain(|message| message.header("keepsake-record") == Some(b"memory"));
                messages
                    .iter()
                    .filter(|m| m.value.is_some())
                    .for_each(|m| validator::valid("memory-state", &m.json()));
            }
            _ => {}
        }
        messages
    }

    /// Everything a topic holds now, partition by partition, whatever it is.
    pub fn everything(&self, name: &str) -> Vec<Message> {
        let topic = self.topic(name);
        let consumer = reader(&self.servers, &topic, true);
        let mut left: Vec<(i32, i64)> = ends(&consumer, &topic)
            .into_iter()
            .filter(|(_, (low, high))| high > low)
            .map(|(p, (_, h))| (p, h))
            .collect();
        let mut messages = Vec::new();
        let give_up = Instant::now() + PATIENCE;
        while !left.is_empty() {
            assert!(Instant::now() < give_up, "{topic} cannot be read to its end: {left:?} left");
            match consumer.poll(Duration::from_millis(50)) {
                Some(Ok(record)) => {
                    left.retain(|(partition, end)| {
                        *partition != record.partition() || record.offset() + 1 < *end
                    });
                    messages.push(taken(&record));
                }
                // The last offset may be a transaction's marker, which is no record.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    left.retain(|(other, _)| *other != partition)
                }
                _ => {}
            }
        }
        messages
    }

    /// The first record of a topic that fits, as soon as it is there.
    pub fn find(&self, name: &str, what: &str, fits: impl Fn(&Message) -> bool) -> Message {
        eventually(&format!("{what} on {name}"), || {
            self.read(name).into_iter().find(|message| fits(message))
        })
    }

    pub fn partitions(&self, name: &str) -> i32 {
        ends(&self.replies, &self.topic(name)).len() as i32
    }
}

fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("client.id", "story")
        .set_log_level(rdkafka::config::RDKafkaLogLevel::Critical);
    config
}

/// Reads all partitions of a topic, from the beginning or from the present end.
fn reader(servers: &str, topic: &str, from_beginning: bool) -> BaseConsumer {
    let consumer: BaseConsumer = config(servers)
        .set("group.id", "story")
        .set("enable.auto.commit", "false")
        // Asks again soon for what a restart of the broker made it forget; where its place is gone, from the beginning, not behind the reply.
        .set("topic.metadata.refresh.interval.ms", "1000")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "5")
        .create()
        .expect("the settings are valid");
    let mut list = TopicPartitionList::new();
    for (partition, (low, high)) in ends(&consumer, topic) {
        let start = if from_beginning { low } else { high };
        list.add_partition_offset(topic, partition, Offset::Offset(start))
            .expect("an offset of the broker's");
    }
    consumer.assign(&list).unwrap_or_else(|e| panic!("assigns {topic}: {e}"));
    consumer
}

/// Partition → first offset, next offset.
fn ends(consumer: &BaseConsumer, topic: &str) -> Vec<(i32, (i64, i64))> {
    let partitions = eventually(&format!("topic {topic}"), || {
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).ok()?;
        let partitions: Vec<i32> = metadata
            .topics()
            .first()?
            .partitions()
            .iter()
            .map(|partition| partition.id())
            .collect();
        (!partitions.is_empty()).then_some(partitions)
    });
    let ends = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE);
    partitions
        .into_iter()
        .map(|p| (p, ends(p).unwrap_or_else(|e| panic!("reads the ends of {topic}/{p}: {e}"))))
        .collect()
}

fn taken(record: &BorrowedMessage<'_>) -> Message {
    let headers = record.headers().map(|headers| {
        headers
            .iter()
            .map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec()))
            .collect()
    });
    Message {
        topic: record.topic().to_owned(),
        key: record.key().map(<[u8]>::to_vec),
        value: record.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
        partition: Some(record.partition()),
        timestamp_ms: record.timestamp().to_millis().unwrap_or_default(),
    }
}

/// One user of one tenant: fills in who it is about.
#[derive(Clone)]
pub struct User<'a> {
    pub wire: &'a Wire,
    pub tenant: String,
    pub user: String,
}

impl User<'_> {
    pub fn key(&self) -> String {
        format!("{}/{}", self.tenant, self.user)
    }

    /// The message as it would be sent, for those who want to change it first.
    pub fn message(&self, topic: &str, mut value: Value) -> Message {
        value["tenant"] = json!(self.tenant);
        value["user"] = json!(self.user);
        Message {
            topic: self.wire.topic(topic),
            key: Some(self.key().into_bytes()),
            value: Some(value.to_string().into_bytes()),
            ..Message::default()
        }
    }

    /// Publishes an event and waits for its receipt.
    pub fn event(&self, event: Value) -> Value {
        self.wire.exchange(self.message("events", event)).json()
    }

    pub fn ask(&self, request: Value) -> Value {
        self.wire.exchange(self.message("recalls", request)).json()
    }

    pub fn turn(&self, content: &str) -> Value {
        self.event(json!({"type": "turn", "content": content}))
    }

    /// Stores it, and says under which id.
    pub fn remember(&self, content: &str) -> String {
        made(&self.event(json!({"type": "remember", "content": content})))
    }

    pub fn recall(&self, query: &str) -> Value {
        self.ask(json!({"type": "recall", "query": query}))
    }

    pub fn list(&self) -> Vec<Value> {
        let (mut memories, mut after) = (Vec::new(), Value::Null);
        loop {
            let mut request = json!({"type": "list", "limit": 100});
            if !after.is_null() {
                request["after"] = after;
            }
            let reply = self.ask(request);
            assert_eq!(reply["status"], "ok", "{reply}");
            memories.extend(reply["memories"].as_array().expect("a list").iter().cloned());
            after = reply["after"].clone();
            if after.is_null() {
                return memories;
            }
        }
    }

    pub fn decisions(&self) -> Vec<Value> {
        let key = self.key();
        let decisions = self
            .wire
            .read("decisions")
            .into_iter()
            .filter(|record| record.key.as_deref() == Some(key.as_bytes()));
        decisions.map(|record| record.json()).collect()
    }
}

/// The memory of a receipt's first decision.
pub fn made(reply: &Value) -> String {
    reply["decisions"][0]["memory"]
        .as_str()
        .unwrap_or_else(|| panic!("no memory was made: {reply}"))
        .to_owned()
}

pub fn outcome(reply: &Value) -> &str {
    reply["decisions"][0]["outcome"].as_str().unwrap_or_else(|| panic!("no decision: {reply}"))
}

pub fn contents(reply: &Value) -> Vec<&str> {
    let memories = reply["memories"].as_array().unwrap_or_else(|| panic!("no memories: {reply}"));
    memories.iter().map(|memory| memory["content"].as_str().expect("a text")).collect()
}
