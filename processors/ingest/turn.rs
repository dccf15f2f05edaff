//! A turn: each candidate is scored on the ground of what the user said before, then kept, merged, superseding, or dropped.

use super::conflicts::{self, Opposed};
use super::revisions::{self, Revised, Teller};
use super::work::{Work, touch};
use super::{Here, Ingest, facts};
use crate::domain::{
    Around, Decision, Memory, MemoryId, Neighbour, Outcome, Role, SaidBefore, Signal, Surprise,
    Turn, Vector,
};
use crate::fault::Result;
use crate::profile::Treatment;
use crate::stages::score::{self, Ground, Said, Verdict};
use crate::stages::split::change::News;
use crate::stages::split::{self, Candidate};
use crate::stages::store::Reading;
use crate::text;
use std::collections::HashSet;
use std::sync::Arc;

/// Words of a turn that its successors see as context. The first ones are also what a memory knows of its neighbours.
const TAIL_WORDS_FIRST: usize = 40;
const TAIL_WORDS_LAST: usize = 20;
/// A longer turn with a question mark in it is no plain question.
const QUESTION_WORDS: f32 = 40.0;
/// Neighbours looked at for a repetition: the nearest may be another speaker's.
const NEIGHBOURS: usize = 3;
/// What somebody said of themselves, and what was concluded for them.
const CONFIDENCE_SAID: f32 = 1.0;
const CONFIDENCE_INFERRED: f32 = 0.7;
/// Nothing kept is worth nothing: a memory that passed as an answer may have few points of its own.
const IMPORTANCE_MIN: f32 = 0.1;

/// A candidate with all that a profile's own gate looks at.
pub(super) struct Weighed<'a> {
    candidate: &'a Candidate,
    vector: &'a Vector,
    said: Said<'a>,
    pub surprise: Surprise,
    /// The memory that says the same already.
    same: Option<Same>,
    /// Memories whose fact this candidate gives another value.
    replaced: Vec<Memory>,
    /// Others that it only seems to say otherwise than.
    opposed: Vec<Opposed>,
    /// Others that it probably revises.
    revised: Vec<Revised>,
}

/// What the gate makes of that.
pub(super) struct Judgement {
    threshold: f32,
    verdict: Verdict,
}

impl Ingest {
    pub(super) fn turn(&self, work: &mut Work<'_>, here: &Here<'_>, turn: &Turn) -> Result<()> {
        if let Some(withheld) = here.draft.withheld {
            return self.withhold(work, here, turn, withheld);
        }
        if self.is_echo_of_withheld(work, here, turn)? {
            return self.withhold_echo(work, here, turn);
        }
        let candidates = &here.draft.candidates;
        if candidates.is_empty() {
            let reason = match here.profile.treatment(turn.role) {
                _ if !turn.remember => {
                    "the sender asks not to remember it: context only".to_owned()
                }
                Treatment::Context => format!("{} turns are context only", turn.role.as_str()),
                _ => "nothing was said".to_owned(),
            };
            work.decide(here.decision(Outcome::Dropped, reason));
        }
        let (begin, mut last, mut shadows) = (work.decisions.len(), None, Vec::new());
        for (candidate, vector) in candidates.iter().zip(here.vectors) {
            // Order matters: the shadow sees what is there before this candidate changes it.
            shadows.extend(self.shadow(work, here, turn, candidate, vector)?);
            let decision = match &here.profile.rule {
                Some(rule) => self.judge(work, here, turn, candidate, vector.clone(), rule)?,
                None => {
                    let weighed = self.weigh(work, here, turn, candidate, vector)?;
                    let judgement = self.score(work, here, turn, &weighed)?;
                    self.settle(work, here, turn, weighed, judgement)?
                }
            };
            last = decision.memory.filter(|_| decision.outcome != Outcome::Merged).or(last);
            work.decide(decision);
        }
        let (parts, kept) = (here.draft.parts, candidates.len());
        if kept < parts {
            let reason = format!(
                "the turn has {parts} parts, the limit is {kept}: the rest was not looked at"
            );
            work.decide(here.decision(Outcome::Refused, reason));
        }
        self.extract(work, here, turn, kept)?;
        self.compare(work, begin, shadows);
        self.follow(work, here, turn, last)
    }

