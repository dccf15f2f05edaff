//! Finds phrases of eight languages in a text: first person, small talk, parts of wishes not to be
//! remembered, and sensitive categories. The lists are data, in `config/languages/*.toml`, as are
//! the questions for the picture of a user and the rewrites of days. Dutch has the parts of wishes
//! and the days only.
//!
//! 1. Each list of each language file is assigned a meaning, for example [`PhraseKind::Greeting`].
//! 2. One [Aho-Corasick](https://docs.rs/aho-corasick) automaton per group ([`SPEECH`], [`WISHES`],
//!    [`NEVER`]) holds the phrases of all languages, so one pass over a text finds all of them.
//! 3. Text and phrases are compared after [`fold`]: lower case, no accents, and no drawn-out
//!    letters. "Buenaaas" and "buenas" fold to the same.
//! 4. In languages with spaces a phrase must begin and end at the border of a word: "hallo" is in
//!    "oh, hallo!" and not in "hallodri".
//!
//! `policies/score/` decides the meaning of the matches for a turn. To cover another language, add
//! a file and a row in `FILES`.

use aho_corasick::AhoCorasick;
use domain::Category;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use strum::{EnumCount, IntoStaticStr, VariantArray};
use unicode_normalization::UnicodeNormalization;

const FILES: [(&str, &str); 9] = [
    ("en", include_str!("../../config/languages/en.toml")),
    ("de", include_str!("../../config/languages/de.toml")),
    ("es", include_str!("../../config/languages/es.toml")),
    ("fr", include_str!("../../config/languages/fr.toml")),
    ("it", include_str!("../../config/languages/it.toml")),
    ("pt", include_str!("../../config/languages/pt.toml")),
    ("ja", include_str!("../../config/languages/ja.toml")),
    ("zh", include_str!("../../config/languages/zh.toml")),
    ("nl", include_str!("../../config/languages/nl.toml")),
];

/// A covered language, as an index into `FILES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredLanguage(u8);

/// Languages whose small talk is covered: all but Dutch, the last one.
pub const LANGUAGES: usize = FILES.len() - 1;
pub const ENGLISH: CoveredLanguage = CoveredLanguage(0);
pub const JAPANESE: CoveredLanguage = CoveredLanguage(6);
pub const CHINESE: CoveredLanguage = CoveredLanguage(7);

impl CoveredLanguage {
    /// All languages, and Dutch.
    pub const COUNT: usize = FILES.len();

    pub fn all() -> impl Iterator<Item = CoveredLanguage> {
        (0..LANGUAGES as u8).map(CoveredLanguage)
    }

    /// Lists the languages of wishes: all, and Dutch.
    pub fn with_wishes() -> impl Iterator<Item = CoveredLanguage> {
        (0..FILES.len() as u8).map(CoveredLanguage)
    }

    /// Looks up a language by the English name, for example "German".
    pub fn named(name: &str) -> Option<CoveredLanguage> {
        CoveredLanguage::all().find(|language| LISTS[language.place()].name == name)
    }

    /// Returns the language code, for example "de".
    pub fn code(self) -> &'static str {
        FILES[self.place()].0
    }

    pub fn place(self) -> usize {
        usize::from(self.0)
    }

    pub fn is_spaced(self) -> bool {
        LISTS[self.place()].spaced
    }
}

/// A language file. Unknown keys are an error, so that a misspelt list name is not silently
/// ignored.
#[derive(Deserialize)]
struct Lists {
    name: String,
    spaced: bool,
    past: Vec<String>,
    #[serde(flatten)]
    speech: BTreeMap<PhraseKind, Vec<String>>,
    wishes: BTreeMap<WishPart, Vec<String>>,
    /// By the name of a [`Category`].
    #[serde(default)]
    never: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    picture: BTreeMap<PicturePart, Vec<String>>,
    days: DayLists,
}

/// How a language names days, for `days_in_languages`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DayLists {
    /// Words that show the language of a short text, beside the function words.
    #[serde(default)]
    signs: Vec<String>,
    /// Regular expressions over folded text, and the English of each. None in English.
    #[serde(default)]
    rewrites: Vec<(String, String)>,
}

/// The kinds of phrases by which a turn is classified as small talk or statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhraseKind {
    /// A function word. Identifies the language of a short text.
    #[serde(rename = "words")]
    Word,
    FirstPerson,
    /// A trait or condition of a person: "allergic".
    #[serde(rename = "states")]
    State,
    /// First person without a statement about the speaker: "I see".
    Phatic,
    Negation,
    Change,
    Question,
    Greeting,
    Thanks,
    Acknowledgement,
    Praise,
    /// Adds nothing to small talk: "well", "haha".
    Filler,
}

