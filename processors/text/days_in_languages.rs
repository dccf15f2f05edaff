//! Rewrites the days that a text names into English, so that `days` can read them: the German "vor
//! zwei Wochen" becomes "2 weeks ago". The rewrites are data, in `config/languages/*.toml`.
//!
//! 1. The language is that of the script (Japanese, Chinese), or the one with the most known words.
//!    A text in English, or without a single best language, is not rewritten.
//! 2. The rewrites of that language apply in order to the text as [`fold`] returns it.
//!
//! Words that no rewrite finds stay in the text: `days` ignores them like any other word.
//!
//! Limit: a word with two meanings is left out, for example the French "cette nuit", last night or
//! tonight, and so are days without a month ("am 12.").

use crate::is_stop_word;
use crate::wordings::{CHINESE, CoveredLanguage, ENGLISH, JAPANESE, day_rewrites, day_signs, fold};
use foldhash::fast::RandomState;
use regex::Regex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// Bytes of a text that are rewritten. The 200 words that `days` reads have about 1,400.
const BYTES_MAX: usize = 4_000;

/// Returns the text with its days in English. `None` if the text is English, has no certain
/// language, or nothing was rewritten. `words` are the lower-case words of the text.
pub(super) fn in_english<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<String> {
    let text = &text[..text.floor_char_boundary(BYTES_MAX)];
    let language = language_by_script(text).or_else(|| language_by_words(words))?;
    let folded = fold(text);
    let mut english = Cow::Borrowed(folded.as_str());
    for (find, say) in rewrites(language) {
        if let Cow::Owned(rewritten) = find.replace_all(&english, *say) {
            english = Cow::Owned(rewritten);
        }
    }
    match english {
        Cow::Owned(english) => Some(english),
        Cow::Borrowed(_) => None,
    }
}

fn language_by_script(text: &str) -> Option<CoveredLanguage> {
    if text.is_ascii() {
        return None;
    }
    let (mut letters, mut kana, mut han) = (0, 0, 0);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        letters += 1;
        kana += usize::from(('\u{3040}'..='\u{30ff}').contains(&c));
        han += usize::from(('\u{3400}'..='\u{9fff}').contains(&c));
    }
    let is_most = kana + han > 0 && 2 * (kana + han) >= letters;
    is_most.then_some(if kana > 0 { JAPANESE } else { CHINESE })
}

/// The language that has more of the words than any other, English included.
pub(super) fn language_by_words<'w>(
    words: impl Iterator<Item = &'w str>,
) -> Option<CoveredLanguage> {
    let mut counts = [0; CoveredLanguage::COUNT];
    for word in words {
        counts[ENGLISH.place()] += usize::from(is_stop_word(word));
        for language in SIGNS.get(word).into_iter().flatten() {
            counts[language.place()] += 1;
        }
    }
    let most = counts.into_iter().max().filter(|most| *most > 0)?;
    let mut best = CoveredLanguage::with_wishes().filter(|one| counts[one.place()] == most);
    let language = best.next()?;
    (best.next().is_none() && language != ENGLISH).then_some(language)
}

/// The languages of a word, as written and without accents. English stop words are counted before.
static SIGNS: LazyLock<HashMap<String, Vec<CoveredLanguage>, RandomState>> = LazyLock::new(|| {
    let mut signs: HashMap<String, Vec<CoveredLanguage>, RandomState> = HashMap::default();
    for language in CoveredLanguage::with_wishes() {
        for wording in day_signs(language) {
            let folded = fold(wording);
            for word in crate::words(wording).chain(crate::words(&folded)) {
                let languages = signs.entry(word.to_owned()).or_default();
                let is_counted = language == ENGLISH && is_stop_word(word);
                if !is_counted && languages.last() != Some(&language) {
                    languages.push(language);
                }
            }
        }
    }
    signs
});

