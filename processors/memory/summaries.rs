//! Removes summaries that no longer hold and asks for new ones. A summary is planned again when a
//! memory that it covers is closed, changed or forgotten.

use super::reads::Reads;
use super::staged::Staged;
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey};

pub const SUMMARY: &str = "summary";

/// Removes every summary that covers this memory.
pub fn retract_summaries(staged: &mut Staged<'_>, key: &UserKey, of: MemoryId) -> Result<()> {
    let mut stale = Vec::new();
    staged.memories(key, &mut |memory| {
        if memory.kind.as_str() == SUMMARY && memory.covers.contains(&of) {
            stale.push(memory);
        }
        true
    })?;
    for summary in stale {
        plan_again(staged, key, &summary)?;
        staged.remove_memory(&summary.key, summary.id)?;
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
