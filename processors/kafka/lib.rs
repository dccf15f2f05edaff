//! Implements the traits of `broker/lib.rs` by Apache Kafka through
//! [librdkafka](https://docs.confluent.io/platform/current/clients/librdkafka/html/md_CONFIGURATION.html),
//! for a cluster and for the embedded broker alike.
//!
//! `connection.rs` configures the clients, `reach.rs` reaches the cluster for the first time,
//! `admin.rs` manages topics, `consumer.rs` reads, `producer.rs` writes, `transactor.rs` writes in
//! transactions, `partition_log.rs` reads a topic from the beginning, `offsets.rs` reads and commits
//! offsets. No module here knows events or memories.

mod admin;
mod bulk;
mod connection;
mod consumer;
mod fault;
mod group_facts;
#[cfg(test)]
mod mock;
mod offsets;
mod old_records;
mod partition_log;
mod producer;
mod reach;
mod rejoin;
mod reported;
mod reporting;
mod reserved;
mod throttle;
mod token;
mod topic_facts;
mod transactor;
mod turns;
mod wake;

pub use admin::TopicSpec;
pub use bulk::BulkWriter;
pub use connection::{CLIENT_ID, Connection, INSTANCE_ID, SESSION_MS, STATIC_SESSION_MS};
pub use group_facts::{GroupFacts, GroupMember, GroupReader};
pub use offsets::Noted;
pub use reporting::{NotWritten, ReportingProducer};
pub use reserved::reserved;
pub use token::TOKEN_FILE;
pub use topic_facts::{ClusterFacts, TopicFacts};
pub use transactor::ChangelogWriter;

use broker::{Broker, Consumer, Log, Producer, RebalanceListener, Transactor};
use connection::{HEARTBEAT_MS, UNDECIDED};
use consumer::{ConsumerCallbacks, KafkaConsumer};
use domain::fault::Result;
use fault::{failed, is_denied, of_code, refused};
use offsets::{LOOKED_UP_WITHIN, OFFSETS};
use partition_log::KafkaLog;
use producer::KafkaProducer;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rejoin::RejoiningConsumer;
use std::sync::Arc;
use transactor::KafkaTransactor;

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
        let consumer = RejoiningConsumer::new(Box::new(move || {
            let consumer: BaseConsumer<ConsumerCallbacks> = config
                .create_with_context(ConsumerCallbacks::of_group(&topic, Arc::clone(&owner)))
                .map_err(|e| refused("creates the events consumer", &e))?;
            consumer
                .subscribe(&[&topic])
                .map_err(|e| refused(format!("subscribes to {topic}"), &e))?;
            Ok(KafkaConsumer::in_turn(consumer, &topic))
        }))?;
        Ok(Box::new(consumer))
    }

    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        self.reader_as(ConsumerCallbacks::of_reader(), group, topic)
    }

    fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(KafkaProducer::open(&self.finished(self.writer(client_id)), "")?))
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
