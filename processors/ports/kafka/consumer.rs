//! The reading half: a member of a group, or a reader of the partitions it is told to read. Who owns what is the group's and the owner's.

use super::complaints::Complaints;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Consumer, Membership, Ownership, Polled, Record, Start};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, RebalanceProtocol,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use std::sync::Arc;
use std::time::Duration;

/// The rebalance waits for this, and the group waits for the rebalance.
const COMMITTED_WITHIN: Duration = Duration::from_secs(5);

pub struct Watch {
    topic: String,
    owner: Option<Arc<dyn Ownership>>,
    complaints: Complaints,
}

impl Watch {
    pub fn of_group(topic: &str, owner: Arc<dyn Ownership>) -> Watch {
        Watch { topic: topic.to_owned(), owner: Some(owner), complaints: Complaints::default() }
    }

    pub fn alone() -> Watch {
        Watch { topic: String::new(), owner: None, complaints: Complaints::default() }
    }
}

impl ClientContext for Watch {
    fn error(&self, error: KafkaError, reason: &str) {
        // The end of a partition is asked for and comes as an event; the client reports it here a second time.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            self.complaints.hear(&error, reason);
        }
    }
}

impl ConsumerContext for Watch {
    /// Order matters: each partition is assigned once, here, at the offset its shard wants; a second assign or a seek right after would race.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        err: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let Some(owner) = &self.owner else { return };
        let partitions: Vec<i32> =
            list.elements().iter().map(|element| element.partition()).collect();
        let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let done = if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let starts = if partitions.is_empty() {
                Vec::new()
            } else {
                begins(&committed(consumer, list), owner.as_ref())
            };
            let (list, paused) =
                (positions(&self.topic, &starts), positions(&self.topic, &paused(&starts)));
            let assigned = if cooperative {
                consumer.incremental_assign(&list)
            } else {
                consumer.assign(&list)
            };
            assigned
                .and_then(|()| if paused.count() > 0 { consumer.pause(&paused) } else { Ok(()) })
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

/// Where the owner wants each to begin. What the group has committed is known here: no second lookup, and none that finds nothing.
fn begins(committed: &[(i32, Option<i64>)], owner: &dyn Ownership) -> Vec<(i32, Start)> {
    let offset = |partition: i32| {
        committed.iter().find(|(known, _)| *known == partition).and_then(|(_, offset)| *offset)
    };
    let mut starts = owner.assigned(committed);
    for (partition, start) in starts.iter_mut().filter(|(_, start)| *start == Start::Committed) {
        *start = offset(*partition).map_or(Start::Beginning, Start::At);
    }
    starts
}

/// What the group has committed. Not known within the time is as good as nothing: it only spares repetitions.
fn committed(consumer: &BaseConsumer<Watch>, list: &TopicPartitionList) -> Vec<(i32, Option<i64>)> {
    let offset =
        |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
    match consumer.committed_offsets(list.clone(), COMMITTED_WITHIN) {
        Ok(found) => found
            .elements()
            .iter()
            .map(|element| (element.partition(), offset(element.offset())))
            .collect(),
        Err(error) => {
            tracing::warn!(%error, "asks for the group's offsets");
            list.elements().iter().map(|element| (element.partition(), None)).collect()
        }
    }
}

fn paused(starts: &[(i32, Start)]) -> Vec<(i32, Start)> {
    starts.iter().filter(|(_, start)| *start == Start::Paused).copied().collect()
}

fn positions(topic: &str, starts: &[(i32, Start)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, start) in starts {
        let offset = match start {
            Start::At(offset) => Offset::Offset(*offset),
            Start::Committed => Offset::Stored,
            // Who is paused never reads from there: an offset that needs no lookup of what the group has committed.
            Start::Beginning | Start::Paused => Offset::Beginning,
            Start::End => Offset::End,
        };
        list.add_partition_offset(topic, *partition, offset)
            .expect("every offset above is one librdkafka knows");
    }
    list
}

pub struct KafkaConsumer {
    consumer: BaseConsumer<Watch>,
    topic: String,
    /// Of a record that has this header, nothing else but the key is wanted.
    only: Option<&'static str>,
}

impl KafkaConsumer {
    pub fn new(consumer: BaseConsumer<Watch>, topic: &str) -> KafkaConsumer {
        KafkaConsumer { consumer, topic: topic.to_owned(), only: None }
    }

