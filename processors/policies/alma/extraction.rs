//! Extracts memories from the last messages of a conversation at once. Until then the messages wait
//! in the archive, where no recall finds them.
//!
//!   1. Collect the waiting messages of this conversation.
//!   2. With fewer than `every_answers` answers, remove the messages that the next extraction will
//!      not read, and stop.
//!   3. Otherwise read the last messages and store an episode.
//!   4. For each extracted message, activate the waiting memory, or count a use of the memory with
//!      the same statement. Remove all other waiting messages.

use super::gate::{self, Episode, Extracted, Gate, Message};
use super::{WAITING, WAITS};
use crate::shared::memories_and_archive;
use domain::fault::Result;
use domain::{Decision, Kind, Memory, MemoryId, Outcome, Position, Role, Turn};
use memory::context::Context;
use memory::handled::Handled;
use memory::reads::Reads;
use memory::staged::Staged;
use std::collections::BTreeSet;

const EPISODE: &str = "episode";
/// Span from which the episode's id is made. No candidate has this span.
const EPISODE_SPAN: u32 = u32::MAX;
/// The article gives an episode no importance.
const EPISODE_IMPORTANCE: f32 = 0.5;
const SUMMARY_CHARS: usize = 200;

pub fn extract(
    gate: &Gate,
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    turn: &Turn,
    handled: &mut Handled,
) -> Result<()> {
    let (waiting, mut known) = waiting_and_known(cx, staged)?;
    let read = last_messages(&waiting, gate);
    let is_answer = |memory: &&Memory| memory.role == Role::Assistant;
    let answers = sources(waiting.iter().filter(is_answer)).len();
    if turn.role != Role::Assistant || answers < gate.every_answers {
        // Answers stay, because the next extraction is due after `every_answers` of them.
        for memory in waiting.iter().filter(|memory| !is_answer(memory)) {
            if read.iter().all(|other| other.id != memory.id) {
                staged.remove_memory(cx.key(), memory.id)?;
            }
        }
        return Ok(());
    }
    let messages: Vec<Message<'_>> = read.iter().map(message).collect();
    let extracted = gate::extract(gate, &messages);
    if let Some(episode) = gate::episode(&messages) {
        // Order matters: the message that the episode quotes may be removed with its vector.
        put_episode(cx, staged, &read, &episode)?;
    }
    let mut kept = BTreeSet::new();
    for one in &extracted {
        kept.extend(activate(cx, staged, gate, &read[one.message], one, &mut known));
    }
    for memory in waiting.iter().filter(|memory| !kept.contains(&memory.id)) {
        staged.remove_memory(cx.key(), memory.id)?;
    }
    let reason = format!("{} of {} messages extracted", kept.len(), sources(read.iter()).len());
    for decision in handled.decisions.iter_mut().filter(|one| one.candidate.is_some()) {
        rewrite(decision, &kept, &reason);
    }
    Ok(())
}

/// Returns the waiting messages of this conversation, oldest first, and the active memories.
fn waiting_and_known(cx: &Context<'_>, staged: &Staged<'_>) -> Result<(Vec<Memory>, Vec<Memory>)> {
    let (archived, mut known): (Vec<Memory>, Vec<Memory>) =
        memories_and_archive(cx, staged)?.into_iter().partition(|memory| memory.archived);
    known.retain(|memory| !memory.stands_alone());
    let mut waiting = archived;
    waiting.retain(|memory| memory.reason == WAITS && memory.session.as_deref() == cx.session());
    Ok((waiting, known))
}

fn sources<'m>(memories: impl Iterator<Item = &'m Memory>) -> BTreeSet<&'m Position> {
    memories.map(|memory| &memory.source).collect()
}

/// Returns the parts of the last messages. A long message waits in several parts and counts once.
fn last_messages(waiting: &[Memory], gate: &Gate) -> Vec<Memory> {
    let mut last: Vec<&Position> = Vec::new();
    for memory in waiting.iter().rev() {
        if !last.contains(&&memory.source) && last.len() < gate.messages {
            last.push(&memory.source);
        }
    }
    waiting.iter().filter(|memory| last.contains(&&memory.source)).cloned().collect()
}

fn message(memory: &Memory) -> Message<'_> {
    let hint = (memory.kind.as_str() != WAITING).then_some(&memory.kind);
    Message { role: memory.role, content: &memory.content, hint }
}

/// Activates a waiting memory, or counts a use of an active one with the same statement. Returns
/// the id of the memory that was activated.
fn activate(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    gate: &Gate,
    waiting: &Memory,
    one: &Extracted,
    known: &mut Vec<Memory>,
) -> Option<MemoryId> {
    let same = gate::same(gate, &waiting.content, known);
    if let Some(old) = known.iter_mut().find(|memory| Some(memory.id) == same) {
        old.uses += 1;
        old.fresh_at = old.fresh_at.max(cx.event.at);
        cx.touch(old);
        staged.put_memory(old.clone());
        return None;
    }
    let category = one.category.as_str();
    let mut memory = Memory {
        archived: false,
        kind: one.category.clone(),
        importance: one.importance,
        confidence: one.confidence,
        reason: format!("extracted: {category} of importance {}", one.importance),
        ..waiting.clone()
    };
    cx.touch(&mut memory);
    known.push(memory.clone());
    let id = memory.id;
    staged.put_memory(memory);
    Some(id)
}

fn put_episode(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    read: &[Memory],
    episode: &Episode,
) -> Result<()> {
    let quoted = &read[episode.message];
    let content = text::shortened(&quoted.content, SUMMARY_CHARS);
    let mut memory = cx.memory(EPISODE_SPAN, &content, Kind::new(EPISODE));
    memory.metadata.insert("topics".into(), episode.topics.join(","));
    // An episode goes when a message that the episode quotes, or whose words are its topics, is
    // forgotten.
    memory.covers = read.iter().map(|memory| memory.id).collect();
    if let Some(outcome) = episode.outcome {
        let outcome = text::shortened(&read[outcome].content, SUMMARY_CHARS);
        memory.metadata.insert("outcome".into(), outcome);
    }
    memory.importance = EPISODE_IMPORTANCE;
    memory.confidence = quoted.confidence;
    memory.reason = "an episode".to_owned();
    let vector = staged.vector(cx.key(), quoted.id)?;
    staged.put(memory, vector.as_ref());
    Ok(())
}

/// Replaces the reason `WAITS` of a decision of this turn by the result of the extraction.
fn rewrite(decision: &mut Decision, kept: &BTreeSet<MemoryId>, reason: &str) {
    decision.reason = reason.to_owned();
    if decision.memory.is_some_and(|id| !kept.contains(&id)) {
        decision.outcome = Outcome::Dropped;
        decision.memory = None;
    }
    decision.related = kept.iter().copied().filter(|id| Some(*id) != decision.memory).collect();
}
