//! Links a memory to the earlier ones that it revises, as the compaction worker proposes after a model
//! has compared them, and undoes the links of rules that the model finds improbable. Nothing is
//! closed.

use super::prune::unchanged;
use crate::context::Context;
use crate::handled::Handled;
use crate::links::revisions;
use crate::policy::Revised;
use crate::staged::Staged;
use domain::fault::Result;
use domain::{Decision, JudgedMemory, Memory, Outcome, Revise};

pub fn revise(cx: &Context<'_>, staged: &mut Staged<'_>, revise: &Revise) -> Result<Handled> {
    let mut handled = Handled::default();
    let newer = unchanged(cx, staged, &[revise.memory])?.pop().filter(is_open);
    let Some(mut newer) = newer else {
        handled.decide(cx.decision(Outcome::Outdated, "the newer memory has changed since"));
        return Ok(handled);
    };
    let mut related = Vec::new();
    let mut most = 0.0_f32;
    for JudgedMemory { memory: seen, probability } in &revise.judged {
        let older = unchanged(cx, staged, &[*seen])?.pop().filter(is_open);
        let Some(memory) = older.filter(|older| older.id != newer.id) else { continue };
        related.push(memory.id);
        if *probability < cx.rules.change.mark {
            revisions::unlink(cx, staged, &mut newer, memory);
            continue;
        }
        most = most.max(*probability);
        let (probability, why) = (*probability, revise.reason.clone());
        // A rule that is sure and has not marked the older one has seen that a part of it holds.
        let is_sure = newer.revises(memory.id).is_some_and(|known| known >= cx.rules.change.mark);
        let is_partial = is_sure && memory.revised_by.is_none();
        let revised = Revised { memory, probability, is_partial, why };
        revisions::link(cx, staged, &mut newer, revised)?;
    }
    if related.is_empty() {
        handled.decide(cx.decision(Outcome::Outdated, "the earlier memories have changed since"));
        return Ok(handled);
    }
    // The total and the points stay those by which the turn was kept.
    let is_linked =
        [&newer.supersedes, &newer.conflicts_with].iter().any(|links| !links.is_empty())
            || !newer.revises.is_empty();
    if let Some(surprise) = &mut newer.surprise {
        let known = if is_linked { surprise.contradiction } else { 0.0 };
        surprise.contradiction = known.max(most);
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
