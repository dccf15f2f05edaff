//! The wordings of each language that Keepsake covers, from `config/languages/*.toml`: who speaks, small talk, wishes, and what may never be
//! kept. Finds them in a text in one pass for all languages. Judges nothing: `stages/score/` does.

use crate::domain::Category;
use aho_corasick::AhoCorasick;
use serde::Deserialize;
use std::sync::LazyLock;
use unicode_normalization::UnicodeNormalization;

const FILES: [(&str, &str); 8] = [
    ("en", include_str!("../../config/languages/en.toml")),
    ("de", include_str!("../../config/languages/de.toml")),
    ("es", include_str!("../../config/languages/es.toml")),
    ("fr", include_str!("../../config/languages/fr.toml")),
    ("it", include_str!("../../config/languages/it.toml")),
    ("pt", include_str!("../../config/languages/pt.toml")),
    ("ja", include_str!("../../config/languages/ja.toml")),
    ("zh", include_str!("../../config/languages/zh.toml")),
];

/// A language by its place among the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered(u8);

pub const LANGUAGES: usize = FILES.len();
pub const ENGLISH: Covered = Covered(0);
pub const JAPANESE: Covered = Covered(6);
pub const CHINESE: Covered = Covered(7);

impl Covered {
    pub fn all() -> impl Iterator<Item = Covered> {
        (0..LANGUAGES as u8).map(Covered)
    }

    /// By the English name of a language: "German".
    pub fn named(name: &str) -> Option<Covered> {
        Covered::all().find(|language| LISTS[language.place()].name == name)
    }

    /// "de".
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

/// One language's file. Unknown keys are an error, so a misspelt list cannot be silently empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    name: String,
    spaced: bool,
    words: Vec<String>,
    first_person: Vec<String>,
    states: Vec<String>,
    phatic: Vec<String>,
    negation: Vec<String>,
    change: Vec<String>,
    question: Vec<String>,
    greeting: Vec<String>,
    thanks: Vec<String>,
    acknowledgement: Vec<String>,
    praise: Vec<String>,
    filler: Vec<String>,
    wishes: Wishes,
    never: Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wishes {
    unsaid: Vec<String>,
    unsay: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Never {
    health: Vec<String>,
    politics: Vec<String>,
    religion: Vec<String>,
    sexuality: Vec<String>,
    money: Vec<String>,
}

/// Sorts of wording that speech is classified by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A function word, which tells the language of a short text.
    Word,
    FirstPerson,
    /// A trait or condition of a person: "allergic".
    State,
    /// Speaks in the first person and says nothing of the speaker: "I see".
    Phatic,
    Negation,
    Change,
    Question,
    Greeting,
    Thanks,
    Acknowledgement,
    Praise,
    /// Says nothing beside small talk: "well", "haha".
    Filler,
}

/// Wishes of a user to keep something out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// This turn: "off the record".
    Unsaid,
    /// The turn before: "forget what I just said".
    Unsay,
}

/// A wording where it stands in a folded text.
#[derive(Clone, Copy, Debug)]
pub struct Found<T> {
    pub language: Covered,
    pub what: T,
    pub start: usize,
    pub end: usize,
}

pub static SPEECH: LazyLock<Finder<Sign>> = LazyLock::new(|| {
    Finder::of(|lists| {
        vec![
            (Sign::Word, &lists.words),
            (Sign::FirstPerson, &lists.first_person),
            (Sign::State, &lists.states),
            (Sign::Phatic, &lists.phatic),
            (Sign::Negation, &lists.negation),
            (Sign::Change, &lists.change),
            (Sign::Question, &lists.question),
            (Sign::Greeting, &lists.greeting),
            (Sign::Thanks, &lists.thanks),
            (Sign::Acknowledgement, &lists.acknowledgement),
            (Sign::Praise, &lists.praise),
            (Sign::Filler, &lists.filler),
        ]
    })
});

pub static WISHES: LazyLock<Finder<Wish>> = LazyLock::new(|| {
    Finder::of(|lists| {
        vec![(Wish::Unsaid, &lists.wishes.unsaid), (Wish::Unsay, &lists.wishes.unsay)]
    })
});

pub static NEVER: LazyLock<Finder<Category>> = LazyLock::new(|| {
    Finder::of(|lists| {
        let never = &lists.never;
        vec![
            (Category::Health, &never.health),
            (Category::Politics, &never.politics),
            (Category::Religion, &never.religion),
            (Category::Sexuality, &never.sexuality),
            (Category::Money, &never.money),
        ]
    })
});

static LISTS: LazyLock<Vec<Lists>> =
    LazyLock::new(|| FILES.into_iter().map(|(code, text)| parsed(code, text)).collect());

