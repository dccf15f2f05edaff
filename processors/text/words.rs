//! Turns a text into content words and stems, the terms that are scored, indexed and searched.
//!
//! 1. Lower-case the text and cut the result into runs of letters and digits (`words`).
//! 2. Drop English stop words and words of more than 40 characters.
//! 3. Cut words of scripts without spaces into pairs of characters (`unspaced::parts`).
//! 4. Estimate the language from counts taken on the way (`Signs`).
//! 5. Stem each word in that language, or in English if the language is undecided.
//!
//! For example "I'm moving to Lisbon; the flats were cheaper!" has the content words
//! `moving lisbon flats cheaper` and the stems `move lisbon flat cheaper`.
//!
//! The thread-local cache `STEMS` saves time: stemming a word takes ten times as long as a lookup.
//!
//! Invariant: a change that alters the stem of any word must raise `STEMS_VERSION`.

use super::language::{Language, Signs};
use super::stop_words::is_stop_word;
use super::unspaced;
use foldhash::fast::RandomState;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use unicode_normalization::char::is_combining_mark;

/// Longest content word. Longer runs are keys, hashes and addresses.
pub const WORD_CHARS_MAX: usize = 40;

/// Entries in the stem cache: 16,384 words with their stems take about 1.5 MB per thread and cover
/// most of the words in use of a language.
const STEMS_CACHED: usize = 16_384;
/// Longer words are not cached: they are rarely real words and seldom return.
const STEM_CACHED_BYTES_MAX: usize = 32;

thread_local! {
    /// English stems by word. Stemming a word takes ten times as long as this lookup.
    static STEMS: RefCell<HashMap<Box<str>, Box<str>, RandomState>> = RefCell::default();
}

/// A text split into content words. The language is computed on first use.
pub struct Words {
    lower: String,
    /// Byte ranges of the content words in `lower`.
    content: Vec<Range<usize>>,
    signs: Signs,
    language: OnceCell<Option<Language>>,
}

impl Words {
    pub fn of(text: &str) -> Words {
        let lower = lower(text);
        let mut signs = Signs::default();
        let mut content = Vec::new();
        content_words(
            &lower,
            |word, is_stop_word| signs.count(word, is_stop_word),
            |word| content.push(range_in(&lower, word)),
        );
        Words { lower, content, signs, language: OnceCell::new() }
    }

    /// Lists the content words in lower case, in order, with repetitions. In scripts without spaces
    /// these are pairs of characters.
    pub fn content(&self) -> impl ExactSizeIterator<Item = &str> {
        self.content.iter().map(|word| &self.lower[word.clone()])
    }

    /// Estimates the language of the text. `None` if undecided.
    pub fn language(&self) -> Option<Language> {
        *self.language.get_or_init(|| self.signs.language(&self.lower))
    }

    /// Stems the content words in the language of the text, or in English if that is undecided.
    pub fn stems(&self) -> Stems {
        self.stems_in(self.language().unwrap_or(Language::ENGLISH))
    }

    pub fn stems_in(&self, language: Language) -> Stems {
        let mut builder = StemsBuilder::default();
        self.content().for_each(|word| builder.push_stemmed(language, word));
        builder.finish()
    }

    /// Returns the terms with which to search for a question.
    ///
    /// A question is often too short for language detection. Unless the question is plainly
    /// English, each word is therefore stemmed in English, in the detected language and in every
    /// language of `spoken`, the languages that the user's memories are written in.
    pub fn searched<E>(
        &self,
        spoken: impl FnOnce() -> Result<Vec<Language>, E>,
    ) -> Result<Vec<String>, E> {
        let own = self.language();
        if own == Some(Language::ENGLISH) {
            return Ok(self.stems_in(Language::ENGLISH).iter().map(str::to_owned).collect());
        }
        let mut languages = vec![Language::ENGLISH];
        languages.extend(own);
        languages.extend(spoken()?.into_iter().filter(|one| Some(*one) != own));
        Ok(self.content().flat_map(|word| stems_in_each(&languages, word)).collect())
    }
}

/// Stems in order, with repetitions, joined in one string: hundreds of thousands are made per
/// second, and a `String` for each would take most of that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stems {
    /// Each stem preceded by [`Stems::SEPARATOR`].
    joined: Arc<str>,
    count: usize,
}

