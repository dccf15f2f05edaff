//! The figures: how good a ranking is, and how well a number tells two groups apart. Pure.

use std::collections::HashSet;

/// How well one ranking finds its evidence; or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    pub recall_5: f64,
    pub recall_10: f64,
    pub recall_20: f64,
    pub ndcg_10: f64,
    pub mrr: f64,
}

impl Figures {
    /// Evidence that is not in the ranking is missed.
    pub fn of(ranking: &[String], evidence: &[String]) -> Figures {
        let wanted: HashSet<&String> = evidence.iter().collect();
        let ranks: Vec<usize> =
            ranking.iter().enumerate().filter(|(_, turn)| wanted.contains(turn)).map(|(rank, _)| rank).collect();
        let recall = |k: usize| ranks.iter().filter(|rank| **rank < k).count() as f64 / wanted.len().max(1) as f64;
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        let ideal: f64 = (0..wanted.len().clamp(1, 10)).map(gain).sum();
        Figures {
            recall_5: recall(5),
            recall_10: recall(10),
            recall_20: recall(20),
            ndcg_10: ranks.iter().filter(|rank| **rank < 10).map(|rank| gain(*rank)).sum::<f64>() / ideal,
            mrr: ranks.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0)),
        }
    }

    pub fn mean(rows: &[Figures]) -> Figures {
        let mean = |of: fn(&Figures) -> f64| mean(rows.iter().map(of));
        Figures {
            recall_5: mean(|row| row.recall_5),
            recall_10: mean(|row| row.recall_10),
            recall_20: mean(|row| row.recall_20),
            ndcg_10: mean(|row| row.ndcg_10),
            mrr: mean(|row| row.mrr),
        }
    }

    /// With the names that reports use.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        let Figures { recall_5, recall_10, recall_20, ndcg_10, mrr } = *self;
        [("R@5", recall_5), ("R@10", recall_10), ("R@20", recall_20), ("NDCG@10", ndcg_10), ("MRR", mrr)]
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
    let mut others: Vec<f64> = scored.iter().filter(|(wanted, _)| !wanted).map(|(_, score)| *score).collect();
    others.sort_by(f64::total_cmp);
    let below = |score: f64| {
        let less = others.partition_point(|other| *other < score);
        let not_more = others.partition_point(|other| *other <= score);
        (less + not_more) as f64 / 2.0
    };
    mean(scored.iter().filter(|(wanted, _)| *wanted).map(|(_, score)| below(*score))) / others.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(ids: &str) -> Vec<String> {
        ids.split_whitespace().map(str::to_owned).collect()
    }

    fn check(ranking: &str, evidence: &str, expected: [f64; 5]) {
        let found = Figures::of(&turns(ranking), &turns(evidence)).named().map(|(_, value)| (value * 1000.0).round() / 1000.0);
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
        assert_eq!((figures.ndcg_10, figures.recall_10), (1.0, 10.0 / 12.0));
    }

    #[test]
    fn the_mean_of_several_rankings_counts_each_the_same() {
        let rows = [Figures::of(&turns("a"), &turns("a")), Figures::of(&turns("b"), &turns("a"))];
        assert_eq!(Figures::mean(&rows).named().map(|(_, value)| value), [0.5; 5]);
        assert!(Figures::mean(&[]).mrr.is_nan());
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
