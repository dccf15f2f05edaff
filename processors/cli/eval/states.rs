//! Reads how memories stand to each other after a conversation, as a client would see it, in terms of the turns they stand for.

use super::show;
use crate::domain::{Decision, Outcome};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Links of a turn to an earlier one, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The earlier one is over.
    Superseded,
    /// The later one stands first, both are valid.
    Revised,
    /// One contradicts the other.
    Conflict,
}

impl How {
    pub const ALL: [How; 3] = [How::Superseded, How::Revised, How::Conflict];

    pub fn as_str(self) -> &'static str {
        match self {
            How::Superseded => "superseded",
            How::Revised => "revised",
            How::Conflict => "conflict",
        }
    }
}

/// Two turns by their positions in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub earlier: usize,
    pub later: usize,
    pub how: How,
}

/// All links of a conversation, and what became of the memories of each turn.
pub struct States<'m> {
    pub links: Vec<Link>,
    /// The memories that a turn made or was merged into, in their last state.
    of_turn: BTreeMap<&'m str, Vec<&'m Value>>,
}

impl<'m> States<'m> {
    pub fn of(
        decisions: &'m [Decision],
        memories: &'m [Value],
        positions: &HashMap<&str, usize>,
    ) -> States<'m> {
        let by_id: HashMap<&str, &Value> =
            memories.iter().map(|memory| (show::text(memory, "id"), memory)).collect();
        let mut of_turn: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        // A turn that was merged into a memory is one of those that the memory stands for.
        let mut turns_of: HashMap<String, Vec<usize>> = HashMap::new();
        let mut links = BTreeSet::new();
        for decision in decisions {
            let Some(turn) = decision.event_id.as_deref() else { continue };
            let Some(later) = positions.get(turn).copied() else { continue };
            let own = decision.memory.map(|id| id.0.to_string());
            let memory = own.as_deref().and_then(|id| by_id.get(id)).copied();
            let surest = if decision.outcome == Outcome::Superseded {
                How::Superseded
            } else {
                How::Conflict
            };
            for related in decision.related.iter().map(|id| id.0.to_string()) {
                let how = memory.and_then(|memory| how(memory, &related)).unwrap_or(surest);
                let earlier = turns_of.get(&related).into_iter().flatten();
                links.extend(earlier.map(|earlier| Link { earlier: *earlier, later, how }));
            }
            // A memory may be linked without a word of it in the decision.
            for (earlier, how) in memory.into_iter().flat_map(closed_by) {
                let earlier = turns_of.get(earlier).into_iter().flatten();
                links.extend(earlier.map(|earlier| Link { earlier: *earlier, later, how }));
            }
            of_turn.entry(turn).or_default().extend(memory);
            if let Some(own) = own {
                turns_of.entry(own).or_default().push(later);
            }
        }
        States { links: links.into_iter().collect(), of_turn }
    }

    /// The turn made memories, and each of them is over.
    pub fn is_outdated(&self, turn: &str) -> bool {
        self.of_turn.get(turn).is_some_and(|all| {
            !all.is_empty() && all.iter().all(|memory| memory["superseded_by"].is_string())
        })
    }

    /// Some memory of the turn stands below a newer one.
    pub fn is_revised(&self, turn: &str) -> bool {
        self.of_turn
            .get(turn)
            .is_some_and(|all| all.iter().any(|memory| !memory["revised_by"].is_null()))
    }

    pub fn is_kept(&self, turn: &str) -> bool {
        self.of_turn.get(turn).is_some_and(|all| !all.is_empty())
    }
}

/// Links of a memory to an earlier one.
fn how(memory: &Value, earlier: &str) -> Option<How> {
    closed_by(memory).find(|(id, _)| *id == earlier).map(|(_, how)| how)
}

fn closed_by(memory: &Value) -> impl Iterator<Item = (&str, How)> {
    let fields = [("supersedes", How::Superseded), ("revises", How::Revised)];
    fields.into_iter().flat_map(|(field, how)| {
        let ids = memory[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        ids.map(move |id| (id, how))
    })
}
