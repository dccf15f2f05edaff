//! Links a memory to the earlier ones that it revises, as the compaction worker proposes after a model
//! has compared them, and gives it the kind that the model has found. Nothing is closed.

use super::prune::unchanged;
use crate::context::Context;
use crate::handled::Handled;
use crate::links::revisions;
use crate::policy::Revised;
use crate::staged::Staged;
use domain::fault::Result;
use domain::{Decision, JudgedMemory, Memory, Outcome, Revise, Role};

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
        // A rule that has linked the two is surer, and may have seen that a part still holds.
        let is_new = |older: &Memory| older.id != newer.id && newer.revises(older.id).is_none();
        let Some(memory) = older.filter(is_new) else { continue };
        if *probability < cx.rules.change.mark {
            continue;
        }
        related.push(memory.id);
        most = most.max(*probability);
        let (probability, why) = (*probability, revise.reason.clone());
        let revised = Revised { memory, probability, is_partial: false, why };
        revisions::link(cx, staged, &mut newer, revised)?;
    }
    // A kind can rule, so it is given to the user's own words only.
    let is_own = newer.role == Role::User && newer.sources.is_empty();
    let kind = revise.kind.as_ref().filter(|kind| is_own && **kind != newer.kind);
    if related.is_empty() && kind.is_none() {
        handled.decide(cx.decision(Outcome::Outdated, "the earlier memories have changed since"));
        return Ok(handled);
    }
    if let Some(kind) = kind {
        newer.kind = kind.clone();
    }
    // The total and the points stay those by which the turn was kept.
    if let Some(surprise) = &mut newer.surprise {
        surprise.contradiction = surprise.contradiction.max(most);
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