    pub fn take_only(&mut self, only: Option<&'static str>) {
        self.only = only;
    }
}

/// For the fetcher to forget what it had under way.
const SOUGHT_WITHIN: Duration = Duration::from_secs(5);

impl Consumer for KafkaConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.consumer.poll(wait) {
            None => Ok(Polled::Nothing),
            Some(Ok(message)) => Ok(Polled::Record(
                only_header(&message, self.only).unwrap_or_else(|| taken(&message)),
            )),
            Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Polled::End { partition }),
            // The client connects again by itself, and says of each attempt in the queue of the records that it failed: after an outage
            // hundreds lie there, before the first record. To wait after each would be an outage of our own.
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve,
            ))) => Ok(Polled::Nothing),
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
            ))) => {
                let what = format!(
                    "{} no longer has what comes next: its retention took records nobody had read",
                    self.topic
                );
                Err(Fault::stop(StopName::EventsGone, what))
            }
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition,
            ))) => Err(Fault::stop(
                StopName::TopicMissing,
                format!("{} was there and is gone", self.topic),
            )),
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => Err(Fault::stop(
                StopName::BrokerRefuses,
                format!("the broker no longer accepts this consumer: {code}"),
            )),
            Some(Err(error)) => Err(Fault::retry(format!("polls {}: {error}", self.topic))),
        }
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        let (list, paused) =
            (positions(&self.topic, partitions), positions(&self.topic, &paused(partitions)));
        let assigned = self.consumer.incremental_assign(&list);
        let done = assigned
            .and_then(|()| if paused.count() > 0 { self.consumer.pause(&paused) } else { Ok(()) });
        done.map_err(|e| Fault::retry(format!("assigns {}: {e}", self.topic)))
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        self.consumer
            .incremental_unassign(&list)
            .map_err(|e| Fault::retry(format!("gives up {}: {e}", self.topic)))
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        let starts: Vec<(i32, Start)> =
            offsets.iter().map(|(partition, offset)| (*partition, Start::At(*offset))).collect();
        self.consumer
            .commit(&positions(&self.topic, &starts), CommitMode::Async)
            .map_err(|e| Fault::retry(format!("commits {}: {e}", self.topic)))
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        let starts: Vec<(i32, Start)> =
            partitions.iter().map(|partition| (*partition, Start::Paused)).collect();
        self.consumer
            .pause(&positions(&self.topic, &starts))
            .map_err(|e| Fault::retry(format!("pauses {}: {e}", self.topic)))
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        let about = |e: KafkaError| {
            Fault::retry(format!("goes on with {}/{partition} at {offset}: {e}", self.topic))
        };
        self.consumer
            .seek(&self.topic, partition, Offset::Offset(offset), SOUGHT_WITHIN)
            .map_err(about)?;
        self.consumer
            .resume(&positions(&self.topic, &[(partition, Start::At(offset))]))
            .map_err(about)
    }

    fn membership(&self) -> Option<Membership> {
        self.consumer.group_metadata().map(|group| Membership(Box::new(group)))
    }

    fn close(self: Box<Self>) {
        drop(self.consumer);
    }
}

/// Where millions of records are read again, copying what nobody looks at is half of the work.
fn only_header(message: &BorrowedMessage<'_>, only: Option<&'static str>) -> Option<Record> {
    let header = message.headers()?.iter().find(|header| Some(header.key) == only)?;
    Some(Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(|_| Vec::new()),
        headers: vec![(header.key.to_owned(), header.value.unwrap_or_default().to_vec())],
        ..Record::default()
    })
}

fn taken(message: &BorrowedMessage<'_>) -> Record {
    let headers = message
        .headers()
        .map(|headers| {
            headers
                .iter()
                .map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec()))
                .collect()
        })
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
