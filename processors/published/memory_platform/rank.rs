//! Ranks memories by the Memory Platform's composite score.
//!
//!   score     w1 · similarity + w2 · salience(t) + w3 · confidence
//!   salience  salience(0) · e^(−λ · days since the last access)
//!   λ         by kind, and slower the more stable the content is

use crate::shared::{best_first, days_since_access, pattern, summed};
use domain::{Memory, Time};
use kernel::ranking::{Hit, Question, Ranked};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    pub similarity: f32,
    pub salience: f32,
    pub confidence: f32,
    /// A memory with less confidence is not returned.
    pub confidence_min: f32,
    /// λ by kind, for a stability of 0.5. Other kinds decay like a fact.
    pub decay: BTreeMap<String, f32>,
    /// Stability, 0 to 1, of lasting facts and of passing ones.
    pub stability_high: f32,
    pub stability_low: f32,
}

/// Stability of a memory that matches neither [`LASTING`] nor [`PASSING`].
const STABILITY_MIDDLING: f32 = 0.5;

static LASTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(birthday|born|founded|founding|address|my name is|native|anniversary",
        r"|(lives?|living|located|based) at|(was|were) (started|established|incorporated) in)\b",
    ))
});

static PASSING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(current(ly)?|status|right now|today|this week|at the moment|mood|feel(s|ing)?",
        r"|opinion|i think|recently|these days)\b",
        r"|\bi['’]m (so |very |really |a bit )?(sad|happy|tired|angry|upset|stressed|bored)\b",
    ))
});

pub fn ranked(rank: &Rank, hits: Vec<Hit>, question: &Question, at: Time) -> Vec<Ranked> {
    let confident = hits.into_iter().filter(|hit| hit.memory.confidence >= rank.confidence_min);
    let scored = confident.map(|hit| {
        let parts = [
            ("similarity", rank.similarity * hit.own.cosine),
            ("salience", rank.salience * salience(rank, &hit.memory, at)),
            ("confidence", rank.confidence * hit.memory.confidence),
        ];
        summed(hit.memory, question, &parts)
    });
    best_first(scored.collect())
}

/// Computes salience(0) · e^(−λ · days since the last access).
fn salience(rank: &Rank, memory: &Memory, at: Time) -> f32 {
    memory.importance * (-decay_rate(rank, memory) * days_since_access(memory, at)).exp()
}

/// Returns λ: the kind's rate at a stability of 0.5, 0 at a stability of 1 and twice the rate at 0.
fn decay_rate(rank: &Rank, memory: &Memory) -> f32 {
    let of_kind = rank
        .decay
        .get(memory.kind.as_str())
        .or_else(|| rank.decay.get("fact"))
        .copied()
        .unwrap_or_default();
    // A memory that another policy made has no stored stability.
    let stability = memory.stability.unwrap_or_else(|| stability(rank, &memory.content));
    of_kind * (1.0 - stability) / (1.0 - STABILITY_MIDDLING)
}

/// Rates how lasting a statement is by its wording.
pub fn stability(rank: &Rank, content: &str) -> f32 {
    match () {
        () if LASTING.is_match(content) => rank.stability_high,
        () if PASSING.is_match(content) => rank.stability_low,
        () => STABILITY_MIDDLING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_platform::MemoryPlatform;
    use crate::shared::samples::{shipped_gate, shipped_rank};
    use domain::Kind;
    use kernel::Policy;
    use policies::rank::samples::{MemoryMut as _, ask, hit, nothing};

    const DAY: i64 = 86_400_000;

    fn policy(rank: Rank) -> MemoryPlatform {
        let gate = shipped_gate("memory-platform");
        MemoryPlatform::new(gate, rank)
    }

    fn rank() -> Rank {
        shipped_rank("memory-platform")
    }

    fn of(kind: &str, content: &str, cosine: f32) -> Hit {
        let mut hit = hit(1, content, 0.0, cosine);
        hit.memory_mut().kind = Kind::new(kind);
        hit.memory_mut().importance = 1.0;
        hit
    }

    /// Holds memory-platform 3, 13, 15.
    #[test]
    fn salience_decays_by_0_01_0_05_0_10_and_0_15_a_day() {
        for (kind, rate) in
            [("fact", 0.01f32), ("preference", 0.05), ("insight", 0.10), ("summary", 0.15)]
        {
            for days in [0, 1, 10, 100] {
                let memory = of(kind, "tea", 0.0).memory;
                let actual = salience(&rank(), &memory, Time(days * DAY));
                let expected = (-rate * days as f32).exp();
                assert!(
                    (actual - expected).abs() < 1e-5,
                    "{kind} after {days} days: {actual}, not {expected}"
                );
            }
        }
    }

    /// Holds memory-platform 14.
    #[test]
    fn days_count_from_the_last_access() {
        let mut accessed = of("insight", "tea", 0.0);
        accessed.memory_mut().fresh_at = Time(10 * DAY);
        assert_eq!(salience(&rank(), &accessed.memory, Time(10 * DAY)), 1.0);
    }

    /// Holds memory-platform 10, 11.
    #[test]
    fn stable_memories_decay_much_slower() {
        fn after(content: &str) -> f32 {
            salience(&rank(), &of("fact", content, 0.0).memory, Time(100 * DAY))
        }
        let birthday = after("My birthday is in May");
        let other = after("I own a boat");
        let status = after("The current status is red");
        assert!(
            birthday > 0.8 && birthday > 2.0 * other && other > status,
            "{birthday} {other} {status}"
        );
        for lasting in ["My address is Rua Nova 1", "I live at 12 Elm Street"] {
            assert_eq!(stability(&rank(), lasting), rank().stability_high, "{lasting}");
        }
        for passing in ["I feel tired", "I'm so happy", "I think the plan is risky"] {
            assert_eq!(stability(&rank(), passing), rank().stability_low, "{passing}");
        }
    }

    /// Holds memory-platform 17.
    #[test]
    fn relevance_is_similarity_salience_and_confidence_by_their_weights() {
        let mut subject = of("preference", "tea", 0.6);
        subject.memory_mut().confidence = 0.7;
        let rank = rank();
        let expected =
            rank.similarity * 0.6 + rank.salience * (-0.05f32 * 10.0).exp() + rank.confidence * 0.7;
        let ranked = policy(rank).rank(vec![subject], &ask("q", &nothing()), Time(10 * DAY)).ranked;
        assert!((ranked[0].score - expected).abs() < 1e-6);
    }

    /// Holds memory-platform 8.
    #[test]
    fn uncertain_information_is_filtered_out() {
        let mut unsure = of("fact", "tea", 0.9);
        unsure.memory_mut().confidence = rank().confidence_min - 0.01;
        assert!(
            policy(rank()).rank(vec![unsure], &ask("q", &nothing()), Time(0)).ranked.is_empty()
        );
    }
}
