//! Applies a turn: each candidate is judged by the policy, then kept, merged or dropped. The turn
//! itself becomes context for the next one in any case.
//!
//!   withheld? → for each candidate: shadow, judge, apply → extract → context window

use crate::Rules;
use crate::context::Context;
use crate::handled::Handled;
use crate::links::{conflicts, revisions, slots};
use crate::policy::{CandidateInput, Judgement, Lifecycle, Links};
use crate::prepared::Statements;
use crate::reads::Reads;
use crate::rules::Treatment;
use crate::staged::Staged;
use crate::straggler::newer_forgets;
use crate::{quota, shadow, straggler, withheld};
use domain::fault::Result;
use domain::{
    ContextTurn, Decision, Memory, MemoryId, NeighbourTurn, NeighbourTurns, Outcome, Role, Scope,
    Signal, Turn, Vector,
};
use text::split::Candidate;

/// Words of a turn in the context window: the first ones, which memories also store of neighbours,
/// and the last ones, where a long turn has its question.
const WINDOW_WORDS_FIRST: usize = 40;
const WINDOW_WORDS_LAST: usize = 20;
/// A longer turn with a question mark is no plain question.
const QUESTION_WORDS: f32 = 40.0;

pub fn turn(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    (turn, said): (&Turn, &Statements),
    shadow: Option<&Rules>,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let Statements { candidates, parts, withheld } = said;
    if let Some(reason) = *withheld {
        withheld::withhold(cx, staged, &mut handled, turn, reason)?;
        return Ok(handled);
    }
    if withheld::is_echo(cx, staged, turn)? {
        withheld::withhold_echo(cx, staged, &mut handled, turn)?;
        return Ok(handled);
    }
    if candidates.is_empty() {
        let dropped = cx.decision(Outcome::Dropped, reason_for_no_candidate(cx, turn));
        // The words of a turn with `remember: false` are in the event and nowhere else.
        handled.decide(Decision { withheld: !turn.remember, ..dropped });
    }
    let mut last = None;
    let newer = newer_forgets(cx, staged)?;
    let mut is_partly_forgotten = false;
    for (candidate, vector) in candidates {
        if newer.cover(&candidate.text) {
            if !is_partly_forgotten {
                handled.decide(cx.withholding(Outcome::Refused, straggler::REASON));
            }
            is_partly_forgotten = true;
            continue;
        }
        let said = CandidateInput { turn, candidate, vector, has_foreign_totals: false };
        // Order matters: the shadow judges the state before this candidate changes it.
        let shadowed = shadow.map(|rules| shadow::judge(cx, staged, said, rules)).transpose()?;
        handled.shadows.extend(shadowed);
        let mut judgement = cx.rules.policy.judge(cx, staged, said)?;
        handled.judged.push((judgement.outcome, judgement.class));
        if judgement.outcome == Outcome::Kept
            && let Some(why) = quota::refusal(cx, staged)?
        {
            (judgement.outcome, judgement.reason) = (Outcome::Refused, why);
            handled.over_quota += 1;
        }
        let decision = stage(cx, staged, said, judgement)?;
        last = decision.memory.filter(|_| decision.outcome != Outcome::Merged).or(last);
        handled.decide(decision);
    }
    cx.rules.policy.extract(cx, staged, turn, &mut handled)?;
    let kept = candidates.len();
    if kept < *parts {
        handled.decide(cx.decision(
            Outcome::Refused,
            format!("the turn has {parts} parts, the limit is {kept}: the rest was not looked at"),
        ));
    }
    withheld::advise(&mut handled, turn, cx.rules);
    // A partly forgotten turn is no context: the forgotten words would come back as neighbours.
    if !is_partly_forgotten {
        add_to_context(cx, staged, turn, candidates.first(), last)?;
    }
    Ok(handled)
}

fn reason_for_no_candidate(cx: &Context<'_>, turn: &Turn) -> String {
    match cx.rules.treatment(turn.role) {
        _ if !turn.remember => "the sender asks not to remember it: context only".to_owned(),
        Treatment::Context => format!("{} turns are context only", turn.role.as_str()),
        _ => "nothing was said".to_owned(),
    }
}

/// Stages the consequences of a judgement.
fn stage(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    said: CandidateInput<'_>,
    judgement: Judgement,
) -> Result<Decision> {
    let mut decision = judgement.decision(cx, said.candidate);
    if let Some(learned) = &judgement.learned {
        if let Some(stems) = &learned.stems {
            staged.add_own_words(cx.key(), stems)?;
        }
        staged.push_score(cx.key(), learned.total)?;
    }
    if let Some(old) = judgement.same {
        if judgement.confirms {
            let mut old = confirm(cx, old);
            // The user states what another role has said.
            if old.role != Role::User && said.turn.role == Role::User {
                old.confidence = old.confidence.max(judgement.confidence);
            }
            staged.put_memory(old);
        }
        return Ok(decision);
    }
    if matches!(decision.outcome, Outcome::Dropped | Outcome::Refused) {
        return Ok(decision);
    }
    let window = staged.window(cx.key(), cx.session())?;
    let is_in_session = cx.session().is_some();
    let scope = cx.rules.policy.traits().scope_in_session;
    let mut memory = Memory {
        scope: if is_in_session { scope } else { Scope::User },
        speaker: said.turn.speaker.clone(),
        role: said.turn.role,
        importance: judgement.importance,
        confidence: judgement.confidence,
        archived: judgement.lifecycle == Lifecycle::Waiting,
        stability: cx.rules.policy.traits().stability_of(&said.candidate.text),
        surprise: Some(judgement.surprise),
        threshold: Some(judgement.threshold),
        reason: judgement.reason,
        around: around(&window.said),
        ..cx.memory(said.candidate.span, &said.candidate.text, judgement.kind)
    };
    decision.memory = Some(memory.id);
    link(cx, staged, &mut memory, judgement.links)?;
    staged.put_memory_and_vector(memory, said.vector);
    Ok(decision)
}

