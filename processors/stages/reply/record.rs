//! Records for everybody's topics: decisions, the state of memories, dead letters.
//! Knows nothing of who reads them.

use super::{JSON, json, view};
use crate::domain::{Decision, Memory, MemoryId, UserKey};
use crate::fault::Reject;
use crate::ports::broker::{Headers, Outgoing, Record};
use crate::wire;

/// Tells the state of memories from what else a shard keeps on the same topic.
const RECORD: &str = "keepsake-record";
/// The bytes from which another machine goes on.
const STATE: &str = "keepsake-state";

pub fn decision(decision: &Decision, topic: &str, with_text: bool) -> Outgoing {
    decision_record(decision.key.as_str(), &view::decision(decision, with_text), topic)
}

/// What another profile would have decided, marked as that.
pub fn shadow(decision: &Decision, topic: &str, with_text: bool) -> Outgoing {
    let shadow = wire::Decision { shadow: true, ..view::decision(decision, with_text) };
    decision_record(decision.key.as_str(), &shadow, topic)
}

fn decision_record(key: &str, decision: &wire::Decision<'_>, topic: &str) -> Outgoing {
    Outgoing {
        topic: topic.to_owned(),
        // That of the user's key, whatever number of partitions the decisions topic has.
        partition: None,
        // Not the event's time: a replay of last year's events would be older than the topic keeps.
        timestamp_ms: None,
        key: Some(key.into()),
        value: Some(json(decision)),
        headers: vec![("content-type".to_owned(), JSON.into())],
    }
}

/// The partition is the user's, not that of this longer key. With its bytes, if the topic is to restore from.
pub fn memory_state(
    memory: &Memory,
    state: Option<&[u8]>,
    topic: &str,
    partition: i32,
) -> Outgoing {
    let mut record = memory_gone(&memory.key, memory.id, topic, partition);
    record.value = Some(json(&view::whole_memory(memory)));
    record.headers.push(("content-type".to_owned(), JSON.into()));
    record.headers.extend(state.map(|state| (STATE.to_owned(), state.to_vec())));
    record
}

/// What else a shard keeps. For whoever reads the topic as a change feed it is JSON that says only that.
pub fn shard_state(name: String, state: Option<&[u8]>, topic: &str, partition: i32) -> Outgoing {
    let value = state.map(|_| br#"{"type":"state"}"#.to_vec());
    let mut headers = vec![(RECORD.to_owned(), b"state".to_vec())];
    headers.extend(state.map(|state| (STATE.to_owned(), state.to_vec())));
    Outgoing {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(name.into_bytes()),
        value,
        headers,
    }
}

/// How far the shard has come.
pub fn shard_meta(name: &str, meta: Vec<u8>, topic: &str, partition: i32) -> Outgoing {
    Outgoing {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(name.into()),
        value: Some(meta),
        headers: vec![(RECORD.to_owned(), b"meta".to_vec())],
    }
}

/// A tombstone.
pub fn memory_gone(key: &UserKey, id: MemoryId, topic: &str, partition: i32) -> Outgoing {
    Outgoing {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(format!("{key}/{id}").into_bytes()),
        value: None,
        headers: vec![(RECORD.to_owned(), b"memory".to_vec())],
    }
}

/// The record as it came, with the reason in the two sets of headers that other tools know: Connect's, all text, and Spring's.
pub fn dead_letter(record: &Record, reject: &Reject, stage: &str, topic: &str) -> Outgoing {
    let mut headers = record.headers.clone();
    headers.extend(connect_headers(record, reject, stage));
    headers.extend(spring_headers(record, reject));
    Outgoing {
        topic: topic.to_owned(),
        partition: None,
        timestamp_ms: None,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
    }
}

fn connect_headers(record: &Record, reject: &Reject, stage: &str) -> Headers {
    let named =
        |name: &str, value: String| (format!("__connect.errors.{name}"), value.into_bytes());
    vec![
        named("topic", record.topic.clone()),
        named("partition", record.partition.to_string()),
        named("offset", record.offset.to_string()),
        named("stage", stage.to_owned()),
        named("class.name", format!("keepsake.{stage}")),
        named("exception.class.name", reject.code.as_str().to_owned()),
        named("exception.message", reject.to_string()),
    ]
}

fn spring_headers(record: &Record, reject: &Reject) -> Headers {
    let named = |name: &str, value: &[u8]| (format!("kafka_dlt-{name}"), value.to_vec());
    vec![
        named("original-topic", record.topic.as_bytes()),
        named("original-partition", &record.partition.to_be_bytes()),
        named("original-offset", &record.offset.to_be_bytes()),
        named("original-timestamp", &record.timestamp_ms.to_be_bytes()),
        named("exception-fqcn", reject.code.as_str().as_bytes()),
        named("exception-message", reject.to_string().as_bytes()),
    ]
}