impl Stems {
    /// A control character, which no stem contains.
    pub const SEPARATOR: char = '\u{1f}';

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.joined.split(Stems::SEPARATOR).skip(1)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// Concatenates these stems and `others`.
    pub fn and(&self, others: &Stems) -> Stems {
        Stems {
            joined: [&*self.joined, &*others.joined].concat().into(),
            count: self.count + others.count,
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for Stems {
    fn from_iter<I: IntoIterator<Item = S>>(stems: I) -> Stems {
        let mut builder = StemsBuilder::default();
        stems.into_iter().for_each(|stem| builder.push(stem.as_ref()));
        builder.finish()
    }
}

/// Builds [`Stems`].
#[derive(Default)]
struct StemsBuilder {
    joined: String,
    count: usize,
}

impl StemsBuilder {
    fn push_stemmed(&mut self, language: Language, word: &str) {
        if language == Language::ENGLISH {
            with_stem(word, |stem| self.push(stem))
        } else {
            self.push(&language.stem(word))
        }
    }

    fn push(&mut self, stem: &str) {
        self.joined.push(Stems::SEPARATOR);
        self.joined.push_str(stem);
        self.count += 1;
    }

    fn finish(self) -> Stems {
        Stems { joined: self.joined.into(), count: self.count }
    }
}

/// Splits text into runs of letters and digits of any script: "don't" becomes "don" and "t".
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

/// Returns the stems of the content words in order, with repetitions: the terms that the index
/// stores.
pub fn terms(text: &str) -> Stems {
    Words::of(text).stems()
}

/// Returns the terms of a text that is known to be English, without language detection.
pub fn terms_of_english(text: &str) -> Stems {
    let mut builder = StemsBuilder::default();
    content_words(&lower(text), |_, _| {}, |word| builder.push_stemmed(Language::ENGLISH, word));
    builder.finish()
}

/// Stems a lower-case word as English, or by the script if the letters are not Latin.
pub fn stem(word: &str) -> String {
    with_stem(word, str::to_owned)
}

/// Calls `use_stem` with the stem of `word`, from the stem cache if present.
fn with_stem<R>(word: &str, use_stem: impl FnOnce(&str) -> R) -> R {
    if word.len() > STEM_CACHED_BYTES_MAX {
        return use_stem(&Language::ENGLISH.stem(word));
    }
    STEMS.with_borrow_mut(|stems| {
        if let Some(stem) = stems.get(word) {
            return use_stem(stem);
        }
        if stems.len() >= STEMS_CACHED {
            stems.clear();
        }
        let stem = Language::ENGLISH.stem(word);
        let result = use_stem(&stem);
        stems.insert(word.into(), stem.into());
        result
    })
}

/// Splits lower-case text into words. Calls `visit` with each word and whether the word is an
/// English stop word, and `keep` with the parts of the other words.
fn content_words<'l>(
    lower: &'l str,
    mut visit: impl FnMut(&str, bool),
    mut keep: impl FnMut(&'l str),
) {
    let mut keep = |word: &'l str| {
        if word.len() <= WORD_CHARS_MAX || word.chars().count() <= WORD_CHARS_MAX {
            keep(word);
        }
    };
    for word in words(lower) {
        let is_stop_word = is_stop_word(word);
        visit(word, is_stop_word);
        if is_stop_word {
            continue;
        }
        if word.is_ascii() { keep(word) } else { unspaced::parts(word, &mut keep) }
    }
}

/// Returns the byte range of `part`, which must be a slice of `text`.
fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// Returns the distinct stems of `word` in all `languages`.
fn stems_in_each(languages: &[Language], word: &str) -> BTreeSet<String> {
    languages
        .iter()
        .map(|language| match *language {
            Language::ENGLISH => stem(word),
            other => other.stem(word),
        })
        .collect()
}

/// Lower-cases as Unicode defines it, except for the Turkish capital İ: Unicode maps that to two
/// characters, of which the second is not a letter and would cut the word.
fn lower(text: &str) -> String {
    if !text.is_ascii() && text.contains('İ') {
        text.replace('İ', "i").to_lowercase()
    } else {
        text.to_lowercase()
    }
}

/// Returns true for letters, digits and the combining marks of Indic and Southeast Asian scripts.
/// Those scripts write vowels, tones and joined consonants with marks, so cutting there would break
/// most words. Elsewhere a combining mark may belong to an emoji.
fn is_of_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    c.is_alphanumeric() || ('\u{900}'..'\u{1b00}').contains(&c) && is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn check(text: &str, expected: &str) {
        assert_eq!(terms(text).iter().collect::<Vec<_>>().join(" "), expected, "{text}");
    }

    /// Reference implementation of words and stems for English only.
    fn english(text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        let words = lower
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty() && !is_stop_word(word));
        words.filter(|word| word.len() <= WORD_CHARS_MAX).map(stem).collect()
    }

