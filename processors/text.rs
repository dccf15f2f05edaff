//! Words and their stems: the one idea of "a word" that scoring, indexing and ranking share. Pure.

use crate::domain::Time;
use foldhash::fast::RandomState;
use rust_stemmers::{Algorithm, Stemmer};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Longer ones are keys, hashes and addresses.
pub const WORD_CHARS_MAX: usize = 40;

/// Changes when a stem of any word could change: an index built with another version is rebuilt.
pub const STEMS_VERSION: u32 = 1;

/// Function and question words beside Lucene's 33: with those 33 alone, retrieval between two people loses 1.4 points of R@10.
static STOP_WORDS: LazyLock<HashSet<&'static str, RandomState>> = LazyLock::new(|| {
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself its itself them themselves
    what which who whom whose when where why how am were been being have has had having do does did doing would should could can may might must shall
    about against between through during before after above below from up down out off over under again further once here all any both each few
    more most other some only own same so than too very s t just don now d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn
    mustn needn shan shouldn wasn weren won wouldn also because while until nor"
        .split_whitespace()
        .collect()
});

/// 16,384 words and their stems: about 1.5 MB a thread, and most of what a language uses.
const STEMS_REMEMBERED: usize = 16_384;
/// What is longer is hardly a word and would not come again.
const STEM_REMEMBERED_BYTES_MAX: usize = 32;

thread_local! {
    /// To stem a word takes ten times as long as to look it up, and a turn's words are stemmed three times: for its score, its vector's
    /// stand-in and the index.
    static STEMS: RefCell<HashMap<Box<str>, Box<str>, RandomState>> = RefCell::default();
}

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Runs of letters and digits of any script: "don't" is "don" and "t".
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Lower-case words that carry meaning, in order, repetitions kept.
pub fn content_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    words(&lower)
        .filter(|word| !STOP_WORDS.contains(word) && (word.len() <= WORD_CHARS_MAX || word.chars().count() <= WORD_CHARS_MAX))
        .map(str::to_owned)
        .collect()
}

pub fn stem(word: &str) -> String {
    if word.len() > STEM_REMEMBERED_BYTES_MAX {
        return STEMMER.stem(word).into_owned();
    }
    STEMS.with_borrow_mut(|stems| {
        if let Some(stem) = stems.get(word) {
            return stem.as_ref().to_owned();
        }
        if stems.len() >= STEMS_REMEMBERED {
            stems.clear();
        }
        let stem = STEMMER.stem(word).into_owned();
        stems.insert(word.into(), stem.as_str().into());
        stem
    })
}

/// What is indexed and searched: stems of the content words, in order, repetitions kept.
pub fn terms(text: &str) -> Vec<String> {
    content_words(text).iter().map(|word| stem(word)).collect()
}

pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

/// A person's name however it is written: "Mary-Ann" is "mary ann".
pub fn name(written: &str) -> String {
    words(&written.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// The first `count` words, as written.
pub fn first_words(text: &str, count: usize) -> String {
    text.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}

/// The day as people write it, so that "in May" finds it: `8 May, 2023`.
pub fn day(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%-d %B, %Y").to_string(),
        Err(_) => String::new(),
    }
}

/// At most `chars` characters on one line, for people to read.
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

    #[test]
    fn terms_are_stems_of_words_that_mean_something() {
        assert_eq!(terms("I'm moving to Lisbon; the flats were cheaper!"), ["move", "lisbon", "flat", "cheaper"]);
        assert_eq!(terms("what is it"), Vec::<String>::new());
        assert_eq!(terms("東京 café"), ["東京", "café"]);
    }

    #[test]
    fn a_stem_is_the_same_however_often_it_is_asked_for() {
        let words: Vec<String> = (0..STEMS_REMEMBERED + 10).map(|n| format!("walking{n}s")).collect();
        let first: Vec<String> = words.iter().map(|word| stem(word)).collect();
        assert_eq!(first, words.iter().map(|word| stem(word)).collect::<Vec<_>>());
        assert!(STEMS.with_borrow(|stems| stems.len()) <= STEMS_REMEMBERED);
        assert_eq!((stem("walking"), stem("walking")), ("walk".to_owned(), "walk".to_owned()));
    }

    #[test]
    fn days_are_written_with_the_months_name() {
        assert_eq!(day(Time(1_683_554_160_000)), "8 May, 2023");
        assert_eq!(day(Time(i64::MAX)), "");
    }

    #[test]
    fn shortened_cuts_at_characters_not_bytes() {
        assert_eq!(shortened("naïve  café\nnotes", 8), "naïve c…");
        assert_eq!(shortened("short", 8), "short");
    }
}
