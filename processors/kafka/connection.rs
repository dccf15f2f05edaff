//! Configures and creates the clients of a cluster. A changed setting needs a reason beside it.

use super::consumer::{ConsumerCallbacks, KafkaConsumer};
use super::fault::{failed, is_denied, of_code, refused};
use super::producer::KafkaProducer;
use super::reported::QUIET;
use super::reporting::{NotWritten, ReportingProducer, Reports};
use broker::{Consumer, Producer};
use domain::fault::{Fault, Result};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::BaseProducer;
use std::time::Duration;

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
pub const HEARTBEAT_MS: &str = "500";
/// Option that makes a member static.
pub const INSTANCE_ID: &str = "group.instance.id";

/// Option that a broker shows as the name of a client.
pub const CLIENT_ID: &str = "client.id";

/// Isolation levels: `UNDECIDED` reads up to the newest record, `DECIDED` up to the last stable
/// offset.
pub const UNDECIDED: &str = "read_uncommitted";
pub const DECIDED: &str = "read_committed";

impl Connection {
    pub(super) fn client(&self, client_id: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set(CLIENT_ID, client_id)
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

    pub(super) fn finished(&self, mut config: ClientConfig) -> ClientConfig {
        for (name, value) in &self.options {
            config.set(name, value);
        }
        config
    }

    pub(super) fn consumer(&self, client_id: &str, group: &str) -> ClientConfig {
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
    pub(super) fn writer(&self, client_id: &str) -> ClientConfig {
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

    pub(super) fn transactional(&self, id: &str) -> ClientConfig {
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
    pub(super) fn probe(&self, isolation: &str) -> Result<BaseConsumer<ConsumerCallbacks>> {
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
        Ok(Box::new(KafkaProducer::open(&self.finished(config), "")?))
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

    /// Opens a reader of assigned partitions that notes no offsets and needs no right to a group.
    pub fn reader_without_group(&self, client_id: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        self.reader_as(ConsumerCallbacks::without_group(), client_id, topic)
    }

    /// `client_id` is also the id of the group.
    pub(super) fn reader_as(
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
    pub(super) fn group_client(&self, group: &str) -> Result<BaseConsumer<ConsumerCallbacks>> {
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
pub fn of_group(
    client: &BaseConsumer<ConsumerCallbacks>,
    what: String,
    error: &KafkaError,
) -> Fault {
    while client.poll(QUIET).is_some() {}
    match client.context().reported() {
        Some(reported) if is_denied(reported.code) => of_code(what, reported.code),
        _ => failed(format!("{what} (or no right on it, see `keepsake topics acls`)"), error),
    }
}
