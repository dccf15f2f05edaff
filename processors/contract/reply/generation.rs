//! Builds the signed ticks on the events topic by which one generation of shards hands over to the
//! next. A program that knows no generations applies them as any other tick.

use super::JSON;
use broker::OutgoingRecord;
use domain::{GENERATION, GenerationMark, MARK, SignedParts, SigningKey};

pub fn generation_mark(
    mark: GenerationMark,
    topic: &str,
    partition: i32,
    marks: &SigningKey,
) -> OutgoingRecord {
    let value = br#"{"type":"tick"}"#.to_vec();
    let mut headers = vec![
        ("content-type".to_owned(), JSON.into()),
        (GENERATION.to_owned(), mark.to_string().into_bytes()),
    ];
    let signature = marks.sign(&SignedParts {
        topic,
        partition,
        key: None,
        value: Some(&value),
        headers: &headers,
    });
    headers.push((MARK.to_owned(), signature));
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: None,
        value: Some(value),
        headers,
    }
}
