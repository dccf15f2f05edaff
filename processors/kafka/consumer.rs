//! Reads records: as a member of a consumer group, or from the partitions that the caller assigns.
//!
//! The group's rebalance runs inside `poll`, in [`ConsumerCallbacks::rebalance`], with the
//! cooperative protocol
//! ([KIP-429](https://cwiki.apache.org/confluence/display/KAFKA/KIP-429%3A+Kafka+Consumer+Incremental+Rebalance+Protocol)).
//! The owner of the shards decides where each partition begins.

use super::fault::failed;
use super::reported::Reported;
use super::throttle::LogThrottle;
use super::token;
use super::turns::Turns;
use broker::{Consumer, Membership, Polled, RebalanceListener, Record, Start};
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, RebalanceProtocol,
};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time to fetch the group's offsets. The rebalance waits for them, and the group for the
/// rebalance. Short, because the offsets in an open transaction of a dead member cannot be fetched
/// before the transaction ends, which the new owner sees to after the rebalance.
const COMMITTED_WITHIN: Duration = Duration::from_millis(300);
/// Time to fetch the first offset of a partition.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

pub struct ConsumerCallbacks {
    topic: String,
    owner: Option<Arc<dyn RebalanceListener>>,
    /// False for a reader that notes nothing in a group. The client library insists on a group for
    /// every consumer, and looks up the coordinator.
    needs_group: bool,
    throttle: LogThrottle,
    assignments: AtomicU64,
    assigned: Mutex<BTreeSet<i32>>,
    /// The last report of the client on a connection.
    reported: Mutex<Option<Reported>>,
    /// The client has found no broker that it could connect to.
    all_down: AtomicBool,
}

impl ConsumerCallbacks {
    pub fn of_group(topic: &str, owner: Arc<dyn RebalanceListener>) -> ConsumerCallbacks {
        ConsumerCallbacks {
            topic: topic.to_owned(),
            owner: Some(owner),
            needs_group: true,
            throttle: LogThrottle::default(),
            assignments: AtomicU64::default(),
            assigned: Mutex::default(),
            reported: Mutex::default(),
            all_down: AtomicBool::default(),
        }
    }

    /// For a reader of assigned partitions that notes offsets in a group.
    pub fn of_reader() -> ConsumerCallbacks {
        ConsumerCallbacks { needs_group: true, ..ConsumerCallbacks::without_group() }
    }

    pub fn without_group() -> ConsumerCallbacks {
        ConsumerCallbacks {
            topic: String::new(),
            owner: None,
            needs_group: false,
            throttle: LogThrottle::default(),
            assignments: AtomicU64::default(),
            assigned: Mutex::default(),
            reported: Mutex::default(),
            all_down: AtomicBool::default(),
        }
    }

    /// Returns how often the assignment has changed.
    pub fn assignments(&self) -> u64 {
        self.assignments.load(Ordering::Relaxed)
    }

    pub fn reported(&self) -> Option<Reported> {
        self.reported.lock().clone()
    }

    pub fn all_down(&self) -> bool {
        self.all_down.load(Ordering::Relaxed)
    }

    /// Calls the owner for those of these partitions that this member still has.
    fn give_up(&self, partitions: &[i32]) {
        let mut assigned = self.assigned.lock();
        let held: Vec<i32> =
            partitions.iter().copied().filter(|partition| assigned.remove(partition)).collect();
        drop(assigned);
        if let Some(owner) = &self.owner
            && !held.is_empty()
        {
            owner.revoked(&held);
        }
    }
}

impl ClientContext for ConsumerCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> token::Result {
        token::token(config)
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if !self.needs_group && is_refusal_of_group(&error) {
            return;
        }
        // That all brokers are down follows the reason.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.all_down.store(true, Ordering::Relaxed);
        }
        if let Some(code) = error.rdkafka_error_code()
            && !matches!(code, RDKafkaErrorCode::PartitionEOF | RDKafkaErrorCode::AllBrokersDown)
        {
            *self.reported.lock() = Some(Reported { code, reason: reason.to_owned() });
        }
        // The end of a partition is an event that `poll` returns. The client reports the end here a
        // second time.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            self.throttle.log(&error, reason);
        }
    }
}

