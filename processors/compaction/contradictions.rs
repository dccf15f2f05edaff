//! Finds earlier statements that a new one changes, with a model that reads both, and proposes that
//! the new one revises them.
//!
//! For each memory that was stated or changed since the shard was judged:
//!
//! 1. Choose earlier statements of the same person: the nearest by cosine, and for a judge of
//!    changes also those with most words in common.
//! 2. Let the model judge each pair. A judge of contradictions reads it in both orders, and the lower
//!    probability counts.
//! 3. Propose a link to each statement whose probability reaches `conflict.probability`. A judge of
//!    changes also reads the links that rules have made to memories near the new one, and proposes to
//!    undo the improbable ones.
//!
//! Limit: a pair takes 5 ms with the judge of changes, some 70 ms with a large model. A round stops
//! when its time budget is used up, and the next round continues.

use super::plan::seen;
use broker::clock::Clock;
use domain::fault::Result;
use domain::{JudgedMemory, Memory, MemoryId, Revise, Scope};
use models::cross_encoder::ContradictionJudge;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct ConflictOptions {
    /// Least probability of a contradiction for which a link is proposed.
    pub probability: f32,
    /// Least cosine of two memories that are compared, on the scale of the standard encoder:
    /// unrelated ones have .06.
    pub cosine: f32,
    /// Earlier memories of the same person that a new one is compared with, the nearest ones. The
    /// time grows with the number.
    pub earlier_max: usize,
    /// Milliseconds of a compaction round for comparisons; the rest is left for the next round. Half
    /// of `limits.shutdown_ms`, because a process that is asked to stop finishes its round. A part of
    /// the round, so that erasing and pruning go on while a whole shard is judged for the first time.
    pub budget_ms: i64,
    /// Ids of memories that have been compared, 40 bytes each. If there are more, all are compared
    /// again.
    pub compared_max: usize,
}

impl ConflictOptions {
    pub fn new(settings: &settings::Conflict) -> ConflictOptions {
        ConflictOptions { probability: settings.probability, ..ConflictOptions::default() }
    }
}

impl Default for ConflictOptions {
    fn default() -> ConflictOptions {
        ConflictOptions {
            // High, because a wrong link hides a memory that still holds behind a newer one.
            probability: 0.9,
            cosine: 0.35,
            earlier_max: 3,
            budget_ms: 2_000,
            compared_max: 100_000,
        }
    }
}

/// Earlier statements that a judge of changes reads, by meaning and by words.
const BY_MEANING: usize = 5;
const BY_WORDS: usize = 3;

/// Below this probability a link of a rule is undone. With .5 the newer value came first in 54 of 100
/// changes of minds-dev instead of 71: the rules are surer of what they find than a judge so far.
const IMPROBABLE: f32 = 0.1;
/// Probabilities that differ by no more than this are the same: a memory that is judged again after
/// a restart needs no proposal.
const SAME: f32 = 0.01;

/// The model with the limits.
pub struct Judging {
    pub judge: Box<dyn ContradictionJudge>,
    pub clock: Arc<dyn Clock>,
    pub options: ConflictOptions,
}

/// The outcome of a round's comparisons, a label of `keepsake_conflict_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No memory was left for want of time, as far as the round came.
    Done,
    /// The budget ended before all new memories were compared, or one waits for a link.
    Slow,
    /// The model returned an error.
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

/// A memory that was compared.
#[derive(Clone, Copy)]
struct Compared {
    /// Hash of its text then.
    content: u64,
    /// Proposals that may still be made for it: none after a comparison that found no new link.
    proposals_left: u8,
}

/// Proposals for one text of a memory. A proposal can end as outdated, so the memory is compared
/// again; but a link that ingest never makes is not proposed for ever.
const PROPOSALS_MAX: u8 = 3;

