//! Estimates the probability that each memory answers the question, and the match of the whole
//! reply: good, weak or none. Drops nothing itself: a request may, with `min_relevance`.
//!
//! 1. `share = softmax(score / temperature)` over the valid memories, as a logarithm.
//! 2. `whole = cosine - nearest_word`: a memory that is near a single word alone ("cat") seldom
//!    contains the answer ("its name").
//! 3. `above = cosine - mean cosine of the ten best`.
//! 4. `relevance = 1 / (1 + e^-(bias + w₁·share + w₂·cosine + w₃·whole + w₄·above))`, a
//!    [logistic regression](https://en.wikipedia.org/wiki/Logistic_regression) with weights from
//!    the profile.
//! 5. If every memory is below both levels of `none` (cosine and shared words), the match is none,
//!    and relevance is at most `none.relevance`. Else the match is good from `good` on.
//!
//! Invariant: superseded memories do not move the relevance of a valid one.

use domain::Match;
use kernel::ranking::{Ranked, Signals};
use serde::Deserialize;

/// The weights, which are round numbers chosen by hand. The calibration was measured on users whose
/// questions had no part in the choice, and holds for chats of other kinds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relevance {
    pub bias: f32,
    /// Weight of the logarithm of a memory's softmax share.
    pub share: f32,
    /// Temperature of the softmax, in points of score.
    pub temperature: f32,
    /// Weight of the cosine.
    pub cosine: f32,
    /// Weight of the cosine to the whole question minus the cosine to the nearest word.
    pub whole: f32,
    /// Weight of the cosine minus the mean of the ten best.
    pub above: f32,
    /// The least relevance of the best memory for a good match.
    pub good: f32,
    pub none: NoMatchLevels,
}

/// The levels below which the match is none. Each memory must be below both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoMatchLevels {
    pub cosine: f32,
    /// Share of the question's information that the words of one memory cover.
    pub words: f32,
    /// The greatest relevance for no match. Without this cap, the best of a few irrelevant memories
    /// would stand out.
    pub relevance: f32,
}

/// Number of the best memories whose mean cosine is the level for `above`.
const BEST: usize = 10;

impl Relevance {
    /// Sets the relevance of each memory, and adds the signals to the terms if `explain` is set. Those
    /// `behind` the floor are measured by the others.
    pub(super) fn estimate(&self, ranked: &mut [Ranked], behind: &mut [Ranked], explain: bool) {
        let Some(baseline) = Baseline::of(ranked, self.temperature) else { return };
        let most = if self.is_no_match(ranked) { self.none.relevance } else { 1.0 };
        for one in ranked.iter_mut().chain(behind) {
            let share = baseline.share(one.score);
            let whole = one.signals.cosine - one.signals.nearest_word;
            let above = one.signals.cosine - baseline.level;
            let logit = self.bias
                + self.share * share
                + self.cosine * one.signals.cosine
                + self.whole * whole
                + self.above * above;
            let relevance = logistic(logit).min(most);
            one.relevance = Some(relevance);
            if !explain {
                continue;
            }
            let shared = one.signals.shared.map(|shared| ("shared", shared));
            let signals = [
                ("share", share.exp()),
                ("whole", whole),
                ("above", above),
                ("relevance", relevance),
            ];
            one.terms.extend(shared.into_iter().chain(signals));
        }
    }

    /// Returns the match. A doubtful case is weak, not none.
    pub(super) fn matched(&self, ranked: &[Ranked]) -> Match {
        if self.is_no_match(ranked) {
            return Match::None;
        }
        let relevance = counted(ranked).filter_map(|one| one.relevance).fold(0.0, f32::max);
        if relevance >= self.good { Match::Good } else { Match::Weak }
    }

    /// Unknown shared words count as all words.
    fn is_no_match(&self, ranked: &[Ranked]) -> bool {
        !counted(ranked).any(|one| {
            one.signals.cosine >= self.none.cosine
                || one.signals.shared.unwrap_or(1.0) >= self.none.words
        })
    }
}

