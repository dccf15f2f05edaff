//! A turn under another system's gate: the same ground and the same outcomes, decided by the rule that the profile has chosen.

use super::turn::{around, confirm};
use super::work::Work;
use super::{Here, Ingest};
use crate::domain::{Decision, Memory, Outcome, Remember, Scope, Signal, Turn, Vector};
use crate::fault::Result;
use crate::profile::Treatment;
use crate::stages::score::seeds::{self, Ground, Judged, Rule, Told};
use crate::stages::split::Candidate;
use crate::stages::store::Reading;
use crate::text;

impl Ingest {
    pub(super) fn judge(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        candidate: &Candidate,
        vector: Vector,
        rule: &Rule,
    ) -> Result<Decision> {
        let (judged, mut decision) = self.judged(work, here, turn, candidate, &vector, rule)?;
        match decision.outcome {
            Outcome::Merged => {
                let old = decision
                    .memory
                    .map(|id| work.overlay.memory(here.key(), id))
                    .transpose()?
                    .flatten();
                let mut old =
                    old.expect("it was read to be judged by, and nothing was written since");
                confirm(&mut old, here, here.profile.effect(Signal::Confirmed).confidence);
                work.put(old, None)?;
            }
            Outcome::Kept => {
                let said = &work.overlay.tail(here.key(), here.event.session.as_deref())?.said;
                let memory =
                    Memory { around: around(said), ..remembered(here, turn, candidate, judged) };
                decision.memory = Some(memory.id);
                work.put(memory, Some(vector))?;
            }
            _ => {}
        }
        Ok(decision)
    }

    /// Merged, kept or dropped, with the numbers. Changes nothing; a memory that is to be made is not named yet.
    pub(super) fn judged(
        &self,
        work: &Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        candidate: &Candidate,
        vector: &Vector,
        rule: &Rule,
    ) -> Result<(Judged, Decision)> {
        let memories = if rule.reads_memories() { own(work, here)? } else { Vec::new() };
        let nearness_to_all =
            if rule.reads_centroid() { work.nearness_to_all(here.key(), vector)? } else { None };
        let tail = work.overlay.tail(here.key(), here.event.session.as_deref())?;
        let ground = Ground {
            memories: &memories,
            recent: &tail.said,
            nearness_to_all,
            rarity: &self.rarity,
            role: turn.role,
            hint: turn.kind.as_ref(),
        };
        let judged = seeds::judge(rule, &candidate.text, &ground);
        let mut decision = Decision {
            candidate: Some(candidate.text.clone()),
            kind: Some(judged.kind.clone()),
            surprise: Some(judged.surprise.clone()),
            threshold: Some(judged.threshold),
            ..here.decision(Outcome::Dropped, judged.reason.clone())
        };
        if let Some(old) = judged.same.and_then(|id| memories.iter().find(|memory| memory.id == id))
        {
            decision.outcome = Outcome::Merged;
            decision.reason = format!("said before on {}", text::day(old.created_at));
            decision.memory = Some(old.id);
        } else if judged.keep || here.profile.treatment(turn.role) == Treatment::Keep {
            decision.outcome = Outcome::Kept;
        }
        Ok((judged, decision))
    }
}

/// What the rule takes an explicit wish for, and the memory that says nearly the same.
pub fn told(work: &Work<'_>, here: &Here<'_>, asked: &Remember) -> Result<Option<Told>> {
    let Some(rule) = &here.profile.rule else { return Ok(None) };
    let memories = if asked.scope == Scope::Tenant { Vec::new() } else { own(work, here)? };
    Ok(Some(rule.told(&asked.content, asked.kind.as_ref(), &memories)))
}

/// The user's memories without those in the archive, oldest first. Limit: all of them are read for each candidate; the documents speak of
/// hundreds, and a profile's `prune.count_max` is the bound.
fn own(work: &Work<'_>, here: &Here<'_>) -> Result<Vec<Memory>> {
    let mut memories = everything(work, here)?;
    memories.retain(|memory| !memory.archived);
    Ok(memories)
}

/// With the archive, oldest first.
pub fn everything(work: &Work<'_>, here: &Here<'_>) -> Result<Vec<Memory>> {
    let mut memories = Vec::new();
    work.overlay.memories(here.key(), &mut |memory| {
        memories.push(memory);
        true
    })?;
    memories.sort_by_key(|memory| (memory.created_at, memory.source.offset, memory.id));
    Ok(memories)
}

fn remembered(here: &Here<'_>, turn: &Turn, candidate: &Candidate, judged: Judged) -> Memory {
    Memory {
        speaker: turn.speaker.clone(),
        role: turn.role,
        importance: judged.importance,
        confidence: judged.confidence,
        archived: judged.waits,
        surprise: Some(judged.surprise),
        threshold: Some(judged.threshold),
        reason: judged.reason,
        ..here.memory(candidate.span, &candidate.text, judged.kind)
    }
}
