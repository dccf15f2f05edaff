//! Measures trap questions: their evidence looks superseded but still holds, for example two pets,
//! a fact about a friend, a plan.

use super::data::EvalQuestion;
use super::figures::{mean, share};
use super::report::{number, percent};
use super::states::MemoryStates;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const CATEGORY: &str = "trap";
/// Number of first turns in the ranking that should contain all of the evidence.
const FIRST: usize = 5;

/// Ranking and states of the turns that answer one trap question.
pub struct TrapResult {
    id: String,
    kind: Option<String>,
    evidence: usize,
    /// Share of the evidence among the first `FIRST` turns.
    pub among_first: f64,
    /// Turns whose memories are all superseded.
    pub outdated: Vec<String>,
    /// Turns with a revised memory, which recall still finds.
    pub revised: Vec<String>,
    /// Turns without a memory.
    dropped: Vec<String>,
}

impl TrapResult {
    pub fn of(
        question: &EvalQuestion,
        kind: Option<&String>,
        ranking: &[String],
        states: &MemoryStates<'_>,
    ) -> TrapResult {
        let evidence = question.evidence.iter();
        let first = &ranking[..ranking.len().min(FIRST)];
        TrapResult {
            id: question.id.clone(),
            kind: kind.cloned(),
            evidence: question.evidence.len(),
            among_first: share(question.evidence.iter().map(|turn| first.contains(turn))),
            outdated: evidence.clone().filter(|turn| states.is_outdated(turn)).cloned().collect(),
            revised: evidence.clone().filter(|turn| states.is_revised(turn)).cloned().collect(),
            dropped: evidence.filter(|turn| !states.is_kept(turn)).cloned().collect(),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "id": self.id, "kind": self.kind, "among_first": number(self.among_first),
            "outdated": self.outdated, "revised": self.revised, "dropped": self.dropped,
        })
    }
}

pub fn among_first(traps: &[&TrapResult]) -> f64 {
    mean(traps.iter().map(|trap| trap.among_first))
}

/// Counts the questions with superseded evidence.
pub fn hurt(traps: &[&TrapResult]) -> usize {
    traps.iter().filter(|trap| !trap.outdated.is_empty()).count()
}

pub fn json(traps: &[&TrapResult]) -> Value {
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

pub fn rows(traps: &[&TrapResult]) -> Vec<Vec<String>> {
    if traps.is_empty() {
        return Vec::new();
    }
    vec![
        vec![
            format!("traps: among the first {FIRST}"),
            percent(among_first(traps)),
            format!("mean over {} questions", traps.len()),
        ],
        row("traps: superseded", traps, |trap| &trap.outdated),
        row("traps: revised", traps, |trap| &trap.revised),
        row("traps: not kept", traps, |trap| &trap.dropped),
    ]
}

fn row(name: &str, traps: &[&TrapResult], of: fn(&TrapResult) -> &Vec<String>) -> Vec<String> {
    let evidence: usize = traps.iter().map(|trap| trap.evidence).sum();
    let count = count(traps, of);
    vec![
        name.to_owned(),
        percent(count as f64 / evidence as f64),
        format!("{count} of {evidence} memories that still hold"),
    ]
}

fn count(traps: &[&TrapResult], of: fn(&TrapResult) -> &Vec<String>) -> usize {
    traps.iter().map(|trap| of(trap).len()).sum()
}
