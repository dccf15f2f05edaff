//! Extracts memories from the last messages of a conversation at once. A message waits as its
//! sentences, in the archive, where no recall finds them.
//!
//!   1. Collect the last messages of this conversation: those that wait, those that an earlier
//!      extraction has read, and those that became memories.
//!   2. Remove waiting and read messages that no later extraction can read.
//!   3. With fewer than `every_answers` new answers, stop.
//!   4. Otherwise store an episode, and for each extracted sentence activate the waiting memory, or
//!      count a use of the memory with the same statement. The other sentences stay as read for the
//!      next extraction, whose window overlaps.
//!
//! Invariant: a sentence that counted as a use covers the memory that it repeated. `forget` erases
//! both, so that the next extraction does not learn the statement again.

use super::gate::{self, Episode, Extracted, Gate, Message};
use super::rank::Part;
use super::{READ, WAITING, WAITS};
use crate::shared::memories_and_archive;
use domain::fault::Result;
use domain::{Decision, Kind, Memory, MemoryId, Outcome, Position, Role, Turn};
use kernel::context::Context;
use kernel::handled::Handled;
use kernel::reads::Reads;
use kernel::staged::Staged;
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
    let all = memories_and_archive(cx, staged)?;
    let window = last_messages(&all, cx, gate);
    let new = all.iter().filter(|memory| is_of(memory, cx) && is_waiting(memory));
    let answers = sources(new.filter(|memory| memory.role == Role::Assistant)).len();
    let is_due = turn.role == Role::Assistant && answers >= gate.every_answers;
    remove_unreadable(gate, cx, staged, &all, &window, is_due)?;
    if !is_due {
        return Ok(());
    }
    let messages: Vec<Message<'_>> = window.iter().copied().map(message).collect();
    let mut extracted = Extraction { gate, cx, known: known(&all), made: vec![], used: vec![] };
    for one in gate::extract(gate, &messages) {
        extracted.settle(staged, window[one.message], &one);
    }
    for memory in window.iter().filter(|memory| is_waiting(memory)) {
        extracted.put_aside(staged, memory);
    }
    if let Some(episode) = gate::episode(&messages) {
        put_episode(cx, staged, &window, &episode, &extracted)?;
    }
    let kept: BTreeSet<MemoryId> = extracted.made.iter().copied().collect();
    let made = window.iter().filter(|memory| kept.contains(&memory.id));
    let (made, read) = (sources(made.copied()).len(), sources(window.iter().copied()).len());
    let reason = format!("{made} of {read} messages extracted");
    for decision in handled.decisions.iter_mut().filter(|one| one.candidate.is_some()) {
        rewrite(decision, &kept, &reason);
    }
    Ok(())
}

/// True for a message of this conversation, kept or not.
fn is_of(memory: &Memory, cx: &Context<'_>) -> bool {
    // Only judged texts have a surprise: neither an episode nor a `remember` is a message.
    memory.surprise.is_some() && memory.session.as_deref() == cx.session()
}

fn is_waiting(memory: &Memory) -> bool {
    memory.archived && memory.reason == WAITS
}

fn is_read(memory: &Memory) -> bool {
    memory.archived && memory.reason == READ
}

/// True for a message that is no memory, and therefore in no answer, not even with the archive.
pub fn is_message(memory: &Memory) -> bool {
    is_waiting(memory) || is_read(memory)
}

fn sources<'m>(memories: impl Iterator<Item = &'m Memory>) -> BTreeSet<&'m Position> {
    memories.map(|memory| &memory.source).collect()
}

/// Returns the parts of the last messages, oldest first. A message waits in several parts and
/// counts once.
fn last_messages<'m>(all: &'m [Memory], cx: &Context<'_>, gate: &Gate) -> Vec<&'m Memory> {
    let mut last: Vec<&Position> = Vec::new();
    let parts = || all.iter().filter(|memory| is_of(memory, cx));
    for memory in parts().rev() {
        if !last.contains(&&memory.source) && last.len() < gate.messages {
            last.push(&memory.source);
        }
    }
    parts().filter(|memory| last.contains(&&memory.source)).collect()
}

