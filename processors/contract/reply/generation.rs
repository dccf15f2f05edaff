//! Builds the signed ticks on the events topic by which one generation of shards hands over to the
//! next. A program that knows no generations applies them as any other tick.

use crate::wire::JSON;
use broker::OutgoingRecord;
use domain::{GENERATION, HandOver, SIGNATURE, SignedParts, SigningKey};

pub fn hand_over(
    hand_over: HandOver,
    topic: &str,
    partition: i32,
    signing_key: &SigningKey,
) -> OutgoingRecord {
    let value = br#"{"type":"tick"}"#.to_vec();
    let mut headers = vec![
        ("content-type".to_owned(), JSON.into()),
        (GENERATION.to_owned(), hand_over.to_string().into_bytes()),
    ];
    let signature = signing_key.sign(&SignedParts {
        topic,
        partition,
        key: None,
        value: Some(&value),
        headers: &headers,
    });
    headers.push((SIGNATURE.to_owned(), signature));
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: None,
        value: Some(value),
        headers,
    }
}
