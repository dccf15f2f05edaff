//! Transactions: records and read offsets, all or nothing, and a name for every way in which that can fail to be known.

use super::producer::{DeliveryWatch, KafkaProducer};
use crate::fault::{Fault, Result};
use crate::ports::broker::{Membership, Outgoing, Producer as _, Transactor, Unwritten, Written};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For each step that the broker has to answer: longer than a broker's restart would only be waited for in vain, since by then the
/// transaction has timed out there.
const WITHIN: Duration = Duration::from_secs(5);
/// To end what an earlier life left open, the broker may have to wait for its own timeout.
const RENEWED_WITHIN: Duration = Duration::from_secs(30);

pub struct KafkaTransactor {
    config: ClientConfig,
    topic: String,
    changelog: String,
    /// None before the first `renew`, and after an outcome that is not known.
    open: Option<Open>,
}

struct Open {
    producer: KafkaProducer,
    places: Arc<Mutex<BTreeMap<i32, i64>>>,
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
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten> {
        let member =
            member.0.downcast_ref().expect("a membership goes back to the broker it is of");
        let offsets = read_until(&self.topic, read);
        let Some(open) = &mut self.open else {
            return Err(Unwritten::Unknown("the producer is being replaced".into()));
        };
        let outcome = open.transact(records, &offsets, member);
        if matches!(
            outcome,
            Err(Unwritten::Unknown(_) | Unwritten::Fenced(_) | Unwritten::Fault(_))
        ) {
            // Order matters: destroyed before anybody asks the log what became of it.
            self.open = None;
        }
        outcome
    }

    fn renew(&mut self) -> Result<()> {
        self.open = None;
        let context = DeliveryWatch::following(&self.changelog);
        let (deliveries, places) = (context.deliveries(), context.places());
        let about =
            |error: KafkaError| Fault::retry(format!("begins to write transactions: {error}"));
        let producer = self
            .config
            .create_with_context(context)
            .map_err(|error| super::refused("creates a producer", &error))?;
        let producer = KafkaProducer { producer, deliveries };
        producer.producer.init_transactions(RENEWED_WITHIN).map_err(about)?;
        self.open = Some(Open { producer, places });
        Ok(())
    }
}

impl Open {
    fn transact(
        &mut self,
        records: &[Outgoing],
        offsets: &TopicPartitionList,
        member: &ConsumerGroupMetadata,
    ) -> std::result::Result<Written, Unwritten> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.producer
            .producer
            .begin_transaction()
            .map_err(|error| self.unwritten("begins", error))?;
        for record in records {
            self.producer.send(record).map_err(|fault| self.undelivered(fault))?;
        }
        // Order matters: all is delivered before the commit, which would wait for it in steps of 100 ms.
        self.producer.flush(WITHIN).map_err(|fault| self.undelivered(fault))?;
        let producer = &self.producer.producer;
        producer
            .send_offsets_to_transaction(offsets, member, WITHIN)
            .map_err(|error| self.unwritten("marks as read", error))?;
        producer.commit_transaction(WITHIN).map_err(|error| self.unwritten("commits", error))?;
        let changelog =
            std::mem::take(&mut *self.places.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Written { changelog })
    }

    fn undelivered(&self, fault: Fault) -> Unwritten {
        match fault {
            Fault::Retry(retry) => self.aborted(retry.what),
            stop => {
                // The process ends with the name; the broker ends the transaction by itself if this does not arrive.
                let _ = self.producer.producer.abort_transaction(WITHIN);
                Unwritten::Fault(stop)
            }
        }
    }

    fn unwritten(&self, step: &str, error: KafkaError) -> Unwritten {
        let KafkaError::Transaction(failure) = &error else {
            return Unwritten::Unknown(format!("{step}: {error}"));
        };
        let what = format!("{step}: {}", failure.string());
        if is_fenced(&error) {
            Unwritten::Fenced(what)
        } else if failure.txn_requires_abort() && !failure.is_fatal() {
            self.aborted(what)
        } else {
            Unwritten::Unknown(what)
        }
    }

    /// Nothing was written, if the abort is confirmed.
    fn aborted(&self, what: String) -> Unwritten {
        match self.producer.producer.abort_transaction(WITHIN) {
            Ok(()) => Unwritten::Nothing(what),
            // The first sign of it may be a record that was not delivered.
            Err(error) if is_fenced(&error) => Unwritten::Fenced(format!("{what}: {error}")),
            Err(error) => Unwritten::Unknown(format!("{what}; and the abort: {error}")),
        }
    }
}

fn is_fenced(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    matches!(error, KafkaError::Transaction(failure) if matches!(failure.code(), Fenced | ProducerFenced | InvalidProducerEpoch))
}

fn read_until(topic: &str, read: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, next) in read {
        list.add_partition_offset(topic, *partition, Offset::Offset(*next))
            .expect("an offset of a record plus one is an offset");
    }
    list
}
