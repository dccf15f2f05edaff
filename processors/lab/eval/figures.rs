//! Computes the figures of an evaluation: ranking quality, confidence intervals of means and
//! shares, area under the ROC curve. Pure.

use std::collections::HashSet;

/// Depths at which recall is counted.
pub const DEPTHS: [usize; 5] = [1, 3, 5, 10, 20];
/// Two-sided 95 % of the normal distribution.
const Z_95: f64 = 1.96;

/// Quality of one ranking, or the mean of several: recall,
/// [NDCG](https://en.wikipedia.org/wiki/Discounted_cumulative_gain) and
/// [MRR](https://en.wikipedia.org/wiki/Mean_reciprocal_rank).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Share of the evidence among the first `DEPTHS[n]` turns.
    pub recall: [f64; DEPTHS.len()],
    /// 1 if any evidence is among the first `DEPTHS[n]` turns.
    pub any: [f64; DEPTHS.len()],
    pub ndcg_10: f64,
    pub mrr: f64,
}

impl Figures {
    /// Compares a ranking with the evidence. Evidence that is not in the ranking counts as missed.
    pub fn of(ranking: &[String], evidence: &[String]) -> Figures {
        let wanted: HashSet<&String> = evidence.iter().collect();
        let ranks: Vec<usize> = ranking
            .iter()
            .enumerate()
            .filter(|(_, turn)| wanted.contains(turn))
            .map(|(rank, _)| rank)
            .collect();
        let found = DEPTHS.map(|k| ranks.iter().filter(|rank| **rank < k).count() as f64);
        let ideal: f64 = (0..wanted.len().clamp(1, 10)).map(gain).sum();
        let dcg_10: f64 = ranks.iter().filter(|rank| **rank < 10).map(|rank| gain(*rank)).sum();
        Figures {
            recall: found.map(|found| found / wanted.len().max(1) as f64),
            any: found.map(|found| found.min(1.0)),
            ndcg_10: dcg_10 / ideal,
            mrr: ranks.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0)),
        }
    }

    pub fn mean(rows: &[Figures]) -> Figures {
        Figures {
            recall: std::array::from_fn(|n| mean(rows.iter().map(|row| row.recall[n]))),
            any: std::array::from_fn(|n| mean(rows.iter().map(|row| row.any[n]))),
            ndcg_10: mean(rows.iter().map(|row| row.ndcg_10)),
            mrr: mean(rows.iter().map(|row| row.mrr)),
        }
    }

    /// Recall at a depth of `DEPTHS`; NaN at any other depth.
    pub fn recall_at(&self, k: usize) -> f64 {
        DEPTHS.iter().position(|depth| *depth == k).map_or(f64::NAN, |n| self.recall[n])
    }

    /// Returns the figures of a table with their names.
    pub fn shown(&self) -> [(&'static str, f64); 8] {
        let Figures { recall: [r1, r3, r5, r10, r20], any: [.., any_10, _], ndcg_10, mrr } = *self;
        [
            ("R@1", r1),
            ("R@3", r3),
            ("R@5", r5),
            ("R@10", r10),
            ("R@20", r20),
            ("any@10", any_10),
            ("NDCG@10", ndcg_10),
            ("MRR", mrr),
        ]
    }

    /// Returns all figures with the names used in JSON.
    pub fn named(&self) -> impl Iterator<Item = (String, f64)> {
        let any = DEPTHS.iter().zip(self.any).map(|(k, value)| (format!("any@{k}"), value));
        self.shown().into_iter().map(|(name, value)| (name.to_owned(), value)).chain(any)
    }
}

/// A mean with its 95 % interval: the normal approximation, mean ± 1.96 standard errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

impl Interval {
    pub fn of(values: &[f64]) -> Interval {
        let (count, mean) = (values.len(), mean(values.iter().copied()));
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // A single value has no interval.
        let error = (squares / (count as f64 - 1.0) / count as f64).sqrt();
        Interval { mean, low: mean - Z_95 * error, high: mean + Z_95 * error, count }
    }

    /// A figure whose interval is not known.
    pub fn exactly(mean: f64) -> Interval {
        Interval { mean, low: f64::NAN, high: f64::NAN, count: 1 }
    }

    /// Wilson's [score interval] of a share. The interval stays within 0 and 1, and has a width for
    /// shares of 0 and 1.
    ///
    /// [score interval]: https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval
    pub fn of_share(fraction: Fraction) -> Interval {
        let Fraction { holds, of: count } = fraction;
        let n = count as f64;
        let share = holds as f64 / n;
        let squared = Z_95 * Z_95;
        let middle = (share + squared / (2.0 * n)) / (1.0 + squared / n);
        let width = Z_95 / (1.0 + squared / n)
            * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
        Interval { mean: share, low: middle - width, high: middle + width, count }
    }
}

/// Counts for how many of `of` items something holds.
#[derive(Clone, Copy, Default)]
pub struct Fraction {
    pub holds: usize,
    pub of: usize,
}

