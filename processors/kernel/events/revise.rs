//! Links a memory to contradicting earlier ones, as the compaction worker proposes after a model
//! has compared them. Nothing is closed.

use super::prune::unchanged;
use crate::context::Context;
use crate::handled::Handled;
use crate::links::revisions;
use crate::policy::Revised;
use crate::staged::Staged;
use domain::fault::Result;
use domain::{Decision, Memory, MemoryId, Outcome, Revise};

pub fn revise(cx: &Context<'_>, staged: &mut Staged<'_>, revise: &Revise) -> Result<Handled> {
    let mut handled = Handled::default();
    let newer = unchanged(cx, staged, &[revise.memory])?.pop().filter(is_open);
    let Some(mut newer) = newer else {
        handled.decide(cx.decision(Outcome::Outdated, "the newer memory has changed since"));
        return Ok(handled);
    };
    let mut earlier = unchanged(cx, staged, &revise.revises)?;
    earlier.retain(|older| {
        is_open(older) && older.id != newer.id && !newer.revises.contains(&older.id)
    });
    if earlier.is_empty() {
        handled.decide(cx.decision(Outcome::Outdated, "the earlier memories have changed since"));
        return Ok(handled);
    }
    let related: Vec<MemoryId> = earlier.iter().map(|older| older.id).collect();
    for memory in earlier {
        let revised = Revised {
            memory,
            probability: revise.probability,
            is_partial: false,
            why: revise.reason.clone(),
        };
        revisions::link(cx, staged, &mut newer, revised);
    }
    cx.touch(&mut newer);
    let decision = cx.decision_about(&newer, Outcome::Revised, revise.reason.clone());
    staged.put_memory(newer);
    handled.decide(Decision { related, ..decision });
    Ok(handled)
}

fn is_open(memory: &Memory) -> bool {
    memory.valid_to.is_none()
}
