//! Counts answers by session: in a long project it matters that the session where something was
//! agreed is found, not the single turn.

use super::data::Conversation;
use super::figures::{DEPTHS, share};
use super::report::number;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The sessions of the turns of a conversation.
pub struct Sessions<'c>(HashMap<&'c str, &'c str>);

/// For one ranking and each of [`DEPTHS`]: whether some, and whether all sessions with evidence are
/// among those of the first turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FoundSessions {
    any: [bool; DEPTHS.len()],
    all: [bool; DEPTHS.len()],
}

impl<'c> Sessions<'c> {
    pub fn of(conversation: &'c Conversation) -> Sessions<'c> {
        let turns = conversation.turns.iter();
        Sessions(turns.filter_map(|turn| Some((&*turn.id, turn.session.as_deref()?))).collect())
    }

    /// `None` if no evidence is of a session.
    pub fn found(&self, ranking: &[String], evidence: &[String]) -> Option<FoundSessions> {
        let sessions = |turns: &[String]| -> HashSet<&str> {
            turns.iter().filter_map(|turn| self.0.get(turn.as_str()).copied()).collect()
        };
        let wanted = sessions(evidence);
        let first = DEPTHS.map(|k| sessions(&ranking[..k.min(ranking.len())]));
        (!wanted.is_empty()).then(|| FoundSessions {
            any: std::array::from_fn(|n| !wanted.is_disjoint(&first[n])),
            all: std::array::from_fn(|n| wanted.is_subset(&first[n])),
        })
    }
}

/// The shares over all questions, with their number.
pub fn json(rows: &[FoundSessions]) -> Value {
    let mut named = Map::new();
    for (n, k) in DEPTHS.iter().enumerate() {
        named.insert(format!("any@{k}"), number(share(rows.iter().map(|row| row.any[n]))));
        named.insert(format!("all@{k}"), number(share(rows.iter().map(|row| row.all[n]))));
    }
    named.insert("n".to_owned(), rows.len().into());
    Value::Object(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sessions_of_the_evidence_must_be_among_those_of_the_first_turns() {
        let sessions =
            Sessions([("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")].into_iter().collect());
        let turns = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).into()).collect() };
        let found = sessions.found(&turns(&["c1", "a2", "b1"]), &turns(&["a1", "b1"]));
        let found = found.expect("there is evidence");
        assert_eq!(found.any, [false, true, true, true, true], "of the first 1, 3, 5, 10, 20");
        assert_eq!(found.all, [false, true, true, true, true]);
        let found = sessions.found(&turns(&["a2"]), &turns(&["a1", "b1"])).expect("evidence");
        assert_eq!((found.any[0], found.all[4]), (true, false));
        assert_eq!(sessions.found(&turns(&["a2"]), &turns(&["unknown"])), None);
    }
}