/// A word class of the grammar of wishes. `consent/clause.rs` puts them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WishPart {
    /// Removing from memory: "forget".
    Forget,
    /// Removing or leaving aside anything: "delete".
    Remove,
    /// Asks to forget, or only means "never mind": "forget it".
    Idiom,
    /// Takes earlier words back: "pretend", "you didn't hear that".
    Unsaid,
    /// Keeping: "remember", "save".
    Keep,
    /// Of these, the ones about memory alone: "remember".
    Remember,
    /// The memory: "your notes", "on file".
    Memory,
    Not,
    /// A negation in the past, which only a request turns into a wish: "it wasn't".
    WasNot,
    /// "Off the record", "between us".
    Secret,
    /// Means a wish or a sum: "between us".
    Among,
    /// A sum of several: "we have", after which "between us" is no wish.
    Joint,
    /// A word that means a wish only if the sentence has nothing else: "private".
    Private,
    /// A time after this turn: "once you've answered".
    Later,
    /// Words to come: "the following".
    Next,
    /// A pronoun or a word as empty as one: "that", "the thing".
    This,
    /// Earlier words: "my last message".
    Said,
    /// The reason for a wish: "embarrassing", "wrong window".
    Excuse,
    /// A request, or the one who is asked: "please", "could you".
    Please,
    /// The speaker as the subject of a verb: "I".
    Subject,
    /// Somebody else as the subject: "she".
    Others,
    /// Somebody else's speech: "she said".
    Reported,
    /// Makes a question or a condition: "why".
    Why,
    /// A new value takes the place of an old one: "instead", "Monday".
    Change,
    /// A thing that people save or delete in daily life: "the file".
    Thing,
    /// Introduces the topic of a wish: "about".
    About,
    /// Goes on with the clause after a comma: "dass".
    Binds,
    /// Begins another clause: "but".
    Joins,
    /// Draws a conclusion, after which the user speaks again: "she told me, so you forget it".
    Hence,
    /// Ends a letter: "kind regards".
    Closing,
    /// Adds nothing: "ok", "the".
    Free,
}

/// A part of the picture of a user, in the order of the block.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Deserialize,
    IntoStaticStr,
    EnumCount,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PicturePart {
    /// Who the user is: home, work, health, diet.
    User,
    /// Instructions for every answer.
    Wishes,
    /// People and animals around the user.
    People,
    /// What the user is working on.
    Projects,
    Likes,
}

impl PicturePart {
    pub const ALL: [PicturePart; PicturePart::COUNT] =
        *PicturePart::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The questions whose answers make the picture of a user who speaks this language, the one about
/// wishes first. A `|` divides the wordings of one question: of a move nobody says where they live.
pub fn standing_questions(
    language: CoveredLanguage,
) -> impl Iterator<Item = (PicturePart, &'static str)> {
    let of = move |part: PicturePart| {
        let questions = LISTS[language.place()].picture.get(&part).into_iter().flatten();
        questions.map(move |question| (part, question.as_str()))
    };
    let others = PicturePart::ALL.into_iter().filter(|part| *part != PicturePart::Wishes);
    of(PicturePart::Wishes).chain(others.flat_map(of))
}

/// Lists the words that show a language: its function words, and those of its days.
pub fn day_signs(language: CoveredLanguage) -> impl Iterator<Item = &'static str> {
    let lists = &LISTS[language.place()];
    let words = lists.speech.get(&PhraseKind::Word).into_iter().flatten();
    words.chain(&lists.days.signs).map(String::as_str)
}

/// Lists the rewrites of a language: a regular expression over folded text, and its English.
pub fn day_rewrites(language: CoveredLanguage) -> &'static [(String, String)] {
    &LISTS[language.place()].days.rewrites
}

/// A match of a phrase, with the byte range in the folded text.
#[derive(Clone, Copy, Debug)]
pub struct PhraseMatch<T> {
    pub language: CoveredLanguage,
    pub what: T,
    pub start: usize,
    pub end: usize,
}

pub static SPEECH: LazyLock<Finder<PhraseKind>> = LazyLock::new(|| {
    Finder::of(|lists| {
        let has_small_talk = lists.speech.contains_key(&PhraseKind::Greeting);
        let phrases = lists.speech.iter().filter(move |_| has_small_talk);
        phrases.map(|(kind, list)| (*kind, list))
    })
});

