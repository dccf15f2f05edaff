//! Defines the JSON of the contract, one struct for each message, field for field as in `schemas/`.
//!
//! The structs know no limits, no defaults and no types of the domain: `contract/decode` checks the
//! messages that come in, `contract/reply` builds those that go out. Field names and their spelling
//! are the contract with every client: a field may be added, and none may be renamed or removed.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

// ---------------------------------------------------------------- values in both directions

/// A time in milliseconds since 1970, written as [RFC 3339](https://www.rfc-editor.org/rfc/rfc3339)
/// in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub i64);

impl Moment {
    pub fn parse(text: &str) -> Option<Moment> {
        match text.parse::<Timestamp>() {
            Ok(time) => Some(Moment(time.as_millisecond())),
            Err(_) => Moment::parse_last_day(text),
        }
    }

    /// Parses a time in the last hours of the year 9999, after `Timestamp::MAX`: "9999-12-31" is a
    /// common way to write "never".
    fn parse_last_day(text: &str) -> Option<Moment> {
        let pieces = Pieces::parse(text).ok()?;
        let at = pieces.date().to_datetime(pieces.time()?);
        let ms = at.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_millis();
        let offset_ms = i128::from(pieces.to_numeric_offset()?.seconds()) * 1000;
        i64::try_from(ms - offset_ms).ok().map(Moment)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nearest = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        let time = Timestamp::from_millisecond(self.0).unwrap_or(nearest);
        match self.0 % 1000 {
            0 => serializer.collect_str(&time),
            _ => serializer.collect_str(&format_args!("{time:.3}")),
        }
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Moment, D::Error> {
        let text = String::deserialize(deserializer)?;
        Moment::parse(&text)
            .ok_or_else(|| D::Error::custom("is not a time such as 2026-01-02T03:04:05Z"))
    }
}

/// A time, or a whole day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MomentOrDay {
    pub first_ms: i64,
    pub last_ms: i64,
}

impl MomentOrDay {
    pub fn parse(text: &str) -> Option<MomentOrDay> {
        if let Some(Moment(ms)) = Moment::parse(text) {
            return Some(MomentOrDay { first_ms: ms, last_ms: ms });
        }
        let [first, last] = ["T00:00:00Z", "T23:59:59.999Z"].map(|time| {
            let is_day = text.len() == "2026-01-02".len();
            is_day.then(|| Moment::parse(&format!("{text}{time}"))).flatten()
        });
        Some(MomentOrDay { first_ms: first?.0, last_ms: last?.0 })
    }
}

impl<'de> Deserialize<'de> for MomentOrDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MomentOrDay, D::Error> {
        let text = String::deserialize(deserializer)?;
        MomentOrDay::parse(&text).ok_or_else(|| {
            D::Error::custom(
                "is neither a day such as 2026-01-02 nor a time such as 2026-01-02T03:04:05Z",
            )
        })
    }
}

/// The id of a memory. A text that is no UUID is read as the nil UUID, which no memory has: a wrong
/// id gives "not found" and not an error of form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub Uuid);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || text.len() > 256 {
            return Err(D::Error::custom("is not 1 to 256 bytes long"));
        }
        Ok(Id(Uuid::parse_str(&text).unwrap_or(Uuid::nil())))
    }
}

/// A number rounded to six decimals: finer than any score, and short enough to read.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f32);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let exact = if self.0.is_finite() { f64::from(self.0) } else { 0.0 };
        // Adding 0.0 turns -0.0 into 0.0.
        serializer.serialize_f64((exact * 1e6).round() / 1e6 + 0.0)
    }
}

/// Named numbers as a JSON object, in the given order.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a>(pub &'a [(&'static str, f32)]);

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, Number(*value))))
    }
}

/// A memory and the version that a proposal was based on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub id: Id,
    pub version: u32,
}

/// The same of an earlier memory, with the probability that a later one revises it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Judged {
    pub id: Id,
    pub version: u32,
    pub probability: f32,
}

// ---------------------------------------------------------------- events

