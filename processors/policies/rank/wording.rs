//! Extracts from a question's wording the conditions that word and vector search miss: the speaker
//! that the question names, the days, "when", and if the question is about an assistant's words.
//! The terms `speaker`, `time`, `when` and `question` and the factor `role` use them.
//!
//! Limit: the patterns are English. In other languages the terms stay 0, except `time`: the days
//! are found in the languages of `config/languages/`, and [`named`] finds names in any language with
//! spaces.

use domain::{Memory, Time};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use text::Days;

static ASKS_ABOUT_ASSISTANT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)
          \b did \s+ you \b | \b (?: have | had | were ) \s+ you \b
        | \b you (?: ['’]ve | \s+ have | \s+ had )? \s+
            (?: recommended | suggested | told | said | gave | given | mentioned | advised
            | proposed | explained | listed | provided | showed | described | outlined ) \b
        | \b your \s+
            (?: suggestions? | recommendations? | advice | answer | explanation | proposal ) \b",
    )
});

static TIME_WORD: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix) \b
            (?: yesterday | today | tomorrow | tonight | last | next | ago
            | week | weekend | month | year
            | monday | tuesday | wednesday | thursday | friday | saturday | sunday
            | january | february | march | april | may | june | july | august | september
            | october | november | december
            | \d{4} ) \b",
    )
});

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constants, and the tests compile each of them")
}

/// Longer names are not found.
const NAME_WORDS_MAX: usize = 3;
/// Words of a question, from the first on, in which names are searched. Each is looked up in the
/// index.
const NAMED_WITHIN_WORDS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct QuestionWording {
    pub when: bool,
    /// The days that the question names.
    days: Vec<Days>,
}

impl QuestionWording {
    pub fn of(question: &str, at: Time) -> QuestionWording {
        let when = text::words(question).any(|word| word.eq_ignore_ascii_case("when"));
        QuestionWording { when, days: text::days_asked_for(question, at) }
    }

    /// True if the memory speaks of days that the question names, or was said on one of those.
    pub fn names_days_of(&self, memory: &Memory) -> bool {
        if self.days.is_empty() {
            return false;
        }
        let is_asked = |days: &Days| self.days.iter().any(|asked| asked.meet(days));
        Days::of(memory.created_at).is_some_and(|said| is_asked(&said))
            || text::days_spoken_of(&memory.content, memory.created_at).iter().any(is_asked)
    }
}

/// True for a question about an assistant's words: "which bike did you recommend?"
pub(super) fn asks_about_assistant(question: &str) -> bool {
    ASKS_ABOUT_ASSISTANT.is_match(question)
}

/// True for a turn of a conversation that somebody sends as the question: it says something and goes
/// on. "I finished the first week. What's the plan for the next one?"
pub(super) fn is_message(question: &str) -> bool {
    let sentences = question.split_inclusive(['.', '!', '?', '\n']);
    let says = |sentence: &str| {
        !sentence.trim_end().ends_with('?') && text::count_words(sentence) >= MESSAGE_WORDS
    };
    sentences.filter(|sentence| says(sentence)).count() > 0 && text::count_words(question) >= 12
}

/// Words of a sentence that says something.
const MESSAGE_WORDS: usize = 3;

pub(super) fn has_time_word(content: &str) -> bool {
    TIME_WORD.is_match(content)
}

/// A longer question also states something: "Can you help me plan the move to Porto that I put off
/// until May?"
const PLAIN_QUESTION_WORDS: f32 = 20.0;

/// Returns 1 for a text that is one short question, 0 for a text that is no question. From 20 words
/// on, the value falls with the square of the length.
pub(super) fn only_asks(content: &str) -> f32 {
    if !is_one_question(content) {
        return 0.0;
    }
    (PLAIN_QUESTION_WORDS / text::count_words(content).max(1) as f32).min(1.0).powi(2)
}

/// True for one sentence that ends in a question mark.
fn is_one_question(content: &str) -> bool {
    let content = content.trim_end();
    if !content.ends_with('?') {
        return false;
    }
    let content = content.trim_start();
    let mut pairs = content.chars().zip(content.chars().skip(1));
    !pairs.any(|(mark, next)| ".!?".contains(mark) && next.is_whitespace())
}

/// The speaker that a question names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSpeaker {
    /// The name as `text::name` normalises names.
    pub name: String,
    /// The question with "I" and "my" in place of the name. Speakers write "I" of themselves, so
    /// the vector of this form is nearer to their memories.
    pub in_first_person: String,
}

/// Returns the only known speaker that the question names, or `None` if the question names none or
/// several: a question about several is about their common ground. `speakers` returns those of the
/// possible names that are speakers.
pub fn named<E>(
    question: &str,
    speakers: impl Fn(&BTreeSet<String>) -> Result<Vec<String>, E>,
) -> Result<Option<NamedSpeaker>, E> {
    let places = places_of_words(question);
    let mut found: Vec<(String, usize, usize)> = Vec::new();
    for first in 0..places.len() {
        for last in first..places.len().min(first + NAME_WORDS_MAX) {
            let begin = places[first].0;
            let end = places[last].1;
            if first < last || may_be_name(&question[begin..end], first) {
                found.push((text::name(&question[begin..end]), begin, end));
            }
        }
    }
    let speakers = speakers(&found.iter().map(|(name, ..)| name.clone()).collect())?;
    found.retain(|(name, ..)| speakers.contains(name));
    let Some((name, ..)) = found.first().cloned() else { return Ok(None) };
    if found.iter().any(|(other, ..)| *other != name) {
        return Ok(None);
    }
    let mut in_first_person = String::new();
    let mut rest = 0;
    for (_, begin, end) in found {
        in_first_person.push_str(&question[rest..begin]);
        let possessive =
            ["'s", "’s"].into_iter().find(|end_of_word| question[end..].starts_with(end_of_word));
        in_first_person.push_str(if possessive.is_some() { "my" } else { "I" });
        rest = end + possessive.map_or(0, str::len);
    }
    in_first_person.push_str(&question[rest..]);
    Ok(Some(NamedSpeaker { name, in_first_person }))
}

