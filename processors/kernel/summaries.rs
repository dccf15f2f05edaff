//! Removes summaries that no longer hold and asks for new ones. A summary is planned again when a
//! covered memory is closed, changed or forgotten. Facts that were extracted from the turn of a
//! closed or changed memory are removed too: they repeat the old statement.

use super::context::Context;
use super::reads::Reads;
use super::staged::Staged;
use domain::fault::Result;
use domain::{Memory, MemoryId, Position, UserKey};
use std::collections::{BTreeSet, HashSet};

pub const SUMMARY: &str = "summary";

/// Removes every summary that covers this memory, and every fact extracted from the same turn.
pub fn retract_summaries(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    key: &UserKey,
    of: MemoryId,
) -> Result<()> {
    let mut ids = BTreeSet::from([of]);
    let mut changed: Vec<Memory> = staged.memory(key, of)?.into_iter().collect();
    // The facts of the turn, then the memories made of these facts: one reading for each step.
    while !ids.is_empty() {
        let compressed_by: BTreeSet<MemoryId> =
            changed.iter().filter_map(|memory| memory.compressed_by).collect();
        let sources: HashSet<&Position> = changed.iter().map(|memory| &memory.source).collect();
        let mut stale = Vec::new();
        let mut extracted = Vec::new();
        staged.memories(key, &mut |memory| {
            let is_summary =
                memory.kind.as_str() == SUMMARY && memory.covers.iter().any(|id| ids.contains(id));
            if is_summary || compressed_by.contains(&memory.id) {
                stale.push(memory);
            } else if !ids.contains(&memory.id)
                && memory.sources.iter().any(|source| sources.contains(source))
            {
                extracted.push(memory);
            }
            true
        })?;
        ids = extracted.iter().map(|fact| fact.id).collect();
        let gone = stale.iter().map(|summary| summary.id).chain(ids.iter().copied());
        staged.remove_memories(key, &gone.collect())?;
        for summary in stale {
            plan_again(staged, key, &summary)?;
            free_compressed(cx, staged, key, &summary)?;
        }
        changed = extracted;
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