    fn searched(question: &str, spoken: &[Language]) -> String {
        Words::of(question).searched(|| Ok::<_, Infallible>(spoken.to_vec())).unwrap().join(" ")
    }

    fn german() -> Language {
        Words::of("Gestern war ich beim Arzt, und er hat mir neue Tabletten gegeben.")
            .language()
            .expect("a long sentence")
    }

    /// Holds lynkr 16.
    #[test]
    fn terms_are_stems_of_content_words() {
        check("I'm moving to Lisbon; the flats were cheaper!", "move lisbon flat cheaper");
        check("what is it", "");
        check("Tokyo café", "tokyo café");
    }

    /// Holds lynkr 16.
    #[test]
    fn forms_of_a_word_are_one_term_in_the_language_of_their_text() {
        check(
            "Ich habe mit meiner Schwester zwei Häuser gekauft",
            "ich hab mit mein schwest zwei haus gekauft",
        );
        check(
            "Nous avons acheté deux chevaux, et ma soeur un cheval",
            "nous avon achet deux cheval et soeur un cheval",
        );
        check("Я купил два дома, этот дом новый", "я куп два дом этот дом нов");
        check("Αγόρασα δύο σπίτια και ένα σπίτι", "αγορασ δυ σπιτ κα εν σπιτ");
        check("İki ev satın aldım, evler büyük", "ik ev sat al ev büyük");
        check("வீடுகள் வீடு", "வீடு வீடு");
    }

    #[test]
    fn pairs_of_characters_are_the_terms_in_scripts_without_spaces() {
        check("私は東京に住んでいます。", "私 東 東京 京 住 んで でい いま ます");
        check("ラーメン、らーめん！", "ラー ーメ メン らー ーめ めん");
        check("我喜欢喝茶", "我 我喜 喜 喜欢 欢 欢喝 喝 喝茶 茶");
        check("ฉันกินข้าว", "ฉัน นกิ กิน นข้ ข้า าว");
        check("서울에서 살아요", "서울 울에 에서 살아 아요");
    }

    #[test]
    fn a_text_in_two_scripts_is_read_in_both() {
        check("我住在 Lisbon 3月", "我 我住 住 住在 在 lisbon 3 月");
        check("Мы переехали в Lisbon: the meetings were long", "мы перееха в lisbon meet long");
        check("LINEで送って", "line 送 って");
    }

    #[test]
    fn words_of_other_scripts_stay_whole() {
        check("हिन्दी में लिखो", "हिन्दी में लिखो");
        check("אני גר בליסבון", "אני גר בליסבון");
    }

    #[test]
    fn a_plainly_english_question_is_stemmed_in_english_only() {
        assert_eq!(searched("Where did my sister buy the houses?", &[german()]), "sister buy hous");
    }

    #[test]
    fn a_short_question_is_stemmed_in_every_language_of_the_user() {
        assert_eq!(searched("Häuser", &[]), "häuser");
        assert_eq!(searched("Häuser", &[german()]), "haus häuser");
        assert_eq!(searched("Häuser Berlin", &[german()]), "haus häuser berlin");
    }

