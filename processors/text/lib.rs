//! Splits text into words and stems, and shortens text for display.
//!
//! Scoring, indexing and ranking all split text here, so that a word of a question can match the
//! same word of a memory. Pure functions: no I/O and no state but caches. The submodules are
//! `words` (tokenizing and stemming), `language` (language detection), `unspaced` (scripts without
//! spaces) and [`wordings`] (phrase lists from `config/languages/`).
//!
//! Six more modules read texts for one purpose each: `meant` cuts the words of asking off a `forget`, `days` finds the days that a text names
//! (`days_in_languages` rewrites those of other languages into English), [`redact`] removes secrets,
//! [`split`] cuts a turn into candidates and finds their facts, [`consent`] finds wishes not to be
//! remembered, [`faithful`] compares a model's text with its sources.
//! [`Rarity`] returns how rare a word is.
//!
//! Invariant: if an edit can change a stem of any word, [`STEMS_VERSION`] must go up.

pub mod consent;
mod days;
mod days_in_languages;
mod english;
pub mod faithful;
mod language;
mod meant;
mod order;
mod parts;
mod rarity;
pub mod redact;
pub mod split;
mod stop_words;
pub mod summarizer;
mod unspaced;
pub mod wordings;
mod words;

pub use days::{Days, days_asked_for, days_spoken_of};
pub use english::is_english;
pub use language::Language;
pub use meant::meant;
pub use order::EventBound;
pub use parts::things_asked;
pub use rarity::Rarity;
pub use stop_words::is_stop_word;
pub use unspaced::{count_words, is_unspaced};
pub use wordings::asks_for_the_past;
pub use words::{Stems, Words, stem, terms, terms_of_english, words};

use domain::Time;

/// Version of the stemming. An index that was built with another version is rebuilt.
pub const STEMS_VERSION: u32 = 2;

/// Normalises a person's name, so that spellings compare equal: "Mary-Ann" becomes "mary ann".
pub fn name(written: &str) -> String {
    words(&written.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// Returns the first `count` words as written, joined by single spaces. In a script without spaces,
/// two characters count as a word.
pub fn first_words(text: &str, count: usize) -> String {
    let first = text.split_whitespace().take(count).collect::<Vec<_>>().join(" ");
    match unspaced::end_of_words(&first, count) {
        Some(end) => first[..end].to_owned(),
        None => first,
    }
}

/// Formats the UTC day of `time` with the name of the month, so that the question "in May" matches
/// the date: `8 May, 2023`. Empty for a time out of the calendar's range.
pub fn day(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%-d %B, %Y").to_string(),
        Err(_) => String::new(),
    }
}

/// Shortens `text` to one line of at most `chars` characters, for display. A cut text ends in `…`.
pub fn shortened(text: &str, chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(chars) {
        None => line,
        Some(_) => line.chars().take(chars.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_words_are_separated_by_white_space(
            text in "([a-c.]{1,3}|[a-c ]|  |\t|\u{b}|\u{a0}|é){0,12}",
            count in 0usize..5,
        ) {
            let first = text.split_whitespace().take(count).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(&first_words(&text, count), &first);
        }
    }

    #[test]
    fn days_are_written_with_the_months_name() {
        assert_eq!(day(Time(1_683_554_160_000)), "8 May, 2023");
        assert_eq!(day(Time(i64::MAX)), "");
    }

    #[test]
    fn first_words_are_limited_in_scripts_without_spaces_too() {
        assert_eq!(first_words("one two  three", 2), "one two");
        assert_eq!(first_words("我住在里斯本，近河边。", 2), "我住在里");
        assert_eq!(first_words("リスボンに住む", 2), "リスボン");
    }

    #[test]
    fn shortened_cuts_at_characters_not_bytes() {
        assert_eq!(shortened("naïve  café\nnotes", 8), "naïve c…");
        assert_eq!(shortened("short", 8), "short");
    }
}