pub static WISHES: LazyLock<Finder<WishPart>> =
    LazyLock::new(|| Finder::of(|lists| lists.wishes.iter().map(|(part, list)| (*part, list))));

pub static NEVER: LazyLock<Finder<Category>> = LazyLock::new(|| {
    Finder::of(|lists| {
        let list = |category: Category| lists.never.get(category.as_str());
        Category::ALL.into_iter().filter_map(move |category| Some((category, list(category)?)))
    })
});

static PAST: LazyLock<Finder<()>> =
    LazyLock::new(|| Finder::of(|lists| std::iter::once(((), &lists.past))));

/// Returns true if a question asks for what was true once: "Where did I live before Porto?".
pub fn asks_for_the_past(question: &str) -> bool {
    const PAST_TENSE: [&str; 4] = ["did", "was", "were", "had"];
    const SAID: [&str; 4] = ["say", "said", "tell", "told"];
    let folded = fold(question);
    let words: Vec<&str> = crate::words(&folded).collect();
    let before = words.iter().position(|word| *word == "before");
    let is_past = before.is_some_and(|before| {
        let has = |list: &[&str]| words[..before].iter().any(|word| list.contains(word));
        has(&PAST_TENSE) && !has(&SAID)
    });
    is_past || PAST.find(&folded).next().is_some()
}

static LISTS: LazyLock<Vec<Lists>> =
    LazyLock::new(|| FILES.into_iter().map(|(code, text)| parsed(code, text)).collect());

fn parsed(code: &str, text: &str) -> Lists {
    toml::from_str(text).unwrap_or_else(|e| {
        panic!("config/languages/{code}.toml is compiled in, and every test parses it: {e}")
    })
}

/// Finds the phrases of all languages in one pass.
pub struct Finder<T> {
    automaton: AhoCorasick,
    /// Language and meaning of each pattern, by pattern id, and true if any ending may follow.
    meanings: Vec<(CoveredLanguage, T, bool)>,
}

