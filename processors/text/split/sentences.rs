//! Cuts chunks into single statements, for profiles whose memories are one sentence each.
//!
//! 1. Cut at [Unicode's sentence bounds](https://unicode.org/reports/tr29/#Sentence_Boundaries).
//!    Fenced code stays whole.
//! 2. Join a part with the next one if the bound between them is no end of a sentence: behind an
//!    abbreviation ("Dr."), an initial or the number of a list, and at a line that goes on in small
//!    letters.

use super::chunk::code_and_prose;
use unicode_segmentation::UnicodeSegmentation;

/// Abbreviations that stand before a name or a number in the middle of a sentence.
const ABBREVIATIONS: &[&str] = &[
    "approx.", "bzw.", "cf.", "dr.", "e.g.", "i.e.", "jr.", "mr.", "mrs.", "ms.", "no.", "nr.",
    "prof.", "sr.", "st.", "vs.", "z.b.",
];

pub fn sentences(chunks: Vec<&str>) -> Vec<&str> {
    chunks.into_iter().flat_map(of).collect()
}

fn of(chunk: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    for (range, is_code) in code_and_prose(chunk, 0..chunk.len()) {
        let part = &chunk[range];
        if is_code {
            sentences.push(part.trim());
        } else {
            sentences.extend(of_prose(part).flat_map(before_identifiers));
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

fn of_prose(text: &str) -> impl Iterator<Item = &str> {
    let mut bounds = vec![0];
    let mut end = 0;
    for part in text.split_sentence_bounds() {
        let start = *bounds.last().expect("the first bound is 0");
        if end > start && is_end(&text[start..end], part) {
            bounds.push(end);
        }
        end += part.len();
    }
    bounds.push(end);
    (1..bounds.len()).map(move |n| text[bounds[n - 1]..bounds[n]].trim())
}

/// Cuts a sentence after each full stop before an identifier in small letters: "It uses Go. auth.js
/// depends on jwt.js". By the Unicode rules a small letter begins no sentence.
fn before_identifiers(sentence: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in sentence.match_indices(". ") {
        let next = at + ". ".len();
        let word = sentence[next..].split_whitespace().next().unwrap_or_default();
        let word = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != ')');
        let is_identifier = word.contains(['.', '/', '_']) || word.ends_with("()");
        if is_identifier && is_end(&sentence[start..next], word) {
            parts.push(sentence[start..next].trim());
            start = next;
        }
    }
    parts.push(sentence[start..].trim());
    parts
}

/// True if a sentence ends between the two texts.
fn is_end(before: &str, after: &str) -> bool {
    let has_line_end = before.ends_with(['\n', '\r']);
    let before = before.trim_end();
    let last = before.split_whitespace().next_back().unwrap_or_default();
    let is_initial =
        last != "I." && last.strip_suffix('.').is_some_and(|name| name.chars().count() == 1);
    let is_number_of_list =
        last == before && last.trim_end_matches(['.', ')']).chars().all(|c| c.is_ascii_digit());
    let goes_on = has_line_end
        && !before.ends_with(['.', '!', '?', ':', ';', '…', '。', '！', '？'])
        && after.trim_start().starts_with(char::is_lowercase);
    !(is_initial
        || is_number_of_list
        || goes_on
        || ABBREVIATIONS.contains(&last.to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(sentences(vec![text]), expected, "{text:?}");
    }

    #[test]
    fn a_text_is_cut_at_the_ends_of_its_sentences() {
        check(
            "I moved to Porto. I prefer tea! What is new?",
            &["I moved to Porto.", "I prefer tea!", "What is new?"],
        );
        check(
            "Hello\n- I like jazz\n- My dog is Rex",
            &["Hello", "- I like jazz", "- My dog is Rex"],
        );
        check(
            "It uses Go. auth.js depends on jwt.js, e.g. for tokens.",
            &["It uses Go.", "auth.js depends on jwt.js, e.g. for tokens."],
        );
        check("", &[]);
    }

    #[test]
    fn abbreviations_initials_numbers_and_wrapped_lines_end_no_sentence() {
        for whole in [
            "I saw Dr. Weber on Monday.",
            "J. R. Smith is my boss.",
            "It costs 3.50 a day.",
            "I live in a house\nwith a garden.",
            "Files, e.g. auth.js, are here.",
            "1. Buy milk",
        ] {
            check(whole, &[whole]);
        }
    }

    #[test]
    fn code_stays_whole() {
        check(
            "Run this.\n```\na. B. C\nx\n```\nIt works.",
            &["Run this.", "```\na. B. C\nx\n```", "It works."],
        );
    }

    proptest! {
        #[test]
        fn only_white_space_is_lost(text in "(\\PC|\n|```\n|[.!?] ){0,120}") {
            let parts: String = sentences(vec![&text]).concat();
            fn without_space(text: &str) -> String {
                text.split_whitespace().collect()
            }
            prop_assert_eq!(without_space(&parts), without_space(&text));
        }
    }
}
