//! Estimates how likely each returned memory answers the question, and from that whether the memories
//! speak of it at all. Withholds nothing: whoever asks may do so with `min_relevance`.

use super::{Ranked, Signals};
use crate::domain::Match;
use serde::Deserialize;

/// A logistic over four signals. Round weights chosen by hand; calibration was measured on users whose
/// questions had no part in the choice, and holds for chats of other kinds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relevance {
    pub bias: f32,
    /// Weight of the logarithm of a memory's share among all that were found, by a softmax of the scores.
    pub share: f32,
    /// Temperature of that softmax, in points of score.
    pub temperature: f32,
    /// Weight of the cosine.
    pub cosine: f32,
    /// Weight of what the whole question's cosine has over that of its nearest single word: a memory
    /// that is near one word of the question alone ("cat") seldom says what is asked ("its name").
    pub whole: f32,
    /// Weight of what the cosine has over the mean of the ten best.
    pub above: f32,
    /// From this relevance on a match is `good`.
    pub good: f32,
    pub none: NoMatch,
}

/// Nothing here speaks of the question if the best memory is below both levels.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoMatch {
    pub cosine: f32,
    /// Share of the question's information that one memory's words cover.
    pub words: f32,
    /// Relevance is at most this then: the best of few memories stands out for no reason.
    pub relevance: f32,
}

/// Memories whose mean cosine is the level that a standout is measured from.
const BEST: usize = 10;

impl Relevance {
    /// Sets the relevance of each, with the signals behind it among its terms. Showing old versions as
    /// well moves no valid memory: the level and the shares are those of valid ones, if there are any.
    pub(super) fn estimate(&self, ranked: &mut [Ranked]) {
        let Some(field) = Field::of(ranked, self.temperature) else { return };
        let most = if self.speaks_of_nothing(ranked) { self.none.relevance } else { 1.0 };
        for one in ranked {
            let share = field.share(one.score);
            let whole = one.signals.cosine - one.signals.nearest_word;
            let above = one.signals.cosine - field.level;
            let logit = self.bias
                + self.share * share
                + self.cosine * one.signals.cosine
                + self.whole * whole
                + self.above * above;
            let relevance = (1.0 / (1.0 + (-logit).exp())).min(most);
            one.relevance = Some(relevance);
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

    /// Rather `weak` than `none` where in doubt.
    pub(super) fn matched(&self, ranked: &[Ranked]) -> Match {
        if self.speaks_of_nothing(ranked) {
            return Match::None;
        }
        let relevance = counted(ranked).filter_map(|one| one.relevance).fold(0.0, f32::max);
        if relevance >= self.good { Match::Good } else { Match::Weak }
    }

    /// Where the words covered are not known, some may be.
    fn speaks_of_nothing(&self, ranked: &[Ranked]) -> bool {
        let is_near = |one: &Ranked| one.signals.cosine >= self.none.cosine;
        let is_said = |one: &Ranked| one.signals.shared.unwrap_or(1.0) >= self.none.words;
        !counted(ranked).any(|one| is_near(one) || is_said(one))
    }
}

/// The valid memories; where there are none, the old versions.
fn counted(ranked: &[Ranked]) -> impl Iterator<Item = &Ranked> {
    let has_valid = ranked.iter().any(|one| !one.superseded);
    ranked.iter().filter(move |one| !(has_valid && one.superseded))
}

/// Levels that all memories of an answer are measured against.
struct Field {
    best: f32,
    /// Logarithm of the sum of all weights of the softmax.
    log_total: f32,
    temperature: f32,
    level: f32,
}

impl Field {
    fn of(ranked: &[Ranked], temperature: f32) -> Option<Field> {
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
        Some(Field { best, log_total: total.ln(), temperature, level })
    }

    /// Never over 0: an old version that matches better than every valid one has all of the share.
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
        shipped().estimate(&mut ranked);
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
    fn nothing_near_and_no_word_said_is_no_match_unless_the_words_are_not_known() {
        let far = |shared| (1..20).map(|number| found(number, 0.8, 0.04, 0.1, shared)).collect();
        let (relevance, matched) = estimated(far(Some(0.0)));
        assert!(
            matched == Match::None && relevance.iter().all(|one| *one <= 0.05),
            "{relevance:?}"
        );
        assert_eq!(estimated(far(None)).1, Match::Weak);
        assert_eq!(estimated(vec![]).1, Match::None);
    }

    #[test]
    fn what_is_near_a_single_word_alone_is_less_relevant() {
        let (whole, _) =
            estimated(vec![found(1, 1.0, 0.5, 0.3, Some(0.5)), found(2, 0.9, 0.4, 0.4, Some(0.5))]);
        let (word, _) =
            estimated(vec![found(1, 1.0, 0.5, 0.6, Some(0.5)), found(2, 0.9, 0.4, 0.4, Some(0.5))]);
        assert!(whole[0] > word[0] + 0.1, "{whole:?} {word:?}");
    }

    proptest! {
        #[test]
        fn relevance_is_a_probability_and_old_versions_move_no_valid_one(
            hits in prop::collection::vec((0f32..2.0, -1f32..1.0, -1f32..1.0, any::<bool>()), 1..30),
        ) {
            let ranked = |with_old: bool| -> Vec<Ranked> {
                let numbered = (1..).zip(&hits).filter(|(_, (.., old))| with_old || !old);
                numbered.map(|(number, (score, cosine, word, old))| {
                    Ranked { superseded: *old, ..found(number, *score, *cosine, *word, Some(0.0)) }
                }).collect()
            };
            let (mut all, mut valid) = (ranked(true), ranked(false));
            shipped().estimate(&mut all);
            shipped().estimate(&mut valid);
            for one in &all {
                prop_assert!((0.0..=1.0).contains(&one.relevance.unwrap_or(-1.0)));
            }
            for one in &valid {
                let beside = all.iter().find(|other| other.memory.id == one.memory.id).map(|other| other.relevance);
                prop_assert_eq!(beside, Some(one.relevance));
            }
        }
    }
}
