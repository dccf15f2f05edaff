//! Selects the highest scores. Among equal scores the smaller ids win, so that a result never depends
//! on the order of the entries.

use domain::MemoryId;
use std::cmp::Ordering;

/// Scores for each one kept above which one pass over them is cheaper than a selection.
const MANY: usize = 50;

/// Returns the ids of the `limit` highest scores in no order; among equal scores the smaller ids.
/// Selects among bare numbers, which are cheaper to compare and to move than entries. `about`: the
/// number of scores.
pub fn highest(
    scored: impl Iterator<Item = (MemoryId, f32)> + Clone,
    about: usize,
    limit: usize,
) -> Vec<MemoryId> {
    if about / MANY > limit {
        let mut best = TopK::new(limit);
        for (id, score) in scored {
            best.offer(&id, score);
        }
        best.cut();
        return best.kept.into_iter().map(|(id, _)| id).collect();
    }
    let mut scores: Vec<f32> = scored.clone().map(|(_, score)| score).collect();
    if limit >= scores.len() {
        return scored.map(|(id, _)| id).collect();
    }
    let Some(last) = limit.checked_sub(1) else { return Vec::new() };
    let (_, least, _) = scores.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    let (mut highest, mut equal) = (Vec::with_capacity(limit), Vec::new());
    for (id, score) in scored {
        match score.total_cmp(least) {
            Ordering::Greater => highest.push(id),
            Ordering::Equal => equal.push(id),
            Ordering::Less => {}
        }
    }
    equal.sort_unstable();
    highest.extend(equal.into_iter().take(limit - highest.len()));
    highest
}

/// Selects the `limit` highest scores of a stream; among equal scores the smaller id wins. Holds at
/// most twice `limit` entries.
pub struct TopK {
    limit: usize,
    kept: Vec<(MemoryId, f32)>,
    /// A lower score cannot be among the best any more.
    least: f32,
}

impl TopK {
    pub fn new(limit: usize) -> TopK {
        TopK {
            limit,
            kept: Vec::new(),
            least: if limit == 0 { f32::INFINITY } else { f32::NEG_INFINITY },
        }
    }

    pub fn may_take(&self, score: f32) -> bool {
        score >= self.least
    }

    pub fn offer(&mut self, id: &MemoryId, score: f32) {
        if self.may_take(score) {
            self.kept.push((*id, score));
            if self.kept.len() >= self.limit.saturating_mul(2) {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if let Some(last) = self.limit.checked_sub(1).filter(|last| *last < self.kept.len()) {
            let (_, (_, least), _) = self.kept.select_nth_unstable_by(last, TopK::best_first);
            self.least = *least;
        }
        self.kept.truncate(self.limit);
    }

    pub fn sorted(mut self) -> Vec<(MemoryId, f32)> {
        self.cut();
        self.kept.sort_unstable_by(TopK::best_first);
        self.kept
    }

    fn best_first(a: &(MemoryId, f32), b: &(MemoryId, f32)) -> Ordering {
        b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
    }
}
