//! Stores the summary of a session that the compaction worker proposes. If a covered memory has
//! changed since, the summary is outdated and is planned again.

use super::prune::unchanged;
use crate::context::Context;
use crate::handled::Handled;
use crate::reads::Reads;
use crate::staged::Staged;
use crate::summaries::SUMMARY;
use domain::fault::Result;
use domain::{Decision, Kind, MemoryVersion, Outcome, Vector};

pub fn summary(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    content: &str,
    vector: &Vector,
    covers: &[MemoryVersion],
) -> Result<Handled> {
    let mut handled = Handled::default();
    let unchanged = unchanged(cx, staged, covers)?.len();
    if unchanged < covers.len() || covers.is_empty() {
        let changed = covers.len() - unchanged;
        let reason = format!("{changed} of {} covered memories have changed since", covers.len());
        handled.decide(cx.decision(Outcome::Outdated, reason));
        return Ok(handled);
    }
    let mut memory = cx.memory(0, content, Kind::new(SUMMARY));
    memory.covers = covers.iter().map(|seen| seen.id).collect();
    memory.reason = format!("summary of {} memories of its session", covers.len());
    remove_older_summaries(cx, staged)?;
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
    let mut older = Vec::new();
    staged.memories(cx.key(), &mut |memory| {
        if memory.kind.as_str() == SUMMARY && memory.session.as_deref() == cx.session() {
            older.push(memory.id);
        }
        true
    })?;
    older.into_iter().try_for_each(|id| staged.remove_memory(cx.key(), id))
}
