//! Reads the clauses of a folded text as wishes, by a grammar of word classes
//! (`config/languages/*.toml`): a clause asks to forget if it has a verb of removing and no
//! negation, and asks to keep nothing if it negates a verb of keeping or the memory. A wish is
//! addressed to the assistant: neither the speaker nor somebody else is the verb's subject, and no
//! word of unknown meaning stands before it.

use super::pasted::PASSAGE;
use crate::wordings::{CoveredLanguage, PhraseMatch, WISHES, WishPart};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use std::slice::SliceIndex;

/// The kind of wish that a clause states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "Forget that."
    Forget,
    /// "Don't remember that."
    KeepNot,
    /// "Off the record."
    Secret,
}

/// Word classes, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u32);

impl Parts {
    fn of(part: WishPart) -> Parts {
        Parts(1 << part as u32)
    }

    pub fn has(self, part: WishPart) -> bool {
        self.any(&[part])
    }

    pub fn any(self, parts: &[WishPart]) -> bool {
        parts.iter().any(|part| self.0 & 1 << *part as u32 != 0)
    }

    /// The places of the word classes in `WishPart`, without `Free`.
    pub fn places(self) -> impl Iterator<Item = u32> {
        (0..WishPart::Free as u32).filter(move |place| self.0 & 1 << place != 0)
    }

    pub fn has_verb(self) -> bool {
        self.any(&VERBS)
    }

    fn with(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }
}

/// A phrase of the lists, or a word that no list has.
#[derive(Clone, Copy, Debug)]
struct Word {
    start: usize,
    end: usize,
    parts: Parts,
}

impl Word {
    fn is_unknown(&self) -> bool {
        self.parts == Parts::default()
    }
}

/// A clause as the lists of one language explain it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub kind: Option<Kind>,
    pub parts: Parts,
    /// States something that is neither a wish nor its reason.
    pub is_content: bool,
    /// Has a number, a day or a word of change, as a new value has.
    pub is_new: bool,
    /// Asks to keep something: "remember that I'm the one who drives".
    pub asks_to_keep: bool,
    /// Words that no list has.
    pub unknown: usize,
    /// The subject to forget: "forget what I said about *my job*".
    pub topic: Option<String>,
    /// The place of its sentence in the text.
    pub place: usize,
}

const BORDERS: [char; 17] =
    ['.', ',', '!', '?', ';', ':', '\n', '(', ')', '…', '¡', '¿', '—', '–', '~', '〜', '・'];
/// Borders between two sentences.
const ENDS: [char; 7] = ['.', '!', '?', ';', '…', '\n', ')'];
/// Letters of a Japanese ending.
const ENDING_CHARS_MAX: usize = 4;
/// Word classes without which nothing is a wish.
const VERBS: [WishPart; 7] = [
    WishPart::Forget,
    WishPart::Remove,
    WishPart::Idiom,
    WishPart::Unsaid,
    WishPart::Keep,
    WishPart::Memory,
    WishPart::Secret,
];
/// Of these, the ones that need no negation.
const VERBS_ALONE: [WishPart; 4] =
    [WishPart::Forget, WishPart::Remove, WishPart::Unsaid, WishPart::Secret];
/// Word classes that a phrase has from the words in it.
const ADDITIVE: [WishPart; 5] =
    [WishPart::This, WishPart::Memory, WishPart::Said, WishPart::Next, WishPart::Later];
/// Words of a report that follows the reported words: "grandma used to say".
const REPORT_WORDS_MAX: usize = 4;
/// Words of unknown meaning before the verb of a request: "the *bank code* please don't save".
const UNKNOWN_BEFORE_MAX: usize = 3;
/// Words of unknown meaning in a reason for a wish: "my *lawyer* says I shouldn't talk about it".
const UNKNOWN_OF_EXCUSE_MAX: usize = 2;

