//! Changes memories without asking how surprising it is: remember, update, forget and feedback.

use super::proposals::{retract_summaries, tell_again};
use super::revisions::{self, Teller};
use super::seeds::told;
use super::tenant::{Part, is_on_its_way, meant_of_tenant};
use super::work::{Work, touch};
use super::{Here, Ingest, facts, withheld};
use crate::domain::{
    Decision, Forget, Memory, MemoryId, Outcome, Position, Remember, Revision, Scope, Signal,
    Spread, Update, UserKey, Vector,
};
use crate::fault::{Reject, RejectCode, Result};
use crate::stages::decode;
use crate::stages::split;
use crate::stages::split::change::News;
use crate::stages::store::Reading;
use crate::text::{self, Language, Words};
use std::collections::{BTreeSet, HashSet};

/// A memory this near to a forget's query is meant by it, whatever its words.
const FORGET_COSINE: f32 = 0.75;
/// Memories compared with a forget's query by meaning: as many as a profile lets a user have.
const NEAR_MAX: usize = 10_000;

impl Ingest {
    /// The sender's own id again: nothing changes, and the first outcome is told again.
    pub(super) fn seen_before(&self, work: &mut Work<'_>, here: &Here<'_>) -> Result<bool> {
        let Some(id) = &here.event.id else { return Ok(false) };
        let Some(seen) = work.overlay.seen(here.key(), id)? else { return Ok(false) };
        // It has come back without its turn: its mark was made with another key, or it was a dead letter that is sent again.
        let is_back = here.draft.hop.is_none() && decode::was_sent_before(&here.draft.record);
        if is_back && work.overlay.awaits_event(here.key(), &seen.source)? {
            work.overlay.end_awaited(here.key(), &seen.source)?;
            return Ok(false);
        }
        let reason = format!(
            "the same id came with offset {} of partition {}",
            seen.source.offset, seen.source.partition
        );
        let decision = Decision {
            memory: seen.memories.first().copied(),
            related: seen.memories.iter().skip(1).copied().collect(),
            ..here.decision(Outcome::Duplicate, reason)
        };
        work.decide(decision);
        Ok(true)
    }

    pub(super) fn remember(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        asked: &Remember,
    ) -> Result<()> {
        // Judged when it came first: what is in its turn is applied by all, whatever profile they have by now.
        let judged = here.part == Part::InOrder;
        if let Some(category) = withheld::never(&asked.content, here.profile).filter(|_| !judged) {
            work.decide(here.decision(Outcome::Dropped, withheld::never_reason(category)));
            return Ok(());
        }
        let split =
            split::candidates(&asked.content, asked.kind.as_ref(), &here.profile.split, &|_| 0);
        let Some(candidate) = split.first() else {
            work.decide(here.decision(Outcome::Dropped, "nothing was said".into()));
            return Ok(());
        };
        let id = MemoryId::of(here.source(), 0);
        if asked.scope == Scope::Tenant && !self.has_its_turn(work, here, id) {
            return Ok(());
        }
        let mut told = told(work, here, asked)?;
        if let Some(same) = told.as_mut().and_then(|told| told.same.take()) {
            return self.said_again(work, here, asked, same);
        }
        let (kind, confidence) =
            told.map_or((candidate.kind.clone(), 1.0), |told| (told.kind, told.confidence));
        let mut memory = Memory {
            scope: asked.scope,
            importance: asked.importance,
            confidence: asked.confidence.unwrap_or(confidence),
            reason: "asked to remember".into(),
            ..here.memory(0, &asked.content, kind)
        };
        if asked.scope == Scope::Tenant {
            memory.author = Some(here.key().user().to_owned());
            memory.key = here.key().everyone();
        }
        let mut decided = Decision {
            candidate: Some(memory.content.clone()),
            kind: Some(memory.kind.clone()),
            memory: Some(memory.id),
            ..here.decision(Outcome::Kept, "asked to remember".into())
        };
        if asked.scope == Scope::User && here.profile.rule.is_none() {
            for old in facts::replaced(work, here.key(), &candidate.slots)? {
                decided.related.push(old.id);
                if facts::succeed(work, here, &mut memory, old)? {
                    decided.outcome = Outcome::Superseded;
                }
            }
            facts::hold(work, &memory, &candidate.slots)?;
            self.revise(work, here, &mut memory, &mut decided)?;
        }
        work.put(memory, here.vectors.first().cloned())?;
        work.decide(decided);
        Ok(())
    }

