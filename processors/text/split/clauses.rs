//! Cuts text into clauses, parts of sentences that make one statement each.
//!
//! Facts are extracted clause by clause, so that a word in one clause (a negation, "now") does not
//! affect the next. [`clauses`] cuts at every border; [`claims`] also joins fragments and clauses
//! like "which is now 15" to the clause before, for comparison with other texts.

use super::clean::Fence;
use super::english::ascii_pattern;
use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Removes fenced code, whose names and numbers are not about the speaker, and straightens
/// apostrophes.
pub fn prose(chunk: &str) -> Cow<'_, str> {
    if !chunk.contains('`') {
        return with_straight_apostrophes(chunk);
    }
    let mut fence = Fence::default();
    let lines = chunk.split_inclusive('\n').filter(|line| !fence.holds(line));
    with_straight_apostrophes(&lines.collect::<String>()).into_owned().into()
}

pub fn with_straight_apostrophes(text: &str) -> Cow<'_, str> {
    if text.contains('’') { text.replace('’', "'").into() } else { text.into() }
}

/// Cuts prose into clauses. A comma cuts only after three words or more, so that "Actually, I
/// prefer Go" stays whole.
pub fn clauses(prose: &str) -> Vec<&str> {
    let mut clauses = Vec::new();
    let mut start = 0;
    for border in BORDER.find_iter(prose) {
        let found = border.as_str();
        let at = border.start();
        // The end of this clause and the start of the next. The first and last letters of the match
        // identify the alternative of `BORDER`, and some alternatives include words of the next
        // clause.
        let (end, next) = match found.as_bytes()[0] {
            b'.' | b'!' | b'?' | b';' => (at + 1, border.end()),
            b',' => (at, at + found.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(found.len())),
            _ if found.ends_with(['i', 'I']) => (at, at + 1),
            _ => (at, border.end()),
        };
        if !found.starts_with(',') || crate::words(&prose[start..end]).nth(2).is_some() {
            clauses.push(prose[start..end].trim());
            start = next;
        }
    }
    clauses.push(prose[start..].trim());
    clauses
}

/// A claim with fewer words makes no statement, and a longer clause is a pasted list.
const WORDS_MIN: usize = 3;
const WORDS_MAX: usize = 70;
const CLAIMS_MAX: usize = 30;

/// Cuts prose into claims, clauses that can be compared with those of another text. A clause of
/// fewer than three words and a clause that refers back ("which is now 15") are joined to the one
/// before.
pub fn claims(prose: &str) -> Vec<String> {
    let mut claims: Vec<(String, usize)> = Vec::new();
    for clause in clauses(prose) {
        let words = crate::words(clause).take(WORDS_MAX + 1).count();
        let is_continuation = words < WORDS_MIN || REFERS_BACK.is_match(clause);
        match claims.last_mut() {
            Some((before, words_before))
                if is_continuation && words > 0 && *words_before + words <= WORDS_MAX =>
            {
                before.push_str(", ");
                before.push_str(clause);
                *words_before += words;
            }
            _ if (1..=WORDS_MAX).contains(&words) => claims.push((clause.to_owned(), words)),
            _ => {}
        }
    }
    claims
        .into_iter()
        .filter(|(_, words)| *words >= WORDS_MIN)
        .map(|(claim, _)| claim)
        .take(CLAIMS_MAX)
        .collect()
}

static BORDER: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"(?i)[.!?;]\s+|\n+|\s+(?:-|–|—)\s+|\s(?:but|because|so) i\b",
        r"|,\s+(?:but|so|while|although|though|because|since|and (?:i|we|i'm|i've)|i'm|i've|i|we",
        r"|can|could|should|how|what|considering|given|especially)\b",
    ))
});

static REFERS_BACK: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"(?i)^[ -/:-@]*(?:(?:and |but |so |now )?(?:which|it|it's|its|that|this|they|these)\b",
        r"|so (?:can|could) you [ -~]{0,40}\b(?:it|it's|this)\b)",
    ))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_cut_into_clauses() {
        for (text, expected) in [
            ("I ran 5 km. It rained!", &["I ran 5 km.", "It rained!"][..]),
            (
                "I live in Berlin, can you suggest a bakery?",
                &["I live in Berlin", "can you suggest a bakery?"],
            ),
            ("Actually, I prefer Go", &["Actually, I prefer Go"]),
            ("We moved — the flat was damp", &["We moved", "the flat was damp"]),
            ("It was late So I left", &["It was late", "So I left"]),
            ("I am here\n\nand there!\t Now?", &["I am here", "and there!", "Now?"]),
            (
                "I like the sea,\t\u{b} BUT it is cold , so stay",
                &["I like the sea", "BUT it is cold", "so stay"],
            ),
        ] {
            assert_eq!(clauses(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_clause_that_refers_back_is_joined_to_the_one_before() {
        for (text, expected) in [
            (
                "I track my commits, so I count them. It is now 15.",
                &["I track my commits", "so I count them., It is now 15."][..],
            ),
            ("Ok. Thanks. We have 12 boats now.", &["We have 12 boats now."]),
            ("Hm", &[]),
            ("", &[]),
        ] {
            assert_eq!(claims(text), expected, "{text:?}");
        }
    }

    #[test]
    fn fenced_code_is_removed_from_prose() {
        assert_eq!(prose("look:\n```\nlet a = 5;\n```\nI’m done"), "look:\nI'm done");
    }
}