/// Compares new memories, over all rounds and users.
pub struct Contradictions {
    judging: Judging,
    /// How each memory was compared. Kept in memory only, so that a process compares those since the
    /// last whole walk again after its start. Cleared when full.
    compared: HashMap<MemoryId, Compared>,
    began: i64,
    outcome: Outcome,
}

impl Contradictions {
    pub fn new(judging: Judging) -> Contradictions {
        Contradictions { judging, compared: HashMap::new(), began: 0, outcome: Outcome::Done }
    }

    pub fn begin(&mut self) {
        self.began = self.judging.clock.steady_ms();
        self.outcome = Outcome::Done;
    }

    /// Returns the outcome of the round and the duration in ms.
    pub fn ended(&self) -> (Outcome, i64) {
        (self.outcome, self.spent_ms())
    }

    fn spent_ms(&self) -> i64 {
        self.judging.clock.steady_ms() - self.began
    }

    /// Returns the links to propose for one user's new memories. Memories that the budget leaves
    /// out are compared in a later round, and those whose proposal names a memory that an earlier
    /// proposal changes: by then it has another version.
    pub fn found(&mut self, mut new: Vec<&Memory>, near: Near<'_>) -> Result<Vec<Revise>> {
        new.retain(|memory| is_statement(memory));
        new.sort_by_key(|memory| (memory.created_at, memory.id));
        let mut found: Vec<Revise> = Vec::new();
        let mut named: HashSet<MemoryId> = HashSet::new();
        for memory in new {
            let content = hash(&memory.content);
            let known = self.compared.get(&memory.id).filter(|known| known.content == content);
            let mut proposals_left = known.map_or(PROPOSALS_MAX, |known| known.proposals_left);
            if proposals_left == 0 {
                continue;
            }
            if self.spent_ms() >= self.judging.options.budget_ms && self.outcome == Outcome::Done {
                self.outcome = Outcome::Slow;
            }
            if self.outcome != Outcome::Done {
                break;
            }
            match self.judging.revised(memory, near(memory)?) {
                Ok(Some(revise)) => {
                    let about = || names(&revise);
                    if about().any(|id| named.contains(&id)) {
                        self.outcome = Outcome::Slow;
                        break;
                    }
                    named.extend(about());
                    found.push(revise);
                    proposals_left -= 1;
                }
                Ok(None) => proposals_left = 0,
                Err(fault) => {
                    tracing::error!(%fault, "conflict.model failed: this round compares no more");
                    self.outcome = Outcome::Failed;
                    break;
                }
            }
            if self.compared.len() >= self.judging.options.compared_max {
                self.compared.clear();
            }
            self.compared.insert(memory.id, Compared { content, proposals_left });
        }
        Ok(found)
    }
}

/// The memories that a proposal is about.
fn names(revise: &Revise) -> impl Iterator<Item = MemoryId> {
    let earlier = revise.judged.iter().map(|judged| judged.memory.id);
    earlier.chain([revise.memory.id])
}

/// Finds the memories near to one, as a recall with its words does.
pub type Near<'a> = &'a dyn Fn(&Memory) -> Result<Vec<NearMemory>>;

pub struct NearMemory {
    pub memory: Arc<Memory>,
    pub cosine: f32,
    /// The score of BM25.
    pub words: f32,
}