impl ConsumerContext for ConsumerCallbacks {
    /// Order matters: each partition is assigned once, here, at the offset that its shard wants. A
    /// second assignment or a seek right after it would race.
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
            let known = if partitions.is_empty() { Vec::new() } else { committed(consumer, list) };
            let starts = if known.is_empty() { vec![] } else { begins(&known, owner.as_ref()) };
            self.assigned.lock().extend(&partitions);
            let list = positions(&self.topic, &placed(consumer, &self.topic, &starts, &known));
            let assigned = if cooperative {
                consumer.incremental_assign(&list)
            } else {
                consumer.assign(&list)
            };
            assigned.and_then(|()| pause(consumer, &self.topic, &starts))
        } else {
            self.give_up(&partitions);
            if cooperative { consumer.incremental_unassign(list) } else { consumer.unassign() }
        };
        self.assignments.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = done {
            tracing::error!(%error, ?partitions, "carries out a rebalance");
        }
    }
}

/// Asks the owner where each partition begins. Replaces `Committed` by the group's offset, which is
/// known here, so that librdkafka needs no second request.
fn begins(committed: &[(i32, Option<i64>)], owner: &dyn RebalanceListener) -> Vec<(i32, Start)> {
    let mut starts = owner.assigned(committed);
    for (partition, start) in starts.iter_mut().filter(|(_, start)| *start == Start::Committed) {
        let known = committed.iter().find(|(other, _)| other == partition);
        *start = known.and_then(|(_, offset)| *offset).map_or(Start::Beginning, Start::At);
    }
    starts
}

/// Fetches the offsets that the group has committed. A failure counts as none: the offsets only
/// avoid repeated work.
fn committed(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    list: &TopicPartitionList,
) -> Vec<(i32, Option<i64>)> {
    match consumer.committed_offsets(list.clone(), COMMITTED_WITHIN) {
        Ok(found) => found
            .elements()
            .iter()
            .map(|element| (element.partition(), known_offset(element.offset())))
            .collect(),
        Err(error) => {
            tracing::warn!(%error, "fetches the group's offsets");
            list.elements().iter().map(|element| (element.partition(), None)).collect()
        }
    }
}

/// Replaces `Paused` by an offset: the group's, but not one before the first of the partition,
/// which the client would report as lost while the partition is not yet paused. From a name for an
/// offset, the client would look the offset up while the partition is paused and resumed, then take
/// the answer for outdated, ask again half a second later, and begin at the answer, before
/// everything that was read meanwhile.
fn placed(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    starts: &[(i32, Start)],
    known: &[(i32, Option<i64>)],
) -> Vec<(i32, Start)> {
    let mut answers = true;
    let mut placed = starts.to_vec();
    for (partition, start) in placed.iter_mut().filter(|(_, start)| *start == Start::Paused) {
        let committed = known.iter().find(|(other, _)| other == partition);
        let committed = committed.and_then(|(_, offset)| *offset);
        // A broker that does not answer takes time, in which the group waits: the others are not
        // asked for after one of them.
        let first = match answers {
            true => consumer.fetch_watermarks(topic, *partition, FIRST_WITHIN).ok(),
            false => None,
        };
        answers = first.is_some();
        let offset = committed.max(first.map(|(first, _)| first));
        *start = offset.map_or(Start::Beginning, Start::At);
    }
    placed
}

pub fn known_offset(offset: Offset) -> Option<i64> {
    if let Offset::Offset(offset) = offset { Some(offset) } else { None }
}

/// Pauses the partitions among `starts` that are to begin paused.
fn pause(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    starts: &[(i32, Start)],
) -> KafkaResult<()> {
    let paused: Vec<(i32, Start)> =
        starts.iter().filter(|(_, start)| *start == Start::Paused).copied().collect();
    if paused.is_empty() { Ok(()) } else { consumer.pause(&positions(topic, &paused)) }
}

fn positions(topic: &str, starts: &[(i32, Start)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, start) in starts {
        let offset = match start {
            Start::At(offset) => Offset::Offset(*offset),
            Start::Committed => Offset::Stored,
            // A paused partition is never read from this offset. `Beginning` needs no request for
            // the group's offset.
            Start::Beginning | Start::Paused => Offset::Beginning,
            Start::End => Offset::End,
        };
        list.add_partition_offset(topic, *partition, offset)
            .expect("librdkafka accepts every offset above");
    }
    list
}

