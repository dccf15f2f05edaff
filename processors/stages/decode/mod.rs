//! Decode: bytes and headers become a checked `Event` or `Request`, or a `Reject` that says what to mend.
//! Knows nothing of shards, profiles or memories: the same record always decodes to the same value.

mod envelope;
mod event;
mod fields;
mod headers;
mod request;

pub use headers::{REDRIVEN, forwarded, may_be_forwarded, was_sent_before};

use crate::domain::{Event, MarkKey, Position, ReplyTo, Request};
use crate::fault::Reject;
use crate::ports::broker::Record;
use headers::{Address, Problem};

/// What is allowed, and what is meant where a message does not say.
#[derive(Clone, Debug)]
pub struct Options {
    pub message_bytes_max: usize,
    pub content_bytes_max: usize,
    pub metadata_bytes_max: usize,
    /// Names of topics; `*` stands for any characters.
    pub reply_allowed: Vec<String>,
    pub replies_topic: String,
    pub default_deadline_ms: i64,
    /// Takes `prune`, `summary` and `revise` from anybody, not only from our own worker.
    pub trust_proposals: bool,
    /// Signs what we write to ourselves, and shows that it was us.
    pub marks: MarkKey,
    pub recall_limit: usize,
    pub list_limit: usize,
    pub limit_max: usize,
    pub token_budget: usize,
    pub queries_max: usize,
    pub kinds_max: usize,
    /// From a request's own time: a later deadline counts as this.
    pub deadline_ms_max: i64,
    /// Memories that a feedback may name.
    pub feedback_max: usize,
    /// Of a longer history, the last turns are read.
    pub history_turns_max: usize,
}

#[derive(Clone, Debug)]
pub struct Decoded<T> {
    /// Known even where the body is bad, so that its sender can be told.
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub outcome: Result<T, Reject>,
}

/// What one of our own processors wrote on a record that it passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where the sender put it.
    pub origin: Position,
    /// Where we last read it.
    pub via_partition: i32,
    pub via_offset: i64,
    pub way: Way,
    pub at_ms: i64,
}

/// Why a record was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To its user's partition: its sender put it on another one.
    ToUser,
    /// To its tenant's partition, which gives the changes of a tenant's memories their order.
    ToOrder,
    /// From there to every partition, in that order.
    InOrder,
}

impl Way {
    /// As the header says it; a record on its way to its user's partition has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Way::ToUser => None,
            Way::ToOrder => Some("order"),
            Way::InOrder => Some("copy"),
        }
    }

    fn named(name: &[u8]) -> Option<Way> {
        [Way::ToOrder, Way::InOrder]
            .into_iter()
            .find(|way| way.name().map(str::as_bytes) == Some(name))
    }
}

/// Silent unless the sender named a reply topic. A forbidden one moves the reply to the default topic and costs nothing else:
/// a change must not be lost over its receipt.
pub fn event(record: &Record, options: &Options) -> Decoded<Event> {
    let Address { to, asked, problem } = headers::address(record, options);
    let (hop, hop_problem) = headers::hop(record, options);
    let outcome = match problem {
        Some(Problem::Unreadable(reject)) => Err(reject),
        Some(Problem::Forbidden(_)) | None => match hop_problem {
            Some(reject) => Err(reject),
            None => event::read(record, hop.as_ref(), options),
        },
    };
    Decoded { reply: asked.then_some(to), hop, outcome }
}

/// Every request is answered, on the default topic where it names none or a forbidden one.
pub fn request(record: &Record, options: &Options) -> Decoded<Request> {
    let Address { to, problem, .. } = headers::address(record, options);
    let (hop, hop_problem) = headers::hop(record, options);
    let problem = problem.map(Problem::into_reject).or(hop_problem);
    let outcome = problem.map_or_else(|| request::read(record, options), Err);
    Decoded { reply: Some(to), hop, outcome }
}

#[cfg(test)]
mod tests;
