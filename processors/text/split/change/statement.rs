//! Extracts the features of a statement from which `change` estimates the probability of a
//! revision.
//!
//! 1. Read at most 4,096 bytes, without fenced code, and cut the text into at most 30 clauses.
//! 2. For each clause: find its cues (only in a new statement and outside of questions), stem its
//!    content words, look up their aspects, and find its subject among the people around the
//!    speaker.
//! 3. Classify each word by one table: person, day, number, first person, plan.
//! 4. Read names from capital letters, and leave out the people who are greeted or thanked.
//! 5. Search Chinese and Japanese texts for their own cues and pronouns.
//!
//! For example "My sister moved to Cardiff on Monday." has the cue "moved", the aspect `home`, the
//! subject sister, the name Cardiff and the day Monday.

use super::aspects::{Aspects, aspects_of};
use super::cues::{CHANGED, Cue, Cues, ENDED, cues, cues_unspaced};
use super::frame::Frame;
use super::people::{self, People};
use crate::split::clauses::prose;
use crate::split::english::{MONTHS, WEEKDAYS, is_question};
use foldhash::fast::RandomState;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// Clauses read of a text. In a longer, pasted text the speaker's own words come first.
const CLAUSES_MAX: usize = 30;

/// The features of a text.
#[derive(Default)]
pub struct Statement {
    pub clauses: Vec<Clause>,
    /// Stems of the content words.
    pub stems: BTreeSet<String>,
    pub cues: Cues,
    /// The strongest cue of the first clause that has one, as written.
    pub announced: Option<String>,
    /// Stems of the cues for ends and changes.
    pub cue_stems: BTreeSet<String>,
    pub aspects: Aspects,
    pub people: People,
    /// Stems of capitalised words inside a sentence.
    pub names: BTreeSet<String>,
    /// Stems of people who are greeted or thanked by name.
    pub addressed: BTreeSet<String>,
    /// Number words and numbers, as written.
    pub numbers: BTreeSet<String>,
    /// Weekdays and months, one bit each.
    pub days: u32,
    pub words: usize,
    pub frame: Frame,
    /// Changes an "it" that the statement does not name: "The doctor halved it."
    pub is_elliptical: bool,
    /// "Switched to", "migrating to".
    pub is_switch: bool,
    /// Aspects of what the speaker has anew: "my new flat".
    pub anew: Aspects,
    is_new: bool,
    pub is_first_person: bool,
    pub is_plan: bool,
    pub is_addition: bool,
    /// Has "still" or "only": part of the earlier statement remains true.
    pub says_what_is_left: bool,
    /// Requests help with a task. Its facts are then part of the task and not about the speaker.
    pub is_request: bool,
    /// Begins like an answer or a greeting: "Thanks!", "Yeah".
    pub is_reaction: bool,
    /// Names a past day or span. A past event cannot be revised by a later one.
    pub is_past_event: bool,
}

pub struct Clause {
    pub cues: Cues,
    /// Stems of the content words.
    pub stems: BTreeSet<String>,
    /// The kind of person that is the subject of the clause, 0 for the speaker or a thing.
    pub subject: People,
    pub is_question: bool,
}

/// Bytes read of a text. A candidate has a few thousand at most, but `remember` accepts 64 KiB, and
/// a text that long is no statement about one thing.
const BYTES_MAX: usize = 4_096;

/// The part of a text that is read, as written and in lower case.
struct ReadText<'a> {
    text: Cow<'a, str>,
    lower: String,
}

impl ReadText<'_> {
    fn of(content: &str) -> ReadText<'_> {
        let text = prose(&content[..content.floor_char_boundary(BYTES_MAX)]);
        ReadText { lower: text.to_lowercase(), text }
    }

    /// Returns true if the text has a cue, a number, or the form of one with another value.
    fn announces(&self) -> bool {
        clauses(&self.lower).take(CLAUSES_MAX).any(|clause| {
            let words: Vec<&str> = words(clause).collect();
            words.iter().any(|word| is_number(word, class_of(word)))
                || !is_question(clause) && !cues(&words).is_empty()
        }) || frame_of(&self.text).may_differ()
            || is_unspaced(&self.lower) && cues_unspaced(&self.lower) != 0
    }
}