    /// Links a memory that is asked for to those that it probably revises.
    fn revise(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        memory: &mut Memory,
        decided: &mut Decision,
    ) -> Result<()> {
        let (Some(news), Some(vector)) = (News::of(&memory.content), here.vectors.first()) else {
            return Ok(());
        };
        let near = work.nearest(here.key(), vector, revisions::NEIGHBOURS)?;
        let teller = Teller { role: memory.role, speaker: memory.speaker.as_deref() };
        for revised in self.revised(work, here, teller, &news, (vector, &near))? {
            if decided.related.contains(&revised.memory.id) {
                continue;
            }
            if decided.related.is_empty() {
                decided.reason = revised.why.clone();
            }
            decided.related.push(revised.memory.id);
            revisions::link(work, here, memory, revised)?;
        }
        Ok(())
    }

    pub(super) fn update(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        update: &Update,
    ) -> Result<()> {
        let Some(memory) = work.meant(here, update.memory)? else {
            missing(work, here, update.memory);
            return Ok(());
        };
        let never =
            |content| withheld::never(content, here.profile).filter(|_| here.part == Part::First);
        if let Some(category) = update.content.as_deref().and_then(never) {
            // The memory keeps its old words, and nothing else of the update is applied: half of what was asked would look like all of it.
            work.decide(about(here, Outcome::Refused, withheld::never_reason(category), &memory));
            return Ok(());
        }
        if memory.key.is_everyone() && !self.has_its_turn(work, here, memory.id) {
            return Ok(());
        }
        let memory = self.change(work, here, memory, update)?;
        work.decide(about(here, Outcome::Updated, "changed as asked".into(), &memory));
        Ok(())
    }

    fn change(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        mut memory: Memory,
        update: &Update,
    ) -> Result<Memory> {
        if let Some(content) = update.content.as_ref().filter(|content| **content != memory.content)
        {
            facts::let_go(work, &memory)?;
            retract_summaries(work, &memory.key, memory.id)?;
            self.unlink_other_words(work, here, &mut memory, content)?;
            memory.history.push(Revision {
                content: std::mem::replace(&mut memory.content, content.clone()),
                until: here.event.at,
            });
            let over = memory.history.len().saturating_sub(self.options.history_max);
            memory.history.drain(..over);
            if memory.scope == Scope::User {
                facts::hold(work, &memory, &split::slots(&memory.content))?;
            }
        }
        // Told to be what it is already: it holds, whatever seemed to take its place.
        if update.content.as_ref().is_some_and(|content| *content == memory.content) {
            revisions::stands(work, here, &mut memory)?;
        }
        if let Some(kind) = &update.kind {
            memory.kind = kind.clone();
        }
        memory.importance = update.importance.unwrap_or(memory.importance);
        memory.confidence = update.confidence.unwrap_or(memory.confidence);
        if let Some(metadata) = &update.metadata {
            memory.metadata = metadata.clone();
        }
        memory.fresh_at = memory.fresh_at.max(here.event.at);
        touch(&mut memory, here);
        let vector = update.content.as_ref().and(here.vectors.first()).cloned();
        work.put(memory.clone(), vector)?;
        Ok(memory)
    }

    /// Nearly the same is remembered already: that memory takes the new words and their time.
    fn said_again(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        asked: &Remember,
        same: Memory,
    ) -> Result<()> {
        let reason = format!("nearly the same as \"{}\"", text::shortened(&same.content, 60));
        let content = Some(asked.content.clone());
        let update = Update {
            memory: same.id,
            content,
            kind: None,
            importance: None,
            confidence: None,
            metadata: None,
        };
        let memory = self.change(work, here, same, &update)?;
        work.decide(Decision {
            candidate: Some(asked.content.clone()),
            ..about(here, Outcome::Merged, reason, &memory)
        });
        Ok(())
    }

