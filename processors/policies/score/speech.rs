//! Classifies a text as small talk, a statement about the speaker, a bare question, or unjudged, in
//! any language. Used by the rows `small_talk`, `statement`, `unjudged` and `short` of
//! [`super::parts::PARTS`].
//!
//! 1. English of more than 100 bytes goes straight to step 5: small talk is short.
//! 2. A text without a letter or a digit (an emoji, "...") is small talk.
//! 3. One Aho-Corasick pass over the folded text finds the wordings of all covered languages
//!    (`config/languages/*.toml`).
//! 4. The language follows from the script (kana, Han), else from `Words::language`, else from the
//!    function words found, else from the encoder's vocabulary. A text of up to 100 bytes is small
//!    talk if its wordings of small talk cover every word; beside a greeting or thanks, a name may
//!    stay uncovered. Another English word there ("hey, vegan") gives `unjudged`.
//! 5. English is read clause by clause (`statement.rs`). Another covered language states something
//!    if the first person, a trait, a digit, a negation or enough words are found.
//! 6. A language that is not covered, or that is unknown, gives `unjudged`.
//!
//! Invariant: a text that cannot be judged is kept. A memory that was dropped wrongly costs more
//! than a memory too many.

use super::reading::Reading;
use super::statement::{Statements, has_phatic_object, is_light, statements};
use regex::Regex;
use std::collections::HashSet;
use std::sync::LazyLock;
use text::Rarity;
use text::Words;
use text::wordings::{
    CHINESE, CoveredLanguage, ENGLISH, JAPANESE, LANGUAGES, PhraseKind, PhraseMatch, SPEECH, fold,
};

/// Sorts of small talk. Order matters: a text with wordings of two sorts counts as the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallTalk {
    Greeting,
    Thanks,
    Acknowledgement,
    Praise,
    /// Laughter, an emoji, "oh well".
    Filler,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeechClass {
    /// The sort, if the whole text is small talk.
    pub small_talk: Option<SmallTalk>,
    /// A clause or more is about the speaker, or about people and things of theirs.
    pub states: bool,
    /// The language is not covered, or could not be detected.
    pub unjudged: bool,
    /// The text consists of questions and requests.
    pub only_asks: bool,
}

/// Longer texts are not searched for small talk.
const SMALL_TALK_BYTES_MAX: usize = 100;
/// Uncovered words beside a greeting or thanks: a name.
const NAME_WORDS_MAX: usize = 1;
/// Words that make a statement in languages whose verb endings carry the first person.
const STATEMENT_WORDS: usize = 4;
/// The same in characters, for scripts without spaces.
const STATEMENT_CHARS: usize = 7;
/// Words, or characters of scripts without spaces, that make a statement after a yes or no.
const ANSWER_REST: usize = 2;
/// From this length on, a question in a script without spaces also counts as a statement.
const LONG_QUESTION_CHARS: usize = 16;
/// Words of a text that the encoder's vocabulary may prove to be English.
const SHORT_ENGLISH_WORDS: usize = 3;

pub fn read(reading: &Reading<'_>, words: &Words, rarity: &Rarity) -> SpeechClass {
    let is_english = words.language() == Some(text::Language::ENGLISH);
    let prose = &reading.prose;
    if is_english && prose.len() > SMALL_TALK_BYTES_MAX {
        return english(reading);
    }
    if !prose.chars().any(char::is_alphanumeric) {
        return SpeechClass { small_talk: Some(SmallTalk::Filler), ..SpeechClass::default() };
    }
    let folded = fold(prose);
    let found: Vec<PhraseMatch<PhraseKind>> = SPEECH.find(&folded).collect();
    let language =
        if is_english { Detected::Surely(ENGLISH) } else { detect(prose, words, &found, rarity) };
    // "I see patients all morning": not a greeting with a name.
    let may_name = !has_phatic_object(&reading.plain);
    // The lists of empty words are English: in another language any word may be a name.
    let is_foreign =
        matches!(language, Detected::Surely(own) | Detected::Perhaps(own) if own != ENGLISH);
    let is_name = |word: &str| may_name && (is_foreign || is_name(prose, word));
    if folded.len() <= SMALL_TALK_BYTES_MAX {
        let small_talk = small_talk(&folded, &found, language, &is_name)
            .or_else(|| drawn_out_small_talk(&folded, language, &is_name));
        if small_talk.is_some() {
            return SpeechClass { small_talk, ..SpeechClass::default() };
        }
        // "hey, vegan": the one word beside a greeting may be the whole news.
        if self::small_talk(&folded, &found, language, &|_| may_name).is_some() {
            return SpeechClass { unjudged: true, ..SpeechClass::default() };
        }
    }
    match language {
        Detected::No => SpeechClass { unjudged: true, ..SpeechClass::default() },
        Detected::Surely(ENGLISH) | Detected::Perhaps(ENGLISH) => english(reading),
        Detected::Surely(language) => other_language(reading, language, &folded, &found),
        Detected::Perhaps(language) => {
            let speech = other_language(reading, language, &folded, &found);
            SpeechClass { unjudged: !speech.states && !speech.only_asks, ..speech }
        }
    }
}