fn frame_of(text: &str) -> Frame {
    Frame::of(text, |word| {
        let class = class_of(word);
        is_number(word, class) || class.days != 0
    })
}

impl Statement {
    /// Reads a new text, including the cues. `None` if the text [announces](ReadText::announces) nothing:
    /// such a text revises nothing, and its stems are not needed.
    pub fn new(content: &str) -> Option<Statement> {
        let read = ReadText::of(content);
        read.announces().then(|| Statement::read(&read, true))
    }

    /// Reads an earlier text, without the cues: a change that an earlier text announced has
    /// happened.
    pub fn earlier(content: &str) -> Statement {
        Statement::read(&ReadText::of(content), false)
    }

    fn read(ReadText { text, lower }: &ReadText<'_>, is_new: bool) -> Statement {
        let words = text.split_whitespace().count();
        let frame = frame_of(text);
        let mut statement = Statement { is_new, words, frame, ..Statement::default() };
        for clause in clauses(lower).take(CLAUSES_MAX) {
            statement.add_clause(clause);
        }
        statement.add_names(text);
        if is_unspaced(lower) {
            statement.is_first_person |=
                FIRST_PERSON_UNSPACED.iter().any(|word| lower.contains(word));
            statement.cues |= if is_new { cues_unspaced(lower) } else { 0 };
        }
        statement
    }

    fn add_clause(&mut self, clause: &str) {
        let words: Vec<&str> = words(clause).collect();
        if words.is_empty() {
            return;
        }
        let is_question = is_question(clause);
        let found = if is_question || !self.is_new { Vec::new() } else { cues(&words) };
        let kinds = found.iter().fold(0, |all, cue| all | cue.kind);
        self.add_cues(&found, &words);
        let stems = stems(clause);
        self.aspects |= stems.iter().fold(0, |all, stem| all | aspects_of(stem));
        self.is_reaction |= self.clauses.is_empty() && is_reaction(&words);
        let classes: Vec<Class> = words.iter().map(|word| class_of(word)).collect();
        for pair in words.windows(2) {
            self.is_plan |= is_plan(pair);
            self.is_request |= is_request(pair);
        }
        self.is_addition |= is_addition(&words);
        self.is_past_event |= is_past(&words);
        for (word, class) in words.iter().zip(&classes) {
            self.says_what_is_left |= matches!(*word, "still" | "only");
            self.people |= class.people;
            self.days |= class.days;
            self.is_first_person |= class.is_first_person;
            self.is_plan |= class.is_plan;
            if is_number(word, *class) {
                self.numbers.insert((*word).to_owned());
            }
        }
        let is_short = self.words <= ELLIPSIS_WORDS_MAX && self.is_new;
        self.is_elliptical |= is_short && words.windows(2).any(is_change_of_it);
        self.is_switch |= words.windows(2).any(is_switch);
        self.anew |= words.windows(3).fold(0, |all, words| match words {
            ["my" | "our", "new", thing] => all | aspects_of(&crate::stem(thing)),
            _ => all,
        });
        self.stems.extend(stems.iter().cloned());
        self.clauses.push(Clause { cues: kinds, stems, subject: subject(&classes), is_question });
        self.cues |= kinds;
    }

    fn add_cues(&mut self, found: &[Cue], words: &[&str]) {
        if self.announced.is_none() {
            let strongest = found.iter().min_by_key(|cue| cue.kind.trailing_zeros());
            self.announced = strongest.map(|cue| words[cue.from..cue.to].join(" "));
        }
        for cue in found.iter().filter(|cue| cue.kind & (ENDED | CHANGED) != 0) {
            self.cue_stems.extend(
                words[cue.from..cue.to]
                    .iter()
                    .flat_map(|word| crate::words(word))
                    .filter(|word| !crate::is_stop_word(word))
                    .map(crate::stem),
            );
        }
    }

