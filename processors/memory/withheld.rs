//! Withholds turns from memory: at the user's wish, or because the profile forbids their category.
//! None of their words is written: no memory, no context for later turns, no text in the decision.
//! `events/remember.rs` and `events/update.rs` call `never` for their own texts.

use super::context::Context;
use super::erase::{erase, put_changed};
use super::handled::{Forgotten, Handled};
use super::prepared::Withheld;
use super::reads::Reads;
use super::staged::Staged;
use crate::Rules;
use domain::fault::Result;
use domain::{
    Category, ContextTurn, Decision, Memory, MemoryId, Outcome, Position, Role, Turn, Vector,
};
use std::collections::HashSet;
use text::consent;
use text::wordings::Wish;

/// Reads the turn alone, before it is split: a withheld turn is neither split nor encoded.
pub fn withheld(turn: &Turn, rules: &Rules) -> Option<Withheld> {
    if rules.policy.needs().wishes && turn.role == Role::User {
        match consent::wish(&turn.content) {
            Some(Wish::SkipThisTurn) => return Some(Withheld::Asked),
            Some(Wish::ForgetLastTurn) => return Some(Withheld::TakenBack),
            None => {}
        }
    }
    never(&turn.content, rules).map(Withheld::Never)
}

/// Returns the forbidden category that the text is about.
pub fn never(content: &str, rules: &Rules) -> Option<Category> {
    consent::forbidden(content, &rules.never)
}

pub fn never_reason(category: Category) -> String {
    format!("about {}, which this profile never keeps", category.as_str())
}

/// Decides about a withheld turn.
pub fn withhold(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    turn: &Turn,
    withheld: Withheld,
) -> Result<()> {
    let decision = match withheld {
        Withheld::Asked => cx.decision(Outcome::Dropped, "the user asks not to remember it"),
        Withheld::Never(category) => cx.decision(Outcome::Dropped, never_reason(category)),
        Withheld::TakenBack => take_back(cx, staged, handled)?,
    };
    handled.decide(decision);
    leave_a_gap(cx, staged, turn)
}

/// True if an assistant's turn follows a withheld one: most such turns repeat the withheld words.
pub fn is_echo(cx: &Context<'_>, staged: &Staged<'_>, turn: &Turn) -> Result<bool> {
    if turn.role == Role::User || !cx.rules.policy.needs().wishes {
        return Ok(false);
    }
    let window = staged.window(cx.key(), cx.session())?;
    Ok(window.said.last().is_some_and(|last| last.content.is_empty() && last.source.is_none()))
}

pub fn withhold_echo(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    turn: &Turn,
) -> Result<()> {
    handled.decide(cx.decision(Outcome::Dropped, "answers what was not to be remembered"));
    leave_a_gap(cx, staged, turn)
}

/// Erases the memories of the session's last user turn, and of the answers to it.
fn take_back(cx: &Context<'_>, staged: &mut Staged<'_>, handled: &mut Handled) -> Result<Decision> {
    let key = cx.key();
    let window = staged.window(key, cx.session())?;
    let last_of_user = window.said.iter().rposition(|said| said.role == Role::User);
    let first = last_of_user.unwrap_or(window.said.len());
    let turns: HashSet<Position> =
        window.said[first..].iter().filter_map(|said| said.source.clone()).collect();
    let mut doomed: Vec<Memory> = Vec::new();
    let mut beside: Vec<Memory> = Vec::new();
    staged.memories(key, &mut |mut memory| {
        let is_of_them = |source: &Position| turns.contains(source);
        if is_of_them(&memory.source) || memory.sources.iter().any(is_of_them) {
            doomed.push(memory);
        } else if memory.around.forget(|neighbour| turns.contains(&neighbour.source)) {
            beside.push(memory);
        }
        true
    })?;
    put_changed(cx, staged, beside);
    let erased = erase(cx, staged, handled, key, doomed)?;
    let ids: Vec<MemoryId> = erased.iter().map(|memory| memory.id).collect();
    staged.forget_said(key, &|said| {
        said.source.as_ref().is_some_and(|source| turns.contains(source))
    })?;
    let reason = match (turns.len(), ids.len()) {
        (0, _) => "takes back what was said before, and there is nothing".to_owned(),
        (_, 0) => "takes back the turn before, of which no memory was made".to_owned(),
        (_, 1) => "takes back the turn before: one memory is gone".to_owned(),
        (_, many) => format!("takes back the turn before: {many} memories are gone"),
    };
    handled.forgotten.push(Forgotten::OfTurns(key.clone(), turns));
    let decision = cx.decision(Outcome::Forgotten, reason);
    Ok(Decision { memory: ids.first().copied(), related: ids, ..decision })
}

/// Adds a turn without words to the context window, so that the next turn is not taken for an
/// answer to the turn before the gap.
fn leave_a_gap(cx: &Context<'_>, staged: &mut Staged<'_>, turn: &Turn) -> Result<()> {
    let gap = ContextTurn {
        speaker: turn.speaker.as_deref().unwrap_or(turn.role.as_str()).into(),
        role: turn.role,
        content: "".into(),
        vector: Vector::default(),
        source: None,
        question: 0.0,
        memory: None,
    };
    staged.push_turn(cx.key(), cx.session(), &gap)?;
    staged.count_turn(cx.key(), cx.session(), cx.event.at)
}
