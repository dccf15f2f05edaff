//! Whether one text says the same as another, word for word or nearly. Stricter than nearness: "port 5432" and "port 5433" are near.

use crate::text::{self, Language, Words};
use std::collections::BTreeSet;

/// Words that turn a statement round, or give it another value, whatever else is shared.
const TURNING: &[&str] = &["not", "no", "never", "without", "t", "except", "nor"];

/// The share of common stems is high enough, and no number and no negation differs.
pub fn says_the_same(a: &str, b: &str, overlap: f32) -> bool {
    let (lower_a, lower_b) = (a.to_lowercase(), b.to_lowercase());
    if text::words(&lower_a).eq(text::words(&lower_b)) {
        return true;
    }
    if decisive(&lower_a) != decisive(&lower_b) {
        return false;
    }
    let (a, b) = (Words::again(a), Words::of(b));
    let language = a.language().or_else(|| b.language()).unwrap_or(Language::ENGLISH);
    let (stems_a, stems_b) = (a.stems_in(language), b.stems_in(language));
    // What turns a statement round is not known of other languages: there all stems must be the same.
    let is_known =
        language == Language::ENGLISH && !a.content().chain(b.content()).any(text::is_unspaced);
    shared(&stems_a.iter().collect(), &stems_b.iter().collect())
        >= if is_known { overlap } else { overlap.max(1.0) }
}

fn decisive(lower: &str) -> BTreeSet<&str> {
    text::words(lower)
        .filter(|word| TURNING.contains(word) || word.contains(|c: char| c.is_numeric()))
        .collect()
}

fn shared(a: &BTreeSet<&str>, b: &BTreeSet<&str>) -> f32 {
    let all = a.union(b).count();
    if all == 0 { 0.0 } else { a.intersection(b).count() as f32 / all as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_statement_is_the_same() {
        for (a, b, same) in [
            ("I prefer Python", "i prefer python!", true),
            (
                "I love hiking in the Alps every summer",
                "I love to hike in the Alps every summer",
                true,
            ),
            ("The database is on port 5432", "The database is on port 5433", false),
            ("I do eat meat on weekends", "I don't eat meat on weekends", false),
            ("I prefer Python", "I prefer Go", false),
            ("I live in Berlin", "My sister lives in Lisbon", false),
            ("ok", "so", false),
        ] {
            assert_eq!(says_the_same(a, b, 0.8), same, "{a} / {b}");
        }
    }
}