/// Converts log-odds to a probability.
pub(super) fn logistic(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Returns the valid memories, or the old versions if no memory is valid.
fn counted(ranked: &[Ranked]) -> impl Iterator<Item = &Ranked> {
    let has_valid = ranked.iter().any(|one| !one.superseded);
    ranked.iter().filter(move |one| !(has_valid && one.superseded))
}

/// The levels that each memory of a reply is compared with.
struct Baseline {
    best: f32,
    /// The logarithm of the softmax denominator, relative to the best score.
    log_total: f32,
    temperature: f32,
    /// The mean cosine of the best memories.
    level: f32,
}

impl Baseline {
    fn of(ranked: &[Ranked], temperature: f32) -> Option<Baseline> {
        let mut counted: Vec<(f32, Signals)> =
            counted(ranked).map(|one| (one.score, one.signals)).collect();
        counted
            .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cosine.total_cmp(&a.1.cosine)));
        let best = counted.first()?.0;
        let total: f32 =
            counted.iter().map(|(score, _)| ((score - best) / temperature).exp()).sum();
        let first = &counted[..counted.len().min(BEST)];
        let level =
            first.iter().map(|(_, signals)| signals.cosine).sum::<f32>() / first.len() as f32;
        Some(Baseline { best, log_total: total.ln(), temperature, level })
    }

    /// Returns the logarithm of the share, at most 0: an old version that scores above every valid
    /// memory counts as having the whole share.
    fn share(&self, score: f32) -> f32 {
        ((score - self.best) / self.temperature - self.log_total).min(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{memory, weights};
    use super::*;
    use proptest::prelude::*;

    fn shipped() -> Relevance {
        weights().relevance.expect("the default profile knows relevance")
    }

    fn found(
        number: u32,
        score: f32,
        cosine: f32,
        nearest_word: f32,
        shared: Option<f32>,
    ) -> Ranked {
        let signals = Signals { cosine, nearest_word, shared };
        Ranked { signals, ..Ranked::new(memory(number, "tea").into(), score, false, vec![]) }
    }

    fn estimated(mut ranked: Vec<Ranked>) -> (Vec<f32>, Match) {
        shipped().estimate(&mut ranked, &mut [], false);
        let matched = shipped().matched(&ranked);
        (ranked.iter().map(|one| one.relevance.expect("it was estimated")).collect(), matched)
    }

    #[test]
    fn a_memory_that_stands_out_is_a_good_match() {
        let mut ranked = vec![found(1, 1.2, 0.7, 0.4, Some(0.6))];
        ranked.extend((2..20).map(|number| found(number, 0.5, 0.2, 0.2, Some(0.0))));
        let (relevance, matched) = estimated(ranked);
        assert!(
            relevance[0] > 0.9 && relevance[1..].iter().all(|other| *other < 0.1),
            "{relevance:?}"
        );
        assert_eq!(matched, Match::Good);
    }

    #[test]
    fn one_of_many_alike_is_a_weak_match() {
        let (relevance, matched) =
            estimated((1..20).map(|number| found(number, 0.8, 0.35, 0.4, Some(0.3))).collect());
        assert!(relevance.iter().all(|one| (0.001..0.2).contains(one)), "{relevance:?}");
        assert_eq!(matched, Match::Weak);
    }

    #[test]
    fn without_near_memories_and_shared_words_there_is_no_match() {
        fn far(shared: Option<f32>) -> Vec<Ranked> {
            (1..20).map(|number| found(number, 0.8, 0.04, 0.1, shared)).collect()
        }
        let (relevance, matched) = estimated(far(Some(0.0)));
        assert!(
            matched == Match::None && relevance.iter().all(|one| *one <= 0.05),
            "{relevance:?}"
        );
        assert_eq!(estimated(far(None)).1, Match::Weak);
        assert_eq!(estimated(vec![]).1, Match::None);
    }

    #[test]
    fn a_memory_near_a_single_word_alone_is_less_relevant() {
        let (whole, _) =
            estimated(vec![found(1, 1.0, 0.5, 0.3, Some(0.5)), found(2, 0.9, 0.4, 0.4, Some(0.5))]);
        let (word, _) =
            estimated(vec![found(1, 1.0, 0.5, 0.6, Some(0.5)), found(2, 0.9, 0.4, 0.4, Some(0.5))]);
        assert!(whole[0] > word[0] + 0.1, "{whole:?} {word:?}");
    }

    proptest! {
        #[test]
        fn relevance_is_a_probability_and_old_versions_move_no_valid_one(
            hits in prop::collection::vec(
                (0f32..2.0, -1f32..1.0, -1f32..1.0, any::<bool>()),
                1..30,
            ),
        ) {
            let mut all: Vec<Ranked> = (1..).zip(&hits).map(|(number, (score, cosine, word, old))| {
                Ranked { superseded: *old, ..found(number, *score, *cosine, *word, Some(0.0)) }
            }).collect();
            let mut valid: Vec<Ranked> =
                all.iter().filter(|one| !one.superseded).cloned().collect();
            shipped().estimate(&mut all, &mut [], false);
            shipped().estimate(&mut valid, &mut [], false);
            for one in &all {
                prop_assert!((0.0..=1.0).contains(&one.relevance.unwrap_or(-1.0)));
            }
            for one in &valid {
                let same = all.iter().find(|other| other.memory.id == one.memory.id);
                prop_assert_eq!(same.map(|other| other.relevance), Some(one.relevance));
            }
        }
    }
}
