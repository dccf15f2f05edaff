//! The headers: where the reply goes and what it echoes, how long the sender waits, and the marks of a forwarded record.
//! Knows nothing of the body.

use super::{Hop, Options, Way};
use crate::domain::{MARK, Marked, Position, ReplyTo, Time};
use crate::fault::{Reject, RejectCode};
use crate::ports::broker::{Outgoing, Record};
use crate::text::shortened;
use std::str::{FromStr, from_utf8};

const ORIGIN: &str = "keepsake-origin";
const VIA: &str = "keepsake-via";
const TENANT: &str = "keepsake-tenant";
/// Says how often a dead letter was sent again.
pub const REDRIVEN: &str = "keepsake-redriven";
const HOPS: &str = "keepsake-hops";
/// What a forwarded record says about its way, beside the mark that shows that we wrote it.
const OF_A_HOP: [&str; 5] = [ORIGIN, VIA, TENANT, HOPS, MARK];
/// To its user's partition, to its tenant's, and from there to all.
const HOPS_MAX: usize = 3;
const REPLY_TOPICS: [&str; 2] = ["kafka_replyTopic", "reply-topic"];
const REPLY_PARTITION: &str = "kafka_replyPartition";
const ECHOED: [&str; 4] = ["kafka_correlationId", "correlation-id", "traceparent", "tracestate"];

pub struct Address {
    pub to: ReplyTo,
    /// Whether the sender named a reply topic.
    pub asked: bool,
    pub problem: Option<Problem>,
}

pub enum Problem {
    Forbidden(Reject),
    Unreadable(Reject),
}

impl Problem {
    pub fn into_reject(self) -> Reject {
        match self {
            Problem::Forbidden(reject) | Problem::Unreadable(reject) => reject,
        }
    }
}

pub fn address(record: &Record, options: &Options) -> Address {
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
    let to = ReplyTo { topic, partition, key: record.key.clone(), echo: echo(record) };
    Address { to, asked: asked.is_some(), problem }
}

pub fn deadline(record: &Record, options: &Options) -> Result<Time, Reject> {
    let (sent, asked) = (Time(record.timestamp_ms), number(record, "keepsake-deadline")?);
    let latest = sent.plus_ms(options.deadline_ms_max);
    Ok(asked.map_or(sent.plus_ms(options.default_deadline_ms), |asked| Time(asked).min(latest)))
}

pub fn min_offset(record: &Record) -> Result<Option<i64>, Reject> {
    number(record, "keepsake-min-offset")
}

/// Whether Keepsake wrote this record, and wrote it for this place.
pub fn is_own(record: &Record, options: &Options) -> bool {
    let Record { topic, partition, key, value, headers, .. } = record;
    let marked = Marked {
        topic,
        partition: *partition,
        key: key.as_deref(),
        value: value.as_deref(),
        headers,
    };
    record.header(MARK).is_some_and(|mark| options.marks.fits(mark, &marked))
}

/// The way of a forwarded record, none if it came straight from its sender. Without our mark it did, whatever its headers say: they would let
/// a stranger hide the records that really were forwarded.
pub fn hop(record: &Record, options: &Options) -> (Option<Hop>, Option<Reject>) {
    if (record.header(ORIGIN).is_none() && record.header(VIA).is_none()) || !is_own(record, options)
    {
        return (None, None);
    }
    let origin = record.header(ORIGIN).and_then(parsed_origin);
    let via = record.header(VIA).and_then(parsed_via);
    let way = record.header(TENANT).map_or(Some(Way::ToUser), Way::named);
    match (origin, via, way) {
        (None, ..) => (None, Some(Reject::of_field(ORIGIN, "is not topic:partition:offset"))),
        (_, None, _) => (None, Some(Reject::of_field(VIA, "is not partition:offset"))),
        (.., None) => (None, Some(Reject::of_field(TENANT, "is neither order nor copy"))),
        (Some(origin), Some((via_partition, via_offset)), Some(way)) => {
            (Some(Hop { origin, via_partition, via_offset, way, at_ms: record.timestamp_ms }), None)
        }
    }
}

/// How often the record was forwarded, as it says itself. Counted also without our mark: processes with different keys do not know each other's
/// records, and would forward them for ever.
fn hops(record: &Record) -> usize {
    record.header(HOPS).and_then(parsed).unwrap_or(0)
}

