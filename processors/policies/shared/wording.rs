//! What the seeds' documents call information, specific, a greeting or a question, read from the words. English.

use crate::text;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Said to begin, to agree or to correct: no part of what is told.
const FILLERS: &[&str] = &[
    "actually", "also", "bye", "cool", "good", "great", "hello", "hey", "hi", "instead", "let",
    "lets", "nice", "ok", "okay", "please", "really", "sure", "thank", "thanks", "well", "wow",
    "yeah", "yes",
];

/// What stands around the thing that is told of: "I prefer …", "decided to use …".
const FRAMES: &[&str] = &[
    "am",
    "chose",
    "decide",
    "decided",
    "enjoy",
    "file",
    "hate",
    "like",
    "likes",
    "love",
    "prefer",
    "preferred",
    "prefers",
    "use",
    "used",
    "uses",
    "using",
];

/// The whole text says hello, thanks or yes.
static COURTESY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?xi) ^ \W* (?: hi | hello | hey | thanks | thank\ you | many\ thanks | ok | okay | got\ it | yes | yeah | no | sure | great | perfect
          | good\ (?:morning|evening|night) | bye | goodbye | you're\ welcome | sounds\ good | that's\ (?:good|great|fine|nice|right) )
          (?: \ (?: there | so\ much | a\ lot | everyone | all ) )? \W* $",
    )
    .expect("a fixed pattern, compiled by the tests")
});

pub fn is_courtesy(text: &str) -> bool {
    COURTESY.is_match(text)
}

/// A word as it stands between two spaces, without marks at its ends: "auth.js" is one.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
}

/// Tokens that mean something, in the order they stand.
pub fn content(text: &str) -> Vec<&str> {
    tokens(text).filter(|token| !is_empty_word(token)).collect()
}

/// Stems of what is told, without the words around it; of those, if there is nothing else.
pub fn information(text: &str) -> BTreeSet<String> {
    let content = content(text);
    let stems = |words: &mut dyn Iterator<Item = &&str>| {
        words.map(|word| text::stem(&word.to_lowercase())).collect::<BTreeSet<_>>()
    };
    let told =
        stems(&mut content.iter().filter(|word| !FRAMES.contains(&word.to_lowercase().as_str())));
    if told.is_empty() { stems(&mut content.iter()) } else { told }
}

/// Stems of all content tokens.
pub fn stems(text: &str) -> BTreeSet<String> {
    content(text).into_iter().map(|word| text::stem(&word.to_lowercase())).collect()
}

/// Names, numbers and identifiers: tokens that could stand in few sentences only.
pub fn specifics(text: &str) -> Vec<&str> {
    let mut begins = true;
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        let token = word.trim_matches(|c: char| !c.is_alphanumeric());
        if !is_empty_word(token) && is_specific(token, begins) {
            found.push(token);
        }
        begins = word.ends_with(['.', '!', '?', ':']) || (begins && token.is_empty());
    }
    found
}

fn is_specific(token: &str, begins_sentence: bool) -> bool {
    let capitals = token.chars().filter(|c| c.is_uppercase()).count();
    let is_name = token.starts_with(char::is_uppercase) && !begins_sentence;
    let has_mark = token.contains(['.', '/', '_', '@', '(']);
    is_name || has_mark || capitals > 1 || token.chars().any(|c| c.is_ascii_digit())
}

fn is_empty_word(token: &str) -> bool {
    let lower = token.to_lowercase().replace('’', "'");
    let is_filler = |word: &str| text::is_stop_word(word) || FILLERS.contains(&word);
    text::words(&lower).all(is_filler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_specific_has_a_name_a_number_or_a_mark_of_code() {
        for (text, expected) in [
            ("This API uses port 3000", &["API", "3000"][..]),
            ("Database on port 5432", &["5432"]),
            ("auth.js depends on jwt.js", &["auth.js", "jwt.js"]),
            ("Let's use PostgreSQL", &["PostgreSQL"]),
            ("That's good. I am well!", &[]),
            ("Python is nice", &[]),
        ] {
            assert_eq!(specifics(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_told_stands_without_the_words_around_it() {
        let told = |text| information(text).into_iter().collect::<Vec<_>>();
        assert_eq!(told("Actually, I prefer Go"), ["go"]);
        assert_eq!(told("I use it"), ["use"]);
        assert_eq!(told("ok, thanks"), [] as [&str; 0]);
    }

    #[test]
    fn a_courtesy_says_nothing_else() {
        for text in ["Hello", "Thanks!", "OK", "Got it", "That's good", "thank you so much"] {
            assert!(is_courtesy(text), "{text}");
        }
        for text in ["Hello, I moved to Lisbon", "That's good to know: port 80", "No milk for me"] {
            assert!(!is_courtesy(text), "{text}");
        }
    }
}
