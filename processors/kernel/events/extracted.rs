//! Stores the facts that a language model extracted from turns, as the compaction worker proposes.
//!
//! For each fact, in this order:
//!
//! 1. Refuse a fact that names no turn of those that were sent, or one that is gone: forgotten, taken
//!    back, or changed since the worker read it.
//! 2. Refuse facts that a `forget` covers, if sent after the worker read the turns.
//! 3. Refuse a preference or an instruction that rests on a turn of somebody else than the user.
//! 4. Drop facts that the profile never keeps.
//! 5. Merge a fact that an open memory states already. That memory stays as it is.
//! 6. Refuse a fact whose slot a memory of a later turn has given another value.
//! 7. Store the fact beside all other memories, with its turns as sources, the time of its newest
//!    turn and the role of the least trusted one.
//!
//! Invariant: nothing is closed, changed or linked, because a model's sentence must not outweigh
//! the user's own words. The fact goes when one of the turns is forgotten or given another value.

use crate::context::Context;
use crate::events::turn::confidence;
use crate::handled::Handled;
use crate::reads::Reads;
use crate::staged::Staged;
use crate::{quota, straggler, withheld};
use domain::fault::Result;
use domain::{
    Decision, Extracted, Fact, Memory, MemoryId, Outcome, Position, Role, Scope, Time, Vector,
};
use std::collections::BTreeMap;
use text::split::{self, Slot};
use text::{Language, Words};

/// Nearest memories that a fact is compared with.
const NEAR: usize = 10;
/// Share of a fact's stems in a memory that states the fact already.
const STATED: f32 = 0.8;
const IMPORTANCE: f32 = 0.5;

/// The turns that are still there as the worker read them.
struct Present {
    /// Their times and roles, by source.
    turns: BTreeMap<Position, (Time, Role)>,
    memories: Vec<Memory>,
    /// The extractor, for the reason of a memory.
    made: String,
}

pub fn extracted(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    extracted: &Extracted<Vector>,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let present = present(cx, staged, extracted)?;
    let newer = straggler::forgets_after(cx, staged, cx.event.at)?;
    for (place, fact) in extracted.facts.iter().enumerate() {
        let span = u32::try_from(place).unwrap_or(u32::MAX);
        let decision = if newer.cover_all() || newer.cover(&fact.content.text) {
            cx.withholding(Outcome::Refused, straggler::REASON)
        } else {
            match sources(extracted, fact, &present) {
                Ok(sources) => {
                    let memory = memory(cx, (span, fact), sources, &present);
                    decide(cx, staged, &mut handled, &present, (memory, &fact.content.vector))?
                }
                Err(why) => cx.decision(Outcome::Refused, why),
            }
        };
        handled.decide(decision);
    }
    if extracted.facts.is_empty() {
        let reason = format!("no fact extracted, {}", extracted.made);
        handled.decide(cx.decision(Outcome::Noted, reason));
    }
    Ok(handled)
}

fn present(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    extracted: &Extracted<Vector>,
) -> Result<Present> {
    let mut turns = BTreeMap::new();
    let last_at = match cx.session() {
        Some(name) => staged.session(cx.key(), name)?.map(|session| session.last_at),
        None => None,
    };
    let window = staged.window(cx.key(), cx.session())?;
    for said in &window.said {
        if let Some(source) = &said.source {
            turns.insert(source.clone(), (last_at.unwrap_or(cx.event.at), said.role));
        }
    }
    let mut memories = Vec::new();
    for seen in &extracted.seen {
        let memory = staged.memory(cx.key(), seen.id)?;
        if let Some(memory) = memory.filter(|memory| memory.version == seen.version) {
            turns.insert(memory.source.clone(), (memory.created_at, memory.role));
            memories.push(memory);
        }
    }
    // The worker read another version of a turn whose memory has changed since. A missing memory no
    // longer shows its turn, so then no turn counts.
    let changed = extracted.seen.iter().filter(|seen| memories.iter().all(|one| one.id != seen.id));
    for seen in changed {
        match staged.memory(cx.key(), seen.id)? {
            Some(memory) => drop(turns.remove(&memory.source)),
            None => turns.clear(),
        }
    }
    Ok(Present { turns, memories, made: extracted.made.to_string() })
}

/// The turns that the fact came from, oldest first, or why the fact is refused.
fn sources(
    extracted: &Extracted<Vector>,
    fact: &Fact<Vector>,
    present: &Present,
) -> std::result::Result<Vec<Position>, &'static str> {
    let named: Option<Vec<&Position>> =
        fact.turns.iter().map(|turn| extracted.turns.get(*turn)).collect();
    let Some(named) = named.filter(|named| !named.is_empty()) else {
        return Err("names no turn of those that the model read");
    };
    if named.iter().any(|turn| !present.turns.contains_key(*turn)) {
        return Err("a turn that it came from is gone or has changed");
    }
    let mut sources: Vec<Position> = named.into_iter().cloned().collect();
    sources.sort();
    sources.dedup();
    Ok(sources)
}

