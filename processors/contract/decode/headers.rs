//! Reads the headers of a record: reply address and echo, deadline, minimum offset, and the signed
//! hop of a forwarded record. Also writes the headers of a record that is forwarded.
//!
//! A hop consists of these headers:
//!
//! | header | value |
//! |---|---|
//! | `keepsake-origin` | position of the sender's own record, `topic:partition:offset` |
//! | `keepsake-via` | position from which the record was last forwarded, `partition:offset` |
//! | `keepsake-tenant` | `decide` or `rest`, see [`ForwardReason`] |
//! | `keepsake-hops` | number of times the record was forwarded |
//! | `keepsake-own` | `1` if Keepsake wrote the original, which had a signature of its own |
//! | `keepsake-mark` | signature over the record and these headers |
//!
//! Invariant: a hop without a valid signature is ignored. Otherwise a stranger's headers could make
//! genuine forwarded records look like repetitions. The signature of a hop proves who forwarded the
//! record; `keepsake-own` shows who wrote the original.

use super::options::{DEADLINE_MS_MAX, DecodeOptions, HEADERS_BYTES_MAX, Hop};
use crate::wire::ECHOED;
use broker::{OutgoingRecord, Record, headers_bytes};
use domain::fault::{Reject, RejectCode};
use domain::{
    ForwardReason, GENERATION, HandOver, Position, REDRIVEN, ReplyTo, SIGNATURE, SignedParts,
    TENANT_SIGNATURE, Time,
};
use std::str::{FromStr, from_utf8};
use text::shortened;

const ORIGIN: &str = "keepsake-origin";
/// On a record that Keepsake forwarded: the partition and offset of the original.
pub const VIA: &str = "keepsake-via";
const TENANT: &str = "keepsake-tenant";
const HOPS: &str = "keepsake-hops";
const OWN: &str = "keepsake-own";
/// The headers of a hop, which are replaced when a record is forwarded again.
const HOP_HEADERS: [&str; 6] = [ORIGIN, VIA, TENANT, HOPS, OWN, SIGNATURE];
/// Times a record may be forwarded: to the partition of its user, to that of its tenant, and from
/// there to all.
const HOPS_MAX: usize = 3;
const REPLY_TOPICS: [&str; 2] = ["kafka_replyTopic", "reply-topic"];
pub const REPLY_PARTITION: &str = "kafka_replyPartition";

pub struct Address {
    pub to: ReplyTo,
    /// The sender named a reply topic.
    pub asked: bool,
    pub problem: Option<Problem>,
}

pub enum Problem {
    /// The sender may not use this reply topic.
    Forbidden(Reject),
    /// A header of the reply address is malformed.
    Unreadable(Reject),
}

impl Problem {
    pub fn into_reject(self) -> Reject {
        match self {
            Problem::Forbidden(reject) | Problem::Unreadable(reject) => reject,
        }
    }
}

/// Reads the reply address. A record that names no allowed topic is answered on the default topic.
pub fn address(record: &Record, options: &DecodeOptions) -> Address {
    let asked = REPLY_TOPICS.iter().find_map(|name| record.header(name));
    let allowed = asked.map(|topic| allowed_topic(topic, options));
    let (topic, partition, problem) = match allowed {
        None => (options.replies_topic.clone(), None, None),
        Some(Err(reject)) => {
            (options.replies_topic.clone(), None, Some(Problem::Forbidden(reject)))
        }
        Some(Ok(topic)) => match reply_partition(record) {
            Ok(partition) => (topic.to_owned(), partition, None),
            Err(reject) => (topic.to_owned(), None, Some(Problem::Unreadable(reject))),
        },
    };
    let max = HEADERS_BYTES_MAX;
    let key = record.key.clone().filter(|key| key.len() <= max);
    let mut echo = echo(record);
    echo.retain(|(_, value)| value.len() <= max);
    let to = ReplyTo { topic, partition, key, echo };
    Address { to, asked: asked.is_some(), problem }
}

/// Returns the deadline that the sender set, at most [`DEADLINE_MS_MAX`] after the record's
/// timestamp, or the default deadline.
pub fn deadline(record: &Record, options: &DecodeOptions) -> Result<Time, Reject> {
    let sent = Time(record.timestamp_ms);
    Ok(match number(record, "keepsake-deadline")? {
        Some(deadline) => Time(deadline).min(sent.plus_ms(DEADLINE_MS_MAX)),
        None => sent.plus_ms(options.default_deadline_ms),
    })
}

pub fn min_offset(record: &Record) -> Result<Option<i64>, Reject> {
    number(record, "keepsake-min-offset")
}

/// Returns true if Keepsake wrote or forwarded this record to this topic and partition.
pub fn is_signed(record: &Record, options: &DecodeOptions) -> bool {
    let signature = record.header(SIGNATURE);
    signature.is_some_and(|signature| options.signing_key.fits(signature, &signed_parts(record)))
}