    #[test]
    fn short_english_code_and_tables_are_read_as_english() {
        for text in [
            "Lisbon!",
            "Take care!",
            "Later, take care!",
            "Buy milk",
            "Dentist Tuesday 4pm",
            "Kubernetes cluster Frankfurt",
            "peanut allergies",
            "favourite colour blue",
            "Anna, Tom, Maria",
            "San Francisco",
            "La Casa de Papel",
            "yes sure sounds great",
            "How does Melanie prioritize self-care?",
            "pip install numpy pandas",
            "CREATE TABLE IF NOT EXISTS transactions (id TEXT PRIMARY KEY, user_id TEXT, type TEXT, \
             amount REAL)",
            "from flask import Flask, request, jsonify\napp = Flask(__name__)\n\
             app.config['DATABASE_URI'] = 'sqlite:///budget.db'",
            "<div class=\"modal-content\"><h5 class=\"modal-title\" id=\"details\">\
             Project details</h5></div>",
            "- **Rent**: $1,200\n- **Transportation**: $150\n- **Miscellaneous**: $150\n\
             - **Total expenses**: $1,900",
        ] {
            assert_eq!(terms(text), english(text).iter().collect(), "{text}");
        }
    }

    #[test]
    fn a_full_stem_cache_is_emptied_and_gives_the_same_stems() {
        let words: Vec<String> = (0..STEMS_CACHED + 10).map(|n| format!("walking{n}s")).collect();
        let first: Vec<String> = words.iter().map(|word| stem(word)).collect();
        assert_eq!(first, words.iter().map(|word| stem(word)).collect::<Vec<_>>());
        assert!(STEMS.with_borrow(|stems| stems.len()) <= STEMS_CACHED);
        assert_eq!((stem("walking"), stem("walking")), ("walk".to_owned(), "walk".to_owned()));
    }

    #[test]
    fn joined_stems_are_split_into_the_same_stems() {
        for stems in [&[][..], &[""], &["tea"], &["", "tea", "", "茶"]] {
            let joined: Stems = stems.iter().collect();
            assert_eq!(
                (joined.iter().collect::<Vec<_>>(), joined.len(), joined.is_empty()),
                (stems.to_vec(), stems.len(), stems.is_empty())
            );
            assert_eq!(joined.and(&joined).iter().collect::<Vec<_>>(), [stems, stems].concat());
        }
    }

    const STOP_WORDS: &[&str] = &["the", "I", "was", "my", "because", "with"];

    /// English words, including loanwords from other languages.
    const ENGLISH_WORDS: [&str; 16] = [
        "moving",
        "Lisbon",
        "kindergarten",
        "allergies",
        "restaurant",
        "Caroline",
        "schedule",
        "running",
        "piano",
        "data",
        "angst",
        "pasta",
        "meetings",
        "2024",
        "don't",
        "siesta",
    ];

    proptest! {
        #[test]
        fn english_text_has_the_terms_of_the_reference_implementation(
            parts in prop::collection::vec(
                (
                    prop::sample::select(STOP_WORDS),
                    prop::sample::subsequence(&ENGLISH_WORDS[..], 0..3),
                ),
                2..30,
            ),
        ) {
            let parts: Vec<_> =
                parts.iter().map(|(stop, words)| format!("{stop} {}", words.join(" "))).collect();
            let text = parts.join(", ");
            prop_assert_eq!(terms(&text), english(&text).iter().collect());
        }

        #[test]
        fn any_text_has_the_same_terms_each_time_and_none_of_them_is_empty(
            text in concat!(
                r"(\PC|[a-zäöüßñéçğşıåøőțà]{1,9} |[α-ω]{1,7} |[а-я]{1,7} |[ء-ي]{1,7} ",
                "|[அ-்]{1,5} |[一-丰ぁ-んァ-ー가-갏]{1,6}|[ก-์]{1,8}|\n){0,60}",
            ),
        ) {
            let found = terms(&text);
            prop_assert_eq!(&found, &terms(&text));
            for term in found.iter() {
                prop_assert!(!term.is_empty(), "{:?}", found);
                prop_assert!(!term.contains(char::is_whitespace), "{:?}", found);
                prop_assert!(!term.contains(char::is_control), "{:?}", found);
            }
            let searched = Words::of(&text)
                .searched(|| Ok::<_, Infallible>(Language::others().collect()))
                .unwrap();
            prop_assert!(searched.len() >= found.len());
        }
    }
}
