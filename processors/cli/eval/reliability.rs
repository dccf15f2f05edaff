//! Computes how far `relevance` can be taken at its word: of the memories that are given 30 %, are 30 % evidence? Pure.

use super::metrics::{auc, mean, share};
use super::{number, percent, show};
use serde_json::{Value, json};

const BINS: usize = 10;
/// Relevance from which a memory counts as one that answers: that of a `match` of `good`.
const GOOD: f64 = 0.5;

/// A returned memory: its relevance, and whether it is evidence for the question.
pub type Judged = (f64, bool);

/// Memories returned for one question that counts here.
pub struct Asked {
    /// Some turn of the conversation answers the question.
    pub is_answerable: bool,
    pub memories: Vec<Judged>,
}

#[derive(Debug)]
struct Bin {
    count: usize,
    relevance: f64,
    evidence: f64,
}

/// Reliability over all memories that were returned. <https://en.wikipedia.org/wiki/Brier_score>
#[derive(Debug)]
pub struct Reliability {
    bins: Vec<Bin>,
    /// Mean distance between relevance and share of evidence in a bin, weighted by the bin's count: expected calibration error.
    pub error: f64,
    pub base_rate: f64,
    pub brier: f64,
    /// Gain over giving every memory the base rate; 1 is perfect, 0 is nothing.
    pub skill: f64,
    /// Share of answerable questions with some memory of `GOOD` or more.
    pub answered_well: f64,
    /// The best memory's relevance, answerable questions against the others.
    pub auc: f64,
}

impl Reliability {
    pub fn of(asked: &[Asked]) -> Reliability {
        let all: Vec<Judged> = asked.iter().flat_map(|one| one.memories.iter().copied()).collect();
        let bins = (0..BINS).map(|n| {
            Bin::of(all.iter().copied().filter(|(relevance, _)| place(*relevance) == n).collect())
        });
        let bins: Vec<Bin> = bins.collect();
        let counted = bins.iter().filter(|bin| bin.count > 0);
        let distance: f64 =
            counted.map(|bin| bin.count as f64 * (bin.relevance - bin.evidence).abs()).sum();
        let base_rate = share(all.iter().map(|(_, is_evidence)| *is_evidence));
        let brier = mean(all.iter().map(|(relevance, is_evidence)| {
            (relevance - f64::from(u8::from(*is_evidence))).powi(2)
        }));
        let best =
            |one: &Asked| one.memories.iter().map(|(relevance, _)| *relevance).fold(0.0, f64::max);
        let answerable = asked.iter().filter(|one| one.is_answerable);
        Reliability {
            error: distance / all.len() as f64,
            base_rate,
            brier,
            skill: 1.0 - brier / (base_rate * (1.0 - base_rate)),
            answered_well: share(answerable.map(|one| best(one) >= GOOD)),
            auc: auc(&asked.iter().map(|one| (one.is_answerable, best(one))).collect::<Vec<_>>()),
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
        let row = |(n, bin): (usize, &Bin)| {
            let from = n as f64 / BINS as f64;
            vec![
                format!("{from:.1}-{:.1}", from + 0.1),
                bin.count.to_string(),
                percent(bin.relevance),
                percent(bin.evidence),
            ]
        };
        let rows: Vec<Vec<String>> = self.bins.iter().enumerate().map(row).collect();
        let table =
            show::table(&["relevance", "memories", "mean relevance", "are evidence"], &rows);
        let three =
            |value: f64| if value.is_finite() { format!("{value:.3}") } else { "–".to_owned() };
        format!(
            "{table}calibration error {}, Brier score {}, skill over the base rate of {} {}\nanswerable questions with some memory \
             of {GOOD} or more: {}; AUC of the best memory, answerable against never said: {}\n",
            three(self.error),
            three(self.brier),
            percent(self.base_rate),
            three(self.skill),
            percent(self.answered_well),
            three(self.auc),
        )
    }
}

impl Bin {
    fn of(memories: Vec<Judged>) -> Bin {
        Bin {
            count: memories.len(),
            relevance: mean(memories.iter().map(|(relevance, _)| *relevance)),
            evidence: share(memories.iter().map(|(_, is_evidence)| *is_evidence)),
        }
    }
}

fn place(relevance: f64) -> usize {
    ((relevance * BINS as f64) as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(is_answerable: bool, memories: &[Judged]) -> Asked {
        Asked { is_answerable, memories: memories.to_vec() }
    }

    #[test]
    fn relevance_that_keeps_its_word_has_no_error() {
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
    fn the_best_memory_tells_what_was_never_said() {
        let found = Reliability::of(&[
            asked(true, &[(0.7, true), (0.1, false)]),
            asked(true, &[(0.3, true)]),
            asked(false, &[(0.4, false)]),
            asked(false, &[]),
        ]);
        assert_eq!((found.auc, found.answered_well), (0.75, 0.5));
    }
}