/// Reads every clause of a folded text. `names` are its words with a capital letter.
pub fn readings(text: &str, names: &HashSet<String>) -> Vec<Reading> {
    let mut matches: Vec<_> = WISHES.find(text).collect();
    if !matches.iter().any(|found| VERBS.contains(&found.what)) {
        return Vec::new();
    }
    matches.sort_by_key(|found| found.start);
    let sentences = text.split(ENDS).filter(|sentence| sentence.contains(counts));
    let of_sentence = |(place, sentence): (usize, &str)| {
        let start = sentence.as_ptr() as usize - text.as_ptr() as usize;
        let end = start + sentence.len();
        let from = matches.partition_point(|found| found.start < start);
        let to = matches.partition_point(|found| found.start < end);
        let sentence = Sentence::of(text, start..end, &matches[from..to]);
        sentence.readings(names).into_iter().map(move |reading| Reading { place, ..reading })
    };
    sentences.enumerate().flat_map(of_sentence).collect()
}

struct Sentence<'t> {
    text: &'t str,
    words: Vec<Word>,
    language: CoveredLanguage,
}

impl<'t> Sentence<'t> {
    /// Reads the sentence in the language whose lists leave the least unexplained.
    fn of(text: &'t str, range: Range<usize>, matches: &[PhraseMatch<WishPart>]) -> Sentence<'t> {
        let read =
            |language| Sentence { text, words: words(language, text, &range, matches), language };
        let languages = CoveredLanguage::with_wishes().map(read);
        languages
            .min_by_key(|sentence| -> usize {
                let unknown = sentence.words.iter().filter(|word| word.is_unknown());
                unknown.map(|word| word.end - word.start).sum()
            })
            .expect("there are nine languages")
    }

    fn readings(&self, names: &HashSet<String>) -> Vec<Reading> {
        use WishPart::*;
        let is_sum = self.words.iter().any(|word| word.parts.has(Joint));
        let mut readings: Vec<Reading> = Vec::new();
        let mut is_reported = false;
        for clause in self.clauses() {
            // "She told me to hide it, so you forget it too."
            is_reported &= !(clause[0].parts.has(Hence)
                && clause[1..].iter().any(|word| word.parts.has(Please)));
            let mut reading = self.read(clause, is_reported);
            let is_name = |word: &Word| names.contains(&self.text[word.start..word.end]);
            // In German every noun has a capital letter.
            reading.is_new |= if self.language.code() == "de" {
                reading.is_content && reading.parts.has(Subject) && reading.unknown > 1
            } else {
                clause.iter().any(|word| word.is_unknown() && is_name(word))
            };
            let reports = reading.parts.has(Reported);
            let is_report = |word: &Word| word.parts.has(Reported);
            let ends_in_report = clause.iter().rev().take(2).any(is_report)
                || clause.len() <= REPORT_WORDS_MAX && is_report(&clause[0]);
            is_reported |= ends_in_report
                || reports && reading.kind.is_none() && reading.parts.any(&VERBS_ALONE);
            // "Between us, we have 40 euros."
            if is_sum && reading.kind == Some(Kind::Secret) && reading.parts.has(Among) {
                reading.kind = None;
            }
            if let Some(before) = readings.last_mut() {
                let border = self.text[..clause[0].start].trim_end().chars().next_back();
                reading.follow(before, border == Some(':'), clause);
            }
            // "Keep this between us, she said."
            if ends_in_report && reading.kind.is_none() && clause.len() <= REPORT_WORDS_MAX {
                let clauses_said = 1 + usize::from(is_report(&clause[0]));
                for said in readings.iter_mut().rev().take(clauses_said) {
                    said.is_content |= said.kind.take().is_some();
                }
            }
            readings.push(reading);
        }
        readings
    }

    /// Cuts the words at the punctuation and before conjunctions.
    fn clauses(&self) -> impl Iterator<Item = &[Word]> {
        let tail = self.run_on().map_or(usize::MAX, |at| self.words[at].start);
        self.words.chunk_by(move |word, next| {
            let between = &self.text[word.end..next.start];
            // "Ich will nicht, dass du das speicherst" is one clause.
            let is_bound = between.trim() == "," && next.parts.has(WishPart::Binds);
            let is_border = between.contains(" - ")
                || between.contains(BORDERS) && !is_bound
                || between.contains(is_pictograph);
            !is_border && !next.parts.has(WishPart::Joins) && next.start != tail
        })
    }

    /// Finds the wish at the end of a sentence without commas: "i stole a bike dont save this".
    fn run_on(&self) -> Option<usize> {
        use WishPart::*;
        let wish = [Not, Keep, This].map(|part| move |word: &Word| word.parts.has(part));
        let at = self
            .words
            .windows(wish.len())
            .position(|three| three.iter().zip(&wish).all(|(word, is)| is(word)))?;
        let (before, tail) = self.words.split_at(at);
        let is_statement = before.iter().any(|word| word.parts.has(Subject))
            && before.last().is_some_and(Word::is_unknown)
            && !before.iter().any(|word| word.parts.any(&[Said, Reported, Why]));
        (is_statement
            && tail.iter().all(|word| !word.is_unknown() && !word.parts.any(&[Subject, Others])))
        .then_some(at)
    }

    fn read(&self, words: &[Word], is_reported: bool) -> Reading {
        use WishPart::*;
        let clause = Clause::of(self, words);
        let unknown = clause.unknown(..);
        let has_digit = clause.has_digit();
        let reading = Reading {
            parts: clause.parts,
            is_new: has_digit || clause.parts.has(Change),
            is_content: unknown > 0 || has_digit,
            asks_to_keep: clause.asks_to_keep(),
            unknown,
            ..Reading::default()
        };
        let content = Reading { is_content: true, ..reading.clone() };
        if reading.asks_to_keep {
            return content;
        }
        match clause.wish() {
            None => Reading {
                is_content: (reading.is_content || clause.parts.has(Others)) && !clause.is_excuse(),
                topic: clause.topic(0),
                ..reading
            },
            Some((kind, at)) if is_reported || !clause.is_addressed(kind, at) => content,
            Some((kind, at)) => {
                let reading = Reading { kind: Some(kind), ..reading };
                match kind {
                    Kind::Forget => clause.forgets(at, reading),
                    Kind::KeepNot => clause.keeps_not(at, reading),
                    Kind::Secret => clause.is_secret(at).then_some(reading),
                }
                .unwrap_or(content)
            }
        }
    }
}

struct Clause<'s> {
    text: &'s str,
    words: &'s [Word],
    parts: Parts,
    is_spaced: bool,
}

