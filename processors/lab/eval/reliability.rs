//! Computes the calibration of `relevance`: of the memories with a relevance of 30 %, are 30 %
//! evidence? Pure.

use super::figures::{auc, mean, share};
use super::report::{decimal, number, percent};
use client::show;
use serde_json::{Value, json};

const BINS: usize = 10;
/// Relevance from which a memory counts as an answer, as for a `match` of `good`.
const GOOD: f64 = 0.5;

/// A returned memory: its relevance, and whether it is evidence for the question.
pub type RatedMemory = (f64, bool);

/// Memories returned for one question.
pub struct RatedAnswer {
    /// A turn of the conversation answers the question.
    pub is_answerable: bool,
    pub memories: Vec<RatedMemory>,
}

#[derive(Debug)]
struct Bin {
    count: usize,
    relevance: f64,
    evidence: f64,
}

/// Calibration over all returned memories; see
/// [Brier score](https://en.wikipedia.org/wiki/Brier_score).
#[derive(Debug)]
pub struct Reliability {
    bins: Vec<Bin>,
    /// Expected calibration error: the distance between mean relevance and share of evidence in a
    /// bin, averaged over the bins by their counts.
    pub error: f64,
    /// Share of evidence among all memories.
    pub base_rate: f64,
    pub brier: f64,
    /// Brier skill score, relative to giving every memory the base rate: 1 is perfect, 0 is no
    /// gain.
    pub skill: f64,
    /// Share of answerable questions with a memory of relevance `GOOD` or more.
    pub answered_well: f64,
    /// Area under the ROC curve of the best memory's relevance: answerable questions against
    /// others.
    pub auc: f64,
}

impl Reliability {
    pub fn of(asked: &[RatedAnswer]) -> Reliability {
        let all: Vec<RatedMemory> =
            asked.iter().flat_map(|one| one.memories.iter().copied()).collect();
        let bins = (0..BINS).map(|n| {
            Bin::of(all.iter().copied().filter(|(relevance, _)| bin_of(*relevance) == n).collect())
        });
        let bins: Vec<Bin> = bins.collect();
        let counted = bins.iter().filter(|bin| bin.count > 0);
        let distance: f64 =
            counted.map(|bin| bin.count as f64 * (bin.relevance - bin.evidence).abs()).sum();
        let base_rate = share(all.iter().map(|(_, is_evidence)| *is_evidence));
        let brier = mean(all.iter().map(|(relevance, is_evidence)| {
            (relevance - f64::from(u8::from(*is_evidence))).powi(2)
        }));
        let answerable = asked.iter().filter(|answer| answer.is_answerable);
        let best: Vec<(bool, f64)> =
            asked.iter().map(|answer| (answer.is_answerable, answer.best())).collect();
        Reliability {
            error: distance / all.len() as f64,
            base_rate,
            brier,
            skill: 1.0 - brier / (base_rate * (1.0 - base_rate)),
            answered_well: share(answerable.map(|answer| answer.best() >= GOOD)),
            auc: auc(&best),
            bins,
        }
    }

    pub fn json(&self) -> Value {
        let bins = self.bins.iter().enumerate().map(|(n, bin)| {
            json!({
                "from": number(n as f64 / BINS as f64), "count": bin.count,
                "relevance": number(bin.relevance), "evidence": number(bin.evidence),
            })
        });
        json!({
            "bins": bins.collect::<Vec<_>>(),
            "memories": self.bins.iter().map(|bin| bin.count).sum::<usize>(),
            "error": number(self.error),
            "base_rate": number(self.base_rate),
            "brier": number(self.brier),
            "skill": number(self.skill),
            "answered_well": number(self.answered_well),
            "auc": number(self.auc),
        })
    }

    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .bins
            .iter()
            .enumerate()
            .map(|(n, bin)| {
                let from = n as f64 / BINS as f64;
                vec![
                    format!("{from:.1}-{:.1}", from + 0.1),
                    bin.count.to_string(),
                    percent(bin.relevance),
                    percent(bin.evidence),
                ]
            })
            .collect();
        let table =
            show::table(&["relevance", "memories", "mean relevance", "are evidence"], &rows);
        format!(
            "{table}calibration error {}, Brier score {}, skill over the base rate of {} {}\n\
             answerable questions with some memory of {GOOD} or more: {}; AUC of the best memory, \
             answerable against never said: {}\n",
            decimal(self.error),
            decimal(self.brier),
            percent(self.base_rate),
            decimal(self.skill),
            percent(self.answered_well),
            decimal(self.auc),
        )
    }
}

impl RatedAnswer {
    /// Relevance of the best memory; 0 without memories.
    fn best(&self) -> f64 {
        self.memories.iter().map(|(relevance, _)| *relevance).fold(0.0, f64::max)
    }
}

impl Bin {
    fn of(memories: Vec<RatedMemory>) -> Bin {
        Bin {
            count: memories.len(),
            relevance: mean(memories.iter().map(|(relevance, _)| *relevance)),
            evidence: share(memories.iter().map(|(_, is_evidence)| *is_evidence)),
        }
    }
}

fn bin_of(relevance: f64) -> usize {
    ((relevance * BINS as f64) as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(is_answerable: bool, memories: &[RatedMemory]) -> RatedAnswer {
        RatedAnswer { is_answerable, memories: memories.to_vec() }
    }

    #[test]
    fn a_calibrated_relevance_has_no_error() {
        let memories = [(0.25, true), (0.25, false), (0.25, false), (0.25, false), (1.0, true)];
        let found = Reliability::of(&[asked(true, &memories)]);
        assert!(found.error.abs() < 1e-12 && found.skill > 0.3, "{found:?}");
        assert_eq!((found.bins[2].count, found.bins[9].count, found.base_rate), (4, 1, 0.4));
    }

    #[test]
    fn the_same_relevance_for_all_has_no_skill() {
        let found = Reliability::of(&[asked(true, &[(0.5, true), (0.5, false)])]);
        assert_eq!((found.skill, found.error, found.brier), (0.0, 0.0, 0.25));
        let sure_and_wrong = Reliability::of(&[asked(true, &[(1.0, false), (0.0, true)])]);
        assert_eq!((sure_and_wrong.skill, sure_and_wrong.error), (-3.0, 1.0));
    }

    #[test]
    fn the_best_memory_separates_answerable_questions_from_the_others() {
        let found = Reliability::of(&[
            asked(true, &[(0.7, true), (0.1, false)]),
            asked(true, &[(0.3, true)]),
            asked(false, &[(0.4, false)]),
            asked(false, &[]),
        ]);
        assert_eq!((found.auc, found.answered_well), (0.75, 0.5));
    }
}
