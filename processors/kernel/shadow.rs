//! Judges a candidate under the shadow profile, on the memories that the real profile has kept. The
//! result is published and counted. Invariant: `judge` only reads, so the same is kept with and
//! without a shadow.

use super::context::Context;
use super::policy::CandidateInput;
use super::staged::Staged;
use crate::Rules;
use crate::rules::Treatment;
use domain::fault::Result;
use domain::{Decision, Outcome};

pub fn judge(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
    rules: &Rules,
) -> Result<Decision> {
    let shadow = Context { rules, ..*cx };
    if rules.treatment(said.turn.role) == Treatment::Context {
        let reason = format!("{} turns are context only", said.turn.role.as_str());
        return Ok(Decision {
            candidate: Some(said.candidate.text.clone()),
            kind: Some(said.candidate.kind.clone()),
            ..shadow.decision(Outcome::Dropped, reason)
        });
    }
    // A share of the last totals means nothing under other weights, and nobody stores totals for a
    // shadow: such a shadow is left with the fixed threshold.
    let has_foreign_totals = !cx.rules.weighs_as(rules);
    let judgement =
        rules.policy.judge(&shadow, staged, CandidateInput { has_foreign_totals, ..said })?;
    Ok(judgement.decision(&shadow, said.candidate))
}