/// True for an empty word beside a greeting: a name, or a function word. "Thanks, diabetic" and
/// "night owl" have none. `word` is folded.
fn is_name(prose: &str, word: &str) -> bool {
    let mut capitalised = prose
        .split(|c: char| !c.is_alphanumeric())
        .filter(|written| written.starts_with(char::is_uppercase));
    is_light(word) || text::is_stop_word(word) || capitalised.any(|written| fold(written) == word)
}

fn english(reading: &Reading<'_>) -> SpeechClass {
    let Statements { states, only_asks } = statements(&reading.plain);
    SpeechClass { states, only_asks, ..SpeechClass::default() }
}

/// The language of a text, with the certainty of the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detected {
    Surely(CoveredLanguage),
    /// From a word or two.
    Perhaps(CoveredLanguage),
    /// Not covered, or unknown.
    No,
}

fn detect(
    prose: &str,
    words: &Words,
    found: &[PhraseMatch<PhraseKind>],
    rarity: &Rarity,
) -> Detected {
    let mut letters = 0;
    let mut kana = 0;
    let mut han = 0;
    let mut latin = 0;
    for c in prose.chars().filter(|c| c.is_alphabetic()) {
        letters += 1;
        match c {
            '\u{3040}'..='\u{30ff}' => kana += 1,
            '\u{3400}'..='\u{9fff}' => han += 1,
            _ => latin += usize::from(c < '\u{250}' || ('\u{1e00}'..'\u{1f00}').contains(&c)),
        }
    }
    if 2 * (kana + han) >= letters && kana + han > 0 {
        return Detected::Surely(if kana > 0 { JAPANESE } else { CHINESE });
    }
    if 2 * latin < letters {
        return Detected::No;
    }
    if let Some(language) = words.language() {
        return CoveredLanguage::named(&language.to_string())
            .map_or(Detected::No, Detected::Surely);
    }
    if prose.is_ascii() && CONTRACTED.is_match(prose) {
        return Detected::Perhaps(ENGLISH);
    }
    let mut hits = [0; LANGUAGES];
    for one in found.iter().filter(|one| one.what == PhraseKind::Word) {
        hits[one.language.place()] += 1;
    }
    let most = hits.into_iter().max().unwrap_or_default();
    if most > 0 {
        let mut best = CoveredLanguage::all().filter(|language| hits[language.place()] == most);
        return match (best.next(), best.next()) {
            (Some(language), None) => Detected::Perhaps(language),
            _ if hits[ENGLISH.place()] == most && is_of_english_words(prose, words, rarity) => {
                Detected::Perhaps(ENGLISH)
            }
            _ => Detected::No,
        };
    }
    match is_of_english_words(prose, words, rarity) {
        true => Detected::Perhaps(ENGLISH),
        false => Detected::No,
    }
}

/// True if the encoder's vocabulary has nearly all words. Names, files and numbers are no evidence
/// against English: "auth.js depends on jwt.js", "Database on port 5432".
fn is_of_english_words(prose: &str, words: &Words, rarity: &Rarity) -> bool {
    let mut names: HashSet<String> = HashSet::new();
    for written in prose.split_whitespace().filter(|written| is_identifier(written)) {
        names.extend(text::words(&written.to_lowercase()).map(str::to_owned));
    }
    let plain = || words.content().filter(|word| !names.contains(*word));
    let known = plain().filter(|word| rarity.knows(word)).count();
    let unknown = plain().count() - known;
    let is_short = known <= SHORT_ENGLISH_WORDS && unknown == 0;
    let is_technical = !names.is_empty() && known >= 2 && 2 * unknown < known;
    prose.is_ascii() && (is_short || is_technical)
}

/// True for "jwt.js", "utils/jwt.js", "PostgreSQL", "5432" and "CI".
fn is_identifier(written: &str) -> bool {
    let written = written.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let inner = written.get(1..).unwrap_or_default();
    inner.contains(|c: char| matches!(c, '.' | '/' | '_') || c.is_ascii_uppercase())
        || written.contains(|c: char| c.is_ascii_digit())
}