#[derive(Debug, Deserialize)]
pub struct Common {
    pub tenant: Option<String>,
    pub user: Option<String>,
    pub session: Option<String>,
    pub id: Option<String>,
    pub at: Option<Moment>,
    pub metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub struct Turn {
    pub role: Option<String>,
    pub speaker: Option<String>,
    pub content: Option<String>,
    pub kind: Option<String>,
    pub remember: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct Remember {
    pub content: Option<String>,
    pub kind: Option<String>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    pub stability: Option<f32>,
    pub scope: Option<String>,
    pub expires_at: Option<Moment>,
}

#[derive(Debug, Deserialize)]
pub struct Update {
    pub memory: Option<Id>,
    pub content: Option<String>,
    pub kind: Option<String>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    pub stability: Option<f32>,
    pub enabled: Option<bool>,
}

/// The session to forget is the `session` of the event itself.
#[derive(Debug, Deserialize)]
pub struct Forget {
    pub memory: Option<Id>,
    pub query: Option<String>,
    pub everything: Option<bool>,
}

/// The rest of a forget, which Keepsake writes to itself.
#[derive(Debug, Deserialize)]
pub struct ForgetContinuation {
    pub memories: Option<Vec<Id>>,
    pub left: Option<usize>,
    pub continues: Option<Position>,
    pub part_of: Option<String>,
    #[serde(default)]
    pub sessions: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Feedback {
    pub memory: Option<Id>,
    pub memories: Option<Vec<Id>>,
    pub signal: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Prune {
    pub memories: Option<Vec<Seen>>,
    pub erase: Option<bool>,
    pub idle: Option<Vec<Idle>>,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Summary {
    pub content: Option<String>,
    pub covers: Option<Vec<Seen>>,
    pub compresses_as: Option<String>,
    pub by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Revise {
    pub memory: Option<Seen>,
    pub revises: Option<Vec<Judged>>,
    pub kind: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Extracted {
    pub turns: Option<Vec<Position>>,
    pub seen: Option<Vec<Seen>>,
    pub facts: Option<Vec<ReadFact>>,
    pub by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ReadFact {
    pub content: String,
    pub kind: String,
    pub turns: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub struct Fact<'a> {
    pub content: &'a str,
    pub kind: &'a str,
    pub turns: &'a [usize],
}

/// A session whose context window is too old, with the time of its last turn in milliseconds.
#[derive(Debug, Deserialize, Serialize)]
pub struct Idle {
    pub session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<i64>,
}

/// An event that Keepsake writes to itself.
#[derive(Debug, Default, Serialize)]
pub struct OwnEvent<'a> {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub tenant: &'a str,
    /// Empty for memories of the whole tenant.
    pub user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memories: Option<Listing>,
    #[serde(skip_serializing_if = "is_false")]
    pub erase: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<Idle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub sessions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<EventPosition<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<Vec<Seen>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compresses_as: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<EventPosition<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<Seen>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Vec<Fact<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Seen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revises: Option<Vec<Judged>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Listing {
    Ids(Vec<Id>),
    Seen(Vec<Seen>),
}

// ---------------------------------------------------------------- requests

#[derive(Debug, Deserialize)]
pub struct Asker {
    pub tenant: Option<String>,
    pub user: Option<String>,
    pub session: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Recall {
    pub query: Option<String>,
    pub queries: Option<Vec<String>>,
    pub limit: Option<i64>,
    pub token_budget: Option<i64>,
    pub kinds: Option<Vec<String>>,
    #[serde(rename = "where")]
    pub filter: Option<Map<String, Value>>,
    pub as_of: Option<Moment>,
    pub from: Option<MomentOrDay>,
    pub to: Option<MomentOrDay>,
    pub as_of_offset: Option<i64>,
    pub include_archived: Option<bool>,
    pub include_compressed: Option<bool>,
    pub format: Option<String>,
    pub profile: Option<String>,
    pub explain: Option<bool>,
    pub min_relevance: Option<f32>,
    pub purpose: Option<String>,
    pub history: Option<Vec<Said>>,
}

#[derive(Debug, Deserialize)]
pub struct About {
    pub token_budget: Option<i64>,
    pub format: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Said {
    pub role: Option<String>,
    pub speaker: Option<String>,
    pub content: String,
}

#[derive(Debug, Deserialize)]
pub struct List {
    pub kinds: Option<Vec<String>>,
    pub everything: Option<bool>,
    pub limit: Option<i64>,
    #[serde(rename = "where")]
    pub filter: Option<Map<String, Value>>,
    pub after: Option<String>,
    pub offset: Option<i64>,
    pub as_of: Option<Moment>,
}

#[derive(Debug, Deserialize)]
pub struct Duplicates {
    pub limit: Option<i64>,
    pub after: Option<String>,
}

#[derive(Deserialize)]
pub struct Get {
    pub memory: Option<Id>,
    pub history: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct Explain {
    pub memory: Option<Id>,
    pub event: Option<Position>,
}

#[derive(Debug, Deserialize)]
pub struct Position {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

// ---------------------------------------------------------------- decisions and memories

#[derive(Debug, Serialize)]
pub struct EventPosition<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct Source<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<&'a str>,
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
}

#[derive(Debug, Serialize)]
pub struct Surprise<'a> {
    pub total: Number,
    pub novelty: Number,
    pub contradiction: Number,
    pub specificity: Number,
    pub emphasis: Number,
    pub context_switch: Number,
    pub points: Numbers<'a>,
}

#[derive(Debug, Serialize)]
pub struct Decision<'a> {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub outcome: &'static str,
    pub reason: &'a str,
    pub event: EventPosition<'a>,
    pub tenant: &'a str,
    pub user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surprise: Option<Surprise<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Id>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// Salt of the receipt of a forget, in hexadecimal. Only in the reply to the asker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    pub profile: &'a str,
    pub at: Moment,
    #[serde(skip_serializing_if = "is_false")]
    pub misrouted: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub warnings: &'a [String],
    /// For a duplicate: the id came first with an event of another type or target.
    #[serde(skip_serializing_if = "is_false")]
    pub of_other_event: bool,
    /// True if the words of the event must not be shown.
    #[serde(skip_serializing_if = "is_false")]
    pub withheld: bool,
    /// True for a judgement of the shadow profile, which is not applied.
    #[serde(skip_serializing_if = "is_false")]
    pub shadow: bool,
}

/// The receipt of a forget.
#[derive(Debug, Serialize)]
pub struct Erasure<'a> {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub event: EventPosition<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<EventPosition<'a>>,
    pub tenant: &'a str,
    pub user: &'a str,
    pub target: &'static str,
    pub count: usize,
    pub left: usize,
    pub texts: Vec<ErasedText>,
    /// The turns that the texts came from, with those of which no memory was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<ErasedTurns<'a>>,
    /// Texts and turns beyond the limit of one receipt.
    #[serde(skip_serializing_if = "is_zero")]
    pub unlisted: usize,
    /// HMAC-SHA256 of the names of sessions, as of the texts.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub sessions: &'a [String],
    pub places: &'a [Place],
    pub at: Moment,
}

/// Turns of one partition of the events topic.
#[derive(Debug, Serialize)]
pub struct ErasedTurns<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offsets: Vec<i64>,
}

#[derive(Debug, Serialize)]
pub struct ErasedText {
    pub memory: Id,
    /// HMAC-SHA256 of the text under the receipt's salt, in hexadecimal.
    pub digest: String,
}

/// A place where the bytes of an erased text may still be.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    pub place: String,
    /// Milliseconds from the receipt until the bytes are gone; absent if Keepsake sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<i64>,
    pub what: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Memory<'a> {
    pub id: Id,
    pub kind: &'a str,
    pub content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relevance: Option<Number>,
    pub importance: Number,
    pub confidence: Number,
    pub scope: &'static str,
    pub state: &'static str,
    pub role: &'static str,
    pub created_at: Moment,
    /// The time of the last change of the words, `None` if they never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Moment>,
    pub valid_from: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<&'a str>,
    pub source: Source<'a>,
    #[serde(skip_serializing_if = "is_empty")]
    pub metadata: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Id>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revises: Vec<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revised_by: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts_with: Vec<Id>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressed_by: Option<Id>,
    /// `Some(false)` for a memory that is switched off, else `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<Number>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<EventPosition<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Numbers<'a>>,
    #[serde(flatten)]
    pub record: Option<MemoryRecord<'a>>,
}

/// Provenance and usage of a memory. A recall leaves these fields out.
#[derive(Debug, Serialize)]
pub struct MemoryRecord<'a> {
    pub tenant: &'a str,
    pub user: &'a str,
    pub version: u32,
    pub uses: u32,
    pub confirmed: u32,
    pub fresh_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surprise: Option<Surprise<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Number>,
    pub reason: &'a str,
    pub profile: &'a str,
}

#[derive(Debug, Serialize)]
pub struct Revision<'a> {
    pub content: &'a str,
    pub until: Moment,
}

// ---------------------------------------------------------------- replies

/// Headers of a request or event that its reply repeats.
pub const ECHOED: [&str; 4] =
    ["kafka_correlationId", "correlation-id", "traceparent", "tracestate"];

/// A reply: type and status, the body, and the freshness of the data.
#[derive(Debug, Serialize)]
pub struct Reply<'a, B: Serialize> {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub status: &'static str,
    #[serde(flatten)]
    pub body: B,
    #[serde(flatten)]
    pub freshness: Freshness<'a>,
}

#[derive(Debug, Serialize)]
pub struct Freshness<'a> {
    pub applied_offset: i64,
    pub stale: bool,
    pub took_us: u64,
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub misrouted: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub warnings: &'a [String],
}

#[derive(Debug, Serialize)]
pub struct Applied<'a> {
    pub decisions: Vec<Decision<'a>>,
    pub partition: i32,
    pub offset: i64,
}

#[derive(Debug, Serialize)]
pub struct Recalled<'a> {
    pub memories: Vec<Memory<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wishes: Vec<Memory<'a>>,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matched: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<&'static str>,
    pub prompt: &'a str,
    pub tokens: usize,
    pub budget_used: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Levels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Assembly<'a>>,
}

