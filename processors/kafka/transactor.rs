//! Writes records and input offsets in one transaction, and names every way in which a transaction
//! can fail.
//!
//! A transaction runs in five steps: begin, send all records, flush, add the input offsets, commit.
//! A failure ends as one of [`TransactError`]:
//!
//! - `Nothing`: the broker confirmed the abort. Before the last step nothing can be committed, so a
//!   timeout there is aborted, too.
//! - `Fenced`: another producer has the same transactional id.
//! - `Unknown`: neither commit nor abort is confirmed. The producer is dropped before anybody reads
//!   the log to find out.
//! - `Fault`: the error would come again on every attempt.

use super::Connection;
use super::fault::{failed, is_denied, of_code};
use super::producer::{KafkaProducer, ProducerCallbacks};
use domain::fault::{Fault, Result};
use log::broker::{
    CommittedOffsets, Membership, OutgoingRecord, Producer as _, TransactError, Transactor,
};
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Time for each step that the broker has to answer. Waiting for longer is useless while a broker
/// restarts, since the transaction has timed out there by then.
const WITHIN: Duration = Duration::from_secs(5);
/// Time to open a new epoch. To end the transaction of an earlier process, the broker may have to
/// wait for its timeout.
const RENEWED_WITHIN: Duration = Duration::from_secs(30);

pub struct KafkaTransactor {
    config: ClientConfig,
    topic: String,
    changelog: String,
    /// `None` before the first `renew`, and after an outcome that needs one.
    open: Option<Open>,
}

struct Open {
    producer: KafkaProducer,
    offsets_written: Arc<Mutex<BTreeMap<i32, i64>>>,
}

impl KafkaTransactor {
    pub fn new(config: ClientConfig, topic: &str, changelog: &str) -> KafkaTransactor {
        KafkaTransactor {
            config,
            topic: topic.to_owned(),
            changelog: changelog.to_owned(),
            open: None,
        }
    }
}

impl Transactor for KafkaTransactor {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let member =
            member.0.downcast_ref().expect("the consumer of the same broker made the membership");
        let offsets = read_until(&self.topic, read);
        self.write(records, Some((&offsets, member)))
    }

    fn renew(&mut self) -> Result<()> {
        self.open = None;
        self.open = Some(Open::of(&self.config, &self.changelog)?);
        Ok(())
    }
}

impl KafkaTransactor {
    /// Runs one transaction. `read`: the input offsets that it commits, if there is an input.
    pub(super) fn write(
        &mut self,
        records: &[OutgoingRecord],
        read: Option<Read<'_>>,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let Some(open) = &mut self.open else {
            return Err(TransactError::Unknown("the producer is being replaced".into()));
        };
        let outcome = open.transact(records, read);
        if matches!(
            outcome,
            Err(TransactError::Unknown(_) | TransactError::Fenced(_) | TransactError::Fault(_))
        ) {
            // Order matters: the producer is destroyed before anybody looks in the log for the
            // transaction.
            self.open = None;
        }
        outcome
    }
}

/// Input offsets, and the membership under which they are committed.
type Read<'a> = (&'a TopicPartitionList, &'a ConsumerGroupMetadata);

/// Writes transactions that read no input, under one name: a second writer of the name ends the
/// first.
pub struct ChangelogWriter(KafkaTransactor);

impl ChangelogWriter {
    /// Ends an open transaction of the name, and whoever else writes under it.
    pub fn renew(&mut self) -> Result<()> {
        self.0.renew()
    }

    /// Writes all of the records or none of them.
    pub fn write(&mut self, records: &[OutgoingRecord]) -> std::result::Result<(), TransactError> {
        self.0.write(records, None).map(drop)
    }
}

impl Connection {
    pub fn changelog_writer(&self, id: &str, topic: &str) -> ChangelogWriter {
        let config = self.finished(self.transactional(id));
        ChangelogWriter(KafkaTransactor::new(config, topic, topic))
    }
}

