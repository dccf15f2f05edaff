//! Builds the records of the shared topics: decisions, memories with the rest of a shard's state,
//! dead letters. The memories topic is also the changelog that restores a shard, read by
//! `stages/store/changelog.rs`: both must agree on header names and keys.

use super::{JSON, json, view};
use crate::domain::{Decision, Memory, MemoryId, UserKey};
use crate::fault::Reject;
use crate::ports::broker::{Headers, OutgoingRecord, Record};
use crate::wire;

/// Header that separates memories from the other records of a shard on the same topic.
const RECORD: &str = "keepsake-record";
/// Header with the stored bytes, from which another process restores the shard.
const STATE: &str = "keepsake-state";

pub fn decision(decision: &Decision, topic: &str, with_text: bool) -> OutgoingRecord {
    decision_record(decision.key.as_str(), &view::decision(decision, with_text), topic)
}

/// Builds the decision of the shadow profile, marked as such.
pub fn shadow(decision: &Decision, topic: &str, with_text: bool) -> OutgoingRecord {
    let shadow = wire::Decision { shadow: true, ..view::decision(decision, with_text) };
    decision_record(decision.key.as_str(), &shadow, topic)
}

fn decision_record(key: &str, decision: &wire::Decision<'_>, topic: &str) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        // The client chooses by the user's key, for any number of partitions of the decisions
        // topic.
        partition: None,
        // The event's time is not used: in a replay of last year's events it would be older than
        // the topic's retention.
        timestamp_ms: None,
        key: Some(key.into()),
        value: Some(json(decision)),
        headers: vec![("content-type".to_owned(), JSON.into())],
    }
}

/// Builds the state of a memory, on the partition of its user and not of this longer key. `state`
/// holds the stored bytes if the topic is the changelog.
pub fn memory_state(
    memory: &Memory,
    state: Option<&[u8]>,
    topic: &str,
    partition: i32,
) -> OutgoingRecord {
    let mut record = memory_tombstone(&memory.key, memory.id, topic, partition);
    record.value = Some(json(&view::whole_memory(memory)));
    record.headers.push(("content-type".to_owned(), JSON.into()));
    record.headers.extend(state.map(|state| (STATE.to_owned(), state.to_vec())));
    record
}

/// Builds a changelog record of other state of a shard. Readers of the topic as a change feed get
/// JSON with nothing but the type.
pub fn shard_state(
    name: String,
    state: Option<&[u8]>,
    topic: &str,
    partition: i32,
) -> OutgoingRecord {
    let value = state.map(|_| br#"{"type":"state"}"#.to_vec());
    let mut headers = vec![(RECORD.to_owned(), b"state".to_vec())];
    headers.extend(state.map(|state| (STATE.to_owned(), state.to_vec())));
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(name.into_bytes()),
        value,
        headers,
    }
}

/// Builds the meta record of a batch.
pub fn shard_meta(name: &str, meta: Vec<u8>, topic: &str, partition: i32) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(name.into()),
        value: Some(meta),
        headers: vec![(RECORD.to_owned(), b"meta".to_vec())],
    }
}

/// Builds the tombstone of a memory.
pub fn memory_tombstone(
    key: &UserKey,
    id: MemoryId,
    topic: &str,
    partition: i32,
) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(format!("{key}/{id}").into_bytes()),
        value: None,
        headers: vec![(RECORD.to_owned(), b"memory".to_vec())],
    }
}

/// Builds a dead letter: the record unchanged, with the reason in the headers of Kafka Connect and
/// of Spring Kafka, which other tools read.
pub fn dead_letter(record: &Record, reject: &Reject, stage: &str, topic: &str) -> OutgoingRecord {
    let mut headers = record.headers.clone();
    headers.extend(connect_headers(record, reject, stage));
    headers.extend(spring_headers(record, reject));
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: None,
        timestamp_ms: None,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
    }
}

/// The headers of Kafka Connect, all text
/// ([KIP-298](https://cwiki.apache.org/confluence/display/KAFKA/KIP-298%3A+Error+Handling+in+Connect)).
fn connect_headers(record: &Record, reject: &Reject, stage: &str) -> Headers {
    let headers = [
        ("topic", record.topic.clone()),
        ("partition", record.partition.to_string()),
        ("offset", record.offset.to_string()),
        ("stage", stage.to_owned()),
        ("class.name", format!("keepsake.{stage}")),
        ("exception.class.name", reject.code.as_str().to_owned()),
        ("exception.message", reject.to_string()),
    ];
    headers.map(|(name, value)| (format!("__connect.errors.{name}"), value.into_bytes())).into()
}

/// The headers of [Spring
/// Kafka](https://docs.spring.io/spring-kafka/reference/kafka/annotation-error-handling.html), with
/// numbers in big-endian bytes.
fn spring_headers(record: &Record, reject: &Reject) -> Headers {
    let message = reject.to_string();
    let headers: [(&str, &[u8]); 6] = [
        ("original-topic", record.topic.as_bytes()),
        ("original-partition", &record.partition.to_be_bytes()),
        ("original-offset", &record.offset.to_be_bytes()),
        ("original-timestamp", &record.timestamp_ms.to_be_bytes()),
        ("exception-fqcn", reject.code.as_str().as_bytes()),
        ("exception-message", message.as_bytes()),
    ];
    headers.map(|(name, value)| (format!("kafka_dlt-{name}"), value.to_vec())).into()
}
