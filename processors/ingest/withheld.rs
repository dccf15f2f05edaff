//! Withholds turns from memory: at the user's wish, or because the profile forbids their category. Nothing of their words is written: no
//! memory, no context for later turns, no text in the decision. `change.rs` asks `never` for the texts of `remember` and `update`.

#[cfg(test)]
mod tests;

use super::work::Work;
use super::{Here, Ingest};
use crate::domain::{
    Category, Decision, Event, Memory, MemoryId, Outcome, Position, Role, SaidBefore, Turn, Vector,
};
use crate::fault::Result;
use crate::profile::Profile;
use crate::stages::score::{self, Wish};
use crate::stages::store::Reading;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withheld {
    /// "Off the record."
    Asked,
    /// "Forget what I just said."
    TakenBack,
    Never(Category),
}

impl Withheld {
    /// By the words of a turn alone. Another system's gate is reproduced as it is, so its profile hears no wishes.
    pub(super) fn of(turn: &Turn, profile: &Profile) -> Option<Withheld> {
        if profile.rule.is_none() && turn.role == Role::User {
            match score::wish(&turn.content) {
                Some(Wish::Unsaid) => return Some(Withheld::Asked),
                Some(Wish::Unsay) => return Some(Withheld::TakenBack),
                None => {}
            }
        }
        never(&turn.content, profile).map(Withheld::Never)
    }
}

/// The forbidden category that the text is about.
pub(super) fn never(content: &str, profile: &Profile) -> Option<Category> {
    score::forbidden(content, &profile.never)
}

pub(super) fn never_reason(category: Category) -> String {
    format!("about {}, which this profile never keeps", category.as_str())
}

impl Ingest {
    pub(super) fn withhold(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
        withheld: Withheld,
    ) -> Result<()> {
        let decision = match withheld {
            Withheld::Asked => {
                here.decision(Outcome::Dropped, "the user asks not to remember it".to_owned())
            }
            Withheld::Never(category) => here.decision(Outcome::Dropped, never_reason(category)),
            Withheld::TakenBack => self.take_back(work, here)?,
        };
        work.decide(decision);
        leave_a_gap(work, here, turn)
    }

    /// An assistant's turn that follows a withheld one repeats it more often than not.
    pub(super) fn is_echo_of_withheld(
        &self,
        work: &Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
    ) -> Result<bool> {
        if turn.role == Role::User || here.profile.rule.is_some() {
            return Ok(false);
        }
        let tail = work.overlay.tail(here.key(), here.event.session.as_deref())?;
        Ok(tail
            .said
            .last()
            .is_some_and(|before| before.content.is_empty() && before.source.is_none()))
    }

    pub(super) fn withhold_echo(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        turn: &Turn,
    ) -> Result<()> {
        work.decide(
            here.decision(Outcome::Dropped, "answers what was not to be remembered".to_owned()),
        );
        leave_a_gap(work, here, turn)
    }

    /// Erases what became of the session's last turn of the user, and of what was answered to it.
    fn take_back(&self, work: &mut Work<'_>, here: &Here<'_>) -> Result<Decision> {
        let (key, session) = (here.key(), here.event.session.as_deref());
        let said = work.overlay.tail(key, session)?;
        let begin =
            said.said.iter().rposition(|said| said.role == Role::User).unwrap_or(said.said.len());
        let turns: HashSet<Position> =
            said.said[begin..].iter().filter_map(|said| said.source.clone()).collect();
        drop(said);
        let (mut doomed, mut beside): (Vec<Memory>, Vec<Memory>) = (Vec::new(), Vec::new());
        work.overlay.memories(key, &mut |mut memory| {
            if turns.contains(&memory.source) {
                doomed.push(memory);
            } else if memory.around.forget(|neighbour| turns.contains(&neighbour.source)) {
                beside.push(memory);
            }
            true
        })?;
        for mut memory in beside {
            memory.changed = work.applied;
            work.put(memory, None)?;
        }
        let ids: Vec<MemoryId> = self.erase(work, key, doomed)?;
        work.overlay.forget_said(key, &|said| {
            said.source.as_ref().is_some_and(|source| turns.contains(source))
        })?;
        work.forget_decisions(|decision| decision.key == *key && turns.contains(&decision.event));
        let reason = match (turns.len(), ids.len()) {
            (0, _) => "takes back what was said before, and there is nothing".to_owned(),
            (_, 0) => "takes back the turn before, of which no memory was made".to_owned(),
            (_, 1) => "takes back the turn before: one memory is gone".to_owned(),
            (_, many) => format!("takes back the turn before: {many} memories are gone"),
        };
        Ok(Decision {
            memory: ids.first().copied(),
            related: ids,
            ..here.decision(Outcome::Forgotten, reason)
        })
    }
}

/// A place in the session's last turns without words: what follows is no answer to the turn before the gap.
fn leave_a_gap(work: &mut Work<'_>, here: &Here<'_>, turn: &Turn) -> Result<()> {
    let gap = SaidBefore {
        speaker: turn.speaker.as_deref().unwrap_or(turn.role.as_str()).into(),
        role: turn.role,
        content: "".into(),
        vector: Vector::default(),
        source: None,
        question: 0.0,
        memory: None,
    };
    work.overlay.push_tail(here.key(), here.event.session.as_deref(), &gap)?;
    work.count_turn(here.key(), here.event.session.as_deref(), here.event.at)
}

/// Checks an event before it is split: a withheld turn is neither split nor encoded.
pub(super) fn of(event: &Event, profile: &Profile) -> Option<Withheld> {
    match &event.action {
        crate::domain::Action::Turn(turn) => Withheld::of(turn, profile),
        _ => None,
    }
}