/// Returns true if Keepsake wrote this record, and perhaps forwarded it since.
pub fn is_own(record: &Record, options: &DecodeOptions) -> bool {
    let is_of_a_sender = record.header(VIA).is_some() && record.header(OWN).is_none();
    !is_of_a_sender && is_signed(record, options)
}

/// Returns the mark of a hand-over between generations. `None` for a mark that Keepsake has not
/// signed for this topic and partition.
pub fn hand_over(record: &Record, options: &DecodeOptions) -> Option<HandOver> {
    let text = from_utf8(record.header(GENERATION)?).ok()?;
    HandOver::parsed(text).filter(|_| is_own(record, options))
}

/// Rejects a record that needs the signature of its tenant and has no valid one. Records that
/// Keepsake wrote have a signature of their own, and forwarded records were checked before.
pub fn from_tenant(tenant: &str, record: &Record, options: &DecodeOptions) -> Result<(), Reject> {
    let keys = &options.tenants;
    if !keys.judge(tenant) || is_signed(record, options) {
        return Ok(());
    }
    let signature = record.header(TENANT_SIGNATURE);
    keys.verify(tenant, &signed_parts(record), signature, record.timestamp_ms).map(drop)
}

/// Returns when the tenant signed the record. A forwarded record still has that signature. `None`
/// for a record that Keepsake wrote, and for a tenant without a key.
pub fn signed_at(tenant: &str, record: &Record, options: &DecodeOptions) -> Option<Time> {
    let signature = record.header(TENANT_SIGNATURE)?;
    let parts = signed_parts(record);
    options.tenants.verify(tenant, &parts, Some(signature), record.timestamp_ms).ok()?
}

fn signed_parts(record: &Record) -> SignedParts<'_> {
    let Record { topic, partition, key, value, headers, .. } = record;
    SignedParts {
        topic,
        partition: *partition,
        key: key.as_deref(),
        value: value.as_deref(),
        headers,
    }
}

/// Reads the hop of a forwarded record, or the reason why the hop is malformed. A record without a
/// valid signature has no hop, whatever the headers contain.
pub fn hop(record: &Record, options: &DecodeOptions) -> (Option<Hop>, Option<Reject>) {
    if (record.header(ORIGIN).is_none() && record.header(VIA).is_none())
        || !is_signed(record, options)
    {
        return (None, None);
    }
    let origin = record.header(ORIGIN).and_then(parsed_origin);
    let via = record.header(VIA).and_then(parsed_via);
    let way = record.header(TENANT).map_or(Some(ForwardReason::ToUser), ForwardReason::named);
    match (origin, via, way) {
        (None, ..) => (None, Some(Reject::of_field(ORIGIN, "is not topic:partition:offset"))),
        (_, None, _) => (None, Some(Reject::of_field(VIA, "is not partition:offset"))),
        (.., None) => (None, Some(Reject::of_field(TENANT, "is neither decide nor rest"))),
        (Some(origin), Some((via_partition, via_offset)), Some(way)) => {
            (Some(Hop { origin, via_partition, via_offset, way, at_ms: record.timestamp_ms }), None)
        }
    }
}

/// Returns how often the record was forwarded, by the header. The count is used even without a
/// valid signature: processes with different keys reject each other's signatures, and would forward
/// a record to each other for ever.
fn hops(record: &Record) -> usize {
    record.header(HOPS).and_then(parsed).unwrap_or(0)
}

/// Returns true if the record was already in the log once: Keepsake forwarded it, or `dlq redrive`
/// sent it again.
pub fn is_repetition(record: &Record) -> bool {
    hops(record) > 0 || record.header(REDRIVEN).is_some()
}

/// Rejects a record whose key and headers are too long. The topic limits the record only as the
/// producer compressed it, and Keepsake forwards it uncompressed. The headers of a valid hop do not
/// count: the record had none when its sender wrote it.
pub fn are_short(record: &Record, hop: Option<&Hop>) -> Result<(), Reject> {
    let mut bytes = record.key.as_ref().map_or(0, Vec::len) + headers_bytes(&record.headers);
    if bytes > HEADERS_BYTES_MAX && hop.is_some() {
        let mut of_sender = record.headers.clone();
        of_sender.retain(|(name, _)| !HOP_HEADERS.contains(&name.as_str()));
        bytes -= headers_bytes(&record.headers) - headers_bytes(&of_sender);
    }
    if bytes <= HEADERS_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("key and headers are longer than {HEADERS_BYTES_MAX} bytes together: {bytes}");
    Err(Reject::new(RejectCode::TooLarge, message))
}

/// Rejects a record that was forwarded [`HOPS_MAX`] times.
pub fn may_be_forwarded(record: &Record) -> Result<(), Reject> {
    if hops(record) < HOPS_MAX {
        return Ok(());
    }
    let message =
        format!("was forwarded {HOPS_MAX} times: do all processes have the same topics.marks_key?");
    Err(Reject::new(RejectCode::Misrouted, message))
}