/// False for function words such as "will" and "may", unless a capital inside the question makes
/// them names.
fn may_be_name(word: &str, place: usize) -> bool {
    let lower = word.to_lowercase();
    !text::is_stop_word(&lower)
        || (place > 0 && lower.len() > 1 && word.starts_with(char::is_uppercase))
}

/// Returns the byte ranges of the first words.
fn places_of_words(question: &str) -> Vec<(usize, usize)> {
    let mut places = Vec::with_capacity(NAMED_WITHIN_WORDS);
    let mut begun = None;
    for (at, c) in question.char_indices().chain([(question.len(), ' ')]) {
        match begun {
            None if c.is_alphanumeric() => begun = Some(at),
            Some(begin) if !c.is_alphanumeric() => {
                places.push((begin, at));
                begun = None;
            }
            _ => {}
        }
    }
    places.truncate(NAMED_WITHIN_WORDS);
    places
}

#[cfg(test)]
mod tests {
    use super::super::samples::memory;
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_turn_that_says_something_is_a_message() {
        for (text, expected) in [
            ("I finished the first week of training. What's the plan for the next one?", true),
            (
                "My guy, that breakdown makes sense. Let's focus on the agent network, it is strong.",
                true,
            ),
            (
                "What dates did I mention for the scholarship deadline and the visa application?",
                false,
            ),
            ("Where do I live?", false),
            ("my sister", false),
        ] {
            assert_eq!(is_message(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_question_about_the_assistants_words_is_recognised() {
        for asks in [
            "What did you say about Rome?",
            "the book you recommended",
            "things you’ve told me",
            "what was YOUR advice",
            "had you known?",
        ] {
            assert!(asks_about_assistant(asks), "{asks}");
        }
        for plain in [
            "What did I say about Rome?",
            "do you know my sister?",
            "the youth recommended it",
            "answer in French",
        ] {
            assert!(!asks_about_assistant(plain), "{plain}");
        }
    }

    #[test]
    fn a_memory_is_of_the_days_that_it_speaks_of_or_of_those_on_which_it_was_said() {
        let said = Time(1_683_554_160_000); // 8 May 2023
        let asked = Time(said.0 + 40 * 86_400_000);
        for (question, content, expected) in [
            ("What did Anna do in May?", "Anna sang", true),
            ("May 2023?", "Anna sang", true),
            ("in May 2022 or in May 2023", "Anna sang", true),
            ("on 8 May", "Anna sang", true),
            ("on 7 May", "Anna sang yesterday", true),
            ("on 6 May", "Anna sang yesterday", false),
            ("in May 2022", "Anna sang", false),
            ("in June", "Anna sang", false),
            ("you may know, in 2022", "Anna sang", false),
            ("in Mayfair", "Anna sang", false),
        ] {
            let wording = QuestionWording::of(question, asked);
            let memory = Memory { created_at: said, ..memory(1, content) };
            assert_eq!(wording.names_days_of(&memory), expected, "{question} {content}");
        }
    }

    #[test]
    fn one_question_is_one_sentence_that_ends_in_a_question_mark() {
        for (content, expected) in [
            ("How are you?", true),
            (" and v1.2 too? ", true),
            ("Nice! How are you?", false),
            ("I did.", false),
            ("Really? ok", false),
        ] {
            assert_eq!(is_one_question(content), expected, "{content}");
        }
        let long = format!("Can you help me{}?", " plan my move to Porto soon".repeat(6));
        assert_eq!(
            (only_asks("How are you?"), only_asks("I did."), only_asks(&long)),
            (1.0, 0.0, 0.25)
        );
        assert!(
            has_time_word("I went there LAST week")
                && has_time_word("in 2021.")
                && !has_time_word("at lasting peace")
        );
    }

    #[test]
    fn a_question_that_names_one_speaker_is_put_in_the_first_person() {
        fn check(question: &str, expected: Option<(&str, &str)>) {
            let found = named(question, |names| {
                let speakers = ["anna", "bo", "mary ann", "will"].map(str::to_owned).into_iter();
                Ok::<_, Infallible>(speakers.filter(|one| names.contains(one)).collect())
            })
            .unwrap();
            let found =
                found.as_ref().map(|found| (found.name.as_str(), found.in_first_person.as_str()));
            assert_eq!(found, expected, "{question}");
        }
        check("Where does Anna live?", Some(("anna", "Where does I live?")));
        check("What is Anna's cat called, anna?", Some(("anna", "What is my cat called, I?")));
        check("When did Mary Ann’s sister come?", Some(("mary ann", "When did my sister come?")));
        check("What do Anna and Bo like?", None);
        check("Where do I live?", None);
        check("Will it rain?", None);
        check(
            "Does Will like rain? I think he will.",
            Some(("will", "Does I like rain? I think he will.")),
        );
    }
}