    /// How surprising the candidate is to this user, here and now. Changes nothing.
    pub(super) fn weigh<'a>(
        &self,
        work: &Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        candidate: &'a Candidate,
        vector: &'a Vector,
    ) -> Result<Weighed<'a>> {
        let key = here.key();
        let said = Said::of(&candidate.text, &self.rarity);
        let may_conflict = split::may_conflict(&candidate.text);
        let news = if turn.role == Role::User { News::of(&candidate.text) } else { None };
        let near = match may_conflict || news.is_some() {
            true => work.nearest(key, vector, conflicts::NEIGHBOURS.max(revisions::NEIGHBOURS))?,
            false => work.nearest(key, vector, NEIGHBOURS)?,
        };
        let compared = if may_conflict { &near[..] } else { &[] };
        let replaced = facts::replaced(work, key, &candidate.slots)?;
        let same = if replaced.is_empty() {
            same(work, here, turn, candidate, &near[..near.len().min(NEIGHBOURS)])?
        } else {
            None
        };
        let mut opposed = match (&same, turn.role) {
            (None, Role::User) => {
                conflicts::opposed(work, here, turn, candidate, (vector, compared))?
            }
            _ => Vec::new(),
        };
        let mut met: HashSet<MemoryId> = replaced.iter().map(|memory| memory.id).collect();
        opposed.retain(|opposed| met.insert(opposed.memory.id));
        let teller = Teller { role: turn.role, speaker: turn.speaker.as_deref() };
        let mut revised = match (&same, &news) {
            (None, Some(news)) => self.revised(work, here, teller, news, (vector, &near))?,
            _ => Vec::new(),
        };
        revised.retain(|revised| met.insert(revised.memory.id));
        let recent = work.overlay.tail(key, here.event.session.as_deref())?;
        let own_words = work.overlay.own_words(key)?;
        let ground = Ground {
            vector,
            nearest: near.first().map_or(0.0, |(_, cosine)| *cosine),
            recent: &recent.said,
            speaker: speaker(turn),
            role: turn.role,
            linked: !replaced.is_empty() || !opposed.is_empty(),
            rarity: &self.rarity,
            spread: self.spread,
            own_words: &own_words,
        };
        let surprise = score::surprise(&said, &ground, &here.profile.weights);
        Ok(Weighed { candidate, vector, said, surprise, same, replaced, opposed, revised })
    }

    /// The gate, and what the user's next turns are judged by.
    fn score(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        weighed: &Weighed<'_>,
    ) -> Result<Judgement> {
        if turn.role == Role::User {
            work.overlay.add_own_words(here.key(), weighed.said.stems())?;
        }
        // Order matters: the total that is judged is one of those it is judged among.
        let totals = work.overlay.push_score(here.key(), weighed.surprise.total)?;
        Ok(judgement(here, turn, weighed, score::threshold(&here.profile.gate, &totals)))
    }

    /// Writes what follows from the decision.
    fn settle(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        weighed: Weighed<'_>,
        judgement: Judgement,
    ) -> Result<Decision> {
        let (mut decision, class) = decided(here, turn, &weighed, &judgement);
        self.metrics.judged(decision.outcome, class);
        if let Some(Same { memory: mut old, .. }) = weighed.same {
            // What was recalled to an assistant comes back in its words: nobody has confirmed it.
            if turn.role == Role::User {
                confirm(&mut old, here, here.profile.effect(Signal::Confirmed).confidence);
                work.put(old, None)?;
            }
            return Ok(decision);
        }
        if decision.outcome == Outcome::Dropped {
            return Ok(decision);
        }
        let mut memory = remembered(here, turn, &weighed, judgement.threshold);
        memory.around = around(&work.overlay.tail(here.key(), here.event.session.as_deref())?.said);
        memory.reason = decision.reason.clone();
        decision.memory = Some(memory.id);
        for old in weighed.replaced {
            facts::succeed(work, here, &mut memory, old)?;
        }
        for Opposed { memory: old, .. } in weighed.opposed {
            conflicts::link(work, here, &mut memory, old)?;
        }
        for revised in weighed.revised {
            revisions::link(work, here, &mut memory, revised)?;
        }
        facts::hold(work, &memory, &weighed.candidate.slots)?;
        work.put(memory, Some(weighed.vector.clone()))?;
        Ok(decision)
    }

    /// What was said becomes the ground for what is said next, kept or not.
    fn follow(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        memory: Option<MemoryId>,
    ) -> Result<()> {
        let (key, session) = (here.key(), here.event.session.as_deref());
        let vector = here.vectors.first().cloned().unwrap_or_default();
        let said = SaidBefore {
            speaker: speaker(turn).into(),
            role: turn.role,
            content: begin_and_end(&turn.content).into(),
            vector,
            source: Some(here.source().clone()),
            question: question(&turn.content),
            memory,
        };
        if memory.is_none() {
            lend(work, here, &said)?;
        }
        work.overlay.push_tail(key, session, &said)?;
        work.count_turn(key, session, here.event.at)
    }
}

