//! Removes summaries that no longer hold and asks for new ones. A summary is planned again when a
//! memory that it covers is closed, changed or forgotten. Facts that were extracted from the turn of
//! a closed or changed memory are removed too: they state what it stated.

use super::context::Context;
use super::reads::Reads;
use super::staged::Staged;
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey};

pub const SUMMARY: &str = "summary";

/// Removes every summary that covers this memory, and every fact extracted from its turn.
pub fn retract_summaries(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    key: &UserKey,
    of: MemoryId,
) -> Result<()> {
    let changed = staged.memory(key, of)?;
    let compressed_by = changed.as_ref().and_then(|memory| memory.compressed_by);
    let mut stale = Vec::new();
    let mut extracted = Vec::new();
    staged.memories(key, &mut |memory| {
        let is_summary = memory.kind.as_str() == SUMMARY && memory.covers.contains(&of);
        if is_summary || compressed_by == Some(memory.id) {
            stale.push(memory);
        } else if changed.as_ref().is_some_and(|changed| memory.sources.contains(&changed.source)) {
            extracted.push(memory.id);
        }
        true
    })?;
    for fact in extracted {
        retract_summaries(cx, staged, key, fact)?;
        staged.remove_memory(key, fact)?;
    }
    for summary in stale {
        plan_again(staged, key, &summary)?;
        staged.remove_memory(&summary.key, summary.id)?;
        free_compressed(cx, staged, key, &summary)?;
    }
    Ok(())
}

/// Lets the memories that a removed summary stood for stand for themselves again.
pub fn free_compressed(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    key: &UserKey,
    summary: &Memory,
) -> Result<()> {
    for id in &summary.covers {
        let Some(mut original) = staged.memory(key, *id)? else { continue };
        if original.compressed_by.take_if(|by| *by == summary.id).is_some() {
            cx.touch(&mut original);
            staged.put_memory(original);
        }
    }
    Ok(())
}

/// Marks the session of a summary as not summarised.
pub fn plan_again(staged: &mut Staged<'_>, key: &UserKey, summary: &Memory) -> Result<()> {
    let Some(name) = &summary.session else { return Ok(()) };
    if let Some(mut session) = staged.session(key, name)? {
        session.summarised = 0;
        staged.put_session(key, name, &session);
    }
    Ok(())
}