/// Whether it came another time before, by Keepsake's doing or by `dlq redrive`.
pub fn was_sent_before(record: &Record) -> bool {
    hops(record) > 0 || record.header(REDRIVEN).is_some()
}

pub fn may_be_forwarded(record: &Record) -> Result<(), Reject> {
    if hops(record) < HOPS_MAX {
        return Ok(());
    }
    let message =
        format!("was forwarded {HOPS_MAX} times: do all processes have the same topics.marks_key?");
    Err(Reject::new(RejectCode::Misrouted, message))
}

/// The same record for another partition of its topic, marked, with where it came from: the first origin stays.
pub fn forwarded(record: &Record, to_partition: i32, way: Way, options: &Options) -> Outgoing {
    let origin = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    let known = record.header(ORIGIN).filter(|_| is_own(record, options));
    let origin = known.map_or(origin.into_bytes(), <[u8]>::to_vec);
    let mut headers = record.headers.clone();
    headers.retain(|(name, _)| !OF_A_HOP.contains(&name.as_str()));
    headers.push((ORIGIN.to_owned(), origin));
    headers.push((VIA.to_owned(), format!("{}:{}", record.partition, record.offset).into_bytes()));
    headers.push((HOPS.to_owned(), (hops(record).min(HOPS_MAX) + 1).to_string().into_bytes()));
    headers.extend(way.name().map(|name| (TENANT.to_owned(), name.into())));
    let Record { topic, key, value, .. } = record;
    let marked = Marked {
        topic,
        partition: to_partition,
        key: key.as_deref(),
        value: value.as_deref(),
        headers: &headers,
    };
    let mark = options.marks.sign(&marked);
    headers.push((MARK.to_owned(), mark));
    Outgoing {
        topic: topic.clone(),
        partition: Some(to_partition),
        timestamp_ms: Some(record.timestamp_ms),
        key: key.clone(),
        value: value.clone(),
        headers,
    }
}

fn allowed_topic<'a>(name: &'a [u8], options: &Options) -> Result<&'a str, Reject> {
    let readable = from_utf8(name).ok().filter(|name| is_topic_name(name));
    if let Some(name) =
        readable.filter(|name| options.reply_allowed.iter().any(|glob| matches(glob, name)))
    {
        return Ok(name);
    }
    let name = shortened(&String::from_utf8_lossy(name), 80);
    let message =
        format!("replies to this topic are not allowed, see topics.reply_allowed: {name}");
    Err(Reject::new(RejectCode::ForbiddenReply, message))
}

/// What Kafka accepts as a name. Another one would fail in the producer, which is too late to tell its sender.
fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

/// Whether the name fits the glob. A `*` first takes nothing, and one character more each time the rest does not fit.
fn matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if glob.get(g) == Some(&b'*') {
            star = Some((g, n));
            g += 1;
        } else if glob.get(g) == Some(&name[n]) {
            (g, n) = (g + 1, n + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (g, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

fn reply_partition(record: &Record) -> Result<Option<i32>, Reject> {
    let Some(bytes) = record.header(REPLY_PARTITION) else { return Ok(None) };
    let partition =
        <[u8; 4]>::try_from(bytes).ok().map(i32::from_be_bytes).filter(|partition| *partition >= 0);
    partition.map(Some).ok_or_else(|| {
        Reject::of_field(REPLY_PARTITION, "is not a partition in 4 bytes, big-endian")
    })
}

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
    let (partition, offset) = (partition.parse::<i32>().ok()?, offset.parse::<i64>().ok()?);
    (partition >= 0 && offset >= 0).then_some((partition, offset))
}

fn parsed<T: FromStr>(bytes: &[u8]) -> Option<T> {
    from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_an_allowed_topic_stands_for_any_characters() {
        for (glob, name, expected) in [
            ("keepsake.replies", "keepsake.replies", true),
            ("keepsake.replies", "keepsake.replies2", false),
            ("*.replies", "web.chat.replies", true),
            ("*.replies", "replies", false),
            ("*.replies", "web.replies.audit", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*", "x", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(glob, name), expected, "{glob} {name}");
        }
    }
}
