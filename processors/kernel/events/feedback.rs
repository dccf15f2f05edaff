//! Applies feedback about memories: used, confirmed, wrong, irrelevant or returned.

use crate::context::{Context, no_such_memory};
use crate::handled::Handled;
use crate::links::revisions;
use crate::prepared::Part;
use crate::staged::Staged;
use crate::tenant;
use domain::fault::Result;
use domain::{Decision, ForwardReason, MemoryId, Outcome, Signal};
use std::collections::HashSet;

pub fn feedback(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    memories: &[MemoryId],
    signal: Signal,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let effect = cx.rules.feedback.effect(signal);
    let is_use = signal == Signal::Used
        || (signal == Signal::Returned && cx.rules.feedback.returned_counts());
    let (mut known, mut once) = (Vec::new(), HashSet::new());
    let mut is_unknown = false;
    for id in memories {
        // Several recalls that one event reports name a memory once for each.
        let is_first = once.insert(*id);
        let Some(mut memory) = cx.named(staged, *id)? else {
            is_unknown = true;
            continue;
        };
        if memory.key.is_tenant() && cx.event.limits.one_user {
            continue;
        }
        if is_first {
            known.push(*id);
        }
        memory.importance = (memory.importance + effect.importance).clamp(0.0, 1.0);
        memory.confidence = (memory.confidence + effect.confidence).clamp(0.0, 1.0);
        memory.uses += u32::from(is_use);
        memory.confirmed += u32::from(signal == Signal::Confirmed);
        if cx.rules.feedback.renews() && (is_use || signal == Signal::Confirmed) {
            memory.fresh_at = memory.fresh_at.max(cx.event.at);
        }
        if signal == Signal::Wrong {
            revisions::take_back(cx, staged, &mut memory)?;
        }
        cx.touch(&mut memory);
        staged.put_memory(memory);
    }
    if cx.part == Part::Rest {
        return Ok(handled); // the sender was answered when the event came first
    }
    // The others may be the tenant's. A sender for one user changes none of these.
    if is_unknown && !cx.event.limits.one_user && !cx.is_home_of_tenant() {
        if known.is_empty() {
            tenant::is_left_to_home(cx, staged, &mut handled, memories.to_vec());
            return Ok(handled);
        }
        tenant::send_on(cx, staged, &mut handled, ForwardReason::RestToTenant);
    }
    if known.is_empty() && once.len() == 1 {
        handled.not_found = Some(no_such_memory(memories[0]));
    }
    let reason = format!("{} for {} of {} memories", signal.as_str(), known.len(), once.len());
    handled.decide(Decision {
        memory: known.first().copied(),
        related: known,
        ..cx.decision(Outcome::Noted, reason)
    });
    Ok(handled)
}
