//! Memories that are extracted from a conversation's last messages at once: until then its messages wait in the archive, where no
//! recall sees them. What becomes of them is decided by the rule; this is when, and what it does to the shard.

use super::seeds::everything;
use super::work::{Work, touch};
use super::{Here, Ingest};
use crate::domain::{Decision, Kind, Memory, MemoryId, Outcome, Position, Role, Turn};
use crate::fault::Result;
use crate::stages::score::seeds::Rule;
use crate::stages::score::seeds::alma::{self, Episode, Extracted, Gate, Message, WAITING, WAITS};
use crate::stages::store::Reading;
use crate::text;
use std::collections::BTreeSet;

const EPISODE: &str = "episode";
/// No candidate has this place.
const EPISODE_SPAN: u32 = u32::MAX;
const EPISODE_IMPORTANCE: f32 = 0.5;
const SUMMARY_CHARS: usize = 200;

impl Ingest {
    /// After the turn was put with those that wait: reads them, if it is time. `own` are the newest decisions, those of this turn.
    pub(super) fn extract(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        own: usize,
    ) -> Result<()> {
        let Some(Rule::Alma(gate)) = &here.profile.rule else { return Ok(()) };
        let (waiting, mut known) = waiting_and_known(work, here)?;
        let read = last_messages(&waiting, gate);
        let answers = sources(waiting.iter().filter(|memory| memory.role == Role::Assistant)).len();
        if turn.role != Role::Assistant || answers < gate.every_answers {
            // What no extraction will read waits in vain. Answers are still counted: they are what it waits for.
            let in_vain = |memory: &&Memory| {
                memory.role != Role::Assistant && read.iter().all(|other| other.id != memory.id)
            };
            return waiting.iter().filter(in_vain).try_for_each(|memory| work.remove(memory));
        }
        let messages: Vec<Message<'_>> = read.iter().map(message).collect();
        let (extracted, episode) = (alma::extract(gate, &messages), alma::episode(&messages));
        if let Some(episode) = episode {
            tell_episode(work, here, &read, &episode)?;
        }
        let mut kept = BTreeSet::new();
        for one in &extracted {
            kept.extend(settle(work, here, gate, &read[one.message], one, &mut known)?);
        }
        for memory in waiting.iter().filter(|memory| !kept.contains(&memory.id)) {
            work.remove(memory)?;
        }
        let reason = format!("{} of {} messages extracted", kept.len(), sources(read.iter()).len());
        let decided = work.decisions.len().saturating_sub(own);
        work.decisions[decided..].iter_mut().for_each(|decision| say(decision, &kept, &reason));
        Ok(())
    }
}

/// This conversation's messages that wait, oldest first, and the memories that wait for nothing.
fn waiting_and_known(work: &Work<'_>, here: &Here<'_>) -> Result<(Vec<Memory>, Vec<Memory>)> {
    let all = everything(work, here)?;
    let (archived, known): (Vec<Memory>, Vec<Memory>) =
        all.into_iter().partition(|memory| memory.archived);
    let waits = |memory: &Memory| memory.reason == WAITS && memory.session == here.event.session;
    Ok((archived.into_iter().filter(waits).collect(), known))
}

fn sources<'m>(memories: impl Iterator<Item = &'m Memory>) -> BTreeSet<&'m Position> {
    memories.map(|memory| &memory.source).collect()
}

/// A long message waits in several parts, and counts once.
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
    Message {
        role: memory.role,
        content: &memory.content,
        hint: (memory.kind.as_str() != WAITING).then_some(&memory.kind),
    }
}

/// The memory steps out of the archive, or counts as an access to the one that says the same. Its id, if it stays.
fn settle(
    work: &mut Work<'_>,
    here: &Here<'_>,
    gate: &Gate,
    waiting: &Memory,
    one: &Extracted,
    known: &mut Vec<Memory>,
) -> Result<Option<MemoryId>> {
    let same = alma::same(gate, &waiting.content, known);
    if let Some(old) = known.iter_mut().find(|memory| Some(memory.id) == same) {
        old.uses += 1;
        old.fresh_at = old.fresh_at.max(here.event.at);
        touch(old, here);
        work.put(old.clone(), None)?;
        return Ok(None);
    }
    let mut memory = Memory {
        archived: false,
        kind: one.category.clone(),
        importance: one.importance,
        confidence: one.confidence,
        reason: format!("extracted: {} of importance {}", one.category.as_str(), one.importance),
        ..waiting.clone()
    };
    touch(&mut memory, here);
    let id = memory.id;
    known.push(memory.clone());
    work.put(memory, None)?;
    Ok(Some(id))
}

/// Order matters: before the message that tells most of it may go with its vector.
fn tell_episode(
    work: &mut Work<'_>,
    here: &Here<'_>,
    read: &[Memory],
    episode: &Episode,
) -> Result<()> {
    let told = &read[episode.message];
    let mut memory = here.memory(
        EPISODE_SPAN,
        &text::shortened(&told.content, SUMMARY_CHARS),
        Kind::new(EPISODE),
    );
    memory.metadata.insert("topics".into(), episode.topics.join(","));
    if let Some(outcome) = episode.outcome {
        memory
            .metadata
            .insert("outcome".into(), text::shortened(&read[outcome].content, SUMMARY_CHARS));
    }
    (memory.importance, memory.confidence, memory.reason) =
        (EPISODE_IMPORTANCE, told.confidence, "an episode".to_owned());
    let vector = work.overlay.vector(here.key(), told.id)?;
    work.put(memory, vector)
}

/// What the turn's own decisions said of waiting is over.
fn say(decision: &mut Decision, kept: &BTreeSet<MemoryId>, reason: &str) {
    decision.reason = reason.to_owned();
    if decision.memory.is_some_and(|id| !kept.contains(&id)) {
        (decision.outcome, decision.memory) = (Outcome::Dropped, None);
    }
    decision.related = kept.iter().copied().filter(|id| Some(*id) != decision.memory).collect();
}