fn parsed(code: &str, text: &str) -> Lists {
    toml::from_str(text).unwrap_or_else(|e| {
        panic!("config/languages/{code}.toml is compiled in and read by every test: {e}")
    })
}

/// Finds the wordings of all languages at once.
pub struct Finder<T> {
    automaton: AhoCorasick,
    /// By pattern.
    meanings: Vec<(Covered, T)>,
}

impl<T: Copy> Finder<T> {
    fn of(lists_of: impl Fn(&'static Lists) -> Vec<(T, &'static Vec<String>)>) -> Finder<T> {
        let (mut patterns, mut meanings) = (Vec::new(), Vec::new());
        for (language, lists) in Covered::all().zip(LISTS.iter()) {
            for (what, wordings) in lists_of(lists) {
                patterns.extend(wordings.iter().map(|wording| fold(wording)));
                meanings.resize(patterns.len(), (language, what));
            }
        }
        Finder {
            automaton: AhoCorasick::new(&patterns).expect("a few thousand short patterns fit"),
            meanings,
        }
    }

    /// Every wording in a folded text, also those that overlap: linear in the text.
    pub fn find<'f>(&'f self, folded: &'f str) -> impl Iterator<Item = Found<T>> + 'f {
        self.automaton.find_overlapping_iter(folded).filter_map(|found| {
            let (language, what) = self.meanings[found.pattern().as_usize()];
            let (start, end) = (found.start(), found.end());
            let whole = !language.is_spaced() || is_border(folded, start) && is_border(folded, end);
            whole.then_some(Found { language, what, start, end })
        })
    }
}

/// True at the border of a word.
fn is_border(text: &str, at: usize) -> bool {
    let joins = |c: char| c.is_alphanumeric();
    let behind = text[at..].chars().next().is_some_and(joins);
    let before = text[..at].chars().next_back();
    // "j'" and "l'" end in a border of their own.
    !(behind && before.is_some_and(joins))
}

/// Lower case without accents, one form of each sign, and a sign that is drawn out written once: "Buenaaas" and "buenas" are the same.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let (mut last, mut row) = ('\0', 0);
    let mut push = |c: char| {
        row = if c == last && !c.is_ascii_digit() { row + 1 } else { 1 };
        last = c;
        match row {
            1 | 2 => folded.push(c),
            3 => {
                folded.truncate(folded.len() - c.len_utf8());
            }
            _ => {}
        }
    };
    if text.is_ascii() {
        text.chars().for_each(|c| push(c.to_ascii_lowercase()));
        return folded;
    }
    for c in text.nfkd().flat_map(char::to_lowercase) {
        match c {
            '\u{300}'..='\u{36f}' => {}
            '’' | '‘' | '´' => push('\''),
            'ß' => ['s', 's'].into_iter().for_each(&mut push),
            'œ' => ['o', 'e'].into_iter().for_each(&mut push),
            'æ' => ['a', 'e'].into_iter().for_each(&mut push),
            'ø' => push('o'),
            '。' => push('.'),
            '、' | '，' => push(','),
            '-' | '‐' | '‑' => push('-'),
            _ => push(c),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_every_list() {
        for (code, text) in FILES {
            let lists = parsed(code, text);
            let grammar = [&lists.phatic, &lists.question];
            assert!(code == "en" || grammar.iter().all(|list| !list.is_empty()), "{code}");
            let wishes = [&lists.wishes.unsaid, &lists.wishes.unsay];
            let never = [
                &lists.never.health,
                &lists.never.politics,
                &lists.never.religion,
                &lists.never.sexuality,
                &lists.never.money,
            ];
            let talk = [
                &lists.greeting,
                &lists.thanks,
                &lists.acknowledgement,
                &lists.praise,
                &lists.filler,
            ];
            let tells =
                [&lists.words, &lists.first_person, &lists.states, &lists.negation, &lists.change];
            for list in wishes.into_iter().chain(never).chain(talk).chain(tells) {
                assert!(list.len() >= 5, "{code}: {list:?}");
                assert!(list.iter().all(|wording| !fold(wording).trim().is_empty()), "{code}");
            }
        }
    }

    #[test]
    fn an_unknown_list_is_an_error() {
        let text = format!("greetings = []\n{}", FILES[1].1);
        assert!(toml::from_str::<Lists>(&text).is_err());
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
    fn whole_words_only_where_a_language_has_spaces() {
        let greets = |text: &str| {
            SPEECH
                .find(&fold(text))
                .any(|found| found.what == Sign::Greeting && found.language != CHINESE)
        };
        assert!(greets("oh, hallo!") && !greets("hallodri"));
        assert!(
            SPEECH
                .find(&fold("他说你好吗"))
                .any(|found| found.what == Sign::Greeting && found.language == CHINESE)
        );
    }
}
