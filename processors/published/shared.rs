//! Shares code between the five published policies: the input of a gate ([`Ground`]), the
//! conversion of a gate's result into a [`Judgement`], scores as sums of weighted parts, and the
//! order by score. Pure, except for reads through [`Staged`].

#[cfg(test)]
pub mod samples;
pub mod wording;

use domain::fault::Result;
use domain::{
    ContextTurn, Kind, Levels, Memory, MemoryId, Outcome, Remember, Role, Scope, Surprise, Time,
    Vector,
};
use kernel::context::Context;
use kernel::policy::{CandidateInput, Judgement, Lifecycle, Links, RememberJudgement};
use kernel::ranking::{Hit, Question, Ranked, RankedHits};
use kernel::reads::Reads;
use kernel::rules::Treatment;
use kernel::staged::Staged;
use policies::rank::frame::Frame;
use policies::rank::{admitted, better_first, is_superseded};
use regex::Regex;
use std::sync::Arc;
use text::Rarity;

/// Everything a gate reads to judge a candidate.
pub struct Ground<'a> {
    /// The user's memories without the archive, oldest first.
    pub memories: &'a [Memory],
    /// The last turns of this session, oldest first.
    pub recent: &'a [ContextTurn],
    /// The cosine to the centroid of the memories that do not expire; `None` if there are none.
    pub nearness_to_all: Option<f32>,
    pub rarity: &'a Rarity,
    pub role: Role,
    /// The kind that the sender gave. A hint overrides the kind that the gate finds in the text.
    pub hint: Option<&'a Kind>,
}

/// A gate's conclusion about a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub surprise: Surprise,
    pub threshold: f32,
    pub keep: bool,
    pub reason: String,
    pub kind: Kind,
    pub importance: f32,
    pub confidence: f32,
    /// The memory with the same statement. That memory is confirmed, and no second one is made.
    pub same: Option<MemoryId>,
}

/// Selects the optional inputs of a gate: reading them costs time, and few gates need both.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    pub memories: bool,
    pub centroid: bool,
}