/// The gate's judgement, and where the profile keeps whatever that role says, that.
pub(super) fn judgement(
    here: &Here<'_>,
    turn: &Turn,
    weighed: &Weighed<'_>,
    threshold: f32,
) -> Judgement {
    let verdict = score::verdict(&weighed.surprise, threshold);
    let verdict = match here.profile.treatment(turn.role) {
        Treatment::Keep if !verdict.keep => Verdict {
            keep: true,
            reason: format!("every {} turn is kept", turn.role.as_str()),
            class: "role",
        },
        _ => verdict,
    };
    Judgement { threshold, verdict }
}

/// Merged, superseding, kept or dropped, with the class of the reason. A memory that is to be made is not named yet.
pub(super) fn decided(
    here: &Here<'_>,
    turn: &Turn,
    weighed: &Weighed<'_>,
    judgement: &Judgement,
) -> (Decision, &'static str) {
    let Judgement { threshold, verdict } = judgement;
    let mut decision = Decision {
        candidate: Some(weighed.candidate.text.clone()),
        kind: Some(weighed.candidate.kind.clone()),
        surprise: Some(weighed.surprise.clone()),
        threshold: Some(*threshold),
        ..here.decision(Outcome::Dropped, verdict.reason.clone())
    };
    if let Some(Same { memory: old, cosine }) = &weighed.same {
        let (class, verb) = if turn.role == Role::User {
            ("repetition", "said before on")
        } else {
            ("echo", "repeats a memory of")
        };
        decision.outcome = Outcome::Merged;
        decision.reason = format!("{verb} {}, cosine {cosine:.2}", text::day(old.created_at));
        decision.memory = Some(old.id);
        return (decision, class);
    }
    if !verdict.keep {
        return (decision, verdict.class);
    }
    decision.outcome = Outcome::Kept;
    for old in &weighed.replaced {
        let closes = facts::closes(here.event.at, &weighed.candidate.text, old);
        let verb = if closes { "takes the place of" } else { "says otherwise than" };
        decision.outcome = if closes { Outcome::Superseded } else { decision.outcome };
        decision.related.push(old.id);
        decision.reason = format!("{verb} \"{}\"", text::shortened(&old.content, 60));
    }
    for Opposed { memory: old, why } in &weighed.opposed {
        if decision.related.is_empty() {
            decision.reason = why.clone();
        }
        decision.related.push(old.id);
    }
    for Revised { memory: old, why, .. } in &weighed.revised {
        if decision.related.is_empty() {
            decision.reason = why.clone();
        }
        decision.related.push(old.id);
    }
    (decision, verdict.class)
}

/// A turn that became no memory is known by the one before it, so that what it said about that one still finds it.
fn lend(work: &mut Work<'_>, here: &Here<'_>, said: &SaidBefore) -> Result<()> {
    let before = work.overlay.tail(here.key(), here.event.session.as_deref())?;
    let Some(id) = before.said.last().and_then(|before| before.memory) else { return Ok(()) };
    let Some(mut memory) = work.overlay.memory(here.key(), id)? else { return Ok(()) };
    memory.around.after = neighbour(said);
    // Not its version: nothing that a plan could have seen is another.
    memory.changed = here.offset();
    work.put(memory, None)
}

