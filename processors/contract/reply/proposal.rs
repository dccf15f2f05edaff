//! Builds the events that Keepsake writes to itself: the proposals of the compaction worker, the
//! rest of a `forget`, and the feedback about returned memories.
//!
//! They pass through the events topic like any client's events, so a replay repeats them and the
//! ingest processor stays the only writer of a shard. Each is signed for its partition.

use super::view;
use crate::wire::{self, JSON, json};
use broker::OutgoingRecord;
use domain::{
    Authorship, Extracted, ForgetContinuation, IdleSession, Kind, MemoryId, MemoryVersion, Revise,
    SIGNATURE, Signal, SignedParts, SigningKey, Target, Time, UserKey,
};

/// The common fields of these events. The id is derived from the content, so that an equal second
/// proposal is a duplicate.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub key: &'a UserKey,
    pub id: &'a str,
    pub at: Time,
    /// Key of the signature, by which `contract/decode` accepts the event.
    pub signing_key: &'a SigningKey,
}

pub fn proposal_prune(
    proposal: &Proposal<'_>,
    memories: &[MemoryVersion],
    reason: &str,
) -> OutgoingRecord {
    let event = wire::OwnEvent {
        memories: Some(wire::Listing::Seen(view::seen(memories))),
        reason: Some(reason),
        ..common("prune", proposal)
    };
    published(proposal, &event)
}

/// A prune that erases memories, and clears the context windows of idle sessions. A program that
/// does not know the field archives the memories instead.
pub fn proposal_erase(
    proposal: &Proposal<'_>,
    memories: &[MemoryVersion],
    idle: &[IdleSession],
    reason: &str,
) -> OutgoingRecord {
    let idle = idle.iter().map(|one| wire::Idle {
        session: one.session.clone(),
        last_at: one.last_at.map(|at| at.0),
    });
    let event = wire::OwnEvent {
        memories: Some(wire::Listing::Seen(view::seen(memories))),
        reason: Some(reason),
        erase: true,
        idle: idle.collect(),
        ..common("prune", proposal)
    };
    published(proposal, &event)
}

/// A summary that the worker proposes.
#[derive(Clone, Copy, Debug)]
pub struct NewSummary<'a> {
    pub session: &'a str,
    pub content: &'a str,
    pub covers: &'a [MemoryVersion],
    /// The kind of a summary that stands for the covered memories from now on.
    pub compresses_as: Option<&'a str>,
    /// Set where the profile asks the language model.
    pub made: Option<&'a Authorship>,
}

pub fn proposal_summary(proposal: &Proposal<'_>, summary: &NewSummary<'_>) -> OutgoingRecord {
    let event = wire::OwnEvent {
        session: Some(summary.session),
        content: Some(summary.content),
        covers: Some(view::seen(summary.covers)),
        compresses_as: summary.compresses_as,
        by: summary.made.map(|made| made.by.as_str()),
        reason: summary.made.map(|made| made.reason.as_str()),
        ..common("summary", proposal)
    };
    published(proposal, &event)
}

pub fn proposal_revise(proposal: &Proposal<'_>, revise: &Revise) -> OutgoingRecord {
    let event = wire::OwnEvent {
        memory: view::seen(&[revise.memory]).pop(),
        revises: Some(view::judged(&revise.judged)),
        kind: revise.kind.as_ref().map(Kind::as_str),
        reason: Some(&revise.reason),
        ..common("revise", proposal)
    };
    published(proposal, &event)
}

pub fn proposal_extracted(
    proposal: &Proposal<'_>,
    session: &str,
    extracted: &Extracted,
) -> OutgoingRecord {
    let facts = extracted.facts.iter().map(|fact| wire::Fact {
        content: &fact.content.text,
        kind: fact.kind.as_str(),
        turns: &fact.turns,
    });
    let event = wire::OwnEvent {
        session: Some(session),
        turns: Some(extracted.turns.iter().map(|turn| view::event_position(turn, None)).collect()),
        seen: Some(view::seen(&extracted.seen)),
        facts: Some(facts.collect()),
        by: Some(extracted.made.by.as_str()),
        reason: Some(&extracted.made.reason),
        ..common("extracted", proposal)
    };
    published(proposal, &event)
}

/// A part of the rest of a `forget`. The id is that of the part.
pub fn forget_continuation(proposal: &Proposal<'_>, rest: &ForgetContinuation) -> OutgoingRecord {
    let event = wire::OwnEvent {
        memories: Some(wire::Listing::Ids(view::ids(&rest.memories))),
        left: Some(rest.left),
        part_of: rest.is_of_everything.then_some(Target::Everything.as_str()),
        sessions: &rest.sessions,
        continues: Some(view::event_position(&rest.continues, None)),
        ..common("forget", proposal)
    };
    published(proposal, &event)
}

pub fn feedback_returned(proposal: &Proposal<'_>, memories: &[MemoryId]) -> OutgoingRecord {
    let event = wire::OwnEvent {
        signal: Some(Signal::Returned.as_str()),
        memories: Some(wire::Listing::Ids(view::ids(memories))),
        ..common("feedback", proposal)
    };
    published(proposal, &event)
}

fn common<'a>(name: &'static str, proposal: &Proposal<'a>) -> wire::OwnEvent<'a> {
    wire::OwnEvent {
        name,
        tenant: proposal.key.tenant(),
        user: proposal.key.user(),
        id: Some(proposal.id),
        at: Some(view::moment(proposal.at)),
        ..wire::OwnEvent::default()
    }
}

fn published(proposal: &Proposal<'_>, event: &wire::OwnEvent<'_>) -> OutgoingRecord {
    let Proposal { topic, partition, key, signing_key, .. } = *proposal;
    let key = key.as_str().as_bytes();
    let value = json(event);
    let mut headers = vec![("content-type".to_owned(), JSON.into())];
    let signature = signing_key.sign(&SignedParts {
        topic,
        partition,
        key: Some(key),
        value: Some(&value),
        headers: &headers,
    });
    headers.push((SIGNATURE.to_owned(), signature));
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        timestamp_ms: None,
        key: Some(key.into()),
        value: Some(value),
        headers,
    }
}