pub struct KafkaConsumer {
    consumer: Arc<BaseConsumer<ConsumerCallbacks>>,
    topic: String,
    /// If set, the partitions are read in turn.
    turns: Option<Turns>,
    /// If set, only the key and this header are copied of a record that has the header.
    only: Option<&'static str>,
}

impl KafkaConsumer {
    pub fn new(consumer: BaseConsumer<ConsumerCallbacks>, topic: &str) -> KafkaConsumer {
        let consumer = Arc::new(consumer);
        KafkaConsumer { consumer, topic: topic.to_owned(), turns: None, only: None }
    }

    /// A consumer that reads its partitions in turn.
    pub fn in_turn(mut consumer: BaseConsumer<ConsumerCallbacks>, topic: &str) -> KafkaConsumer {
        let turns = Some(Turns::of(&mut consumer));
        KafkaConsumer { turns, ..KafkaConsumer::new(consumer, topic) }
    }

    /// Gives up all partitions and closes. librdkafka drops the partitions of an expelled member
    /// without a word, so closing alone would not give them up.
    pub fn leave(self) {
        let context = self.consumer.context();
        let partitions: Vec<i32> = context.assigned.lock().iter().copied().collect();
        context.give_up(&partitions);
        Box::new(self).close();
    }

    pub fn take_only(&mut self, only: Option<&'static str>) {
        self.only = only;
    }
}

/// Time for the fetcher to drop its pending requests.
const SOUGHT_WITHIN: Duration = Duration::from_secs(5);

impl Consumer for KafkaConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        let KafkaConsumer { consumer, topic, turns, only } = self;
        match turns {
            None => match consumer.poll(wait) {
                Some(Err(error))
                    if !consumer.context().needs_group && is_refusal_of_group(&error) =>
                {
                    Ok(Polled::Nothing)
                }
                found => polled(found, topic, *only),
            },
            Some(turns) => turns.poll(consumer, topic, wait, &|found| polled(found, topic, *only)),
        }
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        self.consumer
            .incremental_assign(&positions(&self.topic, partitions))
            .and_then(|()| pause(&self.consumer, &self.topic, partitions))
            .map_err(|e| failed(format!("assigns {}", self.topic), &e))
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        self.consumer
            .incremental_unassign(&list)
            .map_err(|e| failed(format!("gives up {}", self.topic), &e))
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        let starts: Vec<(i32, Start)> =
            offsets.iter().map(|(partition, offset)| (*partition, Start::At(*offset))).collect();
        self.consumer
            .commit(&positions(&self.topic, &starts), CommitMode::Async)
            .map_err(|e| failed(format!("commits {}", self.topic), &e))
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        let starts: Vec<(i32, Start)> =
            partitions.iter().map(|partition| (*partition, Start::Paused)).collect();
        self.consumer
            .pause(&positions(&self.topic, &starts))
            .map_err(|e| failed(format!("pauses {}", self.topic), &e))
    }

    /// Order matters: the second resume repeats the first one where that was lost. Of two changes
    /// of a partition, librdkafka drops the one that is overtaken, and reports it for a seek only
    /// ([#5591](https://github.com/confluentinc/librdkafka/issues/5591)). A rebalance that begins
    /// now pauses all partitions from another thread; its next change waits for the callback, which
    /// runs on this thread. A second resume of a partition that reads does nothing.
    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        let list = positions(&self.topic, &[(partition, Start::At(offset))]);
        self.consumer
            .seek(&self.topic, partition, Offset::Offset(offset), SOUGHT_WITHIN)
            .and_then(|()| self.consumer.resume(&list))
            .and_then(|()| self.consumer.resume(&list))
            .map_err(|e| failed(format!("resumes {}/{partition} at {offset}", self.topic), &e))
    }

    fn membership(&self) -> Option<Membership> {
        // A member that was expelled still has metadata, which a broker may accept.
        if self.consumer.assignment_lost() {
            return None;
        }
        self.consumer.group_metadata().map(|group| Membership(Arc::new(group)))
    }

    /// Order matters: each queue keeps the consumer alive.
    fn close(self: Box<Self>) {
        drop(self.turns);
        drop(self.consumer);
    }
}

