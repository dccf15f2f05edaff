//! Judges a candidate under Keepsake's own policy.
//!
//!   1. Find the nearest memories, and among them a memory with the same statement.
//!   2. Find the memories that the candidate replaces or contradicts.
//!   3. Score the surprise against the user's memories, recent turns and vocabulary
//!      (`policies/score`).
//!   4. Compare the total with the threshold, which depends on the user's recent totals.
//!   5. Find the memories that a kept candidate probably revises, or a short one that changes "it".

use super::Keepsake;
use crate::score::{self, GateVerdict, ScoringContext};
use domain::fault::Result;
use domain::{Memory, MemoryId, Outcome, Role, Scope, Vector};
use kernel::context::Context;
use kernel::events::turn::{confidence, speaker};
use kernel::links::{conflicts, revisions, slots};
use kernel::policy::{CandidateInput, Judgement, Learned, Lifecycle, Links, Opposed, Revised};
use kernel::reads::Reads;
use kernel::rules::Treatment;
use kernel::staged::Staged;
use std::cell::LazyCell;
use std::collections::HashSet;
use text::split;
use text::split::change::PossibleRevision;

/// Nearest memories that are checked for a repetition. More than one, because the nearest may be of
/// another speaker.
const NEIGHBOURS: usize = 3;
/// Smallest importance of a kept memory: an answer to a question may have few points of its own.
const IMPORTANCE_MIN: f32 = 0.1;
/// Largest cosine that an echo of a memory needs. An assistant's "you" replaces the user's "I",
/// which lowers the cosine of otherwise equal words.
pub const ECHO_COSINE: f32 = 0.7;

/// A memory with the same statement as the candidate.
struct Same {
    memory: Memory,
    cosine: f32,
}

pub fn judge(
    policy: &Keepsake,
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
) -> Result<Judgement> {
    let CandidateInput { turn, candidate, vector, .. } = said;
    let measured = score::ScoredText::of(&candidate.text, cx.settings.rarity);
    let may_conflict = split::may_conflict(&candidate.text);
    let neighbours = if may_conflict { conflicts::NEIGHBOURS } else { NEIGHBOURS };
    let near = cx.nearest_lasting(staged, vector, neighbours)?;
    let person = slots::Person { role: turn.role, speaker: turn.speaker.as_deref() };
    let mut links = Links {
        slots: candidate.slots.clone(),
        replaced: slots::replaced(staged, cx.key(), &candidate.slots, person, &near)?,
        ..Links::default()
    };
    let nearest = &near[..near.len().min(NEIGHBOURS)];
    let is_replacing = !links.replaced.is_empty();
    let same = if is_replacing { None } else { same(policy, cx, staged, said, nearest)? };
    if same.is_none() && turn.role == Role::User {
        let compared = if may_conflict { &near[..] } else { &[] };
        let text = &candidate.text;
        let new = conflicts::Statement { turn, text, vector, near: compared };
        links.opposed = conflicts::opposed(cx, staged, new)?;
    }
    let window = staged.window(cx.key(), cx.session())?;
    let own_words = staged.own_words(cx.key())?;
    let ground = ScoringContext {
        vector,
        nearest: near.first().map_or(0.0, |(_, cosine)| *cosine),
        recent: &window.said,
        speaker: speaker(turn),
        role: turn.role,
        linked: !links.replaced.is_empty() || !links.opposed.is_empty(),
        rarity: cx.settings.rarity,
        spread: cx.settings.spread,
        chatter: chatter(cx, &candidate.text, vector),
        own_words: &own_words,
    };
    let mut surprise = score::surprise(&measured, &ground, &policy.weights);
    let threshold = if said.has_foreign_totals {
        policy.gate.fixed
    } else {
        score::threshold(&policy.gate, &staged.scores_with(cx.key(), surprise.total)?)
    };
    let mut verdict = verdict(cx, said, &surprise, threshold);
    let is_own = same.is_none() && turn.role == Role::User;
    // Not for any other dropped turn: the search reads some fifty memories.
    let may_be_change =
        || PossibleRevision::of(&candidate.text).is_some_and(|new| new.changes_it());
    if is_own && (verdict.keep || may_be_change()) {
        add_revisions(cx, staged, said, &mut links)?;
        // Adds no points: the turn is kept without it.
        let probabilities = links.revised.iter().map(|revised| revised.probability);
        surprise.contradiction = probabilities.fold(surprise.contradiction, f32::max);
        if !verdict.keep && surprise.contradiction >= cx.rules.change.mark {
            let reason = "changes what was said before".to_owned();
            verdict = GateVerdict { keep: true, reason, class: "change" };
        }
    }
    link_each_once(&mut links);
    let (outcome, class, reason) = concluded(cx, said, &verdict, same.as_ref(), &links);
    Ok(Judgement {
        outcome,
        class,
        reason,
        kind: candidate.kind.clone(),
        threshold,
        importance: surprise.total.clamp(IMPORTANCE_MIN, 1.0),
        confidence: confidence(turn.role),
        confirms: turn.role == Role::User,
        same: same.map(|same| same.memory),
        links,
        lifecycle: Lifecycle::Active,
        learned: Some(Learned {
            stems: (turn.role == Role::User).then(|| measured.stems().clone()),
            total: surprise.total,
        }),
        surprise,
    })
}

