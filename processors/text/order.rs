//! Finds the event by which a question bounds its time: "the move" in "How did the last game end
//! before the move?".
//!
//! Only questions in the past tense have such an event: "what do I take after lunch?" asks for a
//! habit. The caller leaves a bound that is a day, as in "before Christmas", to `days`.
//!
//! Limit: the words are English.

use crate::is_stop_word;

/// A longer text is a message that also asks.
const BYTES_MAX: usize = 300;
const PAST: [&str; 4] = ["did", "was", "were", "had"];
/// Before "after", a person or a name is meant: "who looked after the dog?".
const NO_TIME: [&str; 9] =
    ["look", "looked", "looking", "looks", "named", "called", "take", "takes", "took"];

/// Ends what is a time and no event: "after the first month".
const TIME: [&str; 8] = ["day", "days", "month", "months", "time", "week", "weeks", "year"];

/// An event in a question, and what is asked of the time before or after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBound<'q> {
    /// The question without the event.
    pub asked: &'q str,
    pub event: &'q str,
    pub is_before: bool,
}

impl EventBound<'_> {
    pub fn of(question: &str) -> Option<EventBound<'_>> {
        if question.len() > BYTES_MAX {
            return None;
        }
        let words: Vec<(usize, &str)> = places(question).collect();
        let is = |place: usize, list: &[&str]| {
            words.get(place).is_some_and(|(_, word)| list.contains(&&*word.to_lowercase()))
        };
        let bound = (0..words.len()).find(|place| is(*place, &["before", "after", "since"]))?;
        let (begin, word) = words[bound];
        let behind = begin + word.len();
        if bound > 0 && is(bound - 1, &NO_TIME) {
            return None;
        }
        let (asked, event) = if bound == 0 {
            // "After the move, what did I buy?"
            let (event, asked) = question[behind..].split_once(',')?;
            (asked.trim(), event.trim())
        } else {
            let event = question[behind..].trim_matches(|c: char| !c.is_alphanumeric());
            (question[..begin].trim(), event)
        };
        let is_past = places(asked).any(|(_, word)| PAST.contains(&&*word.to_lowercase()));
        let says = |text: &str| places(text).any(|(_, word)| !is_stop_word(&word.to_lowercase()));
        // What follows is asked for itself: "before the move? And who is my dentist?"
        let ends = event.contains(['?', '.', ';', '!']);
        let is_time =
            places(event).last().is_some_and(|(_, word)| TIME.contains(&&*word.to_lowercase()));
        let is_before = word.eq_ignore_ascii_case("before");
        (is_past && !is_time && !ends && says(asked) && says(event)).then_some(EventBound {
            asked,
            event,
            is_before,
        })
    }
}

/// The words of a text with their places.
fn places(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_in_word = |c: char| c.is_alphanumeric() || c == '\'' || c == '’';
    let mut end = 0;
    std::iter::from_fn(move || {
        let begin = end + text[end..].find(is_in_word)?;
        end = text[begin..].find(|c| !is_in_word(c)).map_or(text.len(), |length| begin + length);
        Some((begin, &text[begin..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(question: &str, expected: Option<(&str, &str, bool)>) {
        let found = EventBound::of(question);
        let found = found.map(|found| (found.asked, found.event, found.is_before));
        assert_eq!(found, expected, "{question}");
    }

    #[test]
    fn an_event_bounds_the_time_of_a_question_in_the_past_tense() {
        check(
            "How did the last game end before Ken moved to Ludlow?",
            Some(("How did the last game end", "Ken moved to Ludlow", true)),
        );
        check(
            "What was my first sale after the new job?",
            Some(("What was my first sale", "the new job", false)),
        );
        check("After the move, what did I buy?", Some(("what did I buy?", "the move", false)));
        check("What did I weigh since the diet?", Some(("What did I weigh", "the diet", false)));
    }

    #[test]
    fn other_questions_have_no_event() {
        for question in [
            "What do I take after lunch?",
            "Who looked after the dog?",
            "Was the cat named after Ken?",
            "What did I say before that?",
            "What did I do before?",
            "What did I eat before the move? And who is my dentist?",
            "How many people were paying after the first month?",
            "Before, what was it?",
            "Where do I live?",
            "",
        ] {
            check(question, None);
        }
        check(&format!("What did I do before {}", "x ".repeat(200)), None);
    }
}
