//! Finds statements of one person that a later one contradicts, by a model that reads both, and proposes that the later one revises them.
//! The model is slow (some 70 ms a pair), so a round compares new memories only, each with the nearest earlier ones, within a budget of time.

use super::{Snapshot, seen};
use crate::domain::{Memory, MemoryId, Revise, Scope, Seen, Spread, Time};
use crate::fault::Result;
use crate::ports::clock::Clock;
use crate::ports::cross_encoder::Judge;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Probability of a contradiction from which a link is proposed.
    pub probability: f32,
    /// Least cosine of two memories that are compared, on the scale of the standard encoder.
    pub cosine: f32,
    /// Earlier memories that one is compared with.
    pub earlier_max: usize,
    /// Age of the oldest memory that is compared with earlier ones.
    pub days: f32,
    pub budget_ms: i64,
    /// Memories known to have been compared.
    pub compared_max: usize,
}

/// The model, and what it may take.
pub struct Judging {
    pub judge: Box<dyn Judge>,
    pub clock: Arc<dyn Clock>,
    pub spread: Spread,
    pub options: Options,
}

/// How the comparisons of a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The budget ended before all new memories were compared.
    Slow,
    Failed,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Slow => "slow",
            Outcome::Failed => "failed",
        }
    }
}

/// Compares the new memories of all users.
pub struct Contradictions {
    judging: Judging,
    /// The words with which a memory was compared, as a hash. In memory only: a process that starts compares again.
    compared: HashMap<MemoryId, u64>,
    began: i64,
    outcome: Outcome,
}

impl Contradictions {
    pub fn new(judging: Judging) -> Contradictions {
        Contradictions { judging, compared: HashMap::new(), began: 0, outcome: Outcome::Done }
    }

    pub(super) fn begin(&mut self) {
        (self.began, self.outcome) = (self.judging.clock.steady_ms(), Outcome::Done);
    }

    /// How the round ended, and the ms it took.
    pub(super) fn ended(&self) -> (Outcome, i64) {
        (self.outcome, self.spent_ms())
    }

    fn spent_ms(&self) -> i64 {
        self.judging.clock.steady_ms() - self.began
    }

    /// The links that one user's new memories call for. A memory that the budget leaves out is compared in a later round.
    pub(super) fn found(&mut self, snapshot: &Snapshot, now: Time) -> Vec<Revise> {
        let days = self.judging.options.days;
        let mut new: Vec<&Memory> = snapshot
            .memories
            .iter()
            .filter(|memory| is_statement(memory) && now.days_since(memory.created_at) <= days)
            .collect();
        new.sort_by_key(|memory| (memory.created_at, memory.id));
        let mut found = Vec::new();
        for memory in new {
            let words = hash(&memory.content);
            if self.compared.get(&memory.id) == Some(&words) {
                continue;
            }
            if self.spent_ms() >= self.judging.options.budget_ms && self.outcome == Outcome::Done {
                self.outcome = Outcome::Slow;
            }
            if self.outcome != Outcome::Done {
                break;
            }
            match self.judging.revised(memory, snapshot) {
                Ok(revise) => found.extend(revise),
                Err(fault) => {
                    tracing::error!(%fault, "compares no statements in this round");
                    self.outcome = Outcome::Failed;
                    break;
                }
            }
            if self.compared.len() >= self.judging.options.compared_max {
                self.compared.clear();
            }
            self.compared.insert(memory.id, words);
        }
        found
    }
}

impl Judging {
    /// A contradiction must hold in both orders: a model that reads only one takes many an addition for a contradiction.
    fn revised(&mut self, newer: &Memory, snapshot: &Snapshot) -> Result<Option<Revise>> {
        let earlier = self.earlier(newer, snapshot);
        let pairs: Vec<(&str, &str)> =
            earlier.iter().map(|older| (older.content.as_str(), newer.content.as_str())).collect();
        let mut likely: Vec<(&Memory, f32)> =
            earlier.iter().copied().zip(self.judge.contradiction(&pairs)?).collect();
        likely.retain(|(_, probability)| *probability >= self.options.probability);
        let turned: Vec<(&str, &str)> = likely
            .iter()
            .map(|(older, _)| (newer.content.as_str(), older.content.as_str()))
            .collect();
        for ((_, probability), turned) in likely.iter_mut().zip(self.judge.contradiction(&turned)?)
        {
            *probability = probability.min(turned);
        }
        likely.retain(|(_, probability)| *probability >= self.options.probability);
        let Some(probability) = likely.iter().map(|(_, probability)| *probability).reduce(f32::max)
        else {
            return Ok(None);
        };
        let revises: Vec<Seen> = likely.iter().map(|(older, _)| seen(older)).collect();
        let reason = format!(
            "contradicts what was said before, by conflict.model with a probability of {probability:.2}"
        );
        Ok(Some(Revise { memory: seen(newer), revises, probability, reason }))
    }

    /// The nearest earlier statements of the same person that are not linked yet.
    fn earlier<'s>(&self, newer: &Memory, snapshot: &'s Snapshot) -> Vec<&'s Memory> {
        let Some(vector) = snapshot.vectors.get(&newer.id) else { return Vec::new() };
        let cosine = |older: &Memory| {
            let found = snapshot.vectors.get(&older.id)?;
            Some(self.spread.standard(vector.cosine(found)))
                .filter(|cosine| *cosine >= self.options.cosine)
        };
        let comparable = snapshot
            .memories
            .iter()
            .filter(|older| is_statement(older) && may_revise(newer, older));
        let mut near: Vec<(&Memory, f32)> =
            comparable.filter_map(|older| Some((older, cosine(older)?))).collect();
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.id.cmp(&b.0.id)));
        near.into_iter().take(self.options.earlier_max).map(|(older, _)| older).collect()
    }
}

/// Said by somebody and still taken to be so.
fn is_statement(memory: &Memory) -> bool {
    !memory.archived
        && memory.valid_to.is_none()
        && memory.covers.is_empty()
        && memory.scope == Scope::User
}

/// Not where somebody has said otherwise: a link that `wrong` undid leaves the newer memory less certain than the older one, and what
/// was confirmed after the newer one was said holds.
fn may_revise(newer: &Memory, older: &Memory) -> bool {
    let is_earlier =
        (older.valid_from, older.source.offset) < (newer.valid_from, newer.source.offset);
    let is_linked = newer.revises.contains(&older.id) || newer.supersedes.contains(&older.id);
    let is_denied = newer.confidence < older.confidence
        || (older.confirmed > 0 && older.fresh_at >= newer.valid_from);
    let is_same_person = older.role == newer.role && older.speaker == newer.speaker;
    is_earlier && is_same_person && older.source != newer.source && !is_linked && !is_denied
}

fn hash(content: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
