//! The limits of messages, and the hop of a forwarded record.

use super::allowed_topics::AllowedTopics;
use domain::fault::Reject;
use domain::{ForwardReason, Position, SigningKey, TenantKeys};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Bytes of a record's key and headers together, each header with 10 bytes for its lengths: twenty
/// times those of a busy tracing set-up. A broker limits a record only as its producer compressed
/// it, and a longer record might not fit where Keepsake writes it next.
pub const HEADERS_BYTES_MAX: usize = 32 << 10;
/// Bytes of one `metadata`, names and values together.
pub const METADATA_BYTES_MAX: usize = 2048;
/// Memories on a page of `list` and `duplicates` if the request does not say how many.
pub const LIST_LIMIT: usize = 50;
/// Queries of one request.
pub const QUERIES_MAX: usize = 8;
/// Kinds that one request may name: each is compared with each memory found.
pub const KINDS_MAX: usize = 64;
/// Conditions in the `where` of one request, at all levels: each is compared with each memory found,
/// and a request with conditions finds up to 10,000.
pub const CONDITIONS_MAX: usize = 64;
/// Levels of `$or`, `$and` and `$not` in a `where`: the check calls itself for each. Three levels can
/// express every filter; the others are for programs that join filters.
pub const CONDITIONS_DEPTH_MAX: usize = 8;
/// Milliseconds from a request's own time to the latest deadline that it may set. A later one counts
/// as this.
pub const DEADLINE_MS_MAX: i64 = 60_000;
/// Memories that one `feedback` may name, each of which is read and written: twice the most that
/// recall itself reports together.
pub const FEEDBACK_MAX: usize = 2000;
/// Turns read of a request's history, counted from the end.
pub const HISTORY_TURNS_MAX: usize = 10;

/// Limits, and defaults for the fields that a message leaves out.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    pub message_bytes_max: usize,
    pub content_bytes_max: usize,
    /// Topics that a sender may name for replies.
    pub reply_allowed: AllowedTopics,
    /// Topic for replies to senders that name none, or a forbidden one.
    pub replies_topic: String,
    pub default_deadline_ms: i64,
    /// Accepts `prune`, `summary` and `revise` from every sender, not only from Keepsake's own
    /// worker.
    pub trust_proposals: bool,
    /// Key that signs the records Keepsake writes to itself.
    pub signing_key: SigningKey,
    /// Keys of the tenants whose senders must sign.
    pub tenants: TenantKeys,
    pub recall_limit: usize,
    pub limit_max: usize,
    pub token_budget: usize,
    /// Milliseconds by which `at` may be after the record's own time. A later one is a mistake, such
    /// as seconds for milliseconds, and the record's time counts.
    pub at_ahead_ms_max: i64,
    /// Reads the values that are not JSON behind the Confluent prefix. `None`: they are rejected.
    pub schemas: Option<Arc<dyn Schemas>>,
}

/// The signed header fields of a record that Keepsake forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Position of the sender's own record.
    pub origin: Position,
    /// Position from which Keepsake last forwarded the record.
    pub via_partition: i32,
    pub via_offset: i64,
    pub way: ForwardReason,
    /// Timestamp of the record in milliseconds.
    pub at_ms: i64,
}

/// Values that are written by a schema, whose id stands in the Confluent prefix.
pub trait Schemas: fmt::Debug + Send + Sync {
    /// Returns the JSON object of the bytes behind the prefix.
    fn body(&self, id: u32, bytes: &[u8]) -> Result<Value, Reject>;
}