/// What the session said last, as a memory keeps it.
pub(super) fn around(recent: &[SaidBefore]) -> Around {
    let mut last = recent.iter().rev();
    let before = last.next().and_then(neighbour);
    let earlier = last
        .next()
        .and_then(neighbour)
        .map(|earlier| Neighbour { vector: Vector::default(), ..earlier });
    Around { before, earlier, after: None }
}

fn neighbour(said: &SaidBefore) -> Option<Neighbour> {
    Some(Neighbour {
        source: said.source.clone()?,
        speaker: said.speaker.clone(),
        words: first_words(&said.content),
        vector: said.vector.clone(),
        question: said.question,
    })
}

/// Of what successors see of a turn: mostly all of it.
fn first_words(content: &Arc<str>) -> Arc<str> {
    if text::is_first_words(content, TAIL_WORDS_FIRST) {
        content.clone()
    } else {
        text::first_words(content, TAIL_WORDS_FIRST).into()
    }
}

fn question(content: &str) -> f32 {
    if !content.contains('?') {
        return 0.0;
    }
    let words = content.split_whitespace().count().max(1);
    (QUESTION_WORDS / words as f32).min(1.0).powi(2)
}

/// What successors see of a turn: how it began, and how it ended, where its question is.
fn begin_and_end(content: &str) -> String {
    if text::is_first_words(content, TAIL_WORDS_FIRST + TAIL_WORDS_LAST) {
        return content.to_owned();
    }
    let words: Vec<&str> = content.split_whitespace().collect();
    if words.len() <= TAIL_WORDS_FIRST + TAIL_WORDS_LAST {
        return words.join(" ");
    }
    format!(
        "{} … {}",
        words[..TAIL_WORDS_FIRST].join(" "),
        words[words.len() - TAIL_WORDS_LAST..].join(" ")
    )
}

fn speaker(turn: &Turn) -> &str {
    turn.speaker.as_deref().unwrap_or(turn.role.as_str())
}

/// A memory that says what is said now.
struct Same {
    memory: Memory,
    cosine: f32,
}

/// An assistant says "you" where the memory says "I": the same words, a little further apart.
pub const ECHO_COSINE: f32 = 0.7;

/// The memory in which the same person said the same. An assistant's turn repeats whatever memory it says again.
fn same(
    work: &Work<'_>,
    here: &Here<'_>,
    turn: &Turn,
    candidate: &Candidate,
    near: &[(MemoryId, f32)],
) -> Result<Option<Same>> {
    let merge = &here.profile.merge;
    let is_echo = turn.role != Role::User;
    // Above 1 nothing is ever merged.
    let least =
        if is_echo && merge.cosine <= 1.0 { merge.cosine.min(ECHO_COSINE) } else { merge.cosine };
    for &(id, cosine) in near {
        if cosine < least {
            break;
        }
        let Some(memory) = work.overlay.memory(here.key(), id)? else { continue };
        let may_be_same = is_echo || memory.role == turn.role && memory.speaker == turn.speaker;
        if may_be_same
            && memory.valid_to.is_none()
            && score::says_the_same(&candidate.text, &memory.content, merge.overlap)
        {
            return Ok(Some(Same { memory, cosine }));
        }
    }
    Ok(None)
}

pub(super) fn confirm(memory: &mut Memory, here: &Here<'_>, confidence: f32) {
    memory.confirmed += 1;
    memory.confidence = (memory.confidence + confidence).clamp(0.0, 1.0);
    memory.fresh_at = memory.fresh_at.max(here.event.at);
    memory.archived = false;
    touch(memory, here);
}

fn remembered(here: &Here<'_>, turn: &Turn, weighed: &Weighed<'_>, threshold: f32) -> Memory {
    let confidence = if turn.role == Role::User { CONFIDENCE_SAID } else { CONFIDENCE_INFERRED };
    Memory {
        speaker: turn.speaker.clone(),
        role: turn.role,
        importance: weighed.surprise.total.clamp(IMPORTANCE_MIN, 1.0),
        confidence,
        surprise: Some(weighed.surprise.clone()),
        threshold: Some(threshold),
        ..here.memory(
            weighed.candidate.span,
            &weighed.candidate.text,
            weighed.candidate.kind.clone(),
        )
    }
}
