//! The real broker: Apache Kafka through librdkafka, and the same client against the in-process broker. Knows no event and no memory.

mod complaints;
mod consumer;
mod log;
mod producer;
mod transactor;

use super::broker::{Broker, Consumer, Log, Ownership, Producer, Transactor};
use crate::fault::{Fault, Result, StopName};
use consumer::{KafkaConsumer, Watch};
use log::KafkaLog;
use producer::{DeliveryWatch, KafkaProducer};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transactor::KafkaTransactor;

/// How to reach the brokers, and what every client of ours tells them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub servers: String,
    pub options: Vec<(String, String)>,
    /// The in-process broker does not wake long polls, so it is asked every millisecond.
    pub embedded: bool,
}

/// The broker's own sweep for what is older comes on top.
const TRANSACTION: Duration = Duration::from_secs(3);

/// For an answer about offsets; and between two attempts while a new partition has no leader yet.
const OFFSETS: Duration = Duration::from_secs(10);
const LEADER_AWAITED: Duration = Duration::from_millis(100);

/// Isolation levels: to what is written, and to what has been decided.
const UNDECIDED: &str = "read_uncommitted";
const DECIDED: &str = "read_committed";

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
            .set("isolation.level", DECIDED)
            .set("partition.assignment.strategy", "cooperative-sticky")
            // 16 MiB fetched ahead at most, over all partitions: two batches of ingest.
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.wait.max.ms", if self.embedded { "1" } else { "500" });
        config
    }

    /// Idempotent, every record acknowledged by all in-sync copies, nothing held back to fill a batch.
    fn writer(&self, client_id: &str) -> ClientConfig {
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
        config
    }

    /// A client that asks for metadata and offsets. Of no group: leaving one takes a tenth of a second for each client that is dropped.
    fn probe(&self, isolation: &str) -> Result<BaseConsumer<Watch>> {
        let mut config = self.client("keepsake-probe");
        config.set("enable.auto.commit", "false").set("isolation.level", isolation);
        self.finished(config)
            .create_with_context(Watch::alone())
            .map_err(|e| refused("creates a client", &e))
    }

    /// A producer that sends at once: an idempotent one asks for its id when it is made, and again half a second later if no broker was connected
    /// yet. Nothing is sent twice either, because nothing is sent again: what is not acknowledged is an error.
    pub fn impatient_producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        let mut config = self.writer(client_id);
        config.set("enable.idempotence", "false").set("message.send.max.retries", "0");
        self.producer_of(config)
    }

    fn producer_of(&self, config: ClientConfig) -> Result<Box<dyn Producer>> {
        let context = DeliveryWatch::default();
        let deliveries = context.deliveries();
        let producer = self
            .finished(config)
            .create_with_context(context)
            .map_err(|e| refused("creates a producer", &e))?;
        Ok(Box::new(KafkaProducer { producer, deliveries }))
    }

    /// The cluster's own id, once a broker answers.
    pub fn cluster_id(&self, within: Duration) -> Result<String> {
        let probe = self.probe(UNDECIDED)?;
        let give_up = Instant::now() + within;
        loop {
            if let Some(id) = probe.client().fetch_cluster_id(Duration::from_millis(500)) {
                return Ok(id);
            }
            if Instant::now() >= give_up {
                let what = format!(
                    "no broker answers at {} within {} s: is it running?",
                    self.servers,
                    within.as_secs()
                );
                return Err(Fault::stop(StopName::BrokerUnreachable, what));
            }
        }
    }

    /// Partition counts of the named topics; a topic that is not there has none.
    pub fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, i32>> {
        let probe = self.probe(UNDECIDED)?;
        let metadata = probe
            .fetch_metadata(None, Duration::from_secs(10))
            .map_err(|e| Fault::retry(format!("reads the list of topics: {e}")))?;
        Ok(metadata
            .topics()
            .iter()
            .filter(|topic| {
                topics.iter().any(|name| name == topic.name()) && !topic.partitions().is_empty()
            })
            .map(|topic| (topic.name().to_owned(), topic.partitions().len() as i32))
            .collect())
    }

    /// (first offset still there, offset of the next record).
    pub fn offsets(&self, topic: &str, partition: i32) -> Result<(i64, i64)> {
        watermarks(&self.probe(UNDECIDED)?, topic, partition)
    }

    /// The same of all partitions, by one client.
    pub fn all_offsets(&self, topic: &str, partitions: i32) -> Result<Vec<(i64, i64)>> {
        let probe = self.probe(UNDECIDED)?;
        (0..partitions).map(|partition| watermarks(&probe, topic, partition)).collect()
    }

    /// What a group has committed of these partitions, and nothing of the others.
    pub fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, i64>> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let found =
            self.outside(group)?.committed_offsets(list, Duration::from_secs(10)).map_err(|e| {
                Fault::retry(format!("reads what group {group} has committed of {topic}: {e}"))
            })?;
        let offset =
            |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        Ok(found
            .elements()
            .iter()
            .filter_map(|element| Some((element.partition(), offset(element.offset())?)))
            .collect())
    }

    /// Commits for a group that has no members, and waits for the answer.
    pub fn commit(&self, group: &str, topic: &str, offsets: &BTreeMap<i32, i64>) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .expect("an offset of a record plus one is an offset");
        }
        let about = |e: KafkaError| Fault::retry(format!("commits {topic} for group {group}: {e}"));
        self.outside(group)?.commit(&list, CommitMode::Sync).map_err(about)
    }

    /// Speaks of a group without joining it.
    fn outside(&self, group: &str) -> Result<BaseConsumer<Watch>> {
        let mut config = self.client("keepsake-probe");
        config.set("group.id", group).set("enable.auto.commit", "false");
        self.finished(config)
            .create_with_context(Watch::alone())
            .map_err(|e| refused("creates a client", &e))
    }

    /// Makes topics on a real cluster. One that is there already is left as it is.
    pub fn create_topics(&self, topics: &[TopicSpec]) -> Result<()> {
        let (admin, runtime, options) = self.admin()?;
        let new: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| {
                let base = NewTopic::new(
                    &topic.name,
                    topic.partitions,
                    TopicReplication::Fixed(topic.replication),
                );
                topic.settings.iter().fold(base, |topic, (name, value)| topic.set(name, value))
            })
            .collect();
        let results = runtime
            .block_on(admin.create_topics(&new, &options))
            .map_err(|e| Fault::retry(format!("asks for topics: {e}")))?;
        for result in results {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    let what = format!(
                        "the broker does not make topic {name}: {code}; make it by hand, or set topics.create = false"
                    );
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
        let results = runtime
            .block_on(admin.delete_topics(&names, &options))
            .map_err(|e| Fault::retry(format!("removes topics: {e}")))?;
        match results.into_iter().find_map(std::result::Result::err) {
            Some((name, code)) => Err(Fault::retry(format!("removes topic {name}: {code}"))),
            None => Ok(()),
        }
    }

    fn admin(
        &self,
    ) -> Result<(AdminClient<DefaultClientContext>, tokio::runtime::Runtime, AdminOptions)> {
        let admin = self
            .finished(self.client("keepsake-admin"))
            .create()
            .map_err(|e| refused("creates the admin client", &e))?;
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

impl Broker for Connection {
    fn join(
        &self,
        group: &str,
        topic: &str,
        owner: Arc<dyn Ownership>,
    ) -> Result<Box<dyn Consumer>> {
        let mut config = self.consumer(&format!("{group}-ingest"), group);
        // Where it begins is said for every partition. If that is no longer there, going on elsewhere would lose what was between.
        config.set("auto.offset.reset", "error");
        let config = self.finished(config);
        let consumer: BaseConsumer<Watch> = config
            .create_with_context(Watch::of_group(topic, owner))
            .map_err(|e| refused("creates the events consumer", &e))?;
        consumer.subscribe(&[topic]).map_err(|e| refused(format!("subscribes to {topic}"), &e))?;
        Ok(Box::new(KafkaConsumer::new(consumer, topic)))
    }

    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        let config = self.finished(self.consumer(group, group));
        let consumer = config
            .create_with_context(Watch::alone())
            .map_err(|e| refused(format!("creates a reader of {topic}"), &e))?;
        Ok(Box::new(KafkaConsumer::new(consumer, topic)))
    }

    fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        self.producer_of(self.writer(client_id))
    }

    fn transactor(&self, id: &str, topic: &str, changelog: &str) -> Result<Box<dyn Transactor>> {
        let mut config = self.writer(id);
        config
            .set("transactional.id", id)
            // A dead process's open transaction holds its partitions back for so long.
            .set("transaction.timeout.ms", TRANSACTION.as_millis().to_string())
            .set("message.timeout.ms", TRANSACTION.as_millis().to_string())
            // After a commit the broker is busy with it for a moment, and the next begin is asked again after this long.
            .set("retry.backoff.ms", "1");
        Ok(Box::new(KafkaTransactor::new(self.finished(config), topic, changelog)))
    }

    fn log(&self, topic: &str) -> Result<Arc<dyn Log>> {
        Ok(Arc::new(KafkaLog::new(self, topic)?))
    }
}

/// A partition that was made or moved a moment ago is asked for again until its new leader answers.
fn watermarks(probe: &BaseConsumer<Watch>, topic: &str, partition: i32) -> Result<(i64, i64)> {
    let give_up = Instant::now() + OFFSETS;
    loop {
        match probe.fetch_watermarks(topic, partition, OFFSETS) {
            Err(e) if is_without_leader(&e) && Instant::now() < give_up => {
                std::thread::sleep(LEADER_AWAITED)
            }
            read => {
                return read.map_err(|e| {
                    Fault::retry(format!("reads the offsets of {topic}/{partition}: {e}"))
                });
            }
        }
    }
}

fn is_without_leader(e: &KafkaError) -> bool {
    matches!(
        e.rdkafka_error_code(),
        Some(RDKafkaErrorCode::NotLeaderForPartition | RDKafkaErrorCode::LeaderNotAvailable)
    )
}
