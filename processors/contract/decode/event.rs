//! Decodes a record of the events topic: turns, commands, and the compaction worker's proposals.
//!
//! Each type has a function from its body to an [`Action`], named in `action_named`. To add a type,
//! add the wire struct, the function and the name there. Proposals are accepted only with
//! Keepsake's own signature, unless `trust_proposals` is set.

use super::envelope::{self, Envelope};
use super::fields::{
    self, check_count, checked_metadata, content, kind, not_a_name, required, share, time,
    unknown_type, variant, word,
};
use super::headers;
use super::options::{DecodeOptions, FEEDBACK_MAX, Hop};
use crate::wire::{self, Moment};
use broker::Record;
use domain::fault::{Reject, RejectCode};
use domain::{
    Action, Authorship, Content, Event, Extracted, Fact, Forget, ForgetContinuation, IdleSession,
    JudgedMemory, MemoryId, MemoryVersion, Position, Remember, Revise, SENDER_LIMITS, Scope,
    SenderLimits, Signal, Target, Time, Turn, Update, UserKey,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::Cell;
use std::collections::HashSet;

/// Decodes an event. The id is that of the body or else of the envelope, and the time that of the
/// body, the envelope or else the record.
pub fn read(record: &Record, hop: Option<&Hop>, options: &DecodeOptions) -> Result<Event, Reject> {
    let Envelope { name, id, at, body } = envelope::open(record, options)?;
    let action = action_named(&name)?;
    let is_own = options.trust_proposals || headers::is_own(record, options);
    // No process forwards a proposal that was not signed, so a forwarded one was Keepsake's own.
    let is_trusted = is_own || headers::is_signed(record, options);
    if is_proposal(&name) && !is_trusted {
        return Err(Reject::new(
            RejectCode::Untrusted,
            format!("only the compaction worker may send a {name}"),
        ));
    }
    let common: wire::Common = fields::read(&body)?;
    let key = key(&name, &common)?;
    headers::from_tenant(key.tenant(), record, options)?;
    let message = EventBody {
        body: &body,
        common: &common,
        session: word("session", common.session.clone())?,
        is_own,
        options,
        known: Cell::default(),
    };
    let metadata = checked_metadata("metadata", common.metadata.clone().unwrap_or_default())?;
    let action = action(&message)?;
    let known = [fields::names::<wire::Common>(), message.known.get()];
    let mut warnings = fields::unknown_fields(&body, &known);
    let (at, too_late) = time_of(common.at.or(at), record, options);
    warnings.extend(too_late);
    Ok(Event {
        key,
        id: word("id", common.id.clone().or(id))?,
        at,
        warnings,
        metadata,
        source: hop.map_or_else(|| position(record), |hop| hop.origin.clone()),
        limits: SenderLimits::parsed(record.header(SENDER_LIMITS)),
        action,
        session: message.session,
    })
}

/// The body of an event, with the fields that all types share.
struct EventBody<'a> {
    body: &'a Value,
    common: &'a wire::Common,
    session: Option<String>,
    /// Written by Keepsake itself.
    is_own: bool,
    options: &'a DecodeOptions,
    /// Names of the fields that were last read.
    known: Cell<&'static [&'static str]>,
}

impl EventBody<'_> {
    fn fields<T: DeserializeOwned>(&self) -> Result<T, Reject> {
        self.known.set(fields::names::<T>());
        fields::read(self.body)
    }
}

/// Returns the time of the event. A time too far after the record's own would close every later
/// statement of the same fact, and outlive every retention: the record's time counts instead, with
/// a warning. A record without a time of its own has nothing to compare with.
fn time_of(
    given: Option<Moment>,
    record: &Record,
    options: &DecodeOptions,
) -> (Time, Option<String>) {
    let recorded = Time(record.timestamp_ms);
    let Some(given) = given.map(time) else { return (recorded, None) };
    if recorded.0 <= 0 || given.ms_since(recorded) <= options.at_ahead_ms_max {
        return (given, None);
    }
    (recorded, Some("at: more than a day after the record, whose time counts instead".to_owned()))
}

