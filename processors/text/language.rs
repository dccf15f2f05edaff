//! Which language a text is told in, as far as its stems depend on it. Most texts are plainly English, which their function words show at once;
//! only the others are looked at more closely. Who speaks which languages is not known here.

use rust_stemmers::{Algorithm, Stemmer};
use std::sync::LazyLock;
use whatlang::{Detector, Lang};

/// One that has a stemmer and is written in Latin letters. Elsewhere the letters of a word choose its stemmer, whatever its text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(Algorithm);

/// Those that a text must be told apart by. Danish stands for Norwegian too: in a sentence or two nobody tells them apart, and their endings
/// are nearly the same.
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

/// Without a stemmer: known so that they are not taken for one that has one.
const UNSTEMMED: [Lang; 6] = [Lang::Pol, Lang::Ces, Lang::Slk, Lang::Hrv, Lang::Vie, Lang::Ind];

static DETECTOR: LazyLock<Detector> = LazyLock::new(|| {
    let known = OTHERS.iter().map(|(lang, _)| *lang).chain(UNSTEMMED).chain([Lang::Eng]);
    Detector::with_allowlist(known.collect())
});

/// Of single sentences in a dozen languages half are told at these and hardly one wrongly, of three sentences together nine in ten; of 7,000
/// turns and questions in English not one is taken for another language.
const CONFIDENCE_LEAST: f64 = 0.5;
/// Where English is unlikely: a letter that it does without, or not one of its stop words among so many words.
const CONFIDENCE_LEAST_UNLIKE_ENGLISH: f64 = 0.3;
const WORDS_WITHOUT_STOP_WORD: usize = 5;
/// Two words are in any language.
const WORDS_LEAST: usize = 3;
/// What tells a language is told by then, and a long text takes no longer.
const LOOKED_AT_BYTES: usize = 300;

impl Language {
    pub const ENGLISH: Language = Language(Algorithm::English);

    /// All but English.
    pub fn others() -> impl Iterator<Item = Language> {
        OTHERS.into_iter().map(|(_, algorithm)| Language(algorithm))
    }

    /// Of a lower-case word in a text of this language. A stemmer that leaves nothing is not asked.
    pub fn stem(self, word: &str) -> String {
        let algorithm = word.chars().next().and_then(of_letter).unwrap_or(self.0);
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

/// What a text's words show of its language, counted while they are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    words: usize,
    /// In Latin letters.
    latin: usize,
    english_stop_words: usize,
    /// Has a letter that English does without.
    foreign: bool,
}

/// In so short a text one stop word is none: "on", "an" and "as" are words of many languages.
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
        self.foreign |= !is_ascii;
    }

    /// The language of the text that was counted. None: it cannot be told.
    pub fn language(&self, text: &str) -> Option<Language> {
        if self.is_plainly_english() {
            return Some(Language::ENGLISH);
        }
        if self.latin < WORDS_LEAST {
            return None;
        }
        let is_unlike_english =
            self.foreign || self.english_stop_words == 0 && self.words >= WORDS_WITHOUT_STOP_WORD;
        let least =
            if is_unlike_english { CONFIDENCE_LEAST_UNLIKE_ENGLISH } else { CONFIDENCE_LEAST };
        let begin = &text[..text.floor_char_boundary(LOOKED_AT_BYTES)];
        if !is_prose(begin) {
            return None;
        }
        let told = DETECTOR.detect(begin).filter(|told| told.confidence() >= least)?.lang();
        let other = OTHERS
            .into_iter()
            .find(|(lang, _)| *lang == told)
            .map(|(_, algorithm)| Language(algorithm));
        other.or((told == Lang::Eng).then_some(Language::ENGLISH))
    }

    /// A fifth of the words of English are stop words; of another language hardly one in ten looks like one.
    fn is_plainly_english(&self) -> bool {
        let of_ten = if self.words < SHORT_WORDS { 3 } else { 2 };
        !self.foreign
            && self.english_stop_words >= 2
            && 10 * self.english_stop_words >= of_ten * self.words
    }
}

/// Code, markup and tables look like any language. In prose hardly one word in ten comes with one of their signs.
fn is_prose(text: &str) -> bool {
    let signs = text.bytes().filter(|byte| b"{}<>[]=_*#|\\/$`@&%~^".contains(byte)).count();
    10 * signs <= text.split_ascii_whitespace().count()
}

/// The one stemmer for words in such letters. Limit: Ukrainian, Bulgarian and Serbian words are stemmed as Russian ones, Persian and Urdu as
/// Arabic; a word is then at least the same word in every text.
fn of_letter(c: char) -> Option<Algorithm> {
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