/// An encoder for English gives a text in another language a vector without a meaning.
fn chatter(cx: &Context<'_>, text: &str, vector: &Vector) -> f32 {
    let learned = cx.settings.chatter;
    let learned = learned.filter(|learned| !learned.english_only || text::is_english(text));
    learned.map_or(0.0, |learned| learned.probability(vector))
}

/// Adds the memories that the candidate probably revises, and those whose value it may change.
fn add_revisions(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
    links: &mut Links,
) -> Result<()> {
    links.revised = revised(cx, staged, said)?;
    let person = slots::Person { role: said.turn.role, speaker: said.turn.speaker.as_deref() };
    // Order matters: a revision puts the newer one first.
    let mut doubtful = slots::doubtful(staged, cx.key(), &said.candidate.slots, person)?;
    let revised = |id| links.revised.iter().any(|revised| revised.memory.id == id);
    doubtful.retain(|doubtful| !revised(doubtful.memory.id));
    links.opposed.extend(doubtful);
    Ok(())
}

/// Finds the memories of the same person that the candidate probably revises.
fn revised(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
) -> Result<Vec<Revised>> {
    let CandidateInput { turn, candidate, vector, .. } = said;
    let Some(news) = PossibleRevision::of(&candidate.text) else { return Ok(Vec::new()) };
    let near = cx.nearest_lasting(staged, vector, revisions::NEIGHBOURS)?;
    let new = revisions::Statement {
        news: &news,
        role: turn.role,
        speaker: turn.speaker.as_deref(),
        vector,
        near: &near,
        closed: &[],
    };
    revisions::revised(cx, staged, new)
}

/// Reduces several links to one memory to the first kind: replaced, then contradicted, then
/// revised.
fn link_each_once(links: &mut Links) {
    let mut linked: HashSet<MemoryId> = links.replaced.iter().map(|memory| memory.id).collect();
    links.opposed.retain(|opposed| linked.insert(opposed.memory.id));
    links.revised.retain(|revised| linked.insert(revised.memory.id));
}

/// Compares surprise with the threshold. A profile may keep every turn of a role regardless of
/// surprise.
fn verdict(
    cx: &Context<'_>,
    said: CandidateInput<'_>,
    surprise: &domain::Surprise,
    threshold: f32,
) -> GateVerdict {
    let verdict = score::verdict(surprise, threshold);
    if verdict.keep || cx.rules.treatment(said.turn.role) != Treatment::Keep {
        return verdict;
    }
    let reason = format!("every {} turn is kept", said.turn.role.as_str());
    GateVerdict { keep: true, reason, class: "role" }
}

/// Chooses the outcome (merged, dropped, superseded or kept) with its class and reason.
fn concluded(
    cx: &Context<'_>,
    said: CandidateInput<'_>,
    verdict: &GateVerdict,
    same: Option<&Same>,
    links: &Links,
) -> (Outcome, &'static str, String) {
    if let Some(Same { memory, cosine }) = same {
        let (class, verb) = match said.turn.role {
            Role::User => ("repetition", "said before on"),
            _ => ("echo", "repeats a memory of"),
        };
        let reason = format!("{verb} {}, cosine {cosine:.2}", text::day(memory.created_at));
        return (Outcome::Merged, class, reason);
    }
    if !verdict.keep {
        return (Outcome::Dropped, verdict.class, verdict.reason.clone());
    }
    let mut replaced = links.replaced.iter();
    if let Some(closed) =
        replaced.clone().find(|old| slots::closes(cx, cx.event.at, &said.candidate.text, old))
    {
        let verb = if slots::is_late(cx, cx.event.at, closed) {
            "was true until"
        } else {
            "takes the place of"
        };
        let reason = format!("{verb} \"{}\"", text::shortened(&closed.content, 60));
        return (Outcome::Superseded, verdict.class, reason);
    }
    let linked = replaced
        .next()
        .map(|old| format!("says otherwise than \"{}\"", text::shortened(&old.content, 60)));
    let opposed = links.opposed.first().map(|Opposed { why, .. }| why.clone());
    let revised = links.revised.first().map(|Revised { why, .. }| why.clone());
    let reason = linked.or(opposed).or(revised).unwrap_or_else(|| verdict.reason.clone());
    (Outcome::Kept, verdict.class, reason)
}

/// Finds a memory with the same statement by the same speaker. The echo of an assistant may repeat
/// the memory of any speaker.
fn same(
    policy: &Keepsake,
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
    near: &[(MemoryId, f32)],
) -> Result<Option<Same>> {
    let CandidateInput { turn, candidate, .. } = said;
    let merge = &policy.merge;
    let is_echo = turn.role != Role::User;
    // A cosine above 1 switches merging off.
    let least =
        if is_echo && merge.cosine <= 1.0 { merge.cosine.min(ECHO_COSINE) } else { merge.cosine };
    let statement = LazyCell::new(|| score::Statement::of(&candidate.text));
    for &(id, cosine) in near.iter().take_while(|(_, cosine)| *cosine >= least) {
        let Some(memory) = staged.memory(cx.key(), id)? else { continue };
        // A statement to everybody does not vanish in a memory that is private or switched off.
        let is_open = memory.scope == Scope::User && !memory.disabled;
        let is_by_same = memory.role == turn.role && memory.speaker == turn.speaker;
        let may_be_same = is_echo || is_by_same && is_open;
        if may_be_same
            && memory.valid_to.is_none()
            && !memory.stands_alone()
            && statement.is_same(&memory.content, merge.overlap)
        {
            return Ok(Some(Same { memory, cosine }));
        }
    }
    Ok(None)
}
