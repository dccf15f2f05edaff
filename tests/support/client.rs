//! A client written from the contract alone: topics, keys, headers and JSON over a plain Kafka
//! client.
//!
//! Limit: it shares no code with `processors/`, so a test cannot pass because both sides have the
//! same mistake. Every reply, decision and memory state that it reads is validated against
//! `schemas/`.

use super::{PATIENCE, eventually, validator};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{
    BorrowedMessage, DeliveryResult, Header, Headers, Message as _, OwnedHeaders,
};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A record to send, or one that was read.
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

    /// A header as text. Fails if the record has no such header.
    pub fn text(&self, name: &str) -> &str {
        let bytes = self.header(name).unwrap_or_else(|| panic!("no header {name} on {self:?}"));
        std::str::from_utf8(bytes)
            .unwrap_or_else(|_| panic!("header {name} is not text: {bytes:?}"))
    }

    /// The value as JSON. Fails for a tombstone.
    pub fn json(&self) -> Value {
        let value =
            self.value.as_deref().unwrap_or_else(|| panic!("the record has no value: {self:?}"));
        serde_json::from_slice(value)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(value)))
    }
}

#[derive(Clone)]
struct Acknowledgements;

impl ClientContext for Acknowledgements {}

/// Partition and offset of a record, once the broker has acknowledged it.
pub type Delivery = Arc<OnceLock<Result<(i32, i64), String>>>;

/// Partition and offset of a record that was flushed.
pub fn acknowledged(delivery: &Delivery) -> (i32, i64) {
    match delivery.get() {
        Some(Ok(place)) => *place,
        other => panic!("the broker did not acknowledge a record: {other:?}"),
    }
}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Delivery;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Delivery) {
        let _ = delivery.set(match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.to_string()),
        });
    }
}

/// One connection: a producer for any topic and a reader of the replies topic.
pub struct Client {
    pub prefix: String,
    servers: String,
    producer: BaseProducer<Acknowledgements>,
    replies: BaseConsumer,
}

/// Time between two looks for missing acknowledgements.
const ACKNOWLEDGED_LOOK: Duration = Duration::from_micros(200);

impl Client {
    pub fn connect(servers: &str, prefix: &str) -> Client {
        Client::compressing(servers, prefix, "none")
    }

