//! Builds the records of the shared topics: decisions and dead letters. Those of the memories topic
//! are built by the changelog in `storage`, which also reads them.

use super::{JSON, json, view};
use crate::broker::{Headers, OutgoingRecord, Record};
use crate::wire;
use domain::fault::Reject;
use domain::{Decision, Erasure};

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

/// Builds the receipt of a forget.
pub fn erasure(erasure: &Erasure, places: &[wire::Place], topic: &str) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: None,
        timestamp_ms: None,
        key: Some(erasure.key.as_str().into()),
        value: Some(json(&view::erasure(erasure, places))),
        headers: vec![("content-type".to_owned(), JSON.into())],
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
    let stack = reject.stack.iter().map(|stack| ("exception.stacktrace", stack.clone()));
    let headers = headers.into_iter().chain(stack);
    headers.map(|(name, value)| (format!("__connect.errors.{name}"), value.into_bytes())).collect()
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
