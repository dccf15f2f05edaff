//! Derives links between turns, and the final state of each turn's memories, from decisions and
//! listed memories. Both are visible to any client.

use client::show;
use domain::{Decision, Outcome};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Kinds of link from a turn to an earlier one, surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// The earlier memory is closed.
    Superseded,
    /// The later memory ranks first; both are open.
    Revised,
    /// The memories probably contradict each other; both are open.
    Conflict,
}

impl LinkKind {
    pub const ALL: [LinkKind; 3] = [LinkKind::Superseded, LinkKind::Revised, LinkKind::Conflict];

    pub fn as_str(self) -> &'static str {
        match self {
            LinkKind::Superseded => "superseded",
            LinkKind::Revised => "revised",
            LinkKind::Conflict => "conflict",
        }
    }
}

/// Two turns by their positions in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnLink {
    pub earlier: usize,
    pub later: usize,
    pub how: LinkKind,
}

/// All links of a conversation, and the final memories of each turn.
pub struct MemoryStates<'m> {
    pub links: Vec<TurnLink>,
    /// The memories that a turn made or was merged into, as listed after the last turn.
    of_turn: BTreeMap<&'m str, Vec<&'m Value>>,
}

impl<'m> MemoryStates<'m> {
    pub fn of(
        decisions: &'m [Decision],
        memories: &'m [Value],
        positions: &HashMap<&str, usize>,
    ) -> MemoryStates<'m> {
        let by_id: HashMap<&str, &Value> =
            memories.iter().map(|memory| (show::text(memory, "id"), memory)).collect();
        let mut of_turn: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        // A memory stands for the turn that made it and for every turn merged into it.
        let mut turns_of: HashMap<String, Vec<usize>> = HashMap::new();
        let mut links = BTreeSet::new();
        for decision in decisions {
            let Some(turn) = decision.event_id.as_deref() else { continue };
            let Some(later) = positions.get(turn).copied() else { continue };
            let own = decision.memory.map(|id| id.0.to_string());
            let memory = own.as_deref().and_then(|id| by_id.get(id)).copied();
            let surest = if decision.outcome == Outcome::Superseded {
                LinkKind::Superseded
            } else {
                LinkKind::Conflict
            };
            for related in decision.related.iter().map(|id| id.0.to_string()) {
                let how = memory.and_then(|memory| how(memory, &related)).unwrap_or(surest);
                let earlier = turns_of.get(&related).into_iter().flatten();
                links.extend(earlier.map(|earlier| TurnLink { earlier: *earlier, later, how }));
            }
            // Some links are only in the memory and not in the decision.
            for (earlier, how) in memory.into_iter().flat_map(earlier_memories) {
                let earlier = turns_of.get(earlier).into_iter().flatten();
                links.extend(earlier.map(|earlier| TurnLink { earlier: *earlier, later, how }));
            }
            of_turn.entry(turn).or_default().extend(memory);
            if let Some(own) = own {
                turns_of.entry(own).or_default().push(later);
            }
        }
        MemoryStates { links: links.into_iter().collect(), of_turn }
    }

    /// The turn has memories, and all of them are superseded.
    pub fn is_outdated(&self, turn: &str) -> bool {
        self.of_turn.get(turn).is_some_and(|all| {
            !all.is_empty() && all.iter().all(|memory| memory["superseded_by"].is_string())
        })
    }

    /// Some memory of the turn is revised by a newer one.
    pub fn is_revised(&self, turn: &str) -> bool {
        self.of_turn
            .get(turn)
            .is_some_and(|all| all.iter().any(|memory| !memory["revised_by"].is_null()))
    }

    pub fn is_kept(&self, turn: &str) -> bool {
        self.of_turn.get(turn).is_some_and(|all| !all.is_empty())
    }
}

/// Returns the kind of a memory's link to an earlier one.
fn how(memory: &Value, earlier: &str) -> Option<LinkKind> {
    earlier_memories(memory).find(|(id, _)| *id == earlier).map(|(_, how)| how)
}

/// Returns the ids of the memories that a memory supersedes or revises.
fn earlier_memories(memory: &Value) -> impl Iterator<Item = (&str, LinkKind)> {
    let fields = [("supersedes", LinkKind::Superseded), ("revises", LinkKind::Revised)];
    fields.into_iter().flat_map(|(field, how)| {
        let ids = memory[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        ids.map(move |id| (id, how))
    })
}
