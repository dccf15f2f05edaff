//! What the wording of a question asks for, besides its words: whom, when, and whether it is about what an assistant said.

use crate::domain::Time;
use crate::text;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

static ASKS_ABOUT_ASSISTANT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)
          \b did \s+ you \b | \b (?: have | had | were ) \s+ you \b
        | \b you (?: ['’]ve | \s+ have | \s+ had )? \s+ (?: recommended | suggested | told | said | gave | given | mentioned | advised
            | proposed | explained | listed | provided | showed | described | outlined ) \b
        | \b your \s+ (?: suggestions? | recommendations? | advice | answer | explanation | proposal ) \b",
    )
    .expect("a fixed pattern, compiled by the tests")
});

static WHEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)\bwhen\b").expect("a fixed pattern, compiled by the tests"));

static YEAR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:19|20)\d\d\b").expect("a fixed pattern, compiled by the tests")
});

static TIME_WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix) \b (?: yesterday | today | tomorrow | tonight | last | next | ago | week | weekend | month | year
            | monday | tuesday | wednesday | thursday | friday | saturday | sunday
            | january | february | march | april | may | june | july | august | september | october | november | december
            | \d{4} ) \b",
    )
    .expect("a fixed pattern, compiled by the tests")
});

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Longer names are not looked for.
const NAME_WORDS_MAX: usize = 3;
/// Words of a question that may begin a name: each is looked up among the speakers.
const WORDS_MAX: usize = 256;
/// Words of a question in which names are looked for: each is looked up in the index.
const NAMED_WITHIN_WORDS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wording {
    pub about_assistant: bool,
    pub when: bool,
    /// 1 to 12. With a capital: "may" is not May.
    months: Vec<i8>,
    years: Vec<i16>,
}

impl Wording {
    pub fn of(question: &str) -> Wording {
        let months =
            (1..).zip(MONTHS).filter(|(_, month)| text::words(question).any(|word| word == *month));
        Wording {
            about_assistant: ASKS_ABOUT_ASSISTANT.is_match(question),
            when: WHEN.is_match(question),
            months: months.map(|(number, _)| number).collect(),
            years: YEAR.find_iter(question).filter_map(|year| year.as_str().parse().ok()).collect(),
        }
    }

    /// Whether that was in a month, and a year if it names one, that the question names.
    pub fn names_the_month_of(&self, time: Time) -> bool {
        if self.months.is_empty() {
            return false;
        }
        let Ok(at) = jiff::Timestamp::from_millisecond(time.0) else { return false };
        let day = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        self.months.contains(&day.month())
            && (self.years.is_empty() || self.years.contains(&day.year()))
    }
}

pub(super) fn has_time_word(content: &str) -> bool {
    TIME_WORD.is_match(content)
}

/// A question of more words says something, too: "Can you help me plan the move to Porto that I put off until May?"
const PLAIN_QUESTION_WORDS: f32 = 20.0;

/// How far a text is nothing but a question, from 0 to 1.
pub(super) fn only_asks(content: &str) -> f32 {
    if !is_one_question(content) {
        return 0.0;
    }
    (PLAIN_QUESTION_WORDS / text::count_words(content).max(1) as f32).min(1.0).powi(2)
}

/// One sentence, and it asks.
fn is_one_question(content: &str) -> bool {
    let content = content.trim();
    let mut pairs = content.chars().zip(content.chars().skip(1));
    content.ends_with('?')
        && !pairs.any(|(mark, next)| ".!?".contains(mark) && next.is_whitespace())
}

/// Whom a question names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// As `text::name` writes names.
    pub name: String,
    /// The question as that person would put it: people say "I" of themselves, and are asked about by name.
    pub in_first_person: String,
}

/// The one speaker that a question names, of those who are one among the names that it might hold. Nobody if there are several: it is then
/// about what they have in common.
pub fn named<E>(
    question: &str,
    speakers: impl Fn(&BTreeSet<String>) -> Result<Vec<String>, E>,
) -> Result<Option<Named>, E> {
    let mut places = places_of_words(question);
    places.truncate(WORDS_MAX);
    let mut found: Vec<(String, usize, usize)> = Vec::new();
    for first in 0..places.len() {
        for last in first..places.len().min(first + NAME_WORDS_MAX) {
            let (begin, end) = (places[first].0, places[last].1);
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
    let (mut in_first_person, mut rest) = (String::new(), 0);
    for (_, begin, end) in found {
        in_first_person.push_str(&question[rest..begin]);
        let possessive =
            ["'s", "’s"].into_iter().find(|end_of_word| question[end..].starts_with(end_of_word));
        in_first_person.push_str(if possessive.is_some() { "my" } else { "I" });
        rest = end + possessive.map_or(0, str::len);
    }
    in_first_person.push_str(&question[rest..]);
    Ok(Some(Named { name, in_first_person }))
}

/// "Will" and "May" are names only where a capital says so.
fn may_be_name(word: &str, place: usize) -> bool {
    let lower = word.to_lowercase();
    !text::is_stop_word(&lower)
        || (place > 0 && lower.len() > 1 && word.starts_with(char::is_uppercase))
}

fn places_of_words(question: &str) -> Vec<(usize, usize)> {
    let (mut places, mut begun) = (Vec::new(), None);
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
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_question_about_the_assistants_words_is_recognised() {
        for asks in [
            "What did you say about Rome?",
            "the book you recommended",
            "things you’ve told me",
            "what was YOUR advice",
            "had you known?",
        ] {
            assert!(Wording::of(asks).about_assistant, "{asks}");
        }
        for plain in [
            "What did I say about Rome?",
            "do you know my sister?",
            "the youth recommended it",
            "answer in French",
        ] {
            assert!(!Wording::of(plain).about_assistant, "{plain}");
        }
    }

    #[test]
    fn a_month_is_named_with_a_capital_and_with_its_year_if_there_is_one() {
        let at = Time(1_683_554_160_000); // 8 May 2023
        for (question, expected) in [
            ("What did Anna do in May?", true),
            ("May 2023?", true),
            ("in May 2022 or in May 2023", true),
            ("in May 2022", false),
            ("in June", false),
            ("you may know, in 2023", false),
            ("in Mayfair", false),
        ] {
            assert_eq!(Wording::of(question).names_the_month_of(at), expected, "{question}");
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
    fn a_question_that_names_one_speaker_is_put_in_their_words() {
        let speakers = ["anna", "bo", "mary ann", "will"];
        let check = |question: &str, expected: Option<(&str, &str)>| {
            let known = |names: &BTreeSet<String>| {
                speakers.map(str::to_owned).into_iter().filter(|one| names.contains(one)).collect()
            };
            let found = named(question, |names| Ok::<_, Infallible>(known(names))).unwrap();
            let found =
                found.as_ref().map(|found| (found.name.as_str(), found.in_first_person.as_str()));
            assert_eq!(found, expected, "{question}");
        };
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
