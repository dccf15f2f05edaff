//! The real broker: Apache Kafka through librdkafka, and the same client against the in-process broker. Knows no event and no memory.

use super::broker::{Consumer, Outgoing, Ownership, Polled, Producer, Record, Start};
use crate::fault::{Fault, Result, StopName};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers as _, Message, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How to reach the brokers, and what every client of ours tells them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub servers: String,
    pub options: Vec<(String, String)>,
    /// The in-process broker does not wake long polls, so it is asked every millisecond.
    pub embedded: bool,
}

/// A topic as it should be.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: i32,
    pub replication: i32,
    pub settings: Vec<(&'static str, String)>,
}

/// The broker inside this process: real TCP, real groups, nothing kept. Limit: 5 MiB or 100,000 records a partition, then the oldest go.
pub struct Embedded {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Embedded {
    pub fn start() -> Result<Embedded> {
        let cluster = MockCluster::new(1).map_err(|e| refused("starts the embedded broker", &e))?;
        Ok(Embedded { cluster })
    }

    pub fn servers(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    pub fn create(&self, topics: &[TopicSpec]) -> Result<()> {
        for topic in topics {
            self.cluster
                .create_topic(&topic.name, topic.partitions, 1)
                .map_err(|e| refused(format!("creates {}", topic.name), &e))?;
        }
        Ok(())
    }
}

impl Connection {
    fn client(&self, client_id: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", client_id)
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "1000")
            .set("topic.metadata.refresh.interval.ms", "60000")
            .set_log_level(RDKafkaLogLevel::Warning);
        config
    }

    fn finished(&self, mut config: ClientConfig) -> ClientConfig {
        for (name, value) in &self.options {
            config.set(name, value);
        }
        config
    }

    fn consumer(&self, client_id: &str, group: &str) -> ClientConfig {
        let mut config = self.client(client_id);
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("partition.assignment.strategy", "cooperative-sticky")
            // 16 MiB fetched ahead at most, over all partitions: two batches of ingest.
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.wait.max.ms", if self.embedded { "1" } else { "500" });
        config
    }

    /// A member of a group: which partitions it reads is the group's decision, where it begins is `owner`'s.
    pub fn join(&self, group: &str, topic: &str, owner: Arc<dyn Ownership>) -> Result<Box<dyn Consumer>> {
        let config = self.finished(self.consumer(&format!("{group}-ingest"), group));
        let context = Watch { topic: topic.to_owned(), owner: Some(owner) };
        let consumer: BaseConsumer<Watch> =
            config.create_with_context(context).map_err(|e| refused("creates the events consumer", &e))?;
        consumer.subscribe(&[topic]).map_err(|e| refused(format!("subscribes to {topic}"), &e))?;
        Ok(Box::new(KafkaConsumer { consumer, topic: topic.to_owned() }))
    }

    /// A reader of the partitions it is told to read; its offsets are committed under `group`, which nobody subscribes with.
    pub fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        let config = self.finished(self.consumer(group, group));
        let context = Watch { topic: topic.to_owned(), owner: None };
        let consumer = config.create_with_context(context).map_err(|e| refused(format!("creates a reader of {topic}"), &e))?;
        Ok(Box::new(KafkaConsumer { consumer, topic: topic.to_owned() }))
    }