/// Collects the gate's inputs, runs the gate, and converts the result into a judgement.
pub fn judgement(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    said: CandidateInput<'_>,
    reading: Reading,
    gate: impl Fn(&str, &Ground<'_>) -> Judged,
) -> Result<Judgement> {
    let memories = if reading.memories { memories(cx, staged)? } else { Vec::new() };
    let nearness_to_all = match reading.centroid && !is_first_text(cx, staged)? {
        true => staged.cosine_to_all(cx.key(), said.vector)?,
        false => None,
    };
    let window = staged.window(cx.key(), cx.session())?;
    let ground = Ground {
        memories: &memories,
        recent: &window.said,
        nearness_to_all,
        rarity: cx.settings.rarity,
        role: said.turn.role,
        hint: said.turn.kind.as_ref(),
    };
    let judged = gate(&said.candidate.text, &ground);
    let same = judged.same.and_then(|id| memories.iter().find(|memory| memory.id == id)).cloned();
    let by_role = !judged.keep && cx.rules.treatment(said.turn.role) == Treatment::Keep;
    let (outcome, reason, class) = match &same {
        Some(old) => {
            let reason = format!("said before on {}", text::day(old.created_at));
            (Outcome::Merged, reason, "repetition")
        }
        None if by_role => (Outcome::Kept, judged.reason, "role"),
        None if judged.keep => (Outcome::Kept, judged.reason, "policy"),
        None => (Outcome::Dropped, judged.reason, "policy"),
    };
    Ok(Judgement {
        outcome,
        reason,
        class,
        kind: judged.kind,
        surprise: judged.surprise,
        threshold: judged.threshold,
        importance: judged.importance,
        confidence: judged.confidence,
        confirms: same.is_some(),
        same,
        links: Links::default(),
        lifecycle: Lifecycle::Active,
        learned: None,
    })
}

/// Reads the user's memories without the archive, those that expire and those that are private to
/// another session, oldest first.
/// Limit: every candidate reads all memories. The published documents expect hundreds; a profile's
/// `prune.count_max` is the bound.
pub fn memories(cx: &Context<'_>, staged: &Staged<'_>) -> Result<Vec<Memory>> {
    let mut memories = memories_and_archive(cx, staged)?;
    memories.retain(|memory| {
        !memory.archived && !memory.stands_alone() && !is_private_elsewhere(memory, cx.session())
    });
    Ok(memories)
}

/// True for a memory that only another session may read.
pub fn is_private_elsewhere(memory: &Memory, session: Option<&str>) -> bool {
    memory.scope == Scope::Session && memory.session.as_deref() != session
}

/// True while the user has no memory but those of this event. All parts of a user's first text are
/// compared with nothing, and not with each other.
fn is_first_text(cx: &Context<'_>, staged: &Staged<'_>) -> Result<bool> {
    let mut is_first = true;
    staged.memories(cx.key(), &mut |memory| {
        is_first = memory.source == *cx.source();
        is_first
    })?;
    Ok(is_first)
}

/// Reads the user's memories with the archive, oldest first.
pub fn memories_and_archive(cx: &Context<'_>, staged: &Staged<'_>) -> Result<Vec<Memory>> {
    let mut memories = Vec::new();
    staged.memories(cx.key(), &mut |memory| {
        memories.push(memory);
        true
    })?;
    memories.sort_by_key(|memory| (memory.created_at, memory.source.offset, memory.id));
    Ok(memories)
}

/// Compiles a fixed pattern.
pub fn pattern(fixed: &str) -> Regex {
    Regex::new(fixed).expect("a fixed pattern, compiled by the tests")
}

/// Returns the kind of the first wording that matches the text, else `fact`.
pub fn first_kind(wordings: &[(&str, Regex)], text: &str) -> Kind {
    let first = wordings.iter().find(|(_, wording)| wording.is_match(text));
    Kind::new(first.map_or("fact", |(kind, _)| kind))
}

/// Rates a statement by the speaker: 1.0 for the user's own words, 0.7 for a conclusion of others.
pub fn confidence(role: Role) -> f32 {
    if role == Role::User { 1.0 } else { 0.7 }
}

/// Returns the wish of a document with one confidence and without links: the sender's kind, or the one
/// that `kind` finds in the text.
pub fn wish(asked: &Remember<Vector>, kind: impl Fn(&str) -> Kind) -> RememberJudgement {
    let kind = asked.kind.clone().unwrap_or_else(|| kind(&asked.content.text));
    RememberJudgement { kind, confidence: 1.0, same: None, links: Links::default() }
}

/// Returns a frame with one section, in the order of the ranking.
pub fn frame<'t>(opening: &'t str, write: impl Fn(&Ranked) -> String + 't) -> Frame<'t> {
    Frame {
        opening,
        headings: &[],
        between: "",
        closing: "",
        write: Box::new(write),
        section: |_| 0,
        shares: &[],
    }
}

/// Converts a condition into a factor: 1 if the condition holds, else 0.
pub fn held(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

/// Lists the parts of a total, the largest first: "novelty .40, emphasis .10".
pub fn listed(points: &[(&'static str, f32)]) -> String {
    let mut parts: Vec<_> = points.iter().filter(|point| point.1 != 0.0).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, points)| format!("{name} {points:.2}").replacen("0.", ".", 1))
        .collect();
    if parts.is_empty() { "no points".to_owned() } else { parts.join(", ") }
}

/// Orders the admitted hits and cuts the list at the requested limit. No score floor and no
/// diversification: the published documents have neither.
pub fn order(
    hits: Vec<Hit>,
    question: &Question<'_>,
    at: Time,
    ranked: impl Fn(Vec<Hit>, Time) -> Vec<Ranked>,
) -> RankedHits {
    let mut all = all_in_order(hits, question, at, ranked);
    all.ranked.truncate(question.limit);
    all
}

/// Orders the admitted hits, for a policy that selects from them.
pub fn all_in_order(
    mut hits: Vec<Hit>,
    question: &Question<'_>,
    at: Time,
    ranked: impl Fn(Vec<Hit>, Time) -> Vec<Ranked>,
) -> RankedHits {
    hits.retain(|hit| admitted(&hit.memory, question));
    RankedHits {
        ranked: ranked(hits, question.as_of.unwrap_or(at)),
        wishes: Vec::new(),
        matched: None,
        levels: Levels::default(),
    }
}

/// Returns the number of memories in an answer: the request's `limit` up to `most`, or else the
/// document's `standard`.
pub fn limit(asked: &domain::Recall, standard: usize, most: usize) -> usize {
    if asked.unsaid.limit { standard } else { asked.limit.min(most) }
}

/// Scores a memory by the sum of its weighted parts. The terms of the result name each part.
pub fn summed(
    memory: Arc<Memory>,
    question: &Question<'_>,
    parts: &[(&'static str, f32)],
) -> Ranked {
    let score = parts.iter().map(|(_, points)| points).sum();
    let terms = parts.iter().copied().chain([("score", score)]).collect();
    let superseded = is_superseded(&memory, question);
    Ranked::new(memory, score, superseded, terms)
}

/// Sorts by score, the best first.
pub fn best_first(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_by(better_first);
    ranked
}

/// Returns the days since `fresh_at`: the last use or confirmation, or else the creation.
pub fn days_since_access(memory: &Memory, at: Time) -> f32 {
    at.days_since(memory.fresh_at).max(0.0)
}
