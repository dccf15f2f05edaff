//! Classifies English wording for the published policies: courtesies, content words, and specific
//! tokens such as names, numbers and identifiers. The documents use these terms without defining
//! them. Limit: English only.

use super::pattern;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Beginnings of a statement that stands before the question of the same sentence.
static BEGINS_A_STATEMENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?i:i|i['’]m|i['’]ve|we|we['’]re|we['’]ve|my|our|the|this|he|she|they)\b.*\w\s+\w+\s+\w",
        r"|^[A-Z]\w+ (?:is|was|has|lives|works|moved|uses|wants|likes|prefers)\b",
    ))
});

/// True for a sentence that ends in a question, unless a statement stands before it: "My dog is ill,
/// what can I do?" says something, "When I am ill, what can I do?" does not.
pub fn only_asks(text: &str) -> bool {
    let text = text.trim();
    let Some(asked) = text.strip_suffix('?') else { return false };
    let before = asked.rsplit_once([',', ';', '–']).map(|(before, _)| before.trim());
    !before.is_some_and(|before| BEGINS_A_STATEMENT.is_match(before))
}

/// Words that open, agree or correct, and carry no information.
const FILLERS: &[&str] = &[
    "actually", "also", "bye", "cool", "good", "great", "hello", "hey", "hi", "instead", "let",
    "lets", "nice", "ok", "okay", "please", "really", "sure", "thank", "thanks", "well", "wow",
    "yeah", "yes",
];

/// Words that frame the information: "I prefer …", "decided to use …".
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

/// Matches a text that is nothing but a greeting, thanks or a confirmation.
static COURTESY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?xi) ^ \W*
          (?: hi | hello | hey | thanks | thank\ you | many\ thanks | ok | okay | got\ it | yes
          | yeah | no | sure | great | perfect | good\ (?:morning|evening|night) | bye | goodbye
          | you're\ welcome | sounds\ good | that's\ (?:good|great|fine|nice|right) )
          (?: \ (?: there | so\ much | a\ lot | everyone | all ) )? \W* $",
    )
});

pub fn is_courtesy(text: &str) -> bool {
    COURTESY.is_match(text)
}

/// Splits a text at whitespace and trims punctuation at the ends: "auth.js" is one token.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
}

/// Returns the tokens of a text without stop words and fillers, in order.
pub fn content(text: &str) -> Vec<&str> {
    tokens(text).filter(|token| !is_empty_word(token)).collect()
}

/// Returns the stems of the content tokens without frame words. If the text has only frame words,
/// returns their stems.
pub fn information(text: &str) -> BTreeSet<String> {
    let unframed: BTreeSet<String> = content(text)
        .into_iter()
        .map(str::to_lowercase)
        .filter(|word| !FRAMES.contains(&word.as_str()))
        .map(|word| text::stem(&word))
        .collect();
    if unframed.is_empty() { stems(text) } else { unframed }
}

/// True for a word that frames the information, in lower case.
pub fn is_frame(word: &str) -> bool {
    FRAMES.contains(&word)
}

/// Returns the stems of all content tokens.
pub fn stems(text: &str) -> BTreeSet<String> {
    content(text).into_iter().map(|word| text::stem(&word.to_lowercase())).collect()
}

/// Computes the [Jaccard index](https://en.wikipedia.org/wiki/Jaccard_index): the common words as a
/// share of all words.
pub fn overlap(one: &BTreeSet<String>, other: &BTreeSet<String>) -> f32 {
    one.intersection(other).count() as f32 / one.union(other).count().max(1) as f32
}

/// Returns names, numbers and identifiers: tokens that fit few sentences.
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
    text::words(&lower).all(|word| text::is_stop_word(word) || FILLERS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_before_a_question_is_no_question() {
        for (text, expected) in [
            ("What should I do?", true),
            ("When I am ill, what can I do?", true),
            ("Hi, how are you?", true),
            ("If we use Redux, is that a good idea?", true),
            ("We decided to use Redux for state management, is that a good idea?", false),
            ("My dog is called Rex and he is ill, what can I do?", false),
            ("Rex is ill, what can I do?", false),
            ("I prefer Python", false),
        ] {
            assert_eq!(only_asks(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_numbers_and_identifiers_are_specific() {
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
    fn information_leaves_out_fillers_and_frame_words() {
        for (text, expected) in
            [("Actually, I prefer Go", &["go"][..]), ("I use it", &["use"]), ("ok, thanks", &[])]
        {
            assert!(information(text).iter().eq(expected), "{text}");
        }
    }

    #[test]
    fn a_courtesy_has_no_other_content() {
        for text in ["Hello", "Thanks!", "OK", "Got it", "That's good", "thank you so much"] {
            assert!(is_courtesy(text), "{text}");
        }
        for text in ["Hello, I moved to Lisbon", "That's good to know: port 80", "No milk for me"] {
            assert!(!is_courtesy(text), "{text}");
        }
    }
}