    /// Idempotent, every record acknowledged by all in-sync copies, nothing held back to fill a batch.
    pub fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        let mut config = self.client(client_id);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("partitioner", "murmur2_random")
            .set("message.timeout.ms", "60000")
            // The topic's limit decides, not this client's own of 1 MB: a dead letter is longer than the record it is about.
            .set("message.max.bytes", "33554432")
            .set("queue.buffering.max.kbytes", "65536");
        let deliveries = Arc::new(Deliveries::default());
        let producer = self
            .finished(config)
            .create_with_context(DeliveryWatch(deliveries.clone()))
            .map_err(|e| refused("creates a producer", &e))?;
        Ok(Box::new(KafkaProducer { producer, deliveries }))
    }

    fn probe(&self) -> Result<BaseConsumer<Watch>> {
        let mut config = self.client("keepsake-probe");
        config.set("group.id", "keepsake-probe").set("enable.auto.commit", "false");
        self.finished(config)
            .create_with_context(Watch { topic: String::new(), owner: None })
            .map_err(|e| refused("creates a client", &e))
    }

    /// The cluster's own id, once a broker answers.
    pub fn cluster_id(&self, within: Duration) -> Result<String> {
        let probe = self.probe()?;
        let give_up = Instant::now() + within;
        loop {
            if let Some(id) = probe.client().fetch_cluster_id(Duration::from_millis(500)) {
                return Ok(id);
            }
            if Instant::now() >= give_up {
                let what = format!("no broker answers at {} within {} s: is it running?", self.servers, within.as_secs());
                return Err(Fault::stop(StopName::BrokerUnreachable, what));
            }
        }
    }

    /// Partition counts of the named topics; a topic that is not there has none.
    pub fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, i32>> {
        let probe = self.probe()?;
        let metadata = probe
            .fetch_metadata(None, Duration::from_secs(10))
            .map_err(|e| Fault::retry(format!("reads the list of topics: {e}")))?;
        Ok(metadata
            .topics()
            .iter()
            .filter(|topic| topics.iter().any(|name| name == topic.name()) && !topic.partitions().is_empty())
            .map(|topic| (topic.name().to_owned(), topic.partitions().len() as i32))
            .collect())
    }

    /// (first offset still there, offset of the next record).
    pub fn offsets(&self, topic: &str, partition: i32) -> Result<(i64, i64)> {
        self.probe()?
            .fetch_watermarks(topic, partition, Duration::from_secs(10))
            .map_err(|e| Fault::retry(format!("reads the offsets of {topic}/{partition}: {e}")))
    }

    /// Makes topics on a real cluster. One that is there already is left as it is.
    pub fn create_topics(&self, topics: &[TopicSpec]) -> Result<()> {
        let (admin, runtime, options) = self.admin()?;
        let new: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| {
                let base = NewTopic::new(&topic.name, topic.partitions, TopicReplication::Fixed(topic.replication));
                topic.settings.iter().fold(base, |topic, (name, value)| topic.set(name, value))
            })
            .collect();
        let results =
            runtime.block_on(admin.create_topics(&new, &options)).map_err(|e| Fault::retry(format!("asks for topics: {e}")))?;
        for result in results {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    let what =
                        format!("the broker does not make topic {name}: {code}; make it by hand, or set topics.create = false");
                    return Err(Fault::stop(StopName::TopicMissing, what));
                }
            }
        }
        Ok(())
    }

    /// Removes topics from a real cluster, with all that is in them.
    pub fn delete_topics(&self, topics: &[String]) -> Result<()> {
        let (admin, runtime, options) = self.admin()?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let results =
            runtime.block_on(admin.delete_topics(&names, &options)).map_err(|e| Fault::retry(format!("removes topics: {e}")))?;
        match results.into_iter().find_map(std::result::Result::err) {
            Some((name, code)) => Err(Fault::retry(format!("removes topic {name}: {code}"))),
            None => Ok(()),
        }
    }

    fn admin(&self) -> Result<(AdminClient<DefaultClientContext>, tokio::runtime::Runtime, AdminOptions)> {
        let admin = self.finished(self.client("keepsake-admin")).create().map_err(|e| refused("creates the admin client", &e))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Fault::retry(format!("starts a runtime: {e}")))?;
        Ok((admin, runtime, AdminOptions::new().operation_timeout(Some(Duration::from_secs(15)))))
    }
}

fn refused(what: impl std::fmt::Display, error: &KafkaError) -> Fault {
    Fault::stop(StopName::BrokerRefuses, format!("{what}: {error}"))
}