fn is_refusal_of_group(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::GroupAuthorizationFailed)
}

fn polled(
    found: Option<KafkaResult<BorrowedMessage<'_>>>,
    topic: &str,
    only: Option<&str>,
) -> Result<Polled> {
    match found {
        None => Ok(Polled::Nothing),
        Some(Ok(message)) => {
            Ok(Polled::Record(copied_header(&message, only).unwrap_or_else(|| copied(&message))))
        }
        Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Polled::End { partition }),
        // The client reconnects by itself and queues an error among the records for each failed
        // attempt. After an outage hundreds of them come before the first record, so waiting
        // after each would prolong the outage.
        Some(Err(KafkaError::MessageConsumption(
            RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Resolve,
        ))) => Ok(Polled::Nothing),
        Some(Err(KafkaError::MessageConsumption(
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
        ))) => {
            let what = format!(
                "{} no longer has the next record: its retention deleted records before they \
                 were read",
                topic
            );
            Err(Fault::stop(StopName::EventsGone, what))
        }
        Some(Err(KafkaError::MessageConsumption(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ))) => Err(Fault::stop(StopName::TopicMissing, format!("{} was there and is gone", topic))),
        Some(Err(KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId))) => {
            let what = "another process joined the group with the same instance.id; two processes \
                        must not run with copies of one store.dir";
            Err(Fault::stop(StopName::InstanceTaken, what))
        }
        Some(Err(KafkaError::MessageConsumptionFatal(code))) => Err(Fault::stop(
            StopName::BrokerRefuses,
            format!("the broker no longer accepts this consumer: {code}"),
        )),
        Some(Err(error)) => Err(failed(format!("polls {topic}"), &error)),
    }
}

/// Copies only the key and one header. While millions of records are restored, copying the rest
/// would be half of the work.
fn copied_header(message: &BorrowedMessage<'_>, only: Option<&str>) -> Option<Record> {
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

fn copied(message: &BorrowedMessage<'_>) -> Record {
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

#[cfg(test)]
mod tests {
    use crate::Connection;
    use crate::mock::Mock;
    use broker::{Broker, OutgoingRecord, Polled, Start};
    use std::time::{Duration, Instant};

    const RECORDS: usize = 40;
    const RECORD_BYTES: usize = 100 << 10;
    const WITHIN: Duration = Duration::from_secs(30);

    /// The client's own pause is a second.
    #[test]
    fn a_reader_whose_queue_was_full_goes_on_without_a_pause() {
        let mock = Mock::with_topics(&["events"]);
        let connection = |option: &str, value: &str| {
            let options = vec![(option.to_owned(), value.to_owned())];
            Connection { options, ..mock.connection() }
        };
        // Several records in a batch, of which the broker sends one at a time.
        let writer = connection("linger.ms", "200");
        // Full until the last record of a batch is taken.
        let connection = connection("queued.max.messages.kbytes", "100");
        let mut producer = writer.producer("test").expect("the broker answers");
        let record = OutgoingRecord {
            topic: "events".into(),
            partition: Some(0),
            value: Some(vec![7; RECORD_BYTES]),
            ..OutgoingRecord::default()
        };
        (0..RECORDS).for_each(|_| producer.send(&record).expect("room"));
        producer.flush(WITHIN).expect("the broker answers");
        let mut reader = connection.reader_without_group("test", "events").expect("a client");
        reader.assign(&[(0, Start::Beginning)]).expect("the partition exists");
        let (mut read, mut last, mut longest) = (0, None::<Instant>, Duration::ZERO);
        let began = Instant::now();
        while read < RECORDS {
            assert!(began.elapsed() < WITHIN, "{read} of {RECORDS} records");
            if let Polled::Record(_) = reader.poll(Duration::from_millis(50)).expect("answers") {
                longest = last.map_or(longest, |last| longest.max(last.elapsed()));
                (read, last) = (read + 1, Some(Instant::now()));
            }
        }
        assert!(longest < Duration::from_millis(900), "{longest:?}");
    }
}
