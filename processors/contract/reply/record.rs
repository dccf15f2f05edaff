//! Builds the records of the shared topics: decisions and dead letters. Those of the memories topic
//! are built by the changelog in `storage`, which also reads them.

use super::view;
use crate::wire::{self, JSON, json};
use broker::{Headers, OutgoingRecord, Record, headers_bytes};
use domain::fault::Reject;
use domain::{Decision, Erasure};
use serde_json::Value;
use text::shortened;

/// Header of a dead letter that is written without the record, with the length of the record.
pub const TRUNCATED: &str = "keepsake-truncated";
/// Characters of the reason in a header. A reason may quote the message of a panic.
const REASON_CHARS_MAX: usize = 1000;

/// The topic of dead letters, and the longest record that the topic takes, as
/// [`OutgoingRecord::bytes`] counts.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    pub topic: String,
    pub bytes_max: usize,
}

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

/// Texts, turns and sessions that one receipt lists, of each: 11 MB at 140, 20 and 66 bytes, and
/// the topic takes 12 MB.
pub const RECEIPT_LISTED_MAX: usize = 50_000;

/// Builds the receipt of a forget, which lists at most so many texts, turns and sessions.
pub fn erasure(
    erasure: &Erasure,
    places: &[wire::Place],
    topic: &str,
    listed_max: usize,
) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: None,
        timestamp_ms: None,
        key: Some(erasure.key.as_str().into()),
        value: Some(json(&view::erasure(erasure, places, listed_max))),
        headers: vec![("content-type".to_owned(), JSON.into())],
    }
}

/// Longest value of a request in a dead letter. Whoever asked has had the error, so the head is for
/// a person who looks for the sender, and refused requests cannot fill the topic.
pub const REQUEST_HEAD: usize = 4 << 10;

/// Builds the dead letter of a request: no more than the head of the value, and of key and headers
/// together no more than that either.
pub fn dead_request(
    record: &Record,
    reject: &Reject,
    dead_letters: &DeadLetters,
) -> OutgoingRecord {
    let value_bytes = record.value.as_ref().map_or(0, Vec::len);
    let rest = record.bytes() - value_bytes;
    if value_bytes <= REQUEST_HEAD && rest <= REQUEST_HEAD {
        return dead_letter(record, reject, "recall", dead_letters);
    }
    let mut headers = vec![(TRUNCATED.to_owned(), record.bytes().to_string().into_bytes())];
    if rest <= REQUEST_HEAD {
        headers.extend(record.headers.iter().cloned());
    }
    headers.extend(connect_headers(record, reject, "recall"));
    headers.extend(spring_headers(record, reject));
    let value = record.value.as_ref();
    OutgoingRecord {
        topic: dead_letters.topic.clone(),
        partition: None,
        timestamp_ms: None,
        key: record.key.clone().filter(|key| key.len() <= REQUEST_HEAD),
        value: value.map(|value| value[..value_bytes.min(REQUEST_HEAD)].to_vec()),
        headers,
    }
}

/// Returns the tenant of a record: the one that the value names or, if the value cannot be read,
/// the key.
pub fn tenant_of(record: &Record) -> Option<String> {
    let value = record.value.as_deref().unwrap_or_default();
    if let Ok(Value::Object(fields)) = serde_json::from_slice(value) {
        match (fields.get("tenant").and_then(Value::as_str), fields.contains_key("user")) {
            (Some(tenant), _) => return Some(tenant.to_owned()),
            (None, true) => return Some("default".to_owned()),
            (None, false) => {}
        }
    }
    let key = std::str::from_utf8(record.key.as_deref()?).ok()?;
    Some(key.split_once('/')?.0.to_owned())
}

/// Builds a dead letter: the record unchanged, with the reason in the headers of Kafka Connect and
/// of Spring Kafka, which other tools read.
///
/// A record may be longer than the topic takes, because the broker limits the length as the
/// producer compressed the record. The dead letter is without value and without the sender's
/// headers, and without a long key; the headers name the place of the record.
pub fn dead_letter(
    record: &Record,
    reject: &Reject,
    stage: &str,
    dead_letters: &DeadLetters,
) -> OutgoingRecord {
    let mut added = connect_headers(record, reject, stage);
    added.extend(spring_headers(record, reject));
    let bytes = record.bytes() + headers_bytes(&added);
    let mut letter = OutgoingRecord {
        topic: dead_letters.topic.clone(),
        partition: None,
        timestamp_ms: None,
        key: None,
        value: None,
        headers: Vec::new(),
    };
    if bytes <= dead_letters.bytes_max {
        letter.key = record.key.clone();
        letter.value = record.value.clone();
        letter.headers = record.headers.clone();
    } else {
        letter.headers.push((TRUNCATED.to_owned(), record.bytes().to_string().into_bytes()));
        let rest = letter.bytes() + headers_bytes(&added);
        letter.key = record.key.clone().filter(|key| rest + key.len() <= dead_letters.bytes_max);
    }
    letter.headers.extend(added);
    letter
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
        ("exception.message", reason(reject)),
    ];
    let stack = reject.stack.iter().map(|stack| ("exception.stacktrace", stack.clone()));
    let headers = headers.into_iter().chain(stack);
    headers.map(|(name, value)| (format!("__connect.errors.{name}"), value.into_bytes())).collect()
}

/// The headers of [Spring
/// Kafka](https://docs.spring.io/spring-kafka/reference/kafka/annotation-error-handling.html), with
/// numbers in big-endian bytes.
fn spring_headers(record: &Record, reject: &Reject) -> Headers {
    let message = reason(reject);
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

fn reason(reject: &Reject) -> String {
    shortened(&reject.to_string(), REASON_CHARS_MAX)
}
