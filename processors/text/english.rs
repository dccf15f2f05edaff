//! Decides if a text is in English, to choose the encoder that reads the text.
//!
//! 1. Letters of another script decide at once.
//! 2. `Words::language` decides most texts of four words or more, unless more of their words are
//!    function words of English: "the flat is in Neukölln".
//! 3. A shorter text is in the language of most of its function words, as `config/languages/` lists
//!    them. Letters that English words hardly have decide where no function word does.
//!
//! A text without any such sign counts as English: names, code and loanwords are alike everywhere.

use crate::count_words;
use crate::days_in_languages::language_by_words;
use crate::language::Language;
use crate::wordings::{CoveredLanguage, ENGLISH, LANGUAGES, PhraseKind, SPEECH, fold};
use crate::words::Words;

/// Bytes that are read. A language shows in the first sentence.
const BYTES_MAX: usize = 300;
/// Fewer words can be English and another language at once.
const SHORT_WORDS: usize = 8;
/// Function words of other languages that people write in English, too: "im late", "ta x", "see ya".
const CHAT: [&str; 6] = ["ha", "im", "per", "ta", "ya", "yo"];

/// Returns true for a text in English, and for one without a sign of another language.
pub fn is_english(text: &str) -> bool {
    let text = &text[..text.floor_char_boundary(BYTES_MAX)];
    let letters = || text.chars().filter(|c| c.is_alphabetic());
    let latin = letters().filter(|c| is_latin(*c)).count();
    if 2 * latin < letters().count() {
        return false;
    }
    let detected = Words::of(text).language();
    if detected == Some(Language::ENGLISH) {
        // "No me gusta el pescado" has two words that are also English.
        let lower = text.to_lowercase();
        return count_words(text) >= SHORT_WORDS
            || language_by_words(crate::words(&lower)).is_none();
    }
    let mut hits = [0; LANGUAGES];
    let folded = fold(text);
    for one in SPEECH.find(&folded).filter(|one| one.what == PhraseKind::Word) {
        let is_chat = CHAT.contains(&&folded[one.start..one.end]);
        hits[one.language.place()] += usize::from(!is_chat);
    }
    let english = std::mem::take(&mut hits[ENGLISH.place()]);
    let other = hits.into_iter().max().unwrap_or_default();
    match detected.map(|language| CoveredLanguage::named(&language.to_string())) {
        Some(Some(_)) => english >= other,
        Some(None) => false,
        None if english + other > 0 => english >= other,
        None => letters().all(is_of_english),
    }
}

fn is_latin(c: char) -> bool {
    c < '\u{250}' || ('\u{1e00}'..'\u{1f00}').contains(&c)
}

/// English writes "café" and "naïve", and no ñ, ß, ł or ğ.
fn is_of_english(c: char) -> bool {
    c.is_ascii() || "éèêçïëöôâà".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_other_languages_are_not_english() {
        for text in [
            "¿dónde vivo?",
            "was esse ich nicht?",
            "wo wohne ich",
            "どこに住んでる?",
            "我住在里斯本",
            "où j'habite ?",
            "Где я живу?",
            "cosa mangio",
            "qual é o meu remédio",
            "Mijn zus woont al jaren in Utrecht en werkt daar als verpleegkundige.",
            "mieszkam w Łodzi",
            "Der Tee ist in der blauen Dose.",
            "No me gusta el pescado",
            "Mijn zus is in Utrecht",
            "Was war am Montag in Berlin",
            "Heute Abend gehe ich mit Anna ins Kino, sie hat Karten für uns.",
        ] {
            assert!(!is_english(text), "{text}");
        }
    }

    #[test]
    fn english_and_texts_without_a_sign_are_english() {
        for text in [
            "",
            "🙂 12:30",
            "who was it",
            "I live in Zürich",
            "the naïve café",
            "What did I say about la dolce vita?",
            "Porto",
            "fn main() { println!(\"{}\", 1); }",
            "SELECT id FROM users",
            "sunday 5pm pagdandi baner",
            "ok thanks",
            "No, die cast it was",
            "im so done",
            "€95 per unit",
            "flat's in Neukölln, Weserstraße, third floor no lift",
            "what is subsídio de alimentação",
            "My sister Ana López moved to São Paulo with her husband last year.",
        ] {
            assert!(is_english(text), "{text}");
        }
    }
}