    /// A client whose producer compresses by this codec.
    pub fn compressing(servers: &str, prefix: &str, codec: &str) -> Client {
        let producer = config(servers)
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "0")
            // Without idempotence a restart of the broker can make the producer write a record
            // twice: a second offset, so a second event.
            .set("enable.idempotence", "true")
            .set("message.max.bytes", "4000000")
            .set("compression.type", codec)
            .create_with_context(Acknowledgements)
            .expect("the settings are valid");
        let replies = reader(servers, &format!("{prefix}replies"), false);
        Client { prefix: prefix.to_owned(), servers: servers.to_owned(), producer, replies }
    }

    /// Joins the service's group under the `group.instance.id` of another member, and goes once the
    /// group has taken it for that member.
    pub fn join_as(&self, instance: &str) {
        let member: BaseConsumer = member_as(&self.servers, &self.prefix, instance)
            .create()
            .expect("the settings are valid");
        member.subscribe(&[&self.topic("events")]).expect("subscribes");
        eventually("the group has taken the member", || {
            let _ = member.poll(Duration::from_millis(50));
            (member.assignment().ok()?.count() > 0).then_some(())
        });
    }

    /// Joins the service's group as this member, lets another one join, and stands still when the group
    /// tells it to give up partitions.
    pub fn die_while_handing_over(&self, instance: &str, other_joins: impl FnOnce()) {
        let member: BaseConsumer<StandsStill> = member_as(&self.servers, &self.prefix, instance)
            .create_with_context(StandsStill::default())
            .expect("the settings are valid");
        member.subscribe(&[&self.topic("events")]).expect("subscribes");
        eventually("the group has taken the member", || {
            let _ = member.poll(Duration::from_millis(50));
            (member.assignment().ok()?.count() > 0).then_some(())
        });
        other_joins();
        eventually("the member is told to give up partitions", || {
            let _ = member.poll(Duration::from_millis(50));
            member.context().is_told.load(Ordering::Relaxed).then_some(())
        });
        // To close it would be to hand over.
        std::mem::forget(member);
    }

    /// Leaves a transaction open, as a process does that is killed before it commits: records on these
    /// partitions of the memories topic, and offsets of the same events partitions. The broker would
    /// end it after a minute.
    pub fn leave_open(&self, transactional_id: &str, partitions: &[i32]) -> BaseProducer {
        let writer: BaseProducer = config(&self.servers)
            .set("transactional.id", transactional_id)
            .set("transaction.timeout.ms", "60000")
            .create()
            .expect("the settings are valid");
        let (memories, events) = (self.topic("memories"), self.topic("events"));
        writer.init_transactions(PATIENCE).expect("the broker answers");
        writer.begin_transaction().expect("it is initialised");
        let mut read = TopicPartitionList::new();
        for partition in partitions {
            let to = BaseRecord::<str, str>::to(&memories).partition(*partition);
            writer.send(to.key("a/b/c").payload("{}")).expect("room");
            read.add_partition_offset(&events, *partition, Offset::Offset(0)).expect("a valid one");
        }
        writer.flush(PATIENCE).expect("the broker answers");
        let group: BaseConsumer = config(&self.servers)
            .set("group.id", &self.prefix)
            .create()
            .expect("the settings are valid");
        let nobody = group.group_metadata().expect("it has a group");
        writer.send_offsets_to_transaction(&read, &nobody, PATIENCE).expect("the broker answers");
        writer
    }

    pub fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn user(&self, tenant: &str, user: &str) -> User<'_> {
        User { client: self, tenant: tenant.to_owned(), user: user.to_owned() }
    }

    /// Sends a record, waits for the acknowledgement and returns partition and offset.
    pub fn send(&self, message: &Message) -> (i32, i64) {
        let delivery = self.post(message);
        self.flush();
        acknowledged(&delivery)
    }

    /// Sends a record without waiting. [`Client::flush`] waits. Takes acknowledgements that have come,
    /// because each fills a place of the queue until then.
    pub fn post(&self, message: &Message) -> Delivery {
        self.producer.poll(Duration::ZERO);
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

    /// The client's own `poll` spins through the last millisecond of its timeout.
    pub fn flush(&self) {
        let give_up = Instant::now() + PATIENCE;
        while self.producer.in_flight_count() > 0 && Instant::now() < give_up {
            std::thread::sleep(ACKNOWLEDGED_LOOK);
            self.producer.poll(Duration::ZERO);
        }
    }

    /// Adds the headers that request a reply under `correlation`.
    pub fn with_reply_to(&self, message: Message, correlation: impl AsRef<[u8]>) -> Message {
        message
            .with("kafka_replyTopic", self.topic("replies"))
            .with("kafka_correlationId", correlation)
    }

    /// Sends a record under a new correlation id and waits for the one reply, which is validated
    /// against its schema.
    pub fn exchange(&self, message: Message) -> Message {
        let correlation = Uuid::new_v4().into_bytes();
        self.send(&self.with_reply_to(message, correlation));
        self.reply("kafka_correlationId", &correlation)
    }

    /// Sends a request and waits so long for the reply: the service may be gone.
    pub fn exchange_within(&self, message: Message, within: Duration) -> Option<Message> {
        let correlation = Uuid::new_v4().into_bytes();
        self.send(&self.with_reply_to(message, correlation));
        self.reply_if(within, |reply| reply.header("kafka_correlationId") == Some(&correlation))
    }

    /// Waits for the reply whose `header` has the value `correlation`.
    pub fn reply(&self, header: &str, correlation: &[u8]) -> Message {
        let reply = self.reply_if(PATIENCE, |reply| reply.header(header) == Some(correlation));
        reply.unwrap_or_else(|| {
            panic!("no reply with {header} {correlation:02x?} within {} s", PATIENCE.as_secs())
        })
    }

    /// Waits for a reply that `fits` accepts. Replies that do not fit are dropped.
    pub fn reply_if(&self, within: Duration, fits: impl Fn(&Message) -> bool) -> Option<Message> {
        let give_up = Instant::now() + within;
        while Instant::now() < give_up {
            match self.replies.poll(Duration::from_millis(50)) {
                Some(Ok(record)) => {
                    let reply = owned(&record);
                    if fits(&reply) {
                        validator::reply(&reply.json());
                        return Some(reply);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) | None => {}
                Some(Err(error)) => eprintln!("polling for a reply: {error}"),
            }
        }
        None
    }

    /// All records of a topic as a consumer of the contract sees them. Decisions and memory states
    /// are validated against their schemas.
    pub fn read(&self, name: &str) -> Vec<Message> {
        let mut messages = self.read_raw(name);
        match name {
            "decisions" => {
                messages.iter().for_each(|message| validator::valid("decision", &message.json()))
            }
            // The topic holds the shard's own records too. A consumer of memory states skips those
            // by this header.
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

    /// All records of a topic, up to its present end.
    pub fn read_raw(&self, name: &str) -> Vec<Message> {
        let topic = self.topic(name);
        let consumer = reader(&self.servers, &topic, true);
        let mut unread: Vec<(i32, i64)> = ends(&consumer, &topic)
            .into_iter()
            .filter(|(_, (low, high))| high > low)
            .map(|(partition, (_, high))| (partition, high))
            .collect();
        let mut messages = Vec::new();
        let give_up = Instant::now() + PATIENCE;
        while !unread.is_empty() {
            assert!(Instant::now() < give_up, "{topic} was not read to its end: {unread:?}");
            match consumer.poll(Duration::from_millis(50)) {
                Some(Ok(record)) => {
                    unread.retain(|(partition, end)| {
                        *partition != record.partition() || record.offset() + 1 < *end
                    });
                    messages.push(owned(&record));
                }
                // The last offset may hold the marker of a transaction, which is never delivered.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    unread.retain(|(other, _)| *other != partition)
                }
                _ => {}
            }
        }
        messages
    }

    /// Waits for a record that `fits` accepts and returns the first one.
    pub fn find(&self, name: &str, expected: &str, fits: impl Fn(&Message) -> bool) -> Message {
        eventually(&format!("{expected} on {name}"), || {
            self.read(name).into_iter().find(|message| fits(message))
        })
    }

    pub fn partitions(&self, name: &str) -> i32 {
        ends(&self.replies, &self.topic(name)).len() as i32
    }
}

/// Takes partitions, and does not give them up.
#[derive(Default)]
struct StandsStill {
    is_told: AtomicBool,
}

impl ClientContext for StandsStill {}

impl ConsumerContext for StandsStill {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                consumer.incremental_assign(partitions).expect("takes partitions");
            }
            _ => self.is_told.store(true, Ordering::Relaxed),
        }
    }
}

