//! Reads the stored turns of a session, and asks the language model for facts about the user that
//! the rules did not keep.
//!
//! Only turns that may be remembered are read: a turn that is off the record, withheld, or of a
//! role that is context only was never split into candidates, and has no vector in the context
//! window and no memory. The context window has the last six turns, which is why a session is read
//! after a pause of `idle_hours`, and not at the end.
//!
//! An answer becomes an `extracted` event, also one without facts, so that a session is asked about
//! once. Where the endpoint failed there is no event, and a later round asks again.

use super::model::{Task, has_form};
use crate::plan::{Snapshot, seen};
use domain::{
    Author, Authorship, Extracted, Fact, Kind, Memory, MemoryVersion, Position, Role, Scope, Time,
};
use kernel::Session;
use kernel::reads::ContextWindow;
use kernel::rules::Treatment;
use llm::{Refusal, Shape};
use profiles::{Extract, Profile};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use text::faithful::{Kept, Sources};
use uuid::Uuid;

const HOUR_MS: f32 = 3_600_000.0;
const FACT_CHARS_MAX: usize = 300;
/// Without `instruction`: instructions stand first in every prompt and never fade, so only the
/// user's own words make one.
const KINDS: [&str; 4] = ["fact", "preference", "event", "decision"];

/// A turn in the form that the model reads.
struct ReadTurn {
    source: Position,
    role: Role,
    speaker: String,
    text: String,
    memories: Vec<MemoryVersion>,
}

/// A session to ask about.
pub struct PlannedExtraction {
    pub id: String,
    pub session: String,
    turns: Vec<ReadTurn>,
    facts_max: usize,
    /// When the turns were read: a later `forget` counts against the answer.
    pub at: Time,
}

/// Plans one question for each session of the user that has paused.
pub fn plan(
    snapshot: &Snapshot,
    windows: &[(String, Arc<ContextWindow>)],
    profile: &Profile,
    now: Time,
) -> Vec<PlannedExtraction> {
    let Extract { idle_hours, age_days, facts_max, .. } = profile.extract;
    let sessions = snapshot.sessions.iter().filter(|(_, Session { last_at, .. })| {
        now.ms_since(*last_at) as f32 >= idle_hours * HOUR_MS
            && now.days_since(*last_at) <= age_days
    });
    let mut planned = Vec::new();
    for (name, _) in sessions {
        let window = windows.iter().find(|(session, _)| session == name).map(|(_, window)| window);
        let turns = turns(snapshot, name, window.map(Arc::as_ref), profile);
        // Without a word of the user there is nothing to learn about the user.
        if turns.iter().any(|turn| turn.role == Role::User) {
            let id = id_of(name, &turns);
            planned.push(PlannedExtraction {
                id,
                session: name.clone(),
                turns,
                facts_max,
                at: now,
            });
        }
    }
    planned
}

/// The last turns of a session: those of its memories, and those of its context window that became
/// no memory.
fn turns(
    snapshot: &Snapshot,
    session: &str,
    window: Option<&ContextWindow>,
    profile: &Profile,
) -> Vec<ReadTurn> {
    let mut memories: Vec<&Memory> =
        snapshot.memories.iter().filter(|memory| is_turn_of(memory, session)).collect();
    memories.sort_by_key(|memory| (memory.created_at, memory.source.offset, memory.id));
    let mut turns: Vec<ReadTurn> = Vec::new();
    for memory in memories {
        match turns.iter_mut().find(|turn| turn.source == memory.source) {
            Some(turn) => {
                turn.text += "\n";
                turn.text += &memory.content;
                turn.memories.push(seen(memory));
            }
            None => turns.push(ReadTurn {
                source: memory.source.clone(),
                role: memory.role,
                speaker: memory.speaker.clone().unwrap_or_else(|| memory.role.as_str().into()),
                text: memory.content.clone(),
                memories: vec![seen(memory)],
            }),
        }
    }
    // A fact is for all sessions.
    let is_private = profile.rules.policy.traits().scope_in_session == Scope::Session;
    for said in window.iter().flat_map(|window| &window.said) {
        let Some(source) = &said.source else { continue };
        // Order matters: a turn without a vector had no candidates, and may not be remembered.
        let may_be_read = !is_private
            && !said.vector.is_empty()
            && !said.content.is_empty()
            && profile.rules.treatment(said.role) != Treatment::Context;
        if may_be_read && turns.iter().all(|turn| turn.source != *source) {
            turns.push(ReadTurn {
                source: source.clone(),
                role: said.role,
                speaker: said.speaker.to_string(),
                text: said.content.to_string(),
                memories: Vec::new(),
            });
        }
    }
    turns.sort_by(|a, b| a.source.cmp(&b.source));
    turns.drain(..turns.len().saturating_sub(profile.extract.turns_max));
    turns
}

/// A memory that a turn of this session became, and that holds.
fn is_turn_of(memory: &Memory, session: &str) -> bool {
    memory.session.as_deref() == Some(session)
        && memory.scope == Scope::User
        && memory.surprise.is_some()
        && memory.sources.is_empty()
        && !memory.archived
        && !memory.disabled
        && memory.valid_to.is_none()
        && !memory.stands_alone()
}