// ---------------------------------------------------------------- reading

/// The rebalance waits for this, and the group waits for the rebalance.
const COMMITTED_WITHIN: Duration = Duration::from_secs(5);

struct Watch {
    topic: String,
    owner: Option<Arc<dyn Ownership>>,
}

impl ClientContext for Watch {
    fn error(&self, error: KafkaError, reason: &str) {
        // The end of a partition is asked for and comes as an event; the client reports it here a second time.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::warn!(%error, reason, "broker client");
        }
    }
}

impl ConsumerContext for Watch {
    /// Order matters: each partition is assigned once, here, at the offset its shard wants; a second assign or a seek right after would race.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let Some(owner) = &self.owner else { return };
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let done = if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let starts = if partitions.is_empty() { Vec::new() } else { owner.assigned(&committed(consumer, list)) };
            let list = positions(&self.topic, &starts);
            if cooperative { consumer.incremental_assign(&list) } else { consumer.assign(&list) }
        } else {
            if !partitions.is_empty() {
                owner.revoked(&partitions);
            }
            if cooperative { consumer.incremental_unassign(list) } else { consumer.unassign() }
        };
        if let Err(error) = done {
            tracing::error!(%error, ?partitions, "carries out a rebalance");
        }
    }
}

/// What the group has committed. Not known within the time is as good as nothing: it only spares repetitions.
fn committed(consumer: &BaseConsumer<Watch>, list: &TopicPartitionList) -> Vec<(i32, Option<i64>)> {
    let offset = |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
    match consumer.committed_offsets(list.clone(), COMMITTED_WITHIN) {
        Ok(found) => found.elements().iter().map(|element| (element.partition(), offset(element.offset()))).collect(),
        Err(error) => {
            tracing::warn!(%error, "asks for the group's offsets");
            list.elements().iter().map(|element| (element.partition(), None)).collect()
        }
    }
}

fn positions(topic: &str, starts: &[(i32, Start)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, start) in starts {
        let offset = match start {
            Start::At(offset) => Offset::Offset(*offset),
            Start::Committed => Offset::Stored,
            Start::End => Offset::End,
        };
        list.add_partition_offset(topic, *partition, offset).expect("every offset above is one librdkafka knows");
    }
    list
}

struct KafkaConsumer {
    consumer: BaseConsumer<Watch>,
    topic: String,
}

impl Consumer for KafkaConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.consumer.poll(wait) {
            None => Ok(Polled::Nothing),
            Some(Ok(message)) => Ok(Polled::Record(taken(&message))),
            Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Polled::End { partition }),
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                Err(Fault::stop(StopName::BrokerRefuses, format!("the broker no longer accepts this consumer: {code}")))
            }
            Some(Err(error)) => Err(Fault::retry(format!("polls {}: {error}", self.topic))),
        }
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        let list = positions(&self.topic, partitions);
        self.consumer.incremental_assign(&list).map_err(|e| Fault::retry(format!("assigns {}: {e}", self.topic)))
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        self.consumer.incremental_unassign(&list).map_err(|e| Fault::retry(format!("gives up {}: {e}", self.topic)))
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        let starts: Vec<(i32, Start)> = offsets.iter().map(|(partition, offset)| (*partition, Start::At(*offset))).collect();
        self.consumer
            .commit(&positions(&self.topic, &starts), CommitMode::Async)
            .map_err(|e| Fault::retry(format!("commits {}: {e}", self.topic)))
    }

    fn close(self: Box<Self>) {
        drop(self.consumer);
    }
}

fn taken(message: &BorrowedMessage<'_>) -> Record {
    let headers = message
        .headers()
        .map(|headers| headers.iter().map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec())).collect())
        .unwrap_or_default();
    Record {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(0),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    }
}

// ---------------------------------------------------------------- writing