    pub(super) fn forget(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        forget: &Forget,
    ) -> Result<()> {
        let (key, mut doomed, mut left) = (here.key(), Vec::new(), 0);
        let of_tenant = meant_of_tenant(work, key, forget)?;
        if here.part == Part::InOrder {
            return self.erase(work, &key.everyone(), of_tenant).map(drop); // told when it came first
        }
        let follows = is_on_its_way(work, key, forget)?;
        if follows || !of_tenant.is_empty() {
            let has_its_turn = self.send_on(work, here);
            if follows && !has_its_turn {
                work.overlay.put_awaited(key, here.source(), here.offset());
            }
        }
        match forget {
            Forget::Memory(id) => doomed.extend(work.overlay.memory(key, *id)?),
            Forget::Session(session) => {
                work.overlay.memories(key, &mut |memory| {
                    if memory.session.as_deref() == Some(session) {
                        doomed.push(memory);
                    }
                    true
                })?;
                work.overlay.forget_session(key, session)?;
                // The dropped ones too: they were said in it.
                work.forget_decisions(|decision| {
                    decision.key == *key && decision.session.as_ref() == Some(session)
                });
            }
            Forget::Query(query) => (doomed, left) = self.meant(work, here, query)?,
            Forget::Everything => {
                work.overlay.memories(key, &mut |memory| {
                    doomed.push(memory);
                    true
                })?;
            }
        }
        let mut ids = self.erase(work, key, doomed)?;
        ids.extend(self.erase(work, &key.everyone(), of_tenant)?);
        if matches!(forget, Forget::Everything) {
            work.overlay.forget_user(key)?;
            work.forget_decisions(|decision| decision.key == *key);
        }
        let reason = match ids.len() {
            0 => "there was nothing to forget".to_owned(),
            1 => "one memory is gone".to_owned(),
            many if left == 0 => format!("{many} memories are gone"),
            many => format!(
                "{many} memories are gone, which is the limit, and {left} more are meant: send it again"
            ),
        };
        let decided = here.decision(Outcome::Forgotten, reason);
        work.decide(Decision {
            memory: ids.first().copied(),
            related: ids,
            left: Some(left),
            ..decided
        });
        Ok(())
    }

    /// Takes memories out, and whatever repeats them: summaries that cover them, facts that point at them, the session's last turns.
    pub(super) fn erase(
        &self,
        work: &mut Work<'_>,
        key: &UserKey,
        mut doomed: Vec<Memory>,
    ) -> Result<Vec<MemoryId>> {
        let gone: BTreeSet<MemoryId> = doomed.iter().map(|memory| memory.id).collect();
        let sources: HashSet<Position> =
            doomed.iter().map(|memory| memory.source.clone()).collect();
        let (mut linked, mut beside, mut revived) = (Vec::new(), Vec::new(), Vec::new());
        if !gone.is_empty() {
            work.overlay.memories(key, &mut |mut memory| {
                if gone.contains(&memory.id) {
                    return true;
                }
                // Its followers know the words of the turn that goes, and its vector.
                let was_beside =
                    memory.around.forget(|neighbour| sources.contains(&neighbour.source));
                if memory.covers.iter().any(|id| gone.contains(id)) {
                    doomed.push(memory);
                } else if mentions(&memory, &gone) {
                    linked.push(memory);
                } else if was_beside {
                    beside.push(memory);
                }
                true
            })?;
        }
        for mut memory in beside {
            memory.changed = work.applied;
            work.put(memory, None)?;
        }
        for mut memory in linked {
            memory.supersedes.retain(|id| !gone.contains(id));
            memory.revises.retain(|id| !gone.contains(id));
            memory.revised_by.take_if(|id| gone.contains(id));
            memory.conflicts_with.retain(|id| !gone.contains(id));
            if memory.superseded_by.is_some_and(|id| gone.contains(&id)) {
                // What was replaced by something that never was is valid again, and holds its facts again.
                (memory.superseded_by, memory.valid_to) = (None, None);
                revived.push(memory.clone());
            }
            // Its reason may quote the one that goes.
            memory.reason = "what it was held against is forgotten".to_owned();
            memory.version += 1;
            memory.changed = work.applied;
            work.put(memory, None)?;
        }
        for memory in &doomed {
            if memory.covers.iter().any(|id| gone.contains(id)) {
                tell_again(work, key, memory)?;
            }
            facts::let_go(work, memory)?;
            work.overlay.forget_tail(key, memory.session.as_deref())?;
            work.remove(memory)?;
        }
        for memory in &revived {
            facts::hold(work, memory, &split::slots(&memory.content))?;
        }
        let ids: Vec<MemoryId> = doomed.iter().map(|memory| memory.id).collect();
        work.forget_decisions(|decision| {
            let mut about = decision.memory.iter().chain(&decision.related);
            // By event, too: what of the same turn was dropped, and what somebody else of the tenant said.
            sources.contains(&decision.event)
                || (decision.key == *key && about.any(|id| gone.contains(id)))
        });
        Ok(ids)
    }

