//! Turns the results of the processors into records: bytes, headers and a topic.
//!
//! `view.rs` maps domain values to the structs of `wire.rs`. This file writes replies, `record.rs`
//! decisions and dead letters, `proposal.rs` the events that Keepsake writes to itself. No
//! code here decides anything. Clients read every field, so each is part of the contract in
//! `schemas/`.

mod generation;
mod parts;
mod proposal;
mod record;
mod view;

pub use generation::hand_over;
pub use proposal::{
    NewSummary, Proposal, feedback_returned, forget_continuation, proposal_erase,
    proposal_extracted, proposal_prune, proposal_revise, proposal_summary,
};
pub use record::{
    DeadLetters, RECEIPT_LISTED_MAX, REQUEST_HEAD, TRUNCATED, dead_letter, dead_request, decision,
    erasure, shadow, tenant_of,
};

pub use crate::wire::JSON;
pub use parts::{DuplicatePair, FadeCurve, Freshness, Picture, PictureLine, RecalledMemory, Stats};

use crate::wire::{self, ECHOED, json};
use broker::{Headers, OutgoingRecord};
use domain::fault::Reject;
use domain::{Assembly, Cursor, Decision, Levels, Match, Memory, ReplyTo};
use serde::Serialize;

#[derive(Clone, Debug)]
pub enum Answer {
    Recalled {
        memories: Vec<RecalledMemory>,
        /// Wishes for every answer in the block beside these.
        wishes: Vec<RecalledMemory>,
        /// Strength of the best memory as an answer, if the policy estimates relevance.
        matched: Option<Match>,
        /// The place of the block in the prompt, if the policy names one.
        placement: Option<&'static str>,
        prompt: String,
        tokens: usize,
        /// The used share of the token budget, 0 to 1.
        budget_used: f32,
        /// The terms of each score, and the levels, if the request asks for them.
        explain: bool,
        levels: Levels,
        /// The parts of the block, if the policy assembles it of parts.
        assembly: Option<Assembly>,
    },
    Listed {
        memories: Vec<Memory>,
        after: Option<Cursor>,
        /// Memories that meet the conditions, on all pages.
        total: usize,
    },
    Memory {
        memory: Memory,
        history: bool,
    },
    /// At least one decision. If there are several, the first is the one of the request.
    Explained {
        decisions: Vec<Decision>,
        memory: Option<Memory>,
        fade: Option<FadeCurve>,
    },
    Stats(Stats),
    About(Picture),
    Duplicates {
        pairs: Vec<DuplicatePair>,
        /// The least cosine of a pair.
        level: f32,
        /// Memories of this page that were compared with all others.
        compared: usize,
        after: Option<Cursor>,
    },
}

/// Builds the receipt of an event, to be sent after the commit. `partition` and `offset` are those
/// of the event on its user's partition.
pub fn applied(
    to: &ReplyTo,
    decisions: &[Decision],
    partition: i32,
    offset: i64,
    freshness: &Freshness,
) -> OutgoingRecord {
    let decisions = decisions.iter().map(view::own_decision).collect();
    ok(to, "applied", wire::Applied { decisions, partition, offset }, freshness)
}

/// Builds the reply to a request.
pub fn answer(to: &ReplyTo, answer: &Answer, freshness: &Freshness) -> OutgoingRecord {
    match answer {
        Answer::Recalled {
            memories,
            wishes,
            matched,
            placement,
            prompt,
            tokens,
            budget_used,
            explain,
            levels,
            assembly,
        } => {
            let body = wire::Recalled {
                memories: memories.iter().map(|found| view::found(found, *explain)).collect(),
                wishes: wishes.iter().map(|found| view::found(found, *explain)).collect(),
                matched: matched.map(Match::as_str),
                placement: *placement,
                prompt,
                tokens: *tokens,
                budget_used: wire::Number(*budget_used),
                levels: explain.then(|| view::levels(levels)).flatten(),
                metadata: assembly.as_ref().map(view::assembly),
            };
            ok(to, "recalled", body, freshness)
        }
        Answer::Listed { memories, after, total } => {
            let body = wire::Listed {
                memories: memories.iter().map(view::memory).collect(),
                after: after.as_ref().map(view::cursor),
                total: *total,
            };
            ok(to, "listed", body, freshness)
        }
        Answer::Memory { memory, history } => {
            let body = wire::OneMemory {
                memory: view::whole_memory(memory),
                history: history.then(|| view::history(memory)),
                context: view::context(memory),
            };
            ok(to, "memory", body, freshness)
        }
        Answer::Explained { decisions, memory, fade } => {
            let body = view::explained(decisions, memory.as_ref(), fade.as_ref());
            ok(to, "explained", body, freshness)
        }
        Answer::Stats(stats) => ok(to, "stats", view::stats(stats), freshness),
        Answer::About(picture) => ok(to, "about", view::picture(picture), freshness),
        Answer::Duplicates { pairs, level, compared, after } => {
            let body = wire::FoundDuplicates {
                pairs: pairs.iter().map(view::pair).collect(),
                level: wire::Number(*level),
                compared: *compared,
                after: after.as_ref().map(view::cursor),
            };
            ok(to, "duplicates", body, freshness)
        }
    }
}

/// Builds the error reply to a refused record. `freshness` is `None` if no shard was read.
pub fn refusal(to: &ReplyTo, reject: &Reject, freshness: Option<&Freshness>) -> OutgoingRecord {
    let error = wire::ErrorDetail {
        code: reject.code.as_str(),
        message: &reject.message,
        field: reject.field.as_deref(),
    };
    let nothing_read = Freshness::default();
    let reply = wire::Reply {
        name: "error",
        status: reject.code.status(),
        body: wire::ErrorBody { error },
        freshness: view::freshness(freshness.unwrap_or(&nothing_read)),
    };
    published_to(to, &reply)
}

/// Builds the error that takes the place of a reply: for the same sender, on another topic or
/// partition.
pub fn instead_of(
    reply: &OutgoingRecord,
    topic: &str,
    partition: Option<i32>,
    reject: &Reject,
) -> OutgoingRecord {
    let mut echo = reply.headers.clone();
    echo.retain(|(name, _)| ECHOED.contains(&name.as_str()));
    let to = ReplyTo { topic: topic.to_owned(), partition, key: reply.key.clone(), echo };
    refusal(&to, reject, None)
}

fn ok(
    to: &ReplyTo,
    name: &'static str,
    body: impl Serialize,
    freshness: &Freshness,
) -> OutgoingRecord {
    let freshness = view::freshness(freshness);
    published_to(to, &wire::Reply { name, status: "ok", body, freshness })
}

fn published_to(to: &ReplyTo, reply: &wire::Reply<'_, impl Serialize>) -> OutgoingRecord {
    let mut headers: Headers = to.echo.clone();
    for (name, value) in [
        ("content-type", JSON.to_owned()),
        ("keepsake-status", reply.status.to_owned()),
        ("keepsake-applied-offset", reply.freshness.applied_offset.to_string()),
        ("keepsake-took-us", reply.freshness.took_us.to_string()),
    ] {
        headers.push((name.to_owned(), value.into_bytes()));
    }
    OutgoingRecord {
        topic: to.topic.clone(),
        partition: to.partition,
        timestamp_ms: None,
        key: to.key.clone(),
        value: Some(json(reply)),
        headers,
    }
}

#[cfg(test)]
mod tests;

/// Builds the value of a record of the memories topic.
pub fn memory(memory: &Memory) -> Vec<u8> {
    json(&view::whole_memory(memory))
}
