//! Reads the clauses of a folded text as wishes. A clause is a wish if phrases of the lists cover it
//! from begin to end, in any order: "could you | forget | what I | just said". "I don't remember
//! this" is none: "I" alone stands in no list. A part of a clause can be a wish beside a
//! conjunction or a "please", which is enough for what is off the record and not to erase.

use super::pasted::PASSAGE;
use crate::wordings::{CoveredLanguage, PhraseMatch, WISHES, WishPart};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a clause asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "Forget that."
    Forget,
    /// "Forget it", which may mean "never mind".
    Idiom,
    /// "Don't remember that."
    KeepNot,
    /// "Off the record."
    Secret,
}

/// The parts of a wish, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u32);

impl Parts {
    pub fn has(self, part: WishPart) -> bool {
        self.0 & 1 << part as u32 != 0
    }

    fn with(self, part: WishPart) -> Parts {
        Parts(self.0 | 1 << part as u32)
    }

    fn any(self, parts: &[WishPart]) -> bool {
        parts.iter().any(|part| self.has(*part))
    }

    fn kind(self) -> Option<Kind> {
        use WishPart::*;
        let (keeps, is_negated) = (self.any(&[Remember, Store]), self.has(Not));
        let forgets = self.any(&[Forget, Remove, Idiom]);
        match () {
            () if forgets && is_negated => None,
            () if forgets && self.has(Later) => Some(Kind::Secret),
            () if self.any(&[Forget, Remove]) => Some(Kind::Forget),
            () if self.has(Idiom) && self.has(Said) => Some(Kind::Forget),
            () if self.has(Idiom) => Some(Kind::Idiom),
            () if keeps && is_negated => Some(Kind::KeepNot),
            () if self.has(Secret) && !is_negated => Some(Kind::Secret),
            () => None,
        }
    }
}

/// A clause as phrases of one language cover it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub parts: Parts,
    pub kind: Option<Kind>,
    pub is_whole: bool,
    /// Somebody else's words: "my sister said, …".
    pub is_reported: bool,
    /// What follows "forget what I said about".
    pub topic: Option<String>,
}

impl Reading {
    /// "Ich möchte nicht, …"
    fn only_negates(&self) -> bool {
        self.is_whole && self.kind.is_none() && self.parts.has(WishPart::Not)
    }

    fn negate(&mut self) {
        self.parts = self.parts.with(WishPart::Not);
        self.kind = self.parts.kind().filter(|_| self.is_whole);
    }
}

/// Phrases in a row, each beginning where the one before ends.
#[derive(Clone, Copy)]
struct Path {
    begin: usize,
    phrases: usize,
    parts: Parts,
    last: Option<WishPart>,
}

impl Path {
    fn from(begin: usize) -> Path {
        Path { begin, phrases: 0, parts: Parts::default(), last: None }
    }

    fn and(self, part: WishPart) -> Path {
        Path { phrases: self.phrases + 1, parts: self.parts.with(part), last: Some(part), ..self }
    }

    /// The longest path first, then the one of the longest phrases: "forget it" is an idiom before
    /// it is a verb and a pronoun.
    fn order(&self) -> (usize, usize) {
        (self.begin, self.phrases)
    }
}

/// A clause of more bytes is no name of a speaker, as in "…, said my sister".
const SPEAKER_BYTES_MAX: usize = 30;
const BORDERS: [char; 17] =
    ['.', ',', '!', '?', ';', ':', '\n', '(', ')', '…', '¡', '¿', '—', '–', '~', '〜', '・'];
/// Borders between two sentences.
const ENDS: [char; 7] = ['.', '!', '?', ';', '…', '\n', ')'];

pub struct Clauses<'t> {
    text: &'t str,
    clauses: Vec<Range<usize>>,
    /// In the order of their begins.
    matches: Vec<PhraseMatch<WishPart>>,
}

