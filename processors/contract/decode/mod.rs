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

mod allowed_topics;
mod envelope;
mod event;
mod fields;
mod filter;
mod headers;
mod options;
mod request;

pub use allowed_topics::AllowedTopics;
pub use envelope::body_of;
pub use fields::{brief, names, plain, unknown_fields};
pub use headers::{
    REPLY_PARTITION, VIA, forwarded, hand_over, hop, is_repetition, may_be_forwarded, signed,
    signed_at,
};
pub use options::{DecodeOptions, HEADERS_BYTES_MAX, Hop, Schemas};

use broker::Record;
use domain::fault::Reject;
use domain::{Event, ReplyTo, Request};
use headers::{Address, Problem};

/// The result for one record.
#[derive(Clone, Debug)]
pub struct Decoded<T> {
    /// Set even if the body is invalid, so that the error can be sent to the sender.
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub outcome: Result<T, Reject>,
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