impl Open {
    fn of(config: &ClientConfig, changelog: &str) -> Result<Open> {
        let context = ProducerCallbacks::following(changelog);
        let deliveries = context.deliveries();
        let offsets_written = context.offsets_written();
        let producer = config
            .create_with_context(context)
            .map_err(|error| super::refused("creates a producer", &error))?;
        let producer = KafkaProducer { producer, deliveries };
        // Fetches a token for the log-in, if there is one.
        producer.producer.poll(Duration::ZERO);
        producer
            .producer
            .init_transactions(RENEWED_WITHIN)
            .map_err(|error| failed("begins to write transactions", &error))?;
        Ok(Open { producer, offsets_written })
    }

    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: Option<Read<'_>>,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        self.offsets_written.lock().clear();
        self.producer
            .producer
            .begin_transaction()
            .map_err(|error| self.uncommitted("begins", error))?;
        for record in records {
            self.producer.send(record).map_err(|fault| self.undelivered(fault))?;
        }
        // Order matters: flush before the commit, which would wait for the deliveries in steps of
        // 100 ms.
        self.producer.flush(WITHIN).map_err(|fault| {
            self.denied(records, read).unwrap_or_else(|| self.undelivered(fault))
        })?;
        let producer = &self.producer.producer;
        if let Some((offsets, member)) = read {
            producer
                .send_offsets_to_transaction(offsets, member, WITHIN)
                .map_err(|error| self.uncommitted("marks as read", error))?;
        }
        producer.commit_transaction(WITHIN).map_err(|error| self.undecided(error))?;
        let changelog = std::mem::take(&mut *self.offsets_written.lock());
        Ok(CommittedOffsets { changelog })
    }

    /// Finds out whether records were taken back for want of a right: only the next call for the
    /// transaction says why it has failed. Without records that were taken back the transaction may
    /// still be whole, so nothing is called.
    fn denied(&self, records: &[OutgoingRecord], read: Option<Read<'_>>) -> Option<TransactError> {
        let (offsets, member) = read?;
        if !self.producer.deliveries.take_purged() {
            return None;
        }
        let producer = &self.producer.producer;
        let error = producer.send_offsets_to_transaction(offsets, member, WITHIN).err()?;
        let code = error.rdkafka_error_code().filter(|code| is_denied(*code))?;
        // The broker refuses the transaction as a whole and does not say for which topic.
        let topics: BTreeSet<&str> = records.iter().map(|record| record.topic.as_str()).collect();
        let topics = topics.into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("writes to one of {topics}: {}", reason(&error));
        Some(self.undelivered(of_code(what, code)))
    }

    fn undelivered(&self, fault: Fault) -> TransactError {
        match fault {
            Fault::Retry(retry) => self.aborted(retry.what),
            stop => {
                // The process ends after this fault. If the abort does not arrive, the broker ends
                // the transaction after its timeout.
                let _ = self.producer.producer.abort_transaction(WITHIN);
                TransactError::Fault(stop)
            }
        }
    }

    /// A step before the commit failed. The broker was not asked to commit, so even a timeout
    /// leaves nothing of the transaction once the abort is confirmed.
    fn uncommitted(&self, step: &str, error: KafkaError) -> TransactError {
        let what = format!("{step}: {}", reason(&error));
        if let Some(code) = error.rdkafka_error_code().filter(|code| is_denied(*code)) {
            return self.undelivered(of_code(step, code));
        }
        if is_fenced(&error) { TransactError::Fenced(what) } else { self.aborted(what) }
    }

    /// The commit failed. The broker may have carried the commit out, unless the client asks for an
    /// abort.
    fn undecided(&self, error: KafkaError) -> TransactError {
        let what = format!("commits: {}", reason(&error));
        match &error {
            _ if is_fenced(&error) => TransactError::Fenced(what),
            KafkaError::Transaction(failure)
                if failure.txn_requires_abort() && !failure.is_fatal() =>
            {
                self.aborted(what)
            }
            _ => TransactError::Unknown(what),
        }
    }

    /// Aborts the transaction. Nothing is written if the broker confirms the abort.
    fn aborted(&self, what: String) -> TransactError {
        match self.producer.producer.abort_transaction(WITHIN) {
            Ok(()) => TransactError::Nothing(what),
            // An undelivered record may be the first sign of being fenced.
            Err(error) if is_fenced(&error) => TransactError::Fenced(format!("{what}: {error}")),
            Err(error) => TransactError::Unknown(format!("{what}; and the abort: {error}")),
        }
    }
}

fn reason(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(failure) => failure.string(),
        other => other.to_string(),
    }
}

fn is_fenced(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    let KafkaError::Transaction(failure) = error else { return false };
    matches!(failure.code(), Fenced | ProducerFenced | InvalidProducerEpoch)
}

fn read_until(topic: &str, read: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, next) in read {
        list.add_partition_offset(topic, *partition, Offset::Offset(*next))
            .expect("librdkafka accepts every offset from 0");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, Embedded, TopicSpec};
    use log::broker::{Broker, RebalanceListener, Start};
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    struct Nobody;

    impl RebalanceListener for Nobody {
        fn assigned(&self, _partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
            Vec::new()
        }

        fn revoked(&self, _partitions: &[i32]) {}
    }

    fn topic(name: &str) -> TopicSpec {
        TopicSpec { name: name.to_owned(), partitions: 1, replication: 1, settings: Vec::new() }
    }

    /// An unknown outcome would have every shard of the batch read its changelog.
    #[test]
    fn offsets_that_the_coordinator_does_not_take_are_an_abort_and_not_an_unknown_outcome() {
        let embedded = Embedded::start().expect("a broker in this process");
        embedded.create(&[topic("events"), topic("changelog")]).expect("makes topics");
        let broker =
            Connection { servers: embedded.servers(), options: Vec::new(), embedded: true };
        let consumer = broker.join("group", "events", Arc::new(Nobody)).expect("joins");
        let member = consumer.membership().expect("a consumer of a group");
        let mut transactor = broker.transactor("one", "events", "changelog").expect("a producer");
        transactor.renew().expect("the broker answers");
        let record = OutgoingRecord {
            topic: "changelog".into(),
            partition: Some(0),
            value: Some(b"one".to_vec()),
            ..OutgoingRecord::default()
        };
        let mut transact =
            || transactor.transact(std::slice::from_ref(&record), &[(0, 1)], &member);
        let busy = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT; 20];
        embedded.cluster.request_errors(RDKafkaApiKey::AddOffsetsToTxn, &busy);
        let outcome = transact();
        assert!(matches!(outcome, Err(TransactError::Nothing(_))), "{outcome:?}");
        embedded.cluster.clear_request_errors(RDKafkaApiKey::AddOffsetsToTxn);
        let written = transact().expect("the same producer goes on");
        assert_eq!(written.changelog.len(), 1);
    }
}