impl<'t> Clauses<'t> {
    pub fn of(text: &'t str) -> Clauses<'t> {
        let mut matches: Vec<_> = WISHES.find(text).collect();
        matches.sort_by_key(|found| found.start);
        Clauses { text, clauses: clauses(text), matches }
    }

    pub fn may_have_wish(&self) -> bool {
        use WishPart::*;
        let begins_wish =
            |part| matches!(part, Forget | Remove | Idiom | Remember | Store | Secret);
        self.matches.iter().any(|found| begins_wish(found.what))
    }

    pub fn has_wish(&self) -> bool {
        self.may_have_wish() && self.readings().iter().any(|reading| reading.kind.is_some())
    }

    pub fn readings(&self) -> Vec<Reading> {
        let mut readings: Vec<Reading> =
            (0..self.clauses.len()).map(|place| self.read(place)).collect();
        for place in 0..readings.len() {
            let negated = place.checked_sub(1).filter(|before| self.border(*before).contains(','));
            if let Some(before) = negated
                && readings[before].only_negates()
                && readings[place].kind.is_none()
            {
                readings[place].negate();
            }
            readings[place].is_reported = self.is_reported(place, &readings);
        }
        readings
    }

    /// True if the last sentence asks to forget "this", which the sentences before it say.
    pub fn ends_with_forget_this(&self, readings: &[Reading]) -> bool {
        let Some(before) = readings.iter().rposition(|reading| !reading.is_whole) else {
            return false;
        };
        let is_sentence = self.border(before).contains(ENDS);
        let asks = |reading: &Reading| {
            reading.kind == Some(Kind::Forget)
                && !reading.is_reported
                && reading.parts.has(WishPart::It)
                && !reading.parts.has(WishPart::Said)
        };
        is_sentence && readings[before + 1..].iter().any(asks)
    }

    /// Reads a clause in the language that explains most of it.
    fn read(&self, place: usize) -> Reading {
        let clause = &self.clauses[place];
        let found = self.matches_in(clause);
        CoveredLanguage::with_wishes()
            .filter(|language| found.iter().any(|one| one.language == *language))
            .map(|language| self.read_in(language, clause, found))
            .max_by_key(|reading| {
                (reading.is_whole, reading.kind.is_some(), reading.topic.is_some())
            })
            .unwrap_or_default()
    }

    fn read_in(
        &self,
        language: CoveredLanguage,
        clause: &Range<usize>,
        found: &[PhraseMatch<WishPart>],
    ) -> Reading {
        let is_here =
            |one: &PhraseMatch<WishPart>| one.language == language && one.end <= clause.end;
        let found: Vec<_> = found.iter().copied().filter(is_here).collect();
        let paths = self.paths(language, clause, &found);
        self.read_to_end(language, clause, &found, &paths)
            .or_else(|| self.read_from_begin(clause, &found, &paths))
            .unwrap_or_default()
    }

    /// Finds the best path to each place where a phrase ends. One begins with the clause, others
    /// at a "please" and after a conjunction.
    fn paths(
        &self,
        language: CoveredLanguage,
        clause: &Range<usize>,
        found: &[PhraseMatch<WishPart>],
    ) -> BTreeMap<usize, Path> {
        use WishPart::*;
        let begin = self.skip(clause.start, clause.end);
        let mut paths = BTreeMap::from([(begin, Path::from(begin))]);
        for one in found {
            let may_begin = match one.what {
                Please => true,
                // Without spaces nothing shows where a word begins.
                Not | Remember | Store | Secret | It => !language.is_spaced(),
                _ => false,
            };
            if may_begin {
                paths.entry(one.start).or_insert(Path::from(one.start));
            }
            if matches!(one.what, FirstPerson | Reported | About) {
                continue;
            }
            let end = self.skip(one.end, clause.end);
            if let Some(path) = paths.get(&one.start).copied() {
                let longer = path.and(one.what);
                let there = paths.entry(end).or_insert(longer);
                if longer.order() < there.order() {
                    *there = longer;
                }
            }
            if one.what == Joins {
                paths.entry(end).or_insert(Path::from(end));
            }
        }
        paths
    }

    /// Reads the whole clause, or a wish at its end: "I snore and | please | don't | keep | that".
    fn read_to_end(
        &self,
        language: CoveredLanguage,
        clause: &Range<usize>,
        found: &[PhraseMatch<WishPart>],
        paths: &BTreeMap<usize, Path>,
    ) -> Option<Reading> {
        use WishPart::*;
        let path = paths.get(&clause.end)?;
        let is_whole = path.begin == self.skip(clause.start, clause.end);
        let before = clause.start..path.begin;
        let is_told = found.iter().any(|one| one.what == Reported && before.contains(&one.start));
        // "… and secret" and "… and doesn't save" are no wishes.
        let names = path.parts.any(&[It, Said, Please])
            || !language.is_spaced()
            || path.parts.has(Secret) && self.text[path.begin..clause.end].trim().contains(' ');
        let kind = path.parts.kind().filter(|_| is_whole || names && !is_told);
        let reading = Reading { parts: path.parts, kind, is_whole, ..Reading::default() };
        (is_whole || kind.is_some()).then_some(reading)
    }

    /// Reads a wish at the begin of a clause, or a wish to forget with a subject.
    fn read_from_begin(
        &self,
        clause: &Range<usize>,
        found: &[PhraseMatch<WishPart>],
        paths: &BTreeMap<usize, Path>,
    ) -> Option<Reading> {
        use WishPart::*;
        let last_own = found.iter().rfind(|one| one.what == FirstPerson).map(|one| one.start);
        found.iter().find_map(|next| {
            let path = paths.get(&next.start)?;
            let kind = path.parts.kind()?;
            // "Don't keep this but I …" is a wish, and "keep it between us and the sea" is none.
            let ends = match next.what {
                FirstPerson => path.last != Some(Joins) || path.parts.has(Please),
                Joins => last_own >= Some(next.start),
                About => kind == Kind::Forget,
                _ => false,
            };
            let names = path.parts.any(&[It, Said]) || kind == Kind::Secret;
            let is_whole_begin = path.begin == self.skip(clause.start, clause.end);
            let has_topic = next.what == About && is_whole_begin && path.parts.has(Said);
            let topic = has_topic.then(|| self.text[next.end..clause.end].trim().to_owned());
            let reading =
                Reading { parts: path.parts, kind: Some(kind), topic, ..Reading::default() };
            (ends && names).then_some(reading)
        })
    }

    /// True if the clause before or behind names somebody who says this one: "my sister said".
    fn is_reported(&self, place: usize, readings: &[Reading]) -> bool {
        let speaker = |place: usize| self.clauses.get(place).filter(|_| !readings[place].is_whole);
        let before = place.checked_sub(1).filter(|before| !self.border(*before).contains(ENDS));
        let is_introduced = before.and_then(speaker).is_some_and(|clause| {
            let closes =
                |one: &&PhraseMatch<WishPart>| self.skip(one.end, clause.end) == clause.end;
            let closing = || self.matches_in(clause).iter().filter(closes);
            closing().any(|told| {
                // "As I said, …"
                let is_own = |one: &PhraseMatch<WishPart>| {
                    one.what == WishPart::Said && one.start < told.start
                };
                told.what == WishPart::Reported && !closing().any(is_own)
            })
        });
        let behind = Some(place + 1).filter(|_| !self.border(place).contains('.'));
        is_introduced
            || behind.and_then(speaker).is_some_and(|clause| {
                let begin = self.skip(clause.start, clause.end);
                let found = self.matches_in(clause);
                let is_own = found.iter().any(|one| one.what == WishPart::FirstPerson);
                found.iter().any(|one| {
                    let is_short = clause.len() <= SPEAKER_BYTES_MAX && !is_own;
                    let is_short = is_short && one.language.is_spaced();
                    one.what == WishPart::Reported && (one.start == begin || is_short)
                })
            })
    }

    fn matches_in(&self, clause: &Range<usize>) -> &[PhraseMatch<WishPart>] {
        let from = self.matches.partition_point(|found| found.start < clause.start);
        let to = self.matches.partition_point(|found| found.start < clause.end);
        &self.matches[from..to]
    }

    /// What stands between a clause and the next one.
    fn border(&self, place: usize) -> &str {
        let next = self.clauses.get(place + 1).map_or(self.text.len(), |next| next.start);
        &self.text[self.clauses[place].end..next]
    }

    /// The next place from `at` that a phrase must cover, or `end`.
    fn skip(&self, at: usize, end: usize) -> usize {
        let rest = self.text.get(at..end);
        rest.and_then(|rest| rest.find(counts)).map_or(end, |found| at + found)
    }
}

/// True for letters and digits, the placeholder of a quotation, and a quotation mark that nothing
/// closes. Other signs and spaces are no part of a wish.
fn counts(c: char) -> bool {
    c.is_alphanumeric() || c == PASSAGE || c == '"'
}

/// Cuts a text at the punctuation. A hyphen is a border between spaces only.
fn clauses(text: &str) -> Vec<Range<usize>> {
    let mut clauses = Vec::new();
    let mut start = 0;
    let mut push = |range: Range<usize>| {
        if text[range.clone()].contains(counts) {
            clauses.push(range);
        }
    };
    for (at, c) in text.char_indices() {
        let is_dash = c == '-' && text[..at].ends_with(' ') && text[at + 1..].starts_with(' ');
        if is_dash || BORDERS.contains(&c) {
            push(start..at);
            start = at + c.len_utf8();
        }
    }
    push(start..text.len());
    clauses
}
