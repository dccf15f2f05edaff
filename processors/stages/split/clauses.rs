//! A text to clauses: parts of sentences that say one thing each. What is found in one says nothing of the next.

use super::clean::Fence;
use crate::text;
use regex::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Without code, whose names and numbers say nothing about the speaker; apostrophes straight.
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

/// "Actually, I ..." stays whole: two words before a comma say nothing alone.
pub fn clauses(prose: &str) -> Vec<&str> {
    let (mut clauses, mut start) = (Vec::new(), 0);
    for border in BORDER.find_iter(prose) {
        let (found, at) = (border.as_str(), border.start());
        // Which wording it is, its first and last letters tell. What the next clause begins with belongs to the border, too.
        let (end, next) = match found.as_bytes()[0] {
            b'.' | b'!' | b'?' | b';' => (at + 1, border.end()),
            b',' => (at, at + found.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(found.len())),
            _ if found.ends_with(['i', 'I']) => (at, at + 1),
            _ => (at, border.end()),
        };
        if !found.starts_with(',') || text::words(&prose[start..end]).nth(2).is_some() {
            clauses.push(prose[start..end].trim());
            start = next;
        }
    }
    clauses.push(prose[start..].trim());
    clauses
}

/// Fewer words say nothing, more are a pasted list.
const WORDS_MIN: usize = 3;
const WORDS_MAX: usize = 70;
const CLAUSES_MAX: usize = 30;

/// Clauses that can be held against those of another text: what leans on the one before ("..., which is now 15") is one with it.
pub fn claims(prose: &str) -> Vec<String> {
    let mut claims: Vec<(String, usize)> = Vec::new();
    for clause in clauses(prose) {
        let words = text::words(clause).take(WORDS_MAX + 1).count();
        let leans = words < WORDS_MIN || LEANS_BACK.is_match(clause);
        match claims.last_mut() {
            Some((before, so_far)) if leans && words > 0 && *so_far + words <= WORDS_MAX => {
                before.push_str(", ");
                before.push_str(clause);
                *so_far += words;
            }
            _ if (1..=WORDS_MAX).contains(&words) => claims.push((clause.to_owned(), words)),
            _ => {}
        }
    }
    claims
        .into_iter()
        .filter(|(_, words)| *words >= WORDS_MIN)
        .map(|(claim, _)| claim)
        .take(CLAUSES_MAX)
        .collect()
}

static BORDER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"[.!?;]\s+|\n+|\s+(?:-|–|—)\s+|\s(?:but|because|so) i\b",
        r"|,\s+(?:but|so|while|although|though|because|since|and (?:i|we|i'm|i've)|i'm|i've|i|we",
        r"|can|could|should|how|what|considering|given|especially)\b",
    ))
});

static LEANS_BACK: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"^[ -/:-@]*(?:(?:and |but |so |now )?(?:which|it|it's|its|that|this|they|these)\b",
        r"|so (?:can|could) you [ -~]{0,40}\b(?:it|it's|this)\b)",
    ))
});

fn compiled(wording: &str) -> Regex {
    RegexBuilder::new(wording)
        .case_insensitive(true)
        .unicode(false)
        .build()
        .expect("the wordings are constants that every test compiles")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_cut_where_something_else_is_said() {
        for (said, expected) in [
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
            assert_eq!(clauses(said), expected, "{said:?}");
        }
    }

    #[test]
    fn what_leans_on_the_clause_before_is_one_with_it() {
        for (said, expected) in [
            (
                "I track my commits, so I count them. It is now 15.",
                &["I track my commits", "so I count them., It is now 15."][..],
            ),
            ("Ok. Thanks. We have 12 boats now.", &["We have 12 boats now."]),
            ("Hm", &[]),
            ("", &[]),
        ] {
            assert_eq!(claims(said), expected, "{said:?}");
        }
    }

    #[test]
    fn code_says_nothing() {
        assert_eq!(prose("look:\n```\nlet a = 5;\n```\nI’m done"), "look:\nI'm done");
    }
}
