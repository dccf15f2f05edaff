//! Withholds turns from memory: at the user's wish, or because the profile forbids their category.
//! None of their words is written: no memory, no context for later turns, no text in the decision.
//! `events/remember.rs` and `events/update.rs` call `never` for their own texts.

use super::context::Context;
use super::erase::{erase, put_changed};
use super::events::forget;
use super::handled::{Forgotten, Handled};
use super::prepared::Withheld;
use super::reads::Reads;
use super::staged::Staged;
use crate::Rules;
use domain::fault::Result;
use domain::{
    Category, ContextTurn, Decision, Memory, MemoryId, Outcome, Position, Role, Target, Turn,
    Vector,
};
use std::collections::HashSet;
use text::consent::{self, Retraction, Wish};
use text::wordings::fold;

/// The advice in each decision that erases nothing although the turn has words of forgetting.
const UNCLEAR: &str =
    "a wish to forget inside other text erases nothing: send a forget event, or say it alone";
const NO_TOPIC: &str = "nothing is erased, because the turn before does not name what is to be forgotten: send a forget event";
const OTHER_DEED: &str = "nothing is erased, because this may answer a question or be about a file: send a forget event, or name what was said";

/// Reads the turn alone, before splitting: a withheld turn is neither split nor encoded.
pub fn withheld(turn: &Turn, rules: &Rules) -> Option<Withheld> {
    match wish(turn, rules) {
        Some(Wish::SkipThisTurn) => Some(Withheld::Asked),
        Some(Wish::ForgetLastTurn(_)) => Some(Withheld::TakenBack),
        Some(Wish::Unclear) | None => never(&turn.content, rules).map(Withheld::Never),
    }
}

fn wish(turn: &Turn, rules: &Rules) -> Option<Wish> {
    let is_heeded = rules.policy.traits().wishes && turn.role == Role::User;
    is_heeded.then(|| consent::wish(&turn.content)).flatten()
}

/// Adds to the first decision on a turn that the turn's words of forgetting erase nothing.
pub fn advise(handled: &mut Handled, turn: &Turn, rules: &Rules) {
    if let Some(decision) = handled.decisions.first_mut()
        && wish(turn, rules) == Some(Wish::Unclear)
    {
        decision.reason = format!("{}; {UNCLEAR}", decision.reason);
    }
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
        Withheld::Asked => cx.withholding(Outcome::Dropped, "the user asks not to remember it"),
        Withheld::Never(category) => cx.withholding(Outcome::Dropped, never_reason(category)),
        Withheld::TakenBack if cx.event.limits.no_forget => cx.decision(
            Outcome::Refused,
            "asks to forget what was said before, and its sender may not forget: nothing is erased",
        ),
        Withheld::TakenBack => match doubt(cx, staged, turn)? {
            Some(reason) => cx.decision(Outcome::Dropped, reason),
            None => take_back(cx, staged, handled)?,
        },
    };
    handled.decide(decision);
    leave_a_gap(cx, staged, turn)
}

/// True if an assistant's turn follows a withheld one: most such turns repeat the withheld words.
pub fn is_echo(cx: &Context<'_>, staged: &Staged<'_>, turn: &Turn) -> Result<bool> {
    if turn.role == Role::User || !cx.rules.policy.traits().wishes {
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
    handled.decide(cx.withholding(Outcome::Dropped, "answers what was not to be remembered"));
    leave_a_gap(cx, staged, turn)
}

/// Returns why a wish to forget may mean something else than the turn before.
fn doubt(cx: &Context<'_>, staged: &Staged<'_>, turn: &Turn) -> Result<Option<&'static str>> {
    let Some(Wish::ForgetLastTurn(Retraction { names_memory, topic })) = wish(turn, cx.rules)
    else {
        return Ok(None);
    };
    let window = staged.window(cx.key(), cx.session())?;
    let last_of_user = window.said.iter().rposition(|said| said.role == Role::User);
    let (said, since) = window.said.split_at(last_of_user.map_or(0, |last| last + 1));
    // "Shall I delete the draft?" – "Please delete that."
    let is_answer = since.iter().any(|other| other.role == Role::Tool || other.question > 0.0);
    let is_named = topic.is_none_or(|topic| {
        let said = said.last().map_or(String::new(), |said| fold(&said.content));
        let named = text::terms_of_english(&said);
        text::terms_of_english(&topic).iter().any(|word| named.iter().any(|other| other == word))
    });
    Ok(match () {
        () if !is_named => Some(NO_TOPIC),
        () if !names_memory && is_answer => Some(OTHER_DEED),
        () => None,
    })
}

/// Erases the memories of the session's last user turn, and of the answers to that turn.
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
    let salt = forget::salt(cx, cx.source());
    let mut receipt = forget::receipt(cx, Target::Turn, &salt, &erased);
    receipt.turns.extend(turns.iter().cloned());
    handled.erasure = Some(receipt);
    handled.forgotten.push(Forgotten::OfTurns(key.clone(), turns));
    let decision = cx.withholding(Outcome::Forgotten, reason);
    Ok(Decision { salt: Some(salt), memory: ids.first().copied(), related: ids, ..decision })
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
