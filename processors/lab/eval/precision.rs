//! Measures precision and recall of whole answers on PrecisionMemBench: 35 beliefs, stored with
//! `remember`, and 77 questions with the beliefs that the answer may contain, often none. Pinned
//! beliefs reach the prompt by another way; they are neither expected nor counted.

use super::figures::Interval;
use super::harness::{Harness, RecallAnswer, SimulatedUser};
use domain::Time;
use domain::fault::{Fault, Result, StopName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub const BELIEFS: &str = "beliefs.seed.json";
const CASES: &str = "retrieval.cases.json";
/// Maximum number of beliefs in an answer, unless a case sets a lower one.
const BELIEFS_MAX: usize = 20;
/// The least relevance that the questions ask for, so that the floor leaves fewer than five. With .02
/// precision is .46 and recall .95, with .05 .49 and .91: a question of six things shares out its
/// relevance among them.
const MIN_RELEVANCE: f32 = 0.001;
const USER: &str = "test-user";
const OPEN_QUESTION: &str = "open_question";

#[derive(Clone, Debug, Deserialize)]
struct Belief {
    #[serde(rename = "_id")]
    id: String,
    user_id: String,
    #[serde(rename = "type")]
    sort: String,
    canonical_name: String,
    #[serde(default)]
    aliases: Vec<String>,
    content: String,
    why_it_matters: Option<String>,
    scope: Vec<String>,
    pinned: bool,
    superseded_by: Option<String>,
    resolved_at: Option<String>,
    updated_at: String,
    #[serde(default)]
    participants: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BenchmarkCase {
    case_id: String,
    scope: Vec<String>,
    query: String,
    #[serde(default = "user")]
    user_id: String,
    #[serde(default)]
    budget: CaseBudget,
    expect: CaseExpectation,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseBudget {
    max_beliefs: Option<usize>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CaseExpectation {
    relevant_beliefs: ExpectedBeliefs,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExpectedBeliefs {
    should_only_include: Option<BTreeSet<String>>,
    must_include: BTreeSet<String>,
}

/// Score of one answer. `None` where the measure is not defined.
#[derive(Debug, PartialEq)]
struct CaseScore {
    precision: Option<f64>,
    recall: Option<f64>,
}

/// Results over all cases.
pub struct PrecisionResults {
    pub precision: Interval,
    pub recall: Interval,
    pub cases: Vec<Value>,
}

/// Measures the files of one directory.
pub fn measure(harness: &Harness, dir: &Path) -> Result<PrecisionResults> {
    let beliefs: Vec<Belief> = read(&dir.join(BELIEFS))?;
    let cases: Vec<BenchmarkCase> = read(&dir.join(CASES))?;
    let mut user = SimulatedUser::begin(harness, &harness.profiles, &harness.encoder(), USER)?;
    for belief in &beliefs {
        user.publish(&belief.event(), belief.time())?;
    }
    let beliefs: BTreeMap<&str, &Belief> =
        beliefs.iter().map(|belief| (belief.id.as_str(), belief)).collect();
    let mut precision = Vec::new();
    let mut recall = Vec::new();
    let mut shown = Vec::new();
    for case in &cases {
        let found = answered(&mut user, case)?;
        let scored = score(case, &found, &beliefs);
        precision.extend(scored.precision);
        recall.extend(scored.recall);
        shown.push(json!({
            "id": case.case_id, "returned": found,
            "precision": scored.precision, "recall": scored.recall,
        }));
    }
    Ok(PrecisionResults {
        precision: Interval::of(&precision),
        recall: Interval::of(&recall),
        cases: shown,
    })
}

/// Returns the beliefs of an answer, best first. A reply with `match` none has an empty prompt
/// block, and counts as an empty answer.
fn answered(user: &mut SimulatedUser<'_>, case: &BenchmarkCase) -> Result<Vec<String>> {
    if case.query.trim().is_empty() {
        return Ok(Vec::new());
    }
    let RecallAnswer { memories, verdict, .. } = user.answer_to(
        &case.query,
        &json!({"user": case.user_id, "limit": BELIEFS_MAX, "min_relevance": MIN_RELEVANCE}),
    )?;
    if verdict.as_deref() == Some("none") {
        return Ok(Vec::new());
    }
    Ok(memories.iter().filter_map(|memory| memory.metadata.get("belief").cloned()).collect())
}

/// Scores an answer in the steps of the benchmark: (1) leave out pinned beliefs; (2) add the
/// beliefs that a returned relation relates; (3) cut to the number of beliefs that fit beside the
/// pinned ones; (4) compare with the expected beliefs.
fn score(case: &BenchmarkCase, found: &[String], beliefs: &BTreeMap<&str, &Belief>) -> CaseScore {
    let beliefs_max = case.budget.max_beliefs.unwrap_or(BELIEFS_MAX);
    let pinned: BTreeSet<&str> = beliefs
        .values()
        .filter(|belief| belief.is_always_shown() && case.covers(belief))
        .map(|belief| &*belief.id)
        .collect();
    let mut held: Vec<&str> = found
        .iter()
        .take(beliefs_max.min(BELIEFS_MAX))
        .map(String::as_str)
        .filter(|id| !pinned.contains(id))
        .collect();
    let relations =
        held.iter().filter_map(|id| beliefs.get(id)).filter(|belief| belief.sort == "relation");
    let related: Vec<&str> = relations
        .flat_map(|relation| relation.participants.iter().map(String::as_str))
        .filter(|id| !pinned.contains(id) && !held.contains(id))
        .filter(|id| beliefs.get(id).is_some_and(|belief| case.covers(belief)))
        .collect();
    held.extend(related);
    held.truncate(beliefs_max.saturating_sub(pinned.len()));
    let held: BTreeSet<&str> = held.into_iter().collect();
    let ExpectedBeliefs { should_only_include, must_include } = &case.expect.relevant_beliefs;
    let wanted: BTreeSet<&str> = match should_only_include {
        Some(only) => only.iter().map(String::as_str).collect(),
        None => must_include
            .iter()
            .map(String::as_str)
            .filter(|id| {
                beliefs.get(id).is_none_or(|belief| !(belief.pinned && belief.user_id == USER))
            })
            .collect(),
    };
    let hits = held.intersection(&wanted).count() as f64;
    CaseScore {
        precision: (!held.is_empty() || !wanted.is_empty())
            .then(|| hits / held.len().max(1) as f64),
        recall: (!wanted.is_empty()).then(|| hits / wanted.len() as f64),
    }
}

impl BenchmarkCase {
    /// The belief belongs to the user and to one of the scopes of the case.
    fn covers(&self, belief: &Belief) -> bool {
        belief.user_id == self.user_id
            && belief.scope.iter().any(|scope| self.scope.contains(scope))
    }
}

impl Belief {
    fn event(&self) -> Value {
        let kind = match self.sort.as_str() {
            sort @ ("preference" | "decision") => sort,
            _ => "fact",
        };
        json!({
            "type": "remember", "user": self.user_id, "kind": kind, "content": self.text(),
            "at": self.updated_at, "metadata": {"belief": self.id},
        })
    }

    fn text(&self) -> String {
        let names = std::iter::once(self.canonical_name.as_str())
            .chain(self.aliases.iter().map(String::as_str));
        let parts = names.chain([self.content.as_str()]).chain(self.why_it_matters.as_deref());
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn time(&self) -> Time {
        Time(self.updated_at.parse::<jiff::Timestamp>().map_or(0, |at| at.as_millisecond()))
    }

    /// The belief is part of every prompt.
    fn is_always_shown(&self) -> bool {
        self.pinned
            && self.sort != OPEN_QUESTION
            && self.superseded_by.is_none()
            && self.resolved_at.is_none()
    }
}

fn user() -> String {
    USER.to_owned()
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(file, &e))?;
    serde_json::from_str(&text).map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("read {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(id: &str, sort: &str, pinned: bool, participants: &[&str]) -> Belief {
        let belief = json!({
            "_id": id, "user_id": USER, "type": sort, "canonical_name": id, "content": "text",
            "scope": ["code"], "pinned": pinned, "updated_at": "2026-01-01T00:00:00Z",
            "participants": participants,
        });
        serde_json::from_value(belief).expect("well-formed")
    }

    fn check(found: &[&str], only: &[&str], max: usize, expected: (Option<f64>, Option<f64>)) {
        let all = [
            belief("a", "preference", false, &[]),
            belief("b", "entity", false, &[]),
            belief("p", "preference", true, &[]),
            belief("r", "relation", false, &["a", "p"]),
        ];
        let beliefs = all.iter().map(|belief| (belief.id.as_str(), belief)).collect();
        let case = json!({
            "caseId": "c", "scope": ["code"], "query": "?", "budget": {"maxBeliefs": max},
            "expect": {"relevantBeliefs": {"shouldOnlyInclude": only}},
        });
        let case: BenchmarkCase = serde_json::from_value(case).expect("well-formed");
        let found: Vec<String> = found.iter().map(|id| (*id).to_owned()).collect();
        let CaseScore { precision, recall } = score(&case, &found, &beliefs);
        assert_eq!((precision, recall), expected, "{found:?} of {only:?}");
    }

    #[test]
    fn an_answer_is_scored_against_the_allowed_beliefs() {
        check(&["a", "b"], &["a"], 20, (Some(0.5), Some(1.0)));
        check(&["b"], &["a"], 20, (Some(0.0), Some(0.0)));
        check(&[], &["a"], 20, (Some(0.0), Some(0.0)));
        check(&["b"], &[], 20, (Some(0.0), None));
        check(&[], &[], 20, (None, None));
    }

    #[test]
    fn pinned_beliefs_are_not_counted_and_use_up_the_budget() {
        check(&["p", "a"], &["a"], 20, (Some(1.0), Some(1.0)));
        check(&["a", "b"], &["a", "b"], 2, (Some(1.0), Some(0.5)));
    }

    #[test]
    fn a_relation_adds_the_beliefs_it_relates() {
        check(&["r"], &["r", "a"], 20, (Some(1.0), Some(1.0)));
    }
}
