//! What another profile would have done with a turn, given the memories that are there. It is told and counted beside the decision that
//! counts. Invariant: it reads the work of a batch and is never lent it to write, so what is kept is the same with and without it.

#[cfg(test)]
mod tests;

use super::turn::{decided, judgement};
use super::work::Work;
use super::{Here, Ingest};
use crate::domain::{Decision, Outcome, Turn, UserKey, Vector};
use crate::fault::Result;
use crate::profile::{Profile, Treatment};
use crate::stages::score;
use crate::stages::split::Candidate;

impl Ingest {
    /// About the same candidate, with the same vector. None: there is no other profile than the user's own.
    pub(super) fn shadow(
        &self,
        work: &Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        candidate: &Candidate,
        vector: &Vector,
    ) -> Result<Option<Decision>> {
        let Some(profile) = self.profiles.shadow_of(here.key()) else { return Ok(None) };
        let there = &Here { profile, ..*here };
        if profile.treatment(turn.role) == Treatment::Context {
            let reason = format!("{} turns are context only", turn.role.as_str());
            let kind = Some(candidate.kind.clone());
            let dropped = there.decision(Outcome::Dropped, reason);
            return Ok(Some(Decision { candidate: Some(candidate.text.clone()), kind, ..dropped }));
        }
        let decision = match &profile.rule {
            Some(rule) => self.judged(work, there, turn, candidate, vector, rule)?.1,
            None => {
                let weighed = self.weigh(work, there, turn, candidate, vector)?;
                let threshold =
                    threshold(work, here.key(), (here.profile, profile), weighed.surprise.total)?;
                decided(there, turn, &weighed, &judgement(there, turn, &weighed, threshold)).0
            }
        };
        Ok(Some(decision))
    }

    /// The shadows of a turn's first candidates, and what was decided of these. Whatever became of it: to keep or not to keep is the question.
    pub(super) fn compare(&self, work: &mut Work<'_>, begin: usize, shadows: Vec<Decision>) {
        for (real, shadow) in work.decisions[begin..].iter().zip(&shadows) {
            self.metrics.shadowed(shadow.outcome, real.outcome.keeps() == shadow.outcome.keeps());
        }
        work.shadows.extend(shadows);
    }
}

/// A share of the user's last totals is a share of totals by the same weights. A shadow that weighs as the real profile does has them in
/// the shard; any other would need totals of its own, which nobody keeps for it: it is left with its fixed threshold.
fn threshold(
    work: &Work<'_>,
    key: &UserKey,
    (real, shadow): (&Profile, &Profile),
    total: f32,
) -> Result<f32> {
    if !real.weighs_as(shadow) {
        return Ok(shadow.gate.fixed);
    }
    Ok(score::threshold(&shadow.gate, &work.overlay.scores_with(key, total)?))
}
