//! Finds earlier statements that a new one changes, with a model that reads both, and proposes that
//! the new one revises them; and finds wishes for every later answer.
//!
//! For each memory that was stated or changed since the shard was judged:
//!
//! 1. Choose earlier statements of the same person that rules have not linked: the nearest by cosine
//!    and those with most words in common.
//! 2. Let the model judge each pair.
//! 3. Propose a link to each statement whose probability reaches `conflict.probability`.
//! 4. Let the model judge the user's own words alone, and propose that a wish becomes an
//!    `instruction`.
//!
//! Limit: a pair takes 5 ms. A round stops when its time budget is used up, and the next round
//! continues.

use super::plan::seen;
use broker::clock::Clock;
use domain::fault::Result;
use domain::{JudgedMemory, Kind, Memory, MemoryId, MemoryVersion, Revise, Role, Scope};
use models::cross_encoder::Judge;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct ConflictOptions {
    /// Least probability of a change for which a link is proposed.
    pub probability: f32,
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
            probability: 0.8,
            budget_ms: 2_000,
            compared_max: 100_000,
        }
    }
}

/// Earlier statements that are compared with a new one, by meaning and by words.
const BY_MEANING: usize = 5;
const BY_WORDS: usize = 3;
/// Least cosine of statements that are compared. The judge sees a change too readily in two
/// statements about different matters ("I use a stick", "I listen to books now").
const NEAR: f32 = 0.55;

/// Probability by which a link may be less sure where one person speaks: five more of 100 changes of
/// such chats have the newer statement first, while people who talk lose a point of R@1.
const LESS_ALONE: f32 = 0.1;

/// The model with the limits.
pub struct Judging {
    pub judge: Box<dyn Judge>,
    pub clock: Arc<dyn Clock>,
    pub options: ConflictOptions,
}

/// Least probability of a wish for every later answer: of 528 other turns 2.3 % reach it.
const STANDING: f32 = 0.3;
const INSTRUCTION: &str = "instruction";

/// The outcome of a round's comparisons, a label of `keepsake_conflict_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No memory was left for want of time, as far as the round came.
    Done,
    /// The budget ended before all new memories were compared.
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

/// The proposals for one user.
#[derive(Default)]
pub struct Found {
    pub revisions: Vec<Revise>,
    /// One more is near a memory that a proposal on its way changes: by then it has another version, so
    /// the memories from there on are compared later.
    pub waits: bool,
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

/// Time after which a memory that has not changed since its proposal is named again: ingest applies
/// one within moments, later only behind a backlog, or never.
const IN_FLIGHT_MS: i64 = 30_000;

/// Compares new memories, over all rounds and users.
pub struct Contradictions {
    judging: Judging,
    /// How each memory was compared. Kept in memory only, so that a process compares those since the
    /// last whole walk again after its start. Cleared when full.
    compared: HashMap<MemoryId, Compared>,
    /// The memories that the last proposals name: their versions then, and when.
    in_flight: HashMap<MemoryId, (u32, i64)>,
    began: i64,
    outcome: Outcome,
}

impl Contradictions {
    pub fn new(judging: Judging) -> Contradictions {
        let (compared, in_flight) = Default::default();
        Contradictions { judging, compared, in_flight, began: 0, outcome: Outcome::Done }
    }

    pub fn begin(&mut self) {
        self.began = self.judging.clock.steady_ms();
        self.outcome = Outcome::Done;
        self.in_flight.retain(|_, (_, at)| self.began - *at < IN_FLIGHT_MS);
    }

    /// Returns the outcome of the round and the duration in ms.
    pub fn ended(&self) -> (Outcome, i64) {
        (self.outcome, self.spent_ms())
    }

    fn is_in_flight(&self, memory: &Memory) -> bool {
        self.in_flight.get(&memory.id).is_some_and(|(version, _)| *version == memory.version)
    }

    fn spent_ms(&self) -> i64 {
        self.judging.clock.steady_ms() - self.began
    }