/// Contractions that only English has.
static CONTRACTED: LazyLock<Regex> = LazyLock::new(|| {
    let fixed = r"(?i)\b(?:let's|it's|that's|we're|i'm|don't|doesn't|isn't|won't|can't)(?:\s|$)";
    Regex::new(fixed).expect("a fixed pattern, compiled by the tests")
});

/// Returns the sort of small talk if every word of the text belongs to a wording of small talk, in
/// its language or in English, which speakers of all languages mix in. An unsure language is tried
/// as each of them.
fn small_talk(
    folded: &str,
    found: &[PhraseMatch<PhraseKind>],
    language: Detected,
    is_name: &dyn Fn(&str) -> bool,
) -> Option<SmallTalk> {
    let languages: Vec<CoveredLanguage> = match language {
        Detected::Surely(language) => vec![language],
        _ => CoveredLanguage::all().collect(),
    };
    // Order matters: a language that covers the whole text comes before one that covers all but a
    // name.
    [None, Some(is_name)].into_iter().find_map(|is_name| {
        languages.iter().find_map(|language| small_talk_in(*language, folded, found, is_name))
    })
}

/// Repeats the search with doubled letters at the ends of words written once: "dankee", "holaa".
/// `fold` keeps a doubled letter, as in "Kaffee".
fn drawn_out_small_talk(
    folded: &str,
    language: Detected,
    is_name: &dyn Fn(&str) -> bool,
) -> Option<SmallTalk> {
    let mut shorter = String::with_capacity(folded.len());
    let mut chars = folded.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_word = chars.peek().is_none_or(|next| !next.is_alphanumeric());
        if !(ends_word && c.is_alphabetic() && shorter.ends_with(c)) {
            shorter.push(c);
        }
    }
    if shorter.len() == folded.len() {
        return None;
    }
    let found: Vec<PhraseMatch<PhraseKind>> = SPEECH.find(&shorter).collect();
    small_talk(&shorter, &found, language, is_name)
}

/// A wording of small talk, by the bytes in the folded text.
struct Phrase {
    start: usize,
    end: usize,
    kind: SmallTalk,
}

impl Phrase {
    fn is_within(&self, other: &Phrase) -> bool {
        other.start <= self.start
            && self.end <= other.end
            && other.end - other.start > self.end - self.start
    }
}

/// Returns the wordings of small talk in this language and in English, and for each byte of the
/// text whether one of them covers that byte.
fn phrases(
    language: CoveredLanguage,
    folded: &str,
    found: &[PhraseMatch<PhraseKind>],
) -> (Vec<Phrase>, Vec<bool>) {
    let phrases: Vec<Phrase> = found
        .iter()
        .filter(|one| one.language == language || one.language == ENGLISH)
        .filter_map(|one| Some(Phrase { start: one.start, end: one.end, kind: kind(one.what)? }))
        .collect();
    let mut covered = vec![false; folded.len()];
    for phrase in &phrases {
        covered[phrase.start..phrase.end].fill(true);
    }
    (phrases, covered)
}

fn small_talk_in(
    language: CoveredLanguage,
    folded: &str,
    found: &[PhraseMatch<PhraseKind>],
    is_name: Option<&dyn Fn(&str) -> bool>,
) -> Option<SmallTalk> {
    let (phrases, covered) = phrases(language, folded, found);
    // "na gut" is no greeting, though "na" is one.
    let first_kind = phrases
        .iter()
        .filter(|phrase| !phrases.iter().any(|other| phrase.is_within(other)))
        .map(|phrase| phrase.kind)
        .min_by_key(|kind| *kind as u8);
    // "gracias, ya no fumo": beside a piece of news, an uncovered word is no name.
    let is_news = found.iter().any(|one| {
        one.language == language && matches!(one.what, PhraseKind::Change | PhraseKind::State)
    });
    let may_name = matches!(first_kind, Some(SmallTalk::Greeting | SmallTalk::Thanks)) && !is_news;
    let is_name = is_name.filter(|_| may_name);
    first_kind.filter(|_| match is_name {
        Some(is_name) if language.is_spaced() => {
            let words = uncovered_words(folded, &covered);
            words.len() <= NAME_WORDS_MAX
                && words.iter().all(|word| !has_digit(word) && is_name(word))
        }
        Some(_) => uncovered(language, folded, &covered) <= NAME_WORDS_MAX,
        None => uncovered(language, folded, &covered) == 0,
    })
}

fn kind(sign: PhraseKind) -> Option<SmallTalk> {
    match sign {
        PhraseKind::Greeting => Some(SmallTalk::Greeting),
        PhraseKind::Thanks => Some(SmallTalk::Thanks),
        PhraseKind::Acknowledgement => Some(SmallTalk::Acknowledgement),
        PhraseKind::Praise => Some(SmallTalk::Praise),
        PhraseKind::Filler => Some(SmallTalk::Filler),
        _ => None,
    }
}