/// The levels that scores and relevance are compared with.
#[derive(Debug, Serialize)]
pub struct Levels {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<Number>,
}

/// The parts of an assembled block, under the names of Alma's `AssembledContext.metadata`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assembly<'a> {
    pub soul_tokens: usize,
    pub memories_included: usize,
    pub memories_tokens: usize,
    pub episodes_included: usize,
    pub procedures_included: usize,
    pub total_tokens: usize,
    pub top_memory_scores: Vec<MemoryScore<'a>>,
}

#[derive(Debug, Serialize)]
pub struct MemoryScore<'a> {
    pub content: &'a str,
    pub score: Number,
}

#[derive(Debug, Serialize)]
pub struct Listed<'a> {
    pub memories: Vec<Memory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub total: usize,
}

#[derive(Debug, Serialize)]
pub struct FoundDuplicates<'a> {
    pub pairs: Vec<Pair<'a>>,
    pub level: Number,
    pub compared: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Pair<'a> {
    pub newer: Memory<'a>,
    pub older: Memory<'a>,
    pub cosine: Number,
}

#[derive(Debug, Serialize)]
pub struct OneMemory<'a> {
    pub memory: Memory<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<Revision<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextLine<'a>>,
}

/// A turn beside the one that a memory was made from.
#[derive(Debug, Serialize)]
pub struct ContextLine<'a> {
    pub speaker: &'a str,
    pub words: &'a str,
}