type ReadAction = fn(&EventBody<'_>) -> Result<Action, Reject>;

fn action_named(name: &str) -> Result<ReadAction, Reject> {
    Ok(match name {
        "turn" => turn,
        "remember" => remember,
        "update" => update,
        "forget" => forget,
        "feedback" => feedback,
        "tick" => |_| Ok(Action::Tick),
        "prune" => prune,
        "summary" => summary,
        "revise" => revise,
        "extracted" => extracted,
        _ => {
            let known = "an event (turn, remember, update, forget, feedback, tick)";
            return Err(unknown_type(known, name));
        }
    })
}

fn is_proposal(name: &str) -> bool {
    matches!(name, "prune" | "summary" | "revise" | "extracted")
}

/// Returns the owner of the memories that the event changes. A tick belongs to no user. An empty
/// user stands for the tenant's memories, and only the compaction worker may use it.
fn key(name: &str, common: &wire::Common) -> Result<UserKey, Reject> {
    let tenant = common.tenant.as_deref().unwrap_or("default");
    if name == "tick" {
        return UserKey::of_tenant(tenant).map_err(not_a_name);
    }
    let user = required("user", common.user.as_deref())?;
    let shared = is_proposal(name) && user.is_empty();
    if shared { UserKey::of_tenant(tenant) } else { UserKey::new(tenant, user) }.map_err(not_a_name)
}

fn position(record: &Record) -> Position {
    Position {
        topic: record.topic.as_str().into(),
        partition: record.partition,
        offset: record.offset,
    }
}

fn turn(message: &EventBody<'_>) -> Result<Action, Reject> {
    let turn: wire::Turn = message.fields()?;
    let turn = Turn {
        role: variant("role", turn.role)?.unwrap_or_default(),
        speaker: word("speaker", turn.speaker)?,
        content: content("content", required("content", turn.content)?, message.options)?,
        kind: kind(turn.kind)?,
        remember: turn.remember.unwrap_or(true),
    };
    Ok(Action::Turn(turn, ()))
}

fn remember(message: &EventBody<'_>) -> Result<Action, Reject> {
    let remember: wire::Remember = message.fields()?;
    let scope: Scope = variant("scope", remember.scope)?.unwrap_or_default();
    if scope == Scope::Session && message.session.is_none() {
        return Err(Reject::of_field(
            "session",
            "is missing: no recall could name the session of this memory",
        ));
    }
    Ok(Action::Remember(Remember {
        content: content("content", required("content", remember.content)?, message.options)?
            .into(),
        kind: kind(remember.kind)?,
        importance: share("importance", remember.importance)?.unwrap_or(1.0),
        confidence: share("confidence", remember.confidence)?,
        stability: share("stability", remember.stability)?,
        scope,
        expires_at: remember.expires_at.map(time),
    }))
}

fn update(message: &EventBody<'_>) -> Result<Action, Reject> {
    let update: wire::Update = message.fields()?;
    let update = Update {
        memory: memory(required("memory", update.memory)?),
        content: update
            .content
            .map(|text| not_empty(content("content", text, message.options)?))
            .transpose()?
            .map(Content::from),
        kind: kind(update.kind)?,
        importance: share("importance", update.importance)?,
        confidence: share("confidence", update.confidence)?,
        stability: share("stability", update.stability)?,
        enabled: update.enabled,
        replaces_metadata: message.common.metadata.is_some(),
    };
    let changes_nothing = update.content.is_none()
        && update.kind.is_none()
        && update.importance.is_none()
        && update.confidence.is_none()
        && update.stability.is_none()
        && update.enabled.is_none()
        && !update.replaces_metadata;
    if changes_nothing {
        return Err(Reject::of_field(
            "content",
            "is missing, and so is every other change: kind, importance, confidence, stability, \
             enabled, metadata",
        ));
    }
    Ok(Action::Update(update))
}

/// Refuses a content without a character to read: an update to it would erase the memory's text
/// without a receipt.
fn not_empty(text: String) -> Result<String, Reject> {
    if text.trim().is_empty() {
        return Err(Reject::of_field("content", "is empty: send a forget to erase the memory"));
    }
    Ok(text)
}

/// Decodes a forget event with exactly one target. Two targets could mean "both" or "one within the
/// other", and a deletion cannot be undone.
fn forget(message: &EventBody<'_>) -> Result<Action, Reject> {
    if message.is_own
        && let Some(rest) = rest(message)?
    {
        return Ok(Action::Forget(Forget::ForgetContinuation(rest)));
    }
    let forget: wire::Forget = message.fields()?;
    let query = match forget.query.filter(|query| !query.is_empty()) {
        Some(query) => Some(Forget::Query(content("query", query, message.options)?.into())),
        None => None,
    };
    let targets = [
        forget.memory.map(|id| Forget::Memory(memory(id))),
        message.session.clone().map(Forget::Session),
        query,
        (forget.everything == Some(true)).then_some(Forget::Everything),
    ];
    let mut targets = targets.into_iter().flatten();
    match (targets.next(), targets.next()) {
        (Some(target), None) => Ok(Action::Forget(target)),
        (None, _) => {
            Err(Reject::of_field("memory", "is missing, as are session, query and everything"))
        }
        _ => Err(Reject::of_field(
            "memory",
            "only one of memory, session, query and everything can be forgotten at once",
        )),
    }
}

/// Decodes the rest of a forget. From others, `memories` is an unknown field.
fn rest(message: &EventBody<'_>) -> Result<Option<ForgetContinuation>, Reject> {
    let wire::ForgetContinuation { memories, left, continues, part_of, sessions } =
        message.fields()?;
    let (Some(memories), Some(first)) = (memories, continues) else { return Ok(None) };
    Ok(Some(ForgetContinuation {
        continues: Position {
            topic: first.topic.into(),
            partition: first.partition,
            offset: first.offset,
        },
        memories: memories.into_iter().map(memory).collect(),
        left: left.unwrap_or(0),
        is_of_everything: part_of.as_deref() == Some(Target::Everything.as_str()),
        sessions,
    }))
}

fn feedback(message: &EventBody<'_>) -> Result<Action, Reject> {
    let feedback: wire::Feedback = message.fields()?;
    let several = match feedback.memories {
        Some(several) if several.is_empty() => {
            return Err(Reject::of_field("memories", "is empty"));
        }
        several => several.unwrap_or_default(),
    };
    let mut memories: Vec<MemoryId> = Vec::with_capacity(several.len() + 1);
    memories.extend(feedback.memory.into_iter().chain(several).map(memory));
    if memories.is_empty() {
        return Err(Reject::of_field("memory", "is missing, as is memories"));
    }
    check_count("memories", memories.len(), FEEDBACK_MAX)?;
    let signal = required("signal", variant("signal", feedback.signal)?)?;
    // Without duplicates, because a memory that is named twice would count twice. The recall
    // processor reports several recalls in one event, and names a memory once for each.
    if !(message.is_own && signal == Signal::Returned) {
        let mut known = HashSet::new();
        memories.retain(|memory| known.insert(*memory));
    }
    Ok(Action::Feedback { memories, signal })
}

fn prune(message: &EventBody<'_>) -> Result<Action, Reject> {
    let prune: wire::Prune = message.fields()?;
    let reason = required("reason", prune.reason)?;
    let idle = prune
        .idle
        .into_iter()
        .flatten()
        .map(|one| IdleSession { session: one.session, last_at: one.last_at.map(Time) });
    let idle: Vec<IdleSession> = idle.collect();
    let memories = match idle.is_empty() {
        true => seen("memories", prune.memories)?,
        false => prune.memories.into_iter().flatten().map(version).collect(),
    };
    Ok(Action::Prune { memories, reason, erases: prune.erase.unwrap_or(false), idle })
}

fn summary(message: &EventBody<'_>) -> Result<Action, Reject> {
    let summary: wire::Summary = message.fields()?;
    required("session", message.session.as_ref())?;
    let text = content("content", required("content", summary.content)?, message.options)?;
    let made = match variant("by", summary.by)? {
        Some(by) => Some(Authorship { by, reason: required("reason", summary.reason)? }),
        None => None,
    };
    Ok(Action::Summary {
        content: text.into(),
        covers: seen("covers", summary.covers)?,
        compresses_as: kind(summary.compresses_as)?,
        made,
    })
}

fn revise(message: &EventBody<'_>) -> Result<Action, Reject> {
    let revise: wire::Revise = message.fields()?;
    let newer = required("memory", revise.memory)?;
    let earlier = required("revises", revise.revises)?;
    let kind = kind(revise.kind)?;
    if earlier.is_empty() && kind.is_none() {
        return Err(Reject::of_field("revises", "is empty, and no kind is given"));
    }
    let judged = earlier
        .into_iter()
        .map(|wire::Judged { id, version, probability }| {
            let memory = MemoryVersion { id: memory(id), version };
            let probability = required("probability", share("probability", Some(probability))?)?;
            Ok(JudgedMemory { memory, probability })
        })
        .collect::<Result<_, Reject>>()?;
    Ok(Action::Revise(Revise {
        memory: MemoryVersion { id: memory(newer.id), version: newer.version },
        judged,
        kind,
        reason: required("reason", revise.reason)?,
    }))
}

/// Facts of one event: more than a worker asks for, and each is encoded.
const FACTS_MAX: usize = 64;

fn extracted(message: &EventBody<'_>) -> Result<Action, Reject> {
    let extracted: wire::Extracted = message.fields()?;
    required("session", message.session.as_ref())?;
    let facts = required("facts", extracted.facts)?;
    check_count("facts", facts.len(), FACTS_MAX)?;
    let turns = required("turns", extracted.turns)?.into_iter().map(|turn| Position {
        topic: turn.topic.into(),
        partition: turn.partition,
        offset: turn.offset,
    });
    let mut read = Vec::with_capacity(facts.len());
    for fact in facts {
        read.push(Fact {
            content: content("facts", fact.content, message.options)?.into(),
            kind: required("facts", kind(Some(fact.kind))?)?,
            turns: fact.turns,
        });
    }
    let by = required("by", variant("by", extracted.by)?)?;
    Ok(Action::Extracted(Extracted {
        turns: turns.collect(),
        seen: extracted.seen.unwrap_or_default().into_iter().map(version).collect(),
        facts: read,
        made: Authorship { by, reason: required("reason", extracted.reason)? },
    }))
}

fn version(seen: wire::Seen) -> MemoryVersion {
    MemoryVersion { id: memory(seen.id), version: seen.version }
}

fn seen(field: &str, list: Option<Vec<wire::Seen>>) -> Result<Vec<MemoryVersion>, Reject> {
    let list = required(field, list)?;
    if list.is_empty() {
        return Err(Reject::of_field(field, "is empty"));
    }
    Ok(list.into_iter().map(version).collect())
}

fn memory(id: wire::Id) -> MemoryId {
    MemoryId(id.0)
}