/// Copies a record for another partition of its topic, with a signed hop. The origin of a record
/// that was forwarded before stays.
pub fn forwarded(
    record: &Record,
    to_partition: i32,
    way: ForwardReason,
    options: &DecodeOptions,
) -> OutgoingRecord {
    let origin = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    let known = record.header(ORIGIN).filter(|_| is_signed(record, options));
    let origin = known.map_or(origin.into_bytes(), <[u8]>::to_vec);
    let mut headers = record.headers.clone();
    headers.retain(|(name, _)| !HOP_HEADERS.contains(&name.as_str()));
    headers.push((ORIGIN.to_owned(), origin));
    headers.push((VIA.to_owned(), format!("{}:{}", record.partition, record.offset).into_bytes()));
    headers.push((HOPS.to_owned(), (hops(record).min(HOPS_MAX) + 1).to_string().into_bytes()));
    headers.extend(way.name().map(|name| (TENANT.to_owned(), name.into())));
    headers.extend(is_own(record, options).then(|| (OWN.to_owned(), b"1".to_vec())));
    let Record { topic, key, value, timestamp_ms, .. } = record;
    let copy = OutgoingRecord {
        topic: topic.clone(),
        partition: Some(to_partition),
        timestamp_ms: Some(*timestamp_ms),
        key: key.clone(),
        value: value.clone(),
        headers,
    };
    signed(copy, options)
}

/// Signs a record that Keepsake forwards, anew if its headers have changed since it was signed.
pub fn signed(mut record: OutgoingRecord, options: &DecodeOptions) -> OutgoingRecord {
    record.headers.retain(|(name, _)| name != SIGNATURE);
    let signature = options.signing_key.sign(&SignedParts {
        topic: &record.topic,
        partition: record.partition.unwrap_or_default(),
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &record.headers,
    });
    record.headers.push((SIGNATURE.to_owned(), signature));
    record
}

fn allowed_topic<'a>(name: &'a [u8], options: &DecodeOptions) -> Result<&'a str, Reject> {
    let readable = from_utf8(name).ok().filter(|name| is_topic_name(name));
    if let Some(name) = readable
        .filter(|name| *name == options.replies_topic || options.reply_allowed.contain(name))
    {
        return Ok(name);
    }
    let name = shortened(&String::from_utf8_lossy(name), 80);
    let message =
        format!("replies to this topic are not allowed, see topics.reply_allowed: {name}");
    Err(Reject::new(RejectCode::ForbiddenReply, message))
}

/// Returns true for names that [Kafka
/// accepts](https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/internals/Topic.java).
/// Another name would fail in the producer, too late for a reply to the sender.
fn is_topic_name(name: &str) -> bool {
    (1..=249).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn reply_partition(record: &Record) -> Result<Option<i32>, Reject> {
    let Some(bytes) = record.header(REPLY_PARTITION) else { return Ok(None) };
    let partition =
        <[u8; 4]>::try_from(bytes).ok().map(i32::from_be_bytes).filter(|partition| *partition >= 0);
    partition.map(Some).ok_or_else(|| {
        Reject::of_field(REPLY_PARTITION, "is not a partition in 4 bytes, big-endian")
    })
}

/// Returns the headers that a reply repeats.
fn echo(record: &Record) -> Vec<(String, Vec<u8>)> {
    ECHOED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), record.header(name)?.to_vec())))
        .collect()
}

fn number(record: &Record, name: &str) -> Result<Option<i64>, Reject> {
    let Some(bytes) = record.header(name) else { return Ok(None) };
    let number = parsed(bytes).filter(|number| *number >= 0);
    number.map(Some).ok_or_else(|| Reject::of_field(name, "is not a whole number in ASCII digits"))
}

fn parsed_origin(bytes: &[u8]) -> Option<Position> {
    let mut parts = from_utf8(bytes).ok()?.rsplitn(3, ':');
    let offset = parts.next()?.parse().ok().filter(|offset: &i64| *offset >= 0)?;
    let partition = parts.next()?.parse().ok().filter(|partition: &i32| *partition >= 0)?;
    let topic = parts.next().filter(|topic| is_topic_name(topic))?;
    Some(Position { topic: topic.into(), partition, offset })
}

fn parsed_via(bytes: &[u8]) -> Option<(i32, i64)> {
    let (partition, offset) = from_utf8(bytes).ok()?.split_once(':')?;
    let partition = partition.parse::<i32>().ok()?;
    let offset = offset.parse::<i64>().ok()?;
    (partition >= 0 && offset >= 0).then_some((partition, offset))
}

fn parsed<T: FromStr>(bytes: &[u8]) -> Option<T> {
    from_utf8(bytes).ok()?.parse().ok()
}
