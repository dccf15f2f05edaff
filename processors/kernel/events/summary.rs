//! Stores the summary of a session that the compaction worker proposes: beside the covered memories,
//! or in their place. If a covered memory has changed since, the summary is outdated and is planned
//! again.

use super::prune::unchanged;
use crate::context::Context;
use crate::handled::Handled;
use crate::reads::Reads;
use crate::staged::Staged;
use crate::summaries::SUMMARY;
use domain::fault::Result;
use domain::{Authorship, Content, Decision, Kind, Memory, MemoryVersion, Outcome, Vector};
use std::collections::BTreeSet;

/// A proposed summary with the vector.
#[derive(Clone, Copy)]
pub struct Proposed<'a> {
    pub content: &'a Content<Vector>,
    pub covers: &'a [MemoryVersion],
    pub made: Option<&'a Authorship>,
}

impl Proposed<'_> {
    /// Adds who wrote the summary, where the profile asks a model.
    fn reason(&self, reason: String) -> String {
        self.made.map_or(reason.clone(), |made| format!("{reason}, {made}"))
    }
}

pub fn summary(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    proposed: Proposed<'_>,
) -> Result<Handled> {
    let Proposed { content: Content { text, vector }, covers, .. } = proposed;
    let covered = unchanged(cx, staged, covers)?;
    if covered.len() < covers.len() || covers.is_empty() {
        return Ok(outdated(cx, covered.len(), covers));
    }
    let mut memory = cx.memory(0, text, Kind::new(SUMMARY));
    memory.reason = proposed.reason(format!("summary of {} memories of its session", covers.len()));
    // It says what was said then, however late it is written.
    let said = covered.iter().map(|memory| memory.created_at).max();
    memory.created_at = said.unwrap_or(memory.created_at);
    memory.valid_from = memory.created_at;
    remove_older_summaries(cx, staged)?;
    put(cx, staged, memory, vector, covers)
}

/// Stores a summary that stands for the covered memories: these stay, marked, and are recalled only
/// on request. An earlier summary of the session stays too, because that one stands for others.
pub fn compress(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    proposed: Proposed<'_>,
    kind: &Kind,
) -> Result<Handled> {
    let Proposed { content: Content { text, vector }, covers, .. } = proposed;
    let originals = unchanged(cx, staged, covers)?;
    if originals.len() < covers.len() || covers.is_empty() {
        return Ok(outdated(cx, originals.len(), covers));
    }
    let mut memory = cx.memory(0, text, kind.clone());
    memory.reason = proposed.reason(format!("stands for {} memories of its session", covers.len()));
    let session = cx.session().unwrap_or_default();
    memory.metadata.insert("source_session_id".to_owned(), session.to_owned());
    memory.metadata.insert("compression_source".to_owned(), "true".to_owned());
    for mut original in originals {
        original.compressed_by = Some(memory.id);
        cx.touch(&mut original);
        staged.put_memory(original);
    }
    put(cx, staged, memory, vector, covers)
}

fn outdated(cx: &Context<'_>, unchanged: usize, covers: &[MemoryVersion]) -> Handled {
    let mut handled = Handled::default();
    let changed = covers.len() - unchanged;
    let reason = format!("{changed} of {} covered memories have changed since", covers.len());
    handled.decide(cx.decision(Outcome::Outdated, reason));
    handled
}

/// Stores the summary, and marks the session as summarised up to the last turn.
fn put(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    mut memory: Memory,
    vector: &Vector,
    covers: &[MemoryVersion],
) -> Result<Handled> {
    let mut handled = Handled::default();
    memory.covers = covers.iter().map(|seen| seen.id).collect();
    let decision = cx.decision_about(&memory, Outcome::Summarised, memory.reason.clone());
    handled.decide(Decision { related: memory.covers.clone(), ..decision });
    staged.put_memory_and_vector(memory, vector);
    if let Some(name) = cx.session()
        && let Some(mut session) = staged.session(cx.key(), name)?
    {
        session.summarised = session.turns;
        staged.put_session(cx.key(), name, &session);
    }
    Ok(handled)
}

fn remove_older_summaries(cx: &Context<'_>, staged: &mut Staged<'_>) -> Result<()> {
    let mut older = BTreeSet::new();
    staged.memories(cx.key(), &mut |memory| {
        // A sender's own memory may be of this kind, but covers none.
        let is_summary = memory.kind.as_str() == SUMMARY && !memory.covers.is_empty();
        if is_summary && memory.session.as_deref() == cx.session() {
            older.insert(memory.id);
        }
        true
    })?;
    staged.remove_memories(cx.key(), &older)
}