type Rewrite = (Regex, &'static str);

/// The rewrites of a language, compiled on first use.
fn rewrites(language: CoveredLanguage) -> &'static [Rewrite] {
    static REWRITES: [OnceLock<Vec<Rewrite>>; CoveredLanguage::COUNT] =
        [const { OnceLock::new() }; CoveredLanguage::COUNT];
    REWRITES[language.place()].get_or_init(|| {
        let rewrites = day_rewrites(language).iter();
        rewrites.map(|(find, say)| (compiled(find, language.is_spaced()), say.as_str())).collect()
    })
}

const MONTH: &str = "(?:january|february|march|april|may|june|july|august|september|october|\
    november|december)";
const WEEKDAY: &str = "(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)";
const PERIOD: &str = "(?:january|february|march|april|may|june|july|august|september|october|\
    november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|spring|summer|\
    autumn|winter|weekend|week|month|year)";

/// Compiles a pattern. In a language with spaces it finds whole words, except at a `$`. The borders
/// are ASCII ones, because folded words are, and Unicode ones are slow beside a "¿".
fn compiled(find: &str, is_spaced: bool) -> Regex {
    let find = fold(find)
        .replace("{month}", MONTH)
        .replace("{weekday}", WEEKDAY)
        .replace("{period}", PERIOD);
    let pattern = match is_spaced {
        true if find.ends_with('$') => format!(r"(?-u:\b)(?:{find})"),
        true => format!(r"(?-u:\b)(?:{find})(?-u:\b)"),
        false => find,
    };
    Regex::new(&pattern).expect("the patterns are compiled in, and a test compiles each of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(text: &str) -> Option<&'static str> {
        let lower = text.to_lowercase();
        let found = language_by_script(text).or_else(|| language_by_words(crate::words(&lower)));
        found.map(CoveredLanguage::code)
    }

    #[test]
    fn every_language_but_english_has_rewrites_that_compile() {
        for language in CoveredLanguage::with_wishes() {
            let is_english = language == ENGLISH;
            assert_eq!(rewrites(language).is_empty(), is_english, "{}", language.code());
            assert!(day_signs(language).count() >= 20, "{}", language.code());
        }
    }

    /// Else the English joins the words around it, and is not read.
    #[test]
    fn between_unspaced_words_the_english_has_spaces_around() {
        for language in [JAPANESE, CHINESE] {
            for (find, say) in rewrites(language) {
                let is_first = find.as_str().starts_with(|c: char| !c.is_ascii());
                let is_english = say.contains(|c: char| c.is_ascii_alphabetic());
                let is_apart = say.starts_with(' ') && say.ends_with(' ');
                assert!(!(is_first && is_english) || is_apart, "{find} {say:?}");
            }
        }
    }

    #[test]
    fn a_short_text_has_the_language_of_its_words() {
        for (text, code) in [
            ("Was habe ich gestern gegessen?", "de"),
            ("was war am montag in berlin", "de"),
            ("¿Qué comí la semana pasada?", "es"),
            ("que comi la semana pasada", "es"),
            ("Qu'est-ce que j'ai mangé hier ?", "fr"),
            ("cosa ho mangiato ieri", "it"),
            ("O que eu fiz no sábado?", "pt"),
            ("wat deed ik vorige week", "nl"),
            ("vor zwei Jahren", "de"),
            ("hace dos meses", "es"),
            ("il y a un mois", "fr"),
            ("due settimane fa", "it"),
            ("ontem", "pt"),
            ("gisteren", "nl"),
            ("昨日何を食べた？", "ja"),
            ("昨天吃了什么", "zh"),
        ] {
            assert_eq!(language(text), Some(code), "{text}");
        }
        for none in [
            "What did I eat yesterday?",
            "So was Martin in Berlin on Monday?",
            "dentist yesterday",
            "Anna met me",
            "report due May 12",
            "What does 昨天 mean?",
            "I had a café au lait last week",
            "12 345",
            "",
        ] {
            assert_eq!(language(none), None, "{none}");
        }
    }
}
