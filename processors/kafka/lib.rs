//! Implements the traits of `broker/lib.rs` by Apache Kafka through
//! [librdkafka](https://docs.confluent.io/platform/current/clients/librdkafka/html/md_CONFIGURATION.html),
//! for a cluster and for the embedded broker alike.
//!
//! This file opens and configures clients. `reach.rs` reaches the cluster for the first time,
//! `admin.rs` manages topics, `consumer.rs` reads, `producer.rs`
//! writes, `transactor.rs` writes in transactions, `partition_log.rs` reads a topic from the
//! beginning, `old_records.rs` deletes the oldest records. No module here knows events or memories.
//! A changed setting needs a reason beside it.

mod admin;
mod bulk;
mod consumer;
mod fault;
mod group_facts;
#[cfg(test)]
mod mock;
mod old_records;
mod partition_log;
mod producer;
mod reach;
mod rejoin;
mod reporting;
mod reserved;
mod throttle;
mod token;
mod topic_facts;
mod transactor;
mod turns;

use broker::{Broker, Consumer, Log, Producer, RebalanceListener, Transactor};
pub use bulk::BulkWriter;
use consumer::{ConsumerCallbacks, KafkaConsumer, known_offset};
use domain::fault::{Fault, Result};
use fault::{failed, is_denied, of_code, refused};
pub use group_facts::{GroupFacts, GroupMember};
pub use old_records::Noted;
use partition_log::KafkaLog;
use producer::{KafkaProducer, ProducerCallbacks};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::BaseProducer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use reach::QUIET;
use rejoin::RejoiningConsumer;
use reporting::Reports;
pub use reporting::{NotWritten, ReportingProducer};
pub use reserved::reserved;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use token::TOKEN_FILE;
pub use topic_facts::{ClusterFacts, TopicFacts};
pub use transactor::ChangelogWriter;
use transactor::KafkaTransactor;

/// Address of the brokers and the options of every client. Not `Debug`, because passwords are among
/// the options.
#[derive(Clone)]
pub struct Connection {
    pub servers: String,
    pub options: Vec<(String, String)>,
}

/// Timeout of a transaction. The broker looks for expired ones at intervals, which come on top.
const TRANSACTION: Duration = Duration::from_secs(3);

/// Time without a heartbeat after which the broker gives the partitions of a member to others: the
/// least that a broker accepts by default (`group.min.session.timeout.ms`). Until then nobody
/// answers for the shards of a process that was killed.
pub const SESSION_MS: i64 = 6000;
/// The same for a static member, which is expected to come back: the client's own default.
pub const STATIC_SESSION_MS: i64 = 45_000;
/// Time between two heartbeats. The others learn of a rebalance with theirs, so this comes on top
/// of the session. A busy machine may miss eleven in a row.
const HEARTBEAT_MS: &str = "500";
/// Option that makes a member static.
pub const INSTANCE_ID: &str = "group.instance.id";

/// Time to wait for an answer about offsets, and between two attempts while a new partition has no
/// leader yet.
const OFFSETS: Duration = Duration::from_secs(10);
/// The same on a thread that has other partitions to serve.
const OFFSETS_SOON: Duration = Duration::from_millis(300);
const LEADER_AWAITED: Duration = Duration::from_millis(100);
/// Time to look up one topic.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(3);

/// Isolation levels: `UNDECIDED` reads up to the newest record, `DECIDED` up to the last stable
/// offset.
const UNDECIDED: &str = "read_uncommitted";
const DECIDED: &str = "read_committed";