    /// The memories that a forget's query means: all its words, or nearly its meaning. Better one too few than one too many. The limit is for a
    /// query that means more than its sender thought; how many are left over, the decision says.
    fn meant(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        query: &str,
    ) -> Result<(Vec<Memory>, usize)> {
        let key = here.key();
        let meaning = Meaning {
            words: Words::of(query),
            vector: here.vectors.first().cloned(),
            spread: self.spread,
        };
        let mut near = BTreeSet::new();
        if let Some(vector) = &meaning.vector {
            let found = work.nearest(key, vector, NEAR_MAX)?;
            near.extend(
                found.into_iter().filter(|(_, cosine)| *cosine >= FORGET_COSINE).map(|(id, _)| id),
            );
        }
        let (mut meant, mut beside, mut left) = (Vec::new(), Vec::new(), 0);
        work.overlay.memories(key, &mut |mut memory| {
            if near.contains(&memory.id) || meaning.is_said_in(&memory.content) {
                if meant.len() < self.options.forget_query_max {
                    meant.push(memory);
                } else {
                    left += 1;
                }
            } else if memory
                .around
                .forget(|one| meaning.is_said_in(&one.words) || meaning.is_near(&one.vector))
            {
                beside.push(memory);
            }
            true
        })?;
        // What was said beside a memory and never became one is forgotten too, where it is meant.
        for mut memory in beside {
            memory.changed = work.applied;
            work.put(memory, None)?;
        }
        work.overlay.forget_said(key, &|said| {
            meaning.is_said_in(&said.content) || meaning.is_near(&said.vector)
        })?;
        // A turn that was dropped made no memory, and its decision has its words.
        work.forget_decisions(|decision| {
            decision.key == *key
                && decision.candidate.as_ref().is_some_and(|said| meaning.is_said_in(said))
        });
        Ok((meant, left))
    }

    pub(super) fn feedback(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        memories: &[MemoryId],
        signal: Signal,
    ) -> Result<()> {
        let effect = here.profile.effect(signal);
        let uses = signal == Signal::Used
            || (signal == Signal::Returned && here.profile.returned_counts());
        let (mut known, mut shared) = (Vec::new(), false);
        for id in memories {
            let Some(mut memory) = work.meant(here, *id)? else { continue };
            known.push(*id);
            shared |= memory.key.is_everyone();
            if memory.key.is_everyone() && !self.may_change_tenant(here) {
                continue; // in its turn
            }
            memory.importance = (memory.importance + effect.importance).clamp(0.0, 1.0);
            memory.confidence = (memory.confidence + effect.confidence).clamp(0.0, 1.0);
            memory.uses += u32::from(uses);
            memory.confirmed += u32::from(signal == Signal::Confirmed);
            if uses || signal == Signal::Confirmed {
                memory.fresh_at = memory.fresh_at.max(here.event.at);
            }
            if signal == Signal::Wrong {
                revisions::takes_back(work, here, &mut memory)?;
            }
            touch(&mut memory, here);
            work.put(memory, None)?;
        }
        if here.part == Part::InOrder {
            return Ok(()); // told when it came first
        }
        if shared {
            self.send_on(work, here);
        }
        if known.is_empty() && memories.len() == 1 {
            work.not_found = Some(no_such(memories[0]));
        }
        let reason =
            format!("{} for {} of {} memories", signal.as_str(), known.len(), memories.len());
        work.decide(Decision {
            memory: known.first().copied(),
            related: known,
            ..here.decision(Outcome::Noted, reason)
        });
        Ok(())
    }
}

/// What a forget's query means.
struct Meaning {
    words: Words,
    vector: Option<Vector>,
    spread: Spread,
}

impl Meaning {
    fn is_said_in(&self, content: &str) -> bool {
        let said = Words::of(content);
        // A query is short: it is read in the language of what it is looked for in.
        let language = said.language().unwrap_or(Language::ENGLISH);
        let (meant, said) = (self.words.stems_in(language), said.stems_in(language));
        !meant.is_empty() && meant.iter().all(|stem| said.iter().any(|said| said == stem))
    }

    fn is_near(&self, said: &Vector) -> bool {
        self.vector
            .as_ref()
            .is_some_and(|vector| self.spread.standard(vector.cosine(said)) >= FORGET_COSINE)
    }
}

pub(super) fn about(
    here: &Here<'_>,
    outcome: Outcome,
    reason: String,
    memory: &Memory,
) -> Decision {
    Decision {
        memory: Some(memory.id),
        kind: Some(memory.kind.clone()),
        ..here.decision(outcome, reason)
    }
}

fn missing(work: &mut Work<'_>, here: &Here<'_>, id: MemoryId) {
    let reject = no_such(id);
    work.decide(here.decision(Outcome::Refused, reject.message.clone()));
    work.not_found = Some(reject);
}

fn no_such(id: MemoryId) -> Reject {
    Reject {
        field: Some("memory".into()),
        ..Reject::new(RejectCode::NotFound, format!("this user has no memory {id}"))
    }
}

fn mentions(memory: &Memory, gone: &BTreeSet<MemoryId>) -> bool {
    let newer = memory.superseded_by.iter().chain(&memory.revised_by);
    let links =
        memory.supersedes.iter().chain(&memory.revises).chain(&memory.conflicts_with).chain(newer);
    links.into_iter().any(|id| gone.contains(id))
}
