//! Archives or erases memories as the compaction worker proposes, if they have not changed since.

use crate::context::Context;
use crate::erase::erase_outlived;
use crate::handled::Handled;
use crate::reads::Reads;
use crate::staged::Staged;
use domain::fault::Result;
use domain::{Decision, IdleSession, Memory, MemoryId, MemoryVersion, Outcome};

pub fn prune(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    seen: &[MemoryVersion],
    reason: &str,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let unchanged = unchanged(cx, staged, seen)?;
    let ids: Vec<MemoryId> = unchanged.iter().map(|memory| memory.id).collect();
    for mut memory in unchanged {
        memory.archived = true;
        cx.touch(&mut memory);
        staged.put_memory(memory);
    }
    let outcome = if ids.is_empty() { Outcome::Outdated } else { Outcome::Pruned };
    let reason = format!("{reason}: {} of {} archived", ids.len(), seen.len());
    handled.decide(Decision {
        memory: ids.first().copied(),
        related: ids,
        ..cx.decision(outcome, reason)
    });
    Ok(handled)
}

/// Erases memories whose time is over, archived or not, and the context windows of sessions that have
/// been idle as long.
pub fn erase(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    seen: &[MemoryVersion],
    idle: &[IdleSession],
    reason: &str,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let mut cleared = 0;
    for IdleSession { session, last_at } in idle {
        let present = staged.session(cx.key(), session)?.map(|session| session.last_at);
        match last_at {
            None => staged.forget_window(cx.key(), Some(session)),
            Some(_) if present == *last_at => staged.forget_session(cx.key(), session),
            Some(_) => continue,
        }
        cleared += 1;
    }
    let doomed = as_seen(cx, staged, seen)?;
    let count = doomed.len();
    // With them go the summaries that quote them.
    let erased = erase_outlived(cx, staged, &mut handled, cx.key(), doomed)?;
    let ids: Vec<MemoryId> = erased.iter().map(|memory| memory.id).collect();
    let outcome = if count + cleared == 0 { Outcome::Outdated } else { Outcome::Pruned };
    let mut reason = format!("{reason}: {count} of {} erased", seen.len());
    if !idle.is_empty() {
        reason += &format!(", {cleared} of {} context windows cleared", idle.len());
    }
    handled.decide(Decision {
        memory: ids.first().copied(),
        related: ids,
        ..cx.decision(outcome, reason)
    });
    Ok(handled)
}

/// The active memories whose versions are still those that a proposal saw.
pub fn unchanged(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    seen: &[MemoryVersion],
) -> Result<Vec<Memory>> {
    let mut unchanged = as_seen(cx, staged, seen)?;
    unchanged.retain(|memory| !memory.archived);
    Ok(unchanged)
}

fn as_seen(cx: &Context<'_>, staged: &Staged<'_>, seen: &[MemoryVersion]) -> Result<Vec<Memory>> {
    let mut found = Vec::new();
    for one in seen {
        let memory = staged.memory(cx.key(), one.id)?;
        found.extend(memory.filter(|memory| memory.version == one.version));
    }
    Ok(found)
}