/// The wanted settings of a topic.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: i32,
    /// -1: as many as the broker's default.
    pub replication: i32,
    pub settings: Vec<(&'static str, String)>,
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
        if cfg!(feature = "portable") {
            // OpenSSL that is linked in has no path of this system's certificates.
            config.set("ssl.ca.location", "probe");
        }
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
            // At most 16 MiB are fetched ahead over all partitions: two batches of ingest.
            .set("queued.max.messages.kbytes", "16384")
            // A full queue is looked at again after this time. A reader empties 16 MiB in some 50
            // ms; with the client's own second the reader then waited for the rest.
            .set("fetch.queue.backoff.ms", "10");
        config
    }

    /// Configures a producer: idempotent, every record acknowledged by all in-sync replicas, no
    /// delay to fill a batch.
    fn writer(&self, client_id: &str) -> ClientConfig {
        let mut config = self.client(client_id);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("partitioner", "murmur2_random")
            // A record for a topic that is not there must not create the topic.
            .set("allow.auto.create.topics", "false")
            .set("message.timeout.ms", "60000")
            // The topic's limit applies instead of the client's own of 1 MB: a dead letter is
            // longer than its record.
            .set("message.max.bytes", "33554432")
            .set("queue.buffering.max.kbytes", "65536");
        config
    }

    fn transactional(&self, id: &str) -> ClientConfig {
        let mut config = self.writer(id);
        config
            .set("transactional.id", id)
            // The open transaction of a dead process holds back the readers of its partitions for
            // this time.
            .set("transaction.timeout.ms", TRANSACTION.as_millis().to_string())
            .set("message.timeout.ms", TRANSACTION.as_millis().to_string())
            // The broker is busy with a commit for a moment. The next begin is retried after this
            // time.
            .set("retry.backoff.ms", "1");
        config
    }

    /// Creates a client that fetches metadata and offsets, without a group: leaving one takes a
    /// tenth of a second for each client.
    fn probe(&self, isolation: &str) -> Result<BaseConsumer<ConsumerCallbacks>> {
        let mut config = self.client("keepsake-probe");
        config.set("enable.auto.commit", "false").set("isolation.level", isolation);
        self.asking(config)
    }

    /// Creates a producer that sends at once, for clients with a short life. An idempotent producer
    /// fetches an id first, and again half a second later if no broker was connected. Without
    /// retries nothing is written twice either: a record that is not acknowledged is an error.
    pub fn impatient_producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        let mut config = self.writer(client_id);
        config.set("enable.idempotence", "false").set("message.send.max.retries", "0");
        self.producer_of(config)
    }

    /// Creates an idempotent producer for callers that wait. The producer tries again within the
    /// time, and calls `failed` for a record that is not delivered with the value of the header.
    pub fn reporting_producer(
        &self,
        client_id: &str,
        within: Duration,
        header: &'static str,
        failed: impl Fn(&[u8], NotWritten) + Send + Sync + 'static,
    ) -> Result<ReportingProducer> {
        let mut config = self.writer(client_id);
        config.set("message.timeout.ms", within.as_millis().to_string());
        let producer: BaseProducer<Reports> = self
            .finished(config)
            .create_with_context(Reports::new(header, Box::new(failed)))
            .map_err(|e| refused("creates a producer", &e))?;
        // Fetches a token for the log-in, if there is one.
        producer.poll(Duration::ZERO);
        Ok(ReportingProducer(producer))
    }

    /// Opens a log for a thread that serves other partitions, too: a partition without a leader is
    /// a fault at once.
    pub fn impatient_log(&self, topic: &str) -> Result<Arc<dyn Log>> {
        Ok(Arc::new(KafkaLog::new(self, topic, OFFSETS_SOON)?))
    }

    fn producer_of(&self, config: ClientConfig) -> Result<Box<dyn Producer>> {
        let context = ProducerCallbacks::default();
        let deliveries = context.deliveries();
        let producer: BaseProducer<ProducerCallbacks> = self
            .finished(config)
            .create_with_context(context)
            .map_err(|e| refused("creates a producer", &e))?;
        // Fetches a token for the log-in, if there is one.
        producer.poll(Duration::ZERO);
        Ok(Box::new(KafkaProducer { producer: Arc::new(producer), deliveries }))
    }

    /// Returns the numbers of partitions of the named topics. A missing topic has no entry.
    pub fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, i32>> {
        let probe = self.probe(UNDECIDED)?;
        let metadata = probe
            .fetch_metadata(None, Duration::from_secs(10))
            .map_err(|e| failed("reads the list of topics", &e))?;
        Ok(metadata
            .topics()
            .iter()
            .filter(|topic| {
                topics.iter().any(|name| name == topic.name()) && !topic.partitions().is_empty()
            })
            .map(|topic| (topic.name().to_owned(), topic.partitions().len() as i32))
            .collect())
    }

    /// Returns the first offset that is still there and the offset of the next record.
    pub fn offsets(&self, topic: &str, partition: i32) -> Result<(i64, i64)> {
        watermarks(&self.probe(UNDECIDED)?, topic, partition, OFFSETS)
    }

    /// Like `offsets`, for all partitions by one client.
    pub fn all_offsets(&self, topic: &str, partitions: i32) -> Result<Vec<(i64, i64)>> {
        let probe = self.probe(UNDECIDED)?;
        (0..partitions).map(|partition| watermarks(&probe, topic, partition, OFFSETS)).collect()
    }

    /// Returns the last stable offset of each of these partitions: all transactions before it are
    /// decided.
    pub fn stable_ends(&self, topic: &str, partitions: &[i32]) -> Result<Vec<i64>> {
        let probe = self.probe(DECIDED)?;
        let end = |partition: &i32| Ok(watermarks(&probe, topic, *partition, OFFSETS)?.1);
        partitions.iter().map(end).collect()
    }

    /// Returns the offsets that a group has committed of these partitions. A partition without one
    /// has no entry.
    pub fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, i64>> {
        let found = self.committed_list(group, topic, partitions)?;
        let elements = found.elements();
        Ok(elements
            .iter()
            .filter_map(|element| Some((element.partition(), known_offset(element.offset())?)))
            .collect())
    }

    fn committed_list(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let client = self.group_client(group)?;
        client.committed_offsets(list, OFFSETS).map_err(|e| {
            of_group(&client, format!("reads the offsets of group {group} in {topic}"), &e)
        })
    }

    /// Commits offsets for a group that has no members, and waits for the answer.
    pub fn commit(&self, group: &str, topic: &str, offsets: &BTreeMap<i32, i64>) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .expect("librdkafka accepts every offset from 0");
        }
        let client = self.group_client(group)?;
        let done = client.commit(&list, CommitMode::Sync);
        done.map_err(|e| of_group(&client, format!("commits {topic} for group {group}"), &e))
    }

    /// Opens a reader of assigned partitions that notes no offsets and needs no right to a group.
    pub fn reader_without_group(&self, client_id: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        self.reader_as(ConsumerCallbacks::without_group(), client_id, topic)
    }

    /// `client_id` is also the id of the group.
    fn reader_as(
        &self,
        callbacks: ConsumerCallbacks,
        client_id: &str,
        topic: &str,
    ) -> Result<Box<dyn Consumer>> {
        let consumer = self
            .finished(self.consumer(client_id, client_id))
            .create_with_context(callbacks)
            .map_err(|e| refused(format!("creates a reader of {topic}"), &e))?;
        Ok(Box::new(KafkaConsumer::new(consumer, topic)))
    }

    /// Creates a client that reads and commits a group's offsets without joining the group.
    fn group_client(&self, group: &str) -> Result<BaseConsumer<ConsumerCallbacks>> {
        let mut config = self.client("keepsake-probe");
        config.set("group.id", group).set("enable.auto.commit", "false");
        self.asking(config)
    }

    /// Creates a client that asks without being polled. One poll comes first, because only a poll
    /// fetches a token for the log-in.
    fn asking(&self, config: ClientConfig) -> Result<BaseConsumer<ConsumerCallbacks>> {
        let client: BaseConsumer<ConsumerCallbacks> = self
            .finished(config)
            .create_with_context(ConsumerCallbacks::of_reader())
            .map_err(|e| refused("creates a client", &e))?;
        client.poll(Duration::ZERO);
        Ok(client)
    }
}