fn member_as(servers: &str, group: &str, instance: &str) -> ClientConfig {
    let mut config = config(servers);
    config
        .set("group.id", group)
        .set("group.instance.id", instance)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false");
    config
}

fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("client.id", "test")
        // A broker that was killed is back soon.
        .set("reconnect.backoff.max.ms", "500")
        .set_log_level(rdkafka::config::RDKafkaLogLevel::Critical);
    config
}

/// A consumer of all partitions of a topic, from the beginning or from the present end.
fn reader(servers: &str, topic: &str, from_beginning: bool) -> BaseConsumer {
    let consumer: BaseConsumer = config(servers)
        .set("group.id", "test")
        .set("enable.auto.commit", "false")
        // After a restart of the broker the metadata must come back soon.
        .set("topic.metadata.refresh.interval.ms", "1000")
        // If the position is lost, the end would be behind the awaited reply.
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
            .expect("the broker returned this offset");
    }
    consumer.assign(&list).unwrap_or_else(|e| panic!("assigns {topic}: {e}"));
    consumer
}

/// First offset and next offset of each partition, as `(partition, (first, next))`.
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
    partitions
        .into_iter()
        .map(|partition| {
            // A partition of a new topic has no leader for a moment.
            let ends = eventually("the broker tells the ends of a partition", || {
                consumer.fetch_watermarks(topic, partition, PATIENCE).ok()
            });
            (partition, ends)
        })
        .collect()
}

fn owned(record: &BorrowedMessage<'_>) -> Message {
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

/// One user of one tenant. Fills in `tenant`, `user` and the key of each message.
#[derive(Clone)]
pub struct User<'a> {
    pub client: &'a Client,
    pub tenant: String,
    pub user: String,
}

