//! Drops the memories that are far behind the best one, or less relevant than the request asks for.
//!
//! Invariant: a newer statement stays with the older one that it revises, and none that was revised
//! stands alone.

use super::{arrange, is_summary};
use domain::{Memory, MemoryId};
use foldhash::fast::RandomState;
use kernel::ranking::{Question, Ranked};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Takes out the memories below the share `floor` of the best valid one, and returns that least
/// score with them.
/// Superseded memories do not raise the floor, so that showing old versions hides no valid memory.
/// The best one counts by `by_itself`: bonuses and neighbours can lift a memory above the floor and
/// never lift the floor.
pub(super) fn cut_far_behind(
    ranked: &mut Vec<Ranked>,
    floor: f32,
    successors: &HashSet<MemoryId, RandomState>,
) -> (f32, Vec<Ranked>) {
    let has_valid = ranked.iter().any(|one| !one.superseded);
    let valid = ranked.iter().filter(|one| !(has_valid && one.superseded));
    let best = valid.map(|one| one.by_itself).fold(0.0, f32::max);
    let least = floor * best;
    let mut kept = Kept::with_capacity_and_hasher(ranked.len(), RandomState::default());
    let near =
        ranked.iter().filter(|one| one.score >= least || successors.contains(&one.memory.id));
    kept.extend(near.map(kept_one));
    // Keeps a newer statement with the older one that it revises. Terminates: `kept` only grows.
    loop {
        let newer: Vec<_> =
            ranked.iter().filter(|one| revises_kept(one, &kept)).map(kept_one).collect();
        let before = kept.len();
        kept.extend(newer);
        if kept.len() == before {
            break;
        }
    }
    let behind = ranked.extract_if(.., |one| !kept.contains_key(&one.memory.id)).collect();
    (least, behind)
}

/// Returns true if `newer` revises a kept memory and is near enough to be placed before it.
fn revises_kept(newer: &Ranked, kept: &Kept) -> bool {
    newer.memory.revises.iter().any(|link| {
        kept.get(&link.memory).is_some_and(|(older, score)| {
            newer.score >= arrange::share_of(&newer.memory, older, false) * score
        })
    })
}

/// The memories that are kept, with their scores.
type Kept = HashMap<MemoryId, (Arc<Memory>, f32), RandomState>;

fn kept_one(one: &Ranked) -> (MemoryId, (Arc<Memory>, f32)) {
    (one.memory.id, (Arc::clone(&one.memory), one.score))
}

/// Memories that the floor leaves where the match is not none and no least relevance is asked for: to
/// leave out the one that answers costs more than to return four beside it.
const LEFT_MIN: usize = 5;

/// Returns the best memories behind the floor, as many as are missing to five. Invariant: a revised
/// memory is returned only beside the memory that revised it.
pub(super) fn fillers(
    mut behind: Vec<Ranked>,
    kept: &[Ranked],
    question: &Question,
) -> Vec<Ranked> {
    let valid = kept.iter().filter(|one| !one.superseded && !is_summary(&one.memory)).count();
    let missing = LEFT_MIN.saturating_sub(valid);
    if missing == 0 || question.min_relevance > 0.0 {
        return Vec::new();
    }
    behind.retain(|one| {
        let newer = one.memory.revised_by;
        !one.superseded && newer.is_none_or(|newer| kept.iter().any(|kept| kept.memory.id == newer))
    });
    behind.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.memory.id.cmp(&b.memory.id)));
    behind.truncate(missing);
    behind
}

/// Drops the memories below this relevance, but for those of unknown relevance, and for a newer
/// statement beside the older one that it revises.
pub(super) fn cut_irrelevant(ranked: &mut Vec<Ranked>, least: f32) {
    if ranked.iter().all(|one| is_relevant(one, least)) {
        return;
    }
    let kept = ranked.iter().filter(|one| is_relevant(one, least));
    let kept: Kept = kept.map(kept_one).collect();
    ranked.retain(|one| is_relevant(one, least) || revises_kept(one, &kept));
}

pub(super) fn is_relevant(one: &Ranked, least: f32) -> bool {
    one.relevance.is_none_or(|relevance| relevance >= least)
}
