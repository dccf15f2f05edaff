//! Measures questions that tempt a service to take something for outdated that still holds: two pets, a friend's fact, a plan.

use super::data::Question;
use super::metrics::{mean, share};
use super::states::States;
use super::{number, percent};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const CATEGORY: &str = "trap";
/// Turns among which everything that still holds should be.
const FIRST: usize = 5;

/// Places and marks of the turns that answer such a question.
pub struct Trap {
    id: String,
    kind: Option<String>,
    evidence: usize,
    /// Share of the evidence among the first `FIRST` turns.
    pub among_first: f64,
    /// Turns whose memories are all superseded.
    pub outdated: Vec<String>,
    /// Turns with a memory that a newer one revises: it is still found.
    pub revised: Vec<String>,
    /// Turns of which nothing was kept.
    dropped: Vec<String>,
}

impl Trap {
    pub fn of(
        question: &Question,
        kind: Option<&String>,
        ranking: &[String],
        states: &States<'_>,
    ) -> Trap {
        let turns = |of: &dyn Fn(&str) -> bool| {
            question.evidence.iter().filter(|turn| of(turn)).cloned().collect::<Vec<_>>()
        };
        let first = &ranking[..ranking.len().min(FIRST)];
        Trap {
            id: question.id.clone(),
            kind: kind.cloned(),
            evidence: question.evidence.len(),
            among_first: share(question.evidence.iter().map(|turn| first.contains(turn))),
            outdated: turns(&|turn| states.is_outdated(turn)),
            revised: turns(&|turn| states.is_revised(turn)),
            dropped: turns(&|turn| !states.is_kept(turn)),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "id": self.id, "kind": self.kind, "among_first": number(self.among_first),
            "outdated": self.outdated, "revised": self.revised, "dropped": self.dropped,
        })
    }
}

pub fn among_first(traps: &[&Trap]) -> f64 {
    mean(traps.iter().map(|trap| trap.among_first))
}

/// Questions with evidence that is marked as outdated.
pub fn hurt(traps: &[&Trap]) -> usize {
    traps.iter().filter(|trap| !trap.outdated.is_empty()).count()
}

pub fn json(traps: &[&Trap]) -> Value {
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trap in traps {
        kinds.entry(trap.kind.as_deref().unwrap_or("unnamed")).or_default().push(trap.among_first);
    }
    let kinds = kinds.into_iter().map(|(kind, of)| (kind.to_owned(), number(mean(of.into_iter()))));
    json!({
        "n": traps.len(),
        "among_first": number(among_first(traps)),
        "evidence": traps.iter().map(|trap| trap.evidence).sum::<usize>(),
        "outdated": count(traps, |trap| &trap.outdated),
        "outdated_questions": hurt(traps),
        "revised": count(traps, |trap| &trap.revised),
        "dropped": count(traps, |trap| &trap.dropped),
        "among_first_by_kind": kinds.collect::<Map<_, _>>(),
    })
}

pub fn rows(traps: &[&Trap]) -> Vec<Vec<String>> {
    if traps.is_empty() {
        return Vec::new();
    }
    let evidence: usize = traps.iter().map(|trap| trap.evidence).sum();
    let row = |name: &str, of: fn(&Trap) -> &Vec<String>| {
        let count = count(traps, of);
        vec![
            name.to_owned(),
            percent(count as f64 / evidence as f64),
            format!("{count} of {evidence} memories that still hold"),
        ]
    };
    vec![
        vec![
            format!("traps: among the first {FIRST}"),
            percent(among_first(traps)),
            format!("mean over {} questions", traps.len()),
        ],
        row("traps: marked as outdated", |trap| &trap.outdated),
        row("traps: below a newer one", |trap| &trap.revised),
        row("traps: not kept", |trap| &trap.dropped),
    ]
}

fn count(traps: &[&Trap], of: fn(&Trap) -> &Vec<String>) -> usize {
    traps.iter().map(|trap| of(trap).len()).sum()
}
