//! Computes the figures: how good a ranking is, how sure a mean is, how well a number separates two groups. Pure.

use std::collections::HashSet;

/// Depths at which recall is counted.
pub const DEPTHS: [usize; 5] = [1, 3, 5, 10, 20];
/// Two-sided 95 % of the normal distribution.
const Z_95: f64 = 1.96;

/// How well one ranking finds its evidence; or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Share of the evidence among the first `DEPTHS[n]` turns.
    pub recall: [f64; DEPTHS.len()],
    /// 1 if any evidence is among them.
    pub any: [f64; DEPTHS.len()],
    pub ndcg_10: f64,
    pub mrr: f64,
}

impl Figures {
    /// Evidence that is not in the ranking is missed.
    pub fn of(ranking: &[String], evidence: &[String]) -> Figures {
        let wanted: HashSet<&String> = evidence.iter().collect();
        let ranks: Vec<usize> = ranking
            .iter()
            .enumerate()
            .filter(|(_, turn)| wanted.contains(turn))
            .map(|(rank, _)| rank)
            .collect();
        let found = |k: usize| ranks.iter().filter(|rank| **rank < k).count() as f64;
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        let ideal: f64 = (0..wanted.len().clamp(1, 10)).map(gain).sum();
        Figures {
            recall: DEPTHS.map(|k| found(k) / wanted.len().max(1) as f64),
            any: DEPTHS.map(|k| found(k).min(1.0)),
            ndcg_10: ranks.iter().filter(|rank| **rank < 10).map(|rank| gain(*rank)).sum::<f64>()
                / ideal,
            mrr: ranks.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0)),
        }
    }

    pub fn mean(rows: &[Figures]) -> Figures {
        let of = |value: &dyn Fn(&Figures) -> f64| mean(rows.iter().map(value));
        let depths: [usize; DEPTHS.len()] = std::array::from_fn(|n| n);
        Figures {
            recall: depths.map(|n| of(&|row| row.recall[n])),
            any: depths.map(|n| of(&|row| row.any[n])),
            ndcg_10: of(&|row| row.ndcg_10),
            mrr: of(&|row| row.mrr),
        }
    }

    /// Recall at a depth of `DEPTHS`.
    pub fn recall_at(&self, k: usize) -> f64 {
        DEPTHS.iter().position(|depth| *depth == k).map_or(f64::NAN, |n| self.recall[n])
    }

    /// With the names that tables use.
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

    /// All of them, with the names that JSON uses.
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

    /// Wilson's score interval of a share, which stays within 0 and 1 and has a width where all or none hold.
    /// <https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval>
    pub fn of_share(holds: usize, count: usize) -> Interval {
        let (share, n, squared) = (holds as f64 / count as f64, count as f64, Z_95 * Z_95);
        let middle = (share + squared / (2.0 * n)) / (1.0 + squared / n);
        let width = Z_95 / (1.0 + squared / n)
            * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
        Interval { mean: share, low: middle - width, high: middle + width, count }
    }
}

/// No number if there are none.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// The share of those for which it holds. No number if there are none.
pub fn share(holds: impl Iterator<Item = bool>) -> f64 {
    mean(holds.map(|holds| f64::from(u8::from(holds))))
}

/// The probability that one of the wanted has more than one of the others; of equals, half. No number if either group is empty.
pub fn auc(scored: &[(bool, f64)]) -> f64 {
    let mut others: Vec<f64> =
        scored.iter().filter(|(wanted, _)| !wanted).map(|(_, score)| *score).collect();
    others.sort_by(f64::total_cmp);
    let below = |score: f64| {
        let less = others.partition_point(|other| *other < score);
        let not_more = others.partition_point(|other| *other <= score);
        (less + not_more) as f64 / 2.0
    };
    mean(scored.iter().filter(|(wanted, _)| *wanted).map(|(_, score)| below(*score)))
        / others.len() as f64
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
    fn a_ranking_is_as_good_as_its_evidence_stands_high() {
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
    fn no_more_evidence_is_wanted_of_the_first_ten_than_they_can_hold() {
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
    fn the_first_place_counts_and_any_evidence_is_enough_for_any() {
        let figures = Figures::of(&turns("x a b c"), &turns("a c"));
        assert_eq!(figures.recall, [0.0, 0.5, 1.0, 1.0, 1.0]);
        assert_eq!(figures.any, [0.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn an_interval_is_narrower_where_more_was_measured() {
        let few = Interval::of(&[0.0, 1.0, 0.0, 1.0]);
        let many = Interval::of(&[0.0, 1.0].repeat(200));
        assert!(
            few.mean == 0.5 && few.low < 0.0 && many.low > 0.44 && many.high < 0.56,
            "{few:?} {many:?}"
        );
        let all = Interval::of_share(100, 100);
        assert!(all.low > 0.95 && all.low < 0.97 && all.high > 0.999, "{all:?}");
    }

    #[test]
    fn the_area_is_the_chance_to_tell_which_of_two_is_wanted() {
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