/// What became of the records sent: failures are counted, and the last one is told.
#[derive(Default)]
struct Deliveries {
    failed: AtomicU64,
    too_large: AtomicBool,
    last: Mutex<String>,
}

struct DeliveryWatch(Arc<Deliveries>);

impl ClientContext for DeliveryWatch {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "broker client");
    }
}

impl ProducerContext for DeliveryWatch {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, message)) = result {
            self.0
                .too_large
                .fetch_or(error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge), Ordering::Relaxed);
            self.0.failed.fetch_add(1, Ordering::Release);
            if let Ok(mut last) = self.0.last.lock() {
                *last = format!("writes to {}/{}: {error}", message.topic(), message.partition());
            }
        }
    }
}

struct KafkaProducer {
    producer: BaseProducer<DeliveryWatch>,
    deliveries: Arc<Deliveries>,
}

/// How long a full send queue is waited for before the caller hears of it.
const QUEUE_FULL_WAIT: Duration = Duration::from_secs(30);

/// Between two looks whether all is acknowledged: a tenth of what a broker takes to do so.
const ACKNOWLEDGED_LOOK: Duration = Duration::from_micros(100);

impl Producer for KafkaProducer {
    fn send(&mut self, outgoing: &Outgoing) -> Result<()> {
        let give_up = Instant::now() + QUEUE_FULL_WAIT;
        loop {
            match self.producer.send(record(outgoing)) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) if Instant::now() < give_up => {
                    self.producer.poll(Duration::from_millis(5));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    return Err(too_large(&format!("a record for {}", outgoing.topic)));
                }
                Err((error, _)) => return Err(Fault::retry(format!("writes to {}: {error}", outgoing.topic))),
            }
        }
    }

    /// Not the client's own flush, which sits in 100 ms polls; nor its poll with a time, which goes on until that is over, and spins
    /// through what is less than a millisecond of it, whatever has arrived.
    fn flush(&mut self, within: Duration) -> Result<()> {
        let give_up = Instant::now() + within;
        loop {
            let before = self.producer.in_flight_count();
            self.producer.poll(Duration::ZERO);
            let now = self.producer.in_flight_count();
            if now == 0 {
                return self.outstanding().map(drop);
            }
            if now == before {
                if Instant::now() >= give_up {
                    return Err(Fault::retry(format!("{now} records not acknowledged")));
                }
                std::thread::sleep(ACKNOWLEDGED_LOOK);
            }
        }
    }

    fn outstanding(&mut self) -> Result<usize> {
        self.producer.poll(Duration::ZERO);
        match self.deliveries.failed.swap(0, Ordering::Acquire) {
            0 => Ok(self.producer.in_flight_count() as usize),
            failed => {
                let last = self.deliveries.last.lock().map(|last| last.clone()).unwrap_or_default();
                if self.deliveries.too_large.swap(false, Ordering::Relaxed) {
                    return Err(too_large(&last));
                }
                Err(Fault::retry(format!("{failed} records not written, the last: {last}")))
            }
        }
    }
}

/// The same record again would be refused again, for ever: a person has to choose.
fn too_large(what: &str) -> Fault {
    Fault::stop(StopName::BrokerRefuses, format!("{what}: longer than the topic takes; raise its max.message.bytes"))
}

fn record(outgoing: &Outgoing) -> BaseRecord<'_, [u8], [u8]> {
    let mut record = BaseRecord::to(&outgoing.topic);
    record.partition = outgoing.partition;
    record.timestamp = outgoing.timestamp_ms;
    record.key = outgoing.key.as_deref();
    record.payload = outgoing.value.as_deref();
    if !outgoing.headers.is_empty() {
        let headers = OwnedHeaders::new_with_capacity(outgoing.headers.len());
        record.headers =
            Some(outgoing.headers.iter().fold(headers, |all, (key, value)| all.insert(Header { key, value: Some(value) })));
    }
    record
}
