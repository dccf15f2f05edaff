//! Judges a candidate under the shadow profile, on the memories that the real profile has kept. The
//! result is published and counted. Invariant: `judge` only reads, so the same is kept with and
//! without a shadow.

use super::context::Context;
use super::events::turn::decision;
use super::policy::Said;
use super::staged::Staged;
use crate::domain::{Decision, Outcome};
use crate::fault::Result;
use crate::profile::{Profile, Treatment};

pub fn judge(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: Said<'_>,
    profile: &Profile,
) -> Result<Decision> {
    let shadow = Context { profile, ..*cx };
    if profile.treatment(said.turn.role) == Treatment::Context {
        let reason = format!("{} turns are context only", said.turn.role.as_str());
        return Ok(Decision {
            candidate: Some(said.candidate.text.clone()),
            kind: Some(said.candidate.kind.clone()),
            ..shadow.decision(Outcome::Dropped, reason)
        });
    }
    // A share of the last totals means nothing under other weights, and nobody stores totals for a
    // shadow: such a shadow is left with its fixed threshold.
    let has_foreign_totals = !cx.profile.weighs_as(profile);
    let judgement = profile.policy.judge(&shadow, staged, Said { has_foreign_totals, ..said })?;
    Ok(decision(&shadow, said.candidate, &judgement))
}