/// Counts the uncovered words, or characters in scripts without spaces.
fn uncovered(language: CoveredLanguage, folded: &str, covered: &[bool]) -> usize {
    if language.is_spaced() {
        uncovered_words(folded, covered).len()
    } else {
        folded.char_indices().filter(|(at, c)| c.is_alphanumeric() && !covered[*at]).count()
    }
}

/// Returns the words with an uncovered byte.
fn uncovered_words<'t>(folded: &'t str, covered: &[bool]) -> Vec<&'t str> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in folded.char_indices().chain([(folded.len(), ' ')]) {
        match start {
            None if c.is_alphanumeric() => start = Some(at),
            Some(begin) if !c.is_alphanumeric() => {
                if covered[begin..at].contains(&false) {
                    words.push(&folded[begin..at]);
                }
                start = None;
            }
            _ => {}
        }
    }
    words
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Classifies a text of a covered language besides English. Their verbs carry the first person in
/// the ending, or leave the person out, so only a short text or a question is sure to state nothing.
fn other_language(
    reading: &Reading<'_>,
    language: CoveredLanguage,
    folded: &str,
    found: &[PhraseMatch<PhraseKind>],
) -> SpeechClass {
    let own: Vec<&PhraseMatch<PhraseKind>> =
        found.iter().filter(|one| one.language == language).collect();
    let phatic: Vec<&PhraseMatch<PhraseKind>> =
        own.iter().copied().filter(|one| one.what == PhraseKind::Phatic).collect();
    let has_object = !phatic.is_empty() && has_object(language, folded, &own);
    let speaks_of_self = has_object
        || own.iter().any(|one| {
            one.what == PhraseKind::FirstPerson
                && !phatic.iter().any(|phatic| phatic.start <= one.start && one.end <= phatic.end)
        });
    let is_about_self = speaks_of_self || has_sign(&own, PhraseKind::State) || has_digit(folded);
    let length = folded.chars().filter(|c| c.is_alphanumeric()).count();
    let (phrases, covered) = phrases(language, folded, found);
    // "どう" asks, and "どうも" greets.
    let mut questions = own.iter().filter(|one| {
        one.what == PhraseKind::Question
            && !phrases.iter().any(|other| other.start <= one.start && one.end < other.end)
    });
    let is_long;
    let has_question;
    if language.is_spaced() {
        is_long = folded.split_whitespace().count() >= STATEMENT_WORDS;
        has_question = questions.any(|one| one.start == 0);
    } else {
        is_long = length >= STATEMENT_CHARS;
        has_question = questions.next().is_some();
    }
    let may_only_ask = language.is_spaced() || length < LONG_QUESTION_CHARS;
    let only_asks = !is_about_self
        && may_only_ask
        && (reading.only_asks() || has_question && !folded.contains(". "));
    let negates = has_sign(&own, PhraseKind::Negation)
        && folded.split_whitespace().count() > 1
        && phatic.is_empty()
        && language.is_spaced();
    // "sì, sono medico", "はい、医者です": more words after a yes or no are about the speaker.
    let answers_first =
        phrases.iter().any(|phrase| phrase.start == 0 && phrase.kind == SmallTalk::Acknowledgement);
    let goes_on = answers_first && uncovered(language, folded, &covered) >= ANSWER_REST;
    SpeechClass {
        states: is_about_self || !only_asks && (is_long || negates || goes_on),
        only_asks,
        ..SpeechClass::default()
    }
}

/// True if a word besides phatic phrases, small talk and function words is found: "ich verstehe
/// Polnisch", unlike "ich verstehe das".
fn has_object(language: CoveredLanguage, folded: &str, own: &[&PhraseMatch<PhraseKind>]) -> bool {
    let mut covered = vec![false; folded.len()];
    for one in own {
        let is_light = kind(one.what).is_some()
            || matches!(
                one.what,
                PhraseKind::Phatic
                    | PhraseKind::Word
                    | PhraseKind::FirstPerson
                    | PhraseKind::Negation
                    | PhraseKind::Question
            );
        if is_light {
            covered[one.start..one.end].fill(true);
        }
    }
    uncovered(language, folded, &covered) >= if language.is_spaced() { 1 } else { ANSWER_REST }
}

fn has_sign(found: &[&PhraseMatch<PhraseKind>], sign: PhraseKind) -> bool {
    found.iter().any(|one| one.what == sign)
}

#[cfg(test)]
mod tests;