/// Sets the links of a new memory.
pub fn link(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    memory: &mut Memory,
    links: Links,
) -> Result<()> {
    for old in links.replaced {
        slots::succeed(cx, staged, memory, old)?;
    }
    for opposed in links.opposed {
        conflicts::link(cx, staged, memory, opposed.memory);
    }
    slots::hold(staged, memory, &links.slots);
    for revised in links.revised {
        revisions::link(cx, staged, memory, revised)?;
    }
    Ok(())
}

/// Confirms a memory whose statement was said again.
pub fn confirm(cx: &Context<'_>, mut memory: Memory) -> Memory {
    let effect = cx.rules.feedback.effect(Signal::Confirmed);
    memory.confirmed += 1;
    memory.confidence = (memory.confidence + effect.confidence).clamp(0.0, 1.0);
    memory.fresh_at = memory.fresh_at.max(cx.event.at);
    memory.archived = false;
    memory.compressed_by = None;
    cx.touch(&mut memory);
    memory
}

/// Adds the turn to the context window of the session, also a turn that became no memory.
fn add_to_context(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    turn: &Turn,
    first: Option<&(Candidate, Vector)>,
    memory: Option<MemoryId>,
) -> Result<()> {
    let vector = first.map(|(_, vector)| vector.clone());
    let said = ContextTurn {
        speaker: speaker(turn).into(),
        role: turn.role,
        content: begin_and_end(&turn.content).into(),
        vector: vector.unwrap_or_default(),
        source: Some(cx.source().clone()),
        question: question(&turn.content),
        memory,
    };
    if memory.is_none() {
        lend_words(cx, staged, &said)?;
    }
    staged.push_turn(cx.key(), cx.session(), &said)?;
    staged.count_turn(cx.key(), cx.session(), cx.event.at)
}

/// Adds the words of a turn that became no memory to the memory of the turn before, which can then
/// be found by them.
fn lend_words(cx: &Context<'_>, staged: &mut Staged<'_>, said: &ContextTurn) -> Result<()> {
    let window = staged.window(cx.key(), cx.session())?;
    let Some(id) = window.said.last().and_then(|before| before.memory) else { return Ok(()) };
    let Some(mut memory) = staged.memory(cx.key(), id)? else { return Ok(()) };
    memory.around.after = neighbour(said);
    // The version stays: nothing that a proposal could have seen is different.
    memory.changed = cx.offset;
    staged.put_memory(memory);
    Ok(())
}

/// The last turns of the session as a memory stores them.
fn around(recent: &[ContextTurn]) -> NeighbourTurns {
    let mut last = recent.iter().rev();
    let before = last.next().and_then(neighbour);
    let earlier = last.next().and_then(neighbour);
    let earlier = earlier.map(|earlier| NeighbourTurn { vector: Vector::default(), ..earlier });
    NeighbourTurns { before, earlier, after: None }
}

fn neighbour(said: &ContextTurn) -> Option<NeighbourTurn> {
    Some(NeighbourTurn {
        source: said.source.clone()?,
        speaker: said.speaker.clone(),
        words: neighbour_words(&said.content).into(),
        vector: said.vector.clone(),
        question: said.question,
    })
}

/// The words that a memory stores of a neighbouring turn.
pub fn neighbour_words(content: &str) -> String {
    text::first_words(content, WINDOW_WORDS_FIRST)
}

/// The probability that the turn is a question: 1 for a short turn with a question mark.
fn question(content: &str) -> f32 {
    if !content.contains('?') {
        return 0.0;
    }
    let words = content.split_whitespace().count().max(1);
    (QUESTION_WORDS / words as f32).min(1.0).powi(2)
}

/// The first and the last words of a turn; of a short one, all.
fn begin_and_end(content: &str) -> String {
    let words: Vec<&str> = content.split_whitespace().collect();
    if words.len() <= WINDOW_WORDS_FIRST + WINDOW_WORDS_LAST {
        return words.join(" ");
    }
    let first = words[..WINDOW_WORDS_FIRST].join(" ");
    let last = words[words.len() - WINDOW_WORDS_LAST..].join(" ");
    format!("{first} … {last}")
}

pub fn speaker(turn: &Turn) -> &str {
    turn.speaker.as_deref().unwrap_or(turn.role.as_str())
}

/// Confidence in a statement: the user's own words are certain, a conclusion about the user less
/// so.
pub fn confidence(role: Role) -> f32 {
    if role == Role::User { 1.0 } else { 0.7 }
}
