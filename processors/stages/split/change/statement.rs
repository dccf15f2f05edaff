//! Reads a text for what a change is recognised by: its cues, content stems, aspects, people, numbers and days.

use super::aspects::{Aspects, aspects_of};
use super::cues::{CHANGED, Cue, Cues, ENDED, cues, cues_unspaced};
use super::people::{self, People};
use super::stems::Stems;
use crate::stages::split::clauses::prose;
use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A pasted text goes on for long: what a person says of themselves stands in its first clauses.
const CLAUSES_MAX: usize = 30;

/// A text as far as changes go.
pub struct Statement {
    pub clauses: Vec<Clause>,
    pub stems: Stems,
    pub cues: Cues,
    /// The first wording that announces a change, as it was said.
    pub announced: Option<String>,
    /// Stems of the wordings of ends and changes.
    pub cue_stems: Stems,
    pub aspects: Aspects,
    pub people: People,
    /// Stems of capitalised words that begin no sentence.
    pub names: Stems,
    /// Stems of those who are greeted or thanked by name.
    pub addressed: Stems,
    pub numbers: Stems,
    /// Weekdays and months, a bit each.
    pub days: u32,
    pub words: usize,
    is_new: bool,
    pub is_first_person: bool,
    pub is_plan: bool,
    pub is_addition: bool,
    /// "still", "only": part of what was said before holds.
    pub says_what_is_left: bool,
    /// Asks somebody to help with a task: what it tells is the task's.
    pub is_request: bool,
    /// Begins as an answer or a greeting does: "Thanks!", "Yeah".
    pub is_reaction: bool,
    /// Happened on a past day that is named: an event does not stop being so.
    pub is_past_event: bool,
}

pub struct Clause {
    pub cues: Cues,
    /// Nothing where there is no cue.
    pub stems: Stems,
    /// The kind of person that is its subject.
    pub subject: People,
    pub is_question: bool,
}

/// Bytes read of a text: a candidate has some thousand at most, but `remember` takes 64 KiB. Stems are compared each with each, and a text this
/// long is no statement about one thing.
const BYTES_MAX: usize = 4_096;

impl Statement {
    /// With the wordings that announce a change.
    pub fn new(content: &str) -> Statement {
        Statement::read_whole(content, true)
    }

    /// Without them: what an earlier text announced has come to pass.
    pub fn earlier(content: &str) -> Statement {
        Statement::read_whole(content, false)
    }

    fn read_whole(content: &str, is_new: bool) -> Statement {
        let text = prose(&content[..content.floor_char_boundary(BYTES_MAX)]);
        let lower = text.to_lowercase();
        let mut statement =
            Statement { is_new, ..Statement::empty(text.split_whitespace().count()) };
        for clause in pieces(&lower).take(CLAUSES_MAX) {
            statement.read(clause);
        }
        statement.read_names(&text);
        if lower.chars().any(|c| c >= FIRST_UNSPACED) {
            statement.is_first_person |=
                FIRST_PERSON_UNSPACED.iter().any(|word| lower.contains(word));
            statement.cues |= if is_new { cues_unspaced(&lower) } else { 0 };
        }
        statement
    }

    fn empty(words: usize) -> Statement {
        Statement {
            clauses: Vec::new(),
            stems: Stems::default(),
            cues: 0,
            announced: None,
            cue_stems: Stems::default(),
            aspects: 0,
            people: 0,
            names: Stems::default(),
            addressed: Stems::default(),
            numbers: Stems::default(),
            days: 0,
            words,
            is_new: false,
            is_first_person: false,
            is_plan: false,
            is_addition: false,
            says_what_is_left: false,
            is_request: false,
            is_reaction: false,
            is_past_event: false,
        }
    }

    fn read(&mut self, clause: &str) {
        let words: Vec<&str> = words(clause).collect();
        if words.is_empty() {
            return;
        }
        let is_question = clause.trim_end().ends_with('?');
        let found = if is_question || !self.is_new { Vec::new() } else { cues(&words) };
        let kinds = found.iter().fold(0, |all, cue| all | cue.kind);
        self.note(&found, &words);
        let stems = stems(clause);
        self.aspects |= stems.iter().fold(0, |all, stem| all | aspects_of(stem));
        self.is_reaction |= self.clauses.is_empty() && is_reaction(&words);
        let classes: Vec<Class> = words.iter().map(|word| class_of(word)).collect();
        for (pair, _) in words.windows(2).zip(&classes).filter(|(_, class)| class.begins_pair) {
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
            if class.is_number || word.starts_with(|c: char| c.is_ascii_digit()) {
                self.numbers.insert((*word).to_owned());
            }
        }
        // Only a clause with a cue is asked for its own stems: copying the others took a tenth of the time.
        let own = if kinds == 0 { Stems::default() } else { stems.clone() };
        self.stems.extend(stems.into_iter());
        self.clauses.push(Clause {
            cues: kinds,
            stems: own,
            subject: subject(&classes),
            is_question,
        });
        self.cues |= kinds;
    }

