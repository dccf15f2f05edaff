//! BM25 over one user's own documents: no other document moves a score by a bit. Where documents and words are found is not known here.

use super::Best;
use super::document::{Lengths, Place, Times};
use crate::domain::MemoryId;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Ends of ids that are told apart: of so many a hundredth is taken by the four hundred that are asked for, and a byte each fits the nearest cache.
const ENDS: usize = 1 << 15;

/// Lucene's form of it, with the factor `k1 + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bm25 {
    /// How soon a repeated word stops adding.
    pub k1: f32,
    /// How much a long document is held against it: 0 not at all, 1 in full.
    pub b: f32,
    /// What the words of the two turns before count beside its own.
    pub previous: f32,
    /// A document with more words speaks for itself, and the turns before it count less.
    pub short_words: f32,
}

/// A user's live documents, each in a row, and where the words of a question were found in them.
pub struct Found<'q> {
    pub rows: Rows,
    pub words: Vec<Word<'q>>,
}

/// What the cache of documents holds is shared with it, not copied.
#[derive(Default)]
pub struct Rows {
    known: Arc<Columns>,
    more: Columns,
}

/// Rows by column: most of what is done with all of them looks at one.
#[derive(Default)]
pub struct Columns {
    ids: Vec<MemoryId>,
    /// Packed.
    lengths: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: MemoryId,
    pub lengths: Lengths,
}

pub struct Word<'q> {
    pub text: &'q str,
    asked: u32,
    /// By place of the document: row, and how often it has the word there. Invariant: rows ascend, each at most once.
    pub places: [Vec<(u32, u32)>; Place::SEARCHED.len()],
}

/// How well a document's words answer a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Words {
    /// Its own, and a share of the turns before it.
    pub own: f32,
    /// The turn before alone, as if it were one of the user's documents.
    pub before: f32,
    /// The turn after, likewise.
    pub after: f32,
    /// Of what the question says, by how rare its words are with this user, the share that the document's own words say too. None: the
    /// question has no words.
    pub shared: Option<f32>,
}

/// Every document of a user with its score, and the rest that may be asked of a few of them.
pub struct Scored<'q> {
    bm25: Bm25,
    found: Found<'q>,
    /// By row.
    own: Vec<f32>,
    own_mean: f64,
}

impl Columns {
    pub fn push(&mut self, row: Row) {
        self.ids.push(row.id);
        self.lengths.push(row.lengths.packed());
    }

    pub fn extend(&mut self, other: &Columns, places: Range<usize>) {
        self.ids.extend_from_slice(&other.ids[places.clone()]);
        self.lengths.extend_from_slice(&other.lengths[places]);
    }

    pub fn ids(&self) -> &[MemoryId] {
        &self.ids
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn shrink_to_fit(&mut self) {
        self.ids.shrink_to_fit();
        self.lengths.shrink_to_fit();
    }

    pub fn row(&self, place: usize) -> Row {
        Row { id: self.ids[place], lengths: Lengths::unpacked(self.lengths[place]) }
    }

    pub fn bytes(&self) -> usize {
        self.ids.capacity() * size_of::<MemoryId>() + self.lengths.capacity() * size_of::<u64>()
    }
}

impl Rows {
    /// Invariant: before any other.
    pub fn begin_with(&mut self, known: Arc<Columns>) {
        debug_assert!(self.len() == 0);
        self.known = known;
    }

    pub fn push(&mut self, row: Row) {
        self.more.push(row);
    }

    pub fn len(&self) -> usize {
        self.known.len() + self.more.len()
    }

    pub fn of(&self, row: u32) -> Row {
        let place = row as usize;
        if place < self.known.len() {
            self.known.row(place)
        } else {
            self.more.row(place - self.known.len())
        }
    }

    fn columns(&self) -> [&Columns; 2] {
        [&self.known, &self.more]
    }

    fn lengths(&self) -> impl Iterator<Item = Lengths> {
        self.known.lengths.iter().chain(&self.more.lengths).map(|packed| Lengths::unpacked(*packed))
    }
}

impl<'q> Found<'q> {
    pub fn nothing_yet(query_terms: &'q [String]) -> Found<'q> {
        let mut words: Vec<Word<'q>> = Vec::new();
        let mut known: HashMap<&str, usize, RandomState> = HashMap::default();
        for text in query_terms {
            let place = *known.entry(text).or_insert(words.len());
            match words.get_mut(place) {
                Some(word) => word.asked += 1,
                None => words.push(Word { text, asked: 1, places: Default::default() }),
            }
        }
        Found { rows: Rows::default(), words }
    }

    pub fn length_total(&self) -> u64 {
        self.rows.lengths().map(|lengths| u64::from(lengths.own)).sum()
    }
}

impl Word<'_> {
    #[inline]
    pub fn add(&mut self, row: u32, times: Times) {
        for (places, times) in self.places.iter_mut().zip(times) {
            if times > 0 {
                places.push((row, times));
            }
        }
    }

    fn places(&self, place: Place) -> &[(u32, u32)] {
        &self.places[place as usize]
    }

    /// How often that row has it there.
    fn times(&self, place: Place, row: u32) -> Option<u32> {
        let places = self.places(place);
        places.binary_search_by_key(&row, |(row, _)| *row).ok().map(|at| places[at].1)
    }

    /// What one occurrence of it is worth, if so many of so many documents have it.
    fn weight(&self, having: usize, count: usize) -> f64 {
        f64::from(self.asked) * self.weight_once(having, count)
    }

