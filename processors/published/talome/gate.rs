//! Classifies a text to remember as one of Talome's four kinds, each with a default confidence, and
//! finds near-duplicates by the Dice coefficient of character pairs. Drops every turn. Pure.

use crate::shared::{Ground, Judged, confidence, first_kind, pattern};
use domain::{Kind, Memory, Surprise};
use regex::Regex;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Two memories of a kind are the same if their Dice coefficient is greater than this.
    pub dice: f32,
    /// Default confidence by kind. Other kinds have that of a fact.
    pub confidence: BTreeMap<String, f32>,
}

/// Wordings of each kind. Order matters: the first match wins. A text without a match is a fact.
static KINDS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let wordings = [
        ("correction", r"(?i)^\W*(actually|correction|no,)|, not \w|\binstead of\b|\bno longer\b"),
        (
            "preference",
            r"(?i)\b(prefer(s|red)?|favou?rite|likes?|loves?|hates?|dislikes?|would rather)\b",
        ),
        (
            "context",
            concat!(
                r"(?i)\b(this (week|month|weekend)|today|currently|right now|at the moment",
                r"|setting up)\b",
            ),
        ),
    ];
    wordings.map(|(kind, wording)| (kind, pattern(wording))).into()
});

/// Drops every turn: Talome stores only what its `remember` tool is given.
pub fn judge(text: &str, ground: &Ground<'_>) -> Judged {
    Judged {
        surprise: Surprise::default(),
        threshold: 0.0,
        keep: false,
        reason: "only `remember` events make memories".to_owned(),
        kind: ground.hint.cloned().unwrap_or_else(|| kind(text)),
        importance: 1.0,
        confidence: confidence(ground.role),
        same: None,
    }
}

/// Returns the default confidence of a kind.
pub fn confidence_in(gate: &Gate, kind: &Kind) -> f32 {
    let confidence = gate.confidence.get(kind.as_str()).or_else(|| gate.confidence.get("fact"));
    confidence.copied().unwrap_or(1.0)
}

/// Finds the newest near-duplicate among the memories of the same kind.
pub fn same(gate: &Gate, content: &str, kind: &Kind, memories: &[Memory]) -> Option<Memory> {
    let pairs_of_content = pairs(content);
    let same = memories.iter().rev().find(|memory| {
        memory.kind == *kind && dice(&pairs(&memory.content), &pairs_of_content) > gate.dice
    });
    same.cloned()
}

/// Returns the distinct character pairs of a text: "hello" has he, el, ll and lo. A repeated pair
/// counts once, because otherwise the document's own example would not exceed 80 %.
fn pairs(text: &str) -> HashSet<(char, char)> {
    let chars: Vec<char> = text.trim().to_lowercase().chars().collect();
    chars.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Computes the Dice coefficient, 2 · shared / (pairs of one + pairs of the other)
/// (<https://en.wikipedia.org/wiki/Dice-S%C3%B8rensen_coefficient>).
fn dice(one: &HashSet<(char, char)>, other: &HashSet<(char, char)>) -> f32 {
    2.0 * one.intersection(other).count() as f32 / (one.len() + other.len()).max(1) as f32
}

/// Returns the kind of the first wording that matches, else fact.
pub fn kind(text: &str) -> Kind {
    first_kind(&KINDS, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::{RARITY, ground, memory, shipped_gate};

    fn gate() -> Gate {
        shipped_gate("talome")
    }

    fn same(kind: &str, known: &str, content: &str) -> bool {
        super::same(&gate(), content, &Kind::new(kind), &[memory(1, "fact", known)]).is_some()
    }

    /// Holds talome 12.
    #[test]
    fn hello_has_the_pairs_he_el_ll_and_lo() {
        assert_eq!(pairs("hello"), HashSet::from([('h', 'e'), ('e', 'l'), ('l', 'l'), ('l', 'o')]));
        assert_eq!(dice(&pairs("hello"), &pairs("hell")), 2.0 * 3.0 / 7.0);
    }

    /// Holds talome 11, 27.
    #[test]
    fn over_80_percent_of_common_pairs_within_a_kind_is_the_same_memory() {
        assert_eq!(gate().dice, 0.80);
        assert!(same("fact", "My timezone is EST", "My timezone is EST timezone"));
        assert!(!same("fact", "My timezone is Eastern", "I use EST"));
        assert!(
            !same("preference", "My timezone is EST", "My timezone is EST timezone"),
            "another kind"
        );
        let at = |dice: f32| {
            super::same(
                &Gate { dice, ..gate() },
                "hell",
                &Kind::new("fact"),
                &[memory(1, "fact", "hello")],
            )
            .is_some()
        };
        assert!(at(0.85) && !at(6.0 / 7.0), "a coefficient equal to the limit is no duplicate");
    }

    /// Holds talome 1, 9, 20.
    #[test]
    fn confidence_is_1_0_for_preference_fact_and_correction_and_0_8_for_context() {
        for (content, expected_kind, expected) in [
            ("User prefers Jellyfin over Plex", "preference", 1.0),
            ("I prefer Jellyfin over Plex", "preference", 1.0),
            ("Media drive is at /mnt/media", "fact", 1.0),
            ("My media drive is mounted at /mnt/media", "fact", 1.0),
            ("Setting up media stack this week", "context", 0.8),
            ("I'm setting up a media stack this week", "context", 0.8),
            ("Timezone is Europe/Bratislava, not America/New_York", "correction", 1.0),
            ("Actually, my timezone is Europe/Bratislava, not America/New_York", "correction", 1.0),
        ] {
            let kind = kind(content);
            let confidence = confidence_in(&gate(), &kind);
            assert_eq!((kind.as_str(), confidence), (expected_kind, expected), "{content:?}");
        }
    }

    /// Holds talome 2.
    #[test]
    fn a_turn_is_never_remembered_by_itself() {
        assert!(!judge("I prefer Jellyfin over Plex", &ground(&RARITY)).keep);
    }
}
