//! Reads and commits offsets: the bounds of partitions, the first record of a time, and the
//! offsets of groups.

use super::connection::{Connection, DECIDED, UNDECIDED, of_group};
use super::consumer::{ConsumerCallbacks, known_offset};
use super::fault::failed;
use domain::fault::Result;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time to wait for an answer about offsets, and between two attempts while a new partition has no
/// leader yet.
pub const OFFSETS: Duration = Duration::from_secs(10);
/// The same on a thread that has other partitions to serve.
pub const OFFSETS_SOON: Duration = Duration::from_millis(300);
const LEADER_AWAITED: Duration = Duration::from_millis(100);
/// Time to look up one topic.
pub const LOOKED_UP_WITHIN: Duration = Duration::from_secs(3);

/// An offset of a group, with the text in its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    pub offset: i64,
    pub text: String,
}

impl Connection {
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
        let bounds = partitions
            .iter()
            .map(|partition| watermarks(&probe, topic, *partition, OFFSETS).map(|(_, end)| end));
        bounds.collect()
    }

    /// Returns the first offset of a partition whose record is of this time or later, or the end.
    pub fn offset_at(&self, topic: &str, partition: i32, timestamp_ms: i64) -> Result<i64> {
        let found = first_since(&self.probe(UNDECIDED)?, topic, partition, timestamp_ms, OFFSETS)?;
        found.map_or_else(|| Ok(self.offsets(topic, partition)?.1), Ok)
    }

    /// Returns the offsets that a group has committed of these partitions. A partition without one
    /// has no entry.
    pub fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, i64>> {
        let noted = self.noted(group, topic, partitions)?;
        Ok(noted.into_iter().map(|(partition, noted)| (partition, noted.offset)).collect())
    }

    /// Like `committed`, with the notes.
    pub fn noted(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, Noted>> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let client = self.group_client(group)?;
        let found = client.committed_offsets(list, OFFSETS).map_err(|e| {
            of_group(&client, format!("reads the offsets of group {group} in {topic}"), &e)
        })?;
        let mut noted = BTreeMap::new();
        for element in found.elements() {
            // The offset of a transaction that is still open is an error, not the absence of one.
            element
                .error()
                .map_err(|e| failed(format!("reads the offset of group {group} in {topic}"), &e))?;
            if let Some(offset) = known_offset(element.offset()) {
                let text = element.metadata().to_owned();
                noted.insert(element.partition(), Noted { offset, text });
            }
        }
        Ok(noted)
    }

    /// Commits offsets for a group that has no members, and waits for the answer.
    pub fn commit(&self, group: &str, topic: &str, offsets: &BTreeMap<i32, i64>) -> Result<()> {
        let offsets = offsets.iter().map(|(partition, offset)| (*partition, *offset));
        self.commit_list(group, topic, &at_offsets(topic, offsets))
    }

    /// Like `commit`, with a note of at most 4 KiB on each offset.
    pub fn note(&self, group: &str, topic: &str, notes: &BTreeMap<i32, Noted>) -> Result<()> {
        let offsets = notes.iter().map(|(partition, noted)| (*partition, noted.offset));
        let list = at_offsets(topic, offsets);
        for (partition, noted) in notes.iter().filter(|(_, noted)| !noted.text.is_empty()) {
            let mut element =
                list.find_partition(topic, *partition).expect("the list has each noted partition");
            element.set_metadata(&noted.text);
        }
        self.commit_list(group, topic, &list)
    }

    fn commit_list(&self, group: &str, topic: &str, list: &TopicPartitionList) -> Result<()> {
        let client = self.group_client(group)?;
        let done = client.commit(list, CommitMode::Sync);
        done.map_err(|e| of_group(&client, format!("commits {topic} for group {group}"), &e))
    }
}

/// Lists partitions of a topic, each at an offset.
pub fn at_offsets(topic: &str, offsets: impl Iterator<Item = (i32, i64)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset(topic, partition, Offset::Offset(offset))
            .expect("librdkafka accepts every offset from 0");
    }
    list
}

/// Fetches the first and next offset of a partition.
pub fn watermarks(
    probe: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    partition: i32,
    within: Duration,
) -> Result<(i64, i64)> {
    with_leader(probe, topic, within, || probe.fetch_watermarks(topic, partition, within))
        .map_err(|e| failed(format!("reads the offsets of {topic}/{partition}"), &e))
}

/// Fetches the first offset whose record is of this time or later.
pub fn first_since(
    probe: &BaseConsumer<ConsumerCallbacks>,
    topic: &str,
    partition: i32,
    time_ms: i64,
    within: Duration,
) -> Result<Option<i64>> {
    let times = at_offsets(topic, [(partition, time_ms.max(0))].into_iter());
    let found = with_leader(probe, topic, within, || {
        let found = probe.offsets_for_times(times.clone(), within)?;
        let found = found.elements().first().map(|found| (found.error(), found.offset()));
        found.map_or(Ok(None), |(error, offset)| error.map(|()| offset.to_raw()))
    });
    let found = found.map_err(|e| failed(format!("looks up a time in {topic}/{partition}"), &e))?;
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

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use domain::fault::{Fault, StopName};
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    #[test]
    fn a_missing_right_is_not_tried_again() {
        let mock = Mock::with_topics(&["events"]);
        let broker = mock.connection();
        broker.offset_at("events", 0, 1).expect("the broker answers");
        let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
        mock.cluster.request_errors(RDKafkaApiKey::ListOffsets, &[denied; 20]);
        match broker.offset_at("events", 0, 1) {
            Err(Fault::Stop(stop)) => assert_eq!(stop.name, StopName::AccessDenied),
            other => panic!("{other:?}"),
        }
    }
}