    fn note(&mut self, found: &[Cue], words: &[&str]) {
        if self.announced.is_none() {
            let strongest = found.iter().min_by_key(|cue| cue.kind.trailing_zeros());
            self.announced = strongest.map(|cue| words[cue.from..cue.to].join(" "));
        }
        for cue in found.iter().filter(|cue| cue.kind & (ENDED | CHANGED) != 0) {
            let said = words[cue.from..cue.to].iter().flat_map(|word| text::words(word));
            self.cue_stems.extend(said.filter(|word| !text::is_stop_word(word)).map(text::stem));
        }
    }

    /// Names are told by their capital letter, and by whom a greeting names.
    fn read_names(&mut self, text: &str) {
        let (mut is_start, mut before) = (true, "");
        for word in text.split_whitespace() {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
            let begins_upper = bare.starts_with(char::is_uppercase)
                && bare.chars().nth(1).is_some_and(char::is_lowercase);
            if begins_upper {
                let own = bare.split(['\'', '’']).next().unwrap_or(bare).to_lowercase();
                if GREETINGS.contains(&before.to_lowercase().as_str()) {
                    self.addressed.insert(text::stem(&own));
                } else if !is_start {
                    self.names.insert(text::stem(&own));
                }
            }
            is_start = word.ends_with(['.', '!', '?', '"', ':']);
            before = bare;
        }
    }

    pub fn states_something(&self) -> bool {
        self.clauses.iter().any(|clause| !clause.is_question)
    }
}

/// Sentences, and parts of them that say one thing each.
fn pieces(lower: &str) -> impl Iterator<Item = &str> {
    sentences(lower)
        .flat_map(|sentence| sentence.split(" but "))
        .flat_map(|part| part.split(" - "))
        .flat_map(joined)
}

/// An end is followed by a space: "6.15" is not cut.
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

const JOINTS: [&str; 8] =
    [", so i", ", so it", ", so we", ", and i", ", and we", ", so my", ", and he", ", and she"];

/// ", so it's only the mondays" says something of its own.
fn joined(part: &str) -> impl Iterator<Item = &str> {
    let commas = part.bytes().enumerate().filter(|(_, byte)| *byte == b',').map(|(at, _)| at);
    let border =
        commas.into_iter().find(|at| JOINTS.iter().any(|joint| part[*at..].starts_with(joint)));
    let (first, second) = part.split_at(border.unwrap_or(part.len()));
    [first, second].into_iter().filter(|part| !part.is_empty())
}

/// With the apostrophes inside them.
fn words(clause: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_alphanumeric() || c == '\'');
    clause.split(ends).map(|word| word.trim_matches('\'')).filter(|word| !word.is_empty())
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
const FIRST_PERSON: [&str; 60] = [
    "i", "i'm", "i've", "i'd", "i'll", "my", "mine", "me", "we", "we've", "we're", "we'd", "our",
    "ours", "us", "myself", "ich", "mein", "meine", "meinen", "meiner", "mir", "mich", "wir",
    "unser", "unsere", "yo", "mi", "mis", "nos", "nuestro", "nuestra", "estoy", "soy", "tengo",
    "je", "j'ai", "j'habite", "mon", "ma", "mes", "moi", "nous", "notre", "nos", "eu", "meu",
    "minha", "meus", "minhas", "nós", "nosso", "nossa", "io", "mio", "mia", "miei", "ho",
    "abbiamo", "noi",
];
/// Scripts without spaces begin here, with the punctuation of Chinese and Japanese.
const FIRST_UNSPACED: char = '\u{3000}';
const FIRST_PERSON_UNSPACED: [&str; 5] = ["我", "私", "僕", "俺", "うち"];
const PLANS: [&str; 9] =
    ["might", "maybe", "perhaps", "considering", "someday", "if", "could", "wish", "hope"];

fn is_reaction(words: &[&str]) -> bool {
    REACTIONS.contains(&words[0])
        || matches!(words, ["of", "course", ..] | ["oh", "wow", ..] | ["sorry", "to", ..])
}

/// The first words of `is_plan` and `is_request`.
const PAIRS_BEGIN: [&str; 16] = [
    "thinking",
    "dreaming",
    "would",
    "i'd",
    "want",
    "wants",
    "hoping",
    "planning",
    "plan",
    "one",
    "can",
    "could",
    "help",
    "trying",
    "how",
    "wondering",
];

fn is_plan(pair: &[&str]) -> bool {
    matches!(
        (pair[0], pair[1]),
        ("thinking" | "dreaming", "of" | "about")
            | ("would" | "i'd", "love" | "like")
            | ("want" | "wants" | "hoping" | "planning" | "plan", "to")
            | ("one", "day")
    )
}