/// The memories that a new statement may repeat: no soul block, episode or procedure.
fn known(all: &[Memory]) -> Vec<Memory> {
    let memories = all.iter().filter(|memory| {
        !memory.archived && !memory.stands_alone() && Part::of(memory) == Part::Memories
    });
    memories.cloned().collect()
}

/// Removes the messages of this conversation before the window, and, with an extraction, those of
/// other conversations that were read long ago.
fn remove_unreadable(
    gate: &Gate,
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    all: &[Memory],
    window: &[&Memory],
    is_due: bool,
) -> Result<()> {
    for memory in all.iter().filter(|memory| is_message(memory)) {
        let is_over = if is_of(memory, cx) {
            // New answers stay, because the next extraction is due after `every_answers` of them.
            let counts = is_waiting(memory) && memory.role == Role::Assistant && !is_due;
            !counts && window.iter().all(|other| other.id != memory.id)
        } else {
            is_due
                && is_read(memory)
                && cx.event.at.days_since(memory.created_at) > gate.window_days
        };
        if is_over {
            staged.remove_memory(cx.key(), memory.id)?;
        }
    }
    Ok(())
}

fn message(memory: &Memory) -> Message<'_> {
    Message {
        role: memory.role,
        content: &memory.content,
        hint: (memory.kind.as_str() != WAITING).then_some(&memory.kind),
        // A repetition stays one, even if the memory that it repeated was changed since.
        is_open: is_message(memory) && memory.covers.is_empty(),
        is_new: is_waiting(memory),
    }
}

/// The consequences of an extraction.
struct Extraction<'a> {
    gate: &'a Gate,
    cx: &'a Context<'a>,
    /// The memories that a statement may repeat, those of this extraction included.
    known: Vec<Memory>,
    made: Vec<MemoryId>,
    /// Messages that repeat a memory, with that memory.
    used: Vec<(MemoryId, MemoryId)>,
}

impl Extraction<'_> {
    /// Activates the waiting memory, or counts a use of the memory with the same statement.
    fn settle(&mut self, staged: &mut Staged<'_>, waiting: &Memory, one: &Extracted) {
        let same = gate::same(self.gate, &waiting.content, &self.known);
        if let Some(old) = self.known.iter_mut().find(|memory| Some(memory.id) == same) {
            old.uses += 1;
            old.fresh_at = old.fresh_at.max(self.cx.event.at);
            self.cx.touch(old);
            staged.put_memory(old.clone());
            let repetition = Memory { covers: vec![old.id], ..waiting.clone() };
            self.used.push((waiting.id, old.id));
            self.put_read(staged, repetition);
            return;
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
        self.cx.touch(&mut memory);
        self.known.push(memory.clone());
        self.made.push(memory.id);
        staged.put_memory(memory);
    }

    /// Leaves a new message without a memory of its own for the next extraction.
    fn put_aside(&self, staged: &mut Staged<'_>, memory: &Memory) {
        let is_settled = self.made.contains(&memory.id)
            || self.used.iter().any(|(message, _)| *message == memory.id);
        if !is_settled {
            self.put_read(staged, memory.clone());
        }
    }

    fn put_read(&self, staged: &mut Staged<'_>, mut memory: Memory) {
        memory.reason = READ.to_owned();
        self.cx.touch(&mut memory);
        staged.put_memory(memory);
    }
}

fn put_episode(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    read: &[&Memory],
    episode: &Episode,
    extracted: &Extraction<'_>,
) -> Result<()> {
    let quoted = read[episode.message];
    let content = text::shortened(&quoted.content, SUMMARY_CHARS);
    let mut memory = cx.memory(EPISODE_SPAN, &content, Kind::new(EPISODE));
    memory.metadata.insert(gate::TOPICS.into(), episode.topics.join(","));
    // An episode goes when a message that the episode quotes, or whose words are its topics, is
    // forgotten, or the memory that such a message repeated.
    let repeated = read.iter().flat_map(|memory| memory.covers.iter().copied());
    let repeated = repeated.chain(extracted.used.iter().map(|(_, old)| *old));
    let covers: BTreeSet<MemoryId> = read.iter().map(|memory| memory.id).chain(repeated).collect();
    memory.covers = covers.into_iter().collect();
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
