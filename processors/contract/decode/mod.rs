//! Decodes records into checked [`Event`]s and [`Request`]s, or a [`Reject`] that names the field
//! at fault.
//!
//! 1. `headers` reads the reply address, the deadline and the hop of a forwarded record.
//! 2. `envelope` unwraps the body: plain JSON, behind the Confluent prefix, or CloudEvents.
//! 3. `event` and `request` read the fields of each type, checked by the functions of `fields`.
//!
//! Invariant: the same record with the same [`DecodeOptions`] always decodes to the same value, or is
//! rejected because its schema cannot be had now. Shards, profiles and memories are not consulted
//! here.

mod envelope;
mod event;
mod fields;
mod filter;
mod headers;
mod request;

pub use envelope::Schemas;
pub use fields::{names, plain, unknown_fields};
pub use headers::{
    AllowedTopics, REPLY_PARTITION, VIA, forwarded, hand_over, is_repetition, may_be_forwarded,
    signed, signed_at,
};

use broker::Record;
use domain::fault::Reject;
use domain::{Event, ForwardReason, Position, ReplyTo, Request, SigningKey, TenantKeys};
use headers::{Address, Problem};
use std::sync::Arc;

/// Bytes of a record's key and headers together, each header with 10 bytes for its lengths: twenty
/// times those of a busy tracing set-up. A broker limits a record only as its producer compressed
/// it, and a longer record might not fit where Keepsake writes it next.
pub const HEADERS_BYTES_MAX: usize = 32 << 10;
/// Bytes of one `metadata`, names and values together.
const METADATA_BYTES_MAX: usize = 2048;
/// Memories on a page of `list` and `duplicates` if the request does not say how many.
const LIST_LIMIT: usize = 50;
/// Queries of one request.
const QUERIES_MAX: usize = 8;
/// Kinds that one request may name: each is compared with each memory found.
const KINDS_MAX: usize = 64;
/// Conditions in the `where` of one request, at all levels: each is compared with each memory found,
/// and a request with conditions finds up to 10,000.
const CONDITIONS_MAX: usize = 64;
/// Levels of `$or`, `$and` and `$not` in a `where`: the check calls itself for each. Three levels can
/// express every filter; the others are for programs that join filters.
const CONDITIONS_DEPTH_MAX: usize = 8;
/// Milliseconds from a request's own time to the latest deadline that it may set. A later one counts
/// as this.
const DEADLINE_MS_MAX: i64 = 60_000;
/// Memories that one `feedback` may name, each of which is read and written: twice the most that
/// recall itself reports together.
const FEEDBACK_MAX: usize = 2000;
/// Turns read of a request's history, counted from the end.
const HISTORY_TURNS_MAX: usize = 10;

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

/// The result for one record.
#[derive(Clone, Debug)]
pub struct Decoded<T> {
    /// Set even if the body is invalid, so that the error can be sent to the sender.
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub outcome: Result<T, Reject>,
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

/// Returns the address of the reply that the sender of an event asked for, without a look at the
/// body.
pub fn reply_to(record: &Record, options: &DecodeOptions) -> Option<ReplyTo> {
    let Address { to, asked, .. } = headers::address(record, options);
    asked.then_some(to)
}

/// Decodes a record of the events topic. An event is answered only if its sender named a reply
/// topic. A forbidden reply topic only moves the reply to the default topic, and a malformed reply
/// partition is ignored: a change must not be lost over the receipt.
pub fn event(record: &Record, options: &DecodeOptions) -> Decoded<Event> {
    let Address { to, asked, .. } = headers::address(record, options);
    let (hop, hop_problem) = headers::hop(record, options);
    let outcome = headers::are_short(record, hop.as_ref())
        .and(hop_problem.map_or(Ok(()), Err))
        .and_then(|()| event::read(record, hop.as_ref(), options));
    Decoded { reply: asked.then_some(to), hop, outcome }
}

/// Decodes a record of the recalls topic. Every request is answered, on the default topic if the
/// request names no reply topic or a forbidden one.
pub fn request(record: &Record, options: &DecodeOptions) -> Decoded<Request> {
    let Address { to, problem, .. } = headers::address(record, options);
    let (hop, hop_problem) = headers::hop(record, options);
    let problem = problem.map(Problem::into_reject).or(hop_problem);
    let outcome = headers::are_short(record, hop.as_ref())
        .and(problem.map_or(Ok(()), Err))
        .and_then(|()| request::read(record, options));
    Decoded { reply: Some(to), hop, outcome }
}

#[cfg(test)]
mod tests;
