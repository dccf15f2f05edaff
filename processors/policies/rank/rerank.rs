//! Reorders ranked memories by the scores of a cross-encoder. Pure: the caller runs the model and
//! passes its logits.
//!
//! 1. The first `logits.len()` memories get the score `1 / (1 + e^-logit)`, times the profile's
//!    factor if superseded.
//! 2. The others keep their order behind them: their scores are scaled to at most .99 of the least
//!    score from step 1.
//! 3. [`arranged`] puts the versions of one fact together again.

use super::arrange::arranged;
use super::relevance::logistic;
use kernel::ranking::Ranked;

/// The greatest score of the memories that the model did not read, as a share of the least score of
/// those that it read.
const BEHIND: f32 = 0.99;

/// Reranks the first memories by `logits`, one for each. `superseded` is the profile's factor on
/// superseded memories.
pub fn reranked(mut ranked: Vec<Ranked>, logits: &[f32], superseded: f32) -> Vec<Ranked> {
    for (one, logit) in ranked.iter_mut().zip(logits) {
        let probability = logistic(*logit);
        let validity = if one.superseded { superseded } else { 1.0 };
        rescore(one, probability * validity, Some(probability));
    }
    let count = logits.len().min(ranked.len());
    let (first, others) = ranked.split_at_mut(count);
    let least = first.iter().map(|one| one.score).fold(f32::INFINITY, f32::min);
    let best = others.iter().map(|one| one.score).fold(0.0, f32::max);
    if best > BEHIND * least {
        others.iter_mut().for_each(|one| rescore(one, BEHIND * least * one.score / best, None));
    }
    arranged(ranked)
}

/// Replaces the score, and records the old one as the term `before_rerank`.
fn rescore(one: &mut Ranked, score: f32, probability: Option<f32>) {
    one.terms.extend(probability.map(|probability| ("rerank", probability)));
    one.terms.push(("before_rerank", one.score));
    one.terms.iter_mut().filter(|(name, _)| *name == "score").for_each(|(_, value)| *value = score);
    one.score = score;
}

#[cfg(test)]
mod tests {
    use super::super::samples::{MemoryMut as _, memory};
    use super::*;
    use domain::{MemoryId, Time};
    use proptest::prelude::*;

    fn ranked(number: u32, score: f32) -> Ranked {
        Ranked::new(
            memory(number, &format!("m{number}")).into(),
            score,
            false,
            vec![("score", score)],
        )
    }

    fn id(number: u32) -> MemoryId {
        memory(number, "").id
    }

    fn check(list: Vec<Ranked>, logits: &[f32], expected: &[&str]) -> Vec<Ranked> {
        let list = reranked(list, logits, 0.5);
        let contents: Vec<&str> = list.iter().map(|one| one.memory.content.as_str()).collect();
        assert_eq!(contents, expected);
        list
    }

    #[test]
    fn the_model_orders_the_first_and_the_others_follow_unchanged() {
        let list =
            vec![ranked(1, 0.9), ranked(2, 0.8), ranked(3, 0.7), ranked(4, 0.6), ranked(5, 0.5)];
        let list = check(list, &[-9.0, 0.0, 4.0], &["m3", "m2", "m1", "m4", "m5"]);
        assert!(list.is_sorted_by(|a, b| a.score > b.score), "{list:#?}");
        fn term(one: &Ranked, name: &str) -> Option<f32> {
            one.terms.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
        }
        assert_eq!(
            (list[1].score, term(&list[1], "score"), term(&list[1], "rerank")),
            (0.5, Some(0.5), Some(0.5))
        );
        assert_eq!((term(&list[1], "before_rerank"), term(&list[3], "rerank")), (Some(0.8), None));
        check(vec![ranked(1, 0.9), ranked(2, 0.8)], &[], &["m1", "m2"]);
    }

    #[test]
    fn an_old_version_still_follows_its_successor() {
        let mut list = vec![ranked(1, 0.9), ranked(2, 0.8), ranked(3, 0.7)];
        (list[1].superseded, list[1].memory_mut().superseded_by) = (true, Some(id(1)));
        check(list, &[0.0, 6.0, 3.0], &["m3", "m1", "m2"]);
        let mut alone = vec![ranked(1, 0.9), ranked(2, 0.8)];
        (alone[0].superseded, alone[0].memory_mut().superseded_by) = (true, Some(id(7)));
        check(alone, &[2.0, 1.0], &["m2", "m1"]);
    }

    #[test]
    fn the_newer_of_two_values_in_conflict_still_comes_first_if_it_scores_nearly_as_well() {
        fn list(newer: f32) -> (Vec<Ranked>, [f32; 3]) {
            let mut list = vec![ranked(1, 0.9), ranked(2, 0.8), ranked(3, 0.7)];
            (list[0].memory_mut().conflicts_with, list[2].memory_mut().created_at) =
                (vec![id(3)], Time(5));
            (list, [3.0, 2.0, newer])
        }
        let (near, logits) = list(1.5);
        check(near, &logits, &["m3", "m1", "m2"]);
        let (far, logits) = list(-1.5);
        check(far, &logits, &["m1", "m2", "m3"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_best_is_the_models(
            scores in prop::collection::vec(0f32..2.0, 1..20),
            logits in prop::collection::vec(-12f32..12.0, 1..20),
        ) {
            let mut list: Vec<Ranked> =
                scores.iter().zip(1..).map(|(score, number)| ranked(number, *score)).collect();
            list.sort_by(|a, b| b.score.total_cmp(&a.score));
            let logits = &logits[..logits.len().min(list.len())];
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            let count = list.len();
            let unread: Vec<MemoryId> =
                list[logits.len()..].iter().map(|one| one.memory.id).collect();
            let list = reranked(list, logits, 0.5);
            prop_assert_eq!((list.len(), list[0].score), (count, logistic(best)));
            let behind: Vec<MemoryId> =
                list[logits.len()..].iter().map(|one| one.memory.id).collect();
            prop_assert_eq!(behind.len(), unread.len());
            prop_assert!(behind.iter().all(|id| unread.contains(id)));
        }
    }
}