fn memory(
    cx: &Context<'_>,
    (span, fact): (u32, &Fact<Vector>),
    sources: Vec<Position>,
    present: &Present,
) -> Memory {
    let turns = || sources.iter().filter_map(|turn| present.turns.get(turn));
    let at = turns().map(|(at, _)| *at).max().unwrap_or(cx.event.at);
    let role = turns().map(|(_, role)| *role).max_by_key(|role| distance(*role));
    Memory {
        role: role.unwrap_or(Role::Tool),
        scope: Scope::User,
        importance: IMPORTANCE,
        // A conclusion about the user.
        confidence: confidence(Role::Assistant),
        created_at: at,
        valid_from: at,
        fresh_at: at,
        sources,
        ..cx.memory(span, &fact.content.text, fact.kind.clone())
    }
}

/// How far a role is from the user: the words of a tool may be those of any web page.
fn distance(role: Role) -> u8 {
    match role {
        Role::User => 0,
        Role::System => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
    }
}

fn decide(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    present: &Present,
    (mut memory, vector): (Memory, &Vector),
) -> Result<Decision> {
    let is_wish = cx.rules.policy.traits().ruling_kinds.contains(&memory.kind.as_str());
    if is_wish && memory.role != Role::User {
        let why = format!("a {} needs the user's own words", memory.kind.as_str());
        return Ok(about(cx.decision(Outcome::Refused, why), &memory));
    }
    if let Some(category) = withheld::never(&memory.content, cx.rules) {
        return Ok(cx.decision(Outcome::Dropped, withheld::never_reason(category)));
    }
    let slots = split::slots(&memory.content);
    if let Some(same) = stated_in(cx, staged, present, (&memory, vector), &slots)? {
        let merged = cx.decision(Outcome::Merged, "a memory states it already, and stays as it is");
        return Ok(Decision { memory: Some(same), ..about(merged, &memory) });
    }
    for slot in &slots {
        if let Some(later) = later_value(cx, staged, slot, &memory)? {
            let refused = cx.decision(Outcome::Refused, "a later turn gives another value");
            return Ok(Decision { related: vec![later], ..about(refused, &memory) });
        }
    }
    if let Some(why) = quota::refusal(cx, staged)? {
        handled.over_quota += 1;
        return Ok(about(cx.decision(Outcome::Refused, why), &memory));
    }
    memory.reason = format!("extracted from {} turns, {}", memory.sources.len(), present.made);
    let kept = cx.decision_about(&memory, Outcome::Kept, memory.reason.clone());
    let decision = about(kept, &memory);
    staged.put_memory_and_vector(memory, vector);
    Ok(decision)
}

fn about(decision: Decision, memory: &Memory) -> Decision {
    Decision {
        candidate: Some(memory.content.clone()),
        kind: Some(memory.kind.clone()),
        ..decision
    }
}

/// Finds an open memory that states the fact: the holder of the same value, or one that has nearly
/// all words of the fact.
fn stated_in(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    present: &Present,
    (fact, vector): (&Memory, &Vector),
    slots: &[Slot],
) -> Result<Option<MemoryId>> {
    for slot in slots {
        if let Some(holder) = staged.slot(cx.key(), &slot.name)?
            && holder.value == slot.value
            && let Some(memory) = staged.memory(cx.key(), holder.memory)?
            && memory.valid_to.is_none()
        {
            return Ok(Some(memory.id));
        }
    }
    let mut near = present.memories.clone();
    for (id, _) in cx.nearest_lasting(staged, vector, NEAR)? {
        near.extend(staged.memory(cx.key(), id)?);
    }
    let words = Words::of(&fact.content);
    let is_open =
        |memory: &&Memory| memory.valid_to.is_none() && !memory.archived && !memory.stands_alone();
    Ok(near
        .iter()
        .filter(is_open)
        .find(|memory| {
            let of_memory = Words::of(&memory.content);
            let language = of_memory.language().unwrap_or(Language::ENGLISH);
            let (mine, theirs) = (words.stems_in(language), of_memory.stems_in(language));
            let shared =
                mine.iter().filter(|stem| theirs.iter().any(|other| other == *stem)).count();
            !mine.is_empty() && shared as f32 >= STATED * mine.len() as f32
        })
        .map(|memory| memory.id))
}

/// The memory of a later turn that gives this slot another value.
fn later_value(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    slot: &Slot,
    fact: &Memory,
) -> Result<Option<MemoryId>> {
    let Some(holder) = staged.slot(cx.key(), &slot.name)? else { return Ok(None) };
    let memory = staged.memory(cx.key(), holder.memory)?;
    let is_later = |memory: &Memory| {
        memory.created_at > fact.created_at
            || (memory.created_at == fact.created_at && !fact.sources.contains(&memory.source))
    };
    Ok(memory.filter(|memory| holder.value != slot.value && is_later(memory)).map(|one| one.id))
}