/// "a second dog", "an iPhone too": beside what there was, not in its place.
fn is_addition(words: &[&str]) -> bool {
    let is_one = |word: &&str| {
        matches!(
            *word,
            "another"
                | "second"
                | "too"
                | "additionally"
                | "besides"
                | "extra"
                | "both"
                | "también"
                | "auch"
                | "aussi"
                | "também"
                | "anche"
        )
    };
    let also = |pair: &[&str]| {
        pair[1] == "also" && class_of(pair[0]).is_first_person
            || matches!(pair, ["as", "well"] | ["work", "phone"] | ["side", "job"])
    };
    words.iter().any(is_one) || words.windows(2).any(also)
}

fn is_past(words: &[&str]) -> bool {
    const SPANS: [&str; 8] =
        ["week", "night", "weekend", "month", "year", "summer", "winter", "time"];
    let is_last = |pair: &[&str]| {
        pair[0] == "last" && (SPANS[..5].contains(&pair[1]) || pair[1].ends_with("day"))
    };
    words.iter().any(|word| matches!(*word, "yesterday" | "ago")) || words.windows(2).any(is_last)
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

/// Stems of a clause's content words. In scripts without spaces these are pairs of characters.
fn stems(clause: &str) -> Stems {
    let mut stems = Stems::default();
    let mut add = |word: &str| {
        if !word.bytes().all(|byte| byte.is_ascii_digit()) && word.chars().nth(1).is_some() {
            stems.insert(text::stem(word));
        }
    };
    if clause.is_ascii() {
        text::words(clause).filter(|word| !text::is_stop_word(word)).for_each(&mut add);
    } else {
        text::Words::of(clause).content().for_each(&mut add);
    }
    stems
}

/// Classes of a single word.
#[derive(Clone, Copy, Default)]
struct Class {
    people: People,
    /// Weekdays and months, a bit each.
    days: u32,
    is_first_person: bool,
    is_speaker: bool,
    is_plan: bool,
    is_number: bool,
    /// May begin a plan or a request of two words.
    begins_pair: bool,
}

fn class_of(word: &str) -> Class {
    let known = CLASSES.get(word).or_else(|| CLASSES.get(word.strip_suffix("'s")?));
    known.copied().unwrap_or_default()
}

/// The person that a clause is about, if it is one of those around the speaker.
fn subject(classes: &[Class]) -> People {
    let classes = classes.iter().take(people::SUBJECT_WITHIN);
    classes
        .take_while(|class| !class.is_speaker)
        .map(|class| class.people)
        .find(|people| *people != 0)
        .unwrap_or(0)
}

/// "may" and "march" are words too.
const DAYS: [&str; 17] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const NUMBERS: [&str; 18] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "twenty", "thirty", "forty", "fifty", "hundred", "zero",
];

static CLASSES: LazyLock<HashMap<String, Class, RandomState>> = LazyLock::new(|| {
    let mut classes: HashMap<String, Class, RandomState> = HashMap::default();
    let mut mark =
        |word: &str, mark: &dyn Fn(&mut Class)| mark(classes.entry(word.to_owned()).or_default());
    people::words().for_each(|(word, person)| mark(word, &|class| class.people |= person));
    for (place, day) in DAYS.iter().enumerate() {
        mark(day, &|class| class.days |= 1 << place);
        mark(&format!("{day}s"), &|class| class.days |= 1 << place);
    }
    FIRST_PERSON.iter().for_each(|word| mark(word, &|class| class.is_first_person = true));
    people::SPEAKER.iter().for_each(|word| mark(word, &|class| class.is_speaker = true));
    PLANS.iter().for_each(|word| mark(word, &|class| class.is_plan = true));
    NUMBERS.iter().for_each(|word| mark(word, &|class| class.is_number = true));
    PAIRS_BEGIN.iter().for_each(|word| mark(word, &|class| class.begins_pair = true));
    classes
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_is_about_the_person_that_it_begins_with() {
        let of = |clause: &str| subject(&words(clause).map(class_of).collect::<Vec<_>>());
        let person = |word: &str| class_of(word).people;
        assert_eq!(of("my sister moved to cardiff"), person("sister"));
        assert_eq!(of("mom's in our den"), person("mother"));
        assert_eq!(of("and my dad quit smoking"), person("father"));
        assert_eq!(of("i told my sister"), 0);
        assert_eq!(of("the car was sold by my father"), 0);
    }

    #[test]
    fn a_text_is_cut_where_another_thing_is_said() {
        let cut = |text| pieces(text).map(str::trim).collect::<Vec<_>>();
        assert_eq!(cut("it's at 6.15. i misread it!"), ["it's at 6.15.", "i misread it!"]);
        assert_eq!(
            cut("the class is cancelled, so it's only mondays"),
            ["the class is cancelled", ", so it's only mondays"]
        );
        assert_eq!(cut("我搬家了。现在住在这里"), ["我搬家了。", "现在住在这里"]);
    }
}