    /// Inverse document frequency, as in Lucene's BM25.
    fn weight_once(&self, having: usize, count: usize) -> f64 {
        let (having, count) = (having as f64, count as f64);
        (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
    }
}

impl Scored<'_> {
    /// The best documents that have a word of the question, best first; of equals the one with the smaller id.
    pub fn best(&self, limit: usize) -> Vec<(MemoryId, f32)> {
        let mut best = Best::of(limit);
        let mut own = self.own.iter();
        for columns in self.found.rows.columns() {
            let scores = columns.ids.iter().zip(own.by_ref());
            scores.filter(|(_, own)| **own > 0.0).for_each(|(id, own)| best.offer(id, *own));
        }
        best.sorted()
    }

    /// The score of a document of mean length that says every word of the question once. A word that
    /// no document has counts as the rarest.
    pub fn information(&self) -> f32 {
        let count = self.found.rows.len();
        self.found
            .words
            .iter()
            .map(|word| word.weight_once(word.places(Place::Own).len(), count))
            .sum::<f64>() as f32
    }

    /// The scores of these, nothing where one is not this user's.
    pub fn of(&self, ids: &[MemoryId]) -> Vec<Words> {
        if ids.is_empty() {
            return Vec::new();
        }
        let place: HashMap<MemoryId, usize, RandomState> =
            ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        // Most rows are none of these, which the end of their id tells sooner than the map.
        let mut may_be = [false; ENDS];
        let end = |id: &MemoryId| id.0.as_u64_pair().1 as usize % ENDS;
        ids.iter().for_each(|id| may_be[end(id)] = true);
        let mut words = vec![Words::default(); ids.len()];
        let ids = self.found.rows.columns().into_iter().flat_map(|columns| &columns.ids);
        (0..).zip(ids).filter(|(_, id)| may_be[end(id)]).for_each(|(row, id)| {
            if let Some(place) = place.get(id) {
                words[*place] = self.words_of(row);
            }
        });
        words
    }

    /// What was said around it is measured like the user's own documents: it was said to the same one.
    fn words_of(&self, row: u32) -> Words {
        let (count, lengths) = (self.found.rows.len(), self.found.rows.of(row).lengths);
        let (mut before, mut after, mut shared, mut said) = (0.0, 0.0, 0.0, 0.0);
        for word in &self.found.words {
            let weight = word.weight(word.places(Place::Own).len(), count);
            let score = |place, length: u32| {
                let times = word.times(place, row)?;
                Some(weight * self.bm25.saturated(times, length.max(1), self.own_mean))
            };
            before += score(Place::Before, lengths.before).unwrap_or_default();
            after += score(Place::After, lengths.after).unwrap_or_default();
            said += weight;
            shared += word.times(Place::Own, row).map_or(0.0, |_| weight);
        }
        let shared = (said > 0.0).then(|| (shared / said) as f32);
        Words { own: self.own[row as usize], before: before as f32, after: after as f32, shared }
    }
}

impl Bm25 {
    pub fn scored(self, found: Found) -> Scored {
        let (rows, count) = (&found.rows, found.rows.len());
        let sum = |(own, previous): (u64, u64), lengths: Lengths| {
            (own + u64::from(lengths.own), previous + u64::from(lengths.previous()))
        };
        let (own_total, previous_total) = rows.lengths().fold((0, 0), sum);
        let (own_mean, previous_mean) =
            (own_total as f64 / count as f64, previous_total as f64 / count as f64);
        let (mut own, mut previous) = (vec![0.0; count], vec![0.0; count]);
        for word in &found.words {
            let weight = word.weight(word.places(Place::Own).len(), count);
            for &(row, times) in word.places(Place::Own) {
                own[row as usize] +=
                    weight * self.saturated(times, rows.of(row).lengths.own, own_mean);
            }
            let both = together(word.places(Place::Before), word.places(Place::Earlier));
            let weight = word.weight(both.len(), count);
            for (row, times) in both {
                previous[row as usize] +=
                    weight * self.saturated(times, rows.of(row).lengths.previous(), previous_mean);
            }
        }
        let with_previous = |(lengths, (own, previous)): (Lengths, (f64, f64))| {
            let shortness =
                (f64::from(self.short_words) / f64::from(lengths.words.max(1))).min(1.0);
            (own + f64::from(self.previous) * shortness * previous) as f32
        };
        let own = rows.lengths().zip(own.into_iter().zip(previous)).map(with_previous).collect();
        Scored { bm25: self, found, own, own_mean }
    }

    /// What so many occurrences are worth, of one at most `k1 + 1`.
    fn saturated(self, times: u32, length: u32, length_mean: f64) -> f64 {
        let (k1, b, times) = (f64::from(self.k1), f64::from(self.b), f64::from(times));
        // One division: many documents wait for it.
        (k1 + 1.0) * times * length_mean
            / (times * length_mean + k1 * (length_mean - b * length_mean + b * f64::from(length)))
    }
}

/// How often a row has a word in either of two places.
fn together(one: &[(u32, u32)], other: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (mut both, mut rest) =
        (Vec::with_capacity(one.len() + other.len()), other.iter().copied().peekable());
    for &(row, times) in one {
        while let Some(before) = rest.next_if(|(other, _)| *other < row) {
            both.push(before);
        }
        let also = rest.next_if(|(other, _)| *other == row).map_or(0, |(_, times)| times);
        both.push((row, times + also));
    }
    both.extend(rest);
    both
}