/// Derives the id from the turns and the versions of their memories. A question about the same
/// turns has the same id, so ingest applies one answer.
fn id_of(session: &str, turns: &[ReadTurn]) -> String {
    let mut name = session.to_owned();
    for turn in turns {
        let Position { topic, partition, offset } = &turn.source;
        name += &format!(" {topic}/{partition}/{offset}");
        for one in &turn.memories {
            name += &format!(" {}@{}", one.id, one.version);
        }
    }
    format!("extracted-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

impl PlannedExtraction {
    /// The data of the question: the turns with their numbers.
    pub fn data(&self) -> Value {
        let turns = self.turns.iter().enumerate().map(|(number, turn)| {
            json!({"turn": number, "role": turn.role.as_str(), "speaker": turn.speaker,
                "text": turn.text})
        });
        json!({ "turns": turns.collect::<Vec<_>>(), "facts_max": self.facts_max })
    }

    /// Makes the proposal of an answer. `None` if the endpoint failed: a later round asks again.
    pub fn extracted(&self, answer: Result<Value, Refusal>, model: &str) -> Option<Extracted> {
        match answer.map(serde_json::from_value::<Answer>) {
            Ok(Ok(answer)) => {
                let found = answer.facts.len();
                let mut facts: Vec<Fact> =
                    answer.facts.into_iter().map(WrittenFact::read).collect();
                facts.truncate(self.facts_max);
                facts.iter_mut().for_each(|fact| self.prefer_own_turns(fact));
                facts.retain(|fact| self.is_faithful(fact));
                let reason = match found - facts.len() {
                    0 => model.to_owned(),
                    left_out => format!("{model}, {left_out} of {found} facts left out"),
                };
                Some(self.found(facts, Authorship { by: Author::Model, reason }))
            }
            Ok(Err(_)) => Some(self.left_to_the_rules(Refusal::Invalid.reason())),
            Err(Refusal::Declined | Refusal::Invalid | Refusal::Truncated) => {
                Some(self.left_to_the_rules("the model gave no usable answer"))
            }
            Err(_) => None,
        }
    }

    /// The proposal of a session about which the model cannot be asked, or answers nothing usable.
    pub fn left_to_the_rules(&self, why: &str) -> Extracted {
        self.found(Vec::new(), Authorship { by: Author::Rules, reason: why.to_owned() })
    }

    fn found(&self, facts: Vec<Fact>, made: Authorship) -> Extracted {
        Extracted {
            turns: self.turns.iter().map(|turn| turn.source.clone()).collect(),
            seen: self.turns.iter().flat_map(|turn| turn.memories.clone()).collect(),
            facts,
            made,
        }
    }

    /// Leaves out turns of others where those of the user alone state the fact, so that the fact
    /// counts as the user's own.
    fn prefer_own_turns(&self, fact: &mut Fact) {
        let mut own = fact.turns.clone();
        own.retain(|turn| self.turns.get(*turn).is_some_and(|it| it.role == Role::User));
        if !own.is_empty() && self.is_stated_in(fact, &own) {
            fact.turns = own;
        }
    }

    fn is_stated_in(&self, fact: &Fact, turns: &[usize]) -> bool {
        let turns = turns.iter().filter_map(|turn| self.turns.get(*turn));
        let texts = turns.flat_map(|turn| [turn.text.as_str(), turn.speaker.as_str()]);
        Sources::of(texts).fault(&fact.content.text, &Kept::default(), FACT_CHARS_MAX).is_none()
    }

    /// True if the fact has only names, numbers and mostly words of the named turns, one of them
    /// the user's. A fact that names no turn, or one that was not sent, is compared with all turns;
    /// ingest then refuses the fact with a decision.
    fn is_faithful(&self, fact: &Fact) -> bool {
        let are_known = fact.turns.iter().all(|turn| *turn < self.turns.len());
        let turns = match are_known && !fact.turns.is_empty() {
            true => fact.turns.clone(),
            false => (0..self.turns.len()).collect(),
        };
        turns.iter().any(|turn| self.turns[*turn].role == Role::User)
            && self.is_stated_in(fact, &turns)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    facts: Vec<WrittenFact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFact {
    text: String,
    kind: String,
    turns: Vec<usize>,
}

impl WrittenFact {
    fn read(self) -> Fact {
        let kind = KINDS.iter().find(|kind| **kind == self.kind).unwrap_or(&KINDS[0]);
        Fact {
            content: self.text.trim().to_owned().into(),
            kind: Kind::new(kind),
            turns: self.turns,
        }
    }
}

pub fn task() -> Task {
    let instruction = "The field `turns` holds turns of one session between a user and an \
        assistant, in order. List the lasting facts about the user that the user states there: who \
        they are, what they have, like, plan or decided. Write each as one short sentence in the \
        first person, as the user would say it, in the language of the turns, understandable \
        without the conversation. Give its kind, and in `turns` the numbers of the turns that state \
        it. State nothing that these turns do not state, and copy no instruction, question or small \
        talk. List at most `facts_max` facts; an empty list is a good answer."
        .to_owned();
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["facts"],
        "properties": {"facts": {"type": "array", "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["text", "kind", "turns"],
            "properties": {
                "text": {"type": "string"},
                "kind": {"enum": KINDS},
                "turns": {"type": "array", "items": {"type": "integer"}}
            }
        }}}
    });
    Task { instruction, shape: Shape { name: "facts", schema, check: has_form::<Answer> } }
}
