//! Reply: what was decided, found or refused becomes bytes, headers and a topic.
//! Knows nothing of why; what it writes is read by strangers, so every field here is in the contract.

mod proposal;
mod record;
mod view;

pub use proposal::{
    Proposal, feedback_returned, proposal_prune, proposal_revise, proposal_summary,
};
pub use record::{
    dead_letter, decision, memory_gone, memory_state, shadow, shard_meta, shard_state,
};

use crate::domain::{Cursor, Decision, Match, Memory, ReplyTo, Time};
use crate::fault::Reject;
use crate::ports::broker::{Headers, Outgoing};
use crate::wire;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far the shard had read, and how long the answer took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// -1: nothing, or it is not known here.
    pub applied_offset: i64,
    pub stale: bool,
    pub took_us: u64,
    /// The deadline cut the work short.
    pub partial: bool,
    /// The record came to a partition that is not its user's.
    pub misrouted: bool,
}

impl Default for Freshness {
    fn default() -> Freshness {
        Freshness { applied_offset: -1, stale: false, took_us: 0, partial: false, misrouted: false }
    }
}

#[derive(Clone, Debug)]
pub struct Found {
    pub memory: Arc<Memory>,
    pub score: f32,
    /// The probability that it answers, where the policy knows one.
    pub relevance: Option<f32>,
    /// The numbers that made the score, in the order they are shown.
    pub terms: Vec<(&'static str, f32)>,
    /// For a revised memory: on which day it was revised, and by which words.
    pub note: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Recalled {
        memories: Vec<Found>,
        /// Match of the memories with the question, if the policy knows relevance.
        matched: Option<Match>,
        prompt: String,
        tokens: usize,
        /// The share of the token budget, 0 to 1.
        budget_used: f32,
        explain: bool,
    },
    Listed {
        memories: Vec<Memory>,
        after: Option<Cursor>,
    },
    Memory {
        memory: Memory,
        history: bool,
    },
    /// At least one decision; of several, the first is the one that is asked about.
    Explained {
        decisions: Vec<Decision>,
        memory: Option<Memory>,
    },
    Stats(Stats),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    pub memories: u64,
    pub by_kind: BTreeMap<String, u64>,
    pub by_scope: BTreeMap<String, u64>,
    pub by_state: BTreeMap<String, u64>,
    pub average_importance: f32,
    pub oldest: Option<Time>,
    pub bytes: u64,
    pub decisions: BTreeMap<String, u64>,
}

/// The receipt of an event, to be sent after its effect is committed. Partition and offset are the event's own on its user's partition.
pub fn applied(
    to: &ReplyTo,
    decisions: &[Decision],
    partition: i32,
    offset: i64,
    freshness: &Freshness,
) -> Outgoing {
    let decisions = decisions.iter().map(|decision| view::decision(decision, true)).collect();
    sent(to, "applied", "ok", wire::Applied { decisions, partition, offset }, freshness)
}

pub fn answer(to: &ReplyTo, answer: &Answer, freshness: &Freshness) -> Outgoing {
    match answer {
        Answer::Recalled { memories, matched, prompt, tokens, budget_used, explain } => {
            let memories = memories.iter().map(|found| view::found(found, *explain)).collect();
            let budget_used = wire::Number(*budget_used);
            let body = wire::Recalled {
                memories,
                matched: matched.map(Match::as_str),
                prompt,
                tokens: *tokens,
                budget_used,
            };
            sent(to, "recalled", "ok", body, freshness)
        }
        Answer::Listed { memories, after } => {
            let memories = memories.iter().map(view::memory).collect();
            sent(
                to,
                "listed",
                "ok",
                wire::Listed { memories, after: after.as_ref().map(view::cursor) },
                freshness,
            )
        }
        Answer::Memory { memory, history } => {
            let history = history.then(|| view::history(memory));
            sent(
                to,
                "memory",
                "ok",
                wire::OneMemory { memory: view::whole_memory(memory), history },
                freshness,
            )
        }
        Answer::Explained { decisions, memory } => {
            sent(to, "explained", "ok", view::explained(decisions, memory.as_ref()), freshness)
        }
        Answer::Stats(stats) => sent(to, "stats", "ok", view::stats(stats), freshness),
    }
}

/// Why there is no answer. Without a shard to ask, nothing is known of its freshness.
pub fn refusal(to: &ReplyTo, reject: &Reject, freshness: Option<&Freshness>) -> Outgoing {
    let error = wire::ErrorDetail {
        code: reject.code.as_str(),
        message: &reject.message,
        field: reject.field.as_deref(),
    };
    let unknown = Freshness::default();
    sent(
        to,
        "error",
        reject.code.status(),
        wire::ErrorBody { error },
        freshness.unwrap_or(&unknown),
    )
}

fn sent(
    to: &ReplyTo,
    name: &'static str,
    status: &'static str,
    body: impl Serialize,
    freshness: &Freshness,
) -> Outgoing {
    let mut headers: Headers = to.echo.clone();
    for (name, value) in [
        ("content-type", JSON.to_owned()),
        ("keepsake-status", status.to_owned()),
        ("keepsake-applied-offset", freshness.applied_offset.to_string()),
        ("keepsake-took-us", freshness.took_us.to_string()),
    ] {
        headers.push((name.to_owned(), value.into_bytes()));
    }
    let value = wire::Reply { name, status, body, freshness: view::freshness(freshness) };
    Outgoing {
        topic: to.topic.clone(),
        partition: to.partition,
        timestamp_ms: None,
        key: to.key.clone(),
        value: Some(json(&value)),
        headers,
    }
}

const JSON: &str = "application/json";

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value)
        .expect("structs of numbers and strings with string keys are always JSON")
}

#[cfg(test)]
mod tests;