    /// Returns what to propose for one user's new memories.
    pub fn found(&mut self, mut new: Vec<&Memory>, near: Near<'_>) -> Result<Found> {
        new.retain(|memory| is_statement(memory));
        new.sort_by_key(|memory| (memory.created_at, memory.id));
        let mut found = Found::default();
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
            let near = near(memory)?;
            let is_alone = near.iter().all(|one| is_same_person(memory, &one.memory));
            let earlier = earlier(memory, near);
            if self.is_in_flight(memory) || earlier.iter().any(|one| self.is_in_flight(one)) {
                found.waits = true;
                break;
            }
            match self.judging.revised(memory, &earlier, is_alone) {
                Ok(Some(revise)) => {
                    let now = self.judging.clock.steady_ms();
                    self.in_flight.extend(seen_by(&revise).map(|one| (one.id, (one.version, now))));
                    found.revisions.push(revise);
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

/// The memories that a revision is based on.
pub fn seen_by(revise: &Revise) -> impl Iterator<Item = MemoryVersion> {
    let earlier = revise.judged.iter().map(|judged| judged.memory);
    std::iter::once(revise.memory).chain(earlier)
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
    fn revised(
        &mut self,
        newer: &Memory,
        earlier: &[Arc<Memory>],
        is_alone: bool,
    ) -> Result<Option<Revise>> {
        let new = with_speaker_and_day(newer);
        let old: Vec<String> = earlier.iter().map(|older| with_speaker_and_day(older)).collect();
        let pairs: Vec<(&str, &str)> = old.iter().map(|old| (old.as_str(), new.as_str())).collect();
        let mut judged: Vec<JudgedMemory> = Vec::new();
        let less = if is_alone { LESS_ALONE } else { 0.0 };
        for (older, probability) in earlier.iter().zip(self.judge.changes(&pairs)?) {
            let is_likely = probability >= self.options.probability - less;
            let memory = seen(older);
            judged.extend(is_likely.then_some(JudgedMemory { memory, probability }));
        }
        let standing = self.standing(newer, is_alone)?;
        let mut reasons = Vec::new();
        if let Some(most) = judged.iter().map(|one| one.probability).reduce(f32::max) {
            reasons.push(format!("changes what was said before ({most:.2})"));
        }
        if let Some(probability) = standing {
            reasons.push(format!("is a wish for every answer ({probability:.2})"));
        }
        if reasons.is_empty() {
            return Ok(None);
        }
        let reason = format!("{}, by conflict.model", reasons.join(" and "));
        let kind = standing.map(|_| Kind::new(INSTRUCTION));
        Ok(Some(Revise { memory: seen(newer), judged, kind, reason }))
    }

    /// Returns the probability that the user's own words are a wish for every answer. `None` if
    /// it is too low, if others speak in these sessions too, and for a memory whose kind somebody
    /// has chosen: by `remember` or a turn, so that it is not the one of the rules, or by an
    /// `update`, after which a memory is no longer in its first version.
    fn standing(&mut self, memory: &Memory, is_alone: bool) -> Result<Option<f32>> {
        let is_named = memory.speaker.as_deref() == Some(memory.key.user());
        let is_open = memory.role == Role::User
            && (is_alone || is_named)
            && memory.surprise.is_some()
            && memory.sources.is_empty()
            && memory.version == 1
            && memory.kind.as_str() != INSTRUCTION
            && memory.kind == text::split::kind(&memory.content, memory.role);
        let probability = if is_open { self.judge.standing(&memory.content)? } else { None };
        Ok(probability.filter(|probability| *probability >= STANDING))
    }
}

/// Returns the earlier statements that `newer` may revise: the nearest first, then those with words
/// in common.
fn earlier(newer: &Memory, mut near: Vec<NearMemory>) -> Vec<Arc<Memory>> {
    near.retain(|one| {
        one.cosine >= NEAR && is_statement(&one.memory) && may_revise(newer, &one.memory)
    });
    near.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.memory.id.cmp(&b.memory.id)));
    let mut left = near.split_off(near.len().min(BY_MEANING));
    left.sort_by(|a, b| b.words.total_cmp(&a.words).then(a.memory.id.cmp(&b.memory.id)));
    left.retain(|one| one.words > 0.0);
    near.extend(left.into_iter().take(BY_WORDS));
    near.into_iter().map(|one| one.memory).collect()
}

/// As the judge has learned to read a statement: "Ann, 2 March, 2025: I live in Porto."
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
    let is_linked = newer.supersedes.contains(&older.id) || newer.revises(older.id).is_some();
    let is_denied = newer.confidence < older.confidence
        || (older.confirmed > 0 && older.fresh_at >= newer.valid_from);
    let is_same_person = older.role == newer.role && older.speaker == newer.speaker;
    is_earlier && is_same_person && older.source != newer.source && !is_linked && !is_denied
}

/// Returns whether two memories of the user's side have one speaker; true for other sides.
fn is_same_person(newer: &Memory, other: &Memory) -> bool {
    other.role != Role::User || other.speaker == newer.speaker
}

fn hash(content: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