impl<T: Copy> Finder<T> {
    fn of<L>(lists_of: impl Fn(&'static Lists) -> L) -> Finder<T>
    where
        L: Iterator<Item = (T, &'static Vec<String>)>,
    {
        let (mut patterns, mut meanings) = (Vec::new(), Vec::new());
        for (language, lists) in CoveredLanguage::with_wishes().zip(LISTS.iter()) {
            for (what, wordings) in lists_of(lists) {
                for wording in wordings {
                    let stem = wording.strip_suffix('*');
                    patterns.push(fold(stem.unwrap_or(wording)));
                    meanings.push((language, what, stem.is_some()));
                }
            }
        }
        Finder {
            automaton: AhoCorasick::new(&patterns)
                .expect("a few thousand short phrases are far below the automaton's limits"),
            meanings,
        }
    }

    /// Lists every phrase in a folded text, overlapping ones included, in time linear in the text.
    pub fn find<'f>(&'f self, folded: &'f str) -> impl Iterator<Item = PhraseMatch<T>> + 'f {
        self.automaton.find_overlapping_iter(folded).filter_map(|found| {
            let (language, what, is_stem) = self.meanings[found.pattern().as_usize()];
            let start = found.start();
            let rest = &folded[found.end()..];
            let ending = if is_stem { rest.find(|c: char| !c.is_alphanumeric()) } else { Some(0) };
            let end = found.end() + ending.unwrap_or(rest.len());
            let is_whole_words =
                !language.is_spaced() || is_border(folded, start) && is_border(folded, end);
            is_whole_words.then_some(PhraseMatch { language, what, start, end })
        })
    }
}

/// Returns true at the border of a word. A phrase that ends in an apostrophe, like "j'", always
/// ends at one.
fn is_border(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at..].chars().next();
    !(before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric))
}

/// Normalises text for comparison with phrases: lower case, no accents, ASCII punctuation, and a
/// character that stands three times or more in a row reduced to one. "Buenaaas" becomes "buenas".
pub fn fold(text: &str) -> String {
    let mut folded = Folded { text: String::with_capacity(text.len()), last: '\0', in_a_row: 0 };
    if text.is_ascii() {
        text.chars().for_each(|c| folded.push(c.to_ascii_lowercase()));
        return folded.text;
    }
    for c in text.nfkd().flat_map(char::to_lowercase) {
        match c {
            '\u{300}'..='\u{36f}' => {}
            '’' | '‘' | '´' => folded.push('\''),
            'ß' => ['s', 's'].into_iter().for_each(|c| folded.push(c)),
            'œ' => ['o', 'e'].into_iter().for_each(|c| folded.push(c)),
            'æ' => ['a', 'e'].into_iter().for_each(|c| folded.push(c)),
            'ø' => folded.push('o'),
            '。' => folded.push('.'),
            '、' | '，' => folded.push(','),
            '-' | '‐' | '‑' => folded.push('-'),
            _ => folded.push(c),
        }
    }
    folded.text
}

struct Folded {
    text: String,
    last: char,
    in_a_row: usize,
}

impl Folded {
    /// Appends `c`. The third of the same character in a row removes the second, later ones add
    /// nothing. Digits are exempt: "2000" stays.
    fn push(&mut self, c: char) {
        self.in_a_row = if c == self.last && !c.is_ascii_digit() { self.in_a_row + 1 } else { 1 };
        self.last = c;
        match self.in_a_row {
            1 | 2 => self.text.push(c),
            3 => self.text.truncate(self.text.len() - c.len_utf8()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_the_past_is_told_from_one_for_now() {
        for past in [
            "Where did I live before Porto?",
            "What did I use to drink? I used to like tea",
            "Wo habe ich früher gewohnt?",
            "¿Dónde vivía antes?",
            "Où est-ce que j'habitais avant ?",
            "我以前住在哪里？",
            "What was the launch date originally?",
        ] {
            assert!(asks_for_the_past(past), "{past}");
        }
        for now in [
            "Where do I live?",
            "What must I pack before Friday?",
            "Was muss ich vor Freitag erledigen?",
            "¿Qué debo hacer antes de viajar?",
            "When is the launch?",
            "Which port does the API use now?",
            "What did I say I must pack before Friday?",
            "私の猫の名前は何ですか？",
            "周五之前我要做什么？",
        ] {
            assert!(!asks_for_the_past(now), "{now}");
        }
    }

    #[test]
    fn every_language_has_every_list() {
        for (code, text) in FILES {
            let lists = parsed(code, text);
            assert_eq!(lists.wishes.len(), 31, "{code}");
            assert!(lists.wishes.values().all(|list| !list.is_empty()), "{code}");
            if code == "nl" {
                continue;
            }
            // English is read by grammar, not by lists of pronouns, negations and questions.
            let lists_of_speech = if code == "en" { 8 } else { 12 };
            assert_eq!(
                [lists.speech.len(), lists.never.len()],
                [lists_of_speech, Category::ALL.len()],
                "{code}"
            );
            let grammar = [PhraseKind::Phatic, PhraseKind::Question];
            assert!(code == "en" || grammar.iter().all(|kind| !lists.speech[kind].is_empty()));
            let speech = lists.speech.iter().filter(|(kind, _)| !grammar.contains(kind));
            let never = Category::ALL.map(|category| &lists.never[category.as_str()]);
            for list in speech.map(|(_, list)| list).chain(never) {
                assert!(list.len() >= 5, "{code}: {list:?}");
                assert!(list.iter().all(|wording| !fold(wording).trim().is_empty()), "{code}");
            }
        }
    }

    #[test]
    fn an_unknown_list_is_an_error() {
        let text = format!("greetings = []\n{}", FILES[1].1);
        assert!(toml::from_str::<Lists>(&text).is_err());
        let text = format!("{}\nrewrite = []\n", FILES[1].1);
        assert!(
            toml::from_str::<Lists>(FILES[1].1).is_ok() && toml::from_str::<Lists>(&text).is_err()
        );
    }

    #[test]
    fn accents_case_and_drawn_out_letters_make_no_difference() {
        for (one, other) in [
            ("Übermüde", "ubermude"),
            ("BUENAAAAS", "buenas"),
            ("Straße", "strasse"),
            ("it’s", "it's"),
            ("2000", "2000"),
        ] {
            assert_eq!(fold(one), fold(other));
        }
    }

    #[test]
    fn phrases_match_whole_words_in_languages_with_spaces() {
        fn greets(text: &str) -> bool {
            SPEECH
                .find(&fold(text))
                .any(|found| found.what == PhraseKind::Greeting && found.language != CHINESE)
        }
        assert!(greets("oh, hallo!") && !greets("hallodri"));
        assert!(
            SPEECH
                .find(&fold("他说你好吗"))
                .any(|found| found.what == PhraseKind::Greeting && found.language == CHINESE)
        );
    }
}