#[derive(Debug, Serialize)]
pub struct Explained<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision<'a>>,
    /// All decisions if there are several. The first is also `decision`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory<'a>>,
    pub since: Vec<HistoryEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fade: Option<Fade>,
}

/// The loss of strength of a memory with time.
#[derive(Debug, Serialize)]
pub struct Fade {
    pub at: Moment,
    pub strength: Number,
    pub shape: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life_days: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune_below: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune_after_days: Option<Number>,
    pub points: Vec<(Moment, Number)>,
}

#[derive(Debug, Serialize)]
pub struct HistoryEntry {
    pub what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Id>,
}

#[derive(Debug, Serialize)]
pub struct Stats<'a> {
    pub memories: Counts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance_average: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Moment>,
    pub bytes: u64,
    pub decisions: &'a BTreeMap<String, u64>,
    pub sessions: Sessions<'a>,
}

#[derive(Debug, Serialize)]
pub struct Sessions<'a> {
    pub total: usize,
    pub latest: Vec<SessionTurns<'a>>,
}

#[derive(Debug, Serialize)]
pub struct SessionTurns<'a> {
    pub session: &'a str,
    pub turns: u32,
    pub last_at: Moment,
}

#[derive(Debug, Serialize)]
pub struct Counts<'a> {
    pub total: u64,
    pub in_sessions: u64,
    pub by_kind: &'a BTreeMap<String, u64>,
    pub by_scope: &'a BTreeMap<String, u64>,
    pub by_state: &'a BTreeMap<String, u64>,
}