/// A failure of a client of a group. The call itself reports only a missing coordinator.
fn of_group(client: &BaseConsumer<ConsumerCallbacks>, what: String, error: &KafkaError) -> Fault {
    while client.poll(QUIET).is_some() {}
    match client.context().reported() {
        Some(reported) if is_denied(reported.code) => of_code(what, reported.code),
        _ => failed(format!("{what} (or no right on it, see `keepsake topics acls`)"), error),
    }
}

impl Broker for Connection {
    fn join(
        &self,
        group: &str,
        topic: &str,
        owner: Arc<dyn RebalanceListener>,
    ) -> Result<Box<dyn Consumer>> {
        let mut config = self.consumer(&format!("{group}-ingest"), group);
        // Every partition is assigned with an explicit offset. If that offset is gone, continuing
        // at another would lose the records between.
        config.set("auto.offset.reset", "error");
        config
            // The partitions are read in turn: at most 1 MiB is fetched ahead of each.
            .set("queued.max.messages.kbytes", "1024");
        if !self.options.iter().any(|(option, _)| option == INSTANCE_ID) {
            config
                .set("session.timeout.ms", SESSION_MS.to_string())
                .set("heartbeat.interval.ms", HEARTBEAT_MS);
        }
        let config = self.finished(config);
        let topic = topic.to_owned();
        let join = move || {
            let consumer: BaseConsumer<ConsumerCallbacks> = config
                .create_with_context(ConsumerCallbacks::of_group(&topic, Arc::clone(&owner)))
                .map_err(|e| refused("creates the events consumer", &e))?;
            consumer
                .subscribe(&[&topic])
                .map_err(|e| refused(format!("subscribes to {topic}"), &e))?;
            Ok(KafkaConsumer::in_turn(consumer, &topic))
        };
        Ok(Box::new(RejoiningConsumer::new(Box::new(join))?))
    }

    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        self.reader_as(ConsumerCallbacks::of_reader(), group, topic)
    }

    fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        self.producer_of(self.writer(client_id))
    }

    fn transactor(&self, id: &str, topic: &str, changelog: &str) -> Result<Box<dyn Transactor>> {
        let config = self.transactional(id);
        Ok(Box::new(KafkaTransactor::new(self.finished(config), topic, changelog)))
    }

    fn log(&self, topic: &str) -> Result<Arc<dyn Log>> {
        Ok(Arc::new(KafkaLog::new(self, topic, OFFSETS)?))
    }

    fn partitions_of(&self, topic: &str) -> Result<Option<i32>> {
        // A client of its own: a client keeps each topic that was ever asked for.
        let metadata = self
            .probe(UNDECIDED)?
            .fetch_metadata(Some(topic), LOOKED_UP_WITHIN)
            .map_err(|e| failed(format!("looks up topic {topic}"), &e))?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
            return Ok(None);
        };
        // A topic that this user may not see is not missing.
        match found.error().map(RDKafkaErrorCode::from).filter(|code| is_denied(*code)) {
            Some(code) => Err(of_code(format!("looks up topic {topic}"), code)),
            None => Ok(Some(found.partitions().len() as i32).filter(|count| *count > 0)),
        }
    }
}

