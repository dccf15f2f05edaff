//! Counts the things that a question asks at once: two in "who roasts for us, and when is the
//! drop-off?", several in "which medicines do I take?".
//!
//! A part begins behind a question mark, and at an "and" before a question word of
//! `config/languages/`. Each part must have a word of its own: "and why?" belongs to what it follows.
//!
//! Limit: a list is recognised in English only.

use crate::wordings::{PhraseKind, SPEECH, fold};
use crate::words::Words;

const PARTS_MAX: usize = 3;
/// A list has at least two things.
const LISTED: usize = 2;
/// A longer text is a message that also asks.
const BYTES_MAX: usize = 300;
/// Words after which English asks; the other languages have theirs in `config/languages/`.
const ENGLISH: [&str; 9] = ["what", "where", "who", "whom", "whose", "which", "when", "why", "how"];
/// "And" in the languages that put spaces between words.
const AND: [&str; 6] = ["and", "und", "y", "et", "e", "en"];

/// Returns how many things a question asks for, 1 to 3.
pub fn things_asked(question: &str) -> usize {
    if question.len() > BYTES_MAX {
        return 1;
    }
    let parts = parts(question).len();
    if parts < LISTED && asks_for_a_list(question) { LISTED } else { parts.max(1) }
}

/// True for "which medicines do I take?" and "what can each of us eat?".
fn asks_for_a_list(question: &str) -> bool {
    const WHAT: [&str; 3] = ["what", "which", "whose"];
    const ALL: [&str; 5] = ["all", "each", "every", "everybody", "everyone"];
    const SINGULAR: [&str; 7] = ["does", "has", "is", "this", "was", "always", "class"];
    let folded = fold(question);
    let words: Vec<&str> = crate::words(&folded).collect();
    let Some(first) = words.iter().position(|word| WHAT.contains(word)) else { return false };
    let is_plural = |word: &&&str| {
        word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") && !SINGULAR.contains(*word)
    };
    words.get(first + 1).filter(is_plural).is_some()
        || words[first..].iter().any(|word| ALL.contains(word))
}

/// Returns the parts of a question that asks several things, and none of another text.
fn parts(question: &str) -> Vec<&str> {
    let mut begins: Vec<usize> = vec![0];
    for (at, mark) in
        question.char_indices().filter(|(_, c)| c.is_whitespace() || "?？".contains(*c))
    {
        let rest = at + mark.len_utf8();
        if "?？".contains(mark) || joins(&question[rest..]) {
            begins.push(rest);
        }
    }
    let ends = begins.iter().skip(1).copied().chain([question.len()]);
    let parts: Vec<&str> = begins
        .iter()
        .zip(ends)
        .map(|(begin, end)| question[*begin..end].trim())
        .filter(|part| part.chars().any(char::is_alphanumeric))
        .collect();
    let is_split = (2..=PARTS_MAX).contains(&parts.len())
        && parts.iter().all(|part| Words::of(part).content().len() > 0);
    if is_split { parts } else { Vec::new() }
}

/// True if the text begins with "and" and a question word.
fn joins(text: &str) -> bool {
    let folded = fold(text);
    let Some((first, rest)) = folded.split_once(' ') else { return false };
    let asks = || {
        let word = crate::words(rest).next().unwrap_or_default();
        ENGLISH.contains(&word)
            || SPEECH.find(rest).any(|one| one.start == 0 && one.what == PhraseKind::Question)
    };
    AND.contains(&first) && asks()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_several_things_has_parts() {
        for (question, parts) in [
            (
                "who roasts for us and when's the drop off?",
                &["who roasts for us", "and when's the drop off?"] as &[&str],
            ),
            (
                "Where do I live? And who is my dentist?",
                &["Where do I live?", "And who is my dentist?"],
            ),
            (
                "wo wohne ich und wie heißt mein Hund?",
                &["wo wohne ich", "und wie heißt mein Hund?"],
            ),
            ("我住在哪里？我对什么过敏？", &["我住在哪里？", "我对什么过敏？"]),
            ("who takes me to cards, and why?", &[]),
            ("what do I like and dislike?", &[]),
            ("Where do I live?", &[]),
            ("", &[]),
        ] {
            assert_eq!(super::parts(question), parts, "{question}");
        }
    }

    #[test]
    fn parts_and_lists_are_counted() {
        for (question, things) in [
            ("Where do I live? And who is my dentist? And what is my rent?", 3),
            ("which medicines do I take?", 2),
            ("what can each of us not eat?", 2),
            ("what does Ann eat?", 1),
            ("which bus goes there?", 1),
            ("what's my address", 1),
            ("", 1),
            (&"and who? ".repeat(90), 1),
        ] {
            assert_eq!(things_asked(question), things, "{question}");
        }
    }
}
