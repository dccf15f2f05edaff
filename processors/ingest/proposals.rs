//! Applies the proposals of the compaction worker: `prune`, `summary` and `revise`, each of which names the versions that it saw.

use super::change::about;
use super::revisions::{self, Revised};
use super::work::{Work, touch};
use super::{Here, Ingest};
use crate::domain::{Decision, Kind, Memory, MemoryId, Outcome, Revise, Seen, UserKey};
use crate::fault::Result;
use crate::stages::store::Reading;

const SUMMARY: &str = "summary";

impl Ingest {
    /// The worker's proposal to archive. Only memories that are still as it saw them.
    pub(super) fn prune(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        seen: &[Seen],
        reason: &str,
    ) -> Result<()> {
        let still = still_as_seen(work, here, seen)?;
        for mut memory in still.iter().cloned() {
            memory.archived = true;
            touch(&mut memory, here);
            work.put(memory, None)?;
        }
        let outcome = if still.is_empty() { Outcome::Outdated } else { Outcome::Pruned };
        let reason = format!("{reason}: {} of {} archived", still.len(), seen.len());
        let ids: Vec<MemoryId> = still.iter().map(|memory| memory.id).collect();
        work.decide(Decision {
            memory: ids.first().copied(),
            related: ids,
            ..here.decision(outcome, reason)
        });
        Ok(())
    }

    /// The worker's proposal of a session's summary. If one covered memory has changed, it is planned again.
    pub(super) fn summary(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        content: &str,
        covers: &[Seen],
    ) -> Result<()> {
        let still = still_as_seen(work, here, covers)?;
        if still.len() < covers.len() || covers.is_empty() {
            let reason = format!(
                "{} of {} covered memories have changed since",
                covers.len() - still.len(),
                covers.len()
            );
            work.decide(here.decision(Outcome::Outdated, reason));
            return Ok(());
        }
        let mut memory = here.memory(0, content, Kind::new(SUMMARY));
        memory.covers = covers.iter().map(|seen| seen.id).collect();
        memory.reason = format!("summary of {} memories of its session", covers.len());
        // An older summary of the same session says less.
        let mut older = Vec::new();
        work.overlay.memories(here.key(), &mut |other| {
            if other.kind.as_str() == SUMMARY && other.session == memory.session {
                older.push(other);
            }
            true
        })?;
        older.iter().try_for_each(|other| work.remove(other))?;
        work.put(memory.clone(), here.vectors.first().cloned())?;
        if let Some(session) = &here.event.session
            && let Some(mut known) = work.overlay.session(here.key(), session)?
        {
            known.summarised = known.turns;
            work.overlay.put_session(here.key(), session, &known);
        }
        let decided = about(here, Outcome::Summarised, memory.reason.clone(), &memory);
        work.decide(Decision { related: memory.covers.clone(), ..decided });
        Ok(())
    }
}

impl Ingest {
    /// The worker's proposal of links to earlier memories. Nothing is closed for it.
    pub(super) fn revise_as_proposed(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        revise: &Revise,
    ) -> Result<()> {
        let is_open = |memory: &Memory| memory.valid_to.is_none();
        let newer = still_as_seen(work, here, &[revise.memory])?.pop().filter(is_open);
        let mut earlier = still_as_seen(work, here, &revise.revises)?;
        let Some(mut newer) = newer else {
            work.decide(
                here.decision(Outcome::Outdated, "the newer memory has changed since".into()),
            );
            return Ok(());
        };
        earlier.retain(|older| {
            is_open(older) && older.id != newer.id && !newer.revises.contains(&older.id)
        });
        let related: Vec<MemoryId> = earlier.iter().map(|older| older.id).collect();
        if earlier.is_empty() {
            work.decide(
                here.decision(Outcome::Outdated, "the earlier memories have changed since".into()),
            );
            return Ok(());
        }
        for memory in earlier {
            let revised = Revised {
                memory,
                probability: revise.probability,
                is_partial: false,
                why: revise.reason.clone(),
            };
            revisions::link(work, here, &mut newer, revised)?;
        }
        touch(&mut newer, here);
        let decided = about(here, Outcome::Revised, revise.reason.clone(), &newer);
        work.put(newer, None)?;
        work.decide(Decision { related, ..decided });
        Ok(())
    }
}

/// A summary that tells what no longer holds is told again without it.
pub fn retract_summaries(work: &mut Work<'_>, key: &UserKey, of: MemoryId) -> Result<()> {
    let mut stale = Vec::new();
    work.overlay.memories(key, &mut |memory| {
        if memory.covers.contains(&of) {
            stale.push(memory);
        }
        true
    })?;
    for summary in stale {
        tell_again(work, key, &summary)?;
        work.remove(&summary)?;
    }
    Ok(())
}

/// The session of a summary that told of something forgotten is summarised anew, without it.
pub(super) fn tell_again(work: &mut Work<'_>, key: &UserKey, summary: &Memory) -> Result<()> {
    let Some(session) = &summary.session else { return Ok(()) };
    if let Some(mut known) = work.overlay.session(key, session)? {
        known.summarised = 0;
        work.overlay.put_session(key, session, &known);
    }
    Ok(())
}

fn still_as_seen(work: &Work<'_>, here: &Here<'_>, seen: &[Seen]) -> Result<Vec<Memory>> {
    let mut still = Vec::new();
    for one in seen {
        still.extend(
            work.overlay
                .memory(here.key(), one.id)?
                .filter(|memory| memory.version == one.version && !memory.archived),
        );
    }
    Ok(still)
}