impl<'s> Clause<'s> {
    fn of(sentence: &'s Sentence<'_>, words: &'s [Word]) -> Clause<'s> {
        let parts = words.iter().fold(Parts::default(), |all, word| all.with(word.parts));
        let is_spaced = sentence.language.is_spaced();
        Clause { text: sentence.text, words, parts, is_spaced }
    }

    fn first(&self, of: &[WishPart]) -> Option<usize> {
        self.words.iter().position(|word| word.parts.any(of))
    }

    fn last(&self, of: &[WishPart]) -> Option<usize> {
        self.words.iter().rposition(|word| word.parts.any(of))
    }

    fn unknown(&self, range: impl SliceIndex<[Word], Output = [Word]>) -> usize {
        self.words[range].iter().filter(|word| word.is_unknown()).count()
    }

    fn has_digit(&self) -> bool {
        self.words
            .iter()
            .any(|word| self.text[word.start..word.end].contains(|c: char| c.is_ascii_digit()))
    }

    fn topic(&self, from: usize) -> Option<String> {
        let unknown = self.words[from..].iter().filter(|word| word.is_unknown());
        let words: Vec<&str> = unknown.map(|word| &self.text[word.start..word.end]).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// True for the reason for a wish: "that was private", "I shouldn't have told you".
    fn is_excuse(&self) -> bool {
        use WishPart::*;
        let (parts, unknown) = (self.parts, self.unknown(..));
        let unknown_max = UNKNOWN_OF_EXCUSE_MAX - usize::from(parts.has(Subject));
        let is_told = parts.has(Said) && !parts.any(&[Others, Reported]) && unknown < unknown_max;
        let is_excuse = is_told || parts.has(Excuse) && unknown <= unknown_max;
        is_excuse && !parts.has(Change) && !self.has_digit()
    }

    /// True for "remember that I never drive" and "don't forget the milk".
    fn asks_to_keep(&self) -> bool {
        use WishPart::*;
        let verb = self
            .words
            .iter()
            .take_while(|word| {
                word.parts.any(&[Please, Joins, Free])
                    && !word.parts.any(&[Keep, Subject, Others, Not])
            })
            .count();
        let not = self.first(&[Not, WasNot]);
        let forget = self.first(&[Forget]);
        if let (Some(not), Some(forget)) = (not, forget) {
            return not.abs_diff(forget) == 1 && not.min(forget) == verb && self.unknown(..) > 0;
        }
        let is_verb = self.words.get(verb).is_some_and(|word| {
            word.parts.has(Remember)
                || word.parts.has(Keep)
                    && self.words[verb + 1..]
                        .iter()
                        .take(2)
                        .any(|word| word.parts.any(&[Subject, Said]))
        });
        // No wish follows the negation: "remember that I do not keep pets".
        let is_fact = |not: usize| {
            self.words[verb..not].iter().any(|word| word.parts.any(&[Subject, Others, Binds]))
                && !self.words[not..].iter().any(|word| word.parts.any(&VERBS))
        };
        let states = self.unknown(verb..) > 0 || self.parts.has(Change) || self.has_digit();
        is_verb && states && not.is_none_or(|not| not > verb && is_fact(not))
    }

    /// Finds the kind of the wish and the word at which it begins.
    fn wish(&self) -> Option<(Kind, usize)> {
        use WishPart::*;
        let parts = self.parts;
        // "I'd rather it wasn't saved", and not "it wasn't saved".
        let asked = self.first(&[Please]);
        let was_not = self.first(&[WasNot]).filter(|was_not| asked < Some(*was_not));
        let not = self.first(&[Not]).or(was_not.filter(|_| asked.is_some()));
        let erases = self.first(&[Forget, Remove, Unsaid, Idiom]);
        match (erases, self.last(&[Keep, Memory]), not) {
            _ if parts.has(Unsaid) => Some((Kind::Forget, self.first(&[Unsaid])?)),
            // "Don't forget it", and not "take it out of your memory".
            (Some(erases), _, Some(not)) if not < erases || !parts.has(Memory) => None,
            (Some(erases), ..) => Some((Kind::Forget, erases)),
            (_, Some(keeps), Some(not))
                if not <= keeps
                    || not == keeps + 1 && parts.any(&[This, Said, Next])
                    || !self.is_spaced
                    || self.unknown(..) == 0 && !parts.has(Subject) =>
            {
                Some((Kind::KeepNot, not.min(self.first(&[Keep, Memory])?)))
            }
            _ => Some((Kind::Secret, self.first(&[Secret])?)),
        }
    }

    /// True if neither the speaker nor somebody else is the subject of the verb at `at`. The
    /// subject stands before the verb, and after the last request and "what I said".
    fn is_addressed(&self, kind: Kind, at: usize) -> bool {
        use WishPart::*;
        let parts = self.parts;
        if !self.is_spaced {
            // "I do not remember", and not "I haven't told my parents".
            return !parts.any(&[Why, Reported])
                && !(0..self.words.len()).any(|at: usize| {
                    self.words[at].parts.has(Subject)
                        && self.words[at.saturating_sub(1)..=at]
                            .iter()
                            .any(|word| word.parts.any(&VERBS))
                });
        }
        let is_asked = parts.any(&[Please, Later])
            || kind == Kind::Forget && parts.has(Memory)
            || kind == Kind::Secret && parts.any(&[This, Next]);
        let is_asked = is_asked && self.unknown(..at) <= UNKNOWN_BEFORE_MAX;
        // "Squeeze that out of your memory."
        let is_verb = |word: &Word| {
            let after = self.words.partition_point(|next| next.start < word.end);
            parts.has(Memory)
                && self.words.get(after).is_some_and(|next| next.parts.any(&[This, Said]))
        };
        // "Lo del piano, olvídalo."
        let about = self.words.iter().take(2).find(|word| word.parts.has(About));
        let is_topic = |word: &Word| about.is_some_and(|about| about.end <= word.start);
        let is_named = |word: &Word| is_asked || is_verb(word) || is_topic(word);
        // "I'd be grateful if you", and not "why do you".
        let asking = self.first(&[Please]).map_or(at, |asking| asking.min(at));
        let is_told = self.words[..asking].iter().any(|word| word.parts.any(&[Why, Reported]));
        let said = self.words[..at].iter().rposition(|word| word.parts.has(Said));
        let asks = self.words[..=at].iter().rposition(|word| word.parts.has(Please));
        let since = asks.max(said).unwrap_or(0);
        !is_told
            && (parts.has(Idiom)
                || !self.words[since..at].iter().any(|word| {
                    !word.parts.has(Please)
                        && (word.parts.any(&[Subject, Others])
                            || word.is_unknown() && !is_named(word))
                }))
    }

    /// Reads the object of a wish to forget. None if that is a thing, or missing.
    fn forgets(&self, at: usize, reading: Reading) -> Option<Reading> {
        use WishPart::*;
        let parts = self.parts;
        let names = parts.any(&[This, Said, Memory, Unsaid]);
        let is_of_memory = parts.any(&[Forget, Said, Memory, Unsaid, Later, Next]);
        let known = usize::from(parts.any(&[Please, This]));
        let is_bare = self.is_spaced && self.words.len() > 1 && reading.unknown == 0;
        let is_bare = is_bare && !names && !parts.any(&[Please, Idiom, Later, Remove]);
        if is_bare
            || parts.has(Thing) && !(parts.has(Said) && parts.has(About))
            || !is_of_memory && reading.unknown > known
        {
            return None;
        }
        let about = self.last(&[About]).filter(|about| *about > at && parts.has(Said));
        let topic = match about {
            Some(about) => self.topic(about),
            None if !names => self.topic(at).or_else(|| self.topic(0)),
            None if parts.has(Memory) && !self.is_spaced => self.topic(0),
            None => None,
        };
        let is_content = self.has_digit() || reading.unknown > UNKNOWN_OF_EXCUSE_MAX;
        Some(Reading { topic, is_content, ..reading })
    }

    /// Reads the object of a wish to keep nothing. None if that is a thing.
    fn keeps_not(&self, at: usize, reading: Reading) -> Option<Reading> {
        use WishPart::*;
        let parts = self.parts;
        let names = parts.any(&[This, Said, Memory, Next]);
        if parts.has(Thing) && !parts.has(Memory) || self.unknown(at..) > 0 && !names {
            return None;
        }
        // "No more record of my betting" has a topic, and "that I bet" states something.
        let is_topic = (1..=UNKNOWN_OF_EXCUSE_MAX).contains(&reading.unknown)
            && !self.has_digit()
            && !parts.any(&[Subject, Next, Secret]);
        let topic = (is_topic && !parts.has(This)).then(|| self.topic(0)).flatten();
        Some(Reading { is_content: reading.is_content && !is_topic, topic, ..reading })
    }

    /// True for "off the record" at the begin or the end of the clause.
    fn is_secret(&self, at: usize) -> bool {
        use WishPart::*;
        let begins = self.unknown(..at) == 0
            && self
                .words
                .get(at + 1)
                .is_none_or(|next| next.parts.any(&[Subject, This, Free, Please]));
        begins || self.unknown(at..) == 0
    }
}

impl Reading {
    /// Reads the clause again with the one before it in the sentence.
    fn follow(&mut self, before: &mut Reading, is_after_colon: bool, clause: &[Word]) {
        use WishPart::*;
        // "He typed to his bot: delete that."
        let is_speech = is_after_colon && before.unknown > 0 && before.parts.any(&[Said, Reported]);
        // "It should drop the row and leave no log."
        let goes_on = clause[0].parts.has(Joins)
            && !self.parts.any(&[This, Said, Next, Please, Secret])
            && before.is_content
            && before.parts.any(&[Remove, Keep, Forget]);
        if self.kind.is_some() && before.kind.is_none() && (is_speech || goes_on) {
            self.kind = None;
            self.is_content = true;
        }
        // "Once you've answered, erase it."
        if before.kind.is_none() && before.parts.has(Later) {
            self.parts = self.parts.with(Parts::of(Later));
        }
        // "Drop that and write a verse" is about a text.
        let is_work = before.kind == Some(Kind::Forget)
            && before.parts.has(Remove)
            && !before.parts.any(&[Memory, Said, Forget])
            && clause[0].parts.has(Joins)
            && clause.get(1).is_some_and(|word| word.parts.any(&[Keep, Said]));
        self.is_new |= is_work && self.unknown > 0;
        // "That thing with my teeth, forget it."
        let is_topic = (1..=UNKNOWN_OF_EXCUSE_MAX).contains(&before.unknown)
            && before.parts.has(About)
            && !before.parts.any(&[Subject, Others, Change, Not]);
        if self.kind == Some(Kind::Forget) && before.kind.is_none() && is_topic && !before.is_new {
            before.is_content = false;
            self.topic = self.topic.take().or_else(|| before.topic.clone());
        }
        // "Don't keep this: I lied."
        self.is_content |= is_after_colon && self.kind.is_none() && before.kind.is_some();
        // "I'd hate to see that saved, so please don't."
        let is_refusal = self.parts.has(Not) && !self.is_content && clause.len() <= 4;
        let is_refusal = is_refusal && !self.parts.any(&[Subject, Others, Said, Change]);
        if is_refusal && self.kind.is_none() && before.parts.any(&[Keep, Memory]) {
            self.kind = Some(Kind::KeepNot);
            before.is_content = false;
        }
    }
}

/// Assigns the words to phrases of a language, the longest first. Words that no phrase covers are
/// unknown.
fn words(
    language: CoveredLanguage,
    text: &str,
    sentence: &Range<usize>,
    matches: &[PhraseMatch<WishPart>],
) -> Vec<Word> {
    let mut found: Vec<_> = matches.iter().filter(|one| one.language == language).collect();
    found.sort_by_key(|one| (Reverse(one.end - one.start), one.start));
    let mut words: Vec<Word> = Vec::new();
    // The word of each byte, counted from one.
    let mut owners = vec![0_usize; sentence.len()];
    for one in found.into_iter().filter(|one| one.end <= sentence.end) {
        let mut parts = Parts::of(one.what);
        if has_object(language, &text[one.start..one.end], one.what) {
            parts = parts.with(Parts::of(WishPart::This));
        }
        let bytes = one.start - sentence.start..one.end - sentence.start;
        let Some(owner) = owners[bytes.clone()].iter().copied().find(|owner| *owner > 0) else {
            words.push(Word { start: one.start, end: one.end, parts });
            owners[bytes].fill(words.len());
            continue;
        };
        let longer = &mut words[owner - 1];
        let is_same = (longer.start, longer.end) == (one.start, one.end);
        // "What I told you" names earlier words, and "I don't want" negates.
        let adds = parts.any(&ADDITIVE)
            || one.what == WishPart::Not && longer.parts.has(WishPart::Please)
            || !language.is_spaced();
        if is_same || adds && longer.parts != Parts::of(WishPart::Free) {
            longer.parts = longer.parts.with(parts);
        }
    }
    words.extend(unknown_words(language, &text[..sentence.end], sentence.start, |at: usize| {
        owners.get(at - sentence.start).is_some_and(|owner| *owner > 0)
    }));
    words.sort_by_key(|word| word.start);
    words
}

/// True for an imperative with its object: Italian "levalo", Spanish "bórrala".
fn has_object(language: CoveredLanguage, word: &str, part: WishPart) -> bool {
    let objects = ["lo", "la", "los", "las", "li", "le"];
    let verb = objects.iter().find_map(|object| word.strip_suffix(object)).unwrap_or_default();
    ["es", "it"].contains(&language.code())
        && [WishPart::Forget, WishPart::Remove].contains(&part)
        && verb.len() > 2
        && verb.ends_with(['a', 'e', 'i', 'r'])
}

/// Finds the words that no phrase covers.
fn unknown_words(
    language: CoveredLanguage,
    text: &str,
    start: usize,
    is_covered: impl Fn(usize) -> bool,
) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (at, c) in text[start..].char_indices().map(|(at, c)| (start + at, c)) {
        let end = at + c.len_utf8();
        match words.last_mut() {
            _ if !counts(c) || is_covered(at) => {}
            Some(last) if last.end == at => last.end = end,
            _ => words.push(Word { start: at, end, parts: Parts::default() }),
        }
    }
    words.retain(|word| {
        let word = &text[word.start..word.end];
        // The "l" of "l'oublier", a particle, a Japanese ending.
        let chars = word.chars().count();
        word.contains(|c: char| c.is_ascii_digit())
            || chars > 1
                && (language.is_spaced()
                    || !word.chars().all(|c| ('\u{3040}'..='\u{309f}').contains(&c)))
            || chars > ENDING_CHARS_MAX
    });
    words
}

/// True for emoji and dingbats, which stand between sentences.
fn is_pictograph(c: char) -> bool {
    c >= '\u{1f000}' || ('\u{2600}'..='\u{27bf}').contains(&c)
}

/// True for letters and digits, the placeholder of a quotation, and a quotation mark that nothing
/// closes. Other signs and spaces are no part of a wish.
fn counts(c: char) -> bool {
    c.is_alphanumeric() || c == PASSAGE || c == '"'
}