/// The standing picture of a user.
#[derive(Debug, Serialize)]
pub struct Picture<'a> {
    pub lines: Vec<PictureLine<'a>>,
    pub prompt: &'a str,
    pub tokens: usize,
}

#[derive(Debug, Serialize)]
pub struct PictureLine<'a> {
    pub section: &'static str,
    pub content: &'a str,
    pub memory: Id,
    pub kind: &'a str,
    pub created_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct ErrorBody<'a> {
    pub error: ErrorDetail<'a>,
}

#[derive(Debug, Serialize)]
pub struct ErrorDetail<'a> {
    pub code: &'static str,
    pub message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'a str>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

fn is_empty(map: &&BTreeMap<String, String>) -> bool {
    map.is_empty()
}

/// The content type of every message.
pub const JSON: &str = "application/json";

/// Writes a message.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and strings under string keys always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: impl Serialize, expected: &str) {
        assert_eq!(serde_json::to_string(&value).expect("plain data"), expected);
    }

    #[test]
    fn times_are_written_with_milliseconds_only_if_not_zero() {
        check(Moment(1_767_323_045_678), r#""2026-01-02T03:04:05.678Z""#);
        check(Moment(1_767_323_045_670), r#""2026-01-02T03:04:05.670Z""#);
        check(Moment(1_767_323_045_000), r#""2026-01-02T03:04:05Z""#);
        check(Moment(-1), r#""1969-12-31T23:59:59.999Z""#);
        check(Moment(i64::MAX), r#""9999-12-30T22:00:00.999Z""#);
        assert_eq!(Moment::parse("2026-01-02T05:04:05.678+02:00"), Some(Moment(1_767_323_045_678)));
        for bad in ["2026-01-02T03:04:05", "9999-12-31T23:59:59", "9999-12-31", "yesterday"] {
            assert_eq!(Moment::parse(bad), None, "{bad} has no zone");
        }
        for (text, ms) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("9999-12-31T23:59:59+02:00", 253_402_293_599_000),
            ("9999-12-31T23:59:59-12:00", 253_402_343_999_000),
        ] {
            assert_eq!(Moment::parse(text), Some(Moment(ms)), "{text}");
        }
    }

    #[test]
    fn numbers_are_written_with_at_most_six_decimals() {
        for (value, expected) in [
            (0.35, "0.35"),
            (0.1 + 0.2, "0.3"),
            (1.0, "1.0"),
            (1.0 / 3.0, "0.333333"),
            (-0.0, "0.0"),
            (f32::NAN, "0.0"),
        ] {
            check(Number(value), expected);
        }
        check(Numbers(&[("recency", 0.5), ("cosine", 0.25)]), r#"{"recency":0.5,"cosine":0.25}"#);
    }
}