    /// Collects capitalised words: after a greeting the person addressed, inside a sentence a name.
    fn add_names(&mut self, text: &str) {
        let mut is_start = true;
        let mut before = "";
        for word in text.split_whitespace() {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
            let is_capitalised = bare.starts_with(char::is_uppercase)
                && bare.chars().nth(1).is_some_and(char::is_lowercase);
            if is_capitalised {
                let name = bare.split(['\'', '’']).next().unwrap_or(bare).to_lowercase();
                if GREETINGS.contains(&before.to_lowercase().as_str()) {
                    self.addressed.insert(crate::stem(&name));
                } else if !is_start {
                    self.names.insert(crate::stem(&name));
                }
            }
            is_start = word.ends_with(['.', '!', '?', '"', ':']);
            before = bare;
        }
    }

    /// Returns true unless every clause is a question.
    pub fn states_something(&self) -> bool {
        self.clauses.iter().any(|clause| !clause.is_question)
    }
}

/// Cuts lower-case text into sentences, and those at "but", dashes and [`JOINTS`].
fn clauses(lower: &str) -> impl Iterator<Item = &str> {
    sentences(lower)
        .flat_map(|sentence| sentence.split(" but "))
        .flat_map(|part| part.split(" - "))
        .flat_map(cut_at_joint)
}