/// Fetches the first and next offset of a partition.
fn watermarks(
    probe: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    partition: i32,
    within: Duration,
) -> Result<(i64, i64)> {
    with_leader(probe, topic, within, || probe.fetch_watermarks(topic, partition, within))
        .map_err(|e| failed(format!("reads the offsets of {topic}/{partition}"), &e))
}

/// Fetches the first offset whose record is of this time or later.
fn first_since(
    probe: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    partition: i32,
    time_ms: i64,
    within: Duration,
) -> Result<Option<i64>> {
    let mut asked = TopicPartitionList::new();
    asked
        .add_partition_offset(topic, partition, Offset::Offset(time_ms.max(0)))
        .expect("librdkafka accepts every time from 1970 on");
    let fetch = || {
        let found = probe.offsets_for_times(asked.clone(), within)?;
        let found = found.elements().first().map(|found| (found.error(), found.offset()));
        found.map_or(Ok(None), |(error, offset)| error.map(|()| offset.to_raw()))
    };
    let found = with_leader(probe, topic, within, fetch)
        .map_err(|e| failed(format!("looks up a time in {topic}/{partition}"), &e))?;
    Ok(found.filter(|offset| *offset >= 0))
}

/// Asks the leader of a partition. Retries while a partition that was just created or moved has
/// none.
///
/// The client caches a partition's leader for minutes, also one named by a broker that had just
/// started, so the topic is looked up before each further try.
fn with_leader<T>(
    probe: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    within: Duration,
    fetch: impl Fn() -> KafkaResult<T>,
) -> KafkaResult<T> {
    let give_up = Instant::now() + within;
    // A token that has expired is renewed here, before a connection that was idle is opened again.
    probe.poll(Duration::ZERO);
    loop {
        match fetch() {
            Err(e) if is_without_leader(&e) && Instant::now() < give_up => {
                std::thread::sleep(LEADER_AWAITED);
                // A lookup that fails leaves the next try to say why.
                let _ = probe.fetch_metadata(Some(topic), within.min(LOOKED_UP_WITHIN));
            }
            answer => return answer,
        }
    }
}

fn is_without_leader(e: &KafkaError) -> bool {
    matches!(
        e.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}
