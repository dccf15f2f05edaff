//! Decides if two texts make the same statement. Stricter than cosine: "port 5432" and "port 5433"
//! have nearly the same vector.
//!
//! 1. Texts with the same words are the same.
//! 2. Texts with different numbers or negations are different.
//! 3. Else the [Jaccard index](https://en.wikipedia.org/wiki/Jaccard_index) of their stems decides:
//!    `|A ∩ B| / |A ∪ B|` must reach the profile's `overlap`, or 1 outside English, whose negations
//!    are the only ones known here.

use std::collections::BTreeSet;
use text::{Language, Words};

/// English words that negate or limit a statement. The "t" comes from "don't".
const NEGATIONS: &[&str] = &["not", "no", "never", "without", "t", "except", "nor"];

/// A text that is compared with others, its words read once.
pub struct Statement {
    lower: String,
    words: Words,
}

impl Statement {
    pub fn of(text: &str) -> Statement {
        Statement { lower: text.to_lowercase(), words: Words::of(text) }
    }

    /// True if a negation or a word with a digit stands in one of the texts alone.
    pub fn differs(&self, other: &str) -> bool {
        decisive(&self.lower) != decisive(&other.to_lowercase())
    }

    /// True if the stems overlap enough, and no number and no negation differs.
    pub fn is_same(&self, other: &str, overlap: f32) -> bool {
        let lower = other.to_lowercase();
        if text::words(&self.lower).eq(text::words(&lower)) {
            return true;
        }
        if decisive(&self.lower) != decisive(&lower) {
            return false;
        }
        let (a, b) = (&self.words, &Words::of(other));
        let language = a.language().or_else(|| b.language()).unwrap_or(Language::ENGLISH);
        let (stems_a, stems_b) = (a.stems_in(language), b.stems_in(language));
        let is_english =
            language == Language::ENGLISH && !a.content().chain(b.content()).any(text::is_unspaced);
        let least = if is_english { overlap } else { overlap.max(1.0) };
        jaccard(&stems_a.iter().collect(), &stems_b.iter().collect()) >= least
    }
}

/// Returns the words that must be equal in both texts: negations, and words with a digit.
fn decisive(lower: &str) -> BTreeSet<&str> {
    text::words(lower)
        .filter(|word| NEGATIONS.contains(word) || word.contains(|c: char| c.is_numeric()))
        .collect()
}

/// Returns 0 for two empty sets.
fn jaccard(a: &BTreeSet<&str>, b: &BTreeSet<&str>) -> f32 {
    let all = a.union(b).count();
    if all == 0 { 0.0 } else { a.intersection(b).count() as f32 / all as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_negations_make_similar_texts_different() {
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
            assert_eq!(Statement::of(a).is_same(b, 0.8), same, "{a} / {b}");
        }
    }
}