/// Cuts at line ends and at punctuation. ASCII punctuation cuts only before white space: "6.15"
/// stays whole.
fn sentences(lower: &str) -> impl Iterator<Item = &str> {
    let mut rest = lower;
    std::iter::from_fn(move || {
        let end = rest.char_indices().find_map(|(at, c)| {
            let next = at + c.len_utf8();
            let is_end = match c {
                '.' | '!' | '?' | ';' => rest[next..].starts_with(char::is_whitespace),
                '\n' | '。' | '！' | '？' => true,
                _ => false,
            };
            is_end.then_some(next)
        });
        let (sentence, others) = rest.split_at(end.unwrap_or(rest.len()));
        rest = others;
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// Beginnings of a second clause after a comma, for example ", so it's only mondays".
const JOINTS: [&str; 8] =
    [", so i", ", so it", ", so we", ", and i", ", and we", ", so my", ", and he", ", and she"];

/// Cuts a clause in two before the first joint.
fn cut_at_joint(part: &str) -> impl Iterator<Item = &str> {
    let joint = part
        .match_indices(',')
        .map(|(at, _)| at)
        .find(|at| JOINTS.iter().any(|joint| part[*at..].starts_with(joint)));
    let (first, second) = part.split_at(joint.unwrap_or(part.len()));
    [first, second].into_iter().filter(|part| !part.is_empty())
}

/// Splits a clause into words that keep the apostrophes inside them.
fn words(clause: &str) -> impl Iterator<Item = &str> {
    clause
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .map(|word| word.trim_matches('\''))
        .filter(|word| !word.is_empty())
}

const GREETINGS: [&str; 12] =
    ["hey", "hi", "hello", "thanks", "you", "yeah", "yes", "yep", "wow", "oh", "sorry", "morning"];
const REACTIONS: [&str; 26] = [
    "thanks",
    "thank",
    "yeah",
    "yep",
    "yup",
    "yes",
    "wow",
    "great",
    "awesome",
    "cool",
    "nice",
    "haha",
    "ha",
    "glad",
    "sounds",
    "that's",
    "congrats",
    "congratulations",
    "woo",
    "absolutely",
    "definitely",
    "totally",
    "sure",
    "hey",
    "hi",
    "hello",
];
const FIRST_PERSON: [&str; 61] = [
    "let's", "i", "i'm", "i've", "i'd", "i'll", "my", "mine", "me", "we", "we've", "we're", "we'd",
    "our", "ours", "us", "myself", "ich", "mein", "meine", "meinen", "meiner", "mir", "mich",
    "wir", "unser", "unsere", "yo", "mi", "mis", "nos", "nuestro", "nuestra", "estoy", "soy",
    "tengo", "je", "j'ai", "j'habite", "mon", "ma", "mes", "moi", "nous", "notre", "nos", "eu",
    "meu", "minha", "meus", "minhas", "nós", "nosso", "nossa", "io", "mio", "mia", "miei", "ho",
    "abbiamo", "noi",
];
/// The first character of the Chinese and Japanese blocks of Unicode, which begin with punctuation.
const FIRST_UNSPACED: char = '\u{3000}';

fn is_unspaced(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(|c| c >= FIRST_UNSPACED)
}

const FIRST_PERSON_UNSPACED: [&str; 5] = ["我", "私", "僕", "俺", "うち"];
const PLANS: [&str; 9] =
    ["might", "maybe", "perhaps", "considering", "someday", "if", "could", "wish", "hope"];

/// A longer statement names what it changes.
const ELLIPSIS_WORDS_MAX: usize = 8;

fn is_change_of_it(pair: &[&str]) -> bool {
    const VERBS: [&str; 8] =
        ["halved", "doubled", "tripled", "raised", "lowered", "increased", "reduced", "cut"];
    VERBS.contains(&pair[0]) && matches!(pair[1], "it" | "them" | "that" | "mine")
}

fn is_switch(pair: &[&str]) -> bool {
    const VERBS: [&str; 5] = ["switched", "switching", "migrated", "migrating", "swapped"];
    VERBS.contains(&pair[0]) && pair[1] == "to"
}

fn is_reaction(words: &[&str]) -> bool {
    REACTIONS.contains(&words[0])
        || matches!(words, ["of", "course", ..] | ["oh", "wow", ..] | ["sorry", "to", ..])
}

fn is_plan(pair: &[&str]) -> bool {
    matches!(
        (pair[0], pair[1]),
        ("thinking" | "dreaming", "of" | "about")
            | ("would" | "i'd", "love" | "like")
            | ("want" | "wants" | "hoping" | "planning" | "plan", "to")
            | ("one", "day")
    )
}

/// Words that add a thing to an earlier one.
const ADDITIONS: [&str; 12] = [
    "another",
    "second",
    "too",
    "additionally",
    "besides",
    "extra",
    "both",
    "también",
    "auch",
    "aussi",
    "também",
    "anche",
];

/// Returns true if the new thing exists beside the earlier one: "a second dog", "an iPhone too".
fn is_addition(words: &[&str]) -> bool {
    words.iter().any(|word| ADDITIONS.contains(word))
        || words.windows(2).any(|pair| {
            pair[1] == "also" && class_of(pair[0]).is_first_person
                || matches!(pair, ["as", "well"] | ["work", "phone"] | ["side", "job"])
        })
}

/// Returns true for "yesterday", "ago", "last week", "last Tuesday" and the like.
fn is_past(words: &[&str]) -> bool {
    const SPANS: [&str; 5] = ["week", "night", "weekend", "month", "year"];
    words.iter().any(|word| matches!(*word, "yesterday" | "ago"))
        || words
            .windows(2)
            .any(|pair| pair[0] == "last" && (SPANS.contains(&pair[1]) || pair[1].ends_with("day")))
}

fn is_request(pair: &[&str]) -> bool {
    matches!(
        (pair[0], pair[1]),
        ("can" | "could" | "would", "you")
            | ("help", "me")
            | ("trying", "to")
            | ("how", "can" | "do" | "should")
            | ("wondering", "how" | "if")
    )
}

/// Stems the content words of a clause, without numbers and single letters. In scripts without
/// spaces the content words are pairs of characters.
fn stems(clause: &str) -> BTreeSet<String> {
    if clause.is_ascii() {
        stemmed(crate::words(clause).filter(|word| !crate::is_stop_word(word)))
    } else {
        stemmed(crate::Words::of(clause).content())
    }
}

fn stemmed<'w>(words: impl Iterator<Item = &'w str>) -> BTreeSet<String> {
    words
        .filter(|word| {
            !word.bytes().all(|byte| byte.is_ascii_digit()) && word.chars().nth(1).is_some()
        })
        .map(crate::stem)
        .collect()
}

/// The classes to which a single word belongs.
#[derive(Clone, Copy, Default)]
struct Class {
    people: People,
    /// Weekdays and months, one bit each.
    days: u32,
    is_first_person: bool,
    is_pronoun: bool,
    is_plan: bool,
    is_number: bool,
}

fn is_number(word: &str, class: Class) -> bool {
    class.is_number || word.starts_with(|c: char| c.is_ascii_digit())
}

fn class_of(word: &str) -> Class {
    let known = CLASSES.get(word).or_else(|| CLASSES.get(word.strip_suffix("'s")?));
    known.copied().unwrap_or_default()
}

/// Returns the first person among the first words of a clause, before any pronoun: "my sister
/// moved" is about the sister, "I told my sister" is not. 0 if there is none.
fn subject(classes: &[Class]) -> People {
    classes
        .iter()
        .take(people::SUBJECT_WITHIN)
        .take_while(|class| !class.is_pronoun)
        .map(|class| class.people)
        .find(|people| *people != 0)
        .unwrap_or(0)
}

/// Number words that set two statements apart.
const NUMBERS: [&str; 18] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "twenty", "thirty", "forty", "fifty", "hundred", "zero",
];

/// Classes by word: one lookup per word instead of a search in every list. "March" and "may" are no
/// days here, because both are ordinary words too.
static CLASSES: LazyLock<HashMap<String, Class, RandomState>> = LazyLock::new(|| {
    let mut classes = ClassTable::default();
    for (word, person) in people::words() {
        classes.of(word).people |= person;
    }
    let days = WEEKDAYS.into_iter().chain(MONTHS);
    for (place, day) in days.filter(|day| !matches!(*day, "march" | "may")).enumerate() {
        classes.of(day).days |= 1 << place;
        classes.of(&format!("{day}s")).days |= 1 << place;
    }
    FIRST_PERSON.iter().for_each(|word| classes.of(word).is_first_person = true);
    people::PRONOUNS.iter().for_each(|word| classes.of(word).is_pronoun = true);
    PLANS.iter().for_each(|word| classes.of(word).is_plan = true);
    NUMBERS.iter().for_each(|word| classes.of(word).is_number = true);
    classes.0
});

#[derive(Default)]
struct ClassTable(HashMap<String, Class, RandomState>);

impl ClassTable {
    fn of(&mut self, word: &str) -> &mut Class {
        self.0.entry(word.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_clause_is_the_person_at_its_beginning() {
        for (clause, person) in [
            ("my sister moved to cardiff", class_of("sister").people),
            ("mom's in our den", class_of("mother").people),
            ("and my dad quit smoking", class_of("father").people),
            ("i told my sister", 0),
            ("the car was sold by my father", 0),
        ] {
            let classes: Vec<Class> = words(clause).map(class_of).collect();
            assert_eq!(subject(&classes), person, "{clause}");
        }
    }

    #[test]
    fn a_text_is_cut_into_clauses() {
        for (text, expected) in [
            ("it's at 6.15. i misread it!", ["it's at 6.15.", "i misread it!"]),
            (
                "the class is cancelled, so it's only mondays",
                ["the class is cancelled", ", so it's only mondays"],
            ),
            ("我搬家了。现在住在这里", ["我搬家了。", "现在住在这里"]),
        ] {
            assert_eq!(clauses(text).map(str::trim).collect::<Vec<_>>(), expected);
        }
    }
}