impl User<'_> {
    pub fn key(&self) -> String {
        format!("{}/{}", self.tenant, self.user)
    }

    /// A message that is not sent yet.
    pub fn message(&self, topic: &str, mut value: Value) -> Message {
        value["tenant"] = json!(self.tenant);
        value["user"] = json!(self.user);
        Message {
            topic: self.client.topic(topic),
            key: Some(self.key().into_bytes()),
            value: Some(value.to_string().into_bytes()),
            ..Message::default()
        }
    }

    /// Publishes an event and waits for its receipt.
    pub fn event(&self, event: Value) -> Value {
        self.client.exchange(self.message("events", event)).json()
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&self, request: Value) -> Value {
        self.client.exchange(self.message("recalls", request)).json()
    }

    /// Like `ask`, and asks again while the shard of the user moves to another process.
    pub fn ask_its_owner(&self, request: &Value) -> Value {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let reply = self.ask(request.clone());
            if reply["status"] != "unavailable" || Instant::now() > give_up {
                return reply;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn turn(&self, content: &str) -> Value {
        self.event(json!({"type": "turn", "content": content}))
    }

    /// Stores a memory and returns its id.
    pub fn remember(&self, content: &str) -> String {
        memory_id(&self.event(json!({"type": "remember", "content": content})))
    }

    pub fn recall(&self, query: &str) -> Value {
        self.ask(json!({"type": "recall", "query": query}))
    }

    /// Publishes a `tick` to every partition: each process has its own compaction worker.
    /// `at` is its time; `None` leaves that field out.
    pub fn tick(&self, at: Option<&str>) {
        let body = at.map_or(json!({"type": "tick"}), |at| json!({"type": "tick", "at": at}));
        for partition in 0..self.client.partitions("events") {
            self.client.send(&Message {
                value: Some(body.to_string().into_bytes()),
                partition: Some(partition),
                ..self.message("events", json!({}))
            });
        }
    }

    /// All memories of the user, page by page.
    pub fn list(&self) -> Vec<Value> {
        let mut memories = Vec::new();
        let mut after = Value::Null;
        loop {
            let mut request = json!({"type": "list", "limit": 100});
            if !after.is_null() {
                request["after"] = after;
            }
            let reply = self.ask_its_owner(&request);
            assert_eq!(reply["status"], "ok", "{reply}");
            memories.extend(reply["memories"].as_array().expect("a list").iter().cloned());
            after = reply["after"].clone();
            if after.is_null() {
                return memories;
            }
        }
    }

    /// All decisions about the user, in the order of the topic.
    pub fn decisions(&self) -> Vec<Value> {
        let key = self.key();
        let decisions = self
            .client
            .read("decisions")
            .into_iter()
            .filter(|record| record.key.as_deref() == Some(key.as_bytes()));
        decisions.map(|record| record.json()).collect()
    }
}

/// The memory id in the first decision of a receipt.
pub fn memory_id(reply: &Value) -> String {
    reply["decisions"][0]["memory"]
        .as_str()
        .unwrap_or_else(|| panic!("the first decision names no memory: {reply}"))
        .to_owned()
}

/// The outcome of the first decision of a receipt.
pub fn outcome(reply: &Value) -> &str {
    reply["decisions"][0]["outcome"]
        .as_str()
        .unwrap_or_else(|| panic!("the reply has no decision: {reply}"))
}

/// The texts of the memories in a reply, in its order.
pub fn contents(reply: &Value) -> Vec<&str> {
    let memories = reply["memories"]
        .as_array()
        .unwrap_or_else(|| panic!("the reply has no memories: {reply}"));
    memories
        .iter()
        .map(|memory| memory["content"].as_str().expect("the schema requires a text"))
        .collect()
}

/// The sum of the named parts of a decision's surprise.
pub fn sum_of_points(decision: &Value) -> f64 {
    let points = decision["surprise"]["points"]
        .as_object()
        .unwrap_or_else(|| panic!("the decision has no parts of surprise: {decision}"));
    points.values().filter_map(Value::as_f64).sum()
}

/// A JSON object with the fields of both; `more` wins.
pub fn merged(mut body: Value, more: Value) -> Value {
    let fields = body.as_object_mut().expect("the first value is an object");
    fields.extend(more.as_object().expect("the second value is an object").clone());
    body
}