impl Judging {
    /// Judges each pair in both orders, but for a judge of changes. In a single order, other models
    /// take many additions for contradictions.
    fn revised(&mut self, newer: &Memory, near: Vec<NearMemory>) -> Result<Option<Revise>> {
        let knows_changes = self.judge.knows_changes();
        let read = |memory: &Memory| match knows_changes {
            true => with_speaker_and_day(memory),
            false => memory.content.clone(),
        };
        let earlier = self.earlier(newer, near);
        let (new, old) = (read(newer), earlier.iter().map(|older| read(older)));
        let texts: Vec<String> = old.collect();
        let pairs: Vec<(&str, &str)> =
            texts.iter().map(|old| (old.as_str(), new.as_str())).collect();
        let mut likely: Vec<(&Memory, f32)> =
            earlier.iter().map(Arc::as_ref).zip(self.judge.contradiction(&pairs)?).collect();
        let least = self.options.probability;
        likely.retain(|(older, probability)| match newer.revises(older.id) {
            Some(known) => {
                let is_other = (*probability - known).abs() > SAME;
                *probability < IMPROBABLE || *probability >= least && is_other
            }
            None => *probability >= least,
        });
        if !knows_changes {
            let reversed: Vec<(&str, &str)> = likely
                .iter()
                .map(|(older, _)| (newer.content.as_str(), older.content.as_str()))
                .collect();
            for ((_, probability), reverse) in
                likely.iter_mut().zip(self.judge.contradiction(&reversed)?)
            {
                *probability = probability.min(reverse);
            }
            likely.retain(|(_, probability)| *probability >= least);
        }
        let Some(most) = likely.iter().map(|(_, probability)| *probability).reduce(f32::max) else {
            return Ok(None);
        };
        let judged = likely
            .iter()
            .map(|(older, probability)| JudgedMemory {
                memory: seen(older),
                probability: *probability,
            })
            .collect();
        let does = if most < IMPROBABLE { "does not change" } else { "changes" };
        let reason = format!(
            "{does} what was said before, by conflict.model with a probability of {most:.2}"
        );
        Ok(Some(Revise { memory: seen(newer), judged, reason }))
    }

    /// Returns the earlier statements that `newer` may revise: the nearest first, then those with
    /// words in common and those that a rule has linked.
    fn earlier(&self, newer: &Memory, mut near: Vec<NearMemory>) -> Vec<Arc<Memory>> {
        let (by_meaning, by_words, least) = match self.judge.knows_changes() {
            true => (BY_MEANING, BY_WORDS, f32::MIN),
            false => (self.options.earlier_max, 0, self.options.cosine),
        };
        let knows_changes = self.judge.knows_changes();
        near.retain(|one| {
            let is_linked = newer.revises(one.memory.id).is_some();
            is_statement(&one.memory)
                && may_revise(newer, &one.memory)
                && (knows_changes || !is_linked)
        });
        near.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.memory.id.cmp(&b.memory.id)));
        let mut left = near.split_off(near.len().min(by_meaning));
        near.retain(|one| one.cosine >= least);
        left.sort_by(|a, b| b.words.total_cmp(&a.words).then(a.memory.id.cmp(&b.memory.id)));
        left.retain(|one| one.words > 0.0 || newer.revises(one.memory.id).is_some());
        let mut chosen = near;
        for (place, one) in left.into_iter().enumerate() {
            let is_linked = newer.revises(one.memory.id).is_some();
            chosen.extend((place < by_words || is_linked).then_some(one));
        }
        chosen.into_iter().map(|one| one.memory).collect()
    }
}

/// As the judge of changes has learned to read a statement: "Ann, 2 March, 2025: I live in Porto."
fn with_speaker_and_day(memory: &Memory) -> String {
    let speaker = memory.speaker.as_deref().unwrap_or(memory.role.as_str());
    format!("{speaker}, {}: {}", text::day(memory.valid_from), memory.content)
}

/// Returns whether a memory states something that still holds: not archived, closed, a summary or a
/// tenant memory.
fn is_statement(memory: &Memory) -> bool {
    !memory.archived
        && memory.valid_to.is_none()
        && memory.covers.is_empty()
        && !memory.stands_alone()
        && memory.scope == Scope::User
}

/// Returns whether a link from `newer` to `older` may be proposed. Feedback overrules the model:
/// after `wrong` undid a link, the newer memory has less confidence than the older one, and a
/// memory that was confirmed after the newer one still holds.
fn may_revise(newer: &Memory, older: &Memory) -> bool {
    let is_earlier =
        (older.valid_from, older.source.offset) < (newer.valid_from, newer.source.offset);
    let is_linked = newer.supersedes.contains(&older.id);
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
