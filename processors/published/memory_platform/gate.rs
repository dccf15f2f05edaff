//! Classifies a candidate as fact, preference or insight, and sets its initial salience (from kind,
//! specificity and emphasis) and its confidence (from the speaker). Pure.
//!
//! The document leaves the extractor open; the wordings and the points are our own.

use crate::shared::wording::{is_courtesy, only_asks, specifics};
use crate::shared::{Ground, Judged, held, listed, pattern};
use domain::{Kind, Memory, MemoryId, Role, Surprise};
use policies::score::Statement;
use regex::Regex;
use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Initial salience by kind.
    pub fact: f32,
    pub preference: f32,
    pub insight: f32,
    /// Added for a name, a number or an identifier.
    pub specific: f32,
    /// Added for emphasis.
    pub emphasis: f32,
    /// Confidence in the user's statements (`stated`) and in every other speaker's (`inferred`).
    pub stated: f32,
    pub inferred: f32,
    /// Smallest share of common words that makes a repetition.
    pub same_overlap: f32,
}

static INSIGHT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(reali[sz]ed?|learn(ed|t)|noticed|figured out|turns out|found out|discovered",
        r"|the key is|lesson|takeaway)\b",
    ))
});

static PREFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(prefer(s|red)?|favou?rite|rather|(like|love|hate|enjoy|dislike)s?|always|never)\b",
    )
});

static FACT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(i|we|my|our|he|she|they|the|this)\b.*\b(is|are|am|was|were|have|has|had",
        r"|lives?|works?|uses?|owns?|moved|born|decided|will)\b|\bi['’]m\b",
    ))
});

static EMPHATIC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)!|\b(always|never|must|important|critical|definitely|remember)\b")
});

/// Keeps every candidate that has a kind. There is no threshold: salience decides in the ranking.
pub fn judge(gate: &Gate, text: &str, ground: &Ground<'_>) -> Judged {
    let read = if is_courtesy(text) || only_asks(text) { None } else { kind(text) };
    let keep = read.is_some();
    let of_kind = read.map_or(0.0, |kind| salience_of(gate, kind));
    let specific = held(keep && !specifics(text).is_empty());
    let emphasis = held(keep && EMPHATIC.is_match(text));
    let points = [
        (read.unwrap_or("fact"), of_kind),
        ("specific", gate.specific * specific),
        ("emphasis", gate.emphasis * emphasis),
    ];
    let points: Vec<_> = points.into_iter().filter(|point| point.1 != 0.0).collect();
    let salience = points.iter().map(|point| point.1).sum::<f32>().min(1.0);
    Judged {
        reason: if keep {
            format!("salience of {}", listed(&points))
        } else {
            "neither fact, preference nor insight".to_owned()
        },
        surprise: Surprise {
            total: salience,
            specificity: specific,
            emphasis,
            points,
            ..Surprise::default()
        },
        threshold: 0.0,
        keep,
        importance: salience,
        confidence: if ground.role == Role::User { gate.stated } else { gate.inferred },
        same: if keep { same(gate, text, ground.memories) } else { None },
        kind: ground.hint.cloned().unwrap_or_else(|| Kind::new(read.unwrap_or("fact"))),
    }
}

/// Finds the memory that the text repeats. Its confidence rises, and no second memory is made.
fn same(gate: &Gate, text: &str, memories: &[Memory]) -> Option<MemoryId> {
    let said = Statement::of(text);
    memories
        .iter()
        .rev()
        .find(|memory| said.is_same(&memory.content, gate.same_overlap))
        .map(|memory| memory.id)
}

fn salience_of(gate: &Gate, kind: &str) -> f32 {
    match kind {
        "preference" => gate.preference,
        "insight" => gate.insight,
        _ => gate.fact,
    }
}

/// Returns the kind of a text, or `None` if no wording matches and nothing in the text is specific.
pub fn kind(text: &str) -> Option<&'static str> {
    match () {
        () if INSIGHT.is_match(text) => Some("insight"),
        () if PREFERENCE.is_match(text) => Some("preference"),
        () if FACT.is_match(text) || !specifics(text).is_empty() => Some("fact"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::{RARITY, ground, memory, shipped_gate};

    fn gate() -> Gate {
        shipped_gate("memory-platform")
    }

    fn judged(text: &str, role: Role) -> Judged {
        judge(&gate(), text, &Ground { role, ..ground(&RARITY) })
    }

    /// Holds memory-platform 1, 16.
    #[test]
    fn facts_preferences_and_insights_are_kept_with_a_salience_from_0_to_1() {
        for (text, kind) in [
            ("My birthday is in May", "fact"),
            ("We are in the middle of a migration", "fact"),
            ("I prefer tea", "preference"),
            ("I realized that mornings are best for writing", "insight"),
        ] {
            let judged = judged(text, Role::User);
            assert_eq!((judged.kind.as_str(), judged.keep), (kind, true), "{text:?}: {judged:?}");
            assert!((0.0..=1.0).contains(&judged.importance), "{judged:?}");
        }
        assert!(
            judged("I never fly to Lisbon!", Role::User).importance
                > judged("I hate tea", Role::User).importance
        );
    }

    #[test]
    fn courtesies_questions_and_generic_texts_are_dropped() {
        for text in ["Hello", "OK", "so it goes", "What is my birthday?"] {
            assert!(!judged(text, Role::User).keep, "{text:?}");
        }
    }

    #[test]
    fn explicit_statements_have_more_confidence_than_inferred_ones() {
        let stated = judged("I prefer tea", Role::User).confidence;
        let inferred = judged("You prefer tea", Role::Assistant).confidence;
        assert!(stated > inferred && inferred > 0.0, "{stated} {inferred}");
    }

    #[test]
    fn a_repeated_fact_makes_no_second_memory() {
        let known = [
            memory(1, "fact", "My birthday is in May"),
            memory(2, "fact", "My sister lives in Porto"),
        ];
        let found = judge(
            &gate(),
            "My birthday is in May.",
            &Ground { memories: &known, ..ground(&RARITY) },
        )
        .same;
        assert_eq!(found, Some(known[0].id));
    }
}