impl Fraction {
    pub fn count(holds: impl Iterator<Item = bool>) -> Fraction {
        holds.fold(Fraction::default(), |fraction, holds| Fraction {
            holds: fraction.holds + usize::from(holds),
            of: fraction.of + 1,
        })
    }

    pub fn share(self) -> f64 {
        self.holds as f64 / self.of as f64
    }
}

/// Gain of the evidence at a rank counted from 0, for the discounted cumulative gain.
fn gain(rank: usize) -> f64 {
    1.0 / (rank as f64 + 2.0).log2()
}

/// Mean of the values; NaN without values.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// Share of `true`; NaN without values.
pub fn share(holds: impl Iterator<Item = bool>) -> f64 {
    mean(holds.map(|holds| f64::from(u8::from(holds))))
}

/// Area under the [ROC curve](https://en.wikipedia.org/wiki/Receiver_operating_characteristic): the
/// probability that a wanted item has a higher score than another one, where equal scores count
/// half. NaN if either group is empty.
pub fn auc(scored: &[(bool, f64)]) -> f64 {
    let mut others: Vec<f64> =
        scored.iter().filter(|(wanted, _)| !wanted).map(|(_, score)| *score).collect();
    others.sort_by(f64::total_cmp);
    let below = scored.iter().filter(|(wanted, _)| *wanted).map(|(_, score)| {
        let less = others.partition_point(|other| other < score);
        let not_more = others.partition_point(|other| other <= score);
        (less + not_more) as f64 / 2.0
    });
    mean(below) / others.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(ids: &str) -> Vec<String> {
        ids.split_whitespace().map(str::to_owned).collect()
    }

    fn check(ranking: &str, evidence: &str, expected: [f64; 5]) {
        let Figures { recall: [_, _, recall_5, recall_10, recall_20], ndcg_10, mrr, .. } =
            Figures::of(&turns(ranking), &turns(evidence));
        let found = [recall_5, recall_10, recall_20, ndcg_10, mrr]
            .map(|value| (value * 1000.0).round() / 1000.0);
        assert_eq!(found, expected, "{evidence} in {ranking}");
    }

    #[test]
    fn evidence_at_a_higher_rank_scores_better() {
        check("a b c", "a", [1.0, 1.0, 1.0, 1.0, 1.0]);
        check("a b c", "b", [1.0, 1.0, 1.0, 0.631, 0.5]);
        check("a b c", "c a", [1.0, 1.0, 1.0, 0.92, 1.0]);
        check("a b c", "d", [0.0; 5]);
        check("a b c", "d c", [0.5, 0.5, 0.5, 0.307, 0.333]);
        check("1 2 3 4 5 a", "a", [0.0, 1.0, 1.0, 0.356, 0.167]);
        check("1 2 3 4 5 6 7 8 9 10 a", "a", [0.0, 0.0, 1.0, 0.0, 0.091]);
        check("a b", "a a", [1.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn ten_of_twelve_pieces_of_evidence_in_the_first_ten_are_ideal() {
        let twelve = "1 2 3 4 5 6 7 8 9 10 11 12";
        let figures = Figures::of(&turns(twelve), &turns(twelve));
        assert_eq!((figures.ndcg_10, figures.recall_at(10)), (1.0, 10.0 / 12.0));
    }

    #[test]
    fn the_mean_of_several_rankings_counts_each_the_same() {
        let rows = [Figures::of(&turns("a"), &turns("a")), Figures::of(&turns("b"), &turns("a"))];
        assert_eq!(Figures::mean(&rows).shown().map(|(_, value)| value), [0.5; 8]);
        assert!(Figures::mean(&[]).mrr.is_nan());
    }

    #[test]
    fn recall_counts_from_the_first_rank_and_any_needs_one_piece_of_evidence() {
        let figures = Figures::of(&turns("x a b c"), &turns("a c"));
        assert_eq!(figures.recall, [0.0, 0.5, 1.0, 1.0, 1.0]);
        assert_eq!(figures.any, [0.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn an_interval_is_narrower_with_more_samples() {
        let few = Interval::of(&[0.0, 1.0, 0.0, 1.0]);
        let many = Interval::of(&[0.0, 1.0].repeat(200));
        assert!(
            few.mean == 0.5 && few.low < 0.0 && many.low > 0.44 && many.high < 0.56,
            "{few:?} {many:?}"
        );
        let all = Interval::of_share(Fraction { holds: 100, of: 100 });
        assert!(all.low > 0.95 && all.low < 0.97 && all.high > 0.999, "{all:?}");
    }

    #[test]
    fn the_auc_is_the_chance_that_the_wanted_item_has_the_higher_score() {
        for (scored, expected) in [
            (vec![(true, 2.0), (false, 1.0)], 1.0),
            (vec![(true, 1.0), (false, 2.0)], 0.0),
            (vec![(true, 1.0), (false, 1.0)], 0.5),
            (vec![(true, 3.0), (true, 1.0), (false, 2.0), (false, 1.0)], 0.625),
        ] {
            assert_eq!(auc(&scored), expected, "{scored:?}");
        }
        assert!(auc(&[(true, 1.0)]).is_nan() && auc(&[(false, 1.0)]).is_nan());
    }
}
