//! Detects the language of a text, to choose the stemmer for the words.
//!
//! 1. `Signs` counts English stop words and non-ASCII letters while the text is split. Most texts
//!    are recognised as English by these counts alone.
//! 2. The others go to [`whatlang`](https://docs.rs/whatlang), which looks at the first 300 bytes
//!    and must be confident enough. Code, markup and tables are skipped.
//! 3. A word in Greek, Cyrillic, Arabic or Tamil letters takes the stemmer of that script,
//!    whatever the language of the text.
//!
//! This file does not keep track of the languages a user has spoken; the index does.

use rust_stemmers::{Algorithm, Stemmer};
use std::sync::LazyLock;
use whatlang::{Detector, Lang};

/// A language that has a stemmer and is written in Latin letters. In other scripts the letters of a
/// word choose its stemmer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(Algorithm);

/// The languages besides English that have a stemmer. Danish stands for Norwegian too: one or two
/// sentences do not distinguish the two, and their endings are nearly the same.
const OTHERS: [(Lang, Algorithm); 12] = [
    (Lang::Dan, Algorithm::Danish),
    (Lang::Nld, Algorithm::Dutch),
    (Lang::Fin, Algorithm::Finnish),
    (Lang::Fra, Algorithm::French),
    (Lang::Deu, Algorithm::German),
    (Lang::Hun, Algorithm::Hungarian),
    (Lang::Ita, Algorithm::Italian),
    (Lang::Por, Algorithm::Portuguese),
    (Lang::Ron, Algorithm::Romanian),
    (Lang::Spa, Algorithm::Spanish),
    (Lang::Swe, Algorithm::Swedish),
    (Lang::Tur, Algorithm::Turkish),
];

/// Languages without a stemmer. The detector knows them so that a text in one of them is not taken
/// for a language in [`OTHERS`].
const UNSTEMMED: [Lang; 6] = [Lang::Pol, Lang::Ces, Lang::Slk, Lang::Hrv, Lang::Vie, Lang::Ind];

static DETECTOR: LazyLock<Detector> = LazyLock::new(|| {
    let known = OTHERS.iter().map(|(lang, _)| *lang).chain(UNSTEMMED).chain([Lang::Eng]);
    Detector::with_allowlist(known.collect())
});

/// Confidence of the detector from which the answer is used. With this value and
/// [`CONFIDENCE_MIN_UNLIKE_ENGLISH`], half of single sentences in a dozen languages are detected
/// and hardly one wrongly; of three sentences together nine in ten are. None of 7,000 English turns
/// and questions is taken for another language.
const CONFIDENCE_MIN: f64 = 0.5;
/// The lower bound for texts that are unlikely to be English: they have a non-ASCII letter, or
/// `WORDS_WITHOUT_STOP_WORD` words and no English stop word among them.
const CONFIDENCE_MIN_UNLIKE_ENGLISH: f64 = 0.3;
const WORDS_WITHOUT_STOP_WORD: usize = 5;
/// Fewer words do not identify a language.
const WORDS_MIN: usize = 3;
/// Bytes that the detector reads. More do not change the answer, and the limit bounds the time.
const DETECTED_BYTES_MAX: usize = 300;

impl Language {
    pub const ENGLISH: Language = Language(Algorithm::English);

    /// Lists every language but English.
    pub fn others() -> impl Iterator<Item = Language> {
        OTHERS.into_iter().map(|(_, algorithm)| Language(algorithm))
    }

    /// Stems a lower-case word of a text in this language. A word that the stemmer would reduce to
    /// nothing is returned unchanged.
    pub fn stem(self, word: &str) -> String {
        let algorithm = word.chars().next().and_then(stemmer_of_script).unwrap_or(self.0);
        match Stemmer::create(algorithm).stem(word) {
            stem if stem.is_empty() => word.to_owned(),
            stem => stem.into_owned(),
        }
    }
}

impl std::fmt::Display for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Counts over the words of a text from which the language is estimated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    words: usize,
    /// Words in Latin letters.
    latin: usize,
    english_stop_words: usize,
    /// Some word has a non-ASCII letter, which English words rarely have.
    has_non_ascii: bool,
}

/// Texts with fewer words need a larger share of stop words to count as English: "on", "an" and
/// "as" are words of several languages.
const SHORT_WORDS: usize = 8;

impl Signs {
    pub fn count(&mut self, word: &str, is_english_stop_word: bool) {
        let is_ascii = word.is_ascii();
        self.words += 1;
        self.latin += usize::from(if is_ascii {
            !word.starts_with(|c: char| c.is_ascii_digit())
        } else {
            word.starts_with(is_latin)
        });
        self.english_stop_words += usize::from(is_english_stop_word);
        self.has_non_ascii |= !is_ascii;
    }

    /// Estimates the language of `text`, whose words were counted. `None` if undecided.
    pub fn language(&self, text: &str) -> Option<Language> {
        if self.is_plainly_english() {
            return Some(Language::ENGLISH);
        }
        if self.latin < WORDS_MIN {
            return None;
        }
        let is_unlike_english = self.has_non_ascii
            || self.english_stop_words == 0 && self.words >= WORDS_WITHOUT_STOP_WORD;
        let confidence_min =
            if is_unlike_english { CONFIDENCE_MIN_UNLIKE_ENGLISH } else { CONFIDENCE_MIN };
        let begin = &text[..text.floor_char_boundary(DETECTED_BYTES_MAX)];
        if !is_prose(begin) {
            return None;
        }
        let detected =
            DETECTOR.detect(begin).filter(|found| found.confidence() >= confidence_min)?.lang();
        let other = OTHERS
            .into_iter()
            .find(|(lang, _)| *lang == detected)
            .map(|(_, algorithm)| Language(algorithm));
        other.or((detected == Lang::Eng).then_some(Language::ENGLISH))
    }

    /// Applies the stop-word test: in English text at least a fifth of the words are stop words, in
    /// other languages hardly one word in ten looks like an English one.
    fn is_plainly_english(&self) -> bool {
        let of_ten = if self.words < SHORT_WORDS { 3 } else { 2 };
        !self.has_non_ascii
            && self.english_stop_words >= 2
            && 10 * self.english_stop_words >= of_ten * self.words
    }
}

/// Returns false for code, markup and tables, which the detector assigns to any language. Prose has
/// at most one such symbol for every ten words.
fn is_prose(text: &str) -> bool {
    let symbols = text.bytes().filter(|byte| b"{}<>[]=_*#|\\/$`@&%~^".contains(byte)).count();
    10 * symbols <= text.split_ascii_whitespace().count()
}

/// Returns the stemmer for words that begin with `c`, if the script of `c` has exactly one.
///
/// Limit: Ukrainian, Bulgarian and Serbian words are stemmed as Russian, Persian and Urdu words as
/// Arabic. The stems may be crude, but a word gets the same stem in every text.
fn stemmer_of_script(c: char) -> Option<Algorithm> {
    match c {
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Some(Algorithm::Greek),
        '\u{400}'..='\u{52f}' => Some(Algorithm::Russian),
        '\u{600}'..='\u{6ff}' | '\u{750}'..='\u{77f}' => Some(Algorithm::Arabic),
        '\u{b80}'..='\u{bff}' => Some(Algorithm::Tamil),
        _ => None,
    }
}

fn is_latin(c: char) -> bool {
    c.is_alphabetic() && (c < '\u{250}' || ('\u{1e00}'..'\u{1f00}').contains(&c))
}
